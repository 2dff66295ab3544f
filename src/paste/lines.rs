//! Reads lines from a stream in bounded memory, whatever ends them: LF, CR LF, CR.

use std::io::{self, BufRead};

/// A longer line is cut here; no supported tool prints one.
pub(super) const MAX_LINE: usize = 64 * 1024;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// All bytes.
    pub(super) bytes: u64,
    /// Lines that were cut.
    pub(super) cut: u64,
}

/// Calls `each` with the number of every line, from 1, and its bytes.
///
/// # Errors
/// Read errors of the stream, except interruptions.
pub(super) fn each_line(
    input: &mut dyn BufRead,
    mut each: impl FnMut(u64, &[u8]),
) -> io::Result<Read> {
    let mut out = Read::default();
    let mut held: Vec<u8> = Vec::new();
    let (mut no, mut after_cr, mut cut) = (0_u64, false, false);
    loop {
        let buf = match input.fill_buf() {
            Ok(b) => b,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if buf.is_empty() {
            break;
        }
        let size = buf.len();
        let mut rest = buf;
        while let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            let (line, tail) = rest.split_at(end);
            let is_cr = tail.first() == Some(&b'\r');
            // CR LF and CR CR LF end one line.
            let same = after_cr && line.is_empty() && held.is_empty();
            if !same {
                no += 1;
                if held.is_empty() {
                    cut |= line.len() > MAX_LINE;
                    each(no, line.get(..MAX_LINE).unwrap_or(line));
                } else {
                    cut |= append(&mut held, line);
                    each(no, &held);
                    held.clear();
                }
                out.cut += u64::from(cut);
                cut = false;
            }
            after_cr = is_cr;
            rest = tail.get(1..).unwrap_or_default();
        }
        if !rest.is_empty() {
            after_cr = false;
            cut |= append(&mut held, rest);
        }
        out.bytes = out.bytes.saturating_add(size as u64);
        input.consume(size);
    }
    if !held.is_empty() {
        each(no + 1, &held);
        out.cut += u64::from(cut);
    }
    Ok(out)
}

/// Appends as much as fits; true when something did not.
fn append(held: &mut Vec<u8>, more: &[u8]) -> bool {
    let room = MAX_LINE.saturating_sub(held.len());
    held.extend_from_slice(more.get(..room).unwrap_or(more));
    more.len() > room
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn all(text: &[u8], buffer: usize) -> (Vec<(u64, String)>, Read) {
        let mut out = Vec::new();
        let mut reader = io::BufReader::with_capacity(buffer, text);
        let read = each_line(&mut reader, |n, l| {
            out.push((n, String::from_utf8_lossy(l).into_owned()));
        });
        (out, read.unwrap())
    }

    #[test]
    fn every_end_of_line_is_one() {
        for buffer in [1, 2, 3, 100] {
            let (lines, read) = all(b"a\nb\r\nc\rd\r\r\n\ne", buffer);
            let want = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, ""), (6, "e")];
            assert_eq!(lines, want.map(|(n, t)| (n, t.to_owned())), "buffer {buffer}");
            assert_eq!(read, Read { bytes: 13, cut: 0 });
        }
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let text = [vec![b'x'; 3 * MAX_LINE], b"\nshort".to_vec()].concat();
        for buffer in [100, 1 << 20] {
            let (lines, read) = all(&text, buffer);
            assert_eq!(lines.iter().map(|l| l.1.len()).collect::<Vec<_>>(), [MAX_LINE, 5]);
            assert_eq!(read, Read { bytes: text.len() as u64, cut: 1 });
        }
    }

    proptest! {
        /// The size of the buffer does not show.
        #[test]
        fn buffers_do_not_matter(text in "[ab\r\n]{0,60}", buffer in 1_usize..9) {
            prop_assert_eq!(all(text.as_bytes(), buffer), all(text.as_bytes(), 1000));
        }
    }
}

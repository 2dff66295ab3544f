//! Netlink framing: `nlmsghdr`, `nlattr`, and the two control messages that end an answer.
//! Works on byte slices only, allocates nothing, and takes any bytes without panicking.

/// Length of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// `NLM_F_REQUEST`.
pub const F_REQUEST: u16 = 1;
/// `NLM_F_DUMP`, that is `NLM_F_ROOT | NLM_F_MATCH`.
pub const F_DUMP: u16 = 0x300;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Types below this one are control messages.
const NLMSG_MIN_TYPE: u16 = 0x10;

/// How far an answer got with one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More datagrams follow.
    More,
    /// The answer is complete.
    Done,
    /// The kernel ended it with this errno (positive).
    Failed(i32),
}

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A data message: its type, the request's number, its payload.
    Data(u16, u32, &'a [u8]),
    /// `NLMSG_DONE`, with the errno (positive) that ended the dump, 0 for none.
    Done(u32, i32),
    /// `NLMSG_ERROR` with the errno (positive); 0 is an acknowledgement.
    Error(u32, i32),
}

/// The messages of one datagram. Ends at the first header that cannot be right;
/// [`Messages::torn`] then tells.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
    torn: bool,
}

impl<'a> Messages<'a> {
    /// Starts at the first byte of a datagram.
    #[must_use]
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram, torn: false }
    }
    /// True when bytes were left over that are no message.
    #[must_use]
    pub fn torn(&self) -> bool {
        self.torn
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        loop {
            let Some(head) = self.rest.first_chunk::<HEADER>() else {
                self.torn |= !self.rest.is_empty();
                return None;
            };
            let len = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let kind = u16::from_ne_bytes([head[4], head[5]]);
            let seq = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]);
            let Some(payload) = self.rest.get(HEADER..len) else {
                self.rest = &[];
                self.torn = true;
                return None;
            };
            self.rest = self.rest.get(align(len)..).unwrap_or_default();
            match kind {
                NLMSG_ERROR => return Some(Message::Error(seq, errno(payload).unwrap_or(EPROTO))),
                // Old kernels may send DONE without its number.
                NLMSG_DONE => return Some(Message::Done(seq, errno(payload).unwrap_or(0))),
                k if k < NLMSG_MIN_TYPE => {}
                k => return Some(Message::Data(k, seq, payload)),
            }
        }
    }
}

/// What an error message without a number counts as.
const EPROTO: i32 = 71;

fn errno(payload: &[u8]) -> Option<i32> {
    // DONE carries the length of the dump where it went well: only negatives are errors.
    payload.first_chunk::<4>().map(|b| i32::from_ne_bytes(*b).min(0).saturating_neg())
}

/// The attributes behind a message's fixed part: type without its flag bits, and payload.
/// Ends at the first one that cannot be right.
#[derive(Clone, Debug)]
pub struct Attrs<'a>(pub &'a [u8]);

impl<'a> Iterator for Attrs<'a> {
    type Item = (u16, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let head = self.0.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        // `len < 4` is no range and ends the walk as well.
        let body = self.0.get(4..len)?;
        self.0 = self.0.get(align(len)..).unwrap_or_default();
        Some((kind, body))
    }
}

/// `NLMSG_ALIGN` and `NLA_ALIGN` are the same.
#[inline]
fn align(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// Appends a message; `body` writes its payload, the length is filled in after.
pub fn put_message(
    out: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    seq: u32,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&seq.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - start) as u32;
    if let Some(field) = out.get_mut(start..start + 4) {
        field.copy_from_slice(&len.to_ne_bytes());
    }
    pad(out, start);
}

/// Appends an attribute.
pub fn put_attr(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    pad(out, start);
}

fn pad(out: &mut Vec<u8>, start: usize) {
    while !(out.len() - start).is_multiple_of(4) {
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, seq: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_message(&mut out, kind, 0, seq, |b| b.extend_from_slice(payload));
        out
    }

    #[test]
    fn messages_are_told_apart() {
        let mut bytes = message(20, 7, b"abc");
        bytes.extend(message(1, 7, b"noop"));
        bytes.extend(message(2, 7, &(-2i32).to_ne_bytes()));
        bytes.extend(message(3, 8, &(-95i32).to_ne_bytes()));
        let got: Vec<_> = Messages::new(&bytes).collect();
        assert_eq!(got, [Message::Data(20, 7, b"abc"), Message::Error(7, 2), Message::Done(8, 95)]);
    }

    #[test]
    fn a_done_without_number_or_with_a_length_is_no_error() {
        assert_eq!(Messages::new(&message(3, 1, b"")).next(), Some(Message::Done(1, 0)));
        let bytes = message(3, 1, &640i32.to_ne_bytes());
        assert_eq!(Messages::new(&bytes).next(), Some(Message::Done(1, 0)));
        let bytes = message(2, 1, &i32::MIN.to_ne_bytes());
        assert_eq!(Messages::new(&bytes).next(), Some(Message::Error(1, i32::MAX)));
    }

    #[test]
    fn a_header_that_lies_ends_the_datagram() {
        for len in [0u32, 3, 15, 21, u32::MAX] {
            let mut bytes = message(20, 7, b"abcd");
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            let mut m = Messages::new(&bytes);
            assert_eq!(m.next(), None, "{len}");
            assert!(m.torn());
        }
    }

    #[test]
    fn attributes_shorter_than_their_header_or_longer_than_the_rest_end_the_walk() {
        let mut bytes = Vec::new();
        put_attr(&mut bytes, 8, &[3]);
        put_attr(&mut bytes, 0x8013, b"nest");
        let good = bytes.clone();
        assert_eq!(Attrs(&good).collect::<Vec<_>>(), [(8, &[3u8][..]), (19, b"nest")]);
        for bad in [0u16, 3, 9, u16::MAX] {
            let mut bytes = good.clone();
            bytes[8..10].copy_from_slice(&bad.to_ne_bytes());
            assert_eq!(Attrs(&bytes).collect::<Vec<_>>(), [(8, &[3u8][..])], "{bad}");
        }
    }
}

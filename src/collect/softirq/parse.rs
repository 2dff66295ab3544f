//! The three tables. Names go through [`Interned`], so that an unchanged file allocates none.

use std::sync::Arc;

use crate::parse::{fields, lines, number, whole_lines};
use crate::sample::softirq::IrqRow;
use crate::sample::subject::CpuId;

/// Names of the last reading by line, shared while they stay the same.
#[derive(Debug, Default)]
pub struct Interned(Vec<Arc<str>>);

impl Interned {
    /// The name of line `i`.
    fn get(&mut self, i: usize, bytes: &[u8]) -> Arc<str> {
        match self.0.get_mut(i) {
            Some(known) if known.as_bytes() == bytes => known.clone(),
            Some(other) => {
                *other = String::from_utf8_lossy(bytes).into();
                other.clone()
            }
            None => {
                let new: Arc<str> = String::from_utf8_lossy(bytes).into();
                if i == self.0.len() {
                    self.0.push(new.clone());
                }
                new
            }
        }
    }
}

/// CPU numbers of a header line `CPU0 CPU1 ...`.
fn header(line: &[u8]) -> Vec<CpuId> {
    fields(line)
        .map_while(|f| u32::try_from(number(f.strip_prefix(b"CPU")?)?).ok().map(CpuId))
        .collect()
}

/// A table of counts per vector and CPU.
pub type Vectors = Vec<(Arc<str>, Vec<u64>)>;

/// `/proc/softirqs`; `None` without its header. A row that lacks a column is left out.
#[must_use]
pub fn parse_softirqs(bytes: &[u8], names: &mut Interned) -> Option<(Vec<CpuId>, Vectors)> {
    let mut rows = lines(whole_lines(bytes));
    let cpus = header(rows.next()?);
    if cpus.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(10);
    for (i, row) in rows.enumerate() {
        let Some((name, rest)) = split_colon(row) else { continue };
        let counts = counts(rest, cpus.len()).0;
        if counts.len() == cpus.len() {
            out.push((names.get(i, name), counts));
        }
    }
    Some((cpus, out))
}

/// Number and handler names of the interrupt lines.
#[derive(Debug, Default)]
pub struct IrqNames {
    irqs: Interned,
    handlers: Interned,
}

/// `/proc/interrupts` without the lines whose counts are all zero; `None` without its header.
/// Summary lines such as `ERR` have one count and no CPU.
#[must_use]
pub fn parse_interrupts(bytes: &[u8], names: &mut IrqNames) -> Option<(Vec<CpuId>, Vec<IrqRow>)> {
    let mut rows = lines(whole_lines(bytes));
    let cpus = header(rows.next()?);
    if cpus.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    for (i, row) in rows.enumerate() {
        let Some((irq, rest)) = split_colon(row) else { continue };
        // Named also when idle: the index of a name is its line.
        let irq = names.irqs.get(i, irq);
        let (counts, handler) = counts(rest, cpus.len());
        let name = names.handlers.get(i, handler);
        if counts.iter().any(|c| *c != 0) {
            out.push(IrqRow { irq, name, counts });
        }
    }
    Some((cpus, out))
}

/// Up to `max` numbers, and what follows them.
fn counts(text: &[u8], max: usize) -> (Vec<u64>, &[u8]) {
    let mut rest = text.trim_ascii();
    // `max` comes from the header of the same file, which bounds it by the size of the file.
    let mut out = Vec::with_capacity(max.min(rest.len() / 2 + 1));
    while out.len() < max {
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (field, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        let Some(n) = number(field) else { break };
        out.push(n);
        rest = tail.trim_ascii_start();
    }
    (out, rest)
}

fn split_colon(row: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = row.iter().position(|b| *b == b':')?;
    Some((row.get(..colon)?.trim_ascii(), row.get(colon + 1..)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(ids: &[u32]) -> Vec<CpuId> {
        ids.iter().copied().map(CpuId).collect()
    }

    #[test]
    fn interrupts_skip_idle_lines_and_keep_handlers_raw() {
        let text = b"           CPU0       CPU2\n\
            24:          0          0  IO-APIC   5-edge      idle\n\
            36:          0      64985 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
            LOC:      35214      32021   Local timer interrupts\n\
            ERR:          0\n\
            MIS:          2\n";
        let mut names = IrqNames::default();
        let (ids, rows) = parse_interrupts(text, &mut names).unwrap();
        assert_eq!(ids, cpus(&[0, 2]));
        let irqs: Vec<&str> = rows.iter().map(|r| &*r.irq).collect();
        assert_eq!(irqs, ["36", "LOC", "MIS"]);
        assert_eq!(&*rows[0].name, "PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0");
        assert_eq!(rows[0].counts, [0, 64985]);
        assert_eq!((rows[2].counts.as_slice(), &*rows[2].name), (&[2][..], ""));
        let (_, again) = parse_interrupts(text, &mut names).unwrap();
        assert!(Arc::ptr_eq(&rows[0].name, &again[0].name));
    }

    #[test]
    fn softirqs_list_possible_cpus() {
        let text = b"      CPU0       CPU1\n   HI:  1 2\nNET_RX:  3 4\n torn: 5\n";
        let (ids, rows) = parse_softirqs(text, &mut Interned::default()).unwrap();
        assert_eq!(ids, cpus(&[0, 1]));
        let want = [("HI".into(), vec![1, 2]), ("NET_RX".into(), vec![3, 4])];
        assert_eq!(rows, want);
        assert!(parse_softirqs(b"", &mut Interned::default()).is_none());
    }

    const SOFTIRQS: &[u8] = include_bytes!("../../../tests/fixtures/6.18/proc/softirqs");
    const INTERRUPTS: &[u8] = include_bytes!("../../../tests/fixtures/6.18/proc/interrupts");

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse_softirqs(&bytes, &mut Interned::default());
            let _ = parse_interrupts(&bytes, &mut IrqNames::default());
        }

        #[test]
        fn truncation_shortens_and_changes_nothing(cut in 0usize..2300) {
            let all = parse_softirqs(SOFTIRQS, &mut Interned::default()).unwrap();
            let part = &SOFTIRQS[..cut.min(SOFTIRQS.len())];
            if let Some((ids, rows)) = parse_softirqs(part, &mut Interned::default()) {
                prop_assert_eq!(ids, all.0);
                prop_assert!(all.1.starts_with(&rows));
            }
            let all = parse_interrupts(INTERRUPTS, &mut IrqNames::default()).unwrap();
            let part = &INTERRUPTS[..cut.min(INTERRUPTS.len())];
            if let Some((_, rows)) = parse_interrupts(part, &mut IrqNames::default()) {
                prop_assert!(all.1.starts_with(&rows));
            }
        }
    }
}

//! One cause per disk. The disk rules look at the queue, never at `util` alone, and judge the
//! lowest layer: a dm volume shows the trouble of the disk below it.

use super::super::super::{Thresholds, Window};
use crate::collect::disks::DiskClass;
use crate::model::derive::disks::DiskFigures;
use crate::model::subject::Subject;

/// A latency to compare with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reference {
    /// ms.
    pub(crate) ms: f64,
    /// Measured on this disk while its queue was short; else typical for its class.
    pub(crate) measured: bool,
}

/// Disks worth a verdict: whole disks and layers that have nothing below them in the list.
/// Partitions repeat their disk, memory has no device behind it.
pub(crate) fn leaves<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a DiskFigures> {
    let disks: &'a [DiskFigures] = w.derived.disks.as_ref().map_or(&[], |d| d.as_slice());
    disks.iter().filter(|d| whole(d) && d.attrs.slaves.is_empty())
}

/// Not a partition and not memory.
pub(crate) fn whole(d: &DiskFigures) -> bool {
    !matches!(d.attrs.class, DiskClass::Partition | DiskClass::Memory)
}

/// A spinning disk, as far as it can be known. Virtual disks make `rotational` up.
pub(crate) fn spins(d: &DiskFigures, t: &Thresholds) -> bool {
    d.attrs.rotational == Some(true)
        || d.attrs.class == DiskClass::Hdd
        || t.rotational.iter().any(|n| **n == *d.name)
}

/// Local flash: it is limited by itself, not by a provider.
pub(crate) fn local_flash(d: &DiskFigures) -> bool {
    matches!(d.attrs.class, DiskClass::Nvme | DiskClass::Ssd)
}

/// The latency of a request that does not queue.
pub(crate) fn reference(d: &DiskFigures, t: &Thresholds) -> Reference {
    if let Some(ms) = d.baseline_ms() {
        return Reference { ms, measured: true };
    }
    let ms = if spins(d, t) {
        10.0
    } else {
        match d.attrs.class {
            DiskClass::Nvme => 0.15,
            DiskClass::Ssd => 0.3,
            // A cloud volume over the network answers within 0.2 to 1 ms.
            _ => 0.7,
        }
    };
    Reference { ms, measured: false }
}

/// What a finding about this disk is about.
pub(crate) fn subject(d: &DiskFigures) -> Subject {
    Subject::Disk { name: d.name.to_string(), dev: d.id }
}

/// A name for people: the volume's or backing file's name with the kernel's.
pub(crate) fn title(d: &DiskFigures) -> String {
    match (&d.attrs.dm_name, &d.attrs.backing_file) {
        (Some(n), _) => format!("{} ({n})", d.name),
        (_, Some(f)) => format!("{} ({f})", d.name),
        _ => d.name.to_string(),
    }
}

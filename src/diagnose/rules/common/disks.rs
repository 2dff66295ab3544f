//! One cause per disk. The disk rules look at the queue, never at `util` alone, and evaluate the
//! lowest layer: a dm volume shows the problem of the disk below it.

use super::super::super::{Fire, Thresholds, Window};
use super::text::ms;
use crate::metrics::MIN_SPAN;
use crate::metrics::disks::DiskFigures;
use crate::metrics::rate::variation;
use crate::sample::disks::DiskClass;
use crate::sample::subject::Subject;

/// A reference latency to compare with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reference {
    /// ms.
    pub(crate) ms: f64,
    /// Measured on this disk while its queue was short; otherwise typical for its class.
    pub(crate) measured: bool,
}

/// The disks to evaluate: whole disks, and layers with nothing below them in the list.
/// Partitions repeat their disk, and RAM disks have no device behind them.
pub(crate) fn leaves<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a DiskFigures> {
    all_leaves(w).filter(|d| d.untimed.is_none())
}

/// Disks of which only totals are known: no rate, no queue.
pub(crate) fn untimed<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a DiskFigures> {
    all_leaves(w).filter(|d| d.untimed.is_some())
}

fn all_leaves<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a DiskFigures> {
    let disks: &'a [DiskFigures] = w.derived.disks.as_ref().map_or(&[], |d| d.as_slice());
    disks.iter().filter(|d| whole(d) && d.attrs.slaves.is_empty())
}

/// Neither a partition nor a RAM disk.
pub(crate) fn whole(d: &DiskFigures) -> bool {
    !matches!(d.attrs.class, DiskClass::Partition | DiskClass::Memory)
}

/// Is it a spinning disk, as far as known? Virtual disks report a made-up `rotational`.
pub(crate) fn spins(d: &DiskFigures, t: &Thresholds) -> bool {
    d.attrs.rotational == Some(true)
        || d.attrs.class == DiskClass::Hdd
        || t.settings.rotational.iter().any(|n| **n == *d.name)
}

/// Local flash, which no provider limits.
pub(crate) fn local_flash(d: &DiskFigures) -> bool {
    matches!(d.attrs.class, DiskClass::Nvme | DiskClass::Ssd)
}

/// The latency of a request with an empty queue.
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

/// The subject of a finding about this disk.
pub(crate) fn subject(d: &DiskFigures) -> Subject {
    Subject::Disk { name: d.name.to_string(), dev: d.id }
}

/// Display name: the kernel's name with that of the volume or backing file.
pub(crate) fn title(d: &DiskFigures) -> String {
    match (&d.attrs.dm_name, &d.attrs.backing_file) {
        (Some(n), _) => format!("{} ({n})", d.name),
        (_, Some(f)) => format!("{} ({f})", d.name),
        _ => d.name.to_string(),
    }
}

/// `await 0.14 ms against 0.08 ms with an empty queue`.
pub(crate) fn against(r: f64, reference: Reference) -> String {
    let of = if reference.measured { "with an empty queue" } else { "typical for its class" };
    format!("await {} ms against {} ms {of}", ms(r), ms(reference.ms))
}

/// Notes as missing when the reference latency was not measured on this disk.
pub(crate) fn not_measured(f: &mut Fire, reference: Reference) {
    if !reference.measured {
        f.missing.push("this disk's latency with an empty queue (busy since the start)".to_owned());
    }
}

/// A disk by its kernel name.
pub(crate) fn by_name<'a>(w: &Window<'a>, name: &str) -> Option<&'a DiskFigures> {
    w.derived.disks.as_ref()?.iter().find(|d| *d.name == *name)
}

/// The layers below, as far as they are in the list.
pub(crate) fn slaves<'a>(w: &Window<'a>, d: &DiskFigures) -> Vec<&'a DiskFigures> {
    d.attrs.slaves.iter().filter_map(|n| by_name(w, n)).collect()
}

/// The disk's samples of the last `seconds`, newest first, about a second (or an interval)
/// apart; at least five are requested, whatever the interval.
pub(crate) fn lately<'a>(
    w: &Window<'a>,
    d: &DiskFigures,
    seconds: u32,
) -> impl Iterator<Item = &'a DiskFigures> + use<'a> {
    let step = w.host.interval.max(MIN_SPAN).as_secs_f64();
    let n = ((f64::from(seconds) / step).ceil() as usize).max(5);
    w.recent_disk(d.id, n)
}

/// Coefficient of variation of IOPS over the samples of the last ten seconds with at least this
/// queue. Samples in which the queue built up are left out, because they include time before
/// the load. `None` for fewer than four samples.
pub(crate) fn swing(w: &Window<'_>, d: &DiskFigures, queue: f64) -> Option<f64> {
    swing_of(w, d, queue, DiskFigures::iops)
}

/// Do both cover about the same time? Variation and means of samples of several intervals, which the
/// console can change, do not compare.
pub(crate) fn is_alike(a: &DiskFigures, b: &DiskFigures) -> bool {
    let (short, long) = if a.dt < b.dt { (a.dt, b.dt) } else { (b.dt, a.dt) };
    long * 2 <= short * 3
}

/// [`swing`] for another metric.
pub(crate) fn swing_of(
    w: &Window<'_>,
    d: &DiskFigures,
    queue: f64,
    figure: fn(&DiskFigures) -> f64,
) -> Option<f64> {
    let recent: Vec<&DiskFigures> = lately(w, d, 11).filter(|p| is_alike(p, d)).collect();
    let within = recent.windows(2).filter(|p| p.iter().all(|p| p.aqu_sz >= queue));
    let all: Vec<f64> = within.filter_map(|p| p.first().copied()).map(figure).collect();
    // Averaging over n seconds reduces the variation by sqrt(n).
    let averaged = d.dt.as_secs_f64().max(1.0).sqrt();
    (all.len() >= 4).then(|| variation(&all)).flatten().map(|cv| cv * averaged)
}

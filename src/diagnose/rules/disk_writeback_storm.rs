//! `disk-writeback-storm`: writeback of dirty pages floods a disk.

use super::common::by_disk;
use super::common::disks::{leaves, spins, subject, title};
use super::common::text::{bytes, ms, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// Maximum fraction of reads.
const READS: f64 = 0.1;
/// Write size in kB, queue, w_await in ms (spinning disks, others).
const SIZE: f64 = 64.0;
const QUEUE: f64 = 32.0;
const AWAIT: (f64, f64) = (100.0, 20.0);
/// Bytes under writeback: to fire, and to clear.
const WRITEBACK: u64 = 64 << 20;
const WRITEBACK_CLEAR: u64 = 16 << 20;
/// Fall of Dirty within a few seconds that shows a flush.
const FALL: u64 = 16 << 20;
/// Maximum age of the page cache counters.
const LATELY: Duration = Duration::from_secs(5);
/// Fraction of the dirty threshold from which writers are throttled.
const HELD_BACK: f64 = 0.9;
/// Read latency relative to normal.
const READERS: f64 = 5.0;
/// Flush time that matters, ms/s.
const FLUSHES: f64 = 300.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-writeback-storm"),
    title: "dirty pages are written back all at once and flood the disk",
    condition: "Almost only writes (reads below 10%) of 64 kB or more, queue 32 or more, \
        w_await 100 ms or more (20 ms if the disk does not spin), and either 64 MiB or more \
        under writeback at some point in the last 5 s or Dirty falling, for 3 of 5 s. Critical \
        when dirty plus writeback pages reach 90% of the threshold at which writers are \
        throttled, or when reads take 5 times their normal latency. Clears below 16 MiB under \
        writeback.",
    look_alikes: "Large direct writes look the same on the disk, but nothing is under \
        writeback. A commit that waits for a flush shows few large writes and a high f_await. \
        On a capped volume the cap is the cause and this is its consequence: disk-capped-cloud. \
        Small random writes on a spinning disk: disk-hdd-saturated.",
    remedy: "The application may have finished long ago: its data is being written now, at \
        everybody else's cost. The processes named are those that made pages dirty in the last \
        minute. Start writeback earlier and write less at once: vm.dirty_background_bytes of a \
        few hundred MB instead of 10% of memory, sync_file_range or fsync every few MB, \
        wbt_lat_usec, io.max of cgroup v2.",
    sources: "Field: 281 to 358 writes/s of 505 kB at a queue of 137 to 145 and 317 to 596 ms \
        on a disk, for minutes after the writer had exited; vm.dirty_* in \
        Documentation/admin-guide/sysctl/vm.rst.",
    hold: Hold::of(3, 5),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Disks],
    explains: &[Explains::new("task-hung", Scope::DiskWaits)],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    if pages(w).is_none() && !t.single_sample {
        out.cannot_judge("no nr_dirty or nr_writeback in /proc/vmstat");
        return;
    }
    for d in leaves(w) {
        match storm(w, d, t) {
            Some(s) => out.fire(subject(d), fire(w, d, t, &s)),
            None if writes_only(d) && d.aqu_sz >= 2.0 => {
                let still = pages(w).is_some_and(|p| p.writeback >= WRITEBACK_CLEAR);
                if still {
                    out.linger(subject(d));
                }
            }
            None => {}
        }
    }
}

/// Page cache state, bytes.
#[derive(Clone, Copy)]
struct Pages {
    dirty: u64,
    writeback: u64,
    /// Where writers are throttled, and where background writeback starts.
    threshold: Option<u64>,
    background: Option<u64>,
}

impl Pages {
    /// Dirty plus writeback pages as a fraction of the dirty threshold, and the threshold.
    fn full(&self) -> Option<(f64, u64)> {
        let n = self.threshold?;
        Some((self.dirty.saturating_add(self.writeback) as f64 / n as f64, n))
    }
}

/// A flush that floods a disk.
pub(super) struct Storm {
    /// `None` if only the disk was seen.
    pages: Option<Pages>,
    /// The most that was under writeback in the last 5 s, bytes.
    writeback: u64,
    /// By how much Dirty fell in the last few seconds.
    fell: u64,
}

/// Is this disk flooded by writeback? Then the disk itself is not to blame.
pub(super) fn storm(w: &Window<'_>, d: &DiskFigures, t: &Thresholds) -> Option<Storm> {
    let slow = if spins(d, t) { AWAIT.0 } else { AWAIT.1 };
    let flooded = writes_only(d)
        && d.wareq_kb.is_some_and(|kb| kb >= SIZE)
        && d.aqu_sz >= QUEUE
        && d.w_await.is_some_and(|r| r >= slow);
    if !flooded {
        return None;
    }
    let Some(pages) = pages(w) else {
        return t.single_sample.then_some(Storm { pages: None, writeback: 0, fell: 0 });
    };
    // The queue is filled in batches: while one is being written, little is under writeback.
    // After lost ticks the disk's metrics cover a longer time.
    let span = |least: Duration| least.max(d.dt + w.host.interval / 2);
    let writeback = most(w, span(LATELY), "vmstat.nr_writeback").max(pages.writeback);
    let dirty = most(w, span(Duration::from_secs(3)), "vmstat.nr_dirty");
    let fell = dirty.saturating_sub(pages.dirty);
    (writeback >= WRITEBACK || fell >= FALL).then_some(Storm {
        pages: Some(pages),
        writeback,
        fell,
    })
}

fn writes_only(d: &DiskFigures) -> bool {
    d.w_s > 0.0 && d.r_s < READS * d.iops()
}

fn pages(w: &Window<'_>) -> Option<Pages> {
    let past = w.history.back_from(w.tick.seq);
    let mut near = past.take_while(|m| w.tick.mono.since(m.tick.mono) <= LATELY);
    let m = &near.find_map(|m| m.tick.samples.memory.as_ref())?.data;
    let bytes = |name: &str| Some(m.get(name)?.saturating_mul(u64::from(page(w))));
    Some(Pages {
        dirty: bytes("vmstat.nr_dirty")?,
        writeback: bytes("vmstat.nr_writeback")?,
        threshold: bytes("vmstat.nr_dirty_threshold").filter(|n| *n > 0),
        background: bytes("vmstat.nr_dirty_background_threshold").filter(|n| *n > 0),
    })
}

fn page(w: &Window<'_>) -> u32 {
    if w.host.page_size == 0 { 4096 } else { w.host.page_size }
}

/// The maximum of a gauge over the last few seconds, bytes.
fn most(w: &Window<'_>, span: Duration, name: &str) -> u64 {
    w.history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= span)
        .filter_map(|m| m.tick.samples.memory.as_ref()?.data.get(name))
        .max()
        .map_or(0, |n| n.saturating_mul(u64::from(page(w))))
}

fn fire(w: &Window<'_>, d: &DiskFigures, t: &Thresholds, s: &Storm) -> Fire {
    let w_await = d.w_await.unwrap_or(0.0);
    let full = s.pages.and_then(|p| p.full());
    let readers = d
        .r_await
        .zip(d.r_baseline)
        .filter(|(r, b)| d.r_s >= 1.0 && b.median > 0.0 && *r >= READERS * b.median);
    let crit = full.is_some_and(|(share, _)| share >= HELD_BACK) || readers.is_some();
    let mut f = Fire::new(
        if crit { Severity::Crit } else { Severity::Warn },
        format!(
            "{} is flooded by writeback: {}/s, queue {:.0}, w_await {} ms",
            title(d),
            bytes((d.wkb_s * 1024.0) as u64),
            d.aqu_sz,
            ms(w_await)
        ),
    );
    cache(&mut f, s);
    let text = format!("{} writes/s of {:.0} kB", rate(d.w_s), d.wareq_kb.unwrap_or(0.0));
    f.evidence.push(Evidence::new("wareq-sz", d.wareq_kb.unwrap_or(0.0), "kB", text).over(SIZE));
    let text = format!("queue {:.0}", d.aqu_sz);
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(QUEUE));
    let slow = if spins(d, t) { AWAIT.0 } else { AWAIT.1 };
    let text = format!("w_await {} ms", ms(w_await));
    f.evidence.push(Evidence::new("w_await", w_await, "ms", text).over(slow));
    if let Some((r, b)) = readers {
        let text = format!("reads take {} ms against {} ms", ms(r), ms(b.median));
        f.evidence.push(Evidence::new("r_await", r, "ms", text).over(READERS * b.median));
    }
    let because = format!("{} reads/s, writes of {:.0} kB", rate(d.r_s), d.wareq_kb.unwrap_or(0.0));
    f.ruled_out.push(RuledOut::new("disk-hdd-saturated", because));
    if let (Some(n), Some(each)) = (d.f_s, d.f_await) {
        let text = format!("{} flushes/s of {} ms", rate(n), ms(each));
        if n * each < FLUSHES {
            f.ruled_out.push(RuledOut::new("fs-flush-bound", text));
        } else {
            f.evidence.push(Evidence::new("f_await", each, "ms", text));
        }
    }
    by_disk::blame_writeback(w, d, &mut f);
    if let Some(pids) = by_disk::pids(w, &f) {
        f.next.push(format!("pidstat -d -p {pids} 1"));
    }
    f.next.push("grep -E '^(Dirty|Writeback):' /proc/meminfo".to_owned());
    f.next.push("sysctl vm.dirty_background_bytes=268435456 vm.dirty_bytes=1073741824".to_owned());
    f.next.push("ps -eo pid,stat,wchan:32,comm | grep -E 'balance_dirty|wbt|flush-'".to_owned());
    f.next.push(format!("cat /sys/block/{}/queue/wbt_lat_usec", sh(&d.name)));
    f
}

/// Adds what the page cache shows.
fn cache(f: &mut Fire, s: &Storm) {
    let Some(p) = s.pages else {
        f.confidence = Confidence::Suspected;
        f.missing.push("what is under writeback: large direct writes look the same".to_owned());
        return;
    };
    let text = format!("{} under writeback, {} dirty", bytes(s.writeback), bytes(p.dirty));
    let at = WRITEBACK as f64;
    f.evidence.push(Evidence::new("Writeback", s.writeback as f64, "bytes", text).over(at));
    if let Some((share, n)) = p.full() {
        let flush = p
            .background
            .map_or(String::new(), |b| format!(", background writeback starts at {}", bytes(b)));
        let text = format!(
            "{:.0}% of the {} at which writers are throttled{flush}",
            100.0 * share,
            bytes(n)
        );
        f.evidence.push(Evidence::new("dirty", 100.0 * share, "%", text).over(100.0 * HELD_BACK));
    } else {
        f.missing.push("whether writers are throttled (no nr_dirty_threshold)".to_owned());
    }
    if s.fell >= FALL {
        let text = format!("Dirty fell by {} within 3 s", bytes(s.fell));
        f.evidence.push(Evidence::new("Dirty", p.dirty as f64, "bytes", text));
    }
    let because = format!("{} under writeback", bytes(s.writeback));
    f.ruled_out.push(RuledOut::new("large direct writes", because));
}

//! `iostat -x` figures from two readings of `/proc/diskstats`.
//!
//! The queue length `l` comes from the summed request times (field 4 + 8 + 15 + 17), not from
//! the weighted field 11, which is broken on 4.x and 5.x kernels. `l = x * r` (Little), so
//! any two of throughput, latency and queue give the third.

pub mod caps;
pub mod layers;
mod tracker;

pub(super) use tracker::DiskTracker;

use std::sync::Arc;
use std::time::Duration;

use super::baseline::Level;
use super::rate::{grown, grown32, per_second, ratio};
use crate::sample::Stamped;
use crate::sample::disks::{DiskAttrs, DiskRow, DisksSample};
use crate::sample::subject::DiskId;

/// Figures of one device over one interval. Latencies are ms; `None` when nothing completed.
#[derive(Clone, Debug)]
pub struct DiskFigures {
    /// Device number.
    pub id: DiskId,
    /// Kernel name.
    pub name: Arc<str>,
    /// Class, queue attributes, layers.
    pub attrs: Arc<DiskAttrs>,
    /// Measured interval.
    pub dt: Duration,
    /// Reads completed per second.
    pub r_s: f64,
    /// Writes completed per second.
    pub w_s: f64,
    /// Discards completed per second.
    pub d_s: f64,
    /// Flushes completed per second; `None` before 5.5.
    pub f_s: Option<f64>,
    /// kB (1024 B) read per second.
    pub rkb_s: f64,
    /// kB (1024 B) written per second.
    pub wkb_s: f64,
    /// Reads merged per second.
    pub rrqm_s: f64,
    /// Writes merged per second.
    pub wrqm_s: f64,
    /// Mean time of a read, ms, queue included.
    pub r_await: Option<f64>,
    /// Mean time of a write, ms, queue included.
    pub w_await: Option<f64>,
    /// Mean time of a flush, ms.
    pub f_await: Option<f64>,
    /// Mean size of a read, kB.
    pub rareq_kb: Option<f64>,
    /// Mean size of a write, kB.
    pub wareq_kb: Option<f64>,
    /// Mean time of any request but flushes, ms.
    pub await_ms: Option<f64>,
    /// Mean number of requests in the queue or the device (`aqu-sz`).
    pub aqu_sz: f64,
    /// The same from field 11, as the kernel weighs it; compare with `aqu_sz`.
    pub aqu_sz_weighted: f64,
    /// % of the time with a request in flight, as measured: may exceed 100.
    pub util: f64,
    /// Requests in flight now; `None` when the kernel reports nonsense.
    pub in_flight: Option<u64>,
    /// Requests of any kind completed in the interval.
    pub completed: u64,
    /// ms of `io_ticks` gained in the interval.
    pub io_ticks: u32,
    /// Requests completed although no time was accounted: md before 5.14.
    pub unaccounted: bool,
    /// How far apart the readings are is not known, as in fio's sums without a run time: these
    /// requests were completed, means and `util` hold, rates and queues are unknown.
    pub untimed: Option<Completed>,
    /// `await_ms` of this device while its queue was short (`aqu_sz <= 1.2`) and it had pauses
    /// (`util < 90`), over the last ten minutes; filled by the tracker.
    pub baseline: Option<Level>,
    /// The same of reads alone (`r_await`).
    pub r_baseline: Option<Level>,
    /// The same of writes alone (`w_await`).
    pub w_baseline: Option<Level>,
    /// What the disk behaves like under load; filled by the tracker.
    pub cap: Option<Arc<caps::Cap>>,
    /// How long requests have been in flight with none completing; filled by the tracker.
    pub stuck_for: Duration,
}

/// Requests completed in a time that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

impl DiskFigures {
    /// Requests completed per second: reads, writes, discards.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.r_s + self.w_s + self.d_s
    }
    /// kB read and written per second.
    #[must_use]
    pub fn kb_s(&self) -> f64 {
        self.rkb_s + self.wkb_s
    }
    /// Mean size of a request, kB.
    #[must_use]
    pub fn areq_kb(&self) -> Option<f64> {
        ratio(self.kb_s(), self.r_s + self.w_s)
    }
    /// Percent of requests that were merged.
    #[must_use]
    pub fn merged_pct(&self) -> Option<f64> {
        let merged = self.rrqm_s + self.wrqm_s;
        ratio(100.0 * merged, merged + self.r_s + self.w_s)
    }
    /// Median latency with a short queue, ms.
    #[must_use]
    pub fn baseline_ms(&self) -> Option<f64> {
        self.baseline.map(|l| l.median)
    }
    /// `util` as shown: at most 100.
    #[must_use]
    pub fn util_shown(&self) -> f64 {
        self.util.min(100.0)
    }
    /// The kernel's own weighted queue differs from the tick sums by more than a quarter.
    #[must_use]
    pub fn queue_counters_disagree(&self) -> bool {
        self.aqu_sz > 0.1 && ((self.aqu_sz - self.aqu_sz_weighted) / self.aqu_sz).abs() > 0.25
    }
}

/// Figures of every device that both readings hold. A device whose request counters went
/// backwards was replaced: it has no figures until the next reading.
#[must_use]
pub fn derive(prev: &Stamped<DisksSample>, now: &Stamped<DisksSample>) -> Vec<DiskFigures> {
    let dt = now.span.mid().since(prev.span.mid());
    if dt.is_zero() {
        return Vec::new();
    }
    // A reading that may be as old as the one before: no clock says how far apart they are.
    let timed = now.span.start > prev.span.mid();
    now.data
        .disks
        .iter()
        .enumerate()
        .filter_map(|(i, d)| {
            // Order rarely changes between readings: try the same row first.
            let same = |p: &&DiskRow| p.id == d.id && p.name == d.name;
            let before = prev
                .data
                .disks
                .get(i)
                .filter(same)
                .or_else(|| prev.data.disks.iter().find(same))?;
            figures(before, d, dt, timed)
        })
        .collect()
}

fn figures(before: &DiskRow, row: &DiskRow, dt: Duration, timed: bool) -> Option<DiskFigures> {
    let (p, n) = (&before.stat, &row.stat);
    let s = |delta: f64| per_second(delta, dt).filter(|_| timed).unwrap_or(0.0);
    let (rd, wr) = (grown(p.rd_ios, n.rd_ios)?, grown(p.wr_ios, n.wr_ios)?);
    let (rsec, wsec) = (grown(p.rd_sectors, n.rd_sectors)?, grown(p.wr_sectors, n.wr_sectors)?);
    let (rm, wm) = (grown(p.rd_merges, n.rd_merges)?, grown(p.wr_merges, n.wr_merges)?);
    let (rt, wt) = (grown32(p.rd_ticks, n.rd_ticks), grown32(p.wr_ticks, n.wr_ticks));
    let (dc, dct) = match (p.discard, n.discard) {
        (Some(p), Some(n)) => (grown(p.ios, n.ios)?, grown32(p.ticks, n.ticks)),
        _ => (0, 0),
    };
    let flush = match (p.flush, n.flush) {
        (Some(p), Some(n)) => Some((grown(p.ios, n.ios)?, grown32(p.ticks, n.ticks))),
        _ => None,
    };
    let busy = u64::from(rt) + u64::from(wt) + u64::from(dct);
    let dt_ms = dt.as_secs_f64() * 1000.0;
    let done = rd.saturating_add(wr).saturating_add(dc);
    let io_ticks = grown32(p.io_ticks, n.io_ticks);
    Some(DiskFigures {
        id: row.id,
        name: row.name.clone(),
        attrs: row.attrs.clone(),
        dt,
        r_s: s(rd as f64),
        w_s: s(wr as f64),
        d_s: s(dc as f64),
        f_s: flush.map(|(n, _)| s(n as f64)),
        rkb_s: s(rsec as f64 / 2.0),
        wkb_s: s(wsec as f64 / 2.0),
        rrqm_s: s(rm as f64),
        wrqm_s: s(wm as f64),
        r_await: ratio(f64::from(rt), rd as f64),
        w_await: ratio(f64::from(wt), wr as f64),
        f_await: flush.and_then(|(n, t)| ratio(f64::from(t), n as f64)),
        rareq_kb: ratio(rsec as f64 / 2.0, rd as f64),
        wareq_kb: ratio(wsec as f64 / 2.0, wr as f64),
        await_ms: ratio(busy as f64, done as f64),
        aqu_sz: s((busy as f64 + flush.map_or(0.0, |(_, t)| f64::from(t))) / 1000.0),
        aqu_sz_weighted: s(f64::from(grown32(p.weighted, n.weighted)) / 1000.0),
        util: f64::from(io_ticks) / dt_ms * 100.0,
        // A device cannot hold a million requests: nr_requests and tags are far below.
        in_flight: u64::try_from(n.in_flight).ok().filter(|n| *n < 1_000_000),
        completed: done.saturating_add(flush.map_or(0, |(n, _)| n)),
        io_ticks,
        unaccounted: done > 0 && busy == 0 && io_ticks == 0 && done > 100,
        untimed: (!timed).then_some(Completed { reads: rd, writes: wr }),
        baseline: None,
        r_baseline: None,
        w_baseline: None,
        cap: None,
        stuck_for: Duration::ZERO,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::disks::{DiskCounters, FlushCounters};
    use crate::sample::time::{MonoNs, Span};

    fn reading(at_ms: u64, stat: DiskCounters) -> Stamped<DisksSample> {
        let row = DiskRow {
            id: DiskId { major: 252, minor: 16 },
            name: "vdb".into(),
            stat,
            inflight: None,
            attrs: Arc::default(),
        };
        Stamped {
            span: Span::at(MonoNs(at_ms * 1_000_000)),
            cpu: Duration::ZERO,
            data: DisksSample { disks: vec![row], bad_rows: 0 },
        }
    }

    pub(in crate::metrics::disks) fn over(ms: u64, stat: DiskCounters) -> DiskFigures {
        derive(&reading(0, DiskCounters::default()), &reading(ms, stat)).pop().unwrap()
    }

    fn near(a: f64, b: f64, rel: f64) -> bool {
        (a - b).abs() <= rel * b.abs()
    }

    /// fio on a cloud volume, 4k random reads at depth 128 over 120007 ms: Little's law ties
    /// 16827 IOPS, 7.552 ms and a queue of 127.1 together.
    #[test]
    fn plateau_of_a_cloud_volume() {
        let f = over(
            120_007,
            DiskCounters {
                rd_ios: 2_019_321,
                wr_ios: 6,
                rd_ticks: 15_250_526,
                wr_ticks: 85,
                weighted: 15_009_984,
                io_ticks: 119_947,
                ..Default::default()
            },
        );
        assert!(near(f.iops(), 16827.0, 1e-4), "{}", f.iops());
        assert!(near(f.await_ms.unwrap(), 7.552, 1e-3));
        assert!(near(f.aqu_sz, 127.1, 1e-3));
        assert!(near(f.aqu_sz, f.iops() * f.await_ms.unwrap() / 1000.0, 1e-9));
        assert!(near(f.util, 99.95, 1e-4));
        assert!(!f.queue_counters_disagree());
    }

    /// Depth 1 over 1000001 ms where field 11 says 143: the tick sums must win.
    #[test]
    fn broken_weighted_field_is_noticed() {
        let f = over(
            1_000_001,
            DiskCounters {
                rd_ios: 5_928_528,
                rd_ticks: 955_508,
                weighted: 143,
                io_ticks: 1_000_001,
                ..Default::default()
            },
        );
        assert!(near(f.aqu_sz, 0.9555, 1e-3));
        assert!(f.queue_counters_disagree());
        assert_eq!(f.util_shown(), 100.0);
    }

    /// A buffered write load where util is only 27.85% while 33.5 requests wait.
    #[test]
    fn queue_is_seen_although_util_is_low() {
        let f = over(
            60_000,
            DiskCounters {
                wr_ios: 1_463_799,
                wr_ticks: 2_011_879,
                weighted: 2_011_879,
                io_ticks: 16_710,
                ..Default::default()
            },
        );
        assert!(near(f.aqu_sz, 33.53, 1e-3));
        assert!(near(f.w_await.unwrap(), 1.374, 1e-3));
        assert!(near(f.util, 27.85, 1e-3));
        assert_eq!(f.r_await, None, "no reads: no latency, not 0 ms");
    }

    /// Two NVMe of one run: 1821771 writes with ticks=39708 in_queue=78295, and ticks=9992
    /// in_queue=0. Either way the queue is that of the ticks, and the difference is noticed.
    #[test]
    fn the_queue_is_that_of_the_ticks_whatever_field_11_says() {
        for (ticks, weighted) in [(39_708, 78_295), (9992, 0)] {
            let f = over(
                60_000,
                DiskCounters {
                    wr_ios: 1_821_771,
                    wr_ticks: ticks,
                    weighted,
                    io_ticks: 59_000,
                    ..Default::default()
                },
            );
            assert!(near(f.aqu_sz, f64::from(ticks) / 60_000.0, 1e-9));
            assert!(f.queue_counters_disagree());
        }
    }

    #[test]
    fn flushes_count_in_the_queue() {
        // Measured: 20961 + 34031 + 599 + 41 = 55632 against 55633 in field 11.
        let f = over(
            100_000,
            DiskCounters {
                rd_ios: 1,
                wr_ios: 1,
                rd_ticks: 20_961,
                wr_ticks: 34_031,
                discard: Some(crate::sample::disks::DiscardCounters {
                    ios: 1,
                    ticks: 599,
                    ..Default::default()
                }),
                flush: Some(FlushCounters { ios: 1, ticks: 41 }),
                weighted: 55_633,
                ..Default::default()
            },
        );
        // discard/flush are absent in the first reading, so they cannot be told: no panic.
        assert!(f.aqu_sz > 0.54 && f.aqu_sz <= 0.55633);
    }

    #[test]
    fn times_wrap_and_counters_reset() {
        let before = DiskCounters {
            wr_ios: 10,
            wr_ticks: u32::MAX - 9,
            io_ticks: u32::MAX,
            ..Default::default()
        };
        let after = DiskCounters { wr_ios: 20, wr_ticks: 10, io_ticks: 99, ..before };
        let f = derive(&reading(0, before), &reading(1000, after)).pop().unwrap();
        assert_eq!(f.w_await, Some(2.0));
        assert!(near(f.util, 10.0, 1e-9));
        let replaced = DiskCounters { wr_ios: 3, ..Default::default() };
        assert!(derive(&reading(0, before), &reading(1000, replaced)).is_empty());
        assert!(derive(&reading(5, before), &reading(5, after)).is_empty(), "no interval, no rate");
    }

    /// 512 writes of 625 s in all, over nobody knows how long: a mean and no rate, no queue.
    #[test]
    fn readings_of_an_unknown_distance_give_means() {
        let stat = DiskCounters {
            wr_ios: 512,
            wr_ticks: 625_000,
            weighted: 625_000,
            io_ticks: 995,
            ..Default::default()
        };
        let (before, mut now) = (reading(1000, DiskCounters::default()), reading(2000, stat));
        let timed = derive(&before, &now).pop().unwrap();
        assert_eq!((timed.untimed, timed.w_s, timed.aqu_sz), (None, 512.0, 625.0));
        now.span = Span { start: MonoNs(1_000_000_000), end: MonoNs(3_000_000_000) };
        let f = derive(&before, &now).pop().unwrap();
        assert_eq!(f.untimed, Some(Completed { reads: 0, writes: 512 }));
        assert_eq!((f.iops(), f.kb_s(), f.aqu_sz, f.aqu_sz_weighted), (0.0, 0.0, 0.0, 0.0));
        assert_eq!((f.w_await, f.await_ms), (Some(625_000.0 / 512.0), Some(625_000.0 / 512.0)));
        assert!(near(f.util, 99.5, 1e-9));
        // The next one is timed against the middle of this.
        let next = reading(4000, stat);
        assert_eq!(derive(&now, &next).pop().unwrap().untimed, None);
    }

    #[test]
    fn md_without_accounting_is_not_idle() {
        let f = over(60_000, DiskCounters { wr_ios: 2_883_541, ..Default::default() });
        assert!(f.unaccounted);
    }
}

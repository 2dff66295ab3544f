//! Recent eBPF measurements, for rules that can use them. `None` always means that eBPF is not
//! measuring it at present (off, late, just attached or re-attached); the rule then uses its other
//! source. Nothing here gives a verdict.

use std::time::Duration;

use super::super::super::{Evidence, Window};
use super::text::{ms, rate};
use crate::metrics::Derived;
use crate::metrics::bpf::block::Stage;
use crate::metrics::bpf::{IrqFigures, RunqFigures, sum_ns};
use crate::metrics::disks::DiskFigures;
use crate::metrics::rate::ratio;
use crate::sample::bpf::Hist;
use crate::sample::subject::CgroupId;

/// Measurements older than this, or than two intervals, are stale.
const STALE: Duration = Duration::from_secs(2);

/// The latest measurements, unless stale.
fn lately<'a, T>(w: &Window<'a>, get: fn(&'a Derived) -> Option<&'a T>) -> Option<&'a T> {
    let limit = STALE.max(2 * w.host.interval);
    w.history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= limit)
        .find_map(|m| get(&m.derived))
}

/// Run queue waits.
pub(crate) fn run_queue<'a>(w: &Window<'a>) -> Option<&'a RunqFigures> {
    lately(w, |d| d.runq_bpf.as_deref())
}

/// Softirq time.
pub(crate) fn softirqs<'a>(w: &Window<'a>) -> Option<&'a IrqFigures> {
    lately(w, |d| d.irq_bpf.as_deref()).filter(|f| f.softirqs)
}

/// Nanoseconds to ms.
pub(crate) fn to_ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The path of a cgroup, if it was read recently.
pub(crate) fn cgroup_path<'a>(w: &Window<'a>, id: CgroupId) -> Option<&'a str> {
    w.history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= Duration::from_secs(10))
        .filter_map(|m| m.tick.samples.cgroups.as_ref())
        .find_map(|s| s.data.groups.iter().find(|g| g.id == id).map(|g| &*g.path))
}

/// Request latency of one disk over the last few seconds.
#[derive(Debug, Default)]
pub(crate) struct DiskLatency {
    /// From issue to completion.
    device: Hist,
    /// From allocation to issue.
    queued: Hist,
    /// Bios split per second; `None` if not counted.
    splits_s: Option<f64>,
}

/// Intervals that are merged, because slow disks complete few requests in one.
const INTERVALS: usize = 5;
/// Minimum number of requests for a meaningful distribution.
const ENOUGH: u64 = 30;

/// Request latency of a disk.
pub(crate) fn disk(w: &Window<'_>, d: &DiskFigures) -> Option<DiskLatency> {
    let now = lately(w, |x| x.block_bpf.as_deref())?.disk(d.id)?;
    let mut out = DiskLatency { splits_s: now.splits_s, ..DiskLatency::default() };
    for f in w.recent(INTERVALS).filter_map(|x| x.block_bpf.as_ref()?.disk(d.id)) {
        out.device.merge(&f.hist(Stage::Device));
        out.queued.merge(&f.hist(Stage::Queued));
    }
    (out.device.count() >= ENOUGH).then_some(out)
}

impl DiskLatency {
    /// Standard deviation over mean of the device time: 0 for a metronome.
    pub(crate) fn dispersion(&self) -> Option<f64> {
        let n = self.device.count() as f64;
        let mean = ratio(sum_ns(&self.device), n)?;
        // Each value counts as the middle of its bucket, as in the sum.
        let squares: f64 = self
            .device
            .buckets()
            .map(|(b, n)| n as f64 * (sum_ns(&[(b, 1)].into()) - mean).powi(2))
            .sum();
        ratio((squares / n).sqrt(), mean)
    }
    /// Median device time, ms.
    pub(crate) fn device_ms(&self) -> f64 {
        self.device.quantile(0.5).map_or(0.0, to_ms)
    }
    /// Fraction of the time that was spent on the device, 0 to 1.
    pub(crate) fn device_share(&self) -> Option<f64> {
        let (device, queued) = (sum_ns(&self.device), sum_ns(&self.queued));
        ratio(device, device + queued)
    }

    /// Splits per request that the device sees, about 1 if all of them are pieces; `None` if the
    /// kernel does not report splits.
    pub(crate) fn split_share(&self, d: &DiskFigures) -> Option<f64> {
        ratio(self.splits_s?, d.iops())
    }

    /// Where the time is spent and what the requests look like.
    pub(crate) fn evidence(&self, d: &DiskFigures) -> Vec<Evidence> {
        let mut out = Vec::new();
        let q = |q| self.device.quantile(q).map_or(0.0, to_ms);
        let text = format!(
            "eBPF: on the device p50 {} ms, p99 {} ms, {} requests",
            ms(q(0.5)),
            ms(q(0.99)),
            self.device.count()
        );
        out.push(Evidence::new("device-p50", q(0.5), "ms", text));
        if let Some(share) = self.device_share() {
            let p50 = self.queued.quantile(0.5).map_or(0.0, to_ms);
            let text = format!(
                "eBPF: {:.0}% of the time is on the device, the rest queued above it (p50 {} ms)",
                100.0 * share,
                ms(p50)
            );
            out.push(Evidence::new("device-share", 100.0 * share, "%", text));
        }
        out.extend(self.splits(d));
        out
    }

    /// Requests that are split because they are larger than the queue allows.
    fn splits(&self, d: &DiskFigures) -> Option<Evidence> {
        let s = self.splits_s.filter(|s| *s >= 1.0 && *s >= 0.25 * d.iops())?;
        let cut = d.attrs.max_sectors_kb.map_or(String::new(), |kb| format!(" at {kb} kB"));
        let more = match (d.attrs.max_sectors_kb, d.attrs.max_hw_sectors_kb) {
            (Some(now), Some(most)) if most > now => {
                format!("; the device takes up to {most} kB (queue/max_sectors_kb)")
            }
            _ => String::new(),
        };
        let text = format!("eBPF: {} splits/s: requests are split{cut}{more}", rate(s));
        Some(Evidence::new("split", s, "/s", text))
    }
}

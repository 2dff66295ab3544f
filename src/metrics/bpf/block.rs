//! Block requests per disk and kind: rates, where their time goes, sizes, splits, requeues.

use std::time::Duration;

use super::{Coverage, Latency, grown_missed, sum_ns};
use crate::metrics::rate::{grown, per_second, ratio};
use crate::sample::Stamped;
use crate::sample::bpf::Hist;
use crate::sample::bpf::block::{BlockBpfSample, BlockDisk, BlockOp, BlockOpKind};
use crate::sample::subject::DiskId;

/// Requests over one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockFigures {
    /// Measured interval.
    pub dt: Duration,
    /// Disks that had a request since attach. dm, md and zram have none of their own.
    pub disks: Vec<BlockDiskFigures>,
    /// How much of what happened is in here.
    pub coverage: Coverage,
}

/// Requests of one disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockDiskFigures {
    /// The whole disk.
    pub id: DiskId,
    /// Kinds that completed in the interval.
    pub ops: Vec<BlockOpFigures>,
    /// Requests given back to the queue, per second; `None` when not counted.
    pub requeues_s: Option<f64>,
    /// Bios split as too large, per second; `None` when not counted.
    pub splits_s: Option<f64>,
    /// Completions with an error, per second.
    pub errors_s: f64,
    /// Requests in no histogram but the total, because their time of issue is not known.
    pub no_issue: u64,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockOpFigures {
    /// The kind.
    pub op: BlockOpKind,
    /// Completed in the interval.
    pub count: u64,
    /// Completed per second.
    pub rate: f64,
    /// Bytes per second.
    pub bytes_s: f64,
    /// Requests by size: class `n` holds up to `4 KiB << n`, 13 all that is larger.
    pub sizes: Vec<(u8, u64)>,
    /// From allocation to issue: scheduler, tags, throttling.
    pub queued: Hist,
    /// From issue to completion: driver and device.
    pub device: Hist,
    /// Both.
    pub total: Hist,
}

/// A stretch of a request's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From allocation to issue.
    Queued,
    /// From issue to completion.
    Device,
    /// Both.
    Total,
}

impl BlockFigures {
    /// A disk; partitions are told by their disk.
    #[must_use]
    pub fn disk(&self, id: DiskId) -> Option<&BlockDiskFigures> {
        self.disks.iter().find(|d| d.id == id)
    }
}

impl BlockOpFigures {
    /// A stretch of the way.
    #[must_use]
    pub fn hist(&self, stage: Stage) -> &Hist {
        match stage {
            Stage::Queued => &self.queued,
            Stage::Device => &self.device,
            Stage::Total => &self.total,
        }
    }
    /// The same in five numbers.
    #[must_use]
    pub fn latency(&self, stage: Stage) -> Option<Latency> {
        Latency::of(self.hist(stage))
    }
    /// Part of the time that was waiting for issue, 0 to 1; `None` where no request tells.
    #[must_use]
    pub fn queue_share(&self) -> Option<f64> {
        share(sum_ns(&self.queued), sum_ns(&self.device))
    }
    /// Mean size of a request, bytes.
    #[must_use]
    pub fn mean_bytes(&self) -> Option<f64> {
        ratio(self.bytes_s, self.rate)
    }
}

fn share(queued: f64, device: f64) -> Option<f64> {
    ratio(queued, queued + device)
}

impl BlockDiskFigures {
    /// A kind; `None` when none completed in the interval.
    #[must_use]
    pub fn op(&self, kind: BlockOpKind) -> Option<&BlockOpFigures> {
        self.ops.iter().find(|o| o.op == kind)
    }
    /// Kinds that move data: all but flushes, as `await` has it.
    fn data(&self) -> impl Iterator<Item = &BlockOpFigures> {
        self.ops.iter().filter(|o| o.op != BlockOpKind::Flush)
    }
    /// A stretch of the way of all requests but flushes.
    #[must_use]
    pub fn hist(&self, stage: Stage) -> Hist {
        let mut out = Hist::default();
        self.data().for_each(|o| out.merge(o.hist(stage)));
        out
    }
    /// The same in five numbers.
    #[must_use]
    pub fn latency(&self, stage: Stage) -> Option<Latency> {
        Latency::of(&self.hist(stage))
    }
    /// Part of the time of all requests but flushes that was waiting for issue, 0 to 1. High:
    /// the queue (scheduler, tags, a throttle) is what requests wait for; low: the device.
    #[must_use]
    pub fn queue_share(&self) -> Option<f64> {
        let sum = |stage| self.data().map(|o| sum_ns(o.hist(stage))).sum();
        share(sum(Stage::Queued), sum(Stage::Device))
    }
    /// Requests completed per second, flushes left out.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.data().map(|o| o.rate).sum()
    }
}

/// Requests between two readings. `None` when the programs were attached anew in between.
#[must_use]
pub fn derive(
    prev: &Stamped<BlockBpfSample>,
    now: &Stamped<BlockBpfSample>,
) -> Option<BlockFigures> {
    let dt = now.span.mid().since(prev.span.mid());
    if dt.is_zero() {
        return None;
    }
    let (p, n) = (&prev.data, &now.data);
    if p.disks.iter().any(|d| !n.disks.iter().any(|x| x.id == d.id)) {
        return None;
    }
    let mut out = BlockFigures { dt, ..BlockFigures::default() };
    out.coverage.lost = grown_missed(p.missed, n.missed)
        .saturating_add(n.unknown.saturating_sub(p.unknown))
        .saturating_add(n.collided.saturating_sub(p.collided));
    let none = BlockDisk::default();
    for row in &n.disks {
        let old = p.disks.iter().find(|d| d.id == row.id).unwrap_or(&none);
        let rate = |f: fn(&BlockDisk) -> u64| per_second(grown(f(old), f(row))? as f64, dt);
        let lost = |f: fn(&BlockDisk) -> u64| f(row).saturating_sub(f(old));
        let mut disk = BlockDiskFigures {
            id: row.id,
            requeues_s: if n.requeues { Some(rate(|d| d.requeues)?) } else { None },
            splits_s: if n.splits { Some(rate(|d| d.splits)?) } else { None },
            errors_s: rate(|d| d.errors)?,
            no_issue: grown(old.no_issue, row.no_issue)?,
            ops: Vec::new(),
        };
        for o in &row.ops {
            let zero = BlockOp::default();
            let before = old.ops.iter().find(|x| x.op == o.op).unwrap_or(&zero);
            let op = op(before, o, dt)?;
            out.coverage.counted = out.coverage.counted.saturating_add(op.count);
            if op.count > 0 || op.total.count() > 0 {
                disk.ops.push(op);
            }
        }
        out.coverage.lost = out
            .coverage
            .lost
            .saturating_add(lost(|d| d.discarded))
            .saturating_add(lost(|d| d.no_start));
        out.disks.push(disk);
    }
    Some(out)
}

fn op(p: &BlockOp, n: &BlockOp, dt: Duration) -> Option<BlockOpFigures> {
    let count = grown(p.count, n.count)?;
    let mut sizes = Vec::new();
    for (class, now) in &n.sizes {
        let before = p.sizes.iter().find(|s| s.0 == *class).map_or(0, |s| s.1);
        match grown(before, *now)? {
            0 => {}
            d => sizes.push((*class, d)),
        }
    }
    Some(BlockOpFigures {
        op: n.op,
        count,
        rate: per_second(count as f64, dt)?,
        bytes_s: per_second(grown(p.bytes, n.bytes)? as f64, dt)?,
        sizes,
        queued: n.queued.since(&p.queued)?,
        device: n.device.since(&p.device)?,
        total: n.total.since(&p.total)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::hist;
    use super::*;
    use crate::sample::time::{MonoNs, Span};

    const VDB: DiskId = DiskId { major: 252, minor: 16 };

    fn at(ms: u64, data: BlockBpfSample) -> Stamped<BlockBpfSample> {
        Stamped { span: Span::at(MonoNs(ms * 1_000_000)), cpu: Duration::ZERO, data }
    }

    fn requests(op: BlockOpKind, n: usize, queued: u64, device: u64) -> BlockOp {
        BlockOp {
            op,
            count: n as u64,
            bytes: n as u64 * 4096,
            sizes: vec![(0, n as u64)],
            queued: hist(&vec![queued; n]),
            device: hist(&vec![device; n]),
            total: hist(&vec![queued + device; n]),
        }
    }

    fn sample(ops: Vec<BlockOp>) -> BlockBpfSample {
        let disk = BlockDisk { id: VDB, ops, splits: 7, requeues: 9, ..BlockDisk::default() };
        BlockBpfSample { disks: vec![disk], splits: true, ..BlockBpfSample::default() }
    }

    /// 1000 reads in 2 s, each 6 ms queued and 2 ms in the device; a flush of 50 ms beside them
    /// counts for itself only.
    #[test]
    fn a_queue_that_waits_three_quarters_of_the_time() {
        let after = sample(vec![
            requests(BlockOpKind::Read, 1000, 6_000_000, 2_000_000),
            requests(BlockOpKind::Flush, 10, 50_000_000, 100),
        ]);
        let f = derive(&at(0, BlockBpfSample::default()), &at(2000, after)).unwrap();
        let d = f.disk(VDB).unwrap();
        assert!((d.queue_share().unwrap() - 0.75).abs() < 0.02, "{:?}", d.queue_share());
        let r = d.op(BlockOpKind::Read).unwrap();
        assert_eq!((r.rate, r.bytes_s, r.mean_bytes()), (500.0, 2_048_000.0, Some(4096.0)));
        let near = |ns: u64, want: f64| assert!((ns as f64 / want - 1.0).abs() <= 0.0625, "{ns}");
        near(r.latency(Stage::Queued).unwrap().p50_ns, 6e6);
        near(r.latency(Stage::Device).unwrap().p99_ns, 2e6);
        near(d.latency(Stage::Total).unwrap().p99_ns, 8e6);
        assert_eq!(d.iops(), 500.0);
        assert!(d.op(BlockOpKind::Flush).unwrap().queue_share().unwrap() > 0.99);
        assert_eq!(d.splits_s, Some(3.5));
        assert_eq!(d.requeues_s, None, "not counted is not 0");
        assert_eq!(r.sizes, [(0, 1000)]);
    }

    #[test]
    fn only_what_the_interval_added_counts() {
        let before = sample(vec![requests(BlockOpKind::Write, 100, 1_000, 50_000_000)]);
        let mut last = requests(BlockOpKind::Write, 100, 1_000, 50_000_000);
        let more = requests(BlockOpKind::Write, 5, 1_000, 200_000);
        last.count += 5;
        last.bytes += more.bytes;
        last.device.merge(&more.device);
        last.queued.merge(&more.queued);
        last.total.merge(&more.total);
        last.sizes = vec![(0, 105)];
        let f = derive(&at(0, before.clone()), &at(1000, sample(vec![last]))).unwrap();
        let w = f.disk(VDB).unwrap().op(BlockOpKind::Write).unwrap();
        let l = w.latency(Stage::Device).unwrap();
        assert_eq!((l.count, w.count, w.sizes.as_slice()), (5, 5, &[(0, 5)][..]));
        assert!(l.max_ns.unwrap() < 230_000);
        let idle = derive(&at(0, before.clone()), &at(1000, before)).unwrap();
        assert_eq!(idle.disk(VDB).unwrap().queue_share(), None, "no request, no share");
    }

    #[test]
    fn backwards_is_a_reset() {
        let many = sample(vec![requests(BlockOpKind::Read, 9, 1000, 1000)]);
        let few = sample(vec![requests(BlockOpKind::Read, 8, 1000, 1000)]);
        assert_eq!(derive(&at(0, many.clone()), &at(1000, few)), None);
        assert_eq!(derive(&at(0, many), &at(1000, BlockBpfSample::default())), None);
    }
}

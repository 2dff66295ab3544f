//! Block requests per disk and kind: how long they were queued, how long the device took, how
//! large they were; requeues and splits. Measured at completion; see
//! `ebpf/programs/src/bin/block.rs`.
//!
//! Where the kernel does not note the time of issue (no writeback throttling), a second program is
//! attached for it as soon as that shows.

use aya::maps::Array;

use super::load::{self, Hook, Loaded};
use super::maps::Stripes;
use super::{Coverage, objects, offsets, rights};
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::bpf::block::{BlockBpfSample, BlockDisk, BlockOp, OP_KINDS};
use crate::sample::bpf::layout::{BUCKETS, block as l};
use crate::sample::subject::DiskId;
use crate::sample::{CollectorId, Signal};

/// Kernel memory of the maps.
pub(super) const BYTES_FIXED: usize =
    (l::DISKS + 1) * l::WORDS * 8 + l::SLOTS * 8 + l::STAMPS as usize * 8;

/// Reads it. See the module head.
pub struct BlockBpf {
    host: HostFs,
    opts: CollectOptions,
    loaded: Loaded,
    stripes: Stripes<{ l::WORDS }>,
    /// The disk of each row, as it was read last.
    rows: Vec<BlockDisk>,
    unknown: u64,
    stamps_issue: bool,
    /// Why the time of issue cannot be stamped; not tried again then.
    no_stamps: Option<String>,
    no_splits: Option<String>,
    no_requeues: Option<String>,
    /// Requests at the reading before, and those without time of issue.
    requests: (u64, u64),
    coverage: Coverage,
}

const TABLE: &str = "BLOCK_DISKS";

impl Collector for BlockBpf {
    type Sample = BlockBpfSample;
    const ID: CollectorId = CollectorId::BlockBpf;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let types = kernel.types.as_ref().map_err(Clone::clone)?;
        let (mut globals, splits) = offsets::block(&types.own)?;
        globals.push(("BY_HELPER", types.by_helper));
        let mut loaded = Loaded::new(&kernel, objects::BLOCK, &globals, &[])?;
        let mut this = Self {
            stripes: loaded.stripes("BLOCK", l::DISKS + 1)?,
            host: host.clone(),
            opts: opts.clone(),
            loaded,
            rows: Vec::new(),
            unknown: 0,
            stamps_issue: false,
            no_stamps: None,
            no_splits: None,
            no_requeues: None,
            requests: (0, 0),
            coverage: Coverage::default(),
        };
        this.name_disks()?;
        let mut extra = |name, tracepoint| {
            this.loaded.attach(&kernel, name, Hook::Btf(tracepoint)).err().map(|u| u.reason)
        };
        this.no_requeues = extra("block_requeue", "block_rq_requeue");
        this.no_splits = if splits {
            extra("block_split", "block_split")
        } else {
            Some("this kernel's bio does not identify its disk".to_owned())
        };
        this.loaded.attach(&kernel, "block_complete", Hook::Btf("block_rq_complete"))?;
        Ok(this)
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<BlockBpfSample, CollectError> {
        load::forget_kernel();
        self.stripes.refresh().map_err(|e| CollectError::read("map BLOCK", e))?;
        let mut out = BlockBpfSample {
            unknown: self.stripes.get(l::UNKNOWN, 0),
            collided: self.stripes.get(l::UNKNOWN, 1),
            splits: self.no_splits.is_none(),
            requeues: self.no_requeues.is_none(),
            missed: self.loaded.missed(),
            ..BlockBpfSample::default()
        };
        self.coverage =
            Coverage { counted: 0, lost: out.missed.unwrap_or(0).saturating_add(out.unknown) };
        let mut rows = std::mem::take(&mut self.rows);
        for (row, disk) in rows.iter_mut().enumerate() {
            self.read(row, disk);
            self.coverage.counted += disk.ops.iter().map(|o| o.count).sum::<u64>();
            self.coverage.lost += disk.discarded + disk.no_start;
            if !disk.ops.is_empty() || disk.requeues + disk.splits + disk.errors > 0 {
                out.disks.push(disk.clone());
            }
        }
        self.rows = rows;
        out.disks.sort_by_key(|d| d.id);
        self.adapt(&out);
        out.stamps_issue = self.stamps_issue;
        Ok(out)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        out.push(self.coverage.signal("block latency"));
        let parts = [
            ("time of issue", &self.no_stamps),
            ("request splits", &self.no_splits),
            ("request requeues", &self.no_requeues),
        ];
        for (name, why) in parts {
            if let Some(why) = why {
                out.push(Signal::missing(name, "ebpf", why.clone(), ""));
            }
        }
    }
}

impl BlockBpf {
    /// [`Sample.missed`] read now: samples read it now and then only.
    #[doc(hidden)]
    pub fn missed_now(&self) -> Option<u64> {
        self.loaded.missed_now()
    }

    /// Reacts to what the counters say: disks that are new, requests without time of issue.
    fn adapt(&mut self, now: &BlockBpfSample) {
        if now.unknown > self.unknown {
            self.unknown = now.unknown;
            // A failure shows as events of unknown disks.
            let _ = self.name_disks();
        }
        let requests: u64 = now.disks.iter().flat_map(|d| &d.ops).map(|o| o.count).sum();
        let no_issue = now.disks.iter().map(|d| d.no_issue).sum();
        let before = std::mem::replace(&mut self.requests, (requests, no_issue));
        let (all, without) = (requests.saturating_sub(before.0), no_issue.saturating_sub(before.1));
        // Single requests lack it everywhere (parts of a flush); a disk that lacks it lacks it
        // for all.
        let lacking = without >= 8 && without > all / 8;
        if lacking && !self.stamps_issue && self.no_stamps.is_none() {
            let attached = rights::raised(|| {
                load::kernel(&self.host, &self.opts).and_then(|k| {
                    self.loaded.attach(&k, "block_issue", Hook::Btf("block_rq_issue"))
                })
            });
            load::forget_kernel();
            match attached {
                Ok(()) => self.stamps_issue = true,
                Err(u) => self.no_stamps = Some(u.reason),
            }
        }
    }

    /// Gives every disk a row that the program finds.
    fn name_disks(&mut self) -> Result<(), Unavailable> {
        let before = self.rows.len();
        for id in disks(&self.host) {
            if self.rows.len() < l::DISKS && !self.rows.iter().any(|r| r.id == id) {
                self.rows.push(BlockDisk { id, ..BlockDisk::default() });
            }
        }
        if self.rows.len() == before {
            return Ok(());
        }
        let failed = |e: &dyn std::fmt::Display| Unavailable::new(format!("{TABLE}: {e}"), "");
        let map = self.loaded.ebpf.map_mut(TABLE).ok_or_else(|| failed(&"no such map"))?;
        let mut map = Array::<_, [u64; l::SLOTS]>::try_from(map).map_err(|e| failed(&e))?;
        rights::raised(|| map.set(0, table(self.rows.iter().map(|r| r.id)), 0))
            .map_err(|e| failed(&e))
    }

    /// Reads a disk; what did not change stays as it was.
    fn read(&self, row: usize, disk: &mut BlockDisk) {
        let word = |w| self.stripes.get(row, w);
        disk.requeues = word(l::REQUEUES);
        disk.splits = word(l::SPLITS);
        disk.errors = word(l::ERRORS);
        disk.no_issue = word(l::NO_ISSUE);
        disk.no_start = word(l::NO_START);
        disk.discarded = word(l::DISCARDED);
        for (i, kind) in OP_KINDS.into_iter().enumerate() {
            let at = l::OP + i * l::OP_WORDS;
            let (count, bytes) = (word(at), word(at + 1));
            if count == 0 && bytes == 0 {
                continue;
            }
            let place = disk.ops.partition_point(|o| o.op < kind);
            if disk.ops.get(place).is_none_or(|o| o.op != kind) {
                disk.ops.insert(place, BlockOp { op: kind, ..BlockOp::default() });
            }
            let Some(op) = disk.ops.get_mut(place) else { continue };
            // The count is added before the times: only when these are there too is it settled.
            if (op.count, op.bytes) != (count, bytes) || op.total.count() < count {
                (op.count, op.bytes) = (count, bytes);
                self.read_op(row, i, op);
            }
        }
    }

    /// Reads the distributions of kind `i` of the disk in `row`.
    fn read_op(&self, row: usize, i: usize, op: &mut BlockOp) {
        for (stage, hist) in [&mut op.queued, &mut op.device, &mut op.total].into_iter().enumerate()
        {
            let at = l::HIST + (i * l::STAGES + stage) * BUCKETS;
            // All requests are in all histograms, but for those that lack a time.
            *hist = hist.gather_again(&self.stripes, row, at, op.count);
        }
        let sizes = l::SIZE + i * l::SIZE_WORDS;
        let size = |class| (class as u8, self.stripes.get(row, sizes + class));
        op.sizes.clear();
        op.sizes.extend((0..l::SIZES).map(size).filter(|(_, n)| *n > 0));
    }
}

/// Device numbers of the whole disks, those that matter most first.
fn disks(host: &HostFs) -> Vec<DiskId> {
    let mut names = host.list("sys/block").unwrap_or_default();
    let minor =
        |n: &str| ["loop", "ram", "zram", "fd", "sr", "dm-", "md"].iter().any(|p| n.starts_with(p));
    names.sort_by_key(|n| minor(n));
    names
        .iter()
        .filter_map(|n| {
            let dev = host.read_trimmed(format!("sys/block/{n}/dev")).ok()?;
            let (major, minor) = dev.split_once(':')?;
            let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
            (major < 1 << 12 && minor < 1 << 20).then_some(DiskId { major, minor })
        })
        .collect()
}

/// The table in which the program finds the row of a device.
fn table(rows: impl Iterator<Item = DiskId>) -> [u64; l::SLOTS] {
    let mut table = [0; l::SLOTS];
    for (row, id) in rows.enumerate() {
        let dev = id.major << 20 | id.minor;
        for i in 0..l::PROBES {
            // A device whose slots are all taken is left out, and counted as unknown.
            let Some(slot) = table.get_mut((l::home(dev) + i) % l::SLOTS) else { break };
            if *slot == 0 {
                *slot = (u64::from(dev) + 1) << 8 | row as u64;
                break;
            }
        }
    }
    table
}

#[cfg(test)]
mod tests;

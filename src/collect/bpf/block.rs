//! Block requests per disk and kind: how long they were queued, how long the device took, how
//! large they were; requeues and splits. Measured at completion; see
//! `ebpf/programs/src/bin/block.rs`.
//!
//! Requests exist on whole disks of request-based drivers: dm and md devices and zram show
//! nothing here. Where the kernel does not note the time of issue (no writeback throttling),
//! a second program is attached for it as soon as that shows.

use serde::{Deserialize, Serialize};

use aya::maps::Array;

use super::hist::Hist;
use super::layout::BUCKETS;
use super::layout::block as l;
use super::load::{self, Hook, Loaded};
use super::maps::Stripes;
use super::{Coverage, objects, offsets, rights};
use crate::collect::{
    CollectError, CollectOptions, Collector, CollectorId, HostFs, Role, SampleContext, Signal,
    Unavailable,
};
use crate::model::subject::DiskId;

/// Kernel memory of the maps.
pub(super) const BYTES_FIXED: usize =
    (l::DISKS + 1) * l::WORDS * 8 + l::SLOTS * 8 + l::STAMPS as usize * 8;

/// One reading. Counters are since the programs were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockBpfSample {
    /// Disks with at least one request.
    pub disks: Vec<BlockDisk>,
    /// Events of disks that have no row (more than 64 disks, or new since the reading before).
    pub unknown: u64,
    /// Times of issue that another request overwrote.
    pub collided: u64,
    /// The time of issue is stamped by us where the kernel does not note it.
    pub stamps_issue: bool,
    /// Splits are counted.
    pub splits: bool,
    /// Requeues are counted.
    pub requeues: bool,
    /// Events that no program ran for (5.12); `None` where the kernel does not tell.
    pub missed: Option<u64>,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockDisk {
    /// The whole disk.
    pub id: DiskId,
    /// Kinds of request that occurred.
    pub ops: Vec<BlockOp>,
    /// Requests given back to the queue: a device that is busy, or a path that failed.
    pub requeues: u64,
    /// Bios split because they were too large for the device or the queue.
    pub splits: u64,
    /// Completions with an error.
    pub errors: u64,
    /// Requests whose time of issue is not known: in no histogram but the total.
    pub no_issue: u64,
    /// Requests whose time of start is not known: `iostats` is off and no scheduler is set.
    pub no_start: u64,
    /// Requests whose times make no sense.
    pub discarded: u64,
}

/// What a request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockOpKind {
    /// Reads.
    #[default]
    Read,
    /// Writes.
    Write,
    /// Cache flushes.
    Flush,
    /// Discards, zeroing, zone commands, commands of the driver.
    Other,
}

/// All of them, by the number that the program uses.
pub const OP_KINDS: [BlockOpKind; l::OPS] =
    [BlockOpKind::Read, BlockOpKind::Write, BlockOpKind::Flush, BlockOpKind::Other];

/// One kind of request of one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockOp {
    /// The kind.
    pub op: BlockOpKind,
    /// Requests completed.
    pub count: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests by size: class `n` holds up to `4 KiB << n`, 13 all that is larger.
    pub sizes: Vec<(u8, u64)>,
    /// From allocation to issue: scheduler, tags, throttling.
    pub queued: Hist,
    /// From issue to completion: driver and device.
    pub device: Hist,
    /// Both.
    pub total: Hist,
}

/// Reads it. See the module head.
pub struct BlockBpf {
    host: HostFs,
    opts: CollectOptions,
    loaded: Loaded,
    stripes: Stripes<{ l::WORDS }>,
    /// The device of each row.
    rows: Vec<u32>,
    unknown: u64,
    stamps_issue: bool,
    /// Why the time of issue cannot be stamped; not tried again then.
    no_stamps: Option<String>,
    no_splits: Option<String>,
    no_requeues: Option<String>,
    last: BlockBpfSample,
    samples: u32,
    coverage: Coverage,
}

const MISSED_EVERY: u32 = 60;
const TABLE: &str = "BLOCK_DISKS";

impl Collector for BlockBpf {
    type Sample = BlockBpfSample;
    const ID: CollectorId = CollectorId::BlockBpf;
    const ROLE: Role = Role::Bpf;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let types = kernel.types.as_ref().map_err(|e| Unavailable::new(e.clone(), load::NO_BTF))?;
        let (globals, splits) = offsets::block(&types.own)?;
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
            last: BlockBpfSample::default(),
            samples: 0,
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
            Some("this kernel's bio tells no disk".to_owned())
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
            missed: self.last.missed,
            ..BlockBpfSample::default()
        };
        if self.samples.is_multiple_of(MISSED_EVERY) {
            out.missed = self.loaded.missed();
        }
        self.samples = self.samples.wrapping_add(1);
        self.coverage =
            Coverage { counted: 0, lost: out.missed.unwrap_or(0).saturating_add(out.unknown) };
        for (row, id) in self.rows.iter().copied().enumerate() {
            let id = DiskId { major: id >> 20, minor: id & 0xf_ffff };
            let old = self.last.disks.iter().find(|d| d.id == id);
            let disk = self.disk(row, id, old);
            self.coverage.counted += disk.ops.iter().map(|o| o.count).sum::<u64>();
            self.coverage.lost += disk.discarded + disk.no_start;
            if !disk.ops.is_empty() || disk.requeues + disk.splits + disk.errors > 0 {
                out.disks.push(disk);
            }
        }
        out.disks.sort_by_key(|d| d.id);
        self.adapt(&out);
        out.stamps_issue = self.stamps_issue;
        self.last = out.clone();
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
        self.loaded.missed()
    }

    /// Reacts to what the counters say: disks that are new, requests without time of issue.
    fn adapt(&mut self, now: &BlockBpfSample) {
        if now.unknown > self.unknown {
            self.unknown = now.unknown;
            // A failure shows as events of unknown disks.
            let _ = self.name_disks();
        }
        let requests = |s: &BlockBpfSample| -> u64 {
            s.disks.iter().flat_map(|d| &d.ops).map(|o| o.count).sum()
        };
        let no_issue = |s: &BlockBpfSample| -> u64 { s.disks.iter().map(|d| d.no_issue).sum() };
        let without = no_issue(now).saturating_sub(no_issue(&self.last));
        let all = requests(now).saturating_sub(requests(&self.last));
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
        for dev in disks(&self.host) {
            if self.rows.len() < l::DISKS && !self.rows.contains(&dev) {
                self.rows.push(dev);
            }
        }
        if self.rows.len() == before {
            return Ok(());
        }
        let failed = |e: &dyn std::fmt::Display| Unavailable::new(format!("{TABLE}: {e}"), "");
        let map = self.loaded.ebpf.map_mut(TABLE).ok_or_else(|| failed(&"no such map"))?;
        let mut map = Array::<_, [u64; l::SLOTS]>::try_from(map).map_err(|e| failed(&e))?;
        rights::raised(|| map.set(0, table(&self.rows), 0)).map_err(|e| failed(&e))
    }

    fn disk(&self, row: usize, id: DiskId, old: Option<&BlockDisk>) -> BlockDisk {
        let word = |w| self.stripes.get(row, w);
        let mut disk = BlockDisk {
            id,
            ops: Vec::new(),
            requeues: word(l::REQUEUES),
            splits: word(l::SPLITS),
            errors: word(l::ERRORS),
            no_issue: word(l::NO_ISSUE),
            no_start: word(l::NO_START),
            discarded: word(l::DISCARDED),
        };
        for (i, kind) in OP_KINDS.into_iter().enumerate() {
            let at = l::OP + i * l::OP_WORDS;
            let (count, bytes) = (word(at), word(at + 1));
            if count == 0 && bytes == 0 {
                continue;
            }
            // The count is added before the times: only one that stood still twice is settled.
            let same = old.and_then(|o| {
                let op = o.ops.iter().find(|x| x.op == kind)?;
                let settled = op.count == count && op.total.count() >= count;
                settled.then(|| op.clone())
            });
            disk.ops.push(same.unwrap_or_else(|| self.op(row, i, kind, count, bytes)));
        }
        disk
    }

    fn op(&self, row: usize, i: usize, op: BlockOpKind, count: u64, bytes: u64) -> BlockOp {
        let hist = |stage| {
            let at = l::HIST + (i * l::STAGES + stage) * BUCKETS;
            Hist::gather(&self.stripes, row, at)
        };
        let mut sizes = Vec::new();
        self.stripes.used(row, l::OP + i * l::OP_WORDS + 2, l::SIZES, |class, n| {
            sizes.push((class as u8, n));
        });
        BlockOp { op, count, bytes, sizes, queued: hist(0), device: hist(1), total: hist(2) }
    }
}

/// Device numbers of the whole disks, those that matter most first.
fn disks(host: &HostFs) -> Vec<u32> {
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
            (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
        })
        .collect()
}

/// The table in which the program finds the row of a device.
fn table(rows: &[u32]) -> [u64; l::SLOTS] {
    let mut table = [0; l::SLOTS];
    for (row, dev) in rows.iter().enumerate() {
        for i in 0..l::PROBES {
            // A device whose slots are all taken is left out, and counted as unknown.
            let Some(slot) = table.get_mut((l::home(*dev) + i) % l::SLOTS) else { break };
            if *slot == 0 {
                *slot = (u64::from(*dev) + 1) << 8 | row as u64;
                break;
            }
        }
    }
    table
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;

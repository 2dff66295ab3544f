//! Block requests per disk and kind, as eBPF counts them.
//!
//! Requests exist on whole disks of request-based drivers: dm and md devices and zram show
//! nothing here.

use serde::{Deserialize, Serialize};

use super::hist::Hist;
use super::layout::block as l;
use crate::sample::heap::owns;
use crate::sample::subject::DiskId;

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
owns!(BlockBpfSample { disks } flat {
    unknown, collided, stamps_issue, splits, requeues, missed
});

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
owns!(BlockDisk { ops } flat { id, requeues, splits, errors, no_issue, no_start, discarded });

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
owns!(BlockOp { sizes, queued, device, total } flat { op, count, bytes });

//! Disks: counters and attributes. Raw: rates and verdicts are made elsewhere.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::heap::owns;
use super::subject::DiskId;

/// All block devices of one reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DisksSample {
    /// One row per line of `/proc/diskstats` that could be parsed.
    pub disks: Vec<DiskRow>,
    /// Lines that could not be parsed.
    pub bad_rows: u32,
}
owns!(DisksSample { disks } flat { bad_rows });

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskRow {
    /// Device number.
    pub id: DiskId,
    /// Kernel name, raw.
    pub name: Arc<str>,
    /// The counters.
    pub stat: DiskCounters,
    /// `/sys/block/DEV/inflight`: reads and writes handed to the device and not completed.
    pub inflight: Option<(u32, u32)>,
    /// What changes rarely; shared between ticks.
    pub attrs: Arc<DiskAttrs>,
}
owns!(DiskRow { name, attrs } flat { id, stat, inflight });

/// The fields after the name. Times are in ms and u32 in the kernel: they wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskCounters {
    /// Reads completed.
    pub rd_ios: u64,
    /// Reads merged.
    pub rd_merges: u64,
    /// Sectors of 512 B read.
    pub rd_sectors: u64,
    /// ms that reads took, summed; wraps at 2^32.
    pub rd_ticks: u32,
    /// Writes completed.
    pub wr_ios: u64,
    /// Writes merged.
    pub wr_merges: u64,
    /// Sectors of 512 B written.
    pub wr_sectors: u64,
    /// ms that writes took, summed; wraps at 2^32.
    pub wr_ticks: u32,
    /// Requests in flight now. A gauge; old kernels may report nonsense such as -1.
    pub in_flight: i64,
    /// ms with at least one request in flight; wraps at 2^32.
    pub io_ticks: u32,
    /// Weighted ms (field 11); broken on 4.x/5.x, so only compared with the tick sums.
    pub weighted: u32,
    /// Discards (since 4.18).
    pub discard: Option<DiscardCounters>,
    /// Flushes (since 5.5).
    pub flush: Option<FlushCounters>,
}

/// Fields 12 to 15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardCounters {
    /// Discards completed.
    pub ios: u64,
    /// Discards merged.
    pub merges: u64,
    /// Sectors of 512 B discarded.
    pub sectors: u64,
    /// ms that discards took; wraps at 2^32.
    pub ticks: u32,
}

/// Fields 16 and 17.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushCounters {
    /// Flushes completed by the device.
    pub ios: u64,
    /// ms that flushes took; wraps at 2^32.
    pub ticks: u32,
}

/// What a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskClass {
    /// Spinning disk.
    Hdd,
    /// SATA or SAS flash.
    Ssd,
    /// NVMe flash in this machine.
    Nvme,
    /// Virtual disk of a hypervisor or cloud: vd*, xvd*, EBS and the like. Its
    /// `rotational` attribute means nothing.
    Virtual,
    /// dm, md, bcache, loop: a layer over other devices.
    Stack,
    /// Partition.
    Partition,
    /// zram, ram: memory.
    Memory,
    /// None of these.
    #[default]
    Other,
}

/// Attributes that change rarely. `None`: the file is absent or unreadable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskAttrs {
    /// What it is.
    pub class: DiskClass,
    /// `Some` only where `queue/rotational` can be believed.
    pub rotational: Option<bool>,
    /// Capacity in sectors of 512 B.
    pub size_sectors: Option<u64>,
    /// Active scheduler, the one in brackets.
    pub scheduler: Option<String>,
    /// `queue/nr_requests`.
    pub nr_requests: Option<u32>,
    /// `queue/max_sectors_kb`.
    pub max_sectors_kb: Option<u32>,
    /// `queue/max_hw_sectors_kb`.
    pub max_hw_sectors_kb: Option<u32>,
    /// `queue/write_cache`.
    pub write_cache: Option<String>,
    /// `queue/wbt_lat_usec`.
    pub wbt_lat_usec: Option<i64>,
    /// `queue/read_ahead_kb`.
    pub read_ahead_kb: Option<u32>,
    /// Number of hardware queues under `mq/`.
    pub hw_queues: Option<u32>,
    /// `device/model`, raw.
    pub model: Option<String>,
    /// `device/state`.
    pub state: Option<String>,
    /// `device/queue_depth`.
    pub queue_depth: Option<u32>,
    /// `dm/name`, raw.
    pub dm_name: Option<String>,
    /// Who made the dm device: the first word of `dm/uuid`, such as `LVM`, `mpath`, `CRYPT`.
    /// sysfs does not show the table (linear, striped); `dmsetup table` does.
    pub dm_kind: Option<String>,
    /// What sysfs tells of an md array.
    pub md: Option<MdAttrs>,
    /// `loop/backing_file`, raw.
    pub backing_file: Option<String>,
    /// Whole disk of a partition.
    pub parent: Option<String>,
    /// Names under `slaves/`: the layer below.
    pub slaves: Vec<String>,
    /// Names under `holders/`: the layer above.
    pub holders: Vec<String>,
}
owns!(DiskAttrs {
    scheduler, write_cache, model, state, dm_name, dm_kind, md, backing_file, parent, slaves, holders
} flat {
    class, rotational, size_sectors, nr_requests, max_sectors_kb, max_hw_sectors_kb, wbt_lat_usec,
    read_ahead_kb, hw_queues, queue_depth
} same by |a, b| a == b);

/// `/sys/block/mdN/md/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MdAttrs {
    /// `level`: `raid1`, `raid6`, `linear`, ...
    pub level: Option<String>,
    /// `raid_disks`; more slaves than that are spares.
    pub raid_disks: Option<u32>,
    /// `sync_action`: `idle`, `resync`, `recover`, `check`, `repair`, `reshape`, `frozen`.
    pub sync_action: Option<String>,
    /// `sync_speed`, kB/s; `None` while nothing is synchronised.
    pub sync_speed_kb: Option<u64>,
    /// `degraded`: members that are missing.
    pub degraded: Option<u32>,
}
owns!(MdAttrs { level, sync_action } flat { raid_disks, sync_speed_kb, degraded });

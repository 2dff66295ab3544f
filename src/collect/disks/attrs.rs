//! Attributes of a block device from `/sys/class/block/NAME`, and what kind of device it is.

use std::path::{Path, PathBuf};

use super::{DiskAttrs, DiskClass, MdAttrs};
use crate::collect::HostFs;

/// Names of cloud and hypervisor disks in vendor and model. Their latency and caps are those
/// of a service, and what they say about `rotational` is not to be believed.
const VIRTUAL_MODELS: [&str; 15] = [
    "Amazon Elastic Block Store",
    "Alibaba Cloud Elastic Block Storage",
    "Alibaba Cloud",
    "QEMU",
    "VBOX",
    "VMware",
    "Virtual disk",
    "Virtual Disk",
    "PersistentDisk",
    "nvme_card-pd",
    "MSFT NVMe Accelerator",
    "BlockVolume",
    "ORCL-VBOX",
    "Google",
    "UCloud",
];

/// The directory of a device below the host root. The kernel writes `/` in names as `!` here.
pub(super) fn dir(name: &str) -> PathBuf {
    Path::new("sys/class/block").join(name.replace('/', "!"))
}

/// True for devices that exist in numbers without being used: ram disks and unbound loops.
pub(super) fn may_be_idle_stub(name: &str) -> bool {
    is_numbered(name, "ram") || is_numbered(name, "loop")
}

/// What is behind a loop device; `None` while it is unbound.
pub(super) fn backing_file(host: &HostFs, name: &str) -> Option<String> {
    text(host, &dir(name).join("loop/backing_file"))
}

/// Reads all attributes of one device.
pub(super) fn read(host: &HostFs, name: &str) -> DiskAttrs {
    let dir = dir(name);
    let partition = host.path(dir.join("partition")).exists();
    let size_sectors = number(host, &dir.join("size"));
    let holders = host.list(dir.join("holders")).unwrap_or_default();
    if partition {
        return DiskAttrs {
            class: DiskClass::Partition,
            size_sectors,
            parent: parent(host, &dir),
            holders,
            ..DiskAttrs::default()
        };
    }
    let queue = dir.join("queue");
    let device = dir.join("device");
    let model = text(host, &device.join("model"));
    let vendor = text(host, &device.join("vendor"));
    let rotational = number::<u8>(host, &queue.join("rotational")).map(|n| n != 0);
    let (class, rotational) = classify(name, vendor.as_deref(), model.as_deref(), rotational);
    DiskAttrs {
        class,
        rotational,
        size_sectors,
        scheduler: text(host, &queue.join("scheduler")).and_then(|t| active_scheduler(&t)),
        nr_requests: number(host, &queue.join("nr_requests")),
        max_sectors_kb: number(host, &queue.join("max_sectors_kb")),
        max_hw_sectors_kb: number(host, &queue.join("max_hw_sectors_kb")),
        write_cache: text(host, &queue.join("write_cache")),
        wbt_lat_usec: number(host, &queue.join("wbt_lat_usec")),
        read_ahead_kb: number(host, &queue.join("read_ahead_kb")),
        hw_queues: host.list(dir.join("mq")).ok().map(|q| q.len() as u32),
        state: text(host, &device.join("state")),
        queue_depth: number(host, &device.join("queue_depth")),
        dm_name: text(host, &dir.join("dm/name")),
        dm_kind: text(host, &dir.join("dm/uuid")).and_then(|t| dm_kind(&t)),
        md: md(host, &dir.join("md")),
        backing_file: backing_file(host, name),
        parent: None,
        slaves: host.list(dir.join("slaves")).unwrap_or_default(),
        holders,
        model,
    }
}

/// Class, and `rotational` where it can be believed: layers inherit it from below, and
/// virtual disks make it up.
pub(crate) fn classify(
    name: &str,
    vendor: Option<&str>,
    model: Option<&str>,
    rotational: Option<bool>,
) -> (DiskClass, Option<bool>) {
    let numbered = |prefix| is_numbered(name, prefix);
    if numbered("ram") || numbered("zram") {
        return (DiskClass::Memory, None);
    }
    if ["dm-", "md", "bcache", "loop"].into_iter().any(numbered) || name.starts_with("md_") {
        return (DiskClass::Stack, None);
    }
    let known_virtual = [vendor, model]
        .into_iter()
        .flatten()
        .any(|t| VIRTUAL_MODELS.iter().any(|v| t.starts_with(v)));
    if known_virtual || name.starts_with("vd") || name.starts_with("xvd") {
        return (DiskClass::Virtual, None);
    }
    if name.starts_with("nvme") {
        return (DiskClass::Nvme, rotational);
    }
    if name.starts_with("sd") || name.starts_with("hd") || name.starts_with("dasd") {
        let class = match rotational {
            Some(true) => DiskClass::Hdd,
            Some(false) => DiskClass::Ssd,
            None => DiskClass::Other,
        };
        return (class, rotational);
    }
    (DiskClass::Other, if name.starts_with("mmcblk") { rotational } else { None })
}

/// `LVM` of `LVM-abc...`; a partition on a multipath device is `part1-mpath-...`.
fn dm_kind(uuid: &str) -> Option<String> {
    let mut words = uuid.split('-');
    let first = words.next().filter(|w| !w.is_empty() && w.len() < uuid.len())?;
    let kind = if first.starts_with("part") { words.next().unwrap_or(first) } else { first };
    Some(kind.to_owned())
}

fn md(host: &HostFs, dir: &Path) -> Option<MdAttrs> {
    let level = text(host, &dir.join("level"))?;
    Some(MdAttrs {
        level: Some(level),
        raid_disks: text(host, &dir.join("raid_disks"))
            .and_then(|t| t.split_whitespace().next()?.parse().ok()),
        sync_action: text(host, &dir.join("sync_action")),
        // `none` while idle.
        sync_speed_kb: number(host, &dir.join("sync_speed")),
        degraded: number(host, &dir.join("degraded")),
    })
}

/// `prefix` followed by a digit: `md0`, not `mdfoo`.
fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
}

/// The scheduler in brackets; a lone word stands for itself (`none`).
pub(crate) fn active_scheduler(text: &str) -> Option<String> {
    let inside = text.split_once('[').and_then(|(_, r)| r.split_once(']')).map(|(a, _)| a);
    let name = inside.or_else(|| text.split_whitespace().next().filter(|_| !text.contains(' ')))?;
    Some(name.to_owned())
}

/// The directory of a partition lies inside that of its disk.
fn parent(host: &HostFs, dir: &Path) -> Option<String> {
    let real = std::fs::canonicalize(host.path(dir)).ok()?;
    Some(real.parent()?.file_name()?.to_str()?.replace('!', "/"))
}

fn text(host: &HostFs, rel: &Path) -> Option<String> {
    host.read_trimmed(rel).ok().filter(|t| !t.is_empty())
}

fn number<T: std::str::FromStr>(host: &HostFs, rel: &Path) -> Option<T> {
    host.read_number(rel).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_disks_are_not_believed_about_rotation() {
        let c = |n, v, m, r| classify(n, v, m, Some(r));
        assert_eq!(c("vda", None, None, true), (DiskClass::Virtual, None));
        assert_eq!(c("xvdf", None, None, true), (DiskClass::Virtual, None));
        let ebs = "Amazon Elastic Block Store";
        assert_eq!(c("nvme1n1", None, Some(ebs), false), (DiskClass::Virtual, None));
        assert_eq!(c("sda", Some("QEMU"), Some("HARDDISK"), true), (DiskClass::Virtual, None));
    }

    #[test]
    fn real_disks_follow_the_attribute() {
        let c = |n, m, r| classify(n, Some("ATA"), m, r);
        assert_eq!(c("sda", Some("ST4000NM"), Some(true)), (DiskClass::Hdd, Some(true)));
        assert_eq!(c("sdb", Some("SAMSUNG"), Some(false)), (DiskClass::Ssd, Some(false)));
        assert_eq!(c("sdc", None, None), (DiskClass::Other, None));
        assert_eq!(c("nvme0n1", Some("INTEL SSD"), Some(false)), (DiskClass::Nvme, Some(false)));
    }

    #[test]
    fn layers_and_memory_have_their_own_class() {
        for n in ["dm-0", "md127", "md_d0", "bcache0", "loop3"] {
            assert_eq!(classify(n, None, None, Some(true)), (DiskClass::Stack, None), "{n}");
        }
        assert_eq!(classify("zram0", None, None, Some(false)).0, DiskClass::Memory);
        assert_eq!(classify("sr0", None, None, Some(true)), (DiskClass::Other, None));
    }

    #[test]
    fn who_made_a_dm_device() {
        assert_eq!(dm_kind("LVM-8eLK2oAd").as_deref(), Some("LVM"));
        assert_eq!(dm_kind("CRYPT-LUKS2-0a-sda").as_deref(), Some("CRYPT"));
        assert_eq!(dm_kind("part1-mpath-36001").as_deref(), Some("mpath"));
        assert_eq!(dm_kind("noword"), None);
        assert_eq!(dm_kind("-x"), None);
    }

    #[test]
    fn the_scheduler_is_the_one_in_brackets() {
        assert_eq!(active_scheduler("mq-deadline kyber [bfq] none").as_deref(), Some("bfq"));
        assert_eq!(active_scheduler("none").as_deref(), Some("none"));
        assert_eq!(active_scheduler("a b"), None);
        assert_eq!(active_scheduler("[").as_deref(), Some("["));
    }
}

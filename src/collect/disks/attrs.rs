//! Attributes of a block device from `/sys/class/block/NAME`, and what kind of device it is.

use std::path::{Path, PathBuf};

use crate::collect::HostFs;
use crate::parse::disks::{active_scheduler, classify, is_numbered};
use crate::sample::disks::{DiskAttrs, DiskClass, MdAttrs};

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
    fn who_made_a_dm_device() {
        assert_eq!(dm_kind("LVM-8eLK2oAd").as_deref(), Some("LVM"));
        assert_eq!(dm_kind("CRYPT-LUKS2-0a-sda").as_deref(), Some("CRYPT"));
        assert_eq!(dm_kind("part1-mpath-36001").as_deref(), Some("mpath"));
        assert_eq!(dm_kind("noword"), None);
        assert_eq!(dm_kind("-x"), None);
    }
}

//! Which disks lie below a device: the whole disk of a partition, the members of a dm or md volume,
//! and what the file of a loop device is on.

use super::DiskFigures;
use crate::sample::disks::DiskClass;
use crate::sample::filesystems::FilesystemRow;
use crate::sample::subject::DiskId;

/// The devices of this host and how they lie upon each other, as far as known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layers<'a> {
    /// All devices.
    pub disks: &'a [DiskFigures],
    /// What is mounted where. A loop device names its file by its path.
    pub filesystems: &'a [FilesystemRow],
}

/// How a device lies to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// It is this disk, or a layer above it: what is written to it ends up there.
    Upon,
    /// All that is below it is known, and this disk is not.
    Apart,
    /// Not known.
    Unknown,
}

impl Layers<'_> {
    /// How the device with this number lies to a disk.
    #[must_use]
    pub fn lies(&self, device: DiskId, disk: DiskId) -> Lies {
        let (below, all_known) = self.below(device);
        if below.contains(&disk) {
            return Lies::Upon;
        }
        // Who opens a member of a volume may be after the volume. What a loop device's file is on
        // has other uses.
        let volume = self.disks.iter().any(|d| d.id == disk && !is_loop(d));
        let member = volume && self.below(disk).0.contains(&device);
        if all_known && !member { Lies::Apart } else { Lies::Unknown }
    }

    /// The device and all below it, and whether nothing is missing.
    fn below(&self, device: DiskId) -> (Vec<DiskId>, bool) {
        let (mut all, mut known, mut next) = (vec![device], true, 0);
        while let Some(id) = all.get(next).copied() {
            next += 1;
            let Some(d) = self.disks.iter().find(|d| d.id == id) else {
                known = false;
                continue;
            };
            let lower = d.attrs.slaves.iter().chain(&d.attrs.parent);
            let mut lower: Vec<Option<DiskId>> = lower.map(|n| self.named(n)).collect();
            if is_loop(d) {
                lower.push(self.backing(d));
            }
            known &= lower.iter().all(Option::is_some);
            for id in lower.into_iter().flatten() {
                if !all.contains(&id) {
                    all.push(id);
                }
            }
        }
        (all, known)
    }

    fn named(&self, name: &str) -> Option<DiskId> {
        self.disks.iter().find(|d| *d.name == *name).map(|d| d.id)
    }

    /// The device of the file system that a loop device's file is on: the one with the longest
    /// mount point above its path.
    fn backing(&self, d: &DiskFigures) -> Option<DiskId> {
        let path = d.attrs.backing_file.as_deref()?;
        let holds = |mount: &str| {
            let rest = path.strip_prefix(mount.trim_end_matches('/'));
            rest.is_some_and(|r| r.starts_with('/'))
        };
        let above = self.filesystems.iter().filter(|f| holds(&f.mount));
        Some(above.max_by_key(|f| f.mount.len())?.dev)
    }
}

/// A loop device: its traffic is that of a file, and so of another disk once more.
pub(in crate::metrics) fn is_loop(d: &DiskFigures) -> bool {
    d.attrs.class == DiskClass::Stack && (d.attrs.backing_file.is_some() || is_loop_name(&d.name))
}

fn is_loop_name(name: &str) -> bool {
    name.strip_prefix("loop").is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::metrics::disks::derive;
    use crate::sample::Stamped;
    use crate::sample::disks::{DiskAttrs, DiskCounters, DiskRow, DisksSample};
    use crate::sample::time::{MonoNs, Span};

    fn id(major: u32, minor: u32) -> DiskId {
        DiskId { major, minor }
    }

    fn disk(id: DiskId, name: &str, attrs: DiskAttrs) -> DiskRow {
        let (name, attrs) = (name.into(), Arc::new(attrs));
        DiskRow { id, name, stat: DiskCounters::default(), inflight: None, attrs }
    }

    fn upon(lower: &[&str]) -> DiskAttrs {
        let slaves = lower.iter().map(|n| (*n).to_owned()).collect();
        DiskAttrs { class: DiskClass::Stack, slaves, ..DiskAttrs::default() }
    }

    fn part_of(name: &str) -> DiskAttrs {
        let parent = Some(name.to_owned());
        DiskAttrs { class: DiskClass::Partition, parent, ..DiskAttrs::default() }
    }

    fn looped(file: &str) -> DiskAttrs {
        DiskAttrs { backing_file: Some(file.to_owned()), ..upon(&[]) }
    }

    const NVME: (DiskId, DiskId) =
        (DiskId { major: 259, minor: 0 }, DiskId { major: 259, minor: 2 });
    const SDA: DiskId = DiskId { major: 8, minor: 0 };

    fn disks() -> Vec<DiskFigures> {
        let disks = vec![
            disk(NVME.0, "nvme0n1", DiskAttrs::default()),
            disk(id(259, 1), "nvme0n1p1", part_of("nvme0n1")),
            disk(NVME.1, "nvme0n1p2", part_of("nvme0n1")),
            disk(SDA, "sda", DiskAttrs::default()),
            disk(id(8, 16), "sdb", DiskAttrs::default()),
            disk(id(252, 0), "dm-0", upon(&["nvme0n1p2"])),
            disk(id(9, 0), "md0", upon(&["sda", "sdb"])),
            disk(id(252, 1), "dm-1", upon(&["sdz"])),
            disk(id(7, 0), "loop0", looped("/srv/disk.img")),
            disk(id(7, 1), "loop1", looped("/disk.img (deleted)")),
            disk(id(7, 2), "loop2", upon(&[])),
            disk(id(7, 3), "loop3", looped("/ram/disk.img")),
        ];
        let at = |s: u64| Stamped {
            span: Span::at(MonoNs(1_000_000_000 * s)),
            cpu: Duration::ZERO,
            data: DisksSample { disks: disks.clone(), bad_rows: 0 },
        };
        derive(&at(1), &at(2))
    }

    fn mounted(mount: &str, dev: DiskId) -> FilesystemRow {
        FilesystemRow { mount: mount.into(), dev, ..FilesystemRow::default() }
    }

    #[test]
    fn what_is_written_to_a_device_ends_up_below_it() {
        let disks = disks();
        let filesystems =
            [mounted("/", NVME.1), mounted("/srv", id(9, 0)), mounted("/ram", id(0, 40))];
        let all = Layers { disks: &disks, filesystems: &filesystems };
        for (device, disk, lies) in [
            (SDA, SDA, Lies::Upon),
            (NVME.1, NVME.0, Lies::Upon),
            (NVME.1, SDA, Lies::Apart),
            (id(252, 0), NVME.0, Lies::Upon),
            (id(252, 0), NVME.1, Lies::Upon),
            (id(252, 0), id(259, 1), Lies::Apart),
            (id(9, 0), SDA, Lies::Upon),
            (id(9, 0), NVME.0, Lies::Apart),
            // Files of loop devices, and of what is beside them.
            (id(7, 0), SDA, Lies::Upon),
            (id(7, 0), NVME.0, Lies::Apart),
            (id(7, 1), NVME.0, Lies::Upon),
            (id(7, 1), id(7, 0), Lies::Apart),
            (NVME.1, id(7, 1), Lies::Apart),
            // A member itself, a layer that is not in the list, no file, a file in memory.
            (SDA, id(9, 0), Lies::Unknown),
            (id(252, 1), SDA, Lies::Unknown),
            (id(7, 2), SDA, Lies::Unknown),
            (id(7, 3), SDA, Lies::Unknown),
            // overlay, btrfs, NFS; a disk that has gone.
            (id(0, 40), SDA, Lies::Unknown),
            (id(8, 99), SDA, Lies::Unknown),
        ] {
            assert_eq!(all.lies(device, disk), lies, "{device} to {disk}");
        }
        let unmounted = Layers { disks: &disks, filesystems: &[] };
        assert_eq!(unmounted.lies(id(7, 0), SDA), Lies::Unknown);
    }
}

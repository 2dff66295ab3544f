//! Which file systems are mounted, from `/proc/PID/mountinfo`: our own, and that of process 1 where
//! it sees others.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use crate::parse::{lines, number, unescape, whole_lines};
use crate::sample::filesystems::FilesystemRow;
use crate::sample::subject::DiskId;

/// Images, written once: always full, and read-only whatever was asked for.
const IMAGES: [&str; 6] = ["squashfs", "iso9660", "erofs", "cramfs", "romfs", "udf"];
/// File systems without a block device that have room of their own.
const WITHOUT_DEVICE: [&str; 18] = [
    "tmpfs", "btrfs", "bcachefs", "zfs", "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph",
    "ubifs", "lustre", "gpfs", "beegfs", "vboxsf", "afs", "orangefs",
];
/// FUSE servers that answer from this host. Those that ask another one may keep us waiting in a
/// sleep that no signal ends, and our own exit with it.
const LOCAL_FUSE: [&str; 6] =
    ["fuse", "fuseblk", "fuse.mergerfs", "fuse.ntfs-3g", "fuse.bindfs", "fuse.fuse-overlayfs"];
/// Options with a value that names nobody.
const HARMLESS: [&str; 4] = ["errors=", "data=", "size=", "nr_inodes="];

/// A file system and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount, unique until it is unmounted.
    pub id: u64,
    /// Mount point.
    pub path: PathBuf,
    /// What is shown of it.
    pub row: FilesystemRow,
    /// All of the file system is mounted here, and not a directory of it.
    whole: bool,
}

/// The file systems of a `mountinfo` that have room of their own, each once, in the order in
/// which they were mounted.
#[must_use]
pub fn parse_mounts(bytes: &[u8]) -> Vec<Mount> {
    let all: Vec<Mount> = lines(whole_lines(bytes)).filter_map(parse_line).collect();
    // What was mounted over another one in the same place hides it.
    let top: HashMap<&PathBuf, u64> = all.iter().map(|m| (&m.path, m.id)).collect();
    let mut at: HashMap<DiskId, usize> = HashMap::new();
    let mut out: Vec<Mount> = Vec::new();
    for m in all.iter().filter(|m| is_listed(m) && top.get(&m.path) == Some(&m.id)) {
        match at.get(&m.row.dev).and_then(|i| out.get_mut(*i)) {
            Some(known) if rank(m) < rank(known) => *known = m.clone(),
            Some(_) => {}
            None => {
                at.insert(m.row.dev, out.len());
                out.push(m.clone());
            }
        }
    }
    out
}

/// What process 1 has mounted, and besides that what only we see. Of a place or a file system that
/// both have, its view is the host's: ours may be the root of a container, or read-only because a
/// sandbox made it so.
#[must_use]
pub(super) fn together(first: Vec<Mount>, own: Vec<Mount>) -> Vec<Mount> {
    let is_known =
        |m: &Mount| first.iter().any(|f| f.row.dev == m.row.dev || f.row.mount == m.row.mount);
    let more: Vec<Mount> = own.into_iter().filter(|m| !is_known(m)).collect();
    [first, more].concat()
}

/// The lowest speaks best for its file system.
fn rank(m: &Mount) -> (bool, bool, usize) {
    (!m.whole, m.row.mounted_read_only(), m.row.mount.len())
}

fn is_listed(m: &Mount) -> bool {
    let kind = &*m.row.kind;
    if kind.starts_with("fuse") {
        return LOCAL_FUSE.contains(&kind);
    }
    // A layer has the room of what is below it; in a container there is no other view of that.
    let layer = kind == "overlay" && &*m.row.mount == "/";
    let device = m.row.dev.major != 0 && !IMAGES.contains(&kind);
    device || layer || WITHOUT_DEVICE.contains(&kind)
}

/// `ID PARENT MAJ:MIN ROOT MOUNT OPTS [TAGS] - TYPE SOURCE SUPER_OPTS`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut f = line.split(|b| *b == b' ');
    let id = number(f.next()?)?;
    let dev = device(f.nth(1)?)?;
    let whole = f.next()? == b"/";
    let path = unescape(f.next()?);
    let mount_options = harmless(f.next()?);
    let kind = f.by_ref().skip_while(|t| *t != b"-").nth(1)?;
    let source = unescape(f.next()?);
    // The last field: an option of it may hold a blank that was not escaped.
    let options = harmless(f.next()?);
    let text = |b: &[u8]| -> Arc<str> { String::from_utf8_lossy(b).into() };
    let row = FilesystemRow {
        mount: text(&path),
        dev,
        kind: text(&unescape(kind)),
        source: text(&source),
        mount_options,
        options,
        ..FilesystemRow::default()
    };
    Some(Mount { id, path: PathBuf::from(OsStr::from_bytes(&path)), row, whole })
}

fn device(field: &[u8]) -> Option<DiskId> {
    let colon = field.iter().position(|b| *b == b':')?;
    let part = |b: &[u8]| u32::try_from(number(b)?).ok();
    Some(DiskId { major: part(field.get(..colon)?)?, minor: part(field.get(colon + 1..)?)? })
}

/// Options without those that may hold a name, a path or an address.
fn harmless(options: &[u8]) -> Arc<str> {
    let kept =
        |o: &&[u8]| !o.contains(&b'=') || HARMLESS.iter().any(|h| o.starts_with(h.as_bytes()));
    let kept: Vec<&[u8]> = options.split(|b| *b == b',').filter(kept).collect();
    String::from_utf8_lossy(&kept.join(&b","[..])).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of this kernel, 6.18, but for the images and the network.
    const TEXT: &[u8] = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=12334460k,mode=755\n\
        25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684084k\n\
        27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,resuid=65534\n\
        28 27 0:25 / /mnt/image ro,nosuid - tmpfs none ro,size=4k,mode=755\n\
        30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684084k\n\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        42 27 254:0 /run/netns /run/netns rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
        43 27 7:0 / /mnt/a\\040b\\134c ro,relatime shared:2 master:1 - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro\n\
        44 27 7:1 / /snap/core ro,nodev - squashfs /dev/loop1 ro\n\
        45 27 0:50 / /merged rw - overlay overlay rw,lowerdir=/a,upperdir=/b\n\
        46 27 0:51 / /srv rw - nfs4 filer:/export rw,vers=4.2,addr=10.0.0.1,hard\n\
        47 27 0:52 / /remote rw - fuse.sshfs me@far:/ rw,user_id=0\n\
        48 27 0:53 / /pool rw - fuse.mergerfs a:b rw,user_id=0\n\
        49 27 7:0 / /mnt/again rw,relatime - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro\n";

    #[test]
    fn each_file_system_with_room_of_its_own_is_listed_once() {
        let all = parse_mounts(TEXT);
        let shown: Vec<(u64, &str)> = all.iter().map(|m| (m.id, &*m.row.mount)).collect();
        // The second tmpfs hides the first; of two places of loop0 the writable one stands.
        let want = [
            (27, "/"),
            (28, "/mnt/image"),
            (30, "/dev/shm"),
            (31, "/sys/fs/cgroup"),
            (49, "/mnt/again"),
            (46, "/srv"),
            (48, "/pool"),
        ];
        assert_eq!(shown, want);
        assert_eq!(all[0].row.dev, DiskId { major: 254, minor: 0 });
        assert_eq!((&*all[5].row.options, &*all[5].row.source), ("rw,hard", "filer:/export"));
        assert!(all[1].row.mounted_read_only() && all[1].row.takes_no_writes());
        assert!(!all[4].row.mounted_read_only() && all[4].row.takes_no_writes());
        assert!(all[4].row.has_option("errors=remount-ro"));
        assert!(!all[0].row.takes_no_writes());
    }

    #[test]
    fn names_are_unescaped_for_people_and_for_the_kernel() {
        let line = b"43 27 7:0 / /mnt/a\\040b\\134\\377 rw - ext4 /dev/loop0 rw\n";
        let m = &parse_mounts(line)[0];
        assert_eq!(&*m.row.mount, "/mnt/a b\\\u{fffd}");
        assert_eq!(m.path.as_os_str().as_bytes(), b"/mnt/a b\\\xff");
    }

    #[test]
    fn in_a_container_the_layer_is_all_there_is() {
        let line = b"900 800 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/x\n";
        assert_eq!(&*parse_mounts(line)[0].row.options, "rw");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_mounts(&bytes);
        }

        #[test]
        fn a_truncated_file_loses_lines_but_changes_none(cut in 0usize..1400) {
            let whole = parse_mounts(TEXT);
            for m in parse_mounts(&TEXT[..cut.min(TEXT.len())]) {
                let same = whole.iter().any(|w| w.row.dev == m.row.dev);
                // What comes later may hide it.
                prop_assert!(same || m.id == 25);
            }
        }
    }
}

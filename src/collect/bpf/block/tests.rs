//! The table of disks and its collisions.
#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn a_row_is_found_where_the_program_looks() {
    let dev = |major: u32, minor: u32| DiskId { major, minor };
    // sda..sdp, vda.., nvme0n1.., loops: what real machines have.
    let mut devs: Vec<DiskId> = (0..16).map(|i| dev(8, i * 16)).collect();
    devs.extend((0..8).map(|i| dev(254, i * 16)));
    devs.extend((0..8).map(|i| dev(259, i)));
    devs.extend((0..8).map(|i| dev(7, i)));
    devs.extend((0..16).map(|i| dev(65, i * 16)));
    let table = table(devs.iter().copied());
    for (row, id) in devs.iter().enumerate() {
        let d = id.major << 20 | id.minor;
        let found = (0..l::PROBES)
            .map(|i| table[(l::home(d) + i) % l::SLOTS])
            .find(|v| v >> 8 == u64::from(d) + 1);
        assert_eq!(found.map(|v| v & 0xff), Some(row as u64), "{id:?}");
    }
    assert_eq!(table.iter().filter(|d| **d != 0).count(), devs.len(), "each once");
}

#[test]
fn disks_of_sysfs_come_before_loops() {
    let root = tempfile::tempdir().unwrap();
    for (name, dev) in [("loop0", "7:0"), ("vda", "254:0"), ("sr0", "11:0"), ("bad", "x")] {
        let dir = root.path().join("sys/block").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("dev"), format!("{dev}\n")).unwrap();
    }
    let got = disks(&HostFs::at(root.path()));
    assert_eq!(got, [254, 7, 11].map(|major| DiskId { major, minor: 0 }));
}

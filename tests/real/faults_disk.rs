//! postgres on disks that are limited, full or gone.

use std::path::PathBuf;

use crate::clients::client;
use crate::kit::block::{Dir, Loop};
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::Place;
use crate::kit::net::Pair;
use crate::kit::sh::{Held, run};
use crate::kit::undo::Undo;
use crate::kit::{secs, wait_for};
use crate::servers::{self, HOST, Home, pg};
use crate::stage::{Case, about_disk, about_group, fault, says};

/// A file system on a loop device; dropped from the top.
struct Disk {
    path: PathBuf,
    _mount: Undo,
    dev: Loop,
}

impl Disk {
    fn new(image: &str, dir: &Dir, name: &str) -> Self {
        let dev = Loop::new(image, true);
        run(&["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", &dev.dev]);
        let path = dir.path.join(name);
        std::fs::create_dir(&path).unwrap();
        let text = path.to_str().unwrap().to_owned();
        run(&["mount", &dev.dev, &text]);
        let mut mount = Undo::default();
        mount.command(&["umount", &text]);
        Self { path, _mount: mount, dev }
    }
}

/// pgbench that writes, each transaction to the disk.
fn transactions(net: &Pair, dir: &Dir, clients: &str) -> Held {
    let bench = pg("pgbench");
    client(
        net,
        &dir.path,
        &[&bench, "-n", "-c", clients, "-T", "600", "-h", HOST, "-U", "postgres", "postgres"],
    )
}

/// The cgroup of postgres may write forty times a second.
#[test]
fn postgres_on_a_capped_disk() {
    let tools = [&*pg("pgbench"), &*pg("postgres"), "losetup", "mkfs.ext4"];
    let place = Some(Place::Disk);
    let case = Case { name: "pg-capped", tools: &tools, short: true, place };
    fault(&case, |stage| {
        let group = Cgroup::new("blkio", "pg");
        let (net, dir) = (Pair::new(), Dir::new());
        let disk = Disk::new(&dir.image("pg.img", 400), &dir, "mnt");
        let groups = [&group];
        let home = Home { ns: &net.b, dir: &disk.path, groups: &groups };
        let _pg = servers::postgres(home, &[]);
        let _load = transactions(&net, &dir, "4");
        stage.watch(24);
        stage.breaks();
        let limit = |n: u32| format!("{} {n}", disk.dev.number());
        group.set("blkio.throttle.write_iops_device", &limit(40));
        stage.ends();
        group.set("blkio.throttle.write_iops_device", &limit(0));
        let ours = about_disk(disk.dev.name());
        let theirs = about_group(&group.name);
        stage.first(&["cgroup-io-throttle"], |f| ours(f) || theirs(f), says(&group.name));
    });
}

/// postgres fills its disk.
#[test]
fn postgres_on_a_full_disk() {
    let tools = [&*pg("pgbench"), &*pg("postgres"), &*pg("psql"), "losetup", "mkfs.ext4"];
    let place = Some(Place::Disk);
    let case = Case { name: "pg-full", tools: &tools, short: false, place };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let disk = Disk::new(&dir.image("pg.img", 300), &dir, "mnt");
        let home = Home { ns: &net.b, dir: &disk.path, groups: &[] };
        let _pg = servers::postgres(home, &["-c", "fsync=off"]);
        stage.watch(20);
        stage.breaks();
        // Each statement by itself: what was written before the one that fails stays. Unlogged,
        // or the log would be what fills the disk.
        let psql = format!("{} -h {HOST} -U postgres -c", pg("psql"));
        let fill = format!(
            "{psql} 'create unlogged table filler (t text)'; while :; do {psql} 'insert into filler \
             select repeat(md5(g::text), 8) from generate_series(1, 50000) g'; done"
        );
        let _fill = client(&net, &dir.path, &["sh", "-c", &fill]);
        wait_for("ENOSPC", secs(15), || {
            let said = std::fs::read_to_string(dir.path.join("sh.log")).ok()?;
            said.contains("No space left").then_some(())
        });
        let mnt = disk.path.to_str().unwrap();
        stage.first(&["fs-full"], says(mnt), says(mnt));
    });
}

/// The file system below the disk of postgres is frozen: a commit goes in and never comes out.
#[test]
fn postgres_on_a_disk_that_hangs() {
    let tools = [&*pg("pgbench"), &*pg("postgres"), "losetup", "mkfs.ext4", "fsfreeze"];
    let place = Some(Place::Disk);
    let case = Case { name: "pg-hung", tools: &tools, short: false, place };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let lower = Disk::new(&dir.image("lower.img", 700), &dir, "lower");
        let image = lower.path.join("upper.img");
        let image = image.to_str().unwrap();
        run(&["dd", "if=/dev/zero", &format!("of={image}"), "bs=1M", "count=400", "status=none"]);
        run(&["sync", "-f", image]);
        let upper = Disk::new(image, &dir, "upper");
        let home = Home { ns: &net.b, dir: &upper.path, groups: &[] };
        let _pg = servers::postgres(home, &[]);
        let _load = transactions(&net, &dir, "4");
        stage.watch(24);
        stage.breaks();
        let path = lower.path.to_str().unwrap();
        // Thawed before postgres is asked to end, whatever happens.
        let mut thaw = Undo::default();
        run(&["fsfreeze", "-f", path]);
        thaw.command(&["fsfreeze", "-u", path]);
        let ours = [about_disk(upper.dev.name()), about_disk(lower.dev.name())];
        stage.first(&["disk-hung"], |f| ours.iter().any(|o| o(f)), about_disk(upper.dev.name()));
    });
}

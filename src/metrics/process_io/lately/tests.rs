//! Where processes have files open, and who may be behind a disk's traffic.

use std::sync::Arc;

use super::*;
use crate::metrics::Derived;
use crate::metrics::disks::derive;
use crate::sample::Stamped;
use crate::sample::disks::{DiskAttrs, DiskCounters, DiskRow, DisksSample};
use crate::sample::process_io::{Access, OpenOn};
use crate::sample::time::Span;

use Access::{Both, Read, Write};

const SDA: DiskId = DiskId { major: 8, minor: 0 };
const SDB: DiskId = DiskId { major: 8, minor: 16 };
const OVERLAY: DiskId = DiskId { major: 0, minor: 40 };

fn disks() -> Vec<DiskFigures> {
    let row = |(id, name): &(DiskId, &str)| DiskRow {
        id: *id,
        name: (*name).into(),
        stat: DiskCounters::default(),
        inflight: None,
        attrs: Arc::new(DiskAttrs::default()),
    };
    let at = |s: u64| Stamped {
        span: Span::at(MonoNs(1_000_000_000 * s)),
        cpu: Duration::ZERO,
        data: DisksSample {
            disks: [(SDA, "sda"), (SDB, "sdb")].iter().map(row).collect(),
            bad_rows: 0,
        },
    };
    derive(&at(1), &at(2))
}

fn look(on: &[(DiskId, Access)]) -> OpenDisks {
    let on = on.iter().map(|(dev, access)| OpenOn { dev: *dev, access: *access }).collect();
    OpenDisks { on, more: false }
}

fn process(pid: u32) -> ProcessBytes {
    let task = TaskId { pid, tid: pid, start: 1 };
    let (comm, dt) = ("p".to_owned(), Duration::from_secs(1));
    ProcessBytes { task, comm, cgroup: None, open: None, dt, bytes: Bytes::default() }
}

fn user<'a>(latest: &'a ProcessBytes, written: f64, open: Vec<&'a OpenDisks>) -> User<'a> {
    User { latest, at: MonoNs(0), bytes: Bytes { read: 0.0, written }, open }
}

/// Disks that wrote so many bytes.
fn lately<'a>(disks: &'a [DiskFigures], a: f64, b: f64, users: Vec<User<'a>>) -> Lately<'a> {
    let written = |written| Bytes { read: 0.0, written };
    Lately {
        lasted: Duration::from_secs(10),
        processes: written(users.iter().map(|u| u.bytes.written).sum()),
        users,
        disks: written(a + b),
        unread: 0,
        denied: 0,
        per_disk: [(SDA, written(a)), (SDB, written(b))].into(),
        bottom: written(a + b),
        loops: Vec::new(),
        layers: Layers { disks, filesystems: &[] },
    }
}

#[test]
fn a_process_is_where_its_files_are_open_for_that() {
    let disks = disks();
    let all = lately(&disks, 0.0, 0.0, Vec::new());
    let p = process(7);
    let place =
        |looks: &[OpenDisks], flow| all.place(&user(&p, 1.0, looks.iter().collect()), SDA, flow);
    let (here, there) = (look(&[(SDA, Write)]), look(&[(SDB, Write)]));
    let cases: [(&[OpenDisks], Place); 9] = [
        (&[], Place::Unknown),
        (&[look(&[])], Place::Unknown),
        (std::slice::from_ref(&here), Place::Here),
        (std::slice::from_ref(&there), Place::Elsewhere),
        (&[look(&[(SDA, Read), (SDB, Write)])], Place::Elsewhere),
        (&[look(&[(SDA, Both), (SDB, Write)])], Place::HereToo),
        (&[look(&[(OVERLAY, Write), (SDB, Write)])], Place::Unknown),
        // At another time it had another file open, or none that is written to.
        (&[there.clone(), here.clone()], Place::HereToo),
        (&[there.clone(), look(&[(SDB, Read)])], Place::Unknown),
    ];
    for (looks, wanted) in cases {
        assert_eq!(place(looks, Flow::Write), wanted, "{looks:?}");
    }
    assert_eq!(place(&[OpenDisks { more: true, ..there }], Flow::Write), Place::Unknown);
    let reads = [look(&[(SDA, Read), (SDB, Write)])];
    assert_eq!(place(&reads, Flow::Read), Place::Here);
    assert_eq!(place(&reads, Flow::Both), Place::HereToo);
    assert_eq!(place(&[look(&[(OVERLAY, Read)])], Flow::Read), Place::Unknown);
}

#[test]
fn who_is_elsewhere_is_no_suspect_unless_nobody_else_has_moved_as_much() {
    let disks = disks();
    let (a, b) = (look(&[(SDA, Access::Write)]), look(&[(SDB, Access::Write)]));
    let (p, q, r) = (process(1), process(2), process(3));
    let suspects = |on_disk: f64, users| {
        let all = lately(&disks, on_disk, 1000.0, users);
        let s = all.suspects(SDA, Flow::Write);
        let pids: Vec<u32> = s.users.iter().map(|u| u.latest.task.pid).collect();
        (pids, s.whole, s.total, s.charged)
    };
    let two = || vec![user(&p, 300.0, vec![&a]), user(&q, 1000.0, vec![&b])];
    assert_eq!(suspects(310.0, two()), (vec![1], Whole::Disk, 310.0, 300.0));
    // This disk moved less than it is charged for: some went to another one.
    assert_eq!(suspects(200.0, two()), (vec![1], Whole::Disks, 1200.0, 1300.0));
    // Or much more: somebody else is behind it.
    assert_eq!(suspects(900.0, two()), (vec![1, 2], Whole::Disks, 1900.0, 1300.0));
    // Of a third one it is not known.
    let mut three = two();
    three.push(user(&r, 100.0, Vec::new()));
    assert_eq!(suspects(400.0, three), (vec![1, 3], Whole::Disks, 1400.0, 1400.0));
    let mut three = two();
    three.push(user(&r, 10.0, Vec::new()));
    assert_eq!(suspects(310.0, three), (vec![1, 3], Whole::Disk, 310.0, 310.0));
    assert_eq!(suspects(0.0, vec![user(&q, 5.0, vec![&b])]).0, [2], "nobody is left");
    // It is behind nothing that this disk does, and nobody else is.
    let few = vec![user(&q, 50.0, vec![&b])];
    assert_eq!(suspects(900.0, few), (vec![], Whole::Disks, 1900.0, 50.0));
}

/// Ten seconds of one process on one disk, read once a second but where these say no.
fn ten_seconds(
    disks_read: impl Fn(u64) -> bool,
    processes_read: impl Fn(u64) -> bool,
) -> (Vec<u32>, Whole) {
    use crate::metrics::history::{History, Window};
    use crate::metrics::process_io::ProcessIoFigures;
    use crate::sample::tick::{HostInfo, Tick};
    use crate::sample::time::Seq;

    let open = look(&[(SDA, Write)]);
    let mut history = History::default();
    let mut last = None;
    for s in 1..=20 {
        let mono = MonoNs(s * 1_000_000_000);
        let tick = Arc::new(Tick { seq: Seq(s), mono, ..Tick::default() });
        let figures = |dt| {
            let mut all = disks();
            all[0].dt = Duration::from_secs(dt);
            all[0].wkb_s = 10_000.0;
            Arc::new(all)
        };
        // After one that is missing, figures are of the time since the one before.
        let since = 1 + (1..s).rev().take_while(|b| !disks_read(*b)).count() as u64;
        let bytes = Bytes { read: 0.0, written: 10_240_000.0 };
        let here = ProcessBytes { bytes, open: Some(Arc::new(open.clone())), ..process(7) };
        let there = look(&[(SDB, Write)]);
        let there = ProcessBytes { bytes, open: Some(Arc::new(there)), ..process(8) };
        let io = ProcessIoFigures { processes: vec![here, there], ..ProcessIoFigures::default() };
        let derived = Arc::new(Derived {
            seq: Seq(s),
            mono,
            disks: disks_read(s).then(|| figures(since)),
            process_io: processes_read(s).then(|| Arc::new(io)),
            ..Derived::default()
        });
        history.push(tick.clone(), derived.clone(), 0);
        last = Some((tick, derived));
    }
    let (tick, derived) = last.unwrap();
    let host = HostInfo::default();
    let w = Window { tick: &tick, derived: &derived, history: &history, host: &host };
    let all = Lately::new(&w, Duration::from_secs(10)).unwrap();
    let s = all.suspects(SDA, Flow::Write);
    (s.users.iter().map(|u| u.latest.task.pid).collect(), s.whole)
}

#[test]
fn a_reading_of_the_disks_that_is_missing_makes_no_disk_of_all_of_them() {
    let one = (vec![7], Whole::Disk);
    let always = |_| true;
    assert_eq!(ten_seconds(always, always), one);
    assert_eq!(ten_seconds(|s| s != 20, always), one, "the latest");
    assert_eq!(ten_seconds(|s| s != 15, always), one, "one between");
    assert_eq!(ten_seconds(|s| s < 19, always), one, "the two latest");
    assert_eq!(ten_seconds(|s| s < 19, |s| s < 19), one, "of both");
    assert_eq!(ten_seconds(always, |s| s < 19), one, "of processes");
}

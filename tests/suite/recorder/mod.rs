//! The recorder against slow readers, limits and deleted files, with ticks made here. What needs
//! the real program or a full disk is in `tests/suite/record` and the lab.

mod name;
mod thin;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};
use stallscope::clock;
use stallscope::recording::recorder::{
    End, Existing, IncidentFiles, Keep, Options, Recorder, Ring, Rotate, State, SyncPolicy, Target,
    default_file,
};
use stallscope::recording::{Event, Reader, TickSummary};
use stallscope::sample::CollectorId;
use stallscope::sample::tick::{CollectorHealth, HealthState, HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, WallNs};

use crate::support::skip;

const WAIT: Duration = Duration::from_secs(20);

fn host(boot: &str) -> HostInfo {
    HostInfo { hostname: "db7".into(), boot_id: boot.into(), ..HostInfo::default() }
}

/// One whose keyframe is so large.
fn large(seq: u64, bytes: usize) -> Arc<Tick> {
    let mut x = seq + 1;
    let noise = std::iter::repeat_with(|| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (x >> 33) as u8 % 64)
    });
    let error = noise.take(bytes).collect();
    let failed = CollectorHealth {
        id: CollectorId::Cpu,
        state: HealthState::Failed { error },
        signals: Vec::new(),
    };
    Arc::new(Tick { health: vec![failed], ..(*tick(seq)).clone() })
}

/// It begins with what was in memory, and never under a name that is taken.
#[test]
fn an_incident_has_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let keep = Keep { time: Duration::from_secs(300), bytes: 64 << 20 };
    let mut ring = Ring::new(&host("a"), keep).unwrap();
    for n in 0..100 {
        ring.push(&tick(n), &TickSummary::default());
    }
    let incident_files = IncidentFiles::new("db7", vec!["fs-full"], None);
    let name = incident_files.file_name("fs-full", WallNs(1_700_000_000_000_000_000));
    for twin in ["", "-2", "-3"] {
        let (file, sync) = (dir.path().join(&name), SyncPolicy::Off);
        let mut r = Recorder::incident(file, &host("a"), sync, ring.held(), incident_files.clone())
            .unwrap();
        r.ready().unwrap();
        r.push(&tick(100), TickSummary::default());
        let status = r.finish(WAIT).unwrap();
        let path = status.path.unwrap();
        let want = format!("stallscope-db7-fs-full-20231114T221320Z{twin}.stall");
        assert_eq!(path.file_name().unwrap().to_str(), Some(want.as_str()));
        assert_eq!((status.ticks, status.file), (101, path.metadata().unwrap().len()));
        let mut r = Reader::file(&path).unwrap();
        let seen: Vec<u64> = (0..r.len()).map(|i| r.tick(i).unwrap().seq.0).collect();
        assert!(seen.into_iter().eq(0..=100) && r.is_sealed());
    }
}

/// A tick takes nearly all of what all may take: it is kept to by deleting what is older, and
/// every second file is no empty one.
#[test]
fn a_limit_of_little_more_than_a_tick_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("box.stall");
    let mut r = start(&path, Options { max_size: Some(120_000), ..Options::default() });
    let mut worst = 0;
    for n in 0..30 {
        let before = r.status().ticks;
        r.push(&large(n, 110_000), TickSummary::default());
        until("it is written", || r.status().ticks > before);
        let all = files(dir.path());
        worst = worst.max(all.iter().map(|p| p.metadata().map_or(0, |m| m.len())).sum());
        assert!(all.len() <= 4, "{all:?}");
    }
    let end = r.finish(WAIT).unwrap();
    assert_eq!((end.state, end.lost), (State::Ended(End::Closed), 0));
    // One that is written and one that is not deleted yet.
    assert!(worst < 360_000, "{worst}");
    let left: Vec<u64> = files(dir.path()).iter().flat_map(|p| seqs(p)).collect();
    assert!(left.contains(&29), "{left:?}");
}

fn tick(seq: u64) -> Arc<Tick> {
    tick_of(0, seq)
}

/// Of a run that begins `from` seconds after boot.
fn tick_of(from: u64, seq: u64) -> Arc<Tick> {
    let mono = MonoNs((from + seq + 1) * 1_000_000_000);
    let wall = WallNs(1_700_000_000_000_000_000 + mono.0 as i64);
    Arc::new(Tick { seq: Seq(seq), mono, wall, ..Tick::default() })
}

fn start(path: &Path, options: Options) -> Recorder {
    start_on(&host("a"), path, options)
}

/// A program that another test starts has our locks too, until it is there: between fork and exec.
fn wait_until_free(path: &Path) {
    if path.is_file()
        && let Ok(file) = File::open(path)
    {
        rustix::fs::flock(&file, FlockOperation::LockShared).unwrap();
    }
}

fn start_on(host: &HostInfo, path: &Path, options: Options) -> Recorder {
    wait_until_free(path);
    let mut r = Recorder::start(Target::File(path.to_owned()), host, options, Vec::new()).unwrap();
    r.ready().unwrap();
    r
}

/// A directory that root can write to by DAC_OVERRIDE only.
fn of_another_user() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    if std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).is_err() {
        skip("needs root");
        return None;
    }
    Some(dir)
}

/// Polls until `look` says yes.
fn until(what: &str, mut look: impl FnMut() -> bool) {
    let begun = clock::mono();
    while !look() {
        assert!(clock::mono().since(begun) < WAIT, "never: {what}");
        clock::sleep_until(clock::mono() + Duration::from_millis(2));
    }
}

/// Pushes and waits until it is written: no tick may be left out for lack of time.
fn push(r: &mut Recorder, seq: u64) {
    let before = r.status().ticks;
    r.push(&tick(seq), TickSummary::default());
    until("the tick is written", || r.status().ticks > before);
}

fn seqs(path: &Path) -> Vec<u64> {
    let mut r = Reader::file(path).unwrap();
    (0..r.len()).map(|i| r.tick(i).unwrap().seq.0).collect()
}

fn events(path: &Path) -> Vec<Event> {
    let all = Reader::file(path).unwrap().events().unwrap().list;
    all.into_iter().map(|e| e.event).collect()
}

/// A pipe with a name, and who reads it.
fn fifo(dir: &Path) -> (PathBuf, File) {
    let path = dir.join("fifo");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let pipe = File::from(rustix::fs::open(&path, flags, Mode::empty()).unwrap());
    (path, pipe)
}

/// Under any umask nobody else may write to it.
fn write_ours(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn what_is_pushed_is_in_the_file_and_only_we_may_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.stall");
    let backlog = (0..3).map(|n| (tick(n), TickSummary::default())).collect();
    let target = Target::File(path.clone());
    let mut r = Recorder::start(target, &host("a"), Options::default(), backlog).unwrap();
    r.ready().unwrap();
    for n in 3..200 {
        push(&mut r, n);
    }
    r.mark("here");
    let end = r.finish(WAIT).unwrap();
    assert_eq!((end.state, end.ticks, end.lost), (State::Ended(End::Closed), 200, 0));
    assert_eq!(seqs(&path), (0..200).collect::<Vec<_>>());
    assert!(events(&path).contains(&Event::Mark { text: "here".into() }));
    let meta = path.metadata().unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!((end.size, end.written), (meta.len(), meta.len() - first_block(&path)));
    assert!(Reader::file(&path).unwrap().is_sealed());
}

/// The header of the segment was written when the file was opened.
fn first_block(path: &Path) -> u64 {
    Reader::file(path).unwrap().groups()[0].offset
}

/// Nobody reads the pipe: pushing never waits, and afterwards the recording tells what it lacks,
/// at the place where it lacks it.
#[test]
fn a_reader_that_stands_still_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, pipe) = fifo(dir.path());
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).unwrap();
    let mut r = start(&fifo, Options::default());
    let (begun, total) = (clock::mono(), 1000u64);
    for n in 0..total - 1 {
        r.push(&tick(n), TickSummary::default());
    }
    let took = clock::mono().since(begun);
    assert!(took < Duration::from_secs(2), "pushing took {took:?}");
    // Each write is under way for a moment; only this one for long.
    let hangs = |since| clock::mono().since(since) > Duration::from_millis(300);
    until("the write hangs", || r.status().writing_since.is_some_and(hangs));
    let lost = r.status().lost;
    assert!(lost > 500, "{lost}");
    let hung = r.status().delay(clock::mono() + Duration::from_secs(5));
    assert!(hung >= Duration::from_secs(5), "the delay grows while it hangs: {hung:?}");

    rustix::io::ioctl_fionbio(&pipe, false).unwrap();
    let reader = std::thread::spawn(move || {
        let (mut pipe, mut all) = (pipe, Vec::new());
        pipe.read_to_end(&mut all).unwrap();
        all
    });
    until("the queue is empty again", || r.status().ticks == total - 1 - lost);
    push(&mut r, total - 1);
    let end = r.finish(WAIT).unwrap();
    assert_eq!((end.state, end.ticks + end.lost), (State::Ended(End::Closed), total));
    let path = dir.path().join("copy.stall");
    std::fs::write(&path, reader.join().unwrap()).unwrap();
    // Where the holes are depends on how fast the thread is until the pipe is full; that each is
    // told does not.
    let all = seqs(&path);
    assert_eq!((all.first(), all.last()), (Some(&0), Some(&(total - 1))));
    assert_eq!(all.len() as u64, total - lost);
    let holes: Vec<u64> =
        all.windows(2).map(|w| w[1] - w[0] - 1).filter(|missing| *missing > 0).collect();
    let told: Vec<u64> = events(&path).iter().map(Event::missing).collect();
    assert_eq!(told, holes);
}

#[test]
fn a_reader_that_goes_away_ends_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, pipe) = fifo(dir.path());
    let mut r = start(&fifo, Options::default());
    push(&mut r, 0);
    drop(pipe);
    // A child that another test just forked has our descriptors until it becomes its program: what is
    // written in that moment goes into the pipe.
    let mut seq = 0;
    until("it ends", || {
        let status = r.status();
        if status.is_alive() && status.ticks == seq + 1 {
            seq += 1;
            r.push(&tick(seq), TickSummary::default());
        }
        !status.is_alive()
    });
    assert_eq!(r.status().state, State::Ended(End::ReaderGone));
    r.push(&tick(seq + 1), TickSummary::default());
    assert_eq!(r.finish(WAIT).unwrap().lost, 0, "nobody wanted those");
}

#[test]
fn append_goes_on_across_boots_and_torn_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.stall");
    let append = Options { existing: Existing::Append, ..Options::default() };
    let mut all = Vec::new();
    for (run, boot) in ["a", "a", "b"].into_iter().enumerate() {
        let mut r = start_on(&host(boot), &path, append);
        for n in 0..70 {
            push(&mut r, n);
            all.push(n);
        }
        assert_eq!(r.finish(WAIT).unwrap().state, State::Ended(End::Closed));
        assert_eq!(seqs(&path), all, "run {run}");
        // A block that a crash tore.
        let mut bytes = std::fs::read(&path).unwrap();
        let torn = bytes[..100].to_vec();
        bytes.extend(torn);
        std::fs::write(&path, bytes).unwrap();
    }
    let r = Reader::file(&path).unwrap();
    let boots: Vec<&str> = r.segments().iter().map(|s| s.1.host.boot_id.as_str()).collect();
    assert_eq!(boots, ["a", "a", "b"]);
}

/// Killed within the first block at any byte: the file is ours, and goes on.
#[test]
fn append_begins_anew_where_nothing_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.stall");
    push(&mut start(&whole, Options::default()), 0);
    let bytes = std::fs::read(&whole).unwrap();
    let append = Options { existing: Existing::Append, ..Options::default() };
    for cut in [0, 1, 5, 11, 12, 40, 63, 64, 65, first_block(&whole) as usize] {
        let path = dir.path().join(format!("cut{cut}.stall"));
        write_ours(&path, &bytes[..cut]);
        let mut r = start(&path, append);
        push(&mut r, 7);
        r.finish(WAIT).unwrap();
        assert_eq!(seqs(&path), [7], "cut at {cut}");
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

fn total(dir: &Path) -> u64 {
    files(dir).iter().map(|p| p.metadata().unwrap().len()).sum()
}

#[test]
fn rotation_loses_no_tick_and_every_part_stands_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("box.stall");
    let options = Options { rotate: Some(Rotate::Size(6_000)), ..Options::default() };
    let mut r = start(&path, options);
    for n in 0..400 {
        push(&mut r, n);
    }
    let end = r.finish(WAIT).unwrap();
    assert_eq!(end.trouble, None);
    let parts = files(dir.path());
    assert!(parts.len() > 3, "{parts:?}");
    assert_eq!(end.size, total(dir.path()));
    let mut all = Vec::new();
    for p in &parts {
        assert!(Reader::file(p).unwrap().is_sealed(), "{p:?}");
        all.extend(seqs(p));
    }
    assert_eq!(all, (0..400).collect::<Vec<_>>());
}

#[test]
fn limits_hold_at_all_times_and_delete_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("box.stall");
    std::fs::write(dir.path().join("box.txt"), "not ours").unwrap();
    let limit = 60_000;
    let mut r = start(&path, Options { max_size: Some(limit), ..Options::default() });
    for n in 0..2000 {
        push(&mut r, n);
        let size = total(dir.path());
        assert!(size <= limit, "{size} at {n}");
    }
    r.finish(WAIT).unwrap();
    assert!(dir.path().join("box.txt").exists());
    let parts: Vec<_> =
        files(dir.path()).into_iter().filter(|p| p.extension() == path.extension()).collect();
    let all: Vec<u64> = parts.iter().flat_map(|p| seqs(p)).collect();
    assert_eq!(all.last(), Some(&1999));
    assert!(all.len() > 200, "the limit is used: {}", all.len());
    assert!(all.windows(2).all(|w| w[1] == w[0] + 1), "the youngest, without a hole");
}

/// The parts of an earlier run count, too.
#[test]
fn old_parts_go_by_age() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("box.stall");
    let mut r = start(&path, Options { rotate: Some(Rotate::Size(3_000)), ..Options::default() });
    (0..200).for_each(|n| push(&mut r, n));
    r.finish(WAIT).unwrap();
    let before = files(dir.path()).len();
    let append = Options {
        existing: Existing::Append,
        max_age: Some(Duration::from_secs(60)),
        ..Options::default()
    };
    let mut r = start(&path, append);
    // The parts were written just now; this tick says that it is a year later.
    let late = Tick { wall: clock::wall(), ..(*tick(200)).clone() };
    let late = Tick { wall: WallNs(late.wall.0 + 31_536_000_000_000_000), ..late };
    let ticks = r.status().ticks;
    r.push(&Arc::new(late), TickSummary::default());
    until("it is written", || r.status().ticks > ticks);
    r.finish(WAIT).unwrap();
    let after = files(dir.path());
    assert!(before > 2 && after.len() <= 2, "{before} files became {after:?}");
}

#[test]
fn names_made_from_the_host_are_plain() {
    let dir = tempfile::tempdir().unwrap();
    let now = WallNs(1_700_000_000_000_000_000);
    let a = default_file(dir.path(), "../db 7\n", now);
    assert_eq!(a, dir.path().join("stallscope-___db_7_-20231114T221320Z.stall"));
    std::os::unix::fs::symlink("nowhere", &a).unwrap();
    assert!(
        default_file(dir.path(), "../db 7\n", now)
            .ends_with("stallscope-___db_7_-20231114T221320Z-2.stall")
    );
}

#[test]
fn parts_are_made_and_deleted_in_the_directory_of_another_user() {
    let Some(dir) = of_another_user() else { return };
    let path = dir.path().join("a.stall");
    let options =
        Options { rotate: Some(Rotate::Size(3_000)), max_size: Some(20_000), ..Options::default() };
    let mut r = start(&path, options);
    for n in 0..300 {
        push(&mut r, n);
    }
    let end = r.finish(WAIT).unwrap();
    assert_eq!((end.state, end.lost, end.trouble), (State::Ended(End::Closed), 0, None));
    let files = std::fs::read_dir(dir.path()).unwrap().flatten();
    let left: u64 = files.map(|f| f.metadata().unwrap().len()).sum();
    assert!(end.written > 20_000 && left <= 20_000, "{left} of {}", end.written);
}

#[test]
fn sizes_and_times_of_parts_are_told_apart() {
    let mib = |n: u64| Ok(Rotate::Size(n << 20));
    let rotate = |text: &str| text.parse::<Rotate>();
    assert_eq!(rotate("10M"), mib(10));
    assert_eq!(rotate("1.5G"), mib(1536));
    assert_eq!(rotate("1MiB"), mib(1));
    assert_eq!(rotate("2MB"), Ok(Rotate::Size(2_000_000)));
    assert_eq!(rotate("10m"), Ok(Rotate::Age(Duration::from_secs(600))));
    assert_eq!(rotate("1h"), Ok(Rotate::Age(Duration::from_secs(3600))));
    assert_eq!(rotate("1d"), Ok(Rotate::Age(Duration::from_secs(86_400))));
    for bad in ["", "M", "10", "5s", "-1M", "1000K", "1X", "1Mb", "NaNM", "1e9999G", "0d"] {
        assert!(rotate(bad).is_err(), "{bad}");
    }
}

#[test]
fn sync_is_a_word_or_a_time() {
    let sync = |text: &str| text.parse::<SyncPolicy>();
    assert_eq!(sync("tick"), Ok(SyncPolicy::Tick));
    assert_eq!(sync("off"), Ok(SyncPolicy::Off));
    assert_eq!(sync("5s"), Ok(SyncPolicy::default()));
    for bad in ["", "always", "5", "0s", "2h"] {
        assert!(sync(bad).is_err(), "{bad}");
    }
}

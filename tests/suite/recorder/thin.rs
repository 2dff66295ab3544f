//! Thinning under a recorder, with ticks made here: their clocks run as fast as the disk.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use stallscope::recording::recorder::{
    End, Existing, Options, Recorder, State, Status, SyncPolicy,
};
use stallscope::recording::tools::info::Info;
use stallscope::recording::{ActiveFinding, Event, Reader, TickSummary};
use stallscope::sample::tick::HostInfo;

use super::{WAIT, host, of_another_user, start_on, tick_of as tick, until};

/// Ticks that are pushed at a time; the queue holds a few more.
const CHUNK: u64 = 100;

fn options(existing: Existing) -> Options {
    let thin = Some("all:5m,10s:20m,60s:1h".parse().unwrap());
    Options { existing, thin, sync: SyncPolicy::Off, ..Options::default() }
}

fn note(seq: u64) -> TickSummary {
    let f = ActiveFinding { rule: "r".into(), subject: "s".into(), severity: "warn".into() };
    let findings = if (3003..=3147).contains(&seq) { vec![f] } else { Vec::new() };
    TickSummary { figures: vec![("n".into(), seq as f64)], findings }
}

fn start(path: &Path, boot: &str, existing: Existing) -> Recorder {
    let host = HostInfo { interval: Duration::from_secs(1), ..host(boot) };
    start_on(&host, path, options(existing))
}

/// Pushes a chunk and waits for it; whatever moment this is, the file is whole.
fn chunk(r: &mut Recorder, path: &Path, from: u64, seqs: std::ops::Range<u64>) {
    let want = r.status().ticks + (seqs.end - seqs.start);
    for n in seqs.clone() {
        r.push(&tick(from, n), note(n));
    }
    until("they are written", || r.status().ticks == want);
    let file = Reader::file(path).unwrap();
    let last = file.groups().last().unwrap().last;
    assert_eq!((last.seq.0, file.damage().count()), (seqs.end - 1, 0));
}

fn run(path: &Path, boot: &str, existing: Existing, from: u64, ticks: u64) -> Status {
    let mut r = start(path, boot, existing);
    for c in 0..ticks / CHUNK {
        chunk(&mut r, path, from, c * CHUNK..(c + 1) * CHUNK);
        if c == 30 {
            r.mark("here");
        }
    }
    r.finish(WAIT).unwrap()
}

/// Runs of ticks: interval of the segment, and the ticks' numbers.
fn segments(r: &mut Reader) -> Vec<(u64, Vec<u64>)> {
    let mut out: Vec<(u64, Vec<u64>)> =
        r.segments().iter().map(|s| (s.1.host.interval.as_secs(), Vec::new())).collect();
    for g in 0..r.groups().len() {
        let (of, first) = (r.groups()[g].segment as usize, r.first_of(g).unwrap());
        for n in 0..u64::from(r.groups()[g].ticks) {
            out[of].1.push(r.tick(first + n).unwrap().seq.0);
        }
    }
    out
}

#[test]
fn older_ticks_become_rare_and_the_oldest_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.stall");
    let end = run(&path, "a", Existing::Refuse, 0, 9000);
    assert_eq!((end.state, end.lost, end.trouble), (State::Ended(End::Closed), 0, None));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    let mut r = Reader::file(&path).unwrap();
    assert!(r.is_sealed());
    let all = segments(&mut r);
    let steps: Vec<u64> = all.iter().map(|s| s.0).collect();
    assert_eq!(steps, [60, 10, 1]);
    for (step, seqs) in &all {
        assert!(seqs.len() > 10, "{step}: {seqs:?}");
        // tick `seq` is at second `seq + 1`: the first of each step is on the step.
        let regular = seqs.windows(2).skip(1).all(|w| w[1] - w[0] == *step);
        assert!(regular, "{step}: {seqs:?}");
    }
    // At least as long as was asked for; not for ever.
    let age = |seqs: &[u64]| 8999 - seqs[0];
    assert!((300..1200).contains(&age(&all[2].1)), "{}", age(&all[2].1));
    assert!((1200..2400).contains(&age(&all[1].1)), "{}", age(&all[1].1));
    assert!((3540..6000).contains(&age(&all[0].1)), "{}", age(&all[0].1));
    assert_eq!(all[2].1.last(), Some(&8999));
    // Figures stand for all ticks, kept or not.
    let (mut n, mut sum, mut least) = (0, 0.0, f64::MAX);
    for g in 0..r.groups().len() {
        let f = r.index(g).unwrap().figures["n"];
        (n, sum, least) = (n + u64::from(f.n), sum + f.sum, least.min(f.min));
    }
    let first = least as u64;
    assert_eq!(n, 9000 - first, "each tick once");
    assert_eq!(sum, (first..9000).sum::<u64>() as f64);
    // No tick that is gone is a gap.
    let said = r.events().unwrap().list;
    assert!(said.iter().all(|r| matches!(r.event, Event::Mark { .. })), "{said:?}");
    let survey = r.survey().unwrap();
    assert_eq!((survey.lost, survey.states_wrong), (0, 0));
}

#[test]
fn findings_and_marks_outlive_their_ticks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.stall");
    run(&path, "a", Existing::Refuse, 0, 5000);
    let mut r = Reader::file(&path).unwrap();
    let info = Info::gather(&mut r, "a", |_, _| ()).unwrap();
    let f = &info.findings[0];
    assert_eq!((info.findings.len(), f.rule.as_str()), (1, "r"));
    let (first, last) = (r.tick(f.first_tick).unwrap(), r.tick(f.last_tick).unwrap());
    // It began in the step that begins with this tick.
    assert!((2940..=3003).contains(&first.seq.0), "{:?}", first.seq);
    assert!((3080..=3147).contains(&last.seq.0), "{:?}", last.seq);
    let marks: Vec<_> =
        info.events.iter().filter(|r| matches!(r.event, Event::Mark { .. })).collect();
    assert_eq!(marks.len(), 1);
    assert_eq!(marks[0].at.seq.0, 3099);
    let text = stallscope::report::info::text(&info);
    for step in ["each 60s (downsampled from 1s),", "each 10s (downsampled from 1s),", "each 1s,"] {
        assert!(text.contains(step), "{step} in\n{text}");
    }
}

/// Another run of the same boot, and another boot: thinned, too, and never taken for one.
#[test]
fn runs_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.stall");
    run(&path, "a", Existing::Refuse, 0, 700);
    // Who may read it may read what takes its place.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    run(&path, "a", Existing::Append, 800, 700);
    run(&path, "b", Existing::Append, 1600, 2000);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
    let mut r = Reader::file(&path).unwrap();
    let hosts: Vec<_> = r
        .segments()
        .iter()
        .map(|s| (s.1.host.boot_id.clone(), s.1.host.interval.as_secs()))
        .collect();
    let all = segments(&mut r);
    for (host, (step, seqs)) in hosts.iter().zip(&all) {
        let regular = seqs.windows(2).skip(1).all(|w| w[1] - w[0] == *step);
        assert!(regular, "{host:?}: {seqs:?}");
    }
    let of = |boot: &str| hosts.iter().filter(|h| h.0 == boot).map(|h| h.1).collect::<Vec<_>>();
    assert_eq!(of("a"), [60, 60], "{hosts:?}");
    assert_eq!(of("b"), [60, 10, 1]);
}

/// What a kill leaves behind on a file system without nameless files is removed; what somebody
/// else put there is left alone, and in nobody's way.
#[test]
fn a_kill_in_the_middle_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.stall");
    let scratch = dir.path().join(format!(".a.stall.{}.thinning", "0123456789abcdef".repeat(2)));
    run(&path, "a", Existing::Refuse, 0, 300);
    let whole = std::fs::read(&path).unwrap();
    for left in [0, 5, 12, 64, 100, whole.len() / 2] {
        std::fs::write(&path, &whole).unwrap();
        std::fs::write(&scratch, &whole[..left]).unwrap();
        let end = run(&path, "b", Existing::Append, 400, 2000);
        assert_eq!((end.lost, end.trouble), (0, None), "{left}");
        assert!(!scratch.exists(), "{left}");
        let mut r = Reader::file(&path).unwrap();
        let steps: Vec<_> = segments(&mut r).iter().map(|s| s.0).collect();
        assert_eq!(steps, [60, 60, 10, 1], "{left}");
    }
    // Planted: under a name that can be guessed, and under one that we could have given.
    let guessed = dir.path().join(".a.stall.thinning");
    std::fs::write(&guessed, "").unwrap();
    std::fs::write(&scratch, "a letter to my mother").unwrap();
    let end = run(&path, "b", Existing::Append, 4000, 1000);
    assert_eq!((end.lost, end.trouble), (0, None));
    assert_eq!(std::fs::read(&guessed).unwrap(), b"");
    assert_eq!(std::fs::read(&scratch).unwrap(), b"a letter to my mother");
    let r = Reader::file(&path).unwrap();
    assert_eq!(r.groups().last().unwrap().last.seq.0, 999);
    assert!(r.groups()[0].first.wall > tick(400, 0).wall, "it was thinned");
}

/// Somebody moves the file away while it is being thinned, and another one takes its name.
#[test]
fn the_new_file_replaces_no_other_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("a.stall"), dir.path().join("moved"));
    let mut r = start(&path, "a", Existing::Refuse);
    for c in 0..3 {
        chunk(&mut r, &path, 0, c * CHUNK..(c + 1) * CHUNK);
    }
    std::fs::rename(&path, &moved).unwrap();
    std::fs::write(&path, "a letter to my mother").unwrap();
    for c in 3..30 {
        chunk(&mut r, &moved, 0, c * CHUNK..(c + 1) * CHUNK);
    }
    let end = r.finish(WAIT).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter to my mother");
    assert_eq!((end.state, end.lost), (State::Ended(End::Closed), 0));
    let says = end.trouble.unwrap();
    assert_eq!(says, "another file has this name now; the recording stays in the old one");
    let mut names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.stall", "moved"]);
    let all: Vec<u64> = segments(&mut Reader::file(&moved).unwrap()).remove(0).1;
    assert_eq!(all, (0..3000).collect::<Vec<_>>(), "every tick, as it was");
}

/// The recorder's thread keeps the right to make files where root may not without it.
#[test]
fn a_file_is_thinned_in_the_directory_of_another_user() {
    let Some(dir) = of_another_user() else { return };
    let path = dir.path().join("a.stall");
    let end = run(&path, "a", Existing::Refuse, 0, 2000);
    assert_eq!((end.state, end.lost, end.trouble), (State::Ended(End::Closed), 0, None));
    assert!(segments(&mut Reader::file(&path).unwrap()).len() > 1, "it was written anew");
}

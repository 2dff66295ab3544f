//! What goes in comes out, whichever way it is asked for.

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stallscope::recording::{Event, ReadAt, Reader, Resume, Spool, TickSummary, Writer};
use stallscope::sample::CollectorId;
use stallscope::sample::tick::{Gap, HealthState, Tick};
use stallscope::sample::time::{Seq, WallNs};

use crate::support::dice::Dice;
use crate::support::files::Dir;
use crate::support::recordings::{note, open, readable, recording, same, script, stamp};
use crate::support::script::Script;

#[test]
fn every_tick_comes_back_in_any_order() {
    let (bytes, all) = recording(&script(), 200, true);
    let mut r = open(bytes).unwrap();
    assert_eq!((r.len(), r.groups().len(), r.is_sealed()), (200, 4, true));
    assert_eq!(r.host(), script().host());
    assert_eq!(readable(&mut r, &all), (0..200).collect::<Vec<_>>());
    let mut dice = Dice(1);
    for _ in 0..60 {
        let i = dice.below(200);
        let got = r.tick(i).unwrap();
        same(&r, &got, &all[i as usize]);
        assert_eq!(r.tick_ref(i).unwrap().at, stamp(&all[i as usize]));
    }
    assert!(r.tick(200).is_err());
    assert_eq!(r.damage().count(), 0);
}

#[test]
fn a_file_that_was_not_closed_holds_the_same() {
    let (closed, all) = recording(&script(), 130, true);
    let (crashed, _) = recording(&script(), 130, false);
    assert!(closed.starts_with(&crashed));
    let mut r = open(crashed).unwrap();
    assert!(!r.is_sealed());
    assert_eq!(readable(&mut r, &all).len(), 130);
    assert_eq!(r.groups().len(), 3);
    assert_eq!(r.groups()[2].index, None);
    assert_eq!(r.damage().count(), 0);
}

/// Who goes back tick by tick does not pay for the group anew with each.
#[test]
fn going_back_reads_a_few_ticks_for_each() {
    let (bytes, all) = recording(&script(), 120, true);
    let src = Arc::new(Counted { bytes, reads: AtomicUsize::new(0) });
    let mut r = Reader::new(src.clone()).unwrap();
    let mut reads = |ticks: &mut dyn Iterator<Item = u64>| {
        let before = src.reads.load(Ordering::Relaxed);
        for i in ticks {
            let got = r.tick(i).unwrap();
            same(&r, &got, &all[got.seq.0 as usize]);
        }
        src.reads.load(Ordering::Relaxed) - before
    };
    let forward = reads(&mut (0..120));
    let back = reads(&mut (0..120).rev());
    // A tick costs what it cost on the way there; once a group all of them, then from the place
    // kept before it, 15 apart: 7 and a half on average. Without them it would be 30.
    assert!(back <= forward * 10, "{back} reads back, {forward} forward");
    assert!(reads(&mut [70, 69, 60, 59, 50, 49, 51, 20, 19, 3, 2, 90, 89, 88].into_iter()) > 0);
}

/// Counts what is asked of the kernel.
struct Counted {
    bytes: Vec<u8>,
    reads: AtomicUsize,
}

impl ReadAt for Counted {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.read_at(buf, offset)
    }
    fn size(&self) -> io::Result<u64> {
        self.bytes.size()
    }
}

#[test]
fn opening_reads_groups_and_not_ticks() {
    // Closed in front, broken off behind: a chain of indexes in each.
    let (closed, _) = recording(&script(), 300, true);
    let (torn, all) = recording(&script(), 301, false);
    let whole = [&closed[..], &torn].concat();
    let groups = open(whole.clone()).unwrap().groups().to_vec();
    assert!(groups.len() == 11 && groups[5].offset > closed.len() as u64);
    let cost = |bytes: Vec<u8>| {
        let src = Arc::new(Counted { bytes, reads: AtomicUsize::new(0) });
        let mut r = Reader::new(src.clone()).unwrap();
        let reads = src.reads.load(Ordering::Relaxed);
        let (ticks, found) = (r.len(), r.groups().to_vec());
        let mut again = r.again().unwrap();
        assert_eq!(src.reads.load(Ordering::Relaxed), reads, "nothing is looked for twice");
        assert_eq!((again.len(), again.groups()), (ticks, &found[..]));
        for i in [0, 299, ticks - 1] {
            let got = again.tick(i).unwrap();
            same(&again, &got, &all[got.seq.0 as usize]);
            assert_eq!(r.tick_ref(i).unwrap(), again.tick_ref(i).unwrap());
        }
        (reads, ticks, found)
    };
    let (reads, ticks, found) = cost(whole.clone());
    assert_eq!((ticks, &found), (601, &groups));
    assert!(reads <= 60, "{reads} reads for 11 groups");
    // An index that cannot be read costs its group: a read a tick for finding the one before,
    // two for hopping from block to block.
    let mut hurt = whole;
    hurt[groups[7].index.unwrap() as usize + 70] ^= 1;
    let (reads, ticks, found) = cost(hurt);
    assert_eq!((ticks, found.len(), found[7].index), (601, 11, None));
    assert!(reads <= 60 + 3 * 62, "{reads} reads");
}

#[test]
fn zstd_decodes_the_whole_file() {
    let (bytes, _) = recording(&script(), 70, true);
    let out = zstd::stream::decode_all(&bytes[..]).unwrap();
    assert!(out.starts_with(br#"{"host":{"hostname":"db7""#));
    assert!(String::from_utf8_lossy(&out).contains(r#""event":"mark","text":"here""#));
}

#[test]
fn the_timeline_needs_no_ticks() {
    let (bytes, all) = recording(&script(), 130, true);
    let mut r = open(bytes).unwrap();
    let index = r.index(1).unwrap();
    assert_eq!(index.ticks.len(), 60);
    let f = index.figures["runq.p99-us"];
    assert_eq!((f.min, f.max, f.n), (60.0, 119.0, 60));
    assert_eq!(f.sum, (60..120).sum::<u64>() as f64);
    // Active in ticks 21 to 99, and from 121 on.
    assert_eq!((index.findings[0].first, index.findings[0].last), (Seq(60), Seq(99)));
    let marks = &r.index(0).unwrap().events;
    assert_eq!(marks[0].event, Event::Mark { text: "here".into() });
    assert_eq!(marks[0].at, stamp(&all[9]));
    assert_eq!(r.at_wall(all[77].wall), Some(77));
    assert_eq!(r.at_wall(WallNs(all[77].wall.0 - 1)), Some(76));
    assert_eq!(r.at_wall(WallNs(0)), Some(0));
    assert_eq!(r.at_mono(0, all[129].mono), Some(129));
    assert_eq!(r.at_mono(1, all[129].mono), None);
}

#[test]
fn health_gaps_steps_and_errors_are_kept_and_evented() {
    let s = script();
    let mut ticks: Vec<Tick> = (0..6).map(|n| s.tick(n)).collect();
    ticks[2].gap = Some(Gap { ticks: 4 });
    for t in &mut ticks[3..5] {
        t.samples.disks = None;
        t.health[1].state = HealthState::Failed { error: "EIO".into() };
    }
    for t in &mut ticks[4..] {
        t.wall.0 += 3_600_000_000_000;
    }
    let mut w = Writer::new(Vec::new(), &s.host()).unwrap();
    for t in &ticks {
        w.tick(t, &TickSummary::default()).unwrap();
    }
    let mut r = open(w.seal().unwrap()).unwrap();
    for (i, t) in ticks.iter().enumerate() {
        let got = r.tick(i as u64).unwrap();
        same(&r, &got, t);
    }
    let events: Vec<_> = r.index(0).unwrap().events.iter().map(|r| r.event.clone()).collect();
    let collector = CollectorId::Disks.name().to_owned();
    assert_eq!(
        events,
        [
            Event::Gap { ticks: 4 },
            Event::CollectorError { collector, error: "EIO".into() },
            Event::ClockStep { by_ns: 3_600_000_000_000 },
        ]
    );
}

#[test]
fn a_sample_that_is_carried_over_is_shared_and_costs_nothing() {
    let s = script();
    let (a, mut b) = (s.tick(0), s.tick(1));
    b.samples = a.samples.clone();
    let mut w = Writer::new(Vec::new(), &s.host()).unwrap();
    w.tick(&a, &TickSummary::default()).unwrap();
    let cost = w.tick(&b, &TickSummary::default()).unwrap();
    assert!(cost.bytes < 160, "{} bytes", cost.bytes);
    let mut r = open(w.seal().unwrap()).unwrap();
    let (x, y) = (r.tick(0).unwrap(), r.tick(1).unwrap());
    assert!(Arc::ptr_eq(x.samples.cpu.as_ref().unwrap(), y.samples.cpu.as_ref().unwrap()));
    same(&r, &y, &b);
}

#[test]
fn a_group_that_was_rebuilt_has_the_state_that_was_written() {
    let (bytes, _) = recording(&script(), 125, true);
    let mut r = open(bytes).unwrap();
    let survey = r.survey().unwrap();
    assert_eq!((survey.ticks, survey.states_verified, survey.states_wrong), (125, 3, 0));
    assert!(survey.sections["sockets"] > survey.sections["self"]);
    assert_eq!(survey.damage, 0);
}

#[test]
fn a_file_goes_on_after_a_stop_a_crash_and_a_reboot() {
    let dir = Dir::new();
    let path = dir.file("x.stall");
    let s = script();
    let mut sizes = Vec::new();
    for run in 0..4u64 {
        let mut host = s.host();
        host.boot_id = format!("boot-{}", run / 2);
        let resume =
            if run == 0 { Resume::default() } else { Reader::file(&path).unwrap().resume() };
        let mut file =
            OpenOptions::new().create(true).truncate(false).write(true).open(&path).unwrap();
        file.set_len(resume.offset).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        let mut w = Writer::resume(file, &host, resume).unwrap();
        for n in 0..70 {
            w.tick(&s.tick(n), &note(n)).unwrap();
        }
        if run == 1 {
            // A kill in the middle of a write.
            w.get_mut().write_all(&[1, 2, 3]).unwrap();
        } else if run != 3 {
            w.seal().unwrap();
        }
        sizes.push(std::fs::metadata(&path).unwrap().len());
    }
    let mut r = Reader::file(&path).unwrap();
    assert_eq!((r.len(), r.groups().len(), r.segments().len()), (280, 8, 4));
    assert_eq!(r.segments()[3].1.host.boot_id, "boot-1");
    assert_eq!(r.groups().iter().map(|g| g.segment).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2, 3, 3]);
    for i in (0..280).rev().step_by(23) {
        let got = r.tick(i).unwrap();
        same(&r, &got, &s.tick(i % 70));
    }
    assert_eq!(r.damage().count(), 0, "the torn end was cut off");
    assert_eq!(r.at_mono(2, s.tick(69).mono), Some(209));
}

#[test]
fn a_growing_file_is_followed() {
    let dir = Dir::new();
    let path = dir.file("x.stall");
    let s = script();
    let (bytes, all) = recording(&s, 130, true);
    let mut dice = Dice(7);
    let mut file = std::fs::File::create(&path).unwrap();
    let mut at = 2000;
    file.write_all(&bytes[..at]).unwrap();
    let mut r = Reader::file(&path).unwrap();
    let mut seen = r.len();
    while at < bytes.len() {
        let next = (at + dice.below(5000) as usize).min(bytes.len());
        file.write_all(&bytes[at..next]).unwrap();
        at = next;
        r.refresh().unwrap();
        for i in seen..r.len() {
            let got = r.tick(i).unwrap();
            same(&r, &got, &all[i as usize]);
        }
        seen = r.len();
    }
    assert_eq!((seen, r.is_sealed(), r.groups().len()), (130, true, 3));
    assert_eq!(r.damage().count(), 0);
    assert_eq!(r.index(2).unwrap().figures.len(), 2);
}

#[test]
fn a_pipe_can_be_wound_back() {
    let (bytes, all) = recording(&script(), 70, true);
    let spool = Arc::new(Spool::start(io::Cursor::new(bytes)).unwrap());
    let deadline = stallscope::clock::mono() + std::time::Duration::from_secs(20);
    let mut r = loop {
        assert!(stallscope::clock::mono() < deadline);
        match Reader::new(spool.clone()) {
            Ok(r) => break r,
            Err(_) => std::thread::yield_now(),
        }
    };
    while r.may_grow() || r.refresh().unwrap() {
        assert!(stallscope::clock::mono() < deadline);
    }
    assert_eq!(readable(&mut r, &all).len(), 70);
    let got = r.tick(3).unwrap();
    same(&r, &got, &all[3]);
    let mut end = [0; 10];
    assert_eq!(spool.read_at(&mut end, spool.size().unwrap() - 5).unwrap(), 5);
}

/// A disk that is full from byte `full` on, until more is granted.
struct Disk {
    bytes: Vec<u8>,
    full: usize,
}

impl Write for Disk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = buf.len().min(self.full.saturating_sub(self.bytes.len()));
        if n == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&buf[..n]);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_a_full_disk_the_next_tick_counts() {
    let s = Script { connections: 3, ..script() };
    // A recording begins with what its samples look like; without that there is none. It ends
    // with its index, which no tick comes after.
    let disk = Disk { bytes: Vec::new(), full: usize::MAX };
    let mut w = Writer::new(disk, &s.host()).unwrap();
    let begin = w.offset();
    for n in 0..30 {
        w.tick(&s.tick(n), &note(n)).unwrap();
    }
    let end = w.offset();
    let mut dice = Dice(3);
    for _ in 0..40 {
        let full = (begin + dice.below(end - begin)) as usize;
        let mut w = Writer::new(Disk { bytes: Vec::new(), full }, &s.host()).unwrap();
        let (mut want, mut all) = (Vec::new(), Vec::new());
        for n in 0..30 {
            let tick = s.tick(n);
            match w.tick(&tick, &note(n)) {
                Ok(_) => want.push(n),
                Err(e) => {
                    assert_eq!(e.kind(), io::ErrorKind::StorageFull);
                    let good = w.offset() as usize;
                    let disk = w.get_mut();
                    disk.bytes.truncate(good);
                    disk.full = usize::MAX;
                }
            }
            all.push(tick);
        }
        assert!(want.len() >= 29, "one tick was lost at most");
        let mut r = open(w.seal().unwrap().bytes).unwrap();
        assert_eq!(readable(&mut r, &all), want);
        assert_eq!(r.damage().count(), 0);
        assert_eq!(r.survey().unwrap().states_wrong, 0);
    }
}

#[test]
fn groups_are_copied_as_they_are() {
    let (bytes, all) = recording(&script(), 200, true);
    let mut r = open(bytes).unwrap();
    let mut w = Writer::new(Vec::new(), &r.host()).unwrap();
    for g in [1, 3] {
        let raw = r.raw_group(g).unwrap();
        w.copy_group(raw, &r.groups()[g]).unwrap();
    }
    for bytes in [w.get_mut().clone(), w.seal().unwrap()] {
        let mut part = open(bytes).unwrap();
        let want: Vec<u64> = (60..120).chain(180..200).collect();
        assert_eq!(readable(&mut part, &all), want);
        assert_eq!((part.groups().len(), part.damage().count()), (2, 0));
        assert_eq!(part.index(1).unwrap(), r.index(3).unwrap());
    }
}

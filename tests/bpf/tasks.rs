//! The walk over all threads against threads whose sleep is known.

use std::io::Read as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::gettid;
use stallscope::clock;
use stallscope::collect::HostFs;
use stallscope::collect::bpf::tasks::{Row, State, TaskWalk};

use crate::kit::gate::lab;
use crate::lab::{options, run_for};

fn open() -> TaskWalk {
    TaskWalk::open(&HostFs::live(), &options()).unwrap_or_else(|u| panic!("{}", u.reason))
}

fn walk(walk: &mut TaskWalk) -> Vec<Row> {
    walk.walk().unwrap().collect()
}

fn row(rows: &[Row], tid: u32) -> Option<&Row> {
    rows.iter().find(|r| r.tid == tid)
}

fn own_tid() -> u32 {
    gettid().as_raw_nonzero().get() as u32
}

/// Ends threads that run, however a test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread that waits for a pipe, one for a mutex, and one that runs: the first two are told once,
/// with their call, and the third each time.
#[test]
fn a_thread_is_told_once_for_each_sleep() {
    lab(&[], || {
        let (mut from, to) = std::io::pipe().unwrap();
        let lock = Mutex::new(());
        let held = lock.lock().unwrap();
        let stop = &AtomicBool::new(false);
        let tids = [const { AtomicU32::new(0) }; 3];
        std::thread::scope(|s| {
            s.spawn(|| {
                tids[0].store(own_tid(), Ordering::Relaxed);
                let _ = from.read(&mut [0]);
            });
            s.spawn(|| {
                tids[1].store(own_tid(), Ordering::Relaxed);
                drop(lock.lock());
            });
            s.spawn(|| {
                tids[2].store(own_tid(), Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let running = Stop(stop);
            run_for(Duration::from_millis(300));
            let [pipe, mutex, spins] = tids.each_ref().map(|t| t.load(Ordering::Relaxed));
            let mut all = open();
            assert!(all.has_calls(), "this kernel tells system calls");
            let first = walk(&mut all);
            let me = std::process::id();
            let asleep = State::Sleeps('S');
            let r = row(&first, pipe).unwrap();
            // `read`, and any descriptor.
            assert_eq!((r.pid, r.state, r.call), (me, asleep, Some(0)), "{r:?}");
            assert!(r.args[0] < 1024 && !r.is_kernel && r.start_ns > 0 && r.run_ns > 0, "{r:?}");
            let r = row(&first, mutex).unwrap();
            // `futex`, FUTEX_WAIT_PRIVATE, the value of a contended mutex.
            assert_eq!((r.state, r.call), (asleep, Some(202)));
            assert!([0, 9].contains(&(r.args[1] & 0x7f)), "{r:?}");
            assert_eq!(r.args[2] as u32, 2, "{r:?}");
            assert!(first.iter().any(|r| r.is_kernel), "{first:?}");
            let listed = std::fs::read_dir("/proc").unwrap().flatten();
            let pids = listed.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
            let missing: Vec<u32> = pids.filter(|pid| row(&first, *pid).is_none()).collect();
            assert!(missing.len() < 5, "only new ones: {missing:?}");
            for _ in 0..3 {
                let next = walk(&mut all);
                assert_eq!((row(&next, pipe), row(&next, mutex)), (None, None));
                assert_eq!(row(&next, spins).unwrap().state, State::Runs);
                assert!(next.len() * 2 < first.len(), "{} after {}", next.len(), first.len());
            }
            drop(running);
            drop(held);
            drop(to);
            run_for(Duration::from_millis(100));
            let after = walk(&mut all);
            for tid in [pipe, mutex, spins] {
                assert!(row(&after, tid).is_none_or(|r| r.state == State::Ended), "{after:?}");
            }
        });
    });
}

/// One that waits for a child that borrowed its memory sleeps uninterruptibly: the row says where.
#[test]
fn an_uninterruptible_sleep_comes_with_its_stack() {
    lab(&["sh"], || {
        let mut all = open();
        let dir = tempfile::tempdir().unwrap();
        let end = clock::mono() + Duration::from_secs(20);
        let stop = &AtomicBool::new(false);
        std::thread::scope(|s| {
            let _stop = Stop(stop);
            s.spawn(|| {
                let path = dir.path().join("f");
                while !stop.load(Ordering::Relaxed) {
                    std::fs::write(&path, [7; 4096]).unwrap();
                    std::fs::File::open(&path).unwrap().sync_all().unwrap();
                    let _ = std::process::Command::new("true").status();
                }
            });
            loop {
                let rows = walk(&mut all);
                // One that is still on its way there has no stack yet.
                let found = rows.iter().find(|r| r.state == State::Sleeps('D') && r.stack[0] != 0);
                if let Some(r) = found {
                    println!("{r:x?}");
                    // Addresses of the kernel have all bits above set.
                    assert!(r.stack[0] >> 47 == 0x1_ffff, "{r:x?}");
                    break;
                }
                assert!(found.is_some() || clock::mono() < end, "nobody in D");
            }
        });
    });
}

/// Where the kernel tells no system calls, rows come without.
#[test]
fn rows_may_have_no_calls() {
    lab(&[], || {
        let mut all = TaskWalk::open_without_calls(&HostFs::live(), &options()).unwrap();
        assert!(!all.has_calls());
        let rows = walk(&mut all);
        assert!(rows.len() > 20 && rows.iter().all(|r| r.call.is_none()));
    });
}

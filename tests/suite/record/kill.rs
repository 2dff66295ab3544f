//! `kill -9` at random instants: the file opens, lacks one tick at most, and goes on.
//!
//! 20 kills by default, 200 under `CI=true`, `STALLSCOPE_KILLS=1000` for more.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use stallscope::clock;
use stallscope::sample::time::MonoNs;

use crate::support::dice::Dice;
use crate::support::files::Dir;
use crate::support::recorder::{pause, read, record};

const INTERVAL: Duration = Duration::from_millis(100);
/// Files that are killed at the same time.
const LANES: u64 = 4;

fn kills() -> u64 {
    let asked = std::env::var("STALLSCOPE_KILLS").ok().and_then(|n| n.parse().ok());
    let ci = std::env::var("CI").as_deref() == Ok("true");
    asked.unwrap_or(if ci { 200 } else { 20 })
}

#[test]
fn kill_at_random_instants() {
    // Different in each run; printed, so that a failure names it.
    let seed = clock::wall().0 as u64;
    println!("seed {seed}");
    let peer = Peer::start();
    let lanes: Vec<_> = (0..LANES)
        .map(|l| {
            let peer = peer.clone();
            std::thread::spawn(move || lane(kills() / LANES, seed.wrapping_add(l * 7919), &peer))
        })
        .collect();
    for l in lanes {
        l.join().unwrap();
    }
}

/// A thread that only wants to be woken: how late it is shows what the machine makes everybody
/// wait for the CPU, the recorder too.
#[derive(Clone)]
struct Peer(Arc<Mutex<Vec<(MonoNs, Duration)>>>);

impl Peer {
    const BEAT: Duration = Duration::from_millis(10);

    fn start() -> Self {
        let wakes = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::downgrade(&wakes);
        std::thread::spawn(move || {
            let mut due = clock::mono();
            while let Some(wakes) = theirs.upgrade() {
                due = due.max(clock::mono()) + Self::BEAT;
                clock::sleep_until(due);
                let now = clock::mono();
                wakes.lock().unwrap().push((now, now.since(due)));
            }
        });
        Self(wakes)
    }

    /// How late it was at worst from `from` on.
    fn late(&self, from: MonoNs) -> Duration {
        let wakes = self.0.lock().unwrap();
        let recent = wakes.iter().rev().take_while(|w| w.0 >= from);
        recent.map(|w| w.1).max().unwrap_or_default()
    }
}

/// Kills one recorder after another over the same file.
fn lane(kills: u64, seed: u64, peer: &Peer) {
    let mut random = Dice(seed);
    let dir = Dir::new();
    let path: PathBuf = dir.file("a.stall");
    let mut before = 0;
    let mut born = 0;
    for n in 0..kills {
        // Every tenth kill anywhere in the start; the others once it records.
        let early = n % 10 == 9;
        let args = ["--append", "--interval", "100ms", "--sync", "off"];
        let mut r = record(&path, &args);
        if !early {
            r.until("a new tick", |r| r.ticks() > before);
        }
        pause(Duration::from_micros(random.below(400_000)));
        // What reached the file before the kill must be there after it.
        let had = r.ticks();
        let at = clock::mono();
        r.signal(Signal::KILL);
        assert_eq!(r.end().0, None, "it ended before the kill");
        if path.metadata().map_or(0, |m| m.len()) == 0 {
            continue;
        }
        let size = path.metadata().unwrap().len();
        let Ok(file) = stallscope::recording::Reader::file(&path) else {
            assert!(before == 0 && had == 0 && size < 4096, "kill {n}: does not open");
            continue;
        };
        let torn = size - file.end();
        let seen = read(&path);
        assert!(seen.ticks.len() as u64 >= had.max(before), "kill {n}: lost what was there");
        // Behind the last whole block is at most the beginning of one.
        assert!(torn == 0 || seen.damage <= 1, "kill {n}: {torn} bytes, {} holes", seen.damage);
        if seen.ticks.len() as u64 > before && !early {
            born += 1;
            let last = seen.ticks.last().unwrap().mono;
            let age = at.since(last);
            // One tick may be lost: the one that was due within the last interval before the
            // kill. Scheduling on a busy machine is what the rest is for: a tick passes through
            // three threads, each of which may have had to wait for the CPU as the peer did.
            let waits = peer.late(last) * 3;
            let most = INTERVAL * 2 + Duration::from_millis(400) + waits;
            assert!(age < most, "kill {n}: {age:?} old, of it {waits:?} of waits");
            let new = &seen.ticks[before as usize..];
            let steps = new.windows(2).all(|w| w[1].seq.0 == w[0].seq.0 + 1);
            assert!(steps, "kill {n}: a tick is missing in between");
        }
        before = seen.ticks.len() as u64;
    }
    assert!(born * 2 > kills, "most kills hit a running recorder: {born} of {kills}");
}

//! What the console itself costs, as it says in its header and as the kernel counts it, and how
//! much memory it takes after a long time.
//!
//! The soak takes a minute of ticks ten times as often as usual, that is ten minutes of them;
//! `STALLSCOPE_SOAK=720` makes it so many seconds: two hours of ticks.

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stallscope::clock;
use stallscope::sample::time::MonoNs;

use crate::kit::console::Console;
use crate::kit::gate::{Place, beside};
use crate::kit::net::Pair;
use crate::kit::pause;

/// What history and everything beside it may take: 64 MiB and 30 MB.
const MOST: u64 = (64 << 20) + 30_000_000;

/// Both ends of so many connections.
fn sockets(n: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (0..n / 2).map(|_| (TcpStream::connect(addr).unwrap(), listener.accept().unwrap().0)).collect()
}

/// As many descriptors as this process may have; how many sockets those are enough for.
fn more_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    usize::try_from(most.unwrap_or(1 << 20)).unwrap() - 1000
}

/// One console has next to nothing to read, the other so many sockets that their reader does not read
/// in each tick: what it takes comes in bursts.
#[test]
fn the_header_says_what_the_kernel_counts() {
    beside(Place::Console, &["ip"], || {
        // The test beside it opens 9,000.
        let n = (more_files() - 10_000).min(50_000);
        let _held = sockets(n);
        let empty = Pair::new();
        let start = || Console::start(&["--netns", "self"], Path::new("."));
        let (few, many) = (empty.a.inside(start), start());
        std::thread::scope(|s| {
            s.spawn(move || agrees(&few, "no sockets"));
            s.spawn(move || agrees(&many, &format!("{n} sockets")));
        });
    });
}

/// Each time the header changes its mind, for twenty seconds, it is compared with the kernel's
/// account of the ten seconds before.
fn agrees(console: &Console, what: &str) {
    let begun = clock::mono();
    let mut log: VecDeque<(MonoNs, Duration)> = VecDeque::new();
    let (mut clock, mut compared) = (None, 0);
    while clock::mono().since(begun) < Duration::from_secs(32) {
        let now = clock::mono();
        log.push_back((now, console.cpu()));
        let shown = console.clock();
        if shown != clock && now.since(begun) > Duration::from_secs(13) {
            let says = console.says().unwrap();
            // The frame shows a reading of up to 0.6 s ago; what was used since cannot be told
            // apart, so the account is one of a stretch that ends anywhere within.
            let at = |ago: f64| {
                let t = now.back(Duration::from_secs_f64(ago));
                log.iter().rev().find(|l| l.0 <= t).unwrap().1.as_secs_f64()
            };
            let kernel: Vec<f64> = (0..7)
                .map(|i| f64::from(i) / 10.0)
                .map(|ago| (at(ago) - at(ago + 10.0)) * 10.0)
                .collect();
            let least = kernel.iter().copied().fold(f64::MAX, f64::min);
            let most = kernel.iter().copied().fold(0.0, f64::max);
            eprintln!("lab: own: {what}: header {says}%, kernel {least:.2} to {most:.2}%");
            // A tenth, a clock tick of 10 ms at either end, and one digit of the header.
            let slack = 0.25;
            assert!(
                says >= least * 0.9 - slack && says <= most * 1.1 + slack,
                "{what}: {says} for {least:.2} to {most:.2}"
            );
            compared += 1;
        }
        clock = shown;
        pause(50);
    }
    assert!(compared >= 10, "{what}: the header changed {compared} times");
}

/// The load changes all the time: threads, sockets, threads that queue for a mutex and are watched
/// for that. After two hours of ticks the console is no larger than its budget and what it began
/// with.
#[test]
fn memory_stays_within_the_budget() {
    beside(Place::Console, &["ip"], || {
        assert!(more_files() >= 9000);
        let net = Pair::new();
        let total = std::env::var("STALLSCOPE_SOAK").ok().map_or(60, |s| s.parse().unwrap());
        let total = Duration::from_secs(total);
        let args = ["--interval", "100ms", "--netns", "self"];
        let console = net.a.inside(|| Console::start(&args, Path::new(".")));
        let (begun, done) = (clock::mono(), AtomicBool::new(false));
        let elapsed = || clock::mono().since(begun);
        let (mut worst, mutex) = (0, Mutex::new(()));
        std::thread::scope(|s| {
            let mut phases = 0;
            while elapsed() < total {
                let _held = net.a.inside(|| sockets([2000, 0, 9000, 0][phases % 4]));
                let threads = if phases % 2 == 1 { 1500 } else { 100 };
                done.store(false, Ordering::Relaxed);
                let locked = (phases % 4 == 3).then(|| mutex.lock().unwrap());
                for _ in 0..threads {
                    s.spawn(|| {
                        drop(mutex.lock().unwrap());
                        while !done.load(Ordering::Relaxed) {
                            pause(700);
                        }
                    });
                }
                // A phase is a quarter, and a minute at most: then RSS is on record.
                let end = (elapsed() + total / 4).min(elapsed() + Duration::from_secs(60));
                while elapsed() < end {
                    worst = worst.max(console.rss());
                    pause(500);
                }
                eprintln!(
                    "lab: own: {} s: RssAnon {} kB, worst {} kB",
                    elapsed().as_secs(),
                    console.rss() / 1024,
                    worst / 1024
                );
                done.store(true, Ordering::Relaxed);
                drop(locked);
                phases += 1;
            }
        });
        assert!(worst <= MOST, "{worst} B resident, {MOST} are enough");
    });
}

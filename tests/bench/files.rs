//! CPU time of one reading of each collector that reads files, on the running kernel.
//!
//! `cargo bench --bench files` prints us per reading over many ticks that are one second apart on a
//! simulated clock, so that slow paths (attributes, lists) have their share.
//! `cargo bench --bench files -- 20` takes one tick per real second, for 20 seconds: caches are cold
//! then, as they are in use.
//! `cargo bench --bench files -- 90 5000` does so beside 5,000 sleeping processes. After a third of
//! the time a process starts that writes, after two thirds one that slept until then begins to: it
//! prints when `process-io` had a row of each.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stallscope::clock;
use stallscope::collect::registry::{Running, open_role};
use stallscope::collect::{CollectOptions, HostFs, SampleContext};
use stallscope::sample::time::MonoNs;
use stallscope::sample::{CollectorId, Interest, Role, Samples};

const TICKS: u32 = 300;
const INTERVAL: Duration = Duration::from_secs(1);

struct Subject {
    id: CollectorId,
    running: Box<dyn Running>,
    costs: Vec<Duration>,
}

/// A process that writes to a disk once it is told to, and when it was first seen to.
struct Writer {
    name: &'static str,
    child: Child,
    begun: Option<MonoNs>,
    seen: Option<MonoNs>,
}

impl Writer {
    fn new(name: &'static str) -> Self {
        let file = format!("{}/writer-{}", env!("CARGO_MANIFEST_DIR"), std::process::id());
        let script = format!(
            "read x; while :; do printf %65536s x 1<>{file}; rm -f {file}; sleep 0.1; done"
        );
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("sh starts");
        Self { name, child, begun: None, seen: None }
    }

    fn begin(&mut self, at: MonoNs) {
        let mut stdin = self.child.stdin.take().expect("it was not told yet");
        stdin.write_all(b"\n").expect("it listens");
        self.begun = Some(at);
    }

    fn look(&mut self, samples: &Samples, at: MonoNs) {
        let rows = samples.process_io.iter().flat_map(|s| &s.data.processes);
        if self.seen.is_none() && rows.into_iter().any(|p| p.task.pid == self.child.id()) {
            self.seen = Some(at);
        }
    }
}

/// Children that are killed at the end.
struct Crowd(Vec<Child>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn main() {
    let mut numbers = std::env::args().filter_map(|a| a.parse::<u32>().ok());
    let (real, sleepers) = (numbers.next(), numbers.next().unwrap_or(0));
    let old = (sleepers > 0).then(|| Writer::new("a sleeper"));
    let sleep = |_| Command::new("sleep").arg("3600").spawn().expect("sleep starts");
    let mut crowd = Crowd((0..sleepers).map(sleep).collect());
    let host = HostFs::live();
    let mut subjects = Vec::new();
    for role in [Role::Files, Role::Tasks] {
        for (id, opened) in open_role(role, &host, &CollectOptions::default()) {
            match opened {
                Ok(running) => subjects.push(Subject { id, running, costs: Vec::new() }),
                Err(why) => println!("{:<14} off: {why}", id.name()),
            }
        }
    }
    let start = clock::mono();
    let ticks = real.unwrap_or(TICKS).max(2);
    let mut writers: Vec<Writer> = old.into_iter().collect();
    for tick in 0..ticks {
        let at = start + INTERVAL * tick;
        if real.is_some() {
            clock::sleep_until(at);
        }
        if sleepers > 0 && tick == ticks / 3 {
            let mut new = Writer::new("a new process");
            new.begin(at);
            writers.push(new);
        }
        if sleepers > 0 && tick == 2 * ticks / 3 {
            writers[0].begin(at);
        }
        for s in &mut subjects {
            measure(s, at, &mut writers);
        }
    }
    print(&subjects);
    for w in &writers {
        let after = w.seen.zip(w.begun).map(|(seen, begun)| seen.since(begun).as_secs());
        println!("{}: its bytes were seen after {after:?} s", w.name);
    }
    crowd.0.extend(writers.into_iter().map(|w| w.child));
}

fn measure(s: &mut Subject, at: MonoNs, writers: &mut [Writer]) {
    let interest = Interest::default();
    let cx = SampleContext { at, interval: INTERVAL, interest: &interest };
    let before = clock::thread_cpu();
    let mut samples = Samples::default();
    if let Err(e) = s.running.run(&cx, &mut samples) {
        println!("{:<14} {e}", s.id.name());
    }
    for w in writers {
        w.look(&samples, at);
    }
    drop(samples);
    s.costs.push(clock::thread_cpu().saturating_sub(before));
}

fn print(subjects: &[Subject]) {
    println!("{:<14} {:>10} {:>10} {:>10}", "collector", "first us", "mean us", "max us");
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    let mut sum = Duration::ZERO;
    for s in subjects {
        let Some((first, rest)) = s.costs.split_first() else { continue };
        let mean = rest.iter().sum::<Duration>() / rest.len().max(1) as u32;
        let max = rest.iter().max().copied().unwrap_or_default();
        println!("{:<14} {:>10.1} {:>10.1} {:>10.1}", s.id.name(), us(*first), us(mean), us(max));
        sum += mean;
    }
    println!("all: {:.3}% of one core at one reading a second", sum.as_secs_f64() * 100.0);
}

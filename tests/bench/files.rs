//! CPU time of one reading of each collector that reads files, on the running kernel.
//!
//! `cargo bench --bench files` prints us per reading over many ticks that are one second apart on a
//! simulated clock, so that slow paths (attributes, lists) have their share.
//! `cargo bench --bench files -- 20` takes one tick per real second, for 20 seconds: caches are cold
//! then, as they are in use.

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

fn main() {
    let real: Option<u32> = std::env::args().find_map(|a| a.parse().ok());
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
    for tick in 0..real.unwrap_or(TICKS).max(2) {
        let at = start + INTERVAL * tick;
        if real.is_some() {
            clock::sleep_until(at);
        }
        for s in &mut subjects {
            measure(s, at);
        }
    }
    print(&subjects);
}

fn measure(s: &mut Subject, at: MonoNs) {
    let interest = Interest::default();
    let cx = SampleContext { at, interval: INTERVAL, interest: &interest };
    let before = clock::thread_cpu();
    let mut samples = Samples::default();
    if let Err(e) = s.running.run(&cx, &mut samples) {
        println!("{:<14} {e}", s.id.name());
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

//! What the kernel programs cost: `cargo bench --bench bpf` as root, on a quiet machine.
//!
//! Run queue: two threads on one CPU play ping-pong through pipes, and the CPU time of both is
//! the cost of the whole system per switch. Variants take turns round by round, and each is
//! compared with the round's own base. Softirqs and block requests are too rare or too noisy
//! for that: there the kernel's own account of programs (`BPF_ENABLE_STATS`) is summed over
//! all programs that take part in one event, less what the account itself costs, which an
//! empty program shows.
//!
//! libbpf-tools' `runqlat`, `softirqs` and `biolatency` take part when they are in PATH or in
//! the directory $LIBBPF_TOOLS. $ROUNDS sets the number of rounds.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod load;
mod programs;
mod reading;
mod switch;
mod walk;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stallscope::clock;
use stallscope::collect::{CollectOptions, HostFs};

/// Starts a tool of libbpf-tools; `None` where it is not installed.
fn tool(name: &str, args: &[&str]) -> Option<Running> {
    let dir = std::env::var("LIBBPF_TOOLS").map(|d| d + "/").unwrap_or_default();
    let child = Command::new(format!("{dir}{name}"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut running = Running(child);
    // Attached when its programs are there; it does not say.
    clock::sleep_until(clock::mono() + Duration::from_millis(900));
    running.0.try_wait().unwrap().is_none().then_some(running)
}

/// A tool, until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn host() -> (HostFs, CollectOptions) {
    (HostFs::live(), CollectOptions::default())
}

fn median(v: &mut [f64]) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
}

fn rounds() -> usize {
    std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(11)
}

/// One line of the verdict. A cost below nothing is noise, and so is what is divided by it.
fn goal(what: &str, value: f64, most: f64, unit: &str) {
    let verdict = match value {
        v if v > most => "NOT REACHED",
        v if v > 0.0 => "reached",
        _ => "NOT KNOWN: noise, more ROUNDS",
    };
    println!("  {what:<58} {value:>8.2} {unit:<4} goal {most:>6.2}  {verdict}");
}

fn main() {
    // Cargo calls benches with `--bench`; a reading of its own process with `--readings N`.
    let args: Vec<String> = std::env::args().collect();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    if let Some(at) = args.iter().position(|a| a == "--readings") {
        return reading::only(args[at + 1].parse().unwrap());
    }
    let wanted = |part: &str| args.len() < 3 || args.iter().any(|a| a == part);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    println!(
        "kernel {}, {} CPUs, clocksource {}, spectre_v2: {}",
        rustix::system::uname().release().to_string_lossy(),
        std::thread::available_parallelism().map_or(0, usize::from),
        read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        read("/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
    );
    if wanted("reading") {
        reading::all();
    }
    if wanted("switch") {
        switch::all();
    }
    if wanted("walk") {
        walk::all();
    }
    if wanted("programs") {
        programs::all();
    }
}

//! What opening and reading cost us in user space.

use std::process::Command;
use std::time::Duration;

use stallscope::clock;
use stallscope::collect::bpf::block::BlockBpf;
use stallscope::collect::bpf::irq::IrqBpf;
use stallscope::collect::bpf::net::NetBpf;
use stallscope::collect::bpf::runq::RunqBpf;
use stallscope::collect::{Collector, SampleContext};
use stallscope::sample::Interest;

use super::{goal, host, median};

struct All {
    runq: RunqBpf,
    irq: IrqBpf,
    block: BlockBpf,
    net: NetBpf,
}

fn open() -> All {
    let (host, opts) = host();
    All {
        runq: RunqBpf::open(&host, &opts).unwrap(),
        irq: IrqBpf::open(&host, &opts).unwrap(),
        block: BlockBpf::open(&host, &opts).unwrap(),
        net: NetBpf::open(&host, &opts).unwrap(),
    }
}

/// One reading, us.
fn read<C: Collector>(c: &mut C) -> f64 {
    let interest = Interest::default();
    let at = clock::mono();
    let cx = SampleContext { at, interval: Duration::from_secs(1), interest: &interest };
    let begun = clock::mono();
    let sample = c.sample(&cx).unwrap();
    let took = clock::mono().since(begun).as_nanos() as f64 / 1000.0;
    drop(sample);
    took
}

impl All {
    fn read(&mut self) -> [f64; 4] {
        [read(&mut self.runq), read(&mut self.irq), read(&mut self.block), read(&mut self.net)]
    }
}

/// Opens, then reads `n` times: for counting system calls from outside.
pub(crate) fn only(n: usize) {
    let mut all = open();
    (0..n).for_each(|_| {
        all.read();
    });
}

/// System calls of this program with so many readings.
fn system_calls(readings: usize) -> Option<f64> {
    let out = std::env::temp_dir().join(format!("stallscope-strace-{}", std::process::id()));
    let run = Command::new("strace")
        .args(["-f", "-c", "-U", "calls,name", "-o"])
        .arg(&out)
        .arg(std::env::current_exe().ok()?)
        .args(["--readings", &readings.to_string()])
        .status();
    let text = std::fs::read_to_string(&out).ok();
    let _ = std::fs::remove_file(out);
    let total = text?.lines().find_map(|l| l.trim().strip_suffix("total")?.trim().parse().ok());
    run.is_ok_and(|s| s.success()).then_some(total?)
}

fn rss_kib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub(crate) fn all() {
    let before = rss_kib();
    let begun = clock::mono();
    let mut all = open();
    let first = clock::mono().since(begun);
    all.read();
    let resident = (rss_kib() - before) / 1024.0;
    drop(all);
    let mut opened = Vec::new();
    for _ in 0..7 {
        let begun = clock::mono();
        let mut held = open();
        opened.push(clock::mono().since(begun).as_secs_f64() * 1000.0);
        // What opening keeps between collectors goes with the first reading.
        held.read();
    }
    println!("load and attach: first {first:?}");
    goal("load and attach all, median", median(&mut opened), 60.0, "ms");
    goal("resident memory, more than before", resident, 25.0, "MiB");
    let mut all = open();
    let mut times: [Vec<f64>; 4] = Default::default();
    let mut sums = Vec::new();
    for _ in 0..200 {
        // Something to read: a reading of what did not change is cheaper.
        super::load::ping_pong(20);
        std::fs::write(std::env::temp_dir().join("stallscope-bench"), [0; 64]).unwrap();
        let got = all.read();
        sums.push(got.iter().sum::<f64>());
        times.iter_mut().zip(got).for_each(|(t, g)| t.push(g));
    }
    let _ = std::fs::remove_file(std::env::temp_dir().join("stallscope-bench"));
    for (name, t) in ["runq", "irq", "block", "net"].into_iter().zip(&mut times) {
        t.sort_by(f64::total_cmp);
        let at = |percent: usize| t.get(t.len() * percent / 100).copied().unwrap_or(f64::NAN);
        println!("  reading {name:<6} {:>5.1} us, p90 {:.1}, p99 {:.1}", at(50), at(90), at(99));
    }
    goal("reading all histograms", median(&mut sums), 20.0, "us");
    if let (Some(few), Some(many)) = (system_calls(1), system_calls(101)) {
        // Events that the kernel left out are asked for once in 60 readings, not histograms.
        println!("system calls per reading of all four: {:.2}", (many - few) / 100.0);
    }
}

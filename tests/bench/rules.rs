//! What judging costs: all rules over hosts of growing size, sick and well, against deriving
//! the same tick's figures.
//!
//! `cargo bench --bench rules`. Prints medians in ms and what ten times the host costs; asserts
//! nothing. Goal: 4 ms for all rules on 100,000 sockets, 500 disks, 256 CPUs and
//! 5,000 cgroups.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Instant;

use stallscope::diagnose::Engine;
use stallscope::metrics::Deriver;
use stallscope::metrics::history::{History, Window};

use support::incident::{Disk, Incident, Rate, State, Step, play, ticks};

/// Ticks per run; the first ten are not counted.
const TICKS: f64 = 40.0;

/// One host in ten sizes: `sockets` with one in eight read in detail, and where `sick`, one in
/// fifty of them in an RTO storm towards many peers, a listener that overflows, one disk in ten
/// at its limit, one cgroup in fifty throttled: each of them is a finding of its own.
fn host(sockets: u32, disks: u32, cpus: u32, sick: bool) -> Incident {
    let mut i: Incident = toml::from_str(&format!(
        r#"
        title = "a host of {sockets} sockets"
        source = "made up"
        duration = {TICKS}
        cpus = {cpus}
        intervals = [1.0]
        [[socket]]
        name = "listener"
        local = "10.0.0.1:443"
        remote = "0.0.0.0:0"
        state = "LISTEN"
        wqueue = 128
        [[socket]]
        name = "idle"
        local = "10.0.0.1:443"
        remote = "10.1.0.1:1024"
        copies = {}
        [[socket]]
        name = "busy"
        local = "10.0.0.1:443"
        remote = "10.64.0.1:1024"
        copies = {}
        copies_by_address = true
        skmem = {{ rb = 131072, tb = 87040, t = 4096, w = 8192 }}
        info = {{ rto_us = 204000, rtt_us = 900, min_rtt_us = 300, snd_wnd = 65535, snd_mss = 1448 }}
        [[socket]]
        name = "stuck"
        local = "10.0.0.1:443"
        remote = "10.128.0.1:1024"
        copies = {}
        copies_by_address = true
        wqueue = 9000
        skmem = {{ rb = 131072, tb = 87040, w = 12000 }}
        info = {{ rto_us = 204000, rtt_us = 900, min_rtt_us = 300, snd_wnd = 65535, snd_mss = 1448, unacked = 7 }}
        [[step]]
        [step.rate]
        "sock.busy.info.bytes_acked" = 100000
        "sock.busy.info.segs_out" = 100
        "sock.busy.info.data_segs_out" = 70
        "net.1.OutSegs" = 100000
        "net.1.InSegs" = 100000
        "#,
        sockets - sockets / 8,
        sockets / 8 - sockets / 50,
        sockets / 50,
    ))
    .unwrap();
    for n in 0..disks {
        disk(&mut i, n, sick && n % 10 == 0);
    }
    // Ten for each disk.
    for n in 0..10 * disks {
        cgroup(&mut i, n, sick && n % 50 == 0);
    }
    for cpu in 0..cpus {
        let shares = [("user", 30.0), ("system", 10.0), ("softirq", 5.0), ("idle", 55.0)];
        let mut step = step();
        step.cpu.insert(cpu.to_string(), shares.map(|(k, v)| (k.to_owned(), v)).into());
        i.steps.push(step);
    }
    if sick {
        fall_ill(&mut i);
    }
    i
}

/// From the fifth second on.
fn step() -> Step {
    Step { at: None, from: Some(0.0), ..Step::set(0.0, "net.1.none", 0.0) }
}

fn disk(i: &mut Incident, n: u32, sick: bool) {
    let disk: Disk = toml::from_str(&format!(
        "name = \"vd{n}\"\nclass = \"virtual\"\nnr_requests = 256\nhw_queues = 4"
    ))
    .unwrap();
    let (rate, wait, util) = if sick { (3000, 5.0, 100.0) } else { (50 + n % 40, 0.6, 3.0) };
    i.disks.push(disk);
    let mut step = step();
    step.io = Some(
        toml::from_str(&format!(
            "disk = \"vd{n}\"\nr_s = {rate}.0\nw_s = 20.0\nawait = {wait}\nutil = {util}"
        ))
        .unwrap(),
    );
    i.steps.push(step);
}

fn cgroup(i: &mut Incident, n: u32, sick: bool) {
    i.cgroups.push(
        toml::from_str(&format!(
            "name = \"c{n}\"\npath = \"/pods/c{n}\"\nmount = \"/sys/fs/cgroup/cpu\"\nquota_us = 50000"
        ))
        .unwrap(),
    );
    let mut step = step();
    step.rate = [("nr_periods", 10.0), ("nr_throttled", if sick { 9.0 } else { 0.0 })]
        .map(|(k, v)| (format!("cgroup.c{n}.{k}"), Rate::Steady(v)))
        .into();
    i.steps.push(step);
}

/// The stuck connections time out together; the listener overflows.
fn fall_ill(i: &mut Incident) {
    for (n, at) in [5.0, 5.4, 6.2, 7.8, 11.0, 17.4, 30.2].into_iter().enumerate() {
        for (key, value) in [
            ("timer", 1.0),
            ("expires_ms", 200.0),
            ("retrans", n as f64 + 1.0),
            ("info.retransmits", n as f64 + 1.0),
            ("info.backoff", n as f64 + 1.0),
            ("info.total_retrans", n as f64 + 1.0),
            ("info.segs_out", n as f64 + 8.0),
            ("info.data_segs_out", n as f64 + 8.0),
        ] {
            i.steps.push(Step::set(at, &format!("sock.stuck.{key}"), value));
        }
    }
    i.steps.push(Step::set(5.0, "sock.listener.rqueue", 129.0));
    let mut step = step();
    step.from = Some(5.0);
    step.rate = ["ListenOverflows", "ListenDrops"]
        .map(|k| (format!("net.1.{k}"), Rate::Steady(50.0)))
        .into();
    i.steps.push(step);
}

struct Cost {
    derive: f64,
    rules: f64,
    findings: usize,
}

fn median(mut ms: Vec<f64>) -> f64 {
    ms.sort_by(f64::total_cmp);
    ms[ms.len() / 2]
}

fn cost(i: &Incident) -> Cost {
    let host = ticks::host(i, 1.0);
    let mut history = History::new(256 << 20);
    let (mut deriver, mut engine) = (Deriver::default(), Engine::default());
    let (mut derive, mut rules, mut findings) = (Vec::new(), Vec::new(), 0);
    let mut before = State::new();
    for (seq, (t, state)) in play(i, 1.0).into_iter().enumerate() {
        let tick =
            Arc::new(ticks::tick(i, seq, (t, if seq == 0 { 0.0 } else { 1.0 }), &before, &state));
        before = state;
        let begun = Instant::now();
        let derived = Arc::new(deriver.push(&tick));
        let derived_in = begun.elapsed().as_secs_f64() * 1e3;
        history.push(tick.clone(), derived.clone(), 0);
        let begun = Instant::now();
        let w = Window { tick: &tick, derived: &derived, history: &history, host: &host };
        let found = engine.push(&w);
        let judged_in = begun.elapsed().as_secs_f64() * 1e3;
        findings = found.all().count();
        if seq >= 10 {
            derive.push(derived_in);
            rules.push(judged_in);
        }
    }
    Cost { derive: median(derive), rules: median(rules), findings }
}

fn main() {
    println!(
        "{:>8} {:>6} {:>5} {:>5} {:>10} {:>10} {:>9} {:>12}",
        "sockets", "disks", "cpus", "", "derive ms", "rules ms", "findings", "ten times is"
    );
    for sick in [false, true] {
        let mut last = None;
        for (sockets, disks, cpus) in [(1000, 5, 4), (10_000, 50, 32), (100_000, 500, 256)] {
            let c = cost(&host(sockets, disks, cpus, sick));
            let growth = last.map_or(String::new(), |l| format!("{:.1} x", c.rules / l));
            let name = if sick { "sick" } else { "well" };
            println!(
                "{sockets:>8} {disks:>6} {cpus:>5} {name:>5} {:>10.2} {:>10.2} {:>9} {growth:>12}",
                c.derive, c.rules, c.findings
            );
            last = Some(c.rules);
        }
    }
}

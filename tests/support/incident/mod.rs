//! An incident as a readable file: what is there at the start, and what changes when.
//!
//! Time is in seconds and independent of ticks: the same incident is sampled at any interval.
//! All numbers live in one map by name (`sock.a.info.rto_us`, `disk.vdb.wr_ios`,
//! `net.1.TcpExtListenOverflows`, `cgroup.x.nr_throttled`, `cgroup.x.wios`, `thread.t.run_ns`,
//! `thread.t.rss_mib`,
//! `cpu.0.idle`, `softirq.NET_RX.0`, `softnet.0.dropped`, `psi.io_some_us`, `link.eth0.rx_bytes`,
//! `qdisc.a.drops`, `fs.a.avail`, `files.a.open`,
//! `tasks`, `conntrack.1.count`, `vmstat.pgmajfault`, `load1`, `ctxt`, `procs_running`);
//! the steps change that map:
//!
//! eBPF sees, where `ebpf = true`: waits of so many ns of a thread, or of nobody in particular
//! on a CPU (`wait.t.4000000`, `wait.cpu0.150000`), ns in a softirq (`soft.NET_RX.0`), runs of one
//! that took so many ns (`softrun.NET_RX.0.12000000`), requests that took so many ns in a stage,
//! and splits (`blk.vdb.device.7550000`, `blk.vdb.splits`), connects that were refused in a
//! namespace, by whom (`refuse.1.10.0.0.9:8080`), and
//! who asks for them (`connect.1.4242.nginx.10.0.0.9:8080`).
//!
//! - `at` (one time or a list) with `set`, `add`, `mul`: something happens;
//! - `from`, `to` with `rate`: growth per second, a list cycles second by second;
//! - `io`: rates of a disk in the words of iostat; `cpu`: shares of CPUs in percent.

mod bpf;
mod file;
pub mod links;
pub mod room;
mod sockets;
pub mod ticks;
mod waits;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use stallscope::sample::tick::{HostInfo, Tick};

pub use file::*;

/// Resolution of virtual time, s. Intervals are multiples of it.
pub const STEP: f64 = 0.05;

/// Every incident of `tests/scenarios` by the name of its file, in their order.
pub fn incidents() -> &'static [(String, Incident)] {
    static ALL: OnceLock<Vec<(String, Incident)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
        let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        let mut paths: Vec<PathBuf> =
            files.filter(|p| p.extension().is_some_and(|x| x == "toml")).collect();
        paths.sort();
        let read = |p: PathBuf| {
            let name = p.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&p).unwrap();
            let incident = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", p.display()));
            (name, incident)
        };
        paths.into_iter().map(read).collect()
    })
}

/// The ticks of an incident, and the host that they are of.
pub fn run_of(i: &Incident, interval: f64) -> (HostInfo, Vec<Arc<Tick>>) {
    let mut before = State::new();
    let ticks = play(i, interval).into_iter().enumerate().map(|(seq, (t, state))| {
        let dt = if seq == 0 { 0.0 } else { interval };
        let tick = Arc::new(ticks::tick(i, seq, (t, dt), &before, &state));
        before = state;
        tick
    });
    let ticks = ticks.collect();
    (ticks::host(i, interval), ticks)
}

/// The numbers at one moment.
pub type State = BTreeMap<String, f64>;

/// Plays an incident; yields the state at every multiple of the interval from 0 on.
pub fn play(incident: &Incident, interval: f64) -> Vec<(f64, State)> {
    let mut now = start(incident);
    let mut out = Vec::new();
    let steps = (incident.duration / STEP).round() as u64;
    let every = (interval / STEP).round() as u64;
    assert!((interval / STEP - every as f64).abs() < 1e-9, "interval {interval}");
    for i in 0..=steps {
        let t = i as f64 * STEP;
        for s in &incident.steps {
            happen(s, t, &mut now);
        }
        if i % every == 0 {
            out.push((t, now.clone()));
        }
        for s in &incident.steps {
            grow(s, t, &mut now);
        }
    }
    out
}

fn start(incident: &Incident) -> State {
    let mut s = State::new();
    let mut put = |key: String, v: f64| {
        s.insert(key, v);
    };
    for x in &incident.sockets {
        let p = format!("sock.{}", x.name);
        put(format!("{p}.state"), f64::from(code(&x.state)));
        put(format!("{p}.timer"), f64::from(code(&x.timer)));
        put(format!("{p}.rqueue"), f64::from(x.rqueue));
        put(format!("{p}.wqueue"), f64::from(x.wqueue));
        put(format!("{p}.retrans"), f64::from(x.retrans));
        put(format!("{p}.expires_ms"), f64::from(x.expires_ms));
        put(format!("{p}.present"), 1.0);
        for (k, v) in &x.skmem {
            put(format!("{p}.skmem.{k}"), *v);
        }
        for (k, v) in &x.info {
            put(format!("{p}.info.{k}"), *v);
        }
    }
    s.extend(incident.start.clone());
    s
}

/// What happens at `t`.
fn happen(s: &Step, t: f64, now: &mut State) {
    let at = match &s.at {
        None => return,
        Some(Times::One(x)) => std::slice::from_ref(x),
        Some(Times::Many(x)) => x,
    };
    if !at.iter().any(|x| (x - t).abs() < STEP / 2.0) {
        return;
    }
    for (k, v) in &s.set {
        let v = match v {
            Value::Number(n) => *n,
            Value::Name(n) => f64::from(code(n)),
        };
        now.insert(k.clone(), v);
    }
    for (k, v) in &s.mul {
        *now.get_mut(k).unwrap_or_else(|| panic!("mul of unknown {k}")) *= v;
    }
    for (k, v) in &s.add {
        *now.entry(k.clone()).or_insert(0.0) += v;
    }
}

/// What grows from `t` to the next step.
fn grow(s: &Step, t: f64, now: &mut State) {
    if s.at.is_some() || t < s.from.unwrap_or(0.0) - 1e-9 || t >= s.to.unwrap_or(1e9) - 1e-9 {
        return;
    }
    let mut add = |key: String, per_second: f64| {
        *now.entry(key).or_insert(0.0) += per_second * STEP;
    };
    let of = |r: &Rate| match r {
        Rate::Steady(v) => *v,
        Rate::Cycle(v) => v[(t + 1e-9) as usize % v.len()],
    };
    for (k, r) in &s.rate {
        add(k.clone(), of(r));
    }
    for (cpu, shares) in &s.cpu {
        let sum: f64 = shares.values().sum();
        assert!((sum - 100.0).abs() < 1e-6, "shares of cpu {cpu} add up to {sum}");
        for (kind, pct) in shares {
            // USER_HZ is 100: a percent is a tick per second.
            add(format!("cpu.{cpu}.{kind}"), *pct);
        }
    }
    if let Some(io) = &s.io {
        let mut busy = 0.0;
        for (kind, r) in [("rd", &io.r_s), ("wr", &io.w_s), ("dc", &io.d_s)] {
            let n = r.as_ref().map_or(0.0, of);
            busy += n * io.await_ms;
            add(format!("disk.{}.{kind}_ios", io.disk), n);
            add(format!("disk.{}.{kind}_sectors", io.disk), n * io.kb * 2.0);
            add(format!("disk.{}.{kind}_ticks", io.disk), n * io.await_ms);
        }
        busy += io.f_s * io.f_await;
        add(format!("disk.{}.rd_merges", io.disk), io.rrqm_s);
        add(format!("disk.{}.wr_merges", io.disk), io.wrqm_s);
        add(format!("disk.{}.fl_ios", io.disk), io.f_s);
        add(format!("disk.{}.fl_ticks", io.disk), io.f_s * io.f_await);
        add(format!("disk.{}.io_ticks", io.disk), io.util * 10.0);
        add(format!("disk.{}.weighted", io.disk), io.weighted.unwrap_or(busy));
    }
}

/// Numbers of timers and TCP states.
fn code(name: &str) -> u8 {
    match name {
        "off" => 0,
        "on" | "ESTAB" => 1,
        "keepalive" | "SYN-SENT" => 2,
        "SYN-RECV" => 3,
        "persist" | "FIN-WAIT-1" => 4,
        "FIN-WAIT-2" => 5,
        "TIME-WAIT" => 6,
        "UNCONN" => 7,
        "CLOSE-WAIT" => 8,
        "LAST-ACK" => 9,
        "LISTEN" => 10,
        other => panic!("no such timer or state: {other}"),
    }
}

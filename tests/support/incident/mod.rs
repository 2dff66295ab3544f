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

/// The numbers at one moment. Names are shared: there is a map of hundreds for each tick.
pub type State = BTreeMap<Arc<str>, f64>;

/// Plays an incident; yields the state at every multiple of the interval from 0 on.
pub fn play(incident: &Incident, interval: f64) -> Vec<(f64, State)> {
    let mut now = start(incident);
    let growing: Vec<Growth<'_>> = incident.steps.iter().filter_map(Growth::of).collect();
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
        for g in &growing {
            g.grow(t, &mut now);
        }
    }
    out
}

fn start(incident: &Incident) -> State {
    let mut s = State::new();
    let mut put = |key: String, v: f64| {
        s.insert(key.into(), v);
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
    s.extend(incident.start.iter().map(|(k, v)| (k.as_str().into(), *v)));
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
        now.insert(k.as_str().into(), v);
    }
    for (k, v) in &s.mul {
        *now.get_mut(k.as_str()).unwrap_or_else(|| panic!("mul of unknown {k}")) *= v;
    }
    for (k, v) in &s.add {
        *now.entry(k.as_str().into()).or_insert(0.0) += v;
    }
}

/// Growth per second at a time.
type PerSecond<'a> = Box<dyn Fn(f64) -> f64 + 'a>;

/// What a step makes grow, and when.
struct Growth<'a> {
    from: f64,
    to: f64,
    numbers: Vec<(Arc<str>, PerSecond<'a>)>,
}

impl<'a> Growth<'a> {
    /// `None` of a step that happens at once.
    fn of(s: &'a Step) -> Option<Self> {
        if s.at.is_some() {
            return None;
        }
        let (from, to) = (s.from.unwrap_or(0.0), s.to.unwrap_or(1e9));
        let mut numbers: Vec<(Arc<str>, PerSecond<'a>)> = Vec::new();
        for (k, r) in &s.rate {
            numbers.push((k.as_str().into(), Box::new(|t| r.at(t))));
        }
        for (cpu, shares) in &s.cpu {
            let sum: f64 = shares.values().sum();
            assert!((sum - 100.0).abs() < 1e-6, "shares of cpu {cpu} add up to {sum}");
            for (kind, pct) in shares {
                // USER_HZ is 100: a percent is a tick per second.
                numbers.push((format!("cpu.{cpu}.{kind}").into(), Box::new(|_| *pct)));
            }
        }
        if let Some(io) = &s.io {
            of_disk(io, &mut numbers);
        }
        Some(Self { from, to, numbers })
    }

    /// Grows from `t` to the next step.
    fn grow(&self, t: f64, now: &mut State) {
        if t < self.from - 1e-9 || t >= self.to - 1e-9 {
            return;
        }
        for (key, per_second) in &self.numbers {
            let more = per_second(t) * STEP;
            match now.get_mut(key) {
                Some(v) => *v += more,
                None => drop(now.insert(key.clone(), more)),
            }
        }
    }
}

/// The counters of a disk under such a load.
fn of_disk<'a>(io: &'a Io, numbers: &mut Vec<(Arc<str>, PerSecond<'a>)>) {
    let mut put = |name: String, per_second: PerSecond<'a>| {
        numbers.push((format!("disk.{}.{name}", io.disk).into(), per_second));
    };
    let kinds = [("rd", &io.r_s), ("wr", &io.w_s), ("dc", &io.d_s)];
    let of = |r: &'a Option<Rate>, t: f64| r.as_ref().map_or(0.0, |r| r.at(t));
    for (kind, r) in kinds {
        put(format!("{kind}_ios"), Box::new(move |t| of(r, t)));
        put(format!("{kind}_sectors"), Box::new(move |t| of(r, t) * io.kb * 2.0));
        put(format!("{kind}_ticks"), Box::new(move |t| of(r, t) * io.await_ms));
    }
    put("rd_merges".into(), Box::new(|_| io.rrqm_s));
    put("wr_merges".into(), Box::new(|_| io.wrqm_s));
    put("fl_ios".into(), Box::new(|_| io.f_s));
    put("fl_ticks".into(), Box::new(|_| io.f_s * io.f_await));
    put("io_ticks".into(), Box::new(|_| io.util * 10.0));
    let busy = move |t| {
        kinds.iter().fold(0.0, |sum, (_, r)| sum + of(r, t) * io.await_ms) + io.f_s * io.f_await
    };
    put("weighted".into(), Box::new(move |t| io.weighted.unwrap_or_else(|| busy(t))));
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

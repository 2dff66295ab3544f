//! An incident as a readable file: what is there at the start, and what changes when.
//!
//! Time is in seconds and independent of ticks: the same incident is sampled at any interval.
//! All numbers live in one map by name (`sock.a.info.rto_us`, `disk.vdb.wr_ios`,
//! `net.1.TcpExtListenOverflows`, `cgroup.x.nr_throttled`, `cgroup.x.wios`, `thread.t.run_ns`,
//! `cpu.0.idle`, `softirq.NET_RX.0`, `softnet.0.dropped`, `psi.io_some_us`, `link.eth0.rx_bytes`,
//! `qdisc.a.drops`, `fs.a.avail`, `files.a.open`,
//! `tasks`, `conntrack.1.count`, `vmstat.pgmajfault`, `load1`, `ctxt`, `procs_running`);
//! the steps change that map:
//!
//! eBPF sees, where `ebpf = true`: waits of so many ns of a thread, or of nobody in particular
//! on a CPU (`wait.t.4000000`, `wait.cpu0.150000`), ns in a softirq (`soft.NET_RX.0`), runs of one
//! that took so many ns (`softrun.NET_RX.0.12000000`), requests that took so many ns in a stage,
//! and splits (`blk.vdb.device.7550000`, `blk.vdb.splits`), connects that were refused in a
//! namespace, and by whom (`refuse.1.10.0.0.9:8080`).
//!
//! - `at` (one time or a list) with `set`, `add`, `mul`: something happens;
//! - `from`, `to` with `rate`: growth per second, a list cycles second by second;
//! - `io`: rates of a disk in the words of iostat; `cpu`: shares of CPUs in percent.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::links::{Link, Qdisc};
use crate::room::{Filesystem, Killed, Process};

/// Resolution of virtual time, s. Intervals are multiples of it.
pub(crate) const STEP: f64 = 0.05;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a line of a file")]
pub(crate) struct Incident {
    /// What happens, in one line.
    pub(crate) title: String,
    /// Where the numbers are from: `measured`, `field`, or `made up`, and how.
    pub(crate) source: String,
    /// s.
    pub(crate) duration: f64,
    #[serde(default = "kernel")]
    pub(crate) kernel: String,
    #[serde(default = "two")]
    pub(crate) cpus: u32,
    /// Sampling intervals, s.
    #[serde(default = "intervals")]
    pub(crate) intervals: Vec<f64>,
    /// Rules that this is a near miss of: they must stay quiet throughout.
    #[serde(default)]
    pub(crate) quiet: Vec<String>,
    /// Rules that may fire, or not.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    /// How often a finding may come and go.
    #[serde(default = "one")]
    pub(crate) spells: u32,
    /// eBPF measures as well. The file is played with it and without it.
    #[serde(default)]
    pub(crate) ebpf: bool,
    /// Pasted text: each tick is a sample of its own, and nobody knows what lasts.
    #[serde(default)]
    pub(crate) pasted: bool,
    /// Collectors that do not run.
    #[serde(default)]
    pub(crate) without: Vec<String>,
    #[serde(default)]
    pub(crate) expect: Vec<Expect>,
    #[serde(default, rename = "socket")]
    pub(crate) sockets: Vec<Socket>,
    #[serde(default, rename = "disk")]
    pub(crate) disks: Vec<Disk>,
    #[serde(default, rename = "cgroup")]
    pub(crate) cgroups: Vec<Cgroup>,
    #[serde(default, rename = "thread")]
    pub(crate) threads: Vec<Thread>,
    #[serde(default, rename = "nic")]
    pub(crate) nics: Vec<Nic>,
    #[serde(default, rename = "link")]
    pub(crate) links: Vec<Link>,
    #[serde(default, rename = "qdisc")]
    pub(crate) qdiscs: Vec<Qdisc>,
    #[serde(default, rename = "filesystem")]
    pub(crate) filesystems: Vec<Filesystem>,
    #[serde(default, rename = "process")]
    pub(crate) processes: Vec<Process>,
    pub(crate) pid_max: Option<u64>,
    pub(crate) threads_max: Option<u64>,
    #[serde(default)]
    pub(crate) killed: Vec<Killed>,
    /// The kernel's log is not ours to read.
    #[serde(default)]
    pub(crate) no_kmsg: bool,
    /// A kernel that does not count open files.
    #[serde(default)]
    pub(crate) no_file_counts: bool,
    /// CPUs of each NUMA node.
    #[serde(default)]
    pub(crate) nodes: BTreeMap<String, Vec<u32>>,
    /// CPUs that the scheduler leaves alone.
    #[serde(default)]
    pub(crate) isolated: Vec<u32>,
    #[serde(default, rename = "blocked")]
    pub(crate) blocked: Vec<Blocked>,
    /// Names of further network namespaces; 1 is the host's.
    #[serde(default)]
    pub(crate) netns: BTreeMap<String, String>,
    #[serde(default, rename = "unix")]
    pub(crate) unix: Vec<Unix>,
    /// `ip_local_port_range` of all namespaces.
    pub(crate) ports: Option<(u16, u16)>,
    /// Pages: low, pressure, high.
    pub(crate) tcp_mem: Option<[u64; 3]>,
    pub(crate) tcp_max_orphans: Option<u64>,
    /// Values at the start, by full name.
    #[serde(default)]
    pub(crate) start: BTreeMap<String, f64>,
    #[serde(default, rename = "step")]
    pub(crate) steps: Vec<Step>,
}

fn kernel() -> String {
    "6.18.44".to_owned()
}
fn two() -> u32 {
    2
}
fn one() -> u32 {
    1
}
fn intervals() -> Vec<f64> {
    vec![0.5, 1.0, 2.0]
}

/// A finding that must be active at a time; or must not.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) rule: String,
    pub(crate) at: f64,
    #[serde(default)]
    pub(crate) absent: bool,
    /// Holds with eBPF only, or without it only.
    pub(crate) ebpf: Option<bool>,
    /// Part of the subject as people read it.
    #[serde(default)]
    pub(crate) subject: String,
    pub(crate) severity: Option<String>,
    pub(crate) confidence: Option<String>,
    /// The rule could not judge, and says so in these words; no finding is wanted then.
    pub(crate) unknown: Option<String>,
    pub(crate) count: Option<u32>,
    /// The rule whose finding explains it; empty: none does.
    pub(crate) cause: Option<String>,
    /// Parts of summary, evidence, look-alikes, next commands, missing inputs.
    #[serde(default)]
    pub(crate) says: Vec<String>,
    /// What none of them may say.
    #[serde(default)]
    pub(crate) says_not: Vec<String>,
}

impl Expect {
    /// A finding is expected.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.absent && self.unknown.is_none()
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Socket {
    pub(crate) name: String,
    #[serde(default = "one")]
    pub(crate) netns: u32,
    #[serde(default)]
    pub(crate) udp: bool,
    pub(crate) local: String,
    pub(crate) remote: String,
    #[serde(default = "estab")]
    pub(crate) state: String,
    #[serde(default = "off")]
    pub(crate) timer: String,
    /// `comm/pid`.
    pub(crate) owner: Option<String>,
    #[serde(default = "inode")]
    pub(crate) inode: u32,
    /// `101` for an errno, `eth0` for a device.
    pub(crate) route: Option<String>,
    /// `10.0.0.1 failed`: next hop and its state in the neighbour table.
    #[serde(default)]
    pub(crate) hop: Option<String>,
    /// So many like it, with further local ports (or remote ports, when it is a server's).
    #[serde(default = "one")]
    pub(crate) copies: u32,
    /// Vary the remote address instead of a port.
    #[serde(default)]
    pub(crate) copies_by_address: bool,
    #[serde(default)]
    pub(crate) rqueue: u32,
    #[serde(default)]
    pub(crate) wqueue: u32,
    #[serde(default)]
    pub(crate) retrans: u8,
    #[serde(default)]
    pub(crate) expires_ms: u32,
    /// r rb t tb f w o bl d.
    #[serde(default)]
    pub(crate) skmem: BTreeMap<String, f64>,
    /// Fields of `tcp_info`; none means that it was not read.
    #[serde(default)]
    pub(crate) info: BTreeMap<String, f64>,
    /// Length of `tcp_info` on that kernel.
    #[serde(default = "info_len")]
    pub(crate) info_len: usize,
}

fn estab() -> String {
    "ESTAB".to_owned()
}
fn off() -> String {
    "off".to_owned()
}
fn inode() -> u32 {
    1000
}
fn info_len() -> usize {
    248
}

/// A listening UNIX socket of the host's namespace; `unix.NAME.rqueue` is how many wait.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unix {
    pub(crate) name: String,
    /// `@` begins an abstract name.
    pub(crate) path: String,
    pub(crate) backlog: u32,
    /// `comm/pid`.
    pub(crate) owner: Option<String>,
    pub(crate) inode: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Disk {
    pub(crate) name: String,
    /// As in `DiskClass`: `hdd`, `ssd`, `nvme`, `virtual`, `stack`, ...
    pub(crate) class: String,
    pub(crate) rotational: Option<bool>,
    pub(crate) size_gib: Option<u64>,
    pub(crate) nr_requests: Option<u32>,
    pub(crate) hw_queues: Option<u32>,
    pub(crate) scheduler: Option<String>,
    pub(crate) max_sectors_kb: Option<u32>,
    pub(crate) max_hw_sectors_kb: Option<u32>,
    pub(crate) backing_file: Option<String>,
    pub(crate) dm_name: Option<String>,
    pub(crate) dm_kind: Option<String>,
    pub(crate) md_level: Option<String>,
    pub(crate) raid_disks: Option<u32>,
    pub(crate) sync_action: Option<String>,
    pub(crate) sync_speed_kb: Option<u64>,
    #[serde(default)]
    pub(crate) slaves: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cgroup {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) mount: String,
    pub(crate) quota_us: Option<u64>,
    #[serde(default = "period")]
    pub(crate) period_us: u64,
    /// `cpu.weight` or `cpu.shares`.
    pub(crate) weight: Option<u64>,
    /// I/O limits and counters on one disk, by its name.
    pub(crate) io: Option<CgroupIo>,
    /// Bytes; what is used is `cgroup.NAME.memory`, what was refused `.failures`, who was killed
    /// `.oom_kills`, pressure `.psi_memory_full_us`.
    pub(crate) memory_limit: Option<u64>,
    /// Tasks; how many there are is `cgroup.NAME.pids`, how many were refused `.pids_failures`.
    pub(crate) pids_max: Option<u64>,
    /// Read at multiples of so many seconds only.
    pub(crate) every: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CgroupIo {
    pub(crate) disk: String,
    pub(crate) max_rbps: Option<u64>,
    pub(crate) max_wbps: Option<u64>,
    pub(crate) max_riops: Option<u64>,
    pub(crate) max_wiops: Option<u64>,
    pub(crate) latency_us: Option<u64>,
    #[serde(default)]
    pub(crate) iocost: bool,
    /// The limits are seen until then, s: they were lifted.
    pub(crate) until: Option<f64>,
    /// The limit is known, the counters are not.
    #[serde(default)]
    pub(crate) uncounted: bool,
}

fn period() -> u64 {
    100_000
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) comm: String,
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
    pub(crate) allowed: Option<String>,
    pub(crate) cgroup: Option<String>,
    pub(crate) nice: Option<i8>,
    pub(crate) policy: Option<u32>,
    /// The kernel tells no waits of it.
    #[serde(default)]
    pub(crate) no_schedstat: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nic {
    pub(crate) dev: String,
    pub(crate) rx_queues: u32,
    pub(crate) irqs: Vec<u32>,
    #[serde(default)]
    pub(crate) rps_cpus: Vec<String>,
    pub(crate) numa_node: Option<u32>,
}

/// A task in D state for a while.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Blocked {
    pub(crate) comm: String,
    pub(crate) tid: u32,
    pub(crate) wchan: Option<String>,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Times {
    One(f64),
    Many(Vec<f64>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Rate {
    Steady(f64),
    /// One value per second, over and over.
    Cycle(Vec<f64>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Number(f64),
    /// A timer or a state by name.
    Name(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) at: Option<Times>,
    pub(crate) from: Option<f64>,
    pub(crate) to: Option<f64>,
    #[serde(default)]
    pub(crate) set: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) add: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) mul: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) rate: BTreeMap<String, Rate>,
    pub(crate) io: Option<Io>,
    /// CPU id to shares in percent.
    #[serde(default)]
    pub(crate) cpu: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Step {
    /// One number set at one time.
    pub(crate) fn set(at: f64, key: &str, value: f64) -> Self {
        Self {
            at: Some(Times::One(at)),
            from: None,
            to: None,
            set: BTreeMap::from([(key.to_owned(), Value::Number(value))]),
            add: BTreeMap::new(),
            mul: BTreeMap::new(),
            rate: BTreeMap::new(),
            io: None,
            cpu: BTreeMap::new(),
        }
    }
}

/// A load on a disk, in the words of iostat.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Io {
    pub(crate) disk: String,
    #[serde(default)]
    pub(crate) r_s: Option<Rate>,
    #[serde(default)]
    pub(crate) w_s: Option<Rate>,
    #[serde(default)]
    pub(crate) d_s: Option<Rate>,
    /// ms. Times IOPS it gives the queue.
    #[serde(default, rename = "await")]
    pub(crate) await_ms: f64,
    /// kB per request.
    #[serde(default = "four")]
    pub(crate) kb: f64,
    /// %.
    pub(crate) util: f64,
    /// Reads and writes merged per second.
    #[serde(default)]
    pub(crate) rrqm_s: f64,
    #[serde(default)]
    pub(crate) wrqm_s: f64,
    /// Flushes per second, and ms of each.
    #[serde(default)]
    pub(crate) f_s: f64,
    #[serde(default)]
    pub(crate) f_await: f64,
    /// ms/s of field 11, where the kernel gets it wrong.
    pub(crate) weighted: Option<f64>,
}

fn four() -> f64 {
    4.0
}

/// The numbers at one moment.
pub(crate) type State = BTreeMap<String, f64>;

/// Plays an incident; yields the state at every multiple of the interval from 0 on.
pub(crate) fn play(incident: &Incident, interval: f64) -> Vec<(f64, State)> {
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

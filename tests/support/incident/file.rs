//! The words of an incident's file.

use std::collections::BTreeMap;

use serde::Deserialize;
use stallscope::sample::rule_settings::RuleSettings;
use stallscope::sample::sched::TaskKind;

use super::links::{Link, OriginOf, Qdisc};
use super::room::{Filesystem, Killed, Process, ProcessBytes};
use super::waits::Watched;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a line of a file")]
pub struct Incident {
    /// What happens, in one line.
    pub title: String,
    /// Where the numbers are from: `measured`, `field`, or `made up`, and how.
    pub source: String,
    /// s.
    pub duration: f64,
    #[serde(default = "kernel")]
    pub kernel: String,
    #[serde(default = "two")]
    pub cpus: u32,
    /// Sampling intervals, s.
    #[serde(default = "intervals")]
    pub intervals: Vec<f64>,
    /// Rules that this is a near miss of: they must stay quiet throughout.
    #[serde(default)]
    pub quiet: Vec<String>,
    /// Rules that may fire, or not.
    #[serde(default)]
    pub allow: Vec<String>,
    /// How often a finding may come and go.
    #[serde(default = "one")]
    pub spells: u32,
    /// eBPF measures as well. The file is played with it and without it.
    #[serde(default)]
    pub ebpf: bool,
    /// Pasted text: each tick is a sample of its own, and nobody knows what lasts.
    #[serde(default)]
    pub pasted: bool,
    /// Collectors that do not run.
    #[serde(default)]
    pub without: Vec<String>,
    /// What is configured.
    #[serde(default)]
    pub thresholds: RuleSettings,
    #[serde(default)]
    pub expect: Vec<Expect>,
    #[serde(default, rename = "socket")]
    pub sockets: Vec<Socket>,
    #[serde(default, rename = "disk")]
    pub disks: Vec<Disk>,
    #[serde(default, rename = "cgroup")]
    pub cgroups: Vec<Cgroup>,
    #[serde(default, rename = "thread")]
    pub threads: Vec<Thread>,
    #[serde(default, rename = "nic")]
    pub nics: Vec<Nic>,
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
    #[serde(default, rename = "qdisc")]
    pub qdiscs: Vec<Qdisc>,
    #[serde(default, rename = "origin")]
    pub origins: Vec<OriginOf>,
    #[serde(default, rename = "filesystem")]
    pub filesystems: Vec<Filesystem>,
    #[serde(default, rename = "process")]
    pub processes: Vec<Process>,
    #[serde(default, rename = "process_io")]
    pub process_io: Vec<ProcessBytes>,
    /// Processes that we may not read.
    #[serde(default)]
    pub process_io_denied: u32,
    pub pid_max: Option<u64>,
    pub threads_max: Option<u64>,
    /// Threads of other processes would be among those watched.
    #[serde(default)]
    pub everyone_is_watched: bool,
    /// Who keeps deleted files open.
    #[serde(default)]
    pub keeps: Vec<super::room::Keeps>,
    /// Whose the tasks of the host are.
    #[serde(default)]
    pub tasks: Vec<super::room::Tasks>,
    #[serde(default)]
    pub killed: Vec<Killed>,
    /// The kernel's log is not ours to read.
    #[serde(default)]
    pub no_kmsg: bool,
    /// A host that forbids eBPF at functions of the kernel.
    #[serde(default)]
    pub only_ext4: bool,
    /// A kernel that does not count open files.
    #[serde(default)]
    pub no_file_counts: bool,
    /// CPUs of each NUMA node.
    #[serde(default)]
    pub nodes: BTreeMap<String, Vec<u32>>,
    /// CPUs that the scheduler leaves alone.
    #[serde(default)]
    pub isolated: Vec<u32>,
    #[serde(default, rename = "blocked")]
    pub blocked: Vec<Blocked>,
    /// Threads of a process that somebody asked about.
    #[serde(default, rename = "watched")]
    pub watched: Vec<Watched>,
    /// Names of further network namespaces; 1 is the host's.
    #[serde(default)]
    pub netns: BTreeMap<String, String>,
    #[serde(default, rename = "unix")]
    pub unix: Vec<Unix>,
    /// `ip_local_port_range` of all namespaces.
    pub ports: Option<(u16, u16)>,
    /// Pages: low, pressure, high.
    pub tcp_mem: Option<[u64; 3]>,
    pub tcp_max_orphans: Option<u64>,
    /// The counters of one namespace beside our own are read in each tick, in turn, as a budget
    /// would have it.
    #[serde(default)]
    pub counters_in_turn: bool,
    /// Values at the start, by full name.
    #[serde(default)]
    pub start: BTreeMap<String, f64>,
    #[serde(default, rename = "step")]
    pub steps: Vec<Step>,
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
pub struct Expect {
    pub rule: String,
    pub at: f64,
    #[serde(default)]
    pub absent: bool,
    /// Holds with eBPF only, or without it only.
    pub ebpf: Option<bool>,
    /// Part of the subject as people read it.
    #[serde(default)]
    pub subject: String,
    pub severity: Option<String>,
    pub confidence: Option<String>,
    /// The rule could not judge, and says so in these words; no finding is wanted then.
    pub unknown: Option<String>,
    pub count: Option<u32>,
    /// The rule whose finding explains it; empty: none does.
    pub cause: Option<String>,
    /// Parts of summary, evidence, look-alikes, next commands, missing inputs.
    #[serde(default)]
    pub says: Vec<String>,
    /// What none of them may say.
    #[serde(default)]
    pub says_not: Vec<String>,
}

impl Expect {
    /// A finding is expected.
    pub fn is_wanted(&self) -> bool {
        !self.absent && self.unknown.is_none()
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Socket {
    pub name: String,
    #[serde(default = "one")]
    pub netns: u32,
    #[serde(default)]
    pub udp: bool,
    pub local: String,
    pub remote: String,
    #[serde(default = "estab")]
    pub state: String,
    #[serde(default = "off")]
    pub timer: String,
    /// `comm/pid`.
    pub owner: Option<String>,
    #[serde(default = "inode")]
    pub inode: u32,
    /// `101` for an errno, `eth0` for a device.
    pub route: Option<String>,
    /// `10.0.0.1 failed`: next hop and its state in the neighbour table.
    #[serde(default)]
    pub hop: Option<String>,
    /// So many like it, with further local ports (or remote ports, when it is a server's).
    #[serde(default = "one")]
    pub copies: u32,
    /// Vary the remote address instead of a port.
    #[serde(default)]
    pub copies_by_address: bool,
    #[serde(default)]
    pub rqueue: u32,
    #[serde(default)]
    pub wqueue: u32,
    #[serde(default)]
    pub retrans: u8,
    #[serde(default)]
    pub expires_ms: u32,
    /// r rb t tb f w o bl d.
    #[serde(default)]
    pub skmem: BTreeMap<String, f64>,
    /// Fields of `tcp_info`; none means that it was not read.
    #[serde(default)]
    pub info: BTreeMap<String, f64>,
    /// Length of `tcp_info` on that kernel.
    #[serde(default = "info_len")]
    pub info_len: usize,
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
pub struct Unix {
    pub name: String,
    /// `@` begins an abstract name.
    pub path: String,
    pub backlog: u32,
    /// `comm/pid`.
    pub owner: Option<String>,
    pub inode: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    pub name: String,
    /// As in `DiskClass`: `hdd`, `ssd`, `nvme`, `virtual`, `stack`, ...
    pub class: String,
    pub rotational: Option<bool>,
    pub size_gib: Option<u64>,
    pub nr_requests: Option<u32>,
    pub hw_queues: Option<u32>,
    pub scheduler: Option<String>,
    pub max_sectors_kb: Option<u32>,
    pub max_hw_sectors_kb: Option<u32>,
    pub backing_file: Option<String>,
    pub dm_name: Option<String>,
    pub dm_kind: Option<String>,
    pub md_level: Option<String>,
    pub raid_disks: Option<u32>,
    pub sync_action: Option<String>,
    pub sync_speed_kb: Option<u64>,
    #[serde(default)]
    pub slaves: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cgroup {
    pub name: String,
    pub path: String,
    pub mount: String,
    pub quota_us: Option<u64>,
    #[serde(default = "period")]
    pub period_us: u64,
    /// `cpu.weight` or `cpu.shares`.
    pub weight: Option<u64>,
    /// I/O limits and counters on one disk, by its name.
    pub io: Option<CgroupIo>,
    /// Bytes; what is used is `cgroup.NAME.memory`, what was refused `.failures`, who was killed
    /// `.oom_kills`, pressure `.psi_memory_full_us`.
    pub memory_limit: Option<u64>,
    /// Tasks; how many there are is `cgroup.NAME.pids`, how many were refused `.pids_failures`.
    pub pids_max: Option<u64>,
    /// Processes that its tasks are of.
    #[serde(default)]
    pub tasks: Vec<super::room::Tasks>,
    /// Read at multiples of so many seconds only.
    pub every: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupIo {
    pub disk: String,
    pub max_rbps: Option<u64>,
    pub max_wbps: Option<u64>,
    pub max_riops: Option<u64>,
    pub max_wiops: Option<u64>,
    pub latency_us: Option<u64>,
    #[serde(default)]
    pub iocost: bool,
    /// The limits are seen until then, s: they were lifted.
    pub until: Option<f64>,
    /// The limit is known, the counters are not.
    #[serde(default)]
    pub uncounted: bool,
}

fn period() -> u64 {
    100_000
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    pub name: String,
    pub comm: String,
    pub tid: u32,
    pub cpu: u32,
    pub allowed: Option<String>,
    pub cgroup: Option<String>,
    pub memory_cgroup: Option<String>,
    pub nice: Option<i8>,
    pub policy: Option<u32>,
    pub kind: Option<TaskKind>,
    /// The kernel tells no waits of it.
    #[serde(default)]
    pub no_schedstat: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    pub dev: String,
    pub rx_queues: u32,
    pub irqs: Vec<u32>,
    #[serde(default)]
    pub rps_cpus: Vec<String>,
    pub numa_node: Option<u32>,
}

/// A task in D state for a while.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocked {
    pub comm: String,
    pub tid: u32,
    pub wchan: Option<String>,
    pub from: f64,
    pub to: f64,
    /// Its process, if it is not the first thread of one.
    pub pid: Option<u32>,
    pub kind: Option<TaskKind>,
    /// So many like it, with further ids.
    #[serde(default = "one")]
    pub copies: u32,
    /// It wakes up so often per second, and goes back to sleep at once.
    pub wakes_s: Option<f64>,
    /// The kernel does not count how often it runs, or the recording does not say.
    #[serde(default)]
    pub uncounted: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Times {
    One(f64),
    Many(Vec<f64>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Rate {
    Steady(f64),
    /// One value per second, over and over.
    Cycle(Vec<f64>),
}

impl Rate {
    /// Growth per second at `t`.
    pub fn at(&self, t: f64) -> f64 {
        match self {
            Self::Steady(v) => *v,
            Self::Cycle(v) => v[(t + 1e-9) as usize % v.len()],
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(f64),
    /// A timer or a state by name.
    Name(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub at: Option<Times>,
    pub from: Option<f64>,
    pub to: Option<f64>,
    #[serde(default)]
    pub set: BTreeMap<String, Value>,
    #[serde(default)]
    pub add: BTreeMap<String, f64>,
    #[serde(default)]
    pub mul: BTreeMap<String, f64>,
    #[serde(default)]
    pub rate: BTreeMap<String, Rate>,
    pub io: Option<Io>,
    /// CPU id to shares in percent.
    #[serde(default)]
    pub cpu: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Step {
    /// One number set at one time.
    pub fn set(at: f64, key: &str, value: f64) -> Self {
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
pub struct Io {
    pub disk: String,
    #[serde(default)]
    pub r_s: Option<Rate>,
    #[serde(default)]
    pub w_s: Option<Rate>,
    #[serde(default)]
    pub d_s: Option<Rate>,
    /// ms. Times IOPS it gives the queue.
    #[serde(default, rename = "await")]
    pub await_ms: f64,
    /// kB per request.
    #[serde(default = "four")]
    pub kb: f64,
    /// %.
    pub util: f64,
    /// Reads and writes merged per second.
    #[serde(default)]
    pub rrqm_s: f64,
    #[serde(default)]
    pub wrqm_s: f64,
    /// Flushes per second, and ms of each.
    #[serde(default)]
    pub f_s: f64,
    #[serde(default)]
    pub f_await: f64,
    /// ms/s of field 11, where the kernel gets it wrong.
    pub weighted: Option<f64>,
}

fn four() -> f64 {
    4.0
}

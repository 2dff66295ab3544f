//! Who uses the resource that others wait for, as data: a process, a thread or a cgroup of this
//! host, with the share of it that was measured.

use std::fmt;
use std::net::IpAddr;

use crate::metrics::process_io::Flow;
use crate::sample::subject::{CpuId, Endpoint, TaskId};

/// Most culprits of a finding.
pub const MAX_CULPRITS: usize = 3;

/// One of those who use what others wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct Culprit {
    /// Who.
    pub who: Who,
    /// How much of what.
    pub share: Share,
    /// How it is scheduled, where that is not the ordinary way.
    pub sched: Sched,
    /// The cgroup that it is in, raw; `None` if unknown, or if it is a cgroup itself.
    pub cgroup: Option<String>,
}

impl Culprit {
    /// A process that is scheduled in the ordinary way, or of which that does not matter here.
    #[must_use]
    pub fn process(pid: u32, comm: Option<String>, cgroup: Option<String>, share: Share) -> Self {
        Self { who: Who::Process { pid, comm }, share, sched: Sched::default(), cgroup }
    }
}

/// Names are raw, as everywhere in findings: who prints them makes them safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// All threads of a process.
    Process {
        /// Process id.
        pid: u32,
        /// Its `comm`, raw: that of its first thread. `None` if that one was not read.
        comm: Option<String>,
    },
    /// A thread that is not the first of its process.
    Thread {
        /// The thread.
        task: TaskId,
        /// Its `comm`, raw.
        comm: String,
        /// `comm` of its process, raw; `None` if unknown.
        process: Option<String>,
    },
    /// A thread of the kernel: a worker, a flusher, `ksoftirqd`.
    Kernel {
        /// The thread.
        task: TaskId,
        /// Its `comm`, raw.
        comm: String,
    },
    /// A cgroup with those below it.
    Cgroup {
        /// Path below the mount point of the hierarchy, raw.
        path: String,
    },
    /// The connections of a port that is listened on.
    Port {
        /// Which.
        port: u16,
        /// The process that has one of them, with its `comm`, raw; `None` if unknown.
        owner: Option<(u32, String)>,
    },
    /// The connections to a peer.
    Peer {
        /// Where.
        remote: Endpoint,
        /// As above.
        owner: Option<(u32, String)>,
    },
    /// The connections that come from an address.
    Source {
        /// Which.
        addr: IpAddr,
        /// The process that opened them, with its `comm`, raw; `None` if unknown.
        owner: Option<(u32, String)>,
    },
    /// The tasks that are directly in a cgroup, without those of the cgroups below it.
    TasksOf {
        /// Path of the cgroup.
        path: String,
    },
}

impl Who {
    /// The process, for commands about it. `None` for a cgroup.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Process { pid, .. } => Some(*pid),
            Self::Thread { task, .. } | Self::Kernel { task, .. } => Some(task.pid),
            Self::Port { owner, .. } | Self::Peer { owner, .. } | Self::Source { owner, .. } => {
                owner.as_ref().map(|(pid, _)| *pid)
            }
            Self::Cgroup { .. } | Self::TasksOf { .. } => None,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, comm: Some(comm) } => write!(f, "{comm}/{pid}"),
            Self::Process { pid, comm: None } => write!(f, "process {pid}"),
            Self::Thread { task, comm, process } => {
                write!(f, "{comm}/{} of ", task.tid)?;
                Self::Process { pid: task.pid, comm: process.clone() }.fmt(f)
            }
            Self::Kernel { task, comm } => write!(f, "kernel thread {comm}/{}", task.tid),
            Self::Cgroup { path } => write!(f, "cgroup {path}"),
            Self::Port { port, owner } => {
                write!(f, "port {port}")?;
                owned(f, owner.as_ref())
            }
            Self::Peer { remote, owner } => {
                write!(f, "peer {remote}")?;
                owned(f, owner.as_ref())
            }
            Self::Source { addr, owner } => {
                write!(f, "source {addr}")?;
                owned(f, owner.as_ref())
            }
            Self::TasksOf { path } => write!(f, "tasks of {path} itself"),
        }
    }
}

fn owned(f: &mut fmt::Formatter<'_>, owner: Option<&(u32, String)>) -> fmt::Result {
    owner.map_or(Ok(()), |(pid, comm)| write!(f, " ({comm}/{pid})"))
}

/// What a share is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The time of all CPUs, idle time included.
    AllCpus,
    /// The time of one CPU, idle time included.
    Cpu(CpuId),
    /// The CPU time that a cgroup used.
    CpuOfCgroup(String),
    /// The CPU time that a cgroup may use.
    QuotaOf(String),
    /// The context switches of the host.
    Switches,
    /// The bytes that a disk moved.
    DiskBytes(Flow, String),
    /// Those of all disks: it is not known which of them a process used.
    AllDiskBytes(Flow),
    /// The bytes that processes are charged for, which is more than the disks moved.
    ProcessBytes(Flow),
    /// The same of the processes in a cgroup.
    BytesOfCgroup(Flow, String),
    /// The bytes that a network device receives.
    Received(String),
    /// The bytes that a network device sends.
    Sent(String),
    /// The memory that TCP uses.
    TcpMemory,
    /// The connections that wait to be accepted.
    Unaccepted,
    /// The bytes that arrived and that nobody read.
    Unread,
    /// The bytes that a queue of this host holds.
    Queued,
    /// The packets that had no room at their socket.
    Overflow,
    /// The connections that their peers closed and nobody here.
    Unclosed,
    /// The connections that use up the local ports.
    PortsInUse,
    /// The attempts to connect.
    Connects,
    /// The packets that came in with a bad checksum.
    BadChecksums,
    /// The fragments of packets that never came in whole.
    Unassembled,
    /// The entries of a connection tracking table.
    ConntrackEntries,
    /// The same, of other protocols than TCP.
    NonTcpEntries,
    /// The time that the threads of a queue wait for a lock.
    LockWait,
    /// The time that processes spend in the kernel.
    KernelTime,
    /// The tasks of the host.
    Tasks,
    /// The tasks of a cgroup.
    TasksOfCgroup(String),
    /// The space in use on a file system, by its mount point.
    SpaceOn(String),
    /// The attempts to create files on a file system, by its mount point.
    CreatesOn(String),
    /// The memory of the host.
    HostMemory,
    /// By how much processes grew lately.
    Growth,
    /// The memory that a cgroup uses.
    MemoryOfCgroup(String),
    /// By how much the processes in a cgroup grew lately.
    GrowthOfCgroup(String),
    /// The memory that a cgroup may use.
    MemoryLimitOf(String),
}

impl Resource {
    /// Is it what this cgroup has?
    fn is_of(&self, path: &str) -> bool {
        match self {
            Self::CpuOfCgroup(of)
            | Self::QuotaOf(of)
            | Self::BytesOfCgroup(_, of)
            | Self::TasksOfCgroup(of)
            | Self::MemoryOfCgroup(of)
            | Self::GrowthOfCgroup(of)
            | Self::MemoryLimitOf(of) => of == path,
            _ => false,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllCpus => f.write_str("the CPU time"),
            Self::Cpu(cpu) => write!(f, "the time of {cpu}"),
            Self::CpuOfCgroup(path) => write!(f, "the CPU time of {path}"),
            Self::QuotaOf(path) => write!(f, "the quota of {path}"),
            Self::Switches => f.write_str("the context switches"),
            Self::DiskBytes(flow, disk) => write!(f, "the bytes {} {disk}", moved(*flow)),
            Self::AllDiskBytes(flow) => write!(f, "the bytes {} all disks", moved(*flow)),
            Self::ProcessBytes(flow) => write!(f, "the bytes that processes {}", did(*flow)),
            Self::BytesOfCgroup(flow, path) => {
                write!(f, "the bytes that processes of {path} {}", did(*flow))
            }
            Self::Received(dev) => write!(f, "the bytes that {dev} receives"),
            Self::Sent(dev) => write!(f, "the bytes that {dev} sends"),
            Self::TcpMemory => f.write_str("the memory that TCP uses"),
            Self::Unaccepted => f.write_str("the connections that wait to be accepted"),
            Self::Unread => f.write_str("the unread bytes"),
            Self::Queued => f.write_str("the bytes that wait to be sent"),
            Self::Overflow => f.write_str("the drops at sockets"),
            Self::Unclosed => f.write_str("the connections in CLOSE-WAIT"),
            Self::PortsInUse => f.write_str("the open connections"),
            Self::Connects => f.write_str("the connection attempts"),
            Self::BadChecksums => f.write_str("the packets with a bad checksum"),
            Self::Unassembled => f.write_str("the fragments that timed out"),
            Self::ConntrackEntries => f.write_str("the entries of the connection table"),
            Self::NonTcpEntries => {
                f.write_str("the entries of the connection table that are not TCP")
            }
            Self::LockWait => f.write_str("the time that the others wait for the lock"),
            Self::KernelTime => f.write_str("the system time of processes"),
            Self::Tasks => f.write_str("the tasks"),
            Self::TasksOfCgroup(path) => write!(f, "the tasks of {path}"),
            Self::SpaceOn(mount) => write!(f, "the used space of {mount}, in deleted files"),
            Self::CreatesOn(mount) => write!(f, "the attempts to create files on {mount}"),
            Self::HostMemory => f.write_str("the memory of the host"),
            Self::Growth => f.write_str("the memory by which processes grew"),
            Self::MemoryOfCgroup(path) => write!(f, "the memory of {path}"),
            Self::GrowthOfCgroup(path) => {
                write!(f, "the memory by which processes of {path} grew")
            }
            Self::MemoryLimitOf(path) => write!(f, "the memory limit of {path}"),
        }
    }
}

fn moved(flow: Flow) -> &'static str {
    match flow {
        Flow::Read => "read from",
        Flow::Write => "written to",
        Flow::Both => "read from and written to",
    }
}

fn did(flow: Flow) -> &'static str {
    match flow {
        Flow::Read => "read",
        Flow::Write => "wrote",
        Flow::Both => "read and wrote",
    }
}

/// A part of a resource, as measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// %, in tenths, rounded down: shares of one resource never add up to more than 100.
    percent: f64,
    /// Of what.
    pub of: Resource,
}

impl Share {
    /// `part` of `whole`, in the same unit. `None` if there is nothing to be a part of.
    #[must_use]
    pub fn new(part: f64, whole: f64, of: Resource) -> Option<Self> {
        let percent = crate::metrics::rate::ratio(100.0 * part, whole)?;
        // A sum of floats may fall short of the round number that it is.
        let percent = (10.0 * percent.clamp(0.0, 100.0) + 1e-6).floor() / 10.0;
        Some(Self { percent, of })
    }

    /// %.
    #[must_use]
    pub fn percent(&self) -> f64 {
        self.percent
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded to the nearest, three shares could show a sum of 101%.
        write!(f, "{:.0}% of {}", self.percent.floor(), self.of)
    }
}

/// What the scheduler treats differently from an ordinary thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sched {
    /// Its policy; `None` if ordinary or unknown.
    pub policy: Option<Policy>,
    /// Its nice value; `None` if 0 or unknown. A real-time policy ignores it.
    pub nice: Option<i8>,
}

impl Sched {
    /// From what the kernel reports.
    #[must_use]
    pub fn new(policy: Option<u32>, nice: Option<i8>) -> Self {
        let policy = policy.and_then(Policy::of);
        let ignored = policy.is_some_and(Policy::is_real_time);
        Self { policy, nice: nice.filter(|n| *n != 0 && !ignored) }
    }
}

/// A policy other than `SCHED_OTHER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Runs until it sleeps; preempts every ordinary thread.
    Fifo,
    /// The same, in turns with others of its priority.
    RoundRobin,
    /// Ordinary, without preemption on wakeup.
    Batch,
    /// Runs when nobody else wants to.
    Idle,
    /// Runs for a guaranteed time in each period.
    Deadline,
}

impl Policy {
    /// From the kernel's number; `None` for `SCHED_OTHER` and unknown ones.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Fifo),
            2 => Some(Self::RoundRobin),
            3 => Some(Self::Batch),
            5 => Some(Self::Idle),
            6 => Some(Self::Deadline),
            _ => None,
        }
    }

    /// As in `sched.h`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "SCHED_FIFO",
            Self::RoundRobin => "SCHED_RR",
            Self::Batch => "SCHED_BATCH",
            Self::Idle => "SCHED_IDLE",
            Self::Deadline => "SCHED_DEADLINE",
        }
    }

    /// Does it preempt every ordinary thread?
    #[must_use]
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo | Self::RoundRobin | Self::Deadline)
    }
}

/// `java/2214 with 61% of the CPU time, SCHED_FIFO, in /system.slice/db.service`.
impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.who, self.share)?;
        if let Some(policy) = self.sched.policy {
            write!(f, ", {}", policy.name())?;
        }
        if let Some(nice) = self.sched.nice {
            write!(f, ", nice {nice}")?;
        }
        match self.cgroup.as_deref() {
            // The root says nothing about anybody.
            None | Some("" | "/") => Ok(()),
            Some(path) if self.share.of.is_of(path) => Ok(()),
            Some(path) => write!(f, ", in {path}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn culprit(who: Who, part: f64, sched: Sched, cgroup: Option<&str>) -> Culprit {
        let share = Share::new(part, 2000.0, Resource::AllCpus).unwrap();
        Culprit { who, share, sched, cgroup: cgroup.map(str::to_owned) }
    }

    #[test]
    fn shares_that_are_shown_never_add_up_to_more_than_the_whole() {
        let share = |part| Share::new(part, 3.0, Resource::Switches).unwrap();
        let thirds = [share(1.0), share(1.0), share(1.0)];
        assert!(thirds.iter().map(Share::percent).sum::<f64>() <= 100.0);
        assert_eq!(thirds[0].to_string(), "33% of the context switches");
        let two = Share::new(2.0, 3.0, Resource::Cpu(CpuId(4))).unwrap();
        assert_eq!((two.percent(), two.to_string().as_str()), (66.6, "66% of the time of cpu4"));
        // 0.29 * 100 is 28.999999999999996.
        assert_eq!(Share::new(0.29, 1.0, Resource::AllCpus).unwrap().percent(), 29.0);
        let of_disk = Share::new(1.0, 4.0, Resource::DiskBytes(Flow::Both, "vda".to_owned()));
        let said = of_disk.unwrap().to_string();
        assert_eq!(said, "25% of the bytes read from and written to vda");
        assert_eq!(Share::new(1.0, 0.0, Resource::AllCpus), None);
        assert_eq!(share(4.0).percent(), 100.0);
    }

    #[test]
    fn a_culprit_is_said_with_what_is_special_about_it() {
        let java = || Who::Process { pid: 2214, comm: Some("java".to_owned()) };
        let c = culprit(java(), 1225.0, Sched::new(Some(0), Some(0)), Some("/"));
        assert_eq!(c.to_string(), "java/2214 with 61% of the CPU time");
        let c = culprit(java(), 1225.0, Sched::new(Some(1), Some(-5)), Some("/db"));
        assert_eq!(c.to_string(), "java/2214 with 61% of the CPU time, SCHED_FIFO, in /db");
        let c = culprit(java(), 1225.0, Sched::new(Some(3), Some(7)), None);
        assert_eq!(c.to_string(), "java/2214 with 61% of the CPU time, SCHED_BATCH, nice 7");
        let task = TaskId { pid: 9, tid: 11, start: 0 };
        let of = |process: Option<&str>| {
            let process = process.map(str::to_owned);
            let c = Who::Thread { task, comm: "GC".to_owned(), process };
            (c.to_string(), c.pid())
        };
        assert_eq!(of(Some("java")), ("GC/11 of java/9".to_owned(), Some(9)));
        assert_eq!(of(None), ("GC/11 of process 9".to_owned(), Some(9)));
        let c = Who::Kernel { task, comm: "kswapd0".to_owned() };
        assert_eq!(c.to_string(), "kernel thread kswapd0/11");
        let of = |owner: Option<(u32, String)>| {
            let c = Who::Source { addr: IpAddr::from([10, 0, 0, 5]), owner };
            (c.to_string(), c.pid())
        };
        assert_eq!(of(None), ("source 10.0.0.5".to_owned(), None));
        let nginx = of(Some((812, "nginx".to_owned())));
        assert_eq!(nginx, ("source 10.0.0.5 (nginx/812)".to_owned(), Some(812)));
        let c = Who::TasksOf { path: "/".to_owned() };
        assert_eq!((c.to_string().as_str(), c.pid()), ("tasks of / itself", None));
    }
}

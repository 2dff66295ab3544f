//! What pasted text says that no collector reads: the kernel's log, `df`, `free`, `top` and the
//! tables of sysstat. Data for `diagnose::told`; who reads the text is `paste`.
//!
//! Absent stays absent: a column that a tool did not print is `None`.

/// Everything of one paste.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The kernel's log.
    pub log: Log,
    /// Rows of `df`.
    pub filesystems: Vec<Filesystem>,
    /// Readings of `free`, `top` and `sar -r`, oldest first.
    pub memory: Vec<Memory>,
    /// Readings of `conntrack -S`, oldest first.
    pub conntrack: Vec<Conntrack>,
    /// `nf_conntrack_count` and `nf_conntrack_max`.
    pub conntrack_used: (Option<u64>, Option<u64>),
    /// CPUs of the machine, where the text says it.
    pub host_cpus: Option<u32>,
    /// The last screen of `top`, and tasks of `pidstat`.
    pub tasks: Vec<Tasks>,
    /// `sar -q`.
    pub queue: Option<Queue>,
    /// Per-CPU rows of `mpstat` and `sar -u -P ALL`, oldest first.
    pub cpus: Vec<CpuRow>,
    /// Rows of `sar -n DEV` and `sar -n EDEV`, oldest first.
    pub links: Vec<LinkRow>,
    /// Rows of `sar -B` and `sar -W`, oldest first.
    pub paging: Vec<Paging>,
}

/// The kernel's log, as `dmesg` and `journalctl -k` print it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Lines of it.
    pub lines: u64,
    /// What was recognised, one entry per kind and subject, in the order of the first line.
    pub events: Vec<LogEvent>,
    /// Time stamp of its last line.
    pub last: Option<Stamp>,
    /// Lines that the kernel did not print because there were too many.
    pub suppressed: u64,
    /// Lines of trouble that had no room in `events`.
    pub over: u64,
}

/// A time stamp as printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamp {
    /// Its text: `23929.556244`, `Tue Nov 24 02:33:32 2026`.
    pub text: String,
    /// Seconds since boot, where it says them.
    pub secs: Option<f64>,
}

/// What a line of the log reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The OOM killer killed a process; the subject is the cgroup, or nothing for the host.
    Oom,
    /// A task is blocked for longer than hung_task_timeout_secs.
    HungTask,
    /// A request of a disk failed.
    DiskError,
    /// A member of an array failed.
    ArrayFailed,
    /// A file system found itself damaged.
    FsError,
    /// A file system refuses to write from now on.
    FsReadOnly,
    /// It is mounted for writing: later than trouble it means that somebody saw to it.
    FsMounted,
    /// A network device lost its link.
    LinkDown,
    /// And has it again.
    LinkUp,
    /// The connection tracking table is full.
    ConntrackFull,
    /// The neighbour table is full.
    NeighFull,
    /// TCP is out of memory.
    TcpMemory,
    /// The SYN queue of a port is full.
    SynFlood,
    /// A CPU did not schedule for too long.
    SoftLockup,
    /// A CPU did not take interrupts.
    HardLockup,
    /// A CPU held RCU up.
    RcuStall,
    /// The kernel failed: oops, BUG, panic.
    Oops,
    /// The hardware reports an error.
    Hardware,
    /// The system is out of open files.
    FdLimit,
    /// A cgroup is out of processes.
    TaskLimit,
    /// No run of pages of this order.
    AllocFailure,
    /// The clock source is not to be trusted.
    Clock,
    /// CPUs are slowed down because they are hot.
    Hot,
}

/// Lines of one kind about one subject.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEvent {
    /// What they report.
    pub kind: Trouble,
    /// Of whom: a disk, a device, a cgroup, a task; may be empty.
    pub subject: String,
    /// How many.
    pub count: u64,
    /// Time stamps of the first and the last.
    pub first: Option<Stamp>,
    /// See `first`.
    pub last: Option<Stamp>,
    /// The last one, without its time stamp, cut.
    pub line: String,
    /// A number of the last one: seconds of a hung task or a lockup, the order of an allocation.
    pub value: Option<u64>,
    /// The line behind `line` in the order of the log: later than others of the subject.
    pub no: u64,
    /// About OOM kills.
    pub oom: Option<Oom>,
}

/// What the log says about the OOM kills in one cgroup, or on the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Oom {
    /// `CONSTRAINT_MEMCG`, `CONSTRAINT_NONE`, ...
    pub constraint: Option<String>,
    /// Limit of the group, kB.
    pub limit_kb: Option<u64>,
    /// Usage of the group, kB.
    pub usage_kb: Option<u64>,
    /// How often it met its limit.
    pub failcnt: Option<u64>,
    /// Who asked for memory.
    pub invoker: Option<String>,
    /// The last victims: name, pid, resident memory in kB.
    pub victims: Vec<(String, u32, Option<u64>)>,
}

/// A row of `df`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filesystem {
    /// Device or source.
    pub source: String,
    /// Type, with `-T`.
    pub kind: Option<String>,
    /// Where it is mounted.
    pub mount: String,
    /// Bytes; rounded where df rounded them.
    pub size: Option<f64>,
    /// Bytes in use.
    pub used: Option<f64>,
    /// Bytes that ordinary users may still write.
    pub avail: Option<f64>,
    /// %, as printed.
    pub use_pct: Option<f64>,
    /// Inodes.
    pub inodes: Option<f64>,
    /// Inodes that are free.
    pub ifree: Option<f64>,
    /// %, as printed.
    pub iuse_pct: Option<f64>,
}

/// A reading of memory. All in one unit, which need not be known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// All of it.
    pub total: f64,
    /// Used by nobody.
    pub free: f64,
    /// What could be had without swapping.
    pub available: Option<f64>,
    /// `available` is an estimate from free, buffers and cache.
    pub estimated: bool,
    /// Swap, and how much of it is free.
    pub swap: Option<(f64, f64)>,
}

/// A reading of `conntrack -S`, summed over CPUs, since the module was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Packets that did not fit in.
    pub drop: Option<u64>,
    /// Entries that could not be inserted.
    pub insert_failed: Option<u64>,
    /// Entries thrown out to make room.
    pub early_drop: Option<u64>,
    /// Packets that belong to nothing.
    pub invalid: Option<u64>,
    /// Clashes that were resolved.
    pub clash_resolve: Option<u64>,
    /// Packets dropped because a chain of the hash was too long.
    pub chaintoolong: Option<u64>,
}

/// What is known of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tasks {
    /// Rows, in the order in which they stand; of the last screen or interval.
    pub rows: Vec<TaskRow>,
    /// Each row is a thread.
    pub threads: bool,
    /// Tasks in all, and zombies among them.
    pub total: Option<(u64, u64)>,
    /// Idle and iowait of all CPUs, %.
    pub idle: Option<f64>,
    /// Length of the interval of pidstat, s.
    pub interval: Option<f64>,
}

/// Tasks that want a CPU, as `sar -q` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// Runnable, in the last reading.
    pub running: f64,
    /// In the worst one.
    pub most: f64,
    /// Blocked on I/O, in the last reading.
    pub blocked: Option<f64>,
}

/// A process or thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRow {
    /// Process id.
    pub pid: u32,
    /// Name, cut.
    pub name: String,
    /// R, S, D, Z ...
    pub state: Option<char>,
    /// % of one CPU.
    pub cpu: Option<f64>,
    /// % of the time in which it waited for a CPU.
    pub wait: Option<f64>,
    /// kB read from disk per second.
    pub read_kb: Option<f64>,
    /// kB written per second.
    pub write_kb: Option<f64>,
    /// Time in which it waited for block I/O, clock ticks of 10 ms.
    pub iodelay: Option<f64>,
}

/// One CPU over one interval, %.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuRow {
    /// Its number.
    pub cpu: u32,
    /// Number of the interval.
    pub at: usize,
    /// Time stamp.
    pub time: String,
    /// In softirqs.
    pub soft: Option<f64>,
    /// Idle or iowait.
    pub idle: f64,
}

/// A network device over one interval, per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkRow {
    /// Its name.
    pub dev: String,
    /// Time stamp.
    pub time: String,
    /// Packets received and sent.
    pub packets: Option<(f64, f64)>,
    /// kB received and sent.
    pub kb: Option<(f64, f64)>,
    /// % of its speed.
    pub util: Option<f64>,
    /// Errors received and sent.
    pub errors: Option<(f64, f64)>,
    /// Drops received and sent.
    pub drops: Option<(f64, f64)>,
    /// Received packets for which the ring had no room.
    pub fifo: Option<f64>,
}

/// Paging over one interval, pages per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paging {
    /// Time stamp.
    pub time: String,
    /// Faults that read from disk.
    pub majflt: Option<f64>,
    /// Pages scanned by tasks that wanted memory themselves.
    pub scan_direct: Option<f64>,
    /// Pages swapped in and out.
    pub swap: Option<(f64, f64)>,
}

//! Every metric in one table: its name, its type, its labels, how many series it may have, and a
//! line of help. What `/metrics` serves and what `stallscope help metrics` lists are this table.

use std::fmt::Write as _;

/// CPUs with series of their own: those with the lowest numbers.
pub(super) const MAX_CPUS: usize = 256;
/// Disks: those that completed most requests since boot.
pub(super) const MAX_DISKS: usize = 64;
/// Network devices: those that moved most bytes.
pub(super) const MAX_DEVICES: usize = 64;
/// cgroups with a CPU quota: those that were throttled for longest.
pub(super) const MAX_CGROUPS: usize = 50;
/// Findings: the worst.
pub(super) const MAX_FINDINGS: usize = 50;
/// Signals of the program.
pub(super) const MAX_SIGNALS: usize = 64;
/// Rows of "Where work waits".
pub(super) const MAX_RESOURCES: usize = 16;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows, until a reboot or a restart of whoever counts.
    Counter,
    /// Always 1; the labels are what it says.
    Info,
}

impl Kind {
    /// As OpenMetrics writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Info => "info",
        }
    }
    /// What follows the name of the family in the name of a sample.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Gauge => "",
            Self::Counter => "_total",
            Self::Info => "_info",
        }
    }
}

/// A metric: a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name, without the suffix of its samples.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Series at most.
    pub most: usize,
    /// What it means.
    pub help: &'static str,
}

impl Family {
    /// Its base unit, which OpenMetrics wants at the end of the name; empty for a plain number.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        let last = self.name.rsplit('_').next().unwrap_or_default();
        ["seconds", "bytes", "ratio"].into_iter().find(|u| *u == last).unwrap_or_default()
    }
    /// The name of its samples, which is what one asks for.
    #[must_use]
    pub fn sample(&self) -> String {
        format!("{}{}", self.name, self.kind.suffix())
    }
}

macro_rules! families {
    ($(
        $id:ident = $kind:ident $name:literal [$($label:literal),*] $most:expr, $help:literal;
    )*) => {
        /// Names a family: its place in [`FAMILIES`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Id { $($id),* }

        /// All of them, in the order in which they are written.
        pub static FAMILIES: &[Family] = &[$(Family {
            name: concat!("stallscope_", $name),
            kind: Kind::$kind,
            labels: &[$($label),*],
            most: $most,
            help: $help,
        }),*];
    };
}

impl Id {
    /// Its row.
    pub(super) fn family(self) -> &'static Family {
        // The discriminants are the order of the table.
        &FAMILIES[self as usize]
    }
}

families! {
    Build = Info "build" ["version"] 1,
        "This program.";
    Host = Info "host" ["hostname", "kernel"] 1,
        "The machine.";
    HostCpus = Gauge "host_cpus" [] 1,
        "Online CPUs when the program started.";
    Interval = Gauge "interval_seconds" [] 1,
        "Sampling interval.";
    LastTick = Gauge "last_tick_timestamp_seconds" [] 1,
        "When the figures on this page were put together.";
    Ticks = Counter "ticks" [] 1,
        "Samples taken since the program started.";
    TicksMissed = Counter "ticks_missed" [] 1,
        "Samples that were due and not taken: the program did not get the CPU, or was stopped.";
    SelfCpu = Counter "self_cpu_seconds" [] 1,
        "CPU time that this program used, all threads.";
    SelfResident = Gauge "self_resident_bytes" [] 1,
        "Resident memory of this program.";
    Signal = Gauge "signal_available" ["signal"] MAX_SIGNALS,
        "1 if the signal is measured, 0 if not; doctor says why, and what would change that.";
    SignalDegraded = Gauge "signal_degraded" ["signal"] MAX_SIGNALS,
        "1 if the signal is measured with less detail than it could be.";
    RowsDropped = Gauge "rows_dropped" ["list"] 8,
        "Rows of a list (cpus, disks, network_devices, cgroups) beyond its maximum, not on this \
         page.";

    Findings = Gauge "findings_active" ["severity"] 3,
        "Active findings, those that another one explains included.";
    FindingsDropped = Gauge "findings_dropped" [] 1,
        "Active findings without a series below: the list is full, or they differ from one of its \
         rows only in what its labels do not show.";
    Finding = Gauge "finding_active" ["rule", "severity", "subject"] MAX_FINDINGS,
        "1 for each active finding, the worst first. stallscope rules RULE explains the rule.";

    ResourceSeverity = Gauge "resource_severity" ["resource"] MAX_RESOURCES,
        "The worst finding about a resource: 0 none, 1 info, 2 warn, 3 crit.";
    ResourceBusy = Gauge "resource_busy_ratio" ["resource"] MAX_RESOURCES,
        "How much of a resource is in use: the console's list of where work waits.";
    ResourceWaiting = Gauge "resource_waiting" ["resource", "measure"] MAX_RESOURCES,
        "How much waits for a resource, in its own measure: threads, requests, stall_ratio, \
         squeezes_per_second, queued_bytes, stuck_sockets, throttled_seconds_per_second.";
    ResourceErrors = Gauge "resource_errors_per_second" ["resource"] MAX_RESOURCES,
        "What a resource lost: packets dropped, segments sent again.";

    CpuSeconds = Counter "cpu_seconds" ["mode"] 8,
        "CPU time of all CPUs together; user includes nice and guests.";
    CpuBusiest = Gauge "cpu_busiest_ratio" [] 1,
        "The busiest CPU of all, over the last interval.";
    CpuBusy = Gauge "cpu_busy_ratio" ["cpu"] MAX_CPUS,
        "How busy a CPU was over the last interval, interrupts and steal included.";
    CpuSoftirq = Gauge "cpu_softirq_ratio" ["cpu"] MAX_CPUS,
        "The part of its time that a CPU spent in softirqs.";
    CpuSteal = Gauge "cpu_steal_ratio" ["cpu"] MAX_CPUS,
        "The part of its time that the hypervisor took.";
    SoftnetDropped = Counter "softnet_dropped_packets" ["cpu"] MAX_CPUS,
        "Packets dropped because the backlog of a CPU was full (net.core.netdev_max_backlog).";
    SoftnetSqueezed = Counter "softnet_squeezed" ["cpu"] MAX_CPUS,
        "How often a CPU left off receiving packets with work left, its budget being used up.";
    RunqWait = Counter "run_queue_wait_seconds" ["cpu"] MAX_CPUS,
        "Time that tasks waited for a CPU (/proc/schedstat).";
    RunqWaiting = Gauge "run_queue_waiting" [] 1,
        "Threads waiting for a CPU, on average over the last interval.";
    TasksRunnable = Gauge "tasks_runnable" [] 1,
        "Tasks running or ready to run.";
    TasksBlocked = Gauge "tasks_blocked" [] 1,
        "Tasks blocked on I/O.";
    Load = Gauge "load" ["minutes"] 3,
        "Load average over 1, 5 and 15 minutes.";
    Switches = Counter "context_switches" [] 1,
        "Context switches.";

    Pressure = Counter "pressure_stalled_seconds" ["resource", "share"] 6,
        "Time in which some tasks, or all of them (full), were stalled for cpu, io or memory.";

    MemorySize = Gauge "memory_bytes" [] 1,
        "Memory of the machine.";
    MemoryAvailable = Gauge "memory_available_bytes" [] 1,
        "Memory that can be had without swapping.";
    MemoryDirty = Gauge "memory_dirty_bytes" [] 1,
        "Memory waiting to be written to disks.";
    MemoryWriteback = Gauge "memory_writeback_bytes" [] 1,
        "Memory being written to disks.";
    SwapUsed = Gauge "swap_used_bytes" [] 1,
        "Memory that was swapped out.";
    SwappedIn = Counter "swapped_in_bytes" [] 1,
        "Memory read back from swap.";
    SwappedOut = Counter "swapped_out_bytes" [] 1,
        "Memory written to swap.";
    MajorFaults = Counter "major_page_faults" [] 1,
        "Page faults that had to read from a disk.";
    OomKills = Counter "oom_kills" [] 1,
        "Processes killed for lack of memory.";

    DiskReads = Counter "disk_reads" ["device"] MAX_DISKS,
        "Reads completed.";
    DiskWrites = Counter "disk_writes" ["device"] MAX_DISKS,
        "Writes completed.";
    DiskReadBytes = Counter "disk_read_bytes" ["device"] MAX_DISKS,
        "Bytes read.";
    DiskWrittenBytes = Counter "disk_written_bytes" ["device"] MAX_DISKS,
        "Bytes written.";
    DiskAwait = Gauge "disk_await_seconds" ["device", "operation"] (2 * MAX_DISKS),
        "Mean time of a read or write over the last interval, queue included; absent if none \
         completed.";
    DiskQueue = Gauge "disk_queue_length" ["device"] MAX_DISKS,
        "Requests in the queue or the device, on average over the last interval (aqu-sz).";
    DiskUtil = Gauge "disk_util_ratio" ["device"] MAX_DISKS,
        "The part of the last interval with a request in flight.";
    DiskInFlight = Gauge "disk_in_flight" ["device"] MAX_DISKS,
        "Requests in flight when the counters were read.";

    ReceivedBytes = Counter "network_received_bytes" ["device"] MAX_DEVICES,
        "Bytes received. Devices of the network namespace that the program runs in.";
    SentBytes = Counter "network_sent_bytes" ["device"] MAX_DEVICES,
        "Bytes sent.";
    ReceivedPackets = Counter "network_received_packets" ["device"] MAX_DEVICES,
        "Packets received.";
    SentPackets = Counter "network_sent_packets" ["device"] MAX_DEVICES,
        "Packets sent.";
    ReceiveErrors = Counter "network_receive_errors" ["device"] MAX_DEVICES,
        "Bad packets received.";
    SendErrors = Counter "network_send_errors" ["device"] MAX_DEVICES,
        "Packets that could not be sent.";
    ReceiveDropped = Counter "network_receive_dropped_packets" ["device"] MAX_DEVICES,
        "Packets received and dropped, those of unknown protocols included.";
    SendDropped = Counter "network_send_dropped_packets" ["device"] MAX_DEVICES,
        "Packets dropped on the way out.";
    QdiscBacklog = Gauge "network_queued_bytes" ["device"] MAX_DEVICES,
        "Bytes waiting in the queueing discipline of a device.";
    Conntrack = Gauge "conntrack_entries" [] 1,
        "Entries of the connection table.";
    ConntrackLimit = Gauge "conntrack_entries_limit" [] 1,
        "Entries that it has room for; absent without a limit.";

    TcpIn = Counter "tcp_received_segments" [] 1,
        "TCP segments received (TcpInSegs), as all protocol counters here in the network namespace \
         that the program runs in.";
    TcpOut = Counter "tcp_sent_segments" [] 1,
        "TCP segments sent, retransmitted ones excluded (TcpOutSegs).";
    TcpRetransmitted = Counter "tcp_retransmitted_segments" [] 1,
        "TCP segments sent again (TcpRetransSegs).";
    TcpTimeouts = Counter "tcp_timeouts" [] 1,
        "Timers of TCP connections that fired for want of an answer (TcpExtTCPTimeouts).";
    TcpActive = Counter "tcp_active_opens" [] 1,
        "Connects (TcpActiveOpens).";
    TcpPassive = Counter "tcp_passive_opens" [] 1,
        "Connections accepted by the kernel (TcpPassiveOpens).";
    TcpFailed = Counter "tcp_failed_connects" [] 1,
        "Connections that failed to open (TcpAttemptFails).";
    TcpResets = Counter "tcp_resets" [] 1,
        "Open connections that were reset (TcpEstabResets).";
    ListenOverflows = Counter "tcp_listen_overflows" [] 1,
        "Connections refused because an accept queue was full (TcpExtListenOverflows).";
    ListenDrops = Counter "tcp_listen_drops" [] 1,
        "Connection requests dropped by listeners, for any reason (TcpExtListenDrops).";
    TcpAborts = Counter "tcp_aborts_on_memory" [] 1,
        "Connections ended for lack of TCP memory (TcpExtTCPAbortOnMemory).";
    TcpEgressDrops = Counter "tcp_local_send_failures" [] 1,
        "Retransmissions that this host itself refused to send (TcpExtTCPRetransFail).";
    UdpReceiveErrors = Counter "udp_receive_buffer_errors" [] 1,
        "UDP datagrams dropped because a socket's buffer was full (UdpRcvbufErrors).";

    TcpSockets = Gauge "tcp_sockets" ["state"] 7,
        "TCP sockets of all network namespaces that are read.";
    UdpSockets = Gauge "udp_sockets" [] 1,
        "UDP sockets of all network namespaces that are read.";
    UnixSockets = Gauge "unix_sockets" [] 1,
        "UNIX sockets of all network namespaces that are read.";
    TcpSending = Gauge "tcp_sockets_sending" [] 1,
        "TCP connections with bytes in their send queues.";
    StuckSockets = Gauge "sockets_stuck" [] 1,
        "Sockets that an active finding names.";
    TcpOrphans = Gauge "tcp_orphans" [] 1,
        "TCP sockets that no process holds any more.";
    SocketMemory = Gauge "socket_memory_bytes" ["protocol"] 2,
        "Memory of the buffers of all TCP and all UDP sockets of the host.";
    TcpMemoryLimit = Gauge "tcp_memory_limit_bytes" ["level"] 3,
        "Limits of TCP memory: low, pressure, high (net.ipv4.tcp_mem).";

    CgroupPeriods = Counter "cgroup_periods" ["cgroup"] MAX_CGROUPS,
        "Periods in which a cgroup with a CPU quota had something to run.";
    CgroupThrottled = Counter "cgroup_throttled_periods" ["cgroup"] MAX_CGROUPS,
        "Periods in which its quota ran out.";
    CgroupThrottledTime = Counter "cgroup_throttled_seconds" ["cgroup"] MAX_CGROUPS,
        "Time for which it was throttled, summed over CPUs.";
    CgroupCpus = Gauge "cgroup_cpu_limit" ["cgroup"] MAX_CGROUPS,
        "Its quota, in CPUs.";
}

/// What `stallscope help metrics` appends to its page: each metric with its labels, and below it
/// what it means.
#[must_use]
pub fn listed(wrap: impl Fn(&str) -> Vec<String>) -> String {
    let mut out = String::new();
    for f in FAMILIES {
        let labels =
            if f.labels.is_empty() { String::new() } else { format!("{{{}}}", f.labels.join(",")) };
        let _ = writeln!(out, "{}{labels}", f.sample());
        let most = match f.most {
            1 => String::new(),
            n => format!(", at most {n}"),
        };
        for line in wrap(&format!("{}{most}. {}", f.kind.name(), f.help)) {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_those_that_prometheus_wants() {
        let mut seen = BTreeSet::new();
        for f in FAMILIES {
            let plain = |s: &str| s.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(plain(f.name) && f.labels.iter().all(|l| plain(l)), "{f:?}");
            // A family owns its own name and that of its samples.
            assert!(seen.insert(f.name.to_owned()), "{}", f.name);
            assert!(f.kind == Kind::Gauge || seen.insert(f.sample()), "{}", f.name);
            for taken in ["_total", "_info", "_created", "_count", "_sum", "_bucket"] {
                assert!(!f.name.ends_with(taken), "{}", f.name);
            }
            // Base units only.
            let odd = ["ms", "us", "ns", "kb", "kib", "percent", "jiffies", "pages"];
            assert!(f.name.split('_').all(|word| !odd.contains(&word)), "{}", f.name);
            assert!(f.help.ends_with('.') && !f.help.contains(['"', '\\', '\n']), "{}", f.name);
            assert!(f.most > 0);
        }
    }

    #[test]
    fn all_series_together_are_few_enough_for_one_target() {
        let all: usize = FAMILIES.iter().map(|f| f.most).sum();
        assert!(all < 4000, "{all}");
    }
}

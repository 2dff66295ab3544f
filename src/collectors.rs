//! The collectors: one row here, and the sample is part of every tick, is read by the thread of
//! its role, is recorded, and shows up in `doctor`.
//!
//! `sample` makes of the rows what is data, `collect` what opens the collectors.

/// Hands the table to the macro `$callback`. A row: id, field of `Samples`, stable name, role;
/// its sample below `sample`, and who reads it below `collect`.
macro_rules! for_each_collector {
    ($callback:ident) => {
        $callback! {
            /// sock_diag of our own network namespace.
            Sockets, sockets, "sockets", HostSockets: sockets::SocketsSample => sockets::HostSockets;
            /// sock_diag of the other network namespaces.
            NetnsSockets, netns_sockets, "netns-sockets", NetnsWalker: sockets::SocketsSample => sockets::netns::NetnsSocketsCollector;
            /// `/proc/diskstats` and queue attributes.
            Disks, disks, "disks", Files: disks::DisksSample => disks::DisksCollector;
            /// `/proc/stat`.
            Cpu, cpu, "cpu", Files: cpu::CpuSample => cpu::CpuCollector;
            /// `/proc/softirqs`, `/proc/net/softnet_stat`, `/proc/interrupts`, NIC queues.
            Softirq, softirq, "softirq", Files: softirq::SoftirqSample => softirq::SoftirqCollector;
            /// Load, run-queue delay of tasks, `/proc/schedstat`.
            Sched, sched, "sched", Tasks: sched::SchedSample => sched::SchedCollector;
            /// `/proc/net/{netstat,snmp,snmp6,sockstat}` per namespace.
            NetCounters, net_counters, "net-counters", Files: net_counters::NetCountersSample => net_counters::NetCountersCollector;
            /// Network devices, qdiscs, connection tracking per namespace.
            Netdev, netdev, "netdev", NetnsWalker: netdev::NetdevSample => netdev::NetdevCollector;
            /// `/proc/pressure`.
            Psi, psi, "psi", Files: psi::PsiSample => psi::PsiCollector;
            /// `/proc/meminfo`, `/proc/vmstat`, `vm.dirty_*`.
            Memory, memory, "memory", Files: memory::MemorySample => memory::MemoryCollector;
            /// CPU, I/O and memory of cgroups v1 and v2, with limits.
            Cgroups, cgroups, "cgroups", Tasks: cgroups::CgroupsSample => cgroups::CgroupsCollector;
            /// What the threads of a process do that somebody asked about.
            Waits, waits, "waits", Waits: waits::WaitsSample => waits::WaitsCollector;
            /// Processes: owners of sockets, D state.
            Processes, processes, "processes", Tasks: processes::ProcessesSample => processes::ProcessesCollector;
            /// What processes read from disks and write to them.
            ProcessIo, process_io, "process-io", Tasks: process_io::ProcessIoSample => process_io::ProcessIoCollector;
            /// Room and state of mounted file systems.
            Filesystems, filesystems, "filesystems", Tasks: filesystems::FilesystemsSample => filesystems::FilesystemsCollector;
            /// Open files of processes, limits of the host on tasks.
            Limits, limits, "limits", Tasks: limits::LimitsSample => limits::LimitsCollector;
            /// The kernel's log: whom the OOM killer ended.
            Kmsg, kmsg, "kmsg", Files: kmsg::KmsgSample => kmsg::KmsgCollector;
            /// Run-queue latency, by eBPF.
            RunqBpf, runq_bpf, "runq-bpf", Bpf: bpf::runq::RunqBpfSample => bpf::runq::RunqBpf;
            /// Time in softirqs and interrupts, by eBPF.
            IrqBpf, irq_bpf, "irq-bpf", Bpf: bpf::irq::IrqBpfSample => bpf::irq::IrqBpf;
            /// Block latency, by eBPF.
            BlockBpf, block_bpf, "block-bpf", Bpf: bpf::block::BlockBpfSample => bpf::block::BlockBpf;
            /// TCP events and dropped packets, by eBPF.
            NetBpf, net_bpf, "net-bpf", Bpf: bpf::net::NetBpfSample => bpf::net::NetBpf;
            /// Who creates files, by eBPF.
            FilesBpf, files_bpf, "files-bpf", Bpf: bpf::files::FilesBpfSample => bpf::files::FilesBpf;
            /// What this program itself costs.
            Own, own, "self", Files: own::OwnSample => own::OwnCollector;
        }
    };
}
pub(crate) use for_each_collector;

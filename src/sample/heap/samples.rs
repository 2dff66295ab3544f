//! Sizes of what collectors read.

use super::{Heap, flat, owns};
use crate::sample::bpf::block::{BlockBpfSample, BlockDisk, BlockOp};
use crate::sample::bpf::irq::{IrqBpfSample, IrqCpu, LineTime, VectorTime};
use crate::sample::bpf::net::{DropPlace, DropReason, FlowEvents, NetBpfSample};
use crate::sample::bpf::runq::{CgroupWaits, LongWait, RunqBpfSample, RunqCpu};
use crate::sample::cgroups::{CgroupIo, CgroupRow, CgroupsSample};
use crate::sample::cpu::{CpuSample, CpuTimes};
use crate::sample::disks::{DiskAttrs, DiskRow, DisksSample, MdAttrs};
use crate::sample::filesystems::{FilesystemRow, FilesystemsSample, Space};
use crate::sample::kmsg::{KmsgSample, OomKilled};
use crate::sample::limits::{LimitsSample, OpenFiles};
use crate::sample::memory::MemorySample;
use crate::sample::net_counters::{NetCountersSample, NetnsCounters};
use crate::sample::netdev::{LinkAttrs, LinkRow, NetdevSample, NetdevSpace, QdiscRow};
use crate::sample::own::OwnSample;
use crate::sample::processes::{BlockedTask, ProcessesSample};
use crate::sample::psi::PsiSample;
use crate::sample::sched::{CpuSchedstat, SchedSample, ThreadSched};
use crate::sample::sockets::{
    InetRows, NetnsTable, Owner, Proto, RouteAnswer, RouteOutcome, SockState, SockTimer,
    SocketsSample, TcpInfo, UnixRows, UnreadNetns,
};
use crate::sample::softirq::{IrqRow, NicQueues, SoftirqSample, SoftnetRow};

flat!(PsiSample, OwnSample, CpuTimes, CpuSchedstat, CgroupIo, SoftnetRow, Proto, SockState);
flat!(SockTimer, TcpInfo, FlowEvents, CgroupWaits, LineTime, Space);

owns!(CpuSample { cpus, nodes, isolated } flat { total, ctxt, procs_running, procs_blocked, user_hz });
owns!(MemorySample { names, values } flat {});
owns!(ProcessesSample { blocked } flat { total, unread });
owns!(BlockedTask { comm, wchan } flat { task });
owns!(SchedSample { cpus, threads } flat { load, tasks, unread_threads });
owns!(ThreadSched { comm, allowed, cgroup } flat {
    task, state, run_ns, run_delay_ns, slices, still_ms, last_cpu, nice, policy
});
owns!(NetCountersSample { spaces } flat { tcp_mem, tcp_max_orphans });
owns!(NetnsCounters { names, values } flat { netns });
owns!(CgroupsSample { groups } flat { unread });
owns!(CgroupRow { path, mount, io } flat {
    id, cpu, memory_bytes, memory_limit_bytes, memory_high_bytes, oom_kills, memory_failures,
    pids, psi_cpu, psi_io, psi_memory
});

owns!(LimitsSample { processes } flat { pid_max, threads_max, counts_files });
owns!(OpenFiles { comm } flat { pid, open, soft, hard });

owns!(KmsgSample { kills } flat { readable, lost });
owns!(OomKilled { comm, cgroup } flat { at, pid, rss_kb });

owns!(FilesystemsSample { filesystems } flat { left_out });
owns!(FilesystemRow { mount, kind, source, mount_options, options } flat {
    dev, space, errno, waits_since
} same by |a, b| a == b);

owns!(DisksSample { disks } flat { bad_rows });
owns!(DiskRow { name, attrs } flat { id, stat, inflight });
owns!(DiskAttrs {
    scheduler, write_cache, model, state, dm_name, dm_kind, md, backing_file, parent, slaves, holders
} flat {
    class, rotational, size_sectors, nr_requests, max_sectors_kb, max_hw_sectors_kb, wbt_lat_usec,
    read_ahead_kb, hw_queues, queue_depth
} same by |a, b| a == b);
owns!(MdAttrs { level, sync_action } flat { raid_disks, sync_speed_kb, degraded });

owns!(SoftirqSample { vectors, vector_cpus, softnet, irqs, irq_cpus, nics } flat {});
owns!(IrqRow { irq, name, counts } flat {});
owns!(NicQueues { dev, operstate, rps_cpus, irqs } flat {
    physical, speed_mbit, numa_node, rx_queues, tx_queues
} same by |a, b| a == b);

owns!(NetdevSample { spaces } flat {});
owns!(NetdevSpace { label, links, qdiscs, holes } flat {
    netns, member, span, conntrack
} same by |a, b| (a.netns, a.span) == (b.netns, b.span));
owns!(LinkRow { attrs, exceeded } flat { ifindex, stats });
owns!(LinkAttrs { name, kind, qdisc } flat {
    physical, up, mtu, txqlen, tx_queues, rx_queues, speed_mbit, channels
} same by |a, b| a == b);
owns!(QdiscRow { kind } flat {
    ifindex, handle, parent, class, bytes, packets, qlen, backlog, drops, requeues, overlimits, shape
});

owns!(SocketsSample { spaces, unread } flat {});
owns!(UnreadNetns { label, reason } flat { netns });
owns!(NetnsTable { label, inet, unix, owners, cgroups, routes, holes } flat {
    netns, member, span, source, bad_rows, ports
} same by |a, b| (a.netns, a.span) == (b.netns, b.span));
owns!(Owner { comm } flat { inode, pid, life, holders });
owns!(RouteAnswer { outcome } flat { cookie });
owns!(InetRows {
    cookie, proto, state, timer, retrans, expires_ms, rqueue, wqueue, local, remote, lport, rport,
    ifindex, uid, inode, cgroup, skmem, skmem_words, info, infos
} flat {});
owns!(UnixRows { cookie, inode, kind, state, rqueue, wqueue, peer, name_end, names } flat {});

impl Heap for RouteOutcome {
    fn heap(&self, _: Option<&Self>) -> usize {
        match self {
            Self::Via { ifindex: _, dev, hop: _ } => dev.heap(None),
            Self::Errno(_) => 0,
        }
    }
}

owns!(RunqBpfSample { cpus, long_waits, cgroups } flat { tier, long_unlisted, long_own, missed });
owns!(RunqCpu { waits } flat {
    cpu, switches, wait_ns, discarded, slept, unsure, collided, long, cgroup_full
});
owns!(LongWait { comm } flat { at, cpu, wait_ns, pid, tid, cgroup });
owns!(IrqBpfSample { cpus } flat { softirqs, hardirqs, missed });
owns!(IrqCpu { vectors, hard, lines } flat { cpu, hard_count, hard_ns, unpaired, table_full });
owns!(VectorTime { hist } flat { vector, count, ns, max_ns, passed, unsure });
owns!(BlockBpfSample { disks } flat {
    unknown, collided, stamps_issue, splits, requeues, missed
});
owns!(BlockDisk { ops } flat { id, requeues, splits, errors, no_issue, no_start, discarded });
owns!(BlockOp { sizes, queued, device, total } flat { op, count, bytes });
owns!(NetBpfSample { reasons, places, flows } flat {
    retransmits, retransmits_failed, resets_sent, resets_received, rcvqueue_full, drops, place_full,
    unlisted, limited, ring_full, missed
});
owns!(DropReason { name } flat { reason, count });
owns!(DropPlace { place } flat { reason, count });

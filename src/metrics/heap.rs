//! Sizes of what follows from the samples.

use super::blocked::Sleeper;
use super::bpf::block::{BlockDiskFigures, BlockOpFigures};
use super::bpf::irq::{IrqCpuFigures, LineFigures, VectorFigures};
use super::bpf::net::{PlaceFigures, ReasonFigures};
use super::bpf::runq::{CgroupWaited, CpuWaits, TaskWaits};
use super::bpf::{BlockFigures, EventKey, EventRow, IrqFigures, NetFigures, RunqFigures};
use super::cgroups::{CgroupFigures, CgroupIoFigures};
use super::cpu::{CpuFigures, CpuShare, SchedFigures, SoftirqFigures, SoftnetFigures, ThreadWait};
use super::disks::DiskFigures;
use super::disks::caps::Cap;
use super::filesystems::Turned;
use super::netdev::{LinkFigures, QdiscFigures, SpaceFigures as NetdevFigures};
use super::origins::{OriginFigures, SourceFigures};
use super::process_io::{ProcessBytes, ProcessIoFigures};
use super::sockets::{
    Closer, Closing, Dropper, Fat, Group, PeerLoss, PortUse, SocketFigures, SocketTotals,
    SpaceFigures, Still, Suspect, SynQueue, Talker, TimerEvent, UnixFull,
};
use super::waits::{Part, Place, ThreadFigures, WaitFigures};
use super::{Derived, NetPair};
use crate::sample::heap::{Heap, block, flat, keyed, owns};

flat!(CpuShare, SoftnetFigures, CgroupIoFigures, Cap, CpuWaits, CgroupWaited, VectorFigures);
flat!(LineFigures, SocketTotals, PeerLoss, TimerEvent, std::net::IpAddr);

impl Heap for Derived {
    fn heap(&self, before: Option<&Self>) -> usize {
        let Self {
            seq: _,
            mono: _,
            wall: _,
            disks,
            cpu,
            softirq,
            sched,
            blocked,
            psi: _,
            cgroups,
            process_io,
            turned,
            sockets,
            netdev,
            net,
            runq_bpf,
            irq_bpf,
            block_bpf,
            net_bpf,
            events,
            waits,
            own: _,
        } = self;
        let b = before;
        let rows = events.as_ref().map_or(0, |now| {
            let old = b.and_then(|b| b.events.as_deref());
            block(16 + size_of::<Vec<()>>()) + keyed(now, old, |r| r.id)
        });
        rows + disks.heap(b.map(|b| &b.disks))
            + cpu.heap(b.map(|b| &b.cpu))
            + softirq.heap(b.map(|b| &b.softirq))
            + sched.heap(b.map(|b| &b.sched))
            + blocked.heap(b.map(|b| &b.blocked))
            + cgroups.heap(b.map(|b| &b.cgroups))
            + process_io.heap(b.map(|b| &b.process_io))
            + turned.heap(b.map(|b| &b.turned))
            + sockets.heap(b.map(|b| &b.sockets))
            + netdev.heap(b.map(|b| &b.netdev))
            + net.heap(b.map(|b| &b.net))
            + runq_bpf.heap(b.map(|b| &b.runq_bpf))
            + irq_bpf.heap(b.map(|b| &b.irq_bpf))
            + block_bpf.heap(b.map(|b| &b.block_bpf))
            + net_bpf.heap(b.map(|b| &b.net_bpf))
            + waits.heap(b.map(|b| &b.waits))
    }
    /// What grew as it was made.
    fn settle(&mut self, _: Option<&Self>) {
        self.cpu.settle(None);
        self.sched.settle(None);
        self.cgroups.settle(None);
        self.process_io.settle(None);
        self.netdev.settle(None);
        self.runq_bpf.settle(None);
        self.irq_bpf.settle(None);
        self.block_bpf.settle(None);
        self.net_bpf.settle(None);
        self.waits.settle(None);
    }
}

// Both readings of a pair are in the samples of the history.
flat!(NetPair);

owns!(CpuFigures { cpus } flat { dt, total, ctxt_s, running, blocked });
owns!(SoftirqFigures { vectors, per_cpu, softnet } flat { dt });
owns!(SchedFigures { threads, cpus } flat { load, unread_threads });
owns!(ThreadWait { thread } flat { dt, run_ns, run_delay_ns, slices });
owns!(Sleeper { task } flat { asleep, seen });
owns!(CgroupFigures { path, mount, io } flat {
    id, dt, cpu, memory_failures_s, pids_refused_s, psi_cpu, psi_io, psi_memory, psi_memory_full
});
owns!(DiskFigures { name, attrs, cap } flat {
    id, dt, r_s, w_s, d_s, f_s, rkb_s, wkb_s, rrqm_s, wrqm_s, r_await, w_await, f_await, rareq_kb,
    wareq_kb, await_ms, aqu_sz, aqu_sz_weighted, util, in_flight, completed, io_ticks, unaccounted,
    untimed,
    baseline, r_baseline, w_baseline, stuck_for
});
owns!(ProcessIoFigures { processes } flat { unread, denied });
owns!(ProcessBytes { comm, cgroup, open } flat { task, dt, bytes });
owns!(Turned { mount } flat { dev, at });
owns!(NetdevFigures { label, links, qdiscs, origins } flat { netns, member, dt, conntrack });
owns!(OriginFigures { sources } flat { selection, read, addresses, target, unread });
owns!(SourceFigures { inodes, holders } flat { addr, entries, target, asked, open });
owns!(LinkFigures { attrs, exceeded_s } flat {
    ifindex, rx_pps, tx_pps, rx_bytes_s, tx_bytes_s, rx_errors_s, tx_errors_s, rx_dropped_s,
    tx_dropped_s, rx_lost_s, rx_crc_s, rx_frame_s, carrier_changes
});
owns!(QdiscFigures { kind } flat {
    ifindex, handle, parent, class, shape, bytes_s, packets_s, drops_s, requeues_s, overlimits_s,
    overlimits_ever, qlen, backlog
});

owns!(Talker { owner } flat { netns, end, rx, tx });
owns!(WaitFigures { threads, asked, queues, gone } flat { everyone, unread });
owns!(ThreadFigures { comm, cgroup, memory_cgroup, pids_cgroup, parts } flat { task, dt, samples });
owns!(Part { place } flat { class, time });
owns!(Place { wchan, syscall, file, holder } flat { inode, mutex, may_be_condition });
owns!(RunqFigures { waits, cpus, tasks, cgroups } flat {
    tier, dt, latency, switches_s, waiting, long, long_unlisted, coverage, slept
});
owns!(TaskWaits { comm } flat { pid, tid, cgroup, cpu, count, max_ns, sum_ns, last });
owns!(IrqFigures { cpus, lines } flat { dt, softirqs, hardirqs, coverage });
owns!(IrqCpuFigures { vectors } flat { cpu, soft_pct, hard });
owns!(BlockFigures { disks } flat { dt, coverage });
owns!(BlockDiskFigures { ops } flat { id, requeues_s, splits_s, errors_s, no_issue });
owns!(BlockOpFigures { sizes, queued, device, total } flat { op, count, rate, bytes_s });
owns!(NetFigures { reasons, places, flows, connectors, bad_senders } flat {
    dt, retransmits_s, retransmits_failed_s, resets_sent_s, resets_received_s, rcvqueue_full_s,
    drops_s, unlisted, connects_unlisted, bad_packets, bad_unlisted, unrecorded, coverage
});
owns!(ReasonFigures { name } flat { reason, count, per_s });
owns!(PlaceFigures { name, place } flat { reason, count, per_s });
owns!(EventRow { key, reason, owner } flat {
    id, total, per_s, first, last, socket, state, detail, cpu
});

impl Heap for EventKey {
    fn heap(&self, before: Option<&Self>) -> usize {
        match (self, before) {
            (Self::Flow { .. }, _) => 0,
            (Self::Drop { place, .. }, Some(Self::Drop { place: old, .. })) => {
                place.heap(Some(old))
            }
            (Self::Drop { place, .. }, _) => place.heap(None),
        }
    }
}

impl Heap for SocketFigures {
    fn heap(&self, before: Option<&Self>) -> usize {
        let Self { suspects, totals, spaces, droppers, losses, talkers, still } = self;
        keyed(suspects, before.map(|b| &b.suspects), |s| s.id)
            + keyed(spaces, before.map(|b| &b.spaces), |s| s.netns)
            + totals.heap(None)
            + droppers.heap(None)
            + losses.heap(None)
            + talkers.heap(None)
            + still.heap(None)
    }
}
owns!(Suspect { owner, route, events } flat {
    id, proto, local, remote, state, timer, retrans, expires_ms, rqueue, wqueue, inode, uid, cgroup,
    skmem, info, inbound, first_seen, seen_at, troubled_at, info_at, acked_flat_since,
    segs_out_flat_since, persist_since, zero_window_since, unread_since, rwnd_limited, drops, flow,
    missing_since
});
owns!(Still { owner, unread } flat {
    netns, local, waiting, bytes, late, longest, connections, since, at, worked, unsent
});
owns!(Dropper { owner } flat { id, proto, state, local, remote, skmem, drops });
owns!(SpaceFigures { label, port_uses, syn_queues, closing, fattest, unix_full, groups } flat {
    netns, member, ports, stuck_orphans, groups_left_out
});
owns!(Group { owner } flat { netns, end, connections, moved, inode });
owns!(PortUse { sockets, inodes, owners } flat { local, remote, used, time_wait });
owns!(SynQueue { sources } flat { port, waiting, listener, distinct });
owns!(Closing { sampled } flat { count, steady_since, at_first });
owns!(Closer { owner } flat { id, local, remote, age, last_sent });
owns!(Fat { owner } flat { id, local, remote, state, r, w });
owns!(UnixFull { path, owner } flat { inode, waiting, backlog });

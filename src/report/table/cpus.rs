//! `cpus`: what each CPU did, from `/proc/stat`, `/proc/schedstat` and `softnet_stat`, and its
//! interrupts by eBPF.

use super::{Moment, OF_TICK, Out, Rows, Table, columns};
use crate::metrics::cpu::{CpuShare, SoftnetFigures};
use crate::sample::subject::CpuId;

pub(super) static TABLE: Table = Table {
    name: "cpus",
    about: "what each CPU did: us, sy, id, wa, hi, si and st add up to 100%",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(rows),
};

struct Cpu<'a> {
    m: &'a Moment<'a>,
    id: CpuId,
    share: Option<CpuShare>,
    softnet: Option<&'a SoftnetFigures>,
}

fn rows(m: &Moment<'_>, out: &mut Out<'_>) {
    let d = m.now.derived;
    let cpus: Vec<CpuId> = match (&d.cpu, &d.softirq) {
        (Some(c), _) => c.cpus.iter().map(|c| c.0).collect(),
        (None, Some(s)) => s.per_cpu.iter().map(|c| c.0).collect(),
        (None, None) => Vec::new(),
    };
    for cpu in cpus {
        let row = Cpu {
            m,
            id: cpu,
            share: d.cpu.as_ref().and_then(|c| c.cpu(cpu)),
            softnet: d.softirq.as_ref().and_then(|s| s.softnet(cpu)),
        };
        out.row(|line| put(line, &row));
    }
}

columns! {
    |r: &Cpu<'_>|
    cpu: integer, "CPU number" = r.id.0;
    busy_pct: float ("%"), "all but idle and waiting for I/O" = r.share.map(CpuShare::busy);
    us_pct: float ("%"), "user, nice included" = r.share.map(|s| s.user);
    ni_pct: float ("%"), "the part of us that niced tasks used" = r.share.map(|s| s.nice);
    sy_pct: float ("%"), "kernel" = r.share.map(|s| s.system);
    id_pct: float ("%"), "idle" = r.share.map(|s| s.idle);
    wa_pct: float ("%"), "idle, I/O pending" = r.share.map(|s| s.iowait);
    hi_pct: float ("%"), "hardware interrupts, counted in clock ticks"
        = r.share.map(|s| s.irq);
    si_pct: float ("%"), "software interrupts, counted in clock ticks" = r.share.map(|s| s.softirq);
    st_pct: float ("%"), "taken by the hypervisor" = r.share.map(|s| s.steal);
    runq: float, "threads that wait for it, on average"
        = r.m.now.derived.sched.as_ref().and_then(|s| s.waiting_for(r.id));
    softirq_pct: float ("%"), "software interrupts as measured (eBPF)"
        = r.m.now.derived.irq_bpf.as_ref().and_then(|b| b.soft_pct(r.id));
    irq_pct: float ("%"), "hardware interrupt handlers as measured (eBPF)"
        = r.m.now.derived.irq_bpf.as_ref().and_then(|b| b.hard_pct(r.id));
    pkt_per_s: float ("1/s"), "packets processed by NET_RX" = r.softnet.map(|s| s.processed_s);
    drop_per_s: float ("1/s"), "packets dropped at the backlog" = r.softnet.map(|s| s.dropped_s);
    squeeze_per_s: float ("1/s"), "times the softirq budget ran out"
        = r.softnet.map(|s| s.squeeze_s);
    rps_per_s: float ("1/s"), "interrupts by which other CPUs hand it packets (RPS)"
        = r.softnet.and_then(|s| s.rps_s);
    backlog: integer, "packets in its backlog now" = r.softnet.and_then(|s| s.backlog);
}

//! `host`: the vitals of each tick.

use super::{Moment, OF_TICK, Rows, Table, columns};
use crate::diagnose::Severity;
use crate::metrics::cpu::CpuShare;
use crate::metrics::disks::DiskFigures;
use crate::metrics::sockets::SocketTotals;
use crate::view::vitals;

pub(super) static TABLE: Table = Table {
    name: "host",
    about: "vitals of the host, a row for each tick",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(|m, out| out.row(|line| put(line, m))),
};

columns! {
    |m: &Moment<'_>|
    gap_ticks: integer, "ticks that are missing before this one"
        = m.now.tick.gap.map_or(0, |g| g.ticks);
    busy_pct: float ("%"), "all CPUs: all but idle and waiting for I/O"
        = m.now.derived.cpu.as_ref().and_then(|c| c.total).map(CpuShare::busy);
    runq: float, "threads that wait for a CPU, on average"
        = m.now.derived.sched.as_ref().and_then(|s| s.waiting());
    load_1m: float, "load average of the last minute" = load(m, 0);
    load_5m: float, "load average of the last 5 minutes" = load(m, 1);
    load_15m: float, "load average of the last 15 minutes" = load(m, 2);
    blocked: integer, "tasks that are blocked on I/O now"
        = m.now.derived.cpu.as_ref().and_then(|c| c.blocked);
    switches_per_s: float ("1/s"), "context switches"
        = m.now.derived.cpu.as_ref().and_then(|c| c.ctxt_s);
    psi_cpu_pct: float ("%"), "time in which a task waited for a CPU"
        = m.now.derived.psi.and_then(|p| p.cpu_some);
    psi_io_pct: float ("%"), "time in which a task waited for I/O"
        = m.now.derived.psi.and_then(|p| p.io_some);
    psi_io_full_pct: float ("%"), "time in which all tasks waited for I/O"
        = m.now.derived.psi.and_then(|p| p.io_full);
    psi_mem_pct: float ("%"), "time in which a task waited for memory"
        = m.now.derived.psi.and_then(|p| p.memory_some);
    psi_mem_full_pct: float ("%"), "time in which all tasks waited for memory"
        = m.now.derived.psi.and_then(|p| p.memory_full);
    mem_pct: float ("%"), "memory that the kernel cannot give away without swapping"
        = vitals::memory_used(|name| memory(m, name)).map(|(pct, _)| pct);
    mem_total_bytes: integer ("bytes"), "memory of the host" = kb(m, "meminfo.MemTotal");
    mem_available_bytes: integer ("bytes"), "memory that can be given away without swapping"
        = kb(m, "meminfo.MemAvailable");
    swap_bytes: integer ("bytes"), "memory in swap"
        = kb(m, "meminfo.SwapTotal").zip(kb(m, "meminfo.SwapFree")).map(|(t, f)| t.saturating_sub(f));
    net_rx_bytes_per_s: float ("bytes/s"), "received by NICs; without one, by all devices but lo"
        = network(m).map(|n| n.0);
    net_tx_bytes_per_s: float ("bytes/s"), "sent by them" = network(m).map(|n| n.1);
    disk_r_bytes_per_s: float ("bytes/s"), "read from disks; partitions and layers are not counted again"
        = disks(m, |d| d.rkb_s);
    disk_w_bytes_per_s: float ("bytes/s"), "written to them" = disks(m, |d| d.wkb_s);
    tcp: integer, "TCP sockets of all namespaces, in any state" = sockets(m, |t| t.tcp);
    tcp_estab: integer, "of these, ESTAB" = sockets(m, |t| t.established);
    tcp_time_wait: integer, "of these, TIME-WAIT" = sockets(m, |t| t.time_wait);
    tcp_sending: integer, "of these, with bytes in the send queue" = sockets(m, |t| t.sending);
    udp: integer, "UDP sockets of all namespaces" = sockets(m, |t| t.udp);
    unix: integer, "UNIX sockets of all namespaces" = sockets(m, |t| t.unix);
    retr_per_s: float ("1/s"), "TCP segments that were sent again"
        = vitals::retransmits(m.now.derived);
    findings: integer, "active findings" = m.now.findings.all().count();
    severity: text, "severity of the worst: info, warn or crit; missing without one"
        = m.now.findings.worst().map(Severity::name);
    self_cpu_pct: float ("% of a core"), "what the recorder itself used in the last 10 s"
        = m.now.derived.own.map(|o| o.cpu_pct);
    self_rss_bytes: integer ("bytes"), "its resident memory"
        = m.now.derived.own.and_then(|o| o.rss_bytes);
}

fn load(m: &Moment<'_>, i: usize) -> Option<f64> {
    m.now.derived.sched.as_ref()?.load?.get(i).copied()
}

fn memory(m: &Moment<'_>, name: &str) -> Option<u64> {
    m.now.tick.samples.memory.as_ref()?.data.get(name)
}

/// Bytes of what the kernel counts in units of 1024.
fn kb(m: &Moment<'_>, name: &str) -> Option<u64> {
    memory(m, name)?.checked_mul(1024)
}

/// Bytes per second of the host's own namespace.
fn network(m: &Moment<'_>) -> Option<(f64, f64)> {
    let own = m.run.host().netns?;
    let spaces = m.now.derived.netdev.as_ref()?;
    Some(vitals::moved(&spaces.iter().find(|s| s.netns == own)?.links))
}

fn disks(m: &Moment<'_>, kb_s: fn(&DiskFigures) -> f64) -> Option<f64> {
    let all = m.now.derived.disks.as_ref()?.iter().filter(|d| vitals::is_real(d));
    all.map(|d| d.untimed.is_none().then(|| 1024.0 * kb_s(d))).sum()
}

/// As of the last reading of each namespace; `None` if none was read.
fn sockets(m: &Moment<'_>, of: fn(&SocketTotals) -> u32) -> Option<u64> {
    let totals = &m.now.derived.sockets.totals;
    (!totals.is_empty()).then(|| totals.iter().map(|t| u64::from(of(t))).sum())
}

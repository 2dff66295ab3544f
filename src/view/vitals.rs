//! The vitals: what a look at any box begins with, in one line or two, on every screen.

use std::fmt::Write as _;

use super::context::Cx;
use super::series;
use super::units;
use super::vm::{Line, Piece, Tone};
use crate::metrics::Derived;
use crate::metrics::cpu::CpuShare;
use crate::metrics::disks::DiskFigures;
use crate::metrics::netdev::LinkFigures;
use crate::sample::subject::CpuId;

/// Columns of the chart of the last minute.
const CHART: usize = 8;
/// From here on a figure is written in bold, %.
const HIGH: f64 = 90.0;
/// The same for pressure, % of the time.
const PRESSED: f64 = 25.0;

/// % of the time that a CPU does something.
pub(super) fn busy(s: CpuShare) -> f64 {
    s.busy()
}

/// The busiest CPU.
pub(super) fn busiest(cx: &Cx<'_>) -> Option<(CpuId, f64)> {
    let all = cx.cpu?.value.cpus.iter().map(|(id, s)| (*id, busy(*s)));
    all.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
}

/// Threads that wait for a CPU, on average.
pub(super) fn waiting(cx: &Cx<'_>) -> Option<f64> {
    cx.sched?.value.waiting()
}

/// The same of one CPU; a thread waits for the one that it ran on last.
pub(super) fn waiting_for(cx: &Cx<'_>, cpu: CpuId) -> Option<f64> {
    cx.sched?.value.waiting_for(cpu)
}

/// Memory in use, % of all: what the kernel says it cannot give away without swapping.
pub(super) fn memory(cx: &Cx<'_>) -> Option<(f64, u64)> {
    memory_used(|name| cx.memory(name))
}

/// Memory in use, % of all, and all of it in bytes, by these values of `/proc/meminfo`.
#[must_use]
pub fn memory_used(value: impl Fn(&str) -> Option<u64>) -> Option<(f64, u64)> {
    let total = value("meminfo.MemTotal")?;
    let free = value("meminfo.MemAvailable")?;
    let used = total.saturating_sub(free) as f64;
    crate::metrics::rate::ratio(100.0 * used, total as f64)
        .map(|pct| (pct, total.saturating_mul(1024)))
}

/// Bytes in swap.
pub(super) fn swap(cx: &Cx<'_>) -> Option<u64> {
    let total = cx.memory("meminfo.SwapTotal")?;
    Some(total.saturating_sub(cx.memory("meminfo.SwapFree")?).saturating_mul(1024))
}

/// TCP sockets of any state, in all namespaces.
pub(super) fn tcp(cx: &Cx<'_>) -> f64 {
    cx.suspects.totals.iter().map(|t| f64::from(t.tcp)).sum()
}

/// Neither a part of another one nor made of others, so that sums count nothing twice.
#[must_use]
pub fn is_real(d: &DiskFigures) -> bool {
    d.attrs.slaves.is_empty() && d.attrs.parent.is_none() && !d.name.starts_with("loop")
}

/// An entry: text, and whether it stands out.
type Item = (String, Tone);

fn item(text: String, stands_out: bool) -> Item {
    (text, if stands_out { Tone::Strong } else { Tone::Plain })
}

fn known(v: Option<f64>, write: impl Fn(f64) -> String) -> String {
    v.map_or_else(|| units::UNKNOWN.to_owned(), write)
}

/// The lines: one, or two where there is room.
pub(super) fn lines(cx: &Cx<'_>, w: u16, rows: u16) -> Vec<Line> {
    let (first, second) = (host(cx), traffic(cx));
    let mut line = Line::of(" cpu ", Tone::Dim);
    let total = |d: &Derived| d.cpu.as_ref()?.total.map(busy);
    if w >= 60 {
        let (levels, _) = series::spark(cx, CHART, 100.0, total);
        line.push(Piece::Spark(levels, Tone::Plain));
        line.add(" ", Tone::Plain);
    }
    let mut out = vec![joined(line, first, w)];
    if rows > 1 {
        out.push(joined(Line::of(" ", Tone::Plain), second, w));
    }
    out
}

/// As many entries as fit, in their order.
fn joined(mut line: Line, items: Vec<Item>, w: u16) -> Line {
    for (i, (text, tone)) in items.into_iter().enumerate() {
        let gap = if i == 0 { "" } else { "  " };
        if line.width() + gap.len() + text.chars().count() > usize::from(w) {
            continue;
        }
        line.add(gap, Tone::Plain);
        line.add(text, tone);
    }
    line
}

fn host(cx: &Cx<'_>) -> Vec<Item> {
    let all = cx.cpu.and_then(|c| c.value.total).map(busy);
    let mut cpu = known(all, |p| format!("{}%", units::pct(p)));
    let worst = busiest(cx).filter(|_| cx.cpu.is_some_and(|c| c.value.cpus.len() > 1));
    if let Some((id, p)) = worst {
        let _ = write!(cpu, " max {id} {}%", units::pct(p));
    }
    let runq = waiting(cx);
    let memory = memory(cx);
    let mut out = vec![
        item(cpu, worst.map_or(all, |w| Some(w.1)).is_some_and(|p| p >= HIGH)),
        item(
            format!("runq {}", known(runq, |n| format!("{n:.1}"))),
            runq.is_some_and(|n| n >= f64::from(cx.analysis.host().cpus)),
        ),
        item(
            match memory {
                Some((pct, total)) => {
                    format!("mem {}% of {}", units::pct(pct), units::bytes(total as f64))
                }
                None => format!("mem {}", units::UNKNOWN),
            },
            memory.is_some_and(|m| m.0 >= HIGH),
        ),
    ];
    let blocked = cx.cpu.and_then(|c| c.value.blocked);
    let text = blocked.map_or_else(|| units::UNKNOWN.to_owned(), |n| n.to_string());
    out.push(item(format!("blocked {text}"), blocked.is_some_and(|n| n > 0)));
    let psi = cx.psi();
    let pressure = |v: Option<f64>| known(v, |p| format!("{p:.0}"));
    let parts = [psi.cpu_some, psi.io_some, psi.memory_some];
    out.push(item(
        format!(
            "psi cpu {} io {} mem {}",
            pressure(parts[0]),
            pressure(parts[1]),
            pressure(parts[2])
        ),
        parts.into_iter().flatten().any(|p| p >= PRESSED),
    ));
    let swap = swap(cx);
    let text = known(swap.map(|b| b as f64), units::bytes);
    out.push(item(format!("swap {text}"), swap.is_some_and(|b| b > 0)));
    out
}

/// Bytes per second that NICs receive and send; without NICs, all devices but `lo`.
#[must_use]
pub fn moved(links: &[LinkFigures]) -> (f64, f64) {
    let any = links.iter().any(|l| l.attrs.physical);
    let counts = |l: &&LinkFigures| if any { l.attrs.physical } else { l.attrs.name != "lo" };
    let all = links.iter().filter(counts);
    all.fold((0.0, 0.0), |(rx, tx), l| (rx + l.rx_bytes_s, tx + l.tx_bytes_s))
}

/// TCP segments that were sent again, per second.
#[must_use]
pub fn retransmits(d: &Derived) -> Option<f64> {
    let events = d.net_bpf.as_ref().and_then(|n| n.retransmits_s);
    events.or_else(|| d.net.iter().filter_map(|n| n.rate("TcpRetransSegs")).reduce(|a, b| a + b))
}

fn traffic(cx: &Cx<'_>) -> Vec<Item> {
    let (rx, tx) = cx.network().unzip();
    let bytes = |v: Option<f64>| known(v, |b| format!("{}/s", units::bytes(b)));
    let mut out = vec![item(format!("net rx {} tx {}", bytes(rx), bytes(tx)), false)];
    let disks = cx.disks.map(|d| d.value);
    let sum = |f: fn(&DiskFigures) -> f64| {
        disks.map(|all| all.iter().filter(|d| is_real(d)).map(|d| 1024.0 * f(d)).sum::<f64>())
    };
    let (r, w) = (sum(|d| d.rkb_s), sum(|d| d.wkb_s));
    out.push(item(format!("disk r {} w {}", bytes(r), bytes(w)), false));
    out.push(item(format!("tcp {}", units::count(tcp(cx))), false));
    let retrans = cx.net_bpf.and_then(|n| n.value.retransmits_s);
    let retrans = retrans.or_else(|| retransmits(cx.now.derived));
    let text = known(retrans, |n| format!("{}/s", units::count(n)));
    out.push(item(format!("retr {text}"), retrans.is_some_and(|r| r >= 1.0)));
    let ctxt = cx.cpu.and_then(|c| c.value.ctxt_s);
    let text = known(ctxt, |n| format!("{}/s", units::count(n)));
    out.push(item(format!("switches {text}"), false));
    out
}

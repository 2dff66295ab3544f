//! Individual CPUs (`mpstat`, `sar -P`), network devices (`sar -n`) and paging (`sar -B`, `-W`).
//!
//! These tables may cover a whole day: a condition that is over is info, with its time.

use std::collections::{BTreeMap, BTreeSet};

use super::super::rules::common::text::{rate, sh};
use super::super::{Evidence, Fire, RuledOut, Severity};
use super::{Judged, some};
use crate::sample::subject::{CpuId, NetnsId, Subject};
use crate::sample::told::{CpuRow, LinkRow, Paging};

/// Softirq time of a CPU, %, and as a multiple of the median of the others.
const SOFT: f64 = 60.0;
const TIMES: f64 = 4.0;
/// % of the link speed.
const SPEED: f64 = 90.0;
/// Packets per second lost because the ring is full.
const RING: f64 = 10.0;
/// Errors as a fraction of all packets, and per second.
const ERRORS: f64 = 0.01;
const FEW: f64 = 1.0;
/// Pages per second: scanned by direct reclaim, swapped in and out; major faults per second.
const SCANNED: f64 = 1000.0;
const SWAPPED: f64 = 100.0;
const FAULTS: f64 = 500.0;
/// Maximum number of device findings.
const MAX_LINKS: usize = 8;

/// The intervals of a table in which a condition is true.
struct Held<'a> {
    n: usize,
    of: usize,
    first: &'a str,
    last: &'a str,
    /// Whether it is true in the last interval.
    now: bool,
}

impl Held<'_> {
    /// A condition that is over is info.
    fn severity(&self, worst: Severity) -> Severity {
        if self.now || 2 * self.n >= self.of { worst } else { Severity::Info }
    }
    fn text(&self) -> String {
        let n = some(self.of as u64, "interval");
        match (self.n, self.first, self.last) {
            (_, "average", _) => "on average".to_owned(),
            (1, at, _) => format!("in 1 of {n}, {at}"),
            (k, a, b) => format!("in {k} of {n}, {a} to {b}"),
        }
    }
}

fn held<'a, T>(
    rows: &[&'a T],
    time: impl Fn(&'a T) -> &'a str,
    bad: impl Fn(&T) -> bool,
) -> Option<Held<'a>> {
    let hits: Vec<&'a T> = rows.iter().copied().filter(|r| bad(r)).collect();
    Some(Held {
        n: hits.len(),
        of: rows.len(),
        first: time(hits.first().copied()?),
        last: time(hits.last().copied()?),
        now: rows.last().is_some_and(|r| bad(r)),
    })
}

/// One CPU in softirqs while the others are not.
pub(super) fn cpus(rows: &[CpuRow], out: &mut Judged) {
    let mut at: BTreeMap<usize, Vec<&CpuRow>> = BTreeMap::new();
    for r in rows {
        at.entry(r.at).or_default().push(r);
    }
    let last = at.values().next_back();
    if let Some(busy) = last.and_then(|l| l.iter().min_by(|a, b| a.idle.total_cmp(&b.idle))) {
        out.figures.push(format!(
            "CPUs: {}; busiest is CPU {} with {:.0}% idle",
            last.map_or(0, Vec::len),
            busy.cpu,
            busy.idle
        ));
    }
    // The CPU with the most softirq time of each interval, if it stands out.
    let hot: Vec<(&CpuRow, f64)> = at
        .values()
        .filter_map(|l| {
            let top = l.iter().max_by(|a, b| soft(a).total_cmp(&soft(b)))?;
            let mut rest: Vec<f64> =
                l.iter().filter(|r| r.cpu != top.cpu).map(|r| soft(r)).collect();
            rest.sort_by(f64::total_cmp);
            let others = rest.get(rest.len() / 2).copied()?;
            (soft(top) >= SOFT && soft(top) >= TIMES * others).then_some((*top, others))
        })
        .collect();
    let Some((worst, others)) = hot.iter().max_by(|a, b| soft(a.0).total_cmp(&soft(b.0))) else {
        return;
    };
    let newest = at.keys().next_back().copied();
    let held = Held {
        n: hot.len(),
        of: at.len(),
        first: hot.first().map_or("", |h| h.0.time.as_str()),
        last: hot.last().map_or("", |h| h.0.time.as_str()),
        now: hot.last().is_some_and(|h| Some(h.0.at) == newest),
    };
    let v = soft(worst);
    let mut f = Fire::new(
        held.severity(Severity::Warn),
        format!("CPU {} is {v:.0}% in softirqs, the others {others:.0}%", worst.cpu),
    );
    let text = format!("%soft {v:.1}, idle {:.1}%, {}", worst.idle, held.text());
    f.evidence.push(Evidence::new("softirq", v, "%", text).over(SOFT));
    let text = format!("the median of the other CPUs is {others:.1}%");
    f.ruled_out.push(RuledOut::new("all-cpus-busy", text));
    f.missing.push("whether they are network softirqs (/proc/softirqs)".to_owned());
    f.next.push("cat /proc/softirqs; sleep 5; cat /proc/softirqs".to_owned());
    f.next.push("grep -E 'CPU|eth|en|virtio|mlx' /proc/interrupts | head -40".to_owned());
    out.fire("softirq-one-core", Subject::Cpu { cpu: CpuId(worst.cpu) }, f);
}

fn soft(r: &CpuRow) -> f64 {
    r.soft.unwrap_or(0.0)
}

/// Each network device.
pub(super) fn links(rows: &[LinkRow], out: &mut Judged) {
    let names: BTreeSet<&str> = rows.iter().map(|r| r.dev.as_str()).collect();
    if names.is_empty() {
        return;
    }
    let kb = |r: &LinkRow| r.kb.map_or(0.0, |(a, b)| a.max(b));
    if let Some(r) = rows.iter().max_by(|a, b| kb(a).total_cmp(&kb(b))).filter(|r| kb(r) > 0.0) {
        let (rx, tx) = r.kb.unwrap_or_default();
        out.figures.push(format!(
            "Network: {}; busiest: {} receives {rx:.0} kB/s, sends {tx:.0} kB/s ({})",
            some(names.len() as u64, "device"),
            r.dev,
            r.time
        ));
    }
    let mut found = 0;
    for dev in names {
        let rows: Vec<&LinkRow> = rows.iter().filter(|r| r.dev == dev).collect();
        let fires = [speed(dev, &rows), ring(dev, &rows), errors(dev, &rows)];
        for (rule, f) in fires.into_iter().flatten() {
            found += 1;
            if found <= MAX_LINKS {
                let subject = Subject::Link { dev: dev.to_owned(), netns: NetnsId(0) };
                out.fire(rule, subject, f);
            }
        }
    }
}

type Named = Option<(&'static str, Fire)>;

fn worst<'a>(rows: &[&'a LinkRow], of: impl Fn(&LinkRow) -> f64) -> Option<(&'a LinkRow, f64)> {
    rows.iter().map(|r| (*r, of(r))).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn speed(dev: &str, rows: &[&LinkRow]) -> Named {
    let util = |r: &LinkRow| r.util.unwrap_or(0.0);
    let held = held(rows, |r| &r.time, |r| util(r) >= SPEED)?;
    let (r, v) = worst(rows, util)?;
    let mut f = Fire::new(
        held.severity(Severity::Warn),
        format!("{dev} runs at {v:.0}% of its link speed"),
    );
    let text = format!("%ifutil {v:.1} at {}, {}", r.time, held.text());
    f.evidence.push(Evidence::new("util", v, "%", text).over(SPEED));
    f.missing.push("which traffic this is".to_owned());
    f.next.push(format!("ip -s -s link show {}; tc -s qdisc show dev {}", sh(dev), sh(dev)));
    f.next.push("ss -tinmoe".to_owned());
    Some(("nic-saturated", f))
}

fn ring(dev: &str, rows: &[&LinkRow]) -> Named {
    let lost = |r: &LinkRow| r.fifo.unwrap_or(0.0);
    let held = held(rows, |r| &r.time, |r| lost(r) >= RING)?;
    let (r, v) = worst(rows, lost)?;
    let mut f = Fire::new(
        held.severity(Severity::Warn),
        format!("{dev} loses {} received packets/s: its ring is full", rate(v)),
    );
    let text = format!("rxfifo {}/s at {}, {}", rate(v), r.time, held.text());
    f.evidence.push(Evidence::new("rxfifo", v, "/s", text).over(RING));
    f.missing.push("whether the CPU that takes its interrupts is busy".to_owned());
    f.next.push(format!(
        "ethtool -g {}; ethtool -S {} | grep -iE 'drop|miss|fifo|no_buf'",
        sh(dev),
        sh(dev)
    ));
    f.next.push("mpstat -P ALL 1 3".to_owned());
    Some(("nic-rx-drop", f))
}

fn errors(dev: &str, rows: &[&LinkRow]) -> Named {
    let both = |p: Option<(f64, f64)>| p.map_or(0.0, |(a, b)| a + b);
    let bad = |r: &LinkRow| {
        let (n, packets) = (both(r.errors), both(r.packets));
        // Without a packet count the number of errors alone must be high.
        if r.packets.is_some() { n >= FEW && n >= ERRORS * packets } else { n >= RING }
    };
    let held = held(rows, |r| &r.time, bad)?;
    let (r, v) = worst(rows, |r| if bad(r) { both(r.errors) } else { 0.0 })?;
    let (rx, tx) = r.errors.unwrap_or_default();
    let share = r.packets.map(|p| both(Some(p))).filter(|n| *n > 0.0).map(|n| 100.0 * v / n);
    let of = share.map_or(String::new(), |s| format!(", {s:.1}% of its packets"));
    let mut f =
        Fire::new(held.severity(Severity::Warn), format!("{dev} counts {} errors/s{of}", rate(v)));
    let text = format!("rxerr {}/s, txerr {}/s at {}, {}", rate(rx), rate(tx), r.time, held.text());
    f.evidence.push(Evidence::new("errors", v, "/s", text).over(FEW));
    if let Some(fifo) = r.fifo {
        let text = format!("rxfifo {}/s", rate(fifo));
        f.ruled_out.push(RuledOut::new("nic-rx-drop", text));
    }
    f.missing.push("which errors: checksum, length, carrier".to_owned());
    f.next.push(format!("ip -s -s link show {}", sh(dev)));
    f.next.push(format!("ethtool -S {} | grep -iE 'err|crc|align'", sh(dev)));
    Some(("nic-errors", f))
}

fn time(r: &Paging) -> &str {
    &r.time
}

/// Direct reclaim, swapping and major faults as signs of short memory.
pub(super) fn paging(rows: &[Paging], out: &mut Judged) {
    let all: Vec<&Paging> = rows.iter().collect();
    let top = |of: fn(&Paging) -> Option<f64>| rows.iter().filter_map(of).reduce(f64::max);
    let (scans, faults) = (top(|r| r.scan_direct), top(|r| r.majflt));
    let (swap_in, swap_out) = (top(|r| r.swap.map(|s| s.0)), top(|r| r.swap.map(|s| s.1)));
    if rows.is_empty() {
        return;
    }
    let parts: Vec<String> = [
        ("direct reclaim", scans, " pages/s"),
        ("major faults", faults, "/s"),
        ("swapped in", swap_in, " pages/s"),
        ("swapped out", swap_out, " pages/s"),
    ]
    .iter()
    .filter_map(|(what, v, unit)| Some(format!("{what} {}{unit}", rate((*v)?))))
    .collect();
    out.figures.push(format!("Paging at most: {}", parts.join(", ")));
    let direct = |r: &Paging| r.scan_direct.is_some_and(|v| v >= SCANNED);
    let thrash = |r: &Paging| r.swap.is_some_and(|(i, o)| i >= SWAPPED && o >= SWAPPED);
    let faulty = |r: &Paging| r.majflt.is_some_and(|v| v >= FAULTS);
    let (held, severity, summary, evidence) = if let Some(h) = held(&all, time, thrash) {
        let (i, o) = (swap_in.unwrap_or(0.0), swap_out.unwrap_or(0.0));
        let text = format!("{} pages/s are swapped in while {} are swapped out", rate(i), rate(o));
        (h, Severity::Warn, text, Evidence::new("pswpin", i, "/s", String::new()).over(SWAPPED))
    } else if let Some(h) = held(&all, time, direct) {
        let v = scans.unwrap_or(0.0);
        let text = format!("direct reclaim: tasks scan {} pages/s", rate(v));
        (h, Severity::Warn, text, Evidence::new("pgscand", v, "/s", String::new()).over(SCANNED))
    } else if let Some(h) = held(&all, time, faulty) {
        let v = faults.unwrap_or(0.0);
        let text = format!("{} faults/s read from disk", rate(v));
        (h, Severity::Info, text, Evidence::new("majflt", v, "/s", String::new()).over(FAULTS))
    } else {
        return;
    };
    let mut f = Fire::new(held.severity(severity), summary);
    f.evidence
        .push(Evidence { text: format!("{}, {}", parts.join(", "), held.text()), ..evidence });
    match scans {
        Some(v) if v < SCANNED => {
            f.ruled_out.push(RuledOut::new("direct-reclaim", format!("pgscand {}/s", rate(v))));
        }
        Some(_) => {}
        None => f.missing.push("whether tasks have to reclaim memory (sar -B)".to_owned()),
    }
    f.missing.push("how long tasks wait, and in which cgroup; a cold cache faults too".to_owned());
    f.next.push("cat /proc/pressure/memory; free -m".to_owned());
    f.next.push("grep -E 'workingset_refault|allocstall|pgscan_direct ' /proc/vmstat".to_owned());
    out.fire("mem-stall", Subject::Host, f);
}

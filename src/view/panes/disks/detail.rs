//! A disk: its stack, its queue over time, its settings, what uses it.

use super::{processes, requests};
use crate::metrics::disks::DiskFigures;
use crate::metrics::disks::caps::{Plateau, Tier};
use crate::sample::disks::DiskClass;
use crate::sample::subject::DiskId;
use crate::view::context::Cx;
use crate::view::lines::{chart, field, findings_on, gone};
use crate::view::panes::RowDetail;
use crate::view::panes::disks::{Disks, class_name, find, label};
use crate::view::state::RowKey;
use crate::view::vm::{Line, Piece, Tone};
use crate::view::{text, units};

impl RowDetail for Disks {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "Disk"
    }
    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let RowKey::Disk(id) = key else { return Vec::new() };
        lines(cx, id, w)
    }
    /// Who moved most bytes, if the disk has nearly all traffic of the host.
    fn process(&self, cx: &Cx<'_>, key: RowKey) -> Option<u32> {
        let RowKey::Disk(id) = key else { return None };
        super::processes::busiest(cx, id)
    }
}

fn lines(cx: &Cx<'_>, id: DiskId, w: u16) -> Vec<Line> {
    let Some(d) = find(cx, id) else { return gone("disk") };
    let mut head = Line::of(format!(" {} ", text::clean(&d.name)), Tone::Strong);
    head.add(format!("{id}  {}  {}", class_name(d.attrs.class), label(d)), Tone::Plain);
    if let Some(s) = d.attrs.size_sectors {
        head.add(format!("  {}", units::bytes(s as f64 * 512.0)), Tone::Plain);
    }
    let mut out = vec![head];
    out.extend(findings_on(cx, RowKey::Disk(id)));
    out.push(Line::new());
    out.extend(stack(cx, d));
    out.push(Line::new());
    let requests = requests::lines(cx, d, w);
    if !requests.is_empty() {
        out.extend(requests);
        out.push(Line::new());
    }
    out.push(chart(cx, "L (aqu-sz)", w, 1.0, units::count, move |f| f.disk(id).map(|d| d.aqu_sz)));
    out.push(chart(cx, "await", w, 0.000_1, units::secs, move |f| {
        f.disk(id)?.await_ms.map(|v| v / 1e3)
    }));
    out.push(chart(cx, "IOPS", w, 1.0, units::count, move |f| f.disk(id).map(DiskFigures::iops)));
    out.push(chart(cx, "bytes/s", w, 1024.0, units::bytes, move |f| {
        f.disk(id).map(|d| d.kb_s() * 1024.0)
    }));
    out.push(chart(cx, "util %", w, 100.0, units::pct, move |f| {
        f.disk(id).map(DiskFigures::util_shown)
    }));
    out.push(Line::new());
    out.extend(scatter(cx, id, w));
    out.extend(figures(d));
    out.extend(limits(d));
    out.extend(settings(d));
    out.extend(users(cx, id));
    out.extend(processes::lines(cx, id));
    out
}

/// The layers below and above, each with its queue and latency.
fn stack(cx: &Cx<'_>, d: &DiskFigures) -> Vec<Line> {
    let all = cx.disks.map_or(&[][..], |d| d.value);
    let by_name = |n: &str| all.iter().find(|d| &*d.name == n);
    let above = d.attrs.holders.iter().filter_map(|n| by_name(n));
    let parts = all.iter().filter(|p| p.attrs.parent.as_deref() == Some(&*d.name));
    let below = d
        .attrs
        .slaves
        .iter()
        .map(String::as_str)
        .chain(d.attrs.parent.as_deref())
        .filter_map(by_name);
    let mut out = Vec::new();
    for x in above.chain(parts) {
        out.push(layer("  above", x, Tone::Plain));
    }
    out.push(layer("  this", d, Tone::Strong));
    for x in below {
        out.push(layer("  below", x, Tone::Plain));
    }
    out
}

fn layer(what: &str, d: &DiskFigures, tone: Tone) -> Line {
    let mut line = Line::of(format!("{what:<10}"), Tone::Dim);
    let name = text::cut(&text::clean(&d.name), 14).into_owned();
    line.add(
        format!(
            "{name:<12} qlen {:<6} await {:<6} r/s {:<6} w/s {:<6} util {}%",
            units::count(d.aqu_sz),
            d.await_ms.map_or("-".to_owned(), units::millis),
            units::count(d.r_s),
            units::count(d.w_s),
            units::pct(d.util_shown())
        ),
        tone,
    );
    line
}

/// Throughput over queue length, one point per tick in memory: a flat top while the queue grows
/// is a limit, a rise along the queue is a device with room left.
fn scatter(cx: &Cx<'_>, id: DiskId, w: u16) -> Vec<Line> {
    const ROWS: usize = 6;
    /// L from 1/16 to 1024, in halves of an octave.
    const COLUMNS: usize = 28;
    if usize::from(w) < COLUMNS + 24 {
        return Vec::new();
    }
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut last = None;
    for m in cx.analysis.history().back_from(cx.now.tick.seq) {
        // Old figures of a late collector are left out; the same figures twice are one point.
        let Some(d) = m.derived.disk(id).filter(|d| d.aqu_sz > 0.0) else { continue };
        let point = (d.aqu_sz, d.iops());
        if last.replace(point) != Some(point) {
            points.push(point);
        }
    }
    let top = points.iter().fold(0.0, |a: f64, p| a.max(p.1));
    if points.len() < 3 || top <= 0.0 {
        return Vec::new();
    }
    let mut grid = [[0u32; COLUMNS]; ROWS];
    for (l, x) in points {
        let column = ((l.log2() + 4.0) * 2.0).clamp(0.0, COLUMNS as f64 - 1.0) as usize;
        let row = ((x / top * ROWS as f64) as usize).min(ROWS - 1);
        grid[row][column] += 1;
    }
    let shade = |n: u32| match n {
        0 => 0,
        1 => 1,
        2..=4 => 2,
        5..=15 => 3,
        _ => 4,
    };
    let mut out = Vec::new();
    for (i, row) in grid.iter().enumerate().rev() {
        let label = match i {
            0 => "0".to_owned(),
            i if i + 1 == ROWS => units::count(top),
            _ => String::new(),
        };
        let name = if i + 1 == ROWS { "IOPS over L" } else { "" };
        let mut line = field(name, format!("{label:>6} "));
        line.push(Piece::Heat(row.iter().map(|n| shade(*n)).collect(), Tone::Plain));
        out.push(line);
    }
    // L is 2^(column/2 - 4): 1/16 at column 0, 1 at 8, 16 at 16, 256 at 24.
    out.push(field("", format!("{:>6} {:<8}{:<8}{:<8}{}", "L", "0.06", "1", "16", "256")));
    out
}

fn figures(d: &DiskFigures) -> Vec<Line> {
    let ms = |v: Option<f64>| v.map_or("-".to_owned(), units::millis);
    let kb = |v: Option<f64>| v.map_or("-".to_owned(), |v| units::bytes(v * 1024.0));
    let mut out = vec![
        field(
            "reads",
            format!(
                "{}/s of {}  await {}  merged {}/s",
                units::count(d.r_s),
                kb(d.rareq_kb),
                ms(d.r_await),
                units::count(d.rrqm_s)
            ),
        ),
        field(
            "writes",
            format!(
                "{}/s of {}  await {}  merged {}/s",
                units::count(d.w_s),
                kb(d.wareq_kb),
                ms(d.w_await),
                units::count(d.wrqm_s)
            ),
        ),
        field(
            "flushes",
            d.f_s.map_or(units::UNKNOWN.to_owned(), |f| {
                format!("{}/s  await {}", units::count(f), ms(d.f_await))
            }),
        ),
    ];
    let flight = d.in_flight.map_or(units::UNKNOWN.to_owned(), |n| n.to_string());
    let mut line = field("in flight", flight);
    if let Some(b) = d.baseline_ms() {
        line.add(format!("   await with a short queue {}", units::millis(b)), Tone::Plain);
    }
    if !d.stuck_for.is_zero() {
        let text = format!("   !! nothing completed for {}", units::duration(d.stuck_for));
        line.add(text, Tone::Crit);
    }
    out.push(line);
    if d.unaccounted {
        let text = "this kernel keeps no I/O times for this layer: util and await are meaningless";
        out.push(field("note", text));
    }
    if d.queue_counters_disagree() {
        out.push(field(
            "note",
            format!(
                "the kernel's weighted queue gives {}, the request times {}",
                units::count(d.aqu_sz_weighted),
                units::count(d.aqu_sz)
            ),
        ));
    }
    out
}

/// A limit, how to write its rate and an amount, and the tier that is sold with it.
type Shown<'a> =
    (&'a Option<Plateau>, fn(f64) -> String, fn(f64) -> String, fn(u64, f64) -> Option<Tier>);

/// The limit that the disk behaves like under load, the data behind it, the effect on latency.
fn limits(d: &DiskFigures) -> Vec<Line> {
    let Some(cap) = &d.cap else { return Vec::new() };
    let size = d.attrs.size_sectors.filter(|_| d.attrs.class == DiskClass::Virtual);
    let mut out = Vec::new();
    let known: [Shown<'_>; 2] = [
        (
            &cap.iops,
            |v| format!("{} IOPS", units::count(v)),
            |v| format!("{} requests", units::count(v)),
            Tier::by_iops,
        ),
        (
            &cap.kb_s,
            |v| format!("{}/s", units::bytes(v * 1024.0)),
            |v| units::bytes(v * 1024.0),
            Tier::by_kb,
        ),
    ];
    for (plateau, rate, amount, tier) in known {
        let Some(p) = plateau else { continue };
        let mut line = field("limit", format!("behaves like {}", rate(p.rate)));
        let (low, high) = (units::count(p.queue.0), units::count(p.queue.1));
        let at = if low == high { low } else { format!("{low} to {high}") };
        let varies = units::pct(100.0 * p.variation);
        let text = format!("   {} samples at queue length {at}, varying by {varies}%", p.points);
        line.add(text, Tone::Dim);
        out.push(line);
        out.push(field(
            "",
            match p.burst {
                Some(b) => format!(
                    "burst {}: {} for {}, then the limit",
                    amount(b.amount),
                    rate(b.rate),
                    units::duration(b.lasted)
                ),
                None if p.begin_seen => "no burst: the load began at this rate".to_owned(),
                None => "burst unknown: the start of the load was not seen".to_owned(),
            },
        ));
        if let Some(t) = size.and_then(|s| tier(s, p.rate)) {
            let off = 100.0 * t.off;
            let gib = units::count(t.gib);
            let how = if t.fits() { "as" } else { "nearest tier:" };
            out.push(field(
                "",
                format!("{how} {} of {gib} GiB, sold with {} ({off:+.0}%)", t.name, rate(t.rate)),
            ));
        }
    }
    if let Some(p) = cap.iops.filter(|p| p.rate > 0.0) {
        let each = units::millis(1000.0 / p.rate);
        let at_32 = units::millis(32_000.0 / p.rate);
        out.push(field(
            "",
            format!("each extra request in the queue adds {each}; qlen 32 means {at_32}"),
        ));
    }
    out
}

fn settings(d: &DiskFigures) -> Vec<Line> {
    let a = &d.attrs;
    let n = |v: Option<u32>| v.map_or(units::UNKNOWN.to_owned(), |v| v.to_string());
    let s = |v: &Option<String>| text::clean(v.as_deref().unwrap_or(units::UNKNOWN)).into_owned();
    let rotational = match a.rotational {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let mut out = vec![
        field(
            "queue",
            format!(
                "scheduler {}  nr_requests {}  hw queues {}  device depth {}",
                s(&a.scheduler),
                n(a.nr_requests),
                n(a.hw_queues),
                n(a.queue_depth),
            ),
        ),
        field(
            "",
            format!(
                "max_sectors_kb {} of {}  write cache {}  rotational {rotational}",
                n(a.max_sectors_kb),
                n(a.max_hw_sectors_kb),
                s(&a.write_cache),
            ),
        ),
    ];
    if let Some(md) = &a.md {
        let speed = md
            .sync_speed_kb
            .map_or(String::new(), |kb| format!(" at {}/s", units::bytes(kb as f64 * 1024.0)));
        out.push(field(
            "array",
            format!(
                "{} of {} disks  degraded {}  sync {}{speed}",
                s(&md.level),
                n(md.raid_disks),
                n(md.degraded),
                s(&md.sync_action)
            ),
        ));
    }
    if a.dm_kind.is_some() {
        out.push(field("volume", format!("made by {}", s(&a.dm_kind))));
    }
    out
}

/// cgroups with I/O on this device, busiest first, with their limits.
fn users(cx: &Cx<'_>, id: DiskId) -> Vec<Line> {
    let Some(groups) = &cx.now.derived.cgroups else { return Vec::new() };
    let mut list: Vec<(f64, String)> = Vec::new();
    for g in groups.iter() {
        for io in g.io.iter().filter(|io| io.dev == id) {
            let bytes = io.rbps.unwrap_or(0.0) + io.wbps.unwrap_or(0.0);
            let limits = [
                ("rbps", io.limits.max_rbps),
                ("wbps", io.limits.max_wbps),
                ("riops", io.limits.max_riops),
                ("wiops", io.limits.max_wiops),
            ];
            let limits: Vec<String> = limits
                .iter()
                .filter_map(|(n, v)| Some(format!("{n} {}", units::count((*v)? as f64))))
                .collect();
            if bytes > 0.0 || !limits.is_empty() {
                let limit = if limits.is_empty() {
                    String::new()
                } else {
                    format!("  limit {}", limits.join(" "))
                };
                let path = text::cut_front(&text::clean(&g.path), 40).into_owned();
                list.push((bytes, format!("{path}  {}/s{limit}", units::bytes(bytes))));
            }
        }
    }
    list.sort_by(|a, b| b.0.total_cmp(&a.0));
    list.into_iter().take(8).map(|(_, s)| field("cgroup", s)).collect()
}

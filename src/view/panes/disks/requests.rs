//! The requests of a disk as eBPF sees them: where they wait, how long each part takes, how large
//! they are, what is split or requeued.

use std::time::Duration;

use crate::metrics::bpf::block::{BlockDiskFigures, BlockOpFigures, Stage};
use crate::metrics::disks::DiskFigures;
use crate::sample::CollectorId;
use crate::sample::bpf::block::BlockOpKind;
use crate::sample::disks::DiskClass;
use crate::sample::subject::DiskId;
use crate::view::context::Cx;
use crate::view::lines::{LABEL, field};
use crate::view::panes::disks::requests;
use crate::view::series::{Buckets, LatencyRows, fold_hist, heat};
use crate::view::vm::{Line, Piece, Tone};
use crate::view::{text, units};

/// Rows of the heat map.
const ROWS: usize = 6;

pub(super) fn lines(cx: &Cx<'_>, d: &DiskFigures, w: u16) -> Vec<Line> {
    let Some(b) = cx.block_bpf else {
        let why = cx.no_ebpf(CollectorId::BlockBpf);
        return why.map(|why| field("requests", why)).into_iter().collect();
    };
    let Some(r) = requests(cx, d.id) else {
        let why = match d.attrs.class {
            DiskClass::Partition => "counted for the whole disk",
            DiskClass::Stack | DiskClass::Memory => {
                "a layer has none of its own: see the disks below"
            }
            _ => "none since the programs were attached",
        };
        return vec![field("requests", why)];
    };
    let (note, stale) = cx.source_note("eBPF", CollectorId::BlockBpf, Some(b.at));
    let mut out = head(r, b.value.coverage.share(), (&note, stale), w);
    out.extend(heat_lines(cx, d.id, w));
    out.extend(table(r));
    out.extend(r.ops.iter().filter_map(|o| sizes(o, w)));
    out
}

/// Where the time goes and what became of requests, on as many lines as needed.
fn head(
    r: &BlockDiskFigures,
    coverage: Option<f64>,
    (note, stale): (&str, bool),
    w: u16,
) -> Vec<Line> {
    let mut parts: Vec<(String, Tone)> = Vec::new();
    parts.push(match r.queue_share() {
        Some(q) => {
            let q = (q * 100.0).round();
            let text = format!("{q:.0}% of their time before the device, {:.0}% in it", 100.0 - q);
            (text, if q >= 50.0 { Tone::Strong } else { Tone::Plain })
        }
        None => ("none in the last interval".to_owned(), Tone::Dim),
    });
    let per_s =
        |v: Option<f64>| v.map_or(units::UNKNOWN.to_owned(), |v| format!("{}/s", units::count(v)));
    for (name, v) in
        [("splits", r.splits_s), ("requeues", r.requeues_s), ("errors", Some(r.errors_s))]
    {
        let tone = if v.is_some_and(|v| v > 0.0) { Tone::Strong } else { Tone::Dim };
        parts.push((format!("{name} {}", per_s(v)), tone));
    }
    if let Some(share) = coverage.filter(|s| *s < 0.999) {
        parts.push((format!("coverage {:.1}%", share * 100.0), Tone::Warn));
    }
    let tone = if stale { Tone::Warn } else { Tone::Dim };
    let mut first = field("requests", "").right(format!("{note} "), tone);
    let mut rest: Vec<Line> = Vec::new();
    for (text, tone) in parts {
        let room = if rest.is_empty() { note.len() + 2 } else { 0 };
        let line = rest.last_mut().unwrap_or(&mut first);
        let begun = line.width() > LABEL + 1;
        if begun && line.width() + 2 + text.len() + room > usize::from(w) {
            rest.push(field("", "").with(text, tone));
        } else {
            line.add(if begun { "  " } else { "" }, Tone::Plain);
            line.add(text, tone);
        }
    }
    rest.insert(0, first);
    rest
}

/// Waiting at the left, the device at the right, on one scale.
fn heat_lines(cx: &Cx<'_>, id: DiskId, w: u16) -> Vec<Line> {
    const SCALE: usize = 8;
    let n = usize::from(w).saturating_sub(LABEL + SCALE + 6) / 2;
    if n < 10 {
        return Vec::new();
    }
    let n = n.min(60);
    let b = Buckets::new(cx.mono(), Duration::from_secs(60), cx.analysis.host().interval, n);
    let mut columns = vec![LatencyRows::default(); 2 * n];
    for m in cx.analysis.history().back_from(cx.now.tick.seq) {
        if m.tick.mono < b.start {
            break;
        }
        let Some(d) = m.derived.block_bpf.as_ref().and_then(|f| f.disk(id)) else { continue };
        let Some(i) = b.index(m.tick.mono) else { continue };
        for (at, stage) in [(i, Stage::Queued), (n + i, Stage::Device)] {
            if let Some(c) = columns.get_mut(at) {
                fold_hist(&d.hist(stage), c);
            }
        }
    }
    let mut title = field("latency", format!("{:>SCALE$}", ""));
    let over = units::duration(b.span());
    title.add(format!("{:<width$}", text::cut("before the device", n), width = n + 3), Tone::Dim);
    title.add(text::cut(&format!("in the device, last {over}"), n).into_owned(), Tone::Dim);
    let mut out = vec![title];
    for (label, mut shades) in heat(&columns, ROWS) {
        let device = shades.split_off(n.min(shades.len()));
        let mut line = field("", "");
        line.add(format!("{label:>width$} ", width = SCALE - 1), Tone::Dim);
        line.push(Piece::Heat(shades, Tone::Plain));
        line.add(" │ ", Tone::Dim);
        line.push(Piece::Heat(device, Tone::Plain));
        out.push(line);
    }
    out
}

fn name(op: BlockOpKind) -> &'static str {
    match op {
        BlockOpKind::Read => "read",
        BlockOpKind::Write => "write",
        BlockOpKind::Flush => "flush",
        BlockOpKind::Other => "other",
    }
}

/// One line per kind of request.
fn table(r: &BlockDiskFigures) -> Vec<Line> {
    if r.ops.is_empty() {
        return Vec::new();
    }
    let mut head = Line::of(format!(" {:<LABEL$}", ""), Tone::Dim);
    head.add(
        format!(
            "{:>6} {:>6}  {:^13} {:^13} {:^19} {:>5}",
            "/s", "size", "queued 50/99", "device 50/99", "total 50/99/max", "q/dev"
        ),
        Tone::Dim,
    );
    let mut out = vec![head];
    for o in &r.ops {
        let at = |stage: Stage| {
            let l = o.latency(stage);
            let show =
                |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| units::secs(ns as f64 / 1e9));
            let max = match l {
                Some(l) if l.max_ns.is_none() => ">68s".to_owned(),
                l => show(l.and_then(|l| l.max_ns)),
            };
            (show(l.map(|l| l.p50_ns)), show(l.map(|l| l.p99_ns)), max)
        };
        let (q, d, t) = (at(Stage::Queued), at(Stage::Device), at(Stage::Total));
        let split = o.queue_share().map_or("--".to_owned(), |s| {
            let q = (s * 100.0).round();
            format!("{q:.0}/{:.0}", 100.0 - q)
        });
        let size = o.mean_bytes().filter(|b| *b > 0.0).map_or("-".to_owned(), units::bytes);
        out.push(field(
            name(o.op),
            format!(
                "{:>6} {size:>6}  {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {split:>5}",
                units::count(o.rate),
                q.0,
                q.1,
                d.0,
                d.1,
                t.0,
                t.1,
                t.2,
            ),
        ));
    }
    out
}

/// `read sizes   4K 98%  8K 1%`.
fn sizes(o: &BlockOpFigures, w: u16) -> Option<Line> {
    let label = match o.op {
        BlockOpKind::Read => "read sizes",
        BlockOpKind::Write => "write sizes",
        BlockOpKind::Flush | BlockOpKind::Other => return None,
    };
    let all = o.sizes.iter().map(|s| s.1).fold(0, u64::saturating_add);
    if all == 0 {
        return None;
    }
    let mut text = String::new();
    for (class, n) in &o.sizes {
        let part =
            format!("{} {}%  ", class_name(*class), units::pct(*n as f64 * 100.0 / all as f64));
        if LABEL + text.len() + part.len() < usize::from(w) {
            text.push_str(&part);
        }
    }
    Some(field(label, text))
}

/// `<=4K`, `<=8K`, .. , `>16M`.
fn class_name(class: u8) -> String {
    let last = 13;
    let bytes = 4096.0 * f64::from(1u32 << class.min(last));
    if class >= last {
        format!(">{}", units::bytes(bytes / 2.0))
    } else {
        format!("<={}", units::bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_by_their_upper_end() {
        assert_eq!(class_name(0), "<=4.0K");
        assert_eq!(class_name(12), "<=16M");
        assert_eq!(class_name(13), ">16M");
        assert_eq!(class_name(255), ">16M");
    }
}

//! Network devices of the host's own namespace and of those that were read: throughput, drops, errors,
//! what waits in their qdiscs, queues; below them the connection table. From rtnetlink.

mod detail;

use super::{ListPane, PaneCx, PaneId, PaneVm};
use crate::diagnose::Severity;
use crate::metrics::netdev::{LinkFigures, QdiscFigures, SpaceFigures};
use crate::metrics::rate::ratio;
use crate::sample::CollectorId;
use crate::sample::subject::{NetnsId, Subject};
use crate::view::context::Cx;
use crate::view::state::RowKey;
use crate::view::table::{Cell, Column, HIDDEN, Table, Unit, Value};
use crate::view::vm::{Line, Size, Tone};
use crate::view::{text, units};

/// A row: index into the namespaces of the moment, and into the devices of that one.
#[derive(Clone, Copy, Debug)]
pub struct LinkRef {
    space: u16,
    link: u16,
}

impl LinkRef {
    fn get<'a>(self, cx: &Cx<'a>) -> Option<(&'a SpaceFigures, &'a LinkFigures)> {
        let space = cx.spaces.get(usize::from(self.space)).copied()?;
        Some((space, space.links.get(usize::from(self.link))?))
    }
}

/// Identity of a device: its namespace, whose inode has 32 bits, and its number there.
pub(super) fn key_of(s: &SpaceFigures, l: &LinkFigures) -> RowKey {
    RowKey::Numbered(PaneId::Network, s.netns.0 << 32 | u64::from(l.ifindex))
}

/// A device of this moment.
fn find<'a>(cx: &Cx<'a>, key: RowKey) -> Option<(&'a SpaceFigures, &'a LinkFigures)> {
    let mut all = cx.spaces.iter().flat_map(|s| s.links.iter().map(move |l| (*s, l)));
    all.find(|(s, l)| key_of(s, l) == key)
}

/// Qdiscs of a device; a class is a part of one.
fn qdiscs<'a>(s: &'a SpaceFigures, l: &LinkFigures) -> impl Iterator<Item = &'a QdiscFigures> {
    let ifindex = l.ifindex;
    s.qdiscs.iter().filter(move |q| q.ifindex == ifindex && !q.class)
}

macro_rules! figure {
    ($name:ident, |$s:ident, $l:ident| $body:expr) => {
        fn $name(cx: &Cx<'_>, r: LinkRef) -> Value {
            r.get(cx).map_or(Value::Unknown, |($s, $l)| $body)
        }
    };
}
figure!(dev, |_s, l| Value::name(&l.attrs.name));
figure!(rx, |_s, l| Value::Num(l.rx_bytes_s));
figure!(tx, |_s, l| Value::Num(l.tx_bytes_s));
figure!(rx_pps, |_s, l| Value::Num(l.rx_pps));
figure!(tx_pps, |_s, l| Value::Num(l.tx_pps));
figure!(dropped, |_s, l| Value::Num(l.rx_dropped_s + l.tx_dropped_s));
figure!(errors, |_s, l| Value::Num(l.rx_errors_s + l.tx_errors_s));
figure!(backlog, |s, l| {
    Value::Num(qdiscs(s, l).map(|q| f64::from(q.backlog)).fold(0.0, f64::max))
});
figure!(qdrops, |s, l| Value::Num(qdiscs(s, l).map(|q| q.drops_s).sum()));
figure!(busy, |_s, l| Value::num(used(l)));
figure!(qdisc, |_s, l| Value::name(&l.attrs.qdisc));
figure!(queues, |_s, l| Value::Num(f64::from(l.attrs.rx_queues)));
figure!(mtu, |_s, l| Value::Num(f64::from(l.attrs.mtu)));
figure!(netns, |s, _l| Value::name(&s.label));
figure!(state, |_s, l| Value::Text(if l.attrs.up { "up" } else { "down" }.into()));

/// % of its speed, where that is known; a virtual NIC has none.
fn used(l: &LinkFigures) -> Option<f64> {
    let speed = l.attrs.speed_mbit.filter(|s| *s > 0)?;
    ratio(100.0 * l.rx_bytes_s.max(l.tx_bytes_s), f64::from(speed) * 125_000.0)
}

fn rate_cell(cx: &Cx<'_>, r: LinkRef, f: fn(&LinkFigures) -> f64) -> Cell {
    let Some((_, l)) = r.get(cx) else { return Cell::Text("".into(), Tone::Dim) };
    let v = f(l);
    Cell::Text(units::bytes(v).into(), if v == 0.0 { Tone::Dim } else { Tone::Plain })
}
fn rx_cell(cx: &Cx<'_>, r: LinkRef, _w: u16) -> Cell {
    rate_cell(cx, r, |l| l.rx_bytes_s)
}
fn tx_cell(cx: &Cx<'_>, r: LinkRef, _w: u16) -> Cell {
    rate_cell(cx, r, |l| l.tx_bytes_s)
}

static COLUMNS: [Column<LinkRef>; 15] = [
    Column::new("dev", 8, Unit::Text, dev).prio(0).grow(15).about("network device"),
    Column::new("rx/s", 6, Unit::Bytes, rx).prio(0).write(rx_cell).about("bytes received"),
    Column::new("tx/s", 6, Unit::Bytes, tx).prio(0).write(tx_cell).about("bytes sent"),
    Column::new("busy%", 5, Unit::Percent, busy)
        .prio(3)
        .about("the busier direction, % of its speed; n/a where the speed is unknown"),
    Column::new("drop/s", 6, Unit::Number, dropped).prio(1).about("packets dropped, both ways"),
    Column::new("err/s", 5, Unit::Number, errors).prio(2).about("bad packets, both ways"),
    Column::new("backlog", 7, Unit::Bytes, backlog)
        .prio(2)
        .about("bytes that wait in the fullest of its qdiscs"),
    Column::new("qdrop/s", 7, Unit::Number, qdrops).prio(4).about("packets its qdiscs dropped"),
    Column::new("rxp/s", 6, Unit::Number, rx_pps).prio(5).about("packets received"),
    Column::new("txp/s", 6, Unit::Number, tx_pps).prio(5).about("packets sent"),
    Column::new("qdisc", 9, Unit::Text, qdisc).prio(6).about("its root qdisc"),
    Column::new("queues", 6, Unit::Count, queues).prio(7).about("receive queues"),
    Column::new("netns", 10, Unit::Text, netns).prio(5).grow(16).about("network namespace"),
    Column::new("mtu", 6, Unit::Count, mtu).prio(8).about("largest packet, bytes"),
    Column::new("link", 4, Unit::Text, state).prio(HIDDEN).about("whether it is up"),
];

/// The pane.
pub struct Network;

impl Table for Network {
    type Row = LinkRef;

    fn columns(&self) -> &'static [Column<LinkRef>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<LinkRef> {
        let spaces = cx.spaces.iter().enumerate();
        let rows = spaces.flat_map(|(space, s)| {
            (0..s.links.len()).map(move |link| LinkRef { space: space as u16, link: link as u16 })
        });
        rows.collect()
    }
    fn key(&self, cx: &Cx<'_>, r: LinkRef) -> RowKey {
        r.get(cx).map_or(RowKey::Numbered(PaneId::Network, 0), |(s, l)| key_of(s, l))
    }
    fn mark(&self, cx: &Cx<'_>, r: LinkRef) -> Option<Severity> {
        let (s, l) = r.get(cx)?;
        about(cx, s.netns, &l.attrs.name)
    }
    /// By the magnitude of what they move, so that devices do not change places all the time.
    fn trouble(&self, cx: &Cx<'_>, r: LinkRef) -> f64 {
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e6 * (1.0 + f64::from(s as u8)));
        mark + r.get(cx).map_or(0.0, |(_, l)| (1.0 + l.rx_bytes_s + l.tx_bytes_s).log2().floor())
    }
    fn offers(&self, cx: &Cx<'_>, column: &'static str) -> bool {
        column != "netns" || cx.spaces.len() > 1
    }
    fn search(&self, cx: &Cx<'_>, r: LinkRef, out: &mut String) {
        if let Some((s, l)) = r.get(cx) {
            out.push_str(&l.attrs.name);
            out.push(' ');
            out.push_str(&s.label);
        }
    }
}

/// The worst finding about a device.
fn about(cx: &Cx<'_>, netns: NetnsId, name: &str) -> Option<Severity> {
    let is_it = |s: &Subject| matches!(s, Subject::Link { dev, netns: n } if dev == name && *n == netns);
    let all = cx.now.findings.all().filter(|f| is_it(&f.subject));
    all.map(|f| cx.now.findings.severity(f)).max()
}

/// ` conntrack 12k of 262k (5%)  drop 0/s  insert failed 0/s`
fn conntrack_line(cx: &Cx<'_>) -> Option<Line> {
    let c = cx.own_space()?.conntrack?;
    let mut line = Line::of(" conntrack ", Tone::Dim);
    let n = units::count(c.now.count as f64);
    line.add(
        match c.used() {
            Some(part) => {
                let max = units::count(c.now.max as f64);
                format!("{n} of {max} ({}%)", units::pct(100.0 * part))
            }
            None => format!("{n}, no limit"),
        },
        Tone::Plain,
    );
    for (name, v) in [("drop", c.drop_s), ("insert failed", c.insert_failed_s)] {
        if let Some(v) = v {
            let tone = if v > 0.0 { Tone::Strong } else { Tone::Dim };
            line.add(format!("  {name} {}/s", units::count(v)), tone);
        }
    }
    Some(line)
}

impl ListPane for Network {
    const ID: PaneId = PaneId::Network;
    const NAME: &'static str = "network";
    const TITLE: &'static str = "Network";
    const HELP: &'static str = "go to the network devices; again: zoom";

    fn wants(&self, p: &PaneCx<'_>) -> u16 {
        let rows = self.rows(p.cx).len() + usize::from(conntrack_line(p.cx).is_some());
        u16::try_from(rows + 1).unwrap_or(u16::MAX)
    }

    fn other_lines(&self, p: &PaneCx<'_>, inner: Size) -> u16 {
        u16::from(inner.h > 4 && conntrack_line(p.cx).is_some())
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let note = super::note(p, "rtnetlink", CollectorId::Netdev, p.cx.spaces_at());
        let mut vm = PaneVm { note, ..PaneVm::default() };
        if p.cx.spaces.is_empty() {
            vm.lines = super::empty_lines(p, CollectorId::Netdev, inner.w);
            return vm;
        }
        let rows = ListPane::list_rows(self, p, inner);
        let win = super::window(self, p, rows);
        let links = if win.total == 1 { "device" } else { "devices" };
        vm.title.push((format!("{} {links}", win.total).into(), Tone::Plain));
        vm.title.extend(super::order_title(self, p, &win));
        super::add_table(&mut vm, self, p, &win, inner.w);
        if let Some(line) = conntrack_line(p.cx).filter(|_| inner.h > 4) {
            while vm.lines.len() < rows + 1 {
                vm.lines.push(Line::new());
            }
            vm.lines.push(line.whole(inner.w));
        }
        vm
    }
}

/// The name of a device with that of its namespace.
fn full_name(s: &SpaceFigures, l: &LinkFigures) -> String {
    let label = text::clean(&s.label);
    if label.is_empty() {
        return text::clean(&l.attrs.name).into_owned();
    }
    format!("{}  {label}", text::clean(&l.attrs.name))
}

//! Network events of the last minutes: retransmits, resets, full receive queues, dropped packets by
//! reason and place. From eBPF: no other source names the connection.

mod detail;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{ListPane, PaneCx, PaneId, PaneVm, sockets};
use crate::diagnose::Severity;
use crate::metrics::bpf::events::KEEP;
use crate::metrics::bpf::{EventKey, EventRow, NetFigures};
use crate::sample::bpf::net::NetEventKind;
use crate::sample::sockets::{Owner, SockState};
use crate::sample::subject::Endpoint;
use crate::sample::{CollectorId, SignalStatus};
use crate::view::context::Cx;
use crate::view::state::RowKey;
use crate::view::table::{Cell, Column, First, HIDDEN, Table, Unit, Value};
use crate::view::vm::{Line, Size, Tone};
use crate::view::{text, units};

/// A row: index into the events of the moment.
#[derive(Clone, Copy, Debug)]
pub struct EventRef(u32);

impl EventRef {
    fn get<'a>(self, cx: &Cx<'a>) -> Option<&'a EventRow> {
        cx.events?.value.get(self.0 as usize).map(|r| &**r)
    }
}

/// An event of this moment.
#[must_use]
pub fn find<'a>(cx: &Cx<'a>, id: u64) -> Option<&'a Arc<EventRow>> {
    cx.events?.value.iter().find(|r| r.id == id)
}

/// What happened.
#[must_use]
pub fn kind_name(key: &EventKey) -> &'static str {
    match key {
        EventKey::Drop { .. } => "drop",
        EventKey::Flow { kind, .. } => match kind {
            NetEventKind::Retransmit => "retransmit",
            NetEventKind::SendReset => "reset sent",
            NetEventKind::ReceiveReset => "reset recv",
            NetEventKind::RcvqueueFull => "rcvq full",
            NetEventKind::RetransmitFailed => "retr failed",
        },
    }
}

/// Name of a drop's reason; its number when this kernel's name is not known.
#[must_use]
pub fn reason_name(r: &EventRow) -> Option<Cow<'_, str>> {
    let EventKey::Drop { reason, .. } = &r.key else { return None };
    Some(if r.reason.is_empty() {
        format!("reason {reason}").into()
    } else {
        text::clean(&r.reason)
    })
}

/// Both ends of a connection.
#[must_use]
pub fn ends(r: &EventRow) -> Option<(Endpoint, Endpoint)> {
    match &r.key {
        EventKey::Flow { ends, .. } => *ends,
        EventKey::Drop { .. } => None,
    }
}

/// The process that owns the socket, or owned it.
#[must_use]
pub fn owner<'a>(cx: &Cx<'a>, r: &'a EventRow) -> Option<&'a Owner> {
    near_owner(cx, r).or_else(|| sockets::find(cx, r.socket?, 0)?.owner(cx))
}

/// The same without a search through all sockets, for use on every row.
fn near_owner<'a>(cx: &Cx<'a>, r: &'a EventRow) -> Option<&'a Owner> {
    r.owner.as_ref().or_else(|| cx.suspects.get(r.socket?)?.owner.as_ref())
}

/// `10.0.3.2:51322 > 10.0.3.7:3306`, or `NO_SOCKET in tcp_v4_rcv`.
#[must_use]
pub fn subject(r: &EventRow, w: usize) -> String {
    match &r.key {
        EventKey::Flow { ends: Some((local, remote)), .. } => {
            let (local, remote) = (local.to_string(), remote.to_string());
            if local.len() + remote.len() + 3 <= w {
                return format!("{local} > {remote}");
            }
            // Addresses are cut, ports never; the remote end says more.
            let room = w.saturating_sub(3);
            let right = remote.len().min(room - (room / 2).min(local.len()));
            let (l, r) =
                (text::cut_endpoint(&local, room - right), text::cut_endpoint(&remote, right));
            format!("{l} > {r}")
        }
        EventKey::Flow { ends: None, .. } => "no socket".to_owned(),
        EventKey::Drop { place, .. } => {
            let reason = reason_name(r).unwrap_or_default();
            if place.is_empty() {
                return reason.into_owned();
            }
            format!("{reason} in {}", text::clean(place))
        }
    }
}

macro_rules! figures {
    ($($name:ident = |$r:ident| $body:expr;)+) => {
        $( fn $name(cx: &Cx<'_>, r: EventRef) -> Value {
            r.get(cx).map_or(Value::Unknown, |$r| $body)
        } )+
    };
}
figures! {
    event = |r| Value::Text(kind_name(&r.key).into());
    rate = |r| Value::num(r.per_s);
    total = |r| Value::int(Some(r.total));
    what = |r| Value::Text(subject(r, usize::MAX).into());
    local = |r| ends(r).map_or(Value::Empty, |e| Value::Text(e.0.to_string().into()));
    remote = |r| ends(r).map_or(Value::Empty, |e| Value::Text(e.1.to_string().into()));
    sport = |r| ends(r).map_or(Value::Empty, |e| Value::Num(f64::from(e.0.port)));
    dport = |r| ends(r).map_or(Value::Empty, |e| Value::Num(f64::from(e.1.port)));
    reason = |r| reason_name(r).map_or(Value::Empty, |n| Value::Text(n.into_owned().into()));
    place = |r| match &r.key {
        EventKey::Drop { place, .. } if !place.is_empty() => Value::name(place),
        EventKey::Drop { .. } => Value::Unknown,
        EventKey::Flow { .. } => Value::Empty,
    };
    state = |r| r.state.map_or(Value::Empty, |s| Value::Text(SockState(s).name().into()));
    cpu = |r| r.cpu.map_or(Value::Empty, |c| Value::Num(f64::from(c.0)));
}
fn last(cx: &Cx<'_>, r: EventRef) -> Value {
    r.get(cx).map_or(Value::Unknown, |r| Value::Num(cx.mono().since(r.last).as_secs_f64()))
}
fn first(cx: &Cx<'_>, r: EventRef) -> Value {
    r.get(cx).map_or(Value::Unknown, |r| Value::Num(cx.mono().since(r.first).as_secs_f64()))
}
fn holder(cx: &Cx<'_>, r: EventRef) -> Value {
    let Some(r) = r.get(cx) else { return Value::Unknown };
    match owner(cx, r) {
        Some(o) => Value::Text(format!("{}/{}", text::clean(&o.comm), o.pid).into()),
        None if r.socket.is_some() => Value::Unknown,
        None => Value::Empty,
    }
}
fn netns(cx: &Cx<'_>, r: EventRef) -> Value {
    match r.get(cx).map(|r| &r.key) {
        Some(EventKey::Flow { netns, .. }) if netns.0 != 0 => {
            let known = cx.tables.iter().find(|t| t.netns == *netns);
            known.map_or_else(|| Value::Text(netns.to_string().into()), |t| Value::name(&t.label))
        }
        Some(_) => Value::Empty,
        None => Value::Unknown,
    }
}

fn what_cell(cx: &Cx<'_>, r: EventRef, w: u16) -> Cell {
    let what = r.get(cx).map_or(String::new(), |r| subject(r, w.into()));
    Cell::Text(what.into(), Tone::Plain)
}
fn last_cell(cx: &Cx<'_>, r: EventRef, _w: u16) -> Cell {
    let Value::Num(s) = last(cx, r) else { return Cell::Text(units::UNKNOWN.into(), Tone::Dim) };
    let fresh = s < 2.0;
    let text = if fresh { "now".to_owned() } else { units::secs(s.floor()).replace(".00", "") };
    Cell::Text(text.into(), if fresh { Tone::Plain } else { Tone::Dim })
}

static COLUMNS: [Column<EventRef>; 16] = [
    Column::new("event", 11, Unit::Text, event).prio(0).about("what happened"),
    Column::new("n/s", 5, Unit::Number, rate).prio(0).about("per second, right now"),
    Column::new("total", 5, Unit::Count, total).prio(1).about("number since the first one"),
    Column::new("last", 5, Unit::Time, last)
        .prio(1)
        .write(last_cell)
        .first(First::Low)
        .about("time since the last event"),
    Column::new("what", 34, Unit::Text, what)
        .prio(0)
        .grow(64)
        .write(what_cell)
        .about("local > remote end, or reason and kernel function of a drop"),
    Column::new("owner", 12, Unit::Task, holder)
        .prio(2)
        .grow(24)
        .about("process that owns or owned the socket"),
    Column::new("state", 10, Unit::Text, state).prio(4).about("TCP state at the last event"),
    Column::new("netns", 10, Unit::Text, netns).prio(5).grow(20).about("network namespace"),
    Column::new("first", 5, Unit::Time, first).prio(6).about("time since the first event"),
    Column::new("cpu", 4, Unit::Count, cpu).prio(7).about("CPU of the last event"),
    Column::new("local", 21, Unit::Endpoint, local).prio(HIDDEN).about("local end"),
    Column::new("remote", 21, Unit::Endpoint, remote).prio(HIDDEN).about("remote end"),
    Column::new("sport", 5, Unit::Count, sport).prio(HIDDEN).about("local port"),
    Column::new("dport", 5, Unit::Count, dport).prio(HIDDEN).about("remote port"),
    Column::new("reason", 20, Unit::Text, reason).prio(HIDDEN).about("why packets were dropped"),
    Column::new("place", 20, Unit::Text, place)
        .prio(HIDDEN)
        .about("kernel function that dropped them"),
];

/// The pane.
pub struct Events;

impl Table for Events {
    type Row = EventRef;

    fn columns(&self) -> &'static [Column<EventRef>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<EventRef> {
        (0..cx.events.map_or(0, |e| e.value.len()) as u32).map(EventRef).collect()
    }
    fn key(&self, cx: &Cx<'_>, r: EventRef) -> RowKey {
        RowKey::Numbered(PaneId::Events, r.get(cx).map_or(0, |r| r.id))
    }
    /// The mark of the socket, if a finding names it.
    fn mark(&self, cx: &Cx<'_>, r: EventRef) -> Option<Severity> {
        cx.marks.socket(r.get(cx)?.socket?)
    }
    /// What is happening now, most first; then what happened in the last minute; drops after both,
    /// because some happen on every healthy host; then the rest.
    fn trouble(&self, cx: &Cx<'_>, r: EventRef) -> f64 {
        let Some(e) = r.get(cx) else { return 0.0 };
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e12 * (1.0 + f64::from(s as u8)));
        let drop = matches!(e.key, EventKey::Drop { .. });
        let now =
            e.per_s.filter(|v| *v > 0.0).map_or(0.0, |v| if drop { 1e6 + v } else { 1e9 + v });
        mark + now - cx.mono().since(e.last).as_secs_f64()
    }
    fn search(&self, cx: &Cx<'_>, r: EventRef, out: &mut String) {
        let Some(r) = r.get(cx) else { return };
        let _ = write!(out, "{} {}", kind_name(&r.key), subject(r, usize::MAX));
        if let Some(o) = near_owner(cx, r) {
            let _ = write!(out, " {}/{}", o.comm, o.pid);
        }
    }
}

/// From this many connections to one peer on, they are reported together.
const MANY: u32 = 8;

/// Lines above the list.
fn summary_rows(inner: Size) -> u16 {
    match inner.h {
        0..=3 => 0,
        4..=6 => 1,
        _ => 2,
    }
}

/// Rates of the whole machine: ` retransmits 12/s  resets out 0/s  in 3/s  ...`
fn rates_line(f: &NetFigures) -> Line {
    let mut line = Line::new();
    for (name, v) in [
        ("retransmits", f.retransmits_s),
        ("failed", f.retransmits_failed_s),
        ("resets out", f.resets_sent_s),
        ("in", f.resets_received_s),
        ("rcvq full", f.rcvqueue_full_s),
        ("drops", f.drops_s),
    ] {
        // Most kernels do not report it (since 6.17), and it is rare.
        if name == "failed" && v.is_none_or(|v| v == 0.0) {
            continue;
        }
        let Some(v) = v else {
            line.add(format!(" {name} {} ", units::UNKNOWN), Tone::Dim);
            continue;
        };
        let tone = if v > 0.0 { Tone::Strong } else { Tone::Dim };
        line.add(format!(" {name} {}/s ", units::count(v)), tone);
    }
    line
}

/// The protocol counters of our namespace, for when events cannot be seen.
fn sums_line(cx: &Cx<'_>) -> Option<Line> {
    let n = cx.now.derived.net(cx.analysis.host().netns?)?;
    let mut line = Line::of(" this namespace, from /proc/net/snmp: ", Tone::Dim);
    for (name, counter) in [
        ("retransmits", "TcpRetransSegs"),
        ("resets out", "TcpOutRsts"),
        ("connections reset", "TcpEstabResets"),
    ] {
        let v =
            n.rate(counter).map_or(units::UNKNOWN.to_owned(), |v| format!("{}/s", units::count(v)));
        line.add(format!(" {name} {v} "), Tone::Plain);
    }
    Some(line)
}

/// What else there is to say: drops by reason, what is missing.
fn notes_line(cx: &Cx<'_>, f: &NetFigures) -> Line {
    let mut line = Line::new();
    if let Some(share) = f.coverage.share().filter(|s| *s < 0.999) {
        line.add(
            format!(
                " coverage {:.1}%: {} without a record ",
                share * 100.0,
                units::int(f.unrecorded)
            ),
            Tone::Warn,
        );
    }
    // Many connections to one peer have one cause.
    if let Some(p) = f.peers().first().filter(|p| p.connections >= MANY) {
        let what = match p.kind {
            NetEventKind::Retransmit => "retransmits",
            NetEventKind::SendReset | NetEventKind::ReceiveReset => "resets",
            NetEventKind::RcvqueueFull => "full queues",
            NetEventKind::RetransmitFailed => "failed retransmits",
        };
        let text = format!(" {} connections with {}: {} {what} ", p.connections, p.remote, p.count);
        line.add(text, Tone::Strong);
    }
    if f.unlisted > 0 {
        line.add(format!(" {} on connections not listed ", units::int(f.unlisted)), Tone::Warn);
    }
    let health = cx.now.tick.health.iter().find(|h| h.id == CollectorId::NetBpf);
    for s in health.iter().flat_map(|h| &h.signals) {
        if let SignalStatus::Missing { reason, .. } = &s.status {
            let (name, why) = (text::clean(&s.signal), text::clean(reason));
            line.add(format!(" {name}: {why} "), Tone::Warn);
        }
    }
    if !f.reasons.is_empty() {
        line.add(" drops by reason", Tone::Dim);
        for r in f.reasons.iter().take(6) {
            let name = if r.name.is_empty() {
                format!("reason {}", r.reason)
            } else {
                text::clean(&r.name).into_owned()
            };
            line.add(format!("  {name} {}/s", units::count(r.per_s)), Tone::Dim);
        }
    }
    line
}

impl ListPane for Events {
    const ID: PaneId = PaneId::Events;
    const NAME: &'static str = "events";
    const TITLE: &'static str = "Events";
    const HELP: &'static str = "go to the network events";

    fn other_lines(&self, _p: &PaneCx<'_>, inner: Size) -> u16 {
        summary_rows(inner)
    }
    fn wants(&self, p: &PaneCx<'_>) -> u16 {
        // The lines above the list, and its titles.
        u16::try_from(self.rows(p.cx).len() + 3).unwrap_or(u16::MAX)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let cx = p.cx;
        let at = cx.events.map(|e| e.at);
        let note = super::note(p, "eBPF", CollectorId::NetBpf, at);
        let mut vm = PaneVm { note, ..PaneVm::default() };
        if cx.events.is_none() {
            vm.lines = super::empty_lines(p, CollectorId::NetBpf, inner.w);
            vm.lines.extend(sums_line(cx).map(|l| l.whole(inner.w)));
            return vm;
        }
        let win = super::window(self, p, self.list_rows(p, inner));
        vm.title.push((format!("last {}", units::age(KEEP)).into(), Tone::Plain));
        vm.title.extend(super::order_title(self, p, &win));
        let rows = summary_rows(inner);
        if let Some(f) = cx.net_bpf.filter(|_| rows > 0) {
            vm.lines.push(rates_line(f.value).whole(inner.w));
            if rows > 1 {
                vm.lines.push(notes_line(cx, f.value).whole(inner.w));
            }
        }
        if win.total == 0 {
            let since = cx.analysis.history().first().map_or(cx.mono(), |m| m.tick.mono);
            let watched = units::age(cx.mono().since(since).min(KEEP));
            let text = format!(
                " no event in the last {watched}: nothing was retransmitted, reset or dropped"
            );
            vm.lines.push(Line::of(text, Tone::Strong));
            return vm;
        }
        super::add_table(&mut vm, self, p, &win, inner.w);
        // The owner of a socket is read only for those on the screen.
        vm.visible = win
            .rows
            .iter()
            .filter_map(|r| r.get(cx).filter(|r| r.owner.is_none())?.socket)
            .filter_map(|id| sockets::find(cx, id, 0)?.asked(cx))
            .collect();
        vm
    }
}

//! Sockets, worst first. From `sock_diag` dumps; `tcp_info` only for rows on the screen and sockets
//! in trouble. UNIX sockets (`unix`) come after the others. While nobody asks for more, by a filter or
//! another order, the healthy ones are groups (`group`).

mod detail;
mod detail_unix;
mod group;
mod row;
mod unix;

use std::fmt::Write as _;

use super::{ListPane, PaneCx, PaneId, PaneVm};
use crate::diagnose::Severity;
use crate::metrics::sockets::{STUCK, Suspect, UNREAD, trouble};
use crate::sample::CollectorId;
use crate::sample::sockets::{
    NetnsTable, Proto, SockState, SockTimer, SocketSource, TcpInfo,
};
use crate::sample::subject::SockId;
use crate::view::context::Cx;
use crate::view::state::{RowKey, Sort};
use crate::view::table::{Cell, Column, HIDDEN, Table, Unit, Value, format_value};
use crate::view::vm::{Line, Size, Tone};
use crate::view::{text, units};

pub use row::{SockRow, find, key_of};
pub use unix::{has_queues as unix_has_queues, name as unix_name, unnamed as unix_unnamed};

/// Columns that UNIX sockets fill in their own way get it from here.
macro_rules! unix {
    ($cx:ident, $r:ident, $f:path) => {
        if let Some((t, i)) = $r.unix($cx) {
            return $f(t, i);
        }
    };
}

/// Columns that groups fill in their own way get it from here.
macro_rules! group {
    ($cx:ident, $r:ident, $f:path) => {
        if let Some(g) = group::get($cx, $r) {
            return $f(g);
        }
    };
}

macro_rules! at {
    ($cx:ident, $r:ident, |$t:ident, $i:ident| $body:expr) => {{
        let Some(($t, $i)) = $r.get($cx) else { return Value::Empty };
        $body
    }};
}

fn is_tcp(t: &NetnsTable, i: usize) -> bool {
    t.inet.proto[i] != Proto::Udp
}

fn is_conn(t: &NetnsTable, i: usize) -> bool {
    is_tcp(t, i) && !matches!(t.inet.state[i], SockState::LISTEN | SockState::TIME_WAIT)
}

fn state(cx: &Cx<'_>, r: SockRow) -> Value {
    unix!(cx, r, unix::state);
    group!(cx, r, group::state);
    at!(cx, r, |t, i| Value::Text(t.inet.state[i].name().into()))
}
fn state_cell(cx: &Cx<'_>, r: SockRow, _w: u16) -> Cell {
    let short = match (r.get(cx), r.unix(cx)) {
        (Some((t, i)), _) if t.inet.proto[i] == Proto::Udp => "UD",
        (Some((t, i)), _) => short(t.inet.state[i]),
        (None, Some((t, i))) => short(t.unix.state[i]),
        (None, None) => match group::get(cx, r) {
            Some(g) if group::is_listened(g) => "LI",
            Some(_) => "ES",
            None => "",
        },
    };
    Cell::Text(short.into(), Tone::Plain)
}
fn short(state: SockState) -> &'static str {
    match state.0 {
        1 => "ES",
        2 => "SS",
        3 | 12 => "SR",
        4 => "F1",
        5 => "F2",
        6 => "TW",
        7 => "UC",
        8 => "CW",
        9 => "LA",
        10 => "LI",
        11 => "CL",
        _ => "??",
    }
}
fn proto(cx: &Cx<'_>, r: SockRow) -> Value {
    unix!(cx, r, unix::proto);
    at!(cx, r, |t, i| Value::Text(match t.inet.proto[i] {
        Proto::Tcp => "tcp".into(),
        Proto::Mptcp => "mptcp".into(),
        Proto::Udp => "udp".into(),
    }))
}
fn local(cx: &Cx<'_>, r: SockRow) -> Value {
    unix!(cx, r, unix::local);
    group!(cx, r, group::local);
    at!(cx, r, |t, i| Value::Text(t.inet.local_endpoint(i).to_string().into()))
}
/// The end of a path says more than its beginning; of an endpoint, both ends count.
fn local_cell(cx: &Cx<'_>, r: SockRow, w: u16) -> Cell {
    let v = local(cx, r);
    match (v, r.unix(cx)) {
        (Value::Text(s), Some(_)) => {
            Cell::Text(text::cut_front(&s, w.into()).into_owned().into(), Tone::Plain)
        }
        (v, _) => format_value(&v, Unit::Endpoint),
    }
}
fn peer(cx: &Cx<'_>, r: SockRow) -> Value {
    unix!(cx, r, unix::peer);
    group!(cx, r, group::peer);
    at!(cx, r, |t, i| {
        let e = t.inet.remote_endpoint(i);
        if e.port == 0 { Value::Empty } else { Value::Text(e.to_string().into()) }
    })
}
fn sport(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::Num(f64::from(t.inet.lport[i])))
}
fn dport(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::Num(f64::from(t.inet.rport[i])))
}
fn from_info(cx: &Cx<'_>, r: SockRow, f: impl Fn(&TcpInfo) -> Option<f64>) -> Value {
    at!(cx, r, |t, i| if is_conn(t, i) {
        Value::num(r.info(cx).as_ref().and_then(f))
    } else {
        Value::Empty
    })
}
fn rto(cx: &Cx<'_>, r: SockRow) -> Value {
    from_info(cx, r, |i| Some(f64::from(i.rto_us()?) / 1e6))
}
fn rtt(cx: &Cx<'_>, r: SockRow) -> Value {
    from_info(cx, r, |i| Some(f64::from(i.rtt_us()?) / 1e6))
}
fn cwnd(cx: &Cx<'_>, r: SockRow) -> Value {
    from_info(cx, r, |i| i.snd_cwnd().map(f64::from))
}
fn backoff(cx: &Cx<'_>, r: SockRow) -> Value {
    from_info(cx, r, |i| i.backoff().map(f64::from))
}
fn total_retrans(cx: &Cx<'_>, r: SockRow) -> Value {
    from_info(cx, r, |i| i.total_retrans().map(f64::from))
}
fn snd_wnd(cx: &Cx<'_>, r: SockRow) -> Value {
    from_info(cx, r, |i| i.snd_wnd().map(f64::from))
}
fn retrans(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| if is_conn(t, i) {
        Value::Num(f64::from(t.inet.retrans[i]))
    } else {
        Value::Empty
    })
}
fn timer(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| match t.inet.timer[i].name() {
        "" => Value::Empty,
        name => Value::Text(name.into()),
    })
}
fn rqueue(cx: &Cx<'_>, r: SockRow) -> Value {
    unix!(cx, r, unix::rqueue);
    at!(cx, r, |t, i| if t.inet.state[i] == SockState::TIME_WAIT {
        Value::Empty
    } else {
        Value::Num(f64::from(t.inet.rqueue[i]))
    })
}
fn wqueue(cx: &Cx<'_>, r: SockRow) -> Value {
    unix!(cx, r, unix::wqueue);
    at!(cx, r, |t, i| if t.inet.state[i] == SockState::TIME_WAIT {
        Value::Empty
    } else {
        Value::Num(f64::from(t.inet.wqueue[i]))
    })
}
/// What waits to be sent, against its limit. LISTEN: the accept queue.
fn send_cell(cx: &Cx<'_>, r: SockRow, w: u16) -> Cell {
    if let Some((t, i)) = r.unix(cx) {
        return unix::send_cell(t, i, w);
    }
    let Some((t, i)) = r.get(cx) else { return Cell::Text("".into(), Tone::Dim) };
    if t.inet.state[i] == SockState::LISTEN {
        return accept_queue(t.inet.rqueue[i], t.inet.wqueue[i], w);
    }
    let m = t.inet.skmem(i);
    pair(t, i, m.w(), m.tb(), t.inet.wqueue[i])
}
fn accept_queue(len: u32, limit: u32, w: u16) -> Cell {
    let tone = if len > 0 { Tone::Strong } else { Tone::Dim };
    let full = format!("acc {len}/{limit}");
    let text = if full.len() <= usize::from(w) {
        full
    } else {
        format!("{}/{}", units::count(len.into()), units::count(limit.into()))
    };
    Cell::Text(text.into(), tone)
}
fn recv_cell(cx: &Cx<'_>, r: SockRow, _w: u16) -> Cell {
    if let Some((t, i)) = r.unix(cx) {
        return unix::recv_cell(t, i);
    }
    let Some((t, i)) = r.get(cx) else { return Cell::Text("".into(), Tone::Dim) };
    if t.inet.state[i] == SockState::LISTEN {
        return Cell::Text("".into(), Tone::Dim);
    }
    let m = t.inet.skmem(i);
    pair(t, i, m.r(), m.rb(), t.inet.rqueue[i])
}
fn pair(t: &NetnsTable, i: usize, part: Option<u32>, whole: Option<u32>, payload: u32) -> Cell {
    match (part, whole) {
        _ if t.inet.state[i] == SockState::TIME_WAIT => Cell::Text("".into(), Tone::Dim),
        (Some(0), Some(_)) => Cell::Text("0".into(), Tone::Dim),
        (Some(a), Some(b)) => Cell::Text(
            format!("{}/{}", units::bytes(a.into()), units::bytes(b.into())).into(),
            Tone::Plain,
        ),
        // /proc/net has no skmem: the payload is what there is.
        _ if payload == 0 => Cell::Text("0".into(), Tone::Dim),
        _ => Cell::Text(units::bytes(payload.into()).into(), Tone::Plain),
    }
}
fn skmem_w(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::int(t.inet.skmem(i).w()))
}
fn skmem_tb(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::int(t.inet.skmem(i).tb()))
}
fn skmem_r(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::int(t.inet.skmem(i).r()))
}
fn skmem_rb(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::int(t.inet.skmem(i).rb()))
}
fn skmem_t(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::int(t.inet.skmem(i).t()))
}
fn drops(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::int(t.inet.skmem(i).d()))
}
/// How long nothing has moved although something waits.
fn stall(cx: &Cx<'_>, r: SockRow) -> Value {
    let since = r.suspect(cx).and_then(Suspect::stalled_since);
    since.map_or(Value::Empty, |at| Value::Num(cx.mono().since(at).as_secs_f64()))
}
fn owner(cx: &Cx<'_>, r: SockRow) -> Value {
    match (r.owner(cx), r.asked(cx)) {
        (Some(o), _) => Value::Text(format!("{}/{}", text::clean(&o.comm), o.pid).into()),
        (None, None | Some((_, 0))) => Value::Empty,
        (None, Some(_)) => Value::Unknown,
    }
}
fn pid(cx: &Cx<'_>, r: SockRow) -> Value {
    Value::int(r.owner(cx).map(|o| o.pid))
}
fn uid(cx: &Cx<'_>, r: SockRow) -> Value {
    at!(cx, r, |t, i| Value::Num(f64::from(t.inet.uid[i])))
}
fn netns(cx: &Cx<'_>, r: SockRow) -> Value {
    unix!(cx, r, unix::netns);
    if let Some(g) = group::get(cx, r) {
        let space = cx.suspects.space(g.netns);
        return space.map_or(Value::Empty, |s| Value::name(&s.label));
    }
    at!(cx, r, |t, _i| Value::name(&t.label))
}

/// Why it does not get on, in words.
fn why(cx: &Cx<'_>, r: SockRow) -> Value {
    let Some((t, i)) = r.get(cx) else { return Value::Empty };
    let (state, retrans) = (t.inet.state[i], t.inet.retrans[i]);
    if state == SockState::LISTEN {
        // The queue of connections that wait to be accepted.
        let (len, limit) = (t.inet.rqueue[i], t.inet.wqueue[i]);
        return if len > limit { Value::Text("queue full".into()) } else { Value::Empty };
    }
    let s = r.suspect(cx);
    let closed = s.is_some_and(|s| s.zero_window_since.is_some());
    let times = |what: &str, n: u8| Value::Text(format!("{what} x{n}").into());
    match t.inet.timer[i] {
        _ if state == SockState::SYN_SENT => times("connecting", retrans),
        SockTimer::PERSIST if closed => Value::Text("peer window 0".into()),
        SockTimer::PERSIST => Value::Text("cannot send".into()),
        SockTimer::ON if retrans > 0 => times("no answer", retrans),
        SockTimer::KEEPALIVE if retrans > 0 => times("peer gone", retrans),
        _ if s.is_some_and(|s| s.unread_since.is_some()) => Value::Text("not read here".into()),
        _ if state == SockState::CLOSE_WAIT && cx.marks.socket(t.id(i)).is_some() => {
            Value::Text("not closed".into())
        }
        _ => Value::Empty,
    }
}

/// Of a group: what it moves.
fn why_cell(cx: &Cx<'_>, r: SockRow, w: u16) -> Cell {
    match group::get(cx, r) {
        Some(g) => Cell::Text(group::moved(g, w).into(), Tone::Dim),
        None => format_value(&why(cx, r), Unit::Text),
    }
}

static COLUMNS: [Column<SockRow>; 29] = [
    Column::new("st", 2, Unit::Text, state)
        .also("state")
        .prio(0)
        .write(state_cell)
        .about("TCP state: ES SS SR F1 F2 TW CW LA LI CL, UD for UDP"),
    Column::new("local", 16, Unit::Endpoint, local)
        .prio(1)
        .grow(47)
        .write(local_cell)
        .about("local end; UNIX: name, @ when abstract, * and inode when it has none"),
    Column::new("peer", 15, Unit::Endpoint, peer)
        .prio(0)
        .grow(47)
        .about("remote end; UNIX: * and the peer's inode"),
    Column::new("owner", 12, Unit::Task, owner).prio(7).grow(24).about("process that owns it"),
    Column::new("why", 13, Unit::Text, why)
        .prio(3)
        .grow(24)
        .write(why_cell)
        .about("why it does not get on, in words; healthy connections: what they move"),
    Column::new("rto", 5, Unit::Time, rto).prio(2).about("retransmission timeout"),
    Column::new("backoff", 7, Unit::Count, backoff)
        .prio(6)
        .about("exponential backoff of the timer"),
    Column::new("retr", 4, Unit::Count, retrans)
        .prio(3)
        .about("timeouts or probes without an answer"),
    Column::new("sendq", 9, Unit::Bytes, wqueue)
        .prio(2)
        .write(send_cell)
        .about("send buffer against its limit; LISTEN: accept queue"),
    Column::new("recvq", 9, Unit::Bytes, rqueue)
        .prio(4)
        .write(recv_cell)
        .about("receive buffer against its limit"),
    Column::new("stall", 5, Unit::Time, stall)
        .prio(5)
        .about("time since data was last acknowledged or read"),
    Column::new("timer", 9, Unit::Text, timer).prio(8).about("running timer"),
    Column::new("netns", 10, Unit::Text, netns).prio(9).grow(16).about("network namespace"),
    Column::new("rtt", 5, Unit::Time, rtt).prio(10).about("smoothed round-trip time"),
    Column::new("cwnd", 5, Unit::Count, cwnd).prio(11).about("congestion window, segments"),
    Column::new("proto", 5, Unit::Text, proto).prio(HIDDEN).about("tcp, mptcp, udp or unix"),
    Column::new("dport", 5, Unit::Count, dport).prio(HIDDEN).about("remote port"),
    Column::new("sport", 5, Unit::Count, sport).prio(HIDDEN).about("local port"),
    Column::new("comm", 12, Unit::Text, owner).prio(HIDDEN).about("process that owns it"),
    Column::new("pid", 7, Unit::Count, pid).prio(HIDDEN).about("its process id"),
    Column::new("uid", 6, Unit::Count, uid).prio(HIDDEN).about("its user id"),
    Column::new("w", 5, Unit::Bytes, skmem_w).prio(HIDDEN).about("skmem: write queue"),
    Column::new("tb", 5, Unit::Bytes, skmem_tb).prio(HIDDEN).about("skmem: send limit"),
    Column::new("r", 5, Unit::Bytes, skmem_r).prio(HIDDEN).about("skmem: receive queue"),
    Column::new("rb", 5, Unit::Bytes, skmem_rb).prio(HIDDEN).about("skmem: receive limit"),
    Column::new("t", 5, Unit::Bytes, skmem_t)
        .prio(HIDDEN)
        .about("skmem: handed to qdisc or driver"),
    Column::new("drops", 5, Unit::Count, drops)
        .prio(HIDDEN)
        .about("dropped by this socket since it was created"),
    Column::new("snd_wnd", 7, Unit::Bytes, snd_wnd).prio(HIDDEN).about("window of the peer"),
    Column::new("total_retrans", 13, Unit::Count, total_retrans)
        .prio(HIDDEN)
        .about("segments retransmitted since it was created"),
];

/// The pane.
pub struct Sockets;

impl Table for Sockets {
    type Row = SockRow;

    fn columns(&self) -> &'static [Column<SockRow>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<SockRow> {
        let rows = |t: &NetnsTable| t.inet.len() + t.unix.len();
        let mut out = Vec::with_capacity(cx.tables.iter().map(|t| rows(t)).sum());
        for (ti, t) in cx.tables.iter().enumerate() {
            let table = ti as u16;
            out.extend((0..rows(t) as u32).map(|row| SockRow { table, row }));
        }
        out
    }
    /// The healthy ones are groups. A pass over all of them in each frame: nothing is kept of those
    /// that are left out.
    fn listed(&self, cx: &Cx<'_>) -> Vec<SockRow> {
        let mut out = Vec::new();
        for (t, table) in cx.tables.iter().zip(0_u16..) {
            let row = |i: usize| SockRow { table, row: i as u32 };
            out.extend((0..t.inet.len()).filter(|i| is_listed(cx, t, *i)).map(row));
            let unix = (0..t.unix.len()).filter(|i| unix::is_listed(t, *i));
            out.extend(unix.map(|i| row(t.inet.len() + i)));
        }
        out.extend(group::rows(cx));
        out
    }
    fn key(&self, cx: &Cx<'_>, r: SockRow) -> RowKey {
        if let Some((t, i)) = r.unix(cx) {
            return unix::key_of(t, i);
        }
        if let Some(g) = group::get(cx, r) {
            return group::key(g);
        }
        r.get(cx).map_or(RowKey::Socket(SockId::default(), 0), |(t, i)| key_of(t, i))
    }
    fn mark(&self, cx: &Cx<'_>, r: SockRow) -> Option<Severity> {
        r.get(cx).and_then(|(t, i)| mark(cx, t, i))
    }
    fn trouble(&self, cx: &Cx<'_>, r: SockRow) -> f64 {
        if let Some((t, i)) = r.unix(cx) {
            return unix::trouble(t, i);
        }
        if let Some(g) = group::get(cx, r) {
            return group::weight(g);
        }
        let Some((t, i)) = r.get(cx) else { return 0.0 };
        let mark = self.mark(cx, r).map_or(0.0, |s| 1e6 * (1.0 + f64::from(s as u8)));
        mark + f64::from(trouble(&t.inet, i))
    }
    /// Older sockets first: cookies grow.
    fn tie(&self, cx: &Cx<'_>, r: SockRow) -> Option<u64> {
        let cookie = match r.unix(cx) {
            Some((t, i)) => t.unix.cookie[i],
            None => match group::get(cx, r).map(group::key) {
                Some(RowKey::Numbered(_, n)) => n,
                _ => r.get(cx).map(|(t, i)| t.inet.cookie[i])?,
            },
        };
        (cookie != 0).then_some(cookie)
    }
    fn search(&self, cx: &Cx<'_>, r: SockRow, out: &mut String) {
        if let Some((t, i)) = r.unix(cx) {
            unix::search(t, i, out);
        } else if let Some((t, i)) = r.get(cx) {
            let (l, p) = (t.inet.local_endpoint(i), t.inet.remote_endpoint(i));
            let _ = write!(out, "{} {l} {p} {}", t.inet.state[i].name(), t.label);
        }
        if let Some(o) = r.owner(cx) {
            let _ = write!(out, " {}/{}", o.comm, o.pid);
        }
    }
}

fn mark(cx: &Cx<'_>, t: &NetnsTable, i: usize) -> Option<Severity> {
    cx.marks.socket(t.id(i)).or_else(|| {
        (t.inet.state[i] == SockState::LISTEN)
            .then(|| cx.marks.listener(t.netns, || t.inet.local_endpoint(i)))?
    })
}

/// Has a socket a row of its own while the healthy ones are groups? Bytes that wait for a moment
/// are no trouble; unread ones that are followed may be. Rows of `/proc/net` are not found among
/// those.
fn is_listed(cx: &Cx<'_>, t: &NetnsTable, i: usize) -> bool {
    let worth = trouble(&t.inet, i);
    let is_followed = || t.inet.cookie[i] == 0 || cx.suspects.get(t.id(i)).is_some();
    worth >= STUCK || (worth >= UNREAD && is_followed()) || mark(cx, t, i).is_some()
}

/// Are healthy sockets only counted?
fn folds(p: &PaneCx<'_>) -> bool {
    p.st.filter.is_empty() && matches!(p.st.sort, Sort::Trouble { .. })
}

/// How many there are, and how the others are listed.
fn count(p: &PaneCx<'_>, passed: usize) -> String {
    let tables = &p.cx.tables;
    let inet: usize = tables.iter().map(|t| t.inet.len()).sum();
    let unix: usize = tables.iter().map(|t| t.unix.len()).sum();
    let mut out = if folds(p) {
        let unix = |t: &NetnsTable| (0..t.unix.len()).filter(|i| unix::is_listed(t, *i)).count();
        // Of the moment whose rows passed.
        let then = super::order_cx(p);
        let others: usize = then.tables.iter().map(|t| unix(t)).sum();
        match passed.saturating_sub(group::rows(then).count() + others) {
            0 => format!("none of {} stuck", grouped(inet)),
            n => format!("{} of {} stuck", grouped(n), grouped(inet)),
        }
    } else {
        grouped(inet)
    };
    if tables.len() > 1 {
        let _ = write!(out, " in {} netns", tables.len());
    }
    if unix > 0 {
        let _ = write!(out, " + {} unix", grouped(unix));
    }
    out
}

impl ListPane for Sockets {
    const ID: PaneId = PaneId::Sockets;
    const NAME: &'static str = "sockets";
    const TITLE: &'static str = "Sockets";
    const HELP: &'static str = "go to the sockets; again: zoom";

    /// Without a list of them: there may be 100,000.
    fn wants(&self, p: &PaneCx<'_>) -> u16 {
        let rows: usize = if folds(p) {
            p.cx.suspects.suspects.len() + group::rows(p.cx).count() + 1
        } else {
            p.cx.tables.iter().map(|t| t.inet.len() + t.unix.len()).sum()
        };
        u16::try_from(rows + 1).unwrap_or(u16::MAX)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let cx = p.cx;
        let own = cx.tables.first();
        let source = own.map_or("netlink", |t| match t.source {
            SocketSource::Netlink => "netlink",
            SocketSource::ProcNet => "/proc/net",
        });
        let note = super::note(p, source, CollectorId::Sockets, own.map(|t| t.span.mid()));
        let mut vm = PaneVm { note, ..PaneVm::default() };
        if cx.tables.is_empty() {
            vm.lines = super::empty_lines(p, CollectorId::Sockets, inner.w);
            return vm;
        }
        let win = super::window(self, p, self.list_rows(p, inner));
        vm.title.push((count(p, win.passed).into(), Tone::Plain));
        vm.title.extend(super::order_title(self, p, &win));
        super::add_table(&mut vm, self, p, &win, inner.w);
        if folds(p) && vm.lines.len() < usize::from(inner.h) {
            let more: u32 = cx.suspects.spaces.iter().map(|s| s.groups_left_out).sum();
            let more = if more > 0 { format!(" ({more} more)") } else { String::new() };
            let says =
                format!("   healthy ones are one row per port or peer{more}: s or / lists each");
            vm.lines.push(Line::of(says, Tone::Dim).whole(inner.w));
        }
        vm.visible = win.rows.iter().filter_map(|r| r.asked(cx)).collect();
        vm
    }
}

/// `12,418`.
#[must_use]
pub fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

//! A socket: where is the packet? The way down from the application to the peer, with the
//! place where it is stuck.

use std::fmt::Write as _;

use super::{chart, field, findings_on, gone};
use crate::collect::sockets::{NetnsTable, Proto, RouteOutcome, SockState, SockTimer, TcpInfo};
use crate::model::derive::sockets::{Suspect, TimerKind};
use crate::model::subject::SockId;
use crate::view::context::Cx;
use crate::view::panes::sockets::{SockRow, find};
use crate::view::state::RowKey;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

/// How a rung of the ladder looks.
#[derive(Clone, Copy, PartialEq)]
enum Rung {
    Fine,
    Odd,
    Stuck,
    NotReached,
    Unknown,
}

struct Ladder {
    lines: Vec<Line>,
    /// Column of the verdicts.
    column: usize,
    stuck: bool,
}

impl Ladder {
    fn rung(&mut self, name: &'static str, what: String, state: Rung, says: &str) {
        let (what, state) =
            if self.stuck { ("-".to_owned(), Rung::NotReached) } else { (what, state) };
        let mut line = field(name, what);
        line.fit(self.column);
        let (mark, tone, says) = match state {
            Rung::Fine => ("   ", Tone::Dim, says),
            Rung::Odd => (" ! ", Tone::Warn, says),
            Rung::Stuck => (" !! ", Tone::Crit, "stuck here"),
            Rung::NotReached => ("   ", Tone::Dim, "not reached"),
            Rung::Unknown => ("   ", Tone::Dim, "cannot tell"),
        };
        line.add(mark, tone);
        line.add(says.to_owned(), if state == Rung::Stuck { Tone::Crit } else { Tone::Plain });
        self.lines.push(line);
        self.stuck |= state == Rung::Stuck;
    }
}

pub(super) fn lines(cx: &Cx<'_>, id: SockId, alt: u64, w: u16) -> Vec<Line> {
    let Some(row) = find(cx, id, alt) else { return gone("socket") };
    if let Some((t, i)) = row.unix(cx) {
        return super::unix::lines(cx, row, t, i);
    }
    let Some((t, i)) = row.get(cx) else { return gone("socket") };
    let mut out = vec![head(cx, row, t, i)];
    out.extend(findings_on(cx, RowKey::Socket(id, alt)));
    out.push(Line::new());
    if t.inet.proto[i] == Proto::Udp {
        out.extend(plain(t, i));
    } else if t.inet.state[i] == SockState::LISTEN {
        out.extend(listener(t, i));
    } else {
        out.extend(ladder(cx, row, t, i, w));
        out.push(Line::new());
        out.extend(charts(cx, id, w));
    }
    out.push(Line::new());
    out.extend(numbers(row, cx, t, i));
    if let Some(cmd) = next_command(cx, id, alt) {
        out.push(field("next", cmd));
    }
    out
}

fn head(cx: &Cx<'_>, row: SockRow, t: &NetnsTable, i: usize) -> Line {
    let r = &t.inet;
    let mut line = Line::of(format!(" {} ", r.state[i].name()), Tone::Strong);
    line.add(r.local_endpoint(i).to_string(), Tone::Strong);
    if r.rport[i] != 0 {
        line.add(format!(" -> {}", r.remote_endpoint(i)), Tone::Strong);
    }
    if let Some(o) = row.owner(cx) {
        line.add(format!("   {}/{}", text::clean(&o.comm), o.pid), Tone::Plain);
    }
    line.add(format!("   netns {} ({})", t.netns, text::clean(&t.label)), Tone::Dim);
    if r.cgroup[i] != 0 {
        let path = t.cgroups.iter().find(|c| c.0 == r.cgroup[i]).map(|c| text::clean(&c.1));
        let path = path.map_or_else(|| r.cgroup[i].to_string(), std::borrow::Cow::into_owned);
        line.add(format!("   cgroup {path}"), Tone::Dim);
    }
    line.add(format!("   uid {}", r.uid[i]), Tone::Dim);
    line
}

fn ago(ms: Option<u32>) -> String {
    ms.map_or_else(
        || units::UNKNOWN.to_owned(),
        |ms| format!("{} ago", units::millis(f64::from(ms))),
    )
}

fn ladder(cx: &Cx<'_>, row: SockRow, t: &NetnsTable, i: usize, w: u16) -> Vec<Line> {
    let info = row.info(cx);
    let info = info.as_ref();
    let s = row.suspect(cx);
    let column = usize::from(w).saturating_sub(36).clamp(40, 76);
    let mut l = Ladder { lines: Vec::new(), column, stuck: false };
    application(&mut l, t, i, info);
    send_buffer(&mut l, t, i, info);
    window(&mut l, t, i, info);
    timer(&mut l, t, i, info, s);
    route(&mut l, s, t, i);
    queue(&mut l, t, i);
    let last = ago(info.and_then(TcpInfo::last_ack_recv_ms));
    // What the peer said is known even when nothing of ours reaches it.
    let mut line = field("peer", format!("last ACK {last}"));
    if let Some(rtt) = info.and_then(TcpInfo::rtt_us) {
        line.add(format!(", rtt {}", units::secs(f64::from(rtt) / 1e6)), Tone::Plain);
    }
    l.lines.push(line);
    l.lines
}

fn application(l: &mut Ladder, t: &NetnsTable, i: usize, info: Option<&TcpInfo>) {
    let wrote = ago(info.and_then(TcpInfo::last_data_sent_ms));
    let unread = t.inet.rqueue[i];
    if unread > 0 {
        let what = format!("sent {wrote}; {} received and not read", units::bytes(unread.into()));
        l.rung("application", what, Rung::Odd, "it does not read");
    } else {
        l.rung("application", format!("sent {wrote}"), Rung::Fine, "ok");
    }
}

fn send_buffer(l: &mut Ladder, t: &NetnsTable, i: usize, info: Option<&TcpInfo>) {
    let m = t.inet.skmem(i);
    let unsent = info.and_then(TcpInfo::notsent_bytes);
    let show = |v: Option<u32>| v.map_or(units::UNKNOWN.to_owned(), |v| units::bytes(v.into()));
    let what = format!(
        "w {} of tb {}, not acknowledged {}, not sent {}",
        show(m.w()),
        show(m.tb()),
        units::bytes(t.inet.wqueue[i].into()),
        show(unsent)
    );
    match (m.w(), m.tb()) {
        (Some(w), Some(tb)) if w >= tb && tb > 0 => {
            l.rung("send buffer", what, Rung::Odd, "full: the application is blocked");
        }
        (None, _) => l.rung("send buffer", what, Rung::Unknown, ""),
        _ => l.rung("send buffer", what, Rung::Fine, "ok"),
    }
}

fn window(l: &mut Ladder, t: &NetnsTable, i: usize, info: Option<&TcpInfo>) {
    let Some(info) = info else {
        l.rung("window, cwnd", "no tcp_info yet".to_owned(), Rung::Unknown, "");
        return;
    };
    let n = |v: Option<u32>| v.map_or(units::UNKNOWN.to_owned(), |v| units::int(v.into()));
    let wnd = info.snd_wnd();
    let what = format!(
        "snd_wnd {}, cwnd {}, unacked {}",
        wnd.map_or(units::UNKNOWN.to_owned(), |v| units::bytes(v.into())),
        n(info.snd_cwnd()),
        n(info.unacked())
    );
    let persist = t.inet.timer[i] == SockTimer::PERSIST;
    match wnd {
        Some(0) if persist => l.rung("window, cwnd", what, Rung::Stuck, ""),
        _ if persist => l.rung("window, cwnd", what, Rung::Odd, "probes although not zero"),
        Some(0) => l.rung("window, cwnd", what, Rung::Odd, "the peer's window is closed"),
        Some(_) => l.rung("window, cwnd", what, Rung::Fine, "not the peer's window"),
        None => l.rung("window, cwnd", what, Rung::Unknown, ""),
    }
}

fn timer(l: &mut Ladder, t: &NetnsTable, i: usize, info: Option<&TcpInfo>, s: Option<&Suspect>) {
    let kind = t.inet.timer[i];
    let n = t.inet.retrans[i];
    let mut what = match kind.name() {
        "" => "none runs".to_owned(),
        name => format!("{name}, fires in {}", units::millis(t.inet.expires_ms[i].into())),
    };
    if let Some(rto) = info.and_then(TcpInfo::rto_us) {
        let _ = write!(what, ", rto {}", units::secs(f64::from(rto) / 1e6));
        let backoff = info.and_then(TcpInfo::backoff).unwrap_or(0);
        let base = rto.checked_shr(backoff.into()).filter(|_| backoff > 0);
        if let Some(base) = base.filter(|_| kind == SockTimer::ON) {
            let _ = write!(what, " = {} << {backoff}", units::secs(f64::from(base) / 1e6));
        }
    }
    if kind != SockTimer::ON || n == 0 {
        l.rung("TCP timer", what, Rung::Fine, "");
        return;
    }
    let rtos = s.map_or(u32::from(n), |s| s.fired(TimerKind::Rto).max(u32::from(n)));
    let sent: Option<u32> = s.and_then(|s| s.events.iter().map(|e| e.segs_out).sum());
    let seen = s.is_some_and(|s| !s.events.is_empty());
    let says = match sent.filter(|_| seen) {
        Some(sent) => format!("{rtos} fired, {sent} segments left"),
        None => format!("{rtos} fired"),
    };
    l.rung("TCP timer", what, Rung::Odd, &says);
}

fn route(l: &mut Ladder, s: Option<&Suspect>, t: &NetnsTable, i: usize) {
    let found = t.route(t.inet.cookie[i]).or_else(|| s?.route.as_ref());
    match found {
        Some(RouteOutcome::Errno(e)) => {
            let what = format!("{}: {}", t.inet.remote_endpoint(i).addr, errno(*e));
            l.rung("route", what, Rung::Stuck, "");
        }
        Some(RouteOutcome::Via { dev, .. }) => {
            l.rung("route", format!("via {}", text::clean(dev)), Rung::Fine, "ok");
        }
        None => l.rung("route", "not looked up".to_owned(), Rung::Fine, "asked on retransmits"),
    }
}

fn queue(l: &mut Ladder, t: &NetnsTable, i: usize) {
    match t.inet.skmem(i).t() {
        Some(0) => {
            l.rung("qdisc, NIC", "t 0: nothing waits below TCP".to_owned(), Rung::Fine, "ok");
        }
        Some(n) => {
            let retrans = t.inet.retrans[i] > 0;
            let state = if retrans { Rung::Odd } else { Rung::Fine };
            let what = format!("t {} handed down and not freed", units::bytes(n.into()));
            l.rung("qdisc, NIC", what, state, "waits in qdisc or driver");
        }
        None => l.rung("qdisc, NIC", units::UNKNOWN.to_owned(), Rung::Unknown, ""),
    }
}

/// What `errno` values of a route lookup mean.
fn errno(e: i32) -> String {
    match e {
        101 => "Network is unreachable".to_owned(),
        113 => "No route to host".to_owned(),
        13 => "Permission denied (prohibit route)".to_owned(),
        22 => "Invalid argument (blackhole route)".to_owned(),
        e => format!("errno {e}"),
    }
}

fn charts(cx: &Cx<'_>, id: SockId, w: u16) -> Vec<Line> {
    if cx.suspects.get(id).is_none() {
        return vec![Line::of(" healthy sockets are not followed over time", Tone::Dim)];
    }
    let count = |v: f64| units::count(v);
    vec![
        chart(cx, "retransmits", w, 1.0, count, move |d| {
            d.sockets.get(id).map(|s| f64::from(s.retrans))
        }),
        chart(cx, "rto", w, 0.2, units::secs, move |d| {
            Some(f64::from(d.sockets.get(id)?.info?.rto_us()?) / 1e6)
        }),
        chart(cx, "send queue", w, 1.0, units::bytes, move |d| {
            d.sockets.get(id).map(|s| f64::from(s.wqueue))
        }),
        chart(cx, "recv queue", w, 1.0, units::bytes, move |d| {
            d.sockets.get(id).map(|s| f64::from(s.rqueue))
        }),
        chart(cx, "segs_out", w, 1.0, count, move |d| {
            d.sockets.get(id)?.info?.segs_out().map(f64::from)
        }),
    ]
}

fn listener(t: &NetnsTable, i: usize) -> Vec<Line> {
    let (len, limit) = (t.inet.rqueue[i], t.inet.wqueue[i]);
    let mut line = field("accept queue", format!("{len} of {limit}"));
    if limit > 0 && len >= limit {
        line.add("   !! full: new connections are dropped", Tone::Crit);
    }
    vec![line]
}

fn plain(t: &NetnsTable, i: usize) -> Vec<Line> {
    let r = &t.inet;
    let m = r.skmem(i);
    let mut out = vec![
        field("unread", units::bytes(r.rqueue[i].into())),
        field("unsent", units::bytes(r.wqueue[i].into())),
    ];
    if let Some(d) = m.d() {
        out.push(field("dropped", format!("{d} since it exists")));
    }
    out
}

fn numbers(row: SockRow, cx: &Cx<'_>, t: &NetnsTable, i: usize) -> Vec<Line> {
    let m = t.inet.skmem(i);
    let names = ["r", "rb", "t", "tb", "f", "w", "o", "bl", "d"];
    let words = [m.r(), m.rb(), m.t(), m.tb(), m.f(), m.w(), m.o(), m.bl(), m.d()];
    let mut skmem = String::new();
    for (name, v) in names.iter().zip(words) {
        if let Some(v) = v {
            let _ = write!(skmem, "{name} {v}  ");
        }
    }
    let mut out = Vec::new();
    out.push(field(
        "skmem",
        if skmem.is_empty() { "not sent by this source".to_owned() } else { skmem },
    ));
    let Some(info) = row.info(cx) else { return out };
    let n = |v: Option<u64>| v.map_or(units::UNKNOWN.to_owned(), |v| v.to_string());
    let up = |v: Option<u32>| n(v.map(u64::from));
    out.push(field(
        "segments",
        format!(
            "out {}  in {}  data out {}  retransmitted {}  lost {}  sacked {}",
            up(info.segs_out()),
            up(info.segs_in()),
            up(info.data_segs_out()),
            up(info.total_retrans()),
            up(info.lost()),
            up(info.sacked())
        ),
    ));
    out.push(field(
        "bytes",
        format!(
            "acked {}  received {}  sent {}  retransmitted {}",
            n(info.bytes_acked()),
            n(info.bytes_received()),
            n(info.bytes_sent()),
            n(info.bytes_retrans())
        ),
    ));
    let share = |v: Option<u64>| {
        let part = v.zip(info.busy_us().filter(|b| *b > 0));
        part.map_or(units::UNKNOWN.to_owned(), |(v, busy)| {
            format!("{}%", units::pct(v as f64 * 100.0 / busy as f64))
        })
    };
    out.push(field(
        "limited by",
        format!(
            "peer's window {}  send buffer {}  of the busy time",
            share(info.rwnd_limited_us()),
            share(info.sndbuf_limited_us())
        ),
    ));
    out
}

/// What to type next: ask the kernel for the route while it retransmits, else look closer.
pub(super) fn next_command(cx: &Cx<'_>, id: SockId, alt: u64) -> Option<String> {
    let row = find(cx, id, alt)?;
    if let Some((t, i)) = row.unix(cx) {
        return Some(super::unix::next_command(t, i));
    }
    let (t, i) = row.get(cx)?;
    let r = &t.inet;
    let enter = enter(t);
    let (l, p) = (r.local_endpoint(i), r.remote_endpoint(i));
    if r.timer[i] == SockTimer::ON && r.retrans[i] > 0 {
        return Some(format!("{enter}ip route get {} from {}", p.addr, l.addr));
    }
    let family = if l.addr.is_ipv4() { "-4" } else { "-6" };
    let kind = if r.proto[i] == Proto::Udp { "u" } else { "t" };
    Some(format!("{enter}ss {family} -{kind}inpoma sport = :{}", l.port))
}

/// What goes in front of a command that has to run in the namespace of a table.
pub(super) fn enter(t: &NetnsTable) -> String {
    t.member
        .filter(|_| t.label != "host")
        .map_or(String::new(), |pid| format!("nsenter -t {pid} -n "))
}

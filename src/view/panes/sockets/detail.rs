//! A socket: the path of its packets from the application to the peer, and where they are stuck.

use std::fmt::Write as _;

use crate::metrics::sockets::{Rto, Suspect, TimerKind};
use crate::sample::sockets::{
    NetnsTable, Proto, RouteOutcome, SockState, SockTimer, TcpInfo, unmap,
};
use crate::sample::subject::SockId;
use crate::view::context::Cx;
use crate::view::lines::{chart, field, findings_on, gone};
use crate::view::panes::RowDetail;
use crate::view::panes::sockets::{SockRow, Sockets, find, group};
use crate::view::state::RowKey;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

/// The state of a step on that path.
#[derive(Clone, Copy, PartialEq)]
enum Rung {
    Fine,
    /// Worth a look, unless it follows from where the packets are stuck.
    Odd,
    /// Worth a look wherever they are stuck.
    Wrong,
    /// Here.
    Stuck,
    NotReached,
    Unknown,
}

struct Ladder {
    lines: Vec<Line>,
    /// Column of the verdicts.
    column: usize,
    /// Where packets are stuck, if the numbers show it.
    place: Option<Place>,
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
            // A consequence, like the full buffer above a closed window, is stated, not flagged.
            Rung::Odd if self.place.is_some() => ("   ", Tone::Dim, says),
            Rung::Odd | Rung::Wrong => (" ! ", Tone::Warn, says),
            Rung::Stuck if says.is_empty() => (" !! ", Tone::Crit, "stuck here"),
            Rung::Stuck => (" !! ", Tone::Crit, says),
            Rung::NotReached => ("   ", Tone::Dim, "not reached"),
            Rung::Unknown => ("   ", Tone::Dim, "cannot tell"),
        };
        line.add(mark, tone);
        line.add(says.to_owned(), if state == Rung::Stuck { Tone::Crit } else { Tone::Plain });
        self.lines.push(line);
        // What is not known to be wrong is still worth seeing.
        self.stuck |= state == Rung::Stuck && self.place != Some(Place::Timer);
    }
}

impl RowDetail for Sockets {
    fn title(&self, cx: &Cx<'_>, key: RowKey) -> &'static str {
        match key {
            RowKey::Socket(id, alt) if find(cx, id, alt).is_some_and(|r| r.unix(cx).is_some()) => {
                "UNIX socket"
            }
            RowKey::Numbered(..) => "Connections",
            _ => "Socket: where is the packet?",
        }
    }
    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let RowKey::Socket(id, alt) = key else { return group::lines(cx, key) };
        lines(cx, id, alt, w)
    }
    fn next_command(&self, cx: &Cx<'_>, key: RowKey) -> Option<String> {
        let RowKey::Socket(id, alt) = key else { return group::next_command(cx, key) };
        next_command(cx, id, alt)
    }
    /// From connections to one of them.
    fn leads_on(&self, key: RowKey) -> bool {
        matches!(key, RowKey::Numbered(..))
    }
    fn leads_to(&self, cx: &Cx<'_>, key: RowKey) -> Option<RowKey> {
        group::leads_to(cx, key)
    }
    fn process(&self, cx: &Cx<'_>, key: RowKey) -> Option<u32> {
        let RowKey::Socket(id, alt) = key else { return group::process(cx, key) };
        find(cx, id, alt)?.owner(cx).map(|o| o.pid)
    }
    /// A row that is gone keeps its question: it may come back.
    fn asks(&self, cx: &Cx<'_>, key: RowKey) -> Option<(SockId, u32)> {
        let RowKey::Socket(id, alt) = key else { return group::asks(cx, key) };
        Some(find(cx, id, alt).and_then(|r| r.asked(cx)).unwrap_or((id, 0)))
    }
}

fn lines(cx: &Cx<'_>, id: SockId, alt: u64, w: u16) -> Vec<Line> {
    let Some(row) = find(cx, id, alt) else { return gone("socket") };
    if let Some((t, i)) = row.unix(cx) {
        return super::detail_unix::lines(cx, row, t, i);
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

/// Where packets of a connection are stuck.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// The peer's window is closed.
    Window,
    /// The timer fires and nothing leaves TCP; no known problem further down.
    Timer,
    /// There is no route.
    Route,
    /// In the qdisc or the driver.
    Queue,
    /// This host drops them on their way out.
    Refused,
    /// They leave, and the peer does not answer.
    Peer,
}

/// From this many unanswered RTOs on, the peer or the path counts as silent.
const SILENT: u8 = 3;

/// Segments sent by the RTOs that were observed; `None`: none was observed.
fn left(s: &Suspect) -> Option<u32> {
    let rtos = s.events.iter().filter(|e| e.kind == TimerKind::Rto);
    rtos.map(|e| e.segs_out).reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
}

/// Where packets are stuck, judging by timers, counters and the route: the ladder that the rules
/// use, for one socket and one moment.
fn place(t: &NetnsTable, i: usize, info: Option<&TcpInfo>, s: Option<&Suspect>) -> Option<Place> {
    let r = &t.inet;
    if r.timer[i] == SockTimer::PERSIST {
        let probes = |s: &Suspect| -> u32 {
            let sent = s.trailing(TimerKind::Probe, |e| e.data_segs_out.is_some_and(|n| n > 0));
            sent.map(|e| e.count).sum()
        };
        let idle = info.and_then(TcpInfo::unacked) == Some(0);
        return match info.and_then(TcpInfo::snd_wnd)? {
            0 => (r.wqueue[i] > 0).then_some(Place::Window),
            // Probes of a closed window carry no data.
            _ => (idle && s.map_or(0, probes) >= 2).then_some(Place::Refused),
        };
    }
    if r.timer[i] != SockTimer::ON || r.retrans[i] == 0 {
        return None;
    }
    if matches!(found_route(s, t, i), Some(RouteOutcome::Errno(_))) {
        return Some(Place::Route);
    }
    let last = s.and_then(|s| s.trailing(TimerKind::Rto, |_| true).next());
    let again = last.and_then(|e| e.total_retrans);
    let sent = last.and_then(|e| e.data_segs_out.or(e.segs_out));
    let refused = last.and_then(|e| Some((e.net.retrans_fail?, e.net.retrans_segs?)));
    match (again, sent) {
        (Some(0), Some(0)) if r.skmem(i).t().is_some_and(|t| t > 0) => Some(Place::Queue),
        (Some(0), Some(0)) => Some(Place::Timer),
        (Some(n), _) if n > 0 && refused.is_some_and(|(f, all)| f > 0 && f * 2 >= all) => {
            Some(Place::Refused)
        }
        _ if r.retrans[i] < SILENT => None,
        (Some(n), _) if n > 0 => Some(Place::Peer),
        // Not observed: the last one sent something when it fired.
        (None, _) => {
            let (rto, sent) = (info?.rto_us()? / 1000, info?.last_data_sent_ms()?);
            let all = info?.total_retrans()? >= r.retrans[i].into();
            (all && sent <= rto.saturating_add(rto / 10)).then_some(Place::Peer)
        }
        _ => None,
    }
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
    // A narrow screen has room for the mark and a word.
    let w = usize::from(w);
    let column = w.saturating_sub(36).clamp(w.saturating_sub(14).min(40), 76);
    let place = place(t, i, info, s);
    let mut l = Ladder { lines: Vec::new(), column, place, stuck: false };
    application(&mut l, t, i, info);
    send_buffer(&mut l, t, i, info);
    window(&mut l, t, i, info);
    timer(&mut l, t, i, info, s);
    route(&mut l, s, t, i);
    queue(&mut l, t, i);
    peer(&mut l, info);
    l.lines
}

/// What the peer said last is known even when nothing of ours reaches it.
fn peer(l: &mut Ladder, info: Option<&TcpInfo>) {
    let mut what = format!("last ACK {}", ago(info.and_then(TcpInfo::last_ack_recv_ms)));
    if let Some(rtt) = info.and_then(TcpInfo::rtt_us) {
        let _ = write!(what, ", rtt {}", units::secs(f64::from(rtt) / 1e6));
    }
    let mut line = field("peer", what);
    if l.place == Some(Place::Peer) {
        line.fit(l.column);
        line.add(" !! ", Tone::Crit);
        line.add("no answer", Tone::Crit);
    }
    l.lines.push(line);
}

fn application(l: &mut Ladder, t: &NetnsTable, i: usize, info: Option<&TcpInfo>) {
    let wrote = ago(info.and_then(TcpInfo::last_data_sent_ms));
    let unread = t.inet.rqueue[i];
    if unread > 0 {
        let what = format!("sent {wrote}; {} received but not read", units::bytes(unread.into()));
        l.rung("application", what, Rung::Wrong, "it does not read");
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
        _ if persist => l.rung("window, cwnd", what, Rung::Odd, "probes, although it is open"),
        Some(0) => l.rung("window, cwnd", what, Rung::Odd, "the peer's window is closed"),
        Some(_) => l.rung("window, cwnd", what, Rung::Fine, "not the peer's window"),
        None => l.rung("window, cwnd", what, Rung::Unknown, ""),
    }
}

fn timer(l: &mut Ladder, t: &NetnsTable, i: usize, info: Option<&TcpInfo>, s: Option<&Suspect>) {
    let kind = t.inet.timer[i];
    let n = t.inet.retrans[i];
    let mut what = match kind.name() {
        "" => "none".to_owned(),
        name => format!("{name}, fires in {}", units::millis(t.inet.expires_ms[i].into())),
    };
    if let Some(r) = info.and_then(Rto::of) {
        let write = |us: u32| units::secs(f64::from(us) / 1e6);
        let rto = if kind == SockTimer::ON { r.text(write) } else { write(r.us) };
        let _ = write!(what, ", rto {rto}");
    }
    if kind != SockTimer::ON || n == 0 {
        l.rung("TCP timer", what, Rung::Fine, "");
        return;
    }
    let seen = s.map_or(0, |s| s.fired(TimerKind::Rto));
    let rtos = seen.max(n.into());
    let says = match s.and_then(left) {
        Some(sent) => {
            let segments = if sent == 1 { "segment" } else { "segments" };
            // What those that fired before we watched have sent is not known.
            let seen = if seen < rtos { format!("{seen} seen: ") } else { String::new() };
            format!("{rtos} fired, {seen}{sent} {segments} sent")
        }
        None => format!("{rtos} fired"),
    };
    let state = if l.place == Some(Place::Timer) { Rung::Stuck } else { Rung::Odd };
    l.rung("TCP timer", what, state, &says);
}

fn found_route<'a>(
    s: Option<&'a Suspect>,
    t: &'a NetnsTable,
    i: usize,
) -> Option<&'a RouteOutcome> {
    t.route(t.inet.cookie[i]).or_else(|| s?.route.as_ref())
}

fn route(l: &mut Ladder, s: Option<&Suspect>, t: &NetnsTable, i: usize) {
    let found = found_route(s, t, i);
    match found {
        Some(RouteOutcome::Errno(e)) => {
            let what = format!("{}: {}", t.inet.remote_endpoint(i).addr, errno(*e));
            l.rung("route", what, Rung::Stuck, "");
        }
        Some(RouteOutcome::Via { dev, hop: Some(hop), .. }) if hop.is_unresolved() => {
            let what = format!("via {} on {}", unmap(hop.addr), text::clean(dev));
            l.rung("route", what, Rung::Stuck, "the next hop does not answer");
        }
        Some(RouteOutcome::Via { dev, .. }) => {
            l.rung("route", format!("via {}", text::clean(dev)), Rung::Fine, "ok");
        }
        None => {
            l.rung("route", "not looked up".to_owned(), Rung::Fine, "looked up on retransmission");
        }
    }
}

fn queue(l: &mut Ladder, t: &NetnsTable, i: usize) {
    let held = t.inet.skmem(i).t();
    let what = match held {
        Some(0) => "t 0: nothing waits below TCP".to_owned(),
        Some(n) => format!("t {} handed down and not freed", units::bytes(n.into())),
        None => units::UNKNOWN.to_owned(),
    };
    let retrans = t.inet.retrans[i] > 0;
    match (l.place, held) {
        (Some(Place::Refused), _) => {
            l.rung("qdisc, NIC", what, Rung::Stuck, "refused by this host");
        }
        (Some(Place::Queue), _) => {
            l.rung("qdisc, NIC", what, Rung::Stuck, "waits in qdisc or driver");
        }
        (_, None) => l.rung("qdisc, NIC", what, Rung::Unknown, ""),
        (_, Some(0)) => l.rung("qdisc, NIC", what, Rung::Fine, "ok"),
        _ => {
            let state = if retrans { Rung::Odd } else { Rung::Fine };
            l.rung("qdisc, NIC", what, state, "waits in qdisc or driver");
        }
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
        return vec![Line::of(" no history: healthy sockets are not tracked over time", Tone::Dim)];
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
        out.push(field("dropped", format!("{d} since it was created")));
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
        if skmem.is_empty() { "not available from this source".to_owned() } else { skmem },
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
fn next_command(cx: &Cx<'_>, id: SockId, alt: u64) -> Option<String> {
    let row = find(cx, id, alt)?;
    if let Some((t, i)) = row.unix(cx) {
        return Some(super::detail_unix::next_command(cx, t, i));
    }
    let (t, i) = row.get(cx)?;
    let r = &t.inet;
    let enter = enter(cx, t);
    let (l, p) = (r.local_endpoint(i), r.remote_endpoint(i));
    if r.timer[i] == SockTimer::ON && r.retrans[i] > 0 {
        return Some(format!("{enter}ip route get {} from {}", p.addr, l.addr));
    }
    let family = if l.addr.is_ipv4() { "-4" } else { "-6" };
    let kind = if r.proto[i] == Proto::Udp { "u" } else { "t" };
    Some(format!("{enter}ss {family} -{kind}inpoma sport = :{}", l.port))
}

/// The prefix for a command that must run in the namespace of a table.
pub(super) fn enter(cx: &Cx<'_>, t: &NetnsTable) -> String {
    crate::diagnose::enter(cx.analysis.host(), t.into()).unwrap_or_default()
}

//! Network events of one kind on one connection, or drops for one reason in one place: how many,
//! since when, what they mean, what to check next.

use crate::diagnose::{Door, enter};
use crate::metrics::bpf::{EventKey, EventRow};
use crate::sample::bpf::net::NetEventKind;
use crate::sample::sockets::SockState;
use crate::sample::subject::NetnsId;
use crate::view::context::Cx;
use crate::view::lines::{LABEL, field, findings_on, gone};
use crate::view::panes::events::Events;
use crate::view::panes::{RowDetail, events, sockets};
use crate::view::state::RowKey;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

impl RowDetail for Events {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "Network event"
    }
    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let RowKey::Numbered(_, id) = key else { return Vec::new() };
        lines(cx, id, w)
    }
    fn next_command(&self, cx: &Cx<'_>, key: RowKey) -> Option<String> {
        let RowKey::Numbered(_, id) = key else { return None };
        next_command(cx, id)
    }
    fn leads_on(&self, _key: RowKey) -> bool {
        true
    }
    /// To the socket that the event is about.
    fn leads_to(&self, cx: &Cx<'_>, key: RowKey) -> Option<RowKey> {
        let RowKey::Numbered(_, id) = key else { return None };
        let socket = events::find(cx, id)?.socket?;
        sockets::find(cx, socket, 0)?;
        Some(RowKey::Socket(socket, 0))
    }
}

fn lines(cx: &Cx<'_>, id: u64, w: u16) -> Vec<Line> {
    let Some(r) = events::find(cx, id) else { return gone("event") };
    let mut head = Line::of(format!(" {} ", events::kind_name(&r.key)), Tone::Strong);
    head.add(format!(" {}", events::subject(r, usize::MAX)), Tone::Plain);
    let mut out = vec![head];
    if let Some(socket) = r.socket {
        out.extend(findings_on(cx, RowKey::Socket(socket, 0)));
    }
    out.push(Line::new());
    let room = usize::from(w).saturating_sub(LABEL + 2).max(20);
    for (i, part) in text::wrap(meaning(r), room).into_iter().enumerate() {
        out.push(field(if i == 0 { "means" } else { "" }, part));
    }
    let rate = r.per_s.map_or(units::UNKNOWN.to_owned(), |v| format!("{}/s", units::count(v)));
    out.push(field("how many", format!("{rate} now, {} in total", units::int(r.total))));
    let ago =
        |at| format!("{} ({} ago)", cx.clock(cx.wall_of(at)), units::age(cx.mono().since(at)));
    out.push(field("first", ago(r.first)));
    out.push(field("last", ago(r.last)));
    match &r.key {
        EventKey::Drop { place, .. } => {
            out.push(field("reason", events::reason_name(r).unwrap_or_default().into_owned()));
            let place = if place.is_empty() { units::UNKNOWN.into() } else { text::clean(place) };
            out.push(field("place", format!("{place} (function of this kernel)")));
        }
        EventKey::Flow { kind, netns, .. } => {
            let known = netns.0 != 0;
            let label = cx.tables.iter().find(|t| t.netns == *netns);
            let label = label.map_or(String::new(), |t| format!(" ({})", text::clean(&t.label)));
            if known {
                out.push(field("netns", format!("{netns}{label}")));
            }
            out.extend(connection(cx, r, *kind));
        }
    }
    if let Some(next) = next_command(cx, id) {
        out.push(Line::new());
        out.push(field("next", next));
    }
    out
}

fn connection(cx: &Cx<'_>, r: &EventRow, kind: NetEventKind) -> Vec<Line> {
    let mut out = Vec::new();
    if let Some(state) = r.state {
        let cpu = r.cpu.map_or(String::new(), |c| format!("  on {c}"));
        out.push(field("state", format!("{} at the last event{cpu}", SockState(state).name())));
    }
    if let Some(detail) = r.detail {
        let what = match kind {
            NetEventKind::SendReset => format!("number {detail} of this kernel's sk_rst_reason"),
            _ => format!("error {}", detail.unsigned_abs()),
        };
        out.push(field("reason", what));
    }
    let owner = events::owner(cx, r);
    let owner = owner.map(|o| format!("{}/{}", text::clean(&o.comm), o.pid));
    out.push(field("owner", owner.unwrap_or_else(|| units::UNKNOWN.to_owned())));
    let there = r.socket.is_some_and(|id| sockets::find(cx, id, 0).is_some());
    out.push(field(
        "socket",
        if there {
            "still open: Enter shows where its packets are"
        } else {
            "closed, or not sampled"
        },
    ));
    out
}

/// What the event means, in one sentence.
fn meaning(r: &EventRow) -> &'static str {
    match &r.key {
        EventKey::Drop { .. } => {
            "the kernel dropped packets here; some reasons are normal on a healthy host"
        }
        EventKey::Flow { kind, .. } => match kind {
            NetEventKind::Retransmit => {
                "the peer did not acknowledge in time, or reported a hole: the segment was \
                 retransmitted"
            }
            NetEventKind::RetransmitFailed => {
                "a retransmission was due, but this host could not send it: no route, no memory, \
                 or a full queue"
            }
            NetEventKind::SendReset => {
                "this host rejected a segment: no listener, or an unknown connection"
            }
            NetEventKind::ReceiveReset => "the peer aborted the connection",
            NetEventKind::RcvqueueFull => {
                "packets arrive faster than the program reads: its receive buffer is full"
            }
        },
    }
}

/// What to type next.
fn next_command(cx: &Cx<'_>, id: u64) -> Option<String> {
    let r = events::find(cx, id)?;
    Some(match &r.key {
        EventKey::Drop { .. } => "nstat -asz | grep -iE 'drop|discard|err|overflow'".to_owned(),
        EventKey::Flow { ends, netns, .. } => {
            let (local, remote) = (*ends)?;
            // A port that was left out is one of many.
            let end = |e: crate::sample::subject::Endpoint| match e.port {
                0 => e.addr.to_string(),
                _ => e.to_string(),
            };
            let command = format!("ss -tinmoe src {} dst {}", end(local), end(remote));
            match inside(cx, *netns) {
                Some(enter) => format!("{enter}{command}"),
                None => format!("{command}  # in netns {netns}"),
            }
        }
    })
}

/// The prefix for a command about a connection in this namespace. Its devices may be read even if
/// its sockets are not. `None`: no way to enter it is known.
fn inside(cx: &Cx<'_>, netns: NetnsId) -> Option<String> {
    let host = cx.analysis.host();
    // Older records do not say: then it is ours, or unknown.
    if netns.0 == 0 || host.netns == Some(netns) {
        return Some(String::new());
    }
    if let Some(t) = cx.tables.iter().find(|t| t.netns == netns) {
        return enter(host, (*t).into());
    }
    let seen = cx.analysis.history().back_from(cx.now.tick.seq).take(60);
    let mut spaces = seen.filter_map(|m| m.derived.netdev.as_ref()).flat_map(|n| n.iter());
    let s = spaces.find(|s| s.netns == netns)?;
    enter(host, Door { netns, label: &s.label, member: s.member })
}

//! Healthy connections, a row for each port or peer that they have in common: what their columns
//! say, and the page that lists them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::detail::enter;
use super::{SockRow, key_of};
use crate::metrics::sockets::{End, Group, STUCK, trouble};
use crate::sample::sockets::{NetnsTable, Proto, SockState};
use crate::sample::subject::SockId;
use crate::view::context::Cx;
use crate::view::lines::{field, gone};
use crate::view::panes::PaneId;
use crate::view::state::RowKey;
use crate::view::table::Value;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

/// What [`SockRow::table`] of a group has: no table has this number.
const GROUPS: u16 = u16::MAX;
/// Bits of [`SockRow::row`] that number the groups of one namespace.
const BITS: u32 = 8;
/// Members that its page lists.
const MEMBERS: usize = 100;

/// Their rows.
pub(super) fn rows(cx: &Cx<'_>) -> impl Iterator<Item = SockRow> {
    let spaces = cx.suspects.spaces.iter().zip(0_u32..);
    spaces.flat_map(|(s, space)| {
        let row = move |i| SockRow { table: GROUPS, row: space << BITS | i };
        (0..s.groups.len().min(1 << BITS) as u32).map(row)
    })
}

/// The group of a row, which is one.
pub(super) fn get<'a>(cx: &Cx<'a>, r: SockRow) -> Option<&'a Group> {
    let space = cx.suspects.spaces.get((r.row >> BITS) as usize).filter(|_| is_one(r))?;
    space.groups.get((r.row & ((1 << BITS) - 1)) as usize)
}

/// Is it the row of a group?
pub(super) fn is_one(r: SockRow) -> bool {
    r.table == GROUPS
}

/// Identity of a row.
pub(super) fn key(g: &Group) -> RowKey {
    // Without a secret: the same number in every run.
    let mut h = DefaultHasher::new();
    (g.netns, g.end).hash(&mut h);
    RowKey::Numbered(PaneId::Sockets, h.finish())
}

fn find<'a>(cx: &Cx<'a>, wanted: RowKey) -> Option<&'a Group> {
    cx.suspects.spaces.iter().flat_map(|s| &s.groups).find(|g| key(g) == wanted)
}

/// The place in the order of trouble: after all that is in some, the busiest first.
pub(super) fn weight(g: &Group) -> f64 {
    f64::from(g.weight()) / f64::from(1 << 18)
}

pub(super) fn state(g: &Group) -> Value {
    Value::Text(if is_listened(g) { "LISTEN" } else { "ESTAB" }.into())
}
pub(super) fn is_listened(g: &Group) -> bool {
    matches!(g.end, End::Port(_))
}
pub(super) fn local(g: &Group) -> Value {
    Value::Text(match g.end {
        End::Port(port) => format!("*:{port}").into(),
        End::Peer(_) => connections(g).into(),
    })
}
pub(super) fn peer(g: &Group) -> Value {
    Value::Text(match g.end {
        End::Port(_) => connections(g).into(),
        End::Peer(remote) => remote.to_string().into(),
    })
}
fn connections(g: &Group) -> String {
    let n = g.connections;
    format!("{} conn{}", units::int(n.into()), if n == 1 { "" } else { "s" })
}

/// What they move each way, in so many columns.
pub(super) fn moved(g: &Group, w: u16) -> String {
    let (rx, tx) = match g.moved {
        // Nobody is connected.
        _ if g.connections == 0 => return String::new(),
        None => return "healthy".to_owned(),
        Some((rx, tx)) if rx + tx < 1.0 => return "idle".to_owned(),
        Some((rx, tx)) => (units::bytes(rx), units::bytes(tx)),
    };
    let long = format!("rx {rx}/s  tx {tx}/s");
    if long.len() <= usize::from(w) { long } else { format!("rx {rx} tx {tx}") }
}

/// Is this row a member?
fn has(g: &Group, t: &NetnsTable, i: usize) -> bool {
    let r = &t.inet;
    let is_open = matches!(r.state[i], SockState::ESTAB | SockState::LISTEN);
    if r.proto[i] == Proto::Udp || !is_open {
        return false;
    }
    match g.end {
        End::Port(port) => r.lport[i] == port,
        End::Peer(remote) => r.rport[i] == remote.port && r.remote_endpoint(i) == remote,
    }
}

fn table<'a>(cx: &Cx<'a>, g: &Group) -> Option<&'a NetnsTable> {
    cx.tables.iter().copied().find(|t| t.netns == g.netns)
}

/// The members, listeners first, then those with most in their queues.
fn members(g: &Group, t: &NetnsTable) -> Vec<usize> {
    let r = &t.inet;
    let mut all: Vec<usize> = (0..r.len()).filter(|i| has(g, t, *i)).collect();
    let queues = |i: usize| u64::from(r.rqueue[i]) + u64::from(r.wqueue[i]);
    all.sort_by_key(|i| {
        let worst = trouble(r, *i) / STUCK;
        (
            std::cmp::Reverse((r.state[*i] == SockState::LISTEN, worst, queues(*i))),
            r.cookie[*i],
        )
    });
    all
}

/// The page.
pub(super) fn lines(cx: &Cx<'_>, wanted: RowKey) -> Vec<Line> {
    let Some((g, t)) = find(cx, wanted).and_then(|g| Some((g, table(cx, g)?))) else {
        return gone("group of connections");
    };
    let mut out = vec![match g.end {
        End::Port(port) => field("listens on", format!("port {port}")),
        End::Peer(remote) => field("connected to", remote.to_string()),
    }];
    if let Some(o) = &g.owner {
        out.push(field("owner", format!("{}/{}", text::clean(&o.comm), o.pid)));
    }
    out.push(field("netns", text::clean(&t.label)));
    out.push(field("healthy", connections(g)));
    let moved = match g.moved {
        Some((rx, tx)) => format!("received {}/s, sent {}/s", units::bytes(rx), units::bytes(tx)),
        None if g.connections == 0 => "nothing: nobody is connected".to_owned(),
        None => "not known yet; above 1,000 sockets tcp_info is read of some".to_owned(),
    };
    out.push(field("moved", moved));
    out.push(field("next", command(cx, g, t)));
    out.push(Line::new());
    out.push(Line::of(" sockets, fullest queues first", Tone::Accent));
    let all = members(g, t);
    for i in all.iter().take(MEMBERS) {
        let r = &t.inet;
        let ends = format!("{} > {}", r.local_endpoint(*i), r.remote_endpoint(*i));
        let mut line = Line::of(format!("    {:<11} {ends:<44} ", r.state[*i].name()), Tone::Plain);
        let (recv, send) = (r.rqueue[*i], r.wqueue[*i]);
        line.add(
            if r.state[*i] == SockState::LISTEN {
                format!("accept queue {recv} of {send}")
            } else {
                let (recv, send) = (units::bytes(recv.into()), units::bytes(send.into()));
                format!("recv-q {recv}  send-q {send}")
            },
            Tone::Dim,
        );
        out.push(line);
    }
    if all.len() > MEMBERS {
        let more = units::int((all.len() - MEMBERS) as u64);
        out.push(Line::of(format!("    + {more} more: /{}", filter(g)), Tone::Dim));
    }
    out
}

/// What lists them: in the pane, and as a filter of `ss`.
fn filter(g: &Group) -> String {
    match g.end {
        End::Port(port) => format!("sport = :{port}"),
        End::Peer(remote) => format!("dst {remote}"),
    }
}

fn command(cx: &Cx<'_>, g: &Group, t: &NetnsTable) -> String {
    let what = filter(g);
    // Brackets are patterns to some shells.
    let what = if what.contains('[') { format!("'{what}'") } else { what };
    format!("{}ss -tinpoma {what}", enter(cx, t))
}

/// What to type about it.
pub(super) fn next_command(cx: &Cx<'_>, wanted: RowKey) -> Option<String> {
    let g = find(cx, wanted)?;
    Some(command(cx, g, table(cx, g)?))
}

/// The first of its members.
pub(super) fn leads_to(cx: &Cx<'_>, wanted: RowKey) -> Option<RowKey> {
    let g = find(cx, wanted)?;
    let t = table(cx, g)?;
    members(g, t).first().map(|i| key_of(t, *i))
}

/// Whose owner is asked for.
pub(super) fn asks(cx: &Cx<'_>, wanted: RowKey) -> Option<(SockId, u32)> {
    let g = find(cx, wanted)?;
    Some((SockId { netns: g.netns, cookie: 0 }, g.inode))
}

/// The process that has one of them.
pub(super) fn process(cx: &Cx<'_>, wanted: RowKey) -> Option<u32> {
    find(cx, wanted)?.owner.as_ref().map(|o| o.pid)
}

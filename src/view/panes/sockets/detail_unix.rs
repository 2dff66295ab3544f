//! A UNIX socket: name, owner, peer, and what is queued.

use super::detail;
use crate::sample::sockets::{NetnsTable, SockState};
use crate::view::context::Cx;
use crate::view::lines::field;
use crate::view::panes::sockets::{SockRow, unix_has_queues, unix_name, unix_unnamed};
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

pub(super) fn lines(cx: &Cx<'_>, row: SockRow, t: &NetnsTable, i: usize) -> Vec<Line> {
    let r = &t.unix;
    let mut head = Line::of(format!(" {} ", r.state[i].name()), Tone::Strong);
    head.add(title(t, i), Tone::Strong);
    if let Some(o) = row.owner(cx) {
        head.add(format!("   {}/{}", text::clean(&o.comm), o.pid), Tone::Plain);
    }
    head.add(format!("   netns {} ({})", t.netns, text::clean(&t.label)), Tone::Dim);
    let mut out = vec![head, Line::new()];
    let kind = match r.kind[i] {
        1 => "stream",
        2 => "dgram",
        5 => "seqpacket",
        _ => units::UNKNOWN,
    };
    out.push(field("type", kind));
    out.push(field("inode", r.inode[i].to_string()));
    if r.peer[i] != 0 {
        out.push(field("peer", peer(t, r.peer[i])));
    }
    out.extend(queues(t, i));
    out.push(Line::new());
    out.push(field("next", next_command(cx, t, i)));
    out
}

fn title(t: &NetnsTable, i: usize) -> String {
    let name = unix_name(t.unix.name(i));
    if name.is_empty() { unix_unnamed(t.unix.inode[i]) } else { name }
}

/// The other end: its inode, and its name and owner where they are known.
fn peer(t: &NetnsTable, inode: u32) -> String {
    let mut out = format!("inode {inode}");
    if let Some(at) = t.unix.inode.iter().position(|i| *i == inode) {
        let name = unix_name(t.unix.name(at));
        if !name.is_empty() {
            out = format!("{out}, {name}");
        }
    }
    if let Some(o) = t.owner(inode) {
        out = format!("{out}, {}/{}", text::clean(&o.comm), o.pid);
    }
    out
}

fn queues(t: &NetnsTable, i: usize) -> Vec<Line> {
    let r = &t.unix;
    if !unix_has_queues(t) {
        return vec![field("queues", "not available from /proc/net/unix")];
    }
    let (len, limit) = (r.rqueue[i], r.wqueue[i]);
    if r.state[i] == SockState::LISTEN {
        let mut line = field("accept queue", format!("{len} of {limit}"));
        if len > 0 && len >= limit {
            line.add("   !! full: connect() blocks or fails with EAGAIN", Tone::Crit);
        }
        return vec![line];
    }
    let mut unread = field("unread", units::bytes(len.into()));
    if len > 0 {
        unread.add("   !  received but not read yet", Tone::Warn);
    }
    vec![
        unread,
        field("on its way", format!("{} not read by the peer", units::bytes(limit.into()))),
    ]
}

/// What to type next: which process owns it, and what `ss` shows now.
pub(super) fn next_command(cx: &Cx<'_>, t: &NetnsTable, i: usize) -> String {
    format!("{}ss -xaep | grep -w {}", detail::enter(cx, t), t.unix.inode[i])
}

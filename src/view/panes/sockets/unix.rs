//! UNIX sockets among the rows of the sockets pane: what their columns say. From `unix_diag` (since
//! 3.3), or `/proc/net/unix`, which has neither queues nor peers.

use std::fmt::Write as _;

use super::accept_queue;
use crate::sample::sockets::{NetnsTable, SockState, SocketSource};
use crate::sample::subject::SockId;
use crate::view::state::RowKey;
use crate::view::table::{Cell, Value};
use crate::view::vm::Tone;
use crate::view::{text, units};

/// What the second half of a UNIX row's key has, next to the inode. Keys of other rows with a
/// cookie have nothing there; and `/proc/net/unix` has inodes for cookies, which may be those
/// of other rows.
const UNIX: u64 = 1 << 63;

/// Identity of a row.
pub(super) fn key_of(t: &NetnsTable, i: usize) -> RowKey {
    let id = SockId { netns: t.netns, cookie: t.unix.cookie[i] };
    RowKey::Socket(id, UNIX | u64::from(t.unix.inode[i]))
}

/// Whether a key with a cookie is that of a UNIX row.
pub(super) fn is_key(alt: u64) -> bool {
    alt & UNIX != 0
}

/// A name as usually written: the path, or `@` and the abstract name, whose other NULs are `@` too.
/// Empty for a socket that was never bound.
#[must_use]
pub fn name(raw: &[u8]) -> String {
    match raw.split_first() {
        None => String::new(),
        // A program that binds with the length of the whole struct leaves NULs after the name.
        Some((0, rest)) => {
            let end = rest.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
            let rest: Vec<u8> =
                rest.iter().take(end).map(|b| if *b == 0 { b'@' } else { *b }).collect();
            format!("@{}", text::clean_bytes(&rest))
        }
        Some(_) => text::clean_bytes(raw),
    }
}

/// What stands for a socket without a name: `* 41235`, as `ss` writes it.
#[must_use]
pub fn unnamed(inode: u32) -> String {
    format!("* {inode}")
}

/// Only `unix_diag` reports queues and peers.
#[must_use]
pub fn has_queues(t: &NetnsTable) -> bool {
    t.source == SocketSource::Netlink && !t.holes.iter().any(|h| h.starts_with("unix:"))
}

/// How much attention a row deserves, on the scale of the others. Below zero if it is healthy, so
/// that it sorts after everything that is not a UNIX socket.
pub(super) fn trouble(t: &NetnsTable, i: usize) -> f64 {
    let (len, limit) = (t.unix.rqueue[i], t.unix.wqueue[i]);
    if len == 0 {
        -0.5
    } else if t.unix.state[i] == SockState::LISTEN && len >= limit {
        899.0
    } else {
        0.5
    }
}

/// Healthy ones are counted, not listed: a box has hundreds.
pub(super) fn is_listed(t: &NetnsTable, i: usize) -> bool {
    trouble(t, i) >= 0.0
}

pub(super) fn state(t: &NetnsTable, i: usize) -> Value {
    Value::Text(t.unix.state[i].name().into())
}
pub(super) fn proto(_: &NetnsTable, _: usize) -> Value {
    Value::Text("unix".into())
}
pub(super) fn local(t: &NetnsTable, i: usize) -> Value {
    let name = name(t.unix.name(i));
    Value::Text(if name.is_empty() { unnamed(t.unix.inode[i]) } else { name }.into())
}
pub(super) fn peer(t: &NetnsTable, i: usize) -> Value {
    match t.unix.peer[i] {
        0 if has_queues(t) || t.unix.state[i] != SockState::ESTAB => Value::Empty,
        0 => Value::Unknown,
        inode => Value::Text(unnamed(inode).into()),
    }
}
pub(super) fn rqueue(t: &NetnsTable, i: usize) -> Value {
    Value::num(has_queues(t).then(|| f64::from(t.unix.rqueue[i])))
}
pub(super) fn wqueue(t: &NetnsTable, i: usize) -> Value {
    Value::num(has_queues(t).then(|| f64::from(t.unix.wqueue[i])))
}
pub(super) fn netns(t: &NetnsTable, _: usize) -> Value {
    Value::name(&t.label)
}

pub(super) fn send_cell(t: &NetnsTable, i: usize, w: u16) -> Cell {
    if !has_queues(t) {
        return Cell::Text(units::UNKNOWN.into(), Tone::Dim);
    }
    match t.unix.state[i] {
        SockState::LISTEN => accept_queue(t.unix.rqueue[i], t.unix.wqueue[i], w),
        _ => queue(t.unix.wqueue[i]),
    }
}
pub(super) fn recv_cell(t: &NetnsTable, i: usize) -> Cell {
    match t.unix.state[i] {
        SockState::LISTEN => Cell::Text("".into(), Tone::Dim),
        _ if !has_queues(t) => Cell::Text(units::UNKNOWN.into(), Tone::Dim),
        _ => queue(t.unix.rqueue[i]),
    }
}
fn queue(bytes: u32) -> Cell {
    let tone = if bytes == 0 { Tone::Dim } else { Tone::Plain };
    Cell::Text(units::bytes(bytes.into()).into(), tone)
}

pub(super) fn search(t: &NetnsTable, i: usize, out: &mut String) {
    let (state, inode) = (t.unix.state[i].name(), t.unix.inode[i]);
    let _ = write!(out, "unix {state} {} {inode} {}", name(t.unix.name(i)), t.label);
    if t.unix.peer[i] != 0 {
        let _ = write!(out, " {}", t.unix.peer[i]);
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names_are_readable_and_harmless() {
        assert_eq!(name(b"/run/x.sock"), "/run/x.sock");
        assert_eq!(name(b"\0abstract"), "@abstract");
        assert_eq!(name(b"\0a\0b\0\0\0"), "@a@b");
        assert_eq!(name(b"\0"), "@");
        assert_eq!(name(b""), "");
        let hostile = name(b"\0\x1b[2Jx\xff");
        assert!(!hostile.contains('\x1b') && hostile.starts_with('@'), "{hostile:?}");
    }
}

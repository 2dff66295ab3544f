//! Which rows of many deserve a look: on this the reader, which asks the kernel for detail, and
//! the figures, which judge it, agree.

use super::{InetRows, SockState};

/// Connections in CLOSE_WAIT that are looked at when there are many: the oldest ones.
pub const CLOSING: usize = 128;
/// Fewer of them are nobody's leak.
pub const MANY_CLOSING: usize = 100;
/// So many connections of one port with the same bytes unread as before: does its server work?
pub const MANY_UNREAD: usize = 3;

/// The rows of the [`CLOSING`] oldest connections in CLOSE_WAIT, in row order, when there are
/// [`MANY_CLOSING`] or more. A cookie is handed out when a socket is first looked at, so low
/// ones are old; the choice stays the same from reading to reading.
pub fn oldest_closing(rows: &InetRows, out: &mut Vec<u32>) {
    out.clear();
    let many = rows.state.iter().filter(|s| **s == SockState::CLOSE_WAIT).count();
    if many < MANY_CLOSING {
        return;
    }
    let all = rows.state.iter().enumerate().filter(|(_, s)| **s == SockState::CLOSE_WAIT);
    out.extend(all.map(|(i, _)| i as u32));
    if out.len() > CLOSING {
        let cookie = |i: &u32| rows.cookie.get(*i as usize).copied();
        out.select_nth_unstable_by_key(CLOSING, cookie);
        out.truncate(CLOSING);
        out.sort_unstable();
    }
}

//! Which sockets deserve their `tcp_info` this time. The 72-byte header that every dump
//! carries is a detector: only what it or the previous reading makes suspicious is asked for
//! in detail, because detail takes the socket's lock and doubles the cost.

use super::cookies::CookieMap;
use super::{InetRows, Proto, SockState, SockTimer};

/// At most this many sockets of our own namespace are asked for in one reading.
pub const CAP: usize = 5000;
/// At most this many of each other namespace.
pub const CAP_OTHERS: usize = 500;

/// Rows by urgency, each list in row order.
#[derive(Debug, Default)]
pub struct Suspects {
    /// Retransmits, or probes a closed window.
    pub stalled: Vec<u32>,
    /// Someone looks at it.
    pub named: Vec<u32>,
    /// Its send queue does not fall, or its receive queue grows.
    pub queued: Vec<u32>,
}

impl Suspects {
    /// Forgets all rows, keeps the memory.
    pub fn clear(&mut self) {
        self.stalled.clear();
        self.named.clear();
        self.queued.clear();
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stalled.len() + self.named.len() + self.queued.len()
    }

    /// No rows?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sorts out `rows`. `before` is the previous reading of the same namespace with the map
    /// over its cookies; `named` are rows that the caller was asked for.
    pub fn find(
        &mut self,
        rows: &InetRows,
        before: Option<(&InetRows, &CookieMap)>,
        named: &[u32],
    ) {
        self.clear();
        for i in 0..rows.len() {
            let (Some(timer), Some(retrans)) = (rows.timer.get(i), rows.retrans.get(i)) else {
                break;
            };
            if (*timer == SockTimer::ON && *retrans >= 1) || *timer == SockTimer::PERSIST {
                if has_info(rows, i) {
                    self.stalled.push(i as u32);
                }
            } else if waits(rows, before, i) && has_info(rows, i) {
                self.queued.push(i as u32);
            }
        }
        self.named.extend_from_slice(named);
        self.named.sort_unstable();
        self.named.dedup();
        let (stalled, named) = (&self.stalled, &mut self.named);
        named.retain(|i| has_info(rows, *i as usize) && stalled.binary_search(i).is_err());
        if !named.is_empty() {
            self.queued.retain(|i| named.binary_search(i).is_err());
        }
    }

    /// The rows to ask for, most urgent first, at most `cap`. `turn` rotates a list that
    /// does not fit, so that every row gets its turn.
    pub fn pick(&self, cap: usize, turn: usize, out: &mut Vec<u32>) {
        out.clear();
        for list in [&self.stalled, &self.named, &self.queued] {
            let room = cap - out.len().min(cap);
            if list.len() <= room {
                out.extend_from_slice(list);
            } else if !list.is_empty() {
                let start = turn.wrapping_mul(room) % list.len();
                out.extend(list.iter().cycle().skip(start).take(room));
            }
        }
    }
}

/// Has this socket a `tcp_info` of its own? Listeners say all in their row; TIME_WAIT and
/// request sockets have none.
fn has_info(rows: &InetRows, i: usize) -> bool {
    rows.proto.get(i) == Some(&Proto::Tcp)
        && !matches!(
            rows.state.get(i),
            None | Some(
                &(SockState::LISTEN
                    | SockState::TIME_WAIT
                    | SockState::SYN_RECV
                    | SockState::NEW_SYN_RECV
                    | SockState::CLOSE)
            )
        )
}

#[inline]
fn waits(rows: &InetRows, before: Option<(&InetRows, &CookieMap)>, i: usize) -> bool {
    let (Some(&rqueue), Some(&wqueue)) = (rows.rqueue.get(i), rows.wqueue.get(i)) else {
        return false;
    };
    if rqueue == 0 && wqueue == 0 {
        return false;
    }
    let (Some((old, map)), Some(cookie)) = (before, rows.cookie.get(i)) else { return false };
    let Some(was) = map.find(*cookie, &old.cookie) else { return false };
    let (Some(&r0), Some(&w0)) = (old.rqueue.get(was), old.wqueue.get(was)) else { return false };
    (wqueue > 0 && w0 > 0 && wqueue >= w0) || rqueue > r0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::sockets::diag::tests::Fake;

    fn map_of(rows: &InetRows) -> CookieMap {
        let mut map = CookieMap::default();
        map.reset(rows.len());
        for i in 0..rows.len() {
            map.insert(rows.cookie[i], &rows.cookie[..i]);
        }
        map
    }

    #[test]
    fn the_header_alone_betrays_the_stalled() {
        let rows = Fake::rows(&[
            Fake { cookie: 1, ..Fake::default() },
            Fake { cookie: 2, timer: 1, retrans: 1, ..Fake::default() },
            Fake { cookie: 3, timer: 4, retrans: 0, ..Fake::default() },
            Fake { cookie: 4, timer: 1, retrans: 0, wqueue: 10, ..Fake::default() },
            Fake { cookie: 5, timer: 2, retrans: 3, ..Fake::default() },
            Fake { cookie: 6, state: 10, wqueue: 128, rqueue: 1, ..Fake::default() },
            Fake { cookie: 7, state: 3, timer: 1, retrans: 2, ..Fake::default() },
        ]);
        let mut s = Suspects::default();
        s.find(&rows, None, &[0]);
        assert_eq!((&s.stalled[..], &s.named[..], &s.queued[..]), (&[1, 2][..], &[0][..], &[][..]));
    }

    #[test]
    fn a_queue_that_does_not_drain_is_suspicious() {
        let row = |cookie, rqueue, wqueue| Fake { cookie, rqueue, wqueue, ..Fake::default() };
        let old =
            Fake::rows(&[row(1, 0, 9), row(2, 0, 9), row(3, 5, 0), row(4, 5, 0), row(5, 0, 0)]);
        let new = Fake::rows(&[
            row(6, 0, 7),
            row(5, 0, 7),
            row(4, 6, 0),
            row(3, 5, 0),
            row(2, 0, 9),
            row(1, 0, 8),
        ]);
        let mut s = Suspects::default();
        s.find(&new, Some((&old, &map_of(&old))), &[]);
        // Unknown before, empty before, growing, constant to read, constant to send, falling.
        assert_eq!(s.queued, [2, 4]);
    }

    #[test]
    fn the_cap_prefers_the_stalled_and_rotates_the_rest() {
        let s = Suspects {
            stalled: (0..4000).collect(),
            named: vec![9_000_000],
            queued: (10_000..14_000).collect(),
        };
        let mut out = Vec::new();
        s.pick(CAP, 0, &mut out);
        assert_eq!(out.len(), CAP);
        assert_eq!((out[3999], out[4000], out[4001]), (3999, 9_000_000, 10_000));
        let first = out.clone();
        s.pick(CAP, 1, &mut out);
        assert_eq!(out.len(), CAP);
        assert_eq!(out[..4001], first[..4001]);
        assert_eq!(out[4001], 10_999);
    }
}

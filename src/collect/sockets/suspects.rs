//! Which sockets deserve their `tcp_info` this time. The 72-byte header that every dump
//! carries is a detector: only what it or the previous reading makes suspicious is asked for
//! in detail, because detail takes the socket's lock and doubles the cost.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::cookies::CookieMap;
use crate::sample::sockets::{InetRows, MANY_UNREAD, Proto, SockState, SockTimer, oldest_closing};

/// At most this many sockets of our own namespace are asked for in one reading.
pub const CAP: usize = 5000;
/// At most this many of each other namespace.
pub const CAP_OTHERS: usize = 500;
/// Connections with a loaded send buffer that are asked for, in turn.
const CAP_LOADED: usize = 500;
/// So much below TCP that a queue of this host may hold it, bytes of truesize.
const BELOW_TCP: u32 = 32 << 10;
/// Less than this in the send queue is a moment's work.
const LOADED: u32 = 4096;
/// So many connections that leave the same bytes unread are asked for.
const CAP_UNREAD: usize = 128;
/// And so many others of the same ports, the youngest: do they move?
const CAP_SIBLINGS: usize = 256;
/// Ports that are looked at in this way.
const MAX_PORTS: usize = 16;

/// Rows by urgency, each list in row order.
#[derive(Debug, Default)]
pub struct Suspects {
    /// Retransmits, probes a closed window, or asks a silent peer whether it is there.
    pub stalled: Vec<u32>,
    /// Someone looks at it.
    pub named: Vec<u32>,
    /// Its send queue does not fall, or its receive queue keeps growing or is half full.
    pub queued: Vec<u32>,
    /// The oldest in CLOSE_WAIT, where there are many: do they still send, and whose are they?
    pub closing: Vec<u32>,
    /// Its send buffer stays half full, or much of it is below TCP: what limits it?
    pub loaded: Vec<u32>,
    /// Dropped what it received since the previous reading: whose is it?
    pub dropping: Vec<u32>,
    /// The same bytes lie unread as in the previous reading, as on others of its port; and the
    /// others of that port.
    pub unread: Vec<u32>,
    /// The listeners of these ports.
    pub listening: Vec<u32>,
}

impl Suspects {
    /// Forgets all rows, keeps the memory.
    pub fn clear(&mut self) {
        self.stalled.clear();
        self.named.clear();
        self.queued.clear();
        self.closing.clear();
        self.loaded.clear();
        self.dropping.clear();
        self.unread.clear();
        self.listening.clear();
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lists().iter().map(|l| l.len()).sum()
    }

    /// What is asked for in detail, most urgent first.
    fn lists(&self) -> [&[u32]; 6] {
        [&self.stalled, &self.named, &self.closing, &self.unread, &self.queued, &self.loaded]
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
            if rows.skmem.get(i).is_some_and(|w| w[8] > 0) && drops(rows, before, i) {
                self.dropping.push(i as u32);
            }
            if rows.rqueue.get(i).is_some_and(|n| *n > 0) && lies_unread(rows, before, i) {
                self.unread.push(i as u32);
            }
            let unanswered = (*timer == SockTimer::ON && *retrans >= 1)
                || (*timer == SockTimer::KEEPALIVE && *retrans >= 2);
            if unanswered || *timer == SockTimer::PERSIST {
                if has_info(rows, i) {
                    self.stalled.push(i as u32);
                }
            } else if let Some(why) = waits(rows, before, i)
                && has_info(rows, i)
            {
                match why {
                    Waits::Queued => self.queued.push(i as u32),
                    Waits::Loaded => self.loaded.push(i as u32),
                }
            }
        }
        oldest_closing(rows, &mut self.closing);
        unread_services(rows, &mut self.unread, &mut self.listening);
        self.named.extend_from_slice(named);
        self.named.sort_unstable();
        self.named.dedup();
        let (stalled, named) = (&self.stalled, &mut self.named);
        named.retain(|i| has_info(rows, *i as usize) && stalled.binary_search(i).is_err());
        if !named.is_empty() {
            for list in [&mut self.closing, &mut self.queued, &mut self.loaded] {
                list.retain(|i| named.binary_search(i).is_err());
            }
        }
        if !self.unread.is_empty() {
            let urgent = [&self.stalled, &self.named, &self.closing, &self.queued, &self.loaded];
            self.unread.retain(|i| urgent.iter().all(|l| l.binary_search(i).is_err()));
        }
        if !self.closing.is_empty() {
            self.closing.retain(|i| self.stalled.binary_search(i).is_err());
            let closing = &self.closing;
            for list in [&mut self.queued, &mut self.loaded] {
                list.retain(|i| closing.binary_search(i).is_err());
            }
        }
    }

    /// The rows to ask for, most urgent first, at most `cap`. `turn` rotates a list that
    /// does not fit, so that every row gets its turn.
    pub fn pick(&self, cap: usize, turn: usize, out: &mut Vec<u32>) {
        out.clear();
        for (n, list) in self.lists().into_iter().enumerate() {
            let most = if n == 5 { CAP_LOADED } else { cap };
            let room = most.min(cap - out.len().min(cap));
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

/// Why a queue is worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// It does not move.
    Queued,
    /// It moves, and is never empty.
    Loaded,
}

#[inline]
fn waits(rows: &InetRows, before: Option<(&InetRows, &CookieMap)>, i: usize) -> Option<Waits> {
    let (&rqueue, &wqueue) = (rows.rqueue.get(i)?, rows.wqueue.get(i)?);
    if rqueue == 0 && wqueue == 0 {
        return None;
    }
    let [r, rb, t, tb, _, w, ..] = *rows.skmem.get(i)?;
    if rqueue > 0 && rb > 0 && r >= rb / 2 {
        return Some(Waits::Queued);
    }
    let (old, map) = before?;
    let was = map.find(*rows.cookie.get(i)?, &old.cookie)?;
    let (&r0, &w0) = (old.rqueue.get(was)?, old.wqueue.get(was)?);
    // What came since the previous reading lies there for a moment on every busy socket.
    if (w0 > 0 && wqueue >= w0) || (r0 > 0 && rqueue > r0) {
        return Some(Waits::Queued);
    }
    let full = wqueue >= LOADED && tb > 0 && w >= tb / 2;
    (w0 > 0 && (full || t >= BELOW_TCP)).then_some(Waits::Loaded)
}

/// Has `d` of this row grown since the previous reading?
fn drops(rows: &InetRows, before: Option<(&InetRows, &CookieMap)>, i: usize) -> bool {
    let grown = || {
        let (old, map) = before?;
        let was = map.find(*rows.cookie.get(i)?, &old.cookie)?;
        Some(rows.skmem.get(i)?[8] != old.skmem.get(was)?[8])
    };
    grown().unwrap_or(false)
}

/// Has it the same bytes to read as in the previous reading?
fn lies_unread(rows: &InetRows, before: Option<(&InetRows, &CookieMap)>, i: usize) -> bool {
    let same = || {
        let (old, map) = before?;
        let was = map.find(*rows.cookie.get(i)?, &old.cookie)?;
        Some(rows.rqueue.get(i)? == old.rqueue.get(was)?)
    };
    is_open(rows, i) && same().unwrap_or(false)
}

/// An established TCP connection?
fn is_open(rows: &InetRows, i: usize) -> bool {
    rows.proto.get(i) == Some(&Proto::Tcp) && rows.state.get(i) == Some(&SockState::ESTAB)
}

/// Of `unread` rows leaves those of ports that have [`MANY_UNREAD`] of them, adds other
/// connections of these ports, the youngest first, and finds their listeners.
fn unread_services(rows: &InetRows, unread: &mut Vec<u32>, listening: &mut Vec<u32>) {
    let port = |i: &u32| rows.lport.get(*i as usize).copied().unwrap_or(0);
    let mut by_port: BTreeMap<u16, usize> = BTreeMap::new();
    if unread.len() >= MANY_UNREAD {
        for i in unread.iter() {
            *by_port.entry(port(i)).or_default() += 1;
        }
    }
    by_port.retain(|_, n| *n >= MANY_UNREAD);
    while by_port.len() > MAX_PORTS {
        by_port.pop_last();
    }
    unread.retain(|i| by_port.contains_key(&port(i)));
    if unread.is_empty() {
        return;
    }
    unread.truncate(CAP_UNREAD);
    let of_port = (0..rows.len() as u32).filter(|i| by_port.contains_key(&port(i)));
    let mut others: Vec<u32> = Vec::new();
    for i in of_port {
        if rows.state.get(i as usize) == Some(&SockState::LISTEN) {
            listening.push(i);
        } else if is_open(rows, i as usize) && unread.binary_search(&i).is_err() {
            others.push(i);
        }
    }
    if others.len() > CAP_SIBLINGS {
        let young = |i: &u32| Reverse(rows.cookie.get(*i as usize).copied());
        others.select_nth_unstable_by_key(CAP_SIBLINGS, young);
        others.truncate(CAP_SIBLINGS);
    }
    unread.append(&mut others);
    unread.sort_unstable();
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
            Fake { cookie: 8, timer: 2, retrans: 1, ..Fake::default() },
        ]);
        let mut s = Suspects::default();
        s.find(&rows, None, &[0]);
        assert_eq!(
            (&s.stalled[..], &s.named[..], &s.queued[..]),
            (&[1, 2, 4][..], &[0][..], &[][..])
        );
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
        // What is read within an interval lies there when we look, now and then.
        let old = Fake::rows(&[row(1, 0, 0), row(2, 1, 0)]);
        let new = Fake::rows(&[row(1, 9, 0), row(2, 9, 0)]);
        s.find(&new, Some((&old, &map_of(&old))), &[]);
        assert_eq!(s.queued, [1]);
    }

    #[test]
    fn the_cap_prefers_the_stalled_and_rotates_the_rest() {
        let s = Suspects {
            stalled: (0..4000).collect(),
            named: vec![9_000_000],
            queued: (10_000..14_000).collect(),
            ..Suspects::default()
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

    #[test]
    fn a_half_full_queue_is_worth_a_look_at_once_and_a_loaded_buffer_in_turn() {
        let row = |cookie, rqueue, wqueue, skmem| Fake {
            cookie,
            rqueue,
            wqueue,
            skmem,
            ..Fake::default()
        };
        let mem = |r, t, w| [r, 131_072, t, 87_040, 0, w, 0, 0, 0];
        let old = Fake::rows(&[
            row(1, 70_000, 0, mem(90_000, 0, 0)),
            row(2, 0, 60_000, mem(0, 0, 80_000)),
            row(3, 0, 9_000, mem(0, 40_000, 9_000)),
            row(4, 0, 3_000, mem(0, 0, 5_000)),
        ]);
        let new = Fake::rows(&[
            row(1, 70_000, 0, mem(90_000, 0, 0)),
            row(2, 0, 50_000, mem(0, 0, 70_000)),
            row(3, 0, 8_000, mem(0, 40_000, 9_000)),
            row(4, 0, 2_000, mem(0, 0, 5_000)),
        ]);
        let mut s = Suspects::default();
        s.find(&new, None, &[]);
        assert_eq!((&s.queued[..], &s.loaded[..]), (&[0][..], &[][..]));
        s.find(&new, Some((&old, &map_of(&old))), &[]);
        assert_eq!((&s.queued[..], &s.loaded[..]), (&[0][..], &[1, 2][..]));
    }

    #[test]
    fn who_drops_is_found_by_its_own_count() {
        let row =
            |cookie, d| Fake { cookie, skmem: [0, 8192, 0, 0, 0, 0, 0, 0, d], ..Fake::default() };
        let old = Fake::rows(&[row(1, 5), row(2, 5), row(3, 0)]);
        let new = Fake::rows(&[row(3, 4), row(2, 5), row(1, 7), row(9, 3)]);
        let mut s = Suspects::default();
        s.find(&new, Some((&old, &map_of(&old))), &[]);
        // The last one is new: what it lost before it was seen is no loss of this interval.
        assert_eq!(s.dropping, [0, 2]);
    }

    #[test]
    fn of_a_server_that_reads_nothing_all_connections_are_looked_at() {
        let row = |cookie, rqueue| Fake { cookie, rqueue, ..Fake::default() };
        let old = Fake::rows(&[row(1, 48), row(2, 48), row(3, 7), row(4, 0), row(5, 9)]);
        let mut new = Fake::rows(&[
            row(1, 48),
            row(2, 48),
            row(3, 7),
            row(4, 0),
            row(5, 9),
            Fake { cookie: 9, state: 10, ..Fake::default() },
        ]);
        new.lport[4] = 81;
        let mut s = Suspects::default();
        s.find(&new, Some((&old, &map_of(&old))), &[]);
        assert_eq!((&s.unread[..], &s.listening[..]), (&[0, 1, 2, 3][..], &[5][..]));
        // One of the three was read from.
        new.rqueue[1] = 40;
        s.find(&new, Some((&old, &map_of(&old))), &[]);
        assert!(s.unread.is_empty() && s.listening.is_empty());
    }

    #[test]
    fn of_many_in_close_wait_the_oldest_are_looked_at() {
        let row = |cookie| Fake { cookie, state: 8, ..Fake::default() };
        let few: Vec<Fake> = (0..99).map(|i| row(1000 - i)).collect();
        let many: Vec<Fake> = (0..300).map(|i| row(1000 - i)).collect();
        let mut out = vec![7];
        oldest_closing(&Fake::rows(&few), &mut out);
        assert!(out.is_empty());
        oldest_closing(&Fake::rows(&many), &mut out);
        assert_eq!(out, (172..300).collect::<Vec<u32>>());
        let mut s = Suspects::default();
        s.find(&Fake::rows(&many), None, &[299]);
        assert_eq!((s.closing.len(), s.named.len(), s.len()), (127, 1, 128));
    }
}

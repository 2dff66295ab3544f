//! Network events over the last minutes, one row per connection and kind, or per reason and
//! place of a drop: how many, how fast, when last. Rows that did not change are shared between
//! ticks.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::net::{new_drops, reason_name};
use crate::metrics::MIN_SPAN;
use crate::metrics::rate::per_second;
use crate::metrics::sockets::SocketFigures;
use crate::sample::Shared;
use crate::sample::bpf::net::{FlowEvents, NetBpfSample, NetEventKind};
use crate::sample::heap::block;
use crate::sample::sockets::Owner;
use crate::sample::subject::{CpuId, Endpoint, NetnsId, SockId};
use crate::sample::time::MonoNs;

/// Rows kept at most; those that were quiet longest go first.
pub const MAX_ROWS: usize = 1000;
/// How long a row stays after its last event.
pub const KEEP: Duration = Duration::from_secs(300);

/// What makes events one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKey {
    /// Events of one connection.
    Flow {
        /// The kind.
        kind: NetEventKind,
        /// Network namespace.
        netns: NetnsId,
        /// Local and remote end; `None` for resets without a socket. Of a reset, the port that a
        /// client takes anew for each connection is 0: it ends the connection, so by
        /// connection each row would count one.
        ends: Option<(Endpoint, Endpoint)>,
    },
    /// Dropped packets.
    Drop {
        /// Number of the reason in this kernel.
        reason: u16,
        /// Function of the kernel.
        place: Arc<str>,
    },
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Number of the row in this run.
    pub id: u64,
    /// What it counts.
    pub key: EventKey,
    /// Name of a drop's reason in this kernel; empty when unknown or not a drop.
    pub reason: Arc<str>,
    /// Events since the first.
    pub total: u64,
    /// Events per second in the last interval; `None` before there is one.
    pub per_s: Option<f64>,
    /// The first; for drops, the reading that showed it.
    pub first: MonoNs,
    /// The last; for drops, the reading that showed it.
    pub last: MonoNs,
    /// The socket, where the kernel gave it a cookie.
    pub socket: Option<SockId>,
    /// TCP state number at the last event.
    pub state: Option<u8>,
    /// Reason of a reset (6.10) or error of a retransmit, at the last event.
    pub detail: Option<i32>,
    /// CPU of the last event.
    pub cpu: Option<CpuId>,
    /// Process that holds, or held, the socket.
    pub owner: Option<Owner>,
}

/// Remembers the rows from tick to tick.
#[derive(Clone, Debug, Default)]
pub struct EventTracker {
    rows: BTreeMap<EventKey, Tracked>,
    next: u64,
    /// When the last readings were taken, as far back as a rate needs.
    readings: VecDeque<MonoNs>,
    before: Option<Shared<NetBpfSample>>,
}

#[derive(Clone, Debug)]
struct Tracked {
    row: Arc<EventRow>,
    /// Events per reading, as far back as a rate needs.
    recent: VecDeque<(MonoNs, u64)>,
}

/// Both ends without the client's port: the higher one, where ports are handed out from.
fn service((mut local, mut remote): (Endpoint, Endpoint)) -> (Endpoint, Endpoint) {
    match local.port.cmp(&remote.port) {
        Ordering::Greater => local.port = 0,
        Ordering::Less => remote.port = 0,
        Ordering::Equal => {}
    }
    (local, remote)
}

impl EventTracker {
    /// Bytes that it holds beside the rows, which are those of ticks.
    pub(in crate::metrics) fn bytes(&self) -> usize {
        let recent = |t: &Tracked| block(t.recent.len() * size_of::<(MonoNs, u64)>());
        let row = size_of::<(EventKey, Tracked)>();
        self.rows.values().map(|t| row + recent(t)).sum()
    }

    /// Takes in a reading. Rows come in the order in which they first appeared.
    pub fn push(
        &mut self,
        now: &Shared<NetBpfSample>,
        sockets: &SocketFigures,
    ) -> Vec<Arc<EventRow>> {
        let at = now.span.mid();
        let new = self.before.as_ref().is_none_or(|b| at > b.span.mid());
        if new {
            // What was counted before the first reading has no time.
            if let Some(before) = self.before.take() {
                for (reason, place, count) in new_drops(&before.data, &now.data) {
                    let name = reason_name(&now.data.reasons, reason);
                    self.count(EventKey::Drop { reason, place }, count, at, at, |r| {
                        r.reason.clone_from(&name);
                    });
                }
            }
            for f in &now.data.flows {
                self.flow(f, at, sockets);
            }
            self.before = Some(now.clone());
            self.settle(at);
        }
        let mut out: Vec<Arc<EventRow>> = self.rows.values().map(|t| t.row.clone()).collect();
        out.sort_unstable_by_key(|r| r.id);
        out
    }

    fn flow(&mut self, f: &FlowEvents, at: MonoNs, sockets: &SocketFigures) {
        let ends = match f.kind {
            NetEventKind::SendReset | NetEventKind::ReceiveReset => f.ends.map(service),
            _ => f.ends,
        };
        let key = EventKey::Flow { kind: f.kind, netns: f.netns, ends };
        let socket = (f.cookie != 0).then_some(SockId { netns: f.netns, cookie: f.cookie });
        // The owner is known while the socket is followed; a reset ends it.
        let owner = socket.and_then(|id| sockets.get(id)?.owner.clone());
        self.count(key, f.count, at, f.last, |r| {
            r.socket = socket.or(r.socket);
            r.state = (f.state != 0).then_some(f.state);
            r.detail = (f.detail != 0).then_some(f.detail);
            r.cpu = Some(f.cpu);
            r.owner = owner.or(r.owner.take());
        });
    }

    fn count(
        &mut self,
        key: EventKey,
        count: u64,
        at: MonoNs,
        last: MonoNs,
        set: impl FnOnce(&mut EventRow),
    ) {
        let next = &mut self.next;
        let t = self.rows.entry(key).or_insert_with_key(|key| {
            *next += 1;
            let row = EventRow {
                id: *next,
                key: key.clone(),
                reason: Arc::default(),
                total: 0,
                per_s: None,
                first: last,
                last,
                socket: None,
                state: None,
                detail: None,
                cpu: None,
                owner: None,
            };
            Tracked { row: Arc::new(row), recent: VecDeque::new() }
        });
        let row = Arc::make_mut(&mut t.row);
        row.total = row.total.saturating_add(count);
        row.last = row.last.max(last);
        set(row);
        match t.recent.back_mut() {
            Some((when, n)) if *when == at => *n = n.saturating_add(count),
            _ => t.recent.push_back((at, count)),
        }
    }

    /// Rates as of `at`; drops what is old or too much.
    fn settle(&mut self, at: MonoNs) {
        let far = |t: &&MonoNs| at.since(**t) >= MIN_SPAN;
        let base = self.readings.iter().rev().find(far).or(self.readings.front()).copied();
        self.readings.push_back(at);
        while self.readings.front().is_some_and(|t| base.is_some_and(|b| *t < b)) {
            self.readings.pop_front();
        }
        self.rows.retain(|_, t| at.since(t.row.last) < KEEP);
        if self.rows.len() > MAX_ROWS {
            let mut order: Vec<(MonoNs, u64)> =
                self.rows.values().map(|t| (t.row.last, t.row.id)).collect();
            order.sort_unstable();
            let gone = order.len() - MAX_ROWS;
            let gone: HashSet<u64> = order.iter().take(gone).map(|o| o.1).collect();
            self.rows.retain(|_, t| !gone.contains(&t.row.id));
        }
        for t in self.rows.values_mut() {
            while t.recent.front().is_some_and(|(when, _)| base.is_some_and(|b| *when <= b)) {
                t.recent.pop_front();
            }
            let sum = t.recent.iter().map(|r| r.1).fold(0, u64::saturating_add) as f64;
            let per_s = base.and_then(|b| per_second(sum, at.since(b)));
            if per_s != t.row.per_s {
                Arc::make_mut(&mut t.row).per_s = per_s;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::Stamped;
    use crate::sample::bpf::net::DropPlace;
    use crate::sample::time::Span;

    fn at(ms: u64, flows: Vec<FlowEvents>, dropped: u64) -> Shared<NetBpfSample> {
        let places = vec![DropPlace { reason: 3, place: "tcp_v4_rcv".into(), count: dropped }];
        let data = NetBpfSample { places, flows, ..NetBpfSample::default() };
        let span = Span::at(MonoNs(ms * 1_000_000));
        Arc::new(Stamped { span, cpu: Duration::ZERO, data })
    }

    fn flow(port: u16, count: u64, ms: u64) -> FlowEvents {
        let end = |port| Endpoint { addr: [10, 0, 3, 2].into(), port };
        FlowEvents {
            kind: NetEventKind::Retransmit,
            ends: Some((end(port), end(3306))),
            netns: NetnsId(1),
            cookie: 0,
            state: 1,
            detail: 0,
            count,
            last: MonoNs(ms * 1_000_000),
            cpu: CpuId(0),
        }
    }

    fn push(t: &mut EventTracker, s: &Shared<NetBpfSample>) -> Vec<Arc<EventRow>> {
        t.push(s, &SocketFigures::default())
    }

    #[test]
    fn rows_last_with_their_rate_going_to_zero() {
        let mut t = EventTracker::default();
        assert!(push(&mut t, &at(1000, vec![], 500)).is_empty(), "drops of before have no time");
        let rows = push(&mut t, &at(3000, vec![flow(1, 10, 2500)], 504));
        assert_eq!((rows.len(), rows[0].total, rows[0].per_s), (2, 4, Some(2.0)));
        assert_eq!((rows[1].total, rows[1].per_s, rows[1].last.0), (10, Some(5.0), 2_500_000_000));
        let quiet = push(&mut t, &at(4000, vec![], 504));
        assert_eq!((quiet[1].total, quiet[1].per_s), (10, Some(0.0)));
        let still = push(&mut t, &at(5000, vec![], 504));
        assert!(Arc::ptr_eq(&quiet[1], &still[1]), "what does not change is shared");
        let more = push(&mut t, &at(6000, vec![flow(1, 1, 5500)], 504));
        assert_eq!((more[1].id, more[1].total, more[1].first.0), (rows[1].id, 11, 2_500_000_000));
        let later = 6000 + KEEP.as_millis() as u64;
        assert!(push(&mut t, &at(later, vec![], 504)).is_empty());
    }

    #[test]
    fn resets_of_many_connections_to_one_service_are_one_row() {
        let mut t = EventTracker::default();
        push(&mut t, &at(1000, vec![], 0));
        let kind = NetEventKind::ReceiveReset;
        let flows = (40_000..40_010).map(|p| FlowEvents { kind, ..flow(p, 1, 1500) }).collect();
        let rows = push(&mut t, &at(2000, flows, 0));
        assert_eq!((rows.len(), rows[0].total), (1, 10));
        let EventKey::Flow { ends: Some((local, remote)), .. } = rows[0].key else { panic!() };
        assert_eq!((local.port, remote.port), (0, 3306));
    }

    #[test]
    fn short_intervals_give_rates_over_a_second() {
        let mut t = EventTracker::default();
        let mut rates = Vec::new();
        for i in 0..30 {
            let rows = push(&mut t, &at(1000 + i * 100, vec![flow(1, 3, 1000 + i * 100)], 0));
            rates.push(rows[0].per_s);
        }
        assert_eq!(rates[0], None, "one reading gives no rate");
        assert!(rates[1..].iter().all(|r| (r.unwrap() - 30.0).abs() < 1e-9), "{rates:?}");
        assert!(t.readings.len() <= 11);
    }

    #[test]
    fn a_flood_from_everywhere_is_bounded() {
        let mut t = EventTracker::default();
        for i in 0..20u64 {
            let flows = (0..256).map(|p| flow((i * 256 + p) as u16, 1, 1000 * i)).collect();
            push(&mut t, &at(1000 * i, flows, 0));
        }
        assert_eq!(t.rows.len(), MAX_ROWS);
        let newest = t.rows.values().map(|t| t.row.last).max().unwrap();
        assert_eq!(newest.0, 19_000_000_000);
    }

    #[test]
    fn the_same_reading_twice_counts_once() {
        let mut t = EventTracker::default();
        push(&mut t, &at(1000, vec![], 0));
        let s = at(2000, vec![flow(1, 5, 1500)], 0);
        push(&mut t, &s);
        assert_eq!(push(&mut t, &s)[0].total, 5);
    }
}

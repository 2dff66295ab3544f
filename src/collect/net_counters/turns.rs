//! Whose turn it is: namespaces in which something went wrong lately come first, with half of the
//! budget or more. Of a hundred containers the one that drops packets is read every tick or two, not every
//! half minute.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::collector::Space;
use crate::collect::namespaces::Namespace;
use crate::sample::net_counters::NetnsCounters;
use crate::sample::subject::NetnsId;
use crate::sample::time::MonoNs;

/// What is in the names of counters that grow when something goes wrong.
const SIGNS: [&str; 14] = [
    "Abort",
    "Cookies",
    "Csum",
    "Drop",
    "Err",
    "Fail",
    "Overflow",
    "PathFilter",
    "Prune",
    "RcvPruned",
    "Retrans",
    "Timeout",
    "WinProbe",
    "ZeroWindow",
];
/// After one of them has grown, a namespace comes first for this long.
const LATELY: Duration = Duration::from_secs(10);

/// The counters of a namespace that tell of trouble, as they were read last.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    names: Arc<Vec<Box<str>>>,
    /// Their places.
    at: Vec<usize>,
    sum: Option<i64>,
    grew: Option<MonoNs>,
}

impl Trouble {
    /// Takes a reading.
    pub(super) fn look(&mut self, row: &NetnsCounters, at: MonoNs) {
        if !Arc::ptr_eq(&self.names, &row.names) {
            self.names = row.names.clone();
            let is_sign = |n: &str| SIGNS.iter().any(|s| n.contains(s));
            let all = self.names.iter().enumerate();
            self.at = all.filter(|(_, n)| is_sign(n)).map(|(i, _)| i).collect();
            // Of other counters.
            self.sum = None;
        }
        let values = self.at.iter().filter_map(|i| row.values.get(*i));
        let sum = values.fold(0_i64, |sum, v| sum.wrapping_add(*v));
        if self.sum.replace(sum).is_some_and(|before| before != sum) {
            self.grew = Some(at);
        }
    }

    fn is_lately(&self, at: MonoNs) -> bool {
        self.grew.is_some_and(|t| at.since(t) < LATELY)
    }
}

/// Namespaces by when they were read, the longest ago first.
#[derive(Default)]
pub(super) struct Turns {
    troubled: VecDeque<Space>,
    rest: VecDeque<Space>,
    rest_first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Troubled,
    Rest,
}

impl Turns {
    /// Those that come one after the other in this tick, until `is_spent` says that a part of the
    /// budget is; each at most once. `read` says whether to keep it.
    ///
    /// Those in trouble have half of the budget, or more where most are in trouble. Where it is spent
    /// before the others have had a turn, the next tick begins with them.
    pub(super) fn round(
        &mut self,
        at: MonoNs,
        is_spent: impl Fn(f64) -> bool,
        mut read: impl FnMut(&mut Space) -> bool,
    ) {
        let (troubled, rest) = (self.troubled.len(), self.rest.len());
        let share = (troubled as f64 / (troubled + rest).max(1) as f64).max(0.5);
        let first = if self.rest_first { Kind::Rest } else { Kind::Troubled };
        let (second, part) = match first {
            Kind::Troubled => (Kind::Rest, share),
            Kind::Rest => (Kind::Troubled, 1.0 - share),
        };
        let len = |kind| if kind == Kind::Troubled { troubled } else { rest };
        let mut taken = 0;
        while taken < len(first) && (taken == 0 || !is_spent(part)) {
            taken += 1;
            self.one(first, at, &mut read);
        }
        let passed_over = is_spent(1.0) && len(second) > 0;
        self.rest_first = passed_over && second == Kind::Rest;
        let left = std::iter::repeat_n(second, len(second));
        for kind in left.chain(std::iter::repeat_n(first, len(first) - taken)) {
            if is_spent(1.0) {
                return;
            }
            self.one(kind, at, &mut read);
        }
    }

    fn one(&mut self, kind: Kind, at: MonoNs, read: &mut impl FnMut(&mut Space) -> bool) {
        let queue = match kind {
            Kind::Troubled => &mut self.troubled,
            Kind::Rest => &mut self.rest,
        };
        let Some(mut space) = queue.pop_front() else { return };
        if read(&mut space) {
            let is_lately = space.trouble.is_lately(at);
            let queue = if is_lately { &mut self.troubled } else { &mut self.rest };
            queue.push_back(space);
        }
    }

    /// Takes over a new list. Those that were not in the old one come first: they have never been
    /// read.
    pub(super) fn list(&mut self, found: Vec<Namespace>) {
        for queue in [&mut self.troubled, &mut self.rest] {
            queue.retain_mut(|s| match found.iter().find(|n| n.id == s.ns.id) {
                Some(n) => {
                    s.ns = n.clone();
                    true
                }
                None => false,
            });
        }
        for ns in found {
            if !self.has(ns.id) {
                self.rest.push_front(Space::new(ns));
            }
        }
    }

    fn has(&self, id: NetnsId) -> bool {
        self.troubled.iter().chain(&self.rest).any(|s| s.ns.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(id: u64) -> Namespace {
        Namespace { id: NetnsId(id), member: None, handle: "handle".into(), label: String::new() }
    }

    /// Ten namespaces, of which a tick has time for four; `wrong` ones drop packets all the time.
    /// How often each is read in 20 s.
    fn readings(wrong: &[u64], budget: usize) -> Vec<usize> {
        let names = Arc::new(vec!["TcpExtListenDrops".into(), "TcpInSegs".into()]);
        let mut turns = Turns::default();
        turns.list((0..10).map(ns).collect());
        let mut often = vec![0; 10];
        for tick in 0..20 {
            let at = MonoNs(tick * 1_000_000_000);
            let taken = std::cell::Cell::new(0);
            let is_spent = |part: f64| taken.get() as f64 >= budget as f64 * part;
            turns.round(at, is_spent, |space| {
                taken.set(taken.get() + 1);
                let id = space.ns.id;
                often[id.0 as usize] += 1;
                let drops = if wrong.contains(&id.0) { tick as i64 } else { 0 };
                // All of them receive.
                let values = vec![drops, tick as i64];
                space.trouble.look(&NetnsCounters { netns: id, names: names.clone(), values }, at);
                true
            });
            assert!(taken.get() <= budget, "{}", taken.get());
        }
        often
    }

    #[test]
    fn all_have_their_turn() {
        assert_eq!(readings(&[], 4), [8; 10]);
        assert_eq!(readings(&[], 10), [20; 10]);
        assert_eq!(readings(&(0..10).collect::<Vec<_>>(), 4).iter().sum::<usize>(), 80);
    }

    #[test]
    fn who_is_in_trouble_is_read_more_often() {
        let often = readings(&[3], 4);
        assert!(often[3] >= 15, "{often:?}");
        assert!(often.iter().all(|n| *n >= 6), "{often:?}");
        // Even where there is time for one only.
        let often = readings(&[3], 1);
        assert!(often[3] >= 2 && often.iter().all(|n| *n >= 1), "{often:?}");
    }

    /// Those in trouble do not wait longer than the others where they are most.
    #[test]
    fn many_in_trouble_share_the_budget() {
        let often = readings(&[0, 1, 2, 3, 4, 5, 6, 7], 4);
        let (troubled, rest) = often.split_at(8);
        assert!(troubled.iter().min() >= rest.iter().max(), "{often:?}");
        assert_eq!(often.iter().sum::<usize>(), 80);
    }

    #[test]
    fn trouble_is_over_after_ten_seconds() {
        let names = Arc::new(vec!["UdpRcvbufErrors".into()]);
        let row = |n| NetnsCounters { netns: NetnsId(1), names: names.clone(), values: vec![n] };
        let at = |s: u64| MonoNs(s * 1_000_000_000);
        let mut t = Trouble::default();
        // What was counted before anybody looked is no trouble of now.
        t.look(&row(500), at(1));
        assert!(!t.is_lately(at(1)));
        t.look(&row(501), at(2));
        assert!(t.is_lately(at(2)) && t.is_lately(at(11)) && !t.is_lately(at(12)));
    }
}

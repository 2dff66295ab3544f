//! Whose turn it is: namespaces in which something went wrong lately come first, with half of the
//! budget. Of a hundred containers the one that drops packets is read every tick or two, not every
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
}

impl Turns {
    /// Those that come one after the other in this tick, until `is_spent` says that a part of the
    /// budget is: each at most once, and at least one of each kind. `read` says whether to keep it.
    pub(super) fn round(
        &mut self,
        at: MonoNs,
        is_spent: impl Fn(f64) -> bool,
        mut read: impl FnMut(&mut Space) -> bool,
    ) {
        let (troubled, rest) = (self.troubled.len(), self.rest.len());
        let mut taken = 0;
        while taken < troubled {
            taken += 1;
            self.one(true, at, &mut read);
            if is_spent(0.5) {
                break;
            }
        }
        for _ in 0..rest {
            self.one(false, at, &mut read);
            if is_spent(1.0) {
                return;
            }
        }
        for _ in taken..troubled {
            self.one(true, at, &mut read);
            if is_spent(1.0) {
                return;
            }
        }
    }

    fn one(&mut self, troubled: bool, at: MonoNs, read: &mut impl FnMut(&mut Space) -> bool) {
        let queue = if troubled { &mut self.troubled } else { &mut self.rest };
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
            assert!(taken.get() <= budget.max(2), "{}", taken.get());
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
        // Even where there is time for one of each only.
        let often = readings(&[3], 1);
        assert!(often[3] >= 5 && often.iter().all(|n| *n >= 1), "{often:?}");
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

//! Which namespaces are read now. An empty namespace costs as much as the whole host's
//! sockets make the shared hash table big, so a host with a hundred containers cannot read
//! all of them in every tick: CPU time is a budget, and everybody gets a turn.
//!
//! Pure: told the time and the costs, decides the order.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sample::subject::NetnsId;
use crate::sample::time::MonoNs;

/// Savings are capped at this much time, so that an idle hour is not spent at once.
const SAVE: Duration = Duration::from_secs(2);
/// The time that the first round may spend the budget of.
const FIRST: Duration = Duration::from_secs(1);
/// The share of the budget that may be spent ahead of the queue.
const JUMP_SHARE: f64 = 0.5;

/// A namespace as the schedule sees it.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// When it was last read.
    read: Option<MonoNs>,
    /// It had suspects then.
    urgent: bool,
}

/// Why a namespace is offered a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It had suspects: ahead of the queue, as long as the queue keeps its share.
    Jump,
    /// It waited longest.
    Regular,
}

/// Hands out turns within a CPU budget.
#[derive(Debug)]
pub struct Schedule {
    /// Share of one core.
    budget: f64,
    /// CPU time that may be spent, ns; negative after a turn that cost more than was left.
    credit: f64,
    /// The part of it that may be spent ahead of the queue.
    jump_credit: f64,
    round: Option<MonoNs>,
    entries: BTreeMap<NetnsId, Entry>,
}

impl Schedule {
    /// `budget` is a share of one core, 0 to 1.
    #[must_use]
    pub fn new(budget: f64) -> Self {
        let budget = if budget.is_finite() { budget.clamp(0.0, 1.0) } else { 0.0 };
        Self { budget, credit: 0.0, jump_credit: 0.0, round: None, entries: BTreeMap::new() }
    }

    /// Begins a round at `now`: credit grows with the time that passed, namespaces come and
    /// go. Returns the turns to offer, in order; a namespace may be offered two.
    pub fn begin(&mut self, now: MonoNs, alive: &[NetnsId]) -> Vec<(NetnsId, Turn)> {
        let passed = self.round.map_or(FIRST, |t| now.since(t)).as_nanos() as f64 * self.budget;
        let most = SAVE.as_nanos() as f64 * self.budget;
        self.round = Some(now);
        self.credit = (self.credit + passed).min(most);
        self.jump_credit = (self.jump_credit + passed * JUMP_SHARE).min(most * JUMP_SHARE);
        self.entries.retain(|id, _| alive.contains(id));
        for id in alive {
            self.entries.entry(*id).or_default();
        }
        let mut queue: Vec<NetnsId> = alive.to_vec();
        queue.sort_by_key(|id| (self.entries.get(id).and_then(|e| e.read), *id));
        let jumps = queue.iter().filter(|id| self.entries.get(id).is_some_and(|e| e.urgent));
        jumps
            .map(|id| (*id, Turn::Jump))
            .chain(queue.iter().map(|id| (*id, Turn::Regular)))
            .collect()
    }

    /// Is there time for this turn?
    #[must_use]
    pub fn allows(&self, id: NetnsId, turn: Turn) -> bool {
        let had_one = self.round.is_some()
            && self.entries.get(&id).is_some_and(|e| e.read.is_some() && e.read >= self.round);
        self.credit > 0.0 && !had_one && (turn == Turn::Regular || self.jump_credit > 0.0)
    }

    /// Books a turn; `urgent` says whether the namespace has suspects now.
    pub fn read(&mut self, id: NetnsId, turn: Turn, now: MonoNs, cost: Duration, urgent: bool) {
        self.charge(cost);
        if turn == Turn::Jump {
            self.jump_credit -= cost.as_nanos() as f64;
        }
        self.entries.insert(id, Entry { read: Some(now), urgent });
    }

    /// Books CPU time that no single namespace caused.
    pub fn charge(&mut self, cost: Duration) {
        self.credit -= cost.as_nanos() as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(1);

    fn ids(n: u64) -> Vec<NetnsId> {
        (1..=n).map(NetnsId).collect()
    }

    /// Runs ticks where every reading costs `cost`; returns how often each was read.
    fn run(
        s: &mut Schedule,
        all: &[NetnsId],
        ticks: u64,
        cost: Duration,
        urgent: &[NetnsId],
    ) -> BTreeMap<NetnsId, u32> {
        let mut turns = BTreeMap::new();
        for t in 0..ticks {
            let now = MonoNs(t * 1_000_000_000);
            for (id, turn) in s.begin(now, all) {
                if s.allows(id, turn) {
                    s.read(id, turn, now, cost, urgent.contains(&id));
                    *turns.entry(id).or_insert(0) += 1;
                }
            }
        }
        turns
    }

    #[test]
    fn cheap_namespaces_are_read_in_every_tick() {
        let all = ids(10);
        let turns = run(&mut Schedule::new(0.03), &all, 20, Duration::from_micros(500), &[]);
        assert!(all.iter().all(|id| turns[id] == 20));
    }

    #[test]
    fn expensive_ones_take_turns_within_the_budget() {
        let all = ids(100);
        // 40 ms each at 3 %: 0.75 turns a second.
        let turns = run(&mut Schedule::new(0.03), &all, 400, Duration::from_millis(40), &[]);
        let sum: u32 = turns.values().sum();
        assert!((295..=305).contains(&sum), "{sum}");
        let (least, most) = (turns.values().min(), turns.values().max());
        assert_eq!((turns.len(), least, most), (100, Some(&3), Some(&3)));
    }

    #[test]
    fn suspects_jump_the_queue_but_starve_nobody() {
        let all = ids(50);
        let urgent = [NetnsId(7)];
        // 2.5 turns a second; then 0.75 turns a second, where one jump takes it all.
        for (budget, cost, jumps, least) in [(0.05, 20, 390, 8), (0.03, 40, 140, 2)] {
            let mut s = Schedule::new(budget);
            let turns = run(&mut s, &all, 400, Duration::from_millis(cost), &urgent);
            assert!(turns[&NetnsId(7)] >= jumps, "{turns:?}");
            assert!(all.iter().all(|id| turns.get(id).is_some_and(|n| *n >= least)), "{turns:?}");
        }
    }

    #[test]
    fn savings_are_bounded_and_dead_namespaces_forgotten() {
        let mut s = Schedule::new(0.5);
        s.begin(MonoNs(0), &ids(3));
        s.begin(MonoNs(3_600_000_000_000), &ids(1));
        assert!(s.credit <= 1e9 + 1.0);
        assert_eq!(s.entries.len(), 1);
    }

    #[test]
    fn a_budget_of_nothing_reads_nothing() {
        assert!(run(&mut Schedule::new(0.0), &ids(3), 5, TICK, &[]).is_empty());
        assert!(run(&mut Schedule::new(f64::NAN), &ids(3), 5, TICK, &[]).is_empty());
    }
}

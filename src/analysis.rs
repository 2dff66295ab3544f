//! `Analysis`: the fold over ticks that every front end shares: history, figures, findings.
//!
//! Console, `check`, replay and reports push ticks in and look at moments; none of them
//! computes anything of its own. Pure: time comes from the ticks.

mod summary;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::diagnose::{Engine, Findings};
use crate::metrics::history::{History, MIN_MOMENTS, Snapshot, Window};
use crate::metrics::{Derived, Deriver};
use crate::sample::Interest;
use crate::sample::heap::Heap;
use crate::sample::sockets::NetnsTable;
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::{MonoNs, Seq};

/// History, figures and findings of a run.
#[derive(Debug)]
pub struct Analysis {
    host: HostInfo,
    history: History,
    findings: VecDeque<(Seq, Arc<Findings>, usize)>,
    /// Bytes of them.
    said: usize,
    budget: usize,
    deriver: Deriver,
    engine: Engine,
    /// The last moment that was read at another interval than that of now.
    other_until: Option<MonoNs>,
}

/// The part of the budget that findings of the past may take in any case; beyond it they take what
/// the moments leave.
const FINDINGS: usize = 8;
/// Sockets that threads wait for whose detail is read.
const MOST_SOCKETS: usize = 1000;

/// Ticks in which each socket table is read at least once, as a rule.
const RECENT: usize = 10;

/// All that judging remembers beside the history: what to go on from, without the ticks before.
/// Cheap to keep: most of it is shared with the run that it was taken from.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    deriver: Deriver,
    engine: Engine,
}

impl Checkpoint {
    /// Bytes that it holds on its own, about: socket tables, and what is remembered of threads.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.deriver.table_bytes() + self.deriver.bytes()
    }
}

/// One moment with everything that is known about it.
#[derive(Clone, Copy)]
pub struct TickView<'a> {
    /// The raw sample.
    pub tick: &'a Tick,
    /// The figures.
    pub derived: &'a Arc<Derived>,
    /// The findings as of then.
    pub findings: &'a Arc<Findings>,
}

impl Analysis {
    /// A run on `host` that holds `budget` bytes: moments, findings, and what both are told from.
    #[must_use]
    pub fn new(host: HostInfo, engine: Engine, budget: usize) -> Self {
        let engine = engine.configured(&host.rules);
        Self {
            host,
            history: History::new(budget - budget / FINDINGS),
            findings: VecDeque::new(),
            said: 0,
            budget,
            deriver: Deriver::default(),
            engine,
            other_until: None,
        }
    }

    /// A run that nobody looks back in: it judges the same with less memory.
    #[must_use]
    pub fn lean(host: HostInfo, engine: Engine, budget: usize) -> Self {
        Self {
            history: History::lean(budget - budget / FINDINGS),
            ..Self::new(host, engine, budget)
        }
    }

    /// What the run remembers now.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { deriver: self.deriver.clone(), engine: self.engine.clone() }
    }

    /// A run that goes on from `from`, with an empty history.
    #[must_use]
    pub fn resume(host: HostInfo, from: &Checkpoint, budget: usize) -> Self {
        let mut a = Self::new(host, from.engine.clone(), budget);
        a.deriver = from.deriver.clone();
        a
    }

    /// From here on judges as the run of `from` did.
    pub fn judge_from(&mut self, from: &Checkpoint) {
        self.engine = from.engine.clone();
    }

    /// Takes in the next tick for the figures and the history, without judging it: rules look
    /// back at it later.
    pub fn observe(&mut self, tick: Arc<Tick>) {
        let derived = self.derive(&tick);
        self.history.push(tick, derived, self.taken());
    }

    /// Takes in the next tick and judges it.
    pub fn push(&mut self, tick: Arc<Tick>) {
        let derived = self.derive(&tick);
        self.history.push(tick.clone(), derived.clone(), self.taken());
        let w = Window { tick: &tick, derived: &derived, history: &self.history, host: &self.host };
        let findings = Arc::new(self.engine.push(&w));
        self.remember(tick.seq, findings);
    }

    fn derive(&mut self, tick: &Arc<Tick>) -> Arc<Derived> {
        let mut derived = self.deriver.push(tick);
        derived.settle(None);
        Arc::new(derived)
    }

    /// Bytes of the history's budget that the fold uses: at most half of it.
    fn taken(&self) -> usize {
        self.deriver.bytes().min(self.budget / 2)
    }

    /// Keeps the findings of a moment while it is in memory and they fit. What rules look back at
    /// does not depend on them: a run that judges only its end must find the same there.
    fn remember(&mut self, seq: Seq, findings: Arc<Findings>) {
        let before = self.findings.back().map(|(_, f, _)| f);
        let bytes = findings.heap(before);
        self.said += bytes;
        self.findings.push_back((seq, findings, bytes));
        let first = self.history.first().map(|m| m.tick.seq);
        let used = self.history.bytes() + self.taken();
        let room = self.budget.saturating_sub(used).max(self.budget / FINDINGS);
        let gone = |f: Option<&(Seq, Arc<Findings>, usize)>| f.is_some_and(|f| Some(f.0) < first);
        while self.findings.len() > 1
            && (gone(self.findings.front())
                || self.said > room && self.findings.len() > MIN_MOMENTS)
        {
            if let Some(old) = self.findings.pop_front() {
                self.said -= old.2;
            }
            // What the two shared is the next one's now.
            if let Some(next) = self.findings.front_mut() {
                let bytes = next.1.heap(None);
                self.said = self.said - next.2 + bytes;
                next.2 = bytes;
            }
        }
    }

    /// Bytes that the run holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.history.bytes() + self.said + self.deriver.bytes()
    }

    /// What does not change during the run, but for the interval.
    #[must_use]
    pub fn host(&self) -> &HostInfo {
        &self.host
    }
    /// Ticks come at this interval from now on.
    pub fn set_interval(&mut self, interval: Duration) {
        self.host.interval = interval;
        self.other_until = self.history.last().map(|m| m.tick.mono);
    }
    /// Whether a moment was read at the interval that holds now.
    #[must_use]
    pub fn is_of_this_interval(&self, m: &Snapshot) -> bool {
        self.other_until.is_none_or(|until| m.tick.mono > until)
    }
    /// The moments in memory.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }
    /// The newest moment.
    #[must_use]
    pub fn latest(&self) -> Option<TickView<'_>> {
        self.at(self.history.last()?.tick.seq)
    }
    /// The youngest socket table of each namespace, of the last ticks: not every one is read in each.
    #[must_use]
    pub fn tables(&self) -> Vec<&NetnsTable> {
        youngest_tables(self.recent().map(|t| &**t))
    }
    /// The last ticks, youngest first: those that have a socket table of each namespace.
    pub fn recent(&self) -> impl Iterator<Item = &Arc<Tick>> {
        self.history.iter().rev().take(RECENT).map(|m| &m.tick)
    }
    /// The oldest moment that was judged.
    #[must_use]
    pub fn oldest(&self) -> Option<TickView<'_>> {
        self.at(self.findings.front()?.0)
    }
    /// The moment with this number, if it is still in memory and was judged.
    #[must_use]
    pub fn at(&self, seq: Seq) -> Option<TickView<'_>> {
        let m = self.history.get(seq)?;
        let i = self.findings.binary_search_by_key(&seq, |f| f.0).ok()?;
        Some(TickView { tick: &m.tick, derived: &m.derived, findings: &self.findings[i].1 })
    }
    /// The window of rules and panes at `seq`.
    #[must_use]
    pub fn window(&self, seq: Seq) -> Option<Window<'_>> {
        let m = self.history.get(seq)?;
        Some(Window {
            tick: &m.tick,
            derived: &m.derived,
            history: &self.history,
            host: &self.host,
        })
    }
    /// Findings of the moments in memory, oldest first, for the timeline.
    pub fn findings(&self) -> impl Iterator<Item = (Seq, &Arc<Findings>)> {
        self.findings.iter().map(|(s, f, _)| (*s, f))
    }

    /// Sockets that findings name: collectors should read their detail and owner.
    #[must_use]
    pub fn interest(&self) -> Interest {
        let mut interest = Interest::default();
        let Some(now) = self.latest() else { return interest };
        for f in now.findings.all() {
            interest.sockets.extend(f.fire.sockets.iter().take(100));
        }
        // Whether the peer owes an answer is known by the ages in tcp_info.
        let waits = now.derived.waits.iter().flat_map(|w| &w.threads).flat_map(|t| &t.parts);
        let inodes: BTreeSet<u64> =
            waits.filter_map(|p| p.place.as_ref()?.inode).filter(|i| *i != 0).collect();
        if !inodes.is_empty() {
            interest.sockets.extend(self.tables().into_iter().flat_map(|t| {
                let rows = t.inet.inode.iter().enumerate();
                rows.filter(|(_, i)| inodes.contains(&u64::from(**i))).map(|(row, _)| t.id(row))
            }));
            // Threads of the whole host may wait for thousands.
            interest.sockets.truncate(MOST_SOCKETS);
        }
        interest.sockets.sort_unstable();
        interest.sockets.dedup();
        interest.inodes = interest
            .sockets
            .iter()
            .filter_map(|id| now.derived.sockets.get(*id))
            .map(|s| s.inode)
            .filter(|i| *i != 0)
            .collect();
        // Whose connections use up the ports: nothing else is wrong with them.
        let uses = now.derived.sockets.spaces.iter().flat_map(|s| &s.port_uses);
        interest.inodes.extend(uses.flat_map(|u| &u.inodes));
        interest.inodes.extend(self.conntrack_inodes());
        interest
    }

    /// Sockets that opened the entries of a nearly full connection table. Namespaces are read in
    /// turn: each by its youngest figures.
    fn conntrack_inodes(&self) -> Vec<u32> {
        let (mut seen, mut out) = (BTreeSet::new(), Vec::new());
        let recent = self.history.iter().rev().take(RECENT);
        for s in recent.filter_map(|m| m.derived.netdev.as_deref()).flatten() {
            if seen.insert(s.netns) {
                let sources = s.origins.iter().flat_map(|o| &o.sources);
                out.extend(sources.flat_map(|s| &s.inodes));
            }
        }
        out
    }
}

/// The first table of each namespace.
pub fn youngest_tables<'a>(ticks: impl Iterator<Item = &'a Tick>) -> Vec<&'a NetnsTable> {
    let mut out: Vec<&NetnsTable> = Vec::new();
    for samples in ticks.map(|t| &t.samples) {
        let both = [samples.sockets.as_ref(), samples.netns_sockets.as_ref()];
        for table in both.into_iter().flatten().flat_map(|s| &s.data.spaces) {
            if !out.iter().any(|t| t.netns == table.netns) {
                out.push(table);
            }
        }
    }
    out
}

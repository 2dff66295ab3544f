//! The last minutes in memory: ticks with their figures, bounded by a budget in bytes, so that
//! the user can go back in time without having recorded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Derived;
use super::disks::DiskFigures;
use super::netdev::SpaceFigures;
use crate::sample::heap::{Heap, tick_heap};
use crate::sample::net_counters::NetCountersSample;
use crate::sample::subject::{DiskId, NetnsId};
use crate::sample::tick::{HealthState, Tick};
use crate::sample::time::{MonoNs, Seq};
use crate::sample::{CollectorId, Samples, Shared};

/// A tick with what follows from it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The raw sample.
    pub tick: Arc<Tick>,
    /// The figures.
    pub derived: Arc<Derived>,
    /// What it takes beside the moment before it.
    bytes: usize,
}

/// Moments, oldest first.
#[derive(Debug)]
pub struct History {
    snapshots: VecDeque<Snapshot>,
    bytes: usize,
    budget: usize,
    /// Of past ticks only what rules look at.
    lean: bool,
}

/// Default budget: 64 MiB.
pub const DEFAULT_BUDGET: usize = 64 << 20;
/// Moments kept whatever the budget says: rules look back this far. Beyond the budget they are
/// kept without their socket tables and without what each thread waited for, which rules look at
/// in the newest moment only.
pub(crate) const MIN_MOMENTS: usize = 40;
/// How far back rules look at most, in samples about a second (or an interval) apart ...
pub const REACH_SAMPLES: usize = 300;
/// ... and in time. A player that goes to a moment reads the recording from this far before it.
pub const REACH: Duration = Duration::from_secs(700);
/// Figures of a namespace's devices stand for so long.
const NETDEV_AGE: Duration = Duration::from_secs(15);
/// The youngest snapshots are always whole: what the screen shows, and what it compares with.
const WHOLE: usize = 3;

impl Default for History {
    fn default() -> Self {
        Self::new(DEFAULT_BUDGET)
    }
}

impl History {
    /// An empty history that holds about `budget` bytes.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { snapshots: VecDeque::new(), bytes: 0, budget, lean: false }
    }

    /// One that nobody looks back in but rules: past ticks are without what is large in them.
    #[must_use]
    pub fn lean(budget: usize) -> Self {
        Self { lean: true, ..Self::new(budget) }
    }

    /// Adds the newest moment and drops the oldest beyond the budget, of which `taken` bytes are
    /// used by something else.
    pub fn push(&mut self, tick: Arc<Tick>, derived: Arc<Derived>, taken: usize) {
        if self.lean
            && let Some(past) = self.snapshots.back_mut()
        {
            past.forget();
            self.charge(self.snapshots.len() - 1);
        }
        self.snapshots.push_back(Snapshot { tick, derived, bytes: 0 });
        self.charge(self.snapshots.len() - 1);
        self.fit(self.budget.saturating_sub(taken));
    }

    fn fit(&mut self, budget: usize) {
        // Kernel histograms and samples of threads go first: their figures stay, and nothing else
        // looks back at them.
        self.thin(budget, Snapshot::drop_raw);
        while self.bytes > budget && self.snapshots.len() > MIN_MOMENTS {
            if let Some(old) = self.snapshots.pop_front() {
                self.bytes -= old.bytes;
                // What the two shared is the next one's now.
                self.charge(0);
            }
        }
        self.thin(budget, Snapshot::drop_sockets);
        self.thin(budget, Snapshot::drop_waits);
    }

    /// Takes something out of the oldest snapshots until the rest fits.
    fn thin(&mut self, budget: usize, out: fn(&mut Snapshot) -> bool) {
        for i in 0..self.snapshots.len().saturating_sub(WHOLE) {
            if self.bytes <= budget {
                return;
            }
            if self.snapshots.get_mut(i).is_some_and(out) {
                self.charge(i);
                self.charge(i + 1);
            }
        }
    }

    /// Counts moment `i` anew, after it or the one before it has changed.
    fn charge(&mut self, i: usize) {
        let before = i.checked_sub(1).and_then(|b| self.snapshots.get(b));
        let Some(bytes) = self.snapshots.get(i).map(|m| m.measure(before)) else { return };
        if let Some(m) = self.snapshots.get_mut(i) {
            self.bytes = self.bytes - m.bytes + bytes;
            m.bytes = bytes;
        }
    }

    /// Number of snapshots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshots.len()
    }
    /// None yet?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snapshots.is_empty()
    }
    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// The newest.
    #[must_use]
    pub fn last(&self) -> Option<&Snapshot> {
        self.snapshots.back()
    }
    /// The oldest.
    #[must_use]
    pub fn first(&self) -> Option<&Snapshot> {
        self.snapshots.front()
    }
    /// The moment with this number, if it is still here.
    #[must_use]
    pub fn get(&self, seq: Seq) -> Option<&Snapshot> {
        // Numbers grow, but not by one where a recording lost ticks.
        let i = self.snapshots.binary_search_by_key(&seq, |m| m.tick.seq).ok()?;
        self.snapshots.get(i)
    }
    /// The first moment behind `seq`.
    #[must_use]
    pub fn after(&self, seq: Seq) -> Option<&Snapshot> {
        self.snapshots.get(self.snapshots.partition_point(|m| m.tick.seq <= seq))
    }
    /// The last moment before `seq`.
    #[must_use]
    pub fn before(&self, seq: Seq) -> Option<&Snapshot> {
        self.snapshots.get(self.snapshots.partition_point(|m| m.tick.seq < seq).checked_sub(1)?)
    }
    /// Moments up to and including `seq`, newest first.
    pub fn back_from(&self, seq: Seq) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().rev().skip_while(move |m| m.tick.seq > seq)
    }
    /// All, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.snapshots.iter()
    }
}

impl Snapshot {
    /// Bytes beside what it shares with the moment before.
    fn measure(&self, before: Option<&Self>) -> usize {
        let figures = self.derived.heap(before.map(|b| &b.derived));
        let tick = tick_heap(&self.tick, before.map(|b| &*b.tick));
        size_of::<Self>() + BESIDE + tick + figures
    }

    /// Gives the raw eBPF samples and those of threads back; false when there are none.
    fn drop_raw(&mut self) -> bool {
        let s = &self.tick.samples;
        if s.runq_bpf.is_none()
            && s.irq_bpf.is_none()
            && s.block_bpf.is_none()
            && s.net_bpf.is_none()
            && s.waits.is_none()
        {
            return false;
        }
        let mut tick = (*self.tick).clone();
        let s = &mut tick.samples;
        (s.runq_bpf, s.irq_bpf, s.block_bpf, s.net_bpf) = (None, None, None, None);
        s.waits = None;
        self.tick = Arc::new(tick);
        true
    }

    /// Keeps of the raw samples those that rules look back at.
    fn forget(&mut self) {
        let s = &self.tick.samples;
        let samples = Samples {
            net_counters: s.net_counters.clone(),
            softirq: s.softirq.clone(),
            memory: s.memory.clone(),
            cgroups: s.cgroups.clone(),
            processes: s.processes.clone(),
            files_bpf: s.files_bpf.clone(),
            ..Samples::default()
        };
        self.tick = Arc::new(Tick { samples, health: Vec::new(), ..*self.tick });
    }

    /// Gives the socket tables back; false when there are none.
    fn drop_sockets(&mut self) -> bool {
        let s = &self.tick.samples;
        if s.sockets.is_none() && s.netns_sockets.is_none() {
            return false;
        }
        let mut tick = (*self.tick).clone();
        for (id, had) in [
            (CollectorId::Sockets, tick.samples.sockets.take().is_some()),
            (CollectorId::NetnsSockets, tick.samples.netns_sockets.take().is_some()),
        ] {
            if had {
                no_longer_here(&mut tick, id);
            }
        }
        self.tick = Arc::new(tick);
        true
    }

    /// Gives back what each thread waited for; false when that is not there.
    fn drop_waits(&mut self) -> bool {
        if self.derived.waits.is_none() {
            return false;
        }
        self.derived = Arc::new(Derived { waits: None, ..(*self.derived).clone() });
        let mut tick = (*self.tick).clone();
        no_longer_here(&mut tick, CollectorId::Waits);
        self.tick = Arc::new(tick);
        true
    }
}

/// A screen that shows the moment says why there is nothing.
fn no_longer_here(tick: &mut Tick, id: CollectorId) {
    if let Some(h) = tick.health.iter_mut().find(|h| h.id == id) {
        h.state = HealthState::Off {
            reason: "no longer in memory: the history's budget is used up".to_owned(),
            remedy: "record, and replay the recording".to_owned(),
        };
    }
}

/// What screen and findings keep beside each moment, and free places in their lists.
const BESIDE: usize = 512;

/// The view of rules: one moment and what was before it.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    /// The moment under judgement.
    pub tick: &'a Tick,
    /// Its figures.
    pub derived: &'a Derived,
    /// It and the snapshots before.
    pub history: &'a History,
    /// What does not change.
    pub host: &'a crate::sample::tick::HostInfo,
}

/// Growth of a counter over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterDelta {
    /// By how much it grew.
    pub delta: u64,
    /// Over which time.
    pub dt: Duration,
}

impl CounterDelta {
    /// Per second.
    #[must_use]
    pub fn rate(self) -> f64 {
        super::rate::per_second(self.delta as f64, self.dt).unwrap_or(0.0)
    }
}

impl<'a> Window<'a> {
    /// Figures of this moment and those before, newest first, at most `n` and
    /// [`REACH_SAMPLES`], about a second (or one interval) apart.
    pub fn recent(&self, n: usize) -> impl Iterator<Item = &'a Derived> + use<'a> {
        let mut last: Option<MonoNs> = None;
        self.history
            .back_from(self.tick.seq)
            .map(|m| &*m.derived)
            .filter(move |d| {
                let far = last.is_none_or(|l| l.since(d.mono) >= super::MIN_SPAN);
                if far {
                    last = Some(d.mono);
                }
                far
            })
            .take(n.min(REACH_SAMPLES))
    }

    /// The figures of one disk in [`recent`](Self::recent) moments that have it. Disks keep their
    /// order from one reading to the next, so that hundreds of them are not searched for each.
    pub fn recent_disk(
        &self,
        id: DiskId,
        n: usize,
    ) -> impl Iterator<Item = &'a DiskFigures> + use<'a> {
        let mut place = 0;
        self.recent(n).filter_map(move |m| {
            let disks = m.disks.as_ref()?;
            if disks.get(place).is_none_or(|d| d.id != id) {
                place = disks.iter().position(|d| d.id == id)?;
            }
            disks.get(place)
        })
    }

    /// Growth of a protocol counter of `netns` over the last `span`. `None`: this kernel does
    /// not have the counter, it was reset, or there is only one reading.
    #[must_use]
    pub fn counter(&self, netns: NetnsId, name: &str, span: Duration) -> Option<CounterDelta> {
        let mut readings = self.readings(netns);
        let (now_at, now) = readings.next().map(|(at, c)| (at, c.get(name)))?;
        let now = now?;
        let mut oldest = None;
        for (at, c) in readings {
            if now_at.since(at) > span + span / 10 {
                break;
            }
            oldest = Some((at, c.get(name)?));
        }
        let (then, before) = oldest?;
        Some(CounterDelta {
            delta: u64::try_from(now.checked_sub(before)?).ok()?,
            dt: now_at.since(then),
        })
    }

    /// The youngest figures of a namespace's devices and qdiscs, from this moment or one just
    /// before: the namespaces take turns.
    #[must_use]
    pub fn netdev(&self, netns: NetnsId) -> Option<&'a SpaceFigures> {
        let now = self.tick.mono;
        self.history
            .back_from(self.tick.seq)
            .take_while(move |m| now.since(m.tick.mono) <= NETDEV_AGE)
            .filter_map(|m| m.derived.netdev.as_deref())
            .find_map(|spaces| spaces.iter().find(|s| s.netns == netns))
    }

    fn readings(
        &self,
        netns: NetnsId,
    ) -> impl Iterator<Item = (MonoNs, &'a crate::sample::net_counters::NetnsCounters)> + use<'a>
    {
        let from = self.tick.mono;
        self.history
            .back_from(self.tick.seq)
            .take_while(move |m| from.since(m.tick.mono) < REACH)
            .filter_map(move |m| {
                let s: &'a Shared<NetCountersSample> = m.tick.samples.net_counters.as_ref()?;
                Some((s.span.mid(), s.data.spaces.iter().find(|n| n.netns == netns)?))
            })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::waits::{Class, Part, Place, ThreadFigures, WaitFigures};
    use crate::sample::Stamped;
    use crate::sample::bpf::Hist;
    use crate::sample::bpf::irq::{IrqBpfSample, IrqCpu, VectorTime};
    use crate::sample::sockets::{InetRows, NetnsTable, SocketsSample};
    use crate::sample::tick::CollectorHealth;
    use crate::sample::time::Span;

    fn moment(seq: u64, rows: usize) -> (Arc<Tick>, Arc<Derived>) {
        let mono = MonoNs(seq * 1_000_000_000);
        let inet = InetRows {
            cookie: vec![0; rows],
            local: vec![[0; 16]; rows],
            remote: vec![[0; 16]; rows],
            skmem: vec![[0; 9]; rows],
            cgroup: vec![0; rows],
            ..InetRows::default()
        };
        let span = Span::at(mono);
        let spaces = vec![Arc::new(NetnsTable { span, inet, ..NetnsTable::default() })];
        let data = SocketsSample { spaces, unread: Vec::new() };
        let sample = Arc::new(Stamped { span: Span::at(mono), cpu: Duration::ZERO, data });
        let health = CollectorHealth {
            id: CollectorId::Sockets,
            state: HealthState::Fresh,
            signals: Vec::new(),
        };
        let tick = Tick {
            seq: Seq(seq),
            mono,
            samples: Samples { sockets: Some(sample), ..Samples::default() },
            health: vec![health],
            ..Tick::default()
        };
        (Arc::new(tick), Arc::new(Derived { seq: Seq(seq), mono, ..Derived::default() }))
    }

    #[test]
    fn a_small_host_keeps_everything_and_the_oldest_go_first() {
        let mut h = History::new(1 << 20);
        for seq in 0..2000 {
            let (tick, derived) = moment(seq, 10);
            h.push(tick, derived, 0);
        }
        assert!(h.bytes() <= 1 << 20 && h.len() > MIN_MOMENTS);
        assert_eq!(h.last().unwrap().tick.seq, Seq(1999));
        assert_eq!(h.get(Seq(1990)).unwrap().tick.seq, Seq(1990));
        assert_eq!(h.first().unwrap().tick.seq.0, 2000 - h.len() as u64);
        assert!(h.iter().all(|m| m.tick.samples.sockets.is_some()));
    }

    /// 100k sockets are some 12 MB a tick: forty ticks of that are not what a budget of 64 MB
    /// means.
    #[test]
    fn a_host_with_many_sockets_stays_within_the_budget_and_says_what_is_gone() {
        let mut h = History::new(DEFAULT_BUDGET);
        for seq in 0..60 {
            let (tick, derived) = moment(seq, 100_000);
            h.push(tick, derived, 0);
        }
        assert_eq!(h.len(), MIN_MOMENTS, "rules still look back this far");
        assert!(h.bytes() <= DEFAULT_BUDGET, "{}", h.bytes());
        let whole = |m: &&Snapshot| m.tick.samples.sockets.is_some();
        assert!(h.iter().rev().take(WHOLE).all(|m| whole(&m)));
        let bytes: usize = h.iter().map(|m| m.bytes).sum();
        assert_eq!(bytes, h.bytes());
        let oldest = &h.first().unwrap().tick;
        assert!(oldest.samples.sockets.is_none());
        assert!(matches!(&oldest.health[0].state, HealthState::Off { .. }));
    }

    /// A database with 10,000 threads that queue for a mutex: 9 MB of figures a tick.
    #[test]
    fn a_process_of_many_threads_stays_within_the_budget_and_says_what_is_gone() {
        let part = |class| Part {
            class,
            place: Some(Place { wchan: Some("futex_wait_queue".into()), ..Place::default() }),
            time: Duration::from_millis(500),
        };
        let thread = ThreadFigures {
            comm: "worker".into(),
            cgroup: Some("/system.slice/database.service".into()),
            parts: vec![part(Class::Lock), part(Class::Idle)],
            ..ThreadFigures::default()
        };
        let waits = WaitFigures { threads: vec![thread; 10_000], ..WaitFigures::default() };
        for lean in [false, true] {
            let mut h = History { lean, ..History::default() };
            for seq in 0..60 {
                let (tick, derived) = moment(seq, 0);
                let health = vec![CollectorHealth {
                    id: CollectorId::Waits,
                    state: HealthState::Fresh,
                    signals: Vec::new(),
                }];
                let tick = Tick { health, ..(*tick).clone() };
                // Another one each time, as if nothing were shared.
                let waits = Some(Arc::new(waits.clone()));
                let derived = Derived { waits, ..(*derived).clone() };
                h.push(Arc::new(tick), Arc::new(derived), 0);
            }
            assert!(h.last().unwrap().bytes > 5 << 20, "{}", h.last().unwrap().bytes);
            assert_eq!(h.len(), MIN_MOMENTS, "rules still look back this far");
            assert!(h.bytes() <= DEFAULT_BUDGET, "{}", h.bytes());
            assert_eq!(h.iter().map(|m| m.bytes).sum::<usize>(), h.bytes());
            assert!(h.iter().rev().take(WHOLE).all(|m| m.derived.waits.is_some()));
            let oldest = h.first().unwrap();
            assert!(oldest.derived.waits.is_none());
            if !lean {
                assert!(matches!(&oldest.tick.health[0].state, HealthState::Off { .. }));
            }
        }
    }

    /// A recorder holds one table of sockets, not one per second.
    #[test]
    fn a_lean_history_keeps_what_rules_look_at_and_the_newest_moment_whole() {
        let mut h = History::lean(4 << 20);
        for seq in 0..60 {
            let (tick, derived) = moment(seq, 10_000);
            h.push(tick, derived, 0);
        }
        assert_eq!(h.len(), 60);
        let whole = |m: &&Snapshot| m.tick.samples.sockets.is_some();
        assert_eq!(h.iter().filter(whole).map(|m| m.tick.seq).collect::<Vec<_>>(), [Seq(59)]);
        assert_eq!(h.iter().map(|m| m.bytes).sum::<usize>(), h.bytes());
        assert!(h.bytes() < 2 << 20, "{}", h.bytes());
    }

    /// 64 CPUs whose softirqs use all their buckets: the raw histograms of an hour would be
    /// gigabytes, but the figures of the past remain on the screen.
    #[test]
    fn raw_histograms_of_a_big_host_go_before_moments_do() {
        let mut h = History::new(DEFAULT_BUDGET);
        for seq in 0..600 {
            let hist: Hist = (0..200).map(|b| (b, seq + 1)).collect();
            let vector = VectorTime { hist, count: 200, ..VectorTime::default() };
            let cpu = IrqCpu { vectors: vec![vector; 10], ..IrqCpu::default() };
            let data = IrqBpfSample { cpus: vec![cpu; 64], ..IrqBpfSample::default() };
            let span = Span::at(MonoNs(seq));
            let sample = Arc::new(Stamped { span, cpu: Duration::ZERO, data });
            let samples = Samples { irq_bpf: Some(sample), ..Samples::default() };
            let tick = Tick { seq: Seq(seq), samples, ..Tick::default() };
            h.push(Arc::new(tick), Arc::new(Derived { seq: Seq(seq), ..Derived::default() }), 0);
        }
        // 640 histograms of 25 lines of 64 bytes.
        assert!(h.last().unwrap().bytes > 640 * 25 * 64);
        assert!(h.bytes() <= DEFAULT_BUDGET, "{}", h.bytes());
        assert_eq!(h.len(), 600);
        assert!(h.first().unwrap().tick.samples.irq_bpf.is_none());
        assert!(h.iter().rev().take(WHOLE).all(|m| m.tick.samples.irq_bpf.is_some()));
        assert_eq!(h.iter().map(|m| m.bytes).sum::<usize>(), h.bytes());
    }
}

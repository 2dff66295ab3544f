//! What a page needs beyond the report of a finished run: when each finding was there, how the
//! figures behind it went, what was missing in between, and the worst moment. It takes a look at
//! the run after each tick; what it keeps does not grow with the length of the recording.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::series::{Series, SeriesId, Store};
use crate::analysis::{Analysis, TickView};
use crate::diagnose::{Finding, Findings, RuleId, Severity};
use crate::metrics::Derived;
use crate::metrics::cpu::{CpuFigures, SchedFigures};
use crate::metrics::disks::DiskFigures;
use crate::metrics::process_io::ProcessIoFigures;
use crate::metrics::sockets::SocketFigures;
use crate::sample::Shared;
use crate::sample::processes::ProcessesSample;
use crate::sample::subject::{CpuId, DiskId, Subject};
use crate::sample::tick::Tick;
use crate::sample::time::{MonoNs, WallNs};

/// Findings whose times are kept; those that come later have only what they say themselves.
const MAX_FINDINGS: usize = 2000;
/// Those of them whose evidence is kept over time.
const MAX_PLOTTED: usize = 200;
/// Numbers of one finding that are kept over time.
const MAX_EVIDENCE: usize = 8;
/// Times that one finding came again.
const MAX_SPELLS: usize = 200;
/// Changes of its severity in one of those.
const MAX_STEPS: usize = 16;
/// Holes of a recording.
const MAX_HOLES: usize = 200;
/// Disks and CPUs whose figures are kept over time.
const MAX_DISKS: usize = 64;
const MAX_CPUS: usize = 128;

/// A figure of the host over time: its name, its unit, where it is.
type OfHost = (&'static str, &'static str, fn(&Derived) -> Option<f64>);

/// As `/proc/stat`, `/proc/pressure` and `/proc/diskstats` have them.
pub(super) const HOST: [OfHost; 6] = [
    ("CPU busy", "%", |d| d.cpu.as_ref()?.total.map(|t| 100.0 - t.idle - t.iowait)),
    ("busiest disk", "%", |d| {
        let all = d.disks.as_ref()?.iter().map(DiskFigures::util_shown);
        all.reduce(f64::max)
    }),
    ("psi cpu", "%", |d| d.psi?.cpu_some),
    ("psi io", "%", |d| d.psi?.io_some),
    ("psi memory", "%", |d| d.psi?.memory_some),
    ("blocked", "", |d| d.cpu.as_ref()?.blocked.map(f64::from)),
];

/// A figure of a disk: as evidence calls it, its unit.
type OfDisk = (&'static str, &'static str, fn(&DiskFigures) -> Option<f64>);

const DISK: [OfDisk; 6] = [
    ("aqu-sz", "", |d| d.untimed.is_none().then_some(d.aqu_sz)),
    ("await", "ms", |d| d.await_ms),
    ("util", "%", |d| Some(d.util_shown())),
    ("iops", "/s", |d| d.untimed.is_none().then(|| d.iops())),
    ("r_await", "ms", |d| d.r_await),
    ("w_await", "ms", |d| d.w_await),
];

/// The same of a CPU.
type OfCpu = (&'static str, &'static str, fn(&crate::metrics::cpu::CpuShare) -> f64);

const CPU: [OfCpu; 2] =
    [("busy", "%", |c| 100.0 - c.idle - c.iowait), ("softirq", "%", |c| c.softirq)];

/// Names a finding: its rule and what it is about.
pub(super) type Key = (RuleId, Subject);

/// From when to when a finding was there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Episode {
    /// When its condition began.
    pub(super) from: WallNs,
    /// When the condition was last true.
    pub(super) to: WallNs,
    /// How bad it was, from when on.
    pub(super) steps: Vec<(WallNs, Severity)>,
    /// The last tick in which it was there.
    tick: u64,
    run: u32,
}

/// A number of its evidence over time.
#[derive(Clone, Debug)]
struct Number {
    field: String,
    unit: &'static str,
    id: SeriesId,
    /// Ticks in which the finding had it, and those in which a figure that is kept was equal to it.
    ticks: u32,
    equal: u32,
}

#[derive(Clone, Debug, Default)]
struct Course {
    episodes: Vec<Episode>,
    numbers: Vec<Option<Number>>,
    /// What explained it when it was last there.
    cause: Option<Key>,
}

/// A series behind evidence.
pub(super) struct Known<'s> {
    pub(super) series: &'s Series,
    /// Whether it is known only while the finding was there.
    pub(super) is_partial: bool,
}

/// A time without ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) from: WallNs,
    pub(super) to: WallNs,
    /// How many are missing; `None` between two runs of the recorder.
    pub(super) ticks: Option<u32>,
}

/// The latest figures of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest {
    pub(super) at: MonoNs,
    pub(super) wall: WallNs,
    pub(super) disks: Option<Arc<Vec<DiskFigures>>>,
    pub(super) cpu: Option<Arc<CpuFigures>>,
    pub(super) sched: Option<Arc<SchedFigures>>,
    pub(super) io: Option<Arc<ProcessIoFigures>>,
    pub(super) blocked: Option<Shared<ProcessesSample>>,
    pub(super) sockets: Arc<SocketFigures>,
    pub(super) findings: Arc<Findings>,
}

/// How bad a moment is: findings at crit, at warn, and tenths of a percent of CPUs and disks.
type Badness = (usize, usize, u64);

/// Where time is counted from in a run of the recorder.
#[derive(Clone, Copy, Debug)]
struct Base {
    mono: MonoNs,
    place: WallNs,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    store: Store,
    host: [SeriesId; HOST.len()],
    disks: BTreeMap<DiskId, [SeriesId; DISK.len()]>,
    cpus: BTreeMap<CpuId, [SeriesId; CPU.len()]>,
    courses: HashMap<Key, Course>,
    plotted: usize,
    latest: Latest,
    worst: Option<(Badness, Latest)>,
    pub(super) holes: Vec<Hole>,
    /// Ticks that are missing.
    pub(super) missing: u64,
    run: u32,
    base: Option<Base>,
    before: Option<MonoNs>,
    /// Place of the first and of the last tick.
    pub(super) span: Option<(WallNs, WallNs)>,
    first_wall: Option<WallNs>,
    duration: Duration,
    ticks: u64,
    interval: Duration,
}

impl Seen {
    /// Nothing yet, of ticks that are about `interval` apart.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        let mut store = Store::new(i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX));
        let host = HOST.map(|_| store.add());
        Self {
            store,
            host,
            disks: BTreeMap::new(),
            cpus: BTreeMap::new(),
            courses: HashMap::new(),
            plotted: 0,
            latest: Latest::default(),
            worst: None,
            holes: Vec::new(),
            missing: 0,
            run: 0,
            base: None,
            before: None,
            span: None,
            first_wall: None,
            duration: Duration::ZERO,
            ticks: 0,
            interval,
        }
    }

    /// Looks at the newest moment of a run.
    pub fn look(&mut self, run: &Analysis) {
        let Some(now) = run.latest() else { return };
        self.interval = run.host().interval;
        let is_first = run.history().len() == 1 || self.before.is_some_and(|b| now.tick.mono < b);
        let at = self.place(now.tick, is_first);
        self.ticks += 1;
        self.first_wall.get_or_insert(now.tick.wall);
        let bucket = self.store.bucket(at);
        self.figures(&now, bucket);
        self.findings(&now, at, bucket);
        self.moment(&now, is_first);
    }

    /// Where a tick is on the timeline: the wall clock at the start of its run plus the time since,
    /// so that a clock that was set bends nothing.
    fn place(&mut self, tick: &Tick, is_first: bool) -> WallNs {
        let end = self.span.map(|s| s.1);
        let base = if let Some(base) = self.base.filter(|_| !is_first) {
            base
        } else {
            let place = WallNs(end.map_or(tick.wall.0, |e| tick.wall.0.max(e.0)));
            self.run += 1;
            self.before = None;
            *self.base.insert(Base { mono: tick.mono, place })
        };
        let at = later(base.place, tick.mono.since(base.mono));
        if let (Some(gap), Some(from)) = (tick.gap.filter(|g| g.ticks > 0), end) {
            self.missing += u64::from(gap.ticks);
            self.hole(Hole { from, to: at, ticks: Some(gap.ticks) });
        } else if let (None, Some(from)) = (self.before, end) {
            self.hole(Hole { from, to: at, ticks: None });
        }
        if let Some(before) = self.before {
            self.duration += tick.mono.since(before);
        }
        self.before = Some(tick.mono);
        self.span = Some((self.span.map_or(at, |s| s.0), at.max(end.unwrap_or(at))));
        at
    }

    fn hole(&mut self, hole: Hole) {
        if self.holes.len() < MAX_HOLES {
            self.holes.push(hole);
        }
    }

    /// Figures that are kept, whether a finding is about them or not: what was before it counts.
    fn figures(&mut self, now: &TickView<'_>, bucket: usize) {
        let d = now.derived;
        let store = &mut self.store;
        for ((_, _, of), id) in HOST.iter().zip(self.host) {
            if let Some(v) = of(d) {
                store.note(id, bucket, v);
            }
        }
        for disk in d.disks.iter().flat_map(|l| l.iter()) {
            if self.disks.len() >= MAX_DISKS && !self.disks.contains_key(&disk.id) {
                continue;
            }
            let ids = self.disks.entry(disk.id).or_insert_with(|| DISK.map(|_| store.add()));
            for ((_, _, of), id) in DISK.iter().zip(ids) {
                if let Some(v) = of(disk) {
                    store.note(*id, bucket, v);
                }
            }
        }
        for (cpu, share) in d.cpu.iter().flat_map(|c| &c.cpus) {
            if self.cpus.len() >= MAX_CPUS && !self.cpus.contains_key(cpu) {
                continue;
            }
            let ids = self.cpus.entry(*cpu).or_insert_with(|| CPU.map(|_| store.add()));
            for ((_, _, of), id) in CPU.iter().zip(ids) {
                store.note(*id, bucket, of(share));
            }
        }
    }

    fn findings(&mut self, now: &TickView<'_>, at: WallNs, bucket: usize) {
        for f in now.findings.all() {
            let key = (f.rule, f.subject.clone());
            if self.courses.len() >= MAX_FINDINGS && !self.courses.contains_key(&key) {
                continue;
            }
            let from = earlier(at, now.tick.mono.since(f.since));
            // The wall clock tells how long ago it was last true.
            let ago = now.tick.wall.0.saturating_sub(f.last_seen.0).max(0);
            let to = WallNs(at.0.saturating_sub(ago)).max(from);
            let course = self.courses.entry(key).or_default();
            course.cause.clone_from(&f.cause);
            course.episode(f, (self.run, self.ticks), (from, to), at);
            if course.numbers.is_empty() {
                if self.plotted >= MAX_PLOTTED {
                    continue;
                }
                self.plotted += 1;
            }
            for (i, e) in f.fire.evidence.iter().take(MAX_EVIDENCE).enumerate() {
                let Some(v) = e.value else { continue };
                if course.numbers.len() <= i {
                    course.numbers.resize(i + 1, None);
                }
                let Some(slot) = course.numbers.get_mut(i) else { continue };
                let store = &mut self.store;
                let number = slot.get_or_insert_with(|| Number {
                    field: e.field.to_string(),
                    unit: e.unit,
                    id: store.add(),
                    ticks: 0,
                    equal: 0,
                });
                // Most findings keep their evidence in the same order.
                if number.field != e.field || number.unit != e.unit {
                    continue;
                }
                // While it is not true any more, the finding keeps its old numbers.
                if f.last_seen != now.tick.wall {
                    continue;
                }
                number.ticks = number.ticks.saturating_add(1);
                let figure = figure(now.derived, &f.subject, &number.field, number.unit);
                let is_equal = figure.is_some_and(|k| (k - v).abs() <= 1e-6 * k.abs().max(1e-3));
                number.equal = number.equal.saturating_add(u32::from(is_equal));
                store.note(number.id, bucket, v);
            }
        }
    }

    fn moment(&mut self, now: &TickView<'_>, is_first: bool) {
        if is_first {
            self.latest = Latest::default();
        }
        let (d, l) = (now.derived, &mut self.latest);
        (l.at, l.wall) = (now.tick.mono, now.tick.wall);
        (l.sockets, l.findings) = (d.sockets.clone(), now.findings.clone());
        macro_rules! newest {
            ($($to:ident: $from:expr;)+) => { $( if let Some(v) = &$from { l.$to = Some(v.clone()); } )+ };
        }
        newest! {
            disks: d.disks;
            cpu: d.cpu;
            sched: d.sched;
            io: d.process_io;
            blocked: now.tick.samples.processes;
        }
        let at = |s| now.findings.all().filter(|f| f.fire.severity == s).count();
        let load: f64 = HOST.iter().take(2).filter_map(|(_, _, of)| of(d)).sum();
        let badness = (at(Severity::Crit), at(Severity::Warn), (10.0 * load.max(0.0)) as u64);
        if self.worst.as_ref().is_none_or(|(worst, _)| badness >= *worst) {
            self.worst = Some((badness, self.latest.clone()));
        }
    }

    /// Wall clock of the first tick.
    #[must_use]
    pub fn first_wall(&self) -> Option<WallNs> {
        self.first_wall
    }
    /// From the first tick to the last, without the time between two runs.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }
    /// Ticks.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
    /// Nominal distance of two of them.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }
    /// The moment at which most was wrong, or the busiest one.
    pub(super) fn worst(&self) -> Option<&Latest> {
        self.worst.as_ref().map(|(_, l)| l)
    }
    /// When a finding was there.
    pub(super) fn episodes(&self, key: &Key) -> &[Episode] {
        self.courses.get(key).map_or(&[], |c| &c.episodes)
    }
    /// What explained it while it was there.
    pub(super) fn cause(&self, key: &Key) -> Option<&Key> {
        self.courses.get(key)?.cause.as_ref()
    }
    /// A figure of the host.
    pub(super) fn host(&self, i: usize) -> Option<&Series> {
        self.store.get(*self.host.get(i)?)
    }
    /// The middle of a bucket.
    pub(super) fn middle(&self, bucket: usize) -> WallNs {
        self.store.middle(bucket)
    }

    /// The series behind number `i` of the evidence of a finding: the figure itself, where the rule
    /// took that, else what the rule said in each tick.
    pub(super) fn behind(&self, key: &Key, i: usize) -> Option<Known<'_>> {
        let number = self.courses.get(key)?.numbers.get(i)?.as_ref()?;
        let is_figure = number.equal > 0 && number.equal >= number.ticks / 3;
        let of = is_figure.then(|| self.figure(&key.1, &number.field, number.unit)).flatten();
        match of {
            Some(series) => Some(Known { series, is_partial: false }),
            None => Some(Known { series: self.store.get(number.id)?, is_partial: true }),
        }
    }

    fn figure(&self, subject: &Subject, field: &str, unit: &str) -> Option<&Series> {
        let id = match subject {
            Subject::Disk { dev, .. } => {
                let i = DISK.iter().position(|(f, u, _)| (*f, *u) == (field, unit))?;
                self.disks.get(dev)?[i]
            }
            Subject::Cpu { cpu } => {
                let i = CPU.iter().position(|(f, u, _)| (*f, *u) == (field, unit))?;
                self.cpus.get(cpu)?[i]
            }
            Subject::Host => {
                let i = HOST.iter().position(|(f, u, _)| (*f, *u) == (field, unit))?;
                self.host[i]
            }
            _ => return None,
        };
        self.store.get(id)
    }
}

/// The figure that evidence of this name may be.
fn figure(d: &Derived, subject: &Subject, field: &str, unit: &str) -> Option<f64> {
    match subject {
        Subject::Disk { dev, .. } => {
            let (_, _, of) = DISK.iter().find(|(f, u, _)| (*f, *u) == (field, unit))?;
            of(d.disk(*dev)?)
        }
        Subject::Cpu { cpu } => {
            let (_, _, of) = CPU.iter().find(|(f, u, _)| (*f, *u) == (field, unit))?;
            Some(of(&d.cpu.as_ref()?.cpu(*cpu)?))
        }
        Subject::Host => {
            let (_, _, of) = HOST.iter().find(|(f, u, _)| (*f, *u) == (field, unit))?;
            of(d)
        }
        _ => None,
    }
}

impl Course {
    /// A rule may move the beginning of its finding; as long as it is there in each tick it is one.
    fn episode(
        &mut self,
        f: &Finding,
        (run, tick): (u32, u64),
        (from, to): (WallNs, WallNs),
        at: WallNs,
    ) {
        let severity = f.fire.severity;
        let goes_on = |s: &&mut Episode| s.run == run && s.tick + 1 >= tick;
        if let Some(s) = self.episodes.last_mut().filter(goes_on) {
            s.tick = tick;
            s.to = s.to.max(to);
            if s.steps.last().is_some_and(|l| l.1 != severity) && s.steps.len() < MAX_STEPS {
                s.steps.push((at, severity));
            }
        } else if self.episodes.len() < MAX_SPELLS {
            let steps = vec![(from, severity)];
            self.episodes.push(Episode { from, to, steps, tick, run });
        }
    }
}

fn ns(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}

fn later(at: WallNs, by: Duration) -> WallNs {
    WallNs(at.0.saturating_add(ns(by)))
}

fn earlier(at: WallNs, by: Duration) -> WallNs {
    at.back(by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::Fire;
    use crate::sample::tick::Gap;

    const SEC: i64 = 1_000_000_000;

    fn tick(mono: u64, wall: i64, gap: Option<u32>) -> Tick {
        let gap = gap.map(|ticks| Gap { ticks });
        Tick {
            mono: MonoNs(mono * 1_000_000_000),
            wall: WallNs(wall * SEC),
            gap,
            ..Tick::default()
        }
    }

    /// A clock that is set bends nothing, and a second run begins no earlier than the first ends.
    #[test]
    fn places_never_go_back_and_what_is_missing_is_a_hole() {
        let mut seen = Seen::new(Duration::from_secs(1));
        let mut at =
            |mono, wall, gap, is_first| seen.place(&tick(mono, wall, gap), is_first).0 / SEC;
        assert_eq!(at(100, 1000, None, true), 1000);
        assert_eq!(at(101, 500, None, false), 1001, "the clock was set back");
        assert_eq!(at(105, 504, Some(3), false), 1005);
        assert_eq!(at(7, 900, None, true), 1005, "after a reboot with a wrong clock");
        assert_eq!(at(8, 901, None, false), 1006);
        let hole = |from, to, ticks| Hole { from: WallNs(from * SEC), to: WallNs(to * SEC), ticks };
        assert_eq!(seen.holes, [hole(1001, 1005, Some(3)), hole(1005, 1005, None)]);
        assert_eq!((seen.missing, seen.duration()), (3, Duration::from_secs(6)));
        assert_eq!(seen.span, Some((WallNs(1000 * SEC), WallNs(1006 * SEC))));
    }

    fn finding(severity: Severity, since: u64) -> Finding {
        Finding {
            rule: RuleId("x"),
            subject: Subject::Host,
            fire: Fire::new(severity, "x"),
            since: MonoNs(since),
            first_seen: WallNs(0),
            last_seen: WallNs(0),
            active: true,
            cause: None,
        }
    }

    /// Rules may move the beginning of what they report from tick to tick.
    #[test]
    fn a_finding_is_one_bar_while_it_is_there_in_each_tick() {
        let mut course = Course::default();
        let mut at = |tick: u64, since, severity| {
            let now = WallNs(tick as i64);
            course.episode(&finding(severity, since), (1, tick), (now, now), now);
        };
        at(1, 10, Severity::Warn);
        at(2, 11, Severity::Warn);
        at(3, 10, Severity::Crit);
        at(7, 10, Severity::Warn);
        let bars: Vec<_> =
            course.episodes.iter().map(|s| (s.from.0, s.to.0, s.steps.len())).collect();
        assert_eq!(bars, [(1, 3, 2), (7, 7, 1)]);
        assert_eq!(course.episodes[0].steps[1], (WallNs(3), Severity::Crit));
    }
}

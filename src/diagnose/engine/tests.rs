//! Property tests and scripted tests of the engine: hold, clear, missing input.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::diagnose::{Fire, Hold, RuleDoc, RuleId};
use crate::metrics::Derived;
use crate::metrics::history::History;
use crate::sample::processes::{BlockedTask, ProcessesSample};
use crate::sample::subject::{CpuId, NetnsId, SockId, TaskId};
use crate::sample::tick::{CollectorHealth, Gap, HostInfo};
use crate::sample::time::{Seq, Span, WallNs};
use crate::sample::{Samples, Stamped};

/// The verdict that the scripted rule gives on one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    Warn,
    Crit,
    /// Fires about a socket, confirmed or suspected.
    Known,
    Guess,
    /// Fires, and says that it began two seconds ago.
    Earlier,
    Ok,
    Linger,
    Clear,
    Unknown,
    /// An input is missing for all subjects.
    Blind,
    /// The collector has no sample.
    NoSample,
}
use Say::{Blind, Clear, Crit, Earlier, Guess, Known, Linger, NoSample, Ok as Fine, Unknown, Warn};

const ALL: [Say; 11] =
    [Warn, Crit, Known, Guess, Earlier, Fine, Linger, Clear, Unknown, Blind, NoSample];

const fn doc(id: &'static str, hold: Hold) -> RuleDoc {
    RuleDoc {
        id: RuleId(id),
        title: "",
        condition: "",
        look_alikes: "",
        remedy: "",
        sources: "",
        hold,
        needs_time: Duration::ZERO,
    }
}

/// Takes its verdicts from the tick, so it is a pure function of it.
fn scripted(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for b in &w.tick.samples.processes.as_ref().unwrap().data.blocked {
        let subject = Subject::Cpu { cpu: CpuId(b.task.tid) };
        let say = ALL[b.task.pid as usize];
        match say {
            Warn => out.fire(subject, Fire::new(Severity::Warn, "warn")),
            Crit => out.fire(subject, Fire::new(Severity::Crit, "crit")),
            Known | Guess => {
                let mut fire = Fire::new(Severity::Warn, "socket");
                fire.sockets.push(SockId { netns: NetnsId(1), cookie: 1 });
                if say == Guess {
                    fire.confidence = Confidence::Suspected;
                }
                out.fire(subject, fire);
            }
            Earlier => {
                let mut fire = Fire::new(Severity::Warn, "earlier");
                fire.since = Some(w.tick.mono.back(Duration::from_secs(2)));
                out.fire(subject, fire);
            }
            Fine => out.list.push((subject, Verdict::Ok)),
            Linger => out.linger(subject),
            Clear => out.clear(subject),
            Unknown => out.unknown(subject, "unread"),
            Blind => out.cannot_judge("no input"),
            NoSample => {}
        }
    }
}

const fn rule(doc: &'static RuleDoc) -> Rule {
    Rule { doc, kind: Kind::Rule, needs: &[CollectorId::Processes], explains: &[], check: scripted }
}

static HELD: Rule = rule(&const { doc("held", Hold::of(5, 8)) });
static EVENTS: Rule = rule(&const { doc("events", Hold::events(3)) });
static ONLY_HELD: &[&Rule] = &[&HELD];
static ONLY_EVENTS: &[&Rule] = &[&EVENTS];

/// An engine with a clock.
struct Bench {
    engine: Engine,
    interval: Duration,
    now: MonoNs,
    seq: u64,
}

impl Bench {
    fn new(rules: &'static [&'static Rule], interval_ms: u64) -> Self {
        let engine = Engine::new(rules, Thresholds::default());
        let now = MonoNs(100_000_000_000);
        Self { engine, interval: Duration::from_millis(interval_ms), now, seq: 0 }
    }
    fn held() -> Self {
        Self::new(ONLY_HELD, 1000)
    }
    /// The next tick, in which the rule gives these verdicts on subjects 0, 1, ...
    fn says(&mut self, says: &[Say]) -> Findings {
        self.now = self.now + self.interval;
        self.here(says, None)
    }
    fn here(&mut self, says: &[Say], gap: Option<Gap>) -> Findings {
        self.seq += 1;
        let blocked = says
            .iter()
            .enumerate()
            .map(|(i, s)| BlockedTask {
                task: TaskId {
                    pid: ALL.iter().position(|a| a == s).unwrap() as u32,
                    tid: i as u32,
                    start: 0,
                },
                ..BlockedTask::default()
            })
            .collect();
        let data = ProcessesSample { blocked, ..ProcessesSample::default() };
        let sample = Arc::new(Stamped { span: Span::at(self.now), cpu: Duration::ZERO, data });
        let processes = (!says.contains(&NoSample)).then_some(sample);
        let tick = Tick {
            seq: Seq(self.seq),
            mono: self.now,
            wall: WallNs(self.now.0 as i64),
            samples: Samples { processes, ..Samples::default() },
            gap,
            ..Tick::default()
        };
        let (derived, history) = (Derived::default(), History::default());
        let host = HostInfo { interval: self.interval, ..HostInfo::default() };
        let w = Window { tick: &tick, derived: &derived, history: &history, host: &host };
        self.engine.push(&w)
    }
    fn repeat(&mut self, say: Say, times: usize) -> Findings {
        (0..times).map(|_| self.says(&[say])).last().unwrap_or_default()
    }
}

fn active(f: &Findings) -> usize {
    f.active.len()
}

#[test]
fn the_hold_is_in_seconds_whatever_the_interval() {
    for (ms, least, most) in
        [(100, 4.9, 5.1), (500, 4.5, 5.0), (1000, 5.0, 5.0), (2000, 6.0, 6.0), (5000, 5.0, 5.0)]
    {
        let mut b = Bench::new(ONLY_HELD, ms);
        b.says(&[Fine]);
        let begin = b.now;
        while active(&b.says(&[Warn])) == 0 {
            assert!(b.now.since(begin) < Duration::from_secs(30), "{ms} ms never fires");
        }
        let took = b.now.since(begin).as_secs_f64();
        assert!((least..=most).contains(&took), "{ms} ms: fired after {took} s");
        while active(&b.says(&[Fine])) == 1 {}
        let cleared = b.now.since(begin).as_secs_f64() - took;
        assert!((15.0..=17.0).contains(&cleared), "{ms} ms: cleared after {cleared} s");
    }
}

#[test]
fn four_of_eight_do_not_hold_and_five_do() {
    let mut b = Bench::held();
    for _ in 0..20 {
        assert_eq!(active(&b.says(&[Warn])), 0);
        assert_eq!(active(&b.says(&[Fine])), 0);
    }
    let mut b = Bench::held();
    let fired: Vec<usize> = [Warn, Fine, Warn, Warn, Fine, Warn, Warn, Fine]
        .iter()
        .map(|s| active(&b.says(&[*s])))
        .collect();
    assert_eq!(fired, [0, 0, 0, 0, 0, 0, 1, 1]);
}

#[test]
fn jitter_of_the_ticks_does_not_lose_a_second() {
    let mut b = Bench::held();
    for i in 0..5_u64 {
        b.interval = Duration::from_millis(if i % 2 == 0 { 997 } else { 999 });
        let f = b.says(&[Warn]);
        assert_eq!(active(&f), usize::from(i == 4));
    }
}

#[test]
fn unknown_neither_holds_nor_clears() {
    let mut b = Bench::held();
    b.repeat(Warn, 4);
    assert_eq!(active(&b.repeat(Unknown, 3)), 0, "unknown is not true");
    assert_eq!(active(&b.says(&[Warn])), 1, "the four seconds before still count");
    for say in [Unknown, Blind, NoSample] {
        assert_eq!(active(&b.repeat(say, 100)), 1, "{say:?} is not calm");
    }
    // The first verdict after that counts for three seconds, not for three hundred.
    assert_eq!(active(&b.repeat(Fine, 13)), 1);
    assert_eq!(active(&b.says(&[Fine])), 0);
}

/// A subject that a collector on a budget reads in every third tick only.
#[test]
fn a_subject_that_is_read_now_and_then_is_held_by_its_own_time() {
    let mut b = Bench::held();
    b.says(&[Unknown]);
    let fired: Vec<usize> = [Warn, Unknown, Unknown, Warn, Unknown, Unknown, Warn]
        .iter()
        .map(|s| active(&b.says(&[*s])))
        .collect();
    assert_eq!(fired, [0, 0, 0, 0, 0, 0, 1], "1 + 3 + 3 s");
}

#[test]
fn a_rule_without_input_says_why() {
    let mut b = Bench::held();
    let f = b.says(&[NoSample]);
    assert_eq!(f.not_judged[0].why, "processes: not sampled");
    assert_eq!(b.says(&[Blind]).not_judged[0].why, "no input");
    assert!(b.says(&[Warn]).not_judged.is_empty());
    let health = |state| Tick {
        health: vec![CollectorHealth { id: CollectorId::Processes, state, signals: vec![] }],
        ..Tick::default()
    };
    let why = |state| why_missing(&health(state), CollectorId::Processes);
    assert_eq!(why(HealthState::Thinned { every: 3 }), None, "not due is not missing");
    let late = HealthState::Late { age: Duration::from_secs(4) };
    assert_eq!(why(late).unwrap(), "processes: the last reading is 4 s old");
    let off = HealthState::Off { reason: "no /proc".into(), remedy: String::new() };
    assert_eq!(why(off).unwrap(), "processes: no /proc");
}

/// With `--netns PATH` only the sockets of that namespace are evaluated.
#[test]
fn sockets_of_the_chosen_namespace_are_judged_without_our_own() {
    let off = HealthState::Off { reason: "only x is read".into(), remedy: String::new() };
    let at = |state: HealthState, theirs: bool| {
        let mut tick = Tick {
            health: vec![CollectorHealth { id: CollectorId::Sockets, state, signals: vec![] }],
            ..Tick::default()
        };
        tick.samples.netns_sockets = theirs.then(|| {
            let span = Span { start: MonoNs(0), end: MonoNs(0) };
            let data = crate::sample::sockets::SocketsSample::default();
            Arc::new(Stamped { span, cpu: Duration::ZERO, data })
        });
        lacks(&tick, CollectorId::Sockets)
    };
    assert!(!at(off.clone(), true));
    assert!(at(off, false));
    let late = HealthState::Late { age: Duration::from_secs(4) };
    assert!(at(late, true), "ours were asked for and are not here");
}

/// A counter is read in rotation, a collector is late: for a while the rule can only suspect what
/// it had confirmed.
#[test]
fn a_finding_is_not_suspected_for_a_moment() {
    let sure = |f: &Findings| f.active[0].fire.confidence == Confidence::Confirmed;
    for ms in [100, 500, 1000, 2000, 5000, 20_000] {
        let mut b = Bench::new(ONLY_HELD, ms);
        b.repeat(Known, 60_000_usize.div_ceil(ms as usize).max(3));
        for _ in 0..5 {
            assert!(sure(&b.says(&[Guess])), "{ms} ms");
            assert!(sure(&b.says(&[Known])), "{ms} ms");
        }
        // An input that stays away counts as missing after the clear time: 16 s.
        let begin = b.now;
        while sure(&b.says(&[Guess])) {
            assert!(b.now.since(begin) <= Duration::from_secs(20), "{ms} ms: never suspected");
        }
        let took = b.now.since(begin);
        assert!(took >= Duration::from_secs(15) && took > b.interval, "{ms} ms: {took:?}");
        assert!(sure(&b.says(&[Known])), "{ms} ms: confirmed at once");
        assert!(sure(&b.says(&[Guess])), "{ms} ms: counted anew");
    }
    // A finding that was never confirmed is suspected from the start.
    let mut b = Bench::held();
    assert!(!sure(&b.repeat(Guess, 6)));
}

#[test]
fn what_was_not_observed_does_not_count() {
    for gap in [None, Some(Gap { ticks: 60 })] {
        let mut b = Bench::held();
        b.says(&[Fine]);
        b.says(&[Warn]);
        b.now = b.now + Duration::from_secs(61);
        assert_eq!(active(&b.here(&[Warn], gap)), 0, "a minute of nothing is not a minute of it");
        assert_eq!(active(&b.repeat(Warn, 3)), 0);
        assert_eq!(active(&b.says(&[Warn])), 1);
        b.now = b.now + Duration::from_secs(61);
        assert_eq!(active(&b.here(&[Fine], gap)), 1, "nor is it a minute of calm");
    }
}

/// A host short of CPU loses ticks; that must not prevent it from reporting why.
#[test]
fn a_short_gap_is_observed_by_the_tick_behind_it() {
    for lost in [0, 1] {
        let mut b = Bench::held();
        let gap = (lost > 0).then_some(Gap { ticks: lost });
        let ticks = 1 + 4_u32.div_ceil(1 + lost);
        let found: Vec<_> = (0..ticks)
            .map(|_| {
                b.now = b.now + Duration::from_secs(u64::from(1 + lost));
                active(&b.here(&[Warn], gap))
            })
            .collect();
        let (end, before) = found.split_last().unwrap();
        assert!(*end == 1 && before.iter().all(|n| *n == 0), "{lost} lost each time: {found:?}");
    }
}

#[test]
fn the_ladder_is_only_climbed() {
    let mut b = Bench::held();
    let worst = |f: &Findings| f.worst().unwrap();
    assert_eq!(worst(&b.repeat(Warn, 5)), Severity::Warn);
    assert_eq!(worst(&b.says(&[Crit])), Severity::Crit);
    let f = b.says(&[Warn]);
    assert_eq!((worst(&f), f.active[0].fire.summary.as_str()), (Severity::Crit, "warn"));
    assert_eq!(active(&b.says(&[Clear])), 0);
    assert_eq!(worst(&b.repeat(Warn, 5)), Severity::Warn, "a new finding starts at the bottom");
}

#[test]
fn lingering_keeps_a_finding_and_makes_none() {
    let mut b = Bench::held();
    assert_eq!(active(&b.repeat(Linger, 20)), 0);
    b.repeat(Warn, 5);
    let f = b.repeat(Linger, 50);
    assert_eq!(active(&f), 1);
    assert_eq!(f.active[0].last_seen, WallNs((b.now.0 - 50_000_000_000) as i64), "seen, not kept");
    b.repeat(Fine, 15);
    b.says(&[Linger]);
    assert_eq!(active(&b.repeat(Fine, 15)), 1, "calm counts on end");
    assert_eq!(active(&b.says(&[Fine])), 0);
}

#[test]
fn a_rule_that_counts_events_fires_at_once() {
    let mut b = Bench::new(ONLY_EVENTS, 1000);
    assert_eq!(active(&b.says(&[Warn])), 1);
    assert_eq!(active(&b.repeat(Fine, 2)), 1);
    let f = b.says(&[]);
    assert_eq!((active(&f), f.cleared.len()), (0, 1), "not mentioned is fine");
    assert!(!f.cleared[0].active);
    assert_eq!(active(&b.says(&[Warn])), 1);
    assert_eq!(active(&b.says(&[Clear])), 0);
}

#[test]
fn a_suspicion_that_became_something_else_is_not_listed_as_over() {
    for (other, listed) in [(Known, 0), (Warn, 1)] {
        let mut b = Bench::new(ONLY_EVENTS, 1000);
        b.says(&[Guess, other]);
        assert_eq!(b.says(&[Clear, other]).cleared.len(), listed, "{other:?}");
    }
    let mut b = Bench::new(ONLY_EVENTS, 1000);
    b.says(&[Known, Known]);
    assert_eq!(b.says(&[Clear, Known]).cleared.len(), 1, "what was certain is history");
}

#[test]
fn a_finding_began_when_its_condition_did() {
    let mut b = Bench::held();
    b.says(&[Fine]);
    b.says(&[Warn]);
    let begin = b.now;
    let f = b.repeat(Warn, 4);
    assert_eq!((f.active[0].since, f.active[0].first_seen), (begin, WallNs(begin.0 as i64)));
    let mut b = Bench::held();
    b.says(&[Earlier]);
    let begin = b.now.back(Duration::from_secs(2));
    let f = b.repeat(Earlier, 6);
    assert_eq!((f.active[0].since, f.active[0].first_seen), (begin, WallNs(begin.0 as i64)));
}

#[test]
fn another_boot_starts_from_nothing() {
    let mut b = Bench::held();
    b.repeat(Warn, 5);
    b.now = MonoNs(5_000_000_000);
    assert_eq!(active(&b.says(&[Warn])), 0);
}

#[test]
fn a_tick_that_comes_twice_counts_once() {
    let mut b = Bench::held();
    for _ in 0..4 {
        b.says(&[Warn]);
        for _ in 0..10 {
            assert_eq!(active(&b.here(&[Warn], None)), 0);
        }
    }
    assert_eq!(active(&b.says(&[Warn])), 1);
}

#[test]
fn memory_is_bounded() {
    let mut b = Bench::new(ONLY_EVENTS, 1000);
    let f = b.says(&vec![Warn; MAX_TRACKS + 500]);
    assert_eq!(active(&f), MAX_TRACKS);
    for _ in 0..3 {
        b.says(&vec![Warn; 300]);
        b.says(&vec![Clear; MAX_TRACKS]);
    }
    let f = b.says(&[]);
    assert_eq!(f.cleared.len(), MAX_CLEARED);
    b.now = b.now + REMEMBER;
    assert!(b.says(&[]).cleared.is_empty(), "an hour later they are history");
}

fn say() -> impl Strategy<Value = Say> {
    prop::sample::select(&ALL[..10])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Two occurrences of a finding are at least the hold time apart, and one that does not end
    /// with an explicit clear lasts at least the clear time: no flapping inside the hold window.
    #[test]
    fn no_flapping(
        says in prop::collection::vec(say().prop_filter("explicit", |s| *s != Clear), 1..120),
        ms in prop::sample::select(&[500_u64, 1000, 2000][..]),
    ) {
        let mut b = Bench::new(ONLY_HELD, ms);
        let mut changes = vec![(b.now, false)];
        for s in says {
            let on = active(&b.says(&[s])) > 0;
            if changes.last().unwrap().1 != on {
                changes.push((b.now, on));
            }
        }
        for pair in changes[1..].windows(2) {
            let took = pair[1].0.since(pair[0].0).as_secs_f64();
            let least = if pair[0].1 { 15.0 } else { 4.0 };
            prop_assert!(took >= least, "{} s {}", took, if pair[0].1 { "on" } else { "off" });
        }
    }

    #[test]
    fn the_same_ticks_give_the_same_findings(
        script in prop::collection::vec(prop::collection::vec(say(), 0..4), 1..40),
    ) {
        let run = || {
            let mut b = Bench::held();
            script.iter().map(|s| format!("{:?}", b.says(s))).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }

    /// The order in which a rule mentions its subjects does not matter, even if it mentions one
    /// twice.
    #[test]
    fn order_does_not_matter(
        said in prop::collection::vec((0u32..3, say()), 0..8),
        seed in any::<prop::sample::Index>(),
    ) {
        let verdict = |s: Say| match s {
            Warn | Known | Guess | Earlier => Verdict::Fire(Box::new(Fire::new(Severity::Warn, ""))),
            Crit => Verdict::Fire(Box::new(Fire::new(Severity::Crit, ""))),
            Linger => Verdict::Linger,
            Clear => Verdict::Clear,
            Unknown => Verdict::Unknown(String::new()),
            _ => Verdict::Ok,
        };
        let judge = |list: &[(u32, Say)]| {
            let mut state = State::default();
            let now = Now {
                mono: MonoNs(1), wall: WallNs(1), nominal: Duration::from_secs(1),
                longest: Duration::from_secs(3), hole: None, alone: false,
            };
            let verdicts = list
                .iter()
                .map(|(s, v)| (Subject::Cpu { cpu: CpuId(*s) }, verdict(*v)))
                .collect();
            state.take(&EVENTS, verdicts, &now, false);
            format!("{:?}", state.tracks)
        };
        let mut turned = said.clone();
        turned.reverse();
        if !turned.is_empty() {
            let by = seed.index(turned.len());
            turned.rotate_left(by);
        }
        prop_assert_eq!(judge(&said), judge(&turned));
    }
}

/// Single samples: findings fire at once, are suspected at most, say what is not known, and end
/// with the sample.
#[test]
fn a_single_sample_is_a_suspicion_at_once() {
    let mut b = Bench::new(ONLY_HELD, 1000);
    b.engine = Engine::new(ONLY_HELD, Thresholds { single_sample: true, ..Thresholds::default() });
    let f = b.says(&[Warn]);
    assert_eq!(f.active.len(), 1, "no hold time is waited for");
    assert_eq!(f.active[0].fire.confidence, Confidence::Suspected);
    assert!(f.active[0].fire.missing.iter().any(|m| m.contains("whether it lasts 5 s")));
    let f = b.says(&[Fine]);
    assert_eq!((f.active.len(), f.cleared.len()), (0, 1), "the next sample does not go on from it");
    assert!(Engine::single_sample().thresholds.single_sample);
}

//! What a verdict must not depend on: the order in which the kernel lists its subjects, other
//! subjects that are well, and ticks or samples that are missing (which may silence a rule, but
//! never make it speak).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use stallscope::analysis::Analysis;
use stallscope::diagnose::Confidence::{Confirmed, Suspected};
use stallscope::diagnose::{Confidence, Engine, Finding, Findings, LIMITS, Severity};
use stallscope::view::panes::PANES;

use super::files;
use crate::support::incident::{Expect, Incident, State, play, run_of, ticks};

/// Time and findings of each tick of a run.
type Timeline = Vec<(f64, Arc<Findings>)>;

/// The moments of a run, those ticks left out that `keep` refuses; it names the collectors that
/// the others are without.
fn run(
    incident: &Incident,
    interval: f64,
    mut keep: impl FnMut(usize) -> Option<Vec<String>>,
) -> Timeline {
    let mut analysis = Analysis::new(ticks::host(incident, interval), Engine::default(), 64 << 20);
    let mut moments = Vec::new();
    let mut before = State::new();
    let mut poorer = incident.clone();
    for (seq, (t, state)) in play(incident, interval).into_iter().enumerate() {
        let Some(without) = keep(seq) else { continue };
        poorer.without.truncate(incident.without.len());
        poorer.without.extend(without);
        let dt = if seq == 0 { 0.0 } else { interval };
        analysis.push(Arc::new(ticks::tick(&poorer, seq, (t, dt), &before, &state)));
        moments.push((t, analysis.latest().unwrap().findings.clone()));
        before = state;
    }
    moments
}

/// A tick a second and all of them.
fn in_full(incident: &Incident) -> Timeline {
    run(incident, 1.0, |_| Some(Vec::new()))
}

/// The same of a file, which is what most of these tests compare with.
fn whole(name: &str) -> &'static Timeline {
    static ALL: OnceLock<BTreeMap<&str, (&Incident, OnceLock<Timeline>)>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        files().iter().map(|(name, i)| (name.as_str(), (i, OnceLock::new()))).collect()
    });
    let (incident, moments) = &all[name];
    moments.get_or_init(|| in_full(incident))
}

/// What a finding claims, without what depends on which of several equals is shown.
fn claim(f: &Finding) -> (String, String, Severity, u32) {
    (f.rule.0.to_owned(), f.subject.to_string(), f.fire.severity, f.fire.count)
}

fn claims(moments: &[(f64, Arc<Findings>)]) -> Vec<BTreeSet<(String, String, Severity, u32)>> {
    moments.iter().map(|(_, f)| f.all().map(|f| claim(f)).collect()).collect()
}

/// The recorder keeps of the past only what rules look at.
#[test]
fn a_lean_history_changes_no_finding() {
    for (name, i) in files() {
        let (host, ticks) = run_of(i, 1.0);
        let mut lean = Analysis::lean(host.clone(), Engine::default(), 4 << 20);
        let mut whole = Analysis::new(host, Engine::default(), 64 << 20);
        for tick in ticks {
            let said = [&mut lean, &mut whole].map(|a| {
                a.push(tick.clone());
                let all = a.latest().unwrap().findings.clone();
                all.all().map(|f| (claim(f), f.fire.summary.clone())).collect::<Vec<_>>()
            });
            assert_eq!(said[0], said[1], "{name}, tick {}", tick.seq.0);
        }
    }
}

/// The same number has one name on the screen, in the filter and in JSON.
#[test]
fn evidence_is_named_like_the_column_that_shows_it() {
    let plain = |s: &str| s.replace(['-', '_', '%', '/'], "").to_lowercase();
    // JSON tells the unit in a field of its own.
    let bare = |s: &str| s.trim_end_matches("/s").trim_end_matches('%').to_owned();
    let columns = PANES.iter().flat_map(|p| p.columns()).map(|c| c.key);
    let words: BTreeMap<_, _> = columns.map(|c| (plain(&bare(c)), bare(c))).collect();
    let mut shared = BTreeSet::new();
    for (name, _) in files() {
        for f in whole(name).iter().flat_map(|(_, f)| f.all()) {
            for field in f.fire.evidence.iter().map(|e| bare(&e.field)) {
                let Some(word) = words.get(&plain(&field)) else { continue };
                assert_eq!(field, *word, "{name}: {} against the column", f.rule);
                shared.insert(word);
            }
        }
    }
    for word in ["util", "await", "recvq", "retr", "net_rx", "inflight"] {
        assert!(shared.contains(&word.to_owned()), "{word} is in no finding: {shared:?}");
    }
}

/// With a limit that is harder to reach a rule fires less.
#[test]
fn a_configured_limit_is_the_one_that_its_rule_goes_by() {
    for l in LIMITS {
        let fires = |moments: &Timeline| -> usize {
            let all = moments.iter().flat_map(|(_, f)| f.all());
            all.filter(|f| f.rule == l.rule).count()
        };
        let hardest = if l.clear < l.warn { l.range.1 } else { l.range.0 };
        let is_its = |i: &Incident| i.expect.iter().any(|e| e.is_wanted() && e.rule == l.rule.0);
        let less = files().iter().filter(|(_, i)| is_its(i)).any(|(name, i)| {
            let mut i = i.clone();
            i.thresholds.limits.insert(l.rule.0.to_owned(), hardest);
            fires(&in_full(&i)) < fires(whole(name))
        });
        assert!(less, "{} at {hardest} fires as ever", l.rule);
        let easiest = if l.clear < l.warn { l.range.0 } else { l.range.1 };
        let more = files().iter().any(|(name, i)| {
            let mut i = i.clone();
            i.thresholds.limits.insert(l.rule.0.to_owned(), easiest);
            fires(&in_full(&i)) > fires(whole(name))
        });
        assert!(more, "{} at {easiest} fires no more than ever", l.rule);
    }
}

fn reversed(incident: &Incident) -> Incident {
    let mut i = incident.clone();
    i.sockets.reverse();
    i.disks.reverse();
    i.cgroups.reverse();
    i.threads.reverse();
    i.nics.reverse();
    i.links.reverse();
    i.qdiscs.reverse();
    i.blocked.reverse();
    i
}

#[test]
fn the_order_of_subjects_changes_no_verdict() {
    for (name, i) in files() {
        let (one, other) = (claims(whole(name)), claims(&in_full(&reversed(i))));
        for (n, (a, b)) in one.iter().zip(&other).enumerate() {
            assert_eq!(a, b, "{name}: tick {n} differs when subjects come in reverse");
        }
    }
}

/// A connection, a listener, a disk and a cgroup that are all well.
fn neighbours() -> Incident {
    toml::from_str(
        r#"
        title = "well"
        source = "made up"
        duration = 1.0
        [[socket]]
        name = "well_listener"
        local = "10.99.0.1:7777"
        remote = "0.0.0.0:0"
        state = "LISTEN"
        wqueue = 128
        [[socket]]
        name = "well"
        local = "10.99.0.1:7777"
        remote = "10.99.0.2:45678"
        skmem = { rb = 131072, tb = 87040 }
        info = { rto_us = 201000, rtt_us = 300, min_rtt_us = 200, snd_wnd = 65535, snd_mss = 1448 }
        [[disk]]
        name = "wellsdz"
        class = "ssd"
        rotational = false
        nr_requests = 256
        [[cgroup]]
        name = "well"
        path = "/well"
        mount = "/sys/fs/cgroup/cpu"
        quota_us = 50000
        "#,
    )
    .unwrap()
}

#[test]
fn subjects_that_are_well_change_no_verdict() {
    let well = neighbours();
    for (name, i) in files() {
        let mut crowd = i.clone();
        crowd.sockets.extend(well.sockets.clone());
        crowd.disks.extend(well.disks.clone());
        crowd.cgroups.extend(well.cgroups.clone());
        let (one, other) = (claims(whole(name)), claims(&in_full(&crowd)));
        for (n, (a, b)) in one.iter().zip(&other).enumerate() {
            assert_eq!(a, b, "{name}: tick {n} differs beside subjects that are well");
        }
    }
}

const COLLECTORS: [&str; 10] = [
    "sockets",
    "netns-sockets",
    "disks",
    "cpu",
    "softirq",
    "sched",
    "net-counters",
    "psi",
    "cgroups",
    "processes",
];

/// A tick that never came, or came without one of its samples.
#[derive(Clone, Debug)]
enum Hole {
    Tick,
    Sample(usize),
}

fn holes() -> impl Strategy<Value = BTreeMap<usize, Hole>> {
    let hole = prop_oneof![Just(Hole::Tick), (0..COLLECTORS.len()).prop_map(Hole::Sample)];
    prop::collection::btree_map(1..60_usize, hole, 1..24)
}

/// What speaks in a run with holes and in the whole one does not.
fn speaks_for_want_of(
    (name, i): &(String, Incident),
    holes: &BTreeMap<usize, Hole>,
) -> Option<String> {
    let worst = worst(whole(name));
    let poorer = run(i, 1.0, |seq| match holes.get(&seq) {
        None => Some(Vec::new()),
        Some(Hole::Tick) => None,
        Some(Hole::Sample(n)) => Some(vec![COLLECTORS[*n].to_owned()]),
    });
    poorer.iter().find_map(|(t, f)| {
        let other = f.all().find(|f| {
            let rule = f.rule.0;
            let may = i.allow.iter().any(|a| a == rule)
                || i.expect.iter().any(|e| !e.absent && e.rule == rule);
            !may && !worst.contains_key(rule)
        })?;
        Some(format!("{} speaks at {t} s: {}", other.rule.0, other.fire.summary))
    })
}

/// The same cases each time, so that a change of the rules is what changes the result;
/// `PROPTEST_CASES=60000` looks at so many others.
#[test]
fn missing_ticks_make_no_rule_speak() {
    let files = files();
    let strategy = (any::<prop::sample::Index>(), holes());
    let others = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let cases = others.unwrap_or(192);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = match others {
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
        Some(_) => TestRunner::new(config),
    };
    runner
        .run(&strategy, |(file, holes)| {
            let file = &files[file.index(files.len())];
            let speaks = speaks_for_want_of(file, &holes);
            prop_assert!(speaks.is_none(), "{}: {} for want of {holes:?}", file.0, speaks.unwrap());
            Ok(())
        })
        .unwrap();
}

/// Counters read before an RTO fired do not say that it raised none of them.
#[test]
fn a_counter_not_read_since_the_event_is_not_a_zero() {
    let counters = COLLECTORS.iter().position(|c| *c == "net-counters").unwrap();
    let refused = ["tcp-tb-lt-w-stall", "tcp-local-egress-drop-mid-flight"];
    for file in files().iter().filter(|(name, _)| refused.contains(&name.as_str())) {
        for at in 1..file.1.duration as usize {
            let holes = BTreeMap::from([(at, Hole::Sample(counters))]);
            let name = &file.0;
            assert_eq!(speaks_for_want_of(file, &holes), None, "{name} without them in tick {at}");
        }
    }
}

type Certain = BTreeMap<(String, String), Confidence>;

fn confidence(f: &Findings) -> Certain {
    f.all().map(|f| ((f.rule.0.to_owned(), f.subject.to_string()), f.fire.confidence)).collect()
}

/// One collector after the other is late for a tick, as on a busy host, or reads some namespaces
/// now and others later: what was confirmed does not become a suspicion for that moment.
#[test]
fn a_sample_that_is_missing_once_makes_no_finding_less_certain() {
    const LATE: [&str; 6] = ["cgroups", "net-counters", "softirq", "psi", "processes", "sched"];
    let certain = |(_, f): &(f64, Arc<Findings>)| confidence(f);
    for (name, i) in files().iter().filter(|(_, i)| i.expect.iter().any(Expect::is_wanted)) {
        for interval in [0.5, 1.0, 2.0].into_iter().filter(|t| i.duration / t < 100.0) {
            let poorer = run(i, interval, |seq| {
                let late = LATE.get(seq % (2 * LATE.len()) / 2).filter(|_| seq % 2 == 1);
                Some(late.map(|l| (*l).to_owned()).into_iter().collect())
            });
            let mut full = None;
            for n in 1..poorer.len() {
                let before = certain(&poorer[n - 1]);
                for (what, _) in certain(&poorer[n]).iter().filter(|x| *x.1 == Suspected) {
                    if before.get(what) != Some(&Confirmed) {
                        continue;
                    }
                    // With all samples it may be no more than that, either.
                    let full = full.get_or_insert_with(|| run(i, interval, |_| Some(Vec::new())));
                    let is = certain(&full[n]).get(what) == Some(&Confirmed);
                    assert!(!is, "{name} at {interval} s, tick {n}: {what:?} is only suspected");
                }
            }
        }
    }
}

/// What 60,000 cases of the property above have found.
#[test]
fn ticks_that_once_made_a_rule_speak() {
    let files = files();
    let found: [(&str, &[usize]); 3] = [
        ("disk-flash-behind-a-limit", &[20, 21]),
        // The counter stood still over the RTOs that nobody saw.
        ("tcp-silent-rto-unknown", &[3, 4]),
        // What is dirty falls over the time that the disk's figures are of.
        ("disk-writeback-readers", &[23, 24, 25]),
    ];
    for (name, lost) in found {
        let file = files.iter().find(|(n, _)| n == name).unwrap();
        let holes = lost.iter().map(|at| (*at, Hole::Tick)).collect();
        assert_eq!(speaks_for_want_of(file, &holes), None, "{name} without the ticks {lost:?}");
    }
}

/// A session that begins in the middle of an incident raises no alarm that one which saw it
/// begin does not raise. (A remark or a suspicion it may voice: what it saw of the disk was a
/// short queue, what it saw of the connection was a backoff of unknown cause.)
#[test]
fn beginning_late_makes_no_rule_speak() {
    for (name, i) in files() {
        let worst = worst(whole(name));
        for late in [3, 8, 15] {
            for (t, f) in run(i, 1.0, |seq| (seq >= late).then(Vec::new)) {
                for f in f.all().filter(|f| alarms(f)) {
                    let rule = f.rule.0;
                    let may = i.allow.iter().any(|a| a == rule);
                    assert!(
                        may || worst.contains_key(rule),
                        "{name}, from tick {late} on: {rule} speaks at {t} s: {}",
                        f.fire.summary
                    );
                }
            }
        }
    }
}

fn alarms(f: &Finding) -> bool {
    f.fire.severity > Severity::Info && f.fire.confidence == Confidence::Confirmed
}

fn worst(moments: &[(f64, Arc<Findings>)]) -> BTreeMap<&'static str, Severity> {
    let mut out = BTreeMap::new();
    for f in moments.iter().flat_map(|(_, f)| f.all()) {
        let s = out.entry(f.rule.0).or_insert(f.fire.severity);
        *s = (*s).max(f.fire.severity);
    }
    out
}

/// Five seconds between ticks: no alarm that one second does not raise. What needs more samples
/// than a scenario is long at that pace stays silent, and is printed.
#[test]
fn five_seconds_between_ticks_raise_no_other_alarm() {
    for (name, i) in files() {
        let may = worst(whole(name));
        let late = run(i, 5.0, |_| Some(Vec::new()));
        for (t, f) in &late {
            for f in f.all().filter(|f| alarms(f)) {
                let known = may.contains_key(f.rule.0)
                    || i.allow.iter().any(|a| a == f.rule.0)
                    || i.expect.iter().any(|e| !e.absent && e.rule == f.rule.0);
                assert!(known, "{name} at 5 s: {} speaks at {t} s: {}", f.rule, f.fire.summary);
            }
        }
        for e in i.expect.iter().filter(|e| !e.absent) {
            if !late.iter().any(|(_, f)| f.all().any(|f| f.rule.0 == e.rule)) {
                println!("{name}: {} silent at 5 s", e.rule);
            }
        }
    }
}

//! A recording whose older part was thinned: it plays as one that was recorded in longer steps.

use std::sync::Arc;
use std::time::Duration;

use stallscope::analysis::Analysis;
use stallscope::diagnose::Engine;
use stallscope::playback::outline::outline;
use stallscope::playback::tape::{Played, Tape};
use stallscope::recording::tools::thin::{Thinning, Tier, Tiers};
use stallscope::sample::tick::{HostInfo, Tick};

use crate::support::incident::{incidents, run_of};
use crate::support::long::{BUDGET, Recorded, all, long, reader, record, same};

const STEP: u64 = 10;

/// All of it in steps of ten seconds.
fn thinned(made: &Recorded) -> Vec<u8> {
    thinned_but(made, Duration::ZERO)
}

/// All that is older in steps of ten seconds.
pub(crate) fn thinned_but(made: &Recorded, whole: Duration) -> Vec<u8> {
    let from = reader(&made.bytes);
    let now = from.groups().last().unwrap().last;
    let year = Duration::from_secs(366 * 86_400);
    let tiers = [
        Tier { step: Duration::ZERO, until: whole },
        Tier { step: Duration::from_secs(STEP), until: year },
    ];
    let tiers = Tiers::new(if whole.is_zero() { &tiers[1..] } else { &tiers }).unwrap();
    let mut t = Thinning::start(from, Vec::new(), tiers, now, &made.host).unwrap();
    while t.left() > 0 {
        t.step().unwrap();
    }
    t.finish().unwrap().0.seal().unwrap()
}

/// The first tick of each ten seconds.
fn kept(ticks: &[Arc<Tick>]) -> Vec<Arc<Tick>> {
    let bucket = |t: &Tick| t.mono.0 / (STEP * 1_000_000_000);
    let mut out: Vec<Arc<Tick>> = Vec::new();
    for t in ticks {
        if out.last().is_none_or(|l| bucket(l) != bucket(t)) {
            out.push(t.clone());
        }
    }
    out
}

fn coarse(host: &HostInfo) -> HostInfo {
    let thinned_from = Some(host.interval);
    HostInfo { interval: Duration::from_secs(STEP), thinned_from, ..host.clone() }
}

#[test]
fn it_says_what_a_recording_in_longer_steps_would() {
    let (made, ticks) = long();
    let bytes = thinned(made);
    let want = record(&coarse(&made.host), &kept(ticks));
    let mut run: Option<Analysis> = None;
    let mut n = 0;
    let mut tape = Tape::new(reader(&bytes));
    loop {
        match tape.play() {
            // The last segment is for what is recorded next.
            Played::Segment(h) => run = Some(Analysis::new(h, Engine::default(), BUDGET)),
            Played::Tick(t) => {
                let run = run.as_mut().unwrap();
                assert_eq!(run.host().interval, Duration::from_secs(STEP));
                run.push(t);
                same(&all(run.latest().unwrap().findings), &want.said[n], &format!("tick {n}"));
                n += 1;
            }
            Played::Lost(d) => panic!("{d}"),
            Played::End => break,
        }
    }
    assert_eq!(n, want.said.len());
    assert!(bytes.len() < made.bytes.len() / 2, "{} of {}", bytes.len(), made.bytes.len());
}

/// Near misses whose difference is not in the ticks that are left.
fn cannot_be_told(name: &str, rule: &str) -> bool {
    match name {
        // Over both steps that hold the burst, more than 10% was stolen.
        "cpu-steal-little" => rule == "cpu-steal",
        // The window is closed at times, between the ticks.
        "tcp-limited-by-something-else" => rule == "tcp-window-or-buffer-limited",
        // All timeouts but one lie in one step: a suspicion.
        "tcp-silent-rto-unknown" => rule == "tcp-tb-lt-w-stall",
        _ => false,
    }
}

/// A burst within a long step is no lasting trouble: what is quiet at a tick a second is quiet in
/// a recording that was thinned.
#[test]
fn what_was_no_finding_does_not_become_one() {
    let mut loud = Vec::new();
    for (name, i) in incidents().iter().filter(|(_, i)| !i.quiet.is_empty()) {
        // Steps begin where they do by chance.
        for skip in [0, 3, 7] {
            let (host, ticks) = run_of(i, 1.0);
            let kept = |n: &usize| *n == 0 || *n as u64 % STEP == skip;
            let ticks = ticks.into_iter().enumerate().filter(|(n, _)| kept(n)).map(|t| t.1);
            let mut run = Analysis::new(coarse(&host), Engine::default(), BUDGET);
            for t in ticks {
                run.push(t);
                for f in run.latest().unwrap().findings.all() {
                    let rule = f.rule.0.to_owned();
                    if i.quiet.contains(&rule) && !loud.contains(&(name.clone(), rule.clone())) {
                        loud.push((name.clone(), rule));
                    }
                }
            }
        }
    }
    loud.retain(|(name, rule)| !cannot_be_told(name, rule));
    assert_eq!(loud, [], "near misses that fire in steps of {STEP} s");
}

/// Rates are over the time that passed, not over the nominal interval.
#[test]
fn rates_are_those_of_the_longer_steps() {
    let bytes = thinned(&long().0);
    let mut r = reader(&bytes);
    let mut run = Analysis::new(r.host(), Engine::default(), BUDGET);
    let mut before: Option<Arc<Tick>> = None;
    let mut compared = 0;
    for n in 0..r.len() {
        let tick = r.tick(n).unwrap();
        run.push(tick.clone());
        let disks = |t: &Tick| t.samples.disks.clone();
        let now = disks(&tick);
        let then = before.as_deref().and_then(disks);
        if let (Some(a), Some(b), Some(f)) = (then, now, &run.latest().unwrap().derived.disks) {
            let dt = b.span.mid().since(a.span.mid()).as_secs_f64();
            for row in &b.data.disks {
                let old = a.data.disks.iter().find(|o| o.id == row.id);
                let fig = f.iter().find(|f| f.id == row.id);
                let (Some(old), Some(fig)) = (old, fig) else { continue };
                let ios = row.stat.wr_ios.checked_sub(old.stat.wr_ios);
                if let Some(ios) = ios.filter(|n| *n > 0) {
                    let want = ios as f64 / dt;
                    assert!((fig.w_s - want).abs() <= want * 0.01, "{} is not {want}", fig.w_s);
                    compared += 1;
                }
            }
        }
        before = Some(tick);
    }
    assert!(compared > 50, "{compared}");
}

/// The timeline has no hole where ticks were thinned.
#[test]
fn the_line_of_time_goes_on() {
    let (made, ticks) = long();
    let bytes = thinned(&record(&made.host, &ticks[..300]));
    let o = outline(&mut reader(&bytes));
    assert!(o.posts.iter().all(|p| p.sign != stallscope::playback::timeline::Sign::Hole));
    assert_eq!(o.ticks, kept(&ticks[..300]).len() as u64);
    assert!(!o.spells.is_empty());
}

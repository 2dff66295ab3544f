//! Going to a moment gives what playing from the beginning gives.

use stallscope::diagnose::Engine;
use stallscope::playback::seek::Judge;
use stallscope::playback::tape::Tape;

use crate::support::long::{all, long, reader, same};

#[test]
fn findings_at_a_seek_are_those_of_playing_from_the_beginning() {
    let (made, ticks) = long();
    let n = ticks.len() as u64;
    assert!(n > 1500, "{n} ticks: longer than rules look back, several times over");
    let mut judge = Judge::new(Tape::new(reader(&made.bytes)), Engine::default());
    // Before any pass, half way through it, and after.
    let mut compared = 0;
    for (passed, every) in [(0, 997), (n / 2, 179), (n, 127)] {
        judge.advance(passed - judge.passed());
        for tick in (0..n).step_by(every).chain([n - 1]).filter(|t| passed > 0 || *t < 1500) {
            if passed < n && tick > passed + 300 {
                continue;
            }
            let run = judge.exact(tick, &mut || false).unwrap();
            let now = run.latest().unwrap();
            assert_eq!(now.tick.seq.0, tick);
            same(
                &all(now.findings),
                &made.said[tick as usize],
                &format!("tick {tick} of {n}, {passed} passed"),
            );
            compared += usize::from(judge.cost(tick) < tick);
            assert!(
                judge.cost(tick) < 1300 || passed == 0,
                "{} ticks for tick {tick}",
                judge.cost(tick)
            );
        }
    }
    assert!(compared > 20, "only {compared} seeks began behind the start");
}

/// The same after seeks back and forth, and going on from there tick by tick.
#[test]
fn a_run_goes_on_from_a_seek_as_if_it_had_never_stopped() {
    let (made, ticks) = long();
    let mut judge = Judge::new(Tape::new(reader(&made.bytes)), Engine::default());
    judge.advance(u64::MAX);
    let n = ticks.len() as u64;
    for tick in [n - 200, 30, n / 2, n / 3] {
        let mut run = judge.exact(tick, &mut || false).unwrap();
        for t in tick + 1..(tick + 150).min(n) {
            run.push(ticks[t as usize].clone());
            same(
                &all(run.latest().unwrap().findings),
                &made.said[t as usize],
                &format!("tick {t} from {tick}"),
            );
        }
    }
}

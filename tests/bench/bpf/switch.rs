//! Whole-system cost of the run-queue program per context switch.
//!
//! The cost of a program of some ten nanoseconds is less than what the placement of its code and
//! the neighbours of the host make of a round. So the three that are closest take many short
//! turns, each loaded anew, and the median comes with the range it has in 95 of 100 such runs.

use stallscope::collect::Collector;
use stallscope::collect::bpf::runq::RunqBpf;

use super::load::ping_pong;
use super::{goal, host, median, rounds, tool};

/// Round trips of a turn, and of one of those that take a second to start.
const SHORT: u32 = 10_000;
const LONG: u32 = 60_000;
/// Short turns of each in a round.
const TURNS: usize = 8;
const BASE: usize = 0;
const EMPTY: usize = 1;
const OURS: usize = 2;
const WAKEUPS: usize = 3;
const TOOL: usize = 4;
const VARIANTS: [&str; 5] =
    ["base", "empty program", "stallscope", "stallscope, wakeups", "runqlat"];

/// CPU time per switch with a variant attached.
fn cost(variant: usize, trips: u32) -> Option<f64> {
    let (host, opts) = host();
    let _held: Box<dyn std::any::Any> = match variant {
        BASE => Box::new(()),
        EMPTY => Box::new(RunqBpf::open_empty(&host, &opts).unwrap()),
        OURS => Box::new(RunqBpf::open(&host, &opts).unwrap()),
        WAKEUPS => Box::new(RunqBpf::open_tier_b(&host, &opts).unwrap()),
        _ => Box::new(tool("runqlat", &["1000", "1"])?),
    };
    ping_pong(trips / 4);
    Some(ping_pong(trips))
}

/// Lets `variants` take turns, the base among them, another one first each time; the differences
/// to the turn's own base are added to `deltas`.
fn turn(variants: &[usize], n: usize, trips: u32, deltas: &mut [Vec<f64>]) {
    let mut got = [None; VARIANTS.len()];
    for i in 0..variants.len() {
        let v = variants[(i + n) % variants.len()];
        got[v] = cost(v, trips);
    }
    let Some(own) = got[BASE] else { return };
    deltas[BASE].push(own);
    for (d, g) in deltas.iter_mut().zip(got).skip(1) {
        d.extend(g.map(|g| g - own));
    }
}

/// Where the median of such numbers lies in 95 of 100 runs: by rank, whatever they are spread
/// like. They are sorted.
fn range(sorted: &[f64]) -> (f64, f64) {
    let n = sorted.len() as f64;
    let at = |rank: f64| sorted.get(rank.max(0.0) as usize).or(sorted.last()).copied();
    let reach = 0.98 * n.sqrt();
    let (low, high) = (at(n / 2.0 - reach), at(n / 2.0 + reach));
    (low.unwrap_or(f64::NAN), high.unwrap_or(f64::NAN))
}

pub(crate) fn all() {
    let mut deltas = vec![Vec::new(); VARIANTS.len()];
    for round in 0..rounds() {
        for n in 0..TURNS {
            turn(&[BASE, EMPTY, OURS], round + n, SHORT, &mut deltas);
        }
        turn(&[BASE, WAKEUPS, TOOL], round, LONG, &mut deltas);
    }
    let base = median(&mut deltas[BASE]);
    println!("per switch, medians of differences to base ({base:.0} ns):");
    let mut medians = [f64::NAN; VARIANTS.len()];
    for (v, d) in deltas.iter_mut().enumerate().skip(1) {
        medians[v] = median(d);
        let (low, high) = range(d);
        let (name, n) = (VARIANTS[v], d.len());
        println!("  {name:<22} {:+.0} ns ({low:.0} to {high:.0}, {n} differences)", medians[v]);
    }
    goal("run queue, per switch / runqlat", medians[OURS] / medians[TOOL], 0.25, "x");
    goal("run queue, per switch / empty program", medians[OURS] / medians[EMPTY], 1.2, "x");
}

//! Whole-system cost of the run-queue program per context switch.

use stallscope::collect::Collector;
use stallscope::collect::bpf::runq::RunqBpf;

use super::load::ping_pong;
use super::{goal, host, median, rounds, tool};

const TRIPS: u32 = 60_000;
const EMPTY: usize = 1;
const OURS: usize = 2;
const TOOL: usize = 4;
const VARIANTS: [&str; 5] =
    ["base", "empty program", "stallscope", "stallscope, wakeups", "runqlat"];

/// CPU time per switch with a variant attached.
fn cost(variant: usize) -> Option<f64> {
    let (host, opts) = host();
    let _held: Box<dyn std::any::Any> = match variant {
        0 => Box::new(()),
        EMPTY => Box::new(RunqBpf::open_empty(&host, &opts).unwrap()),
        OURS => Box::new(RunqBpf::open(&host, &opts).unwrap()),
        3 => Box::new(RunqBpf::open_tier_b(&host, &opts).unwrap()),
        _ => Box::new(tool("runqlat", &["1000", "1"])?),
    };
    ping_pong(TRIPS / 4);
    Some(ping_pong(TRIPS))
}

pub(crate) fn all() {
    let mut deltas = vec![Vec::new(); VARIANTS.len()];
    let mut base = Vec::new();
    for round in 0..rounds() {
        let mut got = [None; VARIANTS.len()];
        for i in 0..VARIANTS.len() {
            // Another one goes first each round.
            let v = (i + round) % VARIANTS.len();
            got[v] = cost(v);
        }
        let Some(own) = got[0] else { return };
        for (d, g) in deltas.iter_mut().zip(got) {
            d.extend(g.map(|g| g - own));
        }
        base.push(own);
    }
    println!(
        "per switch, median of {} differences to base ({:.0} ns):",
        base.len(),
        median(&mut base)
    );
    let mut medians = [f64::NAN; VARIANTS.len()];
    for (v, d) in deltas.iter_mut().enumerate().skip(1) {
        medians[v] = median(d);
        let quartile = |q: usize| d.get(d.len() * q / 4).copied().unwrap_or(f64::NAN);
        println!(
            "  {:<22} {:+.0} ns (quartiles {:.0} to {:.0})",
            VARIANTS[v],
            medians[v],
            quartile(1),
            quartile(3)
        );
    }
    goal("run queue, per switch / runqlat", medians[OURS] / medians[TOOL], 0.25, "x");
    goal("run queue, per switch / empty program", medians[OURS] / medians[EMPTY], 1.2, "x");
}

//! What is measured, and how well: one line per signal, from its best source that works.
//!
//! Several collectors may offer a signal by the same name: the run queue is measured by eBPF,
//! by schedstat and by PSI. The first of them that works is the one that rules and panes use,
//! and the line says why a better one does not work and what would unlock it.

use std::time::Duration;

use crate::sample::tick::{CollectorHealth, HealthState};
use crate::sample::{CollectorId, Extent, LOOK_AGAIN, Signal, SignalStatus};

/// Source of everything that our kernel programs measure.
pub const EBPF: &str = "ebpf";
/// Signals that kernel programs measure best, and others in some way.
pub const LADDERS: [&str; 5] =
    ["run-queue latency", "softirq time", "interrupt time", "block latency", "TCP events"];

/// A reading that is older than this is none: its signals do not work, whatever they were.
const STALE: Duration = Duration::from_secs(5);

/// Every signal once; a collector that failed or is late says so too.
#[must_use]
pub fn coverage(health: &[CollectorHealth]) -> Vec<Signal> {
    let mut groups: Vec<Vec<Signal>> = Vec::new();
    for offer in health.iter().flat_map(offers) {
        match groups.iter_mut().find(|g| g.first().is_some_and(|s| s.signal == offer.signal)) {
            Some(g) => g.push(offer),
            None => groups.push(vec![offer]),
        }
    }
    groups.into_iter().filter_map(best).collect()
}

/// Signals that a collector of kernel programs offers and others fall back for.
fn ladder(id: CollectorId) -> &'static [&'static str] {
    match id {
        CollectorId::RunqBpf => &["run-queue latency"],
        CollectorId::IrqBpf => &["softirq time", "interrupt time"],
        CollectorId::BlockBpf => &["block latency"],
        CollectorId::NetBpf => &["TCP events"],
        CollectorId::FilesBpf => &["file creation"],
        _ => &[],
    }
}

fn offers(h: &CollectorHealth) -> Vec<Signal> {
    let ladder = ladder(h.id);
    // Without a reading another source is better, however well this one would do.
    let none = |reason: String, remedy: &str| -> Vec<Signal> {
        if ladder.is_empty() {
            return vec![Signal::missing(h.id.name(), "", reason, remedy)];
        }
        let missing =
            |name: &&'static str| Signal::missing(name, EBPF, reason.clone(), remedy.to_owned());
        ladder.iter().map(missing).collect()
    };
    let remedy = format!("{LOOK_AGAIN}, or use a longer --interval");
    match &h.state {
        HealthState::Failed { error } => none(error.clone(), ""),
        HealthState::Late { age }
            if *age >= STALE && !h.signals.is_empty() && ladder.is_empty() =>
        {
            let reason = format!("no reading for {} s", age.as_secs());
            let missing = |s: &Signal| Signal {
                status: SignalStatus::Missing { reason: reason.clone(), remedy: remedy.clone() },
                ..s.clone()
            };
            h.signals.iter().map(missing).collect()
        }
        HealthState::Off { reason, remedy } if h.signals.is_empty() || !ladder.is_empty() => {
            none(reason.clone(), remedy)
        }
        HealthState::Late { age } if h.signals.is_empty() || *age >= STALE => {
            let reason = format!("no reading within {:.1} s", age.as_secs_f64());
            if ladder.is_empty() {
                let name = h.id.name();
                vec![Signal::degraded(name, "", reason, remedy).unseen(name, Extent::Whole)]
            } else {
                none(reason, &remedy)
            }
        }
        _ => h.signals.clone(),
    }
}

/// The winner among the offers of one signal, which come in the order of the collectors.
fn best(offers: Vec<Signal>) -> Option<Signal> {
    let missing = |s: &Signal| matches!(s.status, SignalStatus::Missing { .. });
    let rank = |s: &&Signal| (missing(s), s.source != EBPF);
    let mut winner = offers.iter().min_by_key(rank)?.clone();
    if winner.source == EBPF {
        // All are missing, or eBPF works: nothing to add but what the fallbacks lack.
        if missing(&winner) {
            for s in offers.iter().filter(|s| s.source != EBPF) {
                add(&mut winner, &s.source, s);
            }
        }
        return Some(winner);
    }
    if let Some(better) = offers.iter().find(|s| s.source == EBPF) {
        add(&mut winner, "eBPF", better);
    }
    Some(winner)
}

/// Says in a line why another source does not work, and what would unlock it.
fn add(line: &mut Signal, source: &str, other: &Signal) {
    let SignalStatus::Missing { reason: why, remedy: unlock } = &other.status else { return };
    if let SignalStatus::Degraded { reason, remedy } | SignalStatus::Missing { reason, remedy } =
        &mut line.status
    {
        *reason = format!("{reason}; {source}: {why}");
        if !unlock.is_empty() {
            remedy.clone_from(unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NAME: &str = "run-queue latency";

    fn health(id: CollectorId, state: HealthState, signals: Vec<Signal>) -> CollectorHealth {
        CollectorHealth { id, state, signals }
    }
    fn sched() -> CollectorHealth {
        let s = Signal::degraded(NAME, "schedstat", "means only", "");
        health(CollectorId::Sched, HealthState::Fresh, vec![s])
    }
    fn psi() -> CollectorHealth {
        let s = Signal::degraded(NAME, "PSI", "a share only", "");
        health(CollectorId::Psi, HealthState::Fresh, vec![s])
    }
    fn off() -> HealthState {
        HealthState::Off { reason: "no CAP_BPF".into(), remedy: "run as root".into() }
    }
    fn one(health: &[CollectorHealth]) -> Signal {
        let mut all = coverage(health);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    #[test]
    fn the_best_source_that_works_is_the_only_line() {
        let bpf = |s| health(CollectorId::RunqBpf, HealthState::Fresh, vec![s]);
        assert_eq!(one(&[sched(), psi(), bpf(Signal::ok(NAME, EBPF))]), Signal::ok(NAME, EBPF));
        // Less than perfect eBPF still is a distribution.
        let degraded = Signal::degraded(NAME, EBPF, "coverage 98 %", "");
        assert_eq!(one(&[sched(), psi(), bpf(degraded.clone())]), degraded);
        assert_eq!(one(&[sched(), psi()]).source, "schedstat");
    }

    #[test]
    fn a_fallback_says_why_the_better_source_does_not_work() {
        let bpf = health(CollectorId::RunqBpf, off(), Vec::new());
        let s = one(&[sched(), psi(), bpf.clone()]);
        assert_eq!(
            s,
            Signal::degraded(NAME, "schedstat", "means only; eBPF: no CAP_BPF", "run as root")
        );
        // What the source writes for a collector that is off, by the collector's name.
        let named =
            CollectorHealth { signals: vec![Signal::missing("runq-bpf", "", "", "")], ..bpf };
        let none = Signal::missing(NAME, "schedstat", "no /proc/PID/schedstat", "other kernel");
        let without = health(CollectorId::Sched, HealthState::Fresh, vec![none]);
        let s = one(&[without.clone(), psi(), named.clone()]);
        assert_eq!(
            (&*s.source, &s.status),
            (
                "PSI",
                &SignalStatus::Degraded {
                    reason: "a share only; eBPF: no CAP_BPF".into(),
                    remedy: "run as root".into(),
                }
            )
        );
        let s = one(&[without, named]);
        assert!(
            matches!(&s.status, SignalStatus::Missing { reason, .. }
            if reason == "no CAP_BPF; schedstat: no /proc/PID/schedstat"),
            "{s:?}"
        );
    }

    #[test]
    fn a_source_without_a_reading_does_not_win() {
        for state in [
            HealthState::Failed { error: "map RUNQ: gone".into() },
            HealthState::Late { age: std::time::Duration::from_secs(2) },
        ] {
            let s = one(&[sched(), health(CollectorId::RunqBpf, state, Vec::new())]);
            assert_eq!(s.source, "schedstat", "{s:?}");
        }
    }

    /// What worked once and hangs since must not pass for measured.
    #[test]
    fn a_reading_that_is_old_is_none() {
        let state = |s| HealthState::Late { age: Duration::from_secs(s) };
        let ok = || vec![Signal::ok("disk counters", "diskstats")];
        assert_eq!(one(&[health(CollectorId::Disks, state(2), ok())]), ok()[0]);
        let s = one(&[health(CollectorId::Disks, state(14), ok())]);
        assert_eq!(s.signal, "disk counters");
        assert!(
            matches!(&s.status, SignalStatus::Missing { reason, .. } if reason == "no reading for 14 s"),
            "{s:?}"
        );
        let bpf = vec![Signal::ok(NAME, EBPF)];
        let s = one(&[sched(), health(CollectorId::RunqBpf, state(14), bpf)]);
        assert_eq!(s.source, "schedstat", "{s:?}");
    }

    #[test]
    fn other_collectors_speak_for_themselves() {
        let failed = HealthState::Failed { error: "x".into() };
        let late = HealthState::Late { age: std::time::Duration::ZERO };
        let all = coverage(&[
            health(CollectorId::Disks, failed, vec![Signal::ok("disk counters", "diskstats")]),
            health(CollectorId::Cpu, late, Vec::new()),
            health(CollectorId::Psi, off(), Vec::new()),
        ]);
        let names: Vec<&str> = all.iter().map(|s| &*s.signal).collect();
        assert_eq!(names, ["disks", "cpu", "psi"]);
    }
}

//! NICs of our own network namespace and the CPUs that take their interrupts.

use std::time::Duration;

use super::super::super::Window;
use crate::metrics::MIN_SPAN;
use crate::metrics::netdev::LinkFigures;
use crate::sample::softirq::{NicQueues, SoftirqSample};
use crate::sample::subject::CpuId;

/// On big hosts `/proc/interrupts` is read only every few ticks.
const AGE: Duration = Duration::from_secs(15);
/// A CPU with a smaller fraction of a NIC's interrupts does not count.
const PART: f64 = 0.02;

/// Physical NICs with their queues.
pub(crate) fn nics<'a>(w: &Window<'a>) -> impl Iterator<Item = &'a NicQueues> {
    let s = w.tick.samples.softirq.as_ref();
    s.into_iter().flat_map(|s| s.data.nics.iter()).filter(|n| n.physical)
}

/// The rates of a NIC of our own namespace.
pub(crate) fn link<'a>(w: &Window<'a>, n: &NicQueues) -> Option<&'a LinkFigures> {
    w.netdev(w.host.netns?)?.link(&n.dev)
}

/// Interrupts per second of a NIC by CPU, without CPUs that take hardly any. `None` if interrupts
/// were not read, or sysfs does not list those of the NIC.
pub(crate) fn irq_cpus(w: &Window<'_>, n: &NicQueues) -> Option<Vec<(CpuId, f64)>> {
    let readings = || {
        w.history
            .back_from(w.tick.seq)
            .take_while(|m| w.tick.mono.since(m.tick.mono) <= AGE)
            .filter_map(|m| m.tick.samples.softirq.as_ref())
            .filter(|s| !s.data.irqs.is_empty())
    };
    let now = readings().next()?;
    let before = readings().find(|s| now.span.mid().since(s.span.mid()) >= MIN_SPAN)?;
    let dt = now.span.mid().since(before.span.mid()).as_secs_f64();
    let grown = |cpu: CpuId| -> f64 {
        let of = |s: &SoftirqSample| -> u64 {
            let Some(column) = s.irq_cpus.iter().position(|c| *c == cpu) else { return 0 };
            let mine = s.irqs.iter().filter(|i| is_of(n, &i.irq));
            mine.filter_map(|i| i.counts.get(column)).fold(0, |a, b| a.saturating_add(*b))
        };
        of(&now.data).saturating_sub(of(&before.data)) as f64 / dt
    };
    let all: Vec<(CpuId, f64)> = now.data.irq_cpus.iter().map(|c| (*c, grown(*c))).collect();
    let sum: f64 = all.iter().map(|c| c.1).sum();
    let out: Vec<(CpuId, f64)> =
        all.into_iter().filter(|c| c.1 > 0.0 && c.1 >= PART * sum).collect();
    (!out.is_empty()).then_some(out)
}

fn is_of(n: &NicQueues, irq: &str) -> bool {
    irq.parse().is_ok_and(|i: u32| n.irqs.contains(&i))
}

/// Is RPS off on all queues?
pub(crate) fn rps_off(n: &NicQueues) -> bool {
    n.rps_cpus.iter().all(|m| m.chars().all(|c| c == '0' || c == ','))
}

/// CPU numbers in the kernel's list format: `0-3,8`.
pub(crate) fn cpu_list(cpus: &[CpuId]) -> String {
    let mut ids: Vec<u32> = cpus.iter().map(|c| c.0).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(id) => *end = id,
            _ => runs.push((id, id)),
        }
    }
    let text = |(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        let list = |ids: &[u32]| cpu_list(&ids.iter().map(|i| CpuId(*i)).collect::<Vec<_>>());
        assert_eq!(list(&[3, 0, 1, 2, 8, 8]), "0-3,8");
        assert_eq!(list(&[u32::MAX]), "4294967295");
        assert_eq!(list(&[]), "");
    }
}

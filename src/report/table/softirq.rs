//! `softirq`: what each CPU ran of each softirq, from `/proc/softirqs`, and their time by eBPF.

use super::{Moment, OF_TICK, Out, Rows, Table, columns};
use crate::metrics::bpf::irq::RunFigures;
use crate::sample::subject::CpuId;

pub(super) static TABLE: Table = Table {
    name: "softirq",
    about: "software interrupts, a row for each CPU and vector",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(rows),
};

struct Vector<'a> {
    cpu: CpuId,
    name: &'a str,
    per_s: f64,
    run: Option<&'a RunFigures>,
    /// eBPF measures softirqs.
    timed: bool,
}

fn rows(m: &Moment<'_>, out: &mut Out<'_>) {
    let Some(s) = &m.now.derived.softirq else { return };
    let irq = m.now.derived.irq_bpf.as_deref().filter(|b| b.softirqs);
    for (cpu, rates) in &s.per_cpu {
        let measured = irq.and_then(|b| b.cpu(*cpu));
        for (name, per_s) in s.vectors.iter().zip(rates) {
            let row = Vector {
                cpu: *cpu,
                name,
                per_s: *per_s,
                run: measured.and_then(|c| c.vector(name)),
                timed: irq.is_some(),
            };
            out.row(|line| put(line, &row));
        }
    }
}

columns! {
    |r: &Vector<'_>|
    cpu: integer, "CPU number" = r.cpu.0;
    vector: text, "NET_RX, NET_TX, BLOCK, TIMER, ..., as /proc/softirqs has it" = r.name;
    raised_per_s: float ("1/s"), "how often it was raised, by /proc/softirqs" = r.per_s;
    time_pct: float ("%"), "time of the CPU that it took (eBPF)"
        = r.timed.then(|| r.run.map_or(0.0, |run| run.pct));
    runs_per_s: float ("1/s"), "runs (eBPF)" = r.timed.then(|| r.run.map_or(0.0, |run| run.runs_s));
    mean_s: float ("s"), "mean time of a run (eBPF)"
        = r.run.and_then(|run| run.mean_ns).map(|ns| ns / 1e9);
    p99_s: float ("s"), "99th percentile of it (eBPF)"
        = r.run.and_then(|run| run.p99_ns).map(|ns| ns as f64 / 1e9);
    max_s: float ("s"), "the longest run of those timed (eBPF)"
        = r.run.and_then(|run| run.max_ns).map(|ns| ns as f64 / 1e9);
}

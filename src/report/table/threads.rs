//! `threads`: how threads fared on the run queue.

use super::{Moment, OF_TICK, Out, Rows, Table, columns};
use crate::metrics::bpf::runq::TaskWaits;
use crate::metrics::cpu::ThreadWait;
use crate::metrics::rate::per_second;

pub(super) static TABLE: Table = Table {
    name: "threads",
    about: "those that ran or waited for a CPU; others have no row",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(rows),
};

struct Thread<'a> {
    t: &'a ThreadWait,
    long: Option<&'a TaskWaits>,
}

fn rows(m: &Moment<'_>, out: &mut Out<'_>) {
    let Some(s) = &m.now.derived.sched else { return };
    let long = m.now.derived.runq_bpf.as_deref().map_or(&[][..], |b| &b.tasks);
    for t in &s.threads {
        let row = Thread { t, long: long.iter().find(|w| w.tid == t.thread.task.tid) };
        out.row(|line| put(line, &row));
    }
}

columns! {
    |r: &Thread<'_>|
    pid: integer, "process id" = r.t.thread.task.pid;
    tid: integer, "thread id" = r.t.thread.task.tid;
    comm: text, "its name" = r.t.thread.comm.as_str();
    cpu: integer, "CPU it last ran on" = r.t.thread.last_cpu.map(|c| c.0);
    run_pct: float ("% of a core"), "CPU used"
        = per_second(r.t.run_ns as f64 / 1e7, r.t.dt);
    wait_per_s: float ("s/s"), "time spent runnable but not running"
        = per_second(r.t.run_delay_ns as f64 / 1e9, r.t.dt);
    wait_pct: float ("%"), "wait as a share of the runnable time"
        = r.t.wait_share().map(|s| 100.0 * s);
    slice_s: float ("s"), "mean wait before each time slice"
        = r.t.wait_per_slice_ms().map(|ms| ms / 1000.0);
    slices_per_s: float ("1/s"), "time slices" = per_second(r.t.slices as f64, r.t.dt);
    max_s: float ("s"), "longest single wait of 1 ms or more (eBPF)"
        = r.long.map(|w| w.max_ns as f64 / 1e9);
    nice: integer, "nice value" = r.t.thread.nice;
    policy: integer, "scheduling policy: 0 SCHED_OTHER, 1 SCHED_FIFO, 2 SCHED_RR, 5 SCHED_IDLE"
        = r.t.thread.policy;
    allowed: text, "CPUs it may run on, read only for threads that wait a lot"
        = r.t.thread.allowed.as_deref();
    cgroup: text, "its cgroup, read only for threads that wait a lot" = r.t.thread.cgroup.as_deref();
}

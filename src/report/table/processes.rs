//! `processes`: those of which a thread ran, waited or slept uninterruptibly, or that moved bytes
//! to or from disks.

use super::{Moment, OF_TICK, Out, Rows, Table, columns};
use crate::metrics::processes::{ProcessFigures, by_process};

pub(super) static TABLE: Table = Table {
    name: "processes",
    about: "those that ran, waited for a CPU, were blocked or used disks; others have no row",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(rows),
};

struct Process<'a> {
    p: &'a ProcessFigures,
    /// Times of threads were read in this tick; of all of them, if `p` has none.
    sched: bool,
    /// The same of threads that are blocked.
    blocked: bool,
}

fn rows(m: &Moment<'_>, out: &mut Out<'_>) {
    let d = m.now.derived;
    let processes = m.now.tick.samples.processes.as_ref().map(|s| &s.data);
    let blocked = processes.map_or(&[][..], |s| &s.blocked);
    for p in &by_process(d.sched.as_deref(), blocked, d.process_io.as_deref()) {
        let ran = p.run > 0.0 || p.wait > 0.0;
        let row = Process {
            p,
            sched: d.sched.as_ref().is_some_and(|s| ran || s.unread_threads == 0),
            blocked: processes.is_some_and(|s| p.blocked > 0 || s.unread == 0),
        };
        out.row(|line| put(line, &row));
    }
}

columns! {
    |r: &Process<'_>|
    pid: integer, "process id" = r.p.pid;
    comm: text, "its name" = r.p.comm.as_str();
    cgroup: text, "its cgroup, read only for threads that wait or run a lot" = r.p.cgroup.as_deref();
    threads: integer, "threads that ran, waited for a CPU or were blocked"
        = (r.sched && r.blocked).then_some(r.p.threads);
    run_pct: float ("% of a core"), "CPU used" = r.sched.then_some(100.0 * r.p.run);
    wait_per_s: float ("s/s"), "time its threads were runnable but not running"
        = r.sched.then_some(r.p.wait);
    slices_per_s: float ("1/s"), "time slices" = r.sched.then_some(r.p.slices_s);
    blocked: integer, "threads in uninterruptible sleep (D)" = r.blocked.then_some(r.p.blocked);
    wchan: text, "function of the kernel that one of those sleeps in" = r.p.wchan.as_deref();
    read_bytes_per_s: float ("bytes/s"), "read from disks" = r.p.io.map(|io| io.0);
    write_bytes_per_s: float ("bytes/s"), "written to disks" = r.p.io.map(|io| io.1);
}

//! `cgroups`: CPU quota, memory, tasks and pressure of cgroups.

use std::collections::HashMap;

use super::{Moment, OF_TICK, Out, Rows, Table, columns};
use crate::metrics::cgroups::CgroupFigures;
use crate::sample::cgroups::CgroupRow;

pub(super) static TABLE: Table = Table {
    name: "cgroups",
    about: "quota, memory, tasks and pressure; cgroup v1 has a row for each hierarchy",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(rows),
};

struct Cgroup<'a> {
    g: &'a CgroupFigures,
    now: Option<&'a CgroupRow>,
}

fn rows(m: &Moment<'_>, out: &mut Out<'_>) {
    let Some(all) = &m.now.derived.cgroups else { return };
    let read = m.now.tick.samples.cgroups.as_ref().map_or(&[][..], |s| &s.data.groups);
    let now: HashMap<_, _> = read.iter().map(|g| ((&*g.mount, g.id), g)).collect();
    for g in all.iter() {
        let row = Cgroup { g, now: now.get(&(&*g.mount, g.id)).copied() };
        out.row(|line| put(line, &row));
    }
}

columns! {
    |r: &Cgroup<'_>|
    cgroup: text, "path below the mount point" = &*r.g.path;
    mount: text, "mount point of its hierarchy" = &*r.g.mount;
    cgroup_id: integer, "inode of its directory" = r.g.id.0;
    usage_cores: float ("cores"), "CPU used" = r.g.cpu.and_then(|c| c.usage_cores);
    limit_cores: float ("cores"), "CPU quota; missing without one"
        = r.g.cpu.and_then(|c| c.limit_cores);
    weight: integer, "cpu.weight or cpu.shares" = r.g.cpu.and_then(|c| c.weight);
    throttled_pct: float ("%"), "periods in which the quota ran out"
        = r.g.cpu.and_then(|c| c.throttled_share()).map(|s| 100.0 * s);
    throttled_per_s: float ("s/s"), "time throttled, summed over CPUs"
        = r.g.cpu.map(|c| c.throttled_ms_s / 1000.0);
    mem_bytes: integer ("bytes"), "memory" = r.now.and_then(|g| g.memory_bytes);
    mem_limit_bytes: integer ("bytes"), "its limit; missing without one"
        = r.now.and_then(|g| g.memory_limit_bytes);
    mem_failures_per_s: float ("1/s"), "times memory was asked for at the limit"
        = r.g.memory_failures_s;
    oom_kills: integer, "processes that the OOM killer killed, since the cgroup exists"
        = r.now.and_then(|g| g.oom_kills);
    tasks: integer, "tasks in it and below" = r.now.and_then(|g| g.pids).map(|p| p.current);
    tasks_limit: integer, "their limit; missing without one"
        = r.now.and_then(|g| g.pids).and_then(|p| p.max);
    tasks_refused_per_s: float ("1/s"), "tasks that were refused" = r.g.pids_refused_s;
    psi_cpu_pct: float ("%"), "time in which a task of it waited for a CPU" = r.g.psi_cpu;
    psi_io_pct: float ("%"), "time in which one waited for I/O" = r.g.psi_io;
    psi_mem_pct: float ("%"), "time in which one waited for memory" = r.g.psi_memory;
    psi_mem_full_pct: float ("%"), "time in which all waited for memory"
        = r.g.psi_memory_full;
}

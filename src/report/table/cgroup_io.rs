//! `cgroup_io`: I/O of cgroups, by device.

use super::{Moment, OF_TICK, Out, Rows, Table, columns};
use crate::metrics::cgroups::{CgroupFigures, CgroupIoFigures};

pub(super) static TABLE: Table = Table {
    name: "cgroup_io",
    about: "I/O of cgroups by device; a layer and the disk below it both have a row",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(rows),
};

struct Io<'a> {
    g: &'a CgroupFigures,
    on: &'a CgroupIoFigures,
    /// Name of the device, if it was read in this tick.
    dev: Option<&'a str>,
}

fn rows(m: &Moment<'_>, out: &mut Out<'_>) {
    let d = m.now.derived;
    for g in d.cgroups.iter().flat_map(|all| all.iter()) {
        for io in &g.io {
            let row = Io { g, on: io, dev: d.disk(io.dev).map(|d| &*d.name) };
            out.row(|line| put(line, &row));
        }
    }
}

columns! {
    |r: &Io<'_>|
    cgroup: text, "path below the mount point" = &*r.g.path;
    mount: text, "mount point of its hierarchy" = &*r.g.mount;
    cgroup_id: integer, "inode of its directory" = r.g.id.0;
    dev: text, "kernel name of the device" = r.dev;
    dev_number: text, "major:minor" = r.on.dev.to_string().as_str();
    r_per_s: float ("1/s"), "reads" = r.on.riops;
    w_per_s: float ("1/s"), "writes" = r.on.wiops;
    r_bytes_per_s: float ("bytes/s"), "read" = r.on.rbps;
    w_bytes_per_s: float ("bytes/s"), "written" = r.on.wbps;
    limit_r_per_s: float ("1/s"), "limit of reads; missing without one"
        = r.on.limits.max_riops.map(|n| n as f64);
    limit_w_per_s: float ("1/s"), "limit of writes" = r.on.limits.max_wiops.map(|n| n as f64);
    limit_r_bytes_per_s: float ("bytes/s"), "limit of what is read"
        = r.on.limits.max_rbps.map(|n| n as f64);
    limit_w_bytes_per_s: float ("bytes/s"), "limit of what is written"
        = r.on.limits.max_wbps.map(|n| n as f64);
}

//! `disks`: block devices, from `/proc/diskstats`, and their requests by eBPF.

use super::{OF_TICK, Rows, Table, columns};
use crate::metrics::bpf::block::{BlockDiskFigures, Stage};
use crate::metrics::disks::DiskFigures;
use crate::view::panes::disks::{class_name, label};

pub(super) static TABLE: Table = Table {
    name: "disks",
    about: "block devices, partitions and layers (dm, md) included",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(|m, out| {
        let requests = m.now.derived.block_bpf.as_deref();
        for d in m.now.derived.disks.iter().flat_map(|d| d.iter()) {
            let disk = Disk { d, requests: requests.and_then(|b| b.disk(d.id)) };
            out.row(|line| put(line, &disk));
        }
    }),
};

struct Disk<'a> {
    d: &'a DiskFigures,
    requests: Option<&'a BlockDiskFigures>,
}

impl Disk<'_> {
    /// Without a time between two readings there is no rate.
    fn rate(&self, of: f64) -> Option<f64> {
        self.d.untimed.is_none().then_some(of)
    }
    fn p99_s(&self, stage: Stage) -> Option<f64> {
        Some(self.requests?.latency(stage)?.p99_ns as f64 / 1e9)
    }
}

columns! {
    |r: &Disk<'_>|
    dev: text, "kernel name" = &*r.d.name;
    dev_number: text, "major:minor" = r.d.id.to_string().as_str();
    class: text, "hdd, ssd, nvme, virtual, stack, part, memory or other"
        = class_name(r.d.attrs.class);
    label: text, "volume, backing file or model" = Some(label(r.d).as_str()).filter(|l| !l.is_empty());
    parent: text, "disk of a partition" = r.d.attrs.parent.as_deref();
    r_per_s: float ("1/s"), "reads completed" = r.rate(r.d.r_s);
    w_per_s: float ("1/s"), "writes completed" = r.rate(r.d.w_s);
    d_per_s: float ("1/s"), "discards completed" = r.rate(r.d.d_s);
    f_per_s: float ("1/s"), "flushes completed" = r.d.f_s.and_then(|f| r.rate(f));
    r_bytes_per_s: float ("bytes/s"), "bytes read" = r.rate(1024.0 * r.d.rkb_s);
    w_bytes_per_s: float ("bytes/s"), "bytes written" = r.rate(1024.0 * r.d.wkb_s);
    qlen: float, "mean queue: requests waiting or in the device" = r.rate(r.d.aqu_sz);
    await_s: float ("s"), "mean time of a request, queue included; missing without a request"
        = r.d.await_ms.map(seconds);
    r_await_s: float ("s"), "the same of reads" = r.d.r_await.map(seconds);
    w_await_s: float ("s"), "the same of writes" = r.d.w_await.map(seconds);
    f_await_s: float ("s"), "the same of flushes" = r.d.f_await.map(seconds);
    util_pct: float ("%"), "time with a request in flight, at most 100" = r.d.util_shown();
    areq_sz_bytes: float ("bytes"), "mean size of a request" = r.d.areq_kb().map(|kb| 1024.0 * kb);
    merge_pct: float ("%"), "requests that were merged" = r.d.merged_pct();
    inflight: integer, "requests in flight now" = r.d.in_flight;
    stuck_s: float ("s"), "how long requests have been in flight with none completing"
        = r.d.stuck_for.as_secs_f64();
    queue_pct: float ("%"), "share of request time before the device has it (eBPF)"
        = r.requests.and_then(BlockDiskFigures::queue_share).map(|s| 100.0 * s);
    p99_s: float ("s"), "99th percentile of request time, queue included (eBPF)"
        = r.p99_s(Stage::Total);
    dev99_s: float ("s"), "the same in the device alone (eBPF)" = r.p99_s(Stage::Device);
    split_per_s: float ("1/s"), "bios split because too large (eBPF)"
        = r.requests.and_then(|b| b.splits_s);
    sched: text, "I/O scheduler" = r.d.attrs.scheduler.as_deref();
    size_bytes: integer ("bytes"), "capacity"
        = r.d.attrs.size_sectors.and_then(|n| n.checked_mul(512));
}

fn seconds(ms: f64) -> f64 {
    ms / 1000.0
}

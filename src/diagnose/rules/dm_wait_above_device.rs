//! `dm-wait-above-device`: requests wait in the dm layer while the disks below answer promptly.

use super::common::disks::{slaves, subject, title};
use super::common::text::{ms, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;
use crate::metrics::rate::ratio;

/// Latency of the volume relative to the disks below.
const TIMES: f64 = 5.0;
/// Requests queued in the volume but not in the disks.
const ABOVE: f64 = 8.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("dm-wait-above-device"),
    title: "requests wait in the dm layer while the disks below respond promptly",
    condition: "await of a dm volume is 5 times that of the disks below it, and 8 or more \
        requests are queued in the volume but not in the disks, for 5 of 8 s. Clears below 0.7 \
        of these.",
    look_alikes: "A slow or capped disk shows the latency itself: disk-capped-cloud and the \
        other disk rules name it. A cgroup limit on the disk below also delays requests above \
        it: cgroup-io-throttle.",
    remedy: "They wait for a merge, a plug or a tag: raise queue/nr_requests of the disk, use \
        the none scheduler, write larger requests. Snapshot, thin and crypt targets do work of \
        their own per request: check their CPU.",
    sources: "Field: an LVM volume with 60362 writes/s of 4 kB: 2.53 ms and a queue of 152 in \
        dm, 0.09 ms and 4.5 in the NVMe below, which merged 14% of them.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Annotation, needs: &[CollectorId::Disks], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let all = w.derived.disks.iter().flat_map(|d| d.iter());
    for d in all.filter(|d| d.name.starts_with("dm-") && !d.attrs.slaves.is_empty()) {
        let below = slaves(w, d);
        if below.len() < d.attrs.slaves.len() {
            continue;
        }
        let Some(b) = Below::of(&below) else { continue };
        let Some(r) = d.await_ms else { continue };
        let beyond =
            |part: f64| r >= part * TIMES * b.await_ms && d.aqu_sz - b.queue >= part * ABOVE;
        if beyond(1.0) {
            out.fire(subject(d), fire(d, r, &below, &b));
        } else if beyond(CLEAR) {
            out.linger(subject(d));
        }
    }
}

/// Totals of the disks below.
struct Below {
    queue: f64,
    await_ms: f64,
    merged_pct: f64,
}

impl Below {
    fn of(disks: &[&DiskFigures]) -> Option<Self> {
        let sum = |f: fn(&DiskFigures) -> f64| disks.iter().map(|d| f(d)).sum::<f64>();
        let iops = sum(DiskFigures::iops);
        let busy = sum(|d| d.iops() * d.await_ms.unwrap_or(0.0));
        let merged = sum(|d| d.rrqm_s + d.wrqm_s);
        Some(Self {
            queue: sum(|d| d.aqu_sz),
            await_ms: ratio(busy, iops)?,
            merged_pct: ratio(100.0 * merged, merged + iops)?,
        })
    }
}

fn fire(d: &DiskFigures, r: f64, below: &[&DiskFigures], b: &Below) -> Fire {
    let mut f = Fire::new(
        Severity::Info,
        format!(
            "{} delays requests above its disks: {} ms here, {} ms below",
            title(d),
            ms(r),
            ms(b.await_ms)
        ),
    );
    let text = format!("await {} ms in the volume, {} ms in the disks", ms(r), ms(b.await_ms));
    f.evidence.push(Evidence::new("await", r, "ms", text).over(TIMES * b.await_ms));
    let above = d.aqu_sz - b.queue;
    let text = format!("queue {:.1} in the volume, {:.1} in the disks", d.aqu_sz, b.queue);
    f.evidence.push(Evidence::new("aqu-sz", above, "", text).over(ABOVE));
    let text = format!("{} IOPS; {:.0}% are merged below", rate(d.iops()), b.merged_pct);
    f.evidence.push(Evidence::new("merge", b.merged_pct, "%", text));
    for s in below.iter().take(4) {
        let tags = s.attrs.nr_requests.map_or("?".to_owned(), |n| n.to_string());
        let scheduler = s.attrs.scheduler.as_deref().unwrap_or("?");
        let text = format!("{}: scheduler {scheduler}, nr_requests {tags}", s.name);
        f.evidence.push(Evidence::text("queue", text));
    }
    let because = format!("the disks respond within {} ms", ms(b.await_ms));
    f.ruled_out.push(RuledOut::new("disk-capped-cloud", because));
    if let Some(s) = below.first() {
        let name = sh(&s.name);
        f.next.push(format!("grep . /sys/block/{name}/queue/{{scheduler,nr_requests,nomerges}}"));
    }
    f.next.push(format!("dmsetup table /dev/{}", sh(&d.name)));
    f.next.push("iostat -x 1".to_owned());
    f
}

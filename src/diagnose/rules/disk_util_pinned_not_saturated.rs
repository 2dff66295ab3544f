//! `disk-util-pinned-not-saturated`: "100% busy" is not the bottleneck.

use super::common::disks::{
    Reference, against, leaves, not_measured, reference, spins, subject, title,
};
use super::common::measured;
use super::common::text::{ms, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// %util at which a disk is commonly taken for saturated.
const UTIL: f64 = 95.0;
/// 0.7 of that: below this the finding clears.
const UTIL_CLEAR: f64 = 66.0;
/// A queue below this leaves room on a parallel device.
const SHORT_QUEUE: f64 = 4.0;
/// Latency relative to an empty queue up to which requests hardly wait ...
const CALM: f64 = 2.0;
/// ... and from which they wait, however short the queue: `disk-capped-cloud` and others.
const WAITING: f64 = 3.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-util-pinned-not-saturated"),
    title: "\"100% busy\" is not the bottleneck: the disk has room",
    condition: "%util >= 95 on a disk that does not spin, and either the queue is below 4 or \
        await is at most twice that of an empty queue; never with a queue as deep as \
        nr_requests or at 3 times that latency. For 5 of 8 s.",
    look_alikes: "A spinning disk at 100% really is busy. A queue as deep as nr_requests, or \
        latency that grows with the queue at constant throughput, is a limit: \
        disk-capped-cloud. A depth of 1 (queue near 1) is an application that waits for each \
        request: IOPS are 1/latency.",
    remedy: "Look elsewhere: locks, CPU, network, one synchronous writer. To use the remaining \
        room, issue more requests at once (io_uring, more threads, larger batches).",
    sources: "iostat(1) on parallel devices. Field: the same NVMe at 100% with 11k and with 32k \
        writes/s; a cloud volume at 27.85% with 33 requests in flight. io_ticks is sampled per \
        jiffy on 5.0 to 6.9.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Disks], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for d in leaves(w).filter(|d| !spins(d, t)) {
        let Some(r) = d.await_ms.filter(|_| d.util >= UTIL_CLEAR) else { continue };
        let reference = reference(d, t);
        let depth = d.attrs.nr_requests.map_or(f64::INFINITY, f64::from);
        let room = (d.aqu_sz < SHORT_QUEUE || r <= CALM * reference.ms) && d.aqu_sz < depth;
        if !room || r >= WAITING * reference.ms {
            continue;
        }
        if d.util >= UTIL {
            out.fire(subject(d), fire(w, d, r, reference));
        } else {
            out.linger(subject(d));
        }
    }
}

fn fire(w: &Window<'_>, d: &DiskFigures, r: f64, reference: Reference) -> Fire {
    let calm_ms = reference.ms;
    let mut f = Fire::new(
        Severity::Info,
        format!(
            "{} shows {:.0}% util but has room: {} IOPS, {} ms, queue {:.1}",
            title(d),
            d.util_shown(),
            rate(d.iops()),
            ms(r),
            d.aqu_sz
        ),
    );
    let text = format!("util {:.1}% only means that some request was in flight", d.util_shown());
    f.evidence.push(Evidence::new("util", d.util_shown(), "%", text).over(UTIL));
    let text = format!("queue {:.2} (sum of request times / time)", d.aqu_sz);
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(SHORT_QUEUE));
    let text = against(r, reference);
    f.evidence.push(Evidence::new("await", r, "ms", text).over(WAITING * calm_ms));
    if let Some(l) = measured::disk(w, d) {
        f.evidence.extend(l.evidence(d));
    }
    let mut rates: Vec<f64> =
        w.recent_disk(d.id, 60).filter(|p| p.util >= UTIL).map(DiskFigures::iops).collect();
    rates.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (rates.first(), rates.last())
        && *most >= 1.1 * *least
    {
        let text = format!("{} to {} IOPS at that util", rate(*least), rate(*most));
        f.evidence.push(Evidence::new("iops", *most, "/s", text));
    }
    if let Some(n) = d.attrs.nr_requests {
        let slots = f64::from(n) * f64::from(d.attrs.hw_queues.unwrap_or(1).max(1));
        let left = (slots - d.aqu_sz).max(0.0);
        let text = format!("{left:.0} of {slots:.0} request slots are free");
        f.evidence.push(Evidence::new("nr_requests", left, "", text));
    }
    if d.queue_counters_disagree() {
        let text = format!(
            "field 11 gives {:.2}: broken on this kernel; the queue comes from request times",
            d.aqu_sz_weighted
        );
        f.evidence.push(Evidence::new("weighted", d.aqu_sz_weighted, "", text));
    }
    let because = format!("await {} ms is below {} times {} ms", ms(r), WAITING, ms(calm_ms));
    f.ruled_out.push(RuledOut::new("disk-capped-cloud", because));
    not_measured(&mut f, reference);
    if !reference.measured {
        f.confidence = Confidence::Suspected;
    }
    f.next.push(format!("iostat -x 1 {}", sh(&d.name)));
    f.next.push("pidstat -d 1".to_owned());
    f
}

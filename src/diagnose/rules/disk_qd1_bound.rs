//! `disk-qd1-bound`: queue depth 1: IOPS are limited to 1/latency.

use super::common::by_disk;
use super::common::disks::{Reference, against, leaves, not_measured, reference, subject, title};
use super::common::text::{ms, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// util, %.
const UTIL: f64 = 50.0;
/// Queue of a single caller.
const QUEUE: (f64, f64) = (0.5, 1.2);
/// How far IOPS * await may differ from the queue; flushes account for the rest.
const LITTLE: f64 = 0.2;
/// Latency relative to an empty queue from which something delays each request.
const WAITING: f64 = 3.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-qd1-bound"),
    title: "queue depth 1: IOPS are limited to 1/latency",
    condition: "util 50% or more, queue 0.5 to 1.2, and IOPS times await matches that queue, \
        for 8 of 10 s. Does not fire when await is 3 times that of an empty queue or more.",
    look_alikes: "A limit that delays each request of one caller gives a queue of 1 too, but \
        await is far above normal: disk-slow-device, disk-capped-cloud. Commits that wait for \
        flushes: fs-flush-bound.",
    remedy: "The disk can do more in parallel. Issue requests concurrently or asynchronously: \
        more threads, io_uring, read-ahead, larger commit batches (innodb_parallel_read_threads \
        1 to 16: 3986 to 47901 reads/s).",
    sources: "Field: a cloud volume at depth 1 shows 100% util at a queue of 0.96 and 0.16 ms. \
        Little's law: queue = IOPS * await.",
    hold: Hold::of(8, 10),
    needs_time: Duration::from_secs(10),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Annotation, needs: &[CollectorId::Disks], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for d in leaves(w) {
        let Some(r) = d.await_ms else { continue };
        let reference = reference(d, t);
        let little = d.iops() * r / 1000.0;
        let one = (QUEUE.0..=QUEUE.1).contains(&d.aqu_sz)
            && (little - d.aqu_sz).abs() <= LITTLE * d.aqu_sz;
        if one && d.util >= UTIL && r < WAITING * reference.ms {
            out.fire(subject(d), fire(w, d, r, reference));
        }
    }
}

fn fire(w: &Window<'_>, d: &DiskFigures, r: f64, reference: Reference) -> Fire {
    let mut f = Fire::new(
        Severity::Info,
        format!(
            "{} serves one request at a time: {} IOPS = 1 / {} ms",
            title(d),
            rate(d.iops()),
            ms(r)
        ),
    );
    let text = format!("queue {:.2} = {} IOPS * {} ms", d.aqu_sz, rate(d.iops()), ms(r));
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(QUEUE.0));
    let text = format!("util {:.0}%", d.util_shown());
    f.evidence.push(Evidence::new("util", d.util_shown(), "%", text).over(UTIL));
    f.evidence.push(Evidence::new("await", r, "ms", against(r, reference)));
    let because = format!("await {} ms is below {WAITING:.0} times {} ms", ms(r), ms(reference.ms));
    f.ruled_out.push(RuledOut::new("disk-capped-cloud", because.clone()));
    f.ruled_out.push(RuledOut::new("disk-slow-device", because));
    not_measured(&mut f, reference);
    if !reference.measured {
        f.confidence = Confidence::Suspected;
    }
    by_disk::blame(w, d, &mut f);
    // The caller waits for each request itself: where it does shows what to make parallel.
    if let Some(pid) = f.by.first().and_then(|c| c.who.pid()) {
        f.next.push(format!("stallscope why {pid}"));
    }
    by_disk::next(w, &mut f);
    f.next.push(format!("iostat -x 1 {}", sh(&d.name)));
    f
}

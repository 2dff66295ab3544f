//! `disk-hdd-saturated`: a spinning disk is saturated: seek-bound.

use super::common::by_disk;
use super::common::disks::{leaves, spins, subject, swing, title};
use super::common::text::{ms, rate, sh};
use super::disk_writeback_storm;
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// Queue, await in ms, util in %.
const QUEUE: f64 = 4.0;
pub(super) const AWAIT: f64 = 20.0;
const UTIL: f64 = 95.0;
/// await from which it is critical, ms.
const CRIT: f64 = 200.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;
/// Random requests per second that a disk arm can do.
pub(super) const RANDOM: (f64, f64) = (75.0, 200.0);

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-hdd-saturated"),
    title: "a spinning disk is saturated: seek-bound",
    condition: "A disk known to spin (virtual disks report a made-up flag) with queue 4 or \
        more, await 20 ms or more and util 95% or more, for 5 of 8 s. Critical from 200 ms. \
        Clears below 0.7 of these.",
    look_alikes: "Large writes only, while dirty pages are flushed: disk-writeback-storm. A \
        provider limit: throughput hardly varies, on a virtual disk: disk-capped-cloud. One \
        synchronous caller keeps the queue near 1.",
    remedy: "Find out what does random I/O and reduce seeks: a cache, larger requests, \
        mq-deadline, a separate disk, or flash. The processes named are those that move most \
        bytes; a seek costs the same for few of them (biotop counts requests). A disk arm does \
        75 to 200 random requests per second, whatever the queue.",
    sources: "Field: a 7200 rpm disk at depth 10: 505 IOPS, 21.5 ms, latency varying by a \
        coefficient of 1.2; under random writes 161 to 302 IOPS at 272 to 339 ms.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Disks],
    explains: &[Explains::new("task-hung", Scope::DiskWaits)],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for d in leaves(w).filter(|d| spins(d, t)) {
        let Some(r) = d.await_ms else { continue };
        if !beyond(d, CLEAR) || disk_writeback_storm::storm(w, d, t).is_some() {
            continue;
        }
        if saturated(d) {
            out.fire(subject(d), fire(w, d, r));
        } else {
            out.linger(subject(d));
        }
    }
}

/// Is this disk saturated, provided that it spins?
pub(super) fn saturated(d: &DiskFigures) -> bool {
    beyond(d, 1.0)
}

fn beyond(d: &DiskFigures, part: f64) -> bool {
    d.aqu_sz >= part * QUEUE
        && d.await_ms.is_some_and(|r| r >= part * AWAIT)
        && d.util >= part * UTIL
}

fn fire(w: &Window<'_>, d: &DiskFigures, r: f64) -> Fire {
    let severity = if r >= CRIT { Severity::Crit } else { Severity::Warn };
    let mut f = Fire::new(
        severity,
        format!(
            "{} is saturated: {} IOPS, queue {:.1}, await {} ms",
            title(d),
            rate(d.iops()),
            d.aqu_sz,
            ms(r)
        ),
    );
    let at = if severity == Severity::Crit { CRIT } else { AWAIT };
    let text = format!("await {} ms; a seek takes about 10", ms(r));
    f.evidence.push(Evidence::new("await", r, "ms", text).over(at));
    let text = format!("queue {:.1} = {} IOPS * {} ms", d.aqu_sz, rate(d.iops()), ms(r));
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(QUEUE));
    let text = format!("util {:.0}%", d.util_shown());
    f.evidence.push(Evidence::new("util", d.util_shown(), "%", text).over(UTIL));
    let text = format!(
        "{} IOPS; a disk arm does {:.0} to {:.0} random ones",
        rate(d.iops()),
        RANDOM.0,
        RANDOM.1
    );
    f.evidence.push(Evidence::new("iops", d.iops(), "/s", text));
    if let (Some(kb), Some(merged)) = (d.areq_kb(), d.merged_pct()) {
        // Adjacent requests are merged, which indicates a sequential load.
        let kind = if merged >= 30.0 || kb >= 128.0 { "mostly sequential" } else { "random" };
        let text = format!("{kb:.0} kB each, {merged:.0}% merged: {kind}");
        f.evidence.push(Evidence::new("areq-sz", kb, "kB", text));
    }
    let reads = 100.0 * d.r_s / d.iops().max(f64::MIN_POSITIVE);
    let because = match d.wareq_kb {
        Some(kb) => format!("{reads:.0}% reads, writes of {kb:.0} kB"),
        None => format!("{reads:.0}% reads"),
    };
    f.ruled_out.push(RuledOut::new("disk-writeback-storm", because));
    let because = match swing(w, d, CLEAR * QUEUE) {
        Some(cv) => format!("it spins, and IOPS vary by {:.0}%", 100.0 * cv),
        None => "it spins".to_owned(),
    };
    f.ruled_out.push(RuledOut::new("disk-capped-cloud", because));
    by_disk::blame(w, d, &mut f);
    by_disk::next(w, &mut f);
    f.next.push(format!("iostat -x 1 {}", sh(&d.name)));
    f.next.push(format!("cat /sys/block/{}/queue/scheduler", sh(&d.name)));
    f
}

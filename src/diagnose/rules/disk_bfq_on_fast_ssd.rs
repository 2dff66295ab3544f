//! `disk-bfq-on-fast-ssd`: the bfq scheduler on flash.

use super::common::disks::{lately, leaves, local_flash, spins, subject, title};
use super::common::lasting::lasting;
use super::common::measured::{self, DiskLatency};
use super::common::text::{ms, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// Queue from which the scheduler costs throughput ...
const QUEUE: f64 = 4.0;
/// ... if it lasts this long within the time below.
const NEED: Duration = Duration::from_secs(5);
const OF: Duration = Duration::from_secs(8);
/// Fraction of the time on the device, by eBPF, from which requests do not wait in the scheduler.
const AT_DEVICE: f64 = 0.9;
/// Seconds without load after which a warning ends, and after which it is info again.
const OVER: u32 = 16;
const INFO: u32 = 40;
/// No spinning disk has a latency this low (ms) or IOPS this high.
const FAST_MS: f64 = 1.0;
const FAST_IOPS: f64 = 2000.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-bfq-on-fast-ssd"),
    title: "the bfq scheduler on fast flash costs throughput",
    condition: "bfq is the scheduler of a disk that does not spin: its class says so, or it \
        responds within 1 ms or does 2000 IOPS. Info while idle. A warning when the queue is 4 \
        or more for 5 of 8 s; only suspected when eBPF finds 90% of the time on the device.",
    look_alikes: "Set on purpose: blkio.weight of cgroup v1 and io.bfq.weight need bfq. \
        Spinning disks benefit from it.",
    remedy: "echo none > /sys/block/DEV/queue/scheduler (or mq-deadline); make it permanent \
        with a udev rule. If the weights are needed: echo 0 > queue/iosched/slice_idle.",
    sources: "Field: four NVMe disks with bfq reached 20 to 40% of the IOPS of none, with drops \
        to 0. Measured on a loop device: 30.5k against 38.1k writes/s at depth 8.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Disks],
    explains: &[Explains::new("disk-flash-saturated", Scope::Same)],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for d in leaves(w).filter(|d| d.attrs.scheduler.as_deref() == Some("bfq")) {
        let Some(fast) = fast(w, d, t) else { continue };
        let loaded = |d: &DiskFigures| d.aqu_sz >= QUEUE;
        let busy = |m: &crate::metrics::Derived| m.disk(d.id).is_some_and(loaded);
        let latency = measured::disk(w, d);
        let latency = latency.as_ref();
        let lasts = t.single_sample || lasting(w, OF, busy).0 >= NEED;
        if loaded(d) && lasts {
            out.fire(subject(d), fire(d, &fast, Severity::Warn, latency));
        } else if lately(w, d, OVER).any(loaded) {
            out.linger(subject(d));
        } else if !lately(w, d, INFO).any(loaded) {
            out.fire(subject(d), fire(d, &fast, Severity::Info, latency));
        }
    }
}

/// How it is known that the disk does not spin.
fn fast(w: &Window<'_>, d: &DiskFigures, t: &Thresholds) -> Option<String> {
    if spins(d, t) {
        return None;
    }
    if local_flash(d) || d.attrs.rotational == Some(false) {
        return Some("the device reports that it does not spin".to_owned());
    }
    if let Some(b) = d.baseline_ms().filter(|b| *b < FAST_MS) {
        return Some(format!("it responds within {} ms", ms(b)));
    }
    let most = lately(w, d, INFO).map(DiskFigures::iops).fold(0.0, f64::max);
    (most >= FAST_IOPS).then(|| format!("it did {} IOPS", rate(most)))
}

fn fire(d: &DiskFigures, fast: &str, severity: Severity, latency: Option<&DiskLatency>) -> Fire {
    let summary = match severity {
        Severity::Info => format!("{} is flash behind the bfq scheduler", title(d)),
        _ => format!(
            "{} is flash, and bfq holds it back: {} IOPS at a queue of {:.1}",
            title(d),
            rate(d.iops()),
            d.aqu_sz
        ),
    };
    let mut f = Fire::new(severity, summary);
    f.evidence.push(Evidence::text("scheduler", "scheduler [bfq]"));
    f.evidence.push(Evidence::text("rotational", fast.to_owned()));
    let text = format!("queue {:.1}, {} IOPS", d.aqu_sz, rate(d.iops()));
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(QUEUE));
    if let Some(r) = d.await_ms {
        f.evidence.push(Evidence::new("await", r, "ms", format!("await {} ms", ms(r))));
    }
    if let Some(l) = latency {
        f.evidence.extend(l.evidence(d));
    }
    if severity > Severity::Info {
        // The cost in locks and dispatch shows only in a comparison.
        match latency.and_then(DiskLatency::device_share) {
            Some(share) if share >= AT_DEVICE => {
                f.confidence = Confidence::Suspected;
                let why = "what bfq costs: requests do not wait in it; compare with none";
                f.missing.push(why.to_owned());
            }
            Some(_) => {}
            None => f.missing.push("how long bfq holds requests back (needs eBPF)".to_owned()),
        }
    }
    f.ruled_out.push(RuledOut::new("spinning disk", fast.to_owned()));
    f.missing.push("whether cgroup weights are in use: they need bfq".to_owned());
    let name = sh(&d.name);
    f.next.push(format!("echo none > /sys/block/{name}/queue/scheduler"));
    f.next.push(format!(
        "cat /sys/block/{name}/queue/scheduler; grep -r --include='*bfq.weight' . /sys/fs/cgroup | head"
    ));
    f.next.push(format!("iostat -x 1 {name}"));
    f
}

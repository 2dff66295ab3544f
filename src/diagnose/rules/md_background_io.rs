//! `md-background-io`: an array's disks are busy with resync, rebuild or check.

use super::common::disks::{slaves, subject, title};
use super::common::text::{bytes, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// Bytes of the members relative to those of the array.
const TIMES: f64 = 5.0;
/// Member requests per array request that parity explains: a small write to raid6 reads three
/// blocks and writes three, and may be split in two.
const PARITY: f64 = 12.0;
/// Minimum member throughput, kB/s.
const LEAST_KB: f64 = 10.0 * 1024.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("md-background-io"),
    title: "an array's disks are busy with resync, rebuild or check",
    condition: "The members of an md array move 5 times the bytes of the array (and 10 MiB/s), \
        with 12 or more requests for each request of the array, for 20 of 30 s; or sync_action \
        is neither idle nor frozen.",
    look_alikes: "Small writes to raid5 and raid6 read and write parity: up to 12 member \
        requests per array request are put down to that. Other volumes on the same disks add \
        I/O of their own: in that case only sync_action counts; check the disks' holders.",
    remedy: "cat /proc/mdstat. Slow it down while users wait: sync_speed_max (kB/s), or for a \
        check echo idle > sync_action; it resumes later. After a failure let it finish: the \
        array has no redundancy until then.",
    sources: "Field: a raid6 that wrote 1.8 MB/s while its four members read 577 MB/s and wrote \
        201 MB/s.",
    hold: Hold::of(20, 30),
    needs_time: Duration::from_secs(22),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Disks],
    explains: &[
        Explains::new("disk-hdd-saturated", Scope::Stack),
        Explains::new("disk-flash-saturated", Scope::Stack),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let all = w.derived.disks.iter().flat_map(|d| d.iter());
    for d in all.filter(|d| d.attrs.md.is_some() || d.name.starts_with("md")) {
        let below = slaves(w, d);
        if below.is_empty() {
            continue;
        }
        let m = Members::of(&below);
        let action = d.attrs.md.as_ref().and_then(|m| m.sync_action.as_deref());
        let action = action.filter(|a| !matches!(*a, "idle" | "frozen" | "none"));
        // Disks that also carry other volumes do I/O for those too.
        let shared = below.iter().any(|s| s.attrs.holders.len() > 1);
        let more = |part: f64| {
            !shared
                && m.kb_s() >= (part * TIMES * d.kb_s()).max(part * LEAST_KB)
                && m.iops >= part * PARITY * d.iops()
        };
        if action.is_some() || more(1.0) {
            out.fire(subject(d), fire(d, &below, &m, action));
        } else if more(CLEAR) {
            out.linger(subject(d));
        }
    }
}

/// Totals of the members.
struct Members {
    rkb_s: f64,
    wkb_s: f64,
    iops: f64,
}

impl Members {
    fn of(disks: &[&DiskFigures]) -> Self {
        let sum = |f: fn(&DiskFigures) -> f64| disks.iter().map(|d| f(d)).sum();
        Self { rkb_s: sum(|d| d.rkb_s), wkb_s: sum(|d| d.wkb_s), iops: sum(DiskFigures::iops) }
    }
    fn kb_s(&self) -> f64 {
        self.rkb_s + self.wkb_s
    }
}

fn fire(d: &DiskFigures, below: &[&DiskFigures], m: &Members, action: Option<&str>) -> Fire {
    let size = |kb: f64| bytes((kb * 1024.0) as u64);
    let why = action.map_or("does background I/O".to_owned(), |a| format!("is in {a}"));
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "{} {why}: its {} members move {}/s, the array {}/s",
            title(d),
            below.len(),
            size(m.kb_s()),
            size(d.kb_s())
        ),
    );
    let text = format!("members read {}/s and write {}/s", size(m.rkb_s), size(m.wkb_s));
    f.evidence.push(Evidence::new("members", m.kb_s(), "kB/s", text).over(TIMES * d.kb_s()));
    let text = format!(
        "the array: {} reads/s, {} writes/s, {}/s",
        rate(d.r_s),
        rate(d.w_s),
        size(d.kb_s())
    );
    f.evidence.push(Evidence::new("array", d.kb_s(), "kB/s", text));
    let md = d.attrs.md.clone().unwrap_or_default();
    match &md.sync_action {
        Some(a) => {
            let speed =
                md.sync_speed_kb.map_or(String::new(), |kb| format!(" at {}/s", size(kb as f64)));
            f.evidence.push(Evidence::text("sync_action", format!("sync_action {a}{speed}")));
        }
        None => f.missing.push("what it is doing (no md/sync_action in sysfs)".to_owned()),
    }
    if let Some(n) = md.degraded.filter(|n| *n > 0) {
        let text = format!("degraded: {n} members are missing");
        f.evidence.push(Evidence::new("degraded", n.into(), "", text));
    }
    if let Some(s) = below.iter().max_by(|a, b| a.util.total_cmp(&b.util)) {
        let text = format!("{}: queue {:.1}, util {:.0}%", s.name, s.aqu_sz, s.util_shown());
        f.evidence.push(Evidence::new("util", s.util_shown(), "%", text));
        if s.queue_counters_disagree() {
            let text = format!(
                "field 11 of {} gives {:.2}: broken on this kernel; the queue comes from request \
                 times",
                s.name, s.aqu_sz_weighted
            );
            f.evidence.push(Evidence::new("weighted", s.aqu_sz_weighted, "", text));
        }
    }
    let because = match action {
        Some(a) => format!("sync_action {a}"),
        None => format!(
            "{:.0} member requests per array request, more than {PARITY:.0}",
            m.iops / d.iops().max(1.0)
        ),
    };
    f.ruled_out.push(RuledOut::new("parity of small writes", because));
    f.next.push("cat /proc/mdstat".to_owned());
    f.next.push(format!("grep . /sys/block/{}/md/sync_{{action,speed,speed_max}}", sh(&d.name)));
    f.next.push("sysctl dev.raid.speed_limit_max".to_owned());
    f
}

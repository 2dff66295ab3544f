//! `disk-saturated-or-capped`: requests queue up on a disk of unknown kind, in pasted text.

use super::common::disks::{
    Reference, against, leaves, not_measured, reference, spins, subject, swing, title, untimed,
};
use super::common::text::{ms, rate, sh};
use super::disk_hdd_saturated::{AWAIT, RANDOM};
use super::{
    disk_capped_cloud, disk_flash_saturated, disk_hdd_saturated, disk_slow_device,
    disk_writeback_storm,
};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// util, %.
const UTIL: f64 = 90.0;
/// Queue that flash or a volume would drain if it could: 16. A client at depth 16 stays just
/// under that.
const DEEP: f64 = 15.2;
/// Latency relative to an empty queue.
const WAITING: f64 = 3.0;
/// If that is unknown, ms: no volume and no flash takes this long with an empty queue.
const LONG: f64 = 1.0;
/// Queue that a spinning disk cannot drain: 4.
const QUEUE: f64 = 3.8;
/// A mean latency that is bad even without a queue, ms, and the minimum number of requests for it.
const MEAN: f64 = 100.0;
const LEAST: f64 = 10.0;
/// Allowance for the transfer of large requests: 50 MB/s.
const MS_PER_KB: f64 = 0.02;
/// A limit keeps IOPS flatter than this.
const FLAT: f64 = 0.05;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-saturated-or-capped"),
    title: "in pasted text, requests queue up on a disk: saturated or capped, the text does not \
        say",
    condition: "Pasted text only: live, the other disk rules have time to find out which it is. \
        A disk that is known neither to spin nor to be local flash, with util 90% or more, and \
        either queue 16 (15.2) or more with await at least 3 times that of an empty queue (1 ms \
        if that was not seen), or queue 4 (3.8) or more with await 20 ms or more. Or any disk \
        whose reads or writes (10 or more) take 100 ms or more on average, plus 20 ms per MB of \
        request size, with or without a run time. Does not fire when another rule knows the \
        cause. Always suspected.",
    look_alikes: "A limit keeps throughput flat while the queue changes: disk-capped-cloud. A \
        disk arm does 75 to 200 random requests per second: disk-hdd-saturated, once the disk \
        is known to spin. Local flash: disk-flash-saturated. 100% util at normal latency leaves \
        room: disk-util-pinned-not-saturated. A flush of dirty pages: disk-writeback-storm.",
    remedy: "Find out which it is. lsblk -d -o NAME,ROTA,TRAN,MODEL identifies the disk: paste \
        it with the figures. iostat -x 1 under two different loads shows whether throughput \
        stays the same; if so, it is a limit. Then raise the limit or relieve the disk: pidstat \
        -d shows what uses it.",
    sources: "The thresholds of disk-hdd-saturated and disk-flash-saturated. Measured with fio \
        3.33 on a virtual disk under other load: queue 95, 74 ms per request, util 91%, \
        throughput not flat. Little's law: queue = IOPS * await.",
    hold: Hold::events(20),
    needs_time: Duration::from_secs(1),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Disks],
    explains: &[
        Explains::new("load-without-cpu", Scope::Host),
        Explains::new("task-hung", Scope::DiskWaits),
    ],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    if !t.single_sample {
        return;
    }
    for d in leaves(w) {
        let (reference, slow) = (reference(d, t), slower(d));
        if slow.is_none() && !piles_up(d, t, reference) {
            continue;
        }
        if known_better(w, d, t) {
            out.clear(subject(d));
        } else {
            out.fire(subject(d), fire(w, d, t, reference, slow));
        }
    }
    for d in untimed(w) {
        if let Some(slow) = slower(d) {
            out.fire(subject(d), of_means(d, t, slow));
        }
    }
}

/// Is the kind of disk known, so that another rule covers it?
fn known(d: &DiskFigures, t: &Thresholds) -> bool {
    spins(d, t) || disk_flash_saturated::flash(d, t)
}

fn piles_up(d: &DiskFigures, t: &Thresholds, reference: Reference) -> bool {
    let Some(r) = d.await_ms.filter(|_| !known(d, t) && d.util >= UTIL) else { return false };
    let deep = d.aqu_sz >= DEEP && r >= waiting(reference);
    deep || (d.aqu_sz >= QUEUE && r >= AWAIT)
}

/// The latency from which requests count as waiting, ms.
fn waiting(reference: Reference) -> f64 {
    if reference.measured { WAITING * reference.ms } else { LONG }
}

/// Reads or writes that are slow, whatever the reason.
#[derive(Clone, Copy)]
struct Slow {
    what: &'static str,
    field: &'static str,
    each: f64,
    /// The threshold, ms.
    at: f64,
}

/// The direction whose mean latency is over the threshold.
fn slower(d: &DiskFigures) -> Option<Slow> {
    let seconds = d.dt.as_secs_f64();
    let (reads, writes) = match d.untimed {
        Some(n) => (n.reads as f64, n.writes as f64),
        None => (d.r_s * seconds, d.w_s * seconds),
    };
    let judge = |what, field, n: f64, each: Option<f64>, kb: Option<f64>| {
        let (each, at) = (each?, MEAN + MS_PER_KB * kb.unwrap_or(0.0));
        (n >= LEAST && each >= at).then_some(Slow { what, field, each, at })
    };
    let reads = judge("reads", "r_await", reads, d.r_await, d.rareq_kb);
    let writes = judge("writes", "w_await", writes, d.w_await, d.wareq_kb);
    reads.into_iter().chain(writes).max_by(|a, b| a.each.total_cmp(&b.each))
}

/// Does another rule know the cause?
fn known_better(w: &Window<'_>, d: &DiskFigures, t: &Thresholds) -> bool {
    (spins(d, t) && disk_hdd_saturated::saturated(d))
        || disk_flash_saturated::saturated(w, d, t)
        || disk_writeback_storm::storm(w, d, t).is_some()
        || disk_capped_cloud::capped(w, d, t)
        || disk_slow_device::is_slow(d, t)
}

fn fire(
    w: &Window<'_>,
    d: &DiskFigures,
    t: &Thresholds,
    reference: Reference,
    slow: Option<Slow>,
) -> Fire {
    let r = d.await_ms.unwrap_or(0.0);
    let summary = if d.aqu_sz >= QUEUE {
        format!(
            "{} is saturated or capped: a queue of {:.1}, {} ms each, at {} IOPS",
            title(d),
            d.aqu_sz,
            ms(r),
            rate(d.iops())
        )
    } else {
        let (what, each) = slow.map_or(("requests", r), |s| (s.what, s.each));
        let queue = d.aqu_sz;
        format!(
            "{} is saturated, capped or failing: {what} take {} ms with a queue of only {queue:.1}",
            title(d),
            ms(each)
        )
    };
    let mut f = suspicion(summary);
    let text = format!("queue {:.1} = {} IOPS * {} ms", d.aqu_sz, rate(d.iops()), ms(r));
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text));
    let text = if reference.measured {
        against(r, reference)
    } else {
        format!(
            "await {} ms; with an empty queue, flash or a volume takes under 1 ms, a disk arm \
             about 10",
            ms(r)
        )
    };
    f.evidence.push(Evidence::new("await", r, "ms", text).over(waiting(reference)));
    if let Some(s) = slow.filter(|s| s.each >= 1.2 * r) {
        mean(&mut f, s);
    }
    let text = format!("util {:.0}%", d.util_shown());
    f.evidence.push(Evidence::new("util", d.util_shown(), "%", text));
    let text = format!(
        "{} IOPS; a disk arm does {:.0} to {:.0} random ones",
        rate(d.iops()),
        RANDOM.0,
        RANDOM.1
    );
    f.evidence.push(Evidence::new("iops", d.iops(), "/s", text));
    match swing(w, d, QUEUE) {
        Some(cv) => {
            let text = format!(
                "IOPS vary by {:.0}%; under an IOPS limit, by {:.0}% at most",
                100.0 * cv,
                100.0 * FLAT
            );
            f.evidence.push(Evidence::new("variation", 100.0 * cv, "%", text));
            f.missing
                .push("whether a bandwidth limit, or one with bursts, sets the pace".to_owned());
        }
        None => f.missing.push(FLATNESS.to_owned()),
    }
    let because = format!("await {} ms at a queue of {:.1}", ms(r), d.aqu_sz);
    f.ruled_out.push(RuledOut::new("disk-util-pinned-not-saturated", because));
    let because = format!("{} requests/s complete", rate(d.iops()));
    f.ruled_out.push(RuledOut::new("disk-hung", because));
    not_measured(&mut f, reference);
    which(&mut f, d, t);
    f
}

/// From totals without a run time: only a mean is available.
fn of_means(d: &DiskFigures, t: &Thresholds, slow: Slow) -> Fire {
    let mut f = suspicion(format!(
        "{} is saturated, capped or failing: {} take {} ms on average",
        title(d),
        slow.what,
        ms(slow.each)
    ));
    mean(&mut f, slow);
    if d.util > 0.0 {
        let text = format!("util {:.0}%", d.util_shown());
        f.evidence.push(Evidence::new("util", d.util_shown(), "%", text));
    }
    let done = d.untimed.map_or(0, |n| n.reads.saturating_add(n.writes));
    f.ruled_out.push(RuledOut::new("disk-hung", format!("{done} requests were completed")));
    f.missing.push("rate and queue (the text has no run time)".to_owned());
    f.missing.push(FLATNESS.to_owned());
    which(&mut f, d, t);
    f
}

const FLATNESS: &str =
    "whether throughput stays the same while the queue changes: then it is a limit";

fn suspicion(summary: String) -> Fire {
    let mut f = Fire::new(Severity::Warn, summary);
    f.confidence = Confidence::Suspected;
    f
}

fn mean(f: &mut Fire, s: Slow) {
    let text = format!("{} {} ms on average (time / requests)", s.field, ms(s.each));
    f.evidence.push(Evidence::new(s.field, s.each, "ms", text).over(s.at));
}

/// Adds what would show which of these it is.
fn which(f: &mut Fire, d: &DiskFigures, t: &Thresholds) {
    if !known(d, t) {
        f.missing
            .push(format!("what {} is: a spinning disk, flash, or a volume with a limit", d.name));
    }
    let name = sh(&d.name);
    f.next.push(format!("lsblk -d -o NAME,ROTA,TRAN,VENDOR,MODEL /dev/{name}"));
    f.next.push(format!("iostat -x 1 15 {name}"));
    f.next.push("pidstat -d 1".to_owned());
    f.next.push("dmesg -T | tail -50".to_owned());
}

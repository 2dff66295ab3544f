//! `disk-slow-device`: requests are far slower than before, with no queue to explain it.

use super::common::disks::{leaves, spins, subject, title};
use super::common::text::{ms, rate, sh};
use super::disk_capped_cloud::capped;
use crate::diagnose::rules::prelude::*;
use crate::metrics::baseline::Level;
use crate::metrics::disks::DiskFigures;

/// Latency relative to the disk's own of the last ten minutes.
const TIMES: f64 = 10.0;
/// A queue below this does not explain it: 4. A client at depth 4 stays just under that.
const QUEUE: f64 = 3.8;
/// Minimum number of requests per second for a mean.
const LEAST: f64 = 5.0;
/// Latency below which it does no harm, ms: other disks, spinning disks.
const FLOOR: (f64, f64) = (5.0, 50.0);
/// Allowance for the transfer of large requests: 50 MB/s.
const MS_PER_KB: f64 = 0.02;
/// Minimum number of samples for a baseline.
const PAST: usize = 5;
/// Flushes that take this fraction of a write's latency explain it.
const FLUSH: f64 = 0.3;
/// An active finding clears below this fraction of the threshold.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-slow-device"),
    title: "requests take ten times their normal latency with no queue to explain it",
    condition: "Reads or writes (5 or more per second) take 10 times their median of the last \
        ten minutes at a short queue, plus 20 ms per MB of request size, and at least 5 ms (50 \
        ms on a spinning disk), with the queue below 4 (3.8), for 5 of 8 s. Clears below 0.7 of \
        these. After ten minutes the new latency becomes the normal one.",
    look_alikes: "A queue explains latency: disk-capped-cloud, disk-hdd-saturated, \
        disk-flash-saturated. Writes that wait for flushes: fs-flush-bound. Larger requests \
        take longer; the threshold allows for that. A VM that is short of CPU time sees slow \
        disks too: check steal.",
    remedy: "Check smartctl -a or nvme smart-log for errors and wear, dmesg for resets and \
        retries, the array for a rebuild; on a virtual disk, the provider's status page. A \
        limit of very few IOPS with one caller cannot be told apart from here.",
    sources: "Measured with a limit of 20 IOPS below a loop device and one synchronous writer: \
        50 ms at a queue of 1, against 0.1 ms before.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(12),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Disks], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for d in leaves(w).filter(|d| d.aqu_sz < QUEUE) {
        let Some(s) = slow(d, t) else { continue };
        if s.now < CLEAR * s.at || capped(w, d, t) {
            continue;
        }
        if s.now >= s.at {
            out.fire(subject(d), fire(w, d, &s));
        } else {
            out.linger(subject(d));
        }
    }
}

/// Is this disk slow without a queue?
pub(super) fn is_slow(d: &DiskFigures, t: &Thresholds) -> bool {
    d.aqu_sz < QUEUE && slow(d, t).is_some_and(|s| s.now >= s.at)
}

/// The slower direction, with its normal latency.
struct Slow {
    what: &'static str,
    field: &'static str,
    now: f64,
    normal: Level,
    /// The threshold, ms.
    at: f64,
    size_kb: f64,
}

fn slow(d: &DiskFigures, t: &Thresholds) -> Option<Slow> {
    let floor = if spins(d, t) { FLOOR.1 } else { FLOOR.0 };
    let judge =
        |what, field, now: Option<f64>, rate: f64, normal: Option<Level>, kb: Option<f64>| {
            let (now, normal) = (now?, normal.filter(|l| l.samples >= PAST)?);
            let size_kb = kb.unwrap_or(0.0);
            let at = (TIMES * normal.median + MS_PER_KB * size_kb).max(floor);
            (rate >= LEAST).then_some(Slow { what, field, now, normal, at, size_kb })
        };
    let flushes = d.f_s.is_some_and(|n| n > 0.0)
        && d.f_await.zip(d.w_await).is_some_and(|(f, w)| f >= FLUSH * w);
    let reads = judge("reads", "r_await", d.r_await, d.r_s, d.r_baseline, d.rareq_kb);
    let writes =
        judge("writes", "w_await", d.w_await, d.w_s, d.w_baseline, d.wareq_kb).filter(|_| !flushes);
    let by = |s: &Slow| s.now / s.at;
    reads.into_iter().chain(writes).max_by(|a, b| by(a).total_cmp(&by(b)))
}

fn fire(w: &Window<'_>, d: &DiskFigures, s: &Slow) -> Fire {
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "{} is slow: {} take {} ms instead of {} ms, with a queue of only {:.1}",
            title(d),
            s.what,
            ms(s.now),
            ms(s.normal.median),
            d.aqu_sz
        ),
    );
    let text = format!(
        "{} {} ms; {} ms in the last 10 min (median of {} samples, deviation {} ms)",
        s.field,
        ms(s.now),
        ms(s.normal.median),
        s.normal.samples,
        ms(s.normal.mad)
    );
    f.evidence.push(Evidence::new(s.field, s.now, "ms", text).over(s.at));
    let text = format!("queue {:.2}, {} IOPS", d.aqu_sz, rate(d.iops()));
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(QUEUE));
    let text =
        format!("{:.0} kB each, for which {:.1} ms are allowed", s.size_kb, MS_PER_KB * s.size_kb);
    f.evidence.push(Evidence::new("areq-sz", s.size_kb, "kB", text));
    let because = format!("queue {:.1} below 4", d.aqu_sz);
    f.ruled_out.push(RuledOut::new("disk-capped-cloud", because));
    match (d.f_s, d.f_await) {
        (Some(n), Some(each)) => {
            let because = format!("{} flushes/s of {} ms", rate(n), ms(each));
            f.ruled_out.push(RuledOut::new("fs-flush-bound", because));
        }
        (Some(_), None) => f.ruled_out.push(RuledOut::new("fs-flush-bound", "no flush")),
        (None, _) => {
            f.missing.push("whether flushes slow it down (counted since Linux 5.5)".to_owned());
        }
    }
    match w.derived.cpu.as_ref().and_then(|c| c.total).map(|t| t.steal) {
        Some(steal) if steal >= 5.0 => {
            let text = format!("steal {steal:.0}%: this VM does not get all of its CPU time");
            f.evidence.push(Evidence::new("steal", steal, "%", text));
        }
        Some(steal) => {
            f.ruled_out.push(RuledOut::new("cpu-steal", format!("steal {steal:.1}%")));
        }
        None => {}
    }
    let name = sh(&d.name);
    f.next.push("dmesg -T | tail -50".to_owned());
    if d.name.starts_with("nvme") {
        f.next.push(format!("nvme smart-log /dev/{name}"));
    } else {
        f.next.push(format!("smartctl -a /dev/{name}"));
    }
    f.next.push(format!("iostat -x 1 {name}"));
    f
}

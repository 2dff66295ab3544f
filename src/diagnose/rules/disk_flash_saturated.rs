//! `disk-flash-saturated`: local flash is saturated.

use super::common::by_disk;
use super::common::disks::{
    Reference, against, lately, leaves, local_flash, not_measured, reference, spins, subject,
    swing, swing_of, title,
};
use super::common::lasting::one_sample;
use super::common::text::{ms, rate, sh};
use super::disk_capped_cloud::capped;
use super::disk_writeback_storm;
use crate::diagnose::rules::prelude::*;
use crate::metrics::MIN_SPAN;
use crate::metrics::disks::DiskFigures;

/// Queue.
const QUEUE: f64 = 16.0;
/// Latency relative to an empty queue.
const WAITING: f64 = 3.0;
/// The queue is full for 8 of 10 s, with some slack for the length of a tick.
const FULL: Duration = Duration::from_millis(7750);
/// Throughput flatter than this is a limit, not a saturated device.
const SWINGS: f64 = 0.05;
/// The same for bytes per second: at a bandwidth limit, IOPS vary if request sizes do.
const FLAT_BYTES: f64 = 0.03;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-flash-saturated"),
    title: "local flash is saturated: requests queue up in front of it",
    condition: "A disk in this machine that does not spin: queue 16 or more, await at least 3 \
        times that of an empty queue, IOPS that vary by more than 5% and kB/s by more than 3% \
        over ten samples. For 8 of 10 s. Clears below 0.7 of these.",
    look_alikes: "Throughput that varies less is an imposed limit: a quota, an instance type. A \
        queue of large writes while dirty pages are flushed: disk-writeback-storm. 100% util \
        with a short queue or normal latency leaves room: disk-util-pinned-not-saturated.",
    remedy: "Spread the load or use a faster device. Flash that slowed down under an unchanged \
        load is short of free blocks: run fstrim, leave space unpartitioned, check wear. Many \
        flushes (f/s) cost more than the writes: use group commit.",
    sources: "Field: under load, SATA flash varies by a coefficient of 0.6 in latency, a capped \
        volume by 0.1 to 0.35; a local NVMe does 32k writes/s at a queue of 1.3 and is far from \
        saturated.",
    hold: Hold::events(20),
    needs_time: Duration::from_secs(10),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Disks], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for d in leaves(w).filter(|d| flash(d, t)) {
        let Some(r) = d.await_ms else { continue };
        let reference = reference(d, t);
        let beyond = |part: f64| {
            d.aqu_sz >= part * QUEUE && r >= (part * WAITING * reference.ms).max(reference.ms)
        };
        // Bytes may be flat while IOPS are not, if request sizes vary.
        let other = disk_writeback_storm::storm(w, d, t).is_some() || capped(w, d, t);
        if !beyond(CLEAR) || other {
            continue;
        }
        let cv = swing(w, d, QUEUE);
        let swings = swings(w, d, t, cv);
        // Both use the same ten seconds: one after the other they would take twenty.
        let lasts = t.single_sample || held(w, d, WAITING * reference.ms);
        if swings && lasts && beyond(1.0) {
            out.fire(subject(d), fire(w, d, r, reference, cv));
        } else {
            out.linger(subject(d));
        }
    }
}

/// Was the queue full, with requests of `slow` ms or more, for 8 of the last 10 s?
fn held(w: &Window<'_>, d: &DiskFigures, slow: f64) -> bool {
    let is_full = |p: &&DiskFigures| p.aqu_sz >= QUEUE && p.await_ms.is_some_and(|r| r >= slow);
    let each = w.host.interval.max(MIN_SPAN);
    let full = lately(w, d, 10).filter(is_full).map(|p| one_sample(each, p.dt));
    full.sum::<Duration>() >= FULL
}

/// Is it saturated in this tick, however long it has been so?
pub(super) fn saturated(w: &Window<'_>, d: &DiskFigures, t: &Thresholds) -> bool {
    let slow = WAITING * reference(d, t).ms;
    let full = flash(d, t) && d.aqu_sz >= QUEUE && d.await_ms.is_some_and(|r| r >= slow);
    full && swings(w, d, t, swing(w, d, QUEUE))
}

/// Does its throughput vary like that of a saturated device? `cv`: variation of its IOPS.
fn swings(w: &Window<'_>, d: &DiskFigures, t: &Thresholds, cv: Option<f64>) -> bool {
    let bytes = swing_of(w, d, QUEUE, DiskFigures::kb_s);
    let flat = bytes.is_some_and(|cv| cv <= FLAT_BYTES);
    cv.map_or(t.single_sample, |cv| cv > SWINGS && !flat)
}

/// A disk in this machine that does not spin.
pub(super) fn flash(d: &DiskFigures, t: &Thresholds) -> bool {
    !spins(d, t) && (local_flash(d) || d.attrs.rotational == Some(false))
}

fn fire(w: &Window<'_>, d: &DiskFigures, r: f64, reference: Reference, cv: Option<f64>) -> Fire {
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "{} is saturated: a queue of {:.1}, {} ms each, at {} IOPS",
            title(d),
            d.aqu_sz,
            ms(r),
            rate(d.iops())
        ),
    );
    let text = format!("queue {:.1} = {} IOPS * {} ms", d.aqu_sz, rate(d.iops()), ms(r));
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(QUEUE));
    let text = against(r, reference);
    f.evidence.push(Evidence::new("await", r, "ms", text).over(WAITING * reference.ms));
    let text = format!("{} reads/s, {} writes/s", rate(d.r_s), rate(d.w_s));
    f.evidence.push(Evidence::new("r/s", d.r_s, "/s", text));
    if let (Some(n), Some(each)) = (d.f_s.filter(|n| *n > 0.0), d.f_await) {
        let text = format!("{} flushes/s of {} ms", rate(n), ms(each));
        f.evidence.push(Evidence::new("f/s", n, "/s", text));
    }
    if let Some(pct) = cv.map(|cv| 100.0 * cv) {
        let text = format!("IOPS vary by {pct:.0}%");
        f.evidence.push(Evidence::new("variation", pct, "%", text).over(100.0 * SWINGS));
        let because = format!("IOPS vary by {pct:.0}%, more than {:.0}%", 100.0 * SWINGS);
        f.ruled_out.push(RuledOut::new("disk-capped-cloud", because));
    } else {
        f.confidence = Confidence::Suspected;
        f.missing.push("whether throughput varies: a limit keeps it flat".to_owned());
    }
    let because = format!("queue {:.1}, await {:.0} times normal", d.aqu_sz, r / reference.ms);
    f.ruled_out.push(RuledOut::new("disk-util-pinned-not-saturated", because));
    not_measured(&mut f, reference);
    if !reference.measured {
        f.confidence = Confidence::Suspected;
    }
    let name = sh(&d.name);
    by_disk::blame(w, d, &mut f);
    by_disk::next(w, &mut f);
    f.next.push(format!("iostat -x 1 {name}"));
    f.next.push(format!("smartctl -a /dev/{name}"));
    f.next.push("fstrim -av".to_owned());
    f
}

//! `disk-capped-cloud`: a limit outside this machine caps the disk.

use super::common::by_disk;
use super::common::disks::{
    Reference, against, is_alike, leaves, local_flash, not_measured, reference, spins, subject,
    title,
};
use super::common::measured::{self, DiskLatency};
use super::common::text::{bytes, ms, rate, sh, time};
use crate::diagnose::rules::prelude::*;
use crate::metrics::MIN_SPAN;
use crate::metrics::disks::DiskFigures;
use crate::metrics::disks::caps::Tier;
use crate::metrics::rate::{median, variation};
use crate::sample::disks::DiskClass;

/// Minimum queue: 4. A client at depth 4 stays just under that.
const QUEUE: f64 = 3.8;
/// Queue deep enough to indicate a limit without having seen another depth: 16.
const DEEP: f64 = 15.2;
/// Latency relative to an empty queue.
const WAITING: f64 = 3.0;
/// Below this an active finding clears.
const WAITING_CLEAR: f64 = 2.0;
/// Coefficients of variation: IOPS, kB/s.
const FLAT_IOPS: f64 = 0.05;
const FLAT_KB: f64 = 0.03;
/// Factor between two queues at the same throughput.
const VARIED: f64 = 1.3;
/// Dispersion of the device time (standard deviation over mean). A limiter is a metronome or works
/// in time slices; a busy medium is neither.
const NARROW: f64 = 0.35;
const WIDE: f64 = 0.6;
/// Requests up to this size hit an IOPS limit, larger ones a bandwidth limit, kB.
const SMALL_KB: f64 = 64.0;
/// True for 10 of 12 s.
const NEED: usize = 10;
const OF: usize = 12;
/// Minimum number of samples for statistics, whatever the interval.
const LEAST: usize = 8;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-capped-cloud"),
    title: "a limit of the provider or instance type, not the device, caps this disk",
    condition: "A disk that neither spins nor is local flash, for 10 of 12 s: queue 4 or more \
        (3.8: a client at depth 4 stays just under it; at intervals above 1.5 s for 7 of 8 \
        samples), await at least 3 times that of an empty queue and at least 1 ms (2 ms on a \
        stacked device such as loop), and flat throughput: IOPS within 5% (coefficient of \
        variation) or kB/s within 3%. In addition, the queue was 1.3 times longer or shorter at \
        the same throughput within the last 5 minutes, or it is 16 (15.2) or more. With eBPF: \
        does not fire when most of the time is queued above the device and the time on it is \
        below twice that of an empty queue; a dispersion of the device time (standard deviation \
        over mean) of up to 0.35 confirms it. Clears when throughput rises by 10%, the queue \
        falls below 2, or await falls below twice that of an empty queue.",
    look_alikes: "A saturated spinning disk varies by 10 to 30%. Saturated local flash varies \
        by more than 5%. A cgroup limit delays requests above the device: the device shows a \
        short queue and normal latency. A scheduler that delays requests (bfq, kyber) inflates \
        await as if the device were slow; only eBPF tells them apart. A fixed-rate client has \
        flat throughput too, but latency stays low.",
    remedy: "A deeper queue only adds latency. Raise the volume's tier, size or provisioned \
        IOPS. If several disks are flat at the same time, the instance type is the limit. If it \
        was fast at first and flat later, burst credits ran out.",
    sources: "Field: 16.8k IOPS at 7.6 ms and depth 128, reads and writes alike, on a cloud \
        volume. Measured with a blkio limit of 500 below a loop device: 500, 501, 505, 511 IOPS \
        at depth 1, 4, 16, 32 with 1.96, 7.94, 31.5, 62.3 ms. Little's law: queue = IOPS * \
        await. fio: dispersion 0.07 to 0.10 and 0.33 on capped volumes, 0.6 on flash, 1.2 on a \
        spinning disk. Measured: 0.74 under the blkio limit, which works in slices of 100 ms. \
        eBPF: block_rq_complete.",
    hold: Hold::events(24),
    needs_time: Duration::from_secs(13),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Disks],
    explains: &[
        Explains::new("disk-writeback-storm", Scope::Stack),
        Explains::new("load-without-cpu", Scope::Host),
        Explains::new("task-hung", Scope::DiskWaits),
    ],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let mut capped = Vec::new();
    for d in leaves(w).filter(|d| !spins(d, t) && !local_flash(d)) {
        let reference = reference(d, t);
        let latency = measured::disk(w, d);
        if waits_above(latency.as_ref(), reference) {
            continue;
        }
        if let Some(p) = plateau(w, d, reference, t.single_sample) {
            capped.push((d, reference, p, latency));
        } else if still_waiting(w, d, reference) {
            out.linger(subject(d));
        }
    }
    let together = capped.len();
    for (d, reference, p, latency) in capped {
        let mut f = fire(w, d, reference, &p, together);
        device(&mut f, d, latency.as_ref());
        out.fire(subject(d), f);
    }
}

/// Is this disk limited from outside this machine? Then the other disk rules stay silent.
pub(super) fn capped(w: &Window<'_>, d: &DiskFigures, t: &Thresholds) -> bool {
    !spins(d, t) && !local_flash(d) && plateau(w, d, reference(d, t), t.single_sample).is_some()
}

/// Flat throughput under load.
struct Plateau {
    /// Median IOPS and kB/s.
    iops: f64,
    kb_s: f64,
    /// Coefficient of variation of whichever is flat; `None` for one sample.
    cv: Option<f64>,
    /// The limit counts requests, not bytes.
    by_requests: bool,
    /// Another queue length at the same throughput.
    other_queue: Option<f64>,
    samples: usize,
}

/// Latency below which a limit does no harm, ms.
fn floor(d: &DiskFigures) -> f64 {
    if d.attrs.class == DiskClass::Stack { 2.0 } else { 1.0 }
}

/// The device is as fast as with an empty queue: requests wait before they are issued.
fn waits_above(latency: Option<&DiskLatency>, reference: Reference) -> bool {
    latency.is_some_and(|l| {
        l.device_ms() < WAITING_CLEAR * reference.ms && l.device_share().is_some_and(|s| s < 0.5)
    })
}

/// Does the scheduler delay requests by design, so that `await` is not the device's?
fn holds_back(d: &DiskFigures) -> bool {
    d.attrs.scheduler.as_deref().is_some_and(|s| ["bfq", "kyber"].contains(&s))
}

/// What eBPF says about the device, or what remains unknown without it.
fn device(f: &mut Fire, d: &DiskFigures, latency: Option<&DiskLatency>) {
    let Some(l) = latency else {
        if holds_back(d) {
            let name = d.attrs.scheduler.as_deref().unwrap_or("");
            f.confidence = Confidence::Suspected;
            f.missing.push(format!(
                "whether requests wait on the device or in the scheduler {name} (needs eBPF)"
            ));
        }
        return;
    };
    f.evidence.extend(l.evidence(d));
    let Some(v) = l.dispersion() else { return };
    let text = format!("eBPF: device latency varies by {:.0}%", 100.0 * v);
    if v <= NARROW {
        let because = format!("{text}; on a busy medium by {:.0}% or more", 100.0 * WIDE);
        f.ruled_out.push(RuledOut::new("busy-medium", because));
        // A narrow dispersion on top of flat throughput is proof without another depth.
        f.confidence = Confidence::Confirmed;
    }
    // A wide dispersion proves nothing: a limit that works in slices is wide too.
    let slices =
        if v >= WIDE { ", as on a busy medium or under a limit with time slices" } else { "" };
    f.evidence.push(Evidence::new("dispersion", v, "", text + slices));
}

fn loaded(d: &DiskFigures, reference: Reference) -> bool {
    let slow = (WAITING * reference.ms).max(floor(d));
    d.aqu_sz >= QUEUE && d.await_ms.is_some_and(|r| r >= slow)
}

/// Number of samples in this rule's window, and how many of them must agree.
fn window(w: &Window<'_>) -> (usize, usize) {
    let tick = w.host.interval.max(Duration::from_millis(50)).as_secs_f64();
    let step = (MIN_SPAN.as_secs_f64() / tick).ceil() * tick;
    let of = ((OF as f64 / step).ceil() as usize).max(LEAST);
    (of, (of * NEED).div_ceil(OF))
}

fn plateau(w: &Window<'_>, d: &DiskFigures, reference: Reference, single: bool) -> Option<Plateau> {
    if !loaded(d, reference) {
        return None;
    }
    let (of, mut need) = window(w);
    if single {
        // Half of the available samples: people paste runs at several depths in sequence.
        let there = w.recent_disk(d.id, of).count();
        need = there.div_ceil(2).max(2);
        if there < 2 {
            return one_sample(d);
        }
    }
    let recent = w.recent_disk(d.id, of).filter(|p| is_alike(p, d));
    let samples: Vec<&DiskFigures> = recent.filter(|p| loaded(p, reference)).collect();
    if samples.len() < need {
        return None;
    }
    let iops: Vec<f64> = samples.iter().map(|p| p.iops()).collect();
    let kb: Vec<f64> = samples.iter().map(|p| p.kb_s()).collect();
    // The most recent ones: a sample from the start of the load is among the oldest.
    let (iops_cv, kb_cv) = (variation(iops.get(..need)?)?, variation(kb.get(..need)?));
    let small = d.areq_kb().is_none_or(|k| k <= SMALL_KB);
    // Averaging over n seconds reduces the variation by sqrt(n).
    let averaged = d.dt.as_secs_f64().max(1.0).sqrt();
    let kb_flat = kb_cv.filter(|cv| *cv <= FLAT_KB / averaged);
    let iops_flat = iops_cv <= FLAT_IOPS / averaged;
    let cv = match (iops_flat, kb_flat) {
        (true, None) => iops_cv,
        (true, Some(_)) if small => iops_cv,
        (_, Some(cv)) => cv,
        (false, None) => return None,
    };
    let mut p = Plateau {
        iops: median(&mut iops.clone())?,
        kb_s: median(&mut kb.clone())?,
        cv: Some(cv),
        by_requests: small && iops_flat,
        other_queue: None,
        samples: samples.len(),
    };
    p.other_queue = other_queue(w, d, &p);
    (d.aqu_sz >= DEEP || p.other_queue.is_some()).then_some(p)
}

/// One sample: a deep queue on a provider's disk, and each request waits. Only another sample can
/// show whether throughput is flat.
fn one_sample(d: &DiskFigures) -> Option<Plateau> {
    (d.attrs.class == DiskClass::Virtual && d.aqu_sz >= DEEP).then(|| Plateau {
        iops: d.iops(),
        kb_s: d.kb_s(),
        cv: None,
        by_requests: d.areq_kb().is_none_or(|k| k <= SMALL_KB),
        other_queue: None,
        samples: 1,
    })
}

/// A different queue length at the same throughput on a busy disk: proof that a longer queue gains
/// nothing.
fn other_queue(w: &Window<'_>, d: &DiskFigures, p: &Plateau) -> Option<f64> {
    let same = |a: f64, b: f64, by: f64| b > 0.0 && ((a - b) / b).abs() <= by;
    w.recent_disk(d.id, 300)
        .filter(|o| o.aqu_sz >= 0.9 && o.util >= 90.0)
        .filter(|o| {
            if p.by_requests {
                same(o.iops(), p.iops, FLAT_IOPS)
            } else {
                same(o.kb_s(), p.kb_s, FLAT_KB)
            }
        })
        .map(|o| o.aqu_sz)
        .filter(|l| (l / d.aqu_sz).max(d.aqu_sz / l) >= VARIED)
        .max_by(|a, b| {
            let far = |l: &f64| (l / d.aqu_sz).max(d.aqu_sz / l);
            far(a).total_cmp(&far(b))
        })
}

/// Not over yet: requests still wait, and throughput has not risen.
fn still_waiting(w: &Window<'_>, d: &DiskFigures, reference: Reference) -> bool {
    let waits = d.await_ms.is_some_and(|r| r >= WAITING_CLEAR * reference.ms);
    if d.aqu_sz < 2.0 || !waits {
        return false;
    }
    let (of, _) = window(w);
    let mut before: Vec<f64> = w
        .recent_disk(d.id, of)
        .skip(1)
        .filter(|p| loaded(p, reference))
        .map(DiskFigures::iops)
        .collect();
    median(&mut before).is_none_or(|m| d.iops() < 1.1 * m)
}

fn fire(
    w: &Window<'_>,
    d: &DiskFigures,
    reference: Reference,
    p: &Plateau,
    together: usize,
) -> Fire {
    let r = d.await_ms.unwrap_or(0.0);
    let limit = if p.by_requests {
        format!("{} IOPS", rate(p.iops))
    } else {
        format!("{}/s", bytes((p.kb_s * 1024.0) as u64))
    };
    let mut f = Fire::new(
        Severity::Warn,
        format!("{} is capped at {limit}: queue {:.1}, await {} ms", title(d), d.aqu_sz, ms(r)),
    );
    let (field, value, unit, at) = if p.by_requests {
        ("iops", p.iops, "/s", FLAT_IOPS)
    } else {
        ("kB/s", p.kb_s, "kB/s", FLAT_KB)
    };
    let pct = p.cv.map(|cv| 100.0 * cv);
    let text = match pct {
        Some(pct) => {
            format!("flat at {limit} (varies by {pct:.1}% over {} samples)", p.samples)
        }
        None => format!("{limit} in {} on average", time(d.dt)),
    };
    f.evidence.push(Evidence::new(field, value, unit, text));
    if let Some(pct) = pct {
        let text = format!("coefficient of variation {pct:.1}%");
        f.evidence.push(Evidence::new("variation", pct, "%", text).over(100.0 * at));
    }
    let text = format!(
        "queue {:.1} = {} IOPS * {} ms: depth only adds latency",
        d.aqu_sz,
        rate(d.iops()),
        ms(r)
    );
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(QUEUE));
    let text = against(r, reference);
    f.evidence.push(Evidence::new("await", r, "ms", text).over(WAITING * reference.ms));
    if let Some(other) = p.other_queue {
        let text = format!("the same throughput at a queue of {other:.1}");
        f.evidence.push(Evidence::new("other-queue", other, "", text));
    }
    if let Some(text) = behaves(d, p) {
        f.evidence.push(Evidence::text("cap", text));
    }
    if let Some(text) = tier(d, p) {
        f.evidence.push(Evidence::text("tier", text));
    }
    if together > 1 {
        let text =
            format!("{together} disks are flat at the same time: look for an instance limit");
        f.evidence.push(Evidence::new("disks", together as f64, "", text));
    }
    if let Some(pct) = pct {
        let because = format!("varies by only {pct:.1}%");
        f.ruled_out.push(RuledOut::new("disk-saturated", because));
    } else {
        f.confidence = Confidence::Suspected;
        f.missing
            .push("whether throughput is the same at another queue depth (one sample)".to_owned());
    }
    let because = format!("await {} ms and the queue are at the device itself", ms(r));
    f.ruled_out.push(RuledOut::new("cgroup-io-throttle", because));
    let because = format!("await is {:.0} times that of an empty queue", r / reference.ms);
    f.ruled_out.push(RuledOut::new("fixed-rate-client", because));
    not_measured(&mut f, reference);
    if !reference.measured && p.other_queue.is_none() {
        f.confidence = Confidence::Suspected;
    }
    f.next.push(format!("iostat -x 1 {}", sh(&d.name)));
    f.next.push(format!("lsblk -o NAME,SIZE,MODEL,SERIAL /dev/{}", sh(&d.name)));
    by_disk::blame(w, d, &mut f);
    by_disk::next(w, &mut f);
    f
}

/// The limit that the disk has behaved like so far, with the data behind it.
fn behaves(d: &DiskFigures, p: &Plateau) -> Option<String> {
    let cap = d.cap.as_ref()?;
    let (known, unit): (_, fn(f64) -> String) = if p.by_requests {
        (cap.iops?, |v| format!("{} IOPS", rate(v)))
    } else {
        (cap.kb_s?, |v| format!("{}/s", bytes((v * 1024.0) as u64)))
    };
    let burst = match known.burst {
        Some(b) => format!("after {} at {}", time(b.lasted), unit(b.rate)),
        None if known.begin_seen => "with no burst before it".to_owned(),
        None => "burst unknown (the start of the load was not seen)".to_owned(),
    };
    Some(format!(
        "behaves like a limit of {}, {burst}: {} samples at a queue of {:.1} to {:.1}",
        unit(known.rate),
        known.points,
        known.queue.0,
        known.queue.1
    ))
}

/// The provider tier whose formula comes closest to this plateau.
fn tier(d: &DiskFigures, p: &Plateau) -> Option<String> {
    if d.attrs.class != DiskClass::Virtual {
        return None;
    }
    let size = d.attrs.size_sectors?;
    let (t, sold) = if p.by_requests {
        let t = Tier::by_iops(size, p.iops)?;
        (t, format!("{} IOPS", rate(t.rate)))
    } else {
        let t = Tier::by_kb(size, p.kb_s)?;
        (t, format!("{}/s", bytes((t.rate * 1024.0) as u64)))
    };
    let what = format!("{} of {:.0} GiB comes with {sold}", t.name, t.gib);
    if t.fits() {
        return Some(what);
    }
    let off = 100.0 * t.off;
    Some(format!("no published tier within 5%; nearest: {what}, this disk is {off:+.0}% off"))
}

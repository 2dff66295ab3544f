//! `disk-request-split`: the block layer splits large requests.

use super::common::by_disk;
use super::common::disks::{
    Reference, against, lately, leaves, local_flash, not_measured, reference, spins, subject,
    swing, title,
};
use super::common::measured::{self, DiskLatency};
use super::common::text::{bytes, rate, sh};
use super::disk_writeback_storm::storm;
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// Mean size relative to max_sectors_kb: all are split; the last pieces are shorter.
const CUT: f64 = 0.9;
const REMAINDERS: f64 = 0.75;
/// % of requests merged: merged requests grew to the limit.
const MERGED: f64 = 5.0;
/// Queue.
const QUEUE: f64 = 2.0;
/// max_sectors_kb above which the pieces are large enough.
const LARGE: u32 = 1024;
/// Pieces up to this size, kB, with this multiple of normal latency are worth a warning.
const SMALL: u32 = 256;
const WAITING: f64 = 3.0;
/// Splits per request, by eBPF: from here they are pieces, and below this they are not.
const PIECES: f64 = 0.25;
const WHOLE: f64 = 0.05;
/// Throughput flatter than this may be a limit.
const FLAT: f64 = 0.05;
/// An active finding clears below this fraction of the queue.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-request-split"),
    title: "large requests are split at max_sectors_kb",
    condition: "The mean request size is 90% or more of max_sectors_kb, fewer than 5% of requests \
        are merged, the queue is 2 or more, and max_sectors_kb is 1024 kB or less and below what \
        the device allows (max_hw_sectors_kb), for 5 of 8 s. A warning when the pieces are 256 kB \
        or less and await is 3 times normal, but not under a limit or during a flush. Suspected \
        from 75%, because the last piece of each request is shorter; eBPF counts splits and \
        confirms or withdraws it.",
    look_alikes: "Sequential writeback and read-ahead are merged up to the limit: small requests \
        grew, nothing was split. Applications that issue exactly that size are not split either; \
        only eBPF can tell. Under a bandwidth limit the pieces wait for the limit: \
        disk-capped-cloud.",
    remedy: "echo 1024 > /sys/block/DEV/queue/max_sectors_kb (up to max_hw_sectors_kb), made \
        permanent with a udev rule; on dm and md set it on the layers above too. Or issue \
        smaller requests in parallel.",
    sources: "Field: with requests of 600 kB, raising max_sectors_kb from 256 to 1024 took \
        reads from 86 to 159 MiB/s and writes from 91 to 165. Measured: writes of 1 MiB at a \
        limit of 128 become 29316 writes/s of exactly 128 kB.",
    hold: Hold::of(5, 8),
    needs_time: Duration::from_secs(6),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Disks], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for d in leaves(w) {
        let Some(most) = d.attrs.max_sectors_kb.filter(|n| (1..=LARGE).contains(n)) else {
            continue;
        };
        if d.attrs.max_hw_sectors_kb.is_some_and(|hw| hw <= most) {
            continue;
        }
        let Some((field, kb, share)) = cut(d, most) else { continue };
        if share < REMAINDERS || d.merged_pct().is_none_or(|m| m >= MERGED) {
            continue;
        }
        let latency = measured::disk(w, d);
        let splits = latency.as_ref().and_then(|l| l.split_share(d));
        if splits.is_some_and(|s| s < WHOLE) {
            continue;
        }
        if d.aqu_sz >= QUEUE {
            let cut = Cut {
                most,
                field,
                kb,
                share,
                proven: splits.is_some_and(|s| s >= PIECES),
                waits: limited(w, d, t) || storm(w, d, t).is_some(),
            };
            out.fire(subject(d), fire(w, d, &cut, latency.as_ref(), reference(d, t)));
        } else if d.aqu_sz >= CLEAR * QUEUE {
            out.linger(subject(d));
        }
    }
}

/// The direction with more bytes: its field, mean size, and fraction of the limit.
fn cut(d: &DiskFigures, most: u32) -> Option<(&'static str, f64, f64)> {
    let (field, kb) =
        if d.rkb_s > d.wkb_s { ("rareq-sz", d.rareq_kb?) } else { ("wareq-sz", d.wareq_kb?) };
    Some((field, kb, kb / f64::from(most)))
}

/// Could there be a bandwidth limit? The disk is not local, and throughput is not known to vary.
fn limited(w: &Window<'_>, d: &DiskFigures, t: &Thresholds) -> bool {
    let own = local_flash(d) || spins(d, t);
    // The rise at the start of a load does not count as variation.
    let begins = lately(w, d, 14).any(|p| p.aqu_sz < QUEUE);
    !own && (begins || swing(w, d, QUEUE).is_none_or(|cv| cv <= FLAT))
}

/// Requests that look like pieces.
struct Cut {
    /// max_sectors_kb.
    most: u32,
    /// Name of the size field, mean size in kB, and its fraction of the limit.
    field: &'static str,
    kb: f64,
    share: f64,
    /// eBPF saw the splits.
    proven: bool,
    /// They may wait for a limit or a flush, whatever their size.
    waits: bool,
}

fn fire(
    w: &Window<'_>,
    d: &DiskFigures,
    c: &Cut,
    latency: Option<&DiskLatency>,
    reference: Reference,
) -> Fire {
    let Cut { most, field, kb, share, .. } = *c;
    let r = d.await_ms.unwrap_or(0.0);
    let all = share >= CUT || c.proven;
    let harm = all && !c.waits && most <= SMALL && r >= WAITING * reference.ms;
    let mut f = Fire::new(
        if harm { Severity::Warn } else { Severity::Info },
        format!(
            "large requests to {} are split: {}/s of {kb:.0} kB, max_sectors_kb {most}",
            title(d),
            rate(d.iops())
        ),
    );
    let text = format!("{kb:.1} kB each, {:.0}% of max_sectors_kb {most}", 100.0 * share);
    let at = if share >= CUT { CUT } else { REMAINDERS };
    f.evidence.push(Evidence::new(field, kb, "kB", text).over(at * f64::from(most)));
    let merged = d.merged_pct().unwrap_or(0.0);
    let text = format!("{merged:.1}% merged");
    f.evidence.push(Evidence::new("merge", merged, "%", text).over(MERGED));
    let text = format!("{:.1} pieces in the queue", d.aqu_sz);
    f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", text).over(QUEUE));
    f.evidence.push(Evidence::new("await", r, "ms", against(r, reference)));
    let text = format!("{}/s", bytes((d.kb_s() * 1024.0) as u64));
    f.evidence.push(Evidence::new("kB/s", d.kb_s(), "kB/s", text));
    match d.attrs.max_hw_sectors_kb {
        Some(hw) => {
            let text = format!("the device takes up to {hw} kB per request");
            f.evidence.push(Evidence::new("max_hw_sectors_kb", hw.into(), "kB", text));
        }
        None => f.missing.push("what the device would take (no max_hw_sectors_kb)".to_owned()),
    }
    if let Some(l) = latency {
        f.evidence.extend(l.evidence(d));
    }
    let because = format!("only {merged:.1}% were merged from smaller ones");
    f.ruled_out.push(RuledOut::new("sequential merging", because));
    if harm {
        not_measured(&mut f, reference);
    }
    if c.proven {
        f.ruled_out.push(RuledOut::new("requests of just that size", "eBPF saw them split"));
    } else {
        f.missing.push("the sizes before the split (needs eBPF)".to_owned());
    }
    if !all {
        f.confidence = Confidence::Suspected;
    }
    by_disk::blame(w, d, &mut f);
    let name = sh(&d.name);
    let raise = d.attrs.max_hw_sectors_kb.map_or(LARGE, |hw| hw.min(LARGE));
    f.next.push(format!("echo {raise} > /sys/block/{name}/queue/max_sectors_kb"));
    f.next.push(format!("iostat -x 1 {name}"));
    f.next.push("bpftrace -e 'tracepoint:block:block_split { @[args.dev] = count(); }'".to_owned());
    f
}

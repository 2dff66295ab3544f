//! `fs-flush-bound`: cache flushes, not reads or writes, take up the disk's time.

use super::common::by_disk;
use super::common::disks::{leaves, subject, title};
use super::common::tasks;
use super::common::text::{ms, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;
use crate::sample::sched::TaskKind;

/// Flushes per second.
const FLUSHES: f64 = 50.0;
/// Time that they take, ms/s.
const SHARE: f64 = 300.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("fs-flush-bound"),
    title: "commits wait for disk cache flushes",
    condition: "50 or more flushes per second that take 300 ms or more of each second (f/s \
        times f_await), for 8 of 10 s. Clears below 0.7 of these.",
    look_alikes: "Flushes that take no time: the write cache is off or battery-backed. Slow \
        writes without flushes: disk-slow-device, disk-capped-cloud.",
    remedy: "Commit in groups: fewer fsyncs per transaction (group commit, larger batches), a \
        journal on its own device, flash with power-loss protection. Never use nobarrier on a \
        volatile write cache.",
    sources: "diskstats fields 16 and 17 (since 5.5); a loop of write and fsync on a loop \
        device.",
    hold: Hold::of(8, 10),
    needs_time: Duration::from_secs(10),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Annotation, needs: &[CollectorId::Disks], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let mut known = false;
    for d in leaves(w) {
        let Some(flushes) = d.f_s else { continue };
        known = true;
        let Some(each) = d.f_await else { continue };
        let beyond = |part: f64| flushes >= part * FLUSHES && flushes * each >= part * SHARE;
        if beyond(1.0) {
            out.fire(subject(d), fire(w, d, flushes, each));
        } else if beyond(CLEAR) {
            out.linger(subject(d));
        }
    }
    if !known && leaves(w).next().is_some() {
        out.cannot_judge("flushes are not counted (kernel before 5.5)");
    }
}

fn fire(w: &Window<'_>, d: &DiskFigures, flushes: f64, each: f64) -> Fire {
    let mut f = Fire::new(
        Severity::Info,
        format!("{} spends its time on flushes: {}/s of {} ms", title(d), rate(flushes), ms(each)),
    );
    let busy = flushes * each;
    let text = format!("{busy:.0} ms of flushes per second");
    f.evidence.push(Evidence::new("f_await*f/s", busy, "ms/s", text).over(SHARE));
    let text = format!("{} flushes/s", rate(flushes));
    f.evidence.push(Evidence::new("f/s", flushes, "/s", text).over(FLUSHES));
    let text = format!("f_await {} ms", ms(each));
    f.evidence.push(Evidence::new("f_await", each, "ms", text));
    let text = format!("{} writes/s", rate(d.w_s));
    f.evidence.push(Evidence::new("w/s", d.w_s, "/s", text));
    if let Some(cache) = &d.attrs.write_cache {
        f.evidence.push(Evidence::text("write_cache", format!("write cache: {cache}")));
    }
    let because = format!("queue {:.1}, flushes included", d.aqu_sz);
    f.ruled_out.push(RuledOut::new("disk-capped-cloud", because));
    if let Some(r) = d.w_await {
        let because = format!("w_await {} ms includes the flush of {} ms", ms(r), ms(each));
        f.ruled_out.push(RuledOut::new("disk-slow-device", because));
    }
    by_disk::blame_writes(w, d, &mut f);
    let writer = f.by.first().and_then(|c| c.who.pid());
    // Tasks that wait for a commit are in D state some of the time; so is the journal, which makes
    // no system calls.
    let blocked = tasks::blocked_tasks(w).unwrap_or_default();
    let first = blocked.iter().find(|b| b.kind.is_none_or(|kind| kind == TaskKind::User));
    match (writer, first) {
        (Some(pid), _) => {
            f.next.push(format!("strace -f -c -e trace=fsync,fdatasync,sync_file_range -p {pid}"));
        }
        (None, Some(first)) => f.next.push(format!(
            "strace -c -e trace=fsync,fdatasync,sync_file_range -p {}  # {}",
            first.task.tid,
            sh(&first.comm)
        )),
        _ => f.next.push("pidstat -d 1 3  # who writes, iodelay".to_owned()),
    }
    f.next.push(format!("cat /sys/block/{}/queue/write_cache", sh(&d.name)));
    f.next.push(format!("iostat -x 1 {}  # f/s, f_await", sh(&d.name)));
    f
}

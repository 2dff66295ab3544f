//! `disk-hung`: requests are in flight and none completes.

use super::common::disks::{lately, subject, title, whole};
use super::common::text::{count, sh, time};
use crate::diagnose::rules::prelude::*;
use crate::metrics::cgroups::CgroupIoFigures;
use crate::metrics::disks::DiskFigures;
use crate::metrics::rate::ratio;
use crate::sample::disks::DiskClass;
use crate::sample::processes::ProcessesSample;

/// A warning after ...
const WARN: Duration = Duration::from_secs(2);
/// ... and critical after.
const CRIT: Duration = Duration::from_secs(5);
/// In-flight requests should be done within this multiple of the time they need at the recent
/// throughput.
const DRAINS: f64 = 3.0;
/// The recent throughput covers this many seconds; the wait is never longer than this.
const LATELY: u32 = 60;
const PATIENCE: Duration = Duration::from_secs(60);
/// Fraction of a limit from which it counts as used up.
const AT_LIMIT: f64 = 0.9;
/// Maximum age of a list of blocked tasks.
const FRESH: Duration = Duration::from_secs(10);

static DOC: RuleDoc = RuleDoc {
    id: RuleId("disk-hung"),
    title: "requests are in flight but none complete",
    condition: "in_flight > 0 and no completion for 2 s; critical at 5 s. Where io_ticks covers \
        the whole interval, all of it counts; otherwise only the time observed. One request \
        after a run of discards, or requests that no task waits for, stay at warn. Does not \
        fire until three times the time that the in-flight requests need at the throughput of \
        the last minute has passed (at most 60 s), nor on a stacked device while a cgroup uses \
        90% of a limit on a disk below it.",
    look_alikes: "An idle disk has nothing in flight. iostat shows a hung disk as idle: await \
        0, queue 0, 0 IOPS, because only completions are counted. One large discard may take \
        seconds. A slow or throttled device below a stacked one completes nothing for a while \
        and then a lot at once: 32 MB in flight at 8 MB/s take 4 s. Some old kernels leak \
        in_flight: no task is in D state then and there is no io PSI.",
    remedy: "Check dmesg for resets and timeouts, multipath -ll for lost paths, the provider's \
        console for a detached or frozen volume; fsfreeze -u if a backup froze the file system \
        below. Tasks in D state continue once the device responds.",
    sources: "Measured on 6.18 with a loop device over a frozen file system: in_flight 1, \
        io_ticks + 1008 ms/s, no completions, weighted time 0, dd in D state at \
        submit_bio_wait.",
    hold: Hold::events(2),
    needs_time: Duration::from_secs(6),
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

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(disks) = w.derived.disks.as_ref() else { return };
    let hung = |d: &DiskFigures| {
        d.in_flight.is_some_and(|n| n > 0)
            && d.stuck_for >= WARN.max(patience(w, d))
            && !held_below(w, d)
    };
    for d in disks.iter().filter(|d| whole(d) && hung(d)) {
        // The layer above a hung disk hangs with it: report the disk.
        let below = |name: &String| disks.iter().any(|s| *s.name == **name && hung(s));
        if !d.attrs.slaves.iter().any(below) {
            out.fire(subject(d), fire(w, d));
        }
    }
}

/// How long the in-flight requests may take at the recent throughput.
fn patience(w: &Window<'_>, d: &DiskFigures) -> Duration {
    let n = d.in_flight.unwrap_or(0) as f64;
    let (mut kb_s, mut samples, mut largest) = (0.0, 0.0, 0.0_f64);
    for p in lately(w, d, LATELY).filter(|p| p.kb_s() > 0.0) {
        kb_s += p.kb_s();
        samples += 1.0;
        largest = largest.max(p.areq_kb().unwrap_or(0.0));
    }
    let drain = ratio(n * largest * samples, kb_s).unwrap_or(0.0);
    Duration::try_from_secs_f64(DRAINS * drain).unwrap_or(PATIENCE).min(PATIENCE)
}

/// Does a cgroup limit throttle a disk below a stacked device? The disk below a loop device is not
/// known, so any other disk counts.
fn held_below(w: &Window<'_>, d: &DiskFigures) -> bool {
    if d.attrs.class != DiskClass::Stack {
        return false;
    }
    let below = |io: &CgroupIoFigures| {
        let Some(disk) = w.derived.disk(io.dev) else { return false };
        let named = d.attrs.slaves.iter().any(|s| **s == *disk.name);
        disk.id != d.id && (named || d.attrs.slaves.is_empty())
    };
    let used = |rate: Option<f64>, limit: Option<u64>| {
        let limit = limit.filter(|n| *n > 0).map(|n| n as f64);
        rate.zip(limit).is_some_and(|(r, l)| r >= AT_LIMIT * l)
    };
    let groups = w.derived.cgroups.as_deref().map_or(&[][..], |g| g);
    groups.iter().flat_map(|g| &g.io).filter(|io| below(io)).any(|io| {
        used(io.riops, io.limits.max_riops)
            || used(io.wiops, io.limits.max_wiops)
            || used(io.rbps, io.limits.max_rbps)
            || used(io.wbps, io.limits.max_wbps)
    })
}

/// The latest list of blocked tasks.
fn blocked<'a>(w: &Window<'a>) -> Option<&'a ProcessesSample> {
    w.history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) <= FRESH)
        .find_map(|m| m.tick.samples.processes.as_ref())
        .map(|s| &s.data)
}

fn fire(w: &Window<'_>, d: &DiskFigures) -> Fire {
    let n = d.in_flight.unwrap_or(0);
    let stuck = d.stuck_for;
    let tasks = blocked(w);
    let pressure = w.derived.psi.and_then(|p| p.io_some);
    let nobody = tasks.is_some_and(|t| t.blocked.is_empty()) && pressure.is_some_and(|p| p < 1.0);
    let discard = n == 1 && discarded_before(w, d);
    let mild = nobody || discard;
    let severity = if stuck >= CRIT && !mild { Severity::Crit } else { Severity::Warn };
    let mut f = Fire::new(
        severity,
        format!(
            "{} is hung: {} in flight, none completed for {}",
            title(d),
            count(n as usize, "request"),
            time(stuck)
        ),
    );
    f.since = Some(w.tick.mono.back(stuck));
    in_flight(&mut f, w, d);
    let limit = if stuck >= CRIT { CRIT } else { WARN };
    let text = format!("0 completions for {}: await is infinite, iostat prints 0", time(stuck));
    f.evidence
        .push(Evidence::new("stuck", stuck.as_secs_f64(), "s", text).over(limit.as_secs_f64()));
    let text = format!("io_ticks +{} ms in {}", d.io_ticks, time(d.dt));
    f.evidence.push(Evidence::new("io_ticks", d.io_ticks.into(), "ms", text));
    if let Some(t) = tasks.filter(|t| !t.blocked.is_empty()) {
        let names: Vec<String> = t
            .blocked
            .iter()
            .take(3)
            .map(|b| {
                let at = b.wchan.as_deref().map_or(String::new(), |c| format!(" in {c}"));
                format!("{}/{}{at}", b.comm, b.task.tid)
            })
            .collect();
        let n = t.blocked.len();
        let text = format!("{} in D state: {}", count(n, "task"), names.join(", "));
        f.evidence.push(Evidence::new("blocked", n as f64, "", text));
    }
    if let Some(s) = &d.attrs.state {
        f.evidence.push(Evidence::text("state", format!("device state {s}")));
    }
    f.ruled_out.push(RuledOut::new("idle", format!("in_flight {n} > 0")));
    if nobody {
        f.confidence = Confidence::Suspected;
        f.missing.push(
            "whether anyone waits: no task in D state, no I/O pressure; some old \
             kernels leak in_flight"
                .to_owned(),
        );
    } else if tasks.is_none() {
        f.missing.push("who waits (no list of tasks in D state)".to_owned());
    }
    if discard {
        f.confidence = Confidence::Suspected;
        f.missing.push("whether it is one long discard: it follows other discards".to_owned());
    }
    next(&mut f, d);
    f
}

fn in_flight(f: &mut Fire, w: &Window<'_>, d: &DiskFigures) {
    let n = d.in_flight.unwrap_or(0);
    let sample = w.tick.samples.disks.as_ref();
    let row = sample.and_then(|s| s.data.disks.iter().find(|r| r.id == d.id));
    let text = match row.and_then(|r| r.inflight) {
        Some((r, w)) => format!("{n} in flight ({r} reads, {w} writes)"),
        None => format!("{n} in flight"),
    };
    f.evidence.push(Evidence::new("inflight", n as f64, "", text).over(0.0));
}

/// The last completed requests were discards: a single discard may take long.
fn discarded_before(w: &Window<'_>, d: &DiskFigures) -> bool {
    w.recent_disk(d.id, 120)
        .find(|p| p.completed > 0)
        .is_some_and(|p| p.d_s > 0.0 && p.d_s >= 0.5 * p.iops())
}

fn next(f: &mut Fire, d: &DiskFigures) {
    let name = sh(&d.name);
    f.next.push("dmesg -T | tail -50".to_owned());
    f.next.push(format!("cat /sys/block/{name}/inflight"));
    if d.attrs.dm_name.is_some() {
        f.next.push("multipath -ll".to_owned());
        f.next.push(format!("dmsetup info -c /dev/{name}"));
    }
    if let Some(file) = &d.attrs.backing_file {
        f.next.push(format!("findmnt -T {}  # frozen or hung below?", sh(file)));
    }
    f.next.push("ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /D/'".to_owned());
}

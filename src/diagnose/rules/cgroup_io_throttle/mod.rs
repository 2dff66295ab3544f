//! `cgroup-io-throttle`: a cgroup limit, not the disk, delays I/O.

mod above;
mod pinned;

use super::common::by;
use super::common::by_disk;
use super::common::cgroups::{self, file, subject};
use super::common::disks::{against, leaves, reference};
use super::common::text::{bytes, rate, time};
use crate::diagnose::rules::prelude::*;
use crate::metrics::cgroups::{CgroupFigures, CgroupIoFigures};
use crate::metrics::disks::DiskFigures;
use crate::metrics::process_io::Flow;
use crate::metrics::rate::ratio;
use crate::sample::cgroups::CgroupIo;
use pinned::Near;

/// io PSI some, %.
const PRESSURE: f64 = 20.0;
/// Rate as a fraction of the limit.
const AT_LIMIT: f64 = 0.9;
/// Above this fraction of the limit a rate is not throttled: the limit was raised or removed since
/// it was read.
const BEYOND: f64 = 1.5;
/// The disk is calm below these: latency relative to an empty queue, and queue.
const CALM: f64 = 2.0;
const QUEUE: f64 = 2.0;
/// Or it has pauses, util %: a limit lets requests through in bursts, which queue briefly.
const PAUSES: f64 = 90.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("cgroup-io-throttle"),
    title: "a cgroup's I/O limit delays its requests; the disk is not to blame",
    condition: "A cgroup runs at 90% or more of its limit on a disk (v1 \
        blkio.throttle.*_device, v2 io.max), tasks wait for I/O 20% or more of the time (io PSI \
        of the cgroup, else of the host), and the disk is calm: queue below 2, await at most \
        twice that of an empty queue. For 4 of 6 s. Also, whatever PSI says, when the rate \
        stays within 10% of the limit and averages 99.5% of it over 2.5 s or more, and the disk \
        has such an await or pauses (util below 90%): asynchronous I/O does not show up in PSI. \
        Suspected unless tasks are seen waiting. Info without PSI; also info when the rate is \
        not pinned to the limit like that, the PSI is the host's and another disk has a queue. \
        With no such limit, 'I/O waits above the disks' (info): the host's io PSI exceeds the \
        time that the disks together have requests in flight by 20% of the time, and all disks \
        are calm. Clears below 0.7 of these.",
    look_alikes: "iostat shows an idle disk: throttled requests wait before they are counted. \
        A limit below a virtual disk shows a queue on that disk: disk-capped-cloud. File system \
        locks, journals and network file systems delay I/O without a limit: the finding then \
        says where it waits, not why. Buffered writes escape v1 limits; Dirty grows instead. A \
        v1 limit covers its own cgroup only, not the cgroups below it. A program that paces \
        itself just below the limit is not throttled (495 of 500/s); one that paces itself \
        exactly to the limit cannot be told apart.",
    remedy: "Raise or remove the limit: write 0 (v1) or max (v2) to the file that the finding \
        names. Weights share a disk without wasting it (bfq, iocost).",
    sources: "Measured with a limit of 500 writes/s and 8 writers: 503/s at 15.9 ms for the \
        application, 0.32 ms and a queue of 0.16 at the device, io PSI 85%. With libaio at \
        depth 32 and 500 writes/s, 2 MiB/s or 200 reads/s: every second within 0.1% of the \
        limit, io PSI 0 to 4%. A limit of 7/s lets 10 through. No kernel counts throttled \
        requests or throttled time.",
    hold: Hold::of(4, 6),
    needs_time: Duration::from_secs(8),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: crate::diagnose::Kind::Rule,
    needs: &[CollectorId::Cgroups, CollectorId::Disks],
    explains: &[
        Explains::new("load-without-cpu", Scope::Host),
        Explains::new("task-hung", Scope::DiskWaits),
    ],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let Some(groups) = w.derived.cgroups.as_ref() else { return };
    let mut throttled = false;
    for g in groups.iter() {
        let Some(worst) = limited(w, g, t) else { continue };
        let pressure = Pressure::of(w, g, worst.disk);
        let waits = |part: f64| pressure.some.is_none_or(|p| p >= part * PRESSURE);
        let used = |part: f64| worst.share.is_none_or(|s| s >= part * AT_LIMIT);
        let pinned = worst.near.pinned().is_some();
        if pinned || (worst.calm && used(1.0) && waits(1.0)) {
            // Without a rate and without PSI there is no evidence at all.
            if worst.share.is_some() || pressure.some.is_some() {
                throttled = true;
                out.fire(subject(g), fire(w, g, &worst, &pressure));
            }
        } else if worst.near == Near::Close || (worst.calm && used(CLEAR) && waits(CLEAR)) {
            out.linger(subject(g));
        }
    }
    if !throttled {
        above::judge(w, t, out);
    }
    let limited =
        |g: &CgroupFigures| g.io.iter().any(|io| KINDS.iter().any(|k| k.limit(io).is_some()));
    cgroups::unread(w, out, limited);
}

/// A limit of a cgroup on a disk.
struct Limit<'a> {
    disk: &'a DiskFigures,
    kind: Kind,
    most: f64,
    /// The rate, and its fraction of the limit; `None` if not counted.
    rate: Option<f64>,
    share: Option<f64>,
    /// How close the rate stays to the limit.
    near: Near,
    /// The disk is fast and has no queue.
    calm: bool,
    /// The disk's latency relative to normal, and its queue, as text.
    state: String,
}

#[derive(Clone, Copy)]
struct Kind {
    /// Name in `io.max`.
    v2: &'static str,
    /// File of v1.
    v1: &'static str,
    what: &'static str,
    flow: Flow,
    bytes: bool,
    limit: fn(&CgroupIo) -> Option<u64>,
    rate: fn(&CgroupIoFigures) -> Option<f64>,
    /// Requests per second of the same direction.
    requests: fn(&CgroupIoFigures) -> Option<f64>,
}

const KINDS: [Kind; 4] = [
    Kind {
        v2: "riops",
        v1: "blkio.throttle.read_iops_device",
        what: "reads",
        flow: Flow::Read,
        bytes: false,
        limit: |l| l.max_riops,
        rate: |io| io.riops,
        requests: |io| io.riops,
    },
    Kind {
        v2: "wiops",
        v1: "blkio.throttle.write_iops_device",
        what: "writes",
        flow: Flow::Write,
        bytes: false,
        limit: |l| l.max_wiops,
        rate: |io| io.wiops,
        requests: |io| io.wiops,
    },
    Kind {
        v2: "rbps",
        v1: "blkio.throttle.read_bps_device",
        what: "reads",
        flow: Flow::Read,
        bytes: true,
        limit: |l| l.max_rbps,
        rate: |io| io.rbps,
        requests: |io| io.riops,
    },
    Kind {
        v2: "wbps",
        v1: "blkio.throttle.write_bps_device",
        what: "writes",
        flow: Flow::Write,
        bytes: true,
        limit: |l| l.max_wbps,
        rate: |io| io.wbps,
        requests: |io| io.wiops,
    },
];

impl Kind {
    fn show(self, v: f64) -> String {
        if self.bytes { format!("{}/s", bytes(v as u64)) } else { format!("{}/s", rate(v)) }
    }
    /// The limit, if one is set.
    fn limit(self, io: &CgroupIoFigures) -> Option<f64> {
        (self.limit)(&io.limits).filter(|n| *n > 0).map(|n| n as f64)
    }
    fn rate(self, io: &CgroupIoFigures) -> Option<f64> {
        (self.rate)(io)
    }
    /// Is this rate possible with the limit in force?
    fn in_force(self, rate: f64, limit: f64) -> bool {
        rate <= BEYOND * limit + if self.bytes { 0.0 } else { pinned::SLICES }
    }
    /// What one request counts towards the limit.
    fn request(self, io: &CgroupIoFigures) -> f64 {
        if !self.bytes {
            return 1.0;
        }
        self.rate(io).zip((self.requests)(io)).and_then(|(b, n)| ratio(b, n)).unwrap_or(0.0)
    }
}

/// The limit that throttles a cgroup most, on a disk that is not to blame itself.
fn limited<'a>(w: &Window<'a>, g: &CgroupFigures, t: &Thresholds) -> Option<Limit<'a>> {
    let mut worst: Option<Limit<'a>> = None;
    for io in &g.io {
        for kind in KINDS {
            let Some(now) = limit(w, g, io, kind, t) else { continue };
            let rank = |l: &Limit<'_>| (l.near.pinned().is_some(), l.share);
            if worst.as_ref().is_none_or(|than| rank(&now) > rank(than)) {
                worst = Some(now);
            }
        }
    }
    worst
}

fn limit<'a>(
    w: &Window<'a>,
    g: &CgroupFigures,
    io: &CgroupIoFigures,
    kind: Kind,
    t: &Thresholds,
) -> Option<Limit<'a>> {
    let most = kind.limit(io)?;
    let disk = w.derived.disk(io.dev)?;
    let rate = kind.rate(io);
    // Without completions nothing gets through at all: that is not a limit.
    let r = disk.await_ms?;
    let reference = reference(disk, t);
    let quick = r <= CALM * reference.ms;
    let near = if quick || disk.util < PAUSES { pinned::near(w, g, io, kind) } else { Near::No };
    let calm = quick && disk.aqu_sz < QUEUE && rate.is_none_or(|r| kind.in_force(r, most));
    if !calm && near == Near::No {
        return None;
    }
    let state = format!("{}, queue {:.2}", against(r, reference), disk.aqu_sz);
    Some(Limit { disk, kind, most, rate, share: rate.map(|r| r / most), near, calm, state })
}

/// I/O pressure, and whose tasks it covers.
struct Pressure {
    /// io PSI some, %; `None` without PSI.
    some: Option<f64>,
    /// It covers the cgroup's own tasks only.
    own: bool,
    /// Another disk that the host's tasks may be waiting for instead.
    other: Option<String>,
}

impl Pressure {
    fn of(w: &Window<'_>, g: &CgroupFigures, disk: &DiskFigures) -> Self {
        if g.psi_io.is_some() {
            return Self { some: g.psi_io, own: true, other: None };
        }
        let busy = leaves(w)
            .filter(|d| d.id != disk.id && !disk.attrs.slaves.iter().any(|s| **s == *d.name))
            .filter(|d| d.aqu_sz >= QUEUE || !d.stuck_for.is_zero())
            .max_by(|a, b| a.aqu_sz.total_cmp(&b.aqu_sz));
        Self {
            some: w.derived.psi.and_then(|p| p.io_some),
            own: false,
            other: busy.map(|d| format!("{} has a queue of {:.1}", d.name, d.aqu_sz)),
        }
    }
}

fn fire(w: &Window<'_>, g: &CgroupFigures, l: &Limit<'_>, pressure: &Pressure) -> Fire {
    let waits = pressure.some.is_some_and(|p| p >= PRESSURE);
    let pinned = l.near.pinned();
    let sure = l.share.is_some() && waits && pressure.other.is_none();
    // Missing information lowers the severity.
    let warn = sure || (pinned.is_some() && pressure.some.is_some());
    let limit = l.kind.show(l.most);
    let mut f = Fire::new(
        if warn { Severity::Warn } else { Severity::Info },
        format!(
            "{} is throttled to its limit of {limit} of {} on {}",
            g.path, l.kind.what, l.disk.name
        ),
    );
    if !sure {
        f.confidence = Confidence::Suspected;
    }
    match (l.rate, l.share) {
        (Some(r), Some(share)) => {
            let text = format!("{} of {limit}: {:.0}% of the limit", l.kind.show(r), 100.0 * share);
            let at = 100.0 * AT_LIMIT;
            f.evidence.push(Evidence::new("rate", 100.0 * share, "%", text).over(at));
        }
        _ => f.missing.push("how much I/O the cgroup does (no counters)".to_owned()),
    }
    if let Some((share, lasted)) = pinned {
        let share = 100.0 * share;
        let text = format!(
            "{share:.1}% of the limit on average over {}: more is requested than gets through",
            time(lasted)
        );
        let at = 100.0 * (1.0 - pinned::REACHED);
        f.evidence.push(Evidence::new("mean-rate", share, "%", text).over(at));
    }
    let unit = if l.kind.bytes { "bytes/s" } else { "/s" };
    let text = format!("{} {limit}", l.kind.v2);
    f.evidence.push(Evidence::new("limit", l.most, unit, text));
    waiting(&mut f, pressure);
    let text = format!("{}: {}", l.disk.name, l.state);
    f.evidence.push(Evidence::new("aqu-sz", l.disk.aqu_sz, "", text));
    blocked(&mut f, w);
    let (name, queue) = (&l.disk.name, l.disk.aqu_sz);
    let because = if l.calm {
        format!("{name}: queue {queue:.2}")
    } else {
        format!("{name}: queue {queue:.2}, but util only {:.0}%", l.disk.util_shown())
    };
    f.ruled_out.push(RuledOut::new("disk-capped-cloud", because));
    f.ruled_out
        .push(RuledOut::new("file system lock or journal", format!("limit {limit} is used up")));
    by_disk::blame_cgroup(w, &g.path, l.kind.flow, &mut f);
    next(&mut f, g, l);
    f
}

/// Whether tasks are seen waiting.
fn waiting(f: &mut Fire, pressure: &Pressure) {
    let of = if pressure.own { "the cgroup's tasks" } else { "the host's tasks" };
    match pressure.some {
        Some(p) if p >= PRESSURE => {
            let text = format!("{of} wait for I/O {p:.0}% of the time");
            f.evidence.push(Evidence::new("io some", p, "%", text).over(PRESSURE));
        }
        Some(p) => {
            let text =
                format!("{of} wait for I/O {p:.0}% of the time; asynchronous I/O is not included");
            f.evidence.push(Evidence::new("io some", p, "%", text));
            f.missing
                .push("whether anyone waits for it: PSI does not include asynchronous I/O".into());
            return;
        }
        None => f.missing.push("whether anyone waits (no PSI)".to_owned()),
    }
    if let Some(other) = &pressure.other {
        f.missing.push(format!("whose wait it is: the PSI is the host's, and {other}"));
    }
}

/// Tasks that wait in the throttling code, by name.
fn blocked(f: &mut Fire, w: &Window<'_>) {
    let Some(s) = w.tick.samples.processes.as_ref() else { return };
    let waits = |wchan: &str| wchan.contains("throtl") || wchan.contains("rq_qos");
    let names: Vec<String> = s
        .data
        .blocked
        .iter()
        .filter(|t| t.wchan.as_deref().is_some_and(waits))
        .take(5)
        .map(|t| format!("{}/{}", t.comm, t.task.tid))
        .collect();
    if !names.is_empty() {
        let text = format!("waiting in the throttling code: {}", names.join(", "));
        f.evidence.push(Evidence::new("blocked", names.len() as f64, "", text));
    }
}

fn next(f: &mut Fire, g: &CgroupFigures, l: &Limit<'_>) {
    let file = |name| file(g, name);
    let id = l.disk.id;
    if cgroups::of_v1(&g.mount, "blkio") {
        f.next.push(format!("cat {}", file(l.kind.v1)));
        f.next.push(format!("echo '{id} 0' > {}", file(l.kind.v1)));
    } else {
        f.next.push(format!("cat {}", file("io.max")));
        f.next.push(format!("echo '{id} {}=max' > {}", l.kind.v2, file("io.max")));
    }
    f.next.push(match by::pids(&f.by) {
        Some(pids) => format!("pidstat -d -p {pids} 1"),
        None => format!("cat {}", file("cgroup.procs")),
    });
}

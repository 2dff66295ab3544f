//! I/O that waits above the disks and that no readable limit explains: tasks wait while the disks
//! have nothing to do. That shows where it waits but not why, so it is info at most.

use super::super::super::{
    Confidence, Evidence, Fire, RuledOut, Severity, Thresholds, Verdicts, Window,
};
use super::super::common::disks::{leaves, reference};
use super::super::common::tasks;
use super::super::common::text::time_us;
use super::{CALM, CLEAR, PRESSURE, QUEUE};
use crate::metrics::disks::DiskFigures;
use crate::sample::subject::Subject;

/// Maximum number of latency or cost settings named in a finding.
const NAMED: usize = 3;

/// Evaluates the whole host.
pub(super) fn judge(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let Some(some) = w.derived.psi.and_then(|p| p.io_some) else { return };
    let disks: Vec<&DiskFigures> = leaves(w).collect();
    // Without a disk there is nothing to wait for.
    if disks.is_empty() || !disks.iter().all(|d| calm(d, t)) {
        return;
    }
    let busy: f64 = disks.iter().map(|d| in_flight(d)).sum();
    let rest = some - busy;
    if rest >= PRESSURE {
        out.fire(Subject::Host, fire(w, &disks, some, busy));
    } else if rest >= CLEAR * PRESSURE {
        out.linger(Subject::Host);
    }
}

fn calm(d: &DiskFigures, t: &Thresholds) -> bool {
    let quick = d.await_ms.is_none_or(|r| r <= CALM * reference(d, t).ms);
    quick && d.aqu_sz < QUEUE && d.stuck_for.is_zero()
}

/// % of the time with a request in flight, as an explanation for waiting tasks. Some kernels only
/// sample util, so the queue counts as well.
fn in_flight(d: &DiskFigures) -> f64 {
    d.util.max(100.0 * d.aqu_sz).clamp(0.0, 100.0)
}

fn fire(w: &Window<'_>, disks: &[&DiskFigures], some: f64, busy: f64) -> Fire {
    let mut f = Fire::new(
        Severity::Info,
        format!(
            "I/O waits above the disks: tasks wait for it {some:.0}% of the time, the disks are \
             busy {busy:.0}%"
        ),
    );
    f.confidence = Confidence::Suspected;
    let text = format!("the host's tasks wait for I/O {some:.0}% of the time");
    f.evidence.push(Evidence::new("io some", some, "%", text).over(busy + PRESSURE));
    let queue: f64 = disks.iter().map(|d| d.aqu_sz).sum();
    let text = format!("all disks together have a queue of {queue:.2} and are fast");
    f.evidence.push(Evidence::new("aqu-sz", queue, "", text));
    for text in tasks::blocked(w) {
        f.evidence.push(Evidence::text("blocked", text));
    }
    let shared = shares(w);
    for text in &shared {
        f.evidence.push(Evidence::text("shared", text.clone()));
    }
    let because = format!("no disk is slow or has a queue of {QUEUE:.0} or more");
    f.ruled_out.push(RuledOut::new("disk-capped-cloud", because.clone()));
    f.ruled_out.push(RuledOut::new("disk-hung", because));
    let unread = w.tick.samples.cgroups.as_ref().map_or(0, |s| s.data.unread);
    f.missing.push(match (unread, shared.is_empty()) {
        (0, true) => "what they wait for: no readable limit is used up".to_owned(),
        (0, false) => "how much io.latency or io.cost delays it (not counted)".to_owned(),
        (n, _) => format!("the limits of {n} more cgroups, which were not read this time"),
    });
    f.next.push("ps -eLo state,pid,tid,wchan:32,comm | awk '$1 == \"D\"'".to_owned());
    f.next.push(
        "find /sys/fs/cgroup -name io.max -o -name io.latency -o -name 'blkio.throttle.*_device' \
         | xargs grep -H ."
            .to_owned(),
    );
    f.next.push("findmnt -t nfs,nfs4,cifs,fuse,9p; nfsiostat 1 3".to_owned());
    f
}

/// io.latency targets and io.cost settings: other cgroups wait because of them, and nothing counts
/// for how long.
fn shares(w: &Window<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for g in w.derived.cgroups.iter().flat_map(|g| g.iter()) {
        for io in &g.io {
            let Some(d) = w.derived.disk(io.dev) else { continue };
            if let Some(us) = io.limits.latency_us {
                let target = time_us(us);
                out.push(format!("io.latency of {} protects {target} on {}", g.path, d.name));
            }
            if io.limits.iocost {
                out.push(format!("io.cost.qos shares {} by cost", d.name));
            }
        }
    }
    out.truncate(NAMED);
    out
}

//! `dm-linear-imbalance`: a volume over several disks loads only one of them.

use super::common::disks::{reference, slaves, subject, title};
use super::common::text::{ms, rate, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::disks::DiskFigures;

/// Queue of the volume.
const QUEUE: f64 = 2.0;
/// IOPS of the busiest disk relative to the least busy one.
const TIMES: f64 = 4.0;
/// An active finding clears below this fraction of the thresholds.
const CLEAR: f64 = 0.7;
/// Minimum IOPS of the busiest disk.
const LEAST: f64 = 20.0;
/// The busy disk is a bottleneck at this multiple of normal latency ...
const WAITING: f64 = 3.0;
/// ... with this queue.
const DEEP: f64 = 4.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("dm-linear-imbalance"),
    title: "a volume over several disks loads only one of them",
    condition: "A dm volume, or a linear or raid0 array, over two or more disks with a queue of \
        2 or more, where the busiest disk does at least 4 times the IOPS of the least busy one, \
        or that one does none, for 30 of 40 s. A warning when requests wait at the busy disk: \
        queue 4 or more and await 3 times normal.",
    look_alikes: "A split of 57 to 43, or equal thirds, is fine. Mirrors may read from one \
        side, multipath may use one path, spares and thin-pool metadata are idle by design: \
        none of these fires.",
    remedy: "Linear volumes fill one disk after the other, so hot data sits on one of them. \
        Stripe the volume (lvcreate --stripes N, lvconvert --stripes), or place the data so \
        that the load reaches all disks.",
    sources: "Field: an LVM volume over NVMe disks: one disk does 5730 writes/s at a queue of \
        2.95, the others nothing; striped over three they do 609144, 609470 and 610060 \
        requests.",
    hold: Hold::of(30, 40),
    needs_time: Duration::from_secs(32),
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

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    for d in w.derived.disks.iter().flat_map(|d| d.iter()).filter(|d| spreads(d)) {
        let below = slaves(w, d);
        // A missing disk may be the loaded one; internal volumes are not disks.
        let disks = below.len() == d.attrs.slaves.len()
            && below.len() >= 2
            && below.iter().all(|s| !s.name.starts_with("dm-"));
        let Some((most, least)) = disks.then(|| extremes(&below)).flatten() else { continue };
        let queue = if d.unaccounted { below.iter().map(|s| s.aqu_sz).sum() } else { d.aqu_sz };
        let uneven = |part: f64| {
            queue >= part * QUEUE
                && most.iops() >= LEAST
                && most.iops() >= part * TIMES * least.iops()
        };
        if uneven(1.0) {
            out.fire(subject(d), fire(d, queue, &below, most, least, t));
        } else if uneven(CLEAR) {
            out.linger(subject(d));
        }
    }
}

/// A layer that is meant to spread its load.
fn spreads(d: &DiskFigures) -> bool {
    match &d.attrs.md {
        Some(md) => {
            let even = matches!(md.level.as_deref(), Some("linear" | "raid0"));
            even && md.raid_disks.is_none_or(|n| n as usize == d.attrs.slaves.len())
        }
        None => d.name.starts_with("dm-") && d.attrs.dm_kind.as_deref() != Some("mpath"),
    }
}

fn extremes<'a>(disks: &[&'a DiskFigures]) -> Option<(&'a DiskFigures, &'a DiskFigures)> {
    let by = |a: &&&DiskFigures, b: &&&DiskFigures| a.iops().total_cmp(&b.iops());
    Some((disks.iter().max_by(by)?, disks.iter().min_by(by)?))
}

fn fire(
    d: &DiskFigures,
    queue: f64,
    below: &[&DiskFigures],
    most: &DiskFigures,
    least: &DiskFigures,
    t: &Thresholds,
) -> Fire {
    let normal = reference(most, t);
    let waits = most.aqu_sz >= DEEP && most.await_ms.is_some_and(|r| r >= WAITING * normal.ms);
    let mut f = Fire::new(
        if waits { Severity::Warn } else { Severity::Info },
        format!(
            "{} over {} disks loads {} with {} IOPS and {} with {}",
            title(d),
            below.len(),
            most.name,
            rate(most.iops()),
            least.name,
            rate(least.iops())
        ),
    );
    let text = format!("queue {queue:.1} at the volume");
    f.evidence.push(Evidence::new("aqu-sz", queue, "", text).over(QUEUE));
    let shares: Vec<String> = below
        .iter()
        .take(8)
        .map(|s| format!("{} {} IOPS (util {:.0}%)", s.name, rate(s.iops()), s.util_shown()))
        .collect();
    let busiest = most.iops() / least.iops().max(1.0);
    let text = shares.join(", ");
    f.evidence.push(Evidence::new("imbalance", busiest, "", text).over(TIMES));
    if let Some(r) = most.await_ms {
        let text = format!("{}: queue {:.1}, await {} ms", most.name, most.aqu_sz, ms(r));
        f.evidence.push(Evidence::new("await", r, "ms", text));
    }
    match (&d.attrs.md, &d.attrs.dm_kind) {
        (Some(md), _) => {
            let level = md.level.as_deref().unwrap_or("?");
            f.evidence.push(Evidence::text("level", format!("md level {level}")));
        }
        (None, Some(kind)) => {
            f.evidence.push(Evidence::text("dm", format!("made by {kind}")));
            f.missing
                .push("whether its table is linear or striped (sysfs does not show it)".to_owned());
        }
        (None, None) => {
            f.missing.push("what kind of volume it is (no dm/uuid in sysfs)".to_owned());
        }
    }
    let because = format!("{} does {} times as much", most.name, rate(busiest));
    f.ruled_out.push(RuledOut::new("striped evenly", because));
    let because =
        d.attrs.dm_kind.as_deref().map_or("no mirror level".to_owned(), |k| format!("made by {k}"));
    f.ruled_out.push(RuledOut::new("mirror or multipath", because));
    let name = sh(&d.name);
    f.next.push(format!("dmsetup table /dev/{name}  # linear or striped?"));
    f.next.push("lvs -a -o +devices,stripes,segtype".to_owned());
    f.next.push("iostat -x 1".to_owned());
    f
}

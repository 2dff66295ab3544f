//! `conntrack-clash`: two packets of one new flow race into the connection table; one is dropped.

use super::common::links::{self, Judged, say, spaces};
use super::common::origins;
use super::common::text::rate;
use crate::diagnose::rules::prelude::*;
use crate::metrics::netdev::{ConntrackFigures, SpaceFigures};
use crate::sample::netdev::Selection;

/// Packets lost per second.
const LOST_S: f64 = 1.0;
/// An active finding clears below this fraction of it.
const CLEAR: f64 = 0.5;
/// Fraction of the table in use from which it is `conntrack-full`.
const ROOM: f64 = 0.75;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("conntrack-clash"),
    title: "connection tracking drops first packets of new flows that clash; the table has room",
    condition: "insert_failed grows by 1/s or more, and drop with it where that is counted, \
        with less than 75% of nf_conntrack_max in use, for 3 of 10 s. Clears below 0.5/s.",
    look_alikes: "A full table: conntrack-full, from 75% on. Clashes that the kernel resolved: \
        before 5.6 they count as insert_failed, but drop does not grow. A firewall rule that \
        drops: its own counter grows, not these.",
    remedy: "The classic case: a resolver sends the A and AAAA queries from one socket at the \
        same time through DNAT; each lost query costs 5 s. Run a DNS cache on the node, set \
        options single-request-reopen (or use-vc) in resolv.conf, masquerade with random-fully, \
        or exempt DNS with notrack.",
    sources: "/proc/net/stat/nf_conntrack: insert_failed, drop; of the first 4096 entries \
        from ctnetlink, those that are not TCP; nf_conntrack_core.c, nf_ct_resolve_clash(); \
        kubernetes#56903, weave#3287.",
    hold: Hold::of(3, 10),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Netdev], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for (space, fresh) in spaces(w) {
        let Some(c) = space.conntrack else { continue };
        say(out, fresh, Subject::Netns { netns: space.netns }, judge(w, space, &c));
    }
}

fn judge(w: &Window<'_>, s: &SpaceFigures, c: &ConntrackFigures) -> Option<Judged> {
    let failed = c.insert_failed_s?;
    // A clash that is resolved loses no packet.
    let lost = c.drop_s.map_or(failed, |d| d.min(failed));
    // A table without a limit always has room.
    let used = c.used().unwrap_or(0.0);
    if used >= ROOM {
        return None;
    }
    if lost >= LOST_S {
        return Some(fire(w, s, c, lost, used).into());
    }
    (lost >= CLEAR).then_some(Judged::Linger)
}

fn fire(w: &Window<'_>, s: &SpaceFigures, c: &ConntrackFigures, lost: f64, used: f64) -> Fire {
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "connection tracking{} drops {} packets/s from clashing new flows",
            links::inside(w, s),
            rate(lost)
        ),
    );
    let failed = c.insert_failed_s.unwrap_or(lost);
    let text = match c.drop_s {
        Some(d) => format!("insert_failed {}/s, drop {}/s", rate(failed), rate(d)),
        None => format!("insert_failed {}/s", rate(failed)),
    };
    f.evidence.push(Evidence::new("insert_failed", lost, "/s", text).over(LOST_S));
    let (count, max) = (c.now.count, c.now.max);
    let text = if max == 0 {
        format!("{count} entries, no limit")
    } else {
        format!("nf_conntrack_count {count} of nf_conntrack_max {max}")
    };
    f.evidence.push(Evidence::new("used", 100.0 * used, "%", text.clone()));
    f.ruled_out.push(RuledOut::new("conntrack-full", text));
    match c.drop_s {
        Some(d) => {
            let because = format!("drop {}/s: resolved clashes are not dropped", rate(d));
            f.ruled_out.push(RuledOut::new("resolved-clash", because));
        }
        None => f.missing.push("whether the packets were dropped (no drop counter)".to_owned()),
    }
    f.missing.push("which flows clash: the kernel does not record it".to_owned());
    origins::blame(s, Selection::NotTcp, &mut f);
    let enter = links::enter(w, s);
    f.next.push(format!(
        "{enter}cat /proc/net/stat/nf_conntrack  # insert_failed, drop: hex, per CPU"
    ));
    f.next.push(format!("{enter}nft list ruleset | grep -E 'dnat|masquerade|redirect'"));
    // A container has a file of its own.
    let root = match s.member {
        Some(pid) if !enter.is_empty() => format!("/proc/{pid}/root"),
        _ => String::new(),
    };
    f.next.push(format!("grep -E 'nameserver|options' {root}/etc/resolv.conf"));
    if let Some(pid) = f.by.iter().find_map(|c| c.who.pid()) {
        f.next.push(format!("stallscope why {pid}"));
    }
    f
}

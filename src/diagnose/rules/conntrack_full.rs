//! `conntrack-full`: the connection tracking table is full or nearly full.

use super::common::links::{self, Judged, say, spaces};
use super::common::origins;
use super::common::text::rate;
use crate::diagnose::limits::{Levels, Limit};
use crate::diagnose::rules::prelude::*;
use crate::metrics::netdev::{ConntrackFigures, SpaceFigures};
use crate::sample::netdev::Selection;

pub(in crate::diagnose) static LIMIT: Limit = Limit {
    rule: RuleId("conntrack-full"),
    of: "entries of the connection tracking table in use, %",
    warn: 75.0,
    clear: 70.0,
    crit: 95.0,
    // Of a table with more room nobody reads who fills it.
    range: (70.0, 99.0),
};

static DOC: RuleDoc = RuleDoc {
    id: RuleId("conntrack-full"),
    title: "the connection tracking table is nearly full; new connections will be dropped",
    condition: "75% or more of nf_conntrack_max is in use, or packets are dropped because no \
        entry is free, for 3 of 5 s. Critical at 95%, or when packets are dropped or entries \
        not inserted. Clears below 70%.",
    look_alikes: "A firewall rule that drops: the table has room and conntrack's drop counter \
        does not grow. Clashing entries (two packets of one UDP flow at the same time): \
        insert_failed grows along with drop while the table has room.",
    remedy: "Raise nf_conntrack_max (and nf_conntrack_buckets), shorten the timeouts, exempt \
        bulk traffic with notrack, find out which source opens so many connections.",
    sources: "nf_conntrack_count, nf_conntrack_max, /proc/net/stat/nf_conntrack, the \
        first 4096 entries from ctnetlink; node-mixin \
        warns at 75%, netdata at 90 and 95%. Measured: a table of 64 entries drops 532 of 599 \
        flows.",
    hold: Hold::of(3, 5),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Netdev],
    explains: &[
        Explains::new("tcp-rto-storm", Scope::Netns),
        Explains::new("tcp-connect-stuck", Scope::Netns),
    ],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let at = t.levels(&LIMIT);
    for (space, fresh) in spaces(w) {
        let Some(c) = space.conntrack else { continue };
        say(out, fresh, Subject::Netns { netns: space.netns }, judge(w, space, &c, at));
    }
}

fn judge(w: &Window<'_>, s: &SpaceFigures, c: &ConntrackFigures, at: Levels) -> Option<Judged> {
    // A limit of 0 means no limit.
    let used = 100.0 * c.used()?;
    let failed = c.insert_failed_s.unwrap_or(0.0);
    // A clash that cannot be resolved counts in both.
    let dropped = (c.drop_s.unwrap_or(0.0) - failed).max(0.0);
    if used >= at.warn || dropped > 0.0 {
        let lost = dropped > 0.0 || failed > 0.0;
        let severity = if used >= at.crit || lost { Severity::Crit } else { Severity::Warn };
        return Some(fire(w, s, c, (used, at.over(used)), severity).into());
    }
    (used >= at.clear).then_some(Judged::Linger)
}

fn fire(
    w: &Window<'_>,
    s: &SpaceFigures,
    c: &ConntrackFigures,
    (used, at): (f64, f64),
    severity: Severity,
) -> Fire {
    let (count, max) = (c.now.count, c.now.max);
    let dropped = c.drop_s.unwrap_or(0.0);
    let mut f = Fire::new(
        severity,
        format!(
            "connection tracking{} uses {count} of {max} entries ({used:.0}%){}",
            links::inside(w, s),
            if dropped > 0.0 {
                format!(" and drops {} packets/s", rate(dropped))
            } else {
                String::new()
            }
        ),
    );
    let text = format!("nf_conntrack_count {count} of nf_conntrack_max {max}");
    f.evidence.push(Evidence::new("used", used, "%", text).over(at));
    match (c.drop_s, c.insert_failed_s, c.early_drop_s) {
        (Some(drop), Some(failed), early) => {
            let early = early.map_or(String::new(), |e| format!(", early_drop {}/s", rate(e)));
            let text = format!("drop {}/s, insert_failed {}/s{early}", rate(drop), rate(failed));
            f.evidence.push(Evidence::new("drop", drop, "/s", text).over(0.0));
        }
        _ => f.missing.push("whether packets are dropped (/proc/net/stat/nf_conntrack)".to_owned()),
    }
    let because = if dropped > 0.0 {
        format!(
            "conntrack itself counts {} drops/s; drops by rules are not included",
            rate(dropped)
        )
    } else {
        format!("{used:.0}% of the table is in use")
    };
    f.ruled_out.push(RuledOut::new("firewall-rule", because));
    origins::blame(s, Selection::All, &mut f);
    let enter = links::enter(w, s);
    f.next
        .push(format!("{enter}cat /proc/net/stat/nf_conntrack  # drop, early_drop: hex, per CPU"));
    f.next.push(format!(
        "{enter}conntrack -L 2>/dev/null | grep -o -m 100000 'src=[^ ]*' | sort | uniq -c | sort -rn | head"
    ));
    // The limit belongs to the initial namespace; the others only see it.
    f.next.push(format!("sysctl net.netfilter.nf_conntrack_max={}", max.saturating_mul(2)));
    if let Some(pid) = f.by.iter().find_map(|c| c.who.pid()) {
        f.next.push(format!("stallscope why {pid}"));
    }
    f
}

//! Connection tracking (`conntrack -S`).

use super::super::{Evidence, Fire, RuledOut, Severity};
use super::{Judged, plural, some};
use crate::sample::subject::{NetnsId, Subject};
use crate::sample::told::{Conntrack, Told};

/// % of the table in use.
const NEARLY: f64 = 75.0;
const FULL: f64 = 95.0;

fn netns() -> Subject {
    Subject::Netns { netns: NetnsId(0) }
}

/// Totals since the module was loaded say nothing about the present; growth between two readings
/// does. The two sysctls show how full the table is.
pub(super) fn conntrack(told: &Told, out: &mut Judged) {
    let used = match told.conntrack_used {
        (Some(n), Some(max)) if max > 0 => Some((n, max, 100.0 * n as f64 / max as f64)),
        _ => None,
    };
    let Some(last) = told.conntrack.last() else {
        if let Some(used) = used {
            full(None, Some(used), out);
        }
        return;
    };
    let grown = told.conntrack.first().filter(|_| told.conntrack.len() > 1);
    let c = grown.map_or(*last, |first| growth(first, last));
    figures(&c, grown.is_some(), out);
    let (drop, failed) = (c.drop.unwrap_or(0), c.insert_failed.unwrap_or(0));
    // A clash that could not be resolved counts in both.
    let no_room = drop.saturating_sub(failed) + c.early_drop.unwrap_or(0);
    let is_full = used.map(|u| u.2 >= NEARLY);
    if no_room > 0 || is_full == Some(true) {
        full(Some((&c, grown.is_some())), used, out);
    }
    if failed > 0 && is_full != Some(true) {
        clash(&c, grown.is_some(), used, out);
    }
    if let Some(n) = c.chaintoolong.filter(|n| *n > 0) {
        let mut f =
            fire(grown.is_some(), format!("{} in a crowded hash table", lost(n, grown.is_some())));
        f.evidence.push(Evidence::new("chaintoolong", n as f64, "", format!("chaintoolong {n}")));
        f.missing.push("how many buckets the table has".to_owned());
        f.next.push(
            "sysctl net.netfilter.nf_conntrack_buckets net.netfilter.nf_conntrack_count".to_owned(),
        );
        out.fire("conntrack-full", netns(), f);
    }
}

/// Growth between two readings; `None` for a counter that fell.
fn growth(a: &Conntrack, b: &Conntrack) -> Conntrack {
    let d = |a: Option<u64>, b: Option<u64>| a.zip(b).and_then(|(a, b)| b.checked_sub(a));
    Conntrack {
        drop: d(a.drop, b.drop),
        insert_failed: d(a.insert_failed, b.insert_failed),
        early_drop: d(a.early_drop, b.early_drop),
        invalid: d(a.invalid, b.invalid),
        clash_resolve: d(a.clash_resolve, b.clash_resolve),
        chaintoolong: d(a.chaintoolong, b.chaintoolong),
    }
}

fn fire(grown: bool, summary: String) -> Fire {
    let severity = if grown { Severity::Warn } else { Severity::Info };
    let mut f = Fire::new(severity, summary);
    if !grown {
        f.missing
            .push("when that was: a single reading counts since the module was loaded".to_owned());
        f.next.push("conntrack -S; sleep 5; conntrack -S".to_owned());
    }
    f
}

fn lost(n: u64, grown: bool) -> String {
    let since = if grown { "" } else { " once" };
    format!("connection tracking{since} dropped {}", some(n, "packet"))
}

fn figures(c: &Conntrack, grown: bool, out: &mut Judged) {
    let all = [
        ("drop", c.drop),
        ("insert_failed", c.insert_failed),
        ("early_drop", c.early_drop),
        ("invalid", c.invalid),
        ("clash_resolve", c.clash_resolve),
        ("chaintoolong", c.chaintoolong),
    ];
    let text: Vec<String> =
        all.iter().filter_map(|(name, n)| Some(format!("{name} {}", (*n)?))).collect();
    let when = if grown { "between the readings" } else { "since the module was loaded" };
    out.figures.push(format!("Connection tracking {when}: {}", text.join(", ")));
}

fn full(counted: Option<(&Conntrack, bool)>, used: Option<(u64, u64, f64)>, out: &mut Judged) {
    let (c, grown) = counted.map_or((Conntrack::default(), false), |(c, grown)| (*c, grown));
    let drop = c.drop.unwrap_or(0).saturating_sub(c.insert_failed.unwrap_or(0));
    let early = c.early_drop.unwrap_or(0);
    let mut f = match used {
        Some((n, max, pct)) if pct >= NEARLY => {
            let hot = pct >= FULL || grown && drop > 0;
            let severity = if hot { Severity::Crit } else { Severity::Warn };
            let text = format!("connection tracking uses {n} of {max} entries ({pct:.0}%)");
            Fire::new(severity, text)
        }
        _ if drop > 0 => fire(grown, format!("{}: no room in its table", lost(drop, grown))),
        _ if early > 0 => {
            let what = plural(early, "entry", "entries");
            fire(grown, format!("connection tracking evicted {what} to make room"))
        }
        _ => return,
    };
    if let Some((n, max, pct)) = used {
        let text = format!("nf_conntrack_count {n} of nf_conntrack_max {max}");
        f.evidence.push(Evidence::new("used", pct, "%", text).over(NEARLY));
    } else {
        f.missing.push("how full the table is now".to_owned());
        f.next.push(
            "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max".to_owned(),
        );
    }
    if counted.is_some() {
        let text = format!("drop {}, early_drop {early}", c.drop.unwrap_or(0));
        f.evidence.push(Evidence::new("drop", drop as f64, "", text));
    }
    f.next.push(
        "conntrack -L 2>/dev/null | grep -o -m 100000 'src=[^ ]*' | sort | uniq -c | sort -rn | head"
            .to_owned(),
    );
    out.fire("conntrack-full", netns(), f);
}

/// Two packets of one flow at the same time: the second finds the entry of the first.
fn clash(c: &Conntrack, grown: bool, used: Option<(u64, u64, f64)>, out: &mut Judged) {
    let n = c.insert_failed.unwrap_or(0);
    let since = if grown { "" } else { " once" };
    let summary =
        format!("{}{since} clashed with an entry created by another packet", some(n, "packet"));
    let mut f = fire(grown, summary);
    let resolved = c.clash_resolve.map_or(String::new(), |n| format!(", clash_resolve {n}"));
    let text = format!("insert_failed {n}{resolved}");
    f.evidence.push(Evidence::new("insert_failed", n as f64, "", text));
    match used {
        Some((_, _, pct)) => {
            f.ruled_out
                .push(RuledOut::new("conntrack-full", format!("{pct:.0}% of the table used")));
        }
        None => f.missing.push("whether the table was full".to_owned()),
    }
    f.missing.push("which flows: DNS over UDP through DNAT is the usual case".to_owned());
    f.next.push("conntrack -L -p udp 2>/dev/null | grep -c dport=53".to_owned());
    out.fire("conntrack-clash", netns(), f);
}

//! `swap-full`: next to no swap is left.

use crate::diagnose::rules::prelude::*;

/// Of the swap, %.
const FREE: f64 = 5.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("swap-full"),
    title: "next to no swap is left",
    condition: "5% or less of the swap is free, for 3 of 5 s.",
    look_alikes: "A host without swap: SwapTotal is 0, and nothing is judged.",
    remedy: "Find who grew. More swap only puts the end off.",
    sources: "SwapFree and SwapTotal of /proc/meminfo.",
    hold: Hold::of(3, 5),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Memory], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(m) = w.tick.samples.memory.as_ref() else { return };
    let (free, total) = (m.data.get("meminfo.SwapFree"), m.data.get("meminfo.SwapTotal"));
    let Some((free, total)) = free.zip(total).filter(|(_, total)| *total > 0) else { return };
    let left = 100.0 * free as f64 / total as f64;
    if left <= FREE {
        let mut f = Fire::new(Severity::Warn, format!("{left:.1}% of the swap is left"));
        let text = format!("SwapFree {free} kB of SwapTotal {total} kB");
        f.evidence.push(Evidence::new("SwapFree", left, "%", text).over(FREE));
        f.ruled_out.push(RuledOut::new("no-swap", format!("SwapTotal {total} kB")));
        f.next.push("swapon --show; ps -eo pid,rss,comm --sort=-rss | head".to_owned());
        out.fire(Subject::Host, f);
    }
}

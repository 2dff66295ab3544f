//! Through time: by ticks, seconds, and from finding to finding, over what is in memory.

use super::action::TimeStep;
use super::state::{FindingKey, Focus, ViewState, When};
use super::update::{focus, notify};
use crate::analysis::Analysis;
use crate::model::time::{MonoNs, Seq};

/// Goes to another moment.
pub(super) fn travel(v: &mut ViewState, a: &Analysis, step: TimeStep) {
    let (Some(latest), Some(first)) = (a.latest(), a.history().first()) else { return };
    let latest = latest.tick.seq;
    let here = v.shown(latest).max(first.tick.seq);
    let target = match step {
        TimeStep::TickBack => Seq(here.0.saturating_sub(1)),
        TimeStep::TickForward => Seq(here.0 + 1),
        TimeStep::Seconds(s) => seconds_away(a, here, s),
        TimeStep::FindingBack | TimeStep::FindingForward => {
            let back = step == TimeStep::FindingBack;
            let Some((seq, key)) = onset(a, here, back) else {
                if !back {
                    v.when = When::Live;
                }
                notify(v, a, if back { "no earlier finding in memory" } else { "now" });
                return;
            };
            v.finding = Some(key);
            if v.details.is_empty() {
                focus(v, Focus::Findings);
            }
            seq
        }
    };
    let target = target.clamp(first.tick.seq, latest);
    v.when = if target >= latest { When::Live } else { When::Rewound(target) };
    if target == first.tick.seq && here == target && target < latest {
        notify(v, a, "oldest moment in memory");
    }
}

/// The tick nearest to `s` seconds away, at least one tick.
fn seconds_away(a: &Analysis, here: Seq, s: i32) -> Seq {
    let Some(m) = a.history().get(here) else { return here };
    let ns = i64::from(s) * 1_000_000_000;
    let want = MonoNs(m.tick.mono.0.saturating_add_signed(ns));
    if s < 0 {
        let found = a.history().back_from(here).skip(1).find(|m| m.tick.mono <= want);
        found.or(a.history().first()).map_or(here, |m| m.tick.seq)
    } else {
        let found = a.history().iter().find(|m| m.tick.seq > here && m.tick.mono >= want);
        found.or(a.history().last()).map_or(here, |m| m.tick.seq)
    }
}

/// The nearest tick before or after `here` in which a finding is new.
fn onset(a: &Analysis, here: Seq, back: bool) -> Option<(Seq, FindingKey)> {
    let mut found = None;
    let mut before: Option<&crate::diagnose::Findings> = None;
    for (seq, now) in a.findings() {
        if back && seq >= here {
            break;
        }
        let fresh = now.active.iter().find(|f| {
            let old = before.map_or(&[][..], |b| &b.active);
            !old.iter().any(|o| o.rule == f.rule && o.subject == f.subject)
        });
        if let (Some(f), true) = (fresh, back || seq > here) {
            found = Some((seq, FindingKey { rule: f.rule, subject: f.subject.clone() }));
            if !back {
                break;
            }
        }
        before = Some(now);
    }
    found
}

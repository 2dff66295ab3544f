//! Numbers in the conditions of rules that a host may have its own of.

use super::{LIMITS, RuleId, Thresholds};
use crate::sample::rule_settings::RuleSettings;
use crate::text::sanitize;

/// The number at which a rule fires, and what follows from it.
#[derive(Debug)]
pub struct Limit {
    /// Its rule, by whose name it is configured.
    pub rule: RuleId,
    /// What of, with the unit.
    pub of: &'static str,
    /// Where it fires.
    pub warn: f64,
    /// Where it clears.
    pub clear: f64,
    /// Where it is critical; infinite where nothing of the kind makes it so.
    pub crit: f64,
    /// What may be configured, both ends included: what is read reaches so far, and the finding can
    /// still clear.
    pub range: (f64, f64),
}

impl Limit {
    /// What holds where so much is configured: it clears in proportion, and is critical where it
    /// would have been, or at once.
    #[must_use]
    pub fn at(&self, warn: f64) -> Levels {
        Levels { warn, clear: warn * self.clear / self.warn, crit: self.crit.max(warn) }
    }

    /// The one that is configured; `None` where none is, or what no configuration may say.
    #[must_use]
    pub fn configured(&self, rules: &RuleSettings) -> Option<f64> {
        let n = rules.limits.get(self.rule.0).copied()?;
        (self.range.0..=self.range.1).contains(&n).then_some(n)
    }
}

/// What holds on a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Where the rule fires.
    pub warn: f64,
    /// Where it clears.
    pub clear: f64,
    /// Where it is critical.
    pub crit: f64,
}

impl Levels {
    /// The level that so much, which is above `warn`, is over.
    pub(super) fn over(&self, value: f64) -> f64 {
        if value >= self.crit { self.crit } else { self.warn }
    }
}

impl Thresholds {
    /// What holds of a limit.
    pub(super) fn levels(&self, l: &Limit) -> Levels {
        match l.configured(&self.settings) {
            None => Levels { warn: l.warn, clear: l.clear, crit: l.crit },
            Some(warn) => l.at(warn),
        }
    }
}

/// What is configured, in a line; `None` where nothing is. A recording may have anything in it.
#[must_use]
pub fn configured(rules: &RuleSettings) -> Option<String> {
    const DISKS: usize = 8;
    let known = LIMITS.iter().filter_map(|l| Some((l, l.configured(rules)?)));
    let mut said: Vec<String> =
        known.map(|(l, n)| format!("{} {n} instead of {}", l.rule, l.warn)).collect();
    let unknown = rules.limits.len() - said.len();
    if unknown > 0 {
        said.push(format!("{unknown} that this version does not know or allow, not used"));
    }
    if !rules.rotational.is_empty() {
        let disks: Vec<_> = rules.rotational.iter().take(DISKS).map(|d| sanitize(d)).collect();
        let more = rules.rotational.len() - disks.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        said.push(format!("rotational {}{more}", disks.join(" ")));
    }
    (!said.is_empty()).then(|| said.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::diagnose::RULES;

    fn with(l: &Limit, n: f64) -> Levels {
        let limits = [(l.rule.0.to_owned(), n)].into();
        let settings = RuleSettings { limits, ..RuleSettings::default() };
        Thresholds { settings, ..Thresholds::default() }.levels(l)
    }

    #[test]
    fn each_is_in_its_range_and_in_the_text_of_its_rule() {
        for l in LIMITS {
            let doc =
                RULES.iter().find(|r| r.id() == l.rule).unwrap_or_else(|| panic!("{l:?}")).doc;
            let (least, most) = l.range;
            assert!((least..=most).contains(&l.warn), "{l:?}");
            assert!(l.of.ends_with('%'), "{l:?}: no unit");
            for n in [Some(l.warn), Some(l.clear), Some(l.crit).filter(|n| n.is_finite())] {
                let Some(n) = n else { continue };
                let text = format!("{n}%");
                assert!(doc.condition.contains(&text), "{}: no {text} in its condition", l.rule);
            }
        }
        let mut rules: Vec<_> = LIMITS.iter().map(|l| l.rule.0).collect();
        rules.sort_unstable();
        rules.dedup();
        assert_eq!(rules.len(), LIMITS.len(), "one for each rule, which is its name");
    }

    #[test]
    fn what_a_recording_has_is_told_and_used_only_where_it_is_allowed() {
        assert_eq!(configured(&RuleSettings::default()), None);
        let limits: BTreeMap<String, f64> =
            [("fs-full", 12.5), ("x\x1b[2J", 1.0), ("fd-limit", -1.0), ("mem-stall", 1e300)]
                .map(|(rule, n)| (rule.to_owned(), n))
                .into();
        let rules = RuleSettings { limits, rotational: vec!["sd\x1bb".to_owned()] };
        let text = configured(&rules).unwrap();
        let want =
            "fs-full 12.5 instead of 5, 3 that this version does not know or allow, not used, ";
        assert!(text.starts_with(want) && !text.contains('\x1b'), "{text}");
        let t = Thresholds { settings: rules, ..Thresholds::default() };
        for l in LIMITS.iter().filter(|l| l.rule.0 != "fs-full") {
            assert_eq!(t.levels(l), Levels { warn: l.warn, clear: l.clear, crit: l.crit });
        }
    }

    /// At both ends of its range a finding can clear, and critical is not before the warning.
    #[test]
    fn what_is_configured_leaves_room_to_clear() {
        for l in LIMITS {
            let used = l.clear < l.warn;
            for n in [l.range.0, l.warn, l.range.1] {
                let at = with(l, n);
                assert_eq!(at.warn, n);
                assert!(if used { at.clear < n && at.clear > 0.0 } else { at.clear > n }, "{at:?}");
                assert!(at.crit >= n && at.clear < 100.0, "{at:?}");
            }
        }
    }
}

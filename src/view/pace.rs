//! How fast time goes by on the screen: the sampling interval of what is live, the speed at which
//! the past plays. The same keys change either, by what is shown.

use std::time::Duration;

use super::action::Effect;
use super::state::{SPEEDS, ViewState};
use super::units;
use super::update::notify;
use crate::amount;
use crate::analysis::Analysis;

/// Intervals that the keys step through, shortest first.
const STEPS: [(Duration, &str); 9] = [
    (Duration::from_millis(100), "100ms"),
    (Duration::from_millis(200), "200ms"),
    (Duration::from_millis(500), "500ms"),
    (Duration::from_secs(1), "1s"),
    (Duration::from_secs(2), "2s"),
    (Duration::from_secs(5), "5s"),
    (Duration::from_secs(10), "10s"),
    (Duration::from_secs(30), "30s"),
    (Duration::from_secs(60), "60s"),
];

/// Their names, which Tab offers.
pub(super) fn steps() -> Vec<&'static str> {
    STEPS.iter().map(|s| s.1).collect()
}

/// As it is typed where that is short: `500ms`, `1s`, `60s`.
#[must_use]
pub fn interval_text(interval: Duration) -> String {
    match STEPS.iter().find(|s| s.0 == interval) {
        Some(step) => step.1.to_owned(),
        None => units::duration(interval).replace(".00s", "s"),
    }
}

/// The past plays twice as fast or half as fast; the present is sampled at the next interval.
pub(super) fn step(v: &mut ViewState, a: &Analysis, faster: bool) -> Option<Effect> {
    if v.in_past() {
        let by = if faster { 2.0 } else { 0.5 };
        v.play.speed = (v.play.speed * by).clamp(SPEEDS.0, SPEEDS.1);
        let text = format!("speed {}x", v.play.speed);
        notify(v, a, text);
        return None;
    }
    let now = a.host().interval;
    let next = if faster {
        STEPS.iter().rev().find(|s| s.0 < now)
    } else {
        STEPS.iter().find(|s| s.0 > now)
    };
    let Some((interval, _)) = next else {
        let end = if faster { "shortest" } else { "longest" };
        notify(v, a, format!("{} is the {end} sampling interval", interval_text(now)));
        return None;
    };
    change(v, a, *interval)
}

/// Says the interval.
pub(super) fn tell(v: &mut ViewState, a: &Analysis) {
    let now = interval_text(a.host().interval);
    let text = if v.timeline.has_present() {
        format!("sampled every {now}; :interval 500ms changes it")
    } else {
        recorded(&now)
    };
    notify(v, a, text);
}

/// A typed interval.
pub(super) fn set(v: &mut ViewState, a: &Analysis, typed: &str) -> Option<Effect> {
    if !v.timeline.has_present() {
        tell(v, a);
        return None;
    }
    let Ok(interval) = amount::interval(typed) else {
        notify(v, a, format!("interval {typed}: {} is expected", amount::INTERVALS));
        return None;
    };
    change(v, a, interval)
}

fn change(v: &mut ViewState, a: &Analysis, interval: Duration) -> Option<Effect> {
    let now = a.host().interval;
    // Its header says one interval for all of its ticks.
    if v.rec.is_some() && interval != now {
        let now = interval_text(now);
        notify(v, a, format!("stop the recording first (r): it is written at {now}"));
        return None;
    }
    notify(v, a, format!("sampled every {}", interval_text(interval)));
    (interval != now).then_some(Effect::Interval(interval))
}

fn recorded(interval: &str) -> String {
    format!("recorded every {interval}: that cannot be changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_in_order_and_named_as_they_are_typed() {
        assert!(STEPS.windows(2).all(|s| s[0].0 < s[1].0));
        for (interval, name) in STEPS {
            assert_eq!(amount::interval(name), Ok(interval));
            assert_eq!(interval_text(interval), name);
        }
        assert_eq!(interval_text(Duration::from_secs(3)), "3s");
        assert_eq!(interval_text(Duration::from_millis(250)), "250ms");
    }
}

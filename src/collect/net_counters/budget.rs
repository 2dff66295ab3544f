//! CPU time for the namespaces that are not ours: a share of one core, of which some may be saved up.

use std::time::Duration;

/// Share of one core.
pub(super) const SHARE: f64 = 0.001;
/// As much may be saved up, and is there at the beginning: whether a counter grows is known from
/// the third reading on, and who looks for ten seconds cannot wait for three slow turns. A reading
/// takes 0.3 to 1 ms.
const MOST: Duration = Duration::from_millis(30);
/// For short intervals.
const LEAST: Duration = Duration::from_micros(200);

pub(super) struct Budget {
    saved: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self { saved: MOST }
    }
}

impl Budget {
    /// What there is for the tick at the end of `interval`.
    pub(super) fn of_tick(&self, interval: Duration) -> Duration {
        let share = interval.mul_f64(SHARE).max(LEAST);
        (self.saved + share).min(MOST.max(share))
    }

    /// Keeps what `used` leaves of it.
    pub(super) fn keep(&mut self, of_tick: Duration, used: Duration) {
        self.saved = of_tick.saturating_sub(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU time of ticks, each of which wants so much.
    fn used(interval: Duration, wanted: &[u64]) -> Vec<Duration> {
        let mut budget = Budget::default();
        let tick = |ms: &u64| {
            let there = budget.of_tick(interval);
            let used = there.min(Duration::from_millis(*ms));
            budget.keep(there, used);
            used
        };
        wanted.iter().map(tick).collect()
    }

    #[test]
    fn the_first_ticks_may_take_more_and_the_average_stays() {
        let ms = Duration::from_millis;
        let second = ms(1000);
        // 30 ms at the beginning, 1 ms of each second.
        assert_eq!(used(second, &[20, 20, 20, 20]), [ms(20), ms(11), ms(1), ms(1)]);
        let all: Duration = used(second, &[1000; 600]).iter().sum();
        assert_eq!(all, ms(30 + 599));
    }

    #[test]
    fn what_nobody_used_is_there_later_but_not_without_end() {
        let ms = Duration::from_millis;
        let second = ms(1000);
        assert_eq!(used(second, &[30, 0, 0, 0, 9]).last(), Some(&ms(4)));
        let mut hour = vec![0; 3600];
        hour.push(1000);
        assert_eq!(used(second, &hour).last(), Some(&ms(30)));
        // Of a minute there is more than that.
        assert_eq!(used(ms(60_000), &[0, 1000]).last(), Some(&ms(60)));
        // Who took too long owes nothing, and has what a tick has.
        let mut budget = Budget::default();
        budget.keep(ms(30), ms(500));
        assert_eq!(budget.of_tick(second), ms(1));
        assert_eq!(budget.of_tick(ms(100)), Duration::from_micros(200));
    }
}

//! How often our own namespace is read: for a share of one core, but never so rarely that rates go
//! missing.

use std::time::Duration;

/// Share of one core between two readings; with thousands of devices the namespace is read every few
/// ticks.
const SHARE: f64 = 0.02;
/// Between two readings at most, whatever they cost (from 80 ms on more than the share): rules
/// remember a reading for 15 s, and need two of them for a rate.
const MOST: Duration = Duration::from_secs(4);

#[derive(Default)]
pub(super) struct Pace {
    last: Option<Duration>,
}

impl Pace {
    /// The pause after a reading of so much CPU time. A softirq that runs on top of the reader is
    /// charged to it, up to 100 ms at a time just when it matters: one dear reading is not believed.
    pub(super) fn after(&mut self, cost: Duration) -> Duration {
        let usual = self.last.replace(cost).unwrap_or_default().min(cost);
        usual.mul_f64(1.0 / SHARE).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses after readings of so many ms.
    fn pauses(costs: &[u64]) -> Vec<u128> {
        let mut pace = Pace::default();
        costs.iter().map(|ms| pace.after(Duration::from_millis(*ms)).as_millis()).collect()
    }

    #[test]
    fn many_devices_are_read_every_few_ticks() {
        assert_eq!(pauses(&[40, 40, 40, 60]), [0, 2000, 2000, 2000]);
        assert_eq!(pauses(&[1, 1, 1]), [0, 50, 50], "each tick");
    }

    #[test]
    fn a_softirq_in_a_reading_does_not_silence_the_next_ones() {
        assert_eq!(pauses(&[92, 1, 92, 1]), [0, 50, 50, 50]);
        // Not even if it is in each of them.
        assert_eq!(pauses(&[92, 92, 184]), [0, 4000, 4000]);
    }
}

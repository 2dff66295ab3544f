//! How often frames are drawn: immediately, unless the link to the terminal is slow.

use std::time::Duration;

/// A frame that takes longer to leave than this means a slow link.
const SLOW: Duration = Duration::from_millis(50);
/// Bounds of the pause between frames on a slow link.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The pause between two frames: none, or 100 ms to 2 s; doubled while frames leave slowly,
/// otherwise halved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pause: Duration,
}

impl Pace {
    /// A frame took this long to leave.
    pub(super) fn took(&mut self, d: Duration) {
        self.pause = if d > SLOW {
            (self.pause * 2).clamp(PAUSE.0, PAUSE.1)
        } else if self.pause > PAUSE.0 {
            self.pause / 2
        } else {
            Duration::ZERO
        };
    }
    /// Minimum time between two frames.
    pub(super) fn pause(self) -> Duration {
        self.pause
    }
    /// The link is slow.
    pub(super) fn is_slow(self) -> bool {
        !self.pause.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_frames_become_rare_and_recover() {
        let ms = Duration::from_millis;
        let mut p = Pace::default();
        p.took(ms(3));
        assert!(!p.is_slow());
        let pauses: Vec<_> = (0..7)
            .map(|_| {
                p.took(ms(300));
                p.pause()
            })
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000].map(ms));
        for _ in 0..6 {
            p.took(ms(1));
        }
        assert!(!p.is_slow(), "{:?}", p.pause());
    }
}

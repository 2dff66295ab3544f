//! Since when a socket makes no progress: one answer for the table and for the findings.

use std::time::Duration;

use super::Suspect;
use crate::sample::sockets::{SockState, SockTimer};
use crate::sample::time::MonoNs;

impl Suspect {
    /// Since when at least nothing moves although something waits: to be acknowledged, or else
    /// to be read. A stall that was there before we looked shows in the timers. `None`: nothing
    /// waits, or it cannot be told.
    #[must_use]
    pub fn stalled_since(&self) -> Option<MonoNs> {
        if self.state == SockState::LISTEN {
            return None;
        }
        let waits = self.wqueue > 0;
        match self.timer {
            SockTimer::ON if self.retransmits() > 0 => Some(self.unanswered_since()),
            SockTimer::PERSIST if waits => self.closed_since().or(self.acked_flat_since),
            _ if waits && self.acked_flat_since.is_some() => self.acked_flat_since,
            _ => self.unread_since,
        }
    }

    /// Since when at least the peer's window is closed. The window may open and close again
    /// between two looks: then something was acknowledged.
    #[must_use]
    pub fn closed_since(&self) -> Option<MonoNs> {
        let seen = self.closed_seen_since()?;
        // Probes without data leave last_data_sent alone, and each doubles their interval.
        let sent = self.info.and_then(|i| i.last_data_sent_ms()).map(u64::from);
        let sent = sent.map(Duration::from_millis);
        let told = self.probing_for().zip(sent).map(|(a, b)| a.min(b)).unwrap_or_default();
        Some(seen.min(self.as_of().back(told)))
    }

    /// The same as far as it was watched.
    #[must_use]
    pub fn closed_seen_since(&self) -> Option<MonoNs> {
        let closed = self.zero_window_since.or(self.persist_since)?;
        Some(self.acked_flat_since.map_or(closed, |flat| flat.max(closed)))
    }

    /// Since when at least RTOs get no answer.
    #[must_use]
    pub fn unanswered_since(&self) -> MonoNs {
        let seen = self.acked_flat_since.unwrap_or(self.first_seen);
        seen.min(self.as_of().back(self.retransmitting_for().unwrap_or_default()))
    }
}

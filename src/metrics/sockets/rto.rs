//! What `rto` and `backoff` of a socket say together, and what they do not.
//!
//! Each time the retransmission timer fires, the kernel counts `backoff` up and doubles `rto`,
//! up to a limit. From there on the count goes on alone, and `rto >> backoff` is no longer the
//! timeout that the doubling began with. The limit is 120 s; since 6.15 it may be less, down to
//! 1 s (`tcp_rto_max_ms`, `TCP_RTO_MAX_MS`), and nothing tells which it is for a given socket.
//! So it is not assumed here: it is read off the numbers, where they leave no other way.

use std::time::Duration;

use super::Suspect;
use crate::sample::sockets::TcpInfo;

/// `TCP_RTO_MAX`: no timeout is longer, whatever is set.
const MOST_US: u32 = 120_000_000;
/// Nobody can set a lower limit (since 6.15).
const LEAST_LIMIT_US: u32 = 1_000_000;
/// `TCP_RTO_MIN`, and the default of what replaced it: the part of a timeout that allows for
/// variation is no smaller, unless a route or a sysctl says so. Also the least distance of two
/// zero-window probes.
const MIN_US: u32 = 200_000;
/// Jiffies that are whole ms: at 100, 250 and 1000 Hz.
const JIFFIES_US: [u32; 3] = [10_000, 4000, 1000];
/// Doublings of the distance of zero-window probes at most: `ilog2(120 s / 200 ms) + 1`.
const PROBE_DOUBLINGS: u8 = 10;

/// The retransmission timeout, with how it came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rto {
    /// Now, us.
    pub us: u32,
    /// How often the timer fired and counted since it was last computed from the RTT.
    pub backoff: u8,
    /// What `backoff` did to it.
    pub growth: Growth,
}

/// How a timeout grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It did not: as computed from the RTT.
    Flat,
    /// From so many us, doubled `backoff` times.
    Doubled(u32),
    /// Until it reached its limit.
    AtLimit,
    /// Doubled or limited: the numbers allow both.
    Unclear,
}

impl Rto {
    /// Of a socket whose retransmission timer runs. Zero-window probes count `backoff` too,
    /// but leave `rto` alone.
    #[must_use]
    pub fn of(i: &TcpInfo) -> Option<Self> {
        let (us, backoff) = (i.rto_us()?, i.backoff()?);
        let rtt = i.rtt_us().unwrap_or(0);
        let var = i.rttvar_us().unwrap_or(0).saturating_mul(4);
        Some(Self { us, backoff, growth: growth(us, backoff, rtt, var) })
    }

    /// The whole of it: `6.53 s = 204 ms << 5`, or `at its 120 s limit, backoff 14`, with times
    /// as `write` writes them.
    #[must_use]
    pub fn text(&self, write: impl Fn(u32) -> String) -> String {
        let (us, backoff) = (self.us, self.backoff);
        match self.growth {
            Growth::Flat => write(us),
            Growth::Doubled(base) => format!("{} = {} << {backoff}", write(us), write(base)),
            // A limit is a round number of seconds, or was meant to be one.
            Growth::AtLimit => {
                format!("at its {} s limit, backoff {backoff}", f64::from(us / 1000) / 1000.0)
            }
            Growth::Unclear => format!("{}, backoff {backoff}", write(us)),
        }
    }
}

/// `rtt` and `var` are the smoothed RTT and its variation (0: not known): a timeout is computed
/// as their sum, and the variation in it is no smaller than the minimum RTO.
fn growth(us: u32, backoff: u8, rtt: u32, var: u32) -> Growth {
    let base = us.checked_shr(backoff.into()).unwrap_or(0);
    if backoff == 0 {
        return Growth::Flat;
    }
    if us >= MOST_US {
        return Growth::AtLimit;
    }
    if us < LEAST_LIMIT_US {
        return Growth::Doubled(base);
    }
    // Timeouts are whole jiffies. Doubled ones are multiples of what they began with; where a
    // jiffy is a whole number of ms, this shows.
    let ms = u64::from(us / 1000);
    let multiple = !us.is_multiple_of(1000) || ms.trailing_zeros() >= u32::from(backoff);
    let too_small = rtt > 0 && base < rtt.saturating_add(var);
    if !multiple || too_small {
        return Growth::AtLimit;
    }
    let computed = rtt.saturating_add(var.max(MIN_US));
    // A limit that cut off less than a jiffy of the base leaves it above what was computed, too.
    let is_rounded = rtt == 0
        || base >= computed.saturating_add(JIFFIES_US[0])
        || JIFFIES_US.iter().any(|j| computed.div_ceil(*j).saturating_mul(*j) == base)
        || third_up(computed).abs_diff(base) <= 1;
    if base >= computed && (is_rounded || !us.is_multiple_of(1000)) {
        return Growth::Doubled(base);
    }
    Growth::Unclear
}

/// The next jiffy at 300 Hz, us.
fn third_up(us: u32) -> u32 {
    (u64::from(us) * 3).div_ceil(10_000).saturating_mul(10_000).wrapping_div(3) as u32
}

/// Longest time from the n-th zero-window probe to the next, us: the limit may be lower.
fn probe_gap(rto_us: u32, n: u8) -> u64 {
    let gap = u64::from(rto_us.max(MIN_US)) << n.min(PROBE_DOUBLINGS);
    gap.min(MOST_US.into())
}

impl Suspect {
    /// The retransmission timeout and how it came about.
    #[must_use]
    pub fn rto(&self) -> Option<Rto> {
        Rto::of(self.info.as_ref()?)
    }
    /// Longest distance of two zero-window probes: `rto` does not grow with `backoff` there.
    #[must_use]
    pub fn probe_interval(&self) -> Option<Duration> {
        let i = self.info?;
        Some(Duration::from_micros(probe_gap(i.rto_us()?, i.backoff()?)))
    }
    /// How long probing has gone on if it reached the present `backoff` by itself: the sum of
    /// the intervals so far, from one sample only.
    #[must_use]
    pub fn probing_for(&self) -> Option<Duration> {
        let i = self.info?;
        let (rto, backoff) = (i.rto_us()?, i.backoff()?);
        Some(Duration::from_micros((0..backoff).map(|n| probe_gap(rto, n)).sum()))
    }
    /// How long RTOs have gone on without an answer, at least. From the kernel's own clock
    /// where it is about this one time only (since 6.7), else from how far the timeout grew:
    /// at its limit it grew from no less than what doubling backwards gives.
    #[must_use]
    pub fn retransmitting_for(&self) -> Option<Duration> {
        let i = self.info?;
        let r = self.rto()?;
        let base = r.us.checked_shr(r.backoff.into()).unwrap_or(0);
        let grew = Duration::from_micros((r.us - base).into());
        let first = i.total_rto_recoveries() == Some(1) && self.retransmits() > 0;
        let clock = i.total_rto_time_ms().filter(|_| first).map(u64::from);
        Some(grew.max(clock.map(Duration::from_millis).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(us: u32, backoff: u8, rtt: u32, var: u32) -> String {
        let r = Rto { us, backoff, growth: growth(us, backoff, rtt, var) };
        r.text(|us| format!("{} ms", us / 1000))
    }

    #[test]
    fn a_base_is_given_only_while_the_limit_did_not_cut() {
        // Measured on 6.18 against a peer that drops: 204 ms doubled to the limit.
        assert_eq!(text(204_000, 0, 44, 20), "204 ms");
        assert_eq!(text(6_528_000, 5, 44, 20), "6528 ms = 204 ms << 5");
        assert_eq!(text(104_448_000, 9, 44, 20), "104448 ms = 204 ms << 9");
        for backoff in 10..=15 {
            let want = format!("at its 120 s limit, backoff {backoff}");
            assert_eq!(text(120_000_000, backoff, 44, 20), want);
        }
        assert_eq!(text(120_000_000, 255, 0, 0), "at its 120 s limit, backoff 255");
        // tcp_rto_max_ms = 10000: 10 s is no multiple of 2^8; of 2^3 it is, but not from there.
        assert_eq!(text(10_000_000, 8, 44, 20), "at its 10 s limit, backoff 8");
        assert_eq!(text(1_500_000, 3, 200_000, 0), "at its 1.5 s limit, backoff 3");
        // 1 s: 204 << 3 cut, or a route with rto_min 125 ms.
        assert_eq!(text(1_000_000, 3, 44, 20), "1000 ms, backoff 3");
        // rto_min 10 ms on a route: no limit is below 1 s.
        assert_eq!(text(96_000, 3, 44, 20), "96 ms = 12 ms << 3");
        // A SYN: 1 s at first, no RTT yet.
        assert_eq!(text(8_000_000, 3, 0, 1_000_000), "8000 ms = 1000 ms << 3");
        // HZ=100: 2.18 s doubled twice, and cut at 8.7 s. 2.175 s is no base of any kernel.
        assert_eq!(text(8_700_000, 2, 1_028_460, 1_141_541), "8700 ms, backoff 2");
        assert_eq!(text(8_720_000, 2, 1_028_460, 1_141_541), "8720 ms = 2180 ms << 2");
        // Of an unknown RTT nothing can be computed.
        assert_eq!(text(6_528_000, 5, 0, 0), "6528 ms = 204 ms << 5");
        // The variation that the kernel goes by may be larger than the one that it tells.
        assert_eq!(text(8_800_000, 2, 1_028_460, 1_141_541), "8800 ms = 2200 ms << 2");
        // HZ=300: jiffies are no whole ms.
        assert_eq!(text(6_613_333, 5, 44, 20), "6613 ms = 206 ms << 5");
    }

    proptest! {
        /// As the kernel does it: a base from RTT and variation, doubled up to a limit. What is
        /// called doubled gives the real base, or the one that a kernel of another HZ would have:
        /// nothing tells them apart. What is called limited is at the limit.
        #[test]
        fn what_is_said_is_true(
            rtt in 1u32..3_000_000, var in 0u32..2_000_000, hz in prop::sample::select(vec![100u32, 250, 1000]),
            limit in 1000u32..=120_000, backoff in 0u8..16,
        ) {
            let jiffy = 1_000_000 / hz;
            let limit = limit * 1000 / jiffy * jiffy;
            let rounded = |jiffy| (rtt + var.max(MIN_US)).div_ceil(jiffy) * jiffy;
            let base = rounded(jiffy).min(limit);
            let full = u64::from(base) << backoff;
            let us = full.min(limit.into()) as u32;
            match growth(us, backoff, rtt, var) {
                Growth::Flat => prop_assert_eq!(backoff, 0),
                Growth::Doubled(b) => {
                    let is_base = b == base || JIFFIES_US.iter().any(|j| rounded(*j) == b)
                        || third_up(rtt + var.max(MIN_US)).abs_diff(b) <= 1;
                    prop_assert!(is_base, "{b} of {base}");
                }
                Growth::AtLimit => prop_assert_eq!(us, limit),
                Growth::Unclear => {}
            }
        }
    }
}

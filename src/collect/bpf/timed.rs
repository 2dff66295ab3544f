//! Which runs of a softirq vector are timed: all, but where they come so often that it would
//! cost a percent of the CPU, one of three to six.
//!
//! Two readings of the clock are four fifths of what a timed run costs. After [`STREAK`] runs
//! that came less than 33 us apart, eight by eight, two to five are passed over, at random, so
//! that no pattern of the load is hit again and again; the next is timed and counts for all of
//! this group, so that sums are right on average, whatever the mix.
//!
//! Where all of a group ended within 33 us each, none was longer than 0.2 ms. Else those passed
//! over are unsure, and all are timed again until there is another streak: long ones that come
//! more often than that are each timed. One in which two ticks of the kernel came counts for
//! itself alone, passed over or not; and a pause of two ticks ends a group: none is passed over after
//! it, and those before it count as what runs of this vector take on average.
//!
//! A turn is a word: the runs still to be passed over (bits 0 to 3), those that the next timed one
//! counts for besides itself (4 to 7), the timed runs that came often, up to `STREAK` (8 to 23),
//! and how many were timed ever.

/// Timed one by one before any is passed over.
pub const STREAK: u64 = 1024;
/// As many of them are looked at together: a tick between two of them is no pause.
pub const BLOCK: u64 = 8;
/// Runs come often when less than 2 to the power of this lies between them, ns.
pub const OFTEN_SHIFT: u32 = 15;
/// One in the bits of a turn.
const STREAK_SHIFT: u32 = 8;
const STREAK_ONE: u64 = 1 << STREAK_SHIFT;
const TIMED_SHIFT: u32 = 24;
const TIMED_ONE: u64 = 1 << TIMED_SHIFT;
/// All bits below those of the runs timed ever.
const STATE: u64 = TIMED_ONE - 1;
const _: () = assert!(STREAK.is_multiple_of(BLOCK) && STREAK * STREAK_ONE < TIMED_ONE);

/// Runs still to be passed over.
#[inline(always)]
#[must_use]
pub const fn left(turn: u64) -> u64 {
    turn & 15
}
/// How many the next timed run stands for, with itself.
#[inline(always)]
#[must_use]
pub const fn group(turn: u64) -> u64 {
    (turn >> 4 & 15) + 1
}
/// Whether there were [`STREAK`] timed runs that came often.
#[inline(always)]
#[must_use]
pub const fn sampling(turn: u64) -> bool {
    turn & STATE >= STREAK * STREAK_ONE
}
/// Runs passed over that no timed one counts for yet.
#[must_use]
pub const fn pending(turn: u64) -> u64 {
    (turn >> 4 & 15).saturating_sub(left(turn))
}
/// Runs timed ever.
#[must_use]
pub const fn runs(turn: u64) -> u64 {
    turn >> TIMED_SHIFT
}
/// Whether a group of runs came often, when it ended `span` ns after the one before.
#[inline(always)]
#[must_use]
pub const fn often(span: u64, group: u64) -> bool {
    span < group << OFTEN_SHIFT
}

/// The turn after a run that is passed over.
#[inline(always)]
#[must_use]
pub const fn passed(turn: u64) -> u64 {
    turn.wrapping_sub(1)
}
/// The turn when a group ends before its time.
#[inline(always)]
#[must_use]
pub const fn ended(turn: u64) -> u64 {
    turn & !0xff
}
/// The turn after a run that was to be passed over and counts for itself.
#[inline(always)]
#[must_use]
pub const fn late(turn: u64) -> u64 {
    turn.wrapping_sub(0x11)
}
/// The turn after a timed run that counts for itself alone: the next stands for the group.
#[inline(always)]
#[must_use]
pub const fn alone(turn: u64) -> u64 {
    turn.wrapping_add(TIMED_ONE)
}
/// The turn after a timed run whose group did not come often.
#[inline(always)]
#[must_use]
pub const fn seldom(turn: u64) -> u64 {
    (turn & !STATE).wrapping_add(TIMED_ONE)
}
/// The turn after a timed run of a group that came often and ended at `t`.
#[inline(always)]
#[must_use]
pub const fn sampled(turn: u64, t: u64) -> u64 {
    // The upper bits of a product depend on all of `t`: many clocks have no single ns.
    let random = t.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
    seldom(turn).wrapping_add(STREAK * STREAK_ONE + (random + 2) * 0x11)
}
/// The turn after a timed run that ended at `t`, where each is; and whether it was the last of
/// a block, which ended `span` ns after the one before.
#[inline(always)]
#[must_use]
pub const fn single(turn: u64, span: u64, t: u64) -> (u64, bool) {
    let streak = ((turn & STATE) >> STREAK_SHIFT) + 1;
    if !streak.is_multiple_of(BLOCK) {
        (turn.wrapping_add(TIMED_ONE + STREAK_ONE), false)
    } else if !often(span, BLOCK) {
        (seldom(turn), true)
    } else if streak < STREAK {
        (turn.wrapping_add(TIMED_ONE + STREAK_ONE), true)
    } else {
        (sampled(turn, t), true)
    }
}

//! Time in softirqs and in hard interrupt handlers, per CPU and vector or interrupt.
//!
//! Softirqs do not nest on a CPU, but hard interrupts interrupt them: the end of a handler moves
//! the start of the softirq by the handler's time. Else the two write different words, so no
//! atomics are needed. A handler that comes within the few nanoseconds between a softirq's
//! reading of the clock and its access to the start counts to the softirq at its entry, and is
//! taken off at its exit, though it came after.
//!
//! The work of the two programs at a softirq is in no softirq's time but for a few loads of the
//! exit. Where softirqs come often, some are not timed: see `layout::timed`.
//!
//! Nearly all that is left of the cost, next to readings of the clock, are lines of the caches,
//! which the kernel has used for other things since the last softirq. So the programs at softirqs
//! hold the address of their map, do no more than a short softirq needs that came often, and
//! leave the others to `seldom`.
#![no_std]
#![no_main]

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use stallscope_bpf::layout::irq::{
    HARD_COUNT, HARD_HIST, HARD_NS, HARD_START, LINE, LINE_WORDS, LINES, PROBES, SHORT_FROM, SINCE,
    SOFT_START, SOFT_TICK, TABLE_FULL, TURN, UNPAIRED, UNSURE, VECTOR, VECTOR_HIST, VECTOR_SHIFT,
    VECTORS, WORDS,
};
use stallscope_bpf::layout::{bucket_from, timed};
use stallscope_bpf::{MMAPABLE, Stripe, arg, bounded, bucket, cpu, cpu_index, jiffies, now};

#[map]
static IRQ: Array<[u64; WORDS]> = Array::with_max_entries(1, MMAPABLE);

/// How programs come to their stripe, and what they need not do.
trait Way {
    /// The stripe of this CPU.
    fn stripe() -> Option<Stripe>;
    /// Whether runs that come often may be passed over.
    const SAMPLES: bool;
}

/// In the map that the loader places in the program.
struct Placed;
impl Way for Placed {
    #[inline(always)]
    fn stripe() -> Option<Stripe> {
        Stripe::placed::<WORDS>(cpu_index())
    }
    const SAMPLES: bool = true;
}

/// The same where one value of a map cannot hold the stripes of all CPUs, and for kernels that
/// do not tell programs the tick: each run is timed.
struct LookedUp;
impl Way for LookedUp {
    #[inline(always)]
    fn stripe() -> Option<Stripe> {
        Stripe::of(&IRQ, cpu())
    }
    const SAMPLES: bool = false;
}

#[raw_tracepoint(tracepoint = "softirq_entry")]
pub fn softirq_entry(ctx: RawTracePointContext) -> i32 {
    softirq_begins::<Placed>(ctx)
}

#[raw_tracepoint(tracepoint = "softirq_entry")]
pub fn softirq_entry_lookup(ctx: RawTracePointContext) -> i32 {
    softirq_begins::<LookedUp>(ctx)
}

#[raw_tracepoint(tracepoint = "softirq_exit")]
pub fn softirq_exit(ctx: RawTracePointContext) -> i32 {
    softirq_ends::<Placed>(ctx)
}

#[raw_tracepoint(tracepoint = "softirq_exit")]
pub fn softirq_exit_lookup(ctx: RawTracePointContext) -> i32 {
    softirq_ends::<LookedUp>(ctx)
}

#[raw_tracepoint(tracepoint = "irq_handler_entry")]
pub fn hardirq_entry(_ctx: RawTracePointContext) -> i32 {
    handler_begins::<Placed>()
}

#[raw_tracepoint(tracepoint = "irq_handler_entry")]
pub fn hardirq_entry_lookup(_ctx: RawTracePointContext) -> i32 {
    handler_begins::<LookedUp>()
}

#[raw_tracepoint(tracepoint = "irq_handler_exit")]
pub fn hardirq_exit(ctx: RawTracePointContext) -> i32 {
    handler_ends::<Placed>(ctx)
}

#[raw_tracepoint(tracepoint = "irq_handler_exit")]
pub fn hardirq_exit_lookup(ctx: RawTracePointContext) -> i32 {
    handler_ends::<LookedUp>(ctx)
}

/// Measures what nothing costs: the same attachment, no work. Used by the benchmark.
#[raw_tracepoint(tracepoint = "softirq_entry")]
pub fn empty_entry(_ctx: RawTracePointContext) -> i32 {
    0
}

/// As `empty_entry`.
#[raw_tracepoint(tracepoint = "softirq_exit")]
pub fn empty_exit(_ctx: RawTracePointContext) -> i32 {
    0
}

#[inline(always)]
fn softirq_begins<W: Way>(ctx: RawTracePointContext) -> i32 {
    let Some(s) = W::stripe() else { return 0 };
    if W::SAMPLES {
        let Some(row) = row(ctx, s) else { return 0 };
        let turn = row.1.get(TURN);
        if timed::group(turn) != 1 {
            let tick = jiffies();
            let pause = tick.wrapping_sub(s.get(SOFT_TICK));
            s.set(SOFT_TICK, tick);
            if pause > 1 {
                paused(s, row.0);
            } else if timed::left(turn) != 0 {
                return 0;
            }
        }
    }
    s.set(SOFT_START, now());
    0
}

/// A group ends, for what comes after a pause says nothing of those passed over before it. They
/// count as what runs take on average.
#[cold]
#[inline(never)]
fn paused(s: Stripe, vector: u64) {
    let row = s.after(bounded::<15>(vector) as u64 * ROW);
    let turn = row.get(TURN);
    row.set(TURN, timed::ended(turn));
    let runs = row.get(VECTOR);
    if runs == 0 {
        return;
    }
    let (ns, pending) = (row.get(VECTOR + 1) / runs, timed::pending(turn));
    row.add(UNSURE, pending);
    row.add(VECTOR + 1, ns.wrapping_mul(pending));
    row.add(VECTOR + VECTOR_HIST + bucket(ns), pending);
}

/// Number and row of the vector.
#[inline(always)]
fn row(ctx: RawTracePointContext, s: Stripe) -> Option<(u64, Stripe)> {
    let vector = arg(ctx.as_ptr(), 0);
    (vector < VECTORS as u64).then(|| (vector, s.after(vector << (VECTOR_SHIFT + 3))))
}

/// Whether two ticks came, at least, in a run of a group.
#[inline(always)]
fn two_ticks(s: Stripe) -> bool {
    jiffies().wrapping_sub(s.get(SOFT_TICK)) > 1
}

#[inline(always)]
fn softirq_ends<W: Way>(ctx: RawTracePointContext) -> i32 {
    let Some(s) = W::stripe() else { return 0 };
    let Some((vector, row)) = row(ctx, s) else { return 0 };
    let mut turn = 0;
    if W::SAMPLES {
        turn = row.get(TURN);
        if timed::left(turn) != 0 {
            if two_ticks(s) {
                late(s, vector);
                return 0;
            }
            row.set(TURN, timed::passed(turn));
            row.add(VECTOR, 1);
            return 0;
        }
    }
    let t = now();
    let start = s.get(SOFT_START);
    s.set(SOFT_START, 0);
    let ns = t.wrapping_sub(start);
    // One comparison: what is shorter turns into more than anything.
    const FROM: u64 = 1 << SHORT_FROM;
    let usual = ns.wrapping_sub(FROM) < (FROM << 4) - FROM;
    if W::SAMPLES {
        let group = timed::group(turn);
        let span = t.wrapping_sub(row.get(SINCE));
        if timed::sampling(turn) && timed::often(span, group) && usual {
            row.set(SINCE, t);
            row.set(TURN, timed::sampled(turn, t));
            count(row, group, ns, bucket_from(SHORT_FROM, ns));
            return 0;
        }
    } else if usual {
        count(row, 1, ns, bucket_from(SHORT_FROM, ns));
        return 0;
    }
    seldom::<W>(s, vector, start, t);
    0
}

/// What softirqs that come often need not do.
#[cold]
#[inline(never)]
fn seldom<W: Way>(s: Stripe, vector: u64, start: u64, t: u64) {
    if start == 0 {
        s.add(UNPAIRED, 1);
        return;
    }
    let ns = t.wrapping_sub(start);
    // By a handler after the end, see the head.
    let ns = if ns > i64::MAX as u64 { 0 } else { ns };
    let row = s.after(bounded::<15>(vector) as u64 * ROW);
    if !W::SAMPLES {
        count(row, 1, ns, bucket(ns));
        return;
    }
    let turn = row.get(TURN);
    let span = t.wrapping_sub(row.get(SINCE));
    let group = timed::group(turn);
    if !timed::sampling(turn) {
        let (next, ends) = timed::single(turn, span, t);
        row.set(TURN, next);
        if ends {
            row.set(SINCE, t);
        }
        count(row, 1, ns, bucket(ns));
        return;
    }
    row.set(SINCE, t);
    if group > 1 && two_ticks(s) {
        row.set(TURN, timed::alone(turn));
        count(row, 1, ns, bucket(ns));
        return;
    }
    let often = timed::often(span, group);
    row.set(TURN, if often { timed::sampled(turn, t) } else { timed::seldom(turn) });
    if !often {
        row.add(UNSURE, group - 1);
    }
    count(row, group, ns, bucket(ns));
}

/// A run that was to be passed over, but two ticks or more came in it.
#[cold]
#[inline(never)]
fn late(s: Stripe, vector: u64) {
    let row = s.after(bounded::<15>(vector) as u64 * ROW);
    let turn = row.get(TURN);
    // All that came since the last group, and a pause of less than two ticks.
    let span = now().wrapping_sub(row.get(SINCE));
    // Ticks can come late, many at once, where the host takes the CPU that counts them.
    if timed::often(span, timed::group(turn)) {
        row.set(TURN, timed::passed(turn));
        row.add(VECTOR, 1);
        return;
    }
    row.set(TURN, timed::late(turn));
    count(row, 1, span, bucket(span));
}

/// Bytes from row to row.
const ROW: u64 = 8 << VECTOR_SHIFT;

/// Counts a run that stands for `group` of them.
#[inline(always)]
fn count(row: Stripe, group: u64, ns: u64, bucket: usize) {
    row.add(VECTOR, 1);
    row.add(VECTOR + 1, ns.wrapping_mul(group));
    if ns > row.get(VECTOR + 2) {
        row.set(VECTOR + 2, ns);
    }
    row.add(VECTOR + VECTOR_HIST + bucket, group);
}

#[inline(always)]
fn handler_begins<W: Way>() -> i32 {
    let t = now();
    if let Some(s) = W::stripe() {
        s.set(HARD_START, t);
    }
    0
}

#[inline(always)]
fn handler_ends<W: Way>(ctx: RawTracePointContext) -> i32 {
    let t = now();
    let Some(s) = W::stripe() else { return 0 };
    let start = s.get(HARD_START);
    if start == 0 {
        s.add(UNPAIRED, 1);
        return 0;
    }
    s.set(HARD_START, 0);
    let ns = t.wrapping_sub(start);
    let softirq = s.get(SOFT_START);
    if softirq != 0 {
        s.set(SOFT_START, softirq.wrapping_add(ns));
    }
    s.add(HARD_NS, ns);
    s.add(HARD_COUNT, 1);
    s.observe(HARD_HIST, ns);
    let key = (arg(ctx.as_ptr(), 0) & 0xffff_ffff).wrapping_add(1);
    let mut i = 0;
    while i < PROBES as u64 {
        let row = LINE + bounded::<{ LINES as u64 - 1 }>(key.wrapping_add(i)) * LINE_WORDS;
        let have = s.get(row);
        if have == 0 || have == key {
            s.set(row, key);
            s.add(row + 1, 1);
            s.add(row + 2, ns);
            if ns > s.get(row + 3) {
                s.set(row + 3, ns);
            }
            return 0;
        }
        i += 1;
    }
    s.add(TABLE_FULL, 1);
    0
}

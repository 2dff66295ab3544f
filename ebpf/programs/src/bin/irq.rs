//! Time in softirqs and in hard interrupt handlers, per CPU and vector or interrupt.
//!
//! Softirqs do not nest on a CPU, but hard interrupts interrupt them: the end of a handler moves
//! the start of the softirq by the handler's time. Else the two write different words, so no
//! atomics are needed. A handler that comes within the few nanoseconds between a softirq's
//! reading of the clock and its access to the start counts to the softirq at its entry, and is
//! taken off at its exit, though it came after.
//!
//! The clock is read first of all: the work of the exit is in no softirq's time.
//!
//! Nearly all that is left of the cost, next to the two readings of the clock, are lines of the
//! caches, which the kernel has used for other things since the last softirq. So the programs at
//! softirqs hold the address of their map, do no more than a short softirq needs, in four lines of
//! machine code, and leave the others to `seldom`.
#![no_std]
#![no_main]

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use stallscope_bpf::layout::bucket_from;
use stallscope_bpf::layout::irq::{
    HARD_COUNT, HARD_HIST, HARD_NS, HARD_START, LINE, LINE_WORDS, LINES, PROBES, SHORT_FROM,
    SOFT_START, TABLE_FULL, UNPAIRED, VECTOR, VECTOR_HIST, VECTOR_SHIFT, VECTORS, WORDS,
};
use stallscope_bpf::{MMAPABLE, Stripe, arg, bounded, bucket, cpu, cpu_index, now};

#[map]
static IRQ: Array<[u64; WORDS]> = Array::with_max_entries(1, MMAPABLE);

/// The stripe of this CPU in the map that the loader places here.
#[inline(always)]
fn placed() -> Option<Stripe> {
    Stripe::placed::<WORDS>(cpu_index())
}

/// The same where one value of a map cannot hold the stripes of all CPUs.
#[inline(always)]
fn looked_up() -> Option<Stripe> {
    Stripe::of(&IRQ, cpu())
}

#[raw_tracepoint(tracepoint = "softirq_entry")]
pub fn softirq_entry(_ctx: RawTracePointContext) -> i32 {
    softirq_begins(placed)
}

#[raw_tracepoint(tracepoint = "softirq_entry")]
pub fn softirq_entry_lookup(_ctx: RawTracePointContext) -> i32 {
    softirq_begins(looked_up)
}

#[raw_tracepoint(tracepoint = "softirq_exit")]
pub fn softirq_exit(ctx: RawTracePointContext) -> i32 {
    softirq_ends(ctx, placed)
}

#[raw_tracepoint(tracepoint = "softirq_exit")]
pub fn softirq_exit_lookup(ctx: RawTracePointContext) -> i32 {
    softirq_ends(ctx, looked_up)
}

#[raw_tracepoint(tracepoint = "irq_handler_entry")]
pub fn hardirq_entry(_ctx: RawTracePointContext) -> i32 {
    handler_begins(placed)
}

#[raw_tracepoint(tracepoint = "irq_handler_entry")]
pub fn hardirq_entry_lookup(_ctx: RawTracePointContext) -> i32 {
    handler_begins(looked_up)
}

#[raw_tracepoint(tracepoint = "irq_handler_exit")]
pub fn hardirq_exit(ctx: RawTracePointContext) -> i32 {
    handler_ends(ctx, placed)
}

#[raw_tracepoint(tracepoint = "irq_handler_exit")]
pub fn hardirq_exit_lookup(ctx: RawTracePointContext) -> i32 {
    handler_ends(ctx, looked_up)
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
fn softirq_begins(stripe: impl FnOnce() -> Option<Stripe>) -> i32 {
    let t = now();
    if let Some(s) = stripe() {
        s.set(SOFT_START, t);
    }
    0
}

#[inline(always)]
fn softirq_ends(ctx: RawTracePointContext, stripe: impl FnOnce() -> Option<Stripe>) -> i32 {
    let vector = arg(ctx.as_ptr(), 0);
    let t = now();
    let Some(s) = stripe() else { return 0 };
    if vector >= VECTORS as u64 {
        return 0;
    }
    let start = s.get(SOFT_START);
    s.set(SOFT_START, 0);
    let ns = t.wrapping_sub(start);
    // One comparison: what is shorter turns into more than anything.
    const FROM: u64 = 1 << SHORT_FROM;
    if ns.wrapping_sub(FROM) >= (FROM << 4) - FROM {
        seldom(s, vector, start, ns);
        return 0;
    }
    count(s, vector, ns, bucket_from(SHORT_FROM, ns));
    0
}

/// What most softirqs need not do.
#[cold]
#[inline(never)]
fn seldom(s: Stripe, vector: u64, start: u64, ns: u64) {
    if start == 0 {
        s.add(UNPAIRED, 1);
        return;
    }
    // By a handler after the end, see the head.
    let ns = if ns > i64::MAX as u64 { 0 } else { ns };
    count(s, vector, ns, bucket(ns));
}

#[inline(always)]
fn count(s: Stripe, vector: u64, ns: u64, bucket: usize) {
    let s = s.after(vector << (VECTOR_SHIFT + 3));
    s.add(VECTOR, 1);
    s.add(VECTOR + 1, ns);
    if ns > s.get(VECTOR + 2) {
        s.set(VECTOR + 2, ns);
    }
    s.add(VECTOR + VECTOR_HIST + bucket, 1);
}

#[inline(always)]
fn handler_begins(stripe: impl FnOnce() -> Option<Stripe>) -> i32 {
    let t = now();
    if let Some(s) = stripe() {
        s.set(HARD_START, t);
    }
    0
}

#[inline(always)]
fn handler_ends(ctx: RawTracePointContext, stripe: impl FnOnce() -> Option<Stripe>) -> i32 {
    let t = now();
    let Some(s) = stripe() else { return 0 };
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

//! Time in softirqs and in hard interrupt handlers, per CPU and vector or interrupt.
//!
//! Softirqs do not nest on a CPU, but hard interrupts interrupt them: their time is taken off
//! the softirq's. A softirq and a handler write different words, so no atomics are needed. A
//! handler that comes within the few nanoseconds between a program's reading of the clock and of
//! `HARD_NS` counts to the softirq after its entry, and is taken off before its exit.
//!
//! The clock is read first of all: the work of the exit is in no softirq's time, and next to
//! nothing has to be kept over the call.
#![no_std]
#![no_main]

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use stallscope_bpf::layout::BUCKETS;
use stallscope_bpf::layout::irq::{
    HARD_COUNT, HARD_HIST, HARD_NS, HARD_START, LINE, LINE_WORDS, LINES, PROBES, SOFT_HIST,
    SOFT_START, TABLE_FULL, UNPAIRED, VECTOR, VECTOR_WORDS, VECTORS, WORDS,
};
use stallscope_bpf::{MMAPABLE, Stripe, arg, bounded, cpu, now};

#[map]
static IRQ: Array<[u64; WORDS]> = Array::with_max_entries(1, MMAPABLE);

#[raw_tracepoint(tracepoint = "softirq_entry")]
pub fn softirq_entry(_ctx: RawTracePointContext) -> i32 {
    let t = now();
    if let Some(s) = Stripe::of(&IRQ, cpu()) {
        s.set(SOFT_START, t.wrapping_sub(s.get(HARD_NS)));
    }
    0
}

#[raw_tracepoint(tracepoint = "softirq_exit")]
pub fn softirq_exit(ctx: RawTracePointContext) -> i32 {
    let t = now();
    let Some(s) = Stripe::of(&IRQ, cpu()) else { return 0 };
    let start = s.get(SOFT_START);
    if start == 0 {
        s.add(UNPAIRED, 1);
        return 0;
    }
    s.set(SOFT_START, 0);
    let ns = t.wrapping_sub(s.get(HARD_NS)).wrapping_sub(start);
    let ns = if ns > i64::MAX as u64 { 0 } else { ns };
    let vector = arg(ctx.as_ptr(), 0);
    if vector >= VECTORS as u64 {
        return 0;
    }
    let vector = vector as usize;
    let row = VECTOR + vector * VECTOR_WORDS;
    s.add(row, 1);
    s.add(row + 1, ns);
    if ns > s.get(row + 2) {
        s.set(row + 2, ns);
    }
    s.observe(SOFT_HIST + vector * BUCKETS, ns);
    0
}

#[raw_tracepoint(tracepoint = "irq_handler_entry")]
pub fn hardirq_entry(_ctx: RawTracePointContext) -> i32 {
    if let Some(s) = Stripe::of(&IRQ, cpu()) {
        s.set(HARD_START, now());
    }
    0
}

#[raw_tracepoint(tracepoint = "irq_handler_exit")]
pub fn hardirq_exit(ctx: RawTracePointContext) -> i32 {
    let Some(s) = Stripe::of(&IRQ, cpu()) else { return 0 };
    let start = s.get(HARD_START);
    if start == 0 {
        s.add(UNPAIRED, 1);
        return 0;
    }
    s.set(HARD_START, 0);
    let ns = now().wrapping_sub(start);
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

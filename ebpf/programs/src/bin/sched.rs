//! Run-queue latency: how long a task that could run waited for its CPU.
//!
//! Tier A (`runq`): one program at `sched_switch`. The scheduler itself keeps the time at
//! which the task was queued, in the run queue's clock; we read that clock and map
//! CLOCK_MONOTONIC into it. The run queue's own clock cannot serve as "now": after a wakeup
//! that preempts, the scheduler skips its update and it still shows the time of queueing.
//! It is never ahead, so the largest difference seen lately is the true one.
//!
//! Reading CLOCK_MONOTONIC costs more than all the rest. A task that gives up its CPU by
//! itself leaves a fresh clock behind, as no preemption is due; then the clock is taken as it
//! is. Only where a preempting wakeup comes while the task is already on its way to sleep, and
//! a third task is picked, its wait is short by the time from that wakeup to the switch. (A
//! task that is preempted there is told apart in `seldom` only: bins hold short waits.)
//!
//! A clock that shows the moment of queueing stood still since: less than a tick ago the task
//! was woken, and the CPU told to switch. Of such waits one in `READ_NS` is measured and
//! counts for those passed over; four times as many where there are few. They began within
//! that time of the one before, and but for the last of them ended within it: they were short,
//! and one that takes longer does not stand for them. So where a CPU does nothing but switch,
//! it reads CLOCK_MONOTONIC for them 1,900 times a second.
//!
//! Most switches of a busy CPU are one of two kinds: passed over, or a wait of up to 4 us by a
//! fresh clock. `runq` itself does no more than these, in 270 bytes of machine code and two
//! lines of the map; each further line of either costs as much as ten instructions, for the
//! kernel has pushed them out of the caches by the next switch. All else is in `seldom`; for
//! the same reason a visit there costs many times as much.
//!
//! Since 6.12 the scheduler's stamp can be wrong: see `slept`.
//!
//! Tier B, for kernels without BTF: stamps at wakeup, taken at the switch.
#![no_std]
#![no_main]

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::macros::{btf_tracepoint, map, tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::{BtfTracePointContext, TracePointContext};
use aya_ebpf::{EbpfContext, Global};
use stallscope_bpf::layout::field;
use stallscope_bpf::layout::runq::{
    BIN, BIN_FROM, BIN_SHIFT, BIN_TO, BINS, CGROUP, CGROUP_FULL, CGROUP_WORDS, CGROUPS, COLLIDED,
    DISCARDED, HIST, LONG, LONG_NS, OFF_BEFORE, OFF_NOW, READ, READ_UNTIL, RING, RING_AT,
    RING_WORDS, SLEEP_NS, SLEPT, STALE_NS, STAMPS, SWITCHES, UNREAD, UNSURE, WAIT_NS, WINDOW,
    WINDOW_NS, WORDS, read_due, read_until, sample_due, stands_for,
};
use stallscope_bpf::layout::{
    BUCKETS, HIST_MAX_NS, STAMP_BITS, STAMP_MASK, bucket_of_short, bucket_table,
};
use stallscope_bpf::{Kernel, MMAPABLE, Place, Stripe, arg, bounded, cpu, exact, now, offsets};

#[map]
static RUNQ: Array<[u64; WORDS]> = Array::with_max_entries(1, MMAPABLE);
/// Tier B: packed stamps by pid. One entry in tier A.
#[map]
static RUNQ_STAMPS: Array<u64> = Array::with_max_entries(STAMPS, 0);

offsets! {
    /// `task_struct.pid` and `.tgid`.
    TASK_PID,
    TASK_TGID,
    /// `task_struct.sched_task_group`, `task_group.css.cgroup`, `cgroup.kn`, `kernfs_node.id`.
    TASK_GROUP,
    GROUP_CGROUP,
    CGROUP_KN,
    KN_ID,
    /// Not 0: the four above are known.
    CGROUP_KNOWN,
    /// `task_struct.prio`, `.se.avg.runnable_avg`, and not 0 where tasks that sleep may stay
    /// queued (`sched_entity.sched_delayed`, 6.12) and these are known.
    TASK_PRIO,
    TASK_RUNNABLE,
    DELAYED_KNOWN,
    /// `task_struct.se.cfs_rq`, `cfs_rq.throttled_clock_pelt_time`, and not 0 where there is
    /// bandwidth control.
    TASK_CFS,
    CFS_THROTTLED,
    THROTTLE_KNOWN,
    /// Not 0: read with the helper what is read seldom, see `stallscope_bpf::Address`.
    BY_HELPER,
    /// `task_struct.comm`, and not 0 where it is known.
    TASK_COMM,
    COMM_KNOWN,
    /// Fields of the classic records.
    TP_PREV_PID,
    TP_PREV_STATE,
    TP_NEXT_PID,
    TP_WAKE_PID,
    /// Not 0: the classic records have the layout of all kernels so far.
    TP_KNOWN,
    /// The bit that marks a preempted task in `prev_state`.
    TP_PREEMPTED,
}

#[btf_tracepoint(function = "sched_switch")]
pub fn runq(ctx: BtfTracePointContext) -> i32 {
    switched(ctx, |cpu| Stripe::placed::<WORDS>(u64::from(cpu)))
}

/// The same where one value of a map cannot hold the stripes of all CPUs.
#[btf_tracepoint(function = "sched_switch")]
pub fn runq_lookup(ctx: BtfTracePointContext) -> i32 {
    switched(ctx, |cpu| Stripe::of(&RUNQ, cpu))
}

#[inline(always)]
fn switched(ctx: BtfTracePointContext, stripe: impl FnOnce(u32) -> Option<Stripe>) -> i32 {
    let ctx = ctx.as_ptr();
    let next = Kernel::arg(ctx, 2);
    let Some(s) = stripe(next.read(field::TASK_CPU)) else { return 0 };
    let queued: u64 = next.read(field::TASK_LAST_QUEUED);
    let rq = next.follow(field::TASK_CFS_RQ).follow(field::CFS_RQ_RQ);
    let clock: u64 = rq.read(field::RQ_CLOCK);
    let wait = clock.wrapping_sub(queued);
    let left = s.get(READ_UNTIL).wrapping_sub(clock);
    let elsewhere = if wait < BIN_FROM {
        wait != 0 || read_due(left)
    } else {
        // Idle's stamp is 0, and its state is "running"; so is that of a preempted task, but for
        // one that was on its way to sleep.
        wait >= BIN_TO
            || sample_due(left)
            || Kernel::arg(ctx, 1).read::<u32>(field::TASK_STATE) == 0
    };
    if elsewhere {
        seldom(ctx, s, clock, queued);
        return 0;
    }
    // The bin, or what counts the waits that are passed over.
    s.after(bounded::<BIN_BYTES>(wait >> (BIN_SHIFT - 3)) as u64).add(UNREAD, 1);
    0
}

/// How far from `UNREAD` the last bin lies: all bits of the places of bins.
const BIN_BYTES: u64 = ((BIN + BINS - 1 - UNREAD) << 3) as u64;

/// Measures what nothing costs: the same attachment, no work. Used by the benchmark.
#[btf_tracepoint(function = "sched_switch")]
pub fn empty(_ctx: BtfTracePointContext) -> i32 {
    0
}

/// What most switches need not do.
#[cold]
#[inline(never)]
fn seldom(ctx: *mut c_void, s: Stripe, clock: u64, queued: u64) {
    s.add(SWITCHES, 1);
    let mut waits = 1;
    let mut fresh = false;
    if clock == queued {
        waits = s.get(UNREAD).wrapping_sub(s.get(READ)).wrapping_add(1);
        s.set(READ_UNTIL, read_until(clock, waits));
    } else if sample_due(s.get(READ_UNTIL).wrapping_sub(clock)) {
        // The next wait that needs a reading has one, unless the clock still stands.
        s.set(READ_UNTIL, clock);
    } else {
        // A fresh clock serves as it is, but for a sample of its offset now and then.
        fresh = queued == 0 || gave_up(ctx);
    }
    let mut moment = clock;
    if !fresh {
        let t = now();
        moment = t.wrapping_add(rq_clock_offset(s, t, clock));
    }
    if queued == 0 {
        return;
    }
    let wait = moment.wrapping_sub(queued);
    if wait < LONG_NS {
        waits = stands_for(wait, waits);
        s.add(WAIT_NS, wait.wrapping_mul(waits));
        s.add(
            HIST + bounded::<{ BUCKETS as u64 - 1 }>(bucket_of_short(&SHORT, wait) as u64),
            waits,
        );
        if waits > 1 {
            s.set(READ, s.get(UNREAD));
        }
        return;
    }
    waited_long(s, Kernel::arg(ctx, 2), wait);
}

/// Asked to sleep by itself: neither preempted, nor idle (whose state is "running").
#[inline(always)]
fn gave_up(ctx: *mut c_void) -> bool {
    arg(ctx, 0) & 1 == 0 && Kernel::arg(ctx, 1).read::<u32>(field::TASK_STATE) != 0
}

/// The buckets of short waits.
#[unsafe(no_mangle)]
static SHORT: [u8; 1024] = bucket_table();

#[inline(always)]
fn waited_long(s: Stripe, next: Kernel, wait: u64) {
    if wait >= HIST_MAX_NS {
        s.add(DISCARDED, 1);
        return;
    }
    if wait >= SLEEP_NS && slept(next, wait) {
        s.add(SLEPT, 1);
        return;
    }
    count(s, wait);
    let pids = u64::from(next.read::<u32>(exact!(TASK_TGID))) << 32
        | u64::from(next.read::<u32>(exact!(TASK_PID)));
    let mut cgroup = 0;
    if CGROUP_KNOWN.load() != 0 {
        cgroup = if BY_HELPER.load() != 0 { cgroup_of(next.untyped()) } else { cgroup_of(next) };
    }
    let mut comm = [0; 2];
    if COMM_KNOWN.load() != 0 {
        comm = [next.read(exact!(TASK_COMM)), next.read(exact!(TASK_COMM) + 8)];
    }
    long_wait(s, &Long { t: now(), wait, pids, cgroup, comm });
}

#[inline(always)]
fn cgroup_of(task: impl Place) -> u64 {
    task.follow(exact!(TASK_GROUP))
        .follow(exact!(GROUP_CGROUP))
        .follow(exact!(CGROUP_KN))
        .read(exact!(KN_ID))
}

/// Not 0: the task's group is throttled.
#[inline(always)]
fn throttled(task: impl Place) -> u64 {
    task.follow(exact!(TASK_CFS)).read(exact!(CFS_THROTTLED))
}

/// Whether the task slept in what the scheduler's stamp says it waited.
///
/// Since 6.12 a task that falls asleep may stay queued until it would be picked. When the load
/// balancer moves it meanwhile, it is stamped as waiting, and the stamp stays until it wakes:
/// its whole sleep then counts as a wait, in `run_delay` too. The decaying average of how long
/// it was runnable tells the two apart. It is brought up to date when the task is picked; of
/// 1024 it gains half of what is missing in 32 ms of waiting, and loses half in 32 ms of sleep.
/// The limits are what a third of such a wait gives (58 ms for long ones): the clock of the
/// average may run as slow as that (steal, low frequency), and most of a longer sleep is found
/// though the task waited for a while after it.
#[inline(always)]
fn slept(next: Kernel, wait: u64) -> bool {
    // Only the fair class delays, and only it keeps the average.
    if DELAYED_KNOWN.load() == 0 || next.read::<i32>(exact!(TASK_PRIO)) < MAX_RT_PRIO {
        return false;
    }
    // While a group is throttled the clock of its averages stands still.
    if THROTTLE_KNOWN.load() != 0 {
        let clock = if BY_HELPER.load() != 0 { throttled(next.untyped()) } else { throttled(next) };
        if clock != 0 {
            return false;
        }
    }
    let ms = wait >> 20;
    let least = if ms < 176 { ms * 4 } else { 704 };
    next.read::<u64>(exact!(TASK_RUNNABLE)) < least
}

/// Priorities below are of the real-time and deadline classes (`include/linux/sched/prio.h`).
const MAX_RT_PRIO: i32 = 100;

/// A long wait, as the ring keeps it.
struct Long {
    t: u64,
    wait: u64,
    pids: u64,
    cgroup: u64,
    comm: [u64; 2],
}

/// (rq clock - CLOCK_MONOTONIC): the largest of this window and the one before, as a wrapped
/// difference. Windows let it follow the slewing of CLOCK_MONOTONIC.
#[inline(always)]
fn rq_clock_offset(s: Stripe, t: u64, clock: u64) -> u64 {
    let off = clock.wrapping_sub(t);
    let age = t.wrapping_sub(s.get(WINDOW));
    let mut current = s.get(OFF_NOW);
    let mut before = s.get(OFF_BEFORE);
    if age >= WINDOW_NS {
        before = current;
        if age >= STALE_NS {
            before = off;
            s.add(UNSURE, 1);
        }
        s.set(OFF_BEFORE, before);
        s.set(WINDOW, t);
        current = off;
        s.set(OFF_NOW, off);
    } else if off as i64 > current as i64 {
        current = off;
        s.set(OFF_NOW, off);
    }
    if before as i64 > current as i64 { before } else { current }
}

#[inline(always)]
fn count(s: Stripe, wait: u64) {
    s.add(WAIT_NS, wait);
    s.observe(HIST, wait);
}

/// Keeps who waited long: the last few in a ring, the sums by cgroup in a table.
#[inline(always)]
fn long_wait(s: Stripe, w: &Long) {
    let (wait, cgroup) = (w.wait, w.cgroup);
    let n = s.get(LONG);
    let row = RING_AT + bounded::<{ RING as u64 - 1 }>(n) * RING_WORDS;
    s.set(row, w.t);
    s.set(row + 1, wait);
    s.set(row + 2, w.pids);
    s.set(row + 3, cgroup);
    s.set(row + 4, w.comm[0]);
    s.set(row + 5, w.comm[1]);
    // After the row: a reader that sees the new count sees the row.
    s.set(LONG, n.wrapping_add(1));
    if cgroup == 0 {
        return;
    }
    let home = cgroup ^ (cgroup >> 5);
    let mut i = 0;
    while i < 4 {
        let row = CGROUP + bounded::<{ CGROUPS as u64 - 1 }>(home.wrapping_add(i)) * CGROUP_WORDS;
        let id = s.get(row);
        if id == 0 || id == cgroup {
            s.set(row, cgroup);
            s.add(row + 1, 1);
            s.add(row + 2, wait);
            return;
        }
        i += 1;
    }
    s.add(CGROUP_FULL, 1);
}

// ---- tier B -----------------------------------------------------------------------------------

const PREV_PID: usize = 24;
const PREV_STATE: usize = 32;
const NEXT_PID: usize = 56;
const WAKE_PID: usize = 24;

/// A field of a classic record: a direct load where the layout is the usual one.
macro_rules! record {
    ($ctx:expr, $ty:ty, $usual:expr, $offset:ident) => {
        if TP_KNOWN.load() != 0 {
            // SAFETY: inside the record, which the verifier checks.
            unsafe {
                core::ptr::read_volatile($ctx.as_ptr().cast::<u8>().add($usual).cast::<$ty>())
            }
        } else {
            helper_read::<$ty>(&$ctx, &$offset)
        }
    };
}

#[inline(always)]
fn helper_read<T: Default + Copy>(ctx: &TracePointContext, offset: &Global<u32>) -> T {
    let mut v = T::default();
    let from = (ctx.as_ptr() as u64).wrapping_add(u64::from(offset.load() & 0x7ff));
    // SAFETY: the helper checks the source; the target is a local of that size.
    unsafe {
        bpf_probe_read_kernel((&raw mut v).cast(), size_of::<T>() as u32, from as *const _);
    }
    v
}

#[tracepoint(category = "sched", name = "sched_wakeup")]
pub fn runq_wakeup(ctx: TracePointContext) -> u32 {
    let pid = record!(ctx, u32, WAKE_PID, TP_WAKE_PID);
    stamp(pid, now());
    0
}

#[tracepoint(category = "sched", name = "sched_wakeup_new")]
pub fn runq_wakeup_new(ctx: TracePointContext) -> u32 {
    let pid = record!(ctx, u32, WAKE_PID, TP_WAKE_PID);
    stamp(pid, now());
    0
}

#[tracepoint(category = "sched", name = "sched_switch")]
pub fn runq_switch(ctx: TracePointContext) -> u32 {
    let t = now();
    let prev = record!(ctx, u32, PREV_PID, TP_PREV_PID);
    let state = record!(ctx, u64, PREV_STATE, TP_PREV_STATE);
    let next = record!(ctx, u32, NEXT_PID, TP_NEXT_PID);
    let Some(s) = Stripe::of(&RUNQ, cpu()) else { return 0 };
    s.add(SWITCHES, 1);
    if state == 0 || state & u64::from(TP_PREEMPTED.load()) != 0 {
        stamp(prev, t);
    }
    // Pid 0 stands for the idle tasks of all CPUs.
    if next != 0 {
        take(s, next, t);
    }
    0
}

#[inline(always)]
fn stamp(pid: u32, t: u64) {
    if pid != 0 {
        if let Some(slot) = RUNQ_STAMPS.get_ptr_mut(pid & (STAMPS - 1)) {
            // The later stamp wins: a task that is woken again while it runs is not queued.
            let v = u64::from(pid) << STAMP_BITS | t & STAMP_MASK;
            // SAFETY: checked by the lookup; one aligned store.
            unsafe { core::ptr::write_volatile(slot, v) };
        }
    }
}

#[inline(always)]
fn take(s: Stripe, pid: u32, t: u64) {
    let Some(slot) = RUNQ_STAMPS.get_ptr_mut(pid & (STAMPS - 1)) else { return };
    // SAFETY: checked by the lookup.
    let v = unsafe { core::ptr::read_volatile(slot) };
    if v == 0 {
        return;
    }
    if v >> STAMP_BITS != u64::from(pid) {
        s.add(COLLIDED, 1);
        return;
    }
    // SAFETY: checked by the lookup.
    unsafe { core::ptr::write_volatile(slot, 0) };
    let wait = t.wrapping_sub(v) & STAMP_MASK;
    if wait >= HIST_MAX_NS {
        s.add(DISCARDED, 1);
        return;
    }
    count(s, wait);
    if wait >= LONG_NS {
        long_wait(s, &Long { t, wait, pids: u64::from(pid), cgroup: 0, comm: [0; 2] });
    }
}

//! Walks all threads of the host, from user space, as often as somebody reads: an iterator, which
//! costs nothing in between.
//!
//! A row is written for a thread that runs, or that is not in the sleep of the walk before: its
//! state and its counters of switches are remembered as one word. Its stack goes with the row
//! where it sleeps uninterruptibly; of other sleeps the system call tells enough.
#![no_std]
#![no_main]

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_task_stack, bpf_seq_write, bpf_task_pt_regs};
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use stallscope_bpf::layout::tasks::{
    CALL_UNKNOWN, FRAMES, HEAD_BYTES, KERNEL_THREAD, NO_LOAD, ROW_BYTES, Row, SLOTS,
    UNINTERRUPTIBLE,
};
use stallscope_bpf::{Kernel, bounded, exact, offsets};

#[map]
static SEEN: Array<u64> = Array::with_max_entries(SLOTS as u32, 0);

offsets! {
    /// `bpf_iter_meta.seq`.
    META_SEQ,
    /// `task_struct`.
    TASK_PID,
    TASK_TGID,
    TASK_STATE,
    TASK_EXIT_STATE,
    TASK_FLAGS,
    TASK_NVCSW,
    TASK_NIVCSW,
    TASK_START,
    TASK_RUN,
    TASK_UTIME,
    TASK_STIME,
    TASK_COMM,
    /// `task_struct.sched_info.run_delay`, and not 0 where it is counted.
    TASK_DELAY,
    DELAY_KNOWN,
    /// Registers that hold a system call, its arguments and the stack, and not 0 where the kernel
    /// gives them to programs.
    REGS_CALL,
    REGS_FIRST,
    REGS_SECOND,
    REGS_THIRD,
    REGS_STACK,
    REGS_KNOWN,
    /// Not 0 where the kernel gives programs the stack of another task (5.9).
    STACK_KNOWN,
}

/// Called for each task, and with none at the end.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn tasks(ctx: *mut c_void) -> i32 {
    let task = Kernel::arg(ctx, 1);
    if task.is_null() {
        return 0;
    }
    let tid: u32 = task.read(exact!(TASK_PID));
    let state = task.read::<u32>(exact!(TASK_STATE)) | task.read::<u32>(exact!(TASK_EXIT_STATE));
    let start: u64 = task.read(exact!(TASK_START));
    let Some(seen) = SEEN.get_ptr_mut(bounded::<{ SLOTS as u64 - 1 }>(u64::from(tid)) as u32)
    else {
        return 0;
    };
    let word = word(
        start,
        task.read(exact!(TASK_NVCSW)),
        task.read(exact!(TASK_NIVCSW)),
        u64::from(tid) << 32 | u64::from(state),
    );
    // SAFETY: a value of the map, which only one walk at a time uses.
    if state != 0 && unsafe { seen.read_volatile() } == word {
        return 0;
    }
    let row = row(task, tid, state, start);
    let bytes = if row.frames == 0 { HEAD_BYTES } else { ROW_BYTES };
    let to = Kernel::arg(ctx, 0).follow(exact!(META_SEQ)).pointer();
    // SAFETY: the row is a local of that size.
    let written = unsafe { bpf_seq_write(to, (&raw const row).cast(), bytes as u32) };
    // Where the buffer is full, the kernel comes back with the same task.
    if written == 0 {
        // SAFETY: as above.
        unsafe { seen.write_volatile(word) };
    }
    0
}

/// Measures what nothing costs: the same walk, no work. Used by the benchmark.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn empty_walk(_ctx: *mut c_void) -> i32 {
    0
}

/// All that changes when a thread goes on, in one word.
#[inline(always)]
fn word(start: u64, voluntary: u64, involuntary: u64, which: u64) -> u64 {
    let mix = |v: u64, by: u64| (v ^ v >> 29).wrapping_mul(by);
    mix(start, 0x9e37_79b9_7f4a_7c15)
        ^ mix(voluntary << 32 | involuntary & 0xffff_ffff, 0xbf58_476d_1ce4_e5b9)
        ^ mix(which, 0x94d0_49bb_1331_11eb)
}

#[inline(always)]
fn row(task: Kernel, tid: u32, state: u32, start: u64) -> Row {
    let mut row = Row {
        pid: task.read(exact!(TASK_TGID)),
        tid,
        state,
        call: CALL_UNKNOWN,
        args: [0; 3],
        start,
        run: task.read(exact!(TASK_RUN)),
        delay: 0,
        user: task.read(exact!(TASK_UTIME)),
        sys: task.read(exact!(TASK_STIME)),
        comm: [task.read(exact!(TASK_COMM)), task.read(exact!(TASK_COMM) + 8)],
        flags: task.read(exact!(TASK_FLAGS)),
        frames: 0,
        stack: [0; FRAMES],
    };
    if DELAY_KNOWN.load() != 0 {
        row.delay = task.read(exact!(TASK_DELAY));
    }
    // The registers of one that runs are where it entered the kernel last.
    if REGS_KNOWN.load() != 0 && state != 0 && row.flags & KERNEL_THREAD == 0 {
        // SAFETY: the verifier checks the type of the argument.
        let regs = Kernel::returned(unsafe { bpf_task_pt_regs(task.pointer()) });
        // The numbers of 32-bit programs, whose stacks are below 4 GiB, are others.
        if regs.read::<u64>(exact!(REGS_STACK)) >> 32 != 0 {
            row.call = regs.read(exact!(REGS_CALL));
            row.args = [
                regs.read(exact!(REGS_FIRST)),
                regs.read(exact!(REGS_SECOND)),
                regs.read(exact!(REGS_THIRD)),
            ];
        }
    }
    if STACK_KNOWN.load() != 0 && state & (UNINTERRUPTIBLE | NO_LOAD) == UNINTERRUPTIBLE {
        // SAFETY: as above; the target is a field of that size.
        let bytes = unsafe {
            bpf_get_task_stack(task.pointer(), (&raw mut row.stack).cast(), (FRAMES * 8) as u32, 0)
        };
        if bytes > 0 {
            row.frames = bytes as u32 >> 3;
        }
    }
    row
}

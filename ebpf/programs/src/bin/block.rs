//! Block requests: time queued, time on the device and both, per disk and kind of request.
//!
//! The kernel keeps the times in the request itself, so one program at completion is enough
//! and no map holds requests. Where it does not keep the time of issue (no writeback
//! throttling, no kyber), `block_issue` stamps it.
//!
//! Histograms are shared by all CPUs and written atomically: per CPU they would need tens of
//! megabytes, and request rates are low enough.
#![no_std]
#![no_main]

use core::ffi::c_void;

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{btf_tracepoint, map};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::BtfTracePointContext;
use stallscope_bpf::layout::block::{
    DISCARDED, DISKS, ERRORS, HIST, NO_ISSUE, NO_START, OP, OP_WORDS, PROBES, REQUEUES, SIZE,
    SIZE_WORDS, SLOTS, SPLITS, STAGES, STAMPS, UNKNOWN, WORDS, home, size_class,
};
use stallscope_bpf::layout::{
    BUCKETS, HIST_MAX_NS, STAMP_BITS, STAMP_MASK, bucket_by_table, bucket_table,
};
use stallscope_bpf::{Kernel, MMAPABLE, Place, Stripe, at, bounded, now, offsets};

#[map]
static BLOCK: Array<[u64; WORDS]> = Array::with_max_entries(DISKS as u32 + 1, MMAPABLE);
/// Which row of `BLOCK` belongs to a device, written by user space.
#[map]
static BLOCK_DISKS: Array<[u64; SLOTS]> = Array::with_max_entries(1, 0);
/// Packed time of issue by request; one entry while `block_issue` is not attached.
#[map]
static BLOCK_STAMPS: Array<u64> = Array::with_max_entries(STAMPS, 0);

offsets! {
    RQ_Q,
    RQ_CMD_FLAGS,
    RQ_DATA_LEN,
    RQ_START,
    RQ_IO_START,
    RQ_TAG,
    /// `request_queue.disk` (5.15), or `request.rq_disk` when `DISK_IN_RQ` is not 0.
    QUEUE_DISK,
    RQ_DISK,
    DISK_IN_RQ,
    DISK_MAJOR,
    DISK_MINOR,
    /// `bio.bi_bdev` and `block_device.bd_disk` (5.12), or `bio.bi_disk` when `DISK_IN_BIO`.
    BIO_BDEV,
    BDEV_DISK,
    BIO_DISK,
    DISK_IN_BIO,
    /// Not 0: read with the helper what is read seldom, see `stallscope_bpf::Address`.
    BY_HELPER,
    /// Not 0: the request (or bio) is the second argument, after the queue.
    REQUEUE_SECOND,
    ISSUE_SECOND,
    SPLIT_SECOND,
}

/// The low bits of `cmd_flags` hold the operation.
const REQ_OP_MASK: u32 = 0xff;
const REQ_OP_FLUSH: u32 = 2;

#[btf_tracepoint(function = "block_rq_complete")]
pub fn block_complete(ctx: BtfTracePointContext) -> i32 {
    complete(ctx.as_ptr());
    0
}

#[inline(always)]
fn complete(ctx: *mut c_void) {
    let rq = Kernel::arg(ctx, 0);
    let failed = stallscope_bpf::arg(ctx, 1) as u32 != 0;
    let done = stallscope_bpf::arg(ctx, 2) & 0xffff_ffff;
    // With loads, not helpers: this is for every request.
    let Some(s) = row(disk_of_request(rq)) else { return };
    let op = match rq.read::<u32>(at!(RQ_CMD_FLAGS)) & REQ_OP_MASK {
        op @ 0..=REQ_OP_FLUSH => u64::from(op),
        _ => 3,
    };
    let op = bounded::<3>(op);
    let counts = OP + op * OP_WORDS;
    s.add_shared(counts + 1, done);
    if failed {
        s.add_shared(ERRORS, 1);
    }
    let left = u64::from(rq.read::<u32>(at!(RQ_DATA_LEN)));
    if done < left {
        return; // A part of it; the request goes on.
    }
    s.add_shared(counts, 1);
    s.add_shared(SIZE + op * SIZE_WORDS + bounded::<15>(size_class(left) as u64), 1);
    let t = now();
    let start: u64 = rq.read(at!(RQ_START));
    let mut issue: u64 = rq.read(at!(RQ_IO_START));
    if issue == 0 {
        issue = issued(rq, t);
    }
    let hist = HIST + op * (STAGES * BUCKETS);
    let mut sane = true;
    if issue == 0 {
        s.add_shared(NO_ISSUE, 1);
    } else {
        let device = t.wrapping_sub(issue);
        sane = device < HIST_MAX_NS;
        if sane {
            observe(s, hist + BUCKETS, device);
        }
    }
    if start == 0 {
        s.add_shared(NO_START, 1);
    } else {
        let total = t.wrapping_sub(start);
        if total < HIST_MAX_NS && sane {
            observe(s, hist + 2 * BUCKETS, total);
            if issue != 0 {
                // The kernel may take both from one cached time, or in the other order.
                let queued = if issue > start { issue - start } else { 0 };
                observe(s, hist, queued);
            }
        } else {
            sane = false;
        }
    }
    if !sane {
        s.add_shared(DISCARDED, 1);
    }
}

/// The buckets, see [`bucket_table`].
#[unsafe(no_mangle)]
static SHORT: [u8; 1024] = bucket_table();

/// Counts a duration in the histogram that begins at `hist`.
#[inline(always)]
fn observe(s: Stripe, hist: usize, ns: u64) {
    s.add_shared(hist + bounded::<{ BUCKETS as u64 - 1 }>(bucket_by_table(&SHORT, ns) as u64), 1);
}

#[btf_tracepoint(function = "block_rq_issue")]
pub fn block_issue(ctx: BtfTracePointContext) -> i32 {
    let rq = if ISSUE_SECOND.load() != 0 {
        Kernel::arg(ctx.as_ptr(), 1)
    } else {
        Kernel::arg(ctx.as_ptr(), 0)
    };
    let (slot, tag) = stamp_place(rq);
    if let Some(p) = BLOCK_STAMPS.get_ptr_mut(slot) {
        // SAFETY: checked by the lookup; one aligned store.
        unsafe { core::ptr::write_volatile(p, tag | now() & STAMP_MASK) };
    }
    0
}

#[btf_tracepoint(function = "block_rq_requeue")]
pub fn block_requeue(ctx: BtfTracePointContext) -> i32 {
    let rq = if REQUEUE_SECOND.load() != 0 {
        Kernel::arg(ctx.as_ptr(), 1)
    } else {
        Kernel::arg(ctx.as_ptr(), 0)
    };
    let disk =
        if BY_HELPER.load() != 0 { disk_of_request(rq.untyped()) } else { disk_of_request(rq) };
    if let Some(s) = row(disk) {
        s.add_shared(REQUEUES, 1);
    }
    0
}

#[btf_tracepoint(function = "block_split")]
pub fn block_split(ctx: BtfTracePointContext) -> i32 {
    let bio = if SPLIT_SECOND.load() != 0 {
        Kernel::arg(ctx.as_ptr(), 1)
    } else {
        Kernel::arg(ctx.as_ptr(), 0)
    };
    let disk = if BY_HELPER.load() != 0 { disk_of_bio(bio.untyped()) } else { disk_of_bio(bio) };
    if let Some(s) = row(disk) {
        s.add_shared(SPLITS, 1);
    }
    0
}

/// Measures what nothing costs, see `sched`.
#[btf_tracepoint(function = "block_rq_complete")]
pub fn empty_block(_ctx: BtfTracePointContext) -> i32 {
    0
}

/// The kernel's device number of the whole disk; 0 for none.
#[inline(always)]
fn disk_of_request(rq: impl Place) -> u32 {
    if DISK_IN_RQ.load() != 0 {
        device(rq.follow(at!(RQ_DISK)))
    } else {
        device(rq.follow(at!(RQ_Q)).follow(at!(QUEUE_DISK)))
    }
}

/// The same of a bio.
#[inline(always)]
fn disk_of_bio(bio: impl Place) -> u32 {
    if DISK_IN_BIO.load() != 0 {
        device(bio.follow(at!(BIO_DISK)))
    } else {
        device(bio.follow(at!(BIO_BDEV)).follow(at!(BDEV_DISK)))
    }
}

#[inline(always)]
fn device(disk: impl Place) -> u32 {
    disk.read::<u32>(at!(DISK_MAJOR)) << 20 | disk.read::<u32>(at!(DISK_MINOR)) & 0xf_ffff
}

/// The row of a disk. Disks that user space has not named yet are counted together.
#[inline(always)]
fn row(dev: u32) -> Option<Stripe> {
    let table = BLOCK_DISKS.get_ptr(0)?.cast::<u64>();
    let first = home(dev) as u64;
    let mut row = UNKNOWN as u64;
    let mut i = 0;
    while i < PROBES as u64 {
        let at = bounded::<{ SLOTS as u64 - 1 }>(first.wrapping_add(i));
        // SAFETY: bounded by the size of the table.
        let have = unsafe { core::ptr::read_volatile(table.add(at)) };
        if have >> 8 == u64::from(dev) + 1 {
            row = have;
            break;
        }
        i += 1;
    }
    // One lookup for all: what follows is verified for each place that makes one.
    let row = bounded::<{ SLOTS as u64 - 1 }>(row) as u32;
    let s = Stripe::of(&BLOCK, row)?;
    if row == UNKNOWN as u32 {
        s.add_shared(0, 1);
        return None;
    }
    Some(s)
}

/// Slot and tag of a request. The verifier does not let its address be hashed; its start and
/// its number in the device's queue stay the same from issue to completion and tell it apart.
#[inline(always)]
fn stamp_place(rq: Kernel) -> (u32, u64) {
    let start: u64 = rq.read(at!(RQ_START));
    let number = u64::from(rq.read::<u32>(at!(RQ_TAG)));
    let h = (start ^ number << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((h >> 32) as u32 & (STAMPS - 1), (h >> STAMP_BITS) << STAMP_BITS)
}

/// When `block_issue` saw this request; 0 when it did not.
#[inline(always)]
fn issued(rq: Kernel, t: u64) -> u64 {
    let (slot, tag) = stamp_place(rq);
    let Some(p) = BLOCK_STAMPS.get_ptr_mut(slot) else { return 0 };
    // SAFETY: checked by the lookup.
    let v = unsafe { core::ptr::read_volatile(p) };
    if v == 0 {
        return 0;
    }
    if v & !STAMP_MASK != tag {
        if let Some(s) = Stripe::of(&BLOCK, UNKNOWN as u32) {
            s.add_shared(1, 1);
        }
        return 0;
    }
    // SAFETY: checked by the lookup.
    unsafe { core::ptr::write_volatile(p, 0) };
    t.wrapping_sub(t.wrapping_sub(v) & STAMP_MASK)
}

//! Who tries to create files, directories, links and nodes, per CPU and process and file system.
//!
//! Counted where the kernel asks its security modules, before it knows whether there is an inode
//! left: attempts that fail with ENOSPC are in. A file that exists and is opened with `O_CREAT`
//! counts where its name is not in the cache. Where programs may not run at functions of the kernel,
//! ext4 tells by itself, at each of up to four requests of an attempt.
#![no_std]
#![no_main]

use core::ffi::c_void;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use stallscope_bpf::layout::files::{
    COUNT, CREATES, DEV_BITS, KEY, LAST, PROBES, ROW_WORDS, ROWS, WORDS,
};
use stallscope_bpf::{Kernel, MMAPABLE, Place, Stripe, bounded, cpu, exact, now, offsets};

#[map]
static FILES: Array<[u64; WORDS]> = Array::with_max_entries(1, MMAPABLE);

offsets! {
    /// `inode.i_sb`, `super_block.s_dev`.
    INODE_SB,
    SB_DEV,
    /// Not 0: programs read with a helper what they read seldom.
    BY_HELPER,
}

/// Regular files.
#[unsafe(no_mangle)]
#[unsafe(link_section = "fentry/security_inode_create")]
pub extern "C" fn inode_create(ctx: *mut c_void) -> i32 {
    count(ctx)
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "fentry/security_inode_mkdir")]
pub extern "C" fn inode_mkdir(ctx: *mut c_void) -> i32 {
    count(ctx)
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "fentry/security_inode_mknod")]
pub extern "C" fn inode_mknod(ctx: *mut c_void) -> i32 {
    count(ctx)
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "fentry/security_inode_symlink")]
pub extern "C" fn inode_symlink(ctx: *mut c_void) -> i32 {
    count(ctx)
}

#[raw_tracepoint(tracepoint = "ext4_request_inode")]
pub fn ext4_request(ctx: RawTracePointContext) -> i32 {
    add(dev(Kernel::arg(ctx.as_ptr(), 0).untyped()))
}

/// All of these have the directory first.
#[inline(always)]
fn count(ctx: *mut c_void) -> i32 {
    let dir = Kernel::arg(ctx, 0);
    add(if BY_HELPER.load() != 0 { dev(dir.untyped()) } else { dev(dir) })
}

#[inline(always)]
fn add(dev: u32) -> i32 {
    let Some(s) = Stripe::of(&FILES, cpu()) else { return 0 };
    s.add(CREATES, 1);
    let key = bpf_get_current_pid_tgid() >> 32 << DEV_BITS | u64::from(dev);
    let row = row(s, key);
    if s.get(row + KEY) != key {
        // A reader that comes in between takes it for a row that has begun anew.
        s.set(row + COUNT, 0);
        s.set(row + KEY, key);
    }
    s.set(row + LAST, now());
    s.add(row + COUNT, 1);
    0
}

#[inline(always)]
fn dev<P: Place>(dir: P) -> u32 {
    dir.follow(exact!(INODE_SB)).read(exact!(SB_DEV))
}

/// The row of a process and file system; else, of those where it may be, the one that was used
/// last the longest ago.
#[inline(always)]
fn row(s: Stripe, key: u64) -> usize {
    let home = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mut oldest = (u64::MAX, 0);
    for probe in 0..PROBES as u64 {
        let row = bounded::<{ ROWS as u64 - 1 }>(home + probe) * ROW_WORDS;
        if s.get(row + KEY) == key {
            return row;
        }
        let last = s.get(row + LAST);
        if last < oldest.0 {
            oldest = (last, row);
        }
    }
    oldest.1
}

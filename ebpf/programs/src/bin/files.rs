//! Who tries to create files, directories, links and nodes, per CPU and process and file system.
//!
//! ext4 tells of each inode that it is asked for, before it knows whether one is left: once for an
//! attempt that succeeds, up to four times for one that fails with ENOSPC. Other file systems do not:
//! there, attempts count where the kernel asks its security modules, which is as early. A file that
//! exists and is opened with `O_CREAT` counts there if its name is not in the cache, and one without
//! a name (`O_TMPFILE`) does not.
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

/// `EXT4_SUPER_MAGIC`.
const EXT4_MAGIC: u64 = 0xef53;

#[map]
static FILES: Array<[u64; WORDS]> = Array::with_max_entries(1, MMAPABLE);

offsets! {
    /// `inode.i_sb`, `super_block.s_dev`.
    INODE_SB,
    SB_DEV,
    /// `super_block.s_magic`, and not 0 where ext4 tells by itself.
    SB_MAGIC,
    EXT4_TELLS,
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
    let sb = Kernel::arg(ctx.as_ptr(), 0).untyped().follow(exact!(INODE_SB));
    add(sb.read(exact!(SB_DEV)))
}

/// All of these have the directory first.
#[inline(always)]
fn count(ctx: *mut c_void) -> i32 {
    let dir = Kernel::arg(ctx, 0);
    if BY_HELPER.load() != 0 { count_on(dir.untyped()) } else { count_on(dir) }
}

#[inline(always)]
fn count_on<P: Place>(dir: P) -> i32 {
    let sb = dir.follow(exact!(INODE_SB));
    if EXT4_TELLS.load() != 0 && sb.read::<u64>(exact!(SB_MAGIC)) == EXT4_MAGIC {
        return 0;
    }
    add(sb.read(exact!(SB_DEV)))
}

/// Adds one for the process, and one for all of the file system. Once for all programs: it is long.
#[inline(never)]
fn add(dev: u32) -> i32 {
    let Some(s) = Stripe::of(&FILES, cpu()) else { return 0 };
    let dev = u64::from(dev);
    count_row(s, dev);
    count_row(s, bpf_get_current_pid_tgid() >> 32 << DEV_BITS | dev);
    // Last: who reads it has the rows of what it counts.
    s.add_shared(CREATES, 1);
    0
}

/// Programs at functions can be preempted, and another one of them run meanwhile.
#[inline(always)]
fn count_row(s: Stripe, key: u64) {
    let row = row(s, key);
    if s.get(row + KEY) != key {
        // A reader that comes in between takes it for a row that has begun anew.
        s.set(row + COUNT, 0);
        s.set(row + KEY, key);
    }
    s.set(row + LAST, now());
    s.add_shared(row + COUNT, 1);
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

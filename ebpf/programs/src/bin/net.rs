//! Network events through a ring buffer (Linux 5.8). See `net_programs`.
#![no_std]
#![no_main]

use core::ffi::c_void;

use aya_ebpf::macros::map;
use aya_ebpf::maps::RingBuf;
use stallscope_bpf::layout::net::{Event, RING_BYTES};

#[path = "../net_programs.rs"]
mod net_programs;

#[map]
static NET_EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Do not wake the reader: it looks twice a second.
const NO_WAKEUP: u64 = 1;

/// Hands a record to the reader; false when there is no room.
#[inline(always)]
fn emit(_ctx: *mut c_void, e: &Event) -> bool {
    let Some(mut entry) = NET_EVENTS.reserve::<Event>(0) else { return false };
    entry.write(*e);
    entry.submit(NO_WAKEUP);
    true
}

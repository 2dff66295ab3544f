//! Network events through perf buffers, one per CPU: for kernels without ring buffers. See
//! `net_programs`.
#![no_std]
#![no_main]

use core::ffi::c_void;

use aya_ebpf::bindings::BPF_F_CURRENT_CPU;
use aya_ebpf::helpers::generated::bpf_perf_event_output;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerfEventArray;
use stallscope_bpf::layout::net::{EVENT_BYTES, Event};

#[path = "../net_programs.rs"]
mod net_programs;

#[map]
static NET_EVENTS: PerfEventArray<Event> = PerfEventArray::new(0);

/// Hands a record to the reader; false when there is no room, or no buffer for this CPU.
#[inline(always)]
fn emit(ctx: *mut c_void, e: &Event) -> bool {
    // Not `NET_EVENTS.output`, which does not tell whether it worked.
    // SAFETY: the map, and a record of its size on the stack.
    let result = unsafe {
        bpf_perf_event_output(
            ctx,
            (&raw const NET_EVENTS).cast_mut().cast(),
            BPF_F_CURRENT_CPU,
            core::ptr::from_ref(e).cast_mut().cast(),
            EVENT_BYTES as u64,
        )
    };
    result == 0
}

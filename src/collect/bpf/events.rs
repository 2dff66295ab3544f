//! Takes records out of the kernel: through one ring buffer (5.8), or through a perf buffer per
//! CPU before. Both are mapped: taking costs no system call.
//!
//! A record that found no room was counted by the program that had it.

use aya::Ebpf;
use aya::maps::perf::{PerfEvent, PerfEventArrayBuffer};
use aya::maps::{Map, MapData, PerfEventArray, RingBuf};

use crate::collect::{RELIEF, UNRELIEVED, Unavailable};
use crate::sample::bpf::layout::net::{EVENT_BYTES, RING_BYTES};

/// Kernel memory: all perf buffers together, one for each CPU that is online; of many CPUs one is
/// busy. The ring serves all of them and takes half of it: it is mapped twice over, so that our
/// resident memory shows it twice. It holds 10,000 records a second for 1.3 s; once there are many
/// it is emptied every half second.
pub(super) const BYTES_FIXED: usize = 2 << 20;
/// The page at the head of a CPU's perf buffer.
pub(super) const BYTES_PER_CPU: usize = PAGE;
/// Only to share out [`BYTES_FIXED`]: larger pages make larger buffers.
const PAGE: usize = 4096;
/// Records taken at one reading: all that the ring can hold.
const MOST: usize = RING_BYTES as usize / RECORD_BYTES;
/// A record in the ring, with its head.
const RECORD_BYTES: usize = EVENT_BYTES + 8;
/// Records a second that must not be lost.
const GOAL: u128 = 10_000;
const _: () = {
    // Between two looks, and half as many again; and before anybody knows that there are many.
    assert!(MOST as u128 * 2 >= GOAL * RELIEF.as_millis() / 1000 * 3);
    assert!(MOST as u128 >= GOAL * UNRELIEVED.as_millis() / 1000);
};
/// So many records of one reading call for looks between two readings: an eighth of the ring.
pub(super) const MANY: u64 = MOST as u64 / 8;

/// Where records come from.
pub(super) enum Events {
    Ring(RingBuf<MapData>),
    Perf(Vec<PerfEventArrayBuffer<MapData>>),
}

impl Events {
    /// Takes the map of events out of an object.
    pub(super) fn take(ebpf: &mut Ebpf, cpus: usize) -> Result<Self, Unavailable> {
        let failed = |e: &dyn std::fmt::Display| {
            Unavailable::new(format!("no buffer for events: {e}"), "use Linux 5.8 or newer")
        };
        match ebpf.take_map("NET_EVENTS") {
            Some(map @ Map::RingBuf(_)) => {
                RingBuf::try_from(map).map(Self::Ring).map_err(|e| failed(&e))
            }
            Some(map) => {
                let array = PerfEventArray::try_from(map).map_err(|e| failed(&e))?;
                Self::perf(array, cpus).map_err(|e| failed(&e))
            }
            None => Err(failed(&"the object has no such map")),
        }
    }

    /// One buffer for each CPU that is online; the programs count what happens on others.
    fn perf(mut array: PerfEventArray<MapData>, cpus: usize) -> Result<Self, String> {
        let online = aya::util::online_cpus().map_err(|(path, e)| format!("{path}: {e}"))?;
        let mut pages = pages(cpus);
        let mut buffers = Vec::new();
        for cpu in online {
            let buffer = loop {
                match array.open(cpu, Some(pages)) {
                    Ok(buffer) => break buffer,
                    // Without CAP_IPC_LOCK there is a limit: kernel.perf_event_mlock_kb.
                    Err(_) if pages > 8 => pages /= 2,
                    Err(e) => return Err(e.to_string()),
                }
            };
            buffers.push(buffer);
        }
        Ok(Self::Perf(buffers))
    }

    /// Calls `f` with each record that is there now.
    pub(super) fn drain(&mut self, mut f: impl FnMut(&[u8])) {
        match self {
            Self::Ring(ring) => {
                // Bounded: an event per record taken would keep us here for ever.
                for _ in 0..MOST {
                    let Some(record) = ring.next() else { break };
                    f(&record);
                }
            }
            Self::Perf(buffers) => {
                for b in buffers {
                    b.for_each(|e| {
                        if let PerfEvent::Sample { head, tail } = e {
                            if tail.is_empty() {
                                f(head);
                            } else {
                                f(&[head, tail].concat());
                            }
                        }
                    });
                }
            }
        }
    }
}

/// Pages of one CPU's perf buffer, a power of two.
fn pages(cpus: usize) -> usize {
    let share = BYTES_FIXED / PAGE / cpus.max(1);
    if share < 2 { 1 } else { (share + 1).next_power_of_two() / 2 }.min(256)
}

/// Kernel memory of all perf buffers together.
#[cfg(test)]
pub(super) fn perf_bytes(cpus: usize) -> usize {
    (pages(cpus) + 1) * PAGE * cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_buffers_share_what_the_ring_would_take() {
        for cpus in 1..=512 {
            let pages = pages(cpus);
            assert!(pages.is_power_of_two());
            assert!(pages * PAGE * cpus <= BYTES_FIXED, "{pages} pages on {cpus} CPUs");
        }
        assert_eq!([pages(1), pages(64), pages(500), pages(4096)], [256, 8, 1, 1]);
    }
}

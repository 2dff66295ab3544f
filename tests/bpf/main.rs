//! The kernel programs against real load and against an eye that is not ours. They need root:
//! they run under STALLSCOPE_LAB=1 only, and with CI=true a missing tool is a failure.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../lab/kit/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "the lab uses all of it")]
mod kit;

mod agree;
mod block;
mod files;
mod irq;
mod lab;
mod load;
mod net;
mod product;
mod runq;
mod sleepers;
mod tasks;

use stallscope::collect::bpf::map_bytes;

/// Computed from the sizes of the maps, so that a new table cannot slip by.
#[test]
fn maps_of_64_cpus_fit_into_8_mib() {
    let bytes = map_bytes(64);
    assert!(bytes <= 8 << 20, "{bytes} bytes");
}

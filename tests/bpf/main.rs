//! The kernel programs against real load. They need root and a kernel that lets us: they run
//! under STALLSCOPE_LAB=1 only, and with CI=true they must.

#![allow(clippy::unwrap_used, missing_docs)]

mod lab;
mod load;

use std::time::Duration;

use stallscope::collect::bpf::map_bytes;

/// Computed from the sizes of the maps, so that a new table cannot slip by.
#[test]
fn maps_of_64_cpus_fit_into_8_mib() {
    let bytes = map_bytes(64);
    assert!(bytes <= 8 << 20, "{bytes} bytes");
    assert!(map_bytes(2) < 6 << 20, "{} bytes on 2 CPUs", map_bytes(2));
}

#[test]
fn every_collector_opens_and_counts() {
    if !lab::enabled("every_collector_opens_and_counts") {
        return;
    }
    let _one = lab::exclusive();
    load::all_count(Duration::from_secs(5));
}

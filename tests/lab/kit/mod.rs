//! Tools of the lab: what a test needs to break things, look at the kernel, ask the product
//! and clean up whatever happens.

pub mod advice;
pub mod block;
pub mod cgroup;
#[allow(dead_code, unreachable_pub, reason = "not every suite has a console")]
pub mod console;
pub mod gate;
pub mod net;
pub mod product;
pub mod sh;
pub mod steal;
pub mod undo;

use std::time::Duration;

use stallscope::clock;

/// Polls `look` until it yields something. The lab never sleeps and hopes: a check starts
/// when the kernel shows the fault, and a fault that does not come is a failure of its own.
pub fn wait_for<T>(what: &str, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = clock::mono();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        let now = clock::mono();
        assert!(now.since(begun) < at_most, "the kernel did not show in {at_most:?}: {what}");
        clock::sleep_until(stallscope::sample::time::MonoNs(now.0 + 50_000_000));
    }
}

/// Seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A load's rhythm; never a wait for something to happen.
pub fn pause(ms: u64) {
    clock::sleep_until(stallscope::sample::time::MonoNs(clock::mono().0 + ms * 1_000_000));
}

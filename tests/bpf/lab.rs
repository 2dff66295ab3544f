//! Opening and reading collectors without the product around them.

use std::time::Duration;

use stallscope::clock;
use stallscope::collect::{BpfMode, CollectOptions, Collector, HostFs, SampleContext};
use stallscope::sample::Interest;

pub(crate) fn options() -> CollectOptions {
    CollectOptions { bpf: BpfMode::Auto, ..CollectOptions::default() }
}

pub(crate) fn open<C: Collector>() -> C {
    match C::open(&HostFs::live(), &options()) {
        Ok(c) => c,
        Err(u) => panic!("{}: {} ({})", C::ID.name(), u.reason, u.remedy),
    }
}

pub(crate) fn sample<C: Collector>(c: &mut C) -> C::Sample {
    let interest = Interest::default();
    let at = clock::mono();
    let cx = SampleContext { at, interval: Duration::from_secs(1), interest: &interest };
    c.sample(&cx).unwrap()
}

/// Samples until `done` says so.
pub(crate) fn until<C: Collector>(
    c: &mut C,
    limit: Duration,
    what: &str,
    mut done: impl FnMut(&C::Sample) -> bool,
) -> C::Sample {
    let end = clock::mono() + limit;
    loop {
        let s = sample(c);
        if done(&s) {
            return s;
        }
        assert!(clock::mono() < end, "not within {limit:?}: {what}");
        clock::sleep_until(clock::mono() + Duration::from_millis(20));
    }
}

/// Lets load run for a while: what is measured is the load over this time.
pub(crate) fn run_for(d: Duration) {
    clock::sleep_until(clock::mono() + d);
}

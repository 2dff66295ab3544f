//! When lab tests run, and what they share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stallscope::clock;

use stallscope::collect::{BpfMode, CollectOptions, Collector, HostFs, Interest, SampleContext};

/// True when lab tests are wanted. Without that, says so; in CI a missing lab is a failure.
pub(crate) fn enabled(test: &str) -> bool {
    if std::env::var_os("STALLSCOPE_LAB").is_some_and(|v| v == "1") {
        assert!(rustix::process::geteuid().is_root(), "lab tests need root");
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none_or(|v| v != "true"),
        "CI must set STALLSCOPE_LAB=1 for {test}"
    );
    println!("SKIPPED {test}: set STALLSCOPE_LAB=1 and run as root");
    false
}

/// Load tests disturb each other: one at a time.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

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

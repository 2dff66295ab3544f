//! Our collectors against the tools that people trust: `ss`, `iostat -x`, `nstat`, and the raw
//! files; our parsers against those of the `procfs` crate; exported tables as DuckDB reads them.
//!
//! The kernel moves between two readings, so every comparison reads the other tool *before and
//! after* ours. What did not change between its two readings must be equal in ours, to the
//! digit; what did must lie between them. Where a tolerance is left it is said why.
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "a test binary has no users of its items")]

mod counters;
mod disks;
#[path = "../lab/kit/mod.rs"]
#[allow(dead_code, reason = "the lab uses all of it")]
mod kit;
mod procfs;
mod sockets;
mod tables;

use std::time::Duration;

use stallscope::clock;
use stallscope::collect::{CollectOptions, Collector, HostFs, SampleContext};
use stallscope::sample::time::Span;
use stallscope::sample::{Interest, Stamped};

/// Opens a collector on the running kernel.
fn open<C: Collector>(opts: &CollectOptions) -> C {
    C::open(&HostFs::live(), opts).unwrap_or_else(|u| panic!("{}: {u}", C::ID.name()))
}

/// One reading with its stamps, as the sampler makes it.
fn read<C: Collector>(collector: &mut C, interest: &Interest) -> Stamped<C::Sample> {
    let start = clock::mono();
    let cx = SampleContext { at: start, interval: Duration::from_secs(1), interest };
    let data = collector.sample(&cx).unwrap();
    Stamped { span: Span { start, end: clock::mono() }, cpu: Duration::ZERO, data }
}

//! Real servers, broken for real: postgres, redis, nginx, haproxy, memcached, unbound and iperf3
//! as Debian ships them, on addresses, directories, cgroups and disks of their own.
//!
//! A fault test starts servers and clients, lets `stallscope check` see them healthy, breaks one
//! thing, and asserts that what the report puts first is that thing. It prints the time from the
//! fault to the verdict. A healthy test asserts that nothing fires at warn or worse.
//!
//! ```text
//! STALLSCOPE_LAB=1 cargo test --test real                      the short set, below 3 minutes
//! STALLSCOPE_LAB=1 STALLSCOPE_REAL=all cargo test --test real  all of it
//! STALLSCOPE_TIMES=10 ...                                      each fault ten times, scored
//! STALLSCOPE_LAB=1 STALLSCOPE_QUIET=60m cargo test --release --test real quiet_hour -- --nocapture
//! ```
//!
//! Give `--test-threads=99`: tests wait for their turn, and those that stay in their own
//! namespaces run beside each other. It needs root; a server that is not installed is SKIPPED,
//! and a failure with `CI=true`.
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "a test binary has no users of its items")]

mod clients;
mod faults_disk;
mod faults_hung;
mod faults_limits;
mod faults_network;
mod healthy;
#[path = "../lab/kit/mod.rs"]
#[allow(dead_code, reason = "the lab uses all of it")]
mod kit;
mod loads;
mod prometheus;
mod quiet_hour;
mod servers;
mod stage;

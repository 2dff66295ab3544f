//! The lab: real faults on this machine, judged by the built program.
//!
//! Every test breaks something for real (a firewall rule, a deleted route, a frozen file
//! system, a CPU quota), waits until the kernel itself shows the fault, runs
//! `stallscope check --format json`, and asserts which rules fire for the affected subjects
//! *and that no other rule does*. The quiet tests run healthy load that looks alarming.
//!
//! All traffic stays in network namespaces that a test creates and deletes, all I/O on loop
//! devices over files in the target directory. It needs root and a few tools, so it runs only
//! with `STALLSCOPE_LAB=1`; see [`kit::gate`].
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub, reason = "a test binary has no users of its items")]

mod actor;
mod blind;
mod cpu;
mod demo;
mod disks;
mod disks_more;
mod filesystems;
mod hung;
#[allow(dead_code, reason = "the differential tests use the rest of it")]
mod kit;
mod limits;
mod machine;
mod netdev;
mod own;
mod packets;
mod quiet;
mod recording;
mod rights;
mod servers;
mod sockets;
mod tcp;
mod tcp_limits;
mod tcp_lookalikes;
mod why;

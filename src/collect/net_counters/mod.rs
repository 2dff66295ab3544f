//! Protocol counters by name, per network namespace: `/proc/net/{netstat,snmp,snmp6,sockstat,
//! sockstat6}` of our own, `/proc/PID/net/...` of a member process for the others, and the TCP
//! memory limits of the host.
//!
//! Our own namespace is read each tick, the others in turn within a budget, those
//! first in which something went wrong lately.

mod budget;
mod collector;
mod parse;
mod turns;

pub use collector::NetCountersCollector;
pub use parse::{Emit, walk_snmp6, walk_sockstat, walk_tables};

//! Softirqs, softnet, interrupts, NIC queues: `/proc/softirqs`, `/proc/net/softnet_stat`,
//! `/proc/interrupts` each tick, `/sys/class/net/*/queues` twice a minute.
//!
//! `/proc/interrupts` is costly on big hosts and is then read every few ticks only.

mod collector;
mod nics;
mod parse;

pub use collector::SoftirqCollector;
pub use parse::{Interned, IrqNames, Vectors, parse_interrupts, parse_softirqs};

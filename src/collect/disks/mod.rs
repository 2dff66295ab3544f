//! Disks: `/proc/diskstats` each tick, and the attributes of the devices under
//! `/sys/class/block`, which change rarely and are read again every ten seconds.

mod attrs;
mod collector;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use collector::DisksCollector;

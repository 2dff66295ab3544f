//! What threads do with their time, looked at several times a second, within a budget.
//!
//! Two ways: of the processes that somebody asked about, `/proc/PID/task/TID` of every thread; of
//! all others a walk in the kernel (eBPF), which finds those that do not only wait for work. Where
//! there is no eBPF, nothing is known of them.
//!
//! In `/proc`, one read of `schedstat` (1 us on an open file) tells whether a thread ran since the
//! pass before; a thread that did not is still in the same sleep. Only of a new one are `stat`, `wchan`, `stack`
//! and `syscall` read. In between it may wake, so that the parts do not fit: `stat` is read again
//! at the end, and a sleep that is over by then is not counted.

mod collector;
mod everyone;
mod groups;
mod locks;
mod place;
mod sleep;
mod syscall;
mod target;
mod thread;
mod watched;

pub use collector::WaitsCollector;
pub use target::Target;

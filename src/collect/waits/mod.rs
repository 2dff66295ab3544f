//! What the threads of a process do with their time: `/proc/PID/task/TID` of the processes that
//! somebody asked about, several times a second, within a budget. Nothing is read of any other.
//!
//! One read of `schedstat` (1 us on an open file) tells whether a thread ran since the pass before;
//! a thread that did not is still in the same sleep. Only of a new one are `stat`, `wchan`, `stack`
//! and `syscall` read. In between it may wake, so that the parts do not fit: `stat` is read again
//! at the end, and a sleep that is over by then is not counted.

mod collector;
mod place;
mod syscall;
mod target;
mod watched;

pub use collector::WaitsCollector;
pub use target::Target;

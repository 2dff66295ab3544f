//! Room and state of mounted file systems: `mountinfo` and `statvfs`.
//!
//! In a container or in the sandbox of a service, we have mounts of our own. Those of the host are
//! the ones of process 1: they are listed in `/proc/1/mountinfo`, which everybody may read, and
//! reached through `/proc/1/root`, which takes CAP_SYS_PTRACE.
//!
//! A file system on a network, or one that a program serves, may never answer. So they are
//! asked on a thread of their own, and a tick takes what has come by then: one that hangs stays
//! without numbers, and the others are asked by another thread.
//!
//! While one is nearly full, a search looks who keeps deleted files of it open.
//!
//! Left out are pseudo file systems, images that are full by nature, layers over another file
//! system that is listed itself, and network file systems of FUSE: whoever waits for one of
//! those cannot even be killed. A file system that is mounted in several places is asked once.

mod asker;
mod collector;
mod deleted;
mod mounts;

pub use collector::FilesystemsCollector;
pub use mounts::parse_mounts;

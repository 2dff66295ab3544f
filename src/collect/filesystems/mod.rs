//! Room and state of mounted file systems: `/proc/self/mountinfo` and `statvfs`.
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

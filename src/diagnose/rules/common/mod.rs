//! Shared by several rules: text with units, one cause per socket, one cause per disk.
//! Nothing here decides a severity or keeps state.

pub(super) mod by;
pub(super) mod by_disk;
pub(super) mod by_memory;
pub(super) mod by_owner;
pub(super) mod by_traffic;
pub(in crate::diagnose) mod cgroups;
pub(super) mod connects;
pub(super) mod counters;
pub(super) mod disks;
pub(super) mod doing;
pub(in crate::diagnose) mod enter;
pub(super) mod evidence;
pub(super) mod filesystems;
pub(super) mod largest;
pub(super) mod lasting;
pub(super) mod links;
pub(super) mod measured;
pub(super) mod memory;
pub(super) mod nics;
pub(super) mod origins;
pub(super) mod peers;
pub(super) mod release;
pub(super) mod senders;
pub(super) mod sockets;
pub(super) mod tasks;
pub(in crate::diagnose) mod text;
pub(super) mod vm;

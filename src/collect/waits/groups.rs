//! The cgroups of a thread.

use crate::collect::HostFs;
use crate::collect::sched::parse_task_cgroup;
use crate::parse::limiting_cgroup;
use crate::sample::waits::ThreadWaits;

/// A row that says nothing but the cgroups, as `/proc/PID/task/TID/cgroup` has them.
pub(super) fn read(host: &HostFs, pid: u32, tid: u32) -> ThreadWaits {
    let text = host.read(format!("proc/{pid}/task/{tid}/cgroup")).unwrap_or_default();
    let cgroup = parse_task_cgroup(&text);
    let other =
        |controller| limiting_cgroup(&text, controller).filter(|p| Some(p) != cgroup.as_ref());
    let (memory_cgroup, pids_cgroup) = (other("memory"), other("pids"));
    ThreadWaits { cgroup, memory_cgroup, pids_cgroup, ..ThreadWaits::default() }
}

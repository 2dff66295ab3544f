//! What explains a wait: the socket behind a descriptor, the findings about it, about the disks, the
//! CPUs and the cgroups of the threads.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::account::Account;
use crate::diagnose::rules::common::enter;
use crate::diagnose::{Finding, Findings, Severity};
use crate::metrics::history::Window;
use crate::metrics::waits::{Class, Place};
use crate::sample::sockets::NetnsTable;
use crate::sample::subject::{SockId, Subject, is_within};
use crate::sample::time::WallNs;

/// What is known beside the threads.
pub struct Known<'a> {
    /// Findings as of the end of the same time.
    pub findings: &'a Findings,
    /// That time: a finding that ended before, or began later, explains nothing.
    pub time: RangeInclusive<WallNs>,
    /// Socket tables of the same time.
    pub tables: Vec<&'a NetnsTable>,
    /// That time, and what was before it; `None`: limits are not asked for.
    pub window: Option<Window<'a>>,
}

impl Known<'_> {
    /// The row of a socket.
    pub(super) fn socket(&self, inode: u64) -> Option<(&NetnsTable, usize)> {
        let inode = u32::try_from(inode).ok().filter(|i| *i != 0)?;
        self.tables.iter().find_map(|t| {
            let row = t.inet.inode.iter().position(|i| *i == inode)?;
            Some((*t, row))
        })
    }

    /// `10.0.0.1:4711 > 10.0.0.2:5432`.
    pub(super) fn connection(&self, inode: u64) -> Option<String> {
        let (table, row) = self.socket(inode)?;
        let (local, remote) = (table.inet.local_endpoint(row), table.inet.remote_endpoint(row));
        Some(if remote.port == 0 { local.to_string() } else { format!("{local} > {remote}") })
    }

    /// How to enter the network namespace of a socket.
    pub(super) fn enter(&self, inode: u64) -> Option<String> {
        let (table, _) = self.socket(inode)?;
        enter::enter(self.window?.host, table.into())
    }

    /// The worst finding that explains waiting of that kind in that place.
    pub(super) fn finding(
        &self,
        class: Class,
        place: Option<&Place>,
        cgroup: Option<&str>,
        account: &Account,
    ) -> Option<Arc<Finding>> {
        let inode = place.and_then(|p| p.inode);
        let socket = inode.and_then(|i| self.socket(i)).map(|(t, row)| t.id(row));
        let within = |group: &str| {
            let own = cgroup.map(|c| is_within(c, group));
            own.unwrap_or_else(|| {
                let mut all = account.threads().filter_map(|t| t.cgroup.as_deref());
                all.any(|c| is_within(c, group))
            })
        };
        let function = place.and_then(|p| p.wchan.as_deref());
        let ours = |f: &Finding| {
            explains(f, class, socket, within) || hangs(f, function) || is_convoy(f, class, account)
        };
        let Findings { active, folded, cleared, .. } = self.findings;
        let is_of_the_time =
            |f: &Finding| f.first_seen <= *self.time.end() && f.last_seen >= *self.time.start();
        // Those that are active have the worst first, and causes come before what they explain.
        let mut all = active.iter().chain(folded).chain(cleared);
        all.find(|f| is_of_the_time(f) && ours(f)).cloned()
    }
}

/// Tasks that do not come back from this function.
fn hangs(f: &Finding, function: Option<&str>) -> bool {
    matches!(&f.subject, Subject::Blocked { function: Some(name) }
        if f.fire.severity > Severity::Info && function == Some(name))
}

/// A lock that its threads queue for.
fn is_convoy(f: &Finding, class: Class, account: &Account) -> bool {
    class == Class::Lock
        && matches!(&f.subject, Subject::Process { pid, .. }
            if f.rule.0 == "lock-convoy" && account.threads().any(|t| t.task.pid == *pid))
}

fn explains(
    f: &Finding,
    class: Class,
    socket: Option<SockId>,
    within: impl Fn(&str) -> bool,
) -> bool {
    match class {
        Class::Network | Class::Peer => socket.is_some_and(|id| f.fire.sockets.contains(&id)),
        Class::Disk => match &f.subject {
            // A file system that is full or read-only refuses a write; nobody waits for it.
            Subject::Disk { .. } => true,
            Subject::Cgroup { path, .. } => f.rule.0 == "cgroup-io-throttle" && within(path),
            _ => false,
        },
        Class::RunQueue => match &f.subject {
            Subject::Cgroup { path, .. } => f.rule.0 == "weight-starved" && within(path),
            Subject::Cpu { .. } | Subject::Host | Subject::Task { .. } => {
                ["cpu-saturation", "cpu-hog-realtime", "runq-latency-idle-elsewhere", "cpu-steal"]
                    .contains(&f.rule.0)
            }
            _ => false,
        },
        Class::Throttled => {
            matches!(&f.subject, Subject::Cgroup { path, .. }
                if f.rule.0 == "cfs-throttle" && within(path))
        }
        Class::Memory => match &f.subject {
            Subject::Cgroup { path, .. } => f.rule.0 == "cgroup-mem-stall" && within(path),
            _ => ["mem-stall", "compaction-stall"].contains(&f.rule.0),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::{Fire, RuleId};
    use crate::sample::subject::DiskId;
    use crate::sample::time::MonoNs;

    fn finding(rule: &'static str, subject: Subject) -> Finding {
        Finding {
            rule: RuleId(rule),
            subject,
            fire: Fire::new(Severity::Warn, String::new()),
            since: MonoNs(0),
            first_seen: WallNs(0),
            last_seen: WallNs(0),
            active: true,
            cause: None,
        }
    }

    #[test]
    fn a_full_file_system_keeps_nobody_waiting_for_a_disk() {
        let dev = DiskId { major: 8, minor: 0 };
        let slow = finding("disk-slow-device", Subject::Disk { dev, name: "sda".to_owned() });
        let mount = "/run/lock".to_owned();
        let full = finding("fs-full", Subject::Filesystem { dev, mount });
        assert!(explains(&slow, Class::Disk, None, |_| false));
        assert!(!explains(&full, Class::Disk, None, |_| false));
    }
}

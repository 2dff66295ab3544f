//! Whose the tasks of a cgroup or of the host are, while there are nearly as many as there may be:
//! a process has its threads, and answers for those of its children that have one thread. A server
//! with a process per connection and a shell that forks too often are named like a program with a
//! thread per request.
//!
//! One `/proc/PID/stat` per process, a few hundred at a time: who has most of thousands of tasks is
//! seen in a part of them as well.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::HostFs;
use super::tasks::stat::parse_stat;
use crate::clock;
use crate::sample::limits::{TaskOwner, TaskOwners};

/// Part of a limit from which on owners are looked for.
const NEAR: f64 = 0.85;
/// They are looked for again after this time.
pub(super) const AGE: Duration = Duration::from_secs(2);
/// CPU time for one look.
const BUDGET: Duration = Duration::from_millis(4);
/// Processes that are read, whatever the budget; and at most.
const MIN_READS: usize = 64;
const MAX_READS: usize = 1024;
/// Owners that are told.
const MAX_ROWS: usize = 8;
/// `init` and `kthreadd` did not start what they are the parents of, or not in this incident.
const NOBODY: [u32; 2] = [1, 2];

/// Is it time to ask whose they are?
pub(super) fn is_near(tasks: u64, most: u64) -> bool {
    tasks as f64 >= NEAR * most as f64
}

/// Of a process.
struct Member {
    parent: u32,
    comm: String,
    threads: u32,
    is_zombie: bool,
}

/// Reads these processes; those that are gone or not ours to see are passed over.
pub(super) fn of(host: &HostFs, pids: &[u32]) -> TaskOwners {
    let start = clock::thread_cpu();
    let mut buf = Vec::new();
    let mut members = BTreeMap::new();
    // Spread over all of them: neighbours were started by the same process.
    let step = pids.len().div_ceil(MAX_READS).max(1);
    for (n, pid) in pids.iter().step_by(step).enumerate() {
        if n >= MIN_READS && clock::thread_cpu().saturating_sub(start) > BUDGET {
            break;
        }
        if host.read_into(format!("proc/{pid}/stat"), &mut buf).is_ok()
            && let Some(s) = parse_stat(&buf)
        {
            let comm = String::from_utf8_lossy(s.comm).into_owned();
            let (parent, is_zombie) = (s.parent, s.state == 'Z');
            members.insert(*pid, Member { parent, comm, threads: s.num_threads.max(1), is_zombie });
        }
    }
    count(host, &members)
}

fn count(host: &HostFs, members: &BTreeMap<u32, Member>) -> TaskOwners {
    // A process with such children answers for itself.
    let parents: BTreeSet<u32> =
        members.values().filter(|m| m.threads == 1).map(|m| m.parent).collect();
    let mut owners: BTreeMap<u32, TaskOwner> = BTreeMap::new();
    let mut read = 0_u32;
    for (pid, m) in members {
        read = read.saturating_add(m.threads);
        let is_child = m.threads == 1 && !NOBODY.contains(&m.parent) && !parents.contains(pid);
        let o = owners.entry(if is_child { m.parent } else { *pid }).or_default();
        if is_child {
            o.children += 1;
            o.zombies += u32::from(m.is_zombie);
        } else {
            o.threads = m.threads;
        }
    }
    let mut all: Vec<(u32, TaskOwner)> = owners.into_iter().collect();
    all.sort_by_key(|(_, o)| std::cmp::Reverse(o.tasks()));
    let named = all.into_iter().take(MAX_ROWS).filter_map(|(pid, o)| {
        // The parent may be in another cgroup.
        let known = members.get(&pid).map(|m| m.comm.clone());
        let comm = known.or_else(|| host.read_trimmed(format!("proc/{pid}/comm")).ok())?;
        Some(TaskOwner { pid, comm, ..o })
    });
    TaskOwners { read, owners: named.collect() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Process, parent, threads, state.
    fn owners(all: &[(u32, u32, u32, char)]) -> (u32, Vec<(u32, u32, u32, u32)>) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, parent, threads, state) in all {
            let line = format!(
                "{pid} (p{pid}) {state} {parent} 0 0 0 0 4194304 0 0 0 0 0 0 0 0 20 0 {threads} 0 \
                 77 0 0 0\n"
            );
            std::fs::create_dir_all(dir.path().join(format!("proc/{pid}"))).unwrap();
            std::fs::write(dir.path().join(format!("proc/{pid}/stat")), line).unwrap();
            std::fs::write(dir.path().join(format!("proc/{pid}/comm")), format!("p{pid}\n"))
                .unwrap();
        }
        let pids: Vec<u32> = all.iter().map(|p| p.0).filter(|p| *p != 100).collect();
        let found = of(&HostFs::at(dir.path()), &pids);
        assert!(found.owners.iter().all(|o| o.comm == format!("p{}", o.pid)));
        let row = |o: &TaskOwner| (o.pid, o.threads, o.children, o.zombies);
        (found.read, found.owners.iter().map(row).collect())
    }

    #[test]
    fn threads_and_children_are_the_owners() {
        // A program with 400 threads; a server with three workers, one of them a zombie.
        let all = [
            (5, 1, 400, 'S'),
            (10, 1, 1, 'S'),
            (11, 10, 1, 'S'),
            (12, 10, 1, 'R'),
            (13, 10, 1, 'Z'),
        ];
        assert_eq!(owners(&all), (404, vec![(5, 400, 0, 0), (10, 1, 3, 1)]));
    }

    #[test]
    fn daemons_are_not_of_init_and_a_parent_may_be_outside() {
        assert_eq!(owners(&[(7, 1, 1, 'S'), (8, 1, 1, 'S')]).1, [(7, 1, 0, 0), (8, 1, 0, 0)]);
        // 100 is not in the cgroup.
        let all = [(100, 1, 1, 'S'), (101, 100, 1, 'S'), (102, 100, 1, 'S')];
        assert_eq!(owners(&all), (2, vec![(100, 0, 2, 0)]));
        assert_eq!(owners(&[]), (0, vec![]));
    }

    #[test]
    fn of_thousands_a_part_is_read() {
        let mut all = vec![(10, 1, 1, 'S')];
        all.extend((0..3000).map(|n| (1000 + n, 10, 1, 'S')));
        let (read, owners) = owners(&all);
        assert!((64..=1024).contains(&read), "{read}");
        assert_eq!(owners.len(), 1);
    }
}

//! The collector: which groups are read when.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use super::mounts::{Hierarchy, hierarchies, parse_controllers};
use super::read::{Contents, Limits, Reader};
use super::tree::{Group, Known, members};
use super::watch::Watches;
use crate::clock;
use crate::collect::{
    CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable, task_owners,
};
use crate::sample::cgroups::{CgroupPids, CgroupRow, CgroupsSample};
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// Share of one core for groups with a limit, and for the others.
const LIMITED_BUDGET: f64 = 0.0015;
const OTHERS_BUDGET: f64 = 0.0005;
/// CPU time that the first round may use to find the groups.
const FIRST_ROUND: Duration = Duration::from_millis(50);
/// Limits and directories are looked at again after this time, or when they change.
const CHECK_AGE: Duration = Duration::from_secs(5);
/// Groups read in every round, whatever the budget.
const MIN_READS: usize = 4;
/// Part of a limit of memory or tasks at which a group is read in every tick.
const NEAR: f64 = 0.8;
/// Groups whose files stay open; a group has at most nine, and all together an eighth of our
/// descriptors.
const MAX_OPEN_GROUPS: usize = 24;

/// Reads it. See the module head.
pub struct CgroupsCollector {
    host: HostFs,
    hierarchies: Vec<Hierarchy>,
    known: Known,
    limited: VecDeque<Group>,
    others: VecDeque<Group>,
    watches: Watches,
    buf: Vec<u8>,
    started: bool,
    open_groups: usize,
    max_open_groups: usize,
    /// Of the last round.
    unread: u32,
    /// Rounds in a row that left groups out.
    behind: u32,
}

impl Collector for CgroupsCollector {
    type Sample = CgroupsSample;
    const ID: CollectorId = CollectorId::Cgroups;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let mut hierarchies = hierarchies(host)?;
        for h in hierarchies.iter_mut().filter(|h| h.v2) {
            if let Ok(text) = host.read(h.dir.join("cgroup.controllers")) {
                h.v2_offers = parse_controllers(&text);
            }
        }
        if hierarchies.is_empty() {
            return Err(Unavailable::new("no cgroup hierarchy is mounted", "mount /sys/fs/cgroup"));
        }
        let mut known = Known::default();
        let mut others = VecDeque::new();
        for (i, h) in hierarchies.iter().enumerate() {
            // cpuacct alone has no limits; its usage joins the rows of the cpu controller.
            if h.v2 || h.v1.cpu || h.v1.blkio || h.v1.memory || h.v1.pids {
                let root = Group::root(i, &h.dir);
                known.add(&root);
                others.push_back(root);
            }
        }
        Ok(Self {
            host: host.clone(),
            hierarchies,
            known,
            limited: VecDeque::new(),
            others,
            watches: Watches::new(),
            buf: Vec::new(),
            started: false,
            open_groups: 0,
            max_open_groups: max_open_groups(),
            unread: 0,
            behind: 0,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<CgroupsSample, CollectError> {
        self.find_again()?;
        self.call_changed();
        let mut out = CgroupsSample::default();
        let budget = |share, least| cx.interval.mul_f64(share).max(Duration::from_micros(least));
        self.read_limited(cx.at, budget(LIMITED_BUDGET, 500), &mut out);
        let others = if self.started { budget(OTHERS_BUDGET, 250) } else { FIRST_ROUND };
        self.started = true;
        self.read_others(cx.at, others, &mut out);
        self.unread = out.unread;
        self.behind = if out.unread > 0 { self.behind.saturating_add(1) } else { 0 };
        Ok(out)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        let any = |f: fn(&Hierarchy) -> bool| self.hierarchies.iter().any(f);
        for (name, v1, v2) in [
            ("cgroup CPU", any(|h| h.v1.cpu), any(|h| h.v2_offers.cpu)),
            ("cgroup I/O", any(|h| h.v1.blkio), any(|h| h.v2_offers.blkio)),
        ] {
            let source = if v1 { "cgroup" } else { "cgroup2" };
            out.push(if !(v1 || v2) {
                Signal::missing(name, source, "no hierarchy with this controller is mounted", "")
            } else if self.behind >= 10 {
                let why = format!("{} cgroups are waiting their turn", self.unread);
                Signal::degraded(name, source, why, "")
            } else {
                Signal::ok(name, source)
            });
        }
    }
}

impl CgroupsCollector {
    /// Hierarchies that are seen through the root of another process are out of sight when it
    /// ends: perhaps there is another one.
    fn find_again(&mut self) -> Result<(), CollectError> {
        let mut borrowed = self.hierarchies.iter().filter(|h| h.is_borrowed());
        let Some(gone) = borrowed.find(|h| !self.host.path(&h.dir).is_dir()) else { return Ok(()) };
        let path = gone.dir.display().to_string();
        let host = self.host.clone();
        *self = Self::open(&host, &CollectOptions::default()).map_err(|_| {
            let source = io::ErrorKind::NotFound.into();
            CollectError::Read { path, source }
        })?;
        Ok(())
    }

    /// Groups that somebody changed need not wait for their turn.
    fn call_changed(&mut self) {
        let changes = self.watches.changes();
        if changes.written.is_empty() && changes.grown.is_empty() {
            return;
        }
        let call = |group: &mut Group| {
            let key = (group.hierarchy, group.path.clone());
            let grown = changes.grown.contains(&key);
            if grown {
                // One child may have come as another one went.
                group.links = None;
            }
            if grown || changes.written.contains(&key) {
                group.checked_at = None;
            }
        };
        self.limited.iter_mut().for_each(call);
        self.others.iter_mut().for_each(call);
        // The sort is stable: the oldest stay in front of the rest.
        self.others.make_contiguous().sort_by_key(|g| g.checked_at.is_some());
    }

    /// Groups with a limit: all of them each tick, as far as the budget goes.
    fn read_limited(&mut self, at: MonoNs, budget: Duration, out: &mut CgroupsSample) {
        let start = clock::thread_cpu();
        let all = self.limited.len();
        for n in 0..all {
            if n >= MIN_READS && clock::thread_cpu().saturating_sub(start) > budget {
                out.unread = out.unread.saturating_add((all - n) as u32);
                return;
            }
            let Some(mut group) = self.limited.pop_front() else { return };
            if group.checked_at.is_none_or(|t| at.since(t) >= CHECK_AGE) {
                self.check(group, at, out);
                continue;
            }
            let (contents, files) = self.contents(&mut group, true);
            if files == 0 {
                // Gone, most likely: look at the directory.
                self.check(group, at, out);
                continue;
            }
            self.ask_whose_tasks(&mut group, &contents, at);
            out.groups.push(row(&group, &self.hierarchies, contents));
            self.limited.push_back(group);
        }
    }

    /// The others: those whose time has come, oldest first. New ones are in front.
    fn read_others(&mut self, at: MonoNs, budget: Duration, out: &mut CgroupsSample) {
        let start = clock::thread_cpu();
        let mut n = 0;
        let due = |g: &Group| g.checked_at.is_none_or(|t| at.since(t) >= CHECK_AGE);
        while self.others.front().is_some_and(due) {
            if n >= MIN_READS && clock::thread_cpu().saturating_sub(start) > budget {
                let left = self.others.iter().take_while(|g| due(g)).count();
                out.unread = out.unread.saturating_add(left as u32);
                return;
            }
            n += 1;
            let Some(group) = self.others.pop_front() else { return };
            self.check(group, at, out);
        }
    }

    /// Looks at the directory, reads limits and counters, and puts the group where it belongs.
    fn check(&mut self, mut group: Group, at: MonoNs, out: &mut CgroupsSample) {
        // Opened anew below: controllers may have been switched on or off since.
        self.open_groups = self.open_groups.saturating_sub(usize::from(!group.open.is_empty()));
        group.open.clear();
        let root = self.host.path("");
        let Ok(children) = self.known.look(&root, &mut group, &mut self.buf) else {
            self.known.forget(&group);
            return;
        };
        for child in children {
            self.others.push_front(child);
        }
        if group.checked_at.is_none() {
            self.watches.add(&root.join(&group.dir), (group.hierarchy, group.path.clone()));
        }
        group.checked_at = Some(at);
        group.limits = self.reader(&group).limits();
        let limited = group.limits.matter();
        let (contents, _) = self.contents(&mut group, limited);
        let limited = limited || is_near(&group.limits, &contents);
        self.ask_whose_tasks(&mut group, &contents, at);
        // The root has no limit in v2, and its counters are the system's.
        if limited || !group.is_root() {
            out.groups.push(row(&group, &self.hierarchies, contents));
        }
        if limited { self.limited.push_back(group) } else { self.others.push_back(group) }
    }

    /// Looks whose the tasks of a group are that may have few more.
    fn ask_whose_tasks(&mut self, group: &mut Group, contents: &Contents, at: MonoNs) {
        let tasks = contents.pids.zip(group.limits.pids);
        if !tasks.is_some_and(|(now, most)| task_owners::is_near(now, most)) {
            group.tasks = None;
        } else if group.tasks.as_ref().is_none_or(|(t, _)| at.since(*t) >= task_owners::AGE) {
            let pids = members(&self.host.path(""), &group.dir, &mut self.buf);
            group.tasks = Some((at, task_owners::of(&self.host, &pids)));
        }
    }

    fn reader(&mut self, group: &Group) -> Reader<'_> {
        // Hierarchies never change after `open`, so the index holds.
        let hierarchy = &self.hierarchies[group.hierarchy.min(self.hierarchies.len() - 1)];
        let cpuacct_dir = if hierarchy.v1.cpu && !hierarchy.v1.cpuacct {
            let elsewhere = self.hierarchies.iter().find(|h| h.v1.cpuacct);
            elsewhere.map(|h| h.dir.join(group.path.trim_start_matches('/')))
        } else {
            None
        };
        Reader {
            host: &self.host,
            hierarchy,
            dir: group.dir.clone(),
            cpuacct_dir,
            buf: &mut self.buf,
            open: None,
            files: 0,
        }
    }

    /// Counters, and how many files could be read.
    fn contents(&mut self, group: &mut Group, keep: bool) -> (Contents, u32) {
        let had = !group.open.is_empty();
        let keep = keep && (had || self.open_groups < self.max_open_groups);
        let mut open = std::mem::take(&mut group.open);
        let mut reader = self.reader(group);
        if keep {
            reader.open = Some(&mut open);
        }
        let contents = reader.contents(&group.limits);
        let files = reader.files;
        self.open_groups =
            (self.open_groups + usize::from(!open.is_empty())).saturating_sub(usize::from(had));
        group.open = open;
        (contents, files)
    }
}

/// What happens to it next is worth a closer look: it is near a limit, or was beyond one.
fn is_near(limits: &Limits, contents: &Contents) -> bool {
    let near = |now: Option<u64>, most: Option<u64>| {
        now.zip(most).is_some_and(|(now, most)| now as f64 >= NEAR * most as f64)
    };
    let memory = limits.memory.into_iter().chain(limits.memory_high).min();
    near(contents.memory, memory)
        || near(contents.pids, limits.pids)
        || contents.oom_kills.is_some_and(|n| n > 0)
}

fn max_open_groups() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(MAX_OPEN_GROUPS, |n| MAX_OPEN_GROUPS.min((n / 72) as usize))
}

fn row(group: &Group, hierarchies: &[Hierarchy], contents: Contents) -> CgroupRow {
    let [psi_cpu, psi_io, psi_memory] = contents.psi;
    let mount = hierarchies.get(group.hierarchy).map(|h| h.mount.clone());
    CgroupRow {
        id: group.id,
        path: group.path.clone(),
        mount: mount.unwrap_or_else(|| "".into()),
        cpu: contents.cpu,
        io: contents.io,
        memory_bytes: contents.memory,
        memory_limit_bytes: group.limits.memory,
        memory_high_bytes: group.limits.memory_high,
        oom_kills: contents.oom_kills,
        memory_failures: contents.memory_failures,
        pids: contents.pids.map(|current| CgroupPids {
            current,
            max: group.limits.pids,
            failures: contents.pids_failures,
        }),
        tasks: group.tasks.as_ref().map(|(_, owners)| owners.clone()),
        psi_cpu,
        psi_io,
        psi_memory,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

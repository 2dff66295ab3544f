//! `task-hung`: tasks do not come back from an uninterruptible sleep.

use std::collections::BTreeMap;

use super::common::text::{count, time};
use crate::diagnose::rules::prelude::*;
use crate::metrics::blocked::Sleeper;
use crate::metrics::waits::class::{Class, is_fuse, of_function};
use crate::sample::sched::TaskKind;

/// A warning after this long in the same sleep ...
const WARN: Duration = Duration::from_secs(10);
/// ... and critical after this, or from this many tasks on.
const CRIT: Duration = Duration::from_secs(30);
const CRIT_TASKS: usize = 10;
/// What waits for the whole of a work, however large, may take until the kernel itself complains.
const WHOLE_WORK: Duration = Duration::from_secs(120);
/// Functions that do so: `sync`, discards of a whole disk, commands that a program sends to a disk.
const WHOLE_WORKS: [&str; 4] = ["wb_wait", "sync_inodes_sb", "blk_execute_rq", "blkdev_issue"];
/// Threads of the kernel count only where they wait for somebody else.
const WAITING_FOR_OTHERS: [Place; 4] = [Place::Disk, Place::RemoteFs, Place::Fuse, Place::Lock];
/// Maximum number of tasks that a finding names, and that it marks.
const NAMED: usize = 3;
const MARKED: usize = 1000;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("task-hung"),
    title: "tasks do not come back from one uninterruptible sleep",
    condition: "Tasks are in state D, in the same function of the kernel, and have not been on a \
        CPU for 10 s (waking up once in 30 s does not count); critical at 30 s or from 10 tasks \
        on. A remark only until 120 s where the function waits for the whole of a large work \
        (sync, discard of a disk, a command sent to a disk). Threads of the kernel count where \
        they wait for a disk, a remote file system or a lock, and do not make it critical by \
        themselves. One finding per function.",
    look_alikes: "A busy disk: tasks are in D at every reading, each time in another short \
        sleep; they run in between. Idle kernel threads, parents in vfork and frozen cgroups \
        (docker pause) are in D of their own will. Programs that call into FUSE wait \
        interruptibly (state S) until somebody kills them.",
    remedy: "The function says for what they wait. A disk: dmesg, disk-hung. A remote file \
        system: the server or the way to it; the tasks go on when it is back. FUSE: its daemon; \
        kill it, and every call fails. A lock: the task that holds it is in D elsewhere or runs. \
        percpu_rwsem_wait is a frozen file system in most cases: fsfreeze -u. Such tasks can be \
        killed only where the function is a killable one. wchan leaves the kernel's own mutexes \
        out: who waits for one is in the function that wants it.",
    sources: "/proc/PID/task/TID/{stat,schedstat,wchan}. The kernel itself reports a task after \
        120 s (hung_task_timeout_secs), and never one in a killable sleep, as those for NFS are. \
        Measured on 6.18: writers of a \
        frozen disk stay in one sleep until it is thawed; 32 writers of a disk limited to 500 \
        requests/s are all in D at every reading, and each sleeps 64 ms at a time.",
    hold: Hold::events(3),
    needs_time: Duration::from_secs(12),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Processes],
    explains: &[Explains::new("load-without-cpu", Scope::Host)],
    check,
};

/// For what they wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Disk,
    RemoteFs,
    Fuse,
    Memory,
    Lock,
    Other,
}

impl Place {
    /// `None`: they sleep of their own will, or are stopped.
    fn of(function: &str) -> Option<Self> {
        match of_function(function) {
            Some(Class::Disk) => Some(Self::Disk),
            Some(Class::RemoteFs) if is_fuse(function) => Some(Self::Fuse),
            Some(Class::RemoteFs) => Some(Self::RemoteFs),
            Some(Class::Memory) => Some(Self::Memory),
            Some(Class::Lock) => Some(Self::Lock),
            Some(Class::Idle | Class::Stopped | Class::Peer) => None,
            _ => Some(Self::Other),
        }
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Self::Disk => Some("disk"),
            Self::RemoteFs => Some("remote file system"),
            Self::Fuse => Some("FUSE"),
            Self::Memory => Some("memory"),
            Self::Lock => Some("lock"),
            Self::Other => None,
        }
    }
}

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(sleepers) = w.derived.blocked.as_deref() else { return };
    let mut groups: BTreeMap<&str, Vec<&Sleeper>> = BTreeMap::new();
    for s in sleepers.iter().filter(|s| s.asleep.unwrap_or(s.seen) >= WARN) {
        let subject = |function: Option<&String>| Subject::Blocked { function: function.cloned() };
        match (s.asleep, &s.task.wchan) {
            (None, wchan) => out.unknown(subject(wchan.as_ref()), UNCOUNTED),
            (Some(_), None) => out.unknown(subject(None), HIDDEN),
            (Some(_), Some(function)) => groups.entry(function).or_default().push(s),
        }
    }
    for (function, mut all) in groups {
        let Some(place) = Place::of(function) else { continue };
        all.retain(|s| !is_kernel(s) || WAITING_FOR_OTHERS.contains(&place));
        // Who has waited longest comes first, programs before the kernel.
        all.sort_by_key(|s| (is_kernel(s), std::cmp::Reverse(s.asleep), s.task.task));
        if let Some(longest) = all.iter().filter_map(|s| s.asleep).max() {
            let group = Group { function, place, all, longest };
            let subject = Subject::Blocked { function: Some(function.to_owned()) };
            out.fire(subject, fire(w, &group));
        }
    }
}

const UNCOUNTED: &str = "in state D at every reading, but in one sleep or in many: how often a task \
    runs is not counted by this kernel, or not in this recording";
const HIDDEN: &str = "in one sleep for 10 s or more, but the function of the kernel is hidden \
    (wchan)";

fn is_kernel(s: &Sleeper) -> bool {
    matches!(s.task.kind, Some(TaskKind::Kernel | TaskKind::BoundKernel))
}

/// Tasks in one function; at least one.
struct Group<'a> {
    function: &'a str,
    place: Place,
    all: Vec<&'a Sleeper>,
    longest: Duration,
}

impl Group<'_> {
    fn severity(&self) -> Severity {
        let programs = self.all.iter().any(|s| !is_kernel(s));
        let whole = WHOLE_WORKS.iter().any(|f| self.function.starts_with(f));
        if whole && self.longest < WHOLE_WORK {
            Severity::Info
        } else if programs && (self.longest >= CRIT || self.all.len() >= CRIT_TASKS) {
            Severity::Crit
        } else {
            Severity::Warn
        }
    }

    fn names(&self) -> Vec<String> {
        let name = |s: &&Sleeper| format!("{}/{}", s.task.comm, s.task.task.tid);
        self.all.iter().take(NAMED).map(name).collect()
    }
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let (n, names) = (g.all.len(), g.names().join(", "));
    let place = g.place.name().map_or(String::new(), |p| format!(" ({p})"));
    let (function, for_) = (g.function, time(g.longest));
    let mut f = Fire::new(
        g.severity(),
        match n {
            1 => format!("{names} has been in one sleep in {function}{place} for {for_}"),
            _ => format!("{n} tasks hang in {function}{place}, the longest for {for_}: {names}"),
        },
    );
    f.since = Some(w.tick.mono.back(g.longest));
    f.count = u32::try_from(n).unwrap_or(u32::MAX);
    f.examples = g.names();
    f.tasks = g.all.iter().take(MARKED).map(|s| s.task.task).collect();
    let limit = if g.longest >= CRIT { CRIT } else { WARN };
    let text = format!("in one sleep for {for_}, not on a CPU meanwhile");
    f.evidence.push(
        Evidence::new("asleep", g.longest.as_secs_f64(), "s", text).over(limit.as_secs_f64()),
    );
    let text = format!("{} in {function}", count(n, "task"));
    f.evidence.push(Evidence::new("blocked", n as f64, "", text));
    of_disks(&mut f, w, g);
    let kernel = g.all.iter().filter(|s| is_kernel(s)).count();
    let because = "the number of time slices of each stayed the same".to_owned();
    f.ruled_out.push(RuledOut::new("short-sleeps", because));
    let because = format!("{} of {n} belong to programs", n - kernel);
    f.ruled_out.push(RuledOut::new("idle-kernel-thread", because));
    next(&mut f, g);
    f
}

/// Whether the disks have something to do with it.
fn of_disks(f: &mut Fire, w: &Window<'_>, g: &Group<'_>) {
    if g.place != Place::Disk {
        return;
    }
    let Some(disks) = w.derived.disks.as_ref() else {
        return f.missing.push("which disk (disks are not sampled)".to_owned());
    };
    let busy = disks.iter().filter(|d| d.in_flight.is_some_and(|n| n > 0));
    let busy: Vec<String> = busy.take(NAMED).map(|d| d.name.to_string()).collect();
    if busy.is_empty() {
        let because = "no disk has a request in flight".to_owned();
        f.ruled_out.push(RuledOut::new("disk-hung", because));
        f.missing.push(
            "what they wait for: no request is at a disk; pages of a remote file system and a \
             frozen or full journal look the same"
                .to_owned(),
        );
    } else {
        let text = format!("requests in flight on {}", busy.join(", "));
        f.evidence.push(Evidence::text("inflight", text));
    }
}

fn next(f: &mut Fire, g: &Group<'_>) {
    if let Some(first) = g.all.first() {
        f.next.push(format!("cat /proc/{}/stack", first.task.task.tid));
        if !is_kernel(first) {
            f.next.push(format!("stallscope why {}", first.task.task.pid));
        }
    }
    let more: &[&str] = match g.place {
        Place::Disk => &["iostat -x 1 3", "dmesg -T | tail -50"],
        Place::RemoteFs => &[
            "grep -E ' (nfs4?|cifs|smb3|ceph|9p|afs|autofs) ' /proc/mounts",
            "nfsstat -c; nfsstat -m",
        ],
        Place::Fuse => &[
            "grep -E ' fuse' /proc/mounts",
            "fuser -v /dev/fuse  # its daemons: one of them does not answer",
        ],
        Place::Lock if g.function.contains("percpu") => &[
            "findmnt -lo TARGET,FSTYPE",
            "fsfreeze -u MOUNTPOINT  # if a backup froze it and did not thaw it",
        ],
        Place::Memory => &["grep . /proc/pressure/memory /proc/meminfo"],
        Place::Lock | Place::Other => {
            &["echo w > /proc/sysrq-trigger; dmesg | tail -60  # stacks of all blocked tasks: one \
             of them may hold it"]
        }
    };
    f.next.extend(more.iter().map(|s| (*s).to_owned()));
}

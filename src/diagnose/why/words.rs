//! The answer in words.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Answer, Known, PlaceShare, Process};
use crate::metrics::rate::ratio;
use crate::metrics::waits::{Class, Place, is_file_lock};

/// Part of the time from which a process counts as idle.
const IDLE: f64 = 0.95;

/// A place of which neither the function nor the call is known.
const UNREADABLE: &str = "not readable";

/// `3 threads`, `1 thread`.
pub(super) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What a wait is about.
pub(super) fn what(
    class: Class,
    place: Option<&Place>,
    cgroup: Option<&str>,
    known: &Known<'_>,
) -> String {
    match (class, place, cgroup) {
        (Class::User, ..) => "its own code".to_owned(),
        (Class::Sys, ..) => "the kernel's code".to_owned(),
        (Class::RunQueue, ..) => "a CPU to run on".to_owned(),
        (Class::Throttled, _, Some(group)) => format!("the CPU quota of {group}"),
        (Class::Throttled, ..) => "a CPU quota".to_owned(),
        (Class::Stopped, ..) => "a signal or a debugger to let it go on".to_owned(),
        (_, Some(p), _) => in_place(p, known),
        (_, None, _) => "no sample found it asleep".to_owned(),
    }
}

/// `fsync of /var/lib/db/wal (jbd2_log_wait_commit)`.
fn in_place(p: &Place, known: &Known<'_>) -> String {
    let call = p.syscall.as_deref().unwrap_or("");
    let object = object(p, known);
    let subject = match (call, object) {
        ("", None) => String::new(),
        ("", Some(o)) => o,
        (c, None) => c.to_owned(),
        (c @ ("fsync" | "fdatasync" | "syncfs"), Some(o)) => format!("{c} of {o}"),
        (c, Some(o)) => format!("{c} on {o}"),
    };
    let mut out = match (subject.as_str(), &p.wchan) {
        ("", Some(f)) => f.clone(),
        ("", None) => UNREADABLE.to_owned(),
        (s, Some(f)) => format!("{s} ({f})"),
        (s, None) => s.to_owned(),
    };
    if let Some(h) = &p.holder {
        let _ = write!(out, ", held by {}/{}", h.comm, h.pid);
    }
    out
}

fn object(p: &Place, known: &Known<'_>) -> Option<String> {
    if let Some(address) = p.mutex {
        return Some(format!("the mutex at {address:#x}"));
    }
    match (p.file.as_deref()?, p.inode) {
        ("socket", Some(i)) => Some(known.connection(i).unwrap_or_else(|| format!("socket {i}"))),
        ("pipe", Some(i)) => Some(format!("pipe {i}")),
        ("[eventpoll]", _) => None,
        (file, _) => Some(file.to_owned()),
    }
}

/// The answer in a sentence, or two.
pub(super) fn conclusion(a: &Answer) -> String {
    let who = who(&a.processes);
    if a.time.is_zero() {
        return format!("{who} was not seen for long enough to tell.");
    }
    let idle = a.time_of(Class::Idle);
    let awake = a.time.saturating_sub(idle);
    let several = a.threads > 1;
    if a.share(idle) >= IDLE {
        let of = if several {
            format!("the time of its {} threads", a.threads)
        } else {
            "the time".to_owned()
        };
        let but = match a.places.first().filter(|p| a.share(p.time) >= super::WORTH_A_LINE) {
            Some(p) => format!(" Of the rest, most goes to {}: {}.", noun(p.class), p.what),
            None => String::new(),
        };
        return format!(
            "{who} is idle: for {} of {of} it waits for work to come.{but}",
            percent(a.share(idle))
        );
    }
    let Some((class, time)) = main(a, awake) else { return format!("{who} is idle.") };
    let share = ratio(time.as_secs_f64(), awake.as_secs_f64()).unwrap_or(0.0);
    let of = match (several, idle.is_zero()) {
        (true, _) => format!("of the time that its {} threads are not idle", a.threads),
        (false, false) => "of the time that it is not idle".to_owned(),
        (false, true) => "of the time".to_owned(),
    };
    let first = a.places.iter().find(|p| p.class == class);
    if first.is_some_and(|p| class == Class::Other && p.what == UNREADABLE) {
        return format!("What {who} sleeps in for {} {of} could not be read.", percent(share));
    }
    let mut out = format!("{who} {} for {} {of}", does(class), percent(share));
    if let Some(p) = first.filter(|_| is_about_something(class)) {
        let _ = write!(out, ": {}", p.what);
    }
    if let Some(f) = first.and_then(|p| p.finding.as_ref()) {
        let _ = write!(out, ". {}: {}", f.rule, f.fire.summary);
    }
    out.push('.');
    out
}

/// The class to name: waiting goes before working where it takes a third or more, as work is what
/// a process is for.
fn main(a: &Answer, awake: Duration) -> Option<(Class, Duration)> {
    let most = |of: &dyn Fn(Class) -> bool| {
        a.classes.iter().copied().filter(|c| c.0 != Class::Idle && of(c.0)).max_by_key(|c| c.1)
    };
    let waits = most(&Class::is_wait).filter(|c| c.1 * 3 >= awake);
    waits.or_else(|| most(&|_| true))
}

fn who(all: &[Process]) -> String {
    match all {
        [] => "The process".to_owned(),
        [p] => format!("{}/{}", p.comm, p.pid),
        [p, rest @ ..] if rest.iter().all(|o| o.comm == p.comm) => {
            format!("{} ({} processes)", p.comm, all.len())
        }
        _ => format!("A group of {} processes", all.len()),
    }
}

fn does(class: Class) -> &'static str {
    match class {
        Class::User => "runs its own code",
        Class::Sys => "runs code of the kernel",
        Class::RunQueue => "waits for a CPU",
        Class::Throttled => "is held back by a CPU quota",
        Class::Disk => "waits for a disk",
        Class::Memory => "waits for memory",
        Class::Lock => "waits for a lock",
        Class::Network => "waits for the network",
        Class::Peer => "waits for another process",
        Class::RemoteFs => "waits for a remote file system",
        Class::Idle => "is idle",
        Class::Stopped => "is stopped",
        Class::Other => "sleeps",
    }
}

fn noun(class: Class) -> &'static str {
    match class {
        Class::User | Class::Sys => "running",
        Class::RunQueue => "waiting for a CPU",
        Class::Throttled => "a CPU quota",
        Class::Disk => "a disk",
        Class::Memory => "memory",
        Class::Lock => "a lock",
        Class::Network => "the network",
        Class::Peer => "another process",
        Class::RemoteFs => "a remote file system",
        Class::Idle => "idleness",
        Class::Stopped => "being stopped",
        Class::Other => "sleeping",
    }
}

fn is_about_something(class: Class) -> bool {
    !matches!(class, Class::User | Class::Sys | Class::RunQueue | Class::Stopped)
}

/// 0 to 1 as `83%`; what is there but rounds to nothing is not nothing.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 1.0 => "less than 1%".to_owned(),
        p if p < 100.0 => format!("{:.0}%", p.min(99.0)),
        _ => "100%".to_owned(),
    }
}

fn is_of_file(p: &PlaceShare) -> bool {
    p.wchan.as_deref().is_some_and(is_file_lock)
}

/// What to type next, for the main wait.
pub(super) fn next(a: &Answer) -> Vec<String> {
    if let Some(f) = a.findings.first() {
        return f.fire.next.clone();
    }
    let awake = a.time.saturating_sub(a.time_of(Class::Idle));
    let Some((class, _)) = main(a, awake) else { return Vec::new() };
    let Some(pid) = a.worst.first().map(|t| t.task.pid) else { return Vec::new() };
    let of_class = |p: &&PlaceShare| p.class == class;
    match class {
        Class::User | Class::Sys => vec![format!("perf top -g -p {pid}")],
        Class::Lock if a.places.iter().any(|p| of_class(&p) && is_of_file(p)) => {
            // The kernel says who holds these; what that one waits for is the next question.
            let holder = a.places.iter().filter(of_class).find_map(|p| p.holder);
            let why = holder.map(|pid| format!("stallscope why {pid}"));
            let all = "lslocks -o PID,COMMAND,TYPE,MODE,BLOCKER,PATH".to_owned();
            why.into_iter().chain([all]).collect()
        }
        Class::Lock => vec![format!("gdb -p {pid} -batch -ex 'thread apply all bt'")],
        Class::Network => {
            let ns = a.places.iter().filter(of_class).find_map(|p| p.enter.as_deref());
            vec![format!("{}ss -tinpe | grep -A1 pid={pid},", ns.unwrap_or(""))]
        }
        Class::Peer => vec![format!("ls -l /proc/{pid}/fd; pstree -p {pid}")],
        Class::Disk => vec![format!("grep . /proc/{pid}/io; iostat -x 1 3")],
        Class::Stopped => vec![format!("grep -E 'State|TracerPid' /proc/{pid}/status")],
        Class::RemoteFs => vec!["nfsstat -c; mount -t nfs,nfs4,cifs,fuse".to_owned()],
        Class::Other if a.places.iter().any(|p| of_class(&p) && p.wchan.is_none()) => Vec::new(),
        Class::Other => vec![format!("cat /proc/{pid}/task/*/stack")],
        Class::RunQueue | Class::Throttled | Class::Memory | Class::Idle => Vec::new(),
    }
}

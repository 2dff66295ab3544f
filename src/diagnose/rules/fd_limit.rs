//! `fd-limit`: a process is out of file descriptors, or nearly so.

use super::common::text::count;
use crate::diagnose::limits::Limit;
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::ratio;
use crate::sample::limits::OpenFiles;
use crate::sample::sockets::SockState;
use crate::sample::subject::{NetnsId, Subject};

pub(in crate::diagnose) static LIMIT: Limit = Limit {
    rule: RuleId("fd-limit"),
    of: "file descriptors of a process in use, %",
    warn: 95.0,
    clear: 90.0,
    crit: f64::INFINITY,
    // Of processes below 70% nobody is told, and the finding has to clear.
    range: (80.0, 99.0),
};
/// Maximum number of sockets marked.
const MOST: usize = 1000;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("fd-limit"),
    title: "a process is out of file descriptors: accept, connect and open fail",
    condition: "95% or more of the soft RLIMIT_NOFILE is in use, for 2 of 4 s. Critical when \
        all of it is: the next descriptor fails with EMFILE. Clears below 90%. Needs Linux 6.2, \
        which counts descriptors.",
    look_alikes: "A server that accepts slowly with descriptors to spare: tcp-listen-overflow \
        without this finding. ENFILE: the host's fs.file-max is used up, for every process. A \
        pool that fills its limit by design and never asks for more.",
    remedy: "Find out whether it leaks (one kind of descriptor grows without bound: sockets in \
        CLOSE-WAIT, deleted files, epoll or pipe) and fix the leak. If it is just busy, raise the \
        limit: LimitNOFILE= of the unit, ulimit -n; prlimit takes effect immediately, unless the \
        program sized a table by the old limit.",
    sources: "stat(2) of /proc/PID/fd (since 6.2 its size is the number of descriptors), \
        /proc/PID/limits; node-mixin warns for the whole host at 70 and 90%. Measured: a shell \
        with ulimit -n 64 opens 64 and gets EMFILE.",
    hold: Hold::of(2, 4),
    needs_time: Duration::from_secs(3),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Limits],
    explains: &[Explains::new("tcp-listen-overflow", Scope::Same)],
    check,
};

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let at = t.levels(&LIMIT);
    let Some(limits) = w.tick.samples.limits.as_ref() else { return };
    if !limits.data.counts_files {
        return out.cannot_judge("this kernel does not count open files (needs Linux 6.2)");
    }
    for p in &limits.data.processes {
        let Some(used) = ratio(100.0 * p.open as f64, p.soft as f64) else { continue };
        if used >= at.warn {
            out.fire(subject(p), fire(w, p, used, at.warn));
        } else if used >= at.clear {
            out.linger(subject(p));
        }
    }
}

fn subject(p: &OpenFiles) -> Subject {
    // File descriptors belong to no network namespace.
    Subject::Process { pid: p.pid, comm: p.comm.clone(), netns: NetnsId(0) }
}

fn fire(w: &Window<'_>, p: &OpenFiles, used: f64, at: f64) -> Fire {
    let (open, soft) = (p.open, p.soft);
    let mut f = if open >= soft {
        let text = format!("{}/{} has all {soft} of its file descriptors in use", p.comm, p.pid);
        Fire::new(Severity::Crit, text)
    } else {
        let text = format!("{}/{} has {open} of {soft} file descriptors in use", p.comm, p.pid);
        Fire::new(Severity::Warn, text)
    };
    let hard = match p.hard {
        Some(n) if n > soft => format!("; it can raise the limit to {n} itself"),
        Some(_) => "; it cannot raise the limit itself".to_owned(),
        None => String::new(),
    };
    let text = format!("{open} descriptors, RLIMIT_NOFILE {soft} ({used:.0}%){hard}");
    f.evidence.push(Evidence::new("open files", used, "%", text).over(at));
    let mine = |pid: u32| pid == p.pid;
    let suspects = w.derived.sockets.suspects.iter();
    let own: Vec<_> =
        suspects.filter(|s| s.owner.as_ref().is_some_and(|o| mine(o.pid))).take(MOST).collect();
    f.sockets = own.iter().map(|s| s.id).collect();
    let waiting: u64 =
        own.iter().filter(|s| s.state == SockState::LISTEN).map(|s| u64::from(s.rqueue)).sum();
    if waiting > 0 {
        let n = count(waiting as usize, "connection");
        let text = format!("{n} waiting for it to accept them");
        f.evidence.push(Evidence::new("recvq", waiting as f64, "", text));
    }
    let because = format!("its own limit is reached at {open}, whatever fs.file-max allows");
    f.ruled_out.push(RuledOut::new("ENFILE", because));
    let pid = p.pid;
    f.next.push(format!(
        "find /proc/{pid}/fd -type l -printf '%l\\n' | sed 's/[0-9][0-9]*//g' | sort | uniq -c | sort -rn | head"
    ));
    f.next.push(format!("grep -E 'open files' /proc/{pid}/limits; cat /proc/{pid}/cgroup"));
    f.next.push(format!("prlimit --pid {pid} --nofile={}", soft.saturating_mul(2)));
    f
}

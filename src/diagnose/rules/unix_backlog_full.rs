//! `unix-backlog-full`: a UNIX socket's listen backlog is full.

use super::common::by_owner::all_by;
use super::common::lasting::lasting;
use super::common::peers::{enter, owner};
use super::common::text::sh;
use crate::diagnose::rules::prelude::*;
use crate::metrics::cpu::ThreadWait;
use crate::metrics::sockets::UnixFull;
use crate::sample::sockets::Owner;
use crate::sample::subject::{NetnsId, Subject};

/// If it is full for this long and the accepting process does not run, it is not a burst.
const STUCK: Duration = Duration::from_secs(5);
/// Evaluated over this time, because a reading may be late.
const SPAN: Duration = Duration::from_secs(7);
/// % of a core below which a process counts as not running.
const RUNS: f64 = 5.0;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("unix-backlog-full"),
    title: "a UNIX socket's listen backlog is full: clients block or get EAGAIN",
    condition: "A listening UNIX socket has as many connections waiting as its backlog, or \
        more, for 2 of 5 s. Beyond the backlog, connect() returns EAGAIN to non-blocking \
        clients and blocks the others. A warning when it is full for 5 of 7 s and all processes \
        with its owner's name together use less than 5% of a core; otherwise info.",
    look_alikes: "A short burst is gone by the next sample. A datagram socket has no backlog of \
        connections: its queue limit is net.unix.max_dgram_qlen.",
    remedy: "Find out what the accepting process waits for; raise the listen() backlog and \
        net.core.somaxconn together.",
    sources: "net/unix/af_unix.c, unix_stream_connect(), unix_recvq_full(): full when longer \
        than the backlog. Measured on 6.18 with listen(1) and three clients.",
    hold: Hold { need: 2, of: 5, clear: 5 },
    needs_time: Duration::from_secs(3),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Sockets], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for s in &w.derived.sockets.spaces {
        for u in &s.unix_full {
            let subject = Subject::UnixListener { path: u.path.clone(), netns: s.netns };
            out.fire(subject, fire(w, s.netns, u));
        }
    }
}

fn fire(w: &Window<'_>, netns: NetnsId, u: &UnixFull) -> Fire {
    let who = u.owner.as_ref().map_or_else(String::new, |o| format!(" ({})", owner(o)));
    let name = if u.path.is_empty() { format!("inode {}", u.inode) } else { u.path.clone() };
    let (held, _) = lasting(w, SPAN, |d| {
        let then = d.sockets.spaces.iter().find(|s| s.netns == netns);
        then.is_some_and(|s| s.unix_full.iter().any(|x| x.inode == u.inode))
    });
    let runs = u.owner.as_ref().and_then(|o| runs(w, o));
    let stuck = held >= STUCK && runs.is_some_and(|pct| pct < RUNS);
    let mut f = Fire::new(
        if stuck { Severity::Warn } else { Severity::Info },
        format!("{name}{who} has {} connections waiting, backlog {}", u.waiting, u.backlog),
    );
    f.count = u.waiting.max(1);
    let text = format!("{} connections wait to be accepted", u.waiting);
    f.evidence.push(Evidence::new("recvq", u.waiting.into(), "", text).over(u.backlog.into()));
    match runs {
        Some(pct) => {
            let text = format!("processes of that name use {pct:.0}% of a core");
            f.evidence.push(Evidence::new("run time", pct, "%", text));
        }
        None => f.missing.push("whether its processes run".to_owned()),
    }
    f.by = all_by(u.owner.as_ref(), &Resource::Unaccepted);
    f.ruled_out.push(RuledOut::new("burst", "an earlier sample was just as full"));
    let enter = enter(w, netns);
    f.next.push(if u.path.is_empty() {
        format!("{enter}ss -xlp | grep -w {}", u.inode)
    } else {
        format!("{enter}ss -xlp src {}", sh(&u.path))
    });
    if let Some(o) = &u.owner {
        f.next.push(format!("cat /proc/{0}/wchan /proc/{0}/stack; strace -fp {0}", o.pid));
    } else {
        f.missing.push("which process (its descriptors cannot be read)".to_owned());
    }
    f
}

/// CPU usage of the owner and all processes of the same name, % of a core: any of several workers
/// may be the one that accepts. Idle threads have no row. `None`: not all threads were read, or
/// none can be.
fn runs(w: &Window<'_>, o: &Owner) -> Option<f64> {
    let sched = w.derived.sched.as_ref();
    let sched = sched.filter(|s| s.unread_threads == 0 && !s.threads.is_empty())?;
    let own = |t: &&ThreadWait| t.thread.task.pid == o.pid || t.thread.comm == o.comm;
    let share = |t: &ThreadWait| 100.0 * t.run_ns as f64 / t.dt.as_nanos().max(1) as f64;
    Some(sched.threads.iter().filter(own).fold(0.0, |sum, t| sum + share(t)))
}

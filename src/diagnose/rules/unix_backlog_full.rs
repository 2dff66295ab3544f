//! `unix-backlog-full`: a local service does not accept fast enough.

use std::time::Duration;

use super::super::{
    Evidence, Fire, Hold, Kind, Rule, RuleDoc, RuleId, RuledOut, Severity, Thresholds, Verdicts,
    Window,
};
use super::common::peers::{enter, owner};
use super::common::text::sh;
use crate::collect::CollectorId;
use crate::model::derive::sockets::UnixFull;
use crate::model::subject::{NetnsId, Subject};

/// See [`DOC`].
#[derive(Debug)]
pub(super) struct UnixBacklogFull;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("unix-backlog-full"),
    title: "the backlog of a UNIX socket is full: clients wait or get EAGAIN",
    condition: "A listening UNIX socket has as many connections waiting as its backlog, or more, \
        for 2 of 5 s. Non-blocking clients get EAGAIN from connect() once it is exceeded, \
        others wait.",
    look_alikes: "A short burst is gone at the next look. A datagram socket has no backlog of \
        connections: its queue is net.unix.max_dgram_qlen.",
    remedy: "Find out what the accepting process waits for; raise the backlog of listen() and \
        net.core.somaxconn together.",
    sources: "net/unix/af_unix.c, unix_stream_connect(), unix_recvq_full(): full when longer \
        than the backlog; measured on 6.18 with listen(1) and three clients.",
    hold: Hold { need: 2, of: 5, clear: 5 },
    needs_time: Duration::from_secs(3),
};

impl Rule for UnixBacklogFull {
    fn doc(&self) -> &'static RuleDoc {
        &DOC
    }
    fn needs(&self) -> &'static [CollectorId] {
        &[CollectorId::Sockets]
    }
    fn kind(&self) -> Kind {
        Kind::Annotation
    }
    fn check(&self, w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
        for s in &w.derived.sockets.spaces {
            for u in &s.unix_full {
                let subject = Subject::UnixListener { path: u.path.clone(), netns: s.netns };
                out.fire(subject, fire(w, s.netns, u));
            }
        }
    }
}

fn fire(w: &Window<'_>, netns: NetnsId, u: &UnixFull) -> Fire {
    let who = u.owner.as_ref().map_or_else(String::new, |o| format!(" ({})", owner(o)));
    let name = if u.path.is_empty() { format!("inode {}", u.inode) } else { u.path.clone() };
    let mut f = Fire::new(
        Severity::Info,
        format!("{name}{who} has {} connections waiting, backlog {}", u.waiting, u.backlog),
    );
    f.count = u.waiting.max(1);
    let text = format!("{} connections wait to be accepted", u.waiting);
    f.evidence.push(Evidence::new("Recv-Q", u.waiting.into(), "", text).over(u.backlog.into()));
    f.ruled_out.push(RuledOut::new("burst", "it was as full at an earlier look"));
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

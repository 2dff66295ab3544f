//! `check --format json`: schema 1. Fields may be added; none will change its meaning.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{CheckReport, rfc3339};
use crate::diagnose::Finding;
use crate::diagnose::culprit::{Culprit, Policy, Who};
use crate::sample::subject::Subject;
use crate::sample::time::WallNs;
use crate::text::is_plain;

/// Version of the schema.
pub const SCHEMA: u32 = 1;

/// The whole report.
#[must_use]
pub fn render(r: &CheckReport) -> Value {
    let mut v = json!({
        "schema": SCHEMA,
        "tool": r.host.tool,
        "host": r.host.hostname,
        "kernel": r.host.kernel,
        "source": r.source,
        "started": r.started.map(rfc3339),
        "duration_s": (r.duration.as_secs_f64() * 10.0).round() / 10.0,
        "interval_s": r.host.interval.as_secs_f64(),
        "ticks": r.ticks,
        "coverage": r.coverage,
        "findings": r.findings.iter().map(|f| finding(f)).collect::<Vec<_>>(),
        "annotations": r.annotations.iter().map(|f| finding(f)).collect::<Vec<_>>(),
        "not_judged": r.not_judged,
        "verdict": super::text::verdict(r, usize::MAX),
        "blind_spots": r.blind,
    });
    if let Value::Object(map) = &mut v {
        if let Some(unread) = &r.unread {
            map.insert("unread".into(), json!(unread));
        }
        if !r.host.rules.is_empty() {
            map.insert("thresholds".into(), json!(r.host.rules));
        }
        if !r.earlier_rules.is_empty() {
            map.insert("earlier_thresholds".into(), json!(r.earlier_rules));
        }
    }
    v
}

/// As one line of text. Names from the kernel are kept, but what a terminal would obey (C1
/// controls, bidirectional overrides) is written as `\uXXXX`; serde_json escapes only what JSON
/// forbids.
#[must_use]
pub fn text(v: &Value) -> String {
    let plain = v.to_string();
    let mut out = String::with_capacity(plain.len() + 1);
    escape(&plain, &mut out);
    out.push('\n');
    out
}

/// Adds a string to a line, escaped likewise.
pub(super) fn quote(s: &str, out: &mut String) {
    if s.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\') {
        out.push('"');
        out.push_str(s);
        out.push('"');
    } else {
        escape(&Value::from(s).to_string(), out);
    }
}

/// Adds JSON without what a terminal would obey.
fn escape(json: &str, out: &mut String) {
    // Outside strings JSON is ASCII without control characters, so what is replaced is inside one.
    for c in json.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}

/// One finding.
#[must_use]
pub fn finding(f: &Finding) -> Value {
    json!({
        "rule": f.rule,
        "severity": f.fire.severity,
        "confidence": f.fire.confidence,
        "subject": subject(&f.subject, f.fire.count, &f.fire.examples),
        "summary": f.fire.summary,
        "first_seen": known(f.first_seen),
        "last_seen": known(f.last_seen),
        "active": f.active,
        "cause": f.cause.as_ref().map(|(rule, s)| json!({"rule": rule, "subject": subject(s, 1, &[])})),
        "evidence": f.fire.evidence,
        "by": f.fire.by.iter().map(culprit).collect::<Vec<_>>(),
        "ruled_out": f.fire.ruled_out,
        "missing": f.fire.missing,
        "next": f.fire.next,
    })
}

/// A time, or null if the samples have no timestamps (pasted text).
fn known(t: WallNs) -> Option<String> {
    (t.0 > 0).then(|| rfc3339(t))
}

/// What a subject is: `peer`, `disk`.
pub(super) fn kind(s: &Subject) -> String {
    subject(s, 1, &[])["kind"].as_str().unwrap_or_default().to_owned()
}

/// The subject with its count; endpoints as `address:port` text.
fn subject(s: &Subject, count: u32, examples: &[String]) -> Value {
    let mut v = match s {
        Subject::Host => json!({"kind": "host"}),
        Subject::Peer { remote, netns } => {
            json!({"kind": "peer", "remote": remote.to_string(), "netns": netns})
        }
        Subject::Listener { local, netns } => {
            json!({"kind": "listener", "local": local.to_string(), "netns": netns})
        }
        Subject::Netns { netns } => json!({"kind": "netns", "netns": netns}),
        Subject::Link { dev, netns } => json!({"kind": "link", "dev": dev, "netns": netns}),
        Subject::Disk { name, dev } => {
            json!({"kind": "disk", "name": name, "dev": dev.to_string()})
        }
        Subject::Filesystem { mount, dev } => {
            json!({"kind": "filesystem", "mount": mount, "dev": dev.to_string()})
        }
        Subject::Cpu { cpu } => json!({"kind": "cpu", "cpu": cpu}),
        Subject::Cgroup { path, id } => json!({"kind": "cgroup", "path": path, "id": id}),
        Subject::Task { task, comm } => {
            json!({"kind": "task", "pid": task.pid, "tid": task.tid, "comm": comm})
        }
        Subject::Process { pid, comm, netns } => {
            json!({"kind": "process", "pid": pid, "comm": comm, "netns": netns})
        }
        Subject::Blocked { function } => json!({"kind": "blocked", "function": function}),
        Subject::UnixListener { path, netns } => {
            json!({"kind": "unix-listener", "path": path, "netns": netns})
        }
    };
    if let Value::Object(map) = &mut v {
        map.insert("count".into(), count.into());
        if !examples.is_empty() {
            map.insert("examples".into(), json!(examples));
        }
    }
    v
}

/// Who uses what others wait for.
fn culprit(c: &Culprit) -> Value {
    let mut v = match &c.who {
        Who::Process { pid, comm } => json!({"kind": "process", "pid": pid, "comm": comm}),
        Who::Thread { task, comm, process } => json!({
            "kind": "thread", "pid": task.pid, "tid": task.tid, "comm": comm, "process": process,
        }),
        Who::Kernel { task, comm } => {
            json!({"kind": "kernel-thread", "pid": task.pid, "tid": task.tid, "comm": comm})
        }
        Who::Cgroup { path } => json!({"kind": "cgroup", "path": path}),
        Who::Port { port, owner } => json!({
            "kind": "port", "port": port, "pid": owner.as_ref().map(|o| o.0),
            "comm": owner.as_ref().map(|o| &o.1),
        }),
        Who::Peer { remote, owner } => json!({
            "kind": "peer", "remote": remote.to_string(), "pid": owner.as_ref().map(|o| o.0),
            "comm": owner.as_ref().map(|o| &o.1),
        }),
        Who::Source { addr, owner } => json!({
            "kind": "source", "addr": addr.to_string(), "pid": owner.as_ref().map(|o| o.0),
            "comm": owner.as_ref().map(|o| &o.1),
        }),
        Who::TasksOf { path } => json!({"kind": "cgroup-tasks", "path": path}),
    };
    if let Value::Object(map) = &mut v {
        map.insert("share".into(), c.share.percent().into());
        map.insert("of".into(), c.share.of.to_string().into());
        map.insert("policy".into(), json!(c.sched.policy.map(Policy::name)));
        map.insert("nice".into(), json!(c.sched.nice));
        map.insert("cgroup".into(), json!(c.cgroup));
        map.insert("text".into(), c.to_string().into());
    }
    v
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::diagnose::culprit::{Resource, Sched, Share};
    use crate::sample::subject::TaskId;

    #[test]
    fn a_culprit_has_numbers_as_numbers_and_unknown_as_null() {
        let task = TaskId { pid: 9, tid: 11, start: 0 };
        let who = Who::Thread { task, comm: "GC".to_owned(), process: Some("java".to_owned()) };
        let share = Share::new(1225.0, 2000.0, Resource::AllCpus).unwrap();
        let c = Culprit { who, share, sched: Sched::new(Some(1), None), cgroup: None };
        let want = json!({
            "kind": "thread", "pid": 9, "tid": 11, "comm": "GC", "process": "java",
            "share": 61.2, "of": "the CPU time", "policy": "SCHED_FIFO", "nice": null, "cgroup": null,
            "text": "GC/11 of java/9 with 61% of the CPU time, SCHED_FIFO",
        });
        assert_eq!(culprit(&c), want);
        let who = Who::Source { addr: [10, 0, 0, 5].into(), owner: None };
        let share = Share::new(1.0, 2.0, Resource::ConntrackEntries).unwrap();
        let c = Culprit { who, share, sched: Sched::default(), cgroup: None };
        let want = json!({
            "kind": "source", "addr": "10.0.0.5", "pid": null, "comm": null, "share": 50.0,
            "of": "the entries of the connection table", "policy": null, "nice": null,
            "cgroup": null, "text": "source 10.0.0.5 with 50% of the entries of the connection table",
        });
        assert_eq!(culprit(&c), want);
    }

    proptest::proptest! {
        #[test]
        fn text_is_the_same_value_and_harmless(s: String) {
            let hostile = format!("{s}\u{9b}2J\u{202e}\u{7f}\u{e0001}\x1b\n\"数");
            for s in [&s, &hostile] {
                let mut quoted = String::new();
                quote(s, &mut quoted);
                proptest::prop_assert!(quoted.chars().all(is_plain), "{quoted:?}");
                let back: String = serde_json::from_str(&quoted).unwrap();
                proptest::prop_assert_eq!(&back, s);
            }
            let v = json!({ hostile.clone(): [hostile] });
            let text = text(&v);
            let line = text.strip_suffix('\n').unwrap();
            proptest::prop_assert!(line.chars().all(is_plain), "{line:?}");
            proptest::prop_assert_eq!(serde_json::from_str::<Value>(line).unwrap(), v);
        }
    }
}

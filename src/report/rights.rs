//! `doctor`: the capabilities that each thread holds, what for, and what was dropped.

use std::fmt::Write as _;

use rustix::thread::CapabilitySet;
use serde_json::{Value, json};

use crate::rights::{Account, Held, TABLE, names};
use crate::text::sanitize;

/// Length of a thread's name in the kernel, bytes.
const COMM: usize = 15;

/// As text, shown below the signals.
#[must_use]
pub fn text(account: &Result<Account, String>) -> String {
    let a = match account {
        Ok(a) => a,
        Err(e) => return format!("capabilities: {}\n", sanitize(e)),
    };
    let sealed = if a.threads.iter().all(|t| t.no_new_privs == Some(true)) {
        "no_new_privs is set: none can be gained"
    } else {
        "no_new_privs is not set"
    };
    let mut out = String::new();
    let trouble = a.trouble.as_ref().map(|t| format!("not all could be dropped: {}", sanitize(t)));
    let held = a.threads.iter().fold(CapabilitySet::empty(), |all, t| all | t.permitted);
    if held.is_empty() {
        let _ = writeln!(out, "capabilities: none held; {sealed}");
    } else {
        let _ = writeln!(out, "capabilities by thread; {sealed}");
        for t in &a.threads {
            let list = if t.permitted.is_empty() { "none".to_owned() } else { listed(t) };
            let _ = writeln!(out, "  {:<COMM$}  {list}", sanitize(&t.thread));
        }
    }
    if let Some(t) = trouble {
        let _ = writeln!(out, "  {t}");
    }
    let dropped = a.began.difference(held);
    if !dropped.is_empty() {
        let _ = writeln!(out, "  dropped by all: {}", names(dropped).join(", "));
    }
    out
}

fn listed(t: &Held) -> String {
    let mut out = names(t.effective).join(", ");
    let asleep = t.permitted.difference(t.effective);
    if !asleep.is_empty() {
        let sep = if out.is_empty() { "" } else { "; " };
        let _ = write!(out, "{sep}when needed {}", names(asleep).join(", "));
    }
    let why = why(t);
    if !why.is_empty() {
        let _ = write!(out, ": {why}");
    }
    out
}

/// What a thread of that name does, judging by the capabilities it has now.
fn why(t: &Held) -> &'static str {
    let fits = |name: &str| !name.is_empty() && name.get(..COMM).unwrap_or(name) == t.thread;
    let mut rows = TABLE.iter().filter(|r| fits(r.thread));
    // The later one holds fewer.
    let fitting = rows.clone().rev().find(|r| r.held.contains(t.effective));
    fitting.or_else(|| rows.next()).map_or("", |r| r.why)
}

/// As JSON.
#[must_use]
pub fn json(account: &Result<Account, String>) -> Value {
    let a = match account {
        Ok(a) => a,
        Err(e) => return json!({ "error": e }),
    };
    let held = a.threads.iter().fold(CapabilitySet::empty(), |all, t| all | t.permitted);
    let threads: Vec<Value> = a
        .threads
        .iter()
        .map(|t| {
            json!({
                "thread": t.thread,
                "effective": names(t.effective),
                "permitted": names(t.permitted),
                "bounding": names(t.bounding),
                "no_new_privs": t.no_new_privs,
                "why": why(t),
            })
        })
        .collect();
    json!({
        "threads": threads,
        "dropped": names(a.began.difference(held)),
        "trouble": a.trouble,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Duty;

    fn thread(name: &str, effective: CapabilitySet, permitted: CapabilitySet) -> Held {
        let bounding = CapabilitySet::empty();
        Held { thread: name.to_owned(), effective, permitted, bounding, no_new_privs: Some(true) }
    }

    fn row(duty: Duty) -> Held {
        let r = duty.row();
        let name = if r.thread.is_empty() { "stallscope" } else { r.thread };
        thread(name.get(..COMM).unwrap_or(name), r.held, r.held | r.lent)
    }

    #[test]
    fn what_is_held_and_what_was_dropped_is_listed() {
        let threads = [Duty::Figures, Duty::Tasks, Duty::ReadBpf].map(row).to_vec();
        let began = CapabilitySet::CHOWN | CapabilitySet::SYS_PTRACE | CapabilitySet::KILL;
        let a = Account { began, threads, trouble: None };
        let shown = text(&Ok(a.clone()));
        for line in [
            "capabilities by thread; no_new_privs is set: none can be gained\n",
            "  stallscope       none\n",
            "  read-tasks       CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE: what other users' tasks wait for",
            "  read-bpf         CAP_SYS_PTRACE, CAP_SYSLOG; when needed CAP_PERFMON, CAP_BPF: names",
            "  dropped by all: CAP_CHOWN, CAP_KILL\n",
        ] {
            assert!(shown.contains(line), "{line}:\n{shown}");
        }
        let v = json(&Ok(a.clone()));
        assert_eq!(v["dropped"], json!(["CAP_CHOWN", "CAP_KILL"]));
        assert_eq!(v["threads"][2]["effective"], json!(["CAP_SYS_PTRACE", "CAP_SYSLOG"]));
        // While it still loads, it says so.
        let trouble = Some("capset: no\x1b".to_owned());
        let shown = text(&Ok(Account { threads: vec![row(Duty::LoadBpf)], trouble, ..a }));
        assert!(shown.contains(": load and attach eBPF programs\n"), "{shown}");
        assert!(shown.contains("not all could be dropped: capset: no"), "{shown}");
        assert!(!shown.contains('\x1b'));
    }

    #[test]
    fn who_has_none_is_told_so_in_a_line() {
        let a = Account {
            began: CapabilitySet::empty(),
            threads: vec![row(Duty::Figures)],
            trouble: None,
        };
        let want = "capabilities: none held; no_new_privs is set: none can be gained\n";
        assert_eq!(text(&Ok(a)), want);
        let e = Err("/proc/self/task: not there".to_owned());
        assert_eq!(text(&e), "capabilities: /proc/self/task: not there\n");
        assert_eq!(json(&e)["error"], "/proc/self/task: not there");
    }
}

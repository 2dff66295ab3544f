//! The kernel log: `dmesg` with any timestamp or none, `journalctl -k`, syslog.
//!
//! A line with a kernel timestamp belongs to the log, whatever it says. Without one, only
//! recognised lines do, and what follows them (traces, task lists of the OOM killer).

mod prefix;
mod trouble;

use super::{Line, Took};
use crate::parse::kmsg;
use crate::sample::told::{Log, LogEvent, Oom, Stamp, Trouble};
use prefix::Prefix;

/// Kinds and subjects kept, victims of one cgroup, characters of a line.
const MAX_EVENTS: usize = 200;
const MAX_VICTIMS: usize = 5;
const MAX_TEXT: usize = 160;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    pub(super) log: Log,
    /// What the OOM killer has printed so far about the kill it is about to announce.
    oom: Oom,
    group: String,
    /// Process and cgroup of the line `Kill process`: the line `Killed process` is the same kill.
    announced: Option<(u32, String)>,
    /// The last line of the log had no timestamp: more of these may follow.
    bare: bool,
}

impl Kernel {
    /// A prompt with a command.
    pub(super) fn command(&mut self) {
        self.bare = false;
        (self.oom, self.group, self.announced) = (Oom::default(), String::new(), None);
    }

    pub(super) fn line(&mut self, line: &Line<'_>) -> Took {
        let Prefix { stamp, message, sure } = prefix::split(line.text.trim_start());
        let known = self.message(message, stamp.as_ref());
        if !sure && !known {
            return Took::No;
        }
        self.bare = !sure;
        self.log.lines += 1;
        if stamp.is_some() {
            self.log.last = stamp;
        }
        Took::Yes
    }

    /// A line that no format claims: it may belong to a trace printed without timestamps.
    pub(super) fn rest(&mut self) -> bool {
        if self.bare {
            self.log.lines += 1;
        }
        self.bare
    }

    /// Takes in a message. Returns whether it was recognised.
    fn message(&mut self, text: &str, stamp: Option<&Stamp>) -> bool {
        if self.oom_line(text, stamp) {
            return true;
        }
        if let Some(n) = suppressed(text) {
            self.log.suppressed = self.log.suppressed.saturating_add(n);
            return true;
        }
        let Some(found) = trouble::find(text) else { return false };
        self.event(found.kind, found.subject, text, stamp, found.value);
        true
    }

    fn event(
        &mut self,
        kind: Trouble,
        subject: &str,
        text: &str,
        stamp: Option<&Stamp>,
        value: Option<u64>,
    ) -> Option<&mut LogEvent> {
        let no = self.log.lines;
        let known = |e: &LogEvent| e.kind == kind && e.subject == subject;
        let at = match self.log.events.iter().position(known) {
            Some(at) => at,
            None if self.log.events.len() >= MAX_EVENTS => {
                self.log.over += 1;
                return None;
            }
            None => {
                self.log.events.push(LogEvent {
                    kind,
                    subject: subject.to_owned(),
                    count: 0,
                    first: stamp.cloned(),
                    last: None,
                    line: String::new(),
                    value: None,
                    no: 0,
                    oom: None,
                });
                self.log.events.len() - 1
            }
        };
        let e = self.log.events.get_mut(at)?;
        e.count += 1;
        e.last = stamp.cloned();
        e.line = text.chars().take(MAX_TEXT).collect();
        (e.value, e.no) = (value.or(e.value), no);
        Some(e)
    }

    /// Lines of the OOM killer, in the order in which it prints them.
    fn oom_line(&mut self, text: &str, stamp: Option<&Stamp>) -> bool {
        if let Some((who, _)) = text.split_once(" invoked oom-killer:") {
            (self.oom, self.group) = (Oom::default(), String::new());
            self.oom.invoker = Some(cut(who));
        } else if let Some(rest) = text.strip_prefix("memory: usage ") {
            // Kernels print `memory+swap:` and `kmem:` beside it.
            self.oom.usage_kb = kb(rest);
            self.oom.limit_kb = after(rest, "limit ").and_then(kb);
            self.oom.failcnt = after(rest, "failcnt ").and_then(leading);
        } else if let Some(rest) = text.strip_prefix("oom-kill:constraint=") {
            self.constraint(rest);
        } else if let Some(rest) = text.strip_prefix("Task in ") {
            // Before 4.19: `Task in /a killed as a result of limit of /a`.
            let Some(group) = after(rest, " as a result of limit of ") else { return false };
            self.group = cut(group);
        } else {
            return self.killed(text, stamp);
        }
        true
    }

    fn constraint(&mut self, rest: &str) {
        let mut parts = rest.split(',');
        self.oom.constraint = parts.next().map(cut);
        let group = parts.find_map(|p| p.strip_prefix("oom_memcg="));
        if let Some(group) = group {
            self.group = cut(group);
        }
    }

    /// Kernels before 5.4 announce a kill on a separate line: both lines are one kill.
    fn killed(&mut self, text: &str, stamp: Option<&Stamp>) -> bool {
        let Some(kmsg::Killed { of_group, pid, comm, rss_kb: rss, .. }) = kmsg::killed(text) else {
            return false;
        };
        let announced = self.announced.take().filter(|a| a.0 == pid).map(|a| a.1);
        let again = announced.is_some();
        let own = if of_group { self.group.clone() } else { String::new() };
        let group = announced.unwrap_or(own);
        if rss.is_none() {
            self.announced = Some((pid, group.clone()));
        }
        let known = std::mem::take(&mut self.oom);
        let Some(e) = self.event(Trouble::Oom, &group, text, stamp, None) else { return true };
        if again {
            e.count -= 1;
        }
        let oom = e.oom.get_or_insert_default();
        oom.constraint = known.constraint.or(oom.constraint.take());
        oom.limit_kb = known.limit_kb.or(oom.limit_kb);
        oom.usage_kb = known.usage_kb.or(oom.usage_kb);
        oom.failcnt = known.failcnt.or(oom.failcnt);
        oom.invoker = known.invoker.or(oom.invoker.take());
        if again {
            oom.victims.pop();
        }
        if oom.victims.len() >= MAX_VICTIMS {
            oom.victims.remove(0);
        }
        oom.victims.push((cut(comm), pid, rss));
        true
    }
}

/// `net_ratelimit: 2754 callbacks suppressed`.
fn suppressed(text: &str) -> Option<u64> {
    let (_, n) = text.strip_suffix(" callbacks suppressed")?.rsplit_once(' ')?;
    n.parse().ok()
}

/// What comes after `mark`.
fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark).map(|(_, rest)| rest)
}

/// The number that the text begins with.
fn leading(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// `1024kB`.
fn kb(text: &str) -> Option<u64> {
    let n = leading(text)?;
    text.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with("kB").then_some(n)
}

fn cut(text: &str) -> String {
    text.trim().chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Log {
        let mut k = Kernel::default();
        for (i, l) in text.lines().enumerate() {
            if k.line(&Line { no: i as u64 + 1, text: l }) == Took::No {
                k.rest();
            }
        }
        k.log
    }

    #[test]
    fn a_kill_is_counted_once_in_every_kernel() {
        let new = "[ 1.0] dd invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0\n\
            [ 1.1] memory: usage 1024kB, limit 1024kB, failcnt 37\n\
            [ 1.1] memory+swap: usage 1024kB, limit 9007199254740988kB, failcnt 0\n\
            [ 1.2] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a b,task_memcg=/a b/c,task=dd,pid=652,uid=0\n\
            [ 1.3] Memory cgroup out of memory: Killed process 652 (d (d) x) total-vm:3580kB, anon-rss:1024kB, file-rss:1520kB, shmem-rss:0kB, UID:0 pgtables:44kB oom_score_adj:0\n\
            [ 1.4] oom_reaper: reaped process 652 (dd), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB";
        let log = read(new);
        let [e] = log.events.as_slice() else { panic!("{log:?}") };
        let oom = e.oom.as_ref().unwrap();
        assert_eq!((e.kind, e.subject.as_str(), e.count), (Trouble::Oom, "/a b", 1));
        assert_eq!((oom.limit_kb, oom.failcnt), (Some(1024), Some(37)));
        assert_eq!(oom.victims, [("d (d) x".to_owned(), 652, Some(2544))]);
        assert_eq!(log.lines, 6);
        let old = "java invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0\n\
            Task in /docker/ab killed as a result of limit of /docker/ab\n\
            memory: usage 512000kB, limit 512000kB, failcnt 9\n\
            Memory cgroup out of memory: Kill process 77 (java) score 999 or sacrifice child\n\
            Killed process 77 (java) total-vm:900kB, anon-rss:500kB, file-rss:1kB, shmem-rss:0kB\n\
            Out of memory: Kill process 78 (x) score 9 or sacrifice child\n\
            Killed process 78 (x) total-vm:900kB, anon-rss:1kB, file-rss:1kB";
        let log = read(old);
        let found: Vec<_> = log.events.iter().map(|e| (e.subject.as_str(), e.count)).collect();
        assert_eq!(found, [("/docker/ab", 1), ("", 1)]);
        assert_eq!(log.events[0].oom.as_ref().unwrap().victims, [("java".into(), 77, Some(501))]);
    }

    #[test]
    fn lines_without_stamps_need_sense() {
        assert_eq!(read("hello world\nmemory is nice").lines, 0);
        let log = read("TCP: out of memory -- consider tuning tcp_mem\n  some trace\nmore of it");
        assert_eq!((log.lines, log.events.len()), (3, 1));
    }

    #[test]
    fn events_are_bounded() {
        let lines = (0..300).map(|i| format!("I/O error, dev sd{i}, sector 5 op 0x0:(READ)\n"));
        let text: String = lines.collect();
        let log = read(&text);
        assert_eq!((log.events.len(), log.over), (200, 100));
    }
}

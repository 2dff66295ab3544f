//! `oom-kill`: the kernel's OOM killer kills processes.

use super::common::by_memory;
use super::common::largest::LEAST;
use super::common::memory::{self, Seen};
use super::common::text::{bytes, count, sh, time};
use crate::diagnose::culprit::{Culprit, Share};
use crate::diagnose::rules::prelude::*;
use crate::sample::kmsg::OomKilled;
use crate::sample::subject::{Subject, is_within};

/// The time over which kills are counted.
const SPAN: Duration = Duration::from_secs(30);
/// Number of kills in that time that is critical.
const CRIT: u64 = 3;
/// cgroups are read every five seconds, and the last reading before the kill is needed.
const GROUPS: Duration = Duration::from_secs(40);

/// Fraction of memory available below which the host is out of memory.
const SHORT: f64 = 0.05;

/// Maximum number of victims named in a finding.
const NAMED: usize = 3;

const COUNTER: &str = "vmstat.oom_kill";

static DOC: RuleDoc = RuleDoc {
    id: RuleId("oom-kill"),
    title: "the kernel's OOM killer is killing processes",
    condition: "oom_kill in /proc/vmstat grew within 30 s. The cgroup is the one whose own \
        counter grew; the process is the one named in the kernel log. Critical when 3 or more \
        were killed in that time, or when the victim's cgroup is known and neither it nor a \
        cgroup above it hit its limit: the host is out of memory.",
    look_alikes: "A userspace OOM killer (systemd-oomd, earlyoom) sends SIGKILL too: the kernel's \
        counter does not grow, and its own log says so. A supervisor that kills and restarts after \
        a failed health check. An allocation that fails (ENOMEM) kills nothing.",
    remedy: "Raise the cgroup's limit, or make the process use less (heap size, workers, \
        caches); tmpfs and shared memory count too. On a host that is out of memory, find the \
        largest processes, add memory or swap, and protect what matters with memory.min, \
        memory.low or oom_score_adj.",
    sources: "/proc/vmstat oom_kill (Linux 4.13), memory.events and memory.oom_control \
        oom_kill; /dev/kmsg. Measured: a process that allocates in a v1 cgroup of 50 MB is \
        killed every 0.7 s; both counters grow alike.",
    hold: Hold::events(10),
    needs_time: Duration::from_secs(2),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Memory], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let Some(memory) = w.tick.samples.memory.as_ref() else { return };
    if memory.data.get(COUNTER).is_none() {
        return out.cannot_judge("no oom_kill in /proc/vmstat (since Linux 4.13)");
    }
    let Some(kills) = memory::grown(w, COUNTER, SPAN).filter(|k| k.0 > 0) else { return };
    let all = memory::groups(w, GROUPS);
    let victims = victims(&all);
    if victims.is_empty() {
        return out.fire(Subject::Host, fire(w, &all, kills, None));
    }
    out.clear(Subject::Host);
    for v in victims {
        let subject = Subject::Cgroup { path: v.now.path.to_string(), id: v.now.id };
        out.fire(subject, fire(w, &all, kills, Some(v)));
    }
}

/// cgroups with killed processes; of nested ones, which count alike, only the innermost.
fn victims<'s, 'a>(all: &'s [Seen<'a>]) -> Vec<&'s Seen<'a>> {
    let hit: Vec<&Seen<'_>> = all.iter().filter(|g| g.killed() > 0).collect();
    let inner = |g: &&&Seen<'_>| {
        !hit.iter().any(|o| {
            o.now.mount == g.now.mount
                && o.now.path != g.now.path
                && is_within(&o.now.path, &g.now.path)
        })
    };
    hit.iter().filter(inner).copied().collect()
}

/// The cgroup whose limit was hit: the victim's, or the nearest one above it with a limit.
fn limited<'s, 'a>(w: &Window<'_>, all: &'s [Seen<'a>], victim: &Seen<'_>) -> Option<&'s Seen<'a>> {
    let above = |g: &&Seen<'_>| {
        g.now.mount == victim.now.mount
            && is_within(&victim.now.path, &g.now.path)
            && g.now.memory_limit_bytes.is_some()
    };
    let nearest = |g: &&Seen<'_>| (g.failed().is_some_and(|n| n > 0), g.now.path.len());
    let hit = all.iter().filter(above).max_by_key(nearest)?;
    // Allocations failed at the limit; if that is unknown, the host must have enough memory.
    (hit.failed().map_or(!is_short(w), |n| n > 0)).then_some(hit)
}

/// Is the host itself short of memory?
fn is_short(w: &Window<'_>) -> bool {
    let memory = w.tick.samples.memory.as_ref().map(|m| &m.data);
    let of = |name| memory.and_then(|m| m.get(name)).map(|n| n as f64);
    let (available, total) = (of("meminfo.MemAvailable"), of("meminfo.MemTotal"));
    available.zip(total).is_some_and(|(a, t)| a < SHORT * t)
}

fn fire(
    w: &Window<'_>,
    all: &[Seen<'_>],
    (kills, span): (u64, Duration),
    victim: Option<&Seen<'_>>,
) -> Fire {
    let hit = victim.and_then(|v| limited(w, all, v));
    let n = victim.map_or(kills, Seen::killed);
    let many = n >= CRIT || kills >= CRIT;
    let severity =
        if many || (victim.is_some() && hit.is_none()) { Severity::Crit } else { Severity::Warn };
    let processes = if n == 1 { "1 process".to_owned() } else { format!("{n} processes") };
    let text = match (victim, hit.and_then(|h| Some((h, h.now.memory_limit_bytes?)))) {
        (Some(v), Some((h, limit))) if h.now.path == v.now.path => {
            format!("{processes} in {} killed at its memory limit of {}", v.now.path, bytes(limit))
        }
        (Some(v), Some((h, limit))) => {
            let (path, of) = (&v.now.path, &h.now.path);
            format!("{processes} in {path} killed at the memory limit of {of}, {}", bytes(limit))
        }
        (Some(v), None) => {
            format!("{processes} in {} killed: the host is out of memory", v.now.path)
        }
        (None, _) => format!("the kernel's OOM killer killed {processes}"),
    };
    let mut f = Fire::new(severity, text);
    let text = format!("oom_kill in /proc/vmstat +{kills} in {}", time(span));
    f.evidence.push(Evidence::new("oom_kill", kills as f64, "", text).over(1.0));
    if let Some(v) = victim {
        let text = format!("oom_kill of {} +{}", v.now.path, v.killed());
        f.evidence.push(Evidence::new("cgroup oom_kill", v.killed() as f64, "", text));
    }
    // If nothing else was killed, a log line without a cgroup is about this one.
    let alone = victim.is_none_or(|v| v.killed() == kills);
    let named = log(w, victim, alone, &mut f);
    if victim.is_none() && !named {
        f.missing.push("which cgroup: none that was read counted the kill".to_owned());
    }
    if let Some(h) = hit {
        let now = h.now.memory_bytes.map_or(String::new(), |b| format!("{} of ", bytes(b)));
        let limit = h.now.memory_limit_bytes.unwrap_or(0);
        let text = format!("{}: {now}{} now", h.now.path, bytes(limit));
        let used = h.now.memory_bytes.unwrap_or(0);
        f.evidence.push(Evidence::new("memory.max", used as f64, "bytes", text).over(limit as f64));
        if let Some(n) = h.failed() {
            let text = format!("allocations hit the limit {}", count(n as usize, "time"));
            f.evidence.push(Evidence::new("failcnt", n as f64, "", text));
        }
    }
    let available = w.tick.samples.memory.as_ref().and_then(|m| m.data.get("meminfo.MemAvailable"));
    if let Some(kb) = available {
        let text = format!("{} available on the host", bytes(kb.saturating_mul(1024)));
        f.evidence.push(Evidence::new("MemAvailable", kb as f64 * 1024.0, "bytes", text));
    }
    let because = format!("the kernel itself counts {}", count(kills as usize, "kill"));
    f.ruled_out.push(RuledOut::new("userspace-oom-killer", because));
    f.next.push("dmesg -T | grep -E 'oom-kill:|Killed process' | tail".to_owned());
    match hit {
        // What it holds now is what the kill has left.
        Some(h) => f.by.extend(logged(w, victim, alone).next().and_then(|k| filled(k, h))),
        None => by_memory::blame(w, &mut f),
    }
    if let Some(h) = hit.or(victim) {
        f.next.push(memory::files(h.now));
        let dir = sh(&format!("{}{}/cgroup.procs", h.now.mount, h.now.path));
        f.next.push(format!("xargs -r ps -o pid,rss,comm --sort=-rss -p < {dir}"));
    } else {
        f.next.push("ps -eo pid,rss,oom_score_adj,comm --sort=-rss | head".to_owned());
    }
    f
}

/// Kills of this victim's cgroup in the kernel log, latest first; of any, if it is `alone`.
fn logged<'a>(
    w: &Window<'a>,
    victim: Option<&Seen<'_>>,
    alone: bool,
) -> impl Iterator<Item = &'a OomKilled> {
    let (now, log) = (w.tick.mono, w.tick.samples.kmsg.as_ref());
    let group = victim.map(|v| v.now.path.clone());
    // The line with the cgroup exists since 4.19, rate-limited to ten in five seconds.
    let own = move |k: &&OomKilled| match (&group, &k.cgroup) {
        (Some(group), Some(path)) => is_within(path, group),
        _ => alone,
    };
    let all = log.into_iter().flat_map(|s| s.data.kills.iter().rev());
    all.filter(move |k| now.since(k.at) <= SPAN).filter(own)
}

/// The kernel kills who holds most: it is who filled this cgroup.
fn filled(killed: &OomKilled, hit: &Seen<'_>) -> Option<Culprit> {
    let (rss, limit) = (killed.rss_kb? as f64 * 1024.0, hit.now.memory_limit_bytes? as f64);
    let share = Share::new(rss, limit, Resource::MemoryLimitOf(hit.now.path.to_string()))?;
    let (comm, cgroup) = (killed.comm.clone(), killed.cgroup.clone());
    let named = share.percent() >= LEAST;
    named.then(|| Culprit::process(killed.pid, Some(comm), cgroup, share))
}

/// Adds the victims named in the kernel log, latest first. Returns whether there were any.
fn log(w: &Window<'_>, victim: Option<&Seen<'_>>, alone: bool, f: &mut Fire) -> bool {
    let Some(log) = w.tick.samples.kmsg.as_ref().map(|s| &s.data) else { return false };
    if !log.readable {
        f.missing.push("which process: /dev/kmsg is not readable".to_owned());
        return false;
    }
    let kills: Vec<&OomKilled> = logged(w, victim, alone).collect();
    if kills.is_empty() {
        if let Some(n) = overwritten(w) {
            f.missing
                .push(format!("which process: {n} records of the kernel log were overwritten"));
        }
        return false;
    }
    let name = |k: &&OomKilled| {
        let size = k
            .rss_kb
            .map_or(String::new(), |kb| format!(" ({} resident)", bytes(kb.saturating_mul(1024))));
        // If the victim's cgroup is known, it is the subject.
        let group = k.cgroup.as_ref().filter(|_| victim.is_none());
        let of = group.map_or(String::new(), |g| format!(" of {g}"));
        format!("{}/{}{of}{size}", k.comm, k.pid)
    };
    let text: Vec<String> = kills.iter().take(NAMED).map(name).collect();
    f.evidence.push(Evidence::text("killed", format!("kernel log: {}", text.join(", "))));
    f.examples = kills.iter().take(NAMED).map(|k| format!("{}/{}", k.comm, k.pid)).collect();
    true
}

/// Records of the kernel log that were overwritten before they were read, while kills are counted.
fn overwritten(w: &Window<'_>) -> Option<u64> {
    let past = w.history.back_from(w.tick.seq);
    let past = past.take_while(|m| w.tick.mono.since(m.tick.mono) <= SPAN);
    let before = past.filter_map(|m| m.tick.samples.kmsg.as_ref()).last()?;
    let now = w.tick.samples.kmsg.as_ref()?;
    now.data.lost.checked_sub(before.data.lost).filter(|n| *n > 0)
}

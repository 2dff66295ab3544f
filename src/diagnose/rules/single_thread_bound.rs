//! `single-thread-bound`: one thread does all the work of a server, and has no time left.

use super::common::by;
use super::common::doing::holder;
use super::common::lasting::lasting;
use super::common::peers::{enter, example};
use super::common::tasks::{latest, run_ms_s};
use super::common::text::{bytes, count, time};
use crate::diagnose::rules::prelude::*;
use crate::metrics::Derived;
use crate::metrics::cpu::ThreadWait;
use crate::metrics::sockets::{LATE, Still};
use crate::sample::sockets::{MANY_UNREAD, Owner};

/// Time on a CPU and waiting for one, ms/s: the thread never sleeps.
const BUSY: f64 = 950.0;
/// Waiting for a CPU, ms/s: more than this, and it is the CPU that is short.
const QUEUED: f64 = 100.0;
/// For how long it must have been so, of the last so many seconds.
const BUSY_FOR: Duration = Duration::from_secs(5);
const BUSY_OF: Duration = Duration::from_secs(6);
/// What the other threads of the process use together, ms/s: more, and the work is shared.
const OTHERS: f64 = 500.0;
/// Idle time of the other CPUs, %.
const IDLE: f64 = 50.0;
/// From here on no connection moves at all: that is server-hung.
const STILL: Duration = Duration::from_secs(5);
/// Maximum number of examples in a finding.
const EXAMPLES: usize = 5;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("single-thread-bound"),
    title: "a server is limited by one thread: it is always busy while requests wait and CPUs idle",
    condition: "One thread of a process runs or is runnable 95% of the time and waits for a CPU \
        at most 10% of it, for 5 of 6 s; the other threads of the process use at most half a CPU \
        together, the other CPUs are at least 50% idle, and on 3 or more connections of the \
        process requests have been unread for 50 ms or longer, in 3 of 10 s: a server that reads \
        all that is there before it answers has none left unread in between.",
    look_alikes: "A benchmark keeps a thread busy too, but its requests wait for a few ms only. \
        No connection moves for 5 s: server-hung. A thread that waits for a CPU: cpu-saturation, \
        runq-latency-idle-elsewhere, cfs-throttle. A batch job that nobody waits for has no \
        unread requests.",
    remedy: "More CPUs do not help. See what the thread does \
        (perf, or the profiler of its language): a few expensive requests delay all others. Make \
        these cheaper or send them elsewhere, use more processes or threads, or shard.",
    sources: "/proc/PID/task/TID/schedstat; Recv-Q and tcpi_last_data_recv of sock_diag. Measured \
        on 6.18 with redis 8 and 20 clients: scripts of 16 ms leave up to 18 requests unread, for \
        up to 388 ms.",
    hold: Hold::of(3, 10),
    needs_time: Duration::from_secs(11),
};

pub(super) static RULE: Rule = Rule {
    doc: &DOC,
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets, CollectorId::Sched, CollectorId::Cpu],
    explains: &[
        Explains::new("tcp-listen-overflow", Scope::Same),
        Explains::new("tcp-receiver-not-reading", Scope::Same),
    ],
    check,
};

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let late = |s: &&Still| s.late as usize >= MANY_UNREAD && s.at.since(s.since) < STILL;
    let mut servers = w.derived.sockets.still.iter().filter(late).peekable();
    if servers.peek().is_none() {
        return;
    }
    let Some(idle) = idle_elsewhere(w).filter(|idle| *idle >= IDLE) else { return };
    let threads = latest(w);
    for s in servers {
        let subject = Subject::Listener { local: s.local, netns: s.netns };
        let Some(owner) = &s.owner else {
            if threads.iter().any(|t| is_bound(t)) {
                out.unknown(subject, "which process holds it (its descriptors cannot be read)");
            }
            continue;
        };
        let of_it: Vec<&ThreadWait> =
            threads.iter().filter(|t| t.thread.task.pid == owner.pid).copied().collect();
        if let Some(bound) = bound(&of_it).filter(|b| busy_for(w, b.thread) >= BUSY_FOR) {
            out.fire(subject, fire(w, s, owner, &bound, idle));
        }
    }
}

/// How idle the CPUs are beside one that is busy, %.
fn idle_elsewhere(w: &Window<'_>) -> Option<f64> {
    let total = w.recent(3).find_map(|d| d.cpu.as_ref()?.total)?;
    let cpus = f64::from(w.host.cpus);
    let idle = cpus * (total.idle + total.iowait);
    (w.host.cpus > 1).then(|| (idle / (cpus - 1.0)).min(100.0))
}

fn is_bound(t: &ThreadWait) -> bool {
    run_ms_s(t).is_some_and(|run| run + t.wait_ms_s() >= BUSY) && t.wait_ms_s() <= QUEUED
}

/// The thread, and what the others use.
struct Bound<'a> {
    thread: &'a ThreadWait,
    others: f64,
}

fn bound<'a>(threads: &[&'a ThreadWait]) -> Option<Bound<'a>> {
    let run = |t: &ThreadWait| run_ms_s(t).unwrap_or(0.0);
    let thread = *threads.iter().max_by(|a, b| run(a).total_cmp(&run(b)))?;
    let others = threads.iter().map(|t| run(t)).sum::<f64>() - run(thread);
    (is_bound(thread) && others <= OTHERS).then_some(Bound { thread, others })
}

/// How much of the last seconds it was busy.
fn busy_for(w: &Window<'_>, thread: &ThreadWait) -> Duration {
    let task = thread.thread.task;
    let is_it = |t: &&ThreadWait| t.thread.task == task;
    let busy = |d: &Derived| {
        let mut threads = d.sched.iter().flat_map(|s| &s.threads);
        threads.find(is_it).is_some_and(is_bound)
    };
    lasting(w, BUSY_OF, busy).0
}

fn fire(w: &Window<'_>, s: &Still, owner: &Owner, b: &Bound<'_>, idle: f64) -> Fire {
    let (who, task) = (holder(owner), b.thread.thread.task);
    let run = run_ms_s(b.thread).unwrap_or(0.0) / 10.0;
    let n = count(s.late as usize, "connection");
    let mut f = Fire::new(
        Severity::Warn,
        format!(
            "{who} is limited by one thread at {run:.0}% of a CPU: requests on {n} of {} wait up \
             to {} or longer, the other CPUs are {idle:.0}% idle",
            s.local,
            time(s.longest)
        ),
    );
    f.count = s.late;
    f.sockets.clone_from(&s.unread);
    f.tasks.push(task);
    let suspects = s.unread.iter().filter_map(|id| w.derived.sockets.get(*id));
    f.examples = suspects.take(EXAMPLES).map(|x| example(x)).collect();
    let lately = time(busy_for(w, b.thread));
    let text = format!(
        "{}/{} runs {run:.0}% of the time, and was busy for {lately} of the last {}",
        b.thread.thread.comm,
        task.tid,
        time(BUSY_OF)
    );
    f.evidence.push(Evidence::new("run", run, "%", text).over(BUSY / 10.0));
    let text = format!(
        "{} unread on {}, {} for {} or longer",
        bytes(s.bytes),
        count(s.unread.len(), "connection"),
        s.late,
        time(LATE)
    );
    f.evidence.push(Evidence::new("late", s.late.into(), "", text).over(MANY_UNREAD as f64));
    let ms = s.longest.as_secs_f64() * 1e3;
    let text = format!("the oldest request has been unread for {} or longer", time(s.longest));
    f.evidence.push(Evidence::new("wait", ms, "ms", text).over(LATE.as_secs_f64() * 1e3));
    if s.waiting > 0 {
        let text = format!("{} of these waiting to be accepted", s.waiting);
        f.evidence.push(Evidence::new("waiting", s.waiting.into(), "", text));
    }
    let text = format!("the other CPUs are {idle:.0}% idle");
    f.evidence.push(Evidence::new("idle", idle, "%", text).over(IDLE));
    let because = format!("{idle:.0}% idle on the other CPUs");
    f.ruled_out.push(RuledOut::new("cpu-saturation", because));
    let because = format!("the thread waits {:.0} ms/s for a CPU", b.thread.wait_ms_s());
    for rule in ["runq-latency-idle-elsewhere", "cfs-throttle"] {
        f.ruled_out.push(RuledOut::new(rule, because.clone()));
    }
    let because = format!("the other threads use {:.0}% of a CPU", b.others / 10.0);
    f.ruled_out.push(RuledOut::new("shared-work", because));
    let because = "connections of this process move".to_owned();
    f.ruled_out.push(RuledOut::new("server-hung", because));
    let last_cpu = b.thread.thread.last_cpu;
    f.by.extend(last_cpu.and_then(|cpu| by::of_thread(w, cpu, b.thread)));
    next(&mut f, w, s, b);
    f
}

fn next(f: &mut Fire, w: &Window<'_>, s: &Still, b: &Bound<'_>) {
    let task = b.thread.thread.task;
    f.next.push(format!("perf top -t {}", task.tid));
    f.next.push(format!("top -b -n 1 -H -p {}", task.pid));
    if b.thread.thread.comm.starts_with("redis-server") {
        let (addr, port) = (s.local.addr, s.local.port);
        let host = if addr.is_unspecified() { String::new() } else { format!("-h {addr} ") };
        f.next.push(format!("{}redis-cli {host}-p {port} SLOWLOG GET 10", enter(w, s.netns)));
    }
    f.next.push(format!("{}ss -tnmpi sport = :{}", enter(w, s.netns), s.local.port));
}

//! `task-limit`: a limit on processes and threads is reached or close.

use super::common::cgroups::{self, file, subject, with_rows};
use super::common::largest::largest;
use super::common::text::rate;
use crate::diagnose::culprit::{Culprit, Resource};
use crate::diagnose::rules::prelude::*;
use crate::metrics::cgroups::CgroupFigures;
use crate::metrics::rate::ratio;
use crate::sample::cgroups::{CgroupPids, CgroupRow};
use crate::sample::limits::{TaskOwner, TaskOwners};

/// Usage of a cgroup's limit, %.
const GROUP: f64 = 95.0;
const GROUP_CLEAR: f64 = 90.0;
/// Usage of the host's limit, %.
const HOST: f64 = 90.0;
const HOST_CRIT: f64 = 98.0;
const HOST_CLEAR: f64 = 85.0;
/// Limits up to this are meant to be reached.
const TINY: u64 = 4;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("task-limit"),
    title: "a limit on processes and threads is reached or near: fork fails",
    condition: "A cgroup has 95% or more of the tasks that pids.max allows, or the host 90% or \
        more of kernel.pid_max or threads-max, for 3 of 5 s. Critical when a fork in the cgroup \
        was refused (max in pids.events grew), or at 98% of the host's limit. Clears below 90 \
        and 85%.",
    look_alikes: "RLIMIT_NPROC (ulimit -u): fork fails with EAGAIN for one user while the \
        cgroup and the host have room. No memory for a stack: ENOMEM. Many sleeping tasks are \
        no load.",
    remedy: "Find what starts so many (a thread per request, unreaped children in state Z). \
        Raise TasksMax= of the unit or pids.max, or kernel.pid_max and threads-max.",
    sources: "pids.current, pids.max, pids.events; /proc/loadavg (fourth field), \
        kernel.pid_max, kernel.threads-max. Measured: a v1 cgroup with pids.max 20 refuses the \
        21st task with EAGAIN and counts it in pids.events.",
    hold: Hold::of(3, 5),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Limits], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    host(w, out);
    for (g, row) in with_rows(w) {
        let Some((p, max)) = row.pids.and_then(|p| Some((p, p.max?))) else { continue };
        let Some(used) = ratio(100.0 * p.current as f64, max as f64) else { continue };
        let refused = g.pids_refused_s.unwrap_or(0.0);
        if (used >= GROUP && max > TINY) || refused > 0.0 {
            out.fire(subject(g), group(w, g, row, p, max));
        } else if used >= GROUP_CLEAR && max > TINY {
            out.linger(subject(g));
        }
    }
    cgroups::unread(w, out, |g| g.pids_refused_s.is_some());
}

fn group(w: &Window<'_>, g: &CgroupFigures, row: &CgroupRow, p: CgroupPids, max: u64) -> Fire {
    let refused = g.pids_refused_s.unwrap_or(0.0);
    let mut f = if refused > 0.0 {
        let text = format!("{} cannot create more tasks: it has {} of {max}", g.path, p.current);
        Fire::new(Severity::Crit, text)
    } else {
        Fire::new(Severity::Warn, format!("{} has {} of {max} tasks", g.path, p.current))
    };
    let used = 100.0 * p.current as f64 / max.max(1) as f64;
    let text = format!("pids.current {} of pids.max {max}", p.current);
    f.evidence.push(Evidence::new("pids.current", used, "%", text).over(GROUP));
    if refused > 0.0 {
        let text = format!("{} forks/s fail at a limit (max in pids.events)", rate(refused));
        f.evidence.push(Evidence::new("pids.events", refused, "/s", text).over(0.0));
    } else if p.failures.is_none() {
        f.missing.push("whether a fork was refused (no pids.events)".to_owned());
    }
    blame(&mut f, row.tasks.as_ref(), p.current, &Resource::TasksOfCgroup(g.path.to_string()));
    match on_host(w) {
        Some(h) => {
            let text = format!("{} of {} tasks on the host", h.tasks, h.most);
            f.ruled_out.push(RuledOut::new("host-task-limit", text));
        }
        None => {
            f.ruled_out.push(RuledOut::new("RLIMIT_NPROC", "the cgroup's own limit is reached"));
        }
    }
    f.next.push(format!("grep . {} {}", file(g, "pids.max"), file(g, "pids.events")));
    f.next.push(format!(
        "xargs -r ps -o stat,nlwp,comm -p < {} | sort | uniq -c | sort -rn | head",
        file(g, "cgroup.procs")
    ));
    f.next.push(format!("echo {} > {}", max.saturating_mul(2), file(g, "pids.max")));
    f
}

/// Names the processes whose threads and children they are.
fn blame(f: &mut Fire, owners: Option<&TaskOwners>, tasks: u64, of: &Resource) {
    let Some(all) = owners.filter(|o| o.read > 0) else {
        f.missing.push("whose tasks they are: no process was read".to_owned());
        return;
    };
    let parts = all.owners.iter().map(|o| (o, f64::from(o.tasks())));
    let named = largest(parts.collect(), f64::from(all.read), of);
    let text: Vec<String> = named.iter().map(|(o, _)| owned(o)).collect();
    let read = if f64::from(all.read) < 0.9 * tasks as f64 {
        format!("; of {} tasks that were read", all.read)
    } else {
        String::new()
    };
    if let Some((most, _)) = named.first() {
        let text = format!("{}{read}", text.join("; "));
        f.evidence.push(Evidence::new("tasks of a process", most.tasks().into(), "", text));
    }
    let culprit =
        |(o, share): (&TaskOwner, _)| Culprit::process(o.pid, Some(o.comm.clone()), None, share);
    f.by = named.into_iter().map(culprit).collect();
}

/// `perl/501 has 1 thread and 19 children`.
fn owned(o: &TaskOwner) -> String {
    let mut has = Vec::new();
    if o.threads > 0 {
        has.push(format!("{} thread{}", o.threads, if o.threads == 1 { "" } else { "s" }));
    }
    if o.children > 0 {
        let zombies = match o.zombies {
            0 => String::new(),
            n => format!(" ({n} in state Z: it does not wait for them)"),
        };
        let many = if o.children == 1 { "child" } else { "children" };
        has.push(format!("{} {many}{zombies}", o.children));
    }
    format!("{}/{} has {}", o.comm, o.pid, has.join(" and "))
}

/// Tasks of the host, with the smaller of its limits.
struct OnHost {
    tasks: u64,
    most: u64,
    name: &'static str,
}

fn on_host(w: &Window<'_>) -> Option<OnHost> {
    let tasks = w.tick.samples.sched.as_ref()?.data.tasks?.1;
    let limits = &w.tick.samples.limits.as_ref()?.data;
    let all = [("kernel.pid_max", limits.pid_max), ("kernel.threads-max", limits.threads_max)];
    let (name, most) =
        all.iter().filter_map(|(name, n)| Some((*name, (*n)?))).min_by_key(|l| l.1)?;
    Some(OnHost { tasks: tasks.into(), most, name })
}

fn host(w: &Window<'_>, out: &mut Verdicts) {
    let Some(h) = on_host(w) else { return };
    let Some(used) = ratio(100.0 * h.tasks as f64, h.most as f64) else { return };
    if used < HOST {
        if used >= HOST_CLEAR {
            out.linger(Subject::Host);
        }
        return;
    }
    let severity = if used >= HOST_CRIT { Severity::Crit } else { Severity::Warn };
    let (tasks, most, name) = (h.tasks, h.most, h.name);
    let mut f = Fire::new(severity, format!("the host has {tasks} of {most} tasks ({name})"));
    let text = format!("{tasks} tasks, {name} {most} ({used:.0}%)");
    let at = if used >= HOST_CRIT { HOST_CRIT } else { HOST };
    f.evidence.push(Evidence::new("tasks", used, "%", text).over(at));
    f.ruled_out.push(RuledOut::new("RLIMIT_NPROC", "the host-wide limit is near"));
    let owners = w.tick.samples.limits.as_ref().and_then(|s| s.data.tasks.as_ref());
    blame(&mut f, owners, tasks, &Resource::Tasks);
    f.next.push("ps -eo nlwp,stat,pid,comm --sort=-nlwp | head".to_owned());
    f.next
        .push("ps -eo stat,ppid,comm | awk '$1 ~ /^Z/' | sort | uniq -c | sort -rn | head".into());
    f.next.push(format!("sysctl {name}={}", most.saturating_mul(2)));
    out.fire(Subject::Host, f);
}

//! Who moves the bytes that a disk is busy with: processes, or cgroups where these are counted per
//! disk and processes are not.

use std::time::Duration;

use super::super::super::culprit::{Culprit, MAX_CULPRITS, Resource, Sched, Share, Who};
use super::super::super::{Evidence, Fire, Window};
use super::by;
use super::cgroups::REMEMBER;
use super::largest::{LEAST, largest};
use super::text::{bytes, time};
use crate::metrics::cgroups::{CgroupFigures, CgroupIoFigures};
use crate::metrics::disks::DiskFigures;
use crate::metrics::process_io::{Flow, Lately, Suspects, User, Whole};
use crate::sample::subject::is_within;

/// What is looked back at.
const SPAN: Duration = Duration::from_secs(10);
/// The same where pages are written long after they were made dirty.
const SPAN_OF_DIRTY: Duration = Duration::from_secs(60);
/// So much of the traffic may be nobody's without a word.
const NOBODY: f64 = 0.3;
/// Cgroups are named instead of processes if these move less than this part of what those do.
const TOO_LITTLE: f64 = 0.5;
/// Where processes may have used any of several disks, cgroups are named if they account for this
/// much of the one in question, %.
const MOST: f64 = 50.0;
/// Who moved nothing for this long may have ended.
const FRESH: Duration = Duration::from_secs(5);

/// Names who is behind this disk's load, with the numbers and what they leave open.
pub(crate) fn blame(w: &Window<'_>, d: &DiskFigures, f: &mut Fire) {
    blame_for(w, d, f, Flow::of(d), SPAN);
}

/// The same for writes, whatever the disk's time goes to.
pub(crate) fn blame_writes(w: &Window<'_>, d: &DiskFigures, f: &mut Fire) {
    blame_for(w, d, f, Flow::Write, SPAN);
}

/// The same for pages that are written back.
pub(crate) fn blame_writeback(w: &Window<'_>, d: &DiskFigures, f: &mut Fire) {
    blame_for(w, d, f, Flow::Write, SPAN_OF_DIRTY);
}

/// `pidstat -d` for those that were named and are still at it.
pub(crate) fn next(w: &Window<'_>, f: &mut Fire) {
    f.next.push(match pids(w, f) {
        Some(pids) => format!("pidstat -d -p {pids} 1"),
        None => "pidstat -d 1".to_owned(),
    });
}

/// The processes that were named, for `-p`, if all of them moved something just now.
pub(crate) fn pids(w: &Window<'_>, f: &Fire) -> Option<String> {
    let now = Lately::new(w, FRESH)?;
    let at_it = |pid: u32| now.users.iter().any(|u| u.latest.task.pid == pid);
    f.by.iter().filter_map(|c| c.who.pid()).all(at_it).then(|| by::pids(&f.by)).flatten()
}

fn blame_for(w: &Window<'_>, d: &DiskFigures, f: &mut Fire, flow: Flow, span: Duration) {
    let groups = groups_on(w, d, flow);
    let Some(lately) = Lately::new(w, span) else {
        f.by = groups;
        return;
    };
    let Suspects { users, whole, total, charged } = lately.suspects(d.id, flow);
    let of = match whole {
        Whole::Disk => Resource::DiskBytes(flow, d.name.to_string()),
        Whole::Disks => Resource::AllDiskBytes(flow),
        Whole::Processes => Resource::ProcessBytes(flow),
    };
    let named = ranked(users, flow, total, &of);
    let sum = |all: &[Culprit]| all.iter().fold(0.0, |sum, c| sum + c.share.percent());
    let processes: Vec<Culprit> = named.iter().map(|(_, c)| c.clone()).collect();
    // Bytes per cgroup are counted for this disk alone, those of processes are not.
    let better = whole != Whole::Disk && sum(&groups) >= MOST;
    let by_group = better || sum(&processes) < TOO_LITTLE * sum(&groups);
    f.by = if by_group { groups } else { processes };
    if let Some(text) = numbers(&lately, named.iter().map(|(u, _)| *u), flow) {
        f.evidence.push(Evidence::new("process-io", lately.rate(charged), "bytes/s", text));
    }
    if !by_group {
        f.missing.extend(nobodys(&lately, flow, charged, total));
    }
}

/// The processes that moved most.
fn ranked<'u, 'a>(
    users: impl IntoIterator<Item = &'u User<'a>>,
    flow: Flow,
    total: f64,
    of: &Resource,
) -> Vec<(&'u User<'a>, Culprit)>
where
    'a: 'u,
{
    // They are in the order of pids, and so are equals. Pages that are dirty when the time ends are
    // charged already.
    let all = users.into_iter().map(|u| (u, u.bytes.of(flow))).collect();
    let culprit = |(u, share): (&'u User<'a>, _)| {
        let (comm, cgroup) = (u.latest.comm.clone(), u.latest.cgroup.clone());
        (u, Culprit::process(u.latest.task.pid, Some(comm), cgroup, share))
    };
    largest(all, total, of).into_iter().map(culprit).collect()
}

/// `written in 10 s: fio/501 97.3 MB, dd/77 1.2 MB`.
fn numbers<'u, 'a: 'u>(
    lately: &Lately<'_>,
    named: impl Iterator<Item = &'u User<'a>>,
    flow: Flow,
) -> Option<String> {
    let one = |u: &User<'_>| {
        let p = u.latest;
        format!("{}/{} {}", p.comm, p.task.pid, bytes(u.bytes.of(flow) as u64))
    };
    let all: Vec<String> = named.map(one).collect();
    let did = match flow {
        Flow::Read => "read",
        Flow::Write => "written",
        Flow::Both => "read and written",
    };
    let text = format!("{did} by processes in {}: {}", time(lately.lasted), all.join(", "));
    (!all.is_empty()).then_some(text)
}

/// Whom the rest of the traffic may be of.
fn nobodys(lately: &Lately<'_>, flow: Flow, charged: f64, total: f64) -> Option<String> {
    let rest = 1.0 - charged / total;
    if !(total > 0.0 && rest >= NOBODY) {
        return None;
    }
    let did = match flow {
        Flow::Read => "read",
        Flow::Write => "wrote",
        Flow::Both => "read or wrote",
    };
    let mut why = vec![match flow {
        Flow::Read => "swap and kernel threads".to_owned(),
        _ => "pages made dirty before, journal, metadata, swap, kernel threads".to_owned(),
    }];
    for (n, what) in [(lately.denied, "not ours to read"), (lately.unread, "not read in time")] {
        let processes = if n == 1 { "process" } else { "processes" };
        why.extend((n > 0).then(|| format!("{n} {processes} {what}")));
    }
    let (rest, why) = (100.0 * rest, why.join("; "));
    Some(format!("who {did} the other {rest:.0}% of the bytes, which is in no count: {why}"))
}

/// The cgroups that move this disk's bytes, none of them inside another.
fn groups_on(w: &Window<'_>, d: &DiskFigures, flow: Flow) -> Vec<Culprit> {
    let rate = |io: &CgroupIoFigures| {
        let (read, written) = (io.rbps.unwrap_or(0.0), io.wbps.unwrap_or(0.0));
        match flow {
            Flow::Read => read,
            Flow::Write => written,
            Flow::Both => read + written,
        }
    };
    let kb = match flow {
        Flow::Read => d.rkb_s,
        Flow::Write => d.wkb_s,
        Flow::Both => d.kb_s(),
    };
    let of = Resource::DiskBytes(flow, d.name.to_string());
    let mut all: Vec<(&CgroupFigures, f64)> = Vec::new();
    // The newest comes first: with a budget each round reads some of them.
    let moments = w.history.back_from(w.tick.seq);
    let moments = moments.take_while(|m| w.tick.mono.since(m.tick.mono) < REMEMBER);
    for g in moments.filter_map(|m| m.derived.cgroups.as_deref()).flatten() {
        let known = all.iter().any(|(o, _)| o.id == g.id && o.mount == g.mount);
        let Some(io) = g.io.iter().find(|io| io.dev == d.id).filter(|_| !known) else { continue };
        all.push((g, rate(io)));
    }
    let least = LEAST / 100.0 * 1024.0 * kb;
    all.retain(|(g, n)| *n > 0.0 && *n >= least && g.path.len() > 1);
    let inner: Vec<_> =
        all.iter().filter(|(g, _)| !all.iter().any(|(o, _)| is_above(g, o))).collect();
    let whole = inner.iter().fold(0.0, |sum, (_, n)| sum + n).max(1024.0 * kb);
    let mut named: Vec<Culprit> = inner
        .into_iter()
        .filter_map(|(g, n)| {
            let who = Who::Cgroup { path: g.path.to_string() };
            let share = Share::new(*n, whole, of.clone())?;
            Some(Culprit { who, share, sched: Sched::default(), cgroup: None })
        })
        .collect();
    // Together they may show more than the disk does: they are read at other times.
    named.retain(|c| c.share.percent() >= LEAST);
    named.sort_by(|a, b| b.share.percent().total_cmp(&a.share.percent()));
    named.truncate(MAX_CULPRITS);
    named
}

fn is_above(g: &CgroupFigures, o: &CgroupFigures) -> bool {
    g.mount == o.mount && g.path != o.path && is_within(&o.path, &g.path)
}

/// Who in a cgroup moves the bytes that its limit on a disk is about.
pub(crate) fn blame_cgroup(w: &Window<'_>, path: &str, flow: Flow, f: &mut Fire) {
    let Some(mut lately) = Lately::new(w, SPAN) else { return };
    lately.users.retain(|u| u.latest.cgroup.as_deref().is_some_and(|p| is_within(p, path)));
    let of = Resource::BytesOfCgroup(flow, path.to_owned());
    let named = ranked(&lately.users, flow, 0.0, &of);
    if let Some(text) = numbers(&lately, named.iter().map(|(u, _)| *u), flow) {
        let sum = lately.users.iter().fold(0.0, |sum, u| sum + u.bytes.of(flow));
        f.evidence.push(Evidence::new("process-io", lately.rate(sum), "bytes/s", text));
    }
    f.by = named.into_iter().map(|(_, c)| c).collect();
}

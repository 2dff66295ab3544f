//! The first rows of what there was at one moment: sockets, disks, processes and CPUs, those in
//! trouble first. The columns are called as in the console.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use super::document::{Column, Kind, Table, clean, counted};
use super::seen::Latest;
use crate::diagnose::Severity;
use crate::metrics::cpu::CpuShare;
use crate::metrics::disks::DiskFigures;
use crate::metrics::processes::{ProcessFigures, by_process};
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::SockTimer;
use crate::sample::subject::{SockId, Subject};
use crate::view::units::{UNKNOWN, bytes, count, millis, pct, secs};

/// Rows of a table.
const ROWS: usize = 10;

const fn words(name: &'static str) -> Column {
    Column { name, kind: Kind::Words }
}

const fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number }
}

/// All of them.
pub(super) fn tables(l: &Latest) -> Vec<Table> {
    let mut all = vec![sockets(l), disks(l), processes(l), cpus(l)];
    all.iter_mut().for_each(drop_empty);
    all
}

/// Leaves out columns of words that no row has any of.
fn drop_empty(t: &mut Table) {
    let is_used = |i: usize| {
        let is_number = t.columns.get(i).is_some_and(|c| c.kind == Kind::Number);
        is_number || t.rows.iter().any(|r| r.1.get(i).is_some_and(|c| !c.is_empty()))
    };
    let used: Vec<bool> = (0..t.columns.len()).map(is_used).collect();
    let kept = |i: usize| used.get(i).copied().unwrap_or(true);
    t.columns = t.columns.iter().enumerate().filter(|(i, _)| kept(*i)).map(|(_, c)| *c).collect();
    for (_, cells) in &mut t.rows {
        let all = std::mem::take(cells).into_iter().enumerate();
        *cells = all.filter(|(i, _)| kept(*i)).map(|(_, c)| c).collect();
    }
}

fn known(v: Option<f64>, text: fn(f64) -> String) -> String {
    v.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// How many of how many, and in which order.
fn note(shown: usize, all: usize, what: &str, order: &str) -> String {
    match (shown, all) {
        (_, 0) => String::new(),
        (s, a) if s == a => format!("{}, {order}", counted(a as u64, what)),
        (s, a) => format!("{s} of {}, {order}", counted(a as u64, what)),
    }
}

fn empty(why: &str, note: String) -> String {
    if note.is_empty() { why.to_owned() } else { note }
}

fn sockets(l: &Latest) -> Table {
    let mut marks: HashMap<SockId, Severity> = HashMap::new();
    for f in l.findings.all() {
        let s = l.findings.severity(f);
        for id in &f.fire.sockets {
            marks.entry(*id).and_modify(|m| *m = s.max(*m)).or_insert(s);
        }
    }
    let stalled = |s: &Suspect| s.stalled_since().map_or(Duration::ZERO, |t| l.at.since(t));
    let is_odd = |s: &Suspect| {
        s.missing_since.is_none()
            && (marks.contains_key(&s.id)
                || s.retransmits() > 0
                || s.unanswered_probes() > 0
                || s.stalled_since().is_some())
    };
    let mut all: Vec<&Suspect> =
        l.sockets.suspects.iter().map(|s| &**s).filter(|s| is_odd(s)).collect();
    all.sort_by_key(|s| Reverse((marks.get(&s.id).copied(), stalled(s))));
    let tcp: u32 = l.sockets.totals.iter().map(|t| t.tcp).sum();
    let rows = all.iter().take(ROWS).map(|s| {
        let rto = s.info.and_then(|i| i.rto_us()).map(|us| f64::from(us) / 1e6);
        let since = s.stalled_since().map(|_| stalled(s).as_secs_f64());
        let probes = if s.timer == SockTimer::PERSIST { s.unanswered_probes() } else { 0 };
        let owner = s.owner.as_ref().map_or_else(String::new, |o| format!("{}/{}", o.comm, o.pid));
        let cells = vec![
            s.state.name().to_owned(),
            s.local.to_string(),
            s.remote.to_string(),
            clean(&owner),
            s.retransmits().max(probes).to_string(),
            known(rto, secs),
            bytes(f64::from(s.wqueue)),
            bytes(f64::from(s.rqueue)),
            since.map_or_else(String::new, secs),
        ];
        (marks.get(&s.id).copied(), cells)
    });
    let rows: Vec<_> = rows.collect();
    let order = format!("by trouble; {}", counted(u64::from(tcp), "TCP socket"));
    let calm = format!("None in trouble; {}.", counted(u64::from(tcp), "TCP socket"));
    let why = if l.sockets.totals.is_empty() { "Not read." } else { calm.as_str() };
    Table {
        title: "Sockets",
        note: empty(why, note(rows.len(), all.len(), "socket", &order)),
        columns: vec![
            words("state"),
            words("local"),
            words("peer"),
            words("owner"),
            number("retr"),
            number("rto"),
            number("sendq"),
            number("recvq"),
            number("stall"),
        ],
        rows,
    }
}

fn disks(l: &Latest) -> Table {
    let mark = |dev| {
        let of = l.findings.all().filter(|f| match &f.subject {
            Subject::Disk { dev: d, .. } => *d == dev,
            _ => false,
        });
        of.map(|f| l.findings.severity(f)).max()
    };
    let figures = l.disks.as_ref().map_or(&[][..], |d| d.as_slice());
    let is_used =
        |d: &&DiskFigures| d.completed > 0 || d.aqu_sz > 0.0 || d.in_flight.is_some_and(|n| n > 0);
    let mut all: Vec<_> = figures.iter().filter(is_used).collect();
    all.sort_by(|a, b| {
        let of = |d: &DiskFigures| (mark(d.id), (d.util * 10.0) as u64);
        of(b).cmp(&of(a)).then(b.aqu_sz.total_cmp(&a.aqu_sz))
    });
    let rows = all.iter().take(ROWS).map(|d| {
        let cells = vec![
            clean(&d.name),
            known(timed(d, d.r_s), count),
            known(timed(d, d.w_s), count),
            known(timed(d, d.kb_s() * 1024.0), bytes),
            known(timed(d, d.aqu_sz), count),
            d.await_ms.map_or_else(String::new, millis),
            pct(d.util_shown()),
        ];
        (mark(d.id), cells)
    });
    let rows: Vec<_> = rows.collect();
    let why = if l.disks.is_some() { "All idle." } else { "Not read." };
    Table {
        title: "Disks",
        note: empty(why, note(rows.len(), all.len(), "disk", "busiest first")),
        columns: vec![
            words("dev"),
            number("r/s"),
            number("w/s"),
            number("B/s"),
            number("qlen"),
            number("await"),
            number("util%"),
        ],
        rows,
    }
}

/// A figure per second, unless nobody knows how long it was between the readings.
fn timed(d: &DiskFigures, figure: f64) -> Option<f64> {
    d.untimed.is_none().then_some(figure)
}

fn processes(l: &Latest) -> Table {
    let blocked = l.blocked.as_ref().map_or(&[][..], |s| &s.data.blocked);
    let mut all = by_process(l.sched.as_deref(), blocked, l.io.as_deref());
    all.retain(|p| {
        let moved = p.io.is_some_and(|(r, w)| r + w > 0.0);
        p.wait > 0.0 || p.run > 0.0 || p.blocked > 0 || moved
    });
    all.sort_by(|a, b| {
        let waits = |p: &ProcessFigures| p.wait + f64::from(p.blocked);
        waits(b).total_cmp(&waits(a)).then(b.run.total_cmp(&a.run)).then(a.pid.cmp(&b.pid))
    });
    let mark = |pid: u32| {
        let of = l.findings.all().filter(|f| {
            let is_task = matches!(&f.subject, Subject::Task { task, .. } if task.pid == pid);
            is_task || f.fire.tasks.iter().any(|t| t.pid == pid)
        });
        of.map(|f| l.findings.severity(f)).max()
    };
    let rows = all.iter().take(ROWS).map(|p| {
        // Who is not listed may not have been read.
        let ran = p.run > 0.0 || p.wait > 0.0;
        let times = l.sched.as_ref().is_some_and(|s| ran || s.unread_threads == 0);
        let stands = l.blocked.as_ref().is_some_and(|s| p.blocked > 0 || s.data.unread == 0);
        let cells = vec![
            clean(&format!("{}/{}", p.comm, p.pid)),
            known(times.then_some(p.wait), secs),
            known(stands.then_some(f64::from(p.blocked)), count),
            known(times.then_some(100.0 * p.run), pct),
            known(p.io.map(|io| io.0), bytes),
            known(p.io.map(|io| io.1), bytes),
            clean(p.wchan.as_deref().unwrap_or_default()),
            clean(p.cgroup.as_deref().unwrap_or_default()),
        ];
        (mark(p.pid), cells)
    });
    let rows: Vec<_> = rows.collect();
    let read = l.sched.is_some() || l.blocked.is_some() || l.io.is_some();
    let why = if read { "None waits or runs." } else { "Not read." };
    Table {
        title: "Processes",
        note: empty(why, note(rows.len(), all.len(), "process", "by waiting")),
        columns: vec![
            words("process"),
            number("wait/s"),
            number("blocked"),
            number("run%"),
            number("read/s"),
            number("write/s"),
            words("wchan"),
            words("cgroup"),
        ],
        rows,
    }
}

fn cpus(l: &Latest) -> Table {
    let mark = |cpu| {
        let of =
            l.findings.all().filter(|f| matches!(&f.subject, Subject::Cpu { cpu: c } if *c == cpu));
        of.map(|f| l.findings.severity(f)).max()
    };
    let mut all: Vec<_> = l.cpu.iter().flat_map(|c| &c.cpus).collect();
    let busy = |s: &CpuShare| 100.0 - s.idle - s.iowait;
    all.sort_by(|a, b| busy(&b.1).total_cmp(&busy(&a.1)).then(a.0.cmp(&b.0)));
    let rows = all.iter().take(ROWS).map(|(id, s)| {
        let wait = l.sched.as_ref().and_then(|c| c.cpus.iter().find(|w| w.0 == *id));
        let cells = vec![
            id.to_string(),
            pct(busy(s)),
            pct(s.user),
            pct(s.system),
            pct(s.softirq),
            pct(s.iowait),
            pct(s.steal),
            known(wait.map(|w| w.1), millis),
        ];
        (mark(*id), cells)
    });
    let rows: Vec<_> = rows.collect();
    Table {
        title: "CPUs",
        note: empty("Not read.", note(rows.len(), all.len(), "CPU", "busiest first")),
        columns: vec![
            words("cpu"),
            number("busy%"),
            number("us%"),
            number("sy%"),
            number("si%"),
            number("iowait%"),
            number("steal%"),
            number("wait/s"),
        ],
        rows,
    }
}

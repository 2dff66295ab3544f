//! A process: why it is slow. The answer of `stallscope why`, over the last seconds before the time
//! shown, with what else is known about the process.

use std::fmt::Write as _;
use std::sync::Arc;

use super::study::{SPAN, Study};
use super::{Processes, find, named, title};
use crate::diagnose::why::Answer;
use crate::metrics::Derived;
use crate::sample::subject::Subject;
use crate::view::context::Cx;
use crate::view::lines::{chart, field, findings_on, gone, throttling};
use crate::view::panes::RowDetail;
use crate::view::state::RowKey;
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

/// Part of a limit from which it stands out.
const NEARLY_ALL: f64 = 0.9;

impl RowDetail for Processes {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "Process: why is it slow?"
    }
    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let RowKey::Process(pid) = key else { return Vec::new() };
        lines(cx, pid, w)
    }
    fn next_command(&self, cx: &Cx<'_>, key: RowKey) -> Option<String> {
        let RowKey::Process(pid) = key else { return None };
        let study = study(cx, pid);
        let answer = study.answer.as_ref().and_then(|a| a.next.first().cloned());
        Some(answer.unwrap_or_else(|| format!("stallscope why {pid}")))
    }
    fn leads_on(&self, _key: RowKey) -> bool {
        true
    }
    /// To what explains its worst wait.
    fn leads_to(&self, cx: &Cx<'_>, key: RowKey) -> Option<RowKey> {
        let RowKey::Process(pid) = key else { return None };
        let study = study(cx, pid);
        study.answer.as_ref()?.findings.iter().find_map(|f| match &f.subject {
            Subject::Disk { dev, .. } => Some(RowKey::Disk(*dev)),
            Subject::Cpu { cpu } => Some(RowKey::Cpu(*cpu)),
            _ => Some(RowKey::Socket(*f.fire.sockets.first()?, 0)),
        })
    }
    fn process(&self, _cx: &Cx<'_>, key: RowKey) -> Option<u32> {
        let RowKey::Process(pid) = key else { return None };
        Some(pid)
    }
    fn watches(&self, cx: &Cx<'_>, key: RowKey) -> Option<u32> {
        self.process(cx, key)
    }
    /// One that is idle, or deadlocked, is in no row.
    fn named(&self, filter: &str) -> Option<RowKey> {
        named(filter).map(RowKey::Process)
    }
}

fn study(cx: &Cx<'_>, pid: u32) -> Arc<Study> {
    cx.studies.of(cx, pid)
}

fn lines(cx: &Cx<'_>, pid: u32, w: u16) -> Vec<Line> {
    let (process, study) = (find(cx, pid), study(cx, pid));
    let answer = study.answer.as_ref();
    let comm = answer.and_then(|a| a.processes.first()).map(|p| p.comm.as_str());
    let head = match (process, comm) {
        (Some(p), _) => title(p),
        (None, Some(comm)) => format!("{}/{pid}", text::clean(comm)),
        (None, None) => format!("process {pid}"),
    };
    let mut out = vec![Line::of(format!(" {head}"), Tone::Strong)];
    out.extend(findings_on(cx, RowKey::Process(pid)));
    out.push(Line::new());
    match answer {
        Some(a) => {
            paragraph(&mut out, &a.conclusion, w, Tone::Strong);
            out.push(Line::new());
            classes(&mut out, cx, &study, a, w);
            places(&mut out, a);
            threads(&mut out, a);
        }
        None => paragraph(&mut out, &unwatched(cx, pid), w, Tone::Dim),
    }
    out.push(Line::new());
    scheduling(&mut out, cx, pid, w);
    limits(&mut out, cx, pid, answer);
    for m in answer.map_or(&[][..], |a| &a.missing) {
        out.push(field("cannot tell", text::clean(m).into_owned()));
    }
    match answer.map_or(&[][..], |a| &a.next) {
        [] => out.push(field("next", format!("stallscope why {pid}"))),
        next => out.extend(next.iter().map(|n| field("next", text::clean(n).into_owned()))),
    }
    out
}

/// Why there is no answer.
fn unwatched(cx: &Cx<'_>, pid: u32) -> String {
    let sample = cx.now.tick.samples.waits.as_ref().map(|s| &s.data);
    if sample.is_some_and(|s| s.gone.contains(&pid)) {
        return "It has ended, or cannot be read.".to_owned();
    }
    if sample.is_some_and(|s| s.threads.iter().any(|t| t.task.pid == pid)) {
        return "Its threads are watched from now on; the answer needs a second reading.".to_owned();
    }
    if sample.is_some_and(|s| s.everyone) {
        return "No thread of it waits for anything but work, as far as is known: all of its threads \
                are watched while this page is open in a live console, or by `stallscope why`."
            .to_owned();
    }
    "What its threads sleep in is not known at this time: they are watched while this page is open \
     in a live console, or by `stallscope why`."
        .to_owned()
}

fn paragraph(out: &mut Vec<Line>, words: &str, w: u16, tone: Tone) {
    let width = usize::from(w.saturating_sub(2)).max(1);
    let clean = text::clean(words).into_owned();
    out.extend(text::wrap(&clean, width).into_iter().map(|l| Line::of(format!(" {l}"), tone)));
}

/// Each class with its last minute.
fn classes(out: &mut Vec<Line>, cx: &Cx<'_>, study: &Study, a: &Answer, w: u16) {
    let watched = a.worst.iter().map(|t| t.time).max().unwrap_or_default();
    let seconds = units::duration(watched.min(SPAN));
    let most = a.classes.iter().filter(|c| a.share(c.1) >= 0.005);
    for (class, time) in most {
        let of_class = |d: &Derived| study.share(d.mono, *class).map(|s| 100.0 * s);
        let line = chart(cx, class.name(), w, 100.0, units::pct, of_class);
        let share = format!("{}% of {seconds} ", units::pct(100.0 * a.share(*time)));
        out.push(line.right(share, Tone::Plain));
    }
}

fn places(out: &mut Vec<Line>, a: &Answer) {
    let waits: Vec<_> = a.places.iter().filter(|p| p.class.is_wait()).collect();
    if waits.is_empty() {
        return;
    }
    out.push(Line::new());
    out.push(Line::of(" waits", Tone::Dim));
    for p in waits {
        let mut line = Line::of(format!(" {:>5}%  ", units::pct(100.0 * a.share(p.time))), Tone::Plain);
        line.add(format!("{}: ", p.class), Tone::Strong);
        line.add(text::clean(&p.what).into_owned(), Tone::Plain);
        if let Some(f) = &p.finding {
            line.add(format!(" -> {}", f.rule), Tone::Warn);
        }
        out.push(line);
    }
}

fn threads(out: &mut Vec<Line>, a: &Answer) {
    if a.threads < 2 {
        return;
    }
    out.push(Line::new());
    out.push(Line::of(" threads: not idle, what they do most", Tone::Dim));
    for t in &a.worst {
        let comm = text::clean(&t.comm);
        let busy = units::pct(100.0 * t.busy());
        let mut line = Line::of(format!(" {busy:>5}%  "), Tone::Plain);
        line.add(format!("{comm}/{:<8} ", t.task.tid), Tone::Plain);
        line.add(text::clean(&t.what).into_owned(), Tone::Plain);
        out.push(line);
    }
    if a.threads > a.worst.len() {
        out.push(Line::of(format!("         and {} more", a.threads - a.worst.len()), Tone::Dim));
    }
}

/// What the scheduler knows without anybody watching.
fn scheduling(out: &mut Vec<Line>, cx: &Cx<'_>, pid: u32, w: u16) {
    match find(cx, pid) {
        Some(p) => {
            let mut seen = format!(
                "{} ran, waited for a CPU or were in D; {} slices/s",
                p.threads,
                units::count(p.slices_s)
            );
            if p.blocked > 0 {
                let at = p.wchan.as_deref().map_or(units::UNKNOWN.into(), text::clean);
                let _ = write!(seen, "; {} in D, in {at}", p.blocked);
            }
            out.push(field("threads", seen));
        }
        None => out.extend(gone_or_idle(cx, pid)),
    }
    let sum = move |d: &Derived, of: fn(&crate::metrics::cpu::ThreadWait) -> u64| {
        let threads = d.sched.as_ref()?.threads.iter().filter(|t| t.thread.task.pid == pid);
        Some(threads.map(|t| of(t) as f64 / 1e9 / t.dt.as_secs_f64().max(1e-3)).sum::<f64>())
    };
    out.push(chart(cx, "run %", w, 100.0, units::pct, move |d| {
        sum(d, |t| t.run_ns).map(|n| n * 100.0)
    }));
    out.push(chart(cx, "wait/s", w, 0.001, units::secs, move |d| sum(d, |t| t.run_delay_ns)));
}

fn gone_or_idle(cx: &Cx<'_>, pid: u32) -> Vec<Line> {
    let waits = cx.now.tick.samples.waits.as_ref();
    if waits.is_some_and(|s| s.data.gone.contains(&pid)) {
        return gone("process");
    }
    vec![field("threads", "none ran or waited for a CPU")]
}

fn limits(out: &mut Vec<Line>, cx: &Cx<'_>, pid: u32, answer: Option<&Answer>) {
    if let Some(path) = find(cx, pid).and_then(|p| p.cgroup.as_deref()) {
        out.push(field("cgroup", text::clean(path).into_owned()));
        out.extend(throttling(cx, path));
    }
    if let Some(a) = answer {
        let mut before = None;
        for l in &a.limits {
            let name = if before.replace(l.what) == Some(l.what) { "" } else { l.what.name() };
            let mut line = field(name, text::clean(&l.text()).into_owned());
            if let Some(share) = l.share() {
                let tone = if share >= NEARLY_ALL { Tone::Warn } else { Tone::Dim };
                line.add(format!("  {}%", units::pct(100.0 * share)), tone);
            }
            out.push(line);
        }
        return;
    }
    let limits = cx.now.tick.samples.limits.as_ref().map(|s| &s.data);
    if let Some(f) = limits.and_then(|l| l.processes.iter().find(|p| p.pid == pid)) {
        out.push(field("open files", format!("{} of {}", units::int(f.open), units::int(f.soft))));
    }
}

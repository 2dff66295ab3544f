//! What the page of a process says, worked out once per moment: a frame is drawn for every key, and
//! a process may have thousands of threads.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::diagnose::Findings;
use crate::diagnose::why::{Account, Answer, Known, Meant};
use crate::metrics::Derived;
use crate::metrics::rate::ratio;
use crate::metrics::waits::{Class, ThreadFigures, WaitFigures};
use crate::sample::time::MonoNs;
use crate::view::context::Cx;

/// The answer covers this much before the time shown.
pub(super) const SPAN: Duration = Duration::from_secs(10);
/// Charts cover as much at most, or so many intervals.
const CHARTS: Duration = Duration::from_secs(128);
const CHARTED: u32 = 64;

/// What is known of a process at one moment.
#[derive(Debug)]
pub struct Study {
    pid: u32,
    /// The moment.
    derived: Arc<Derived>,
    findings: Arc<Findings>,
    /// What its threads did in the last seconds; `None`: nobody watched them.
    pub(super) answer: Option<Answer>,
    /// Parts of its time by class, 0 to 1, of the moments before, oldest first.
    shares: Vec<(MonoNs, Vec<(Class, f64)>)>,
}

/// The study that was made last.
#[derive(Clone, Debug, Default)]
pub struct Studies(RefCell<Option<Arc<Study>>>);

impl Studies {
    /// Of a process at the moment shown.
    #[must_use]
    pub fn of(&self, cx: &Cx<'_>, pid: u32) -> Arc<Study> {
        let mut last = self.0.borrow_mut();
        match &*last {
            Some(s) if s.is_of(cx, pid) => s.clone(),
            _ => {
                let before = last.take().filter(|s| s.pid == pid);
                last.insert(Arc::new(Study::of(cx, pid, before.as_deref()))).clone()
            }
        }
    }
}

impl Study {
    fn is_of(&self, cx: &Cx<'_>, pid: u32) -> bool {
        self.pid == pid
            && Arc::ptr_eq(&self.derived, cx.now.derived)
            && Arc::ptr_eq(&self.findings, cx.now.findings)
    }

    fn of(cx: &Cx<'_>, pid: u32, before: Option<&Self>) -> Self {
        Self {
            pid,
            derived: cx.now.derived.clone(),
            findings: cx.now.findings.clone(),
            answer: answer(cx, pid),
            shares: shares(cx, pid, before),
        }
    }

    /// Part of its time in the interval before `at` that went to a class, 0 to 1; `None`: it was not
    /// watched then.
    pub(super) fn share(&self, at: MonoNs, class: Class) -> Option<f64> {
        let i = self.shares.binary_search_by_key(&at, |s| s.0).ok()?;
        let (_, parts) = self.shares.get(i)?;
        Some(parts.iter().find(|p| p.0 == class).map_or(0.0, |p| p.1))
    }
}

fn answer(cx: &Cx<'_>, pid: u32) -> Option<Answer> {
    let since = cx.mono().back(SPAN);
    let moments = cx.analysis.history().back_from(cx.now.tick.seq);
    let mut waits: Vec<&WaitFigures> = moments
        .take_while(|m| m.tick.mono > since)
        .filter_map(|m| m.derived.waits.as_deref())
        .collect();
    // Names and cgroups are those of the last one.
    waits.reverse();
    // From when the page was opened on; before that, there is at most a part of the threads.
    let is_whole = |f: &&WaitFigures| f.is_whole(pid);
    if waits.iter().any(is_whole) {
        waits.retain(is_whole);
    }
    let mut account = Account::of(Meant::Last);
    for figures in waits {
        let _ = account.push(figures, |p| p == pid);
    }
    let window = cx.analysis.window(cx.now.tick.seq);
    let (findings, at) = (cx.now.findings, cx.now.tick.wall);
    let known = Known { findings, time: at.back(SPAN)..=at, tables: cx.tables.clone(), window };
    (!account.is_empty()).then(|| Answer::of(&account, &known))
}

/// What is known of the moments before stays known.
fn shares(cx: &Cx<'_>, pid: u32, before: Option<&Study>) -> Vec<(MonoNs, Vec<(Class, f64)>)> {
    let since = cx.mono().back(CHARTS.max(cx.analysis.host().interval * CHARTED));
    let moments = cx.analysis.history().back_from(cx.now.tick.seq);
    let of_moment = |m: &crate::metrics::history::Snapshot| {
        let at = m.tick.mono;
        let known = before.and_then(|b| {
            let i = b.shares.binary_search_by_key(&at, |s| s.0).ok()?;
            b.shares.get(i).cloned()
        });
        known.or_else(|| Some((at, shares_of(m.derived.waits.as_deref()?, pid)?)))
    };
    let mut out: Vec<_> =
        moments.take_while(|m| m.tick.mono > since).filter_map(of_moment).collect();
    out.reverse();
    out
}

fn shares_of(figures: &WaitFigures, pid: u32) -> Option<Vec<(Class, f64)>> {
    let mut all = Duration::ZERO;
    let mut sums = Class::ALL.map(|c| (c, Duration::ZERO));
    let ours = |t: &&ThreadFigures| t.task.pid == pid;
    for t in figures.threads.iter().filter(ours) {
        all += t.dt;
        for p in &t.parts {
            if let Some(sum) = sums.iter_mut().find(|s| s.0 == p.class) {
                sum.1 += p.time;
            }
        }
    }
    let share = |time: Duration| ratio(time.as_secs_f64(), all.as_secs_f64());
    let parts = sums.into_iter().filter(|s| !s.1.is_zero());
    parts.map(|(class, time)| Some((class, share(time)?))).collect::<Option<Vec<_>>>().filter(|p| !p.is_empty())
}

//! Network devices of all network namespaces. Namespaces are read in rotation, so a device that was
//! not read this time is unknown, not ok.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::{Fire, NOT_YET, Verdicts, Window};
use super::enter;
use crate::metrics::netdev::{LinkFigures, SpaceFigures};
use crate::sample::subject::{NetnsId, Subject};

/// How long the metrics of a namespace are remembered.
const REMEMBER: Duration = Duration::from_secs(15);

/// The latest metrics of every namespace, and whether they are from the current tick.
pub(crate) fn spaces<'a>(w: &Window<'a>) -> Vec<(&'a SpaceFigures, bool)> {
    let mut out: BTreeMap<NetnsId, (&'a SpaceFigures, bool)> = BTreeMap::new();
    for m in w.history.back_from(w.tick.seq) {
        let age = w.tick.mono.since(m.tick.mono);
        if age > REMEMBER {
            break;
        }
        for s in m.derived.netdev.iter().flat_map(|n| n.iter()) {
            out.entry(s.netns).or_insert((s, age.is_zero()));
        }
    }
    out.into_values().collect()
}

/// A rule's verdict on a device or a namespace.
pub(crate) enum Judged {
    /// The condition is met.
    Fire(Box<Fire>),
    /// Not met, but not cleared either.
    Linger,
}

impl From<Fire> for Judged {
    fn from(f: Fire) -> Self {
        Self::Fire(Box::new(f))
    }
}

/// Records the verdict; if the metrics are not from the current tick, it is unknown.
pub(crate) fn say(out: &mut Verdicts, fresh: bool, subject: Subject, judged: Option<Judged>) {
    match judged {
        None => {}
        Some(_) if !fresh => out.unknown(subject, NOT_YET),
        Some(Judged::Fire(fire)) => out.fire(subject, *fire),
        Some(Judged::Linger) => out.linger(subject),
    }
}

/// The subject of a finding about this device.
pub(crate) fn subject(s: &SpaceFigures, l: &LinkFigures) -> Subject {
    Subject::Link { dev: l.attrs.name.clone(), netns: s.netns }
}

/// `eth0`, `v0 in blue`.
pub(crate) fn title(w: &Window<'_>, s: &SpaceFigures, l: &LinkFigures) -> String {
    format!("{}{}", l.attrs.name, inside(w, s))
}

/// ` in blue`; nothing for our own namespace.
pub(crate) fn inside(w: &Window<'_>, s: &SpaceFigures) -> String {
    if enter::is_own(w.host, door(s)) || s.label.is_empty() {
        return String::new();
    }
    format!(" in {}", s.label)
}

fn door(s: &SpaceFigures) -> enter::Door<'_> {
    enter::Door { netns: s.netns, label: &s.label, member: s.member }
}

/// The prefix for a command to run in this namespace.
pub(crate) fn enter(w: &Window<'_>, s: &SpaceFigures) -> String {
    enter::enter(w.host, door(s)).unwrap_or_default()
}

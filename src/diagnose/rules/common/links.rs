//! Network devices of all namespaces. These are read in turn, so what was not read this time is
//! unknown, not fine.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::{Fire, NOT_YET, Verdicts, Window};
use super::enter;
use crate::model::derive::netdev::{LinkFigures, SpaceFigures};
use crate::model::subject::{NetnsId, Subject};

/// Figures of a namespace are remembered for so long.
const REMEMBER: Duration = Duration::from_secs(15);

/// The youngest figures of every namespace, and whether they are of this very moment.
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

/// What a rule thinks of a device or a namespace.
pub(crate) enum Judged {
    /// The condition holds.
    Fire(Box<Fire>),
    /// It does not, but is not clear either.
    Linger,
}

impl From<Fire> for Judged {
    fn from(f: Fire) -> Self {
        Self::Fire(Box::new(f))
    }
}

/// Says it; of figures that are not of this moment nothing is known.
pub(crate) fn say(out: &mut Verdicts, fresh: bool, subject: Subject, judged: Option<Judged>) {
    match judged {
        None => {}
        Some(_) if !fresh => out.unknown(subject, NOT_YET),
        Some(Judged::Fire(fire)) => out.fire(subject, *fire),
        Some(Judged::Linger) => out.linger(subject),
    }
}

/// What a finding about this device is about.
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

/// What to put in front of a command so that it runs in this namespace.
pub(crate) fn enter(w: &Window<'_>, s: &SpaceFigures) -> String {
    enter::enter(w.host, door(s)).unwrap_or_default()
}

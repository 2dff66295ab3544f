//! The prompt behind `:`: everything that has a key by its name, and what no key can say (`:sort rto`,
//! `:rule tcp-rto-storm`, `:goto -5m`). Tab completes.

use super::action::{Action, Effect, Key};
use super::filter::completion;
use super::keymap::KEYMAP;
use super::layout::focused_pane;
use super::panes::{self, PANES};
use super::sorting::sort_by;
use super::state::{Detail, Focus, Input, Mode, OpenDetail, ViewState};
use super::update::{focus, notify, update};
use super::vm::Size;
use super::{filtering, pace, travel};
use crate::analysis::Analysis;
use crate::diagnose::RULES;
use crate::typo::{nearest, question};

/// Longest command, characters.
pub(super) const MAX_COMMAND: usize = 200;
/// Letters that a typo may have wrong.
const TYPO: usize = 2;

/// What takes a word more: name, what the word is.
const WITH_WORD: [(&str, &str); 5] = [
    ("sort", "COLUMN"),
    ("filter", "EXPRESSION"),
    ("goto", "TIME"),
    ("rule", "ID"),
    (INTERVAL, "DURATION"),
];
/// No key says which one.
const INTERVAL: &str = "interval";

/// A key of the prompt.
pub(super) fn type_key(v: &mut ViewState, a: &Analysis, size: Size, key: Key) -> Option<Effect> {
    let Mode::Command { input, offers } = &mut v.mode else { return None };
    offers.clear();
    match key {
        Key::Esc => v.mode = Mode::Normal,
        Key::Enter => {
            let typed = input.string();
            v.mode = Mode::Normal;
            return run(v, a, size, typed.trim());
        }
        Key::Tab => {
            let typed: String = input.text.iter().take(input.at).collect();
            let all = candidates(v, &typed);
            let Mode::Command { input, offers } = &mut v.mode else { return None };
            complete(input, &typed, all, offers);
        }
        key => _ = input.edit(key, MAX_COMMAND),
    }
    None
}

/// Names of commands, and of what takes a word, in the order of the alphabet.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let keys = KEYMAP.iter().filter_map(|b| b.action.name());
    let panes = PANES.iter().map(|p| p.name());
    let mut all: Vec<&str> = keys.chain(panes).chain(WITH_WORD.map(|w| w.0)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What the word before the cursor may become.
fn candidates(v: &ViewState, typed: &str) -> Vec<&'static str> {
    match typed.split_once(' ') {
        None => names(),
        Some(("sort", _)) => panes::pane(focused_pane(v)).columns().iter().map(|c| c.key).collect(),
        Some((INTERVAL, _)) => pace::steps(),
        Some(("rule", _)) => RULES.iter().map(|r| r.id().0).collect(),
        Some(_) => Vec::new(),
    }
}

fn complete(
    input: &mut Input,
    typed: &str,
    all: Vec<&'static str>,
    offers: &mut Vec<&'static str>,
) {
    let done = completion(typed.rsplit(' ').next().unwrap_or(""), all.into_iter());
    for c in done.insert.chars() {
        input.edit(Key::Char(c), MAX_COMMAND);
    }
    if done.names.len() > 1 {
        *offers = done.names;
    }
}

/// Carries out a command, or says what is wrong with it.
fn run(v: &mut ViewState, a: &Analysis, size: Size, typed: &str) -> Option<Effect> {
    let (name, word) = typed.split_once(' ').unwrap_or((typed, ""));
    let word = word.trim();
    if name.is_empty() {
        return None;
    }
    if !word.is_empty() {
        return with_word(v, a, name, word);
    }
    if name == INTERVAL {
        pace::tell(v, a);
        return None;
    }
    if let Some(p) = PANES.iter().find(|p| p.name() == name) {
        v.details.clear();
        focus(v, Focus::Pane(p.id()));
        return None;
    }
    let mut all = KEYMAP.iter().map(|b| b.action);
    if let Some(action) = all.find(|action| action.name() == Some(name)) {
        return update(v, a, size, action);
    }
    wrong(v, a, "command", name, names());
    None
}

fn with_word(v: &mut ViewState, a: &Analysis, name: &str, word: &str) -> Option<Effect> {
    let pane = focused_pane(v);
    match name {
        "goto" => {
            let tz = v.tz.clone();
            return travel::to_time(v, a, word, &tz);
        }
        INTERVAL => return pace::set(v, a, word),
        "filter" => {
            v.details.clear();
            filtering::set(v, pane, word);
            let says = v.pane(pane).and_then(|p| p.filter.wrong()).map(str::to_owned);
            if let Some(says) = says {
                filtering::set(v, pane, "");
                notify(v, a, says);
            }
        }
        "sort" => {
            let columns = panes::pane(pane).columns();
            match columns.iter().position(|c| c.key == word || c.also == word) {
                Some(index) => sort_by(v, index),
                None => wrong(v, a, "column", word, columns.iter().map(|c| c.key).collect()),
            }
        }
        "rule" => match RULES.iter().find(|r| r.id().0 == word) {
            Some(rule) => {
                v.details.clear();
                v.details.push(OpenDetail { what: Detail::Rule(rule.id()), scroll: 0 });
            }
            None => wrong(v, a, "rule", word, RULES.iter().map(|r| r.id().0).collect()),
        },
        _ if names().contains(&name) => notify(v, a, format!("{name} takes no word: {word}")),
        _ => wrong(v, a, "command", name, names()),
    }
    None
}

fn wrong(v: &mut ViewState, a: &Analysis, what: &str, name: &str, all: Vec<&str>) {
    let near = nearest(name, all, TYPO);
    let hint = question(&near).unwrap_or_else(|| "Tab lists them".to_owned());
    notify(v, a, format!("no {what} {name}; {hint}"));
}

impl Action {
    /// Its name as a command; `None` for what is a matter of keys, such as moving a cursor.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        use super::action::{Step, TimeStep};
        Some(match self {
            Self::Quit => "quit",
            Self::Back => "back",
            Self::Open => "open",
            Self::Process => "process",
            Self::Zoom => "zoom",
            Self::FocusNext => "next-pane",
            Self::FocusPrevious => "previous-pane",
            Self::FocusFindings => "findings",
            Self::Finding(1..) => "next-finding",
            Self::Finding(_) => "previous-finding",
            Self::Rule => "rule",
            Self::Log => "log",
            Self::Move(Step::First) => "first",
            Self::Move(Step::Last) => "last",
            Self::SortNext => "sort",
            Self::SortBy => "sort-by",
            Self::SortReverse => "reverse",
            Self::Filter => "filter",
            Self::Columns => "columns",
            Self::Freeze => "freeze",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Goto => "goto",
            Self::Time(step) => match step {
                TimeStep::TickBack => "tick-back",
                TimeStep::TickForward => "tick-forward",
                TimeStep::Seconds(..0) => "10s-back",
                TimeStep::Seconds(_) => "10s-forward",
                TimeStep::FindingBack => "finding-back",
                TimeStep::FindingForward => "finding-forward",
                TimeStep::MarkBack => "mark-back",
                TimeStep::MarkForward => "mark-forward",
                TimeStep::Start => "start",
                TimeStep::End => "end",
            },
            Self::Live => "live",
            Self::Copy => "copy",
            Self::Save => "write",
            Self::Help => "help",
            Self::Record => "record",
            Self::Mark => "mark",
            Self::Suspend => "suspend",
            Self::Repaint => "redraw",
            Self::FocusPane(_) | Self::Move(_) | Self::ToggleColumn | Self::Command => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::keymap::Context;

    #[test]
    fn all_that_has_a_key_has_a_name_of_its_own() {
        let of = |b: &&super::super::keymap::Binding| b.context == Context::Normal;
        let mut seen = Vec::new();
        for b in KEYMAP.iter().filter(of) {
            match b.action {
                Action::FocusPane(_) | Action::Move(_) | Action::Command => {}
                action => assert!(action.name().is_some(), "{action:?}"),
            }
            let Some(name) = b.action.name() else { continue };
            assert!(!seen.contains(&name), "{name} stands for two actions");
            assert!(PANES.iter().all(|p| p.name() != name), "{name} is a pane, too");
            seen.push(name);
        }
    }

    #[test]
    fn a_word_is_completed_as_far_as_it_is_certain() {
        let done = |typed: &str, all: Vec<&'static str>| {
            let (mut input, mut offers) = (Input::new(typed), Vec::new());
            complete(&mut input, typed, all, &mut offers);
            (input.string(), offers)
        };
        assert_eq!(done("pro", vec!["process", "processes"]).0, "process");
        assert_eq!(done("pro", vec!["process", "processes"]).1, ["process", "processes"]);
        assert_eq!(done("sort r", vec!["rto", "cwnd"]), ("sort rto".to_owned(), Vec::new()));
        assert_eq!(done("x", vec!["rto"]), ("x".to_owned(), Vec::new()));
    }
}

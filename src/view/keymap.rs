//! The keys: one table. The dispatcher, the help overlay, the footer and the documentation all
//! derive from it, so that no hint can disagree with what a key does.

use super::action::{Action, Key, Step, TimeStep};
use std::sync::LazyLock;

use super::layout::{focused_pane, in_overview};
use super::panes::{self, PANES};
use super::state::{Detail, Focus, Layout, Mode, RowKey, ViewState, When};

/// Where a binding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Panes, findings and details.
    Normal,
    /// The column chooser.
    Columns,
    /// The help overlay.
    Help,
    /// Everywhere, even while text is typed.
    Always,
}

/// A row of the keymap.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Where it holds.
    pub context: Context,
    /// Any of these keys.
    pub keys: &'static [Key],
    /// What they do.
    pub action: Action,
    /// Heading in the help.
    pub group: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Word in the footer and its rank (0 comes first); adjacent rows with the same word are
    /// joined.
    pub hint: Option<(u8, &'static str)>,
    /// When the footer offers it.
    pub offered: fn(&ViewState) -> bool,
}

const fn bind(
    keys: &'static [Key],
    action: Action,
    group: &'static str,
    help: &'static str,
) -> Binding {
    Binding { context: Context::Normal, keys, action, group, help, hint: None, offered: always }
}

impl Binding {
    const fn hint(mut self, rank: u8, word: &'static str) -> Self {
        self.hint = Some((rank, word));
        self
    }
    const fn when(mut self, offered: fn(&ViewState) -> bool) -> Self {
        self.offered = offered;
        self
    }
    const fn within(mut self, context: Context) -> Self {
        self.context = context;
        self
    }
}

fn in_finding(v: &ViewState) -> bool {
    v.details.last().is_some_and(|d| matches!(d.what, Detail::Finding(_)))
}
fn always(_: &ViewState) -> bool {
    true
}
fn in_detail(v: &ViewState) -> bool {
    !v.details.is_empty()
}
fn can_open(v: &ViewState) -> bool {
    let goes_on = |d: &Detail| match d {
        Detail::Finding(_) => true,
        Detail::Rule(_) | Detail::Log => false,
        Detail::Row(key) => panes::pane(key.pane()).leads_on(*key),
    };
    v.details.last().is_none_or(|d| goes_on(&d.what))
}
fn may_have_process(v: &ViewState) -> bool {
    let is_one = |d: &Detail| matches!(d, Detail::Row(RowKey::Process(_)));
    v.details.last().is_some_and(|d| !is_one(&d.what))
}
fn can_go_back(v: &ViewState) -> bool {
    in_detail(v) || v.layout == Layout::Zoom || !in_overview(focused_pane(v))
}
fn in_list(v: &ViewState) -> bool {
    !in_detail(v) && matches!(v.focus, Focus::Pane(_))
}
fn outside_detail(v: &ViewState) -> bool {
    !in_detail(v)
}
fn not_live(v: &ViewState) -> bool {
    v.when != When::Live && v.timeline.has_present()
}
fn in_past(v: &ViewState) -> bool {
    v.in_past()
}
fn has_marks(v: &ViewState) -> bool {
    v.timeline.may_have_marks()
}
fn recording(v: &ViewState) -> bool {
    v.rec.is_some()
}

use Key::{
    BackTab, Char, Ctrl, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up,
};

/// Every key: those of the panes, by number, then the others.
pub static KEYMAP: LazyLock<Vec<Binding>> = LazyLock::new(|| {
    let panes = PANES.iter().zip(NUMBERS).zip(1..);
    let panes = panes.map(|((p, keys), n)| bind(keys, Action::FocusPane(n), "Panes", p.key_help()));
    panes.chain(FIXED.iter().copied()).collect()
});

/// Keys that go to a pane.
const NUMBERS: [&[Key]; 9] = [
    &[Char('1')],
    &[Char('2')],
    &[Char('3')],
    &[Char('4')],
    &[Char('5')],
    &[Char('6')],
    &[Char('7')],
    &[Char('8')],
    &[Char('9')],
];

const FIXED: &[Binding] = &[
    bind(&[Char('?')], Action::Help, "Program", "show or hide the keys").hint(0, "help"),
    bind(&[Tab], Action::FocusNext, "Panes", "next pane").hint(1, "pane").when(outside_detail),
    bind(&[BackTab], Action::FocusPrevious, "Panes", "previous pane"),
    bind(&[Char('f')], Action::FocusFindings, "Panes", "go to the findings")
        .hint(7, "findings")
        .when(in_list),
    bind(&[Char('z')], Action::Zoom, "Panes", "zoom the pane, or show all panes")
        .hint(8, "zoom")
        .when(outside_detail),
    bind(
        &[Enter, Right, Char('l')],
        Action::Open,
        "Panes",
        "details of the row, or the evidence of a finding",
    )
    .hint(2, "detail")
    .when(can_open),
    bind(
        &[Char('p')],
        Action::Process,
        "Panes",
        "the process of the row, finding or page: what do its threads wait for?",
    )
    .hint(6, "process")
    .when(may_have_process),
    bind(&[Char('n')], Action::Finding(1), "Panes", "the next finding")
        .hint(4, "next finding")
        .when(in_finding),
    bind(&[Char('N')], Action::Finding(-1), "Panes", "the finding before"),
    bind(&[Char('R')], Action::Rule, "Panes", "the rule of the finding in full")
        .hint(5, "rule")
        .when(in_finding),
    bind(
        &[Char('F')],
        Action::Log,
        "Panes",
        "all findings, active and ended, with how long they lasted",
    ),
    bind(&[Esc, Left, Char('h')], Action::Back, "Panes", "one level back")
        .hint(1, "back")
        .when(can_go_back),
    bind(&[Down, Char('j')], Action::Move(Step::Down), "Cursor", "down"),
    bind(&[Up, Char('k')], Action::Move(Step::Up), "Cursor", "up"),
    bind(&[Ctrl('d')], Action::Move(Step::HalfDown), "Cursor", "half a page down"),
    bind(&[Ctrl('u')], Action::Move(Step::HalfUp), "Cursor", "half a page up"),
    bind(&[PageDown, Ctrl('f')], Action::Move(Step::PageDown), "Cursor", "a page down"),
    bind(&[PageUp, Ctrl('b')], Action::Move(Step::PageUp), "Cursor", "a page up"),
    bind(&[Char('g')], Action::Move(Step::First), "Cursor", "first row, and follow the worst"),
    bind(&[Char('G')], Action::Move(Step::Last), "Cursor", "last row"),
    bind(&[Char('/')], Action::Filter, "Rows", "filter: words, and fields as in rto>1s dport:443")
        .hint(3, "filter")
        .when(in_list),
    bind(&[Char('s')], Action::SortNext, "Rows", "sort by the next column")
        .hint(4, "sort")
        .when(in_list),
    bind(&[Char('o')], Action::SortBy, "Rows", "sort by a column, which is chosen by a letter"),
    bind(&[Char('S')], Action::SortReverse, "Rows", "reverse the sort order"),
    bind(&[Char('c')], Action::Columns, "Rows", "choose columns"),
    bind(&[Char('y')], Action::Copy, "Rows", "copy the next command, or the row (OSC 52)")
        .hint(3, "copy")
        .when(in_detail),
    bind(&[Char('w')], Action::Save, "Rows", "save what is shown as text").hint(9, "write"),
    bind(
        &[Char(' ')],
        Action::Freeze,
        "Time",
        "pause or resume the display (sampling continues); play or pause the past",
    )
    .hint(5, "freeze"),
    bind(&[Char('[')], Action::Time(TimeStep::TickBack), "Time", "one tick back").hint(6, "step"),
    bind(&[Char(']')], Action::Time(TimeStep::TickForward), "Time", "one tick forward")
        .hint(6, "step"),
    bind(
        &[Char('{')],
        Action::Time(TimeStep::FindingBack),
        "Time",
        "where the previous finding began",
    )
    .hint(7, "finding"),
    bind(
        &[Char('}')],
        Action::Time(TimeStep::FindingForward),
        "Time",
        "where the next finding began",
    )
    .hint(7, "finding"),
    bind(&[Char('<')], Action::Time(TimeStep::Seconds(-10)), "Time", "10 s back"),
    bind(&[Char('>')], Action::Time(TimeStep::Seconds(10)), "Time", "10 s forward"),
    bind(&[Char('(')], Action::Time(TimeStep::MarkBack), "Time", "previous mark")
        .hint(9, "to mark")
        .when(has_marks),
    bind(&[Char(')')], Action::Time(TimeStep::MarkForward), "Time", "next mark")
        .hint(9, "to mark")
        .when(has_marks),
    bind(&[Char('t')], Action::Goto, "Time", "go to a time: 14:03:20, -5m, 2026-05-01 14:03")
        .hint(6, "time")
        .when(in_past),
    bind(
        &[Char('+'), Char('=')],
        Action::Faster,
        "Time",
        "sample more often; play the past faster, to 64x",
    )
    .hint(7, "speed")
    .when(in_past),
    bind(&[Char('-')], Action::Slower, "Time", "sample less often; play the past slower, to 0.25x")
        .hint(7, "speed")
        .when(in_past),
    bind(&[Home], Action::Time(TimeStep::Start), "Time", "to the start of memory or recording"),
    bind(&[End], Action::Time(TimeStep::End), "Time", "to the end: now, or the last tick"),
    bind(&[Char('0')], Action::Live, "Time", "back to now, or to the last tick")
        .hint(1, "live")
        .when(not_live),
    bind(
        &[Char('r')],
        Action::Record,
        "Program",
        "record to a new file here, starting with what is in memory; again: stop",
    )
    .hint(9, "record"),
    bind(
        &[Char(':')],
        Action::Command,
        "Program",
        "type a command: all of these by name; Tab completes",
    ),
    bind(&[Char('m')], Action::Mark, "Program", "add a mark to the recording in progress")
        .hint(5, "mark")
        .when(recording),
    bind(&[Ctrl('l')], Action::Repaint, "Program", "redraw"),
    bind(&[Ctrl('z')], Action::Suspend, "Program", "suspend; `fg` resumes").within(Context::Always),
    bind(&[Char('q')], Action::Quit, "Program", "quit").hint(9, "quit"),
    bind(&[Ctrl('c')], Action::Quit, "Program", "quit from anywhere").within(Context::Always),
    bind(&[Down, Char('j')], Action::Move(Step::Down), "Chooser", "next column")
        .within(Context::Columns),
    bind(&[Up, Char('k')], Action::Move(Step::Up), "Chooser", "previous column")
        .within(Context::Columns),
    bind(&[Char(' '), Enter], Action::ToggleColumn, "Chooser", "show or hide the column")
        .within(Context::Columns)
        .hint(0, "show/hide"),
    bind(&[Esc, Char('c'), Char('q')], Action::Back, "Chooser", "done")
        .within(Context::Columns)
        .hint(1, "done"),
    bind(&[Down, Char('j')], Action::Move(Step::Down), "Help", "scroll down")
        .within(Context::Help)
        .hint(1, "scroll"),
    bind(&[Up, Char('k')], Action::Move(Step::Up), "Help", "scroll up")
        .within(Context::Help)
        .hint(1, "scroll"),
    bind(&[PageDown, Ctrl('d'), Char(' ')], Action::Move(Step::PageDown), "Help", "a page down")
        .within(Context::Help),
    bind(&[PageUp, Ctrl('u')], Action::Move(Step::PageUp), "Help", "a page up")
        .within(Context::Help),
    bind(&[Char('/')], Action::Filter, "Help", "search in this help")
        .within(Context::Help)
        .hint(2, "search"),
    bind(&[Esc, Char('?'), Char('q'), Enter], Action::Back, "Help", "close")
        .within(Context::Help)
        .hint(0, "close"),
];

/// The context of a mode; `None` while text is typed.
#[must_use]
pub fn context(mode: &Mode) -> Option<Context> {
    match mode {
        Mode::Normal => Some(Context::Normal),
        Mode::Columns { .. } => Some(Context::Columns),
        Mode::Help { .. } => Some(Context::Help),
        Mode::Filter { .. }
        | Mode::Goto { .. }
        | Mode::Command { .. }
        | Mode::Sort { .. }
        | Mode::HelpSearch { .. } => None,
    }
}

/// What a key does now: what the user bound it to, else what it is bound to anyway.
#[must_use]
pub fn lookup(v: &ViewState, key: Key) -> Option<Action> {
    let here = context(&v.mode);
    if here == Some(Context::Normal)
        && let Some((_, action)) = v.keys.iter().find(|(k, _)| *k == key)
    {
        return Some(*action);
    }
    KEYMAP
        .iter()
        .find(|b| {
            (Some(b.context) == here || b.context == Context::Always) && b.keys.contains(&key)
        })
        .map(|b| b.action)
}

/// The name of a key.
#[must_use]
pub fn key_name(k: Key) -> String {
    match k {
        Key::Char(' ') => "space".to_owned(),
        Key::Char(c) => c.to_string(),
        Key::Ctrl(c) => format!("^{}", c.to_ascii_uppercase()),
        Key::Enter => "Enter".to_owned(),
        Key::Esc => "Esc".to_owned(),
        Key::Tab => "Tab".to_owned(),
        Key::BackTab => "S-Tab".to_owned(),
        Key::Up => "Up".to_owned(),
        Key::Down => "Down".to_owned(),
        Key::Left => "Left".to_owned(),
        Key::Right => "Right".to_owned(),
        Key::PageUp => "PgUp".to_owned(),
        Key::PageDown => "PgDn".to_owned(),
        Key::Home => "Home".to_owned(),
        Key::End => "End".to_owned(),
        Key::Backspace => "Backspace".to_owned(),
        Key::Delete => "Del".to_owned(),
    }
}

/// Keys that are written by a name.
const NAMED: [Key; 14] = [
    Char(' '),
    Enter,
    Esc,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Key::Delete,
];

/// The key of that name.
#[must_use]
pub fn parse_key(name: &str) -> Option<Key> {
    let mut chars = name.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some(c), None, _) if !c.is_control() && c != ' ' => return Some(Key::Char(c)),
        (Some('^'), Some(c), None) if c.is_ascii_alphabetic() => {
            return Some(Key::Ctrl(c.to_ascii_lowercase()));
        }
        _ => {}
    }
    NAMED.into_iter().find(|k| key_name(*k).eq_ignore_ascii_case(name))
}

/// The keys of a binding, those of the user first, without those that he bound to something else.
fn keys_of(v: &ViewState, b: &Binding) -> Vec<Key> {
    if b.context != Context::Normal {
        return b.keys.to_vec();
    }
    let own = v.keys.iter().filter(|(_, action)| *action == b.action).map(|(k, _)| *k);
    let taken = |key: &&Key| v.keys.iter().any(|(k, _)| k == *key);
    own.chain(b.keys.iter().filter(|k| !taken(k)).copied()).collect()
}

/// Names of the keys of a binding: `Down j`.
#[must_use]
pub fn key_names(v: &ViewState, b: &Binding) -> String {
    keys_of(v, b).into_iter().map(key_name).collect::<Vec<_>>().join(" ")
}

/// What the footer offers now, best first: keys and word.
#[must_use]
pub fn hints(v: &ViewState) -> Vec<(String, &'static str)> {
    let here = context(&v.mode);
    let mut out: Vec<(u8, String, &'static str)> = Vec::new();
    for b in KEYMAP.iter().filter(|b| Some(b.context) == here && (b.offered)(v)) {
        let (Some((rank, word)), Some(key)) = (b.hint, keys_of(v, b).first().copied()) else {
            continue;
        };
        let word = match (b.action, v.when) {
            (Action::Freeze, _) if v.play.on => "pause",
            (Action::Freeze, _) if v.in_past() => "play",
            (Action::Freeze, When::Frozen(_)) => "resume",
            (Action::Record, _) if v.rec.is_some() => "stop recording",
            _ => word,
        };
        match out.iter_mut().find(|o| o.2 == word && o.0 == rank) {
            Some(o) => {
                o.1.push(' ');
                o.1.push_str(&key_name(key));
            }
            None => out.push((rank, key_name(key), word)),
        }
    }
    out.sort_by_key(|o| o.0);
    out.into_iter().map(|(_, keys, word)| (keys, word)).collect()
}

/// Headings of the help in order.
pub const GROUPS: &[&str] = &["Panes", "Cursor", "Rows", "Time", "Program", "Chooser", "Help"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things() {
        for a in KEYMAP.iter() {
            for b in KEYMAP.iter() {
                let overlap = a.context == b.context
                    || a.context == Context::Always
                    || b.context == Context::Always;
                if !std::ptr::eq(a, b) && overlap {
                    for k in a.keys {
                        assert!(!b.keys.contains(k), "{} is bound twice", key_name(*k));
                    }
                }
            }
        }
    }

    #[test]
    fn every_row_is_documented_under_a_known_heading() {
        for b in KEYMAP.iter() {
            assert!(GROUPS.contains(&b.group), "{}", b.group);
            assert!(!b.help.is_empty() && !b.keys.is_empty());
        }
    }

    #[test]
    fn the_footer_offers_what_makes_sense_now() {
        let mut v = ViewState::default();
        let words = |v: &ViewState| hints(v).into_iter().map(|h| h.1).collect::<Vec<_>>();
        assert_eq!(words(&v)[..5], ["help", "pane", "detail", "filter", "sort"]);
        assert!(!words(&v).contains(&"live"));
        v.when = When::Frozen(crate::sample::time::Seq(1));
        assert!(words(&v).contains(&"live") && words(&v).contains(&"resume"));
        v.mode = Mode::Help { scroll: 0 };
        assert_eq!(words(&v), ["close", "scroll", "search"]);
    }
}

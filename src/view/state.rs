//! `ViewState`: what the user chose. Everything else on the screen follows from ticks.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::action::{Action, Key};
use super::filter::Filter;
use super::panes::PaneId;
use super::panes::processes::Studies;
use super::series::WaitLog;
use crate::diagnose::RuleId;
use crate::playback::timeline::Timeline;
use crate::sample::subject::{CpuId, DiskId, SockId, Subject, TaskId};
use crate::sample::time::{MonoNs, Seq};

/// Identity of a row: the cursor follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKey {
    /// A socket; the second part distinguishes sockets without a cookie.
    Socket(SockId, u64),
    /// A disk.
    Disk(DiskId),
    /// A CPU.
    Cpu(CpuId),
    /// A thread.
    Task(TaskId),
    /// A process, by its number.
    Process(u32),
    /// What has no name outside of its pane, by a number of the pane's own.
    Numbered(PaneId, u64),
}

impl RowKey {
    /// The pane that knows what such a row opens into.
    #[must_use]
    pub fn pane(self) -> PaneId {
        match self {
            Self::Socket(..) => PaneId::Sockets,
            Self::Disk(_) => PaneId::Disks,
            Self::Cpu(_) => PaneId::Cpus,
            Self::Task(_) => PaneId::RunQueue,
            Self::Process(_) => PaneId::Processes,
            Self::Numbered(pane, _) => pane,
        }
    }
}

/// Where keys go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// The strip of findings.
    Findings,
    /// A pane.
    Pane(PaneId),
}

/// How much of the screen the focused pane gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// All panes, where they fit.
    #[default]
    Overview,
    /// The focused pane alone.
    Zoom,
}

/// Which moment is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// The newest.
    #[default]
    Live,
    /// The one at which the screen was frozen.
    Frozen(Seq),
    /// One in the past.
    Rewound(Seq),
}

/// Order of a pane's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Worst first.
    Trouble {
        /// Best first.
        reverse: bool,
    },
    /// The pane's own order.
    Natural {
        /// Backwards.
        reverse: bool,
    },
    /// By a column, its interesting end first.
    Column {
        /// Index of the column.
        index: usize,
        /// The other end first.
        reverse: bool,
    },
}

impl Sort {
    /// Reversed?
    #[must_use]
    pub fn reversed(self) -> bool {
        match self {
            Self::Trouble { reverse }
            | Self::Natural { reverse }
            | Self::Column { reverse, .. } => reverse,
        }
    }
    /// Reversed.
    #[must_use]
    pub fn turned(self) -> Self {
        match self {
            Self::Trouble { reverse } => Self::Trouble { reverse: !reverse },
            Self::Natural { reverse } => Self::Natural { reverse: !reverse },
            Self::Column { index, reverse } => Self::Column { index, reverse: !reverse },
        }
    }
}

/// Position of a list's cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cursor {
    /// On the first row, whatever it is.
    #[default]
    Top,
    /// On this row, wherever it moves.
    On {
        /// The row.
        key: RowKey,
        /// Its position when the cursor last moved, in case it disappears.
        place: usize,
    },
}

impl Cursor {
    /// The row it is pinned to.
    #[must_use]
    pub fn key(self) -> Option<RowKey> {
        match self {
            Self::Top => None,
            Self::On { key, .. } => Some(key),
        }
    }
}

/// The order is held briefly after the cursor moved, so that the next key press hits what the user
/// saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortHold {
    /// Rows keep the order of this moment ...
    pub seq: Seq,
    /// ... until this time of the newest tick.
    pub until: MonoNs,
}

/// How long the order is held.
pub const SORT_HOLD: Duration = Duration::from_secs(3);

/// What the user chose for one pane.
#[derive(Clone, Debug)]
pub struct PaneState {
    /// Which.
    pub id: PaneId,
    /// Cursor.
    pub cursor: Cursor,
    /// First row shown, when the cursor last moved.
    pub top: usize,
    /// Order.
    pub sort: Sort,
    /// The order is held.
    pub hold: Option<SortHold>,
    /// Which rows.
    pub filter: Filter,
    /// Columns that the user chose or dropped.
    pub columns: BTreeMap<&'static str, bool>,
}

impl PaneState {
    /// A pane in its initial state.
    #[must_use]
    pub fn new(id: PaneId) -> Self {
        Self {
            id,
            cursor: Cursor::Top,
            top: 0,
            sort: super::panes::pane(id).first_sort(),
            hold: None,
            filter: Filter::default(),
            columns: BTreeMap::new(),
        }
    }
}

/// Identity of a finding across ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingKey {
    /// The rule.
    pub rule: RuleId,
    /// What it is about.
    pub subject: Subject,
}

/// What a detail view shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A finding.
    Finding(FindingKey),
    /// A row of a pane.
    Row(RowKey),
    /// A rule, in full.
    Rule(RuleId),
    /// All findings, active and ended.
    Log,
}

/// A detail view that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenDetail {
    /// What it shows.
    pub what: Detail,
    /// First line shown.
    pub scroll: usize,
}

/// A line of text under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Characters.
    pub text: Vec<char>,
    /// Where the next one goes.
    pub at: usize,
}

impl Input {
    /// An input that holds `s`, cursor at the end.
    #[must_use]
    pub fn new(s: &str) -> Self {
        let text: Vec<char> = s.chars().collect();
        Self { at: text.len(), text }
    }
    /// As text.
    #[must_use]
    pub fn string(&self) -> String {
        self.text.iter().collect()
    }
}

/// What the keys mean right now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Commands.
    #[default]
    Normal,
    /// Typing a filter for a pane; `before` comes back on escape.
    Filter {
        /// The pane.
        pane: PaneId,
        /// What was typed.
        input: Input,
        /// The filter before.
        before: String,
        /// The fields that the name before the cursor may become.
        offers: Vec<&'static str>,
        /// How far back in the filters that were applied.
        back: usize,
    },
    /// Typing a command.
    Command {
        /// What was typed.
        input: Input,
        /// What the word before the cursor may become.
        offers: Vec<&'static str>,
    },
    /// Choosing the column to sort a pane by.
    Sort {
        /// The pane.
        pane: PaneId,
    },
    /// Typing a time to go to.
    Goto {
        /// What was typed.
        input: Input,
    },
    /// Choosing columns of a pane.
    Columns {
        /// The pane.
        pane: PaneId,
        /// Column under the cursor.
        at: usize,
    },
    /// Reading the keys.
    Help {
        /// First line shown.
        scroll: usize,
    },
    /// Searching in them.
    HelpSearch {
        /// What was typed.
        input: Input,
    },
}

impl Mode {
    /// Is text typed into the last line?
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        matches!(
            self,
            Self::Filter { .. }
                | Self::Goto { .. }
                | Self::Command { .. }
                | Self::HelpSearch { .. }
        )
    }
}

/// How the past is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Play {
    /// It runs.
    pub on: bool,
    /// Multiple of real time.
    pub speed: f64,
}

/// Slowest and fastest.
pub const SPEEDS: (f64, f64) = (0.25, 64.0);

impl Default for Play {
    fn default() -> Self {
        Self { on: false, speed: 1.0 }
    }
}

/// How the link to the terminal does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Frames go out immediately.
    #[default]
    Fast,
    /// Frames are slow to leave, so they are drawn less often.
    Slow,
}

/// State of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Ticks arrive.
    #[default]
    Ticking,
    /// None has arrived for this long.
    Silent(Duration),
    /// There will be no more.
    Ended(String),
}

/// A message in the last line, until a key is pressed or time has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it says.
    pub text: String,
    /// It goes away at this time of the newest tick.
    pub until: MonoNs,
}

/// The recording in progress, for the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rec {
    /// Bytes of the file.
    pub size: u64,
    /// How long the last tick took to write, or the current one has taken so far.
    pub latency: Duration,
    /// Its state.
    pub state: RecState,
}

/// How a recording does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecState {
    /// Writes.
    Ok,
    /// The disk is too slow: this many ticks were dropped.
    Behind(u64),
    /// Cannot write now, and why.
    Paused(String),
}

/// What the user chose.
#[derive(Clone, Debug)]
pub struct ViewState {
    /// Where keys go.
    pub focus: Focus,
    /// The pane that had the focus last.
    pub last_pane: PaneId,
    /// One pane or all.
    pub layout: Layout,
    /// Which moment is shown.
    pub when: When,
    /// How the past is played.
    pub play: Play,
    /// What there is beyond memory.
    pub timeline: Timeline,
    /// What the keys mean.
    pub mode: Mode,
    /// Keys of the user, which go before the others.
    pub keys: Vec<(Key, Action)>,
    /// Filters that were applied, the latest last.
    pub filters: Vec<String>,
    /// Detail views that are open, outermost first.
    pub details: Vec<OpenDetail>,
    /// Panes, in the order of the registry.
    pub panes: Vec<PaneState>,
    /// Cursor in the findings: place in the list of the shown moment, by identity.
    pub finding: Option<FindingKey>,
    /// Message.
    pub notice: Option<Notice>,
    /// Link to the terminal.
    pub link: Link,
    /// Source.
    pub flow: Flow,
    /// The recording in progress.
    pub rec: Option<Rec>,
    /// For times of day.
    pub tz: TimeZone,
    /// Waits per tick, folded for the heat map.
    pub waits: WaitLog,
    /// What was worked out for the page of a process.
    pub studies: Studies,
}

impl Default for ViewState {
    fn default() -> Self {
        Self::new(TimeZone::UTC)
    }
}

impl ViewState {
    /// The initial state.
    #[must_use]
    pub fn new(tz: TimeZone) -> Self {
        Self {
            focus: Focus::Pane(PaneId::Sockets),
            last_pane: PaneId::Sockets,
            layout: Layout::Overview,
            when: When::Live,
            play: Play::default(),
            timeline: Timeline::default(),
            mode: Mode::Normal,
            keys: Vec::new(),
            filters: Vec::new(),
            details: Vec::new(),
            panes: super::panes::PANES.iter().map(|p| PaneState::new(p.id())).collect(),
            finding: None,
            notice: None,
            link: Link::Fast,
            flow: Flow::Ticking,
            rec: None,
            tz,
            waits: WaitLog::default(),
            studies: Studies::default(),
        }
    }

    /// What was chosen for a pane.
    #[must_use]
    pub fn pane(&self, id: PaneId) -> Option<&PaneState> {
        self.panes.iter().find(|p| p.id == id)
    }
    /// The same, to change it.
    pub fn pane_mut(&mut self, id: PaneId) -> Option<&mut PaneState> {
        self.panes.iter_mut().find(|p| p.id == id)
    }
    /// Is it the past that is shown, which plays? The present is frozen, if anything.
    #[must_use]
    pub fn in_past(&self) -> bool {
        !self.timeline.has_present() || matches!(self.when, When::Rewound(_))
    }
    /// The moment that is shown, given the newest.
    #[must_use]
    pub fn shown(&self, latest: Seq) -> Seq {
        match self.when {
            When::Live => latest,
            When::Frozen(s) | When::Rewound(s) => s.min(latest),
        }
    }
}

//! The console: draws the view model on the terminal and turns keys into actions.
//!
//! [`run`] owns the terminal from entry to exit and restores it on every way out. It judges nothing
//! and computes nothing: `analysis` and `view` do that.

pub mod decode;
mod event_loop;
pub mod glyphs;
mod guard;
mod inlet;
pub mod once;
mod outlet;
mod pace;
mod play;
mod rec;
pub mod render;
mod saver;
mod summary;
pub mod terminal;
pub mod theme;
mod widgets;

use std::path::PathBuf;

use jiff::tz::TimeZone;

use crate::analysis::Analysis;
use crate::diagnose::Engine;
use crate::metrics::history::DEFAULT_BUDGET;
use crate::playback::player::Player;
use crate::playback::timeline::{Goal, Judged, Timeline};
use crate::recording::Recorder;
use crate::sample::tick::HostInfo;
use crate::sample::time::WallNs;
use crate::signals;
use crate::source::Feed;
use crate::view::action::{Action, Key};
use crate::view::panes::PaneId;
use crate::view::state::{Play, ViewState};

pub use glyphs::{GlyphChoice, GlyphSet};
pub use summary::summary;
pub use theme::{ColorChoice, ColorMode, Palette, Theme};

/// Whether mouse events are asked for. Off leaves text selection to the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MouseMode {
    /// No.
    #[default]
    Off,
    /// Yes: a click selects, a click on what is selected opens it, the wheel moves the cursor.
    On,
}

impl From<bool> for MouseMode {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

/// Settings from the caller; the console does not read the environment.
#[derive(Clone, Debug)]
pub struct ConsoleSettings {
    /// Colours; see [`ColorMode::resolve`].
    pub color: ColorMode,
    /// Which ones.
    pub palette: Palette,
    /// Keys of the user, which go before the others.
    pub keys: Vec<(Key, Action)>,
    /// The columns of panes, instead of their own.
    pub columns: Vec<(PaneId, Vec<&'static str>)>,
    /// Characters; see [`GlyphSet::resolve`].
    pub glyphs: GlyphSet,
    /// Mouse.
    pub mouse: MouseMode,
    /// Time zone for times of day.
    pub tz: TimeZone,
    /// Where `w` writes files.
    pub write_dir: PathBuf,
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            color: ColorMode::default(),
            palette: Palette::default(),
            keys: Vec::new(),
            columns: Vec::new(),
            glyphs: GlyphSet::default(),
            mouse: MouseMode::default(),
            tz: TimeZone::UTC,
            write_dir: PathBuf::from("."),
        }
    }
}

impl ConsoleSettings {
    /// The state of the screen at the start.
    #[must_use]
    pub fn view(&self) -> ViewState {
        let mut view = ViewState::new(self.tz.clone());
        view.keys.clone_from(&self.keys);
        for (pane, chosen) in &self.columns {
            if let Some(st) = view.pane_mut(*pane) {
                let all = crate::view::panes::pane(*pane).columns().into_iter();
                st.columns = all.map(|c| (c.key, chosen.contains(&c.key))).collect();
            }
        }
        view
    }
}

/// Why the console ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The user quit.
    Quit,
    /// A signal asked for it.
    Terminated,
    /// The terminal is gone.
    Hangup,
}

/// What remains when the console has ended.
#[derive(Debug)]
pub struct ExitSummary {
    /// Why it ended.
    pub reason: ExitReason,
    /// Findings in about ten lines, for the normal screen.
    pub lines: Vec<String>,
    /// Panics of other threads.
    pub panics: Vec<String>,
    /// The run, for further use.
    pub analysis: Box<Analysis>,
}

/// Why the console could not run.
#[derive(Debug, thiserror::Error)]
pub enum UiError {
    /// The terminal could not be taken over.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[source] std::io::Error),
    /// The event loop could not be set up.
    #[error("cannot set up the event loop: {0}")]
    Setup(#[source] std::io::Error),
}

/// The terminal, taken over, and the threads that serve it.
///
/// Taken before the collectors start: they can do with fewer threads and files, but the console
/// cannot run without its own.
pub struct Stage {
    runtime: tokio::runtime::Runtime,
    ends: event_loop::Ends,
    settings: ConsoleSettings,
}

impl Stage {
    /// Takes over the terminal; restores it if dropped unused.
    ///
    /// # Errors
    /// [`UiError`] if standard output is not a terminal or the system is out of threads or files.
    pub fn open(settings: ConsoleSettings) -> Result<Self, UiError> {
        terminal::install_panic_hook(std::thread::current().id());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(UiError::Setup)?;
        let on = runtime.enter();
        // Before the terminal is ours: from then on no signal may find it unguarded.
        signals::restore_first(guard::restore);
        let signals = event_loop::Signals::watch().map_err(UiError::Setup)?;
        let keyboard = guard::keyboard().map_err(UiError::Terminal)?;
        let keys = keyboard.try_clone().and_then(inlet::Inlet::start).map_err(UiError::Terminal)?;
        let terminal =
            terminal::Terminal::open(settings.mouse, keyboard).map_err(UiError::Terminal)?;
        // The threads for keys and screen hang only if the terminal does.
        signals::leave_to_others();
        drop(on);
        Ok(Self { runtime, ends: event_loop::Ends { signals, keys, terminal }, settings })
    }
}

/// Runs the console, and `recorder` along with it, until the user quits, a signal comes or the
/// terminal is gone. Prints nothing on the normal screen.
///
/// # Errors
/// [`UiError`] if signals cannot be watched.
pub fn run(
    stage: Stage,
    feed: Feed,
    analysis: Analysis,
    recorder: Option<Recorder>,
) -> Result<ExitSummary, UiError> {
    let view = stage.settings.view();
    with_terminal(stage, event_loop::Input::Live(feed), analysis, view, recorder)
}

/// Where and how a replay begins.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    /// Paused within this time span (end exclusive); without one, playing from the first tick.
    pub at: Option<(WallNs, WallNs)>,
    /// Multiple of real time.
    pub speed: f64,
}

/// The console over a recording; else as [`run`].
///
/// # Errors
/// As [`run`].
pub fn replay(
    mut player: Player,
    begin: Begin,
    settings: ConsoleSettings,
) -> Result<ExitSummary, UiError> {
    let mut view = settings.view();
    let goal = match begin.at {
        Some((from, to)) => Goal::Within(from, to),
        None if player.follow => Goal::End,
        None => Goal::Tick(0),
    };
    let tick = player.resolve(goal).unwrap_or(0);
    let glance = player.glance(tick);
    let nothing = || Analysis::new(HostInfo::default(), Engine::default(), DEFAULT_BUDGET);
    let (analysis, judged) = glance.unwrap_or_else(|| (nothing(), Judged::Whole));
    view.play = Play { on: begin.at.is_none(), speed: begin.speed };
    view.timeline = Timeline::of_tape(player.len(), judged);
    view.waits.rebuild(analysis.history());
    let stage = Stage::open(settings)?;
    with_terminal(stage, event_loop::Input::Tape(Box::new(player)), analysis, view, None)
}

fn with_terminal(
    stage: Stage,
    input: event_loop::Input,
    analysis: Analysis,
    view: ViewState,
    recorder: Option<Recorder>,
) -> Result<ExitSummary, UiError> {
    let Stage { runtime, ends, settings } = stage;
    let mut out =
        runtime.block_on(event_loop::run(input, analysis, view, settings, ends, recorder))?;
    out.panics.extend(terminal::take_panics());
    // Threads that read the terminal or signals must not keep us from leaving.
    runtime.shutdown_background();
    Ok(out)
}

//! The console: draws the view model on the terminal and turns keys into actions.
//!
//! [`run`] owns the terminal from entry to exit and gives it back on every way out. It judges
//! nothing and computes nothing: that is done in `analysis` and `view`.

mod event_loop;
pub mod glyphs;
mod input;
mod outlet;
mod pace;
mod rec;
pub mod render;
mod summary;
pub mod terminal;
pub mod theme;
mod widgets;

use std::path::PathBuf;

use jiff::tz::TimeZone;

use crate::analysis::Analysis;
use crate::recording::Recorder;
use crate::source::Feed;

pub use glyphs::GlyphSet;
pub use summary::summary;
pub use theme::{ColorChoice, ColorMode, Theme};

/// Whether mouse events are asked for. Off leaves text selection to the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MouseMode {
    /// No.
    #[default]
    Off,
    /// Yes: a click selects, a click on what is selected opens it, the wheel moves the cursor.
    On,
}

/// What the caller decides; the console does not look at the environment.
#[derive(Clone, Debug)]
pub struct ConsoleSettings {
    /// Colours; see [`ColorMode::resolve`].
    pub color: ColorMode,
    /// Characters; see [`GlyphSet::detect`].
    pub glyphs: GlyphSet,
    /// Mouse.
    pub mouse: MouseMode,
    /// For times of day.
    pub tz: TimeZone,
    /// Where `w` writes files.
    pub write_dir: PathBuf,
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            color: ColorMode::default(),
            glyphs: GlyphSet::default(),
            mouse: MouseMode::default(),
            tz: TimeZone::UTC,
            write_dir: PathBuf::from("."),
        }
    }
}

/// Why the console ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The user quit.
    Quit,
    /// A signal asked for it.
    Terminated,
    /// The terminal went away.
    Hangup,
}

/// What is left when the console has ended.
#[derive(Debug)]
pub struct ExitSummary {
    /// Why it ended.
    pub reason: ExitReason,
    /// Findings in about ten lines, for the normal screen.
    pub lines: Vec<String>,
    /// What other threads died of.
    pub panics: Vec<String>,
    /// The run, for whoever wants more of it.
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

/// Runs the console, and `recorder` beside it, until the user quits, a signal comes or the terminal goes away. Prints
/// nothing on the normal screen.
///
/// # Errors
/// [`UiError`] when standard output is no terminal or signals cannot be watched.
pub fn run(
    feed: Feed,
    analysis: Analysis,
    settings: ConsoleSettings,
    recorder: Option<Recorder>,
) -> Result<ExitSummary, UiError> {
    terminal::install_panic_hook(std::thread::current().id());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(UiError::Setup)?;
    let terminal = terminal::Terminal::open(settings.mouse).map_err(UiError::Terminal)?;
    let mut out =
        runtime.block_on(event_loop::run(feed, analysis, settings, terminal, recorder))?;
    out.panics.extend(terminal::take_panics());
    // Threads that read the terminal or signals must not keep us from leaving.
    runtime.shutdown_background();
    Ok(out)
}

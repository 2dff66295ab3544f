//! The event loop: signals, keys and ticks on one thread. Whatever is waiting is taken in, then
//! one frame is drawn, and none when nothing changed.
//!
//! When a frame takes long to leave (a slow link), frames become rarer: keys are still taken at
//! once, ticks are folded in as they come, only the drawing waits.

use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crossterm::event::{Event as TermEvent, EventStream};
use futures_util::StreamExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::pace::Pace;
use super::play::Playing;
use super::rec::Recordings;
use super::render::render;
use super::terminal::{Terminal, leave, stop_self, take_panics, window_size};
use super::{ConsoleSettings, ExitReason, ExitSummary, Theme, UiError, input, summary};
use crate::analysis::Analysis;
use crate::clock;
use crate::collect::Interest;
use crate::model::time::MonoNs;
use crate::recording::Recorder;
use crate::replay::player::{Answer, Player};
use crate::report::save::save;
use crate::source::{Event, Feed};
use crate::view::action::Effect;
use crate::view::build::build;
use crate::view::state::{Flow, Link, ViewState};
use crate::view::{click, update};

struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
    tstp: Signal,
    cont: Signal,
    winch: Signal,
}

impl Signals {
    fn watch() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
            tstp: signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?,
            cont: signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
            winch: signal(SignalKind::window_change())?,
        })
    }

    async fn next(&mut self) -> Wake {
        tokio::select! {
            _ = self.term.recv() => Wake::End(ExitReason::Terminated),
            _ = self.int.recv() => Wake::End(ExitReason::Terminated),
            _ = self.hup.recv() => Wake::End(ExitReason::Hangup),
            _ = self.tstp.recv() => Wake::Suspend,
            _ = self.cont.recv() => Wake::Continued,
            _ = self.winch.recv() => Wake::Resized,
        }
    }
}

/// What woke the loop.
enum Wake {
    End(ExitReason),
    Suspend,
    Continued,
    Resized,
    Term(Option<io::Result<TermEvent>>),
    Feed(Option<Event>),
    /// No tick for a while.
    Silence,
    /// The pause of a slow link is over.
    Frame,
    /// A frame has left.
    Sent,
    /// A moment of what is past is due.
    Play,
    /// The recording's player has an answer.
    Answer(Option<Answer>),
}

pub(super) struct Console {
    pub(super) analysis: Analysis,
    pub(super) view: ViewState,
    pub(super) player: Option<Player>,
    pub(super) playing: Playing,
    theme: Theme,
    settings: ConsoleSettings,
    terminal: Terminal,
    pub(super) recordings: Recordings,
    interest: Option<tokio::sync::watch::Sender<Arc<Interest>>>,
    pub(super) dirty: bool,
    pace: Pace,
    drawn: MonoNs,
    ticked: MonoNs,
    done: Option<ExitReason>,
}

/// What the console looks at.
pub(super) enum Input {
    /// The running kernel.
    Live(Feed),
    /// A recording.
    Tape(Box<Player>),
}

pub(super) async fn run(
    input: Input,
    analysis: Analysis,
    view: ViewState,
    settings: ConsoleSettings,
    terminal: Terminal,
    recorder: Option<Recorder>,
) -> Result<ExitSummary, UiError> {
    let mut signals = Signals::watch().map_err(UiError::Setup)?;
    // A recording has no feed: its channel is closed and never asked.
    let (events, interest, player) = match input {
        Input::Live(Feed { events, interest, host: _ }) => (events, Some(interest), None),
        Input::Tape(p) => (tokio::sync::mpsc::channel(1).1, None, Some(*p)),
    };
    let (mut events, mut player) = (events, player);
    let mut answers = player.as_mut().and_then(|p| p.answers.take());
    let mut feed_open = player.is_none();
    let mut keys = EventStream::new();
    let mut c = Console {
        view,
        player,
        playing: Playing::default(),
        theme: Theme { color: settings.color, glyphs: settings.glyphs },
        analysis,
        settings,
        terminal,
        recordings: Recordings::new(recorder),
        interest,
        dirty: true,
        pace: Pace::default(),
        drawn: clock::mono(),
        ticked: clock::mono(),
        done: None,
    };
    let line = c.terminal.line.clone();
    c.play_changed();
    c.judge_whole();
    loop {
        c.draw();
        if c.done.is_some() {
            break;
        }
        let (frame_in, silence_in, play_in) = (c.frame_in(), c.silence_in(), c.play_in());
        let wake = tokio::select! {
            biased;
            s = signals.next() => s,
            e = keys.next() => Wake::Term(e),
            () = line.done() => Wake::Sent,
            e = events.recv(), if feed_open => Wake::Feed(e),
            e = answer(&mut answers) => Wake::Answer(e),
            () = tokio::time::sleep(play_in.unwrap_or_default()), if play_in.is_some() => Wake::Play,
            () = tokio::time::sleep(frame_in.unwrap_or_default()), if frame_in.is_some() => Wake::Frame,
            () = tokio::time::sleep(silence_in.unwrap_or_default()), if silence_in.is_some() => Wake::Silence,
        };
        feed_open &= !matches!(wake, Wake::Feed(None));
        if matches!(wake, Wake::Answer(None)) {
            answers = None;
        }
        c.take(wake);
        // Whatever else is waiting belongs to the same frame.
        while c.done.is_none() {
            let Poll::Ready(e) = waiting(&mut keys).await else { break };
            c.take(Wake::Term(e));
        }
        while feed_open && let Ok(e) = events.try_recv() {
            c.take(Wake::Feed(Some(e)));
        }
    }
    // Nothing more can be said to a terminal that does not read.
    let reason = if leave() { c.done.unwrap_or(ExitReason::Quit) } else { ExitReason::Hangup };
    let mut lines = summary(&c.analysis, &c.settings.tz);
    lines.extend(c.recordings.finish());
    Ok(ExitSummary { reason, lines, panics: take_panics(), analysis: Box::new(c.analysis) })
}

/// The next answer of the player; without one, none ever.
async fn answer(from: &mut Option<tokio::sync::mpsc::UnboundedReceiver<Answer>>) -> Option<Answer> {
    match from {
        Some(f) => f.recv().await,
        None => std::future::pending().await,
    }
}

/// The next event if it is there already. Asks with this task's own waker: the stream keeps
/// the waker of the first question that it cannot answer, so a throw-away waker
/// (`now_or_never`) would lose the next key until a tick comes.
async fn waiting(keys: &mut EventStream) -> Poll<Option<io::Result<TermEvent>>> {
    std::future::poll_fn(|cx| Poll::Ready(keys.poll_next_unpin(cx))).await
}

impl Console {
    fn take(&mut self, wake: Wake) {
        match wake {
            Wake::End(reason) => self.done = Some(reason),
            Wake::Suspend => self.suspend(),
            Wake::Continued => {
                // Somebody else stopped us: the shell has put the terminal into its own mode,
                // which crossterm only sees when it leaves raw mode first.
                leave();
                self.reenter();
            }
            Wake::Resized => self.resized(),
            Wake::Frame | Wake::Answer(None) => {}
            Wake::Answer(Some(a)) => self.answered(a),
            Wake::Play => self.play(),
            Wake::Sent => self.sent(),
            Wake::Silence => {
                self.view.flow = Flow::Silent(clock::mono().since(self.ticked));
                self.dirty = true;
            }
            Wake::Term(Some(Ok(e))) => self.terminal_event(&e),
            // The terminal is gone, and with it whoever looked at it.
            Wake::Term(Some(Err(_)) | None) => self.done = Some(ExitReason::Hangup),
            Wake::Feed(Some(Event::Tick(tick))) => {
                self.ticked = clock::mono();
                self.analysis.push(tick.clone());
                let note = self.analysis.latest().map(|m| m.note());
                self.recordings.push(&tick, note.unwrap_or_default());
                update::tick(&mut self.view, &self.analysis);
                self.look_at_recordings();
                self.dirty = true;
            }
            Wake::Feed(Some(Event::End(why))) => {
                self.view.flow = Flow::Ended(why);
                self.dirty = true;
            }
            Wake::Feed(None) => {
                if !matches!(self.view.flow, Flow::Ended(_)) {
                    self.view.flow = Flow::Ended("the sampler stopped".to_owned());
                    self.dirty = true;
                }
            }
        }
    }

    fn terminal_event(&mut self, e: &TermEvent) {
        let size = self.terminal.canvas.size();
        let before = (self.view.play, self.view.when);
        let effect = match e {
            TermEvent::Key(k) => match input::key(*k) {
                Some(k) => update::key(&mut self.view, &self.analysis, size, k),
                None => return,
            },
            TermEvent::Mouse(m) => match input::mouse(*m) {
                Some(input::Mouse::Do(a)) => {
                    update::update(&mut self.view, &self.analysis, size, a)
                }
                Some(input::Mouse::Click(x, y)) => {
                    click::click(&mut self.view, &self.analysis, size, x, y)
                }
                None => return,
            },
            // SIGWINCH says the same.
            _ => return,
        };
        self.dirty = true;
        if before != (self.view.play, self.view.when) {
            self.play_changed();
        }
        match effect {
            None => {}
            Some(Effect::Seek(goal)) => self.seek(goal),
            Some(Effect::Quit) => self.done = Some(ExitReason::Quit),
            Some(Effect::Suspend) => self.suspend(),
            Some(Effect::Repaint) => self.resized(),
            Some(Effect::Record) => {
                let says = self.recordings.toggle(&self.analysis, &self.settings.write_dir);
                update::notify(&mut self.view, &self.analysis, says);
                self.look_at_recordings();
            }
            Some(Effect::Mark) => match self.recordings.mark() {
                Ok(name) => update::marked(&mut self.view, &self.analysis, &name),
                Err(why) => update::notify(&mut self.view, &self.analysis, why),
            },
            Some(Effect::Copy(text)) => {
                let sent = self.terminal.canvas.copy(&text);
                self.done = sent.err().map(|_| ExitReason::Hangup);
            }
            Some(Effect::Save { name, stamp, text }) => {
                let says = match save(&self.settings.write_dir, &name, &stamp, &text) {
                    Ok(path) => format!("written to {}", path.display()),
                    Err(e) => format!("cannot write to {}: {e}", self.settings.write_dir.display()),
                };
                update::notify(&mut self.view, &self.analysis, says);
            }
        }
    }

    fn look_at_recordings(&mut self) {
        let (rec, news) = self.recordings.look();
        self.view.rec = rec;
        for says in news {
            update::notify(&mut self.view, &self.analysis, says);
        }
    }

    fn resized(&mut self) {
        self.terminal.canvas.resize(window_size());
        self.dirty = true;
    }

    fn suspend(&mut self) {
        leave();
        stop_self();
        self.reenter();
    }

    /// Back from being stopped, by whatever means: the shell has set the terminal up its way.
    fn reenter(&mut self) {
        if self.terminal.enter().is_err() {
            self.done = Some(ExitReason::Hangup);
        }
        self.dirty = true;
    }

    /// A frame has left: how long it took says how often the next ones may come.
    fn sent(&mut self) {
        if self.terminal.line.has_failed() {
            self.done = Some(ExitReason::Hangup);
        }
        let Some(took) = self.terminal.line.took() else { return };
        self.pace.took(took);
        let link = if self.pace.is_slow() { Link::Slow } else { Link::Fast };
        self.dirty |= self.view.link != link;
        self.view.link = link;
    }

    /// Time until the next frame may be drawn, when one is waiting. While one is on its way,
    /// its leaving wakes the loop.
    fn frame_in(&self) -> Option<Duration> {
        if self.terminal.line.is_busy() {
            return None;
        }
        let waited = clock::mono().since(self.drawn);
        self.dirty.then(|| self.pace.pause().saturating_sub(waited))
    }

    /// Time until the absence of ticks is worth a word. Counted again from each frame, so that
    /// the word is kept up to date.
    fn silence_in(&self) -> Option<Duration> {
        if matches!(self.view.flow, Flow::Ended(_)) || self.player.is_some() {
            return None;
        }
        let patience = (self.analysis.host().interval * 3).max(Duration::from_secs(3));
        let now = clock::mono();
        let left = patience.saturating_sub(now.since(self.ticked));
        Some(if left.is_zero() {
            Duration::from_secs(1).saturating_sub(now.since(self.drawn))
        } else {
            left
        })
    }

    fn draw(&mut self) {
        let due = clock::mono().since(self.drawn) >= self.pace.pause();
        if !self.dirty || !due || self.done.is_some() || self.terminal.line.is_busy() {
            return;
        }
        self.dirty = false;
        let size = self.terminal.canvas.size();
        let vm = build(&self.analysis, &self.view, size);
        let theme = self.theme;
        let drawn = self.terminal.canvas.draw(vm.cursor, |buf| {
            let area = *buf.area();
            render(&vm, &theme, area, buf);
        });
        self.drawn = clock::mono();
        if drawn.is_err() {
            self.done = Some(ExitReason::Hangup);
            return;
        }
        self.tell_interest(&vm.visible);
    }

    /// Asks the collectors for detail of what is on the screen and in findings.
    fn tell_interest(&self, visible: &[(crate::model::subject::SockId, u32)]) {
        if self.interest.is_none() {
            return;
        }
        let mut want = self.analysis.interest();
        want.sockets.extend(visible.iter().map(|v| v.0).filter(|id| id.cookie != 0));
        want.inodes.extend(visible.iter().map(|v| v.1).filter(|i| *i != 0));
        want.sockets.sort_unstable();
        want.sockets.dedup();
        want.inodes.sort_unstable();
        want.inodes.dedup();
        let Some(interest) = &self.interest else { return };
        interest.send_if_modified(|old| {
            let changed = **old != want;
            if changed {
                *old = Arc::new(want);
            }
            changed
        });
    }
}

//! The event loop: signals, keys and ticks on one thread. Everything that is waiting is processed,
//! then one frame is drawn, or none if nothing changed.
//!
//! When a frame takes long to leave (a slow link), frames become rarer: keys and ticks are still
//! processed as they come, only the drawing waits.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::decode::Input as Press;
use super::inlet::Inlet;
use super::pace::Pace;
use super::play::Playing;
use super::rec::Recordings;
use super::render::render;
use super::saver::Saver;
use super::terminal::{Terminal, leave, stop_self, take_panics, window_size};
use super::{ConsoleSettings, ExitReason, ExitSummary, Theme, UiError, summary};
use crate::analysis::Analysis;
use crate::clock;
use crate::playback::player::{Answer, Player};
use crate::recording::Recorder;
use crate::sample::time::MonoNs;
use crate::session::Session;
use crate::signals;
use crate::source::live::Scheduler;
use crate::source::{Event, Feed};
use crate::view::action::{Action, Effect, Key};
use crate::view::build::build;
use crate::view::state::{Flow, Link, ViewState};
use crate::view::{click, update};

/// How long keys are processed before ticks and the screen get a turn.
const TURN: Duration = Duration::from_millis(30);

/// Signals. One that was ignored when we started stays ignored.
pub(super) struct Signals {
    term: Option<Signal>,
    int: Option<Signal>,
    hup: Option<Signal>,
    tstp: Option<Signal>,
    cont: Option<Signal>,
    winch: Option<Signal>,
    mark: Option<Signal>,
}

impl Signals {
    /// Must be called on a runtime.
    pub(super) fn watch() -> io::Result<Self> {
        let unless_ignored = |n: Number| {
            let kind = SignalKind::from_raw(n.as_raw());
            if signals::is_ignored(n) { Ok(None) } else { signal(kind).map(Some) }
        };
        Ok(Self {
            term: unless_ignored(Number::TERM)?,
            int: unless_ignored(Number::INT)?,
            hup: unless_ignored(Number::HUP)?,
            tstp: unless_ignored(Number::TSTP)?,
            cont: unless_ignored(Number::CONT)?,
            winch: unless_ignored(Number::WINCH)?,
            mark: unless_ignored(Number::USR1)?,
        })
    }

    async fn next(&mut self) -> Wake {
        tokio::select! {
            () = next(&mut self.term) => Wake::End(ExitReason::Terminated),
            () = next(&mut self.int) => Wake::End(ExitReason::Terminated),
            () = next(&mut self.hup) => Wake::End(ExitReason::Hangup),
            () = next(&mut self.tstp) => Wake::Suspend,
            () = next(&mut self.cont) => Wake::Continued,
            () = next(&mut self.winch) => Wake::Resized,
            () = next(&mut self.mark) => Wake::Mark,
        }
    }
}

/// The next signal of a kind; never returns for one that is ignored.
async fn next(s: &mut Option<Signal>) {
    match s {
        Some(s) => _ = s.recv().await,
        None => std::future::pending().await,
    }
}

/// What woke the loop.
enum Wake {
    End(ExitReason),
    Suspend,
    Continued,
    Resized,
    /// A signal asks for a mark.
    Mark,
    /// The user did something, or the terminal is gone.
    Keys(io::Result<()>),
    Feed(Option<Event>),
    /// No tick for a while.
    Silence,
    /// The pause of a slow link is over.
    Frame,
    /// A frame has left.
    Sent,
    /// A moment of the past is due.
    Play,
    /// The recording's player has an answer.
    Answer(Option<Answer>),
    /// A pane was saved, or could not be.
    Saved(String),
}

pub(super) struct Console {
    pub(super) session: Session<Recordings>,
    pub(super) view: ViewState,
    pub(super) player: Option<Player>,
    /// How often the running kernel is read.
    scheduler: Option<Scheduler>,
    pub(super) playing: Playing,
    theme: Theme,
    settings: ConsoleSettings,
    terminal: Terminal,
    saver: Saver,
    pub(super) dirty: bool,
    pace: Pace,
    drawn: MonoNs,
    ticked: MonoNs,
    done: Option<ExitReason>,
}

/// What the console shows.
pub(super) enum Input {
    /// The running kernel.
    Live(Feed),
    /// A recording.
    Tape(Box<Player>),
}

/// The console's connections to its user.
pub(super) struct Ends {
    /// Signals.
    pub signals: Signals,
    /// Input from the terminal.
    pub keys: Inlet,
    /// Output to it.
    pub terminal: Terminal,
}

pub(super) async fn run(
    input: Input,
    analysis: Analysis,
    view: ViewState,
    settings: ConsoleSettings,
    ends: Ends,
    recorder: Option<Recorder>,
) -> Result<ExitSummary, UiError> {
    let Ends { mut signals, mut keys, terminal } = ends;
    // A recording has no feed: its channel is closed and never asked.
    let session = Session::new(analysis).with_sink(Recordings::new(recorder));
    let (mut events, session, mut player, scheduler) = match input {
        Input::Live(Feed { events, interest, scheduler, host: _ }) => {
            (events, session.read_by(interest), None, Some(scheduler))
        }
        Input::Tape(p) => (tokio::sync::mpsc::channel(1).1, session, Some(*p), None),
    };
    let mut answers = player.as_mut().and_then(|p| p.answers.take());
    let mut feed_open = player.is_none();
    let mut c = Console {
        view,
        player,
        scheduler,
        playing: Playing::default(),
        theme: Theme { color: settings.color, palette: settings.palette, glyphs: settings.glyphs },
        session,
        saver: Saver::new(settings.write_dir.clone()),
        settings,
        terminal,
        dirty: true,
        pace: Pace::default(),
        drawn: clock::mono(),
        ticked: clock::mono(),
        done: None,
    };
    let line = c.terminal.line.clone();
    c.play_changed();
    c.judge_whole();
    // A recording that begins with the console is one before the first tick.
    c.view.rec = c.session.sink.running();
    loop {
        c.draw();
        if c.done.is_some() {
            break;
        }
        let (frame_in, silence_in, play_in) = (c.frame_in(), c.silence_in(), c.play_in());
        let wake = tokio::select! {
            biased;
            s = signals.next() => s,
            e = keys.next() => Wake::Keys(e),
            () = line.done() => Wake::Sent,
            e = events.recv(), if feed_open => Wake::Feed(e),
            e = answer(&mut answers) => Wake::Answer(e),
            says = c.saver.next() => Wake::Saved(says),
            () = tokio::time::sleep(play_in.unwrap_or_default()), if play_in.is_some() => Wake::Play,
            () = tokio::time::sleep(frame_in.unwrap_or_default()), if frame_in.is_some() => Wake::Frame,
            () = tokio::time::sleep(silence_in.unwrap_or_default()), if silence_in.is_some() => Wake::Silence,
        };
        feed_open &= !matches!(wake, Wake::Feed(None));
        if matches!(wake, Wake::Answer(None)) {
            answers = None;
        }
        c.take(wake);
        // Everything else that is waiting belongs to the same frame.
        if keys.read().is_err() {
            c.done = c.done.or(Some(ExitReason::Hangup));
        }
        c.obey(keys.inputs());
        while feed_open && let Ok(e) = events.try_recv() {
            c.take(Wake::Feed(Some(e)));
        }
    }
    keys.swallow();
    // Nothing more can be written to a terminal that does not read.
    let reason = if leave() { c.done.unwrap_or(ExitReason::Quit) } else { ExitReason::Hangup };
    let mut lines = summary(c.session.run(), &c.settings.tz);
    lines.extend(c.saver.finish().await);
    lines.extend(c.session.sink.finish());
    Ok(ExitSummary {
        reason,
        lines,
        panics: take_panics(),
        analysis: Box::new(c.session.into_run()),
    })
}

/// The next answer of the player; never returns without a player.
async fn answer(from: &mut Option<tokio::sync::mpsc::UnboundedReceiver<Answer>>) -> Option<Answer> {
    match from {
        Some(f) => f.recv().await,
        None => std::future::pending().await,
    }
}

impl Console {
    fn take(&mut self, wake: Wake) {
        match wake {
            Wake::End(reason) => {
                signals::heard();
                self.done = Some(reason);
            }
            Wake::Suspend => self.suspend(),
            Wake::Continued => {
                // Somebody else stopped us: the shell has set the terminal to its own mode.
                leave();
                self.reenter();
            }
            Wake::Resized => self.resized(),
            // Processed with everything else that is waiting.
            Wake::Keys(Ok(())) | Wake::Frame | Wake::Answer(None) => {}
            Wake::Mark => {
                let size = self.terminal.canvas.size();
                let effect = update::update(&mut self.view, self.session.run(), size, Action::Mark);
                if effect.is_some() {
                    self.mark(Some("SIGUSR1"));
                }
                self.dirty = true;
            }
            Wake::Answer(Some(a)) => self.answered(a),
            Wake::Saved(says) => {
                update::notify(&mut self.view, self.session.run(), says);
                self.dirty = true;
            }
            Wake::Play => self.play(),
            Wake::Sent => self.sent(),
            Wake::Silence => {
                self.view.flow = Flow::Silent(clock::mono().since(self.ticked));
                self.dirty = true;
            }
            // The terminal is gone, and so is its user.
            Wake::Keys(Err(_)) => self.done = Some(ExitReason::Hangup),
            Wake::Feed(Some(Event::Tick(tick))) => {
                self.ticked = clock::mono();
                self.session.push(tick);
                update::tick(&mut self.view, self.session.run());
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

    /// Processes input, but only for a while: ticks and the screen get their turn too.
    fn obey(&mut self, presses: &mut VecDeque<Press>) {
        // Whatever is queued before it.
        if presses.contains(&Press::Key(Key::Ctrl('c'))) {
            self.done = self.done.or(Some(ExitReason::Quit));
        }
        let begun = clock::mono();
        while self.done.is_none() && clock::mono().since(begun) < TURN {
            let Some(press) = presses.pop_front() else { return };
            self.press(&press, presses);
        }
    }

    /// Processes one input. Equal cursor steps that follow are taken together, because each looks
    /// at all rows.
    fn press(&mut self, press: &Press, behind: &mut VecDeque<Press>) {
        let size = self.terminal.canvas.size();
        let before = (self.view.play, self.view.when);
        let shown = self.shown();
        let (v, a) = (&mut self.view, self.session.run());
        let step = match press {
            Press::Key(k) => update::step(v, *k),
            Press::Wheel(step) => Some(*step),
            Press::Click(..) | Press::Paste(_) => None,
        };
        let effect = if let Some(step) = step {
            let more = behind.iter().take_while(|b| *b == press).count();
            behind.drain(..more);
            update::steps(v, a, size, step, 1 + more);
            None
        } else {
            match press {
                Press::Key(k) => update::key(v, a, size, *k),
                Press::Click(x, y) => click::click(v, a, size, *x, *y),
                Press::Paste(p) => {
                    update::paste(v, a, p);
                    None
                }
                Press::Wheel(_) => None,
            }
        };
        self.dirty = true;
        if before != (self.view.play, self.view.when) {
            self.play_changed();
        }
        if shown != self.shown() && !matches!(effect, Some(Effect::Seek(_))) {
            self.went_elsewhere();
        }
        match effect {
            None => {}
            Some(Effect::Seek(goal)) => self.seek(goal),
            Some(Effect::Quit) => self.done = Some(ExitReason::Quit),
            Some(Effect::Suspend) => self.suspend(),
            Some(Effect::Repaint) => self.resized(),
            Some(Effect::Interval(interval)) => self.set_interval(interval),
            Some(Effect::Record) => {
                let (run, recordings) = self.session.parts();
                let says = recordings.toggle(run, &self.settings.write_dir);
                update::notify(&mut self.view, self.session.run(), says);
                self.look_at_recordings();
            }
            Some(Effect::Mark) => self.mark(None),
            Some(Effect::Copy(text)) => {
                let sent = self.terminal.canvas.copy(&text);
                self.done = sent.err().map(|_| ExitReason::Hangup);
            }
            Some(Effect::Save { name, stamp, text }) => {
                if let Some(says) = self.saver.save(name, stamp, text) {
                    update::notify(&mut self.view, self.session.run(), says);
                }
            }
        }
    }

    fn set_interval(&mut self, interval: Duration) {
        let Some(scheduler) = &self.scheduler else { return };
        scheduler.set_interval(interval);
        self.session.set_interval(interval);
        // The silence so far was due to the interval before.
        self.ticked = clock::mono();
    }

    fn mark(&mut self, name: Option<&str>) {
        match self.session.sink.mark(name) {
            Ok(name) => update::marked(&mut self.view, self.session.run(), &name),
            Err(why) => update::notify(&mut self.view, self.session.run(), why),
        }
    }

    fn look_at_recordings(&mut self) {
        let (rec, news) = self.session.sink.look();
        self.view.rec = rec;
        for says in news {
            update::notify(&mut self.view, self.session.run(), says);
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

    /// Resumes after a stop of any kind: the shell has set up the terminal its own way.
    fn reenter(&mut self) {
        if self.terminal.enter().is_err() {
            self.done = Some(ExitReason::Hangup);
        }
        self.dirty = true;
    }

    /// A frame has left: how long it took decides how often the next ones may come.
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

    /// Time until the next frame may be drawn, if one is waiting. While one is being written, its
    /// end wakes the loop.
    fn frame_in(&self) -> Option<Duration> {
        if self.terminal.line.is_busy() {
            return None;
        }
        let waited = clock::mono().since(self.drawn);
        self.dirty.then(|| self.pace.pause().saturating_sub(waited))
    }

    /// Time until the absence of ticks is worth a message. Counted again from each frame, so that
    /// the message stays up to date.
    fn silence_in(&self) -> Option<Duration> {
        if matches!(self.view.flow, Flow::Ended(_)) || self.player.is_some() {
            return None;
        }
        let patience = (self.session.run().host().interval * 3).max(Duration::from_secs(3));
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
        let vm = build(self.session.run(), &self.view, size);
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
        self.session.look_at(&vm.visible, vm.watched);
    }
}

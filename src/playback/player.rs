//! The player: what a console asks of a recording, and a thread that answers.
//!
//! The console reads the next tick itself: that costs one difference. Everything that costs
//! more is done by the thread: going elsewhere, judging as if played from the beginning, the
//! timeline. A place far from what is judged already is shown at once from its last few
//! ticks, then again when its findings are known in full.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::outline::outline;
use super::seek::Judge;
use super::tape::{Played, Tape};
use super::timeline::{Goal, Judged, Outline};
use crate::analysis::Analysis;
use crate::diagnose::Engine;
use crate::recording::file::source::{Inode, inode, inode_at, open};
use crate::recording::{ReadAt, ReadError, Reader, Spool};
use crate::rights::{self, Duty};
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::{MonoNs, Seq, WallNs};

/// Ticks before a place that give it rates: the first picture.
const GLANCE: u64 = 1;
/// Ticks before a place that give it most of its findings, where the pass is not there yet.
const LOOK: u64 = 120;
/// Ticks that are judged at once without a first picture.
const CHEAP: u64 = 12;
/// Ticks that cannot be read that are passed over in one go: the console listens in between.
const LOST: usize = 64;
/// How often a recording that grows is looked at.
const REFRESH: Duration = Duration::from_millis(250);

/// Where a recording is.
#[derive(Clone)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// What comes through a pipe.
    Pipe(Arc<Spool>),
}

impl Source {
    /// The console's tape, and a reader for the thread.
    fn readers(&self) -> Result<(Tape, Reader), ReadError> {
        let mut tape = Tape::new(Reader::new(self.bytes.clone())?);
        let other = tape.reader().again()?;
        tape.reader_mut().read_ahead();
        Ok((tape, other))
    }
}

impl Origin {
    /// Opens it.
    ///
    /// # Errors
    /// When it is no recording.
    pub fn open(&self) -> Result<Reader, ReadError> {
        Reader::new(self.source()?.bytes)
    }

    fn source(&self) -> Result<Source, ReadError> {
        Ok(match self {
            Self::File(path) => {
                let file = open(path)?;
                let inode = Some(inode(&file)?);
                Source { bytes: Arc::new(file), inode }
            }
            Self::Pipe(spool) => Source { bytes: spool.clone(), inode: None },
        })
    }
    /// May more come?
    #[must_use]
    pub fn may_grow(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Pipe(spool) => spool.may_grow(),
        }
    }
}

/// What was opened: the same bytes for the console and for the thread, whatever the path means
/// by then.
struct Source {
    bytes: Arc<dyn ReadAt>,
    /// Device and inode of a file.
    inode: Option<Inode>,
}

/// An answer of the thread.
pub enum Answer {
    /// The timeline.
    Outline(Arc<Outline>),
    /// A run up to a place.
    Run {
        /// Which question.
        ticket: u64,
        /// The run.
        run: Box<Analysis>,
        /// What its findings rest on.
        judged: Judged,
    },
}

enum Question {
    Seek {
        ticket: u64,
        tick: u64,
    },
    /// The console shows this place and needs nothing more of an older question.
    Forget,
    /// Another file took the place of the recording.
    Reopen(Box<Reader>),
}

/// What comes after a tick.
pub enum Next {
    /// The next tick of the same run.
    Tick(Arc<Tick>),
    /// Another run begins with this one.
    Segment(HostInfo, Arc<Tick>),
    /// Many ticks could not be read; ask again.
    Later,
    /// Nothing yet.
    End,
}

/// The console's end.
pub struct Player {
    /// Answers, to be taken and waited for.
    pub answers: Option<UnboundedReceiver<Answer>>,
    tape: Tape,
    questions: Sender<Question>,
    ticket: u64,
    /// More ticks are waited for at the end.
    pub follow: bool,
    origin: Origin,
    source: Source,
    /// Behind this tick, those before that one cannot be read.
    passed: Option<(Seq, u64)>,
}

impl Player {
    /// Opens a recording and starts its thread.
    ///
    /// # Errors
    /// When it is no recording, or there is no thread to be had.
    pub fn open(origin: Origin, follow: bool) -> Result<Self, ReadError> {
        let source = origin.source()?;
        let (tape, reader) = source.readers()?;
        let (questions, inbox) = channel();
        let (out, answers) = unbounded_channel();
        let judge = Judge::new(Tape::new(reader), Engine::default());
        let bytes = source.bytes.clone();
        std::thread::Builder::new().name("judge".into()).spawn(move || {
            rights::restrict(Duty::Figures);
            Worker { judge, inbox, out, follow, bytes, told: 0, wanted: None }.run();
        })?;
        Ok(Self {
            answers: Some(answers),
            tape,
            questions,
            ticket: 0,
            follow,
            origin,
            source,
            passed: None,
        })
    }

    /// Ticks so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.tape.len()
    }
    /// No ticks?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tape.is_empty()
    }
    /// Looks for more ticks; true when there are. A recording that broke off looks finished.
    pub fn refresh(&mut self) -> bool {
        self.tape.refresh().unwrap_or(false)
    }
    /// Opens what has taken the place of the recording since, as a thinned one does; true when
    /// there was something. Its ticks are numbered anew: whoever shows one must ask for it again.
    pub fn reopen(&mut self) -> bool {
        let (true, Origin::File(path)) = (self.follow, &self.origin) else { return false };
        let there = inode_at(path);
        if there.is_none() || there == self.source.inode {
            return false;
        }
        // What is not whole yet is looked at again.
        let Ok(source) = self.origin.source() else { return false };
        let Ok((tape, reader)) = source.readers() else { return false };
        if tape.is_empty() {
            return false;
        }
        (self.tape, self.source, self.passed) = (tape, source, None);
        self.ticket += 1;
        let _ = self.questions.send(Question::Reopen(Box::new(reader)));
        true
    }
    /// May more ticks come?
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.follow && self.origin.may_grow()
    }
    /// When a tick was.
    pub fn mono(&mut self, tick: u64) -> Option<MonoNs> {
        self.tape.stamp(tick).map(|s| s.mono)
    }
    /// Do two ticks belong to one run?
    #[must_use]
    pub fn same_run(&self, a: u64, b: u64) -> bool {
        self.tape.segment(a).is_some() && self.tape.segment(a) == self.tape.segment(b)
    }

    /// The tick that a goal means; the nearest one where it lies outside.
    pub fn resolve(&mut self, goal: Goal) -> Option<u64> {
        let last = self.len().checked_sub(1)?;
        let tick = match goal {
            Goal::Tick(t) => t,
            Goal::End => last,
            Goal::Within(from, to) => self.within(from, to)?,
            Goal::Wall(w) => self.tape.at_wall(w)?,
            Goal::Away { from, ns } => self.away(from.min(last), ns)?,
        };
        Some(tick.min(last))
    }

    fn within(&mut self, from: WallNs, to: WallNs) -> Option<u64> {
        let before = self.tape.at_wall(from)?;
        let wall = |tape: &mut Tape, tick| tape.stamp(tick).map(|s| s.wall);
        let inside = |w: WallNs| from <= w && w < to;
        let there = wall(&mut self.tape, before).is_some_and(inside);
        let next = wall(&mut self.tape, before + 1).is_some_and(inside);
        Some(if next && !there { before + 1 } else { before })
    }

    /// By the monotonic clock inside of a run, by the wall clock beyond it.
    fn away(&mut self, from: u64, ns: i64) -> Option<u64> {
        let here = self.tape.stamp(from)?;
        let segment = self.tape.segment(from)?;
        let mono = MonoNs(here.mono.0.saturating_add_signed(ns));
        let found = self.tape.at_mono(segment, mono)?;
        let inside = self.tape.stamp(found).is_some_and(|s| s.mono <= mono)
            && self.tape.segment(found + 1).is_none_or(|s| s == segment);
        if inside || self.tape.start(found) == 0 && ns < 0 {
            let found = self.nearer(found, mono);
            // At least one tick, so that a key that is pressed does something.
            return Some(match (found == from, ns > 0) {
                (true, true) => from + 1,
                (true, false) => from.saturating_sub(1),
                (false, _) => found,
            });
        }
        let beyond = self.tape.at_wall(WallNs(here.wall.0.saturating_add(ns)))?;
        Some(if ns > 0 { beyond.max(from + 1) } else { beyond.min(from.saturating_sub(1)) })
    }

    /// Of a tick and the next one of its run, the one nearer to a time: ticks are not exactly a
    /// second apart, and ten seconds back are ten of them.
    fn nearer(&mut self, tick: u64, to: MonoNs) -> u64 {
        let same = self.same_run(tick, tick + 1);
        let off = |tape: &mut Tape, t| tape.stamp(t).map(|s| s.mono.0.abs_diff(to.0));
        let (a, b) = (off(&mut self.tape, tick), off(&mut self.tape, tick + 1));
        let next = a.zip(b).is_some_and(|(a, b)| same && b < a);
        if next { tick + 1 } else { tick }
    }

    /// A first picture of a place, or of one near it where it cannot be read, without waiting for
    /// the thread. `None`: nothing around it can be read.
    pub fn glance(&mut self, tick: u64) -> Option<(Analysis, Judged)> {
        let reader = self.tape.reader().again().ok()?;
        let mut judge = Judge::new(Tape::new(reader), Engine::default());
        if let Some(seen) = glance(&mut judge, tick, GLANCE) {
            return Some(seen);
        }
        let near = judge.tape_mut().reader_mut().near(tick)?;
        glance(&mut judge, near, GLANCE)
    }

    /// Asks for a place; the answers carry the ticket.
    pub fn seek(&mut self, tick: u64) -> u64 {
        self.ticket += 1;
        let _ = self.questions.send(Question::Seek { ticket: self.ticket, tick });
        self.ticket
    }
    /// No more answers to older questions are wanted.
    pub fn forget(&mut self) {
        self.ticket += 1;
        let _ = self.questions.send(Question::Forget);
    }

    /// What comes after tick `seq`. Passes over what cannot be read, some of it at a time.
    pub fn next(&mut self, seq: Seq) -> Next {
        let passed = self.passed.take().filter(|p| p.0 == seq).map(|p| p.1);
        self.tape.seek(passed.unwrap_or(seq.0.saturating_add(1)));
        let (mut host, mut lost) = (None, 0);
        let from = self.tape.segment(seq.0);
        loop {
            match self.tape.play() {
                Played::Segment(h) => host = Some(h),
                Played::Tick(t) => {
                    let there = self.tape.segment(t.seq.0);
                    return if there == from {
                        Next::Tick(t)
                    } else {
                        let host = host.unwrap_or_else(|| self.tape.host(there.unwrap_or(0)));
                        Next::Segment(host, t)
                    };
                }
                Played::Lost(_) if lost < LOST => lost += 1,
                Played::Lost(_) => {
                    self.passed = Some((seq, self.tape.at()));
                    return Next::Later;
                }
                Played::End => return Next::End,
            }
        }
    }
}

fn glance(judge: &mut Judge, tick: u64, back: u64) -> Option<(Analysis, Judged)> {
    let run = judge.quick(tick, back)?;
    let first = run.history().first().map(|m| (m.tick.seq.0, m.tick.wall))?;
    let whole = first.0 == judge.tape().start(tick);
    Some((run, if whole { Judged::Whole } else { Judged::Since(first.1) }))
}

/// The thread.
struct Worker {
    judge: Judge,
    inbox: Receiver<Question>,
    out: UnboundedSender<Answer>,
    follow: bool,
    bytes: Arc<dyn ReadAt>,
    /// Ticks of the outline that was told last, plus 1.
    told: u64,
    wanted: Option<(u64, u64, Stage)>,
}

/// How far a question has been answered.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    New,
    Glanced,
    Looked,
}

impl Worker {
    fn run(mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(q) => {
                    self.ask(q);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            if self.wanted.is_some_and(|w| w.2 == Stage::New) {
                self.answer();
                continue;
            }
            if self.told != self.judge.tape().len() + 1 {
                self.tell_outline();
                continue;
            }
            if self.wanted.is_some() {
                self.answer();
                continue;
            }
            if self.judge.advance(1) {
                continue;
            }
            let growing = self.follow && self.bytes.may_grow();
            let patience = if growing { REFRESH } else { Duration::from_secs(3600) };
            match self.inbox.recv_timeout(patience) {
                Ok(q) => self.ask(q),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if growing => {
                    let _ = self.judge.tape_mut().refresh();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn ask(&mut self, q: Question) {
        self.wanted = match q {
            Question::Seek { ticket, tick } => Some((ticket, tick, Stage::New)),
            Question::Forget => None,
            Question::Reopen(reader) => {
                self.judge = Judge::new(Tape::new(*reader), Engine::default());
                self.told = 0;
                None
            }
        };
        if let Some((_, tick, _)) = self.wanted
            && tick >= self.judge.tape().len()
        {
            let _ = self.judge.tape_mut().refresh();
        }
    }

    fn tell_outline(&mut self) {
        self.told = self.judge.tape().len() + 1;
        let outline = outline(self.judge.tape_mut().reader_mut());
        let _ = self.out.send(Answer::Outline(Arc::new(outline)));
    }

    /// The next step of the answer to the question.
    fn answer(&mut self) {
        let Some((ticket, tick, stage)) = self.wanted else { return };
        if stage == Stage::New && self.judge.cost(tick) > CHEAP {
            self.wanted = Some((ticket, tick, Stage::Glanced));
            if let Some((run, judged)) = glance(&mut self.judge, tick, GLANCE) {
                self.reply(ticket, run, judged);
            }
            return;
        }
        let far = self.judge.passed() < tick && self.judge.cost(tick) > 4 * LOOK;
        if stage != Stage::Looked && far {
            self.wanted = Some((ticket, tick, Stage::Looked));
            if let Some((run, judged)) = glance(&mut self.judge, tick, LOOK) {
                self.reply(ticket, run, judged);
            }
            return;
        }
        if far {
            // The pass comes first: it leaves what makes this and later places cheap.
            self.judge.advance(1);
            return;
        }
        self.wanted = None;
        let mut put_off = None;
        let run = self.judge.exact(tick, &mut || match self.inbox.try_recv() {
            Ok(q) => {
                put_off = Some(q);
                true
            }
            Err(_) => false,
        });
        if let Some(q) = put_off {
            self.ask(q);
        } else if let Some(run) = run {
            self.reply(ticket, run, Judged::Whole);
        }
    }

    fn reply(&self, ticket: u64, run: Analysis, judged: Judged) {
        let _ = self.out.send(Answer::Run { ticket, run: Box::new(run), judged });
    }
}

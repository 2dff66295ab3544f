//! `ss` with any options, and `netstat -tan`: turns physical lines into logical ones, lines into
//! snapshots, snapshots into tables.
//!
//! One socket may take one line, two (ss breaks before the details), or several (a terminal wrapped
//! them, in the middle of a word or not). A socket that appears again begins the next snapshot.

mod info;
mod socket;
mod table;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::{Line, Took};
use crate::sample::sockets::{NetnsTable, SockState};
use crate::sample::time::MonoNs;
use info::{RATES, is_flag, is_pair};
use socket::{Parsed, Socket};

/// Sockets kept in total; further ones are only counted.
pub(super) const MAX_SOCKETS: usize = 200_000;
/// `tcp_info` blocks kept in total, for sockets with a timer or bytes in a queue.
pub(super) const MAX_INFOS: usize = 50_000;
/// Snapshots kept; the oldest go.
pub(super) const MAX_SNAPSHOTS: usize = 60;
/// A logical line beyond this is cut.
const MAX_LOGICAL: usize = 16 * 1024;
/// A line of this length or more may have been wrapped by a terminal.
const WRAP: usize = 60;

/// The sockets of one moment.
#[derive(Debug, Default)]
struct Snapshot {
    rows: Vec<Socket>,
    keys: HashSet<u64>,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Ss {
    pending: String,
    /// First line of the pending socket, and how many it has.
    at: u64,
    lines: u64,
    /// Width of its last physical line.
    width: usize,
    /// The header had no State column.
    stateless: bool,
    /// Number of the command whose output this is.
    run: u32,
    snapshots: Vec<Snapshot>,
    kept: usize,
    infos: usize,
    /// Sockets seen.
    pub(super) sockets: u64,
    /// Sockets of other families, and those over the limit.
    pub(super) others: u64,
    pub(super) over: u64,
    /// Snapshots left out.
    pub(super) dropped: u64,
}

impl Ss {
    /// Does `line` belong here? `current`: the line before did.
    pub(super) fn line(&mut self, line: &Line<'_>, current: bool) -> Took {
        let text = line.text;
        if self.header(text) {
            return Took::Yes;
        }
        if self.begins(text) {
            self.pending.push_str(text.get(..MAX_LOGICAL).unwrap_or(text).trim_start());
            (self.at, self.lines, self.width) = (line.no, 1, text.len());
            return Took::Provisional;
        }
        if current && self.continues(text) {
            self.lines += 1;
            self.width = text.len();
            return Took::Provisional;
        }
        Took::No
    }

    /// Is this where the next socket, or another header, begins? The pending one must be
    /// finished first.
    pub(super) fn starts(&self, text: &str) -> bool {
        self.begins(text) || is_header(text)
    }

    fn header(&mut self, text: &str) -> bool {
        if !is_header(text) {
            return false;
        }
        self.stateless = !text.contains("State");
        self.run = self.run.wrapping_add(1);
        true
    }

    /// State (or family and state) and two numbers.
    fn begins(&self, text: &str) -> bool {
        let mut w = text.split_ascii_whitespace();
        let Some(mut word) = w.next() else { return false };
        let number = |w: Option<&str>| {
            w.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        if socket::is_netid(word) {
            match w.next() {
                Some(next) => word = next,
                None => return false,
            }
            if number(Some(word)) {
                return number(w.next()) && w.next().is_some_and(|a| a.contains(':'));
            }
        }
        if socket::state(word).is_some() {
            return number(w.next()) && number(w.next());
        }
        self.stateless
            && number(Some(word))
            && number(w.next())
            && w.next().is_some_and(|a| a.contains(':'))
            && w.next().is_some_and(|a| a.contains(':'))
    }

    /// Takes a further physical line of the pending socket.
    fn continues(&mut self, text: &str) -> bool {
        if self.pending.is_empty() || self.pending.len() + text.len() > MAX_LOGICAL {
            return false;
        }
        let indented = text.starts_with([' ', '\t']);
        let (mut pairs, mut flags, mut others) = (0_usize, 0_usize, 0_usize);
        // As long as the line before: its last word may continue on the next one.
        let full = self.width >= WRAP && text.len() >= self.width;
        let mut words = text.split_ascii_whitespace().peekable();
        while let Some(word) = words.next() {
            if is_pair(word) {
                pairs += 1;
            } else if is_flag(word) || is_rate(word) {
                flags += 1;
            } else if !(full && words.peek().is_none()) {
                others += 1;
            }
        }
        let last = self.pending.rsplit([' ', '\t']).next().unwrap_or("");
        let first = text.split_ascii_whitespace().next().unwrap_or("");
        // A terminal breaks words in two: what is not a word by itself is the rest of one.
        let wrapped = self.width >= WRAP && !indented;
        let whole = is_pair(first) || is_flag(first) || RATES.contains(&last);
        let halves = wrapped && !whole && (last.len() + first.len() < 200) && {
            let word = format!("{last}{first}");
            is_flag(&word) || info::is_sound(&word)
        };
        let incomplete = wrapped && socket::parse(&self.pending, self.stateless).is_none();
        let fits = pairs > 0 && others <= pairs + 2
            || flags > 0 && others == 0
            || halves && others <= usize::from(!is_rate(first))
            || incomplete;
        if !fits {
            return false;
        }
        let glued = halves || incomplete && !whole;
        if !glued {
            self.pending.push(' ');
        }
        self.pending.push_str(text.trim_start());
        true
    }

    /// Ends the pending socket: its first line, the number of lines, and whether they made
    /// sense. `None` when there is none.
    pub(super) fn flush(&mut self) -> Option<(u64, u64, bool)> {
        if self.pending.is_empty() {
            return None;
        }
        let parsed = socket::parse(&self.pending, self.stateless);
        self.pending.clear();
        let ok = parsed.is_some();
        match parsed {
            Some(Parsed::Inet(s)) => self.keep(*s),
            Some(Parsed::Other) => self.others += 1,
            None => {}
        }
        Some((self.at, self.lines, ok))
    }

    /// The pending text, for messages.
    pub(super) fn pending(&self) -> &str {
        &self.pending
    }

    /// A prompt: what follows may be of another option set.
    pub(super) fn command(&mut self) {
        self.run = self.run.wrapping_add(1);
    }

    fn keep(&mut self, mut s: Socket) {
        s.run = self.run;
        self.sockets += 1;
        let key = key(&s);
        let again = key.is_some_and(|k| self.snapshots.last().is_some_and(|n| n.keys.contains(&k)));
        if self.snapshots.is_empty() || again {
            if self.snapshots.len() == MAX_SNAPSHOTS {
                let old = self.snapshots.remove(0);
                self.kept -= old.rows.len();
                self.infos -= old.rows.iter().filter(|r| r.info.is_some()).count();
                self.dropped += 1;
            }
            self.snapshots.push(Snapshot::default());
        }
        if self.kept >= MAX_SOCKETS {
            self.over += 1;
            return;
        }
        let busy = s.rqueue > 0
            || s.wqueue > 0
            || s.timer.is_some()
            || s.info.as_ref().is_some_and(|i| i.backoff() > 0 || i.total_retrans() > 0);
        if s.info.is_some() && (!busy || self.infos >= MAX_INFOS) {
            s.info = None;
        }
        self.infos += usize::from(s.info.is_some());
        self.kept += 1;
        if let Some(now) = self.snapshots.last_mut() {
            now.keys.extend(key);
            now.rows.push(s);
        }
    }

    /// Number of snapshots.
    pub(super) fn samples(&self) -> usize {
        self.snapshots.len()
    }

    /// Time from the snapshot before to snapshot `i`. If nothing was sent or received in between,
    /// the age of the last packet grew by that time, and no age grows by more.
    pub(super) fn elapsed(&self, i: usize) -> Option<Duration> {
        let (old, new) = (self.snapshots.get(i.checked_sub(1)?)?, self.snapshots.get(i)?);
        let ages = |s: &Socket| Some((key(s)?, s.info.as_ref()?.ages()));
        let before: HashMap<u64, [u32; 3]> = old.rows.iter().filter_map(ages).collect();
        let grown = new.rows.iter().filter_map(ages).filter_map(|(k, now)| {
            let then = before.get(&k)?;
            now.iter().zip(then).map(|(n, t)| n.saturating_sub(*t)).max()
        });
        grown
            .max()
            .filter(|ms| (100..=86_400_000).contains(ms))
            .map(|ms| Duration::from_millis(ms.into()))
    }

    /// Snapshot `i` as the collector would have read it at `at`.
    pub(super) fn table(&self, i: usize, at: MonoNs) -> Option<NetnsTable> {
        // What one socket of a run shows, ss knows for all of them.
        let top = self.snapshots.iter().flat_map(|n| &n.rows);
        let top = top.filter_map(|r| r.info.as_ref()).map(|i| i.top).max().unwrap_or(0);
        Some(table::build(&self.snapshots.get(i)?.rows, top, at))
    }
}

/// A number that may follow `send`.
fn is_rate(word: &str) -> bool {
    super::number::bps(word).is_some()
}

/// What identifies a connection. A port may have many listeners (SO_REUSEPORT).
fn key(s: &Socket) -> Option<u64> {
    (s.state != SockState::LISTEN && s.state != SockState::CLOSE).then(|| {
        let mut h = DefaultHasher::new();
        (s.local, s.lport, s.remote, s.rport, s.cookie, s.proto).hash(&mut h);
        h.finish()
    })
}

/// The header line of ss and netstat, or one of netstat's titles.
fn is_header(text: &str) -> bool {
    (text.contains("Recv-Q") && text.contains("Send-Q"))
        || text.starts_with("Active Internet connections")
        || text.starts_with("Active UNIX domain sockets")
}

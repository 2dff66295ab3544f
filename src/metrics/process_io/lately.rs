//! What processes and disks moved in the last seconds, and which of the processes that can be of a
//! disk.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Bytes, Flow, ProcessBytes};
use crate::metrics::MIN_SPAN;
use crate::metrics::disks::DiskFigures;
use crate::metrics::disks::layers::{Layers, Lies, is_loop};
use crate::metrics::history::{Snapshot, Window};
use crate::metrics::rate::{per_second, ratio};
use crate::sample::disks::DiskClass;
use crate::sample::process_io::OpenDisks;
use crate::sample::subject::{DiskId, TaskId};
use crate::sample::time::MonoNs;

/// A disk with this part of the host's traffic has all of it, as far as shares go.
const ALONE: f64 = 0.9;
/// Processes may be charged for so much more than the disks moved: pages that are still dirty when
/// the interval ends, and rounding.
const MORE: f64 = 1.1;
/// Those who may be behind a disk's traffic must be charged for more than this part of it.
const HALF: f64 = 0.5;

/// What processes and disks moved in the last seconds.
#[derive(Clone, Debug)]
pub struct Lately<'a> {
    /// How long that was.
    pub lasted: Duration,
    /// Processes that moved anything, in the order of pids.
    pub users: Vec<User<'a>>,
    /// All of them together.
    pub processes: Bytes,
    /// What the disks moved for file systems and programs: a volume counts, the disks below it do
    /// not, and what goes through a loop device counts where it ends up.
    pub disks: Bytes,
    /// Processes not read in the last round for lack of budget.
    pub unread: u32,
    /// Processes that we may not read.
    pub denied: u32,
    per_disk: BTreeMap<DiskId, Bytes>,
    /// The same without layers: what the disks at the bottom did.
    bottom: Bytes,
    loops: Vec<DiskId>,
    layers: Layers<'a>,
}

/// A process and what it moved in the last seconds.
#[derive(Clone, Debug)]
pub struct User<'a> {
    /// The latest figures of it.
    pub latest: &'a ProcessBytes,
    /// When it moved last.
    pub at: MonoNs,
    /// What it moved.
    pub bytes: Bytes,
    /// Where its open files were, newest first, where that was looked at.
    open: Vec<&'a OpenDisks>,
}

/// Where a process has files open, as seen from a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All on this disk.
    Here,
    /// Some on this disk.
    HereToo,
    /// On other disks, all of them.
    Elsewhere,
    /// Not known: it was not looked at, had none open when it was, or has some where the disk is
    /// not known.
    Unknown,
}

/// The processes that may be behind a disk's traffic.
#[derive(Clone, Debug)]
pub struct Suspects<'u, 'a> {
    /// In the order of pids.
    pub users: Vec<&'u User<'a>>,
    /// What shares of them can be stated of, ...
    pub whole: Whole,
    /// ... how many bytes that is, ...
    pub total: f64,
    /// ... and how many of them processes were charged for.
    pub charged: f64,
}

/// What the share of a process is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// The traffic of this disk: it is nearly all there was.
    Disk,
    /// That of all disks.
    Disks,
    /// What processes were charged for: more than the disks moved.
    Processes,
}

impl<'a> Lately<'a> {
    /// Of the last `span`, or as much as was seen. `None` if processes or disks were not read.
    #[must_use]
    pub fn new(w: &Window<'a>, span: Duration) -> Option<Self> {
        // A moment's figures are of the time before it, and the first one has none.
        let from = w.tick.mono.back(span).max(w.history.first()?.tick.mono);
        let moments = || w.history.back_from(w.tick.seq).take_while(move |m| m.tick.mono > from);
        let read = |m: &Snapshot| Some((m.tick.mono, m.derived.process_io.clone()?));
        let (until, newest) = moments().find_map(read)?;
        let lasted = w.tick.mono.since(from);
        let mut this = Self {
            lasted,
            users: Vec::new(),
            processes: Bytes::default(),
            disks: Bytes::default(),
            unread: newest.unread,
            denied: newest.denied,
            per_disk: BTreeMap::new(),
            bottom: Bytes::default(),
            loops: Vec::new(),
            layers: Layers::default(),
        };
        let mut users: BTreeMap<TaskId, User<'a>> = BTreeMap::new();
        for m in moments() {
            for p in m.derived.process_io.iter().flat_map(|f| &f.processes) {
                let bytes = p.bytes.times(inside(m.tick.mono, p.dt, from));
                this.processes.add(bytes);
                let new = || User {
                    latest: p,
                    at: m.tick.mono,
                    bytes: Bytes::default(),
                    open: Vec::new(),
                };
                let user = users.entry(p.task).or_insert_with(new);
                user.bytes.add(bytes);
                // A look counts until the next one.
                user.open.extend(p.open.as_deref().filter(|o| user.open.last() != Some(o)));
            }
        }
        this.users = users.into_values().collect();
        this.add_disks(w, from, until.since(from))?;
        Some(this)
    }

    /// Processes were charged for so long.
    fn add_disks(&mut self, w: &Window<'a>, from: MonoNs, charged_for: Duration) -> Option<()> {
        let newest = w.recent(usize::MAX).find_map(|d| d.disks.as_deref())?;
        let mut moments = w.history.back_from(w.tick.seq);
        let mounts = moments.find_map(|m| m.tick.samples.filesystems.as_ref());
        let filesystems = mounts.map_or(&[][..], |s| &s.data.filesystems);
        self.layers = Layers { disks: newest, filesystems };
        let (mut until, mut covered) = (None, 0.0_f64);
        // Figures span a second at least, whatever the interval: those that follow one another.
        for f in w.recent(usize::MAX).take_while(|f| f.mono > from) {
            let Some(disks) = f.disks.as_deref() else { continue };
            if until.is_some_and(|t: MonoNs| t.since(f.mono) < MIN_SPAN) {
                continue;
            }
            until = Some(f.mono);
            let mut longest = 0.0_f64;
            for d in disks {
                let each = Bytes { read: 1024.0 * d.rkb_s, written: 1024.0 * d.wkb_s };
                let seconds = d.dt.as_secs_f64() * inside(f.mono, d.dt, from);
                self.per_disk.entry(d.id).or_default().add(each.times(seconds));
                longest = longest.max(seconds);
            }
            covered += longest;
        }
        // Without the latest reading, or with two that come late, this is not the time in which
        // processes are charged: a second of ten is what tells one disk from all.
        let whole = ratio(charged_for.as_secs_f64(), covered).unwrap_or(1.0).clamp(0.5, 2.0);
        for bytes in self.per_disk.values_mut() {
            *bytes = bytes.times(whole);
        }
        let by_class = |d: &&DiskFigures| d.attrs.class != DiskClass::Memory;
        let parents: Vec<&str> = newest.iter().filter_map(|d| d.attrs.parent.as_deref()).collect();
        for d in newest.iter().filter(by_class) {
            let bytes = self.per_disk.get(&d.id).copied().unwrap_or_default();
            if is_loop(d) {
                self.loops.push(d.id);
                continue;
            }
            if d.attrs.holders.is_empty() && !parents.contains(&&*d.name) {
                self.disks.add(bytes);
            }
            if d.attrs.slaves.is_empty() && d.attrs.class != DiskClass::Partition {
                self.bottom.add(bytes);
            }
        }
        Some(())
    }

    /// What this disk moved.
    #[must_use]
    pub fn of_disk(&self, id: DiskId) -> Bytes {
        self.per_disk.get(&id).copied().unwrap_or_default()
    }

    /// Where a process has files open through which bytes go that way. It may open, write and close
    /// between two looks: one that had none open for it may be anywhere.
    #[must_use]
    pub fn place(&self, user: &User<'_>, disk: DiskId, flow: Flow) -> Place {
        let (mut upon, mut apart, mut unknown) = (false, false, user.open.is_empty());
        for look in &user.open {
            let through = look.on.iter().filter(|o| flow.goes(o.access));
            unknown |= look.more || through.clone().next().is_none();
            for o in through {
                match self.layers.lies(o.dev, disk) {
                    Lies::Upon => upon = true,
                    Lies::Apart => apart = true,
                    Lies::Unknown => unknown = true,
                }
            }
        }
        match (upon, apart, unknown) {
            (true, false, false) => Place::Here,
            (true, _, _) => Place::HereToo,
            (false, true, false) => Place::Elsewhere,
            (false, _, _) => Place::Unknown,
        }
    }

    /// What shares of this disk's users can be stated of, and how many bytes that is.
    #[must_use]
    pub fn whole(&self, id: DiskId, flow: Flow) -> (Whole, f64) {
        let this = self.of_disk(id).of(flow);
        let all = self.bottom.of(flow);
        // What goes through a loop device ends up on a disk at the bottom, and is counted there.
        let all = if self.loops.contains(&id) { this.max(all) } else { all };
        let charged = self.processes.of(flow);
        let (what, traffic) = if this > 0.0 && this >= ALONE * all {
            (Whole::Disk, this)
        } else {
            (Whole::Disks, self.disks.of(flow))
        };
        if charged > MORE * traffic { (Whole::Processes, charged) } else { (what, traffic) }
    }

    /// Who may be behind this disk's traffic: everybody but those who have all their files on other
    /// disks.
    #[must_use]
    pub fn suspects(&self, id: DiskId, flow: Flow) -> Suspects<'_, 'a> {
        let (whole, total) = self.whole(id, flow);
        let charged = self.processes.of(flow);
        let everybody = Suspects { users: self.users.iter().collect(), whole, total, charged };
        let this = self.of_disk(id).of(flow);
        let (mut users, mut here, mut sum) = (Vec::new(), 0.0, 0.0);
        for u in &self.users {
            let bytes = u.bytes.of(flow);
            let place = self.place(u, id, flow);
            if place != Place::Elsewhere {
                users.push(u);
                sum += bytes;
            }
            here += if place == Place::Here { bytes } else { 0.0 };
        }
        // Somebody moves most of what this disk does through files that nobody saw open: by their
        // mapping in memory, in a child that has ended, or beside a log that is always open. Unless
        // all of them together have not moved that much.
        let all: f64 = self.users.iter().map(|u| u.bytes.of(flow)).sum();
        if sum <= HALF * this && all > HALF * this {
            return everybody;
        }
        if sum > 0.0 && here >= ALONE * sum && sum <= MORE * this {
            return Suspects { users, whole: Whole::Disk, total: this, charged: sum };
        }
        Suspects { users, ..everybody }
    }

    /// Bytes per second.
    #[must_use]
    pub fn rate(&self, bytes: f64) -> f64 {
        per_second(bytes, self.lasted).unwrap_or(0.0)
    }
}

/// The part of an interval that ends `at` which is not before `from`.
fn inside(at: MonoNs, dt: Duration, from: MonoNs) -> f64 {
    ratio(at.since(from).as_secs_f64(), dt.as_secs_f64()).unwrap_or(1.0).min(1.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

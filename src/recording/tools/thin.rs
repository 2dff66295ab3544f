//! Downsamples older groups: rewrites a recording group by group, keeping the newest groups as they
//! are, one tick per step of older ones, and dropping the oldest.
//!
//! The result is what a recorder with a longer interval would have written, in a segment that says
//! so ([`HostInfo::interval`], [`HostInfo::thinned_from`]): rates and rules see the longer
//! interval, and no tick that was left out is taken for a gap. What the groups' indexes say about
//! all their ticks is kept: figures, findings, events.

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::amount;
use crate::recording::codec::Stamp;
use crate::recording::file::damage::intact;
use crate::recording::file::format::GROUP_TICKS;
use crate::recording::file::index::{GroupEntry, GroupIndex};
use crate::recording::file::reader::Reader;
use crate::recording::file::writer::Writer;
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::{Samples, Stamped};

/// Steps that can be asked for.
pub const MAX_TIERS: usize = 5;
/// The youngest age at which ticks may go.
pub const LEAST_AGE: Duration = Duration::from_secs(60);

/// How coarse the ticks of an age are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tier {
    /// One tick in this time is kept; zero: all.
    pub step: Duration,
    /// Up to this age.
    pub until: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Keep,
    /// One tick per this time is kept.
    Thin(Duration),
    Drop,
}

/// The steps, by age; beyond the last there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers([Option<Tier>; MAX_TIERS]);

impl Tiers {
    /// Steps and ages must both ascend; `None` if they do not, or are too many.
    pub fn new(tiers: &[Tier]) -> Option<Self> {
        let ascend = tiers.windows(2).all(|w| w[0].step < w[1].step && w[0].until < w[1].until);
        let fits = ascend && (1..=MAX_TIERS).contains(&tiers.len());
        fits.then(|| Self(std::array::from_fn(|i| tiers.get(i).copied())))
    }

    /// What becomes of a group recorded on `host`, when the last tick is at `now` on `here`.
    pub fn fate(&self, g: &GroupEntry, host: &HostInfo, now: Stamp, here: &HostInfo) -> Fate {
        // Within a boot the monotonic clock: nobody can set it.
        let age = if host.boot_id == here.boot_id && !here.boot_id.is_empty() {
            now.mono.since(g.last.mono)
        } else {
            let ns = now.wall.0.saturating_sub(g.last.wall.0);
            Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
        };
        match self.0.iter().flatten().find(|t| age < t.until) {
            None => Fate::Drop,
            Some(t) if t.step > host.interval => Fate::Thin(t.step),
            Some(_) => Fate::Keep,
        }
    }
}

impl FromStr for Tiers {
    type Err = String;

    /// `STEP:AGE,..`, both ascending; `all` is a step, too.
    fn from_str(text: &str) -> Result<Self, String> {
        let steps = Duration::from_secs(1)..=Duration::from_secs(3600);
        let mut tiers: Vec<Tier> = Vec::new();
        for pair in text.split(',') {
            let (step, until) = pair
                .split_once(':')
                .ok_or_else(|| format!("expected STEP:AGE, for example 10s:1d, not '{pair}'"))?;
            let step = match step.trim() {
                "all" => Duration::ZERO,
                t => amount::duration(t, steps.clone(), "all, or 1s to 1h")?,
            };
            let until = amount::days(until, LEAST_AGE, "1m to 366d")?;
            if tiers.last().is_some_and(|l| step <= l.step || until <= l.until) {
                return Err("steps and ages must increase, as in all:1h,10s:1d".to_owned());
            }
            tiers.push(Tier { step, until });
        }
        Self::new(&tiers).ok_or_else(|| format!("at most {MAX_TIERS} steps are allowed"))
    }
}

/// A recording that is being written anew. Works in steps of one group, so that whoever calls
/// it can do something else in between, such as go on with the old one.
pub struct Thinning<W: Write> {
    reader: Reader,
    out: Writer<W>,
    tiers: Tiers,
    now: Stamp,
    here: HostInfo,
    done: usize,
    /// Events outside of groups that are done.
    events: usize,
    hosts: Vec<HostInfo>,
    /// Segment of the old recording that the newest segment is of.
    source: u32,
    /// Last tick of the newest segment.
    last: Option<Stamp>,
    /// Figures and findings of all ticks that the open group stands for.
    all: GroupIndex,
}

impl<W: Write> Thinning<W> {
    /// Begins; `now` is the last tick of the recording, which sits on `here`.
    pub fn start(
        reader: Reader,
        out: W,
        tiers: Tiers,
        now: Stamp,
        here: &HostInfo,
    ) -> io::Result<Self> {
        let stays = |g: &&GroupEntry| {
            tiers.fate(g, &host_of(&reader, g.segment, here), now, here) != Fate::Drop
        };
        let (source, host) = match reader.groups().iter().find(stays) {
            Some(g) => {
                let host = host_of(&reader, g.segment, here);
                (g.segment, coarse(tiers.fate(g, &host, now, here), host))
            }
            None => (u32::MAX, here.clone()),
        };
        let out = Writer::new(out, &host)?;
        Ok(Self {
            reader,
            out,
            tiers,
            now,
            here: here.clone(),
            done: 0,
            events: 0,
            hosts: vec![host],
            source,
            last: None,
            all: GroupIndex::default(),
        })
    }

    /// Groups that are whole and not done yet.
    pub fn left(&self) -> usize {
        let groups = self.reader.groups();
        let open = groups.last().is_some_and(|g| g.index.is_none());
        groups.len().saturating_sub(self.done + usize::from(open))
    }

    /// Takes in what was recorded since.
    pub fn refresh(&mut self) -> io::Result<()> {
        self.reader.refresh()?;
        Ok(())
    }

    /// Does one group. After an error the new recording is unusable.
    pub fn step(&mut self) -> io::Result<()> {
        let Some(g) = self.reader.groups().get(self.done).copied() else { return Ok(()) };
        let host = host_of(&self.reader, g.segment, &self.here);
        let fate = self.tiers.fate(&g, &host, self.now, &self.here);
        if fate != Fate::Drop {
            self.segment(coarse(fate, host), g.segment, g.first)?;
        }
        self.events_before(g.first, fate == Fate::Drop)?;
        match fate {
            Fate::Keep => {
                self.flush()?;
                let raw = self.reader.raw_group(self.done)?;
                self.out.copy_group(raw, &g)?;
                self.last = Some(g.last);
            }
            Fate::Thin(step) => self.thin(&g, step)?,
            Fate::Drop => self.flush()?,
        }
        self.done += 1;
        Ok(())
    }

    /// The new recording, to be continued, and the hosts of its segments.
    pub fn finish(mut self) -> io::Result<(Writer<W>, Vec<HostInfo>)> {
        self.flush()?;
        for r in self.reader.loose_events().get(self.events..).unwrap_or_default() {
            self.out.event(r.at, r.event.clone())?;
        }
        if self.hosts.last() != Some(&self.here) {
            self.out.segment(&self.here)?;
            self.hosts.push(self.here);
        }
        Ok((self.out, self.hosts))
    }

    /// Begins another segment, unless what comes continues the newest one.
    fn segment(&mut self, host: HostInfo, source: u32, first: Stamp) -> io::Result<()> {
        let same = self.hosts.last() == Some(&host);
        // Thinned before, and more of the same run follows. Another run starts counting again.
        let joins = self.last.is_some_and(|l| first.seq > l.seq && first.mono > l.mono);
        if !same || self.source != source && !joins {
            self.flush()?;
            self.out.segment(&host)?;
            self.hosts.push(host);
            self.last = None;
        }
        self.source = source;
        Ok(())
    }

    /// Writes the events between groups, or skips them.
    fn events_before(&mut self, first: Stamp, drop: bool) -> io::Result<()> {
        while let Some(r) = self.reader.loose_events().get(self.events) {
            if r.at.wall > first.wall {
                break;
            }
            if !drop {
                self.out.event(r.at, r.event.clone())?;
            }
            self.events += 1;
        }
        Ok(())
    }

    /// The first tick of each step goes into the open group, or into a new one.
    fn thin(&mut self, g: &GroupEntry, step: Duration) -> io::Result<()> {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        // Without its index a group has its ticks only.
        let index = intact(self.reader.index(self.done))?.unwrap_or_default();
        let first = self.reader.first_of(self.done).unwrap_or(0);
        for (n, at) in (first..).zip(index.ticks.iter().map(|t| t.at)).take(g.ticks as usize) {
            // Times, not distances: steps do not depend on where a group begins, and the ticks
            // of a coarser step are among those of a finer one.
            if self.last.is_some_and(|l| l.mono.0 / step == at.mono.0 / step) {
                continue;
            }
            // The rest of a damaged group is lost.
            let Some(tick) = intact(self.reader.tick(n))? else { break };
            if self.out.open_ticks() >= GROUP_TICKS as usize {
                self.flush()?;
            }
            self.out.coarse_tick(&lonely(tick))?;
            self.last = Some(at);
        }
        self.all.note_group(&index);
        for r in &index.events {
            self.out.event(r.at, r.event.clone())?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.end_coarse(std::mem::take(&mut self.all))
    }
}

fn host_of(r: &Reader, segment: u32, here: &HostInfo) -> HostInfo {
    r.host_of(segment).unwrap_or(here).clone()
}

fn coarse(fate: Fate, host: HostInfo) -> HostInfo {
    match fate {
        Fate::Thin(interval) => {
            let before = host.thinned_from.unwrap_or(host.interval);
            HostInfo { interval, thinned_from: Some(before), ..host }
        }
        Fate::Keep | Fate::Drop => host,
    }
}

/// The tick without what its rows say of ticks that are left out: that a thread stood still until
/// a moment before. Its rate is then the mean since its last row that is kept.
fn lonely(tick: Arc<Tick>) -> Arc<Tick> {
    let Some(sched) = &tick.samples.sched else { return tick };
    if sched.data.threads.iter().all(|t| t.still_ms == 0) {
        return tick;
    }
    let mut sched = Stamped::clone(sched);
    for t in &mut sched.data.threads {
        t.still_ms = 0;
    }
    let samples = Samples { sched: Some(Arc::new(sched)), ..tick.samples.clone() };
    Arc::new(Tick { samples, ..Tick::clone(&tick) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::sched::{SchedSample, ThreadSched};
    use crate::sample::time::Span;

    fn tick(still_ms: u32) -> Arc<Tick> {
        let thread = ThreadSched { run_ns: 7_000, still_ms, ..ThreadSched::default() };
        let data = SchedSample { threads: vec![thread], ..SchedSample::default() };
        let sched = Stamped { span: Span::default(), cpu: Duration::ZERO, data };
        let samples = Samples { sched: Some(Arc::new(sched)), ..Samples::default() };
        Arc::new(Tick { samples, ..Tick::default() })
    }

    #[test]
    fn a_kept_tick_says_nothing_of_those_between() {
        let data = |t: Arc<Tick>| t.samples.sched.as_ref().unwrap().data.clone();
        assert_eq!(data(lonely(tick(4000))), data(tick(0)));
        let before = tick(0);
        assert!(Arc::ptr_eq(&before, &lonely(before.clone())), "nothing to change, nothing made");
    }

    #[test]
    fn steps_and_ages_grow() {
        let tier = |step, until| Tier {
            step: Duration::from_secs(step),
            until: Duration::from_secs(until),
        };
        let want = Tiers::new(&[tier(0, 3600), tier(10, 86_400), tier(60, 7 * 86_400)]).unwrap();
        assert_eq!("all:1h,10s:1d,60s:7d".parse(), Ok(want));
        assert_eq!("1s:1h".parse(), Ok(Tiers::new(&[tier(1, 3600)]).unwrap()));
        assert!(Tiers::new(&[]).is_none());
        for bad in [
            "",
            "1s",
            "all",
            "1h:",
            ":1h",
            "10s:1d,all:1h",
            "10s:1d,60s:1h",
            "10s:1d,10s:2d",
            "10s:1d,60s:1d",
            "500ms:1h",
            "2h:1d",
            "all:30s",
            "all:1h,",
            "1s:1m,2s:2m,3s:3m,4s:4m,5s:5m,6s:6m,7s:7m",
        ] {
            assert!(bad.parse::<Tiers>().is_err(), "{bad}");
        }
    }
}

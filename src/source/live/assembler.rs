//! Puts the readings of all roles together into ticks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::schedule::{Schedule, Scheduler};
use super::{ROLES, Report};
use crate::allocator::{self, GIVE_BACK};
use crate::clock;
use crate::sample::tick::{CollectorHealth, Gap, HealthState, Tick};
use crate::sample::time::{MonoNs, Seq};
use crate::sample::{CollectorId, Role, Samples, Signal};
use crate::source::Event;

/// Waits for the roles of each deadline, and makes a tick of what came.
pub(super) struct Assembler {
    /// When it began.
    base: MonoNs,
    scheduler: Scheduler,
    /// The one that is served.
    schedule: Schedule,
    inbox: Receiver<Report>,
    out: mpsc::Sender<Event>,
    pending: Samples,
    reported: Vec<Role>,
    /// Roles that are alive: their thinning, and the tick of their next reading.
    alive: BTreeMap<Role, (u32, u64)>,
    late: Vec<Role>,
    health: BTreeMap<CollectorId, CollectorHealth>,
    last_fresh: BTreeMap<CollectorId, MonoNs>,
    failed: BTreeMap<CollectorId, String>,
    /// Number of the deadline that is being served; runs ahead of `seq` when ticks are lost.
    k: u64,
    /// The deadline within whose interval the tick before was put together, and by which schedule.
    before: Option<(Schedule, u64)>,
    seq: u64,
    /// Ticks that nobody will see since the last one that somebody does.
    missing: u32,
}

impl Assembler {
    pub(super) fn new(
        scheduler: Scheduler,
        inbox: Receiver<Report>,
        out: mpsc::Sender<Event>,
    ) -> Self {
        let schedule = scheduler.now();
        Self {
            base: schedule.base,
            scheduler,
            schedule,
            inbox,
            out,
            pending: Samples::default(),
            reported: Vec::new(),
            alive: ROLES.iter().map(|r| (*r, (1, 0))).collect(),
            late: Vec::new(),
            // Late until opened: a role that hangs there must not be missing from the list.
            health: CollectorId::ALL.iter().map(|id| (*id, opening(*id))).collect(),
            last_fresh: BTreeMap::new(),
            failed: BTreeMap::new(),
            k: 0,
            before: None,
            seq: 0,
            missing: 0,
        }
    }

    pub(super) fn run(mut self) {
        let mut freed = 0;
        loop {
            let due = self.wait();
            // At the first tick a slow box may need longer: wait for it, the screen does not.
            let grace = if self.k == 0 {
                self.schedule.interval
            } else {
                (self.schedule.interval / 2).min(Duration::from_millis(500))
            };
            if !self.gather(due + grace) || !self.emit(clock::mono()) {
                return;
            }
            // Here nobody waits for it: the tick is on its way, the next one is not due.
            freed += 1;
            if freed == GIVE_BACK {
                allocator::give_back();
                freed = 0;
            }
            self.follow();
            self.k = self.schedule.next_due(clock::mono(), self.k, 1);
        }
    }

    /// Until the next tick is due, or the one that takes its place when the interval changes
    /// meanwhile; returns when it was due.
    fn wait(&mut self) -> MonoNs {
        while !self.scheduler.sleep(self.schedule, self.schedule.deadline(self.k)) {
            self.follow();
            self.k = self.schedule.replanned(clock::mono(), self.k);
        }
        self.schedule.deadline(self.k)
    }

    /// Goes on by the schedule that holds now. After a change all roles read at its first
    /// deadline, however rarely they did before.
    fn follow(&mut self) {
        let now = self.scheduler.now();
        if now != self.schedule {
            self.schedule = now;
            for (every, next) in self.alive.values_mut() {
                (*every, *next) = (1, (*next).min(now.first));
            }
        }
    }

    /// Takes in reports until every role that is due delivered, or until `grace`. False when
    /// all threads are gone.
    fn gather(&mut self, grace: MonoNs) -> bool {
        loop {
            if self.waiting_for().is_empty() {
                while let Ok(r) = self.inbox.try_recv() {
                    self.take(r);
                }
                return true;
            }
            let left = grace.since(clock::mono());
            match self.inbox.recv_timeout(left) {
                Ok(r) => self.take(r),
                Err(RecvTimeoutError::Timeout) => {
                    self.late = self.waiting_for();
                    return true;
                }
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    fn waiting_for(&self) -> Vec<Role> {
        self.alive
            .iter()
            .filter(|(r, (_, next))| {
                *next <= self.k && !self.reported.contains(r) && !self.late.contains(r)
            })
            .map(|(r, _)| *r)
            .collect()
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Opened { role, off, on } => {
                if on.is_empty() {
                    self.alive.remove(&role);
                }
                for (id, reason, remedy) in off {
                    let signals =
                        vec![Signal::missing(id.name(), "", reason.clone(), remedy.clone())];
                    let state = HealthState::Off { reason, remedy };
                    self.health.insert(id, CollectorHealth { id, state, signals });
                }
                for id in on {
                    self.health.insert(id, opening(id));
                }
            }
            Report::Read { role, samples, failed, signals, every, next } => {
                self.pending.merge(samples);
                self.reported.push(role);
                self.late.retain(|r| *r != role);
                self.alive.insert(role, (every, next));
                for (id, s) in signals {
                    self.failed.remove(&id);
                    if let Some(h) = self.health.get_mut(&id) {
                        h.signals = s;
                    }
                }
                self.failed.extend(failed);
            }
            Report::Gone { role, reason, remedy } => {
                self.alive.remove(&role);
                let ids = CollectorId::ALL.iter().filter(|id| id.role() == role);
                for id in ids {
                    let (reason, remedy) = (reason.clone(), remedy.to_owned());
                    let state = HealthState::Off { reason, remedy };
                    self.health
                        .insert(*id, CollectorHealth { id: *id, state, signals: Vec::new() });
                }
            }
        }
    }

    /// Puts together what arrived up to `now` and sends it. False when nobody listens any more.
    fn emit(&mut self, now: MonoNs) -> bool {
        let samples = std::mem::take(&mut self.pending);
        self.reported.clear();
        self.count_missed(now);
        let mut health = Vec::new();
        for h in self.health.values_mut() {
            if !matches!(h.state, HealthState::Off { .. }) {
                h.state = state_of(
                    h.id,
                    &samples,
                    &self.failed,
                    &mut self.last_fresh,
                    now,
                    &self.alive,
                    self.base,
                );
            }
            health.push(h.clone());
        }
        let gap = (self.missing > 0).then_some(Gap { ticks: self.missing });
        let tick =
            Tick { seq: Seq(self.seq), mono: now, wall: clock::wall(), samples, health, gap };
        match self.out.try_send(Event::Tick(Arc::new(tick))) {
            Ok(()) => {
                self.missing = 0;
                self.seq += 1;
                true
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.missing = self.missing.saturating_add(1);
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    /// Deadlines that passed without a tick: we were stopped, or did not get the CPU.
    fn count_missed(&mut self, now: MonoNs) {
        let at = self.schedule.last(now);
        // What was planned before a change of the interval is not missed after it.
        if let Some((by, before)) = self.before.replace((self.schedule, at))
            && by == self.schedule
        {
            let missed = at.saturating_sub(before).saturating_sub(1);
            self.missing = self.missing.saturating_add(u32::try_from(missed).unwrap_or(u32::MAX));
        }
    }
}

fn opening(id: CollectorId) -> CollectorHealth {
    let state = HealthState::Late { age: Duration::ZERO };
    CollectorHealth { id, state, signals: Vec::new() }
}

fn state_of(
    id: CollectorId,
    samples: &Samples,
    failed: &BTreeMap<CollectorId, String>,
    last_fresh: &mut BTreeMap<CollectorId, MonoNs>,
    now: MonoNs,
    alive: &BTreeMap<Role, (u32, u64)>,
    base: MonoNs,
) -> HealthState {
    if samples.span(id).is_some() {
        last_fresh.insert(id, now);
        return HealthState::Fresh;
    }
    if let Some(error) = failed.get(&id) {
        return HealthState::Failed { error: error.clone() };
    }
    match alive.get(&id.role()) {
        Some((every, _)) if *every > 1 => HealthState::Thinned { every: *every },
        _ => HealthState::Late { age: now.since(last_fresh.get(&id).copied().unwrap_or(base)) },
    }
}

#[cfg(test)]
mod tests;

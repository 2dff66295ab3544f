//! The running kernel as a source: one thread per collector role, and one that puts their
//! readings together into ticks.
//!
//! Deadlines are absolute (`start + k * interval`). A role that has not delivered by the grace
//! time is `Late` in the tick's health and its sample goes into a later tick; nobody waits for
//! it again until it reports. A role whose reading takes more than half of its period reads
//! every second tick, then every fourth, and says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::{Event, Feed};
use crate::allocator::{self, GIVE_BACK};
use crate::clock;
use crate::collect::registry::{Running, open_role};
use crate::collect::{
    CollectOptions, CollectorId, HostFs, Interest, RELIEF, Role, SampleContext, Samples, Signal,
    UNRELIEVED, namespaces,
};
use crate::model::tick::{CollectorHealth, Gap, HealthState, HostInfo, Tick};
use crate::model::time::{MonoNs, Seq};
use crate::rights::{self, Duty};

/// Ticks that a slow consumer may leave waiting.
const QUEUE: usize = 8;
/// Slowest reading rate of an overloaded role: every so many ticks.
const MAX_THINNING: u32 = 16;
/// Roles, each on its own thread; where threads are short, the first ones get theirs.
const ROLES: [Role; 5] =
    [Role::HostSockets, Role::Files, Role::Tasks, Role::NetnsWalker, Role::Bpf];
/// What helps where the system refuses a thread.
pub const MORE_THREADS: &str =
    "raise the limit of processes: pids.max of the cgroup (TasksMax=), or ulimit -u";

/// How long the start waits for its threads to give up rights that they do not need. None of
/// them does anything before that; on a starved box the screen does not wait for it.
const RESTRICTED: Duration = Duration::from_millis(100);

/// What one role's thread reports.
enum Report {
    Opened {
        role: Role,
        off: Vec<(CollectorId, String, String)>,
        on: Vec<CollectorId>,
    },
    Read {
        role: Role,
        samples: Samples,
        failed: Vec<(CollectorId, String)>,
        signals: Vec<(CollectorId, Vec<Signal>)>,
        /// It reads every so many ticks ...
        every: u32,
        /// ... the next time at this one.
        next: u64,
    },
    /// Its thread could not be started, or panicked: nothing more comes from it.
    Gone {
        role: Role,
        reason: String,
        remedy: &'static str,
    },
}

/// Starts reading the running kernel; the first tick is on its way at once. A role whose thread
/// the system refuses is off, the others read.
///
/// # Errors
/// When the system refuses every thread, or the one that puts ticks together.
pub fn start(host: &HostFs, opts: &CollectOptions, interval: Duration) -> std::io::Result<Feed> {
    let info = host_info(host, interval);
    let (interest, watched) = watch::channel(Arc::new(Interest::default()));
    let (reports, inbox) = channel();
    let (restricted, all_restricted) = channel::<()>();
    let base = clock::mono();
    // First of all the thread without which the others read for nobody.
    let (ticks, events) = mpsc::channel(QUEUE);
    let done = restricted.clone();
    thread::Builder::new().name("assemble".into()).spawn(move || {
        rights::restrict(Duty::Figures);
        drop(done);
        Assembler::new(base, interval, inbox, ticks).run();
    })?;
    let mut refused = 0;
    for role in ROLES {
        let (host, opts, reader, watched) =
            (host.clone(), opts.clone(), reports.clone(), watched.clone());
        let (duty, done) = (duty(role), restricted.clone());
        let spawned = thread::Builder::new().name(duty.row().thread.into()).spawn(move || {
            rights::restrict(duty);
            drop(done);
            let _obituary = Obituary { role, reports: reader.clone() };
            RoleThread { role, base, interval, every: 1, reports: reader, watched }
                .run(&host, &opts);
        });
        if let Err(e) = spawned {
            refused += 1;
            if refused == ROLES.len() {
                return Err(e);
            }
            let reason = format!("the system refuses its thread: {e}");
            let _ = reports.send(Report::Gone { role, reason, remedy: MORE_THREADS });
        }
    }
    drop(restricted);
    // Ends when the last of them has let go of its end.
    let _ = all_restricted.recv_timeout(RESTRICTED);
    Ok(Feed { host: info, events, interest })
}

/// What the thread of a role does, as far as rights go.
fn duty(role: Role) -> Duty {
    match role {
        Role::HostSockets => Duty::HostSockets,
        Role::NetnsWalker => Duty::Namespaces,
        Role::Files => Duty::Counters,
        Role::Tasks => Duty::Tasks,
        Role::Bpf => Duty::LoadBpf,
    }
}

/// Tells that a role's thread panicked: its silence would look like a kernel that hangs.
struct Obituary {
    role: Role,
    reports: Sender<Report>,
}

impl Drop for Obituary {
    fn drop(&mut self) {
        if thread::panicking() {
            let reason = "its thread failed: a fault of stallscope".to_owned();
            let remedy = "report it with what was printed; restart";
            let _ = self.reports.send(Report::Gone { role: self.role, reason, remedy });
        }
    }
}

/// What one round of readings yields: samples, failures, signals.
type Reading = (Samples, Vec<(CollectorId, String)>, Vec<(CollectorId, Vec<Signal>)>);

struct RoleThread {
    role: Role,
    base: MonoNs,
    interval: Duration,
    every: u32,
    reports: Sender<Report>,
    watched: watch::Receiver<Arc<Interest>>,
}

impl RoleThread {
    fn run(mut self, host: &HostFs, opts: &CollectOptions) {
        let mut collectors: Vec<(CollectorId, Box<dyn Running>)> = Vec::new();
        let mut off = Vec::new();
        for (id, opened) in open_role(self.role, host, opts) {
            match opened {
                Ok(c) => collectors.push((id, c)),
                Err(u) => off.push((id, u.reason, u.remedy)),
            }
        }
        if self.role == Role::Bpf {
            // What is attached needs no rights; this thread keeps none that it can do without.
            let _ = crate::collect::bpf::release_capabilities();
        }
        let on = collectors.iter().map(|c| c.0).collect();
        if self.reports.send(Report::Opened { role: self.role, off, on }).is_err()
            || collectors.is_empty()
        {
            return;
        }
        let mut k: u64 = 0;
        loop {
            self.wait(&mut collectors, deadline(self.base, self.interval, k));
            let begun = clock::mono();
            let (samples, failed, signals) = self.read(&mut collectors, begun);
            self.adapt(clock::mono().since(begun));
            k = next_due(self.base, self.interval, clock::mono(), k, self.every);
            let (role, every) = (self.role, self.every);
            let report = Report::Read { role, samples, failed, signals, every, next: k };
            if self.reports.send(report).is_err() {
                return;
            }
        }
    }

    /// Until the next reading, or not quite: programs in the kernel go on filling their buffers.
    fn wait(&self, collectors: &mut [(CollectorId, Box<dyn Running>)], until: MonoNs) {
        let filling = self.interval > UNRELIEVED || collectors.iter().any(|c| c.1.is_filling());
        if self.role == Role::Bpf && filling {
            let mut next = clock::mono() + RELIEF;
            // A reading that is due just after it does the same.
            while next + RELIEF / 5 < until {
                clock::sleep_until(next);
                for c in collectors.iter_mut() {
                    c.1.relieve();
                }
                next = clock::mono() + RELIEF;
            }
        }
        clock::sleep_until(until);
    }

    fn read(&self, collectors: &mut [(CollectorId, Box<dyn Running>)], at: MonoNs) -> Reading {
        let interest = self.watched.borrow().clone();
        let cx = SampleContext { at, interval: self.interval, interest: &interest };
        let mut samples = Samples::default();
        let mut failed = Vec::new();
        let mut signals = Vec::new();
        for (id, c) in collectors {
            if let Err(e) = c.run(&cx, &mut samples) {
                failed.push((*id, e.to_string()));
            }
            let mut s = Vec::new();
            c.signals(&mut s);
            signals.push((*id, s));
        }
        (samples, failed, signals)
    }

    /// Halves the rate when a reading takes over half of the period, restores it below a tenth.
    fn adapt(&mut self, took: Duration) {
        let period = self.interval * self.every;
        if took > period / 2 {
            self.every = (self.every * 2).min(MAX_THINNING);
        } else if self.every > 1 && took < period / 10 {
            self.every /= 2;
        }
    }
}

fn deadline(base: MonoNs, interval: Duration, k: u64) -> MonoNs {
    MonoNs(base.0.saturating_add((interval.as_nanos() as u64).saturating_mul(k)))
}

/// Number of the last deadline that lies not after `now`.
fn deadlines(base: MonoNs, interval: Duration, now: MonoNs) -> u64 {
    now.since(base).as_nanos() as u64 / (interval.as_nanos() as u64).max(1)
}

/// The next multiple of `every` ticks that lies in the future.
fn next_due(base: MonoNs, interval: Duration, now: MonoNs, k: u64, every: u32) -> u64 {
    (k + u64::from(every)).max(deadlines(base, interval, now) + 1)
}

struct Assembler {
    base: MonoNs,
    interval: Duration,
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
    /// The deadline within whose interval the tick before was put together.
    before: Option<u64>,
    seq: u64,
    /// Ticks that nobody will see since the last one that somebody does.
    missing: u32,
}

impl Assembler {
    fn new(
        base: MonoNs,
        interval: Duration,
        inbox: Receiver<Report>,
        out: mpsc::Sender<Event>,
    ) -> Self {
        Self {
            base,
            interval,
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

    fn run(mut self) {
        let mut freed = 0;
        loop {
            let due = deadline(self.base, self.interval, self.k);
            clock::sleep_until(due);
            // At the first tick a slow box may need longer: wait for it, the screen does not.
            let grace = if self.k == 0 {
                self.interval
            } else {
                (self.interval / 2).min(Duration::from_millis(500))
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
            self.k = next_due(self.base, self.interval, clock::mono(), self.k, 1);
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
        let at = deadlines(self.base, self.interval, now);
        if let Some(before) = self.before.replace(at) {
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

/// What does not change while we run.
#[must_use]
pub fn host_info(host: &HostFs, interval: Duration) -> HostInfo {
    let uname = rustix::system::uname();
    let memory = host.read_trimmed("proc/meminfo").unwrap_or_default();
    let kib = memory.lines().find_map(|l| {
        l.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let cpus = host
        .read("sys/devices/system/cpu/online")
        .map(|b| crate::collect::parse::cpu_list(&b).len());
    HostInfo {
        hostname: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        boot_id: host.read_trimmed("proc/sys/kernel/random/boot_id").unwrap_or_default(),
        cpus: cpus.unwrap_or(1).max(1) as u32,
        memory_bytes: kib.unwrap_or(0) * 1024,
        page_size: rustix::param::page_size() as u32,
        wall_offset_ns: clock::wall().0 - clock::mono().0 as i64,
        interval,
        thinned_from: None,
        uid: rustix::process::geteuid().as_raw(),
        netns: namespaces::own(host),
        tool: format!("stallscope {}", env!("CARGO_PKG_VERSION")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_skip_what_was_missed() {
        let (base, i) = (MonoNs(0), Duration::from_secs(1));
        let s = |n: u64| MonoNs(n * 1_000_000_000);
        assert_eq!(next_due(base, i, MonoNs(1), 0, 1), 1);
        assert_eq!(next_due(base, i, s(5), 0, 1), 6, "five deadlines passed: no burst to catch up");
        assert_eq!(next_due(base, i, MonoNs(1), 0, 4), 4);
    }

    #[test]
    fn overloaded_roles_slow_down_and_recover() {
        let (reports, _inbox) = channel();
        let (_tx, watched) = watch::channel(Arc::new(Interest::default()));
        let mut r = RoleThread {
            role: Role::Files,
            base: MonoNs(0),
            interval: Duration::from_secs(1),
            every: 1,
            reports,
            watched,
        };
        r.adapt(Duration::from_millis(600));
        assert_eq!(r.every, 2);
        r.adapt(Duration::from_millis(600));
        assert_eq!(r.every, 2, "0.6 s of 2 s is neither much nor little");
        r.adapt(Duration::from_millis(100));
        assert_eq!(r.every, 1);
        for _ in 0..10 {
            r.adapt(Duration::from_secs(3600));
        }
        assert_eq!(r.every, MAX_THINNING);
    }

    fn assembler() -> (Sender<Report>, mpsc::Receiver<Event>, Assembler) {
        let (reports, inbox) = channel();
        let (out, events) = mpsc::channel(2);
        (reports, events, Assembler::new(clock::mono(), Duration::from_millis(100), inbox, out))
    }

    fn opened(role: Role, on: &[CollectorId]) -> Report {
        Report::Opened { role, off: Vec::new(), on: on.to_vec() }
    }

    fn read(role: Role, failed: &[CollectorId]) -> Report {
        let mut samples = Samples::default();
        if failed.is_empty() && role == Role::Files {
            samples.psi = Some(Arc::new(crate::collect::Stamped {
                span: crate::model::time::Span::at(MonoNs(1)),
                cpu: Duration::ZERO,
                data: crate::collect::psi::PsiSample::default(),
            }));
        }
        let failed = failed.iter().map(|id| (*id, "no such file".to_owned())).collect();
        Report::Read {
            role,
            samples,
            failed,
            signals: vec![(CollectorId::Psi, Vec::new())],
            every: 1,
            next: 0,
        }
    }

    fn tick(events: &mut mpsc::Receiver<Event>) -> Arc<Tick> {
        match events.try_recv() {
            Ok(Event::Tick(t)) => t,
            other => panic!("no tick: {other:?}"),
        }
    }

    fn state(t: &Tick, id: CollectorId) -> &HealthState {
        &t.health.iter().find(|h| h.id == id).expect("listed").state
    }

    /// The tick goes out at its grace time without the role that hangs, and the next one does
    /// not wait for it at all.
    #[test]
    fn a_role_that_hangs_is_late_and_holds_nobody_up() {
        let (_keep, mut events, mut a) = assembler();
        for r in [Role::HostSockets, Role::NetnsWalker, Role::Bpf] {
            a.take(opened(r, &[]));
        }
        a.take(opened(Role::Files, &[CollectorId::Psi]));
        a.take(opened(Role::Tasks, &[CollectorId::Sched]));
        a.take(read(Role::Files, &[]));
        assert_eq!(a.waiting_for(), [Role::Tasks]);
        assert!(a.gather(clock::mono()), "the grace time has passed");
        assert!(a.emit(a.base));
        let t = tick(&mut events);
        assert_eq!(state(&t, CollectorId::Psi), &HealthState::Fresh);
        assert!(matches!(state(&t, CollectorId::Sched), HealthState::Late { .. }));
        a.take(read(Role::Files, &[]));
        assert!(a.waiting_for().is_empty(), "nobody waits for it again");
        a.take(read(Role::Tasks, &[]));
        assert!(a.late.is_empty(), "it reported: it counts again");
    }

    /// A thread that the system refused, or that panicked, is a collector that is off: nobody
    /// waits for it, and it is named with a reason.
    #[test]
    fn a_role_without_a_thread_is_off_and_nobody_waits_for_it() {
        let (reports, mut events, mut a) = assembler();
        for r in [Role::HostSockets, Role::NetnsWalker, Role::Tasks] {
            a.take(opened(r, &[]));
        }
        a.take(opened(Role::Files, &[CollectorId::Psi]));
        let (reason, remedy) = ("the system refuses its thread".to_owned(), MORE_THREADS);
        a.take(Report::Gone { role: Role::Bpf, reason, remedy });
        a.take(read(Role::Files, &[]));
        assert!(a.waiting_for().is_empty());
        assert!(a.emit(a.base));
        let t = tick(&mut events);
        for id in [CollectorId::RunqBpf, CollectorId::BlockBpf] {
            assert!(
                matches!(state(&t, id), HealthState::Off { remedy, .. } if remedy == MORE_THREADS)
            );
        }
        // The same for one that dies while it reads.
        let (role, reader) = (Role::Files, reports.clone());
        let died = thread::spawn(move || {
            let _obituary = Obituary { role, reports: reader };
            panic!("on purpose");
        });
        assert!(died.join().is_err());
        assert!(a.gather(clock::mono()));
        assert!(a.emit(a.base));
        assert!(matches!(
            state(&tick(&mut events), CollectorId::Psi),
            HealthState::Off { reason, .. } if reason.contains("failed")
        ));
    }

    /// Loading kernel programs can take longer than a tick: until then they are late, not
    /// forgotten.
    #[test]
    fn a_role_that_has_not_opened_is_late() {
        let (_keep, mut events, mut a) = assembler();
        a.take(opened(Role::Files, &[CollectorId::Psi]));
        a.take(read(Role::Files, &[]));
        assert!(a.emit(a.base));
        let t = tick(&mut events);
        assert_eq!(t.health.len(), CollectorId::ALL.len());
        assert!(matches!(state(&t, CollectorId::RunqBpf), HealthState::Late { .. }));
    }

    #[test]
    fn a_failed_reading_is_named_and_a_slow_consumer_finds_the_gap() {
        let (_keep, mut events, mut a) = assembler();
        a.take(opened(Role::Files, &[CollectorId::Psi]));
        a.take(read(Role::Files, &[CollectorId::Psi]));
        for _ in 0..5 {
            assert!(a.emit(a.base), "a full queue is no end");
        }
        let first = tick(&mut events);
        assert!(
            matches!(state(&first, CollectorId::Psi), HealthState::Failed { error } if error == "no such file")
        );
        assert_eq!(tick(&mut events).gap, None);
        assert!(a.emit(a.base));
        let after = tick(&mut events);
        assert_eq!(after.gap, Some(Gap { ticks: 3 }));
        assert_eq!(after.seq, Seq(2), "numbers have no holes; the gap says what is missing");
        drop(events);
        assert!(!a.emit(a.base), "nobody listens: stop");
    }

    /// A tick that comes late stands for the deadlines that passed meanwhile, and says so.
    #[test]
    fn deadlines_that_passed_are_a_gap() {
        let (_keep, mut events, mut a) = assembler();
        let ms = |n: u64| Duration::from_millis(n);
        let mut gap = |after: u64| {
            assert!(a.emit(a.base + ms(after)));
            tick(&mut events).gap.map_or(0, |g| g.ticks)
        };
        assert_eq!(gap(170), 0, "before the first tick nothing is missing");
        assert_eq!(gap(200), 0);
        assert_eq!(gap(399), 0, "late, but within its interval");
        assert_eq!(gap(400), 0);
        assert_eq!(gap(780), 2, "500 and 600; 700 is the late one");
        assert_eq!(gap(800), 0);
        assert_eq!(gap(60_800), 599);
    }

    /// What was missed before a tick that found no room is missing all the same.
    #[test]
    fn a_lost_tick_leaves_its_gap_behind() {
        let (_keep, mut events, mut a) = assembler();
        for after in [0, 100, 400, 500] {
            assert!(a.emit(a.base + Duration::from_millis(after)));
        }
        assert_eq!((tick(&mut events).gap, tick(&mut events).gap), (None, None));
        assert!(a.emit(a.base + Duration::from_millis(600)));
        assert_eq!(tick(&mut events).gap, Some(Gap { ticks: 4 }), "200, 300, 400 and 500");
    }
}

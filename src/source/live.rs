//! The running kernel as a source: one thread per collector role, and one that puts their
//! readings together into ticks.
//!
//! Deadlines are absolute (`start + k * interval`), and shared: when the interval changes, it
//! changes for all threads at once. A role that has not delivered by the grace time is `Late` in
//! the tick's health and its sample goes into a later tick; nobody waits for it again until it
//! reports. A role whose reading takes more than half of its period reads every second tick, then
//! every fourth, and says so.

mod assembler;
mod schedule;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use self::assembler::Assembler;
use self::schedule::Schedule;
pub use self::schedule::Scheduler;
use super::Feed;
use crate::clock;
use crate::collect::registry::{Running, open_role};
use crate::collect::{CollectOptions, HostFs, RELIEF, SampleContext, UNRELIEVED, namespaces};
use crate::rights::{self, Duty};
use crate::sample::tick::HostInfo;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Interest, Role, Samples, Signal};

/// Ticks that a slow consumer may leave waiting.
const QUEUE: usize = 8;
/// Slowest reading rate of an overloaded role: every so many ticks.
const MAX_THINNING: u32 = 16;
/// Roles, each on its own thread; where threads are short, the first ones get theirs.
const ROLES: [Role; 6] =
    [Role::HostSockets, Role::Files, Role::Tasks, Role::NetnsWalker, Role::Bpf, Role::Waits];
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
    let scheduler = Scheduler::new(Schedule::new(clock::mono(), interval));
    // First of all the thread without which the others read for nobody.
    let (ticks, events) = mpsc::channel(QUEUE);
    let (done, shared) = (restricted.clone(), scheduler.clone());
    thread::Builder::new().name("assemble".into()).spawn(move || {
        rights::restrict(Duty::Figures);
        drop(done);
        Assembler::new(shared, inbox, ticks).run();
    })?;
    let mut refused = 0;
    for role in ROLES {
        let (host, opts, reader, watched) =
            (host.clone(), opts.clone(), reports.clone(), watched.clone());
        let (duty, done, scheduler) = (duty(role), restricted.clone(), scheduler.clone());
        let spawned = thread::Builder::new().name(duty.row().thread.into()).spawn(move || {
            rights::restrict(duty);
            drop(done);
            let _obituary = Obituary { role, reports: reader.clone() };
            RoleThread::new(role, scheduler, reader, watched).run(&host, &opts);
        });
        if let Err(e) = spawned {
            refused += 1;
            if refused == ROLES.len() {
                return Err(e);
            }
            let reason = format!("cannot start its thread: {e}");
            let _ = reports.send(Report::Gone { role, reason, remedy: MORE_THREADS });
        }
    }
    drop(restricted);
    // Ends when the last of them has let go of its end.
    let _ = all_restricted.recv_timeout(RESTRICTED);
    Ok(Feed { host: info, events, interest, scheduler })
}

/// What the thread of a role does, as far as rights go.
fn duty(role: Role) -> Duty {
    match role {
        Role::HostSockets => Duty::HostSockets,
        Role::NetnsWalker => Duty::Namespaces,
        Role::Files => Duty::Counters,
        Role::Tasks => Duty::Tasks,
        Role::Bpf => Duty::LoadBpf,
        Role::Waits => Duty::Waits,
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
            let reason = "its thread failed: a bug in stallscope".to_owned();
            let remedy = "report it with the output, and restart";
            let _ = self.reports.send(Report::Gone { role: self.role, reason, remedy });
        }
    }
}

/// What one round of readings yields: samples, failures, signals.
type Reading = (Samples, Vec<(CollectorId, String)>, Vec<(CollectorId, Vec<Signal>)>);

struct RoleThread {
    role: Role,
    scheduler: Scheduler,
    /// The one that the next reading is planned by.
    schedule: Schedule,
    every: u32,
    reports: Sender<Report>,
    watched: watch::Receiver<Arc<Interest>>,
}

impl RoleThread {
    fn new(
        role: Role,
        scheduler: Scheduler,
        reports: Sender<Report>,
        watched: watch::Receiver<Arc<Interest>>,
    ) -> Self {
        let schedule = scheduler.now();
        Self { role, scheduler, schedule, every: 1, reports, watched }
    }

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
            k = self.wait(&mut collectors, k);
            let begun = clock::mono();
            let (samples, failed, signals) = self.read(&mut collectors, begun);
            let now = clock::mono();
            if !self.follow() {
                self.adapt(now.since(begun));
            }
            k = self.schedule.next_due(now, k, self.every);
            let (role, every) = (self.role, self.every);
            let report = Report::Read { role, samples, failed, signals, every, next: k };
            if self.reports.send(report).is_err() {
                return;
            }
        }
    }

    /// Until reading `k` is due, or the one that takes its place when the interval changes
    /// meanwhile.
    fn wait(&mut self, collectors: &mut [(CollectorId, Box<dyn Running>)], mut k: u64) -> u64 {
        while !self.sleep(collectors, self.schedule.deadline(k)) {
            self.follow();
            k = self.schedule.replanned(clock::mono(), k);
        }
        k
    }

    /// Until the next reading, or not quite: programs in the kernel go on filling their buffers.
    /// False when the interval changes.
    fn sleep(&self, collectors: &mut [(CollectorId, Box<dyn Running>)], until: MonoNs) -> bool {
        while let Some(every) = self.relief(collectors) {
            let next = clock::mono() + every;
            // A reading that is due just after it does the same.
            if next + every / 5 >= until {
                break;
            }
            if !self.scheduler.sleep(self.schedule, next) {
                return false;
            }
            for c in collectors.iter_mut() {
                c.1.relieve();
            }
        }
        self.scheduler.sleep(self.schedule, until)
    }

    /// Goes on by the schedule that holds now. True when it is another one: what was too much for
    /// the interval before says nothing about this one.
    fn follow(&mut self) -> bool {
        let now = self.scheduler.now();
        let changed = now != self.schedule;
        if changed {
            self.schedule = now;
            self.every = 1;
        }
        changed
    }

    fn relief(&self, collectors: &[(CollectorId, Box<dyn Running>)]) -> Option<Duration> {
        let filling =
            self.schedule.interval > UNRELIEVED || collectors.iter().any(|c| c.1.is_filling());
        let filled = (self.role == Role::Bpf && filling).then_some(RELIEF);
        filled.into_iter().chain(collectors.iter().filter_map(|c| c.1.relief())).min()
    }

    fn read(&self, collectors: &mut [(CollectorId, Box<dyn Running>)], at: MonoNs) -> Reading {
        let interest = self.watched.borrow().clone();
        let cx = SampleContext { at, interval: self.schedule.interval, interest: &interest };
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
        let period = self.schedule.interval * self.every;
        if took > period / 2 {
            self.every = (self.every * 2).min(MAX_THINNING);
        } else if self.every > 1 && took < period / 10 {
            self.every /= 2;
        }
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
    let cpus = host.read("sys/devices/system/cpu/online").map(|b| crate::parse::cpu_list(&b).len());
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
        rules: Arc::default(),
    }
}

#[cfg(test)]
mod tests;

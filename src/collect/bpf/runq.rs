//! Run-queue latency per CPU: the time from when a task could run to when it ran, and who
//! waited long. Measured at `sched_switch`; see `ebpf/programs/src/bin/sched.rs`.
//!
//! Tier A needs BTF, CONFIG_SMP and CONFIG_SCHED_INFO (which taskstats and schedstats turn on): a
//! wait that a migration splits counts as two. Tier B stamps wakeups and needs tracefs.
//!
//! Where wakeups make a CPU switch more often than every 131 us, tier A measures one of these
//! waits in that time, or in 524 us where there are more than 16, and counts it for the others:
//! reading the clock costs more than all the rest. The others ended within that time, but for the
//! last of them: a wait of up to a tick can be passed over there, and is then missing from the
//! long ones.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bins::Bins;
use super::gather::whole_us;
use super::load::{self, Hook, Kernel, Loaded, Placed};
use super::maps::{Still, Stripes};
use super::{Coverage, objects, offsets, rights, tracefs};
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::bpf::hist::Counts;
use crate::sample::bpf::layout::runq as l;
use crate::sample::bpf::runq::{CgroupWaits, LongWait, RunqBpfSample, RunqCpu, RunqTier};
use crate::sample::subject::{CgroupId, CpuId};
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// Kernel memory per possible CPU.
pub(super) const BYTES_PER_CPU: usize = l::WORDS * 8;
/// Kernel memory that does not depend on the CPUs: the stamps of tier B.
pub(super) const BYTES_FIXED: usize = l::STAMPS as usize * 8;

/// Long waits that one sample lists.
const LISTED: usize = 64;
/// The self-check looks after this time, and after so many switches.
const CHECK_AFTER: Duration = Duration::from_secs(2);
const CHECK_SWITCHES: u64 = 100;

/// Reads it. See the module head.
pub struct RunqBpf {
    host: HostFs,
    opts: CollectOptions,
    tier: RunqTier,
    /// Why it is not tier A.
    why: Option<String>,
    checked: bool,
    attached: Option<MonoNs>,
    loaded: Loaded,
    stripes: Stripes<{ l::WORDS }>,
    /// `LONG` of each CPU at the reading before.
    seen: Vec<u64>,
    /// The same counter, and the table of cgroups as it was read last.
    cgroups: Vec<(Still, Vec<CgroupWaits>)>,
    coverage: Coverage,
    /// This process, as the programs see it; `None` in a namespace of processes of its own.
    own: Option<u32>,
}

/// Inode of the host's namespace of processes (`PROC_PID_INIT_INO`, 3.8).
pub(super) const HOST_PIDS: &str = "pid:[4026531836]";

impl Collector for RunqBpf {
    type Sample = RunqBpfSample;
    const ID: CollectorId = CollectorId::RunqBpf;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        match tier_a(host, &kernel, Way::Any) {
            Ok(loaded) => Self::with(host, opts, &kernel, loaded, RunqTier::SchedInfo, None),
            Err(a) => match tier_b() {
                Ok(plan) => {
                    let loaded = plan.load(&kernel)?;
                    Self::with(host, opts, &kernel, loaded, RunqTier::Wakeup, Some(a.reason))
                }
                // The first tier's reason is the one to act on.
                Err(b) => Err(Unavailable::new(
                    format!("{}; nor from wakeups: {}", a.reason, b.reason),
                    a.remedy,
                )),
            },
        }
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<RunqBpfSample, CollectError> {
        load::forget_kernel();
        self.check(cx.at);
        self.stripes.refresh().map_err(|e| CollectError::read("map RUNQ", e))?;
        let mut out = RunqBpfSample {
            tier: self.tier,
            missed: self.loaded.missed(),
            ..RunqBpfSample::default()
        };
        let mut cgroups = BTreeMap::new();
        self.coverage = Coverage { counted: 0, lost: out.missed.unwrap_or(0) };
        for cpu in 0..self.stripes.count() {
            let row = self.cpu(cpu);
            if row.switches == 0 {
                continue;
            }
            self.coverage.counted += row.waits.count();
            self.coverage.lost += row.discarded + row.collided;
            self.take_cgroups(cpu, row.long, &mut cgroups);
            self.take_long(cpu, row.long, &mut out);
            out.cpus.push(row);
        }
        out.cgroups = cgroups
            .into_iter()
            .map(|(id, (count, ns))| CgroupWaits { id, count, wait_ns: whole_us(ns) })
            .collect();
        let listed = out.long_waits.len();
        out.long_waits.retain(|w| self.own != Some(w.pid));
        out.long_own = (listed - out.long_waits.len()) as u64;
        out.long_waits.sort_by_key(|w| std::cmp::Reverse(w.wait_ns));
        out.long_unlisted += out.long_waits.len().saturating_sub(LISTED) as u64;
        out.long_waits.truncate(LISTED);
        for w in out.long_waits.iter_mut().filter(|w| w.comm.is_none()) {
            w.comm = comm(&self.host, w);
        }
        Ok(out)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        const NAME: &str = "run-queue latency";
        out.push(match (&self.why, self.tier) {
            (Some(why), RunqTier::Wakeup) => Signal::degraded(
                NAME,
                "ebpf",
                format!("measured from wakeups ({why}){}", private_note()),
                "use a kernel with BTF and CONFIG_SCHED_INFO",
            ),
            (Some(why), RunqTier::SchedInfo) => Signal::missing(NAME, "ebpf", why.clone(), ""),
            (None, _) => self.coverage.signal(NAME),
        });
    }
}

fn private_note() -> &'static str {
    if tracefs::mounted_privately() { "; tracefs is mounted for this thread only" } else { "" }
}

/// Entries of the maps; tier B has stamps.
pub(super) fn sizes(cpus: usize, stamps: u32) -> [(&'static str, u32); 2] {
    [("RUNQ", cpus as u32), ("RUNQ_STAMPS", stamps)]
}

/// How the program finds the stripe of its CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As the kernel allows.
    Any,
    /// By a lookup, even where an address would do.
    Lookup,
}

fn tier_a(host: &HostFs, kernel: &Kernel, way: Way) -> Result<Loaded, Unavailable> {
    let types = kernel.types.as_ref().map_err(Clone::clone)?;
    // A scheduler of sched_ext (6.12) keeps none of the averages that tell sleep from waiting.
    let ext = host.read_trimmed("sys/kernel/sched_ext/state").is_ok_and(|s| s != "disabled");
    let averages = if ext { offsets::Averages::Stale } else { offsets::Averages::Kept };
    let (mut globals, fields) = offsets::runq(&types.own, averages)?;
    globals.push(("BY_HELPER", types.by_helper));
    // By address where the kernel allows a value as large as that: 4 MiB is enough for 512 CPUs.
    let by_address = || {
        let placed = Placed::new::<{ l::WORDS }>("RUNQ_PLACED", kernel.cpus)?;
        let sizes = sizes(1, 1);
        let object = objects::SCHED;
        let mut loaded =
            Loaded::with_fields(kernel, object, &globals, &fields, &sizes, Some(placed))?;
        loaded.attach(kernel, "runq", Hook::Btf("sched_switch"))?;
        Ok(loaded)
    };
    let by_lookup = || {
        let sizes = sizes(kernel.cpus, 1);
        let mut loaded =
            Loaded::with_fields(kernel, objects::SCHED, &globals, &fields, &sizes, None)?;
        loaded.attach(kernel, "runq_lookup", Hook::Btf("sched_switch"))?;
        Ok(loaded)
    };
    match way {
        Way::Any => by_address().or_else(|_: Unavailable| by_lookup()),
        Way::Lookup => by_lookup(),
    }
}

/// What tier B needs to know before anything is loaded.
struct TierB(load::Globals);

fn tier_b() -> Result<TierB, Unavailable> {
    let switch = tracefs::format("sched", "sched_switch")?;
    let wakeup = tracefs::format("sched", "sched_wakeup")?;
    Ok(TierB(offsets::runq_records(&switch, &wakeup)?))
}

impl TierB {
    fn load(&self, kernel: &Kernel) -> Result<Loaded, Unavailable> {
        let sizes = sizes(kernel.cpus, l::STAMPS);
        let mut loaded = Loaded::new(kernel, objects::SCHED, &self.0, &sizes)?;
        // Wakeups first: a switch without a stamp counts nothing.
        loaded.attach(kernel, "runq_wakeup", Hook::Classic("sched", "sched_wakeup"))?;
        loaded.attach(kernel, "runq_wakeup_new", Hook::Classic("sched", "sched_wakeup_new"))?;
        loaded.attach(kernel, "runq_switch", Hook::Classic("sched", "sched_switch"))?;
        Ok(loaded)
    }
}

impl RunqBpf {
    fn with(
        host: &HostFs,
        opts: &CollectOptions,
        kernel: &Kernel,
        mut loaded: Loaded,
        tier: RunqTier,
        why: Option<String>,
    ) -> Result<Self, Unavailable> {
        let stripes = loaded.stripes("RUNQ", kernel.cpus)?;
        rights::fallback_possible(tier == RunqTier::SchedInfo);
        Ok(Self {
            host: host.clone(),
            opts: opts.clone(),
            tier,
            why,
            checked: tier == RunqTier::Wakeup,
            attached: None,
            loaded,
            seen: vec![0; stripes.count()],
            cgroups: vec![Default::default(); stripes.count()],
            stripes,
            coverage: Coverage::default(),
            own: host
                .link("proc/self/ns/pid")
                .is_ok_and(|ns| ns == HOST_PIDS)
                .then(std::process::id),
        })
    }

    /// The programs that are attached.
    #[doc(hidden)]
    #[must_use]
    pub fn programs(&self) -> &[&'static str] {
        self.loaded.attached()
    }

    /// From now on lists the waits of this process too: the tests' own threads are what they look
    /// at.
    #[doc(hidden)]
    pub fn list_own(&mut self) {
        self.own = None;
    }

    /// Opens tier B even where tier A would work: the benchmark and the tests compare them.
    ///
    /// # Errors
    /// As [`Collector::open`].
    #[doc(hidden)]
    pub fn open_tier_b(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let loaded = tier_b()?.load(&kernel)?;
        Self::with(host, opts, &kernel, loaded, RunqTier::Wakeup, Some("on request".into()))
    }

    /// Opens tier A as on a host with more CPUs than a value of a map has room for.
    ///
    /// # Errors
    /// As [`Collector::open`].
    #[doc(hidden)]
    pub fn open_by_lookup(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let loaded = tier_a(host, &kernel, Way::Lookup)?;
        Self::with(host, opts, &kernel, loaded, RunqTier::SchedInfo, None)
    }

    /// Attaches a program that does nothing at `sched_switch`: what the attachment itself costs.
    ///
    /// # Errors
    /// As [`Collector::open`].
    #[doc(hidden)]
    pub fn open_empty(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        let sizes = sizes(kernel.cpus, 1);
        let mut loaded = Loaded::new(&kernel, objects::SCHED, &Vec::new(), &sizes)?;
        loaded.attach(&kernel, "empty", Hook::Btf("sched_switch"))?;
        Self::with(host, opts, &kernel, loaded, RunqTier::SchedInfo, None)
    }

    /// A kernel without CONFIG_SCHED_INFO has the members but never sets them: after two
    /// seconds without one stamp, measure from wakeups instead.
    fn check(&mut self, at: MonoNs) {
        let since = at.since(*self.attached.get_or_insert(at));
        if self.checked || since < CHECK_AFTER || self.stripes.refresh().is_err() {
            return;
        }
        let all = || 0..self.stripes.count();
        let switches: u64 = all().map(|c| self.cpu(c).switches).sum();
        if switches <= CHECK_SWITCHES {
            return;
        }
        self.checked = true;
        if all().any(|c| !self.cpu(c).waits.is_empty()) {
            rights::fallback_possible(false);
            return;
        }
        let why = "the scheduler keeps no timestamps (CONFIG_SCHED_INFO is off)";
        let opened = rights::raised(|| {
            load::kernel(&self.host, &self.opts)
                .and_then(|k| Ok((tier_b()?.load(&k)?, k)))
                .and_then(|(mut loaded, k)| Ok((loaded.stripes("RUNQ", k.cpus)?, loaded)))
        });
        rights::fallback_possible(false);
        load::forget_kernel();
        match opened {
            Ok((stripes, loaded)) => {
                self.seen = vec![0; stripes.count()];
                self.cgroups = vec![Default::default(); stripes.count()];
                self.stripes = stripes;
                self.loaded = loaded;
                self.tier = RunqTier::Wakeup;
                self.why = Some(why.to_owned());
            }
            Err(b) => self.why = Some(format!("{why}; nor from wakeups: {}", b.reason)),
        }
    }

    fn cpu(&self, cpu: usize) -> RunqCpu {
        let word = |w| self.stripes.get(cpu, w);
        let mut waits = Counts::read_all(&self.stripes, cpu, l::HIST);
        let bins = Bins::gather(&self.stripes, cpu, &mut waits);
        let elsewhere = word(l::SWITCHES).wrapping_add(word(l::UNREAD));
        let switches = elsewhere.wrapping_add(bins.count);
        if switches == 0 {
            return RunqCpu::default();
        }
        RunqCpu {
            cpu: CpuId(cpu as u32),
            switches,
            wait_ns: whole_us(word(l::WAIT_NS).wrapping_add(bins.ns)),
            waits: waits.into(),
            discarded: word(l::DISCARDED),
            slept: word(l::SLEPT),
            unsure: word(l::UNSURE),
            collided: word(l::COLLIDED),
            long: word(l::LONG),
            cgroup_full: word(l::CGROUP_FULL),
        }
    }

    fn take_cgroups(&mut self, cpu: usize, long: u64, into: &mut BTreeMap<CgroupId, (u64, u64)>) {
        let Some((still, rows)) = self.cgroups.get_mut(cpu) else { return };
        if !still.stands(long) {
            let word = |row: usize, w| self.stripes.get(cpu, l::CGROUP + row * l::CGROUP_WORDS + w);
            rows.clear();
            let used = (0..l::CGROUPS).filter(|row| word(*row, 0) != 0);
            rows.extend(used.map(|row| CgroupWaits {
                id: CgroupId(word(row, 0)),
                count: word(row, 1),
                wait_ns: word(row, 2),
            }));
        }
        for row in rows.iter() {
            let sums = into.entry(row.id).or_default();
            sums.0 = sums.0.wrapping_add(row.count);
            sums.1 = sums.1.wrapping_add(row.wait_ns);
        }
    }

    /// The rows that the ring of this CPU gained since the reading before.
    fn take_long(&mut self, cpu: usize, long: u64, out: &mut RunqBpfSample) {
        let Some(seen) = self.seen.get_mut(cpu) else { return };
        let new = long.wrapping_sub(*seen);
        // One row less than the ring has: the oldest may be written just now.
        let kept = new.min(l::RING as u64 - 1);
        out.long_unlisted += new - kept;
        for n in (0..kept).map(|i| long.wrapping_sub(kept - i)) {
            let row = l::RING_AT + (n as usize % l::RING) * l::RING_WORDS;
            let word = |w| self.stripes.get(cpu, row + w);
            let (pids, cgroup) = (word(2), word(3));
            out.long_waits.push(LongWait {
                at: MonoNs(whole_us(word(0))),
                cpu: CpuId(cpu as u32),
                wait_ns: whole_us(word(1)),
                pid: (pids >> 32) as u32,
                tid: pids as u32,
                comm: name([word(4), word(5)]),
                cgroup: (cgroup != 0).then_some(CgroupId(cgroup)),
            });
        }
        *seen = long;
    }
}

/// The name that the program read; `None` when it does not read it.
fn name(words: [u64; 2]) -> Option<String> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let text = bytes.split(|b| *b == 0).next().filter(|t| !t.is_empty())?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn comm(host: &HostFs, w: &LongWait) -> Option<String> {
    // `/proc/TID` exists for every thread, also those that a listing does not show.
    host.read_trimmed(format!("proc/{}/comm", w.tid)).ok()
}

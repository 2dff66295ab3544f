//! The youngest reading of each counter that the page shows. A tick does not have every sample:
//! some are read in every n-th tick only, and namespaces and cgroups take turns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::sample::Shared;
use crate::sample::cgroups::{CgroupCpu, CgroupRow};
use crate::sample::cpu::CpuSample;
use crate::sample::disks::DisksSample;
use crate::sample::memory::MemorySample;
use crate::sample::net_counters::{NetCountersSample, NetnsCounters};
use crate::sample::netdev::NetdevSpace;
use crate::sample::own::OwnSample;
use crate::sample::psi::PsiSample;
use crate::sample::sched::CpuSchedstat;
use crate::sample::softirq::SoftnetRow;
use crate::sample::subject::{CgroupId, NetnsId};
use crate::sample::tick::Tick;
use crate::sample::time::MonoNs;

/// An older reading is none.
const OLD: Duration = Duration::from_secs(15);
/// The same in intervals, where those are long.
const OLD_INTERVALS: u32 = 5;
/// cgroups take turns: one that was not read for so long is gone.
const GONE: Duration = Duration::from_secs(120);
/// cgroups remembered. There are hosts with tens of thousands; few of them have a quota.
const REMEMBERED: usize = 2000;

/// A cgroup by where it is mounted.
type Key = (Arc<str>, CgroupId);

/// A cgroup with a quota, as it was read.
#[derive(Clone, Debug)]
pub(super) struct Limited {
    at: MonoNs,
    pub(super) path: Arc<str>,
    pub(super) cpu: CgroupCpu,
}

/// A reading with its time.
#[derive(Clone, Debug)]
struct At<T>(MonoNs, T);

/// What was read last.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    now: MonoNs,
    /// Ticks taken in.
    pub(super) ticks: u64,
    /// Ticks that were missing between them.
    pub(super) missed: u64,
    cpu: Option<Shared<CpuSample>>,
    disks: Option<Shared<DisksSample>>,
    memory: Option<Shared<MemorySample>>,
    psi: Option<Shared<PsiSample>>,
    own: Option<Shared<OwnSample>>,
    counters: Option<Shared<NetCountersSample>>,
    host_counters: Option<At<NetnsCounters>>,
    host_devices: Option<At<Arc<NetdevSpace>>>,
    softnet: Option<At<Vec<SoftnetRow>>>,
    schedstat: Option<At<Vec<CpuSchedstat>>>,
    cgroups: HashMap<Key, Limited>,
    /// When some of them were read last.
    cgroups_at: Option<MonoNs>,
    /// An older reading than this is none.
    old: Duration,
}

impl Readings {
    /// Takes in the next tick of a host whose own network namespace is `host`, with ticks at this
    /// interval.
    pub fn push(&mut self, tick: &Tick, host: Option<NetnsId>, interval: Duration) {
        self.now = tick.mono;
        self.old = OLD.max(interval * OLD_INTERVALS);
        self.ticks += 1;
        self.missed += tick.gap.map_or(0, |g| u64::from(g.ticks));
        let s = &tick.samples;
        macro_rules! take {
            ($($field:ident = $sample:ident),*) => { $(
                if s.$sample.is_some() {
                    self.$field.clone_from(&s.$sample);
                }
            )* };
        }
        take!(cpu = cpu, disks = disks, memory = memory, psi = psi, own = own);
        take!(counters = net_counters);
        if let Some(n) = &s.net_counters {
            let own = n.data.spaces.iter().find(|c| Some(c.netns) == host);
            if let Some(own) = own {
                self.host_counters = Some(At(n.span.mid(), own.clone()));
            }
        }
        let spaces = s.netdev.iter().flat_map(|n| &n.data.spaces);
        if let Some(own) = spaces.into_iter().find(|n| Some(n.netns) == host) {
            self.host_devices = Some(At(own.span.mid(), own.clone()));
        }
        // Not the whole samples: they hold every thread and every interrupt.
        if let Some(n) = &s.softirq {
            self.softnet = Some(At(n.span.mid(), n.data.softnet.clone()));
        }
        if let Some(n) = &s.sched {
            self.schedstat = Some(At(n.span.mid(), n.data.cpus.clone()));
        }
        if let Some(n) = &s.cgroups {
            self.take_cgroups(n.span.mid(), &n.data.groups);
        }
    }

    fn take_cgroups(&mut self, at: MonoNs, groups: &[CgroupRow]) {
        self.cgroups_at = Some(at);
        for g in groups {
            let key = (g.mount.clone(), g.id);
            match g.cpu.filter(|c| c.quota_us.is_some()) {
                Some(cpu) => {
                    self.cgroups.insert(key, Limited { at, path: g.path.clone(), cpu });
                }
                // It has no quota any more.
                None => drop(self.cgroups.remove(&key)),
            }
        }
        self.cgroups.retain(|_, g| at.since(g.at) <= GONE);
        if self.cgroups.len() > 2 * REMEMBERED {
            let mut throttled: Vec<u64> =
                self.cgroups.values().map(|g| g.cpu.throttled_ns).collect();
            throttled.sort_unstable_by(|a, b| b.cmp(a));
            let least = throttled.get(REMEMBERED).copied().unwrap_or_default();
            self.cgroups.retain(|_, g| g.cpu.throttled_ns > least);
        }
    }

    /// Whether something that was read then still stands.
    pub(super) fn stands(&self, at: MonoNs) -> bool {
        self.now.since(at) <= self.old
    }

    fn fresh<'a, S>(&self, sample: Option<&'a Shared<S>>) -> Option<&'a S> {
        sample.filter(|s| self.stands(s.span.mid())).map(|s| &s.data)
    }

    fn fresh_at<'a, T>(&self, reading: Option<&'a At<T>>) -> Option<&'a T> {
        reading.filter(|r| self.stands(r.0)).map(|r| &r.1)
    }

    pub(super) fn cpu(&self) -> Option<&CpuSample> {
        self.fresh(self.cpu.as_ref())
    }
    pub(super) fn disks(&self) -> Option<&DisksSample> {
        self.fresh(self.disks.as_ref())
    }
    pub(super) fn memory(&self) -> Option<&MemorySample> {
        self.fresh(self.memory.as_ref())
    }
    pub(super) fn psi(&self) -> Option<&PsiSample> {
        self.fresh(self.psi.as_ref())
    }
    pub(super) fn own(&self) -> Option<&OwnSample> {
        self.fresh(self.own.as_ref())
    }
    /// Limits of the host's TCP.
    pub(super) fn tcp_mem(&self) -> Option<[u64; 3]> {
        self.fresh(self.counters.as_ref())?.tcp_mem
    }
    /// Protocol counters of the host's own network namespace.
    pub(super) fn host_counters(&self) -> Option<&NetnsCounters> {
        self.fresh_at(self.host_counters.as_ref())
    }
    /// Its devices.
    pub(super) fn host_devices(&self) -> Option<&NetdevSpace> {
        self.fresh_at(self.host_devices.as_ref()).map(|s| &**s)
    }
    pub(super) fn softnet(&self) -> &[SoftnetRow] {
        self.fresh_at(self.softnet.as_ref()).map_or(&[], Vec::as_slice)
    }
    pub(super) fn schedstat(&self) -> &[CpuSchedstat] {
        self.fresh_at(self.schedstat.as_ref()).map_or(&[], Vec::as_slice)
    }
    /// cgroups with a quota, those that were throttled for longest first.
    pub(super) fn cgroups(&self) -> Option<Vec<&Limited>> {
        self.cgroups_at.filter(|at| self.stands(*at))?;
        let standing = |g: &&Limited| self.now.since(g.at) <= GONE;
        let mut all: Vec<&Limited> = self.cgroups.values().filter(standing).collect();
        all.sort_by(|a, b| {
            b.cpu.throttled_ns.cmp(&a.cpu.throttled_ns).then_with(|| a.path.cmp(&b.path))
        });
        Some(all)
    }
}

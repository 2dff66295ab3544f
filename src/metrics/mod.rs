//! From raw samples to figures: rates over measured intervals, queues, shares, events.
//!
//! All of it is a fold over ticks: the same ticks give the same figures, live or replayed.
//! A rate spans at least [`MIN_SPAN`], so that at short intervals the kernel's 10 ms tick
//! counters and rare events do not turn into noise.

pub mod baseline;
pub mod blocked;
pub mod bpf;
pub mod cgroups;
pub mod coverage;
pub mod cpu;
pub mod disks;
pub mod filesystems;
mod heap;
pub mod history;
pub mod netdev;
pub mod origins;
pub mod own;
pub mod process_io;
pub mod processes;
pub mod rate;
pub mod sockets;
pub mod waits;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::sample::heap::Heap as _;
use crate::sample::net_counters::{NetCountersSample, NetnsCounters};
use crate::sample::sockets::NetnsTable;
use crate::sample::subject::{DiskId, NetnsId};
use crate::sample::tick::Tick;
use crate::sample::time::{MonoNs, Seq, WallNs};
use crate::sample::waits::WaitsSample;
use crate::sample::{Samples, Shared};
use disks::DiskFigures;

/// Shortest interval that a rate is taken over.
pub const MIN_SPAN: Duration = Duration::from_millis(900);

/// Figures of one tick. `None` (or an empty list): no fresh sample, or none before it.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    /// Of this tick.
    pub seq: Seq,
    /// Of this tick.
    pub mono: MonoNs,
    /// Of this tick.
    pub wall: WallNs,
    /// Disks, in the order of `/proc/diskstats`.
    pub disks: Option<Arc<Vec<DiskFigures>>>,
    /// CPUs.
    pub cpu: Option<Arc<cpu::CpuFigures>>,
    /// SoftIRQs.
    pub softirq: Option<Arc<cpu::SoftirqFigures>>,
    /// Run-queue waits.
    pub sched: Option<Arc<cpu::SchedFigures>>,
    /// Tasks in uninterruptible sleep, and for how long it has been the same one.
    pub blocked: Option<Arc<Vec<blocked::Sleeper>>>,
    /// Pressure.
    pub psi: Option<cpu::PsiFigures>,
    /// cgroups that were read in this tick and before.
    pub cgroups: Option<Arc<Vec<cgroups::CgroupFigures>>>,
    /// What processes moved to and from disks.
    pub process_io: Option<Arc<process_io::ProcessIoFigures>>,
    /// File systems that take no writes any more, although they did while we looked.
    pub turned: Option<Arc<Vec<filesystems::Turned>>>,
    /// Followed sockets and counts.
    pub sockets: Arc<sockets::SocketFigures>,
    /// Devices and qdiscs of the namespaces that were read in this tick and before; see
    /// [`Window::netdev`](crate::metrics::history::Window::netdev) for the others.
    pub netdev: Option<Arc<Vec<netdev::SpaceFigures>>>,
    /// Protocol counters, two readings per namespace.
    pub net: Vec<NetPair>,
    /// Run-queue waits, by eBPF.
    pub runq_bpf: Option<Arc<bpf::RunqFigures>>,
    /// Time in softirqs and interrupts, by eBPF.
    pub irq_bpf: Option<Arc<bpf::IrqFigures>>,
    /// Block requests, by eBPF.
    pub block_bpf: Option<Arc<bpf::BlockFigures>>,
    /// TCP events and drops, by eBPF.
    pub net_bpf: Option<Arc<bpf::NetFigures>>,
    /// Network events of the last minutes, by eBPF, in the order in which they first came.
    pub events: Option<Arc<Vec<Arc<bpf::EventRow>>>>,
    /// What the threads of a process do that somebody asked about.
    pub waits: Option<Arc<waits::WaitFigures>>,
    /// What this program itself costs.
    pub own: Option<own::OwnFigures>,
}

impl Derived {
    /// The counters of a namespace.
    #[must_use]
    pub fn net(&self, netns: NetnsId) -> Option<&NetPair> {
        self.net.iter().find(|p| p.netns == netns)
    }
    /// A disk's figures.
    #[must_use]
    pub fn disk(&self, id: DiskId) -> Option<&DiskFigures> {
        self.disks.as_ref()?.iter().find(|d| d.id == id)
    }
}

/// Two consecutive readings of a namespace's counters.
#[derive(Clone, Debug)]
pub struct NetPair {
    /// The namespace.
    pub netns: NetnsId,
    /// Measured interval.
    pub dt: Duration,
    before: (Shared<NetCountersSample>, usize),
    now: (Shared<NetCountersSample>, usize),
}

impl NetPair {
    /// The later reading.
    #[must_use]
    pub fn now(&self) -> Option<&NetnsCounters> {
        self.now.0.data.spaces.get(self.now.1)
    }
    /// Growth of a counter such as `TcpExtListenOverflows`; `None` when this kernel does not
    /// have it or it was reset.
    #[must_use]
    pub fn delta(&self, name: &str) -> Option<u64> {
        let before = self.before.0.data.spaces.get(self.before.1)?.get(name)?;
        u64::try_from(self.now()?.get(name)?.checked_sub(before)?).ok()
    }
    /// The same per second.
    #[must_use]
    pub fn rate(&self, name: &str) -> Option<f64> {
        rate::per_second(self.delta(name)? as f64, self.dt)
    }
}

/// The fold: what must be remembered between ticks.
#[derive(Clone, Debug, Default)]
pub struct Deriver {
    recent: VecDeque<(MonoNs, Samples)>,
    sockets: sockets::SocketTracker,
    tables: BTreeMap<NetnsId, Arc<NetnsTable>>,
    counters: HashMap<NetnsId, VecDeque<(Shared<NetCountersSample>, usize)>>,
    sched: cpu::SchedTracker,
    blocked: blocked::BlockedTracker,
    cgroups: cgroups::CgroupTracker,
    netdev: netdev::NetdevTracker,
    disks: disks::DiskTracker,
    process_io: process_io::ProcessIoTracker,
    filesystems: filesystems::FilesystemTracker,
    events: bpf::events::EventTracker,
    own: own::OwnTracker,
    /// The last reading.
    waits: Option<Shared<WaitsSample>>,
}

impl Deriver {
    /// Bytes of the socket tables that are remembered; those of the last ticks are theirs too.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.tables.values().map(|t| t.heap(None)).sum()
    }

    /// Bytes of what is remembered and in no tick, about: of what is many, the number is known.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sockets.bytes()
            + self.sched.bytes()
            + self.blocked.bytes()
            + self.cgroups.bytes()
            + self.disks.bytes()
            + self.process_io.bytes()
            + self.filesystems.bytes()
            + self.events.bytes()
    }

    /// Figures of the next tick.
    pub fn push(&mut self, tick: &Arc<Tick>) -> Derived {
        let s = &tick.samples;
        let mut out =
            Derived { seq: tick.seq, mono: tick.mono, wall: tick.wall, ..Derived::default() };
        macro_rules! pair {
            ($field:ident) => {
                s.$field.as_ref().and_then(|now| {
                    let old = self.recent.iter().rev().filter_map(|t| t.1.$field.as_ref());
                    Some((base_of(old, now)?, now))
                })
            };
        }
        out.cpu = pair!(cpu).map(|(p, n)| Arc::new(cpu::derive(p, n)));
        out.softirq = pair!(softirq).map(|(p, n)| Arc::new(cpu::derive_softirq(p, n)));
        // Readings after the one that a figure begins with: they name tasks and connections.
        macro_rules! later {
            ($field:ident, $base:expr) => {{
                let from = $base.span.mid();
                let past = self.recent.iter().filter_map(|t| t.1.$field.as_ref());
                past.filter(move |o| o.span.mid() > from).chain(s.$field.as_ref())
            }};
        }
        out.runq_bpf = pair!(runq_bpf)
            .and_then(|(p, n)| bpf::runq::derive(p, n, later!(runq_bpf, p)).map(Arc::new));
        out.net_bpf = pair!(net_bpf)
            .and_then(|(p, n)| bpf::net::derive(p, n, later!(net_bpf, p)).map(Arc::new));
        out.irq_bpf = pair!(irq_bpf).and_then(|(p, n)| bpf::irq::derive(p, n).map(Arc::new));
        out.block_bpf = pair!(block_bpf).and_then(|(p, n)| bpf::block::derive(p, n).map(Arc::new));
        out.psi = pair!(psi).map(|(p, n)| cpu::derive_psi(p, n));
        out.own = s.own.as_ref().and_then(|n| self.own.push(n));
        let disks = pair!(disks).map(|(p, n)| (disks::derive(p, n), n.span.mid()));
        let sched_before = pair!(sched).map(|(p, _)| p.clone());
        out.disks = disks.map(|(mut figures, at)| {
            self.disks.push(&mut figures, at);
            Arc::new(figures)
        });
        out.sched = s.sched.as_ref().map(|n| Arc::new(self.sched.push(sched_before.as_deref(), n)));
        out.blocked = s.processes.as_ref().map(|n| Arc::new(self.blocked.push(n)));
        out.cgroups = s.cgroups.as_ref().map(|n| Arc::new(self.cgroups.push(n)));
        out.process_io = s.process_io.as_ref().map(|n| Arc::new(self.process_io.push(n)));
        out.turned = s.filesystems.as_ref().map(|n| Arc::new(self.filesystems.push(n)));
        if let Some(n) = &s.net_counters {
            self.sockets.counters(n);
        }
        out.sockets = Arc::new(self.push_sockets(tick));
        out.netdev = s.netdev.as_ref().map(|n| {
            let mut spaces = self.netdev.push(n);
            for s in &mut spaces {
                let origins = self.netdev.origins(s.netns);
                s.origins = origins.map(|o| origins::join(o, s.netns, &self.tables));
            }
            Arc::new(spaces)
        });
        out.events = s.net_bpf.as_ref().map(|n| Arc::new(self.events.push(n, &out.sockets)));
        out.net = s.net_counters.as_ref().map(|n| self.push_counters(n)).unwrap_or_default();
        out.waits = s.waits.as_ref().and_then(|n| self.push_waits(n, &out));
        // What rates are taken of; the rest, such as socket tables, the trackers have read.
        let kept = Samples {
            cpu: s.cpu.clone(),
            softirq: s.softirq.clone(),
            psi: s.psi.clone(),
            disks: s.disks.clone(),
            sched: s.sched.clone(),
            runq_bpf: s.runq_bpf.clone(),
            irq_bpf: s.irq_bpf.clone(),
            block_bpf: s.block_bpf.clone(),
            net_bpf: s.net_bpf.clone(),
            ..Samples::default()
        };
        self.recent.push_back((tick.mono, kept));
        self.forget_bases();
        // Rates need one reading that is old enough; collectors may be late by several ticks.
        while self.recent.len() > 2
            && self.recent.front().is_some_and(|t| tick.mono.since(t.0) > Duration::from_secs(20))
        {
            self.recent.pop_front();
        }
        out
    }

    /// Lets go of samples that no figure begins with any more: on a big host each holds half a
    /// megabyte of histograms, or thousands of threads.
    fn forget_bases(&mut self) {
        macro_rules! forget {
            ($($field:ident)+) => { $(
                let newest = self.recent.iter().rev().find_map(|t| t.1.$field.as_ref());
                if let Some(at) = newest.map(|s| s.span.mid()) {
                    let mut enough = false;
                    for (_, t) in self.recent.iter_mut().rev() {
                        let Some(old) = t.$field.as_ref().map(|s| s.span.mid()) else { continue };
                        if enough {
                            t.$field = None;
                        }
                        enough |= at.since(old) >= MIN_SPAN;
                    }
                }
            )+ };
        }
        forget!(cpu softirq psi disks sched runq_bpf irq_bpf block_bpf net_bpf);
    }

    fn push_sockets(&mut self, tick: &Tick) -> sockets::SocketFigures {
        let s = &tick.samples;
        let samples = [s.sockets.as_ref(), s.netns_sockets.as_ref()];
        for space in samples.iter().flatten().flat_map(|s| &s.data.spaces) {
            self.tables.insert(space.netns, space.clone());
        }
        // A walker's sample lists every namespace it knows: what it leaves out is gone.
        if let Some(walker) = &s.netns_sockets {
            let own: Vec<NetnsId> =
                s.sockets.iter().flat_map(|s| &s.data.spaces).map(|t| t.netns).collect();
            self.tables.retain(|id, _| {
                own.contains(id)
                    || walker.data.spaces.iter().any(|t| t.netns == *id)
                    || s.sockets.is_none()
            });
        }
        self.sockets.push(self.tables.values())
    }

    /// What was seen is counted from the reading before: each goes with that one, however short the
    /// time in between.
    fn push_waits(
        &mut self,
        now: &Shared<WaitsSample>,
        others: &Derived,
    ) -> Option<Arc<waits::WaitFigures>> {
        let before = self.waits.replace(now.clone())?;
        let WaitsSample { threads, gone, everyone, .. } = &now.data;
        if threads.is_empty() && gone.is_empty() && !everyone {
            return None;
        }
        let seen = waits::context::Seen {
            now: now.span.mid(),
            tables: &self.tables,
            cgroups: others.cgroups.as_deref().map_or(&[][..], Vec::as_slice),
            disks: others.disks.as_ref().map(|d| d.as_slice()),
            process_io: &self.process_io,
        };
        Some(Arc::new(waits::derive(&before, now, &seen)))
    }

    fn push_counters(&mut self, now: &Shared<NetCountersSample>) -> Vec<NetPair> {
        let at = now.span.mid();
        let mut out = Vec::new();
        for (i, space) in now.data.spaces.iter().enumerate() {
            let past = self.counters.entry(space.netns).or_default();
            let base = past
                .iter()
                .rev()
                .find(|(s, _)| at.since(s.span.mid()) >= MIN_SPAN)
                .or(past.front());
            if let Some((before, j)) = base {
                out.push(NetPair {
                    netns: space.netns,
                    dt: at.since(before.span.mid()),
                    before: (before.clone(), *j),
                    now: (now.clone(), i),
                });
            }
            past.push_back((now.clone(), i));
            while past.len() > 2
                && past.get(1).is_some_and(|(s, _)| at.since(s.span.mid()) >= MIN_SPAN)
            {
                past.pop_front();
            }
        }
        self.counters.retain(|_, p| {
            p.back().is_some_and(|(s, _)| at.since(s.span.mid()) < Duration::from_secs(60))
        });
        out
    }
}

/// The reading to compare with: the youngest that is at least [`MIN_SPAN`] older, else the
/// oldest there is, so that the second tick of a run already shows rates.
fn base_of<'a, S>(
    newest_first: impl Iterator<Item = &'a Shared<S>>,
    now: &Shared<S>,
) -> Option<&'a Shared<S>>
where
    S: 'a,
{
    let mut last = None;
    for old in newest_first {
        last = Some(old);
        if now.span.mid().since(old.span.mid()) >= MIN_SPAN {
            break;
        }
    }
    last
}

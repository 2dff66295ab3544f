//! The list of collectors. One line here and the sample is part of every [`Samples`], is
//! read by its role's thread, is recorded, and shows up in `doctor`.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    CollectError, CollectOptions, Collector, HostFs, Role, SampleContext, Shared, Signal, Stamped,
    Unavailable,
};
use crate::clock;
use crate::model::heap::Heap;
use crate::model::time::{MonoNs, Span};

macro_rules! collectors {
    ($( $(#[$doc:meta])* $variant:ident, $field:ident, $name:literal => $ty:ty; )+) => {
        /// Names a collector.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum CollectorId { $( $(#[$doc])* $variant ),+ }

        impl CollectorId {
            /// All of them, in the order of the registry.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),+ ];
            /// The stable name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $( Self::$variant => $name ),+ }
            }
            /// The collector with this stable name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|id| id.name() == name)
            }
            /// The thread it runs on.
            #[must_use]
            pub fn role(self) -> Role {
                match self { $( Self::$variant => <$ty as Collector>::ROLE ),+ }
            }
        }

        /// What was read for one tick: `None` where a collector is off, late or failed. The
        /// tick's health says which.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Samples {
            $( $(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")]
               pub $field: Option<Shared<<$ty as Collector>::Sample>>, )+
        }

        impl Samples {
            /// Takes over every sample that `other` has.
            pub fn merge(&mut self, other: Self) {
                $( if other.$field.is_some() { self.$field = other.$field; } )+
            }
            /// When the sample of `id` was read, if it is here.
            #[must_use]
            pub fn span(&self, id: CollectorId) -> Option<Span> {
                match id { $( CollectorId::$variant => self.$field.as_ref().map(|s| s.span) ),+ }
            }
            /// Shows every sample that is here to `visitor`, in the order of the registry, with
            /// the one that `before` has of the same collector.
            ///
            /// # Errors
            /// The first one of the visitor.
            pub fn visit<V: SampleVisitor>(&self, before: &Self, visitor: &mut V) -> Result<(), V::Error> {
                $( if let Some(s) = &self.$field {
                    visitor.visit(CollectorId::$variant, s, before.$field.as_ref())?;
                } )+
                Ok(())
            }
            /// Asks `maker` for the sample of every collector, in the order of the registry.
            ///
            /// # Errors
            /// The first one of the maker.
            pub fn make<M: SampleMaker>(before: &Self, maker: &mut M) -> Result<Self, M::Error> {
                Ok(Self { $( $field: maker.make(CollectorId::$variant, before.$field.as_ref())?, )+ })
            }
            /// CPU time of all readings together.
            #[must_use]
            pub fn cpu(&self) -> Duration {
                let mut sum = Duration::ZERO;
                $( if let Some(s) = &self.$field { sum += s.cpu; } )+
                sum
            }
        }

        impl Heap for Samples {
            fn heap(&self, before: Option<&Self>) -> usize {
                0 $( + self.$field.heap(before.map(|b| &b.$field)) )+
            }
        }

        /// Opens every collector of `role`; one that is unavailable is reported, not fatal.
        pub fn open_role(role: Role, host: &HostFs, opts: &CollectOptions) -> Vec<(CollectorId, Result<Box<dyn Running>, Unavailable>)> {
            let mut out: Vec<(CollectorId, Result<Box<dyn Running>, Unavailable>)> = Vec::new();
            $( if <$ty as Collector>::ROLE == role {
                out.push((CollectorId::$variant, <$ty as Collector>::open(host, opts).map(|c| {
                    Box::new(Slot { inner: c, put: |s: &mut Samples, v| s.$field = Some(v) }) as Box<dyn Running>
                })));
            } )+
            out
        }

        #[cfg(test)]
        fn declared_ids() -> Vec<(CollectorId, CollectorId)> {
            vec![ $( (CollectorId::$variant, <$ty as Collector>::ID) ),+ ]
        }
    };
}

/// What every sample type can do.
pub trait AnySample:
    Serialize + serde::de::DeserializeOwned + Heap + Send + Sync + 'static
{
}
impl<S: Serialize + serde::de::DeserializeOwned + Heap + Send + Sync + 'static> AnySample for S {}

/// Sees samples of every type, so that who stores them needs to know none.
pub trait SampleVisitor {
    /// Why it stops.
    type Error;
    /// One sample, and the one before it.
    ///
    /// # Errors
    /// To end the visit.
    fn visit<S: AnySample>(
        &mut self,
        id: CollectorId,
        sample: &Shared<S>,
        before: Option<&Shared<S>>,
    ) -> Result<(), Self::Error>;
}

/// Makes samples of every type.
pub trait SampleMaker {
    /// Why it stops.
    type Error;
    /// The sample of this collector, or `None`; `before` is the one before it.
    ///
    /// # Errors
    /// To end the making.
    fn make<S: AnySample>(
        &mut self,
        id: CollectorId,
        before: Option<&Shared<S>>,
    ) -> Result<Option<Shared<S>>, Self::Error>;
}

/// A collector that has been opened, without its sample type.
pub trait Running: Send {
    /// Reads once and puts the stamped sample into `out`.
    ///
    /// # Errors
    /// As [`Collector::sample`].
    fn run(&mut self, cx: &SampleContext<'_>, out: &mut Samples) -> Result<(), CollectError>;
    /// As [`Collector::relieve`].
    fn relieve(&mut self);
    /// As [`Collector::is_filling`].
    fn is_filling(&self) -> bool;
    /// As [`Collector::signals`].
    fn signals(&self, out: &mut Vec<Signal>);
}

struct Slot<C: Collector> {
    inner: C,
    put: fn(&mut Samples, Shared<C::Sample>),
}

impl<C: Collector> Running for Slot<C> {
    fn run(&mut self, cx: &SampleContext<'_>, out: &mut Samples) -> Result<(), CollectError> {
        let (start, cpu) = (clock::mono(), clock::thread_cpu());
        let mut data = self.inner.sample(cx)?;
        // It may stay in memory for an hour.
        data.settle(None);
        let span = Span::between(start, clock::mono());
        let cpu = clock::thread_cpu().saturating_sub(cpu).as_nanos() as u64;
        let cpu = Duration::from_nanos(MonoNs(cpu).stamp().0);
        (self.put)(out, Arc::new(Stamped { span, cpu, data }));
        Ok(())
    }
    fn relieve(&mut self) {
        self.inner.relieve();
    }
    fn is_filling(&self) -> bool {
        self.inner.is_filling()
    }
    fn signals(&self, out: &mut Vec<Signal>) {
        self.inner.signals(out);
    }
}

collectors! {
    /// sock_diag of our own network namespace.
    Sockets, sockets, "sockets" => super::sockets::HostSockets;
    /// sock_diag of the other network namespaces.
    NetnsSockets, netns_sockets, "netns-sockets" => super::sockets::netns::NetnsSocketsCollector;
    /// `/proc/diskstats` and queue attributes.
    Disks, disks, "disks" => super::disks::DisksCollector;
    /// `/proc/stat`.
    Cpu, cpu, "cpu" => super::cpu::CpuCollector;
    /// `/proc/softirqs`, `/proc/net/softnet_stat`, `/proc/interrupts`, NIC queues.
    Softirq, softirq, "softirq" => super::softirq::SoftirqCollector;
    /// Load, run-queue delay of tasks, `/proc/schedstat`.
    Sched, sched, "sched" => super::sched::SchedCollector;
    /// `/proc/net/{netstat,snmp,snmp6,sockstat}` per namespace.
    NetCounters, net_counters, "net-counters" => super::net_counters::NetCountersCollector;
    /// Network devices, qdiscs, connection tracking per namespace.
    Netdev, netdev, "netdev" => super::netdev::NetdevCollector;
    /// `/proc/pressure`.
    Psi, psi, "psi" => super::psi::PsiCollector;
    /// `/proc/meminfo`, `/proc/vmstat`, `vm.dirty_*`.
    Memory, memory, "memory" => super::memory::MemoryCollector;
    /// CPU, I/O and memory of cgroups v1 and v2, with limits.
    Cgroups, cgroups, "cgroups" => super::cgroups::CgroupsCollector;
    /// Processes: owners of sockets, D state.
    Processes, processes, "processes" => super::processes::ProcessesCollector;
    /// Room and state of mounted file systems.
    Filesystems, filesystems, "filesystems" => super::filesystems::FilesystemsCollector;
    /// Open files of processes, limits of the host on tasks.
    Limits, limits, "limits" => super::limits::LimitsCollector;
    /// The kernel's log: whom the OOM killer ended.
    Kmsg, kmsg, "kmsg" => super::kmsg::KmsgCollector;
    /// Run-queue latency, by eBPF.
    RunqBpf, runq_bpf, "runq-bpf" => super::bpf::runq::RunqBpf;
    /// Time in softirqs and interrupts, by eBPF.
    IrqBpf, irq_bpf, "irq-bpf" => super::bpf::irq::IrqBpf;
    /// Block latency, by eBPF.
    BlockBpf, block_bpf, "block-bpf" => super::bpf::block::BlockBpf;
    /// TCP events and dropped packets, by eBPF.
    NetBpf, net_bpf, "net-bpf" => super::bpf::net::NetBpf;
    /// What this program itself costs.
    Own, own, "self" => super::own::OwnCollector;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collector_declares_the_id_of_its_line() {
        for (line, declared) in declared_ids() {
            assert_eq!(line, declared);
        }
    }

    #[test]
    fn names_are_unique_and_kebab_case() {
        let mut names: Vec<_> = CollectorId::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(before, names.len());
        assert!(names.iter().all(|n| n.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
    }
}

//! The samples of one tick, and the ids of the collectors that read them: one field and one
//! variant per row of the table in `collectors`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Shared;
use super::heap::Heap;
use super::time::Span;
use crate::collectors::for_each_collector;

/// The thread a collector runs on. Collectors of one role run one after the other; roles
/// never wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// sock_diag of the namespace that we started in.
    HostSockets,
    /// sock_diag of all other namespaces; uses `setns`, so it owns its thread.
    NetnsWalker,
    /// Small files of `/proc` and `/sys` that cannot block.
    Files,
    /// `/proc/PID` and cgroup walks: many files, which may be slow.
    Tasks,
    /// eBPF programs; may have a mount namespace of its own.
    Bpf,
    /// The threads of processes that somebody asked about, many times between two readings.
    Waits,
}

macro_rules! data {
    ($( $(#[$doc:meta])* $variant:ident, $field:ident, $name:literal, $role:ident:
        $($sample:ident)::+ => $($reader:ident)::+; )+) => {
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
                match self { $( Self::$variant => Role::$role ),+ }
            }
        }

        /// What was read for one tick: `None` where a collector is off, late or failed. The
        /// tick's health says which.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Samples {
            $( $(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")]
               pub $field: Option<Shared<super::$($sample)::+>>, )+
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
    };
}
for_each_collector!(data);

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

#[cfg(test)]
mod tests {
    use super::*;

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

//! Opens the collectors of the table, each as a [`Running`] whatever its sample is.

use std::sync::Arc;
use std::time::Duration;

use super::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::clock;
use crate::collectors::for_each_collector;
use crate::sample::heap::Heap;
use crate::sample::time::{MonoNs, Span};
use crate::sample::{CollectorId, Role, Samples, Shared, Signal, Stamped};

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
    /// As [`Collector::relief`].
    fn relief(&self) -> Option<Duration>;
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
    fn relief(&self) -> Option<Duration> {
        self.inner.relief()
    }
    fn signals(&self, out: &mut Vec<Signal>) {
        self.inner.signals(out);
    }
}

macro_rules! readers {
    ($( $(#[$doc:meta])* $variant:ident, $field:ident, $name:literal, $role:ident:
        $($sample:ident)::+ => $($reader:ident)::+; )+) => {
        /// Opens every collector of `role`; one that is unavailable is reported, not fatal.
        pub fn open_role(role: Role, host: &HostFs, opts: &CollectOptions) -> Vec<(CollectorId, Result<Box<dyn Running>, Unavailable>)> {
            let mut out: Vec<(CollectorId, Result<Box<dyn Running>, Unavailable>)> = Vec::new();
            $( if Role::$role == role {
                out.push((CollectorId::$variant, <super::$($reader)::+ as Collector>::open(host, opts).map(|c| {
                    Box::new(Slot { inner: c, put: |s: &mut Samples, v| s.$field = Some(v) }) as Box<dyn Running>
                })));
            } )+
            out
        }

        #[cfg(test)]
        fn declared_ids() -> Vec<(CollectorId, CollectorId)> {
            vec![ $( (CollectorId::$variant, <super::$($reader)::+ as Collector>::ID) ),+ ]
        }
    };
}
for_each_collector!(readers);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collector_declares_the_id_of_its_line() {
        for (line, declared) in declared_ids() {
            assert_eq!(line, declared);
        }
    }
}

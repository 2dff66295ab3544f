//! Sockets of the other network namespaces, on a thread of their own that uses `setns`.

use super::SocketsSample;
use crate::collect::{
    CollectError, CollectOptions, Collector, CollectorId, HostFs, Role, SampleContext, Signal,
    Unavailable,
};

/// Reads it. See the module head.
pub struct NetnsSocketsCollector {
    host: HostFs,
}

impl Collector for NetnsSocketsCollector {
    type Sample = SocketsSample;
    const ID: CollectorId = CollectorId::NetnsSockets;
    const ROLE: Role = Role::NetnsWalker;

    fn open(_host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        Err(Unavailable::new("not built yet", ""))
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<Self::Sample, CollectError> {
        let _ = &self.host;
        Ok(Self::Sample::default())
    }

    fn signals(&self, _out: &mut Vec<Signal>) {}
}

//! Sockets over `NETLINK_SOCK_DIAG`, with `/proc/net` as the fallback.

pub mod netns;
pub mod rows;

pub use rows::*;

use super::{
    CollectError, CollectOptions, Collector, CollectorId, HostFs, Role, SampleContext, Signal,
    Unavailable,
};

/// Reads it. See the module head.
pub struct HostSockets {
    host: HostFs,
}

impl Collector for HostSockets {
    type Sample = SocketsSample;
    const ID: CollectorId = CollectorId::Sockets;
    const ROLE: Role = Role::HostSockets;

    fn open(_host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        Err(Unavailable::new("not built yet", ""))
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<Self::Sample, CollectError> {
        let _ = &self.host;
        Ok(Self::Sample::default())
    }

    fn signals(&self, _out: &mut Vec<Signal>) {}
}

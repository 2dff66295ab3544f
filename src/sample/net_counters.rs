//! Protocol counters by name, per network namespace.
//!
//! Names, never columns: they move between kernel versions, and what is absent is unknown. An
//! entry in the sample has always been read for this sample.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::heap::owns;
use super::subject::NetnsId;

/// Counters of all namespaces that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetCountersSample {
    /// One entry per namespace.
    pub spaces: Vec<NetnsCounters>,
    /// `net.ipv4.tcp_mem`: low, pressure, high, in pages. Host-wide.
    pub tcp_mem: Option<[u64; 3]>,
    /// `net.ipv4.tcp_max_orphans`.
    pub tcp_max_orphans: Option<u64>,
}
owns!(NetCountersSample { spaces } flat { tcp_mem, tcp_max_orphans });

/// Counters of one namespace: names are shared between ticks, values are not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetnsCounters {
    /// The namespace.
    pub netns: NetnsId,
    /// Names as `nstat` prints them: `TcpRetransSegs`, `TcpExtTCPWqueueTooBig`,
    /// `Ip6InReceives`; sockstat as `sockstat.TCP.inuse`. Sorted.
    pub names: Arc<Vec<Box<str>>>,
    /// Values in the order of `names`. Signed: `TcpMaxConn` is -1.
    pub values: Vec<i64>,
}
owns!(NetnsCounters { names, values } flat { netns });

impl NetnsCounters {
    /// The value of a counter; `None` when this kernel does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i64> {
        let i = self.names.binary_search_by(|n| (**n).cmp(name)).ok()?;
        self.values.get(i).copied()
    }
}

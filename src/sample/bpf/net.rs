//! TCP events, dropped packets, who sent the bad ones, and who connects, as eBPF counts them.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sample::heap::{flat, owns};
use crate::sample::subject::{CpuId, Endpoint, NetnsId};
use crate::sample::time::MonoNs;

/// Most rows of [`NetBpfSample::connectors`].
pub const MAX_CONNECTORS: usize = 64;
/// Most rows of [`NetBpfSample::bad_senders`] of one reason and namespace.
pub const MAX_BAD_SENDERS: usize = 16;

/// One reading. Counters are since the programs were attached; a kind whose program is not
/// attached is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetBpfSample {
    /// Segments sent again (packets, as the stack builds them).
    pub retransmits: Option<u64>,
    /// Retransmits that the stack failed to send (6.17; counted as retransmits before).
    pub retransmits_failed: Option<u64>,
    /// Resets sent. Before 6.10 only those of a socket.
    pub resets_sent: Option<u64>,
    /// Resets received by a socket.
    pub resets_received: Option<u64>,
    /// Packets that found a socket's receive queue full (not TCP data, not UDP).
    pub rcvqueue_full: Option<u64>,
    /// Packets dropped, all reasons.
    pub drops: Option<u64>,
    /// Calls of `connect()` for TCP, whatever became of them.
    pub connects: Option<u64>,
    /// By reason.
    pub reasons: Vec<DropReason>,
    /// By reason and place.
    pub places: Vec<DropPlace>,
    /// Drops whose place found no row.
    pub place_full: u64,
    /// What happened since the reading before, per connection, most events first.
    pub flows: Vec<FlowEvents>,
    /// Events since the reading before whose connections are not listed.
    pub unlisted: u64,
    /// Who connected where since the reading before, most calls first: at most [`MAX_CONNECTORS`].
    /// Of more than 250 calls per second and CPU, a sample.
    pub connectors: Vec<Connector>,
    /// Calls since the reading before that were recorded and are not listed.
    pub connects_unlisted: u64,
    /// Packets dropped that came in bad: with a wrong checksum, or as fragments of which the rest did
    /// not arrive. `None` where the kernel gives no such reason, or programs cannot read the headers
    /// of packets.
    pub bad_packets: Option<u64>,
    /// Who sent them since the reading before: of each reason and namespace those who sent most, at
    /// most [`MAX_BAD_SENDERS`]. Of more than 250 per second and CPU, a sample.
    pub bad_senders: Vec<BadSender>,
    /// Such packets since the reading before that were recorded and are not listed.
    pub bad_unlisted: u64,
    /// Records left out by the rate limit, since attach; calls of `connect()` and bad
    /// packets are not counted.
    pub limited: u64,
    /// Records left out because the ring was full, since attach.
    pub ring_full: u64,
    /// Events that no program ran for (5.12); `None` where the kernel does not tell.
    pub missed: Option<u64>,
}
owns!(NetBpfSample { reasons, places, flows, connectors, bad_senders } flat {
    retransmits, retransmits_failed, resets_sent, resets_received, rcvqueue_full, drops, connects,
    place_full, unlisted, connects_unlisted, bad_packets, bad_unlisted, limited, ring_full, missed
});

/// Drops for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DropReason {
    /// Number in this kernel; 191 stands for that and all above and for other subsystems.
    pub reason: u16,
    /// Name in this kernel, such as `NO_SOCKET`; empty when unknown.
    pub name: Arc<str>,
    /// Packets.
    pub count: u64,
}
owns!(DropReason { name } flat { reason, count });

/// Drops for one reason at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DropPlace {
    /// Number of the reason, see [`DropReason`].
    pub reason: u16,
    /// Function of the kernel, or its address where symbols are hidden.
    pub place: Arc<str>,
    /// Packets.
    pub count: u64,
}
owns!(DropPlace { place } flat { reason, count });

/// Kinds of event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetEventKind {
    /// A segment was sent again.
    #[default]
    Retransmit,
    /// We sent a reset.
    SendReset,
    /// A reset arrived.
    ReceiveReset,
    /// A packet found no room in a receive queue.
    RcvqueueFull,
    /// A retransmit failed to be sent.
    RetransmitFailed,
}

/// Events of one kind on one connection since the reading before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEvents {
    /// The kind.
    pub kind: NetEventKind,
    /// Local and remote end; `None` for a reset without a socket.
    pub ends: Option<(Endpoint, Endpoint)>,
    /// Network namespace.
    pub netns: NetnsId,
    /// Socket cookie, as `sock_diag` has it; 0 when the socket was never asked for one.
    pub cookie: u64,
    /// TCP state number at the last event.
    pub state: u8,
    /// Reason of a reset (6.10) or error of a retransmit, at the last event; else 0.
    pub detail: i32,
    /// How many.
    pub count: u64,
    /// When the last one happened.
    pub last: MonoNs,
    /// On which CPU.
    pub cpu: CpuId,
}
flat!(FlowEvents);

/// Calls of `connect()` of one process for one destination since the reading before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connector {
    /// The process, as the host numbers it.
    pub pid: u32,
    /// Its `comm`, raw; `None` if it had ended by the reading.
    pub comm: Option<Arc<str>>,
    /// Network namespace of the socket.
    pub netns: NetnsId,
    /// Where to.
    pub remote: Endpoint,
    /// How many calls.
    pub count: u64,
}
owns!(Connector { comm } flat { pid, netns, remote, count });

/// Packets of one sender that were dropped for one reason since the reading before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSender {
    /// Number of the reason, see [`DropReason`].
    pub reason: u16,
    /// Network namespace of the device that they came in by. Not one that there is, mostly 0, if the
    /// packet did not have it any more.
    pub netns: NetnsId,
    /// Their source address, as it says in the packet.
    pub addr: IpAddr,
    /// How many.
    pub count: u64,
}
flat!(BadSender);

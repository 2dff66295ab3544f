//! Sockets over time: timer events, how long nothing moved, and which sockets are in trouble.
//!
//! A healthy socket costs one look at its row per tick. A socket whose timer, queue or window
//! looks odd is followed: its `tcp_info` from tick to tick, and the last few timer events with
//! what left the host at each. RTOs may be two minutes apart, so the events are remembered
//! here and not searched in the history.

mod advance;
mod drops;
mod flows;
mod groups;
mod rto;
mod services;
mod stall;

mod talkers;
mod tally;
mod tracker;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use drops::Dropper;
pub use flows::{Flow, PeerLoss};
pub use groups::{Group, STUCK, UNREAD};
pub use rto::{Growth, Rto};
pub use services::{LATE, Still};
pub use talkers::{End, Talker};
pub use tally::{Closer, Closing, Fat, OLD, PortUse, SpaceFigures, SynQueue, UnixFull};
pub use tracker::{SocketTracker, trouble};

use crate::sample::sockets::{Owner, Proto, RouteOutcome, SockState, SockTimer, TcpInfo};
use crate::sample::subject::{Endpoint, NetnsId, SockId};
use crate::sample::time::MonoNs;

/// Timer events remembered per socket.
pub const MAX_EVENTS: usize = 8;
/// Sockets followed at most; the worst are kept.
pub const MAX_SUSPECTS: usize = 2000;
/// How long a socket is followed after its last trouble, and after it vanished.
const KEEP: Duration = Duration::from_secs(60);
/// Which timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerKind {
    /// Retransmission timeout: `retransmits` grew.
    Rto,
    /// Zero-window probe.
    Probe,
}

/// Growth of the namespace's counters around a timer event: from one reading before the look
/// before to one reading after it, since files and sockets are not read at one instant.
/// `None`: this kernel does not have the counter, or it was not read then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetGrowth {
    /// `TcpExtTCPWqueueTooBig` (since 4.19.52 and its backports).
    pub wqueue_too_big: Option<u64>,
    /// `TcpExtTCPRetransFail`: a retransmission was refused on its way out.
    pub retrans_fail: Option<u64>,
    /// `TcpExtTCPSpuriousRtxHostQueues`: the original is still in qdisc or driver.
    pub host_queues: Option<u64>,
    /// `TcpRetransSegs`.
    pub retrans_segs: Option<u64>,
    /// A reading was taken after the event: these numbers are final.
    settled: bool,
}

impl NetGrowth {
    /// The counters, in the order of the fields.
    const NAMES: [&'static str; 4] = [
        "TcpExtTCPWqueueTooBig",
        "TcpExtTCPRetransFail",
        "TcpExtTCPSpuriousRtxHostQueues",
        "TcpRetransSegs",
    ];

    /// Were the counters read after the event? Until then they may still grow.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled
    }
}

/// One firing (or several between two ticks) of a socket's timer, with what left the host in
/// the same interval. `None`: this kernel does not report the field, or it was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerEvent {
    /// Tick in which it was seen.
    pub at: MonoNs,
    /// The look before: it fired in between.
    pub after: MonoNs,
    /// Which timer.
    pub kind: TimerKind,
    /// How often it fired since the tick before.
    pub count: u32,
    /// Growth of `segs_out`.
    pub segs_out: Option<u32>,
    /// Growth of `data_segs_out`.
    pub data_segs_out: Option<u32>,
    /// Growth of `total_retrans`.
    pub total_retrans: Option<u32>,
    /// Growth of `bytes_acked`.
    pub bytes_acked: Option<u64>,
    /// `t` of skmem at that moment.
    pub t: Option<u32>,
    /// Counters of the namespace at that moment.
    pub net: NetGrowth,
}

/// A socket that is followed, as of one tick.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The socket.
    pub id: SockId,
    /// Protocol.
    pub proto: Proto,
    /// Local endpoint.
    pub local: Endpoint,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// State.
    pub state: SockState,
    /// Timer.
    pub timer: SockTimer,
    /// `idiag_retrans`.
    pub retrans: u8,
    /// ms to the next firing.
    pub expires_ms: u32,
    /// Receive queue.
    pub rqueue: u32,
    /// Send queue.
    pub wqueue: u32,
    /// Socket inode.
    pub inode: u32,
    /// Owner's uid.
    pub uid: u32,
    /// cgroup2 id, 0 when unknown.
    pub cgroup: u64,
    /// skmem words, in the kernel's order; empty when not sent.
    pub skmem: SkMemWords,
    /// `tcp_info` of this tick, or the last one read.
    pub info: Option<TcpInfo>,
    /// Process that holds it, where known.
    pub owner: Option<Owner>,
    /// Route lookup, where made.
    pub route: Option<RouteOutcome>,
    /// The peer came to us: the local port is one that we listen on (or looks like one), so
    /// the remote port says nothing.
    pub inbound: bool,
    /// When it was first followed.
    pub first_seen: MonoNs,
    /// When it was last in a dump.
    pub seen_at: MonoNs,
    /// When it last looked odd.
    pub troubled_at: MonoNs,
    /// `tcp_info` was last read then.
    pub info_at: Option<MonoNs>,
    /// Data waits and `bytes_acked` has not moved since; `None` where the kernel does not report it (< 4.1).
    pub acked_flat_since: Option<MonoNs>,
    /// `segs_out` has not moved since; `None` where the kernel does not report it (< 4.2).
    pub segs_out_flat_since: Option<MonoNs>,
    /// The persist timer has been running since.
    pub persist_since: Option<MonoNs>,
    /// The persist timer has been running with `snd_wnd` 0 since.
    pub zero_window_since: Option<MonoNs>,
    /// The receive queue has been non-empty and not falling since.
    pub unread_since: Option<MonoNs>,
    /// Timer events since `bytes_acked` last moved, oldest first.
    pub events: Vec<TimerEvent>,
    /// us limited by the peer's window in the last interval, with that interval.
    pub rwnd_limited: Option<(Duration, Duration)>,
    /// Drops of this socket (`d`) in the last interval.
    pub drops: Option<u32>,
    /// How it spent the last seconds, where it moves data.
    pub flow: Option<Flow>,
    /// It was not in the last dump: gone, or missed between two chunks.
    pub missing_since: Option<MonoNs>,
}

/// skmem words with their count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkMemWords {
    /// r rb t tb f w o bl d.
    pub words: [u32; 9],
    /// How many of them were sent.
    pub len: u8,
}

macro_rules! words {
    ($( $(#[$doc:meta])* $name:ident = $i:literal; )+) => {
        impl SkMemWords { $( $(#[$doc])* #[must_use] pub fn $name(&self) -> Option<u32> {
            ($i < self.len).then(|| self.words[$i])
        } )+ }
    };
}
words! {
    /// Receive queue.
    r = 0;
    /// Receive limit.
    rb = 1;
    /// Handed to qdisc or driver.
    t = 2;
    /// Send limit.
    tb = 3;
    /// Forward allocation.
    f = 4;
    /// Write and retransmit queue.
    w = 5;
    /// Options.
    o = 6;
    /// Backlog.
    bl = 7;
    /// Drops.
    d = 8;
}

impl Suspect {
    /// Firings of `kind` since data was last acknowledged.
    #[must_use]
    pub fn fired(&self, kind: TimerKind) -> u32 {
        self.events.iter().filter(|e| e.kind == kind).map(|e| e.count).sum()
    }
    /// The youngest events of `kind`, newest first, as long as `keep` holds.
    pub fn trailing<'a>(
        &'a self,
        kind: TimerKind,
        keep: impl Fn(&TimerEvent) -> bool + 'a,
    ) -> impl Iterator<Item = &'a TimerEvent> {
        self.events.iter().rev().filter(move |e| e.kind == kind).take_while(move |e| keep(e))
    }
    /// RTOs without an answer so far: `retransmits` of `tcp_info`, else of the dump's header.
    #[must_use]
    pub fn retransmits(&self) -> u8 {
        let header = if self.timer == SockTimer::ON { self.retrans } else { 0 };
        self.info.and_then(|i| i.retransmits()).unwrap_or(0).max(header)
    }
    /// Probes without an answer so far.
    #[must_use]
    pub fn unanswered_probes(&self) -> u8 {
        let header = if self.timer == SockTimer::PERSIST { self.retrans } else { 0 };
        self.info.and_then(|i| i.probes()).unwrap_or(0).max(header)
    }
    /// When `tcp_info` was read, or the row if it never was.
    #[must_use]
    pub fn as_of(&self) -> MonoNs {
        self.info_at.unwrap_or(self.seen_at)
    }
}

/// Counts over the sockets of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketTotals {
    /// The namespace.
    pub netns: NetnsId,
    /// TCP sockets of any state.
    pub tcp: u32,
    /// Established.
    pub established: u32,
    /// Listening.
    pub listening: u32,
    /// TIME_WAIT.
    pub time_wait: u32,
    /// CLOSE_WAIT.
    pub close_wait: u32,
    /// SYN_SENT.
    pub syn_sent: u32,
    /// SYN_RECV.
    pub syn_recv: u32,
    /// Connections with bytes in the send queue.
    pub sending: u32,
    /// UDP sockets.
    pub udp: u32,
    /// UNIX sockets.
    pub unix: u32,
}

/// Sockets over one interval.
#[derive(Clone, Debug, Default)]
pub struct SocketFigures {
    /// The sockets that are followed, by id.
    pub suspects: Vec<Arc<Suspect>>,
    /// Counts per namespace.
    pub totals: Vec<SocketTotals>,
    /// Namespaces as crowds, as of their latest reading, by id.
    pub spaces: Vec<Arc<SpaceFigures>>,
    /// Sockets that dropped packets, of the namespaces read in this tick.
    pub droppers: Vec<Dropper>,
    /// Retransmissions by peer, of the namespaces read in this tick.
    pub losses: Vec<PeerLoss>,
    /// Who moves most bytes, of the namespaces read in this tick.
    pub talkers: Vec<Talker>,
    /// Services that stand still, as of the latest reading of their namespace.
    pub still: Vec<Still>,
}

impl SocketFigures {
    /// A followed socket.
    #[must_use]
    pub fn get(&self, id: SockId) -> Option<&Arc<Suspect>> {
        self.suspects.binary_search_by_key(&id, |s| s.id).ok().map(|i| &self.suspects[i])
    }
    /// A namespace as a crowd.
    #[must_use]
    pub fn space(&self, netns: NetnsId) -> Option<&SpaceFigures> {
        self.spaces.iter().find(|s| s.netns == netns).map(|s| &**s)
    }
}

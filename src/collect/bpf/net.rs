//! TCP retransmits and resets, full receive queues, dropped packets by reason and place, who sent
//! those that came in bad, and who calls `connect()`.
//!
//! Counters miss nothing. Records with the socket go through a ring buffer (perf buffers before
//! 5.8); at a reading they are put together per connection. A rate limit (20,000 per second and
//! CPU) and a full buffer cost records, never counts, and both are told. Of `connect()` and of bad
//! packets a sample is enough (250 of each per second and CPU): who is behind most is in there.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::events::Events;
use super::load::{self, Hook, Kernel, Loaded};
use super::maps::{Still, Stripes};
use super::{Coverage, events, objects, offsets, symbols};
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::sample::bpf::layout::net as l;
use crate::sample::bpf::net::{
    BadSender, Connector, DropPlace, DropReason, FlowEvents, MAX_BAD_SENDERS, MAX_CONNECTORS,
    NetBpfSample, NetEventKind,
};
use crate::sample::subject::{CpuId, Endpoint, NetnsId};
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// Kernel memory per possible CPU.
pub(super) const BYTES_PER_CPU: usize = l::WORDS * 8 + events::BYTES_PER_CPU;
/// Kernel memory that does not depend on the CPUs.
pub(super) const BYTES_FIXED: usize = events::BYTES_FIXED;

/// Connections that one sample lists.
const LISTED: usize = 256;

/// Those that records come for, beside [`l::CONNECT`] and [`l::BAD_PACKET`].
const KINDS: [NetEventKind; l::CONNECT] = [
    NetEventKind::Retransmit,
    NetEventKind::SendReset,
    NetEventKind::ReceiveReset,
    NetEventKind::RcvqueueFull,
    NetEventKind::RetransmitFailed,
];

/// Reads it. See the module head.
pub struct NetBpf {
    host: HostFs,
    loaded: Loaded,
    stripes: Stripes<{ l::WORDS }>,
    events: Events,
    held: Held,
    /// Records of the last reading.
    taken: u64,
    /// Why a program is not attached, by [`PROGRAMS`].
    off: [Option<String>; PROGRAMS.len()],
    reasons: Vec<(u32, Arc<str>)>,
    places: BTreeMap<u64, Arc<str>>,
    /// All drops, and their reasons and places as they were read last.
    dropped: (Still, Vec<DropReason>, Vec<DropPlace>),
    coverage: Coverage,
    /// Whether the senders of bad packets are told.
    senders: bool,
}

/// Programs with their tracepoints.
const PROGRAMS: [(&str, &str); 6] = [
    ("tcp_retransmit", "tcp_retransmit_skb"),
    ("tcp_send_reset", "tcp_send_reset"),
    ("tcp_receive_reset", "tcp_receive_reset"),
    ("rcvqueue_full", "sock_rcvqueue_full"),
    ("drop_skb", "kfree_skb"),
    ("connect", "inet_sock_set_state"),
];
const DROPS: usize = 4;
const CONNECTS: usize = 5;

impl Collector for NetBpf {
    type Sample = NetBpfSample;
    const ID: CollectorId = CollectorId::NetBpf;

    fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        Self::with(host, &kernel, objects::NET).or_else(|e| {
            // Before 5.8 there are no ring buffers. The first reason is the one to tell.
            Self::with(host, &kernel, objects::NET_PERF).map_err(|_| e)
        })
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<NetBpfSample, CollectError> {
        load::forget_kernel();
        let mut out = NetBpfSample::default();
        let taken = self.take_events(&mut out);
        self.stripes.refresh().map_err(|e| CollectError::read("map NET", e))?;
        out.missed = self.loaded.missed();
        let sum = |word| {
            (0..self.stripes.count()).map(|c| self.stripes.get(c, word)).fold(0, u64::wrapping_add)
        };
        let kind = |program: usize, kind: usize| {
            self.off.get(program)?.is_none().then(|| sum(l::KIND + kind))
        };
        out.retransmits = kind(0, l::RETRANSMIT);
        out.retransmits_failed = kind(0, l::RETRANSMIT_FAILED);
        out.resets_sent = kind(1, l::SEND_RESET);
        out.resets_received = kind(2, l::RECEIVE_RESET);
        out.rcvqueue_full = kind(3, l::RCVQUEUE_FULL);
        out.drops = self.off.get(DROPS).and_then(|o| o.is_none().then(|| sum(l::DROPS)));
        out.connects = kind(CONNECTS, l::CONNECT);
        out.bad_packets = kind(DROPS, l::BAD_PACKET).filter(|_| self.senders);
        out.limited = sum(l::LIMITED);
        out.ring_full = sum(l::RING_FULL);
        out.place_full = sum(l::PLACE_FULL);
        self.coverage.counted = self.coverage.counted.saturating_add(taken);
        self.coverage.lost =
            out.limited.saturating_add(out.ring_full).saturating_add(out.missed.unwrap_or(0));
        if self.dropped.0.stands(sum(l::DROPS)) {
            (out.reasons, out.places) = (self.dropped.1.clone(), self.dropped.2.clone());
        } else {
            self.take_drops(&mut out);
            (self.dropped.1, self.dropped.2) = (out.reasons.clone(), out.places.clone());
        }
        Ok(out)
    }

    fn relieve(&mut self) {
        self.held.take_in(&mut self.events);
    }

    fn is_filling(&self) -> bool {
        self.taken >= events::MANY
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        out.push(self.coverage.signal("TCP events"));
        let names = [
            "TCP retransmit events",
            "TCP resets sent",
            "TCP resets received",
            "full receive queues",
            "packet drop reasons",
            "connect() calls",
        ];
        for (name, why) in names.into_iter().zip(&self.off) {
            if let Some(why) = why {
                out.push(Signal::missing(name, "ebpf", why.clone(), ""));
            }
        }
    }
}

/// Entries of the map.
pub(super) fn sizes(cpus: usize) -> [(&'static str, u32); 1] {
    [("NET", cpus as u32)]
}

impl NetBpf {
    fn with(host: &HostFs, kernel: &Kernel, object: &[u8]) -> Result<Self, Unavailable> {
        let types = kernel.types.as_ref().map_err(Clone::clone)?;
        let mut globals = offsets::net(&types.own, types.helper)?;
        let senders = offsets::senders_known(&globals);
        globals.push(("BY_HELPER", types.by_helper));
        let mut loaded = Loaded::new(kernel, object, &globals, &sizes(kernel.cpus))?;
        let stripes = loaded.stripes("NET", kernel.cpus)?;
        let events = Events::take(&mut loaded.ebpf, kernel.cpus)?;
        let mut first = None;
        let off = PROGRAMS.map(|(program, tracepoint)| {
            let error = loaded.attach(kernel, program, Hook::Btf(tracepoint)).err()?;
            first.get_or_insert_with(|| error.clone());
            Some(error.reason)
        });
        if let Some(error) = first.filter(|_| off.iter().all(Option::is_some)) {
            return Err(error);
        }
        Ok(Self {
            host: host.clone(),
            loaded,
            stripes,
            events,
            held: Held::default(),
            taken: 0,
            off,
            reasons: reason_names(types.own.enumeration("skb_drop_reason")),
            places: BTreeMap::new(),
            dropped: (Still::default(), Vec::new(), Vec::new()),
            coverage: Coverage::default(),
            senders,
        })
    }

    /// Opens with perf buffers even where there are ring buffers, for the tests.
    ///
    /// # Errors
    /// As [`Collector::open`].
    #[doc(hidden)]
    pub fn open_perf(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        Self::with(host, &*load::kernel(host, opts)?, objects::NET_PERF)
    }

    /// Empties the ring; returns how many records there were since the reading before, but for those
    /// of which a sample is enough.
    fn take_events(&mut self, out: &mut NetBpfSample) -> u64 {
        self.held.take_in(&mut self.events);
        let held = std::mem::take(&mut self.held);
        out.unlisted = held.unlisted;
        out.flows = held.flows.into_values().collect();
        out.flows.sort_by_key(|f| std::cmp::Reverse(f.count));
        let rest = out.flows.get(LISTED..).unwrap_or_default();
        out.unlisted += rest.iter().map(|f| f.count).sum::<u64>();
        out.flows.truncate(LISTED);
        self.list_connectors(held.connects, out);
        out.connects_unlisted += held.connects_unlisted;
        list_senders(held.bad, out);
        out.bad_unlisted += held.bad_unlisted;
        self.taken = held.taken;
        held.counted
    }

    fn list_connectors(&self, connects: BTreeMap<ConnectKey, u64>, out: &mut NetBpfSample) {
        let mut all: Vec<(ConnectKey, u64)> = connects.into_iter().collect();
        all.sort_by_key(|(key, count)| (std::cmp::Reverse(*count), *key));
        let rest = all.get(MAX_CONNECTORS..).unwrap_or_default();
        out.connects_unlisted = rest.iter().map(|(_, n)| n).sum();
        all.truncate(MAX_CONNECTORS);
        let mut names: BTreeMap<u32, Option<Arc<str>>> = BTreeMap::new();
        let name = |pid| self.host.read_trimmed(format!("proc/{pid}/comm")).ok().map(Arc::from);
        out.connectors = all
            .into_iter()
            .map(|((pid, netns, remote), count)| {
                let comm = names.entry(pid).or_insert_with(|| name(pid)).clone();
                Connector { pid, comm, netns, remote, count }
            })
            .collect();
    }

    fn take_drops(&mut self, out: &mut NetBpfSample) {
        let cpus = || 0..self.stripes.count();
        for r in 0..l::REASONS {
            let count =
                cpus().map(|c| self.stripes.get(c, l::REASON + r)).fold(0, u64::wrapping_add);
            if count > 0 {
                let known = self.reasons.iter().find(|(v, _)| *v == r as u32);
                let name = known.map(|(_, n)| n.clone()).unwrap_or_default();
                out.reasons.push(DropReason { reason: r as u16, name, count });
            }
        }
        let mut places: BTreeMap<u64, u64> = BTreeMap::new();
        for c in cpus() {
            for i in 0..l::PLACES {
                let row = l::PLACE + i * l::PLACE_WORDS;
                let key = self.stripes.get(c, row);
                if key != 0 {
                    let n = places.entry(key).or_default();
                    *n = n.wrapping_add(self.stripes.get(c, row + 1));
                }
            }
        }
        let new: Vec<u64> = places
            .keys()
            .map(|k| symbols::address(*k))
            .filter(|a| !self.places.contains_key(a))
            .collect();
        if !new.is_empty() {
            symbols::resolve(&self.host, &new, &mut self.places);
        }
        out.places = places
            .into_iter()
            .map(|(key, count)| DropPlace {
                reason: (key >> 48) as u16,
                place: self.places.get(&symbols::address(key)).cloned().unwrap_or_default(),
                count,
            })
            .collect();
    }
}

/// Events since the last reading.
#[derive(Default)]
struct Held {
    flows: BTreeMap<FlowKey, FlowEvents>,
    unlisted: u64,
    connects: BTreeMap<ConnectKey, u64>,
    connects_unlisted: u64,
    bad: BTreeMap<BadKey, u64>,
    bad_unlisted: u64,
    /// Records.
    taken: u64,
    /// The same without those of `connect()` and of bad packets.
    counted: u64,
}

impl Held {
    fn take_in(&mut self, events: &mut Events) {
        events.drain(|record| {
            self.taken += 1;
            if let Some(key) = connect(record) {
                return self.connect(key);
            }
            if kind(record) == Some(l::BAD_PACKET) {
                return self.bad_packet(bad_packet(record));
            }
            self.counted += 1;
            let Some(e) = decode(record) else {
                self.unlisted += 1;
                return;
            };
            let key = (e.kind, e.netns, e.ends, e.ends.is_none().then_some(e.detail));
            if let Some(f) = self.flows.get_mut(&key) {
                let count = f.count + 1;
                *f = FlowEvents { count, ..e };
            } else if self.flows.len() >= LISTED * 16 {
                // Bounded: a flood from everywhere must not eat our memory.
                self.unlisted += 1;
            } else {
                self.flows.insert(key, e);
            }
        });
    }

    fn connect(&mut self, key: ConnectKey) {
        if let Some(count) = self.connects.get_mut(&key) {
            *count += 1;
        } else if self.connects.len() >= MAX_CONNECTORS * 16 {
            // As above: a scanner connects everywhere.
            self.connects_unlisted += 1;
        } else {
            self.connects.insert(key, 1);
        }
    }

    fn bad_packet(&mut self, key: Option<BadKey>) {
        let Some(key) = key else {
            self.bad_unlisted += 1;
            return;
        };
        if let Some(count) = self.bad.get_mut(&key) {
            *count += 1;
        } else if self.bad.len() >= MAX_BAD_SENDERS * 64 {
            // As above: source addresses can be forged.
            self.bad_unlisted += 1;
        } else {
            self.bad.insert(key, 1);
        }
    }
}

/// Those with most packets of each reason and namespace, and how many are not listed.
fn list_senders(bad: BTreeMap<BadKey, u64>, out: &mut NetBpfSample) {
    let mut all: Vec<BadSender> = bad
        .into_iter()
        .map(|((reason, netns, addr), count)| BadSender { reason, netns, addr, count })
        .collect();
    all.sort_by_key(|s| (s.reason, s.netns, std::cmp::Reverse(s.count)));
    let (mut group, mut rank) = (None, 0);
    all.retain(|s| {
        rank = if group == Some((s.reason, s.netns)) { rank + 1 } else { 0 };
        group = Some((s.reason, s.netns));
        let listed = rank < MAX_BAD_SENDERS;
        out.bad_unlisted += if listed { 0 } else { s.count };
        listed
    });
    out.bad_senders = all;
}

/// Events that belong together: kind, namespace, ends, and without ends the reason.
type FlowKey = (NetEventKind, NetnsId, Option<(Endpoint, Endpoint)>, Option<i32>);

/// Who connects where: process, namespace, destination.
type ConnectKey = (u32, NetnsId, Endpoint);

/// Reason, namespace, and who sent the packet.
type BadKey = (u16, NetnsId, IpAddr);

/// Parses a record of [`l::BAD_PACKET`]. `None`: it is not of IP.
fn bad_packet(b: &[u8]) -> Option<BadKey> {
    let record = Record(b);
    let reason = u16::try_from(record.u32_at(28)?).ok()?;
    Some((reason, record.netns()?, record.address(48)?))
}

/// Of a record.
fn kind(b: &[u8]) -> Option<usize> {
    Record(b).u16_at(16).map(usize::from)
}

/// Parses a record of [`l::CONNECT`]. The local end is not known yet when a process connects.
fn connect(b: &[u8]) -> Option<ConnectKey> {
    let record = Record(b);
    let (_, remote) = record.ends()?;
    (usize::from(record.u16_at(16)?) == l::CONNECT).then_some((
        record.u32_at(28)?,
        record.netns()?,
        remote,
    ))
}

/// Parses a record of the other kinds.
fn decode(b: &[u8]) -> Option<FlowEvents> {
    let r = Record(b);
    Some(FlowEvents {
        kind: *KINDS.get(usize::from(r.u16_at(16)?))?,
        ends: r.ends(),
        netns: r.netns()?,
        cookie: r.u64_at(8)?,
        state: r.u32_at(64)? as u8,
        detail: r.u32_at(28)? as i32,
        count: 1,
        last: MonoNs(r.u64_at(0)?),
        cpu: CpuId(r.u32_at(68)?),
    })
}

/// A record of the ring; the layout is [`l::Event`].
#[derive(Clone, Copy)]
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn bytes<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }
    fn u16_at(self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_ne_bytes)
    }
    fn u32_at(self, at: usize) -> Option<u32> {
        self.bytes(at).map(u32::from_ne_bytes)
    }
    fn u64_at(self, at: usize) -> Option<u64> {
        self.bytes(at).map(u64::from_ne_bytes)
    }
    fn netns(self) -> Option<NetnsId> {
        self.u32_at(24).map(|inode| NetnsId(inode.into()))
    }
    /// Local and remote end; `None` without a socket.
    fn ends(self) -> Option<(Endpoint, Endpoint)> {
        let local = Endpoint { addr: self.address(32)?, port: self.u16_at(20)? };
        let remote = Endpoint { addr: self.address(48)?, port: u16::from_be(self.u16_at(22)?) };
        Some((local, remote))
    }
    fn address(self, at: usize) -> Option<IpAddr> {
        let bytes: [u8; 16] = self.bytes(at)?;
        match self.u16_at(18)? {
            2 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
            10 => Some(Ipv6Addr::from(bytes).to_canonical()),
            _ => None,
        }
    }
}

/// Names without their common prefix.
fn reason_names(values: Vec<(u32, String)>) -> Vec<(u32, Arc<str>)> {
    let strip = |n: String| -> Arc<str> {
        n.strip_prefix("SKB_DROP_REASON_").or(n.strip_prefix("SKB_")).unwrap_or(&n).into()
    };
    values.into_iter().map(|(v, n)| (v, strip(n))).collect()
}

#[cfg(test)]
mod tests;

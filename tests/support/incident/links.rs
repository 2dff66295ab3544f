//! Network devices, qdiscs and connection tracking of an incident.

use std::net::SocketAddrV4;
use std::sync::Arc;

use serde::Deserialize;
use stallscope::sample::netdev::{
    Channels, Conntrack, Flow, LinkAttrs, LinkRow, LinkStats, NetdevSample, NetdevSpace, Origin,
    Origins, QdiscRow, Selection, Shape, Target, Unread,
};
use stallscope::sample::sockets::map_v4;
use stallscope::sample::subject::NetnsId;
use stallscope::sample::time::{MonoNs, Span};

use super::Incident;
use super::ticks::{View, namespaces};

/// A device; its counters are `link.NAME.rx_bytes` and so on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub name: String,
    #[serde(default = "one")]
    pub netns: u32,
    /// `veth`, `ifb`; none for a NIC.
    pub kind: Option<String>,
    pub speed_mbit: Option<u32>,
    /// Receive queues in use and at most.
    pub channels: Option<[u32; 2]>,
    /// Allowances of the provider that the driver counts: `link.NAME.bw_in_allowance_exceeded`.
    #[serde(default)]
    pub allowances: Vec<String>,
}

/// A qdisc or class; its counters are `qdisc.NAME.bytes` and so on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qdisc {
    pub name: String,
    pub dev: String,
    pub kind: String,
    /// As tc prints it: `8001:`, `1:10`.
    pub id: String,
    /// `root`, `ingress`, or an id.
    #[serde(default = "root")]
    pub parent: String,
    #[serde(default)]
    pub class: bool,
    /// Bytes per second.
    pub rate: Option<u64>,
    pub ceil: Option<u64>,
    pub burst: Option<u64>,
}

/// Entries of a connection table that come from one address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginOf {
    #[serde(default = "one")]
    pub netns: u32,
    /// The address, with the first source port: others follow.
    pub from: SocketAddrV4,
    /// It is an address of the namespace.
    #[serde(default)]
    pub local: bool,
    pub to: SocketAddrV4,
    /// Number of the protocol.
    pub proto: u8,
    pub entries: u32,
    /// Of so many the socket is looked for.
    pub asked: u16,
    /// Entries to the same destination, each from an address of its own.
    #[serde(default)]
    pub others: u32,
    /// Why they cannot be read.
    pub unread: Option<Unread>,
    /// Which entries were asked for.
    #[serde(default)]
    pub selection: Selection,
}

fn one() -> u32 {
    1
}
fn root() -> String {
    "root".to_owned()
}

fn handle(text: &str) -> u32 {
    match text {
        "root" => QdiscRow::ROOT,
        "ingress" => QdiscRow::INGRESS,
        id => {
            let (major, minor) = id.split_once(':').unwrap();
            let hex = |t: &str| if t.is_empty() { 0 } else { u32::from_str_radix(t, 16).unwrap() };
            hex(major) << 16 | hex(minor)
        }
    }
}

/// Every namespace but our own is read in every second tick only, as a budget would have it.
pub fn netdev(i: &Incident, v: View<'_>, mono: MonoNs, seq: usize) -> NetdevSample {
    let spaces = namespaces(i).into_iter().filter(|ns| *ns == 1 || seq.is_multiple_of(2));
    let spaces = spaces.map(|ns| Arc::new(space(i, v, mono, ns))).collect();
    NetdevSample { spaces }
}

fn space(i: &Incident, v: View<'_>, mono: MonoNs, ns: u32) -> NetdevSpace {
    let mine = |(n, l): (usize, &Link)| (l.netns == ns).then(|| (n as u32 + 2, l.name.clone()));
    let index: Vec<(u32, String)> = i.links.iter().enumerate().filter_map(mine).collect();
    let ifindex = |dev: &str| index.iter().find(|x| x.1 == dev).map(|x| x.0);
    let links = i.links.iter().filter_map(|l| Some(link(l, ifindex(&l.name)?, v))).collect();
    let qdiscs = i.qdiscs.iter().filter_map(|q| Some(qdisc(q, ifindex(&q.dev)?, v))).collect();
    let c = |k: &str| v.get(&format!("conntrack.{ns}.{k}"));
    let conntrack = c("max").map(|max| Conntrack {
        count: c("count").unwrap_or(0),
        max,
        drop: c("drop").map(|n| n as u32),
        insert_failed: c("insert_failed").map(|n| n as u32),
        early_drop: c("early_drop").map(|n| n as u32),
    });
    NetdevSpace {
        netns: NetnsId(ns.into()),
        label: i.netns.get(&ns.to_string()).cloned().unwrap_or_else(|| "host".into()),
        member: (ns != 1).then_some(4000 + ns),
        span: Span::at(mono),
        links,
        qdiscs,
        conntrack,
        origins: origins(i, ns).map(Arc::new),
        holes: Vec::new(),
    }
}

fn origins(i: &Incident, ns: u32) -> Option<Origins> {
    let of: Vec<&OriginOf> = i.origins.iter().filter(|o| o.netns == ns).collect();
    let first = of.first()?;
    if first.unread.is_some() {
        let (selection, unread) = (first.selection, first.unread);
        return Some(Origins { selection, unread, ..Origins::default() });
    }
    let octets = |a: &SocketAddrV4| map_v4(a.ip().octets());
    let target = |o: &OriginOf, entries| Target {
        addr: octets(&o.to),
        port: o.to.port(),
        proto: o.proto,
        entries,
    };
    let origin = |o: &&OriginOf| Origin {
        addr: octets(&o.from),
        local: o.local,
        entries: o.entries,
        target: target(o, o.entries),
        flows: (0..o.asked)
            .map(|n| Flow {
                from: o.from.port() + n,
                addr: octets(&o.to),
                port: o.to.port(),
                proto: o.proto,
            })
            .collect(),
    };
    let sum = |part: fn(&OriginOf) -> u32| of.iter().map(|o| part(o)).sum::<u32>();
    Some(Origins {
        selection: first.selection,
        read: sum(|o| o.entries + o.others),
        addresses: sum(|o| 1 + o.others),
        target: target(first, first.entries + first.others),
        sources: of.iter().map(origin).collect(),
        unread: None,
    })
}

fn link(l: &Link, ifindex: u32, v: View<'_>) -> LinkRow {
    let g = |k: &str| v.n(&format!("link.{}.{k}", l.name));
    LinkRow {
        ifindex,
        exceeded: l.allowances.iter().map(|a| (a.as_str().into(), g(a))).collect(),
        attrs: Arc::new(LinkAttrs {
            name: l.name.clone(),
            kind: l.kind.clone(),
            physical: l.kind.is_none(),
            up: true,
            mtu: 1500,
            txqlen: 1000,
            speed_mbit: l.speed_mbit,
            channels: l.channels.map(|[rx, rx_max]| Channels { rx, rx_max }),
            ..LinkAttrs::default()
        }),
        stats: LinkStats {
            rx_packets: g("rx_packets"),
            tx_packets: g("tx_packets"),
            rx_bytes: g("rx_bytes"),
            tx_bytes: g("tx_bytes"),
            rx_errors: g("rx_errors"),
            tx_errors: g("tx_errors"),
            rx_dropped: g("rx_dropped"),
            rx_fifo: g("rx_fifo"),
            rx_missed: g("rx_missed"),
            rx_crc: v.get(&format!("link.{}.rx_crc", l.name)),
            rx_frame: v.get(&format!("link.{}.rx_frame", l.name)),
            carrier_changes: v.get(&format!("link.{}.carrier", l.name)).map(|n| n as u32),
            ..LinkStats::default()
        },
    }
}

fn qdisc(q: &Qdisc, ifindex: u32, v: View<'_>) -> QdiscRow {
    let g = |k: &str| v.n(&format!("qdisc.{}.{k}", q.name));
    let g32 = |k: &str| v.n32(&format!("qdisc.{}.{k}", q.name));
    QdiscRow {
        ifindex,
        handle: handle(&q.id),
        parent: handle(&q.parent),
        class: q.class,
        kind: q.kind.as_str().into(),
        bytes: g("bytes"),
        packets: g("packets"),
        qlen: g32("qlen"),
        backlog: g32("backlog"),
        drops: g32("drops"),
        requeues: g32("requeues"),
        overlimits: g32("overlimits"),
        shape: q.rate.map(|rate| Shape { rate, ceil: q.ceil, burst: q.burst, limit: None }),
    }
}

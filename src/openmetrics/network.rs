//! Network devices, protocol counters, sockets.

use super::families::{Id, MAX_DEVICES};
use super::page::Page;
use super::readings::Readings;
use crate::metrics::sockets::SocketTotals;
use crate::sample::netdev::{LinkRow, NetdevSpace, QdiscRow};
use crate::sample::sockets::NetnsTable;
use crate::view::context::Cx;

/// Protocol counters by the names that `nstat` prints.
const COUNTERS: [(Id, &str); 13] = [
    (Id::TcpIn, "TcpInSegs"),
    (Id::TcpOut, "TcpOutSegs"),
    (Id::TcpRetransmitted, "TcpRetransSegs"),
    (Id::TcpTimeouts, "TcpExtTCPTimeouts"),
    (Id::TcpActive, "TcpActiveOpens"),
    (Id::TcpPassive, "TcpPassiveOpens"),
    (Id::TcpFailed, "TcpAttemptFails"),
    (Id::TcpResets, "TcpEstabResets"),
    (Id::ListenOverflows, "TcpExtListenOverflows"),
    (Id::ListenDrops, "TcpExtListenDrops"),
    (Id::TcpAborts, "TcpExtTCPAbortOnMemory"),
    (Id::TcpEgressDrops, "TcpExtTCPRetransFail"),
    (Id::UdpReceiveErrors, "UdpRcvbufErrors"),
];

pub(super) fn add(page: &mut Page, readings: &Readings, cx: &Cx<'_>) {
    if let Some(space) = readings.host_devices() {
        devices(page, space);
    }
    protocols(page, readings, cx);
    sockets(page, cx);
}

fn devices(page: &mut Page, space: &NetdevSpace) {
    let moved = |l: &LinkRow| l.stats.rx_bytes.saturating_add(l.stats.tx_bytes);
    let mut links: Vec<&LinkRow> = space.links.iter().collect();
    let dropped = links.len().saturating_sub(MAX_DEVICES);
    page.add(Id::RowsDropped, &["network_devices"], dropped as f64);
    if dropped > 0 {
        links.sort_by_key(|l| (std::cmp::Reverse(moved(l)), l.ifindex));
        links.truncate(MAX_DEVICES);
        links.sort_by_key(|l| l.ifindex);
    }
    for l in links {
        let (name, s) = (&*l.attrs.name, &l.stats);
        for (id, n) in [
            (Id::ReceivedBytes, s.rx_bytes),
            (Id::SentBytes, s.tx_bytes),
            (Id::ReceivedPackets, s.rx_packets),
            (Id::SentPackets, s.tx_packets),
            (Id::ReceiveErrors, s.rx_errors),
            (Id::SendErrors, s.tx_errors),
            (Id::ReceiveDropped, s.rx_dropped),
            (Id::SendDropped, s.tx_dropped),
        ] {
            page.add(id, &[name], n as f64);
        }
        let is_root =
            |q: &&QdiscRow| q.ifindex == l.ifindex && !q.class && q.parent == QdiscRow::ROOT;
        let root = space.qdiscs.iter().find(is_root);
        page.add(Id::QdiscBacklog, &[name], root.map(|q| f64::from(q.backlog)));
    }
    if let Some(c) = space.conntrack {
        page.add(Id::Conntrack, &[], c.count as f64);
        page.add(Id::ConntrackLimit, &[], Some(c.max).filter(|n| *n > 0).map(|n| n as f64));
    }
}

fn protocols(page: &mut Page, readings: &Readings, cx: &Cx<'_>) {
    let pages = Some(cx.analysis.host().page_size).filter(|n| *n > 0).map(f64::from);
    if let Some(c) = readings.host_counters() {
        // Some are signed: a negative one is none that counts.
        let count = |name: &str| c.get(name).filter(|n| *n >= 0).map(|n| n as f64);
        for (id, name) in COUNTERS {
            page.add(id, &[], count(name));
        }
        page.add(Id::TcpOrphans, &[], count("sockstat.TCP.orphan"));
        for (protocol, name) in [("tcp", "sockstat.TCP.mem"), ("udp", "sockstat.UDP.mem")] {
            let bytes = count(name).zip(pages).map(|(n, size)| n * size);
            page.add(Id::SocketMemory, &[protocol], bytes);
        }
    }
    for (level, n) in
        ["low", "pressure", "high"].iter().zip(readings.tcp_mem().into_iter().flatten())
    {
        page.add(Id::TcpMemoryLimit, &[level], pages.map(|size| n as f64 * size));
    }
}

fn sockets(page: &mut Page, cx: &Cx<'_>) {
    let figures = cx.suspects;
    // No table was read yet, or none can be.
    if figures.totals.is_empty() {
        return;
    }
    let sum =
        |of: fn(&SocketTotals) -> u32| figures.totals.iter().map(|t| f64::from(of(t))).sum::<f64>();
    let states: [(&str, f64); 6] = [
        ("established", sum(|t| t.established)),
        ("listen", sum(|t| t.listening)),
        ("time_wait", sum(|t| t.time_wait)),
        ("close_wait", sum(|t| t.close_wait)),
        ("syn_sent", sum(|t| t.syn_sent)),
        ("syn_recv", sum(|t| t.syn_recv)),
    ];
    for (state, n) in states {
        page.add(Id::TcpSockets, &[state], n);
    }
    let named: f64 = states.iter().map(|(_, n)| n).sum();
    page.add(Id::TcpSockets, &["other"], (sum(|t| t.tcp) - named).max(0.0));
    page.add(Id::TcpSending, &[], sum(|t| t.sending));
    page.add(Id::UdpSockets, &[], sum(|t| t.udp));
    let unread =
        |t: &NetnsTable| t.unix.is_empty() && t.holes.iter().any(|h| h.starts_with("unix"));
    if !cx.tables.iter().any(|t| unread(t)) {
        page.add(Id::UnixSockets, &[], sum(|t| t.unix));
    }
    let is_stuck = |id| cx.marks.socket(id).is_some();
    let stuck = figures.suspects.iter().filter(|s| s.missing_since.is_none() && is_stuck(s.id));
    page.add(Id::StuckSockets, &[], stuck.count() as f64);
}

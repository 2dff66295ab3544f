//! From the state of an incident to tables of sockets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use stallscope::collect::sockets::unix_diag::UnixRow;
use stallscope::sample::sockets::{
    NetnsTable, NextHop, Owner, Proto, RouteAnswer, RouteOutcome, SockState, SockTimer, TcpInfo,
    map_v4,
};
use stallscope::sample::subject::NetnsId;
use stallscope::sample::time::{MonoNs, Span};

use super::ticks::{View, namespaces};
use super::{Incident, Socket, Unix};
use crate::support::samples::{self, Row};

pub(super) fn tables(
    i: &Incident,
    v: View<'_>,
    mono: MonoNs,
) -> (Vec<Arc<NetnsTable>>, Vec<Arc<NetnsTable>>) {
    let mut all: Vec<Arc<NetnsTable>> = Vec::new();
    for ns in namespaces(i) {
        let mut table = NetnsTable {
            netns: NetnsId(ns.into()),
            label: i.netns.get(&ns.to_string()).cloned().unwrap_or_else(|| "host".into()),
            member: (ns != 1).then_some(4000 + ns),
            span: Span::at(mono),
            ports: i.ports,
            ..NetnsTable::default()
        };
        for u in i.unix.iter().filter(|_| ns == 1) {
            unix_listener(&mut table, u, v);
        }
        for (n, s) in i.sockets.iter().enumerate().filter(|(_, s)| s.netns == ns) {
            for copy in 0..s.copies {
                row(&mut table, s, copy, (n as u64 + 1) * 10_000 + u64::from(copy), v);
            }
        }
        all.push(Arc::new(table));
    }
    let rest = all.split_off(1);
    (all, rest)
}

fn unix_listener(table: &mut NetnsTable, u: &Unix, v: View<'_>) {
    table.unix.push(&UnixRow {
        cookie: u.inode.into(),
        inode: u.inode,
        kind: 1,
        state: SockState::LISTEN,
        rqueue: v.n32(&format!("unix.{}.rqueue", u.name)),
        wqueue: u.backlog,
        peer: 0,
        name: u.path.replace('@', "\0").as_bytes(),
    });
    own(table, u.owner.as_deref(), u.inode);
}

fn own(table: &mut NetnsTable, owner: Option<&str>, inode: u32) {
    if let (Some((comm, pid)), true) = (owner.and_then(|o| o.rsplit_once('/')), inode != 0) {
        table.owners.push(Owner::new(inode, pid.parse().unwrap(), comm));
    }
}

fn row(table: &mut NetnsTable, s: &Socket, copy: u32, cookie: u64, v: View<'_>) {
    let key = |k: &str| format!("sock.{}.{k}", s.name);
    if v.n(&key("present")) == 0 {
        return;
    }
    let mut local: SocketAddr = s.local.parse().unwrap();
    let mut remote: SocketAddr = s.remote.parse().unwrap();
    if s.copies_by_address {
        let IpAddr::V4(a) = remote.ip() else { panic!("copies_by_address is for IPv4") };
        remote.set_ip(IpAddr::V4((u32::from(a) + copy).into()));
    } else if local.port() < remote.port() {
        remote.set_port(remote.port() + copy as u16);
    } else {
        local.set_port(local.port() + copy as u16);
    }
    let octets = |a: IpAddr| match a {
        IpAddr::V4(a) => map_v4(a.octets()),
        IpAddr::V6(a) => a.octets(),
    };
    let inode = if s.inode == 0 { 0 } else { s.inode + copy };
    let words = ["r", "rb", "t", "tb", "f", "w", "o", "bl", "d"];
    let row = Row {
        cookie,
        proto: if s.udp { Proto::Udp } else { Proto::Tcp },
        state: SockState(v.n(&key("state")) as u8),
        timer: SockTimer(v.n(&key("timer")) as u8),
        retrans: v.n(&key("retrans")) as u8,
        expires_ms: v.n32(&key("expires_ms")),
        rqueue: v.n32(&key("rqueue")),
        wqueue: v.n32(&key("wqueue")),
        local: (octets(local.ip()), local.port()),
        remote: (octets(remote.ip()), remote.port()),
        uid: 999,
        inode,
        skmem: words.map(|w| v.n32(&key(&format!("skmem.{w}")))),
        skmem_words: if s.skmem.is_empty() { 0 } else { 9 },
        info: (!s.info.is_empty()).then(|| info(s, v)),
    };
    samples::add(&mut table.inet, row);
    own(table, s.owner.as_deref(), inode);
    if let Some(route) = &s.route {
        let outcome = route.parse().map_or_else(
            |_| RouteOutcome::Via { ifindex: 2, dev: route.clone(), hop: hop(s) },
            RouteOutcome::Errno,
        );
        table.routes.push(RouteAnswer { cookie, outcome });
    }
}

fn hop(s: &Socket) -> Option<NextHop> {
    let (addr, state) = s.hop.as_deref()?.split_once(' ').unwrap();
    let IpAddr::V4(addr) = addr.parse().unwrap() else { panic!("hops are IPv4 here") };
    let state = serde_json::from_value(state.into()).unwrap();
    Some(NextHop { addr: map_v4(addr.octets()), state })
}

fn info(s: &Socket, v: View<'_>) -> TcpInfo {
    let fields = v.under(&format!("sock.{}.info.", s.name));
    samples::info(s.info_len, fields.iter().map(|(name, value)| (name.as_str(), *value)))
}

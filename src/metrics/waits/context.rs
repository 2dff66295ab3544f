//! What sockets, disks and cgroups say about a wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Context, Owed, throttled_above};
use crate::metrics::cgroups::CgroupFigures;
use crate::metrics::disks::DiskFigures;
use crate::metrics::process_io::ProcessIoTracker;
use crate::metrics::rate::ratio;
use crate::sample::sockets::{NetnsTable, Proto, SockState};
use crate::sample::subject::NetnsId;
use crate::sample::time::MonoNs;

/// The tables and figures of one tick.
pub(in crate::metrics) struct Seen<'a> {
    /// When threads were looked at.
    pub(in crate::metrics) now: MonoNs,
    pub(in crate::metrics) tables: &'a BTreeMap<NetnsId, Arc<NetnsTable>>,
    pub(in crate::metrics) cgroups: &'a [CgroupFigures],
    pub(in crate::metrics) disks: Option<&'a [DiskFigures]>,
    pub(in crate::metrics) process_io: &'a ProcessIoTracker,
}

/// A disk that has requests for less than this part of the time keeps nobody waiting, %.
const QUIET: f64 = 5.0;

impl Context for Seen<'_> {
    fn owed(&self, inode: u64) -> Owed {
        let inode = u32::try_from(inode).ok().filter(|i| *i != 0)?;
        let mut tables = self.tables.values();
        tables.find_map(|t| {
            let row = t.inet.inode.iter().position(|i| *i == inode)?;
            owed(t, row)
        })
    }

    fn has_requests(&self, pid: u32) -> Owed {
        let moved = self.process_io.moves(pid, self.now);
        has_requests(moved, self.disks.map(|d| d.iter().map(|d| (d.util, d.in_flight))))
    }

    fn throttled(&self, cgroup: &str) -> f64 {
        // Each group was read over an interval of its own.
        let part = |g: &CgroupFigures| {
            let took = g.cpu.map_or(0, |c| c.throttled_ns);
            ratio(took as f64, g.dt.as_nanos() as f64).unwrap_or(0.0)
        };
        throttled_above(cgroup, self.cgroups.iter().map(|g| (&*g.path, part(g))))
    }
}

/// Who moved something just now has some; when no disk has anything to do, nobody has. `disks`: each
/// with its `util` and what is in flight.
fn has_requests(moved: bool, disks: Option<impl Iterator<Item = (f64, Option<u64>)>>) -> Owed {
    if moved {
        return Some(true);
    }
    let mut disks = disks?;
    disks.all(|(util, now)| util < QUIET && now.is_none_or(|n| n == 0)).then_some(false)
}

/// A server waits for the next question of its own will. A client that spoke last waits for the
/// answer; when both spoke in the same tick of the kernel's clock too, as it asks again at once.
fn owed(t: &NetnsTable, row: usize) -> Owed {
    let rows = &t.inet;
    if rows.proto.get(row)? == &Proto::Udp {
        // Nothing tells a resolver that waits for an answer from a server that waits for a question.
        return None;
    }
    match side(t, row)? {
        Side::Server => return Some(false),
        // What was sent is not even acknowledged.
        Side::Client if *rows.wqueue.get(row)? > 0 => return Some(true),
        Side::Client => {}
    }
    let info = rows.tcp_info(row)?;
    // A SYN counts as one byte. Where nobody has spoken yet, nobody is late.
    if info.bytes_acked().is_some_and(|n| n <= 1) && info.bytes_received() == Some(0) {
        return Some(false);
    }
    Some(info.last_data_sent_ms()? <= info.last_data_recv_ms()?)
}

enum Side {
    Server,
    Client,
}

/// The kernel's default for `net.ipv4.ip_local_port_range`.
const PORTS: (u16, u16) = (32_768, 60_999);

/// Where somebody listens on the local port, it is the server's side; a port that the kernel gave is
/// a client's. Otherwise nobody knows: the listener may have been closed.
fn side(t: &NetnsTable, row: usize) -> Option<Side> {
    let port = *t.inet.lport.get(row)?;
    let mut all = t.inet.lport.iter().zip(&t.inet.state);
    if all.any(|(p, state)| *p == port && *state == SockState::LISTEN) {
        return Some(Side::Server);
    }
    let (first, last) = t.ports.unwrap_or(PORTS);
    (first..=last).contains(&port).then_some(Side::Client)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::sockets::{InetRows, TcpInfo};

    /// A connection, and a listener of port 80.
    fn table(lport: u16, wqueue: u32, sent: u32, received: u32) -> NetnsTable {
        let mut bytes = [0_u8; 248];
        for (name, value) in [
            ("last_data_sent_ms", u64::from(sent)),
            ("last_data_recv_ms", u64::from(received)),
            ("bytes_acked", 10),
        ] {
            let (_, at, size) = *TcpInfo::FIELDS.iter().find(|f| f.0 == name).unwrap();
            bytes[at..at + size].copy_from_slice(&value.to_ne_bytes()[..size]);
        }
        let inet = InetRows {
            cookie: vec![1, 2],
            proto: vec![Proto::Tcp; 2],
            state: vec![SockState::ESTAB, SockState::LISTEN],
            lport: vec![lport, 80],
            wqueue: vec![wqueue, 128],
            inode: vec![7, 8],
            info: vec![0, u32::MAX],
            infos: vec![TcpInfo::from_bytes(&bytes)],
            ..InetRows::default()
        };
        NetnsTable { inet, ..NetnsTable::default() }
    }

    #[test]
    fn a_client_that_spoke_last_waits_and_a_server_does_not() {
        for (lport, wqueue, sent, received, want) in [
            (40_000, 0, 100, 900, Some(true)),
            (40_000, 0, 900, 100, Some(false)),
            (40_000, 0, 100, 100, Some(true)),
            (40_000, 10, 900, 100, Some(true)),
            // It answered 100 ms ago.
            (80, 0, 100, 900, Some(false)),
            (80, 4096, 100, 900, Some(false)),
            // Neither is there a listener, nor was the port given by the kernel.
            (5432, 0, 100, 900, None),
        ] {
            let owed = owed(&table(lport, wqueue, sent, received), 0);
            assert_eq!(owed, want, "{lport} {wqueue} {sent} {received}");
        }
    }

    #[test]
    fn requests_are_in_flight_when_bytes_move_and_none_are_when_all_disks_are_quiet() {
        let quiet = [(0.0, Some(0)), (4.9, None)];
        let busy = [(0.0, Some(0)), (5.0, Some(0))];
        let hung = [(0.0, Some(3))];
        for (moved, disks, want) in [
            (true, Some(&quiet[..]), Some(true)),
            (true, None, Some(true)),
            (false, Some(&quiet[..]), Some(false)),
            (false, Some(&busy[..]), None),
            (false, Some(&hung[..]), None),
            (false, None, None),
        ] {
            let known = has_requests(moved, disks.map(|d| d.iter().copied()));
            assert_eq!(known, want, "{moved} {disks:?}");
        }
    }

    #[test]
    fn without_tcp_info_nobody_knows() {
        let mut t = table(40_000, 0, 1, 2);
        t.inet.info = vec![u32::MAX; 2];
        assert_eq!(owed(&t, 0), None);
    }
}

//! Entries and the sockets that opened them.
#![allow(clippy::unwrap_used)]

use std::slice::from_ref;

use super::*;
use crate::sample::sockets::{SockState, map_v4};

const HOST: [u8; 4] = [10, 0, 0, 5];
const POD: [u8; 4] = [172, 17, 0, 3];
const DNS: [u8; 4] = [10, 0, 0, 9];
const ANY: [u8; 4] = [0; 4];

fn flow(from: u16, to: [u8; 4], port: u16, proto: u8) -> Flow {
    Flow { from, addr: map_v4(to), port, proto }
}

fn origin(addr: [u8; 4], local: bool, flows: Vec<Flow>) -> Origin {
    let entries = 10 * flows.len() as u32;
    Origin { addr: map_v4(addr), local, entries, target: Target::default(), flows }
}

/// Protocol, both ends, inode and process of a socket.
type Row = (Proto, ([u8; 4], u16), ([u8; 4], u16), u32, u32);

fn table(netns: u64, rows: &[Row]) -> (NetnsId, Arc<NetnsTable>) {
    let mut t = NetnsTable { netns: NetnsId(netns), ..NetnsTable::default() };
    for (proto, local, remote, inode, pid) in rows {
        t.inet.proto.push(*proto);
        t.inet.state.push(SockState::ESTAB);
        t.inet.local.push(map_v4(local.0));
        t.inet.lport.push(local.1);
        t.inet.remote.push(map_v4(remote.0));
        t.inet.rport.push(remote.1);
        t.inet.inode.push(*inode);
        if *pid != 0 {
            t.owners.push(Owner::new(*inode, *pid, format!("p{pid}")));
        }
    }
    (t.netns, Arc::new(t))
}

/// Open sockets, their inodes, and the processes with their numbers.
type Said = (u32, Vec<u32>, Vec<(u32, u32)>);

fn said(source: Origin, tables: &[(NetnsId, Arc<NetnsTable>)]) -> Said {
    let origins = Origins { read: source.entries, sources: vec![source], ..Origins::default() };
    let tables = tables.iter().cloned().collect();
    let s = join(&origins, NetnsId(1), &tables).sources.remove(0);
    assert_eq!(s.entries, 10 * s.asked);
    (s.open, s.inodes, s.holders.iter().map(|(o, n)| (o.pid, *n)).collect())
}

#[test]
fn a_socket_is_found_by_both_ends() {
    let flows = || vec![flow(4001, DNS, 80, 6), flow(4002, DNS, 80, 6), flow(4003, DNS, 443, 6)];
    let tcp = |from, to, port, inode, pid| (Proto::Tcp, (HOST, from), (to, port), inode, pid);
    let own = table(
        1,
        &[
            tcp(4001, DNS, 80, 11, 5),
            tcp(4002, DNS, 80, 12, 6),
            // Another destination, another protocol, TIME-WAIT.
            tcp(4003, DNS, 80, 13, 6),
            (Proto::Udp, (HOST, 4003), (DNS, 443), 14, 6),
            tcp(4003, DNS, 443, 0, 0),
        ],
    );
    assert_eq!(said(origin(HOST, true, flows()), &[own]), (2, vec![11, 12], vec![(5, 1), (6, 1)]));
    // The server's end of a connection did not open it.
    let accepted = table(1, &[(Proto::Tcp, (DNS, 80), (HOST, 4001), 11, 5)]);
    assert_eq!(said(origin(HOST, false, flows()), &[accepted]), (0, vec![], vec![]));
}

#[test]
fn a_socket_of_udp_may_be_bound_to_no_address() {
    let flows = || vec![flow(5353, DNS, 53, 17), flow(5353, DNS, 54, 17)];
    let open = table(1, &[(Proto::Udp, (ANY, 5353), (ANY, 0), 21, 7)]);
    assert_eq!(said(origin(HOST, true, flows()), from_ref(&open)), (2, vec![21], vec![(7, 2)]));
    // From another host, to our port of that number.
    assert_eq!(said(origin(HOST, false, flows()), from_ref(&open)), (0, vec![], vec![]));
    // One that is connected is meant before one that is not.
    let both = table(
        1,
        &[(Proto::Udp, (HOST, 5353), (DNS, 54), 22, 8), (Proto::Udp, (ANY, 5353), (ANY, 0), 21, 7)],
    );
    let want = (2, vec![21, 22], vec![(7, 1), (8, 1)]);
    assert_eq!(said(origin(HOST, true, flows()), &[both]), want);
    // That of another namespace with the same address is another's.
    let other = table(2, &[(Proto::Udp, (HOST, 5353), (DNS, 54), 22, 8)]);
    assert_eq!(said(origin(HOST, true, flows()), &[other, open]), (2, vec![21], vec![(7, 2)]));
}

#[test]
fn what_is_forwarded_has_its_socket_in_another_namespace() {
    let flows = || vec![flow(4001, DNS, 53, 17), flow(4002, DNS, 53, 17)];
    let pod = table(
        2,
        &[
            (Proto::Udp, (POD, 4001), (DNS, 53), 31, 9),
            // Whose address it sends from is not known.
            (Proto::Udp, (ANY, 4002), (ANY, 0), 32, 10),
        ],
    );
    let host = table(1, &[(Proto::Tcp, (POD, 4002), (DNS, 53), 33, 11)]);
    // The other entry goes where all open sockets are of one process.
    assert_eq!(said(origin(POD, false, flows()), &[host, pod]), (1, vec![31], vec![(9, 2)]));
}

#[test]
fn closed_sockets_are_of_a_process_that_is_alone_at_their_destination() {
    let flows = || (4001..4011).map(|from| flow(from, DNS, 53, 17)).collect::<Vec<_>>();
    let udp = |from, inode, pid| (Proto::Udp, (HOST, from), (DNS, 53), inode, pid);
    let one = table(1, &[udp(4003, 41, 9), udp(4004, 42, 9)]);
    assert_eq!(said(origin(HOST, true, flows()), &[one]), (2, vec![41, 42], vec![(9, 10)]));
    let two = table(1, &[udp(4003, 41, 9), udp(4004, 42, 8)]);
    let want = (2, vec![41, 42], vec![(8, 1), (9, 1)]);
    assert_eq!(said(origin(HOST, true, flows()), &[two]), want);
    let unknown = table(1, &[udp(4003, 41, 9), udp(4004, 42, 0)]);
    assert_eq!(said(origin(HOST, true, flows()), &[unknown]), (2, vec![41, 42], vec![(9, 1)]));
}

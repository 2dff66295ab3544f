//! Files of `/proc/net`: sockets and the counters of protocols.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener, UnixStream};

use procfs_core::net::{Snmp, Snmp6, TcpNetEntries, UdpNetEntries, UnixNetEntries, UnixState};
use procfs_core::{FromBufRead as _, FromBufReadSI as _};
use stallscope::collect::net_counters::{walk_snmp6, walk_tables};
use stallscope::collect::sockets::procnet;
use stallscope::sample::sockets::{InetRows, Proto, SockState, UnixRows};

use super::{captured, system, utf8};

fn live(file: &str) -> Vec<u8> {
    std::fs::read(format!("/proc/self/net/{file}")).unwrap()
}

/// Addresses, state, both queues, uid, inode.
type Row = (String, String, u8, u32, u32, u32, u64);

fn ours(bytes: &[u8], proto: Proto) -> Vec<Row> {
    let mut r = InetRows::default();
    assert_eq!(procnet::inet(bytes, proto, &mut r), 0, "lines that cannot be read");
    let row = |i: usize| {
        let local = SocketAddr::from((r.local_endpoint(i).addr, r.lport[i])).to_string();
        let remote = SocketAddr::from((r.remote_endpoint(i).addr, r.rport[i])).to_string();
        let (state, inode) = (r.state[i].0, r.inode[i].into());
        (local, remote, state, r.wqueue[i], r.rqueue[i], r.uid[i], inode)
    };
    (0..r.len()).map(row).collect()
}

/// With us, a v4 address in a file of v6 is one of v4.
fn canonical(a: SocketAddr) -> String {
    SocketAddr::new(a.ip().to_canonical(), a.port()).to_string()
}

/// Listeners, a connection with unread data, its end in TIME-WAIT, of both families.
#[test]
fn tcp_sockets() {
    for (file, any) in [("tcp", "127.0.0.1:0"), ("tcp6", "[::1]:0")] {
        let Ok(listener) = TcpListener::bind(any) else {
            eprintln!("no {file} here");
            continue;
        };
        let addr = listener.local_addr().unwrap();
        let mut far = TcpStream::connect(addr).unwrap();
        let near = listener.accept().unwrap().0;
        far.write_all(b"not read").unwrap();
        near.peek(&mut [0; 8]).unwrap();
        drop((TcpStream::connect(addr).unwrap(), listener.accept().unwrap()));
        let bytes = live(file);
        let theirs = TcpNetEntries::from_buf_read(&bytes[..], &system()).unwrap().0;
        let theirs: Vec<Row> = theirs
            .into_iter()
            .map(|e| {
                let ends = (canonical(e.local_address), canonical(e.remote_address));
                (ends.0, ends.1, e.state.to_u8(), e.tx_queue, e.rx_queue, e.uid, e.inode)
            })
            .collect();
        let ours = ours(&bytes, Proto::Tcp);
        let has_unread = ours.iter().any(|r| r.0 == addr.to_string() && r.4 == 8);
        assert!(has_unread && ours.len() >= 3, "{}", utf8(&bytes));
        assert_eq!(ours, theirs, "{}", utf8(&bytes));
        drop((near, far));
    }
}

#[test]
fn udp_sockets() {
    for (file, any) in [("udp", "127.0.0.1:0"), ("udp6", "[::1]:0")] {
        let Ok(socket) = UdpSocket::bind(any) else {
            eprintln!("no {file} here");
            continue;
        };
        let connected = UdpSocket::bind(any).unwrap();
        connected.connect(socket.local_addr().unwrap()).unwrap();
        connected.send(b"not read").unwrap();
        socket.peek(&mut [0; 8]).unwrap();
        let bytes = live(file);
        let theirs = UdpNetEntries::from_buf_read(&bytes[..], &system()).unwrap().0;
        let theirs: Vec<Row> = theirs
            .into_iter()
            .map(|e| {
                let ends = (canonical(e.local_address), canonical(e.remote_address));
                (ends.0, ends.1, e.state.to_u8(), e.tx_queue, e.rx_queue, e.uid, e.inode)
            })
            .collect();
        let ours = ours(&bytes, Proto::Udp);
        assert!(ours.iter().any(|r| r.4 > 0), "{}", utf8(&bytes));
        assert_eq!(ours, theirs, "{}", utf8(&bytes));
    }
}

#[test]
fn unix_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("listener")).unwrap();
    let near = UnixStream::connect(dir.path().join("listener")).unwrap();
    let name = format!("stallscope-{}", std::process::id());
    let hidden = UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(&name).unwrap()).unwrap();
    let bytes = live("unix");
    let mut r = UnixRows::default();
    assert_eq!(procnet::unix(&bytes, &mut r), 0);
    let text = utf8(&bytes);
    let theirs = UnixNetEntries::from_buf_read(text.as_bytes()).unwrap().0;
    assert_eq!(r.len(), theirs.len());
    for (i, t) in theirs.iter().enumerate() {
        let at = format!("{t:?}");
        assert_eq!((u64::from(r.inode[i]), u16::from(r.kind[i])), (t.inode, t.socket_type), "{at}");
        // The crate does not tell who listens.
        let connected = t.state == UnixState::CONNECTED;
        assert_eq!(r.state[i] == SockState::ESTAB, connected, "{at}");
        let path = t.path.as_deref().and_then(|p| p.to_str()).unwrap_or_default();
        let path = if path.starts_with('@') { path.replace('@', "\0") } else { path.to_owned() };
        assert_eq!(utf8(r.name(i)), path, "{at}");
    }
    let names: Vec<String> = (0..r.len()).map(|i| utf8(r.name(i))).collect();
    assert!(names.contains(&format!("\0{name}")), "{names:?}");
    drop((listener, near, hidden));
}

/// The crate knows a fixed set of counters; it gives up a file that lacks one.
#[test]
fn protocol_counters() {
    let live = ("live".into(), live("snmp"));
    let mut compared = 0;
    for (path, bytes) in captured("net/snmp").into_iter().chain([live]) {
        let Ok(t) = Snmp::from_buf_read(&bytes[..]) else { continue };
        let mut ours = HashMap::new();
        walk_tables(&bytes, &mut |(group, name, value)| {
            ours.insert(format!("{}{}", utf8(group), utf8(name)), value);
        });
        let theirs = [
            ("IpInReceives", t.ip_in_receives),
            ("IpInDelivers", t.ip_in_delivers),
            ("IpReasmFails", t.ip_reasm_fails),
            ("IcmpInDestUnreachs", t.icmp_in_dest_unreachs),
            ("TcpActiveOpens", t.tcp_active_opens),
            ("TcpCurrEstab", t.tcp_curr_estab),
            ("TcpInSegs", t.tcp_in_segs),
            ("TcpOutSegs", t.tcp_out_segs),
            ("TcpRetransSegs", t.tcp_retrans_segs),
            ("TcpInCsumErrors", t.tcp_in_csum_errors),
            ("UdpInDatagrams", t.udp_in_datagrams),
            ("UdpRcvbufErrors", t.udp_rcvbuf_errors),
            ("UdpLiteInDatagrams", t.udp_lite_in_datagrams),
        ];
        for (name, value) in theirs {
            assert_eq!(ours[name], value as i64, "{path:?}: {name}");
        }
        assert_eq!(ours["TcpMaxConn"], t.tcp_max_conn, "{path:?}");
        compared += 1;
    }
    assert!(compared > 0, "the captured file is understood");
}

/// As [`protocol_counters`], of v6.
#[test]
fn protocol_counters_of_v6() {
    // A kernel without IPv6 has no such file.
    let live = std::fs::read("/proc/self/net/snmp6").map(|b| ("live".into(), b));
    let mut compared = 0;
    for (path, bytes) in captured("net/snmp6").into_iter().chain(live) {
        let Ok(t) = Snmp6::from_buf_read(&bytes[..]) else { continue };
        let mut ours = HashMap::new();
        walk_snmp6(&bytes, &mut |(_, name, value)| ours.extend([(utf8(name), value)]));
        let theirs = [
            ("Ip6InReceives", t.ip_in_receives),
            ("Ip6OutRequests", t.ip_out_requests),
            ("Ip6ReasmFails", t.ip_reasm_fails),
            ("Ip6InOctets", t.ip_in_octets),
            ("Icmp6InMsgs", t.icmp_in_msgs),
            ("Icmp6OutNeighborSolicits", t.icmp_out_neighbor_solicits),
            ("Udp6InDatagrams", t.udp_in_datagrams),
            ("Udp6RcvbufErrors", t.udp_rcvbuf_errors),
        ];
        for (name, value) in theirs {
            assert_eq!(ours[name], value as i64, "{path:?}: {name}");
        }
        compared += 1;
    }
    assert!(compared > 0, "the captured file is understood");
}

//! Loopback sockets that we open ourselves must come out of the dump as they are. No
//! privilege needed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};

use stallscope::collect::sockets::HostSockets;
use stallscope::collect::sockets::cookies::CookieMap;
use stallscope::collect::sockets::diag::{
    AF_INET, AF_INET6, ALL_STATES, BOTH_FAMILIES, EXT_INFO, EXT_SKMEMINFO, ExactId, InetRequest,
    InetSink,
};
use stallscope::collect::sockets::netlink::{Buffers, Lookup, NlSocket, SOCK_DIAG, lookup_one};
use stallscope::collect::{CollectOptions, Collector, HostFs};
use stallscope::sample::sockets::{InetRows, Proto, SockState, SocketSource};
use stallscope::sample::subject::SockId;
use stallscope::sample::{Interest, SignalStatus};

use crate::support::files::Dir;
use crate::support::skip;
use crate::support::sockets::{inode, read, row, until};

fn open() -> HostSockets {
    HostSockets::open(&HostFs::live(), &CollectOptions::default()).unwrap()
}

fn pair() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    (listener, client, server)
}

#[test]
fn tcp_rows_tell_what_the_sockets_are() {
    let (listener, mut client, server) = pair();
    client.write_all(&[7; 4321]).unwrap();
    let port = listener.local_addr().unwrap().port();
    let peer = client.local_addr().unwrap().port();
    let interest = Interest { inodes: vec![inode(&server)], ..Interest::default() };
    let mut collector = open();
    let sample = until("the data has arrived and the owner is found", || {
        let sample = read(&mut collector, &interest);
        let table = &sample.spaces[0];
        let i = row(&table.inet, port, peer)?;
        (table.inet.rqueue[i] == 4321 && table.owner(inode(&server)).is_some()).then_some(sample)
    });
    let table = &sample.spaces[0];
    let rows = &table.inet;
    assert_eq!((table.label.as_str(), table.source), ("host", SocketSource::Netlink));
    assert_eq!((table.bad_rows, &table.holes[..]), (0, &[][..]));
    assert!(table.span.end >= table.span.start);

    let i = row(rows, port, 0).unwrap();
    assert_eq!((rows.state[i], rows.proto[i]), (SockState::LISTEN, Proto::Tcp));
    assert_eq!((rows.rqueue[i], rows.inode[i]), (0, inode(&listener)));
    assert!(rows.wqueue[i] > 0, "the accept queue has a limit");
    assert_eq!(rows.tcp_info(i), None);

    let i = row(rows, port, peer).unwrap();
    assert_eq!(rows.state[i], SockState::ESTAB);
    assert_eq!(rows.local_endpoint(i).to_string(), server.local_addr().unwrap().to_string());
    assert_eq!(rows.remote_endpoint(i).to_string(), client.local_addr().unwrap().to_string());
    assert_eq!(rows.uid[i], rustix::process::geteuid().as_raw());
    assert_eq!(rows.inode[i], inode(&server));
    assert_eq!(table.owner(rows.inode[i]).map(|o| o.pid), Some(std::process::id()));
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(table.owner(rows.inode[i]).unwrap().comm, comm.trim_end());
    let skmem = rows.skmem(i);
    assert!(skmem.r() >= Some(4321) && skmem.rb() > Some(0) && skmem.tb() > Some(0));

    let i = row(rows, peer, port).unwrap();
    assert_eq!(rows.inode[i], inode(&client));
    assert_eq!(rows.skmem(i).d(), Some(0));
}

#[test]
fn tcp_info_counts_the_bytes_we_sent() {
    let (_listener, mut client, mut server) = pair();
    client.write_all(&[1; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    let (port, peer) = (server.local_addr().unwrap().port(), server.peer_addr().unwrap().port());
    let mut collector = open();
    // Many tests run at once: above a thousand sockets the dump leaves tcp_info out, unless
    // the socket is named.
    let first = read(&mut collector, &Interest::default());
    let table = &first.spaces[0];
    let id = table.id(row(&table.inet, port, peer).unwrap());
    let interest = Interest { sockets: vec![id], ..Interest::default() };
    let sample = read(&mut collector, &interest);
    let rows = &sample.spaces[0].inet;
    let i = row(rows, port, peer).unwrap();
    let info = rows.tcp_info(i).unwrap();
    assert_eq!(rows.cookie[i], id.cookie, "a cookie is for life");
    assert_eq!(info.state(), Some(1));
    assert_eq!(info.bytes_received(), Some(1000));
    assert_eq!(info.total_retrans(), Some(0));
    assert!(info.rto_us() >= Some(200_000) && info.segs_in() >= Some(1));
}

#[test]
fn v6_and_udp_sockets_are_there_too() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let v6 = TcpListener::bind("[::1]:0").ok();
    let sample = read(&mut open(), &Interest::default());
    let rows = &sample.spaces[0].inet;
    let i = row(rows, udp.local_addr().unwrap().port(), 0).unwrap();
    assert_eq!((rows.proto[i], rows.state[i]), (Proto::Udp, SockState::CLOSE));
    assert_eq!(rows.inode[i], inode(&udp));
    let Some(v6) = v6 else {
        return skip("no IPv6 here: only UDP was checked");
    };
    let i = row(rows, v6.local_addr().unwrap().port(), 0).unwrap();
    assert_eq!(rows.local_endpoint(i).to_string(), v6.local_addr().unwrap().to_string());
}

#[test]
fn unix_sockets_have_names_and_peers() {
    let dir = Dir::new();
    let path = dir.path().join("x.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (a, b) = UnixDatagram::pair().unwrap();
    b.send(b"12345").unwrap();
    let sample = read(&mut open(), &Interest::default());
    let rows = &sample.spaces[0].unix;
    let find = |inode| (0..rows.len()).find(|i| rows.inode[*i] == inode).unwrap();
    let i = find(inode(&listener));
    assert_eq!((rows.state[i], rows.kind[i]), (SockState::LISTEN, 1));
    assert_eq!(rows.name(i), path.as_os_str().as_encoded_bytes());
    let i = find(inode(&a));
    assert_eq!((rows.kind[i], rows.peer[i], rows.name(i)), (2, inode(&b), &b""[..]));
}

#[test]
fn an_exact_lookup_finds_the_living_and_knows_the_dead() {
    let (_listener, client, server) = pair();
    let sample = read(&mut open(), &Interest::default());
    let rows = &sample.spaces[0].inet;
    let (port, peer) = (server.local_addr().unwrap().port(), server.peer_addr().unwrap().port());
    let id = ExactId::of(rows, row(rows, port, peer).unwrap()).unwrap();
    let mut socket = NlSocket::open(SOCK_DIAG).unwrap();
    let mut ask = |id| {
        lookup_one(&mut socket, &mut Buffers::default(), EXT_INFO | EXT_SKMEMINFO, id).unwrap()
    };
    let (found, fresh) = ask(id);
    assert_eq!((found, fresh.len()), (Lookup::Found, 1));
    assert_eq!((fresh.cookie[0], fresh.inode[0]), (id.cookie, inode(&server)));
    assert!(fresh.tcp_info(0).is_some());
    // Same addresses, another socket: not ours any more.
    assert_eq!(ask(ExactId { cookie: id.cookie ^ 1, ..id }).0, Lookup::Gone);
    drop((client, server));
    until("the connection is gone", || (ask(id).0 == Lookup::Gone).then_some(()));
}

#[test]
fn lookups_reach_v6_and_v4_mapped_sockets() {
    let (Ok(any), Ok(v6)) = (TcpListener::bind("[::]:0"), TcpListener::bind("[::1]:0")) else {
        return skip("no IPv6 here");
    };
    let mapped = ("127.0.0.1", any.local_addr().unwrap().port());
    let clients = [
        TcpStream::connect(mapped).unwrap(),
        TcpStream::connect(v6.local_addr().unwrap()).unwrap(),
    ];
    let servers = [any.accept().unwrap().0, v6.accept().unwrap().0];
    let sample = read(&mut open(), &Interest::default());
    let rows = &sample.spaces[0].inet;
    let mut socket = NlSocket::open(SOCK_DIAG).unwrap();
    for stream in clients.iter().chain(&servers) {
        let ports = (stream.local_addr().unwrap().port(), stream.peer_addr().unwrap().port());
        let id = ExactId::of(rows, row(rows, ports.0, ports.1).unwrap()).unwrap();
        let (found, fresh) =
            lookup_one(&mut socket, &mut Buffers::default(), EXT_SKMEMINFO, id).unwrap();
        assert_eq!((found, fresh.inode), (Lookup::Found, vec![inode(stream)]));
    }
}

#[test]
fn a_named_socket_that_ended_is_not_made_up() {
    let (_listener, client, server) = pair();
    let mut collector = open();
    let sample = read(&mut collector, &Interest::default());
    let table = &sample.spaces[0];
    let (port, peer) = (server.local_addr().unwrap().port(), server.peer_addr().unwrap().port());
    let id = table.id(row(&table.inet, port, peer).unwrap());
    drop((client, server));
    let strange = SockId { cookie: u64::MAX - 5, ..id };
    let interest = Interest { sockets: vec![id, strange], ..Interest::default() };
    until("the row is gone", || {
        let sample = read(&mut collector, &interest);
        let table = &sample.spaces[0];
        assert_eq!(table.holes, [] as [String; 0]);
        table.inet.find(id.cookie).is_none().then_some(())
    });
}

#[test]
fn without_diag_modules_proc_net_shows_the_same_sockets() {
    let (listener, client, _server) = pair();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dir = Dir::new();
    let path = dir.path().join("y.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let by_netlink = read(&mut open(), &Interest::default());
    let mut plain = open();
    plain.without_netlink();
    let by_proc = read(&mut plain, &Interest::default());
    let (a, b) = (&by_netlink.spaces[0], &by_proc.spaces[0]);
    assert_eq!(b.source, SocketSource::ProcNet);
    assert!(b.holes.iter().any(|h| h.starts_with("tcp4: no diag module")), "{:?}", b.holes);
    for inode in [inode(&listener), inode(&client), inode(&udp)] {
        let at = |rows: &stallscope::sample::sockets::InetRows| {
            let i = rows.inode.iter().position(|n| *n == inode).unwrap();
            (
                rows.local_endpoint(i),
                rows.remote_endpoint(i),
                rows.state[i],
                rows.proto[i],
                rows.uid[i],
            )
        };
        assert_eq!(at(&a.inet), at(&b.inet));
    }
    let i = b.unix.inode.iter().position(|n| *n == inode(&unix)).unwrap();
    assert_eq!(
        (b.unix.name(i), b.unix.state[i]),
        (path.as_os_str().as_encoded_bytes(), SockState::LISTEN)
    );
    let mut signals = Vec::new();
    plain.signals(&mut signals);
    let tcp = signals.iter().find(|s| s.signal == "TCP sockets").unwrap();
    assert!(matches!(tcp.status, SignalStatus::Degraded { .. }), "{tcp:?}");
}

#[test]
fn signals_name_every_kind_of_socket_once() {
    let mut signals = Vec::new();
    open().signals(&mut signals);
    let names: Vec<&str> = signals.iter().map(|s| &*s.signal).collect();
    let want = ["TCP sockets", "UDP sockets", "UNIX sockets", "MPTCP sockets", "socket owners"];
    assert_eq!(names, want);
    assert_eq!(signals[0].status, SignalStatus::Ok);
}

#[test]
fn mptcp_sockets_appear_beside_their_subflows() {
    use rustix::net::{AddressFamily, Protocol, SocketType, bind, listen, socket};
    let mptcp = Protocol::from_raw(262.try_into().unwrap());
    let Ok(listener) = socket(AddressFamily::INET, SocketType::STREAM, Some(mptcp)) else {
        return skip("no MPTCP here");
    };
    bind(&listener, &std::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0)).unwrap();
    listen(&listener, 4).unwrap();
    let listener = TcpListener::from(listener);
    let port = listener.local_addr().unwrap().port();
    let sample = read(&mut open(), &Interest::default());
    let rows = &sample.spaces[0].inet;
    let protos: Vec<Proto> =
        (0..rows.len()).filter(|i| rows.lport[*i] == port).map(|i| rows.proto[i]).collect();
    assert_eq!(protos, [Proto::Tcp, Proto::Mptcp]);
}

fn dump(family: u8) -> InetRows {
    let mut link = NlSocket::open(SOCK_DIAG).unwrap();
    let (mut rows, mut seen, mut marks) = (InetRows::default(), CookieMap::default(), Vec::new());
    let mut sink = InetSink {
        rows: &mut rows,
        seen: &mut seen,
        marks: &mut marks,
        subflows: false,
        proto: Proto::Tcp,
        bad: 0,
        twice: 0,
    };
    let ext = EXT_SKMEMINFO | EXT_INFO;
    let request = InetRequest { family, proto: Proto::Tcp, ext, states: ALL_STATES };
    link.dump_inet(&mut Buffers::default(), request, &mut sink).unwrap();
    assert_eq!((sink.bad, sink.twice), (0, 0));
    rows
}

/// The request without a family yields the sockets of both families, as their own requests
/// do, with all that was asked for.
#[test]
fn one_dump_of_both_families_is_the_two_dumps() {
    let (listener, client, server) = pair();
    let six = TcpListener::bind("[::1]:0").ok();
    let mut ours = vec![inode(&listener), inode(&client), inode(&server)];
    ours.extend(six.as_ref().map(inode));
    let pick = |rows: &InetRows| {
        let mine = (0..rows.len()).filter(|i| ours.contains(&rows.inode[*i]));
        let mut out: Vec<_> = mine
            .map(|i| {
                let lengths = (rows.skmem_words[i], rows.tcp_info(i).map(|t| t.as_bytes().len()));
                (rows.cookie[i], rows.local_endpoint(i), rows.state[i], rows.cgroup[i], lengths)
            })
            .collect();
        out.sort_unstable();
        out
    };
    let mut apart = pick(&dump(AF_INET));
    apart.extend(pick(&dump(AF_INET6)));
    apart.sort_unstable();
    assert_eq!(apart.len(), ours.len());
    assert_eq!(pick(&dump(BOTH_FAMILIES)), apart);
}

//! A reading allocates per column, not per socket.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use stallscope::collect::sockets::HostSockets;
use stallscope::collect::{CollectOptions, Collector, HostFs};
use stallscope::sample::Interest;
use stallscope::sample::sockets::SockState;

use crate::counting;
use crate::support::skip;
use crate::support::sockets::{read, row};

fn open_pairs(listener: &TcpListener, pairs: usize, held: &mut Vec<TcpStream>) {
    for _ in 0..pairs {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // They end with a reset: left in TIME-WAIT, thousands would be on the host of whatever
        // is tested in the next minute, which is then read as a host of many sockets.
        set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
        held.push(client);
        held.push(listener.accept().unwrap().0);
    }
}

#[test]
fn a_reading_allocates_per_column() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    if limit.maximum.is_some_and(|n| n < 5000) {
        skip("fewer than 5000 descriptors allowed");
        return;
    }
    let mut collector = HostSockets::open(&HostFs::live(), &CollectOptions::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut held = Vec::new();
    let mut counts = Vec::new();
    for _ in 0..2 {
        open_pairs(&listener, 1000, &mut held);
        // The first reading of a size may grow the columns; the next knows it.
        read(&mut collector, &Interest::default());
        read(&mut collector, &Interest::default());
        let (sample, count) = counting::allocations(|| read(&mut collector, &Interest::default()));
        counts.push(count);
        let rows = &sample.spaces[0].inet;
        let ours = (0..rows.len()).filter(|i| rows.lport[*i] == port || rows.rport[*i] == port);
        let ours = ours.filter(|i| rows.state[*i] == SockState::ESTAB).count();
        assert_eq!(ours, held.len());
        // So many sockets, all of them idle: nobody's tcp_info is worth a lookup.
        assert!(rows.infos.len() < 100, "{} infos", rows.infos.len());
    }
    // 20 columns, a file or two; the harness and other programs' sockets leave some room.
    assert!(counts.iter().all(|n| *n < 150), "{counts:?}");
    assert!(counts[1] <= counts[0] + 50, "{counts:?}");

    // Above a thousand sockets a named one gets its tcp_info by an exact lookup.
    let sample = read(&mut collector, &Interest::default());
    let table = &sample.spaces[0];
    let i = row(&table.inet, port, held[0].local_addr().unwrap().port()).unwrap();
    assert_eq!(table.inet.tcp_info(i), None);
    let interest = Interest { sockets: vec![table.id(i)], ..Interest::default() };
    let sample = read(&mut collector, &interest);
    let rows = &sample.spaces[0].inet;
    let i = rows.find(interest.sockets[0].cookie).unwrap();
    assert_eq!(rows.tcp_info(i).unwrap().state(), Some(1));
}

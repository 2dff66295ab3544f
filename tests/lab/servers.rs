//! Servers that stand still, and servers that only look so. Clients are in namespace `a`.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kit::gate::{Place, beside};
use crate::kit::net::{B, Pair};
use crate::kit::product::check;
use crate::kit::{pause, secs, wait_for};

const PORT: u16 = 5000;
const REQUEST: &[u8] = b"GET some-key-of-a-hash-map HTTP/1.0 and more\r\n\r\n";

/// Clients with one request answered.
fn clients(net: &Pair, listener: &TcpListener, n: usize) -> Vec<(TcpStream, TcpStream)> {
    let connect = |_| {
        let mut client = net.a.inside(|| TcpStream::connect(SocketAddrV4::new(B, PORT)).unwrap());
        let mut server = listener.accept().unwrap().0;
        client.write_all(REQUEST).unwrap();
        let mut got = vec![0; REQUEST.len()];
        server.read_exact(&mut got).unwrap();
        server.write_all(b"ok").unwrap();
        client.read_exact(&mut got[..2]).unwrap();
        (client, server)
    };
    (0..n).map(connect).collect()
}

fn unread(net: &Pair, n: usize) {
    wait_for("unread requests", secs(10), || {
        let full = net.b.ss("sport = :5000");
        (full.iter().filter(|s| s.recv_q() == REQUEST.len() as u64).count() == n).then_some(())
    });
}

/// Requests of 48 bytes fill no buffer; nothing but standing still tells.
#[test]
fn a_server_that_answers_nobody_is_hung() {
    beside(Place::Network, &["ip", "ss"], || {
        let net = Pair::new();
        let listener = net.b.inside(|| TcpListener::bind(SocketAddrV4::new(B, PORT)).unwrap());
        let mut pairs = clients(&net, &listener, 6);
        for (client, _) in pairs.iter_mut().take(4) {
            client.write_all(REQUEST).unwrap();
        }
        // Not accepted yet.
        let mut late = net.a.inside(|| TcpStream::connect(SocketAddrV4::new(B, PORT)).unwrap());
        late.write_all(REQUEST).unwrap();
        unread(&net, 5);
        let report = check("hung", "10s", &[]);
        report.exactly(net.affected(), &["server-hung"], &[]);
        let f = report.the("server-hung", net.affected());
        assert_eq!(f.netns(), Some(net.b.inode), "the server's side: {}", f.text());
        assert_eq!(f.subject()["local"], "10.9.0.2:5000");
        let name = format!("/{} does not answer: 5 connections", std::process::id());
        assert!(f.text().contains(&name), "{}", f.text());
        assert!(f.text().contains("1 of these waiting to be accepted"), "{}", f.text());
    });
}

/// Four requests wait, and the fifth client is served all the time: no process stands still.
#[test]
fn a_server_with_one_slow_request_is_not() {
    beside(Place::Network, &["ip", "ss"], || {
        let net = Pair::new();
        let listener = net.b.inside(|| TcpListener::bind(SocketAddrV4::new(B, PORT)).unwrap());
        let mut pairs = clients(&net, &listener, 5);
        for (client, _) in pairs.iter_mut().take(4) {
            client.write_all(REQUEST).unwrap();
        }
        unread(&net, 4);
        let (mut client, mut server) = pairs.pop().unwrap();
        let end = AtomicBool::new(false);
        let report = std::thread::scope(|s| {
            s.spawn(|| {
                let mut got = vec![0; REQUEST.len()];
                while !end.load(Ordering::Relaxed) {
                    client.write_all(REQUEST).unwrap();
                    server.read_exact(&mut got).unwrap();
                    pause(300);
                }
            });
            let report = check("one-slow", "10s", &[]);
            end.store(true, Ordering::Relaxed);
            report
        });
        report.exactly(net.affected(), &[], &[]);
    });
}

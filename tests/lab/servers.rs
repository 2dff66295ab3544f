//! Servers that stand still, and servers that only look so. Clients are in namespace `a`.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kit::block::Dir;
use crate::kit::gate::{Place, beside, lab};
use crate::kit::net::{B, Pair};
use crate::kit::product::{check, check_undisturbed};
use crate::kit::sh::Held;
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
        f.is_by(std::process::id());
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

/// redis at the far end, whose clients run a script that counts to a number up to `n`: with one
/// and the same number, redis would go round in step with the clock of whoever looks.
fn redis_with_scripts(net: &Pair, dir: &Dir, clients: &str, n: u32) -> [Held; 2] {
    let at = |ns: &str, argv: &[&str]| {
        Held::start(&[&["nsenter", &format!("--net=/run/netns/{ns}"), "--"], argv].concat())
    };
    let dir = dir.path.to_str().unwrap();
    let server = ["redis-server", "--bind", "10.9.0.2", "--save", "", "--dir", dir];
    let mut server = at(&net.b.name, &[&server[..], &["--protected-mode", "no"]].concat());
    wait_for("redis listens", secs(10), || {
        server.assert_running();
        net.a.inside(|| TcpStream::connect(SocketAddrV4::new(B, 6379))).ok()
    });
    let ask = ["redis-benchmark", "-h", "10.9.0.2", "-c", clients, "-n", "100000000"];
    let (script, n) = ("for i = 1, tonumber(ARGV[1]) do end return 1", n.to_string());
    let script = ["-r", &n, "EVAL", script, "0", "__rand_int__"];
    let clients = at(&net.a.name, &[&ask[..], &script].concat());
    [server, clients]
}

/// CPU time of a process in clock ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn busy(redis: &Held) {
    wait_for("redis uses a CPU", secs(10), || {
        let before = ticks(redis.pid());
        pause(500);
        (ticks(redis.pid()) - before >= 40).then_some(())
    });
}

/// Twenty clients run scripts of tens of milliseconds: one thread has it all to do.
#[test]
fn a_server_may_be_bound_by_one_thread() {
    lab(&["ip", "ss", "redis-server", "redis-benchmark"], || {
        let (net, dir) = (Pair::new(), Dir::new());
        let [mut server, mut clients] = redis_with_scripts(&net, &dir, "20", 8_000_000);
        busy(&server);
        let report = check_undisturbed("one-thread", "20s");
        server.assert_running();
        clients.assert_running();
        report.exactly(net.affected(), &["single-thread-bound"], &[]);
        let f = report.the("single-thread-bound", net.affected());
        assert_eq!(f.subject()["local"], "10.9.0.2:6379");
        let thread = format!("redis-server/{}", server.pid());
        assert!(f.text().contains(&thread), "{}", f.text());
        assert_eq!(f.by()[0]["pid"], server.pid(), "{}", f.text());
    });
}

/// The same thread is as busy with scripts of some 50 us, and no client waits.
#[test]
fn a_busy_thread_that_keeps_up_is_not_bound() {
    lab(&["ip", "ss", "redis-server", "redis-benchmark"], || {
        let (net, dir) = (Pair::new(), Dir::new());
        let [mut server, mut clients] = redis_with_scripts(&net, &dir, "20", 25_000);
        busy(&server);
        let report = check_undisturbed("one-thread-quick", "14s");
        server.assert_running();
        clients.assert_running();
        report.exactly(net.affected(), &[], &[]);
    });
}

/// A server with little to do.
#[test]
fn redis_at_moderate_load_is_quiet() {
    beside(Place::Network, &["ip", "ss", "redis-server", "redis-benchmark"], || {
        let (net, dir) = (Pair::new(), Dir::new());
        let [mut server, mut clients] = redis_with_scripts(&net, &dir, "2", 200);
        pause(1000);
        let report = check("redis-moderate", "13s", &[]);
        server.assert_running();
        clients.assert_running();
        report.exactly(net.affected(), &[], &[]);
    });
}

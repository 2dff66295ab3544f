//! Servers that are well, and a network between them and their clients that is not.

use std::io::Write;
use std::net::UdpSocket;

use rustix::process::Signal;

use crate::clients::{Askers, client, connections};
use crate::kit::block::Dir;
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::Place;
use crate::kit::net::{Ns, Pair, SsLine};
use crate::kit::{secs, wait_for};
use crate::servers::{self, HOST, HOST6, Home, pg, to, to6};
use crate::stage::{Case, about_group, anywhere, fault, says, within};

const PING: &[u8] = b"PING\r\n";
const ALONG: Option<Place> = Some(Place::Network);

/// Drops what arrives in the namespace, of those packets that `of` describes. Not what leaves the
/// other one: TCP is told of that, and holds back what it has not sent yet.
fn lose(ns: &Ns, of: &str) {
    let chain = "add chain inet t c { type filter hook prerouting priority 0; }";
    for line in ["add table inet t", chain, &format!("add rule inet t c {of} drop")] {
        ns.exec(&["nft", line]);
    }
}

/// Some when so many segments were sent again.
fn retransmitted(ns: &Ns, n: u64) {
    wait_for("retransmissions", secs(10), || (ns.counter("TcpRetransSegs") >= n).then_some(()));
}

/// Nothing that redis sends arrives.
#[test]
fn replies_of_redis_lost() {
    let case = Case { name: "lost-replies", tools: &["redis-server"], short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let _redis = servers::redis(Home::new(&net, &dir.path), &[]);
        let _askers = Askers::start(&net.a, to(6379), 30, PING);
        stage.watch(14);
        stage.breaks();
        lose(&net.a, "tcp sport 6379");
        retransmitted(&net.a, 30);
        stage.first(&["tcp-rto-storm"], within(&net), says("10.9.0."));
    });
}

/// The same over IPv6.
#[test]
fn replies_over_v6_lost() {
    let case = Case { name: "lost-v6", tools: &["redis-server"], short: true, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        servers::with_v6(&net);
        let _redis = servers::redis_at(Home::new(&net, &dir.path), HOST6, &[]);
        let _askers = Askers::start(&net.a, to6(6379), 30, PING);
        stage.watch(14);
        stage.breaks();
        lose(&net.a, "tcp sport 6379");
        retransmitted(&net.a, 30);
        stage.first(&["tcp-rto-storm"], within(&net), says("[fd09::"));
    });
}

/// One packet of twenty is lost on the way to the clients.
#[test]
fn path_that_loses_some() {
    let tools = ["nginx", "wrk"];
    let case = Case { name: "loss", tools: &tools, short: false, place: None };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let _nginx = servers::nginx(Home::new(&net, &dir.path), "worker_processes 1;", "");
        let url = format!("http://{HOST}:8080/large");
        let _wrk = client(&net, &dir.path, &["wrk", "-t", "1", "-c", "16", "-d", "600", &url]);
        stage.watch(18);
        stage.breaks();
        lose(&net.a, "tcp sport 8080 numgen random mod 100 < 5");
        retransmitted(&net.b, 100);
        stage.first(&["tcp-retrans-rate"], anywhere, says("retransm"));
    });
}

/// A client asks for 24 MB and reads nothing of it.
fn asks_and_never_reads(net: &Pair) -> Vec<std::net::TcpStream> {
    let mut streams = connections(&net.a, to(6379), 3);
    streams[0].write_all(b"SETRANGE large 24000000 x\r\n").unwrap();
    for s in &mut streams {
        s.write_all(b"GET large\r\n").unwrap();
    }
    wait_for("a closed window", secs(10), || {
        net.b.ss("sport = :6379").iter().any(|s| s.timer() == "persist").then_some(())
    });
    streams
}

#[test]
fn client_that_does_not_read() {
    let case = Case { name: "not-reading", tools: &["redis-server"], short: true, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let _redis = servers::redis(Home::new(&net, &dir.path), &[]);
        let _askers = Askers::start(&net.a, to(6379), 4, PING);
        stage.watch(16);
        stage.breaks();
        let _lazy = asks_and_never_reads(&net);
        stage.first(&["tcp-receiver-not-reading"], within(&net), says(std::process::id()));
    });
}

/// The same in namespaces that were made after the watch began.
#[test]
fn client_in_a_new_namespace() {
    let case = Case { name: "new-netns", tools: &["redis-server"], short: false, place: ALONG };
    fault(&case, |stage| {
        stage.watch(18);
        let (net, dir) = (Pair::new(), Dir::new());
        let _redis = servers::redis(Home::new(&net, &dir.path), &[]);
        stage.breaks();
        let _lazy = asks_and_never_reads(&net);
        stage.first(&["tcp-receiver-not-reading"], within(&net), says(std::process::id()));
    });
}

/// unbound is stopped and the queries go on.
#[test]
fn unbound_does_not_read() {
    let case = Case { name: "unbound", tools: &["unbound"], short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let unbound = servers::unbound(Home::new(&net, &dir.path));
        // A query for www.example: an id, one question, of type A.
        let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01";
        let socket = net.a.inside(|| UdpSocket::bind("10.9.0.1:0").unwrap());
        socket.set_nonblocking(true).unwrap();
        let _queries = crate::clients::Restless::start(&net.a, 1, move || {
            for _ in 0..20 {
                let _ = socket.send_to(query, to(53));
            }
            crate::kit::pause(10);
            while socket.recv(&mut [0; 512]).is_ok() {}
        });
        stage.watch(14);
        stage.breaks();
        unbound.signal(Signal::STOP);
        wait_for("lost datagrams", secs(5), || {
            (net.b.counter("UdpRcvbufErrors") > 100).then_some(())
        });
        stage.first(&["udp-rcvbuf-drop", "server-hung"], within(&net), says(":53"));
    });
}

/// 64 local ports towards redis, and clients for nearly all of them.
#[test]
fn ports_run_out() {
    let case = Case { name: "ports", tools: &["redis-server"], short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        net.a.exec(&["sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40063"]);
        let _redis = servers::redis(Home::new(&net, &dir.path), &[]);
        let _askers = Askers::start(&net.a, to(6379), 10, PING);
        stage.watch(12);
        stage.breaks();
        let _idle = connections(&net.a, to(6379), 53);
        stage.first(&["tcp-port-exhaustion"], within(&net), says("10.9.0.2:6379"));
    });
}

/// All clients vanish; haproxy asks after them.
#[test]
fn clients_of_haproxy_vanish() {
    let case = Case { name: "peer-gone", tools: &["haproxy"], short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let _proxy = servers::haproxy(Home::new(&net, &dir.path));
        let _idle = connections(&net.a, to(8000), 20);
        stage.watch(24);
        stage.breaks();
        lose(&net.a, "tcp sport 8000");
        wait_for("keepalive probes without an answer", secs(15), || {
            let asks = |s: &SsLine| s.timer() == "keepalive" && s.timer_count() >= 2.0;
            net.b.ss("sport = :8000").iter().any(asks).then_some(())
        });
        stage.first(&["tcp-peer-gone"], within(&net), says("10.9.0.1"));
    });
}

/// A shaper of 20 Mbit/s in front of a transfer that had none.
#[test]
fn transfer_behind_a_shaper() {
    let tools = ["iperf3", "tc"];
    let case = Case { name: "shaper", tools: &tools, short: false, place: None };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let _server = servers::iperf(Home::new(&net, &dir.path));
        let _load =
            client(&net, &dir.path, &["iperf3", "-c", HOST, "-t", "600", "-b", "500M", "-P", "2"]);
        stage.watch(16);
        stage.breaks();
        let tbf = "tc qdisc add dev v0 root tbf rate 20mbit burst 16k latency 400ms";
        net.a.exec(&tbf.split(' ').collect::<Vec<_>>());
        stage.first(&["tc-shaped", "tcp-egress-bufferbloat"], anywhere, |_| true);
    });
}

/// Two faults that have nothing to do with each other: a quota for postgres, a firewall in front
/// of redis.
#[test]
fn two_at_once() {
    let tools = ["redis-server", &*pg("pgbench"), &*pg("postgres")];
    let case = Case { name: "two-at-once", tools: &tools, short: false, place: None };
    fault(&case, |stage| {
        let group = Cgroup::new("cpu", "two");
        let (net, other) = (Pair::new(), Pair::new());
        let (dir, more) = (Dir::new(), Dir::new());
        let groups = [&group];
        let home = Home { groups: &groups, ..Home::new(&net, &dir.path) };
        let _pg = servers::postgres(home, &[]);
        let _redis = servers::redis(Home::new(&other, &more.path), &[]);
        let _askers = Askers::start(&other.a, to(6379), 30, PING);
        let bench = pg("pgbench");
        let _load = client(
            &net,
            &dir.path,
            &[&bench, "-S", "-n", "-c", "2", "-T", "600", "-h", HOST, "-U", "postgres", "postgres"],
        );
        stage.watch(18);
        stage.breaks();
        group.set("cpu.cfs_quota_us", "10000");
        lose(&other.a, "tcp sport 6379");
        retransmitted(&other.a, 30);
        let ends = within(&other);
        stage.first(&["cfs-throttle"], |f| !ends(f), about_group(&group.name));
        stage.first(&["tcp-rto-storm"], within(&other), says("10.9.0."));
    });
}

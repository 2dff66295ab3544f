//! TCP faults. The sender is in namespace `a`, the receiver in `b`.

use std::net::SocketAddrV4;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::kit::gate::{Place, beside};
use crate::kit::net::{B, Pair, fill};
use crate::kit::product::{Found, check};
use crate::kit::{secs, wait_for};

const PORT: u16 = 5000;
const TO_PORT: &str = "dport = :5000";

/// The peer's firewall swallows everything: segments leave, nothing comes back. `w > tb` and
/// a growing RTO look like the kernel bug, but every RTO sends a segment.
#[test]
fn k1_peer_drops_input() {
    beside(Place::Network, &["ip", "nft", "ss"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        net.b.drop_tcp_to("input", PORT);
        fill(&mut tx);
        let seen = wait_for("backoff >= 2", secs(10), || {
            net.a.ss_one(TO_PORT).filter(|s| s.num("backoff") >= Some(2.0))
        });
        assert!(seen.skmem("w") > seen.skmem("tb"), "the look-alike of the kernel bug: {seen:?}");
        assert!(seen.retrans_total() >= 2, "segments do leave: {seen:?}");
        let report = check("k1", "12s", &[]);
        // One socket: not a storm of the host, so nothing but this rule. The receiver is idle.
        report.exactly(net.affected(), &["tcp-rto-storm"], &[]);
        let f = report.the("tcp-rto-storm", net.affected());
        assert_eq!(f.netns(), Some(net.a.inode), "the sender's side: {}", f.text());
        assert_eq!(f.subject()["remote"], "10.9.0.2:5000");
    });
}

/// This host's own firewall refuses the segments before the first byte: the persist timer
/// runs although the peer's window is open.
#[test]
fn k2_own_firewall_drops_output() {
    beside(Place::Network, &["ip", "nft", "ss"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        net.a.drop_tcp_to("output", PORT);
        fill(&mut tx);
        let seen = wait_for("persist timer", secs(10), || {
            net.a.ss_one(TO_PORT).filter(|s| s.timer() == "persist")
        });
        assert!(seen.num("snd_wnd") > Some(0.0), "the window is open: {seen:?}");
        let report = check("k2", "12s", &[]);
        report.exactly(net.affected(), &["tcp-local-egress-drop"], &[]);
        let f = report.the("tcp-local-egress-drop", net.affected());
        assert_eq!(f.netns(), Some(net.a.inode), "{}", f.text());
    });
}

/// Data is unacknowledged, then the route goes: RTOs fire, and nothing leaves TCP. Every
/// number looks like the kernel bug; only the route lookup tells the cause.
#[test]
fn k3_route_deleted_under_unacked_data() {
    beside(Place::Network, &["ip", "nft", "ss"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        net.b.drop_tcp_to("input", PORT);
        fill(&mut tx);
        wait_for("unacknowledged data", secs(10), || {
            net.a.ss_one(TO_PORT).filter(|s| s.num("unacked") >= Some(1.0))
        });
        net.a.exec(&["ip", "route", "del", "10.9.0.0/24"]);
        let before = net.a.ss_one(TO_PORT).unwrap();
        let seen = wait_for("one more silent RTO", secs(10), || {
            let grew = |s: &crate::kit::net::SsLine| {
                s.num("backoff").unwrap_or(0.0) > before.num("backoff").unwrap_or(0.0)
                    && s.num("backoff") >= Some(2.0)
            };
            net.a.ss_one(TO_PORT).filter(grew)
        });
        assert!(seen.skmem("w") > seen.skmem("tb"), "the look-alike of the kernel bug: {seen:?}");
        let report = check("k3", "14s", &[]);
        report.exactly(net.affected(), &["tcp-silent-rto"], &[]);
        let f = report.the("tcp-silent-rto", net.affected());
        assert_eq!(f.netns(), Some(net.a.inode), "{}", f.text());
        assert!(f.text().contains("route"), "the cause is named: {}", f.text());
        let now = net.a.ss_one(TO_PORT).unwrap();
        assert_eq!(now.num("data_segs_out"), seen.num("data_segs_out"), "nothing left TCP");
    });
}

/// The peer accepts and never reads.
#[test]
fn k4_peer_never_reads() {
    beside(Place::Network, &["ip", "ss"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        let seen = wait_for("persist timer over a closed window", secs(20), || {
            fill(&mut tx);
            net.a.ss_one(TO_PORT).filter(|s| s.timer() == "persist" && s.send_q() > 0)
        });
        assert!(seen.num("snd_wnd").unwrap_or(0.0) == 0.0, "the window is closed: {seen:?}");
        let report = check("k4", "12s", &[]);
        // On the peer's side is the cause: this very process does not drain its socket.
        let both = ["tcp-zero-window-stall", "tcp-receiver-not-reading"];
        report.exactly(net.affected(), &both, &[]);
        let reader = report.the("tcp-receiver-not-reading", net.affected());
        assert_eq!(reader.netns(), Some(net.b.inode), "the receiver's side: {}", reader.text());
        let own = format!("/{} does not read", std::process::id());
        assert!(reader.text().contains(&own), "the process is named: {}", reader.text());
        reader.is_by(std::process::id());
        let f = report.the("tcp-zero-window-stall", net.affected());
        assert_eq!(f.netns(), Some(net.a.inode), "the sender's side: {}", f.text());
        assert_eq!(f.cause(), Some("tcp-receiver-not-reading"), "one cause: {}", f.text());
        f.is_by(std::process::id());
        report.exactly(|f| f.netns() == Some(net.a.inode), &["tcp-zero-window-stall"], &[]);
    });
}

/// `listen(3)` and twelve clients: the accept queue holds four, the rest retry their SYN.
#[test]
fn listener_does_not_accept() {
    beside(Place::Network, &["ip", "ss", "nstat"], || {
        let net = Pair::new();
        let to = SocketAddrV4::new(B, PORT);
        let tcp = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
        };
        let listener = net.b.inside(|| {
            let s = tcp();
            bind(&s, &to).unwrap();
            listen(&s, 3).unwrap();
            s
        });
        let clients = net.a.inside(|| {
            (0..12)
                .map(|_| {
                    let s = tcp();
                    let started = connect(&s, &to);
                    assert_eq!(started, Err(rustix::io::Errno::INPROGRESS));
                    s
                })
                .collect::<Vec<_>>()
        });
        wait_for("a full accept queue that overflows", secs(10), || {
            let full = net
                .b
                .ss("sport = :5000")
                .iter()
                .any(|s| s.state() == "LISTEN" && s.recv_q() > s.send_q());
            (full && net.b.counter("TcpExtListenOverflows") > 0).then_some(())
        });
        let report = check("listen", "12s", &[]);
        let in_b = |f: Found<'_>| f.netns() == Some(net.b.inode);
        report.exactly(in_b, &["tcp-listen-overflow"], &[]);
        let f = report.the("tcp-listen-overflow", in_b);
        assert!(f.text().contains(":5000"), "the listener is named: {}", f.text());
        f.is_by(std::process::id());
        // The clients do wait for an answer to their SYN: a consequence.
        let in_a = |f: Found<'_>| f.netns() == Some(net.a.inode);
        report.exactly(in_a, &["tcp-connect-stuck"], &[]);
        let f = report.the("tcp-connect-stuck", in_a);
        assert_eq!(f.cause(), Some("tcp-listen-overflow"), "{}", f.text());
        drop((listener, clients));
    });
}

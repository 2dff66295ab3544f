//! TCP faults that forge each other's picture: the numbers that everybody looks at say one
//! thing, one number says what it is.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::sockopt::{
    set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force,
};

use crate::kit::gate::{Place, beside};
use crate::kit::net::{B, Pair, fill};
use crate::kit::product::check;
use crate::kit::{pause, secs, wait_for};

const PORT: u16 = 5000;
const TO_PORT: &str = "dport = :5000";

/// The peer swallows everything, and the send buffer was shrunk below what is queued: `w` is
/// a thousand times `tb`. Still every RTO sends a segment.
#[test]
fn k5_shrunk_buffer_before_a_black_hole() {
    beside(Place::Network, &["ip", "nft", "ss"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        net.b.drop_tcp_to("input", PORT);
        // Beyond net.core.wmem_max, so that the queue is megabytes long; needs CAP_NET_ADMIN.
        set_socket_send_buffer_size_force(&tx, 4 << 20).unwrap();
        fill(&mut tx);
        set_socket_send_buffer_size(&tx, 4096).unwrap();
        let seen = wait_for("backoff >= 2", secs(10), || {
            net.a.ss_one(TO_PORT).filter(|s| s.num("backoff") >= Some(2.0))
        });
        let (w, tb) = (seen.skmem("w").unwrap(), seen.skmem("tb").unwrap());
        assert!(w > 100 * tb, "w/2 > tb by far: {seen:?}");
        let report = check("k5", "12s", &[]);
        report.exactly(net.affected(), &["tcp-rto-storm"], &[]);
    });
}

/// A queueing discipline that lets nearly nothing through: the RTO fires, TCP refuses to send
/// a second copy while the first is still queued, so nothing leaves TCP. A packet takes two minutes:
/// with the first that is through, a retransmission would leave, and the silence be over.
#[test]
fn k7_stuck_qdisc() {
    beside(Place::Network, &["ip", "tc", "ss"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        let tbf = "qdisc add dev v0 root tbf rate 100bit burst 1600 limit 200000";
        net.a.exec(&[&["tc"], &tbf.split(' ').collect::<Vec<_>>()[..]].concat());
        fill(&mut tx);
        let seen = wait_for("backoff >= 2 with bytes in the qdisc", secs(20), || {
            net.a.ss_one(TO_PORT).filter(|s| s.num("backoff") >= Some(2.0))
        });
        assert!(seen.skmem("t") > Some(0), "handed down and not freed: {seen:?}");
        let report = check("k7", "14s", &[]);
        report.exactly(net.affected(), &["tcp-silent-rto", "tc-shaped"], &[]);
        let f = report.the("tcp-silent-rto", net.affected());
        assert_eq!(f.cause(), Some("tc-shaped"), "{}", f.text());
        assert!(f.text().contains("qdisc"), "the cause is named: {}", f.text());
        assert!(!f.text().contains("no route"), "{}", f.text());
    });
}

/// The own firewall closes when data is already on its way: the RTO timer runs, and each
/// retransmission is refused locally.
#[test]
fn k2_own_firewall_closes_in_mid_flight() {
    beside(Place::Network, &["ip", "nft", "ss", "nstat"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        // The session begins before the fault: RTOs double, and one that begins when they are far
        // apart sees none.
        let report = std::thread::scope(|s| {
            let session = s.spawn(|| check("k2-mid", "16s", &[]));
            net.b.drop_tcp_to("input", PORT);
            fill(&mut tx);
            wait_for("unacknowledged data", secs(10), || {
                net.a.ss_one(TO_PORT).filter(|s| s.num("unacked") >= Some(1.0))
            });
            net.a.drop_tcp_to("output", PORT);
            wait_for("a refused retransmission", secs(10), || {
                (net.a.counter("TcpExtTCPRetransFail") > 0).then_some(())
            });
            session.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        });
        report.exactly(net.affected(), &["tcp-local-egress-drop"], &["tcp-rto-storm"]);
        // On a busy machine the peer may be silent for long enough before the firewall closes.
        let (all, affected) = (report.findings(), net.affected());
        let storms = all.iter().filter(|f| f.rule() == "tcp-rto-storm" && affected(**f));
        assert!(storms.clone().all(|f| !f.is_active()), "{:?}", storms.map(|f| f.text()).next());
    });
}

/// A kernel with the fix still refuses to cut a segment of an overfull queue, and counts it as the
/// broken one does: a long queue, a burst of loss, a send buffer and a path MTU that shrink. But
/// the next segment goes, so the counter alone says nothing.
#[test]
fn k6_the_counter_moves_and_nothing_is_stuck() {
    beside(Place::Network, &["ip", "nft", "ss", "nstat"], || {
        let net = Pair::new();
        let (tx, rx) = net.connect(PORT);
        set_socket_send_buffer_size_force(&tx, 8 << 20).unwrap();
        set_socket_recv_buffer_size_force(&rx, 16 << 20).unwrap();
        let report = std::thread::scope(|s| {
            let _end = HangUp(&tx);
            let (mut out, mut back) = (&tx, &rx);
            s.spawn(move || {
                let block = vec![7; 1 << 16];
                while out.write_all(&block).is_ok() {}
            });
            s.spawn(move || {
                let mut block = vec![0; 1 << 18];
                while back.read(&mut block).is_ok_and(|n| n > 0) {}
            });
            let session = s.spawn(|| check("k6", "14s", &[]));
            wait_for("100 MB have passed", secs(10), || {
                net.a.ss_one(TO_PORT).filter(|s| s.num("bytes_acked") > Some(1e8))
            });
            // After the first ticks, so that the growth is seen.
            pause(3_000);
            // The peer falls silent with megabytes in the queue, which must not drain before the
            // buffer has shrunk; then it listens again. All is lost, and sent again as the window
            // grows: a segment that is neither the first nor the last has to be cut.
            let moved = (1..=12).find(|_| {
                set_socket_send_buffer_size_force(&tx, 8 << 20).unwrap();
                net.a.exec(&["ip", "route", "change", "10.9.0.0/24", "dev", "v0", "mtu", "1500"]);
                pause(200);
                nft(&net, "add table inet l");
                nft(&net, "add chain inet l c { type filter hook prerouting priority 0; }");
                nft(&net, "add rule inet l c tcp dport 5000 drop");
                pause(50);
                set_socket_send_buffer_size(&tx, 4096).unwrap();
                net.a.exec(&["ip", "route", "change", "10.9.0.0/24", "dev", "v0", "mtu", "600"]);
                nft(&net, "delete table inet l");
                pause(800);
                net.a.counter("TcpExtTCPWqueueTooBig") > 0
            });
            eprintln!("lab: k6: the kernel refused to cut a segment in round {moved:?}");
            assert!(moved.is_some(), "the counter did not move in 12 rounds");
            session.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        });
        // The loss was real while it lasted.
        let loss = ["tcp-retrans-rate", "tcp-spurious-rto", "tcp-rto-storm"];
        report.exactly(net.affected(), &[], &loss);
    });
}

fn nft(net: &Pair, line: &str) {
    net.b.exec(&["nft", line]);
}

/// Ends both directions when dropped, so that the pumping threads end even after a failed
/// assertion.
struct HangUp<'a>(&'a std::net::TcpStream);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// The peer does not answer ARP any more: TCP counts retransmissions that the neighbour layer
/// discards, so all looks as if they had left.
#[test]
fn k9_the_neighbour_does_not_answer() {
    beside(Place::Network, &["ip", "ss", "nstat"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        net.b.exec(&["ip", "link", "set", "v1", "arp", "off"]);
        net.a.exec(&["ip", "neigh", "flush", "all"]);
        fill(&mut tx);
        wait_for("3 retransmissions", secs(10), || {
            net.a.ss_one(TO_PORT).filter(|s| s.num("backoff") >= Some(3.0))
        });
        let neigh = net.a.exec(&["ip", "neigh", "show", "to", "10.9.0.2"]);
        assert!(neigh.contains("FAILED") || neigh.contains("INCOMPLETE"), "{neigh}");
        let report = check("k9", "12s", &[]);
        report.exactly(net.affected(), &["neigh-unresolved", "tcp-rto-storm"], &[]);
        let f = report.the("tcp-rto-storm", net.affected());
        assert_eq!(f.cause(), Some("neigh-unresolved"), "{}", f.text());
        let f = report.the("neigh-unresolved", net.affected());
        assert!(f.text().contains("neighbour 10.9.0.2 does not answer on v0"), "{}", f.text());
    });
}

/// Small segments pass, full ones vanish without a word: uploads stand still, and others to the
/// same port are answered.
#[test]
fn k10_full_segments_vanish() {
    beside(Place::Network, &["ip", "nft", "ss"], || {
        let net = Pair::new();
        let listener = net.b.inside(|| TcpListener::bind(SocketAddrV4::new(B, PORT)).unwrap());
        let mut pairs: Vec<_> = (0..4)
            .map(|_| {
                let to = SocketAddrV4::new(B, PORT);
                let tx = net.a.inside(|| TcpStream::connect(to).unwrap());
                (tx, listener.accept().unwrap().0)
            })
            .collect();
        nft(&net, "add table inet l");
        nft(&net, "add chain inet l c { type filter hook prerouting priority 0; }");
        nft(&net, "add rule inet l c tcp dport 5000 meta length > 1000 drop");
        // Segments as they are on a wire.
        net.a.exec(&["ip", "link", "set", "v0", "gso_max_segs", "1"]);
        for (tx, _) in pairs.iter_mut().take(3) {
            fill(tx);
        }
        wait_for("3 retransmissions", secs(10), || {
            let stuck = net.a.ss(TO_PORT);
            let n = stuck.iter().filter(|s| s.num("backoff") >= Some(3.0)).count();
            (n == 3).then_some(())
        });
        let end = AtomicBool::new(false);
        let (mut tx, mut rx) = pairs.pop().unwrap();
        let report = std::thread::scope(|s| {
            s.spawn(|| {
                let mut byte = [0; 1];
                while !end.load(Ordering::Relaxed) {
                    tx.write_all(b"x").unwrap();
                    rx.read_exact(&mut byte).unwrap();
                    pause(200);
                }
            });
            let report = check("k10", "12s", &[]);
            end.store(true, Ordering::Relaxed);
            report
        });
        report.exactly(net.affected(), &["tcp-mtu-black-hole", "tcp-rto-storm"], &[]);
        let f = report.the("tcp-rto-storm", net.affected());
        assert_eq!(f.cause(), Some("tcp-mtu-black-hole"), "{}", f.text());
    });
}

//! TCP faults that forge each other's picture: the numbers that everybody looks at say one
//! thing, one number says what it is.

use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::kit::gate::lab;
use crate::kit::net::{Pair, fill};
use crate::kit::product::check;
use crate::kit::{secs, wait_for};

const PORT: u16 = 5000;
const TO_PORT: &str = "dport = :5000";

/// The peer swallows everything, and the send buffer was shrunk below what is queued: `w` is
/// a thousand times `tb`. Still every RTO sends a segment.
#[test]
fn k5_shrunk_buffer_before_a_black_hole() {
    lab(&["ip", "nft", "ss"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        net.b.drop_tcp_to("input", PORT);
        // Beyond net.core.wmem_max, so that the queue is megabytes long; needs CAP_NET_ADMIN.
        rustix::net::sockopt::set_socket_send_buffer_size_force(&tx, 4 << 20).unwrap();
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
/// a second copy while the first is still queued, so nothing leaves TCP.
#[test]
fn k7_stuck_qdisc() {
    lab(&["ip", "tc", "ss"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        let tbf = "qdisc add dev v0 root tbf rate 1kbit burst 1600 latency 600s";
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
    lab(&["ip", "nft", "ss", "nstat"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(PORT);
        net.b.drop_tcp_to("input", PORT);
        fill(&mut tx);
        wait_for("unacknowledged data", secs(10), || {
            net.a.ss_one(TO_PORT).filter(|s| s.num("unacked") >= Some(1.0))
        });
        net.a.drop_tcp_to("output", PORT);
        wait_for("a refused retransmission", secs(10), || {
            (net.a.counter("TcpExtTCPRetransFail") > 0).then_some(())
        });
        let report = check("k2-mid", "14s", &[]);
        report.exactly(net.affected(), &["tcp-local-egress-drop"], &[]);
    });
}

//! TCP that works, but not as well as it could: lost segments, needless timeouts, small
//! buffers, connects without an answer, ports that run out.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::kit::gate::{Place, beside};
use crate::kit::net::{A, B, Pair};
use crate::kit::product::{Found, check};
use crate::kit::{pause, secs, wait_for};
use crate::packets::meanwhile;

const PORT: u16 = 5000;

fn tcp() -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
}

/// Sends and receives as fast as it goes while `judge` runs.
fn bulk<T>(tx: &TcpStream, rx: &TcpStream, judge: impl FnOnce() -> T) -> T {
    std::thread::scope(|s| {
        s.spawn(|| {
            let (mut tx, block) = (tx, vec![7; 1 << 16]);
            while tx.write_all(&block).is_ok() {}
        });
        s.spawn(|| {
            let (mut rx, mut block) = (rx, vec![0; 1 << 18]);
            while rx.read(&mut block).is_ok_and(|n| n > 0) {}
        });
        // Whatever happens, the threads must end, or the scope never does.
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
        let _ = tx.shutdown(std::net::Shutdown::Both);
        judged.unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

fn nft(ns: &crate::kit::net::Ns, hook: &str, rule: &str) {
    let chain = format!("add chain inet t c {{ type filter hook {hook} priority 0; }}");
    for line in ["add table inet t", &chain, &format!("add rule inet t c {rule}")] {
        ns.exec(&["nft", line]);
    }
}

/// The peer's firewall swallows SYNs: four connects, no answer.
#[test]
fn k1_syns_without_an_answer() {
    beside(Place::Network, &["ip", "nft", "nstat"], || {
        let net = Pair::new();
        net.b.drop_tcp_to("input", PORT);
        let clients = net.a.inside(|| {
            let to = SocketAddrV4::new(B, PORT);
            let one = |_| {
                let s = tcp();
                assert_eq!(connect(&s, &to), Err(rustix::io::Errno::INPROGRESS));
                s
            };
            (0..4).map(one).collect::<Vec<_>>()
        });
        wait_for("SYNs are sent again", secs(10), || {
            (net.a.counter("TcpExtTCPSynRetrans") >= 8).then_some(())
        });
        let report = check("k1-syn", "12s", &[]);
        report.exactly(net.affected(), &["tcp-connect-stuck"], &[]);
        let f = report.the("tcp-connect-stuck", net.affected());
        assert_eq!(f.subject()["remote"], "10.9.0.2:5000");
        assert_eq!(f.evidence("SYN-SENT"), Some(4.0), "{}", f.text());
        drop(clients);
    });
}

/// One of twenty packets is lost on its way to the peer.
#[test]
fn lossy_path() {
    beside(Place::Network, &["ip", "nft", "nstat"], || {
        let net = Pair::new();
        // Without segmentation offload a packet is a segment.
        net.a.exec(&["ip", "link", "set", "v0", "gso_max_segs", "1"]);
        let (tx, rx) = net.connect(PORT);
        nft(&net.b, "input", "tcp dport 5000 numgen random mod 100 < 5 drop");
        let report = bulk(&tx, &rx, || check("lossy", "12s", &[]));
        let share = net.a.counter("TcpRetransSegs") as f64 / net.a.counter("TcpOutSegs") as f64;
        assert!(share > 0.02, "the kernel counts {share}");
        // Timeouts in between are part of it.
        report.exactly(net.affected(), &["tcp-retrans-rate"], &["tcp-rto-storm"]);
        let f = report.the("tcp-retrans-rate", net.affected());
        assert_eq!(f.netns(), Some(net.a.inode), "the sender's side: {}", f.text());
        assert!(f.text().contains("most of them to 10.9.0.2"), "{}", f.text());
    });
}

/// ACKs are held back for a second and released again: timeouts that were not needed.
#[test]
fn k7_toggled_needless_timeouts() {
    beside(Place::Network, &["ip", "tc", "nstat"], || {
        let net = Pair::new();
        let streams: Vec<_> = (0..12).map(|i| net.connect(PORT + i)).collect();
        let tbf = |verb: &str, rate: &str| {
            // A bucket that holds one ACK: more would let the first ones through at once.
            let burst = 100;
            let line =
                format!("qdisc {verb} dev v1 root tbf rate {rate} burst {burst} latency 60s");
            net.b.exec(&[&["tc"], &line.split(' ').collect::<Vec<_>>()[..]].concat());
        };
        tbf("add", "1gbit");
        let done = AtomicBool::new(false);
        let report = std::thread::scope(|s| {
            s.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    tbf("change", "2kbit");
                    for (tx, _) in &streams {
                        let mut tx = tx;
                        tx.write_all(&[7; 4000]).unwrap();
                    }
                    pause(900);
                    tbf("change", "1gbit");
                    // Fast round trips teach the connections a short RTO again.
                    for _ in 0..40 {
                        for (tx, _) in &streams {
                            let mut tx = tx;
                            tx.write_all(&[7; 100]).unwrap();
                        }
                        pause(15);
                    }
                }
            });
            let judged = std::panic::catch_unwind(|| check("spurious", "14s", &[]));
            done.store(true, Ordering::Relaxed);
            judged.unwrap_or_else(|e| std::panic::resume_unwind(e))
        });
        let undone = net.a.counter("TcpExtTCPLossUndo") + net.a.counter("TcpExtTCPDSACKUndo");
        assert!(undone >= 20, "the kernel took back {undone}");
        let found = report.findings();
        let all: Vec<Found<'_>> = found
            .into_iter()
            .filter(|f| f.rule() == "tcp-spurious-rto" && f.netns() == Some(net.a.inode))
            .collect();
        assert_eq!(all.len(), 1, "{}", report.json);
        // The shaper is on the way back: nothing of the sender's own waits.
        report.exactly(|f| f.netns() == Some(net.a.inode), &[], &["tcp-spurious-rto"]);
    });
}

/// A peer whose receive buffer has 16 kB, behind a way back on which an ACK takes 2 ms: the
/// window is what the sender waits for, whatever else the CPUs do. That is no alarm, but what
/// limits the connection is told, with the share that the kernel counts: 58 to 61% on 6.18,
/// where nothing else limits it.
#[test]
fn small_buffers_are_the_limit() {
    beside(Place::Network, &["ip", "ss", "tc"], || {
        let net = Pair::new();
        // Holds one ACK.
        let slow = "qdisc add dev v1 root tbf rate 250kbit burst 200 latency 2s";
        net.b.exec(&[&["tc"], &slow.split(' ').collect::<Vec<_>>()[..]].concat());
        let (tx, rx) = {
            let listener = net.b.inside(|| {
                let s = tcp();
                set_socket_recv_buffer_size(&s, 8192).unwrap();
                bind(&s, &SocketAddrV4::new(B, PORT)).unwrap();
                listen(&s, 1).unwrap();
                std::net::TcpListener::from(s)
            });
            listener.set_nonblocking(false).unwrap();
            let tx = net.a.inside(|| TcpStream::connect(SocketAddrV4::new(B, PORT)).unwrap());
            (tx, listener.accept().unwrap().0)
        };
        let counted = || {
            let s = net.a.ss_one("dport = :5000")?;
            Some((s.num("rwnd_limited")?, s.num("busy")?))
        };
        let (report, before, after) = bulk(&tx, &rx, || {
            let before = wait_for("the window is the limit", secs(5), counted);
            let report = check("small-window", "16s", &[]);
            (report, before, counted().unwrap())
        });
        // The way back is shaped indeed.
        report.exactly(net.affected(), &[], &["tc-shaped"]);
        let f = report.the("tcp-window-or-buffer-limited", net.affected());
        assert_eq!((f.netns(), f.severity()), (Some(net.a.inode), "info"), "{}", f.text());
        let share = 100.0 * (after.0 - before.0) / (after.1 - before.1);
        let ours = f.evidence("rwnd_limited").unwrap();
        assert!(ours >= 50.0 && (ours - share).abs() < 10.0, "ss: {share}%, {}", f.text());
    });
}

/// A send buffer that holds less than one large segment: the kernel counts no time as limited
/// by it, and on a path of microseconds it costs nothing worth an alarm.
#[test]
fn small_send_buffer() {
    beside(Place::Network, &["ip", "ss"], || {
        let net = Pair::new();
        let (tx, rx) = net.connect(PORT);
        set_socket_send_buffer_size(&tx, 16384).unwrap();
        let report = bulk(&tx, &rx, || check("small-sndbuf", "16s", &[]));
        report.exactly(net.affected(), &[], &[]);
    });
}

/// A hundred local ports and a client that opens one connection after the other.
#[test]
fn ports_run_out() {
    beside(Place::Network, &["ip", "ss", "sysctl"], || {
        let net = Pair::new();
        net.a.exec(&["sysctl", "-qw", "net.ipv4.ip_local_port_range=20000 20099"]);
        let to = SocketAddrV4::new(B, PORT);
        let listener = net.b.inside(|| std::net::TcpListener::bind(to).unwrap());
        // Who closes first keeps the TIME-WAIT.
        for _ in 0..98 {
            let tx = net.a.inside(|| TcpStream::connect(to).unwrap());
            let rx = listener.accept().unwrap().0;
            drop(tx);
            drop(rx);
        }
        let seen = net.a.ss("state time-wait dst 10.9.0.2:5000").len();
        assert!(seen >= 96, "{seen} in TIME-WAIT");
        // The client goes on: there are two ports left, and then none.
        let more = || drop(TcpStream::connect(to));
        let report = meanwhile(&net.a, 20, more, || check("ports", "5s", &[]));
        report.exactly(net.affected(), &["tcp-port-exhaustion"], &[]);
        let f = report.the("tcp-port-exhaustion", net.affected());
        assert_eq!((f.netns(), f.severity()), (Some(net.a.inode), "crit"), "{}", f.text());
        assert!(f.text().contains(&format!("from {A} to {to}")), "{}", f.text());
        if report.source("TCP events") == "ebpf" {
            f.is_by(std::process::id());
        }
    });
}

//! Sockets that lose what arrives, queues that nobody empties, sockets that nobody closes.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::actor::{actor, unix_name};
use crate::kit::gate::{Place, beside, beside_after};
use crate::kit::net::{B, Pair, fill};
use crate::kit::product::{Report, check};
use crate::kit::sh::run;
use crate::kit::undo::Undo;
use crate::kit::{pause, secs, wait_for};

const PORT: u16 = 5000;

/// Judges while `load` runs over and over.
pub(crate) fn under(load: impl Fn() + Send, judge: impl FnOnce() -> Report) -> Report {
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let done = &done;
        s.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                load();
            }
        });
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
        done.store(true, Ordering::Relaxed);
        judged.unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

/// 200 datagrams at once into a buffer of eight kilobytes, every 300 ms.
#[test]
fn udp_buffer_overflows() {
    beside(Place::Network, &["ip", "nstat"], || {
        let net = Pair::new();
        let to = SocketAddrV4::new(B, PORT);
        let rx = net.b.inside(|| UdpSocket::bind(to).unwrap());
        set_socket_recv_buffer_size(&rx, 4096).unwrap();
        rx.set_nonblocking(true).unwrap();
        let tx = net.a.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        let load = || {
            for _ in 0..200 {
                let _ = tx.send_to(&[7; 1000], to);
            }
            let mut block = [0; 2000];
            while rx.recv(&mut block).is_ok() {}
            pause(300);
        };
        let report = under(load, || check("udp", "12s", &[]));
        assert!(net.b.counter("UdpRcvbufErrors") > 1000);
        report.exactly(net.affected(), &["udp-rcvbuf-drop"], &[]);
        let f = report.the("udp-rcvbuf-drop", net.affected());
        assert_eq!((f.netns(), f.severity()), (Some(net.b.inode), "crit"), "{}", f.text());
        assert!(f.text().contains("10.9.0.2:5000"), "the socket is named: {}", f.text());
        assert!(f.evidence("d") > Some(100.0), "its own count: {}", f.text());
        f.is_by(std::process::id());
    });
}

/// Writes of 100 bytes into a receive buffer of eight kilobytes: their bookkeeping is larger
/// than they are. The reader reads, a little later each time.
#[test]
fn small_segments_overflow_a_small_buffer() {
    beside(Place::Network, &["ip", "nstat"], || {
        let net = Pair::new();
        let (tx, rx) = net.connect(PORT);
        set_socket_recv_buffer_size(&rx, 4096).unwrap();
        tx.set_nodelay(true).unwrap();
        tx.set_nonblocking(true).unwrap();
        rx.set_nonblocking(true).unwrap();
        let load = || {
            let (mut tx, mut rx) = (&tx, &rx);
            for _ in 0..300 {
                let _ = tx.write(&[7; 100]);
            }
            pause(100);
            let mut block = vec![0; 1 << 16];
            while rx.read(&mut block).is_ok_and(|n| n > 0) {}
        };
        let report = under(load, || check("rx-drop", "12s", &[]));
        let pruned = net.b.counter("TcpExtPruneCalled");
        let lost = net.b.ss_one("sport = :5000").and_then(|s| s.skmem("d")).unwrap_or(0);
        assert!(pruned >= 30 && lost >= 10, "{pruned} times pruned, {lost} dropped");
        let in_b = |f: crate::kit::product::Found<'_>| f.netns() == Some(net.b.inode);
        report.exactly(in_b, &["tcp-rx-drop"], &[]);
        let f = report.the("tcp-rx-drop", in_b);
        assert!(f.evidence("d") >= Some(10.0), "the socket is named: {}", f.text());
        f.is_by(std::process::id());
    });
}

/// Handshakes whose last ACK is lost: the SYN queue of a listener fills up.
#[test]
fn half_open_connections() {
    beside(Place::Network, &["ip", "nft", "nstat"], || {
        let net = Pair::new();
        let rule = "tcp dport 5000 tcp flags & (syn|ack) == ack drop";
        let chain = "add chain inet t c { type filter hook input priority 0; }";
        for line in ["add table inet t", chain, &format!("add rule inet t c {rule}")] {
            net.b.exec(&["nft", line]);
        }
        let to = SocketAddrV4::new(B, PORT);
        let tcp = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
        };
        let listener = net.b.inside(|| {
            let s = tcp();
            bind(&s, &to).unwrap();
            listen(&s, 8).unwrap();
            s
        });
        let held = std::sync::Mutex::new(Vec::new());
        let load = || {
            let more = net.a.inside(|| {
                let one = |_| {
                    let s = tcp();
                    let _ = connect(&s, &to);
                    s
                };
                (0..20).map(one).collect::<Vec<_>>()
            });
            held.lock().unwrap().extend(more);
            pause(700);
        };
        let report = under(load, || check("synq", "12s", &[]));
        let cookies = net.b.counter("TcpExtTCPReqQFullDoCookies");
        let dropped = net.b.counter("TcpExtTCPReqQFullDrop");
        assert!(cookies + dropped > 20, "{cookies} cookies, {dropped} dropped");
        let in_b = |f: crate::kit::product::Found<'_>| f.netns() == Some(net.b.inode);
        report.exactly(in_b, &["tcp-synq-full"], &[]);
        let f = report.the("tcp-synq-full", in_b);
        assert_eq!(f.severity(), if dropped > 0 { "crit" } else { "warn" }, "{}", f.text());
        assert!(f.text().contains("10.9.0.2:5000"), "the listener is named: {}", f.text());
        drop((listener, held));
    });
}

/// TCP of the whole host holds more than the limit at which the kernel begins to save: the
/// limit is lowered, and unread bytes are what it holds.
#[test]
fn tcp_memory_under_pressure() {
    beside(Place::Still, &["ip", "sysctl"], || {
        let net = Pair::new();
        let mut undo = Undo::default();
        let now = run(&["sysctl", "-n", "net.ipv4.tcp_mem"]);
        let was: Vec<&str> = now.split_whitespace().collect();
        undo.command(&["sysctl", "-qw", &format!("net.ipv4.tcp_mem={}", was.join(" "))]);
        let mut ends: Vec<_> = (0..8).map(|i| net.connect(PORT + i)).collect();
        for (tx, _) in &mut ends {
            fill(tx);
        }
        // The highest limit stays: nobody else's connection is aborted.
        run(&["sysctl", "-qw", &format!("net.ipv4.tcp_mem=10 20 {}", was[2])]);
        let report = check("tcp-mem", "6s", &[]);
        drop(undo);
        let all = report.findings();
        let f = all.iter().find(|f| f.rule() == "tcp-mem-pressure");
        let f = f.unwrap_or_else(|| panic!("no finding in {}", report.json));
        assert_eq!((f.kind(), f.severity()), ("host", "warn"), "{}", f.text());
        assert!(f.text().contains("10.9.0.2:50"), "a holder is named: {}", f.text());
        assert!(f.evidence("mem") > Some(20.0), "{}", f.text());
        f.is_by(std::process::id());
    });
}

/// 120 peers closed a minute ago, and this process did not notice.
#[test]
fn sockets_that_nobody_closes() {
    let leak = || {
        let net = Pair::new();
        let to = SocketAddrV4::new(B, PORT);
        let listener = net.b.inside(|| TcpListener::bind(to).unwrap());
        let mut kept = Vec::new();
        for _ in 0..120 {
            let tx = net.a.inside(|| TcpStream::connect(to).unwrap());
            kept.push(listener.accept().unwrap().0);
            drop(tx);
        }
        (net, kept)
    };
    beside_after(Place::Network, &["ip", "ss"], leak, |(net, _kept)| {
        wait_for("a minute in CLOSE-WAIT", secs(90), || {
            let all = net.b.ss("state close-wait sport = :5000");
            let old = |s: &crate::kit::net::SsLine| s.num("lastack") >= Some(61_000.0);
            // A dump misses a socket when others come and go in its hash chain meanwhile.
            (all.len() == 120 && all.iter().all(old)).then_some(())
        });
        let report = check("close-wait", "5s", &[]);
        report.exactly(net.affected(), &["tcp-close-wait-leak"], &[]);
        let f = report.the("tcp-close-wait-leak", net.affected());
        assert_eq!((f.kind(), f.netns()), ("process", Some(net.b.inode)), "{}", f.text());
        assert_eq!(f.subject()["pid"].as_u64(), Some(u64::from(std::process::id())));
        f.is_by(std::process::id());
        assert_eq!(f.evidence("CLOSE-WAIT"), Some(120.0), "{}", f.text());
    });
}

/// `listen(1)` on a UNIX socket and three clients, and nobody who accepts.
#[test]
fn unix_backlog() {
    // Beside many others not all threads are read, and nobody knows whether the listener's run.
    beside(Place::Still, &["env", "setpriv"], || {
        let mut server = actor("unix backlog");
        let name = unix_name(server.pid());
        wait_for("the backlog", secs(10), || {
            let all = std::fs::read_to_string("/proc/net/unix").unwrap();
            // The listener and both clients that it holds.
            (all.lines().filter(|l| l.ends_with(&name)).count() == 3).then_some(())
        });
        let report = check("unix", "12s", &[]);
        server.assert_running();
        let found = report.findings();
        let f = found.iter().find(|f| f.text().contains(&name));
        let f = f.unwrap_or_else(|| panic!("no finding in {}", report.json));
        assert_eq!((f.rule(), f.severity()), ("unix-backlog-full", "warn"));
        f.is_by(server.pid());
    });
}

//! Faults of single packets: connects that are refused, peers that are gone, wrong checksums,
//! fragments without the rest, sources from elsewhere, links that flap.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};

use crate::kit::gate::{Place, beside};
use crate::kit::net::{A, B, Ns, Pair};
use crate::kit::product::{Found, check};
use crate::kit::{pause, secs, wait_for};
use crate::netdev::StopOnDrop;

/// Does `step` inside `ns` every so often while `work` runs.
pub(crate) fn meanwhile<T>(
    ns: &Ns,
    gap_ms: u64,
    mut step: impl FnMut() + Send,
    work: impl FnOnce() -> T,
) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            ns.inside(|| {
                while !stop.load(Ordering::Relaxed) {
                    step();
                    pause(gap_ms);
                }
            });
        });
        let _stop = StopOnDrop(&stop);
        work()
    })
}

fn in_ns(ns: &Ns) -> impl Fn(Found<'_>) -> bool {
    let inode = ns.inode;
    move |f| f.netns() == Some(inode)
}

/// A client that connects to a closed port fifty times a second.
#[test]
fn n30_refused() {
    beside(Place::Network, &["ip", "nstat"], || {
        let net = Pair::new();
        let to = SocketAddrV4::new(B, 7999);
        let step = || assert!(TcpStream::connect(to).is_err(), "nobody listens");
        let report = meanwhile(&net.a, 20, step, || {
            wait_for("refusals", secs(5), || {
                (net.a.counter("TcpAttemptFails") >= 20).then_some(())
            });
            check("n30", "12s", &[])
        });
        report.exactly(net.affected(), &["tcp-refused"], &[]);
        let f = report.the("tcp-refused", in_ns(&net.a));
        assert_eq!(f.severity(), "warn");
        // A pause of 20 ms and a connect: never more than 50 a second.
        assert!((20.0..51.0).contains(&f.number("AttemptFails")), "{}", f.text());
        assert!((95.0..=100.0).contains(&f.number("share")), "{}", f.text());
        assert!(f.text().contains("on this host: it may be the one that refuses"), "{}", f.text());
        // The neighbour is asked from here.
        let asks = |c: &&str| !c.starts_with("ss ") && c.contains(" ss -ltnp");
        assert!(f.next().iter().any(asks), "{}", f.text());
        assert!(!f.next().iter().any(|c| c.starts_with("on ")), "{}", f.text());
        let named = f.text().contains("10.9.0.2:7999 refuses");
        assert_eq!(named, report.source("TCP events") == "ebpf", "{}", f.text());
        if named {
            f.is_by(std::process::id());
        }
        let (fails, resets) = (net.a.counter("TcpAttemptFails"), net.b.counter("TcpOutRsts"));
        assert_eq!(fails, resets, "the kernel's own account");
    });
}

/// Four idle connections with keepalive, and a peer that does not answer any more.
#[test]
fn n31_peer_gone() {
    const PORT: u16 = 5432;
    beside(Place::Network, &["ip", "nft", "ss"], || {
        let net = Pair::new();
        let listener = net.b.inside(|| TcpListener::bind(SocketAddrV4::new(B, PORT)).unwrap());
        let pool: Vec<(TcpStream, TcpStream)> = (0..4)
            .map(|_| {
                let c = net.a.inside(|| TcpStream::connect(SocketAddrV4::new(B, PORT)).unwrap());
                set_socket_keepalive(&c, true).unwrap();
                set_tcp_keepidle(&c, Duration::from_secs(1)).unwrap();
                set_tcp_keepintvl(&c, Duration::from_secs(1)).unwrap();
                set_tcp_keepcnt(&c, 60).unwrap();
                (c, listener.accept().unwrap().0)
            })
            .collect();
        let filter = format!("dport = :{PORT}");
        wait_for("a probe that is answered", secs(10), || {
            let all = net.a.ss(&filter);
            let answered = |s: &crate::kit::net::SsLine| {
                s.timer() == "keepalive" && s.timer_count() == 0.0 && s.num("segs_out") >= Some(3.0)
            };
            (all.len() == 4 && all.iter().all(answered)).then_some(())
        });
        let before = check("n31-well", "12s", &[]);
        before.exactly(net.affected(), &[], &[]);
        net.b.drop_tcp_to("input", PORT);
        wait_for("two probes without an answer", secs(10), || {
            let all = net.a.ss(&filter);
            all.iter().all(|s| s.timer() == "keepalive" && s.timer_count() >= 2.0).then_some(())
        });
        let report = check("n31", "12s", &[]);
        report.exactly(net.affected(), &["tcp-peer-gone"], &[]);
        let f = report.the("tcp-peer-gone", in_ns(&net.a));
        assert_eq!(f.subject()["remote"], "10.9.0.2:5432");
        assert_eq!(f.number("keepalive"), 4.0);
        let most = net.a.ss(&filter).iter().map(|s| s.timer_count() as u32).max().unwrap();
        let probes = f.number("probes") as u32;
        assert!((2..=most).contains(&probes), "{probes} of {most}: {}", f.text());
        drop(pool);
    });
}

/// Sends whole IPv4 packets as they are.
struct Raw(OwnedFd);

impl Raw {
    fn new(ns: &Ns) -> Self {
        Self(ns.inside(|| {
            let kind = (AddressFamily::INET, SocketType::RAW);
            socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, Some(ipproto::RAW)).unwrap()
        }))
    }

    /// The kernel fills in length and checksum of the head, and nothing else.
    fn send(&self, source: Ipv4Addr, protocol: u8, (id, offset): (u16, u16), payload: &[u8]) {
        let mut packet = vec![0x45, 0, 0, 0];
        packet.extend(id.to_be_bytes());
        packet.extend(offset.to_be_bytes());
        packet.extend([64, protocol, 0, 0]);
        packet.extend(source.octets());
        packet.extend(B.octets());
        packet.extend(payload);
        let sent = sendto(&self.0, &packet, SendFlags::empty(), &SocketAddrV4::new(B, 0));
        assert_eq!(sent, Ok(packet.len()));
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// A datagram from port 1000 to port 9 with a checksum that is wrong, or none.
fn datagram(checksum: u16) -> Vec<u8> {
    let words = [1000_u16, 9, 12, checksum, 0x6162, 0x6364];
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

#[test]
fn n32_wrong_checksums() {
    beside(Place::Network, &["ip", "nstat"], || {
        let net = Pair::new();
        let raw = Raw::new(&net.a);
        // A SYN from port 1000 to port 9.
        let syn: Vec<u8> = [1000_u16, 9, 0, 1, 0, 0, 0x5002, 1000, 0x4321, 0]
            .iter()
            .flat_map(|w| w.to_be_bytes())
            .collect();
        let step = || {
            raw.send(A, UDP, (0, 0), &datagram(0x1234));
            raw.send(A, TCP, (0, 0), &syn);
        };
        let report = meanwhile(&net.a, 20, step, || {
            wait_for("wrong checksums", secs(5), || {
                (net.b.counter("UdpInCsumErrors") >= 20).then_some(())
            });
            check("n32", "12s", &[])
        });
        report.exactly(net.affected(), &["csum-errors"], &[]);
        let f = report.the("csum-errors", in_ns(&net.b));
        let (tcp, udp) = (f.number("TcpInCsumErrors"), f.number("UdpInCsumErrors"));
        assert!((20.0..51.0).contains(&tcp) && (20.0..51.0).contains(&udp), "{}", f.text());
        let all = (net.b.counter("TcpInCsumErrors"), net.b.counter("UdpInCsumErrors"));
        assert_eq!(all.0, all.1, "the kernel's own account");
        let of = "source 10.9.0.1 with 100% of the packets with a bad checksum";
        assert!(f.by().iter().any(|c| c["text"] == of), "{}", f.text());
    });
}

/// The first fragment of many packets, and of none the second.
#[test]
fn n33_fragments_without_the_rest() {
    const MORE: u16 = 0x2000;
    beside(Place::Network, &["ip", "nstat", "sysctl"], || {
        let net = Pair::new();
        net.b.exec(&["sysctl", "-qw", "net.ipv4.ipfrag_time=1"]);
        let raw = Raw::new(&net.a);
        let mut id = 0_u16;
        let step = || {
            id = id.wrapping_add(1).max(1);
            raw.send(A, UDP, (id, MORE), &[0; 64]);
        };
        let report = meanwhile(&net.a, 50, step, || {
            wait_for("fragments that time out", secs(10), || {
                (net.b.counter("IpReasmTimeout") >= 5).then_some(())
            });
            check("n33", "12s", &[])
        });
        report.exactly(net.affected(), &["ip-reasm-fail"], &[]);
        let f = report.the("ip-reasm-fail", in_ns(&net.b));
        assert_eq!(f.number("share"), 100.0, "{}", f.text());
        assert!(f.text().contains("the other fragments did not arrive in time"), "{}", f.text());
        let of = "source 10.9.0.1 with 100% of the fragments that timed out";
        assert!(f.by().iter().any(|c| c["text"] == of), "{}", f.text());
    });
}

/// Packets whose source has no way back through the device that they came in by.
#[test]
fn n34_reverse_path_filter() {
    beside(Place::Network, &["ip", "nstat", "sysctl"], || {
        let net = Pair::new();
        net.b.exec(&["sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1"]);
        let raw = Raw::new(&net.a);
        let elsewhere = Ipv4Addr::new(203, 0, 113, 9);
        let step = || raw.send(elsewhere, UDP, (0, 0), &datagram(0));
        let report = meanwhile(&net.a, 20, step, || {
            wait_for("filtered packets", secs(5), || {
                (net.b.counter("TcpExtIPReversePathFilter") >= 20).then_some(())
            });
            check("n34", "12s", &[])
        });
        report.exactly(net.affected(), &["rp-filter-drop"], &[]);
        let f = report.the("rp-filter-drop", in_ns(&net.b));
        assert_eq!(f.severity(), "warn");
        let per_s = f.number("IPReversePathFilter");
        assert!((20.0..51.0).contains(&per_s), "{}", f.text());
    });
}

/// A device that is set down and up again and again; its peer's link goes with it.
#[test]
fn n35_flapping_link() {
    beside(Place::Network, &["ip"], || {
        let net = Pair::new();
        let changes = || -> f64 {
            net.a.exec(&["cat", "/sys/class/net/v0/carrier_changes"]).trim().parse().unwrap()
        };
        let before = changes();
        let step = || {
            for state in ["down", "up"] {
                crate::kit::sh::run(&["ip", "-n", &net.b.name, "link", "set", "v1", state]);
            }
        };
        let report = meanwhile(&net.b, 1000, step, || check("n35", "12s", &[]));
        let links = |f: Found<'_>| f.kind() == "link" && net.affected()(f);
        report.exactly(links, &["nic-errors"], &[]);
        let f = report.the("nic-errors", |f| links(f) && in_ns(&net.a)(f));
        let seen = f.number("carrier_changes");
        assert!((4.0..=changes() - before).contains(&seen), "{}", f.text());
    });
}

/// Column `name` of `/proc/net/stat/nf_conntrack`, over all CPUs.
fn conntrack_stat(ns: &Ns, name: &str) -> u64 {
    let text = ns.exec(&["cat", "/proc/net/stat/nf_conntrack"]);
    let mut lines = text.lines();
    let column = lines.next().unwrap().split_whitespace().position(|c| c == name).unwrap();
    let value = |l: &str| u64::from_str_radix(l.split_whitespace().nth(column).unwrap(), 16);
    lines.map(|l| value(l).unwrap()).sum()
}

/// Two threads send the first packet of one flow at a time, through rules that take a while: both
/// miss the table, and the second one to come back is refused. ICMP, whose clashes the kernel does
/// not resolve.
#[test]
fn n36_conntrack_clash() {
    beside(Place::Network, &["ip", "nft"], || {
        let net = Pair::new();
        let rules = "  ip ttl 3 ip length 5000 counter\n".repeat(10_000);
        let text = format!(
            "table ip n {{\n chain o {{\n  type filter hook output priority 0;\n  ct state new \
             counter\n{rules} }}\n}}\n"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        net.a.exec(&["nft", "-f", file.path().to_str().unwrap()]);
        let start = Barrier::new(2);
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let ready = AtomicU32::new(0);
        let send = || {
            let socket = net.a.inside(|| {
                let kind = (AddressFamily::INET, SocketType::RAW);
                socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, Some(ipproto::ICMP)).unwrap()
            });
            for id in 1..=u16::MAX {
                // Both end in the same round, or one waits for ever.
                if start.wait().is_leader() {
                    over.store(stop.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                start.wait();
                if over.load(Ordering::Relaxed) {
                    return;
                }
                // Who wakes up last is some 50 us late: both wait for that awake.
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < 2 * u32::from(id) {
                    std::hint::spin_loop();
                }
                let echo = [0x0800_u16, !(0x0800 + id % 0xf000), id % 0xf000, 0];
                let packet: Vec<u8> = echo.iter().flat_map(|w| w.to_be_bytes()).collect();
                // The one that loses is told so: EPERM.
                let _ = sendto(&socket, &packet, SendFlags::empty(), &SocketAddrV4::new(B, 0));
                pause(5);
            }
        };
        let report = std::thread::scope(|s| {
            s.spawn(send);
            s.spawn(send);
            let _stop = StopOnDrop(&stop);
            wait_for("clashes", secs(10), || {
                (conntrack_stat(&net.a, "insert_failed") >= 20).then_some(())
            });
            check("n36", "12s", &[])
        });
        report.exactly(net.affected(), &["conntrack-clash"], &[]);
        let f = report.the("conntrack-clash", in_ns(&net.a));
        // Raw sockets are nobody's: the source is all that can be known.
        assert_eq!(f.by()[0]["addr"], A.to_string(), "{}", f.text());
        // 200 pairs a second at most, of which one each is lost.
        assert!((1.0..201.0).contains(&f.number("insert_failed")), "{}", f.text());
        let all = ["insert_failed", "drop"].map(|c| conntrack_stat(&net.a, c));
        assert_eq!(all[0], all[1], "the kernel's own account");
    });
}

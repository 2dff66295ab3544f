//! Faults of network devices: shapers, full tables and queues.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::kit::gate::{Place, beside, lab};
use crate::kit::net::{A, B, Ns, Pair};
use crate::kit::product::{Found, Report, check};
use crate::kit::undo::Undo;
use crate::kit::{secs, wait_for};

/// Ends a flood also when an assertion fails: the scope joins its thread.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn tc(ns: &Ns, line: &str) -> String {
    ns.exec(&[&["tc"], &line.split(' ').collect::<Vec<_>>()[..]].concat())
}

/// Datagrams of `size` bytes from `a`, at full speed from the given CPU, while `work` runs.
fn flood<T>(net: &Pair, size: usize, cpu: usize, work: impl FnOnce() -> T) -> T {
    // Without a receiver each datagram would be answered with an ICMP error.
    let sink = net.b.inside(|| UdpSocket::bind(SocketAddrV4::new(B, 9)).unwrap());
    let source = net.a.inside(|| UdpSocket::bind(SocketAddrV4::new(A, 0)).unwrap());
    source.set_nonblocking(true).unwrap();
    let stop = AtomicBool::new(false);
    let out = std::thread::scope(|s| {
        s.spawn(|| {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).unwrap();
            let block = vec![0; size];
            while !stop.load(Ordering::Relaxed) {
                let _ = source.send_to(&block, SocketAddrV4::new(B, 9));
            }
        });
        let _stop = StopOnDrop(&stop);
        work()
    });
    drop(sink);
    out
}

/// `drops` of a qdisc as tc shows it.
fn drops(ns: &Ns, dev: &str, kind: &str) -> Option<u64> {
    let all: serde_json::Value =
        serde_json::from_str(&tc(ns, &format!("-s -j qdisc show dev {dev}"))).unwrap();
    all.as_array().unwrap().iter().find(|q| q["kind"] == kind)?["drops"].as_u64()
}

fn links(net: &Pair) -> impl Fn(Found<'_>) -> bool {
    let ends = [net.a.inode, net.b.inode];
    move |f| f.kind() == "link" && f.netns().is_some_and(|n| ends.contains(&n))
}

/// The rate that the finding shows is that of the shaper: 8 Mbit/s.
fn shaped(report: &Report, net: &Pair, dev: &str) {
    report.exactly(links(net), &["tc-shaped"], &[]);
    let f = report.the("tc-shaped", links(net));
    assert_eq!((f.severity(), f.subject()["dev"].as_str()), ("crit", Some(dev)));
    assert!((95.0..110.0).contains(&f.number("rate")), "{}", f.text());
    assert!(f.number("drops") > 50.0 && f.number("backlog") > 10_000.0, "{}", f.text());
}

/// A flood through tbf with 8 Mbit/s.
#[test]
fn n20_shaped_egress() {
    beside(Place::Flood, &["ip", "tc"], || {
        let net = Pair::new();
        tc(&net.a, "qdisc add dev v0 root tbf rate 8mbit burst 10k latency 50ms");
        let report = flood(&net, 1000, 0, || {
            wait_for("drops", secs(5), || drops(&net.a, "v0", "tbf").filter(|n| *n > 10_000));
            check("n20", "9s", &[])
        });
        shaped(&report, &net, "v0");
    });
}

/// The same on the way in: mirrored to an ifb that is shaped, as bandwidth plugins do.
#[test]
fn n20_shaped_ingress() {
    beside(Place::Flood, &["ip", "tc"], || {
        let net = Pair::new();
        net.b.exec(&["ip", "link", "add", "bwp1", "type", "ifb"]);
        net.b.exec(&["ip", "link", "set", "bwp1", "up"]);
        tc(&net.b, "qdisc add dev v1 ingress");
        tc(
            &net.b,
            "filter add dev v1 parent ffff: protocol all u32 match u32 0 0 \
             action mirred egress redirect dev bwp1",
        );
        tc(&net.b, "qdisc add dev bwp1 root tbf rate 8mbit burst 10k latency 50ms");
        let report = flood(&net, 1000, 0, || {
            wait_for("drops", secs(5), || drops(&net.b, "bwp1", "tbf").filter(|n| *n > 10_000));
            check("n20-ifb", "9s", &[])
        });
        shaped(&report, &net, "bwp1");
    });
}

/// A shaper with ten times the rate that is asked of it: overlimits may grow, nothing waits.
#[test]
fn shaper_with_room() {
    beside(Place::Network, &["ip", "tc"], || {
        let net = Pair::new();
        tc(&net.a, "qdisc add dev v0 root tbf rate 80mbit burst 32k latency 50ms");
        let (mut tx, rx) = net.connect(5001);
        let stop = AtomicBool::new(false);
        let report = std::thread::scope(|s| {
            s.spawn(|| {
                let mut next = stallscope::clock::mono();
                while !stop.load(Ordering::Relaxed) {
                    // 20 kB every 20 ms: 8 Mbit/s in bursts.
                    std::io::Write::write_all(&mut tx, &vec![0; 20_000]).unwrap();
                    next = stallscope::sample::time::MonoNs(next.0 + 20_000_000);
                    stallscope::clock::sleep_until(next);
                }
                // Ends the reader.
                tx.shutdown(std::net::Shutdown::Both).unwrap();
            });
            s.spawn(|| {
                let mut block = vec![0; 1 << 16];
                while std::io::Read::read(&mut &rx, &mut block).is_ok_and(|n| n > 0) {}
            });
            let _stop = StopOnDrop(&stop);
            check("shaper-room", "9s", &[])
        });
        report.exactly(net.affected(), &[], &[]);
    });
}

/// A queue that has no room for a packet of this size. An annotation, no alarm: there is no shaper.
#[test]
fn n21_short_queue() {
    beside(Place::Flood, &["ip", "tc"], || {
        let net = Pair::new();
        tc(&net.a, "qdisc add dev v0 root bfifo limit 1000");
        let report = flood(&net, 1400, 0, || {
            wait_for("drops", secs(10), || drops(&net.a, "v0", "bfifo").filter(|n| *n > 1000));
            check("n21", "8s", &[])
        });
        report.exactly(links(&net), &[], &[]);
        let notes: Vec<Found<'_>> = report.annotations();
        let note = notes.iter().find(|f| f.rule() == "qdisc-drop-or-requeue" && links(&net)(**f));
        let note = note.unwrap_or_else(|| panic!("no annotation: {}", report.json));
        assert_eq!((note.severity(), note.subject()["dev"].as_str()), ("info", Some("v0")));
        assert!(note.number("drops") > 10.0, "{}", note.text());
    });
}

/// Sets a sysctl of the initial namespace, and sets it back.
fn sysctl(undo: &mut Undo, path: &'static str, value: &str) {
    let old = std::fs::read_to_string(path).unwrap();
    undo.then(move || {
        if let Err(e) = std::fs::write(path, old) {
            eprintln!("lab: clean-up: {path}: {e}");
        }
    });
    std::fs::write(path, value).unwrap();
}

/// The limit of connection tables is the host's: one test at a time sets it.
static FULL_TABLE: Mutex<()> = Mutex::new(());

/// Tracks connections in a namespace.
fn track(ns: &Ns) {
    for line in [
        "add table inet t",
        "add chain inet t c { type filter hook output priority 0; }",
        "add rule inet t c ct state new counter",
        "add chain inet t i { type filter hook input priority 0; }",
        "add rule inet t i ct state established counter",
    ] {
        ns.exec(&["nft", line]);
    }
}

/// The namespace `full` has a connection table of 64 entries. From `from`, a datagram goes to
/// each of many ports of `to`, by sockets that `open` makes; the first that got through stay open.
fn fill_table(
    name: &str,
    from: &Ns,
    full: &Ns,
    to: Ipv4Addr,
    open: impl Fn(SocketAddrV4) -> UdpSocket + Sync,
) -> Report {
    const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
    track(full);
    let mut undo = Undo::default();
    sysctl(&mut undo, MAX, "64");
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            from.inside(|| {
                let (mut port, mut open_ones) = (1_u16, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let to = SocketAddrV4::new(to, port);
                    let socket = open(to);
                    if socket.send_to(&[0], to).is_ok() && open_ones.len() < 256 {
                        open_ones.push(socket);
                    }
                    port = port.wrapping_add(1).max(1);
                    // Slowly: of those that have no room, one in two hundred evicts another entry.
                    let now = stallscope::clock::mono();
                    let pause = stallscope::sample::time::MonoNs(now.0 + 4_000_000);
                    stallscope::clock::sleep_until(pause);
                }
            });
        });
        let _stop = StopOnDrop(&stop);
        let count = ["sh", "-c", "cat /proc/sys/net/netfilter/nf_conntrack_count"];
        wait_for("a full table", secs(10), || (full.exec(&count).trim() == "64").then_some(()));
        check(name, "7s", &[])
    })
}

/// A connection table of 64 entries, and a datagram to each of many ports. The limit is the host's:
/// beside tests that track no connections.
#[test]
fn n22_conntrack_full() {
    let _turn = FULL_TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    beside(Place::Flood, &["ip", "nft", "nstat"], || {
        let net = Pair::new();
        let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let report = fill_table("n22", &net.a, &net.a, Ipv4Addr::LOCALHOST, |_| {
            UdpSocket::bind(local).unwrap()
        });
        let here = |f: Found<'_>| f.netns() == Some(net.a.inode);
        report.exactly(here, &["conntrack-full"], &[]);
        let f = report.the("conntrack-full", here);
        assert_eq!((f.severity(), f.number("used")), ("crit", 100.0));
        assert!(f.number("drop") > 10.0, "{}", f.text());
        f.is_by(std::process::id());
        assert_eq!(
            (&f.by()[0]["kind"], &f.by()[0]["addr"]),
            (&"source".into(), &"127.0.0.1".into())
        );
        assert!(f.number("largest source") >= 90.0, "{}", f.text());
    });
}

/// The same where the datagrams arrive from another namespace. By sockets that are connected, the
/// process is known; of one that is bound to no address, nobody can say where it sends from.
#[test]
fn n22_conntrack_full_from_elsewhere() {
    let _turn = FULL_TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    beside(Place::Flood, &["ip", "nft", "nstat"], || {
        for connected in [true, false] {
            let net = Pair::new();
            let report = fill_table("n22-elsewhere", &net.a, &net.b, B, |to| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                if connected {
                    socket.connect(to).unwrap();
                }
                socket
            });
            let there = |f: Found<'_>| f.netns() == Some(net.b.inode);
            let f = report.the("conntrack-full", there);
            let first = &f.by()[0];
            assert_eq!((&first["kind"], &first["addr"]), (&"source".into(), &"10.9.0.1".into()));
            if connected {
                f.is_by(std::process::id());
            } else {
                assert_eq!((f.by().len(), first["pid"].is_null()), (1, true), "{}", f.text());
                assert_eq!(first["share"], 100.0, "{}", f.text());
            }
            eprintln!("lab: {}", first["text"]);
        }
    });
}

/// RPS hands all packets to CPU 1, whose backlog holds two.
#[test]
fn s26_backlog_overflow() {
    const MAX: &str = "/proc/sys/net/core/netdev_max_backlog";
    lab(&["ip"], || {
        let cpus = std::thread::available_parallelism().unwrap().get();
        assert!(cpus >= 2, "needs a CPU to hand packets to");
        let net = Pair::new();
        let rps = "echo 2 > /sys/class/net/v1/queues/rx-0/rps_cpus";
        net.b.exec(&["sh", "-c", rps]);
        let mut undo = Undo::default();
        sysctl(&mut undo, MAX, "2");
        assert!(Path::new(MAX).exists());
        let report = flood(&net, 64, 0, || {
            wait_for("drops on CPU 1", secs(10), || (softnet_dropped(1) > 1000).then_some(()));
            check("s26", "8s", &[])
        });
        let on = |f: Found<'_>| f.kind() == "cpu" && f.subject()["cpu"] == 1;
        // All softirqs on one CPU is what the recipe does.
        report.exactly(on, &["softnet-drop-or-squeeze"], &["softirq-one-core"]);
        let f = report.the("softnet-drop-or-squeeze", on);
        // How many are lost depends on what else runs; from 0.1% on it is critical.
        assert!(f.alarming() && f.number("drop") >= 7.0, "{}", f.text());
        f.is_by(std::process::id());
    });
}

/// 100,000 rules for each packet: a batch of 64 of them keeps CPU 1 for ten milliseconds and more.
#[test]
fn s27_long_softirq() {
    lab(&["ip", "nft"], || {
        let net = Pair::new();
        let rps = "echo 2 > /sys/class/net/v1/queues/rx-0/rps_cpus";
        net.b.exec(&["sh", "-c", rps]);
        let rules = "  ip ttl 3 ip length 5000 counter\n".repeat(100_000);
        let chain = "type filter hook prerouting priority 0;";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            format!("table ip n {{\n chain c {{\n  {chain}\n{rules} }}\n}}\n"),
        )
        .unwrap();
        net.b.exec(&["nft", "-f", file.path().to_str().unwrap()]);
        let report = flood(&net, 64, 0, || check("s27", "9s", &[]));
        if report.source("TCP events") != "ebpf" {
            return eprintln!("lab: s27: no eBPF, and nothing else measures a run");
        }
        let on = |f: Found<'_>| f.kind() == "cpu" && f.subject()["cpu"] == 1;
        // The CPU is full of them, and packets are lost in front of it.
        let also = ["softirq-one-core", "softnet-drop-or-squeeze"];
        report.exactly(on, &["softirq-long-run"], &also);
        let f = report.the("softirq-long-run", on);
        assert!(f.text().contains("softirq NET_RX holds cpu1"), "{}", f.text());
        assert!(f.number("softirq run") >= 10.0, "{}", f.text());
        f.is_by(std::process::id());
        // Where ksoftirqd has the CPU, it is not who sends.
        let one_core = |f: &Found<'_>| f.rule() == "softirq-one-core" && on(*f);
        if let Some(f) = report.findings().into_iter().find(one_core) {
            f.is_by(std::process::id());
        }
    });
}

/// Column 1 of the row whose column 12 is the CPU.
fn softnet_dropped(cpu: u64) -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let hex = |f: &str| u64::from_str_radix(f, 16).unwrap();
    text.lines()
        .map(|l| l.split_whitespace().map(hex).collect::<Vec<_>>())
        .find(|row| row.get(12) == Some(&cpu))
        .map_or(0, |row| row[1])
}

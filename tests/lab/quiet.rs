//! Healthy machines that look alarming. Here nothing may fire.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use rustix::net::sockopt::set_socket_send_buffer_size;
use stallscope::clock;
use stallscope::sample::time::MonoNs;

use crate::kit::block::{Dir, Loop, writer};
use crate::kit::gate::{Place, beside, lab};
use crate::kit::net::{Pair, fill};
use crate::kit::product::check;
use crate::kit::{secs, wait_for};

/// Nothing runs but the check itself.
#[test]
fn idle_box() {
    lab(&[], || {
        let report = check("quiet-idle", "12s", &[]);
        report.exactly(|_| true, &[], &[]);
    });
}

/// Ends both directions when dropped, so that the pumping threads end even after a failed
/// assertion.
struct HangUp(TcpStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Three bulk senders at full speed: send buffers of 4 KiB, 16 KiB and autotuned. With the
/// small ones `w > 2 tb` nearly always, which is what the kernel bug looks like and what a
/// healthy sender looks like: one skb may overshoot the limit.
#[test]
fn bulk_tcp_with_small_buffers() {
    lab(&["ip", "ss"], || {
        let net = Pair::new();
        let streams: Vec<_> = [Some(4096), Some(16384), None]
            .into_iter()
            .zip(5001_u16..)
            .map(|(sndbuf, port)| {
                let (tx, rx) = net.connect(port);
                if let Some(bytes) = sndbuf {
                    set_socket_send_buffer_size(&tx, bytes).unwrap();
                }
                (tx, rx)
            })
            .collect();
        std::thread::scope(|s| {
            let mut ends = Vec::new();
            for (tx, rx) in &streams {
                ends.push(HangUp(tx.try_clone().unwrap()));
                let (mut tx, mut rx) = (tx, rx);
                s.spawn(move || {
                    let block = vec![7; 1 << 16];
                    while tx.write_all(&block).is_ok() {}
                });
                s.spawn(move || {
                    let mut block = vec![0; 1 << 18];
                    while rx.read(&mut block).is_ok_and(|n| n > 0) {}
                });
            }
            for port in [5001, 5002] {
                let share = overfull_share(&net, port);
                // Alone it is 97%; three senders on two CPUs catch each other half empty.
                assert!(share > 0.5, "w > 2 tb on port {port} in {:.0}% of samples", share * 100.0);
            }
            let report = check("quiet-bulk", "12s", &[]);
            // No TCP rule anywhere. CPU rules are not judged: six busy threads on a small
            // machine do saturate it.
            let here = net.affected();
            report.exactly(|f| f.rule().starts_with("tcp-") || here(f), &[], &[]);
            drop(ends);
        });
    });
}

/// Share of `ss` samples with anything queued in which that is more than twice the send
/// buffer. Empty queues are left out: the writer waits for its CPU then, not for the peer.
fn overfull_share(net: &Pair, port: u16) -> f64 {
    let filter = format!("dport = :{port}");
    wait_for("data flows", secs(5), || {
        net.a.ss_one(&filter).filter(|s| s.num("bytes_acked") > Some(1e6))
    });
    let (mut over, mut all) = (0, 0);
    while all < 30 {
        let Some(line) = net.a.ss_one(&filter) else { continue };
        let (Some(w), Some(tb)) = (line.skmem("w"), line.skmem("tb")) else { continue };
        if w == 0 {
            continue;
        }
        all += 1;
        over += u32::from(w > 2 * tb);
    }
    f64::from(over) / f64::from(all)
}

/// A reader that takes its time, but takes: the window is closed most of the time, and data
/// flows all the same.
#[test]
fn slow_but_steady_reader() {
    beside(Place::Network, &["ip", "ss"], || {
        let net = Pair::new();
        let (tx, rx) = net.connect(5001);
        std::thread::scope(|s| {
            let _end = HangUp(tx.try_clone().unwrap());
            let (mut tx, mut rx) = (&tx, &rx);
            s.spawn(move || {
                let block = vec![7; 1 << 16];
                while tx.write_all(&block).is_ok() {}
            });
            s.spawn(move || {
                let mut block = vec![0; 1 << 20];
                while rx.read(&mut block).is_ok_and(|n| n > 0) {
                    let now = clock::mono();
                    clock::sleep_until(MonoNs(now.0 + 300_000_000));
                }
            });
            wait_for("a closed window", secs(10), || {
                net.a.ss_one("dport = :5001").filter(|s| s.timer() == "persist")
            });
            let report = check("quiet-slow-reader", "12s", &[]);
            report.exactly(net.affected(), &[], &[]);
        });
    });
}

/// A link of 64 kbit/s: round trips of seconds and an RTO to match, without a single timeout.
/// Slow is not stuck: the shaper is the cause, the queue of this host adds the delay, and that
/// is all.
#[test]
fn slow_link() {
    beside(Place::Network, &["ip", "tc", "ss"], || {
        let net = Pair::new();
        let (mut tx, rx) = net.connect(5001);
        let tbf = "qdisc add dev v0 root tbf rate 64kbit burst 2k latency 60s";
        net.a.exec(&[&["tc"], &tbf.split(' ').collect::<Vec<_>>()[..]].concat());
        std::thread::scope(|s| {
            let _end = HangUp(tx.try_clone().unwrap());
            let mut rx = &rx;
            s.spawn(move || {
                let mut block = vec![0; 1 << 16];
                while rx.read(&mut block).is_ok_and(|n| n > 0) {}
            });
            wait_for("an RTO of seconds without backoff", secs(40), || {
                fill(&mut tx);
                let slow = net.a.ss_one("dport = :5001").filter(|s| s.num("rto") > Some(3000.0));
                slow.filter(|s| s.num("backoff").is_none())
            });
            let report = check("quiet-slow-link", "12s", &[]);
            report.exactly(net.affected(), &["tcp-egress-bufferbloat"], &["tc-shaped"]);
        });
    });
}

/// Eight writes in flight on a fast device: busy nearly all the time by `iostat` (80 to 98%,
/// depending on how many CPUs are left for fio), and nowhere near its limit. Saying so at
/// `info` is right, any alarm is not.
#[test]
fn busy_but_fast_disk() {
    beside(Place::Disk, &["losetup", "fio", "dd"], || {
        let dir = Dir::new();
        let dev = Loop::new(&dir.image("disk.img", 256), true);
        let mut load = writer(&dev.dev, 8, |fio| format!("exec {fio}"));
        let begun = clock::mono();
        let start = dev.counters();
        wait_for("2000 writes", secs(10), || (dev.counters()[4] > start[4] + 2000).then_some(()));
        let took = clock::mono().since(begun);
        assert!(took < secs(4), "not a fast device: 2000 writes took {took:?}");
        let report = check("quiet-disk", "12s", &[]);
        load.assert_running();
        let (_, lower) = dir.lower_disk();
        report.exactly(|f| f.disk().is_some_and(|d| d == dev.name() || d == lower), &[], &[]);
    });
}

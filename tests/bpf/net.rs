//! TCP events against the kernel's own counters of the namespace.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use aya::programs::loaded_programs;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, setrlimit};
use stallscope::clock;
use stallscope::collect::bpf::net::NetBpf;
use stallscope::collect::{HostFs, RELIEF};
use stallscope::sample::bpf::net::{Connector, FlowEvents, NetBpfSample, NetEventKind};

use crate::kit::gate::lab;
use crate::kit::net::{B, Pair};
use crate::kit::secs;
use crate::kit::sh::run;
use crate::lab::{open, options, run_for, sample, until};

fn of(flows: &[FlowEvents], kind: NetEventKind, netns: u64) -> u64 {
    flows.iter().filter(|f| f.kind == kind && f.netns.0 == netns).map(|f| f.count).sum()
}

#[test]
fn retransmits_are_counted_as_nstat_counts() {
    lab(&["ip", "nft", "nstat"], || {
        let pair = Pair::new();
        let (mut tx, _rx) = pair.connect(4000);
        let (local, remote) = (tx.local_addr().unwrap(), tx.peer_addr().unwrap());
        let mut net: NetBpf = open();
        let before = sample(&mut net).retransmits.unwrap();
        let base = pair.a.counter("TcpRetransSegs");
        // In flight first: what never left is no retransmit.
        pair.b.drop_tcp_to("input", 4000);
        tx.write_all(b"into the void").unwrap();
        pair.a.drop_tcp_to("output", 4000);
        let mut flows = Vec::new();
        until(&mut net, secs(15), "four retransmits", |s| {
            flows.extend(s.flows.clone());
            pair.a.counter("TcpRetransSegs") - base >= 4
        });
        let least = pair.a.counter("TcpRetransSegs") - base;
        let s = sample(&mut net);
        let most = pair.a.counter("TcpRetransSegs") - base;
        flows.extend(s.flows.clone());
        // A segment that the own firewall drops is a transmission that failed (6.17 tells);
        // the kernel's counter has both.
        let sent = of(&flows, NetEventKind::Retransmit, pair.a.inode);
        let failed = of(&flows, NetEventKind::RetransmitFailed, pair.a.inode);
        println!("nstat {least}..={most}, sent {sent}, failed {failed}");
        // One may have no run of the program, see `block::nearly`.
        assert!((least - 1..=most).contains(&(sent + failed)));
        assert!(s.retransmits.unwrap() - before >= sent);
        let f = flows.iter().find(|f| f.netns.0 == pair.a.inode).unwrap();
        let (l, r) = f.ends.unwrap();
        assert_eq!((l.to_string(), r.to_string()), (local.to_string(), remote.to_string()));
        assert_eq!(f.state, 1, "ESTABLISHED");
        assert_eq!((s.limited, s.ring_full, s.missed), (0, 0, Some(0)));
    });
}

/// Lost on the way instead of on the way out: the peer drops what arrives.
#[test]
fn retransmits_of_a_lossy_path_are_counted_as_nstat_counts() {
    lab(&["ip", "nft", "nstat"], || {
        let pair = Pair::new();
        let (mut tx, _rx) = pair.connect(4001);
        pair.b.drop_tcp_to("input", 4001);
        let mut net: NetBpf = open();
        sample(&mut net);
        let base = pair.a.counter("TcpRetransSegs");
        tx.write_all(b"into the void").unwrap();
        let mut sent = 0;
        until(&mut net, secs(15), "five retransmits", |s| {
            sent += of(&s.flows, NetEventKind::Retransmit, pair.a.inode);
            sent >= 5
        });
        let counted = pair.a.counter("TcpRetransSegs") - base;
        let late = of(&sample(&mut net).flows, NetEventKind::Retransmit, pair.a.inode);
        assert!((sent..=sent + late + 1).contains(&counted), "{sent}+{late}, nstat {counted}");
        println!("nstat {counted}, ours {sent}");
    });
}

#[test]
fn resets_and_their_reasons() {
    lab(&["ip", "nstat"], || {
        let pair = Pair::new();
        let mut net: NetBpf = open();
        sample(&mut net);
        let base = pair.a.counter("TcpOutRsts");
        let addr = "127.0.0.1:9";
        for _ in 0..100 {
            pair.a.inside(|| TcpStream::connect(addr).map(|_| ()).unwrap_err());
        }
        let s = sample(&mut net);
        assert_eq!(pair.a.counter("TcpOutRsts") - base, 100);
        // See `block::nearly` for the few that may lack.
        assert!((95..=100).contains(&of(&s.flows, NetEventKind::ReceiveReset, pair.a.inode)));
        // A closed port has no socket: the namespace of these is not known.
        assert!(of(&s.flows, NetEventKind::SendReset, 0) >= 95);
        let reason = s.reasons.iter().find(|r| &*r.name == "NO_SOCKET").unwrap();
        assert!(reason.count >= 95);
        let place = s.places.iter().find(|p| p.reason == reason.reason && p.count >= 95);
        assert_eq!(&*place.unwrap().place, "tcp_v4_rcv");
    });
}

/// Whatever becomes of it: one that is refused, one that is accepted.
#[test]
fn who_connects_is_told() {
    lab(&["ip", "nstat"], || {
        let pair = Pair::new();
        let mut net: NetBpf = open();
        let before = sample(&mut net).connects.unwrap();
        let opens = pair.a.counter("TcpActiveOpens");
        for _ in 0..100 {
            pair.a.inside(|| TcpStream::connect("127.0.0.1:9").map(|_| ()).unwrap_err());
        }
        let (_tx, _rx) = pair.connect(4002);
        let s = sample(&mut net);
        assert_eq!(pair.a.counter("TcpActiveOpens") - opens, 101);
        let here = |c: &&Connector| c.netns.0 == pair.a.inode;
        let told: Vec<_> = s.connectors.iter().filter(here).collect();
        // See `block::nearly` for the few that may lack.
        assert!((95..=100).contains(&told[0].count), "{told:?}");
        assert!(s.connects.unwrap() - before >= 95);
        assert_eq!(told[0].remote.to_string(), "127.0.0.1:9");
        assert!(told.iter().all(|c| c.pid == std::process::id()), "{told:?}");
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(told[0].comm.as_deref(), Some(comm.trim_end()));
        assert_eq!(of(&s.flows, NetEventKind::ReceiveReset, pair.a.inode), told[0].count);
    });
}

/// Thousands of calls a second: what is recorded of them is a sample, and leaves the rest its room.
#[test]
fn many_connects_are_sampled() {
    lab(&["ip"], || {
        let pair = Pair::new();
        let mut net: NetBpf = open();
        let before = sample(&mut net);
        let begun = clock::mono();
        pair.a.inside(|| {
            for _ in 0..4_000 {
                assert!(TcpStream::connect("127.0.0.1:9").is_err());
            }
        });
        let took = clock::mono().since(begun).as_secs_f64();
        let s = sample(&mut net);
        let told: u64 = s.connectors.iter().map(|c| c.count).sum();
        let most =
            250.0 * (1.0 + took) * std::thread::available_parallelism().unwrap().get() as f64;
        println!("4,000 in {took:.2} s: {told} recorded");
        assert!(s.connects.unwrap() - before.connects.unwrap() >= 3_900);
        assert!(told >= 100 && told as f64 <= most, "{told} of {most}");
        assert_eq!((s.limited, s.ring_full), (before.limited, before.ring_full));
    });
}

/// 10,000 events in a second: none may be lost, though the ring be read once per second.
#[test]
fn a_storm_loses_nothing() {
    lab(&["ip", "nstat"], || storm(open()));
}

/// The same through perf buffers, as before 5.8.
#[test]
fn a_storm_loses_nothing_in_perf_buffers() {
    lab(&["ip", "nstat"], || {
        storm(NetBpf::open_perf(&HostFs::live(), &options()).unwrap());
    });
}

fn storm(mut net: NetBpf) {
    let pair = Pair::new();
    let before = sample(&mut net);
    let base = pair.a.counter("TcpOutRsts");
    let (mut listed, mut last) = (0, before.clone());
    let begun = clock::mono();
    // Two readings, as two ticks: perf buffers are smaller than the ring.
    for _ in 0..2 {
        pair.a.inside(|| {
            for _ in 0..5_000 {
                assert!(TcpStream::connect("127.0.0.1:9").is_err());
            }
        });
        last = sample(&mut net);
        listed += last.flows.iter().map(|f| f.count).sum::<u64>() + last.unlisted;
    }
    let took = clock::mono().since(begun);
    let resets = pair.a.counter("TcpOutRsts") - base;
    assert_eq!(resets, 10_000);
    let counted = last.resets_received.unwrap() - before.resets_received.unwrap();
    assert!(counted >= 9_950, "{counted}");
    println!("20,000 records in {took:?}; limited {}, full {}", last.limited, last.ring_full);
    let lost = last.limited + last.ring_full;
    let kernel_side = counted + last.resets_sent.unwrap() - before.resets_sent.unwrap();
    assert!(listed + lost >= kernel_side, "{listed} + {lost} records of {kernel_side} events");
    assert_eq!(lost, 0);
}

/// Between two readings the ring fills twice over; it is looked at in time.
#[test]
fn looks_between_two_readings_lose_nothing() {
    use stallscope::collect::Collector as _;
    use stallscope::sample::bpf::layout::net::{EVENT_BYTES, RING_BYTES};
    lab(&["ip", "nstat"], || {
        let pair = Pair::new();
        let mut net: NetBpf = open();
        let before = sample(&mut net);
        assert!(!net.is_filling(), "nothing happened");
        for _ in 0..3 {
            pair.a.inside(|| {
                for _ in 0..5_000 {
                    assert!(TcpStream::connect("127.0.0.1:9").is_err());
                }
            });
            net.relieve();
            // Within the limit of records a second.
            run_for(RELIEF);
        }
        let s = sample(&mut net);
        let events = |s: &NetBpfSample| s.resets_received.unwrap() + s.resets_sent.unwrap();
        let happened = events(&s) - events(&before);
        assert!(happened as usize * (EVENT_BYTES + 8) > 2 * RING_BYTES as usize, "{happened}");
        assert_eq!((s.limited, s.ring_full), (before.limited, before.ring_full));
        let listed = s.flows.iter().map(|f| f.count).sum::<u64>() + s.unlisted;
        assert!(listed >= happened, "{listed} of {happened}");
        assert!(net.is_filling(), "{happened} since the reading before");
    });
}

/// Thousands of connections whose peer falls silent, with the shortest timeout the kernel has:
/// over 10,000 retransmits in a second, each counted and each with its connection. Looked at as
/// often as the product does once there are many.
///
/// For some the kernel runs no program at all (see `block::nearly`): mostly for none or a few,
/// once for 991 of the namespace's 18,999. How many is not ours to say, but each run counts.
#[test]
fn ten_thousand_retransmits_a_second_lose_nothing() {
    // Timeouts double: six of them come within the first half second. In parts, for the ring
    // holds some 13,000 records between two looks, however slow a host is at looking.
    const CONNECTIONS: usize = 3_000;
    const PART: usize = 500;
    const PAUSE: Duration = Duration::from_millis(150);
    const EVERY: Duration = RELIEF;
    lab(&["ip", "nft", "nstat"], || {
        let limit = Rlimit { current: Some(20_000), maximum: Some(20_000) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let pair = Pair::new();
        run(&[
            "ip",
            "-n",
            &pair.a.name,
            "route",
            "change",
            "10.9.0.0/24",
            "dev",
            "v0",
            "rto_min",
            "5ms",
        ]);
        let listener = pair.b.inside(|| TcpListener::bind((B, 4002)).unwrap());
        let mut ends: Vec<_> = pair.a.inside(|| {
            let one = || (TcpStream::connect((B, 4002)).unwrap(), listener.accept().unwrap().0);
            (0..CONNECTIONS).map(|_| one()).collect()
        });
        let _stats = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
        let mut net: NetBpf = open();
        let mine = loaded_programs().filter_map(Result::ok);
        let mine = mine.filter(|p| p.name_as_str() == Some("tcp_retransmit")).map(|p| p.id()).max();
        let runs = || {
            let all = loaded_programs().filter_map(Result::ok);
            all.filter(|p| Some(p.id()) == mine).map(|p| p.run_count()).sum::<u64>()
        };
        pair.b.drop_tcp_to("input", 4002);
        let before = sample(&mut net);
        let base = pair.a.counter("TcpRetransSegs");
        let begun = clock::mono();
        let load = std::thread::spawn(move || {
            for part in ends.chunks_mut(PART) {
                for (tx, _) in part.iter_mut() {
                    tx.write_all(b"into the void").unwrap();
                }
                run_for(PAUSE);
            }
            ends
        });
        let (mut records, mut fastest) = (0, 0);
        let mut s = before.clone();
        while clock::mono() < begun + secs(5) {
            run_for(EVERY);
            s = sample(&mut net);
            // Only these connections: other namespaces may have troubles of their own.
            records += s.flows.iter().map(|f| f.count).sum::<u64>() + s.unlisted;
            let so_far = s.retransmits.unwrap() - before.retransmits.unwrap();
            let took = clock::mono().since(begun).as_secs_f64();
            // Over a second at least.
            fastest = fastest.max((so_far as f64 / took.max(1.0)) as u64);
        }
        let ends = load.join().unwrap();
        let least = pair.a.counter("TcpRetransSegs") - base;
        let first = runs();
        let s2 = sample(&mut net);
        let ran = first..=runs();
        // Without it each goes on for minutes, and its namespace with it: other tests would see them.
        for end in ends.iter().flat_map(|(tx, rx)| [tx, rx]) {
            set_socket_linger(end, Some(Duration::ZERO)).unwrap();
        }
        drop(ends);
        records += s2.flows.iter().map(|f| f.count).sum::<u64>() + s2.unlisted;
        let both = |s: &NetBpfSample| s.retransmits.unwrap() + s.retransmits_failed.unwrap();
        let counted = both(&s2) - both(&before);
        let lost = s2.limited + s2.ring_full - before.limited - before.ring_full;
        println!(
            "{counted} retransmits in {ran:?} runs, nstat {least}; {records} records, {lost} lost; \
            up to {fastest}/s"
        );
        assert!(fastest >= 10_000, "the load made only {fastest}/s");
        assert!(ran.contains(&both(&s2)), "{} of {ran:?} runs", both(&s2));
        assert!(counted >= least / 2, "{counted} of {least}");
        assert_eq!((lost, s2.missed), (0, Some(0)));
        assert!(records >= counted, "{records} records of {counted}");
        assert!(s.flows.iter().all(|f| f.netns.0 != pair.a.inode || f.ends.is_some()));
    });
}

/// The program's own connections do not show up as trouble.
#[test]
fn healthy_traffic_is_silent() {
    lab(&["ip"], || {
        let pair = Pair::new();
        let mut net: NetBpf = open();
        sample(&mut net);
        pair.a.inside(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            for _ in 0..50 {
                let mut tx = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                tx.write_all(b"x").unwrap();
                drop(listener.accept().unwrap());
            }
        });
        run_for(Duration::from_millis(300));
        let s = sample(&mut net);
        let own = |f: &&FlowEvents| f.netns.0 == pair.a.inode;
        let found: Vec<_> =
            s.flows.iter().filter(own).filter(|f| f.kind == NetEventKind::Retransmit).collect();
        assert!(found.is_empty(), "{found:?}");
    });
}

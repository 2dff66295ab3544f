//! TCP events against the kernel's own counters of the namespace.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use stallscope::collect::bpf::net::{FlowEvents, NetBpf, NetEventKind};

use crate::kit::gate::lab;
use crate::kit::net::Pair;
use crate::kit::secs;
use crate::lab::{open, run_for, sample, until};

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

/// 10,000 events in a second: none may be lost, and the ring is read once per second.
#[test]
fn a_storm_loses_nothing() {
    lab(&["ip", "nstat"], || {
        let pair = Pair::new();
        let mut net: NetBpf = open();
        let before = sample(&mut net);
        let base = pair.a.counter("TcpOutRsts");
        let begun = stallscope::clock::mono();
        pair.a.inside(|| {
            for _ in 0..10_000 {
                assert!(TcpStream::connect("127.0.0.1:9").is_err());
            }
        });
        let took = stallscope::clock::mono().since(begun);
        let s = sample(&mut net);
        let resets = pair.a.counter("TcpOutRsts") - base;
        assert_eq!(resets, 10_000);
        let counted = s.resets_received.unwrap() - before.resets_received.unwrap();
        assert!(counted >= 9_950, "{counted}");
        println!("20,000 records in {took:?}; limited {}, full {}", s.limited, s.ring_full);
        assert_eq!((s.limited, s.ring_full), (0, 0));
        let listed: u64 = s.flows.iter().map(|f| f.count).sum::<u64>() + s.unlisted;
        let kernel_side = counted + s.resets_sent.unwrap() - before.resets_sent.unwrap();
        assert!(listed >= kernel_side, "{listed} records of {kernel_side} events");
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
        run_for(std::time::Duration::from_millis(300));
        let s = sample(&mut net);
        let own = |f: &&FlowEvents| f.netns.0 == pair.a.inode;
        let found: Vec<_> =
            s.flows.iter().filter(own).filter(|f| f.kind == NetEventKind::Retransmit).collect();
        assert!(found.is_empty(), "{found:?}");
    });
}

//! Live readings, beside what `ip` and `tc` say.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::collect::testing::skip;
use crate::sample::Interest;
use std::process::Command;

fn sample(c: &mut NetdevCollector) -> NetdevSample {
    let interest = Interest::default();
    let interval = Duration::from_secs(1);
    c.sample(&SampleContext { at: clock::mono(), interval, interest: &interest }).unwrap()
}

fn open(netns: NetnsScope) -> NetdevCollector {
    let opts = CollectOptions { netns, ..CollectOptions::default() };
    NetdevCollector::open(&HostFs::live(), &opts).unwrap()
}

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).output().is_ok_and(|o| o.status.success())
}

#[test]
fn our_own_devices_are_those_of_sysfs() {
    let mut c = open(NetnsScope::Own);
    let s = sample(&mut c);
    let [own] = &s.spaces[..] else { panic!("{} namespaces", s.spaces.len()) };
    assert_eq!(Some(own.netns), namespaces::own(&HostFs::live()));
    let lo = own.links.iter().find(|l| l.attrs.name == "lo").unwrap();
    assert!(!lo.attrs.physical);
    for l in &own.links {
        let dir = format!("sys/class/net/{}", l.attrs.name);
        let Ok(bytes) = HostFs::live().read_number::<u64>(format!("{dir}/statistics/rx_bytes"))
        else {
            continue;
        };
        assert!(l.stats.rx_bytes <= bytes, "{}", l.attrs.name);
        let has_driver = HostFs::live().path(format!("{dir}/device")).exists();
        assert_eq!(l.attrs.physical, has_driver, "{}", l.attrs.name);
    }
    let mut signals = Vec::new();
    c.signals(&mut signals);
    assert!(signals.iter().any(|s| s.source == "rtnetlink"));
}

#[test]
fn attributes_are_shared_between_readings() {
    let mut c = open(NetnsScope::Own);
    let a = sample(&mut c);
    c.own.due = None;
    let b = sample(&mut c);
    let pairs = a.spaces[0].links.iter().zip(&b.spaces[0].links);
    assert!(pairs.into_iter().all(|(a, b)| Arc::ptr_eq(&a.attrs, &b.attrs)));
}

/// A namespace that only a mount holds, with a shaper on loopback.
#[test]
fn another_namespace_is_entered_and_left() {
    let name = format!("stallscope-netdev-{}", std::process::id());
    if !rustix::process::geteuid().is_root() || !ip(&["netns", "add", &name]) {
        return skip("`ip netns add` needs root");
    }
    let exec = |args: &[&str]| ip(&[&["netns", "exec", &name], args].concat());
    assert!(exec(&["ip", "link", "set", "lo", "up"]));
    let shaped = exec(
        &"tc qdisc add dev lo root tbf rate 8mbit burst 10k latency 50ms"
            .split(' ')
            .collect::<Vec<_>>(),
    );
    let path = std::path::PathBuf::from(format!("/run/netns/{name}"));
    let id = namespaces::of_path(&path).unwrap();
    let (mut all, mut only) = (open(NetnsScope::All), open(NetnsScope::Path(path)));
    let deadline = clock::mono() + Duration::from_secs(5);
    let found = loop {
        let s = sample(&mut all);
        if let Some(n) = s.spaces.iter().find(|n| n.netns == id) {
            break n.clone();
        }
        assert!(clock::mono() < deadline, "never read");
    };
    let chosen = sample(&mut only);
    let home = namespaces::own(&HostFs::live());
    let thread = HostFs::live().link("proc/thread-self/ns/net").unwrap();
    assert!(ip(&["netns", "del", &name]));
    assert_eq!(format!("net:[{}]", home.unwrap()), thread, "the thread came back");
    assert_eq!((found.label.as_str(), found.member, found.links.len()), (name.as_str(), None, 1));
    assert!(found.holes.is_empty(), "{:?}", found.holes);
    if shaped {
        let shape = found.qdiscs[0].shape.unwrap();
        assert_eq!((shape.rate, shape.limit), (1_000_000, Some(60_240)));
    }
    assert_eq!(chosen.spaces.len(), 1, "the chosen one only");
    assert_eq!(chosen.spaces[0].netns, id);
    // A deleted namespace is not held by us.
    let gone = sample(&mut all);
    assert!(gone.spaces.iter().all(|n| n.netns != id));
}

#[test]
fn children_of_mq_are_left_to_mq() {
    let row = |kind: &str, handle: u32, parent: u32, shape| QdiscRow {
        kind: kind.into(),
        handle,
        parent,
        shape,
        ..QdiscRow::default()
    };
    let shaped = Some(crate::sample::netdev::Shape::default());
    let mut rows = vec![
        row("mq", 0, QdiscRow::ROOT, None),
        row("fq_codel", 0, 1, None),
        row("tbf", 0x8001_0000, 2, shaped),
        row("clsact", 0xffff_0000, QdiscRow::INGRESS, None),
        row("pfifo", 0x1_0000, 0x8001_0001, None),
    ];
    drop_repeated(&mut rows);
    let kinds: Vec<&str> = rows.iter().map(|r| &*r.kind).collect();
    assert_eq!(kinds, ["mq", "tbf", "clsact", "pfifo"]);
}

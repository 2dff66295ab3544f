//! What a redacted tick tells of its host.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use stallscope::recording::tools::redact::Redactor;
use stallscope::sample::filesystems::{FilesystemRow, FilesystemsSample};
use stallscope::sample::netdev::{Flow, NetdevSample, NetdevSpace, Origin, Origins, Target};
use stallscope::sample::sockets::{
    NeighState, NetnsTable, NextHop, Owner, RouteAnswer, RouteOutcome, SocketsSample,
};
use stallscope::sample::tick::Tick;
use stallscope::sample::time::{MonoNs, Span};
use stallscope::sample::{Samples, Shared, Stamped};

fn octets(address: &str) -> [u8; 16] {
    address.parse::<Ipv6Addr>().unwrap().octets()
}

fn sample<S>(data: S) -> Shared<S> {
    Arc::new(Stamped { span: Span::at(MonoNs(1)), cpu: Duration::ZERO, data })
}

fn redacted(samples: Samples) -> Samples {
    Redactor::default().tick(&Tick { samples, ..Tick::default() }).unwrap().samples
}

/// An address of any range goes where its field says that it is one.
#[test]
fn what_is_beside_the_rows_of_a_table_is_told_by_nobody() {
    let nat64 = octets("64:ff9b::c000:201");
    let hop = Some(NextHop { addr: nat64, state: NeighState::Failed });
    let outcome = RouteOutcome::Via { ifindex: 7, dev: "acme0".to_owned(), hop };
    let table = NetnsTable {
        label: "acme".to_owned(),
        owners: vec![Owner::new(5, 6, "acmed")],
        cgroups: vec![(8, "/acme.slice/db.service".to_owned())],
        routes: vec![RouteAnswer { cookie: 9, outcome }],
        holes: vec!["mptcp: no diag module".to_owned()],
        ..NetnsTable::default()
    };
    let data = SocketsSample { spaces: vec![Arc::new(table)], ..SocketsSample::default() };
    let new = redacted(Samples { sockets: Some(sample(data)), ..Samples::default() });
    let new = &new.sockets.unwrap().data.spaces[0];
    assert_eq!((new.label.as_str(), &new.holes[0][..]), ("ns-1", "mptcp: no diag module"));
    assert_eq!(new.owners, [Owner::new(5, 6, "proc-1")]);
    assert_eq!(new.cgroups, [(8, "/group-1.slice/group-2.service".to_owned())]);
    let hop = Some(NextHop { addr: octets("2001:db8::1"), state: NeighState::Failed });
    let outcome = RouteOutcome::Via { ifindex: 7, dev: "if-1".to_owned(), hop };
    assert_eq!(new.routes, [RouteAnswer { cookie: 9, outcome }]);
}

#[test]
fn who_fills_a_connection_table_is_told_by_nobody() {
    let [host, pod, peer] = ["::ffff:192.0.2.77", "64:ff9b::c000:201", "2a00:1450::9"].map(octets);
    let target = |addr| Target { addr, port: 53, proto: 17, entries: 9 };
    let origin = |addr| Origin {
        addr,
        local: true,
        entries: 9,
        target: target(peer),
        flows: vec![Flow { from: 4001, addr: peer, port: 53, proto: 17 }],
    };
    let origins = Origins {
        target: target(peer),
        sources: vec![origin(host), origin(pod)],
        ..Origins::default()
    };
    let space = NetdevSpace { origins: Some(Arc::new(origins)), ..NetdevSpace::default() };
    let data = NetdevSample { spaces: vec![Arc::new(space)] };
    let new = redacted(Samples { netdev: Some(sample(data)), ..Samples::default() });
    let new = new.netdev.unwrap();
    let new = new.data.spaces[0].origins.as_ref().unwrap();
    let [a, b] = &new.sources[..] else { panic!("{new:?}") };
    for addr in [a.addr, b.addr, new.target.addr] {
        assert!(![host, pod, peer].contains(&addr), "{new:?}");
    }
    // The same address is still the same, and numbers are kept.
    assert!(a.addr != b.addr && a.addr != new.target.addr);
    for s in [a, b] {
        assert_eq!(s.target, new.target);
        assert_eq!(s.flows, [Flow { from: 4001, addr: new.target.addr, port: 53, proto: 17 }]);
    }
}

#[test]
fn mount_points_and_their_sources_are_told_by_nobody() {
    let row = |(mount, source): (&str, &str)| FilesystemRow {
        mount: mount.into(),
        source: source.into(),
        kind: "ext4".into(),
        mount_options: "rw".into(),
        options: "ro,errors=remount-ro".into(),
        ..FilesystemRow::default()
    };
    let mounts = [
        ("/", "/dev/sda1"),
        ("/home/alice", "/dev/mapper/acme-home"),
        ("/home/alice/db", "filer.acme:/export/acme"),
        ("/var/log", "tmpfs"),
    ];
    let filesystems = Arc::new(mounts.into_iter().map(row).collect());
    let data = FilesystemsSample { filesystems, ..FilesystemsSample::default() };
    let new = redacted(Samples { filesystems: Some(sample(data)), ..Samples::default() });
    let new = new.filesystems.unwrap();
    let shown: Vec<(&str, &str)> =
        new.data.filesystems.iter().map(|r| (&*r.mount, &*r.source)).collect();
    let want = [
        ("/", "/dev/sda1"),
        ("/home/dir-1", "/dev/mapper/dir-3"),
        ("/home/dir-1/dir-2", "dir-4/dir-5/dir-6"),
        ("/var/log", "tmpfs"),
    ];
    assert_eq!(shown, want);
    assert_eq!(&*new.data.filesystems[0].options, "ro,errors=remount-ro");
}

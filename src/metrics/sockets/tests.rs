//! Following sockets from tick to tick: scripts and properties.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::sample::Stamped;
use crate::sample::net_counters::{NetCountersSample, NetnsCounters};
use crate::sample::sockets::{InetRows, NO_INFO, NetnsTable, map_v4};
use crate::sample::time::Span;

const NETNS: NetnsId = NetnsId(1);

/// One row by hand: 10.0.0.1:40000 -> 10.0.0.2:3306, established.
#[derive(Clone, Debug)]
struct Row {
    cookie: u64,
    proto: Proto,
    state: SockState,
    timer: SockTimer,
    retrans: u8,
    expires_ms: u32,
    rq: u32,
    wq: u32,
    lport: u16,
    rport: u16,
    skmem: [u32; 9],
    info: Option<TcpInfo>,
}

fn row() -> Row {
    Row {
        cookie: 7,
        proto: Proto::Tcp,
        state: SockState::ESTAB,
        timer: SockTimer::OFF,
        retrans: 0,
        expires_ms: 0,
        rq: 0,
        wq: 1000,
        lport: 40_000,
        rport: 3306,
        skmem: [0, 131_072, 0, 87_040, 0, 0, 0, 0, 0],
        info: None,
    }
}

/// A block as a kernel of that age sends it, with these fields set.
fn info(len: usize, fields: &[(&str, u64)]) -> TcpInfo {
    let mut i = TcpInfo::from_bytes(&vec![0; len]);
    for (name, value) in fields {
        let (_, at, size) = *TcpInfo::FIELDS.iter().find(|f| f.0 == *name).unwrap();
        i = i.with(at, &value.to_ne_bytes()[..size]);
    }
    i
}

fn rto_row(retransmits: u8, fields: &[(&str, u64)]) -> Row {
    let mut all = vec![("retransmits", u64::from(retransmits)), ("bytes_acked", 3000)];
    all.extend_from_slice(fields);
    Row { timer: SockTimer::ON, retrans: retransmits, info: Some(info(248, &all)), ..row() }
}

fn table(at_ms: u64, rows: &[Row]) -> Arc<NetnsTable> {
    let mut c = InetRows::default();
    for r in rows {
        c.cookie.push(r.cookie);
        c.proto.push(r.proto);
        c.state.push(r.state);
        c.timer.push(r.timer);
        c.retrans.push(r.retrans);
        c.expires_ms.push(r.expires_ms);
        c.rqueue.push(r.rq);
        c.wqueue.push(r.wq);
        c.local.push(map_v4(Ipv4Addr::new(10, 0, 0, 1).octets()));
        c.remote.push(map_v4(Ipv4Addr::new(10, 0, 0, 2).octets()));
        c.lport.push(r.lport);
        c.rport.push(r.rport);
        c.ifindex.push(0);
        c.uid.push(1000);
        c.inode.push(55);
        c.cgroup.push(0);
        c.skmem.push(r.skmem);
        c.skmem_words.push(9);
        c.info.push(r.info.map_or(NO_INFO, |i| {
            c.infos.push(i);
            c.infos.len() as u32 - 1
        }));
    }
    let span = Span::at(MonoNs(at_ms * 1_000_000));
    Arc::new(NetnsTable { netns: NETNS, span, inet: c, ..NetnsTable::default() })
}

/// Runs one table per second through a tracker.
fn run(tables: &[Vec<Row>]) -> SocketFigures {
    let mut t = SocketTracker::default();
    let mut last = SocketFigures::default();
    for (i, rows) in tables.iter().enumerate() {
        last = t.push([table(1000 * (i as u64 + 1), rows)].iter());
    }
    last
}

fn only(f: &SocketFigures) -> Suspect {
    assert_eq!(f.suspects.len(), 1, "{:?}", f.suspects);
    (*f.suspects[0]).clone()
}

#[test]
fn healthy_sockets_are_counted_and_not_followed() {
    let listen = Row { state: SockState::LISTEN, rq: 0, wq: 128, cookie: 1, ..row() };
    let sending = Row { timer: SockTimer::ON, cookie: 2, ..row() };
    let late_reader = Row { rq: 800, skmem: [2000, 131_072, 0, 0, 0, 0, 0, 0, 0], ..row() };
    let udp = Row { proto: Proto::Udp, state: SockState::CLOSE, rq: 500, cookie: 3, ..row() };
    let f = run(&[vec![listen, sending, late_reader, udp]]);
    assert!(f.suspects.is_empty(), "{:?}", f.suspects);
    let t = f.totals[0];
    assert_eq!((t.tcp, t.udp, t.listening, t.established, t.sending), (3, 1, 1, 2, 2));
}

/// Measured against a peer that drops everything: rto 3264 -> 6528, backoff 4 -> 5,
/// data_segs_out 15 -> 16, retransmissions 4 -> 5.
#[test]
fn an_rto_that_leaves_the_host() {
    let before = [("rto_us", 3_264_000), ("backoff", 4), ("data_segs_out", 15), ("segs_out", 20)];
    let after = [("rto_us", 6_528_000), ("backoff", 5), ("data_segs_out", 16), ("segs_out", 21)];
    let with = |f: &[(&'static str, u64)], total| [f, &[("total_retrans", total)]].concat();
    let s = only(&run(&[vec![rto_row(4, &with(&before, 4))], vec![rto_row(5, &with(&after, 5))]]));
    let e = s.events[0];
    assert_eq!((e.kind, e.count, e.at), (TimerKind::Rto, 1, MonoNs(2_000_000_000)));
    assert_eq!((e.data_segs_out, e.total_retrans, e.bytes_acked), (Some(1), Some(1), Some(0)));
    assert_eq!(s.rto().unwrap().growth, Growth::Doubled(204_000));
    assert_eq!(s.retransmits(), 5);
    assert_eq!(s.acked_flat_since, Some(MonoNs(1_000_000_000)));
    assert_eq!(s.segs_out_flat_since, Some(MonoNs(2_000_000_000)));
}

/// Measured after the route was deleted: the timer backs off, nothing leaves.
#[test]
fn an_rto_that_leaves_nothing() {
    let flat = [("data_segs_out", 12), ("segs_out", 13), ("total_retrans", 1)];
    let s = only(&run(&[
        vec![rto_row(3, &flat)],
        vec![rto_row(4, &flat)],
        vec![rto_row(4, &flat)],
        vec![rto_row(5, &flat)],
    ]));
    assert_eq!(s.fired(TimerKind::Rto), 2);
    assert!(s.events.iter().all(|e| e.data_segs_out == Some(0) && e.total_retrans == Some(0)));
    assert_eq!(s.segs_out_flat_since, Some(MonoNs(1_000_000_000)));
}

#[test]
fn firings_between_two_looks_are_counted_even_over_the_wrap_of_total_rto() {
    let s = only(&run(&[
        vec![rto_row(1, &[("total_rto", 65_534)])],
        vec![rto_row(4, &[("total_rto", 1)])],
    ]));
    assert_eq!(s.events[0].count, 3);
    let s = only(&run(&[vec![rto_row(1, &[])], vec![rto_row(4, &[])]]));
    assert_eq!(s.events[0].count, 3, "before 6.7 retransmits tells");
}

#[test]
fn a_tick_without_tcp_info_does_not_count_twice() {
    let without = Row { info: None, ..rto_row(3, &[]) };
    let s = only(&run(&[vec![rto_row(2, &[])], vec![without], vec![rto_row(3, &[])]]));
    assert_eq!(s.fired(TimerKind::Rto), 1);
    assert_eq!(s.events[0].total_retrans, Some(0), "the deltas span both ticks");
}

#[test]
fn without_tcp_info_at_all_the_header_counts_and_the_deltas_stay_unknown() {
    let at = |n| Row { info: None, ..rto_row(n, &[]) };
    let s = only(&run(&[vec![at(2)], vec![at(4)]]));
    assert_eq!(s.events[0].count, 2);
    assert_eq!((s.events[0].total_retrans, s.events[0].data_segs_out), (None, None));
    assert_eq!((s.acked_flat_since, s.info_at), (None, None));
}

#[test]
fn an_ack_of_new_data_forgets_the_events() {
    let acked = |n, bytes| rto_row(n, &[("bytes_acked", bytes)]);
    let s = only(&run(&[vec![acked(2, 10)], vec![acked(3, 10)], vec![acked(0, 20)]]));
    assert!(s.events.is_empty());
    assert_eq!(s.acked_flat_since, Some(MonoNs(3_000_000_000)));
    // Before 4.1 there is no bytes_acked: the counter of RTOs falls.
    let old =
        |n: u8| Row { info: Some(info(104, &[("retransmits", n.into())])), ..rto_row(n, &[]) };
    let s = only(&run(&[vec![old(2)], vec![old(3)]]));
    assert_eq!((s.events.len(), s.acked_flat_since), (1, None));
    let s = only(&run(&[vec![old(2)], vec![old(3)], vec![old(1)]]));
    assert!(s.events.is_empty());
}

/// Measured against a peer that does not read: it answers each probe, so the count of probes
/// stays 0 and only the restart of the timer shows that one was sent.
#[test]
fn probes_of_a_closed_window_are_seen_by_the_restart_of_the_timer() {
    let at = |expires_ms, len| Row {
        timer: SockTimer::PERSIST,
        expires_ms,
        wq: 33_624,
        info: Some(info(len, &[("rto_us", 212_000), ("backoff", 5)])),
        ..row()
    };
    let s = only(&run(&[vec![at(1500, 248)], vec![at(500, 248)], vec![at(5900, 248)]]));
    assert_eq!(s.fired(TimerKind::Probe), 1);
    assert_eq!(s.probe_interval(), Some(Duration::from_millis(212 << 5)));
    assert_eq!(s.probing_for(), Some(Duration::from_millis(212 * 31)));
    assert_eq!(s.zero_window_since, Some(MonoNs(1_000_000_000)));
    // Before 5.4 the window is not reported: that is unknown, not closed.
    let s = only(&run(&[vec![at(1500, 224)]]));
    assert_eq!((s.zero_window_since, s.persist_since), (None, Some(MonoNs(1_000_000_000))));
}

/// Measured behind a local drop rule: the window is open and each probe carries data.
#[test]
fn probes_with_data_are_seen() {
    let at = |n: u8, segs: u64| Row {
        timer: SockTimer::PERSIST,
        retrans: n,
        info: Some(info(
            248,
            &[
                ("backoff", n.into()),
                ("rto_us", 204_000),
                ("snd_wnd", 65_160),
                ("data_segs_out", segs),
            ],
        )),
        ..row()
    };
    let s = only(&run(&[vec![at(3, 28)], vec![at(4, 29)], vec![at(5, 30)]]));
    let probes: Vec<_> = s.trailing(TimerKind::Probe, |e| e.data_segs_out == Some(1)).collect();
    assert_eq!(probes.len(), 2);
    assert_eq!((s.zero_window_since, s.unanswered_probes()), (None, 5));
}

/// What began before we looked. The table takes its stall from here, and so does the finding.
#[test]
fn a_stall_is_as_old_as_its_timers_tell() {
    let persist = |sent_ago: u64| Row {
        timer: SockTimer::PERSIST,
        wq: 33_624,
        info: Some(info(
            248,
            &[
                ("rto_us", 212_000),
                ("backoff", 11),
                ("snd_wnd", 0),
                ("bytes_acked", 3000),
                ("last_data_sent_ms", sent_ago),
            ],
        )),
        ..row()
    };
    // The tests' clock begins with the boot: 0.9 s before we looked.
    let s = only(&run(&[vec![persist(900)], vec![persist(1900)]]));
    assert_eq!(s.stalled_since(), Some(MonoNs(100_000_000)));
    assert_eq!(s.closed_seen_since(), Some(MonoNs(1_000_000_000)));
    // Probes are no further apart than 120 s, and no closer than 200 ms.
    assert_eq!(s.probe_interval(), Some(Duration::from_secs(120)));
    // RTOs: the clock of the kernel, or what the doubling took at least.
    let on = |n: u64, time: u64| Row {
        timer: SockTimer::ON,
        retrans: n as u8,
        wq: 1448,
        info: Some(info(
            248,
            &[
                ("rto_us", (204_000 << n).min(120_000_000)),
                ("backoff", n),
                ("retransmits", n),
                ("rtt_us", 44),
                ("total_rto", n),
                ("total_rto_recoveries", 1 + u64::from(time == 0)),
                ("total_rto_time_ms", time),
            ],
        )),
        ..row()
    };
    let stall = |r: Row| {
        let s = only(&run(&[vec![r]]));
        let lasts = s.retransmitting_for().unwrap();
        assert_eq!(s.stalled_since(), Some(s.as_of().back(lasts)));
        lasts
    };
    assert_eq!(stall(on(5, 0)), Duration::from_millis(204 * 31));
    assert_eq!(stall(on(5, 6400)), Duration::from_millis(6400));
    assert_eq!(stall(on(14, 780_000)), Duration::from_secs(780));
    assert!(stall(on(14, 0)) < Duration::from_secs(120), "a lower bound");
    // What was idle until now has not stalled since it was last used.
    let idle = |wq, bytes_acked| Row {
        rq: 100_000,
        wq,
        info: Some(info(248, &[("bytes_acked", bytes_acked)])),
        skmem: [60_000, 65_536, 0, 0, 0, 0, 0, 0, 0],
        ..row()
    };
    let s =
        only(&run(&[vec![idle(0, 7)], vec![idle(0, 7)], vec![idle(500, 7)], vec![idle(500, 7)]]));
    assert_eq!(s.acked_flat_since, Some(MonoNs(3_000_000_000)));
}

#[test]
fn a_window_that_opens_ends_the_count() {
    let at = |wnd: u64| Row {
        timer: SockTimer::PERSIST,
        info: Some(info(248, &[("snd_wnd", wnd)])),
        ..row()
    };
    let s = only(&run(&[vec![at(0)], vec![at(1000)], vec![at(0)]]));
    assert_eq!(s.zero_window_since, Some(MonoNs(3_000_000_000)));
    assert_eq!(s.persist_since, Some(MonoNs(1_000_000_000)));
    let s = only(&run(&[vec![at(0)], vec![Row { timer: SockTimer::OFF, ..at(0) }]]));
    assert_eq!((s.zero_window_since, s.persist_since), (None, None));
}

#[test]
fn unread_bytes_count_since_they_stopped_falling() {
    let at = |rq| Row { rq, skmem: [60_000, 65_536, 0, 0, 0, 0, 0, 0, 4], ..row() };
    let s = only(&run(&[vec![at(100)], vec![at(100)], vec![at(200)]]));
    assert_eq!(s.unread_since, Some(MonoNs(1_000_000_000)));
    let s = only(&run(&[vec![at(100)], vec![at(50)], vec![at(60)]]));
    assert_eq!(s.unread_since, Some(MonoNs(2_000_000_000)));
    let mut more = at(60);
    more.skmem[8] = 9;
    let s = only(&run(&[vec![at(100)], vec![more]]));
    assert_eq!(s.drops, Some(5));
}

#[test]
fn rwnd_limited_is_measured_over_its_own_interval() {
    let at = |us| Row {
        timer: SockTimer::PERSIST,
        info: Some(info(248, &[("rwnd_limited_us", us)])),
        ..row()
    };
    let s = only(&run(&[vec![at(1_000_000)], vec![at(1_950_000)]]));
    assert_eq!(s.rwnd_limited, Some((Duration::from_millis(950), Duration::from_secs(1))));
    let s = only(&run(&[vec![at(1_000_000)], vec![at(5)]]));
    assert_eq!(s.rwnd_limited, None, "backwards is unknown");
}

#[test]
fn a_socket_that_is_gone_is_kept_for_a_minute_and_marked() {
    let mut t = SocketTracker::default();
    t.push([table(1000, &[rto_row(3, &[])])].iter());
    let s = only(&t.push([table(2000, &[])].iter()));
    assert_eq!(s.missing_since, Some(MonoNs(2_000_000_000)));
    let s = only(&t.push([table(3000, &[rto_row(3, &[])])].iter()));
    assert_eq!(s.missing_since, None, "the dump had missed it");
    t.push([table(4000, &[])].iter());
    assert!(t.push([table(65_000, &[])].iter()).suspects.is_empty());
}

#[test]
fn a_namespace_that_is_gone_takes_its_sockets_along() {
    let mut t = SocketTracker::default();
    let other = Arc::new(NetnsTable { netns: NetnsId(2), ..(*table(1000, &[])).clone() });
    t.push([table(1000, &[rto_row(3, &[])]), other.clone()].iter());
    let gone = Arc::new(NetnsTable { span: table(2000, &[]).span, ..(*other).clone() });
    let f = t.push(std::slice::from_ref(&gone).iter());
    assert!(only(&f).missing_since.is_some());
    assert_eq!(f.totals.len(), 1);
    assert_eq!(t.push([].iter()).suspects.len(), 1, "no reading at all says nothing");
}

#[test]
fn a_table_that_was_not_read_again_is_not_judged_again() {
    let mut t = SocketTracker::default();
    let (a, b) = (table(1000, &[rto_row(2, &[])]), table(2000, &[rto_row(3, &[])]));
    t.push(std::slice::from_ref(&a).iter());
    for _ in 0..3 {
        assert_eq!(only(&t.push(std::slice::from_ref(&b).iter())).events.len(), 1);
    }
}

#[test]
fn a_socket_that_a_dump_shows_twice_counts_once() {
    let s = only(&run(&[vec![rto_row(2, &[])], vec![rto_row(3, &[]), rto_row(3, &[])]]));
    assert_eq!(s.fired(TimerKind::Rto), 1);
}

#[test]
fn rows_without_a_cookie_are_told_apart_by_their_tuple() {
    let at = |lport, n| Row { cookie: 0, lport, info: None, ..rto_row(n, &[]) };
    let f = run(&[vec![at(1, 2), at(2, 9)], vec![at(2, 9), at(1, 3)]]);
    assert_eq!(f.suspects.len(), 2);
    let fired: u32 = f.suspects.iter().map(|s| s.fired(TimerKind::Rto)).sum();
    assert_eq!(fired, 1);
}

#[test]
fn the_worst_are_kept_and_the_followed_not_pushed_out() {
    let many = |n: usize, retrans| -> Vec<Row> {
        (0..n).map(|i| Row { cookie: 10 + i as u64, ..rto_row(retrans, &[]) }).collect()
    };
    let first = many(MAX_SUSPECTS, 2);
    let mut second = many(MAX_SUSPECTS, 3);
    second.extend((0..500).map(|i| Row { cookie: 100_000 + i, ..rto_row(9, &[]) }));
    let f = run(&[first, second]);
    assert_eq!(f.suspects.len(), MAX_SUSPECTS);
    assert!(f.suspects.iter().all(|s| s.fired(TimerKind::Rto) == 1));
    assert_eq!(f.totals[0].tcp as usize, MAX_SUSPECTS + 500);
}

#[test]
fn who_called_whom() {
    let listener = Row { state: SockState::LISTEN, lport: 40_000, cookie: 1, wq: 128, ..row() };
    let s = only(&run(&[vec![listener, rto_row(3, &[])]]));
    assert!(s.inbound, "the port is listened on");
    assert!(!only(&run(&[vec![rto_row(3, &[])]])).inbound);
    let served = Row { lport: 8080, rport: 50_069, ..rto_row(3, &[]) };
    assert!(only(&run(&[vec![served]])).inbound);
}

#[test]
fn mptcp_info_is_not_read_as_tcp_info() {
    let s = only(&run(&[vec![Row { proto: Proto::Mptcp, ..rto_row(3, &[]) }]]));
    assert_eq!((s.info, s.retransmits()), (None, 3));
}

#[test]
fn a_calm_socket_is_let_go_after_a_while() {
    let mut t = SocketTracker::default();
    t.push([table(1000, &[rto_row(3, &[])])].iter());
    assert_eq!(t.push([table(30_000, &[row()])].iter()).suspects.len(), 1);
    assert!(t.push([table(70_000, &[row()])].iter()).suspects.is_empty());
}

#[test]
fn a_full_listener_is_followed() {
    let full = Row { state: SockState::LISTEN, rq: 4, wq: 3, ..row() };
    let s = only(&run(&[vec![full]]));
    assert_eq!((s.unread_since, s.events.len()), (None, 0));
}

/// The counter may move one reading before the look that shows the event, or one after it; what
/// moves later belongs to something else.
#[test]
fn counters_around_an_event_are_kept_with_it() {
    let sample = |ms: u64, too_big: i64| Stamped {
        span: Span::at(MonoNs(ms * 1_000_000)),
        cpu: Duration::ZERO,
        data: NetCountersSample {
            spaces: vec![NetnsCounters {
                netns: NETNS,
                names: Arc::new(vec!["TcpExtTCPWqueueTooBig".into()]),
                values: vec![too_big],
            }],
            ..NetCountersSample::default()
        },
    };
    // Readings 5 ms before each table; the RTO is seen at 4000.
    let growth = |values: [i64; 7]| {
        let mut t = SocketTracker::default();
        let mut f = SocketFigures::default();
        for (i, v) in values.into_iter().enumerate() {
            let ms = 1000 * (i as u64 + 1);
            t.counters(&sample(ms - 5, v));
            f = t.push([table(ms, &[rto_row(if ms < 4000 { 2 } else { 3 }, &[])])].iter());
        }
        let net = only(&f).events[0].net;
        assert_eq!(net.retrans_fail, None, "not reported is unknown");
        net.wqueue_too_big
    };
    assert_eq!(growth([7, 7, 7, 7, 7, 7, 7]), Some(0));
    assert_eq!(growth([7, 7, 7, 7, 8, 8, 8]), Some(1), "read just before the event");
    assert_eq!(growth([7, 7, 7, 8, 8, 8, 8]), Some(1), "within the tick");
    assert_eq!(growth([7, 7, 8, 8, 8, 8, 8]), Some(1), "one tick before");
    assert_eq!(growth([7, 8, 8, 8, 8, 8, 8]), Some(0), "before that");
    assert_eq!(growth([7, 7, 7, 7, 7, 8, 8]), Some(0), "after that");
    assert_eq!(growth([9, 9, 9, 3, 3, 3, 3]), None, "a reset is unknown");
}

fn any_row() -> impl Strategy<Value = Row> {
    let fields = prop::collection::vec((0..TcpInfo::FIELDS.len(), any::<u64>()), 0..6);
    (
        (0u64..4, 0u8..14, 0u8..6, any::<u8>(), any::<u32>(), any::<u32>(), any::<u32>()),
        (any::<[u32; 9]>(), prop::option::of((0usize..320, fields))),
    )
        .prop_map(|((cookie, state, timer, retrans, expires_ms, rq, wq), (skmem, block))| {
            Row {
                cookie,
                state: SockState(state),
                timer: SockTimer(timer),
                retrans,
                expires_ms,
                rq,
                wq,
                skmem,
                info: block.map(|(len, set)| {
                    let set: Vec<_> =
                        set.iter().map(|(i, v)| (TcpInfo::FIELDS[*i].0, *v)).collect();
                    info(len, &set)
                }),
                ..row()
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn nothing_from_the_kernel_panics_and_order_does_not_matter(
        tables in prop::collection::vec(prop::collection::vec(any_row(), 0..5), 1..6)
    ) {
        let f = run(&tables);
        prop_assert!(f.suspects.is_sorted_by_key(|s| s.id));
        for s in &f.suspects {
            let _ = (s.probing_for(), s.probe_interval(), s.stalled_since(), s.as_of());
            prop_assert!(s.events.len() <= MAX_EVENTS);
            prop_assert_eq!(f.get(s.id).map(|x| x.id), Some(s.id));
        }
    }
}

/// 1,000 bytes received and 3,000 acknowledged in the second between the two readings.
#[test]
fn healthy_connections_are_told_by_what_they_have_in_common() {
    let moves = |cookie, lport, second: u64| Row {
        cookie,
        lport,
        wq: 0,
        info: Some(info(248, &[("bytes_received", 1000 * second), ("bytes_acked", 3000 * second)])),
        ..row()
    };
    let tables: Vec<Vec<Row>> = (1..3)
        .map(|second| {
            vec![
                Row { state: SockState::LISTEN, cookie: 1, lport: 80, rport: 0, wq: 128, ..row() },
                Row { state: SockState::LISTEN, cookie: 2, lport: 81, rport: 0, wq: 128, ..row() },
                moves(3, 80, second),
                moves(4, 80, second),
                moves(5, 40_001, second),
                // Neither of these is a healthy connection.
                Row { state: SockState::TIME_WAIT, cookie: 6, lport: 80, ..row() },
                Row { proto: Proto::Udp, state: SockState::CLOSE, cookie: 8, lport: 80, ..row() },
                Row { cookie: 7, lport: 40_002, ..rto_row(4, &[]) },
            ]
        })
        .collect();
    let f = run(&tables);
    let groups: Vec<_> =
        f.spaces[0].groups.iter().map(|g| (g.end, g.connections, g.moved)).collect();
    let peer = Endpoint { addr: Ipv4Addr::new(10, 0, 0, 2).into(), port: 3306 };
    assert_eq!(
        groups,
        [
            (End::Port(80), 2, Some((2000.0, 6000.0))),
            (End::Peer(peer), 1, Some((1000.0, 3000.0))),
            (End::Port(81), 0, None),
        ]
    );
}

/// Clients of a thousand ports: most are left out, and take no room in what is kept.
#[test]
fn groups_that_are_left_out_take_no_memory() {
    let rows = (0..1000).map(|n| Row { cookie: 10 + n, rport: 1000 + n as u16, wq: 0, ..row() });
    let f = run(&[rows.collect()]);
    let space = &f.spaces[0];
    assert_eq!((space.groups.len(), space.groups_left_out), (24, 976));
    assert!(space.groups.capacity() <= 32, "{}", space.groups.capacity());
}

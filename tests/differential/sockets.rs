//! Our socket rows against `ss -tainmoe`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;

use stallscope::collect::sockets::HostSockets;
use stallscope::collect::sockets::netns::NetnsSocketsCollector;
use stallscope::collect::{CollectOptions, NetnsScope};
use stallscope::sample::Interest;
use stallscope::sample::sockets::{NetnsTable, Proto, SockState, SockTimer};

use crate::kit::gate::{lab, with_tools};
use crate::kit::net::{Pair, SsLine, fill};
use crate::kit::sh::run;
use crate::kit::{secs, wait_for};
use crate::{open, read};

/// `ss` lines by cookie, which it prints as `sk:HEX`.
type ByCookie = BTreeMap<u64, SsLine>;

fn by_cookie(text: &str) -> ByCookie {
    text.lines()
        .map(|l| (SsLine(l.to_owned()).hex("sk").unwrap_or_else(|| panic!("no cookie: {l}")), l))
        .map(|(cookie, l)| (cookie, SsLine(l.to_owned())))
        .collect()
}

const TCP: [&str; 2] = ["ss", "-tainmoeHO"];
const UDP: [&str; 2] = ["ss", "-uainmoeHO"];

fn wanted(table: &NetnsTable, mine: &dyn Fn(&NetnsTable, usize) -> bool) -> Interest {
    let rows = (0..table.inet.len()).filter(|i| mine(table, *i));
    Interest { sockets: rows.map(|i| table.id(i)).collect(), ..Interest::default() }
}

/// Compares row `i` with what `ss` showed before and after our reading.
fn compare_row(t: &NetnsTable, i: usize, before: &SsLine, after: &SsLine) {
    let r = &t.inet;
    let at = |what: &str| {
        format!("{what}\n ours {:x}\n ss   {}\n then {}", r.cookie[i], before.0, after.0)
    };
    let states = [before.state(), after.state()];
    assert!(states.contains(&r.state[i].name()), "{}", at("state"));
    let within = |what: &str, ours: f64, a: f64, b: f64| {
        assert!(a.min(b) <= ours && ours <= a.max(b), "{}", at(&format!("{what} {ours}")));
    };
    within("Recv-Q", r.rqueue[i].into(), before.recv_q() as f64, after.recv_q() as f64);
    within("Send-Q", r.wqueue[i].into(), before.send_q() as f64, after.send_q() as f64);
    let ends = (r.local_endpoint(i).to_string(), r.remote_endpoint(i).to_string());
    let (local, remote) = before.ends();
    assert_eq!(plain(&ends.0), plain(local), "{}", at("local address"));
    assert_eq!(plain(&ends.1), plain(remote), "{}", at("remote address"));
    // `ss` hides uid 0 and prints no inode 0.
    assert_eq!(f64::from(r.uid[i]), before.num("uid").unwrap_or(0.0), "{}", at("uid"));
    assert_eq!(f64::from(r.inode[i]), before.num("ino").unwrap_or(0.0), "{}", at("ino"));
    let timers = [before.timer(), after.timer()];
    assert!(timers.contains(&r.timer[i].name()), "{}", at("timer"));
    if r.timer[i] != SockTimer::OFF && timers[0] == timers[1] {
        within("timer count", r.retrans[i].into(), before.timer_count(), after.timer_count());
    }
    let m = r.skmem(i);
    for (name, ours) in [
        ("r", m.r()),
        ("rb", m.rb()),
        ("t", m.t()),
        ("tb", m.tb()),
        ("f", m.f()),
        ("w", m.w()),
        ("o", m.o()),
        ("bl", m.bl()),
        ("d", m.d()),
    ] {
        match (before.skmem(name), after.skmem(name), ours) {
            (Some(a), Some(b), Some(n)) => within(name, n.into(), a as f64, b as f64),
            (None, None, None) => {}
            other => panic!("{}", at(&format!("skmem {name}: {other:?}"))),
        }
    }
    if r.proto[i] == Proto::Tcp {
        compare_info(t, i, before, after);
    }
}

/// The numbers of `tcp_info`. `ss` leaves out zeros, so an absent number is a zero, except
/// where it hides a default.
fn compare_info(t: &NetnsTable, i: usize, before: &SsLine, after: &SsLine) {
    let Some(info) = t.inet.tcp_info(i) else {
        // Not asked for where the header says all: the accept queue is in Recv-Q and Send-Q.
        let none = before.state() == "LISTEN" || before.num("cwnd").is_none();
        assert!(none, "no tcp_info of ours for {}", before.0);
        return;
    };
    let number = |v: Option<u32>| v.map(f64::from);
    let wide = |v: Option<u64>| v.map(|v| v as f64);
    let mut fields = vec![
        ("backoff", info.backoff().map(f64::from), 0.0),
        ("mss", number(info.snd_mss()), 0.0),
        ("pmtu", number(info.pmtu()), 0.0),
        ("rcvmss", number(info.rcv_mss()), 0.0),
        ("advmss", number(info.advmss()), 0.0),
        ("cwnd", number(info.snd_cwnd()), 0.0),
        ("bytes_sent", wide(info.bytes_sent()), 0.0),
        ("bytes_acked", wide(info.bytes_acked()), 0.0),
        ("bytes_received", wide(info.bytes_received()), 0.0),
        ("bytes_retrans", wide(info.bytes_retrans()), 0.0),
        ("segs_out", number(info.segs_out()), 0.0),
        ("segs_in", number(info.segs_in()), 0.0),
        ("data_segs_out", number(info.data_segs_out()), 0.0),
        ("data_segs_in", number(info.data_segs_in()), 0.0),
        ("notsent", number(info.notsent_bytes()), 0.0),
        ("snd_wnd", number(info.snd_wnd()), 0.0),
        ("rcv_space", number(info.rcv_space()), 0.0),
        ("rcv_ssthresh", number(info.rcv_ssthresh()), 0.0),
        ("rto", info.rto_us().map(|us| f64::from(us) / 1000.0), 3000.0),
        ("unacked", number(info.unacked()), 0.0),
        ("lost", number(info.lost()), 0.0),
        ("sacked", number(info.sacked()), 0.0),
        ("ato", info.ato_us().map(|us| f64::from(us) / 1000.0), 0.0),
    ];
    if info.snd_ssthresh() < Some(0xffff) {
        fields.push(("ssthresh", number(info.snd_ssthresh()), 0.0));
    }
    for (name, ours, hidden) in fields {
        let shown = |s: &SsLine| s.num(name).unwrap_or(hidden);
        let (a, b) = (shown(before), shown(after));
        let ours = ours.unwrap_or_else(|| panic!("{name}: this kernel has it: {}", before.0));
        assert!(
            a.min(b) <= ours && ours <= a.max(b),
            "{name}: ours {ours}\n ss   {}\n then {}",
            before.0,
            after.0
        );
    }
    let total = |s: &SsLine| s.retrans_total();
    let ours = u64::from(info.total_retrans().unwrap());
    assert!((total(before)..=total(after)).contains(&ours), "retrans total {ours}: {}", after.0);
    // Printed with six digits by %g: half a unit of the sixth.
    let pair = |s: &SsLine| s.pair("rtt");
    if let (Some((a, av)), Some((b, bv))) = (pair(before), pair(after)) {
        for (what, a, b, ours) in
            [("rtt", a, b, info.rtt_us()), ("rttvar", av, bv, info.rttvar_us())]
        {
            let ours = f64::from(ours.unwrap()) / 1000.0;
            let eps = 1e-5 * ours + 5e-4;
            assert!(
                a.min(b) - eps <= ours && ours <= a.max(b) + eps,
                "{what}: ours {ours} ms\n ss   {}\n then {}",
                before.0,
                after.0
            );
        }
    }
}

/// `ss` brackets v6 addresses and marks devices; a v4-mapped address keeps its prefix there.
fn plain(end: &str) -> String {
    let (addr, port) = end.rsplit_once(':').unwrap();
    let addr = addr.trim_start_matches('[').trim_end_matches(']').trim_start_matches("::ffff:");
    let addr = addr.split('%').next().unwrap();
    let any = addr == "*" || addr == "::" || addr == "0.0.0.0";
    format!("{}:{port}", if any { "any" } else { addr })
}

/// Sockets of every kind on loopback that nobody touches: all numbers stand still, so all must
/// be equal.
#[test]
fn sockets_at_rest_are_equal_to_ss() {
    with_tools(&["ss"], || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut unread = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (peer, _) = listener.accept().unwrap();
        unread.write_all(&[1; 5000]).unwrap();
        let closing = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (closing_peer, _) = listener.accept().unwrap();
        closing.shutdown(Shutdown::Write).unwrap();
        let waiting: Vec<_> =
            (0..2).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        let six = TcpListener::bind("[::1]:0").unwrap();
        let six_port = six.local_addr().unwrap().port();
        let six_end = TcpStream::connect(("::1", six_port)).unwrap();
        let mapped = TcpListener::bind("[::]:0").unwrap();
        let mapped_port = mapped.local_addr().unwrap().port();
        let mapped_end = TcpStream::connect(("127.0.0.1", mapped_port)).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let udp_port = udp.local_addr().unwrap().port();
        let udp_end = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp_end.connect(("127.0.0.1", udp_port)).unwrap();
        udp_end.send(&[2; 700]).unwrap();
        let tcp_ports = [port, six_port, mapped_port];
        // Another program may have our UDP port in TCP, and old connections of others linger
        // in TIME-WAIT under the numbers that we were given.
        let mine = move |t: &NetnsTable, i: usize| {
            let ports = if t.inet.proto[i] == Proto::Udp { &[udp_port][..] } else { &tcp_ports };
            t.inet.state[i] != SockState::TIME_WAIT
                && [t.inet.lport[i], t.inet.rport[i]].iter().any(|p| ports.contains(p))
        };

        let mut collector: HostSockets = open(&CollectOptions::default());
        let first = read(&mut collector, &Interest::default());
        let interest = wanted(&first.data.spaces[0], &mine);
        let ss = || {
            let mut all = by_cookie(&run(&TCP));
            all.extend(by_cookie(&run(&UDP)));
            all
        };
        // Delayed ACKs run out within 40 ms of the last byte: until then a timer runs.
        let at_rest = |ss: &ByCookie| {
            let table = &first.data.spaces[0];
            (0..table.inet.len()).filter(|i| mine(table, *i)).all(|i| {
                ss.get(&table.inet.cookie[i])
                    .is_some_and(|l| !["on", "delack"].contains(&l.timer()))
            })
        };
        // The kernel may still settle an estimate or move its accounts of memory: what is compared
        // was read between two dumps that are equal.
        let is_mine = |ss: &ByCookie| {
            let table = &first.data.spaces[0];
            let rows = (0..table.inet.len()).filter(|i| mine(table, *i));
            rows.map(|i| ss[&table.inet.cookie[i]].without_clocks()).collect::<Vec<_>>()
        };
        let (ours, before, after) = wait_for("sockets at rest", secs(5), || {
            let before = Some(ss()).filter(at_rest)?;
            let ours = read(&mut collector, &interest);
            let after = Some(ss()).filter(at_rest)?;
            (is_mine(&before) == is_mine(&after)).then_some((ours, before, after))
        });

        let table = &ours.data.spaces[0];
        assert_eq!(table.bad_rows, 0);
        let rows: Vec<usize> = (0..table.inet.len()).filter(|i| mine(table, *i)).collect();
        // 3 TCP listeners, 2 ends of 2 accepted, 2 ends of 4 not accepted, 2 UDP.
        assert_eq!(rows.len(), 3 + 4 + 8 + 2, "rows on our ports");
        for i in rows {
            let cookie = table.inet.cookie[i];
            compare_row(table, i, &before[&cookie], &after[&cookie]);
        }
        drop((peer, closing_peer, waiting, six_end, mapped_end));
    });
}

/// The same set of sockets on the whole box: none missed, none invented.
#[test]
fn no_socket_is_missed_or_invented() {
    with_tools(&["ss"], || {
        let path = std::env::temp_dir().join(format!("stallscope-diff-{}", std::process::id()));
        let _unix = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut collector: HostSockets = open(&CollectOptions::default());
        let tcp = || by_cookie(&run(&TCP));
        let udp = || by_cookie(&run(&UDP));
        let unix = || unix_inodes(&run(&["ss", "-xaHnO"]));
        let before = (tcp(), udp(), unix());
        let ours = read(&mut collector, &Interest::default());
        let after = (tcp(), udp(), unix());
        let table = &ours.data.spaces[0];
        let cookies = |proto: Proto| -> BTreeSet<u64> {
            (0..table.inet.len())
                .filter(|i| table.inet.proto[*i] == proto)
                .map(|i| table.inet.cookie[i])
                .collect()
        };
        let keys = |m: &ByCookie| m.keys().copied().collect::<BTreeSet<u64>>();
        let bounds = |name: &str, ours: &BTreeSet<u64>, a: &BTreeSet<u64>, b: &BTreeSet<u64>| {
            let missed: Vec<_> = a.intersection(b).filter(|c| !ours.contains(c)).collect();
            let invented: Vec<_> =
                ours.iter().filter(|c| !a.contains(c) && !b.contains(c)).collect();
            // A socket may live and die between the two runs of `ss`; a box that opens more
            // than these few in that moment cannot be compared.
            assert!(missed.is_empty(), "{name}: missed {missed:?}");
            assert!(invented.len() <= 3, "{name}: only we see {invented:?}");
        };
        bounds("tcp", &cookies(Proto::Tcp), &keys(&before.0), &keys(&after.0));
        bounds("udp", &cookies(Proto::Udp), &keys(&before.1), &keys(&after.1));
        let inodes: BTreeSet<u64> = table.unix.inode.iter().map(|i| u64::from(*i)).collect();
        bounds("unix", &inodes, &before.2, &after.2);
        assert!(inodes.len() > 1, "there are UNIX sockets on every box");
    });
}

/// `Netid State Recv-Q Send-Q PATH INODE PEER PEER-INODE`.
fn unix_inodes(text: &str) -> BTreeSet<u64> {
    let numbers = |l: &str| {
        let words: Vec<&str> = l.split_whitespace().collect();
        // From the end: a path may hold spaces.
        words.len().checked_sub(3).and_then(|n| words[n].parse().ok())
    };
    text.lines().filter_map(numbers).collect()
}

/// A socket that retransmits into a black hole, in a namespace of its own: the numbers move,
/// ours must lie between.
#[test]
fn retransmitting_socket_agrees_with_ss() {
    lab(&["ss", "ip", "nft"], || {
        let net = Pair::new();
        let (mut tx, _rx) = net.connect(5000);
        net.b.drop_tcp_to("input", 5000);
        fill(&mut tx);
        let path = std::path::PathBuf::from(format!("/run/netns/{}", net.a.name));
        let opts = CollectOptions { netns: NetnsScope::Path(path), ..CollectOptions::default() };
        let mut collector: NetnsSocketsCollector = open(&opts);
        let mut seen_backoff = 0.0;
        for want in [1.0, 2.0, 3.0] {
            wait_for("next backoff", secs(10), || {
                net.a.ss_one("dport = :5000").filter(|s| s.num("backoff") >= Some(want))
            });
            let ss = || by_cookie(&net.a.exec(&TCP));
            let before = ss();
            let ours = read(&mut collector, &Interest::default());
            let after = ss();
            let space = ours.data.spaces.iter().find(|s| s.netns.0 == net.a.inode).unwrap();
            assert_eq!(space.inet.len(), 1, "one socket here");
            let cookie = space.inet.cookie[0];
            compare_row(space, 0, &before[&cookie], &after[&cookie]);
            // Detail comes without being asked for: it retransmits.
            let info = space.inet.tcp_info(0).expect("tcp_info of a suspect");
            seen_backoff = f64::from(info.backoff().unwrap());
            // `expires` counts down from one reading to the next unless the timer fired.
            if before[&cookie].timer_count() == after[&cookie].timer_count() {
                let (a, b) = (before[&cookie].timer_ms(), after[&cookie].timer_ms());
                let ours = f64::from(space.inet.expires_ms[0]);
                // Seconds with one digit above 10 s, whole seconds beyond: half of that.
                assert!(b - 1000.0 <= ours && ours <= a + 1000.0, "{b} <= {ours} <= {a} ms");
            }
        }
        assert!(seen_backoff >= 3.0);
    });
}

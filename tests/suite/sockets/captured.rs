//! Datagrams that Linux 6.18 sent, beside what `ss` made of the same sockets a moment later.
//! `ss` is the independent witness: every figure that it prints and we keep must agree.
#![cfg(target_endian = "little")]

use stallscope::collect::sockets::cookies::CookieMap;
use stallscope::collect::sockets::diag::InetSink;
use stallscope::collect::sockets::nlmsg::Step;
use stallscope::collect::sockets::unix_diag::UnixSink;
use stallscope::sample::sockets::{InetRows, Proto, SockState, UnixRows};

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/6.18/sock_diag");

/// Each datagram is kept with its length before it, 32 bits little endian.
fn datagrams(name: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(format!("{DIR}/{name}.bin")).unwrap();
    let (mut rest, mut out) = (&bytes[..], Vec::new());
    while let Some((len, tail)) = rest.split_first_chunk::<4>() {
        let (datagram, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
        out.push(datagram.to_vec());
        rest = tail;
    }
    assert!(!out.is_empty());
    out
}

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{DIR}/ss-{name}.txt")).unwrap()
}

fn inet(names: &[(&str, Proto)]) -> InetRows {
    let (mut rows, mut seen, mut marks) = (InetRows::default(), CookieMap::default(), Vec::new());
    seen.reset(0);
    for (name, proto) in names {
        let mut sink = InetSink {
            rows: &mut rows,
            seen: &mut seen,
            marks: &mut marks,
            subflows: false,
            proto: *proto,
            bad: 0,
            twice: 0,
        };
        let steps: Vec<Step> = datagrams(name).iter().map(|d| sink.datagram(d, 9)).collect();
        assert_eq!((steps.last(), sink.bad, sink.twice), (Some(&Step::Done), 0, 0));
        // Subflows and the listener of the MPTCP sockets are among the v4 ones.
        assert_eq!(sink.subflows, *name == "tcp4");
    }
    rows
}

/// What follows `name` in a line of `ss`, up to the next blank.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|f| f.strip_prefix(name))
}

fn number<T: std::str::FromStr>(line: &str, name: &str) -> Option<T> {
    field(line, name)?.parse().ok()
}

/// A fraction of ms as us; the kernel keeps whole us.
fn us(ms: &str) -> u32 {
    (ms.parse::<f64>().unwrap() * 1000.0).round() as u32
}

fn skmem(rows: &InetRows, i: usize) -> String {
    let m = rows.skmem(i);
    let [r, rb, t, tb, f, w, o, bl, d] =
        [m.r(), m.rb(), m.t(), m.tb(), m.f(), m.w(), m.o(), m.bl(), m.d()].map(Option::unwrap);
    format!("skmem:(r{r},rb{rb},t{t},tb{tb},f{f},w{w},o{o},bl{bl},d{d})")
}

#[test]
fn tcp_rows_agree_with_ss() {
    let rows = inet(&[("tcp4", Proto::Tcp), ("tcp6", Proto::Tcp)]);
    let text = text("tcp");
    let lines: Vec<&str> = text.lines().collect();
    let mut seen = 0;
    for (at, line) in lines.iter().enumerate().filter(|(_, l)| !l.starts_with('\t')) {
        let detail = lines.get(at + 1).filter(|l| l.starts_with('\t')).copied().unwrap_or("");
        let cookie = u64::from_str_radix(field(line, "sk:").unwrap(), 16).unwrap();
        let i = rows.find(cookie).unwrap();
        seen += 1;
        let head: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(rows.state[i].name(), head[0]);
        assert_eq!(rows.rqueue[i].to_string(), head[1], "{line}");
        assert_eq!(rows.wqueue[i].to_string(), head[2], "{line}");
        let port = |s: &str| s.rsplit(':').next().unwrap().parse().unwrap_or(0);
        assert_eq!((rows.lport[i], rows.rport[i]), (port(head[3]), port(head[4])));
        assert_eq!(rows.inode[i], number::<u32>(line, "ino:").unwrap());
        let timer = field(line, "timer:(").map(|t| t.trim_end_matches(')').split(',').collect());
        let timer: Vec<&str> = timer.unwrap_or_default();
        assert_eq!(rows.timer[i].name(), timer.first().copied().unwrap_or_default());
        assert_eq!(rows.retrans[i].to_string(), timer.get(2).copied().unwrap_or("0"));
        if rows.state[i] == SockState::TIME_WAIT {
            assert_eq!((rows.skmem_words[i], rows.cgroup[i], rows.tcp_info(i)), (0, 0, None));
            assert!((56_000..60_000).contains(&rows.expires_ms[i]), "{}", rows.expires_ms[i]);
            continue;
        }
        assert!(detail.contains(&skmem(&rows, i)), "{detail}\n{}", skmem(&rows, i));
        assert_eq!(rows.cgroup[i], 1, "cgroup:/ is the root of cgroup2");
        if rows.state[i] != SockState::LISTEN {
            tcp_info_agrees(rows.tcp_info(i).unwrap(), detail);
        }
    }
    assert_eq!(seen, rows.len());
}

fn tcp_info_agrees(info: &stallscope::sample::sockets::TcpInfo, detail: &str) {
    assert_eq!(info.as_bytes().len(), 280);
    assert_eq!(info.rto_us(), field(detail, "rto:").map(us), "{detail}");
    assert_eq!(info.backoff(), Some(number(detail, "backoff:").unwrap_or(0)));
    let (rtt, var) = field(detail, "rtt:").unwrap().split_once('/').unwrap();
    assert_eq!((info.rtt_us(), info.rttvar_us()), (Some(us(rtt)), Some(us(var))));
    assert_eq!(info.snd_mss(), number(detail, "mss:"));
    assert_eq!(info.rcv_mss(), number(detail, "rcvmss:"));
    assert_eq!(info.pmtu(), number(detail, "pmtu:"));
    assert_eq!(info.snd_cwnd(), number(detail, "cwnd:"));
    assert_eq!(info.min_rtt_us(), field(detail, "minrtt:").map(us));
    assert_eq!(info.unacked(), Some(number(detail, "unacked:").unwrap_or(0)));
    assert_eq!(info.lost(), Some(number(detail, "lost:").unwrap_or(0)));
    let retrans = field(detail, "retrans:").unwrap_or("0/0");
    assert_eq!(format!("{}/{}", info.retrans().unwrap(), info.total_retrans().unwrap()), retrans);
    assert_eq!(info.bytes_acked(), Some(number(detail, "bytes_acked:").unwrap_or(0)));
    assert_eq!(info.bytes_received(), Some(number(detail, "bytes_received:").unwrap_or(0)));
    assert_eq!(info.bytes_sent(), Some(number(detail, "bytes_sent:").unwrap_or(0)));
    assert_eq!(info.bytes_retrans(), Some(number(detail, "bytes_retrans:").unwrap_or(0)));
    assert_eq!(info.segs_out(), Some(number(detail, "segs_out:").unwrap_or(0)));
    assert_eq!(info.data_segs_out(), Some(number(detail, "data_segs_out:").unwrap_or(0)));
    assert_eq!(info.notsent_bytes(), Some(number(detail, "notsent:").unwrap_or(0)));
    assert_eq!(info.snd_wnd(), Some(number(detail, "snd_wnd:").unwrap_or(0)), "{detail}");
    assert_eq!(info.delivered(), Some(number(detail, "delivered:").unwrap_or(0)));
    // This one went on between the dump and `ss`.
    if let Some((later, _)) = field(detail, "rwnd_limited:").and_then(|l| l.split_once("ms")) {
        let passed = later.parse::<u64>().unwrap() - info.rwnd_limited_us().unwrap() / 1000;
        assert!(passed < 500, "{passed} ms");
    }
}

#[test]
fn udp_and_mptcp_rows_agree_with_ss() {
    for (names, file) in [
        (&[("udp4", Proto::Udp), ("udp6", Proto::Udp)][..], "udp"),
        (&[("mptcp4", Proto::Mptcp)], "mptcp"),
    ] {
        let rows = inet(names);
        let text = text(file);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .filter(|l| !l.starts_with('\t'))
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(rows.len(), lines.len());
        let ours = |i: usize| {
            let remote = match rows.state[i] {
                SockState::ESTAB => rows.remote_endpoint(i).to_string(),
                _ => "0.0.0.0:*".to_owned(),
            };
            vec![
                rows.state[i].name().to_owned(),
                rows.rqueue[i].to_string(),
                rows.wqueue[i].to_string(),
                rows.local_endpoint(i).to_string(),
                remote,
            ]
        };
        for i in 0..rows.len() {
            assert!(lines.iter().any(|l| *l == ours(i)), "{:?} not in {lines:?}", ours(i));
            assert!(rows.skmem(i).rb() > Some(0));
            assert_eq!(rows.tcp_info(i), None);
        }
    }
}

#[test]
fn unix_rows_agree_with_ss() {
    let (mut rows, mut seen) = (UnixRows::default(), CookieMap::default());
    seen.reset(0);
    let mut sink = UnixSink { rows: &mut rows, seen: &mut seen, bad: 0 };
    let steps: Vec<Step> = datagrams("unix").iter().map(|d| sink.datagram(d, 9)).collect();
    assert_eq!((steps.last(), sink.bad), (Some(&Step::Done), 0));
    let text = text("unix");
    assert_eq!(rows.len(), text.lines().count());
    for line in text.lines() {
        let [kind, state, rqueue, wqueue, name, inode, _, peer] =
            line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        let inode: u32 = inode.parse().unwrap();
        let i = rows.inode.iter().position(|n| *n == inode).unwrap();
        assert_eq!(rows.kind[i], if kind == "u_str" { 1 } else { 2 });
        assert_eq!(rows.state[i].name(), state);
        assert_eq!(rows.rqueue[i].to_string(), rqueue);
        assert_eq!(rows.wqueue[i].to_string(), wqueue);
        assert_eq!(rows.peer[i].to_string(), peer);
        let shown = String::from_utf8_lossy(rows.name(i)).replace('\0', "@");
        assert_eq!(if shown.is_empty() { "*" } else { &shown }, name);
    }
}

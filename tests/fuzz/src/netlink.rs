//! Answers of netlink: sock_diag, rtnetlink, ethtool, ctnetlink.

use stallscope::collect::netdev::{ethtool, link, origins, qdisc};
use stallscope::collect::sockets::cookies::CookieMap;
use stallscope::collect::sockets::diag::InetSink;
use stallscope::collect::sockets::nlmsg::{Message, Messages};
use stallscope::collect::sockets::unix_diag::UnixSink;
use stallscope::sample::sockets::{InetRows, Proto, UnixRows};

/// One datagram of an answer, whatever was asked.
pub fn datagram(data: &[u8]) {
    // The answer to the question of its own first message.
    let seq = data.get(8..12).and_then(|b| b.first_chunk()).map_or(9, |b| u32::from_ne_bytes(*b));
    for proto in [Proto::Tcp, Proto::Udp, Proto::Mptcp] {
        inet(data, seq, proto);
    }
    let (mut rows, mut seen) = (UnixRows::default(), CookieMap::default());
    seen.reset(4);
    UnixSink { rows: &mut rows, seen: &mut seen, bad: 0 }.datagram(data, seq);
    assert_eq!(rows.len(), rows.name_end.len());
    let mut messages = Messages::new(data);
    for m in messages.by_ref() {
        if let Message::Data(_, _, payload) = m {
            routing(payload);
        }
    }
    let _ = messages.torn();
    routing(data);
}

fn inet(data: &[u8], seq: u32, proto: Proto) {
    let (mut rows, mut seen, mut marks) = (InetRows::default(), CookieMap::default(), Vec::new());
    seen.reset(0);
    let mut sink = InetSink {
        rows: &mut rows,
        seen: &mut seen,
        marks: &mut marks,
        subflows: proto == Proto::Tcp,
        proto,
        bad: 0,
        twice: 0,
    };
    sink.datagram(data, seq);
    let n = rows.len();
    for column in [rows.proto.len(), rows.state.len(), rows.local.len(), rows.skmem.len()] {
        assert_eq!(column, n);
    }
    for i in 0..n {
        let _ = (rows.local_endpoint(i), rows.remote_endpoint(i), rows.skmem(i).r());
        let _ = rows.tcp_info(i);
    }
}

fn routing(payload: &[u8]) {
    if let Some(l) = link::LinkMsg::parse(payload) {
        let _ = l.attrs();
    }
    for class in [false, true] {
        if let Some(q) = qdisc::TcMsg::parse(payload, class) {
            let _ = q.row(class, "x".into());
        }
    }
    let _ = origins::Entry::parse(payload);
    let _ = (ethtool::family(payload), ethtool::speed(payload), ethtool::channels(payload));
    let _ = ethtool::device_name(payload);
}

//! Replies built by hand, after `linux/inet_diag.h`.
#![allow(clippy::unwrap_used)]

use super::super::nlmsg::{put_attr, put_message};
use super::*;
use crate::sample::sockets::{TCP_INFO_MAX, TcpInfo, map_v4};
use proptest::prelude::*;

/// A socket to make a reply or a row of.
#[derive(Clone, Copy)]
pub(crate) struct Fake {
    pub(crate) family: u8,
    pub(crate) state: u8,
    pub(crate) timer: u8,
    pub(crate) retrans: u8,
    pub(crate) cookie: u64,
    pub(crate) expires: u32,
    pub(crate) rqueue: u32,
    pub(crate) wqueue: u32,
    /// Sent by [`Fake::rows`] when any word is set.
    pub(crate) skmem: [u32; 9],
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            family: AF_INET,
            state: 1,
            timer: 0,
            retrans: 0,
            cookie: 1,
            expires: 0,
            rqueue: 0,
            wqueue: 0,
            skmem: [0; 9],
        }
    }
}

impl Fake {
    /// Appends a reply to request 9: 127.0.0.1:8080 to 127.0.0.2:443.
    pub(crate) fn put(&self, out: &mut Vec<u8>, attrs: &[(u16, &[u8])]) {
        put_message(out, SOCK_DIAG_BY_FAMILY, 2, 9, |b| {
            b.extend_from_slice(&[self.family, self.state, self.timer, self.retrans]);
            b.extend_from_slice(&8080u16.to_be_bytes());
            b.extend_from_slice(&443u16.to_be_bytes());
            for addr in [[127, 0, 0, 1], [127, 0, 0, 2]] {
                if self.family == AF_INET {
                    b.extend_from_slice(&addr);
                    b.extend_from_slice(&[0; 12]);
                } else {
                    b.extend_from_slice(&map_v4(addr));
                }
            }
            b.extend_from_slice(&0u32.to_ne_bytes());
            b.extend_from_slice(&(self.cookie as u32).to_ne_bytes());
            b.extend_from_slice(&((self.cookie >> 32) as u32).to_ne_bytes());
            for word in [self.expires, self.rqueue, self.wqueue, 1000, 4711] {
                b.extend_from_slice(&word.to_ne_bytes());
            }
            for (kind, body) in attrs {
                put_attr(b, *kind, body);
            }
        });
    }

    /// The rows that replies without further attributes give.
    pub(crate) fn rows(fakes: &[Self]) -> InetRows {
        let mut bytes = Vec::new();
        for fake in fakes {
            let words = fake.skmem.map(u32::to_ne_bytes).concat();
            let sent: &[(u16, &[u8])] = &[(SKMEMINFO, &words)];
            fake.put(&mut bytes, if fake.skmem == [0; 9] { &[] } else { sent });
        }
        parse(&bytes).rows
    }
}

pub(crate) struct Parsed {
    pub(crate) rows: InetRows,
    pub(crate) step: Step,
    pub(crate) bad: u32,
    pub(crate) twice: u32,
    pub(crate) marks: Vec<(u64, u32)>,
}

pub(crate) fn parse_as(bytes: &[u8], proto: Proto) -> Parsed {
    let (mut rows, mut seen, mut marks) = (InetRows::default(), CookieMap::default(), Vec::new());
    seen.reset(0);
    let mut sink = InetSink {
        rows: &mut rows,
        seen: &mut seen,
        marks: &mut marks,
        subflows: false,
        proto,
        bad: 0,
        twice: 0,
    };
    let step = sink.datagram(bytes, 9);
    let (bad, twice) = (sink.bad, sink.twice);
    Parsed { rows, step, bad, twice, marks }
}

pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    parse_as(bytes, Proto::Tcp)
}

fn one(fake: Fake, attrs: &[(u16, &[u8])]) -> InetRows {
    let mut bytes = Vec::new();
    fake.put(&mut bytes, attrs);
    let got = parse(&bytes);
    assert_eq!((got.step, got.bad, got.rows.len()), (Step::More, 0, 1));
    got.rows
}

#[test]
fn the_header_alone_is_a_whole_reply() {
    let fake =
        Fake { state: 6, timer: 3, cookie: 0x5_0000_0007, expires: 59_000, ..Fake::default() };
    let mut bytes = Vec::new();
    fake.put(&mut bytes, &[]);
    assert_eq!(bytes.len(), nlmsg::HEADER + INET_MSG);
    let rows = one(fake, &[]);
    assert_eq!(rows.local_endpoint(0).to_string(), "127.0.0.1:8080");
    assert_eq!(rows.remote_endpoint(0).to_string(), "127.0.0.2:443");
    assert_eq!((rows.cookie[0], rows.state[0]), (0x5_0000_0007, SockState::TIME_WAIT));
    assert_eq!((rows.timer[0], rows.expires_ms[0]), (SockTimer::TIMEWAIT, 59_000));
    assert_eq!((rows.uid[0], rows.inode[0]), (1000, 4711));
    assert_eq!((rows.skmem(0).r(), rows.tcp_info(0), rows.cgroup[0]), (None, None, 0));
}

#[test]
fn a_timer_that_is_overdue_expires_in_0_ms() {
    for (sent, shown) in [(1 << 31, 1 << 31), ((1 << 31) + 1, 0), (u32::MAX, 0), (204, 204)] {
        assert_eq!(one(Fake { expires: sent, ..Fake::default() }, &[]).expires_ms[0], shown);
    }
}

#[test]
fn timers_of_newer_kernels_are_kept() {
    let rows = one(Fake { timer: 5, ..Fake::default() }, &[]);
    assert_eq!(rows.timer[0], SockTimer::DELACK);
}

#[test]
fn skmem_has_as_many_words_as_were_sent() {
    let words: Vec<u8> = (1..=10u32).flat_map(u32::to_ne_bytes).collect();
    for (bytes, want) in [(28, 7u8), (32, 8), (36, 9), (40, 9), (0, 0), (30, 7)] {
        let rows = one(Fake::default(), &[(SKMEMINFO, &words[..bytes])]);
        assert_eq!(rows.skmem_words[0], want, "{bytes} bytes");
        let skmem = rows.skmem(0);
        assert_eq!(skmem.w(), (want >= 6).then_some(6));
        assert_eq!(skmem.bl(), (want >= 8).then_some(8));
        assert_eq!(skmem.d(), (want >= 9).then_some(9));
    }
}

/// The lengths that mainline versions send, and what is between and beyond.
#[test]
fn tcp_info_is_read_by_length() {
    let raw: Vec<u8> = (0..=255u8).chain(0..=255).collect();
    for len in [104, 120, 136, 144, 160, 168, 192, 200, 224, 231, 232, 240, 248, 280, 300, 400] {
        let rows = one(Fake::default(), &[(INFO, &raw[..len])]);
        let info = rows.tcp_info(0).unwrap();
        assert_eq!(info.as_bytes(), &raw[..len.min(TCP_INFO_MAX)]);
        assert_eq!(info.rto_us(), Some(u32::from_ne_bytes([8, 9, 10, 11])));
        assert_eq!(info.total_retrans().is_some(), len >= 104);
        assert_eq!(info.pacing_rate().is_some(), len >= 112);
        assert_eq!(info.segs_out().is_some(), len >= 140);
        assert_eq!(info.data_segs_out().is_some(), len >= 160);
        assert_eq!(info.snd_wnd().is_some(), len >= 232);
        assert_eq!(info.total_rto().is_some(), len >= 242);
        for (name, off, size) in TcpInfo::FIELDS {
            assert!(off + size <= TCP_INFO_MAX, "{name}");
        }
    }
}

#[test]
fn the_info_of_listeners_and_of_mptcp_is_not_kept() {
    let raw = [0u8; 248];
    let rows = one(Fake { state: 10, ..Fake::default() }, &[(INFO, &raw)]);
    assert_eq!((rows.tcp_info(0), rows.infos.len()), (None, 0));
    let mut bytes = Vec::new();
    Fake::default().put(&mut bytes, &[(INFO, &raw)]);
    let got = parse_as(&bytes, Proto::Mptcp);
    assert_eq!((got.rows.proto[0], got.rows.infos.len()), (Proto::Mptcp, 0));
}

#[test]
fn cgroup_and_mark_are_taken_by_length() {
    let rows = one(Fake::default(), &[(8, &[0]), (CGROUP_ID, &77u64.to_ne_bytes())]);
    assert_eq!(rows.cgroup[0], 77);
    assert_eq!(one(Fake::default(), &[(CGROUP_ID, &[1, 2, 3, 4])]).cgroup[0], 0);
    let mut bytes = Vec::new();
    let mark = 5u32.to_ne_bytes();
    Fake { timer: 1, retrans: 2, cookie: 8, ..Fake::default() }.put(&mut bytes, &[(MARK, &mark)]);
    Fake { timer: 1, retrans: 1, cookie: 9, ..Fake::default() }.put(&mut bytes, &[(MARK, &mark)]);
    assert_eq!(parse(&bytes).marks, [(8, 5)]);
}

#[test]
fn attributes_that_lie_cost_only_themselves() {
    let skmem = [1u8; 36];
    let mut good = Vec::new();
    Fake::default().put(&mut good, &[(8, &[0]), (SKMEMINFO, &skmem)]);
    let at = nlmsg::HEADER + INET_MSG;
    for (at, len) in [(at, 0u16), (at, 3), (at, u16::MAX), (at + 8, 3), (at + 8, 41)] {
        let mut bytes = good.clone();
        bytes[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        let got = parse(&bytes);
        assert_eq!((got.rows.len(), got.bad), (1, 0));
        assert_eq!(got.rows.skmem_words[0], 0);
    }
}

#[test]
fn a_v4_mapped_socket_of_the_v6_dump_reads_as_v4() {
    let rows = one(Fake { family: AF_INET6, ..Fake::default() }, &[]);
    assert_eq!(rows.remote_endpoint(0).to_string(), "127.0.0.2:443");
    let id = ExactId::of(&rows, 0).unwrap();
    assert_eq!(id.family(), AF_INET);
}

#[test]
fn the_second_copy_of_a_socket_is_dropped() {
    let mut bytes = Vec::new();
    for cookie in [1, 2, 2, 3, 1] {
        Fake { cookie, ..Fake::default() }.put(&mut bytes, &[]);
    }
    let got = parse(&bytes);
    let Parsed { mut rows, twice, .. } = got;
    assert!(columns_agree(&rows));
    rows.cookie.sort_unstable();
    assert_eq!((rows.cookie, twice), (vec![1, 2, 3], 2));
}

#[test]
fn other_requests_and_other_families_are_passed_over() {
    let mut bytes = Vec::new();
    Fake::default().put(&mut bytes, &[]);
    bytes[8..12].copy_from_slice(&8u32.to_ne_bytes());
    put_message(&mut bytes, 3, 0, 8, |b| b.extend_from_slice(&0i32.to_ne_bytes()));
    put_message(&mut bytes, 2, 0, 8, |b| b.extend_from_slice(&(-1i32).to_ne_bytes()));
    Fake { family: 1, ..Fake::default() }.put(&mut bytes, &[]);
    let got = parse(&bytes);
    assert_eq!((got.rows.len(), got.bad, got.step), (0, 1, Step::More));
}

#[test]
fn an_error_in_mid_stream_ends_the_answer() {
    for (kind, errno, want) in
        [(2u16, -12i32, Step::Failed(12)), (3, -95, Step::Failed(95)), (3, 0, Step::Done)]
    {
        let mut bytes = Vec::new();
        Fake::default().put(&mut bytes, &[]);
        put_message(&mut bytes, kind, 0, 9, |b| b.extend_from_slice(&errno.to_ne_bytes()));
        Fake { cookie: 2, ..Fake::default() }.put(&mut bytes, &[]);
        let got = parse(&bytes);
        assert_eq!((got.rows.len(), got.step), (1, want));
    }
}

#[test]
fn requests_are_the_kernels_structs() {
    let request = InetRequest {
        family: AF_INET,
        proto: Proto::Tcp,
        ext: EXT_SKMEMINFO | EXT_INFO,
        states: ALL_STATES,
    };
    let mut out = Vec::new();
    request.put_dump(&mut out, 9);
    assert_eq!(out.len(), 72);
    assert_eq!(out[..4], 72u32.to_ne_bytes());
    assert_eq!(out[4..8], [20u16.to_ne_bytes(), 0x301u16.to_ne_bytes()].concat());
    assert_eq!(out[16..20], [2, 6, 0x42, 0]);
    let mut out = Vec::new();
    InetRequest { proto: Proto::Mptcp, ..request }.put_dump(&mut out, 9);
    assert_eq!(out[16..20], [2, 0, 0x42, 0]);
    assert_eq!(out[72..76], [8u16.to_ne_bytes(), 3u16.to_ne_bytes()].concat());
    assert_eq!(out[76..80], 262u32.to_ne_bytes());
    // struct inet_diag_req of linux/inet_diag.h: 60 bytes, states at 52.
    let mut out = Vec::new();
    InetRequest { family: BOTH_FAMILIES, ..request }.put_dump(&mut out, 9);
    assert_eq!(out.len(), 16 + 60);
    assert_eq!(out[4..8], [18u16.to_ne_bytes(), 0x301u16.to_ne_bytes()].concat());
    assert_eq!(out[19], 0x42);
    assert_eq!(out[68..72], ALL_STATES.to_ne_bytes());
    let rows = one(Fake { cookie: 0x2_0000_0001, ..Fake::default() }, &[]);
    let id = ExactId::of(&rows, 0).unwrap();
    let mut out = Vec::new();
    request.put_exact(&mut out, 9, &id);
    let mut reply = Vec::new();
    Fake { cookie: 0x2_0000_0001, ..Fake::default() }.put(&mut reply, &[]);
    // struct inet_diag_sockid is the same in request and reply.
    assert_eq!(out[24..72], reply[20..68]);
    assert_eq!(out[6..8], 1u16.to_ne_bytes());
}

fn a_datagram() -> Vec<u8> {
    let mut bytes = Vec::new();
    let info = [7u8; 280];
    let skmem = [1u8; 36];
    for cookie in 1..4 {
        let attrs: [(u16, &[u8]); 4] =
            [(8, &[3]), (CGROUP_ID, &[1; 8]), (SKMEMINFO, &skmem), (INFO, &info)];
        Fake { cookie, ..Fake::default() }.put(&mut bytes, &attrs);
    }
    put_message(&mut bytes, 3, 0, 9, |b| b.extend_from_slice(&0i32.to_ne_bytes()));
    bytes
}

fn columns_agree(r: &InetRows) -> bool {
    let n = r.len();
    [r.proto.len(), r.state.len(), r.local.len(), r.skmem.len(), r.info.len(), r.cgroup.len()]
        .iter()
        .all(|l| *l == n)
        && r.info
            .iter()
            .all(|i| *i == crate::sample::sockets::NO_INFO || (*i as usize) < r.infos.len())
}

#[test]
fn a_cut_at_any_byte_gives_a_shorter_table() {
    let bytes = a_datagram();
    let whole = parse(&bytes);
    assert_eq!((whole.rows.len(), whole.step), (3, Step::Done));
    for cut in 0..bytes.len() {
        let part = parse(&bytes[..cut]);
        assert!(part.rows.len() <= 3 && columns_agree(&part.rows));
        assert_eq!(part.rows.cookie[..], whole.rows.cookie[..part.rows.len()]);
        assert_eq!(part.step, Step::More);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(columns_agree(&parse(&bytes).rows));
    }

    #[test]
    fn a_damaged_datagram_never_panics(
        hits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = a_datagram();
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        prop_assert!(columns_agree(&parse(&bytes).rows));
    }
}

//! `RTM_GETROUTE`: would a packet of this socket find a way out? A missing route looks like
//! a silent peer in every counter, so sockets that retransmit are checked, a few per tick.
//!
//! The question is put as TCP itself puts it: destination, source, bound interface, uid, and
//! the socket's firewall mark where sock_diag told it (that needs CAP_NET_ADMIN). Rules that
//! match ports are not followed.

use std::io;

use super::diag;
use super::netlink::{Buffers, DumpError, NlSocket};
use super::nlmsg::{self, Attrs, Message, Messages, Step};
use crate::sample::sockets::{
    InetRows, NeighState, NextHop, RouteAnswer, RouteOutcome, SockState, SockTimer, map_v4,
};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_MARK: u16 = 16;
const RTA_UID: u16 = 25;
const NDA_DST: u16 = 1;
const NUD_INCOMPLETE: u16 = 0x01;
const NUD_FAILED: u16 = 0x20;
const IFLA_IFNAME: u16 = 3;
/// Length of `struct rtmsg`.
const RTMSG: usize = 12;
/// Offset of `ndm_state` in `struct ndmsg`.
const NDM_STATE: usize = 8;
/// Length of `struct ifinfomsg`.
const IFINFOMSG: usize = 16;
const ENOENT: i32 = 2;
const EPROTO: i32 = 71;

/// Questions asked of the kernel per reading.
const MAX_LOOKUPS: usize = 64;
/// Sockets that share the answers.
const MAX_ANSWERS: usize = 256;
/// A timer that fired this often makes the route suspicious.
const MIN_RETRANS: u8 = 2;

/// A round trip so much above the shortest may be a queue of ours, us.
const BLOAT_US: u32 = 50_000;

/// What decides a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    local: [u8; 16],
    remote: [u8; 16],
    oif: u32,
    uid: u32,
    mark: u32,
}

/// Looks up the routes of the `suspects` in `rows` that retransmit, or whose packets wait in a
/// queue of this host.
///
/// # Errors
/// When the exchange fails; the socket is spent then.
pub fn answers(
    socket: &mut NlSocket,
    buffers: &mut Buffers,
    rows: &InetRows,
    suspects: impl Iterator<Item = u32>,
    marks: &[(u64, u32)],
) -> io::Result<Vec<RouteAnswer>> {
    let mut known: Vec<(Key, RouteOutcome)> = Vec::new();
    let mut out = Vec::new();
    for i in suspects.map(|i| i as usize) {
        let Some(cookie) = rows.cookie.get(i).copied().filter(|_| is_candidate(rows, i)) else {
            continue;
        };
        let mark = marks.iter().find(|(c, _)| *c == cookie).map_or(0, |(_, mark)| *mark);
        let Some(key) = key(rows, i, mark) else { continue };
        let outcome = match known.iter().find(|(k, _)| *k == key) {
            Some((_, outcome)) => outcome.clone(),
            None if known.len() < MAX_LOOKUPS => {
                let outcome = lookup(socket, buffers, &key, &known)?;
                known.push((key, outcome.clone()));
                outcome
            }
            None => continue,
        };
        out.push(RouteAnswer { cookie, outcome });
        if out.len() >= MAX_ANSWERS {
            break;
        }
    }
    Ok(out)
}

/// Is the route of this socket worth a question?
pub fn is_candidate(rows: &InetRows, i: usize) -> bool {
    retransmits(rows, i) || is_bloated(rows, i)
}

/// Its round trip is far above its shortest, with something below TCP: the device matters.
fn is_bloated(rows: &InetRows, i: usize) -> bool {
    let times = || {
        let info = rows.infos.get(*rows.info.get(i)? as usize)?;
        Some((info.rtt_us()?, info.min_rtt_us()?))
    };
    rows.skmem.get(i).is_some_and(|w| w[2] > 0)
        && times().is_some_and(|(rtt, min)| rtt >= min.saturating_add(BLOAT_US) && rtt / 2 >= min)
}

fn retransmits(rows: &InetRows, i: usize) -> bool {
    rows.timer.get(i) == Some(&SockTimer::ON)
        && rows.retrans.get(i).is_some_and(|n| *n >= MIN_RETRANS)
        && rows.state.get(i).is_some_and(|s| s.may_send() || *s == SockState::SYN_SENT)
}

fn key(rows: &InetRows, i: usize, mark: u32) -> Option<Key> {
    Some(Key {
        local: *rows.local.get(i)?,
        remote: *rows.remote.get(i)?,
        oif: *rows.ifindex.get(i)?,
        uid: *rows.uid.get(i)?,
        mark,
    })
}

fn lookup(
    socket: &mut NlSocket,
    buffers: &mut Buffers,
    key: &Key,
    known: &[(Key, RouteOutcome)],
) -> io::Result<RouteOutcome> {
    let mut found = None;
    let asked = socket.dump(
        buffers,
        |tx, seq| put_route(tx, seq, key),
        |bytes, seq| one_message(bytes, seq, RTM_NEWROUTE, |body| found = Some(way_of(body))),
    );
    match asked {
        Ok(()) => {}
        Err(DumpError::NoModule(errno) | DumpError::Kernel(errno)) => {
            return Ok(RouteOutcome::Errno(errno));
        }
        Err(DumpError::Transport(e)) => return Err(e),
    }
    let Some((ifindex, gateway)) = found.flatten() else {
        return Ok(RouteOutcome::Errno(EPROTO));
    };
    let name = known.iter().find_map(|(_, outcome)| match outcome {
        RouteOutcome::Via { ifindex: i, dev, .. } if *i == ifindex => Some(dev.clone()),
        _ => None,
    });
    let dev = match name {
        Some(dev) => dev,
        None => link_name(socket, buffers, ifindex)?,
    };
    let hop = neighbour(socket, buffers, ifindex, gateway.unwrap_or(key.remote))?;
    Ok(RouteOutcome::Via { ifindex, dev, hop })
}

/// What the neighbour table has of a next hop; `None` where the kernel does not tell.
fn neighbour(
    socket: &mut NlSocket,
    buffers: &mut Buffers,
    ifindex: u32,
    addr: [u8; 16],
) -> io::Result<Option<NextHop>> {
    let mut state = None;
    let asked = socket.dump(
        buffers,
        |tx, seq| {
            let v4 = family_of(addr) == diag::AF_INET;
            nlmsg::put_message(tx, RTM_GETNEIGH, nlmsg::F_REQUEST, seq, |body| {
                body.extend_from_slice(&[family_of(addr), 0, 0, 0]);
                body.extend_from_slice(&ifindex.to_ne_bytes());
                body.extend_from_slice(&[0; 4]);
                nlmsg::put_attr(body, NDA_DST, if v4 { &addr[12..] } else { &addr });
            });
        },
        |bytes, seq| one_message(bytes, seq, RTM_NEWNEIGH, |body| state = state_of(body)),
    );
    let state = match asked {
        Ok(()) => state,
        Err(DumpError::NoModule(ENOENT) | DumpError::Kernel(ENOENT)) => Some(NeighState::Absent),
        Err(DumpError::NoModule(_) | DumpError::Kernel(_)) => None,
        Err(DumpError::Transport(e)) => return Err(e),
    };
    Ok(state.map(|state| NextHop { addr, state }))
}

fn state_of(payload: &[u8]) -> Option<NeighState> {
    let bits = payload.get(NDM_STATE..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))?;
    Some(match bits {
        0 => NeighState::Absent,
        NUD_INCOMPLETE => NeighState::Incomplete,
        NUD_FAILED => NeighState::Failed,
        _ => NeighState::Known,
    })
}

/// Name of an interface; its number when it went away meanwhile.
fn link_name(socket: &mut NlSocket, buffers: &mut Buffers, ifindex: u32) -> io::Result<String> {
    let mut name = None;
    let asked = socket.dump(
        buffers,
        |tx, seq| {
            nlmsg::put_message(tx, RTM_GETLINK, nlmsg::F_REQUEST, seq, |body| {
                body.extend_from_slice(&[0; 4]);
                body.extend_from_slice(&ifindex.to_ne_bytes());
                body.extend_from_slice(&[0; 8]);
            });
        },
        |bytes, seq| one_message(bytes, seq, RTM_NEWLINK, |body| name = name_of(body)),
    );
    match asked {
        Err(DumpError::Transport(e)) => Err(e),
        _ => Ok(name.unwrap_or_else(|| format!("if{ifindex}"))),
    }
}

fn put_route(tx: &mut Vec<u8>, seq: u32, key: &Key) {
    let family = family_of(key.remote);
    let v4 = family == diag::AF_INET;
    nlmsg::put_message(tx, RTM_GETROUTE, nlmsg::F_REQUEST, seq, |body| {
        let bits = if v4 { 32 } else { 128 };
        body.extend_from_slice(&[family, bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let addr = |a: &[u8; 16]| if v4 { a[12..].to_vec() } else { a.to_vec() };
        nlmsg::put_attr(body, RTA_DST, &addr(&key.remote));
        nlmsg::put_attr(body, RTA_SRC, &addr(&key.local));
        nlmsg::put_attr(body, RTA_UID, &key.uid.to_ne_bytes());
        if key.oif != 0 {
            nlmsg::put_attr(body, RTA_OIF, &key.oif.to_ne_bytes());
        }
        if key.mark != 0 {
            nlmsg::put_attr(body, RTA_MARK, &key.mark.to_ne_bytes());
        }
    });
}

/// An answer that is one message: no DONE follows.
fn one_message(bytes: &[u8], seq: u32, kind: u16, mut take: impl FnMut(&[u8])) -> Step {
    for message in Messages::new(bytes) {
        match message {
            Message::Data(k, s, payload) if k == kind && s == seq => {
                take(payload);
                return Step::Done;
            }
            Message::Error(s, errno) | Message::Done(s, errno) if s == seq => {
                return if errno == 0 { Step::Done } else { Step::Failed(errno) };
            }
            _ => {}
        }
    }
    Step::More
}

/// Interface and gateway of a route.
fn way_of(payload: &[u8]) -> Option<(u32, Option<[u8; 16]>)> {
    let attr = |wanted: u16| {
        let mut all = Attrs(payload.get(RTMSG..)?);
        all.find(|(kind, _)| *kind == wanted).map(|(_, body)| body)
    };
    let oif = attr(RTA_OIF)?.first_chunk().map(|b| u32::from_ne_bytes(*b))?;
    let gateway = attr(RTA_GATEWAY).and_then(|g| match g.len() {
        4 => g.first_chunk().map(|b| map_v4(*b)),
        16 => g.first_chunk().copied(),
        _ => None,
    });
    Some((oif, gateway))
}

fn family_of(addr: [u8; 16]) -> u8 {
    let id = diag::ExactId { local: addr, remote: addr, lport: 0, rport: 0, ifindex: 0, cookie: 0 };
    id.family()
}

fn name_of(payload: &[u8]) -> Option<String> {
    let (_, body) = Attrs(payload.get(IFINFOMSG..)?).find(|(kind, _)| *kind == IFLA_IFNAME)?;
    let name = body.split(|b| *b == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::collect::sockets::diag::tests::Fake;
    use crate::collect::sockets::netlink;
    use crate::sample::sockets::map_v4;

    fn ask(rows: &InetRows) -> Vec<RouteAnswer> {
        let mut socket = NlSocket::open(netlink::ROUTE).unwrap();
        let all = 0..rows.len() as u32;
        answers(&mut socket, &mut Buffers::default(), rows, all, &[]).unwrap()
    }

    #[test]
    fn loopback_goes_through_lo_for_both_families() {
        let v4 = Fake { cookie: 1, timer: 1, retrans: 2, ..Fake::default() };
        let v6 =
            Fake { cookie: 2, family: diag::AF_INET6, timer: 1, retrans: 2, ..Fake::default() };
        let mut rows = Fake::rows(&[v4, v6]);
        rows.local[1] = std::net::Ipv6Addr::LOCALHOST.octets();
        rows.remote[1] = std::net::Ipv6Addr::LOCALHOST.octets();
        let got = ask(&rows);
        assert_eq!(got[0].cookie, 1);
        let Some(RouteOutcome::Via { dev, .. }) = got.first().map(|a| &a.outcome) else {
            panic!("{got:?}");
        };
        assert_eq!(dev, "lo");
        assert_eq!(got.len(), 2);
    }

    #[test]
    fn a_source_that_is_not_ours_is_refused_as_tcp_is() {
        let mut rows = Fake::rows(&[Fake { cookie: 1, timer: 1, retrans: 2, ..Fake::default() }]);
        rows.local[0] = map_v4([192, 0, 2, 1]);
        rows.remote[0] = map_v4([192, 0, 2, 2]);
        assert!(matches!(ask(&rows)[0].outcome, RouteOutcome::Errno(e) if e > 0));
    }

    #[test]
    fn only_sockets_that_retransmit_are_asked_for() {
        let rows = Fake::rows(&[
            Fake { cookie: 1, timer: 1, retrans: 1, ..Fake::default() },
            Fake { cookie: 2, timer: 4, retrans: 5, ..Fake::default() },
            Fake { cookie: 3, timer: 1, retrans: 9, state: 6, ..Fake::default() },
        ]);
        assert_eq!(ask(&rows), []);
    }
}

//! Parses one socket from its logical line: `ss` with any options, or `netstat -tan`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::number::{timer_ms, uint};
use super::info::{Info, RATES};
use crate::sample::sockets::{Proto, SockState, SockTimer};

/// What a line says about a socket. `None`: not printed.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) proto: Proto,
    pub(super) state: SockState,
    pub(super) rqueue: u32,
    pub(super) wqueue: u32,
    pub(super) local: [u8; 16],
    pub(super) remote: [u8; 16],
    pub(super) lport: u16,
    pub(super) rport: u16,
    /// Which timer, ms until it fires, and the count after it.
    pub(super) timer: Option<(SockTimer, u32, u8)>,
    pub(super) uid: Option<u32>,
    pub(super) inode: Option<u32>,
    /// `sk:`, 0 if missing.
    pub(super) cookie: u64,
    pub(super) skmem: [u32; 9],
    pub(super) skmem_words: u8,
    pub(super) info: Option<Box<Info>>,
    /// Process id and name.
    pub(super) owner: Option<(u32, String)>,
    /// Which command printed it: sockets of one have the same options.
    pub(super) run: u32,
}

/// What a line turned out to be.
#[derive(Debug)]
pub(super) enum Parsed {
    /// A TCP, MPTCP or UDP socket.
    Inet(Box<Socket>),
    /// A socket of a family that no rule here uses.
    Other,
}

/// State by the names of ss and netstat.
pub(super) fn state(word: &str) -> Option<SockState> {
    Some(match word {
        "ESTAB" | "ESTABLISHED" => SockState::ESTAB,
        "SYN-SENT" | "SYN_SENT" => SockState::SYN_SENT,
        "SYN-RECV" | "SYN_RECV" => SockState::SYN_RECV,
        "FIN-WAIT-1" | "FIN_WAIT1" => SockState::FIN_WAIT1,
        "FIN-WAIT-2" | "FIN_WAIT2" => SockState::FIN_WAIT2,
        "TIME-WAIT" | "TIME_WAIT" => SockState::TIME_WAIT,
        "UNCONN" | "CLOSE" => SockState::CLOSE,
        "CLOSE-WAIT" | "CLOSE_WAIT" => SockState::CLOSE_WAIT,
        "LAST-ACK" | "LAST_ACK" => SockState::LAST_ACK,
        "LISTEN" => SockState::LISTEN,
        "CLOSING" => SockState::CLOSING,
        _ => return None,
    })
}

/// The first column when several families are listed.
pub(super) fn is_netid(word: &str) -> bool {
    matches!(
        word,
        "tcp"
            | "tcp6"
            | "udp"
            | "udp6"
            | "mptcp"
            | "raw"
            | "u_str"
            | "u_dgr"
            | "u_seq"
            | "nl"
            | "p_raw"
            | "p_dgr"
            | "sctp"
            | "dccp"
            | "v_str"
            | "v_dgr"
            | "tipc"
            | "xdp"
            | "icmp6"
            | "???"
    )
}

/// Words with their place, `users:((...))` as one.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let end = if rest.starts_with("users:((") {
            // Names may contain anything; the end is the only `))` before a blank.
            rest.match_indices("))")
                .map(|(i, _)| i + 2)
                .find(|i| rest.get(*i..).is_none_or(|r| r.is_empty() || r.starts_with([' ', '\t'])))
        } else {
            None
        };
        let end = end.or_else(|| rest.find([' ', '\t'])).unwrap_or(rest.len());
        let (word, tail) = rest.split_at_checked(end)?;
        rest = tail;
        Some(word)
    })
}

/// Parses a logical line. `stateless`: the header had no State column, as with
/// `ss state established`.
pub(super) fn parse(text: &str, stateless: bool) -> Option<Parsed> {
    let mut w = words(text).peekable();
    let mut netid = None;
    let mut word = *w.peek()?;
    if is_netid(word) {
        netid = w.next();
        word = *w.peek()?;
        if word.as_bytes().first()?.is_ascii_digit() && !stateless {
            return netstat(netid?, w);
        }
    }
    let state = match state(word) {
        Some(s) => {
            w.next();
            s
        }
        None if stateless => SockState::ESTAB,
        None => return None,
    };
    let (rqueue, wqueue) = (queue(w.next()?)?, queue(w.next()?)?);
    let proto = match netid {
        Some("udp" | "udp6") => Proto::Udp,
        Some("mptcp") => Proto::Mptcp,
        // TCP sockets that are closed are not listed.
        None if state == SockState::CLOSE => Proto::Udp,
        None | Some("tcp" | "tcp6") => Proto::Tcp,
        Some(_) => return Some(Parsed::Other),
    };
    let ((local, lport), (remote, rport)) = (endpoint(w.next()?)?, endpoint(w.next()?)?);
    let mut s = Socket {
        proto,
        state,
        rqueue,
        wqueue,
        local,
        remote,
        lport,
        rport,
        timer: None,
        uid: None,
        inode: None,
        cookie: 0,
        skmem: [0; 9],
        skmem_words: 0,
        info: None,
        owner: None,
        run: 0,
    };
    s.details(w);
    Some(Parsed::Inet(Box::new(s)))
}

/// `tcp 0 0 10.0.0.1:22 10.0.0.2:5000 ESTABLISHED 1234/sshd on (13.25/7/0)`.
fn netstat<'a>(netid: &str, mut w: impl Iterator<Item = &'a str>) -> Option<Parsed> {
    let udp = netid.starts_with("udp");
    if !udp && !netid.starts_with("tcp") {
        return Some(Parsed::Other);
    }
    let (rqueue, wqueue) = (queue(w.next()?)?, queue(w.next()?)?);
    let ((local, lport), (remote, rport)) = (endpoint(w.next()?)?, endpoint(w.next()?)?);
    let mut rest = w.peekable();
    let state = match rest.peek().and_then(|x| state(x)) {
        Some(s) => {
            rest.next();
            s
        }
        None if udp => SockState::CLOSE,
        None => return None,
    };
    let mut owner = None;
    let mut timer = None;
    while let Some(word) = rest.next() {
        if let Some((pid, name)) = word.split_once('/')
            && let Some(pid) = uint(pid).and_then(|p| u32::try_from(p).ok())
        {
            owner = Some((pid, name.to_owned()));
        }
        let kind = match word {
            "on" => SockTimer::ON,
            "keepalive" => SockTimer::KEEPALIVE,
            "timewait" => SockTimer::TIMEWAIT,
            "off" => SockTimer::OFF,
            "probe" => SockTimer::PERSIST,
            _ => continue,
        };
        // (seconds/retransmits/probes)
        let Some(numbers) = rest.peek().and_then(|n| n.strip_prefix('(')?.strip_suffix(')')) else {
            continue;
        };
        let mut n = numbers.split('/');
        let (Some(s), Some(re), Some(probes)) = (n.next(), n.next(), n.next()) else { continue };
        let seconds = super::super::number::float(s).unwrap_or(0.0);
        let times = if kind == SockTimer::PERSIST { probes } else { re };
        timer = Some((kind, (seconds * 1000.0) as u32, small(uint(times).unwrap_or(0))));
    }
    Some(Parsed::Inet(Box::new(Socket {
        proto: if udp { Proto::Udp } else { Proto::Tcp },
        state,
        // netstat shows no limit of the accept queue: 0 there is "not printed".
        rqueue: if state == SockState::LISTEN && wqueue == 0 { 0 } else { rqueue },
        wqueue,
        local,
        remote,
        lport,
        rport,
        timer,
        uid: None,
        inode: None,
        cookie: 0,
        skmem: [0; 9],
        skmem_words: 0,
        info: None,
        owner,
        run: 0,
    })))
}

fn queue(word: &str) -> Option<u32> {
    Some(uint(word)?.min(u64::from(u32::MAX)) as u32)
}

fn small(n: u64) -> u8 {
    n.min(255) as u8
}

impl Socket {
    fn details<'a>(&mut self, w: impl Iterator<Item = &'a str>) {
        let mut info = Box::<Info>::default();
        let mut w = w.peekable();
        while let Some(word) = w.next() {
            if RATES.contains(&word) {
                if let Some(value) = w.peek()
                    && info.rate(word, value)
                {
                    w.next();
                }
                continue;
            }
            let Some((key, value)) = word.split_once(':') else {
                info.flag(word);
                continue;
            };
            match key {
                "timer" => self.timer = self.timer.or_else(|| timer(value)),
                "skmem" => self.memory(value),
                "uid" => self.uid = uint(value).and_then(|n| u32::try_from(n).ok()),
                "ino" => self.inode = uint(value).and_then(|n| u32::try_from(n).ok()),
                "sk" => {
                    self.cookie =
                        u64::from_str_radix(value.trim_end_matches("<->"), 16).unwrap_or(0);
                }
                "users" => self.owner = owner(value),
                _ => {
                    info.pair(key, value);
                }
            }
        }
        if info.any {
            self.info = Some(info);
        }
    }

    /// `(r0,rb16384,t0,tb8192,f1896,w22680,o0,bl0,d0)`: in ss's order, which is not the
    /// kernel's.
    fn memory(&mut self, value: &str) {
        const ORDER: [&str; 9] = ["r", "rb", "t", "tb", "f", "w", "o", "bl", "d"];
        let inside = value.trim_start_matches('(').trim_end_matches(')');
        let mut words = 0;
        for part in inside.split(',') {
            let at = part.find(|c: char| c.is_ascii_digit()).unwrap_or(part.len());
            let (name, number) = part.split_at_checked(at).unwrap_or((part, ""));
            // Forward allocation may be negative; old ss printed that as a huge number.
            let (Some(i), Some(n)) = (ORDER.iter().position(|o| *o == name), uint(number)) else {
                return;
            };
            if i != usize::from(words) {
                return;
            }
            self.skmem[i] = n.min(u64::from(u32::MAX)) as u32;
            words += 1;
        }
        // A line cut in the middle of a number must not yield a word.
        if value.ends_with(')') && words >= 7 {
            self.skmem_words = words;
        }
    }
}

/// `(on,1.060ms,3)`.
fn timer(value: &str) -> Option<(SockTimer, u32, u8)> {
    let inside = value.strip_prefix('(')?.strip_suffix(')')?;
    let (name, rest) = inside.split_once(',')?;
    let kind = match name {
        "on" => SockTimer::ON,
        "keepalive" => SockTimer::KEEPALIVE,
        "timewait" => SockTimer::TIMEWAIT,
        "persist" => SockTimer::PERSIST,
        "delack" => SockTimer::DELACK,
        _ => return None,
    };
    // The time may contain a decimal comma: the count comes after the last one.
    let (time, times) = rest.rsplit_once(',')?;
    // A timer that is due prints an empty time.
    let ms = if time.is_empty() { 0 } else { timer_ms(time)? };
    Some((kind, ms, small(uint(times)?)))
}

/// `(("java",pid=2214,fd=9),...)`, before 2014 `(("java",2214,9))`. The first owner.
fn owner(value: &str) -> Option<(u32, String)> {
    let rest = value.strip_prefix("((\"")?;
    // Names may contain quotes: the end is the first quote before a number.
    let (name, tail) = rest
        .match_indices("\",")
        .map(|(i, m)| (rest.get(..i), rest.get(i + m.len()..)))
        .find_map(|(n, t)| {
            let t = t?.strip_prefix("pid=").or(t)?;
            t.starts_with(|c: char| c.is_ascii_digit()).then_some((n?, t))
        })?;
    let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    let pid = uint(tail.get(..digits)?).and_then(|p| u32::try_from(p).ok())?;
    Some((pid, name.chars().take(64).collect()))
}

/// Address and port: `10.0.0.1:80`, `[::1]:80`, `*:80`, `0.0.0.0:*`, `fe80::1%eth0:546`,
/// `[fe80::1]%eth0:546`, `:::80`, `10.0.0.1:http`.
fn endpoint(word: &str) -> Option<([u8; 16], u16)> {
    let (addr, port) = word.rsplit_once(':')?;
    let port = port_number(port)?;
    let addr = addr.split('%').next().unwrap_or(addr);
    let addr = addr.trim_start_matches('[').trim_end_matches(']');
    if addr == "*" || addr.is_empty() {
        return Some(([0; 16], port));
    }
    // Old ss prints the wildcard of IPv6 as `:::80`.
    let ip: IpAddr = if addr == "::" || addr == ":" {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        addr.parse().ok()?
    };
    Some(match ip {
        IpAddr::V4(a) => (mapped(a), port),
        IpAddr::V6(a) => (a.octets(), port),
    })
}

fn mapped(a: Ipv4Addr) -> [u8; 16] {
    crate::sample::sockets::map_v4(a.octets())
}

/// Without `-n` ss prints port names from its host's /etc/services; the usual ones are known here,
/// any other name counts as unknown: 0.
fn port_number(word: &str) -> Option<u16> {
    if let Some(n) = uint(word) {
        return u16::try_from(n).ok();
    }
    let name = |c: char| c.is_ascii_alphanumeric() || "*-_.+/".contains(c);
    if word.is_empty() || word.len() > 40 || !word.chars().all(name) {
        return None;
    }
    Some(match word {
        "ssh" => 22,
        "smtp" => 25,
        "domain" => 53,
        "bootps" => 67,
        "bootpc" => 68,
        "http" => 80,
        "sunrpc" => 111,
        "ntp" => 123,
        "snmp" => 161,
        "ldap" => 389,
        "https" => 443,
        "nfs" => 2049,
        "mysql" => 3306,
        "postgresql" => 5432,
        "redis" => 6379,
        "http-alt" | "webcache" => 8080,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::sockets::unmap;

    fn inet(text: &str) -> Socket {
        match parse(text, false) {
            Some(Parsed::Inet(s)) => *s,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_line_of_4_19() {
        let s = inet(
            "ESTAB 0 15000 192.168.169.124:8080 192.0.2.1:50069 users:((\"a \"b\",(c))\",pid=7,fd=3)) \
             timer:(on,1.060ms,3) uid:1000 ino:77 sk:1a <-> \
             skmem:(r0,rb16384,t0,tb8192,f1896,w22680,o0,bl0,d0) cubic wscale:7,0 rto:37760 send 133.3Kbps \
             backoff:7",
        );
        assert_eq!((s.state, s.rqueue, s.wqueue), (SockState::ESTAB, 0, 15_000));
        assert_eq!((s.lport, s.rport), (8080, 50_069));
        assert_eq!(unmap(s.remote).to_string(), "192.0.2.1");
        assert_eq!(s.timer, Some((SockTimer::ON, 1060, 3)));
        assert_eq!((s.uid, s.inode, s.cookie), (Some(1000), Some(77), 0x1a));
        assert_eq!(s.skmem_words, 9);
        assert_eq!((s.skmem[3], s.skmem[5]), (8192, 22_680));
        assert_eq!(s.owner.unwrap().0, 7);
        assert_eq!(s.info.unwrap().backoff(), 7);
    }

    #[test]
    fn addresses_of_every_ss() {
        for (text, addr, port) in [
            ("[::1]:22", "::1", 22),
            ("*:22", "::", 22),
            ("0.0.0.0:*", "0.0.0.0", 0),
            ("[fe80::1]%eth0:546", "fe80::1", 546),
            ("fe80::1%eth0:546", "fe80::1", 546),
            (":::80", "::", 80),
            ("10.0.0.1%lo:53", "10.0.0.1", 53),
            ("10.0.0.1:https", "10.0.0.1", 443),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1", 80),
        ] {
            let (a, p) = endpoint(text).unwrap();
            assert_eq!((unmap(a).to_string().as_str(), p), (addr, port), "{text}");
        }
        for bad in ["", "10.0.0.1", "x:80", "10.0.0.1:99999", "10.0.0.1:a b", "1.2.3:4"] {
            assert_eq!(endpoint(bad), None, "{bad}");
        }
    }

    #[test]
    fn netstat_is_understood() {
        let s = inet("tcp 0 4096 10.0.0.1:40000 10.0.0.2:3306 ESTABLISHED 77/java on (13.25/7/0)");
        assert_eq!(s.timer, Some((SockTimer::ON, 13_250, 7)));
        assert_eq!(s.owner, Some((77, "java".to_owned())));
        let s = inet("udp 0 0 0.0.0.0:68 0.0.0.0:* 800/dhclient");
        assert_eq!((s.proto, s.state), (Proto::Udp, SockState::CLOSE));
    }

    #[test]
    fn families_and_half_lines() {
        assert!(matches!(parse("u_str ESTAB 0 0 * 1234 * 5678", false), Some(Parsed::Other)));
        assert!(matches!(parse("nl UNCONN 0 0 rtnl:kernel *", false), Some(Parsed::Other)));
        for bad in [
            "",
            "ESTAB",
            "ESTAB 0",
            "ESTAB 0 0 10.0.0.1:1",
            "ESTAB x 0 1.1.1.1:1 1.1.1.1:2",
            "established 0 0",
        ] {
            assert!(parse(bad, false).is_none(), "{bad}");
        }
        let cut = inet("ESTAB 0 1 1.1.1.1:1 1.1.1.1:2 skmem:(r0,rb16384,t0,tb81");
        assert_eq!(cut.skmem_words, 0, "tb81 may be the head of tb8192");
        let Some(Parsed::Inet(s)) = parse("0 8 1.1.1.1:1 1.1.1.1:2 cubic", true) else { panic!() };
        assert_eq!((s.state, s.wqueue), (SockState::ESTAB, 8));
    }
}

//! `/proc/net/{tcp,tcp6,udp,udp6,unix}`: the fallback for kernels without the diag modules.
//! No skmem, no tcp_info, no cookie, no accept-queue limit. A row's cookie is made up: the
//! socket's inode, or a hash of its addresses where it has none (TIME_WAIT, orphans).

use super::unix_diag::UnixRow;
use crate::parse;
use crate::sample::sockets::{
    InetRows, NO_CGROUP, NO_INFO, Proto, SockState, SockTimer, UnixRows, map_v4,
};

/// `USER_HZ` is 100 on every architecture: ms per tick of the timer column.
const MS_PER_TICK: u64 = 10;
/// Marks cookies that were made of addresses.
const HASHED: u64 = 1 << 63;

/// Appends the sockets of a `/proc/net/tcp`-shaped file. Returns how many lines could not be
/// read.
pub fn inet(text: &[u8], proto: Proto, rows: &mut InetRows) -> u32 {
    let mut bad = 0;
    for line in parse::lines(text).skip(1) {
        bad += u32::from(inet_line(line, proto, rows).is_none());
    }
    bad
}

fn inet_line(line: &[u8], proto: Proto, rows: &mut InetRows) -> Option<()> {
    let mut fields = parse::fields(line);
    fields.next()?;
    let (local, lport) = endpoint(fields.next()?)?;
    let (remote, rport) = endpoint(fields.next()?)?;
    let state = SockState(u8::try_from(parse::hex(fields.next()?)?).ok()?);
    let (wqueue, rqueue) = pair(fields.next()?)?;
    let (timer, when) = pair(fields.next()?)?;
    let retransmits = parse::hex(fields.next()?)?;
    let uid = parse::number(fields.next()?)? as u32;
    let probes = parse::number(fields.next()?)?;
    let inode = parse::number(fields.next()?)? as u32;
    let timer = SockTimer(u8::try_from(timer).ok()?);
    let retrans = if timer == SockTimer::ON { retransmits } else { probes };
    let cookie = match inode {
        0 => hashed(&[&local, &remote, &lport.to_be_bytes(), &rport.to_be_bytes()]),
        n => u64::from(n),
    };
    rows.cookie.push(cookie);
    rows.proto.push(proto);
    rows.state.push(state);
    rows.timer.push(timer);
    rows.retrans.push(retrans.min(255) as u8);
    rows.expires_ms.push(when.saturating_mul(MS_PER_TICK).min(u64::from(u32::MAX)) as u32);
    rows.rqueue.push(rqueue as u32);
    rows.wqueue.push(wqueue as u32);
    rows.local.push(local);
    rows.remote.push(remote);
    rows.lport.push(lport);
    rows.rport.push(rport);
    rows.ifindex.push(0);
    rows.uid.push(uid);
    rows.inode.push(inode);
    rows.cgroup.push(NO_CGROUP);
    rows.skmem.push([0; 9]);
    rows.skmem_words.push(0);
    rows.info.push(NO_INFO);
    Some(())
}

fn pair(field: &[u8]) -> Option<(u64, u64)> {
    let colon = field.iter().position(|b| *b == b':')?;
    Some((parse::hex(field.get(..colon)?)?, parse::hex(field.get(colon + 1..)?)?))
}

/// `0100007F:1F90`: the address as 32-bit words in the CPU's order, the port in ours.
fn endpoint(field: &[u8]) -> Option<([u8; 16], u16)> {
    let colon = field.iter().position(|b| *b == b':')?;
    let port = u16::try_from(parse::hex(field.get(colon + 1..)?)?).ok()?;
    let digits = field.get(..colon)?;
    let word = |i: usize| {
        let word = u32::try_from(parse::hex(digits.get(i * 8..i * 8 + 8)?)?).ok()?;
        Some(word.to_ne_bytes())
    };
    let addr = match digits.len() {
        8 => map_v4(word(0)?),
        32 => {
            let mut out = [0; 16];
            for (i, four) in out.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(i)?);
            }
            out
        }
        _ => return None,
    };
    Some((addr, port))
}

/// FNV-1a: the same addresses give the same cookie in every reading.
fn hashed(parts: &[&[u8]]) -> u64 {
    let hash = parts
        .iter()
        .flat_map(|p| p.iter())
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    hash | HASHED
}

/// Appends the sockets of `/proc/net/unix`. Returns how many lines could not be read.
pub fn unix(text: &[u8], rows: &mut UnixRows) -> u32 {
    let mut bad = 0;
    for line in parse::lines(text).skip(1) {
        bad += u32::from(unix_line(line, rows).is_none());
    }
    bad
}

fn unix_line(line: &[u8], rows: &mut UnixRows) -> Option<()> {
    const SO_ACCEPTCON: u64 = 0x1_0000;
    const SS_CONNECTED: u64 = 3;
    let mut fields = parse::fields(line);
    let _num = fields.next()?;
    let _refs = fields.next()?;
    let _protocol = fields.next()?;
    let flags = parse::hex(fields.next()?)?;
    let kind = u8::try_from(parse::hex(fields.next()?)?).ok()?;
    let st = parse::hex(fields.next()?)?;
    let inode = parse::number(fields.next()?)? as u32;
    let state = match (flags & SO_ACCEPTCON != 0, st) {
        (true, _) => SockState::LISTEN,
        (false, SS_CONNECTED) => SockState::ESTAB,
        _ => SockState::CLOSE,
    };
    // An abstract name is printed with `@` for each NUL; a path begins with `/` or `.`.
    let mut name = fields.next().unwrap_or_default().to_vec();
    if name.first() == Some(&b'@') {
        name.iter_mut().filter(|b| **b == b'@').for_each(|b| *b = 0);
    }
    rows.push(&UnixRow {
        cookie: u64::from(inode),
        inode,
        kind,
        state,
        name: &name,
        ..UnixRow::default()
    });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    // Written by hand after net/ipv4/tcp_ipv4.c and net/ipv6/tcp_ipv6.c; little endian.
    const TCP: &[u8] = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000002 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0\n\
   1: 0100007F:A000 0200007F:0050 01 00003A98:00000000 01:00000078 00000007     0        0 4712 2 0000000000000000 20 4 1 1 9\n\
   2: 0100007F:A001 0200007F:0050 01 00000001:00000000 04:00000014 00000000     0        5 4713 2 0000000000000000 20 4 1 1 9\n\
   3: 0100007F:A002 0200007F:0050 06 00000000:00000000 03:00000BB8 00000000     0        0 0 3 0000000000000000\n\
   4: garbage\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn tcp_lines_become_rows_without_skmem() {
        let mut rows = InetRows::default();
        assert_eq!(inet(TCP, Proto::Tcp, &mut rows), 1);
        assert_eq!(rows.len(), 4);
        assert_eq!(rows.local_endpoint(0).addr, IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!((rows.lport[0], rows.state[0], rows.rqueue[0]), (8080, SockState::LISTEN, 2));
        assert_eq!((rows.timer[1], rows.retrans[1], rows.expires_ms[1]), (SockTimer::ON, 7, 1200));
        assert_eq!((rows.wqueue[1], rows.uid[0], rows.inode[1]), (15000, 1000, 4712));
        assert_eq!((rows.timer[2], rows.retrans[2]), (SockTimer::PERSIST, 5));
        assert_ne!(rows.cookie[3] & HASHED, 0);
        assert_eq!(rows.skmem(1).w(), None);
        assert_eq!(rows.tcp_info(1), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn v6_words_are_swapped_one_by_one() {
        let text = b"head\n 0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 1\n";
        let mut rows = InetRows::default();
        assert_eq!(inet(text, Proto::Tcp, &mut rows), 0);
        assert_eq!(rows.local_endpoint(0).addr, IpAddr::V6(Ipv6Addr::LOCALHOST));
    }

    #[test]
    fn unix_lines_become_rows() {
        let text = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
0000000000000000: 00000002 00000000 00010000 0001 01 20001 /run/x.sock\n\
0000000000000000: 00000003 00000000 00000000 0001 03 20002\n\
0000000000000000: 00000002 00000000 00000000 0002 01 20003 @abc\n\
torn 1\n";
        let mut rows = UnixRows::default();
        assert_eq!(unix(text, &mut rows), 1);
        assert_eq!(rows.state, [SockState::LISTEN, SockState::ESTAB, SockState::CLOSE]);
        assert_eq!(rows.name(0), b"/run/x.sock");
        assert_eq!(rows.name(2), b"\0abc");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (mut a, mut b) = (InetRows::default(), UnixRows::default());
            inet(&bytes, Proto::Udp, &mut a);
            unix(&bytes, &mut b);
            prop_assert_eq!(a.len(), a.info.len());
        }
    }
}

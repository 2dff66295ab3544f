//! `/proc/net/sockstat` and `sockstat6`: how many sockets of each kind a namespace has. Two
//! small files that save whole dumps: the kernel walks the host-wide hash table even for a
//! namespace without a socket.

use crate::collect::HostFs;
use crate::parse;

/// Counts of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SockStat {
    /// v4 TCP sockets, without TIME_WAIT.
    pub tcp4: u64,
    /// v6 TCP sockets, without TIME_WAIT.
    pub tcp6: u64,
    /// TIME_WAIT sockets of both families.
    pub tw: u64,
    /// v4 UDP sockets.
    pub udp4: u64,
    /// v6 UDP sockets.
    pub udp6: u64,
}

impl SockStat {
    /// Reads both files below `dir`, such as `proc/thread-self/net`. `None` when the first
    /// cannot be read or parsed; a kernel without IPv6 has no second one.
    #[must_use]
    pub fn read(host: &HostFs, dir: &str, buf: &mut Vec<u8>) -> Option<Self> {
        host.read_into(format!("{dir}/sockstat"), buf).ok()?;
        let mut out = Self {
            tcp4: value(buf, b"TCP:", b"inuse")?,
            tw: value(buf, b"TCP:", b"tw")?,
            udp4: value(buf, b"UDP:", b"inuse")?,
            ..Self::default()
        };
        if host.read_into(format!("{dir}/sockstat6"), buf).is_ok() {
            out.tcp6 = value(buf, b"TCP6:", b"inuse")?;
            out.udp6 = value(buf, b"UDP6:", b"inuse")?;
        }
        Some(out)
    }
    /// All inet sockets.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.tcp4, self.tcp6, self.tw, self.udp4, self.udp6]
            .iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }
}

fn value(text: &[u8], line: &[u8], key: &[u8]) -> Option<u64> {
    let line = parse::lines(text).find(|l| l.starts_with(line))?;
    let mut fields = parse::fields(line).skip_while(|f| *f != key);
    fields.next()?;
    parse::number(fields.next()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn counts_are_found_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let net = dir.path().join("proc/net");
        std::fs::create_dir_all(&net).unwrap();
        std::fs::write(
            net.join("sockstat"),
            "sockets: used 11\nTCP: inuse 3 orphan 0 tw 2 alloc 4 mem 1\nUDP: inuse 1 mem 0\nUDPLITE: inuse 9\n",
        )
        .unwrap();
        let host = HostFs::at(dir.path());
        let got = SockStat::read(&host, "proc/net", &mut Vec::new()).unwrap();
        assert_eq!(got, SockStat { tcp4: 3, tw: 2, udp4: 1, ..SockStat::default() });
        assert_eq!(got.total(), 6);
        std::fs::write(net.join("sockstat6"), "TCP6: inuse 5\nUDP6: inuse x\n").unwrap();
        assert_eq!(SockStat::read(&host, "proc/net", &mut Vec::new()), None);
    }
}

//! Network devices, their queueing disciplines and connection tracking, per network namespace:
//! `RTM_GETLINK`, `RTM_GETQDISC` and `RTM_GETTCLASS` over rtnetlink, speed and channels over
//! ethtool netlink (since 5.6), `nf_conntrack` from `/proc`, and who fills its table over ctnetlink.
//!
//! Our own namespace is read each tick, the others in turn within a budget. Of driver statistics
//! (`ethtool -S`) only those that nothing else tells are read, see `driver`.

mod collector;
mod conntrack;
mod driver;
pub mod ethtool;
pub mod link;
pub mod origins;
mod pace;
pub mod qdisc;

pub use collector::NetdevCollector;
pub use conntrack::parse_stat as parse_conntrack_stat;

use super::sockets::nlmsg::{Message, Messages, Step};

/// Hands the payload of every message of type `kind` in a datagram to `take`, which says
/// whether it could read it. Another answer's messages are passed over.
pub(crate) fn walk(
    datagram: &[u8],
    seq: u32,
    kind: u16,
    bad: &mut u32,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Step {
    let mut messages = Messages::new(datagram);
    for message in messages.by_ref() {
        match message {
            Message::Data(k, s, payload) if k == kind && s == seq => {
                *bad = bad.saturating_add(u32::from(!take(payload)));
            }
            Message::Error(s, errno) | Message::Done(s, errno) if s == seq => {
                return if errno == 0 { Step::Done } else { Step::Failed(errno) };
            }
            _ => {}
        }
    }
    *bad = bad.saturating_add(u32::from(messages.torn()));
    Step::More
}

/// The first four bytes of an attribute.
pub(crate) fn u32_of(body: &[u8]) -> Option<u32> {
    body.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// The `n`-th u64 of an attribute.
pub(crate) fn u64_at(body: &[u8], n: usize) -> Option<u64> {
    body.get(n.checked_mul(8)?..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}

/// The `n`-th u32 of an attribute.
pub(crate) fn u32_at(body: &[u8], n: usize) -> Option<u32> {
    u32_of(body.get(n.checked_mul(4)?..)?)
}

/// A string attribute without its NUL.
pub(crate) fn text_of(body: &[u8]) -> &[u8] {
    body.split(|b| *b == 0).next().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod testing {
    #![allow(clippy::unwrap_used)]

    use crate::collect::testing::fixtures;

    /// The datagrams of a captured file: each with its length before it, 32 bits little endian.
    pub(crate) fn datagrams(name: &str) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(fixtures().join("6.18/rtnetlink").join(name)).unwrap();
        let (mut rest, mut out) = (&bytes[..], Vec::new());
        while let Some((len, tail)) = rest.split_first_chunk::<4>() {
            let (datagram, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
            out.push(datagram.to_vec());
            rest = tail;
        }
        out
    }

    /// What iproute2 printed of the same namespace.
    pub(crate) fn witness(name: &str) -> String {
        std::fs::read_to_string(fixtures().join("6.18/rtnetlink").join(name)).unwrap()
    }

    /// Every way to cut a datagram short, and single bytes changed: what `parse` is tried with.
    pub(crate) fn mangled(datagram: &[u8], cut: usize, at: usize, byte: u8) -> Vec<u8> {
        let mut out = datagram.to_vec();
        out.truncate(cut % (datagram.len() + 1));
        if let Some(b) = out.get_mut(at % datagram.len().max(1)) {
            *b = byte;
        }
        out
    }
}

//! ethtool over generic netlink: link speed (since 5.6) and queue counts (since 5.7) of NICs,
//! in whatever namespace they are. sysfs has the speed too, but only of our own namespace.

use super::{text_of, u32_of};
use crate::collect::sockets::nlmsg::{self, Attrs};
use crate::sample::netdev::Channels;

/// Type of the messages of the family controller.
pub const CONTROL: u16 = 16;
const GETFAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Length of `struct genlmsghdr`.
const GENL: usize = 4;
const LINKMODES_GET: u8 = 4;
const CHANNELS_GET: u8 = 17;
const NESTED: u16 = 0x8000;
/// First attribute of every message: which device.
const HEADER: u16 = 1;
const DEV_INDEX: u16 = 1;
const LINKMODES_SPEED: u16 = 5;
const RX_MAX: u16 = 2;
const COMBINED_MAX: u16 = 5;
const RX_COUNT: u16 = 6;
const COMBINED_COUNT: u16 = 9;

/// Asks for the number of the family `ethtool`.
pub fn put_family(tx: &mut Vec<u8>, seq: u32) {
    nlmsg::put_message(tx, CONTROL, nlmsg::F_REQUEST, seq, |body| {
        body.extend_from_slice(&[GETFAMILY, 1, 0, 0]);
        nlmsg::put_attr(body, FAMILY_NAME, b"ethtool\0");
    });
}

/// The number of the family.
#[must_use]
pub fn family(payload: &[u8]) -> Option<u16> {
    let (_, body) = Attrs(payload.get(GENL..)?).find(|(k, _)| *k == FAMILY_ID)?;
    body.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// Asks for the speed of all devices.
pub fn put_linkmodes(tx: &mut Vec<u8>, seq: u32, family: u16) {
    put(tx, seq, family, LINKMODES_GET);
}

/// Asks for the queue counts of all devices.
pub fn put_channels(tx: &mut Vec<u8>, seq: u32, family: u16) {
    put(tx, seq, family, CHANNELS_GET);
}

fn put(tx: &mut Vec<u8>, seq: u32, family: u16, command: u8) {
    nlmsg::put_message(tx, family, nlmsg::F_REQUEST | nlmsg::F_DUMP, seq, |body| {
        body.extend_from_slice(&[command, 1, 0, 0]);
        nlmsg::put_attr(body, NESTED | HEADER, &[]);
    });
}

/// Index of the device and its speed in Mbit/s; `None` for a speed that is not known.
#[must_use]
pub fn speed(payload: &[u8]) -> Option<(u32, Option<u32>)> {
    let attrs = Attrs(payload.get(GENL..)?);
    let (_, body) = attrs.clone().find(|(k, _)| *k == LINKMODES_SPEED)?;
    // SPEED_UNKNOWN is -1; 0 is a link that is down.
    let speed = u32_of(body).filter(|s| *s != 0 && *s != u32::MAX);
    Some((device(attrs)?, speed))
}

/// Index of the device and its receive queues.
#[must_use]
pub fn channels(payload: &[u8]) -> Option<(u32, Channels)> {
    let attrs = Attrs(payload.get(GENL..)?);
    let get = |kind| {
        attrs.clone().find(|(k, _)| *k == kind).and_then(|(_, body)| u32_of(body)).unwrap_or(0)
    };
    let sum = |a: u32, b: u32| a.saturating_add(b);
    let out = Channels {
        rx: sum(get(RX_COUNT), get(COMBINED_COUNT)),
        // A driver has either kind or both; what it may have of each is told apart, too.
        rx_max: get(RX_MAX).max(get(COMBINED_MAX)),
    };
    (out.rx > 0).then_some((device(attrs)?, out))
}

fn device(mut attrs: Attrs<'_>) -> Option<u32> {
    let (_, header) = attrs.find(|(k, _)| *k == HEADER)?;
    Attrs(header).find(|(k, _)| *k == DEV_INDEX).and_then(|(_, body)| u32_of(body))
}

/// Name of the device in an answer, for tests and messages.
#[must_use]
pub fn device_name(payload: &[u8]) -> Option<&[u8]> {
    let (_, header) = Attrs(payload.get(GENL..)?).find(|(k, _)| *k == HEADER)?;
    Attrs(header).find(|(k, _)| *k == 2).map(|(_, body)| text_of(body))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::{datagrams, mangled};
    use super::super::walk;
    use super::*;
    use proptest::prelude::*;

    /// The captured kernel gave this number to the family.
    const FAMILY: u16 = 21;

    fn each<T>(file: &str, kind: u16, parse: fn(&[u8]) -> Option<T>) -> Vec<(String, T)> {
        let (mut out, mut bad) = (Vec::new(), 0);
        for d in datagrams(file) {
            walk(&d, 9, kind, &mut bad, |p| {
                let name = device_name(p).unwrap_or_default();
                out.extend(parse(p).map(|v| (String::from_utf8_lossy(name).into_owned(), v)));
                true
            });
        }
        assert_eq!(bad, 0);
        out
    }

    #[test]
    fn the_family_is_found_by_its_name() {
        let found = each("ethtool-family.bin", CONTROL, family);
        assert_eq!(found.iter().map(|f| f.1).collect::<Vec<_>>(), [FAMILY]);
    }

    /// veth claims 10 Gbit/s and has as many queues as it was made with: 2 on two CPUs.
    #[test]
    fn captured_veths_have_speed_and_queues() {
        let speeds = each("ethtool-linkmodes.bin", FAMILY, speed);
        let of_veths: Vec<_> = speeds.iter().filter(|(name, _)| name.starts_with('v')).collect();
        assert_eq!(of_veths.len(), 4);
        assert!(of_veths.iter().all(|(_, (_, s))| *s == Some(10_000)));
        // A bridge without ports does not know.
        assert!(speeds.iter().any(|(name, (_, s))| name == "br0" && s.is_none()));
        let queues = each("ethtool-channels.bin", FAMILY, channels);
        assert_eq!(queues.len(), 4);
        for (name, (index, c)) in queues {
            assert!(index > 1 && c.rx >= 1 && c.rx_max >= c.rx, "{name} {c:?}");
        }
    }

    #[test]
    fn the_virtio_nic_of_the_guest_has_one_queue_of_one() {
        let queues = each("ethtool-channels-eth0.bin", FAMILY, channels);
        assert_eq!(queues, [("eth0".to_owned(), (4, Channels { rx: 1, rx_max: 1 }))]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (family(&bytes), speed(&bytes), channels(&bytes), device_name(&bytes));
        }

        #[test]
        fn mangled_datagrams_are_survived(cut: usize, at: usize, byte: u8) {
            for d in datagrams("ethtool-channels.bin").into_iter().chain(datagrams("ethtool-linkmodes.bin")) {
                let d = mangled(&d, cut, at, byte);
                let mut bad = 0;
                walk(&d, 9, FAMILY, &mut bad, |p| channels(p).is_some() || speed(p).is_some());
            }
        }
    }
}

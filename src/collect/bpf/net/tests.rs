//! Event records, whole and torn.
#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

fn record(family: u16, saddr: &[u8], daddr: &[u8]) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(7u64.to_ne_bytes()); // at
    b.extend(99u64.to_ne_bytes()); // cookie
    b.extend((l::SEND_RESET as u16).to_ne_bytes());
    b.extend(family.to_ne_bytes());
    b.extend(43210u16.to_ne_bytes()); // sport, host order
    b.extend(443u16.to_be_bytes()); // dport, network order
    b.extend(4_026_531_840u32.to_ne_bytes());
    b.extend((-5i32).to_ne_bytes());
    for a in [saddr, daddr] {
        let mut sixteen = [0; 16];
        sixteen[..a.len()].copy_from_slice(a);
        b.extend(sixteen);
    }
    b.extend(1u32.to_ne_bytes()); // state
    b.extend(3u32.to_ne_bytes()); // cpu
    assert_eq!(b.len(), l::EVENT_BYTES);
    b
}

#[test]
fn records_decode_to_connections() {
    let e = decode(&record(2, &[10, 0, 0, 1], &[10, 0, 0, 2])).unwrap();
    let (local, remote) = e.ends.unwrap();
    assert_eq!(
        (local.to_string(), remote.to_string()),
        ("10.0.0.1:43210".into(), "10.0.0.2:443".into())
    );
    assert_eq!((e.kind, e.cookie, e.netns.0), (NetEventKind::SendReset, 99, 4_026_531_840));
    assert_eq!((e.state, e.detail, e.last, e.cpu), (1, -5, MonoNs(7), CpuId(3)));
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 9];
    let six = decode(&record(10, &mapped, &[0xfe, 0x80])).unwrap().ends.unwrap();
    assert_eq!(six.0.addr.to_string(), "10.0.0.9", "v4-mapped addresses are unmapped");
    assert_eq!(six.1.to_string(), "[fe80::]:443");
    assert_eq!(decode(&record(0, &[], &[])).unwrap().ends, None, "no socket");
}

#[test]
fn who_connects_is_no_event_of_a_connection() {
    let mut b = record(2, &[10, 0, 0, 1], &[10, 0, 0, 2]);
    assert_eq!(connect(&b), None);
    b[16..18].copy_from_slice(&(l::CONNECT as u16).to_ne_bytes());
    b[28..32].copy_from_slice(&4242u32.to_ne_bytes());
    let (pid, netns, remote) = connect(&b).unwrap();
    assert_eq!((pid, netns.0, remote.to_string()), (4242, 4_026_531_840, "10.0.0.2:443".into()));
    assert_eq!(decode(&b), None);
}

#[test]
fn reasons_lose_their_prefix() {
    let names =
        reason_names(vec![(3, "SKB_DROP_REASON_NO_SOCKET".into()), (1, "SKB_CONSUMED".into())]);
    assert_eq!(names, [(3, "NO_SOCKET".into()), (1, "CONSUMED".into())]);
}

proptest! {
    #[test]
    fn any_record_decodes_or_not(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = decode(&bytes);
        let _ = connect(&bytes);
    }
}

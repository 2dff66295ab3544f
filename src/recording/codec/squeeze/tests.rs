//! Packed and unpacked again: like ticks, noise, hostile bytes; and how the primer was made.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::super::flat::put_varint;
use crate::recording::file::format::Segment;
use crate::recording::file::reader::Reader;
use crate::recording::tools::redact::Redactor;
use super::super::tick::Encoder;
use super::*;

/// Makes the primer of the second group of a recording: `STALLSCOPE_PRIMER=some.stall`. What tells
/// whose it was is taken out. It was made once; one that differs is another feature of the format.
#[test]
#[ignore = "the primer is part of the format"]
fn make() {
    let path = std::env::var_os("STALLSCOPE_PRIMER").unwrap();
    let mut r = Reader::file(std::path::Path::new(&path)).unwrap();
    let mut redact = Redactor::default();
    let mut host = redact.host(&r.host());
    host.kernel = "6.12.0-13-amd64".into();
    let tick = redact.tick(&r.tick(r.first_of(1).unwrap()).unwrap()).unwrap();
    let payload = Encoder::default().payload(&tick, Some(&Segment { host })).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/recording/squeeze/primer.zst");
    std::fs::write(path, zstd::bulk::compress(&payload, 19).unwrap()).unwrap();
}

#[test]
fn the_primer_is_the_one_of_the_format() {
    assert_eq!((primer().len(), crc32fast::hash(primer())), (32_411, 0x8E67_6D9E));
}

fn payload(n: u8) -> Vec<u8> {
    let mut out = vec![0];
    for section in 1..10u8 {
        out.extend([section << 1, 40]);
        out.extend((0..40).map(|i| if i % 8 == 7 { n.wrapping_mul(section) ^ i } else { 0 }));
    }
    out
}

fn noise(len: usize) -> Vec<u8> {
    let mut x = 1u32;
    let next = |_| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..len).map(next).collect()
}

#[test]
fn a_group_of_like_ticks_takes_little_and_comes_back() {
    let (mut to, mut from) = (Model::default(), Model::default());
    let mut last = 0;
    for n in 0..60 {
        let p = payload(n);
        let packed = to.pack(&p).unwrap();
        assert_eq!(from.unpack(&packed).unwrap(), p, "tick {n}");
        last = packed.len();
    }
    // 45 numbers of 379 bytes are new.
    assert!(last < 80, "{last} bytes");
}

#[test]
fn what_cannot_be_predicted_takes_hardly_more_than_it_is() {
    let noise = noise(MOST_DELTA);
    let packed = Model::default().pack(&noise).unwrap();
    assert!(packed.len() < MOST_DELTA * 11 / 10, "{} bytes", packed.len());
    assert_eq!(Model::default().unpack(&packed).unwrap(), noise);
}

#[test]
fn what_is_long_is_neither_packed_nor_unpacked() {
    assert!(Model::default().pack(&noise(MOST_DELTA + 1)).is_none());
    assert!(pack_keyframe(&vec![0; MOST_KEYFRAME + 1]).is_none());
    let longer = |most: usize| {
        let mut out = Vec::new();
        put_varint(&mut out, most as u64 + 1);
        out.extend([0; 64]);
        out
    };
    assert!(Model::default().unpack(&longer(MOST_DELTA)).is_err());
    assert!(unpack_keyframe(&longer(MOST_KEYFRAME)).is_err());
    let mut short = pack_keyframe(&[7; 1000]).unwrap();
    short[0] -= 1;
    assert!(unpack_keyframe(&short).is_err(), "it is longer than it says");
}

/// A machine that computes otherwise would read nonsense.
#[test]
fn the_code_is_the_same_everywhere() {
    let mut model = Model::default();
    let mut all = Vec::new();
    for n in 0..40 {
        all.extend(model.pack(&payload(n)).unwrap());
        all.extend(model.pack(&noise(usize::from(n))).unwrap());
    }
    assert_eq!((all.len(), crc32fast::hash(&all)), (2663, 0x6F62_CEF3));
}

#[test]
fn the_logistic_function_and_its_inverse_fit() {
    let table = &Logistic::get().stretch;
    assert!(table.windows(2).all(|w| w[0] <= w[1]));
    for d in (-2000..2000).step_by(50) {
        let back = i32::from(table[squash(d) as usize]);
        // Far out many arguments have one value.
        assert!((back - d).abs() < 150 || d.abs() > 1200, "{d}: {back}");
    }
}

proptest! {
    #[test]
    fn any_payloads_come_back(all in prop::collection::vec(any::<Vec<u8>>(), 1..6)) {
        let (mut to, mut from) = (Model::default(), Model::default());
        for p in all {
            prop_assert_eq!(&from.unpack(&to.pack(&p).unwrap()).unwrap(), &p);
            prop_assert_eq!(unpack_keyframe(&pack_keyframe(&p).unwrap()).unwrap(), p);
        }
    }
    #[test]
    fn hostile_bytes_end(bytes: Vec<u8>) {
        let _ = (Model::default().unpack(&bytes), unpack_keyframe(&bytes));
    }
}

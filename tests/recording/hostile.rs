//! Files made to hurt: no panic, no memory, one clear line.

use std::sync::Arc;

use proptest::prelude::*;
use stallscope::recording::format::{BlockHeader, HEADER, Kind, MAX_PAYLOAD, end};
use stallscope::recording::{ReadError, Reader};

use super::{open, plain, recording, script, squeezed};

#[path = "../fuzz/src/recording.rs"]
mod fuzz;

use fuzz::{block, exercise, featured, zip};

#[test]
fn what_is_no_recording_is_named() {
    let e = |b: &[u8]| open(b.to_vec()).err().unwrap().to_string();
    assert_eq!(e(b""), "is empty: nothing was recorded");
    assert_eq!(
        e(b"hello world, this is a text file of some length"),
        "is not a recording of stallscope"
    );
    assert_eq!(e(&[0; 5000]), "is not a recording of stallscope");
    assert_eq!(e(&zip(b"only zstd")), "is not a recording of stallscope");
    let (mut bytes, _) = recording(&script(), 1, false);
    assert!(e(&bytes[..70]).contains("nothing was recorded"));
    for b in 0..bytes.len() - 12 {
        if bytes[b..].starts_with(b"stl\xF1") {
            bytes[b + 4] = 2;
        }
    }
    assert_eq!(e(&bytes), "has format version 2; this program reads up to 1");
}

#[test]
fn bombs_are_refused() {
    let (bytes, _) = recording(&script(), 3, false);
    let first = BlockHeader::parse(&bytes).unwrap().total() as usize;
    // A small frame that states a small length and holds a gigabyte of zeros.
    let mut zeros = Vec::new();
    let mut pour = zstd::stream::Encoder::new(&mut zeros, 3).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 1 << 30), &mut pour).unwrap();
    pour.finish().unwrap();
    assert!(zeros.len() < 1 << 20);
    for raw in [0, 100, MAX_PAYLOAD as u32, u32::MAX] {
        let bomb = block(Kind::Keyframe, raw, &zeros, 0, 0);
        let mut r = open([&bytes[..first], &bomb].concat()).unwrap();
        assert!(r.len() <= 1);
        assert!(matches!(r.tick(0), Err(ReadError::Damaged(_) | ReadError::NoSuchTick)));
        for kind in [Kind::Segment, Kind::Index, Kind::Remark, Kind::Trailer] {
            exercise([&bytes[..first], &block(kind, raw, &zeros, 0, 0)].concat());
        }
    }
}

#[test]
fn lengths_that_promise_more_than_there_is_are_refused() {
    // Every number of a payload as large as it gets: counts, lengths, widths, rows.
    let (bytes, _) = plain(&script(), 2);
    let mut at = BlockHeader::parse(&bytes).unwrap().total() as usize;
    for most in [4000, 1000] {
        let h = BlockHeader::parse(&bytes[at..]).unwrap();
        let frame = &bytes[at + HEADER..at + h.total() as usize];
        let payload = zstd::bulk::decompress(frame, h.raw as usize).unwrap();
        for i in 0..payload.len().min(most) {
            let mut hurt = payload[..i].to_vec();
            hurt.extend([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]);
            hurt.extend(&payload[i + 1..]);
            let raw = hurt.len() as u32;
            let bad = featured(h.kind, h.features, raw, &zip(&hurt), h.back, h.link);
            let mut r = open([&bytes[..at], &bad].concat()).unwrap();
            let _ = r.tick(r.len() - 1);
        }
        at += h.total() as usize;
    }
}

#[test]
fn chains_and_trailers_that_lie_are_not_believed() {
    let (bytes, _) = recording(&script(), 3, false);
    for (back, link) in [(0, 0), (1, 1), (u32::MAX, u32::MAX), (64, 64), (bytes.len() as u32, 0)] {
        for json in [
            r#"{"ticks":[[0,0,0,0]]}"#,
            r#"{"ticks":[[0,0,0,0],[4294967295,1,1,1]]}"#,
            r#"{"ticks":[]}"#,
            r#"{"ticks":[[0,0,0,0],[1,18446744073709551615,18446744073709551615,-9223372036854775808]]}"#,
        ] {
            let index = block(Kind::Index, json.len() as u32, &zip(json.as_bytes()), back, link);
            exercise([&bytes[..], &index].concat());
        }
    }
    let max = u64::MAX;
    for groups in [
        format!(r#"[{{"offset":{max},"index":{max},"end":{max},"ticks":4294967295}}]"#),
        format!(r#"[{{"offset":0,"index":1,"end":{},"ticks":4294967295}}]"#, bytes.len()),
    ] {
        let at = r#"{"seq":0,"mono":0,"wall":0}"#;
        let groups = groups.replace("}]", &format!(r#","first":{at},"last":{at},"segment":9}}]"#));
        let json = format!(r#"{{"groups":{groups},"segments":[]}}"#);
        let trailer = block(Kind::Trailer, json.len() as u32, &zip(json.as_bytes()), 0, 0);
        exercise([&bytes[..], &trailer, &end(bytes.len() as u64)].concat());
        exercise([&bytes[..], &trailer, &end(u64::MAX)].concat());
    }
}

#[test]
fn blocks_sections_and_features_of_later_versions_are_skipped() {
    let (bytes, all) = plain(&script(), 3);
    let json = b"something new";
    let odd = block(Kind::Unknown(99), json.len() as u32, &zip(json), 0, 0);
    let mut r = open([&bytes[..], &odd].concat()).unwrap();
    assert_eq!((r.len(), r.unknown_blocks(), r.damage().count()), (3, 1, 0));
    assert_eq!(super::readable(&mut r, &all).len(), 3);
    // A section that this program does not know, in front of all others.
    let first = BlockHeader::parse(&bytes).unwrap().total() as usize;
    let h = BlockHeader::parse(&bytes[first..]).unwrap();
    let frame = &bytes[first + HEADER..first + h.total() as usize];
    let payload = zstd::bulk::decompress(frame, h.raw as usize).unwrap();
    let mut odd = payload.clone();
    odd.extend([0, 3, b'n', b'e', b'w', 5, 1, 2, 3, 4, 5]);
    let mut key = BlockHeader::parse(&block(Kind::Keyframe, 0, &zip(&odd), 0, 0)).unwrap();
    (key.at, key.features) = (h.at, h.features);
    key.raw = odd.len() as u32;
    let file = [&bytes[..first], &key.to_bytes(), &zip(&odd)].concat();
    let mut r = open(file).unwrap();
    let got = r.tick(0).unwrap();
    super::same(&r, &got, &all[0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        exercise(bytes.clone());
        let (good, _) = recording(&script(), 1, false);
        exercise([good, bytes].concat());
    }

    /// Bytes that pass every CRC: only the decoder stands between them and us.
    #[test]
    fn any_payload_is_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        kind in prop_oneof![Just(Kind::Segment), Just(Kind::Keyframe), Just(Kind::Index), Just(Kind::Remark)],
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        packed: bool,
    ) {
        let (good, _) = if packed { squeezed(&script(), 2, false) } else { plain(&script(), 2) };
        let raw = bytes.len() as u32;
        exercise([&good[..], &block(kind, raw, &zip(&bytes), 0, 0)].concat());
        // A real keyframe and a real delta with some bytes changed.
        let mut at = 0;
        let mut file = Vec::new();
        while let Ok(h) = BlockHeader::parse(&good[at..]) {
            let frame = &good[at + HEADER..at + h.total() as usize];
            let mut payload = zstd::bulk::decompress(frame, h.raw as usize).unwrap();
            for (i, b) in places.iter().filter(|_| h.kind.is_tick()) {
                let i = i.index(payload.len());
                payload[i] = *b;
            }
            let (raw, frame) = (payload.len() as u32, zip(&payload));
            let mut b = featured(h.kind, h.features, raw, &frame, h.back, h.link);
            if h.kind.is_tick() && h.back > 0 {
                // Its keyframe may have another length now.
                let back = file.len() - BlockHeader::parse(&file).unwrap().total() as usize;
                b = featured(h.kind, h.features, raw, &frame, back as u32, h.link);
            }
            file.extend(b);
            at += h.total() as usize;
        }
        exercise(file);
    }
}

#[test]
fn the_reader_can_be_sent_to_another_thread() {
    fn sent<T: Send>(_: T) {}
    let (bytes, _) = recording(&script(), 1, true);
    sent(Reader::new(Arc::new(bytes)).unwrap());
}

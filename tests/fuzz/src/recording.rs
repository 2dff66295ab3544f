//! The reader of recordings: whole files, and payloads behind headers and CRCs that are right,
//! where only the decoder stands between them and us.

use std::sync::Arc;

use stallscope::model::time::WallNs;
use stallscope::recording::Reader;
use stallscope::recording::format::{BlockHeader, HEADER, Kind, Stamp};

/// Recordings of all layouts, to begin with.
const GOOD: [&[u8]; 3] = [
    include_bytes!("../../recording/golden/v1.stall"),
    include_bytes!("../../recording/golden/v1-compact.stall"),
    include_bytes!("../../recording/golden/v1-squeezed.stall"),
];

/// Reads all that can be read.
pub fn exercise(bytes: Vec<u8>) {
    let Ok(mut r) = Reader::new(Arc::new(bytes)) else { return };
    for i in 0..r.len().min(200) {
        let _ = (r.tick_ref(i), r.tick(i));
    }
    for g in 0..r.groups().len().min(20) {
        let _ = (r.index(g), r.raw_group(g), r.segment_of(g));
    }
    let _ = r.survey();
    let _ = (r.host(), r.resume(), r.refresh(), r.at_wall(WallNs(0)), r.remarks());
    let _ = r.damage().map(ToString::to_string).collect::<Vec<_>>();
}

/// The bytes as a file, and as the rest of a file that begins well.
pub fn whole(data: &[u8]) {
    exercise(data.to_vec());
    exercise([blocks(GOOD[0], 1), data].concat());
    exercise([blocks(GOOD[2], 3), data].concat());
}

/// The bytes as the payload of a block of every kind.
pub fn payload(data: &[u8]) {
    let raw = data.len() as u32;
    let frame = zip(data);
    for good in GOOD {
        let features = BlockHeader::parse(blocks(good, 2).get(blocks(good, 1).len()..).unwrap());
        let features = features.unwrap().features;
        let back = (blocks(good, 2).len() - blocks(good, 1).len()) as u32;
        for (n, kind, back, link) in [(1, Kind::Keyframe, 0, 0), (2, Kind::Delta, back, 1)] {
            exercise(
                [blocks(good, n), &featured(kind, features, raw, &frame, back, link)].concat(),
            );
        }
    }
    let good = GOOD[0];
    let back = (blocks(good, 2).len() - blocks(good, 1).len()) as u32;
    for (n, kind, back) in
        [(0, Kind::Segment, 0), (2, Kind::Index, back), (2, Kind::Remark, 0), (2, Kind::Trailer, 0)]
    {
        exercise([blocks(good, n), &block(kind, raw, &frame, back, 0)].concat());
    }
}

/// The first blocks of a good recording.
fn blocks(good: &[u8], n: usize) -> &[u8] {
    let mut at = 0;
    for _ in 0..n {
        let Ok(h) = BlockHeader::parse(&good[at..]) else { break };
        at += h.total() as usize;
    }
    &good[..at]
}

/// A block with the CRCs that it should have.
pub fn block(kind: Kind, raw: u32, frame: &[u8], back: u32, link: u32) -> Vec<u8> {
    featured(kind, 0, raw, frame, back, link)
}

/// One that needs features of the format.
pub fn featured(
    kind: Kind,
    features: u16,
    raw: u32,
    frame: &[u8],
    back: u32,
    link: u32,
) -> Vec<u8> {
    let h = BlockHeader {
        kind,
        features,
        at: Stamp::default(),
        raw,
        stored: frame.len() as u32,
        back,
        link,
        crc: crc32fast::hash(frame),
        size: HEADER as u32,
    };
    [&h.to_bytes()[..], frame].concat()
}

/// A payload as a zstd frame.
pub fn zip(payload: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(payload, 3).unwrap()
}

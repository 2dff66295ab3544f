//! Files made to hurt: no panic, no memory, one clear line.

use std::sync::Arc;

use proptest::prelude::*;
use stallscope::recording::file::format::{BlockHeader, END, HEADER, Kind, MAX_PAYLOAD, end};
use stallscope::recording::{Event, ReadError, Reader};
use stallscope::sample::sockets::NetnsTable;

use crate::support::files::Dir;
use crate::support::fuzz::recording::{block, exercise, featured, zip};
use crate::support::recordings::{note, open, readable, recording, same, script, stamp};

#[test]
fn what_is_no_recording_is_named() {
    let e = |b: &[u8]| open(b.to_vec()).err().unwrap().to_string();
    assert_eq!(e(b""), "is empty: nothing was recorded");
    assert_eq!(
        e(b"hello world, this is a text file of some length"),
        "is not a stallscope recording"
    );
    assert_eq!(e(&[0; 5000]), "is not a stallscope recording");
    assert_eq!(e(&zip(b"only zstd")), "is not a stallscope recording");
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
        for kind in [Kind::Segment, Kind::Index, Kind::Event, Kind::Trailer] {
            exercise([&bytes[..first], &block(kind, raw, &zeros, 0, 0)].concat());
        }
    }
}

#[test]
fn lengths_that_promise_more_than_there_is_are_refused() {
    // Every number of a payload as large as it gets: counts, lengths, widths, rows.
    let (bytes, _) = recording(&script(), 2, false);
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

/// The offset of an end is nobody's promise: the groups are found without it.
#[test]
fn an_end_with_a_bogus_offset_is_damage_and_no_refusal() {
    let (bytes, all) = recording(&script(), 70, true);
    let to = bytes.len() - END;
    let dir = Dir::new();
    let path = dir.file("x.stall");
    for offset in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, bytes.len() as u64] {
        let bad = [&bytes[..to], &end(offset)].concat();
        // A file, and one that goes on behind it: the kernel refuses such an offset.
        for hurt in [bad.clone(), [&bad[..], &bytes].concat()] {
            std::fs::write(&path, &hurt).unwrap();
            let mut r = Reader::file(&path).unwrap_or_else(|e| panic!("{offset}: {e}"));
            let copies = hurt.len() as u64 / bytes.len() as u64;
            assert_eq!(r.len(), 70 * copies, "{offset}");
            assert_eq!(readable(&mut r, &all).len() as u64, 70 * copies);
            let damage: Vec<_> = r.damage().collect();
            assert_eq!(damage.len(), 1, "{damage:?}");
            assert_eq!((damage[0].offset, damage[0].bytes), (to as u64, END as u64));
            assert_eq!(damage[0].after.map(|a| a.seq.0), Some(69), "it has a place in time");
        }
    }
    // Files one behind the other: the offset of an end counts from where its own part began.
    let r = open([&bytes[..], &bytes].concat()).unwrap();
    assert_eq!((r.len(), r.damage().count(), r.is_sealed()), (140, 0, true));
}

/// Tables that promise more ticks than a group has are not believed.
#[test]
fn numbers_of_ticks_are_those_of_groups() {
    let (bytes, all) = recording(&script(), 70, true);
    let trailer_at = {
        let mut at = 0;
        loop {
            let h = BlockHeader::parse(&bytes[at..]).unwrap();
            if h.kind == Kind::Trailer {
                break at;
            }
            at += h.total() as usize;
        }
    };
    let h = BlockHeader::parse(&bytes[trailer_at..]).unwrap();
    let frame = &bytes[trailer_at + HEADER..trailer_at + h.total() as usize];
    let json = String::from_utf8(zstd::bulk::decompress(frame, h.raw as usize).unwrap()).unwrap();
    for lie in ["4294967295", "61", "0", "59"] {
        let json = json.replace("\"ticks\":60", &format!("\"ticks\":{lie}"));
        let trailer = block(Kind::Trailer, json.len() as u32, &zip(json.as_bytes()), 0, 0);
        let mut r =
            open([&bytes[..trailer_at], &trailer, &end(trailer_at as u64)].concat()).unwrap();
        if lie == "59" {
            // As good as any other, until the index says what there is.
            assert_eq!(r.len(), 69);
            assert!(matches!(r.tick(0), Err(ReadError::Damaged(_))));
            assert!(r.tick(60).is_ok());
        } else {
            assert_eq!(readable(&mut r, &all).len(), 70);
        }
    }
    // An index of a group that has more.
    let steps = format!("[0,0,0,0]{}", ",[1,1,1,0]".repeat(60));
    for (json, fits) in
        [(format!(r#"{{"ticks":[{steps}]}}"#), false), (r#"{"ticks":[[0,0,0,0]]}"#.into(), true)]
    {
        let (one, _) = recording(&script(), 1, false);
        let back = one.len() - BlockHeader::parse(&one).unwrap().total() as usize;
        let index = block(Kind::Index, json.len() as u32, &zip(json.as_bytes()), back as u32, 0);
        let mut r = open([&one[..], &index].concat()).unwrap();
        assert_eq!((r.len(), r.damage().count()), (1, usize::from(!fits)), "{json}");
        assert_eq!(r.tick(0).is_ok(), !fits, "found by its header, but not as this index has it");
    }
}

#[test]
fn lists_of_an_index_are_as_long_as_groups_need_them() {
    let (one, _) = recording(&script(), 1, false);
    let back = one.len() - BlockHeader::parse(&one).unwrap().total() as usize;
    for (list, n, fits) in [
        (r#""findings":[{}]"#, 16_384, true),
        (r#""findings":[{}]"#, 16_385, false),
        (r#""events":[{}]"#, 16_385, false),
        (r#""state":[["x",1]]"#, 1025, false),
    ] {
        let (open_at, close_at) = (list.find('[').unwrap() + 1, list.len() - 1);
        let item = &list[open_at..close_at];
        let item = if list.contains("events") {
            r#"{"at":{"seq":1,"mono":1,"wall":1},"event":"gap","ticks":1}"#
        } else {
            item
        };
        let all = vec![item; n].join(",");
        let json = format!(r#"{{"ticks":[[0,0,0,0]],{}{all}]}}"#, &list[..open_at]);
        let frame = zstd::bulk::compress(json.as_bytes(), 1).unwrap();
        // Long enough for its JSON, if it is small.
        let padding =
            [&0x184D_2A50_u32.to_le_bytes()[..], &60_000_u32.to_le_bytes(), &vec![0; 60_000]];
        let frame = [frame, padding.concat()].concat();
        let index = block(Kind::Index, json.len() as u32, &frame, back as u32, 0);
        let r = open([&one[..], &index].concat()).unwrap();
        assert_eq!(r.damage().count(), usize::from(!fits), "{n} {list}");
    }
}

/// A tick whose sections come twice costs twice as much for a few bytes.
#[test]
fn a_section_comes_once() {
    let (bytes, _) = recording(&script(), 2, false);
    let first = BlockHeader::parse(&bytes).unwrap().total() as usize;
    let h = BlockHeader::parse(&bytes[first..]).unwrap();
    let frame = &bytes[first + HEADER..first + h.total() as usize];
    let payload = zstd::bulk::decompress(frame, h.raw as usize).unwrap();
    // The first section once more: by its number, and by its name.
    for again in [&[2, 0][..], &[0, 4, b'h', b'o', b's', b't', 0]] {
        let twice = [&payload[..], again].concat();
        let mut key = BlockHeader::parse(&block(Kind::Keyframe, 0, &zip(&twice), 0, 0)).unwrap();
        (key.at, key.features, key.raw) = (h.at, h.features, twice.len() as u32);
        let mut r = open([&bytes[..first], &key.to_bytes(), &zip(&twice)].concat()).unwrap();
        let e = r.tick(0).unwrap_err().to_string();
        assert!(e.starts_with("a duplicate section"), "{e}");
    }
}

/// What is said at length is cut where it is written, and a group that says too much says less.
#[test]
fn events_are_written_so_that_they_can_be_read() {
    let script = script();
    let mut w = stallscope::recording::Writer::new(Vec::new(), &script.host()).unwrap();
    let first = script.tick(0);
    w.tick(&first, &note(0)).unwrap();
    for n in 0..20_000u64 {
        let text = if n == 0 { "\u{1}".repeat(100_000) } else { format!("{n}") };
        w.event(stamp(&first), Event::Mark { text }).unwrap();
    }
    let mut r = open(w.seal().unwrap()).unwrap();
    assert_eq!((r.len(), r.damage().count()), (1, 0));
    let index = r.index(0).unwrap();
    assert_eq!(index.events.len(), 16_384);
    let Event::Mark { text } = &index.events[0].event else { panic!() };
    assert_eq!((text.chars().count(), text.ends_with('…')), (1001, true));
}

#[test]
fn blocks_sections_and_features_of_later_versions_are_skipped() {
    let (bytes, all) = recording(&script(), 3, false);
    let json = b"something new";
    let odd = block(Kind::Unknown(99), json.len() as u32, &zip(json), 0, 0);
    let mut r = open([&bytes[..], &odd].concat()).unwrap();
    assert_eq!((r.len(), r.unknown_blocks(), r.damage().count()), (3, 1, 0));
    assert_eq!(readable(&mut r, &all).len(), 3);
    // A tick that needs a feature is passed over, and nobody takes its bytes for something else.
    let first = BlockHeader::parse(&bytes).unwrap().total() as usize;
    let h = BlockHeader::parse(&bytes[first..]).unwrap();
    let newer = BlockHeader { features: 1 << 9, ..h };
    let mut r =
        open([&bytes[..first], &newer.to_bytes(), &bytes[first + HEADER..]].concat()).unwrap();
    assert_eq!((r.len(), r.unknown_blocks(), r.damage().count()), (0, 1, 2));
    assert!(readable(&mut r, &all).is_empty());
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
    same(&r, &got, &all[0]);
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
        kind in prop_oneof![Just(Kind::Segment), Just(Kind::Keyframe), Just(Kind::Index), Just(Kind::Event)],
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let (good, _) = recording(&script(), 2, false);
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

/// Rows are read by index: one column that is too short would end the program in the middle of a
/// screen. Nothing is filled in, since every other column would then speak of another socket.
#[test]
fn a_table_with_columns_of_unequal_length_is_damage() {
    let script = script();
    let hurt: [fn(&mut NetnsTable); 3] =
        [|t| t.inet.lport.truncate(1), |t| t.inet.skmem.push([0; 9]), |t| t.unix.name_end.clear()];
    for (hurt, column) in hurt.into_iter().zip(["lport", "skmem", "name_end"]) {
        let mut w = stallscope::recording::Writer::new(Vec::new(), &script.host()).unwrap();
        for n in 0..3 {
            let mut tick = script.tick(n);
            if n == 1 {
                let sockets = Arc::make_mut(tick.samples.sockets.as_mut().unwrap());
                hurt(Arc::make_mut(&mut sockets.data.spaces[0]));
            }
            w.tick(&tick, &note(n)).unwrap();
        }
        let mut r = open(w.seal().unwrap()).unwrap();
        let sockets: Vec<bool> =
            (0..3).map(|n| r.tick(n).unwrap().samples.sockets.is_some()).collect();
        let said: Vec<String> = r.damage().map(|d| d.what.clone()).collect();
        assert!(sockets[0] && !sockets[1], "{column}: {sockets:?} {said:?}");
        assert!(said.iter().any(|s| s.contains(&format!("column {column} has"))), "{said:?}");
    }
}

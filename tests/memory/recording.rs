//! What a file made to hurt takes: memory at a time, bytes that are read and unpacked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::ser::{SerializeTuple as _, Serializer};
use stallscope::analysis::Analysis;
use stallscope::diagnose::Engine;
use stallscope::metrics::history::DEFAULT_BUDGET;
use stallscope::recording::codec::wire::{Input, put_varint};
use stallscope::recording::codec::{Names, Series, Stamp, from_tree, to_tree};
use stallscope::recording::file::format::{BlockHeader, END, HEADER, Kind};
use stallscope::recording::file::index::{GroupEntry, Trailer};
use stallscope::recording::{ReadAt, ReadError, Reader};

use crate::counting::bytes as taken;
use crate::support::fuzz::recording::{GOOD, block, stamped, zip};
use crate::support::samples::{self, Row, v4};

/// Counts the bytes that are asked of the kernel.
struct Counted {
    bytes: Vec<u8>,
    read: AtomicU64,
}

impl Counted {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes, read: AtomicU64::new(0) })
    }
}

impl ReadAt for Counted {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let n = self.bytes.read_at(buf, offset)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
    fn size(&self) -> io::Result<u64> {
        self.bytes.size()
    }
}

const MB: usize = 1 << 20;
/// What the bombs here claim to be, and are.
const BIG: usize = 255 * MB;

/// A zstd frame of so many equal bytes: 8 kB.
fn bomb(byte: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pour = zstd::stream::Encoder::new(&mut out, 3).unwrap();
    let mut bytes = io::Read::take(io::repeat(byte), BIG as u64);
    // With the length in its header, as one that is made in one go.
    pour.set_pledged_src_size(Some(BIG as u64)).unwrap();
    pour.include_contentsize(true).unwrap();
    io::copy(&mut bytes, &mut pour).unwrap();
    pour.finish().unwrap();
    assert!(out.len() < 64 << 10, "{}", out.len());
    out
}

/// A good recording of 64 ticks that was not closed, and where its segment ends.
fn good() -> (Vec<u8>, usize) {
    let bytes = GOOD.to_vec();
    let (mut at, mut first) = (0, 0);
    while let Ok(h) = BlockHeader::parse(&bytes[at..]) {
        if h.kind == Kind::Trailer {
            break;
        }
        at += h.total() as usize;
        first = if first == 0 { at } else { first };
    }
    (bytes[..at].to_vec(), first)
}

fn open(bytes: Vec<u8>) -> Reader {
    Reader::new(Arc::new(bytes)).unwrap()
}

/// Reads every tick, with the damage that this meets.
fn read(r: &mut Reader) -> u64 {
    let good = (0..r.len()).filter(|i| r.tick(*i).is_ok()).count() as u64;
    let survey = r.survey().unwrap();
    assert_eq!(survey.ticks, good);
    good
}

#[test]
fn a_thousand_bombs_of_each_kind_cost_what_they_take_in_the_file() {
    let (good, first) = good();
    for (kind, byte) in [
        (Kind::Event, 0),
        (Kind::Event, b' '),
        (Kind::Segment, b' '),
        (Kind::Index, b' '),
        (Kind::Trailer, b' '),
        (Kind::Keyframe, 0),
        (Kind::Delta, 0),
    ] {
        let bad = block(kind, BIG as u32, &bomb(byte), 0, 0);
        for front in [good.clone(), good[..first].to_vec()] {
            let expected = if front.len() == first { 0 } else { 64 };
            let file = [&front[..], &bad.repeat(1000)].concat();
            let size = file.len();
            let ((read, damage), peak, total) = taken(|| {
                let mut r = open(file);
                (read(&mut r), r.damage().count())
            });
            assert_eq!(read, expected, "{kind:?}");
            assert!(kind == Kind::Trailer || damage >= 1000, "{kind:?}: {damage}");
            assert!(peak < 16 * MB, "{kind:?}: {} MB at a time", peak / MB);
            assert!(total < 20 * size + 32 * MB, "{kind:?}: {} MB", total / MB);
        }
    }
}

#[test]
fn without_a_segment_some_keyframes_are_asked_for_the_host_and_no_more() {
    let spaces = zip(&vec![0; 60 << 10]);
    let file = block(Kind::Keyframe, 60 << 10, &spaces, 0, 0).repeat(20_000);
    let (_, _, total) = taken(|| open(file));
    assert!(total < 32 * MB, "{} MB", total / MB);
}

#[test]
fn what_is_small_enough_by_itself_is_limited_by_the_size_of_the_file() {
    let (good, _) = good();
    // Legal, one by one: JSON and a lot of space.
    let text = "x".repeat(16_000);
    let json = format!(r#"{{"at":{{"seq":1,"mono":1,"wall":1}},"event":"mark","text":"{text}"}}"#);
    let mark = block(Kind::Event, json.len() as u32, &zip(json.as_bytes()), 0, 0);
    let mut host = br#"{"host":{"hostname":"h"}}"#.to_vec();
    host.resize(16_000, b' ');
    let segment = block(Kind::Segment, host.len() as u32, &zip(&host), 0, 0);
    for bad in [mark, segment] {
        let file = [&good[..], &bad.repeat(20_000)].concat();
        let size = file.len();
        let (mut r, peak, total) = taken(|| open(file));
        let most = 8 * size + 16 * MB;
        assert!(peak < most && total < 2 * most, "{} MB, {} MB", peak / MB, total / MB);
        assert!(r.damage().count() > 1000, "it says what it left out");
        assert_eq!(read(&mut r), 64);
        // Another reader of the same file is not another copy of all that.
        let (_, peak, _) = taken(|| r.again().unwrap());
        assert!(peak < MB, "{} kB", peak >> 10);
    }
}

/// A sample with one list, of `rows` structs with nothing but a number, which is 0.
#[derive(Serialize)]
struct Rows {
    threads: Alike<Tid>,
}
#[derive(Clone, Copy, Serialize)]
struct Tid {
    tid: u32,
}
/// A list of so many times the same, without the list.
struct Alike<T>(usize, T);
impl<T: Serialize> Serialize for Alike<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(std::iter::repeat_n((), self.0).map(|()| &self.1))
    }
}

/// A section of `sched`.
fn section<T: Serialize>(sample: &T, series: &mut Series, names: &mut Names) -> Vec<u8> {
    let mut out = vec![1, 0, 0, 0];
    let tree = to_tree(sample, &mut series.schema, names).unwrap();
    series.encode(tree, &mut out).unwrap();
    out
}

/// The payload of a tick with nothing but that; the first of its group has its texts.
fn payload(section: &[u8], names: Option<&Names>) -> Vec<u8> {
    let (mut out, list) = (Vec::new(), names.map(Names::list).unwrap_or_default());
    put_varint(&mut out, list.len() as u64);
    for n in list {
        put_varint(&mut out, n.len() as u64);
        out.extend_from_slice(n.as_bytes());
    }
    out.extend_from_slice(if names.is_some() { b"\x01\x05sched" } else { b"\x03" });
    put_varint(&mut out, section.len() as u64);
    out.extend_from_slice(section);
    out
}

/// Millions of rows that are all alike take a few bytes.
#[test]
fn a_keyframe_of_like_rows_takes_memory_by_its_bytes() {
    let (front, first) = good();
    let mut file = front[..first].to_vec();
    let (mut series, mut names) = (Series::default(), Names::default());
    let threads = Alike(4 << 20, Tid { tid: 0 });
    let section = section(&Rows { threads }, &mut series, &mut names);
    for n in 0..50u64 {
        let payload = payload(&section, Some(&names));
        let at = Stamp { seq: stallscope::sample::time::Seq(n), ..Stamp::default() };
        let b = stamped(Kind::Keyframe, 0, payload.len() as u32, &zip(&payload), 0, 0, at);
        file.extend(b);
    }
    let ((), peak, total) = taken(|| {
        let mut r = open(file);
        let mut run = Analysis::new(r.host(), Engine::default(), DEFAULT_BUDGET);
        for i in 0..r.len() {
            if let Ok(t) = r.tick(i) {
                run.push(t);
            }
        }
        assert!(r.damage().count() > 0);
        r.survey().unwrap();
    });
    assert!(peak < 64 * MB, "{} MB at a time", peak / MB);
    assert!(total < 512 * MB, "{} MB", total / MB);
}

/// A group of ticks of one collector, its keyframe padded to so many bytes.
fn group<T: Serialize>(padded: usize, samples: &[T]) -> Vec<u8> {
    let (mut series, mut names) = (Series::default(), Names::default());
    let (mut file, mut back) = (Vec::new(), 0);
    for (n, sample) in samples.iter().enumerate() {
        let section = section(sample, &mut series, &mut names);
        let payload = payload(&section, (n == 0).then_some(&names));
        let mut frame = zip(&payload);
        if n == 0 && frame.len() < padded {
            let zeros = padded - frame.len() - 8;
            frame.extend([0x50, 0x2a, 0x4d, 0x18]);
            frame.extend((zeros as u32).to_le_bytes());
            frame.resize(padded, 0);
        }
        let seq = stallscope::sample::time::Seq(n as u64);
        let at = Stamp { seq, ..Stamp::default() };
        let kind = if n == 0 { Kind::Keyframe } else { Kind::Delta };
        let b = stamped(kind, 0, payload.len() as u32, &frame, back, n as u32, at);
        back += b.len() as u32;
        file.extend(b);
    }
    file
}

/// A list whose elements have so many numbers, each of which is `value` in one row and else 0, and
/// `add` more.
#[derive(Clone, Copy)]
struct Wide {
    rows: usize,
    width: usize,
    value: u64,
    add: u64,
}
impl Serialize for Wide {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let row = |i: usize| {
            let value = if i == self.rows / 2 { self.value } else { 0 };
            WideRow(self.width, value.wrapping_add(self.add))
        };
        s.collect_seq((0..self.rows).map(row))
    }
}
struct WideRow(usize, u64);
impl Serialize for WideRow {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut row = s.serialize_tuple(self.0)?;
        (0..self.0).try_for_each(|_| row.serialize_element(&self.1))?;
        row.end()
    }
}
/// The field of a sample that no reader knows.
#[derive(Serialize)]
struct Unknown {
    x: Wide,
}

fn wide(rows: usize, width: usize, value: u64, add: u64) -> Unknown {
    Unknown { x: Wide { rows, width, value, add } }
}

/// A MB of padding pays for the memory of no more than the sockets that take a MB.
#[test]
fn padding_pays_for_no_more_than_a_tick_of_its_size() {
    let (front, first) = good();
    for (rows, width) in [(1 << 25, 1), (1 << 20, 1), (1 << 20, 60), (1 << 23, 1), (1 << 14, 120)] {
        let key = wide(rows, width, u64::MAX, 0);
        let bad = [&front[..first], &group(MB, &[key])[..]].concat();
        let (read, peak, total) = taken(|| {
            let mut r = open(bad);
            (r.len(), r.tick(0).map(|_| r.damage().count()))
        });
        assert!(read.1.is_ok(), "the rest of the tick is there");
        let most = if rows == 1 << 23 { 320 * MB } else { 64 * MB };
        assert!(peak < most && total < most, "{rows} x {width}: {} MB", peak / MB);
    }
}

/// What is told of a whole recording is no larger than a list that somebody can use.
#[test]
fn events_and_findings_of_all_groups_are_a_list_of_limited_size() {
    use stallscope::recording::tools::info::Info;
    use stallscope::recording::{ActiveFinding, Event, TickSummary, Writer};
    use stallscope::sample::tick::{HostInfo, Tick};
    use stallscope::sample::time::Seq;
    let mut w = Writer::new(Vec::new(), &HostInfo::default()).unwrap();
    let (mut events, mut findings) = (0, 0);
    for group in 0..20u64 {
        let at = Stamp { seq: Seq(group), ..Stamp::default() };
        let finding = |n: u64| ActiveFinding {
            rule: "tcp-peer-gone".into(),
            subject: format!("{:>100}", group * 8_000 + n),
            severity: "warn".into(),
        };
        let note =
            TickSummary { findings: (0..8_000).map(finding).collect(), ..TickSummary::default() };
        w.tick(&Tick { seq: Seq(group), ..Tick::default() }, &note).unwrap();
        for n in 0..8_000u64 {
            w.event(at, Event::Mark { text: format!("{:>100}", group * 8_000 + n) }).unwrap();
        }
        w.end_group().unwrap();
        (events, findings) = (events + 8_000, findings + 8_000);
    }
    let bytes = w.seal().unwrap();
    let (info, peak, _) = taken(|| {
        let mut r = open(bytes.clone());
        Info::gather(&mut r, "many", |_, _| ()).unwrap()
    });
    assert!(info.events.len() > 50_000 && info.findings.len() > 10_000);
    assert_eq!(info.events.len() as u64 + info.events_left_out, events);
    assert_eq!(info.findings.len() as u64 + info.findings_left_out, findings);
    let text = stallscope::report::info::text(&info);
    assert!(text.contains(&format!("and {} more", events - 20)), "{text}");
    assert!(peak < 128 * MB, "info: {} MB at a time", peak / MB);
    drop(info);
    let (outline, peak, _) = taken(|| stallscope::playback::outline::outline(&mut open(bytes)));
    let last = &outline.posts.last().unwrap().text;
    assert!(last.contains("more findings and"), "{last}");
    assert!(peak < 128 * MB, "outline: {} MB at a time", peak / MB);
}

#[test]
fn columns_that_move_as_a_whole_are_moved_in_place() {
    let (front, first) = good();
    let samples: Vec<Unknown> = (0..8).map(|n| wide(1 << 20, 15, 9, n)).collect();
    let file = [&front[..first], &group(MB, &samples)[..]].concat();
    drop(samples);
    let (read, peak, total) = taken(|| {
        let mut r = open(file);
        ((0..r.len()).filter(|n| r.tick(*n).is_ok()).count(), r.damage().count())
    });
    assert_eq!(read, (8, 0));
    assert!(peak < 64 * MB && total < 64 * MB, "{} MB, {} MB", peak / MB, total / MB);
}

#[test]
fn wide_columns_are_not_free() {
    // A million rows of many numbers, in three bytes per number: kinds and how far back they
    // belong.
    for numbers in [10_000u32, 20_000] {
        let mut bytes = [leb(numbers + 2), vec![LIST, 1, 0, TUPLE, 1, 0]].concat();
        for i in 0..numbers {
            bytes.push(UNSIGNED);
            bytes.extend(leb(i + 1));
            bytes.push(0);
        }
        // Whole; the list has so many elements, known by their place.
        bytes.extend([0, 1, 3, 0, 0x80]);
        bytes.extend(leb(1 << 15));
        bytes.extend([0, 0]);
        let mut series = Series::default();
        let ((), peak, _) =
            taken(|| assert!(series.decode(1 << 20, &mut Input::new(&bytes)).is_err()));
        assert!(peak < 16 * MB, "{} MB", peak / MB);
    }
}

/// Numbers of kinds of nodes.
const UNSIGNED: u8 = 2;
const TUPLE: u8 = 8;
const LIST: u8 = 12;

fn leb(n: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, n.into());
    out
}

#[test]
fn noise_between_blocks_is_not_read_a_thousand_times() {
    let (good, first) = good();
    let key = BlockHeader::parse(&good[first..]).unwrap().total() as usize;
    let event = br#"{"at":{"seq":1,"mono":1,"wall":1},"event":"mark","text":"x"}"#;
    let event = block(Kind::Event, event.len() as u32, &zip(event), 0, 0);
    let noisy = [&event[..], b"?"].concat();
    let src = Counted::new([&good[..first + key], b"?", &noisy.repeat(5000)].concat());
    let r = Reader::new(src.clone()).unwrap();
    assert!(r.len() == 1 && r.damage().count() > 4000);
    let (size, read) = (src.bytes.len() as u64, src.read.load(Ordering::Relaxed));
    assert!(read < 40 * size, "{read} bytes of {size}");
}

/// A file that is a hole but for its ends: reading it stops, and copying takes no memory.
#[test]
fn a_hole_of_any_size_costs_a_limited_search() {
    struct Hole {
        front: Vec<u8>,
        back: Vec<u8>,
        size: u64,
        read: AtomicU64,
    }
    impl ReadAt for Hole {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            let n = buf.len().min(self.size.saturating_sub(offset) as usize);
            self.read.fetch_add(n as u64, Ordering::Relaxed);
            buf[..n].fill(0);
            let end = offset + n as u64;
            for (at, part) in [(0, &self.front), (self.size - self.back.len() as u64, &self.back)] {
                let (from, to) = (offset.max(at), end.min(at + part.len() as u64));
                if from < to {
                    let [from_buf, to_buf] = [from, to].map(|x| (x - offset) as usize);
                    let [from, to] = [from, to].map(|x| (x - at) as usize);
                    buf[from_buf..to_buf].copy_from_slice(&part[from..to]);
                }
            }
            Ok(n)
        }
        fn size(&self) -> io::Result<u64> {
            Ok(self.size)
        }
    }
    let (good, _) = good();
    let hole = |back: Vec<u8>| {
        Arc::new(Hole { front: good.clone(), back, size: 1 << 42, read: AtomicU64::new(0) })
    };
    let src = hole(Vec::new());
    let mut r = Reader::new(src.clone()).unwrap();
    assert_eq!(read(&mut r), 64);
    let once = src.read.swap(0, Ordering::Relaxed);
    assert!(once < 3 << 30, "{once} bytes");
    assert!(r.gave_up() && !open(good.clone()).gave_up());
    for _ in 0..10 {
        assert!(!r.refresh().unwrap());
    }
    let again = src.read.load(Ordering::Relaxed);
    assert!(again < 1 << 20, "{again} bytes");
    // A trailer that says that all of it is one group. Of its length only that of the number.
    let with = |end: u64| {
        let g = GroupEntry { end, ..r.groups()[0] };
        let trailer = Trailer { groups: vec![g], segments: vec![0] };
        let json = serde_json::to_vec(&trailer).unwrap();
        block(Kind::Trailer, json.len() as u32, &zip(&json), 0, 0)
    };
    let mut at = (1u64 << 42) - END as u64;
    while at + with(at).len() as u64 + END as u64 != 1 << 42 {
        at -= 1;
    }
    let back = [with(at), stallscope::recording::file::format::end(at).to_vec()].concat();
    let src = hole(back);
    let (copied, peak, _) = taken(|| {
        let r = Reader::new(src).unwrap();
        assert_eq!(r.groups()[0].end, at, "the trailer is believed");
        let raw = io::Read::take(r.raw_group(0).unwrap(), 1 << 30);
        io::copy(&mut { raw }, &mut io::sink()).unwrap()
    });
    assert!(copied == 1 << 30 && peak < 16 * MB, "{copied} bytes, {} MB", peak / MB);
}

#[test]
fn a_tick_that_is_lost_is_not_decoded_up_to_for_each_behind_it() {
    let (mut bytes, _) = good();
    // The 40th tick.
    let (mut at, mut ticks) = (0, 0);
    while let Ok(h) = BlockHeader::parse(&bytes[at..]) {
        ticks += u32::from(h.kind.is_tick());
        if ticks == 40 {
            bytes[at + HEADER + 20] ^= 1;
            break;
        }
        at += h.total() as usize;
    }
    let src = Counted::new(bytes);
    let mut r = Reader::new(src.clone()).unwrap();
    src.read.store(0, Ordering::Relaxed);
    let lost = (0..r.len())
        .filter(|i| matches!(r.tick(*i), Err(ReadError::Damaged(d)) if d.after.is_some()))
        .count();
    assert_eq!(lost, 21);
    let (size, read) = (src.bytes.len() as u64, src.read.load(Ordering::Relaxed));
    assert!(read < 3 * size, "{read} bytes of {size}");
}

/// The writer keeps to the limits of the reader, also where a sample is far more alike than any
/// host makes it.
#[test]
fn like_sockets_are_written_so_that_they_can_be_read() {
    use stallscope::recording::{TickSummary, Writer};
    use stallscope::sample::sockets::{
        InetRows, NetnsTable, SockState, SocketsSample, TcpInfo, UnixRows,
    };
    use stallscope::sample::tick::{HostInfo, Tick};
    use stallscope::sample::time::{MonoNs, Seq, Span};
    use stallscope::sample::{Samples, Stamped};
    let n = 40_000usize;
    let mut inet = InetRows::default();
    for i in 0..n {
        let row = Row {
            cookie: i as u64,
            local: v4([1; 4], i as u16),
            remote: v4([2; 4], 80),
            uid: 0,
            inode: i as u32,
            skmem: [0; 9],
            info: Some(TcpInfo::from_bytes(&[0; 248])),
            ..Row::default()
        };
        samples::add(&mut inet, row);
    }
    // Two readings of a table are told apart by when they were made.
    let sample = |rows: InetRows, n: u64| {
        let span = Span { start: MonoNs(n), end: MonoNs(n + 1) };
        // As many names as bytes fit into no smaller list.
        let unix = UnixRows {
            cookie: (1..=20_000).collect(),
            inode: (1..=20_000).collect(),
            kind: vec![1; 20_000],
            state: vec![SockState::ESTAB; 20_000],
            rqueue: vec![0; 20_000],
            wqueue: vec![0; 20_000],
            peer: vec![0; 20_000],
            name_end: (1..=20_000).map(|n| n * 100).collect(),
            names: vec![b'x'; 2_000_000],
        };
        let table = NetnsTable { inet: rows, unix, span, ..NetnsTable::default() };
        SocketsSample { spaces: vec![Arc::new(table)], ..SocketsSample::default() }
    };
    let ticks: Vec<Tick> = (0..3u64)
        .map(|n| {
            let mut inet = inet.clone();
            inet.rqueue.fill(n as u32);
            // All but one move: the one is below zero in between.
            inet.expires_ms.fill(200_000 - n as u32 * 1000);
            inet.expires_ms[0] = 0;
            let stamped = Stamped {
                span: Span::default(),
                cpu: std::time::Duration::ZERO,
                data: sample(inet, n),
            };
            let samples = Samples { sockets: Some(Arc::new(stamped)), ..Samples::default() };
            Tick { seq: Seq(n), samples, ..Tick::default() }
        })
        .collect();
    let mut w = Writer::new(Vec::new(), &HostInfo::default()).unwrap();
    for t in &ticks {
        w.tick(t, &TickSummary::default()).unwrap();
    }
    let bytes = w.seal().unwrap();
    // Two fifths of a MB of numbers are a few kB: without padding they would be refused.
    let key = BlockHeader::parse(&bytes).unwrap().total() as usize;
    let h = BlockHeader::parse(&bytes[key..]).unwrap();
    let frame = &bytes[key + HEADER..key + h.total() as usize];
    let len = zstd::zstd_safe::find_frame_compressed_size(frame).unwrap();
    assert!(len < frame.len(), "{len} of {}: the test tests nothing", frame.len());
    assert_eq!(zstd::stream::decode_all(frame).unwrap().len(), h.raw as usize, "any zstd reads it");
    let mut r = open(bytes);
    for t in &ticks {
        let got = r.tick(t.seq.0).unwrap();
        let json = |t: &Tick| serde_json::to_string(&t.samples).unwrap();
        assert!(json(&got) == json(t), "tick {}", t.seq.0);
    }
    assert_eq!(r.survey().unwrap().damage, 0);
}

#[test]
fn texts_are_not_copied_into_rows_without_end() {
    // A list of thousands of texts that are all the same long one.
    let text = "x".repeat(60_000);
    let (mut series, mut names) = (Series::default(), Names::default());
    let section = section(&Alike(30_000, &text), &mut series, &mut names);
    assert!(section.len() < 100);
    let mut told = Series::default();
    told.decode(1 << 20, &mut Input::new(&section[4..])).unwrap();
    let (out, peak, _) = taken(|| {
        let tree = told.last().unwrap();
        from_tree::<Vec<String>>(tree, &told.schema, &names, &mut (8 * MB)).is_err()
    });
    assert!(out && peak < 16 * MB, "{} MB", peak / MB);
}

/// What no reader would take is left out and named; everything else of the tick is there.
#[test]
fn a_sample_that_is_too_large_costs_no_other_one() {
    use stallscope::recording::{Event, TickSummary, Writer};
    use stallscope::sample::disks::DisksSample;
    use stallscope::sample::sockets::{NetnsTable, SocketsSample, UnixRows};
    use stallscope::sample::tick::{HostInfo, Tick};
    use stallscope::sample::time::{Seq, Span};
    use stallscope::sample::{Samples, Stamped};
    let names = |n: usize| {
        let unix = UnixRows { names: vec![b'x'; n], ..UnixRows::default() };
        let spaces = vec![Arc::new(NetnsTable { unix, ..NetnsTable::default() })];
        let data = SocketsSample { spaces, ..SocketsSample::default() };
        Arc::new(Stamped { span: Span::default(), cpu: std::time::Duration::ZERO, data })
    };
    let data = DisksSample::default();
    let disks = Arc::new(Stamped { span: Span::default(), cpu: std::time::Duration::ZERO, data });
    let (small, large) = (names(100), names((8 << 20) + 1));
    let mut w = Writer::new(Vec::new(), &HostInfo::default()).unwrap();
    for (n, sockets) in [&small, &large, &large, &small, &small].into_iter().enumerate() {
        let (sockets, disks) = (Some(sockets.clone()), Some(disks.clone()));
        let samples = Samples { sockets, disks, ..Samples::default() };
        let tick = Tick { seq: Seq(n as u64), samples, ..Tick::default() };
        w.tick(&tick, &TickSummary::default()).unwrap();
    }
    let mut r = open(w.seal().unwrap());
    for (n, there) in [true, false, false, true, true].into_iter().enumerate() {
        let s = &r.tick(n as u64).unwrap().samples;
        assert_eq!((s.sockets.is_some(), s.disks.is_some()), (there, true), "tick {n}");
    }
    let said = r.events().unwrap().list;
    let told =
        |m: &Event| matches!(m, Event::CollectorError { collector, .. } if collector == "sockets");
    assert!(said.len() == 1 && told(&said[0].event) && said[0].at.seq == Seq(1), "{said:?}");
    assert_eq!(r.survey().unwrap().damage, 0);
}

//! The reader of recordings, layer by layer: a file of any blocks ([`whole`]), ticks behind
//! headers and CRCs that are right ([`payload`]), and the samples of a section ([`sample`]).
//! Small inputs reach all of it; `cargo run --bin seeds` makes the ones to begin with.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stallscope::recording::Reader;
use stallscope::recording::codec::wire::{Input as Bytes, varint};
use stallscope::recording::codec::{Names, Series, Stamp, from_tree};
use stallscope::recording::file::format::{BlockHeader, HEADER, Kind, end, marker};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};
use stallscope::sample::{AnySample, CollectorId, SampleMaker, Samples, Shared, Stamped};

/// A recording to begin with.
pub const GOOD: &[u8] = include_bytes!("../../fixtures/golden/v1.stall");

/// Reads all that can be read.
pub fn exercise(bytes: Vec<u8>) {
    let Ok(mut r) = Reader::new(Arc::new(bytes)) else { return };
    for i in 0..r.len().min(200) {
        let _ = (r.tick_ref(i), r.tick(i));
    }
    for g in 0..r.groups().len().min(20) {
        let _ = (r.index(g), r.segment_of(g));
        let _ = r.raw_group(g).map(|mut raw| std::io::copy(&mut raw, &mut std::io::sink()));
    }
    let _ = r.survey();
    let _ = (r.host(), r.resume(), r.refresh(), r.at_wall(WallNs(0)), r.events());
    let _ = r.damage().map(ToString::to_string).collect::<Vec<_>>();
}

/// Takes bytes from the front of the input.
pub struct Input<'d>(pub &'d [u8]);

impl<'d> Input<'d> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
    fn short(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte()?, self.byte()?]))
    }
    /// As many bytes as the next two say, or all that are left.
    fn part(&mut self) -> Option<&'d [u8]> {
        let n = usize::from(self.short()?).min(self.0.len());
        let (part, rest) = self.0.split_at(n);
        self.0 = rest;
        Some(part)
    }
}

/// Bits of the byte before a block of [`whole`]; the kind is below them.
pub mod bits {
    /// Its places in the group are not right: they follow.
    pub const PLACES: u8 = 8;
    /// The frame follows, and the length that it states.
    pub const FRAME: u8 = 16;
    /// Its features follow.
    pub const FEATURES: u8 = 32;
    /// Its CRC is wrong.
    pub const HURT: u8 = 64;
    /// Something that is no block comes before it.
    pub const NOISE: u8 = 128;
}

/// The bytes as a file, or as a list of blocks: a byte of [`bits`], what it announces, payload.
pub fn whole(data: &[u8]) {
    if data.starts_with(&marker()) {
        exercise(data.to_vec());
    } else {
        exercise(file(data));
    }
}

/// The file that a list of blocks is.
pub fn file(data: &[u8]) -> Vec<u8> {
    let (mut input, mut out) = (Input(data), Vec::new());
    let (mut group, mut place, mut index, mut seq) = (0, 0u32, 0, 0u64);
    while let Some(n) = input.byte() {
        if n & bits::NOISE != 0 {
            out.push(n);
        }
        let at = out.len();
        let kind = match n & 7 {
            0 => Kind::Segment,
            1 => Kind::Keyframe,
            2 => Kind::Delta,
            3 => Kind::Index,
            4 => Kind::Trailer,
            5 => Kind::Event,
            6 => Kind::Unknown(99),
            _ => {
                out.extend(end(input.short().map_or(u64::MAX, u64::from)));
                continue;
            }
        };
        if kind == Kind::Keyframe {
            (group, place) = (at, 0);
        }
        let mut back = (at - group) as u32;
        let mut link = match kind {
            Kind::Delta => place,
            Kind::Index => (at - index) as u32,
            _ => 0,
        };
        if n & bits::PLACES != 0 {
            back = input.short().unwrap_or(0).into();
            link = input.short().unwrap_or(0).into();
        }
        let features = match n & bits::FEATURES {
            0 => 0,
            _ => input.byte().unwrap_or(0).into(),
        };
        let (frame, raw) = if n & bits::FRAME == 0 {
            let payload = input.part().unwrap_or_default();
            (store(payload), payload.len() as u32)
        } else {
            let raw = u32::from(input.short().unwrap_or(0)) << (n & 7);
            (input.part().unwrap_or_default().to_vec(), raw)
        };
        let ns = seq * 1_000_000_000;
        let stamp = Stamp { seq: Seq(seq), mono: MonoNs(ns), wall: WallNs(ns.cast_signed()) };
        let mut b = stamped(kind, features, raw, &frame, back, link, stamp);
        if n & bits::HURT != 0 {
            b[HEADER - 1] ^= 1;
        }
        match kind {
            Kind::Keyframe | Kind::Delta => (place, seq) = (place + 1, seq + 1),
            Kind::Index => index = at,
            _ => {}
        }
        out.extend(b);
    }
    out
}

/// The bytes as the payloads of a keyframe and its differences. The first byte says what is read
/// of them: the last tick alone, or everything.
pub fn payload(data: &[u8]) {
    let mut input = Input(data);
    let Some(how) = input.byte() else { return };
    let (mut file, mut place) = (Vec::new(), 0);
    while let Some(part) = input.part() {
        let kind = if place == 0 { Kind::Keyframe } else { Kind::Delta };
        let at = Stamp { seq: Seq(place.into()), ..Stamp::default() };
        let (raw, back) = (part.len() as u32, file.len() as u32);
        file.extend(stamped(kind, 0, raw, &store(part), back, place, at));
        place += 1;
    }
    if how >= 128 {
        return exercise(file);
    }
    let Ok(mut r) = Reader::new(Arc::new(file)) else { return };
    let last = r.len().saturating_sub(1);
    let _ = r.tick(last);
}

/// The bytes as what a collector's section holds, tick by tick: differences are applied, and the
/// sample is made of them as of that collector.
pub fn sample(data: &[u8]) {
    let mut input = Input(data);
    let Some(which) = input.byte() else { return };
    let which = CollectorId::ALL[usize::from(which) % CollectorId::ALL.len()];
    let (mut series, mut made) = (Series::default(), Samples::default());
    while let Some(part) = input.part() {
        let most = part.len().saturating_mul(64) + (1 << 16);
        if series.decode(most, &mut Bytes::new(part)).is_err() {
            return;
        }
        let maker = &mut Maker { which, series: &series, work: most * 16 };
        made = Samples::make(&made, maker).unwrap();
    }
}

struct Maker<'s> {
    which: CollectorId,
    series: &'s Series,
    work: usize,
}

impl SampleMaker for Maker<'_> {
    type Error = std::convert::Infallible;
    fn make<S: AnySample>(
        &mut self,
        id: CollectorId,
        _: Option<&Shared<S>>,
    ) -> Result<Option<Shared<S>>, Self::Error> {
        if id != self.which {
            return Ok(None);
        }
        let tree = self.series.last().unwrap();
        let data = from_tree::<S>(tree, &self.series.schema, names(), &mut self.work).ok();
        let stamped =
            |data| Arc::new(Stamped { span: Span::default(), cpu: Duration::default(), data });
        Ok(data.map(stamped))
    }
}

/// Texts, as the first group of a recording has them.
fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut out = Names::default();
        Parts::of(&payloads(GOOD, 2)[0]).names.into_iter().for_each(|n| out.append(n));
        out
    })
}

/// A payload, taken apart: see the format.
#[derive(Debug, Default)]
pub struct Parts {
    /// New texts.
    pub names: Vec<String>,
    /// Sections: number and kind, new name, bytes.
    pub sections: Vec<(u64, Option<String>, Vec<u8>)>,
}

impl Parts {
    /// Of a good payload.
    pub fn of(payload: &[u8]) -> Self {
        let (mut out, mut at) = (Self::default(), 0);
        let text = |at: &mut usize| -> String {
            let len = number(payload, at) as usize;
            *at += len;
            String::from_utf8(payload[*at - len..*at].to_vec()).unwrap()
        };
        for _ in 0..number(payload, &mut at) {
            out.names.push(text(&mut at));
        }
        while at < payload.len() {
            let head = number(payload, &mut at);
            let name = (head >> 1 == 0).then(|| text(&mut at));
            let len = number(payload, &mut at) as usize;
            out.sections.push((head, name, payload[at..at + len].to_vec()));
            at += len;
        }
        out
    }
}

/// A LEB128 number.
pub fn number(bytes: &[u8], at: &mut usize) -> u64 {
    varint(bytes, at).unwrap()
}

/// Payloads of the first ticks of a good recording.
pub fn payloads(good: &[u8], n: usize) -> Vec<Vec<u8>> {
    let (mut at, mut out) = (0, Vec::new());
    while let Ok(h) = BlockHeader::parse(&good[at..]) {
        let total = h.total() as usize;
        if h.kind.is_tick() && out.len() < n {
            let frame = &good[at + HEADER..at + total];
            out.push(zstd::bulk::decompress(frame, h.raw as usize).unwrap());
        }
        at += total;
    }
    out
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
    stamped(kind, features, raw, frame, back, link, Stamp::default())
}

/// One of a time.
pub fn stamped(
    kind: Kind,
    features: u16,
    raw: u32,
    frame: &[u8],
    back: u32,
    link: u32,
    at: Stamp,
) -> Vec<u8> {
    let h = BlockHeader {
        kind,
        features,
        at,
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

/// A short payload as a zstd frame of one block that is not compressed: costs nothing to make.
pub fn store(payload: &[u8]) -> Vec<u8> {
    let n = payload.len() as u32;
    let mut out = vec![0x28, 0xB5, 0x2F, 0xFD, 0xA0];
    out.extend(n.to_le_bytes());
    out.extend_from_slice(&(n << 3 | 1).to_le_bytes()[..3]);
    out.extend_from_slice(payload);
    out
}

//! Small ticks in fewer bytes than zstd makes of them, as feature 2 of the format has them.
//!
//! A keyframe of an idle host is mostly what every recording says: names of fields, texts of
//! signals, shapes of samples. It is compressed with one such keyframe at hand, the primer.
//!
//! A difference is a kB of small numbers, too little for a compressor that starts anew with each.
//! Its bits are predicted from what the differences of the group have shown so far: from the bytes
//! before within the section, and from the place within it. The predictions are mixed by weights
//! that learn, and the result goes to an arithmetic coder (the way of the PAQ family). All in
//! integers, so that every machine predicts the same; a group begins without knowledge, so that a
//! reader that begins there has it too. That takes some 0.2 us a byte, reading as well as writing:
//! longer payloads are left to zstd, and refused here.

mod place;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use self::place::{PLACES, Place};
use super::flat::{FlatError, put_varint, varint};

/// Longest keyframe: beyond it there is more than every recording says.
pub(crate) const MOST_KEYFRAME: usize = 256 << 10;
/// Longest difference, for the time that it takes.
const MOST_DELTA: usize = 2 << 10;

/// A keyframe, compressed. Never to be changed: it is part of the format.
const PRIMER: &[u8] = include_bytes!("primer.zst");
/// More bytes than it has.
const MOST_PRIMER: usize = 1 << 17;
/// zstd level of keyframes: a few ms a minute.
const LEVEL: i32 = 9;

fn primer() -> &'static [u8] {
    static TEXT: OnceLock<Vec<u8>> = OnceLock::new();
    TEXT.get_or_init(|| zstd::bulk::decompress(PRIMER, MOST_PRIMER).unwrap_or_default())
}

/// A keyframe's payload in the form that it is stored in: its length, then a zstd frame that
/// needs the primer. `None`: it is better stored as it is.
pub(crate) fn pack_keyframe(payload: &[u8]) -> Option<Vec<u8>> {
    if payload.len() > MOST_KEYFRAME {
        return None;
    }
    // Made anew each minute: what it takes of memory is not kept.
    let mut zip = zstd::bulk::Compressor::with_dictionary(LEVEL, primer()).ok()?;
    zip.include_checksum(false).ok()?;
    let mut out = Vec::new();
    put_varint(&mut out, payload.len() as u64);
    out.extend(zip.compress(payload).ok()?);
    Some(out)
}

/// The payload again.
pub(crate) fn unpack_keyframe(packed: &[u8]) -> Result<Vec<u8>, FlatError> {
    let (len, frame) = length(packed, MOST_KEYFRAME)?;
    let payload = zstd::bulk::Decompressor::with_dictionary(primer())
        .and_then(|mut zip| zip.decompress(frame, len));
    payload.ok().filter(|p| p.len() == len).ok_or_else(torn)
}

fn torn() -> FlatError {
    FlatError("a tick that was packed in another way".to_owned())
}

/// The length of the payload, and what follows it.
fn length(packed: &[u8], most: usize) -> Result<(usize, &[u8]), FlatError> {
    let mut at = 0;
    let len = varint(packed, &mut at).and_then(|n| usize::try_from(n).ok());
    let len = len.filter(|n| *n <= most).ok_or_else(torn)?;
    Ok((len, packed.get(at..).unwrap_or_default()))
}

/// Contexts that predict.
const CONTEXTS: usize = 3;
/// And a constant.
const INPUTS: usize = CONTEXTS + 1;
/// Lines of the table of a context.
const LINES: usize = 1 << 13;
/// Slots for the bits of half a byte: the bits before, with a leading one.
type Line = [u16; 16];

/// What the differences of a group have shown so far.
#[derive(Clone)]
pub(crate) struct Model {
    tables: [Vec<Line>; CONTEXTS],
    weights: [[i32; INPUTS]; PLACES],
    logistic: &'static Logistic,
    place: Place,
    /// The last two bytes.
    tail: u32,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Model")
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            tables: [(); CONTEXTS].map(|()| vec![[0; 16]; LINES]),
            weights: [[(1 << 16) * 3 / 10; INPUTS]; PLACES],
            logistic: Logistic::get(),
            place: Place::default(),
            tail: 0,
        }
    }
}

/// A slot is a probability: 12 bits of it, then 4 bits of how often it was seen; all against
/// one half, so that a table of zeros has seen nothing and takes no memory yet.
const HALF: u16 = 1 << 15;
/// By how much of the distance: a half at first, then as the mean of all would move, until what
/// is older counts less.
const RATES: [i32; 16] = {
    let mut out = [0; 16];
    let mut n = 0;
    while n < out.len() {
        out[n] = (2 << 16) / (2 * n as i32 + 3);
        n += 1;
    }
    out
};

/// Moves a probability towards the bit that came.
fn learn(slot: &mut u16, bit: u32) {
    let s = *slot ^ HALF;
    let n = s & 15;
    let p = i32::from(s >> 4);
    let goal = if bit == 1 { 4095 } else { 0 };
    let moved = p + (((goal - p) * RATES[usize::from(n)] + 32768) >> 16);
    *slot = ((moved as u16) << 4 | (n + 1).min(15)) ^ HALF;
}

/// Logistic function: -2047 to 2047 as 12 bits of probability.
fn squash(d: i32) -> i32 {
    const T: [i32; 33] = [
        1, 2, 3, 6, 10, 16, 27, 45, 73, 120, 194, 310, 488, 747, 1101, 1546, 2047, 2549, 2994,
        3348, 3607, 3785, 3901, 3975, 4022, 4050, 4068, 4079, 4085, 4089, 4092, 4093, 4094,
    ];
    let d = d.clamp(-2047, 2047);
    let (w, i) = (d & 127, ((d >> 7) + 16) as usize);
    let of = |i: usize| T.get(i).copied().unwrap_or(4094);
    (of(i) * (128 - w) + of(i + 1) * w + 64) >> 7
}

/// [`squash`] and its inverse, for all arguments.
struct Logistic {
    squash: [i16; 4096],
    stretch: [i16; 4096],
}

impl Logistic {
    fn get() -> &'static Self {
        static TABLES: OnceLock<Logistic> = OnceLock::new();
        TABLES.get_or_init(|| {
            let mut out = Self { squash: [4095; 4096], stretch: [2047; 4096] };
            let mut next = 0usize;
            for (slot, d) in out.squash.iter_mut().zip(-2047..=2047) {
                let p = squash(d);
                *slot = p.clamp(1, 4095) as i16;
                out.stretch.get_mut(next..=p as usize).unwrap_or_default().fill(d as i16);
                next = next.max(p as usize + 1);
            }
            out
        })
    }
}

fn hash(a: u32, b: u32) -> u32 {
    let h = a.wrapping_mul(0x9E37_79B1) ^ b.wrapping_mul(0x85EB_CA77).rotate_left(13);
    (h ^ (h >> 15)).wrapping_mul(0xC2B2_AE3D) ^ (h >> 7)
}

/// Is a difference short enough for a [`Model`]?
pub(crate) fn is_small(payload: &[u8]) -> bool {
    payload.len() <= MOST_DELTA
}

impl Model {
    /// The stored form of a difference's payload: its length, then the code. `None`: it is too
    /// long.
    pub(crate) fn pack(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        if !is_small(payload) {
            return None;
        }
        let mut out = Vec::with_capacity(payload.len() / 2 + 16);
        put_varint(&mut out, payload.len() as u64);
        self.restart();
        let mut range = Range::default();
        for byte in payload {
            let mut left = 8;
            self.byte(&mut |p| {
                left -= 1;
                let bit = u32::from(byte >> left) & 1;
                range.narrow(p, |_| bit, |high| out.push(high));
                bit
            });
        }
        // The shortest code within the range; a reader takes zeros behind the end.
        if range.low > 0 {
            out.push((range.low >> 24) as u8 + 1);
        }
        Some(out)
    }

    /// The payload again.
    pub(crate) fn unpack(&mut self, packed: &[u8]) -> Result<Vec<u8>, FlatError> {
        let (len, code) = length(packed, MOST_DELTA)?;
        let mut code = code.iter();
        let mut next = || u32::from(code.next().copied().unwrap_or(0));
        let mut x = (0..4).fold(0u32, |x, _| x << 8 | next());
        self.restart();
        let mut range = Range::default();
        let mut out = Vec::with_capacity(len);
        for _ in 0..len {
            let byte = self.byte(&mut |p| {
                let code = x;
                range.narrow(p, |middle| u32::from(code <= middle), |_| x = x << 8 | next())
            });
            out.push(byte);
        }
        Ok(out)
    }

    /// Before a payload.
    fn restart(&mut self) {
        self.place = Place::default();
        self.tail = 0;
    }

    /// Codes a byte: `code` takes the probability of a one and gives the bit.
    fn byte(&mut self, code: &mut impl FnMut(u32) -> u32) -> u8 {
        let (section, offset) = self.place.now();
        let last = self.tail & 0xff;
        let words = [
            section << 8 | last,
            section << 16 | (self.tail & 0xffff),
            // Whether the last byte ended a number.
            section << 16 | offset.min(63) << 1 | last >> 7,
        ];
        let high = self.half(&words, 0, section, code);
        let low = self.half(&words, high | 16, section, code);
        let byte = (high << 4 | low) as u8;
        self.tail = self.tail << 8 | u32::from(byte);
        self.place.step(byte);
        byte
    }

    /// Half a byte; `before` tells which, and what the other one was.
    fn half(
        &mut self,
        words: &[u32; CONTEXTS],
        before: u32,
        section: u32,
        code: &mut impl FnMut(u32) -> u32,
    ) -> u32 {
        let tables = self.logistic;
        let [a, b, c] = &mut self.tables;
        let line = |i: usize| (hash(words[i], before + 64 * i as u32) >> 8) as usize % LINES;
        let mut lines = [&mut a[line(0)], &mut b[line(1)], &mut c[line(2)]];
        let weights = &mut self.weights[section as usize % PLACES];
        let mut node = 1usize;
        for _ in 0..4 {
            let mut inputs = [0, 0, 0, 256];
            for (input, line) in inputs.iter_mut().zip(&lines) {
                let p = line[node & 15] ^ HALF;
                let st = tables.stretch[(p >> 4) as usize];
                // What was seen once says less than what was seen often.
                *input = (i32::from(st) * ((p & 15).min(6) as i32 + 2)) >> 2;
            }
            let both = weights.iter().zip(&inputs);
            let dot: i64 = both.map(|(w, i)| i64::from(*w) * i64::from(*i)).sum();
            let d = (dot >> 16).clamp(-2047, 2047) + 2047;
            let mixed = i32::from(tables.squash.get(d as usize).copied().unwrap_or(2048));
            let bit = code(mixed as u32);
            let error = i64::from((((bit as i32) << 12) - mixed) * 10);
            for (w, input) in weights.iter_mut().zip(&inputs) {
                let by = (i64::from(*input) * error + 0x8000) >> 16;
                *w = w.wrapping_add(by as i32);
            }
            for line in &mut lines {
                learn(&mut line[node & 15], bit);
            }
            node = node << 1 | bit as usize;
        }
        node as u32 & 15
    }
}

/// What is left of all codes.
struct Range {
    low: u32,
    high: u32,
}

impl Default for Range {
    fn default() -> Self {
        Self { low: 0, high: u32::MAX }
    }
}

impl Range {
    /// Takes the part of a bit, which `bit` tells by where the part of a one ends. `shift` hears
    /// of each byte that is settled.
    fn narrow(&mut self, p: u32, bit: impl Fn(u32) -> u32, mut shift: impl FnMut(u8)) -> u32 {
        let part = (u64::from(self.high - self.low) * u64::from(p)) >> 12;
        let middle = self.low + part as u32;
        let bit = bit(middle);
        if bit == 1 {
            self.high = middle;
        } else {
            self.low = middle + 1;
        }
        while (self.low ^ self.high) >> 24 == 0 {
            shift((self.high >> 24) as u8);
            (self.low, self.high) = (self.low << 8, self.high << 8 | 255);
        }
        bit
    }
}

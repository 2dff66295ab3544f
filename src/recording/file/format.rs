//! The recording format, version 1: specification, block headers, limits.
//!
//! A recording is a series of blocks. Each block is a zstd *skippable frame* with a header of
//! [`HEADER`] bytes, followed directly by one zstd frame with the payload: the whole file is a
//! legal zstd stream, and `zstd -dc FILE` prints its payloads. All integers are little endian.
//!
//! ```text
//!  0  u32    magic of a skippable frame, 0x184D2A5B
//!  4  u32    bytes of the header after this field: 56; at most 4096, more are ignored
//!  8  [u8;4] "stl" 0xF1; bytes 0 to 11 are the sync marker that recovery scans for
//! 12  u8     format version: 1
//! 13  u8     kind of block, below; unknown kinds are skipped
//! 14  u16    features that a reader must know to use the block; unknown: skip and say so
//! 16  u64    seq           of the tick (index: first tick of the group)
//! 24  u64    mono, ns      the key of time
//! 32  i64    wall, ns      beside it: it may step
//! 40  u32    bytes of the payload; see Limits
//! 44  u32    bytes of the zstd frame behind the header, with its padding
//! 48  u32    back: from the keyframe's first byte to this header's; 0 outside of groups
//! 52  u32    link: of a delta, its place in the group, 1 to 59; of an index, bytes back to the
//!            index before it, 0 for none
//! 56  u32    CRC-32 of the zstd frame
//! 60  u32    CRC-32 of bytes 0 to 59
//! ```
//!
//! | kind | payload |
//! |---|---|
//! | 1 segment | JSON [`Segment`](crate::recording::codec::Segment): host, boot, kernel, tool, clock anchors. First block of a file, and again where a recorder continues it |
//! | 2 keyframe | a tick, whole |
//! | 3 delta | a tick, as the difference from the one before |
//! | 4 index | JSON [`GroupIndex`](super::index::GroupIndex): places and times of the ticks, figures per pane, findings, events, state hash |
//! | 5 trailer | JSON [`Trailer`](super::index::Trailer): all groups. Only in a file that was closed; never needed |
//! | 6 event | JSON [`Event`](super::index::Event): gap, clock step, dropped ticks, collector error, mark of the user |
//!
//! No block of this version needs a feature.
//!
//! A *group* is a keyframe, up to 59 deltas, the events between them, and its index. It is
//! self-contained: the keyframe holds the host, so that a group can be copied to another file as it
//! is, and a flipped bit costs at most the rest of its group. After the trailer comes the *end*: a
//! skippable frame of 24 bytes (same magic and marker, kind 7), then the offset of the trailer as
//! u64 from the start of the file and a CRC-32 of all before it. A file that continues after its
//! trailer keeps it; only the last one counts.
//!
//! # Ticks
//!
//! The payload of a tick: the texts that are new in this group (count; length and text of
//! each), then sections to the end: number of the section's name plus 1 (0: a new name follows,
//! as length and text), times 2, plus 1 for a collector's; length, bytes. Numbers are LEB128.
//! Sections are `host` (keyframes), `health`, `signals` (of the collectors that offer something
//! else now), all three JSON, and one per collector that has a sample, by its stable name. No
//! section: no sample. A section of no bytes: the same as in the tick before. A collector's section
//! begins with its stamps: 1 when all three are in steps of 10 us, 0 when they are in ns; start of
//! the reading as distance from the end of the one in the section before it (the first: from the
//! tick's `mono`; rounded down to a step), its length, and its CPU time, all zigzag. Then the
//! sample, the layout of which is in [`codec`](crate::recording::codec) step by step. Gaps of the
//! source are in `health`. Unknown sections are skipped by their length; unknown fields with their
//! columns, missing ones take their defaults.
//!
//! Everything is stored exactly. Ages that all moved by the same amount cost one number for the
//! column; the few that did not cost theirs, so that nothing has to be rounded, and a replay
//! sees what the live run saw to the last bit.
//!
//! # Limits
//!
//! zstd makes 8 KB of 256 MB of zeros, and a column of a million zeros takes three bytes: the size
//! of a block in the file bounds what it may become, before anything is unpacked or built.
//!
//! | what | at most | reason |
//! |---|---|---|
//! | segment | 16 KiB | names of a host: the kernel's are 64 bytes |
//! | event | 64 KiB | its texts are cut at 1,000 characters |
//! | index | 4 MiB; 60 ticks, 16,384 findings and as many events, 1,024 figures and as many hashes | 60 ticks of 1,000 findings, most of which last |
//! | trailer | 64 MiB | 300,000 groups; a longer one is not read, and the indexes are |
//! | any of these | 16 KiB, and 64 times its frame | JSON shrinks to a fifth, and one whose events are all the same to a fortieth |
//! | tick | 256 MiB | 200,000 sockets with `tcp_info`: 28 million numbers of up to 9 bytes |
//! | the same | 64 KiB, and 256 times its frame | like sockets shrink to a twentieth |
//! | samples of a tick | 2^26 units: numbers, half of the bytes that a column takes where that is more, 8 per node | 400,000 sockets |
//! | texts of a group | as many units: 8 each, and their bytes | they are kept beside the samples |
//! | nodes of a collector | 2^14, 64 levels deep | there are some hundreds, some ten deep |
//! | rows of a list | 2^23 | names of UNIX sockets are a list of bytes: 270,000 of 30 bytes each |
//! | the same | 2^18 units, and 64 times the frames of the group so far | a socket has 140 numbers, and its cookie, port and inode take 3 bytes in the file |
//! | steps and bytes to make a tick of them | 16 per unit that there may be | a number is 8 bytes at most, and passes through one copy |
//! | JSON that is unpacked to open a file | 1 MiB, and 4 times the file | indexes are a tenth of a file; beyond it, they are left out and ticks are found by their headers |
//! | events between groups; groups | 20,000; 2^20 | 72 days of ten ticks a second |
//!
//! A writer keeps to them: where a tick should need a longer frame than zstd makes, a skippable
//! frame of zeros follows the frame and counts as part of it.
//!
//! # Reading
//!
//! Nothing is trusted: lengths are bounded before memory is taken, decompression ends at the stated
//! length, CRCs come before both. A reader finds the trailer by the end, or hops from index to
//! index backwards, or from header to header; where a header is bad it scans for the next marker,
//! and the gap is a [`Damage`](super::damage::Damage), never a refusal.

use crate::recording::codec::Stamp;
use crate::sample::time::{MonoNs, Seq, WallNs};

/// Version that this program writes, and the newest that it reads.
pub const VERSION: u8 = 1;
/// Bytes of a block header.
pub const HEADER: usize = 64;
/// Bytes of the end after a trailer.
pub const END: usize = 28;
pub const MAX_PAYLOAD: usize = 256 << 20;
/// Largest frame: zstd adds little to what it cannot compress.
pub const MAX_FRAME: usize = MAX_PAYLOAD + (MAX_PAYLOAD >> 7) + 1024;
/// Ticks of a group.
pub const GROUP_TICKS: u32 = 60;
/// Bits of the features that this program knows.
const FEATURES: u16 = 0;

const MAGIC: u32 = 0x184D_2A5B;
const MARK: [u8; 4] = *b"stl\xF1";
/// Header bytes that are not the magic and the length.
const REST: u32 = HEADER as u32 - 8;
const MAX_REST: u32 = 4096;

/// The first bytes of every block of version 1.
pub fn marker() -> [u8; 12] {
    let mut out = [0; 12];
    put(&mut out, 0, MAGIC.to_le_bytes());
    put(&mut out, 4, REST.to_le_bytes());
    put(&mut out, 8, MARK);
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Host and clock anchors.
    Segment,
    Keyframe,
    Delta,
    Index,
    Trailer,
    Event,
    /// Of a later version.
    Unknown(u8),
}

/// Kind of the end: it has no payload of its own.
const END_KIND: u8 = 7;

/// Kinds by their numbers in a file.
const KINDS: [(Kind, u8); 6] = [
    (Kind::Segment, 1),
    (Kind::Keyframe, 2),
    (Kind::Delta, 3),
    (Kind::Index, 4),
    (Kind::Trailer, 5),
    (Kind::Event, 6),
];

impl Kind {
    fn number(self) -> u8 {
        let Self::Unknown(n) = self else {
            return KINDS.iter().find(|k| k.0 == self).map_or(0, |k| k.1);
        };
        n
    }
    fn of(n: u8) -> Self {
        KINDS.iter().find(|k| k.1 == n).map_or(Self::Unknown(n), |k| k.0)
    }
    pub fn is_tick(self) -> bool {
        matches!(self, Self::Keyframe | Self::Delta)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    pub kind: Kind,
    /// What a reader must know.
    pub features: u16,
    pub at: Stamp,
    /// Bytes of the payload, and of the frame that it is in.
    pub raw: u32,
    pub stored: u32,
    /// Bytes from the keyframe to here.
    pub back: u32,
    /// Place in the group, or bytes back to the index before.
    pub link: u32,
    /// Of the frame.
    pub crc: u32,
    /// Bytes of this header in the file.
    pub size: u32,
}

/// Why some bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("no block begins here")]
    NotABlock,
    #[error("the file ends inside a block")]
    Short,
    /// A later version of the format.
    #[error("format version {0}; this program reads up to {VERSION}")]
    Version(u8),
    #[error("a block header is damaged")]
    Crc,
}

impl BlockHeader {
    pub fn to_bytes(&self) -> [u8; HEADER] {
        let mut b = [0; HEADER];
        put(&mut b, 0, marker());
        put(&mut b, 12, [VERSION, self.kind.number()]);
        put(&mut b, 14, self.features.to_le_bytes());
        put(&mut b, 16, self.at.seq.0.to_le_bytes());
        put(&mut b, 24, self.at.mono.0.to_le_bytes());
        put(&mut b, 32, self.at.wall.0.to_le_bytes());
        put(&mut b, 40, self.raw.to_le_bytes());
        put(&mut b, 44, self.stored.to_le_bytes());
        put(&mut b, 48, self.back.to_le_bytes());
        put(&mut b, 52, self.link.to_le_bytes());
        put(&mut b, 56, self.crc.to_le_bytes());
        let crc = crc32fast::hash(b.get(..60).unwrap_or_default());
        put(&mut b, 60, crc.to_le_bytes());
        b
    }

    /// Reads the header at the start of `b`.
    pub fn parse(b: &[u8]) -> Result<Self, HeaderError> {
        let short = |n: usize| if b.len() < n { Err(HeaderError::Short) } else { Ok(()) };
        let same = |at: usize, want: &[u8]| {
            let have = b.get(at..).unwrap_or_default();
            have.iter().zip(want).all(|(a, b)| a == b)
        };
        if !same(0, &MAGIC.to_le_bytes()) || !same(8, &MARK) {
            return Err(HeaderError::NotABlock);
        }
        short(13)?;
        match byte(b, 12) {
            VERSION => {}
            0 => return Err(HeaderError::Crc),
            v => return Err(HeaderError::Version(v)),
        }
        short(HEADER)?;
        let stated = u32_at(b, 60);
        if crc32fast::hash(b.get(..60).unwrap_or_default()) != stated {
            return Err(HeaderError::Crc);
        }
        let rest = u32_at(b, 4);
        let h = Self {
            kind: Kind::of(byte(b, 13)),
            features: u16::from_le_bytes([byte(b, 14), byte(b, 15)]),
            at: Stamp {
                seq: Seq(u64_at(b, 16)),
                mono: MonoNs(u64_at(b, 24)),
                wall: WallNs(u64_at(b, 32).cast_signed()),
            },
            raw: u32_at(b, 40),
            stored: u32_at(b, 44),
            back: u32_at(b, 48),
            link: u32_at(b, 52),
            crc: u32_at(b, 56),
            size: rest.saturating_add(8),
        };
        let fits = h.raw as usize <= MAX_PAYLOAD && h.stored as usize <= MAX_FRAME;
        let sane = (REST..=MAX_REST).contains(&rest);
        if fits && sane { Ok(h) } else { Err(HeaderError::Crc) }
    }

    /// Bytes of header and frame together.
    pub fn total(&self) -> u64 {
        u64::from(self.size) + u64::from(self.stored)
    }
    /// Can this program use the block?
    pub fn is_known(&self) -> bool {
        self.features & !FEATURES == 0 && !matches!(self.kind, Kind::Unknown(_))
    }
}

/// The end of a file that was closed: where its trailer is.
pub fn end(trailer: u64) -> [u8; END] {
    let mut b = [0; END];
    put(&mut b, 0, MAGIC.to_le_bytes());
    put(&mut b, 4, (END as u32 - 8).to_le_bytes());
    put(&mut b, 8, MARK);
    put(&mut b, 12, [VERSION, END_KIND]);
    put(&mut b, 16, trailer.to_le_bytes());
    let crc = crc32fast::hash(b.get(..24).unwrap_or_default());
    put(&mut b, 24, crc.to_le_bytes());
    b
}

/// The offset of the trailer, if these bytes are an end.
pub fn parse_end(b: &[u8]) -> Option<u64> {
    let b: &[u8; END] = b.get(..END)?.try_into().ok()?;
    let trailer = u64_at(b, 16);
    (end(trailer) == *b).then_some(trailer)
}

fn put<const N: usize>(to: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(slot) = to.get_mut(at..at + N) {
        slot.copy_from_slice(&bytes);
    }
}

fn byte(b: &[u8], at: usize) -> u8 {
    b.get(at).copied().unwrap_or(0)
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([byte(b, at), byte(b, at + 1), byte(b, at + 2), byte(b, at + 3)])
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn header() -> BlockHeader {
        BlockHeader {
            kind: Kind::Delta,
            features: 0,
            at: Stamp { seq: Seq(7), mono: MonoNs(1 << 40), wall: WallNs(-5) },
            raw: 1000,
            stored: 500,
            back: 70_000,
            link: 3,
            crc: 0xDEAD_BEEF,
            size: HEADER as u32,
        }
    }

    #[test]
    fn a_header_comes_back_and_every_flipped_bit_is_seen() {
        let h = header();
        let b = h.to_bytes();
        assert_eq!(BlockHeader::parse(&b), Ok(h));
        for bit in 0..HEADER * 8 {
            let mut hurt = b;
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert!(BlockHeader::parse(&hurt).is_err(), "bit {bit}");
        }
        for cut in 0..HEADER {
            assert_eq!(BlockHeader::parse(&b[..cut]), Err(HeaderError::Short), "{cut}");
        }
    }

    #[test]
    fn another_version_is_named_whatever_its_header_looks_like() {
        let mut b = header().to_bytes();
        b[12] = 9;
        b[4] = 200;
        assert_eq!(BlockHeader::parse(&b), Err(HeaderError::Version(9)));
        assert_eq!(BlockHeader::parse(b"not a recording"), Err(HeaderError::NotABlock));
    }

    #[test]
    fn the_end_tells_where_the_trailer_is() {
        let e = end(1 << 33);
        assert_eq!(parse_end(&e), Some(1 << 33));
        for bit in 0..END * 8 {
            let mut hurt = e;
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse_end(&hurt), None);
        }
    }
}

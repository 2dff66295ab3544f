//! Reads the kernel's type information (`/sys/kernel/btf/vmlinux`, since 5.4 with
//! CONFIG_DEBUG_INFO_BTF) as far as the programs need it: where a member lies in a structure,
//! how many arguments a tracepoint has, and the names of an enumeration.
//!
//! The data comes from the kernel or from a file: nothing here trusts an offset or a count.

use std::fmt;
use std::ops::Range;

const MAGIC: u16 = 0xeb9f;
const KIND_INT: u8 = 1;
const KIND_PTR: u8 = 2;
const KIND_ARRAY: u8 = 3;
const KIND_STRUCT: u8 = 4;
const KIND_UNION: u8 = 5;
const KIND_ENUM: u8 = 6;
const KIND_FWD: u8 = 7;
const KIND_TYPEDEF: u8 = 8;
const KIND_VOLATILE: u8 = 9;
const KIND_CONST: u8 = 10;
const KIND_RESTRICT: u8 = 11;
const KIND_FUNC: u8 = 12;
const KIND_FUNC_PROTO: u8 = 13;
const KIND_VAR: u8 = 14;
const KIND_DATASEC: u8 = 15;
const KIND_FLOAT: u8 = 16;
const KIND_DECL_TAG: u8 = 17;
const KIND_TYPE_TAG: u8 = 18;
const KIND_ENUM64: u8 = 19;

/// Types, modifiers or anonymous members that are followed in a row at most.
const MAX_DEPTH: u32 = 16;
/// Bytes of the header of version 1.
const HEADER: u32 = 24;
/// Bytes of a type before what its kind adds.
const TYPE_BYTES: usize = 12;

/// Why a blob is no BTF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It is too short for what its header says.
    #[error("cut short")]
    Short,
    /// Magic or version are not those of BTF (or it is of the other byte order).
    #[error("not BTF version 1 of this byte order")]
    Header,
    /// A kind of type that is newer than this reader: its size is unknown.
    #[error("unknown kind of type {0}")]
    Kind(u8),
}

/// Parsed type information.
pub struct Btf {
    blob: Vec<u8>,
    types: Range<usize>,
    strings: Range<usize>,
    /// Offset of each type in `types`; type ids begin at 1.
    offsets: Vec<u32>,
    /// Types that are looked up by name: kind, offset of the name, id.
    named: Vec<(u8, u32, u32)>,
}

impl fmt::Debug for Btf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Btf({} types)", self.offsets.len())
    }
}

#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u8,
    vlen: usize,
    /// Bit-field members carry their size in the upper bits of the offset.
    kflag: bool,
    /// The type it refers to, or its size.
    link: u32,
    /// Where the kind's own data begin in `types`.
    data: usize,
}

impl Btf {
    /// Indexes a BTF blob.
    ///
    /// # Errors
    /// [`BtfError`] when it is none, or torn.
    pub fn parse(blob: Vec<u8>) -> Result<Self, BtfError> {
        let magic = blob.get(..2).and_then(|b| Some(u16::from_ne_bytes(b.try_into().ok()?)));
        if magic != Some(MAGIC) || blob.get(2) != Some(&1) {
            return Err(BtfError::Header);
        }
        let word = |at: usize| read_u32(&blob, at).map(|v| v as usize);
        let section = |off: usize, len: usize| {
            let from = word(4)?.checked_add(word(off)?)?;
            let range = from..from.checked_add(word(len)?)?;
            blob.get(range.clone()).map(|_| range)
        };
        let types = section(8, 12).ok_or(BtfError::Short)?;
        let strings = section(16, 20).ok_or(BtfError::Short)?;
        let mut btf = Self { blob, types, strings, offsets: vec![0], named: Vec::new() };
        btf.index()?;
        Ok(btf)
    }

    fn types(&self) -> &[u8] {
        self.blob.get(self.types.clone()).unwrap_or_default()
    }

    fn strings(&self) -> &[u8] {
        self.blob.get(self.strings.clone()).unwrap_or_default()
    }

    fn index(&mut self) -> Result<(), BtfError> {
        let mut at = 0;
        while at < self.types().len() {
            let t = self.type_at(at).ok_or(BtfError::Short)?;
            let id = self.offsets.len() as u32;
            self.offsets.push(at as u32);
            if matches!(t.kind, KIND_STRUCT | KIND_UNION | KIND_TYPEDEF | KIND_ENUM | KIND_ENUM64)
                || t.kind == KIND_FUNC && self.string(t.name).is_some_and(is_hook)
            {
                self.named.push((t.kind, t.name, id));
            }
            let extra = extra_bytes(t.kind, t.vlen).ok_or(BtfError::Kind(t.kind))?;
            at += TYPE_BYTES + extra;
            if at > self.types().len() {
                return Err(BtfError::Short);
            }
        }
        Ok(())
    }

    /// Byte offset of a member, such as `("task_struct", ["sched_info", "last_queued"])`.
    /// Members of members are found as long as they are embedded, not pointed to; names may
    /// lie in anonymous structures. `None` when there is no such member, or it is a bit-field.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &[&str]) -> Option<u32> {
        // Definitions that share a name: the first that has the member.
        self.ids(&[KIND_STRUCT, KIND_UNION], structure).find_map(|id| {
            let mut at = 0u32;
            let mut id = id;
            for name in path {
                let (bits, next) = self.member(id, name, 0)?;
                at = at.checked_add(bits)?;
                id = next;
            }
            at.is_multiple_of(8).then_some(at / 8)
        })
    }

    /// Number of arguments of a tracepoint, without the hidden first one: parameters of the
    /// prototype behind `btf_trace_NAME`.
    #[must_use]
    pub fn tracepoint_args(&self, name: &str) -> Option<usize> {
        let id = self.ids(&[KIND_TYPEDEF], &format!("btf_trace_{name}")).next()?;
        let pointer = self.get(self.skip_modifiers(id)?)?;
        let proto = self.get((pointer.kind == KIND_PTR).then_some(pointer.link)?)?;
        if proto.kind != KIND_FUNC_PROTO {
            return None;
        }
        proto.vlen.checked_sub(1)
    }

    /// True when something here has that name: a type, a member or a function.
    #[must_use]
    pub fn names(&self, name: &str) -> bool {
        let with_ends = [b"\0", name.as_bytes(), b"\0"].concat();
        memchr::memmem::find(self.strings(), &with_ends).is_some()
    }

    /// Type information of what programs are attached to alone: each `btf_trace_NAME` and each
    /// function that may be one with the id that it has here, and nothing where other types are.
    #[must_use]
    pub fn hooks(&self) -> Vec<u8> {
        let mut types: Vec<[u32; 3]> = vec![[0, u32::from(KIND_FWD) << 24, 0]];
        let mut strings = vec![0];
        for (kind, label, id) in &self.named {
            let hooked = |n: &&[u8]| match *kind {
                KIND_TYPEDEF => n.starts_with(b"btf_trace_"),
                KIND_FUNC => is_hook(n),
                _ => false,
            };
            let Some(name) = self.string(*label).filter(hooked) else { continue };
            types.resize(*id as usize, [0, u32::from(KIND_FWD) << 24, 0]);
            types.push([strings.len() as u32, u32::from(*kind) << 24, 0]);
            strings.extend_from_slice(name);
            strings.push(0);
        }
        // Type 0 is not written down.
        types.remove(0);
        let bytes = (types.len() * TYPE_BYTES) as u32;
        let header = [HEADER, 0, bytes, bytes, strings.len() as u32];
        let words = header.iter().chain(types.iter().flatten());
        let mut out = Vec::with_capacity(HEADER as usize + bytes as usize + strings.len());
        out.extend_from_slice(&MAGIC.to_ne_bytes());
        out.extend_from_slice(&[1, 0]);
        words.for_each(|w| out.extend_from_slice(&w.to_ne_bytes()));
        out.extend(strings);
        out
    }

    /// The values of an enumeration with their names, in the order of declaration.
    #[must_use]
    pub fn enumeration(&self, name: &str) -> Vec<(u32, String)> {
        let Some(t) = self.ids(&[KIND_ENUM, KIND_ENUM64], name).next().and_then(|id| self.get(id))
        else {
            return Vec::new();
        };
        let step = if t.kind == KIND_ENUM { 8 } else { 12 };
        (0..t.vlen)
            .filter_map(|i| {
                let at = t.data.checked_add(i * step)?;
                let name = self.string(read_u32(self.types(), at)?)?;
                let value = read_u32(self.types(), at + 4)?;
                Some((value, String::from_utf8_lossy(name).into_owned()))
            })
            .collect()
    }

    /// Offset in bits and type of a member, in this structure or in its anonymous ones.
    fn member(&self, id: u32, name: &str, depth: u32) -> Option<(u32, u32)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let t = self.get(self.skip_modifiers(id)?)?;
        if t.kind != KIND_STRUCT && t.kind != KIND_UNION {
            return None;
        }
        for i in 0..t.vlen {
            let at = t.data.checked_add(i * 12)?;
            let (label, link) = (read_u32(self.types(), at)?, read_u32(self.types(), at + 4)?);
            let raw = read_u32(self.types(), at + 8)?;
            let bits = if t.kflag { raw & 0x00ff_ffff } else { raw };
            if label == 0 {
                if let Some((inner, found)) = self.member(link, name, depth + 1) {
                    return Some((bits.checked_add(inner)?, found));
                }
            } else if self.is(label, name) {
                let bitfield = t.kflag && raw >> 24 != 0;
                return (!bitfield).then_some((bits, link));
            }
        }
        None
    }

    /// Looks through `const`, `volatile`, `restrict`, typedefs and tags.
    fn skip_modifiers(&self, mut id: u32) -> Option<u32> {
        for _ in 0..MAX_DEPTH {
            let t = self.get(id)?;
            match t.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    id = t.link;
                }
                _ => return Some(id),
            }
        }
        None
    }

    fn ids<'a>(&'a self, kinds: &'a [u8], name: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.named
            .iter()
            .filter(move |(kind, label, _)| kinds.contains(kind) && self.is(*label, name))
            .map(|(_, _, id)| *id)
    }

    fn get(&self, id: u32) -> Option<Type> {
        if id == 0 {
            return None;
        }
        self.type_at(*self.offsets.get(id as usize)? as usize)
    }

    fn type_at(&self, at: usize) -> Option<Type> {
        let info = read_u32(self.types(), at + 4)?;
        Some(Type {
            name: read_u32(self.types(), at)?,
            kind: (info >> 24 & 0x1f) as u8,
            vlen: (info & 0xffff) as usize,
            kflag: info >> 31 != 0,
            link: read_u32(self.types(), at + 8)?,
            data: at + TYPE_BYTES,
        })
    }

    fn is(&self, at: u32, name: &str) -> bool {
        let Some(rest) = self.strings().get(at as usize..) else { return false };
        rest.get(name.len()) == Some(&0) && rest.starts_with(name.as_bytes())
    }

    fn string(&self, at: u32) -> Option<&[u8]> {
        self.strings().get(at as usize..)?.split(|b| *b == 0).next()
    }
}

/// What the kernel calls for each item that an iterator walks over, and the functions at whose
/// entry programs of ours run.
fn is_hook(function: &[u8]) -> bool {
    function.starts_with(b"bpf_iter_") || function.starts_with(b"security_inode_")
}

/// Bytes that follow the head of a type.
fn extra_bytes(kind: u8, vlen: usize) -> Option<usize> {
    Some(match kind {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_PTR | KIND_FWD | KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT
        | KIND_FUNC | KIND_FLOAT | KIND_TYPE_TAG => 0,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => vlen * 12,
        KIND_ENUM | KIND_FUNC_PROTO => vlen * 8,
        _ => return None,
    })
}

fn read_u32(from: &[u8], at: usize) -> Option<u32> {
    let bytes = from.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests;

//! Encoding of numbers and byte strings in a payload. Reading trusts nothing: a length is compared
//! with what is left before memory is allocated.

/// A value that cannot be encoded, or bytes that are not of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(pub String);

impl serde::ser::Error for CodecError {
    fn custom<T: std::fmt::Display>(msg: T) -> Self {
        Self(msg.to_string())
    }
}
impl serde::de::Error for CodecError {
    fn custom<T: std::fmt::Display>(msg: T) -> Self {
        Self(msg.to_string())
    }
}

pub(super) fn too_large<T>() -> Result<T, CodecError> {
    Err(CodecError("a sample larger than its bytes can describe".to_owned()))
}

/// Appends a LEB128 number.
pub fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads a LEB128 number at `at`, which moves on.
#[inline]
pub fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    // Most are small.
    match bytes.get(*at) {
        Some(b) if *b < 0x80 => {
            *at += 1;
            Some(u64::from(*b))
        }
        _ => long_varint(bytes, at),
    }
}

fn long_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let b = *bytes.get(*at)?;
        *at += 1;
        n |= u64::from(b & 0x7f).checked_shl(shift)?;
        if b < 0x80 {
            return Some(n);
        }
    }
    None
}

/// Appends a length and the bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A signed number (in two's complement) as one that is small when it is near zero.
pub(super) fn zigzag(d: u64) -> u64 {
    let d = d.cast_signed();
    ((d << 1) ^ (d >> 63)).cast_unsigned()
}

pub(super) fn unzigzag(z: u64) -> u64 {
    (z >> 1) ^ (z & 1).wrapping_neg()
}

/// Bytes that are read from front to back.
#[derive(Clone, Debug)]
pub struct Input<'b> {
    bytes: &'b [u8],
    at: usize,
    /// The name to use in the error if there are no more.
    what: &'static str,
}

impl<'b> Input<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self::of("the sample", bytes)
    }

    pub(super) fn of(what: &'static str, bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0, what }
    }

    /// Bytes that have not been read yet.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub(super) fn torn<T>(&self) -> Result<T, CodecError> {
        Err(CodecError(format!("{} ends too early", self.what)))
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, CodecError> {
        let Some(b) = self.bytes.get(self.at) else { return self.torn() };
        self.at += 1;
        Ok(*b)
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, CodecError> {
        varint(self.bytes, &mut self.at).map_or_else(|| self.torn(), Ok)
    }

    /// A zigzag number.
    pub(super) fn signed(&mut self) -> Result<u64, CodecError> {
        self.number().map(unzigzag)
    }

    /// A number that is compared with a place in memory before it is used.
    pub(super) fn place(&mut self) -> Result<usize, CodecError> {
        Ok(usize::try_from(self.number()?).unwrap_or(usize::MAX))
    }

    /// A count of things each of which takes at least a byte here, or is one of `most` in memory.
    pub(super) fn count(&mut self, most: usize) -> Result<usize, CodecError> {
        let n = self.place()?;
        if n > most.max(self.left()) { self.torn() } else { Ok(n) }
    }

    pub(super) fn slice(&mut self, len: usize) -> Result<&'b [u8], CodecError> {
        let end = self.at.checked_add(len);
        let Some(part) = end.and_then(|e| self.bytes.get(self.at..e)) else { return self.torn() };
        self.at += len;
        Ok(part)
    }

    /// Moves over `n` numbers.
    pub(super) fn skip_numbers(&mut self, n: usize) -> Result<(), CodecError> {
        let Some(last) = n.checked_sub(1) else { return Ok(()) };
        let rest = self.bytes.get(self.at..).unwrap_or_default().iter().enumerate();
        match rest.filter(|(_, b)| **b < 0x80).nth(last) {
            Some((i, _)) => self.at += i + 1,
            None => return self.torn(),
        }
        Ok(())
    }
}

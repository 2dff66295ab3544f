//! Encodes numbers that are mostly zero, and differences that are small or whole microseconds.
//!
//! Differences are zigzag. Those that are whole thousands (ns in us) are written as thousands:
//! the first byte of a number holds six bits, then the flag of thousands, then whether LEB128 of
//! the rest follows.

use super::wire::{CodecError, Input, put_varint, unzigzag, zigzag};

/// Up to this many numbers are written one by one with their positions; for more, all positions
/// come first, which compresses better.
const FEW: usize = 256;
/// Ns in us.
const WHOLE: u64 = 1000;
/// Bits of the first byte.
const FIRST: u32 = 6;

/// Writes how many numbers are not zero, times 2, plus 1 when they are few. Then each as its
/// distance from the one before, times 2, plus 1 when it is 1, else followed by itself; of many,
/// first all distances and then all numbers.
pub(super) fn put_sparse(values: impl Iterator<Item = u64> + Clone, out: &mut Vec<u8>) {
    let set = values.enumerate().filter(|(_, v)| *v != 0);
    let n = set.clone().count();
    let few = n <= FEW;
    put_varint(out, (n as u64) << 1 | u64::from(few));
    let mut next = 0;
    for (i, v) in set.clone() {
        let gap = (i - next) as u64;
        next = i + 1;
        if few {
            put_varint(out, gap << 1 | u64::from(v == 1));
            if v != 1 {
                put_difference(out, v);
            }
        } else {
            put_varint(out, gap);
        }
    }
    if !few {
        for (_, v) in set {
            put_varint(out, zigzag(v));
        }
    }
}

/// Gives each place and number. `take` says whether there is such a place.
pub(super) fn each_sparse(
    input: &mut Input<'_>,
    take: &mut impl FnMut(usize, u64) -> bool,
) -> Result<(), CodecError> {
    let head = input.number()?;
    let n = usize::try_from(head >> 1).unwrap_or(usize::MAX);
    if n > input.left() {
        return input.torn();
    }
    let mut next = 0usize;
    let mut place = |gap: u64| {
        let i = next.saturating_add(usize::try_from(gap).unwrap_or(usize::MAX));
        next = i.saturating_add(1);
        i
    };
    if head & 1 == 1 {
        for _ in 0..n {
            let gap = input.number()?;
            let v = if gap & 1 == 1 { 1 } else { difference(input)? };
            if !take(place(gap >> 1), v) {
                return input.torn();
            }
        }
        return Ok(());
    }
    let mut gaps = input.clone();
    input.skip_numbers(n)?;
    for _ in 0..n {
        let i = place(gaps.number()?);
        if !take(i, input.signed()?) {
            return input.torn();
        }
    }
    Ok(())
}

/// Adds them to the numbers that they are differences of.
pub(super) fn add_sparse(to: &mut [u64], input: &mut Input<'_>) -> Result<(), CodecError> {
    let mut add =
        |i: usize, v: u64| to.get_mut(i).map(|cell| *cell = cell.wrapping_add(v)).is_some();
    each_sparse(input, &mut add)
}

/// Writes a difference; see the module head.
pub(super) fn put_difference(out: &mut Vec<u8>, d: u64) {
    let signed = d.cast_signed();
    let thousands = d != 0 && signed % WHOLE.cast_signed() == 0;
    let z = zigzag(if thousands { (signed / WHOLE.cast_signed()).cast_unsigned() } else { d });
    let rest = z >> FIRST;
    let first = (z & 0x3f) as u8 | u8::from(thousands) << 6 | u8::from(rest != 0) << 7;
    out.push(first);
    if rest != 0 {
        put_varint(out, rest);
    }
}

pub(super) fn difference(input: &mut Input<'_>) -> Result<u64, CodecError> {
    let first = input.byte()?;
    let mut z = u64::from(first & 0x3f);
    if first & 0x80 != 0 {
        z |= input.number()? << FIRST;
    }
    let d = unzigzag(z);
    Ok(if first & 0x40 == 0 { d } else { d.wrapping_mul(WHOLE) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(d: i64) -> usize {
        let mut out = Vec::new();
        put_difference(&mut out, d.cast_unsigned());
        out.len()
    }

    #[test]
    fn whole_microseconds_take_the_room_of_microseconds() {
        assert_eq!((size(0), size(-31), size(31_000), size(1_000_000)), (1, 1, 1, 2));
        assert_eq!((size(1_234_000), size(1_234_001)), (2, 4));
    }

    proptest! {
        #[test]
        fn differences_come_back(d: i64, shift in 0u32..64, thousands: bool) {
            let d = (d >> shift).cast_unsigned();
            let d = if thousands { d.wrapping_mul(1000) } else { d };
            let mut out = Vec::new();
            put_difference(&mut out, d);
            let mut input = Input::new(&out);
            prop_assert_eq!(difference(&mut input).unwrap(), d);
            prop_assert_eq!(input.left(), 0);
        }
        #[test]
        fn sparse_numbers_come_back(values in prop::collection::vec((0u8..4, any::<u64>()), 0..600)) {
            let values: Vec<u64> = values.iter().map(|(k, v)| if *k < 2 { 0 } else { *v }).collect();
            let mut out = Vec::new();
            put_sparse(values.iter().copied(), &mut out);
            let (mut back, mut input) = (vec![0; values.len()], Input::new(&out));
            add_sparse(&mut back, &mut input).unwrap();
            prop_assert_eq!((back, input.left()), (values, 0));
        }
    }
}

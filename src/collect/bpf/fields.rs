//! Writes into the instructions of an object what is known when it is loaded: the running
//! kernel's offsets, see [`layout::field`](crate::sample::bpf::layout::field), and the address of
//! a map, see [`layout::placed`](crate::sample::bpf::layout::placed).

use std::os::fd::RawFd;

use crate::sample::bpf::layout::{field, placed};

/// Fields of the kernel's structures: the distance that stands for one in the object, and the
/// running kernel's.
pub(super) type Fields = Vec<(usize, u32)>;

/// Why an object cannot have its fields set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldError {
    /// The object is none, or no program of it loads this field.
    NotLoaded(usize),
    /// The structure is larger than any that this version knows, bytes.
    TooFar(u32),
    /// No program of the object asks for the address of a map, or for its stripes.
    NotPlaced,
}

/// The object with all loads of `fields` at the running kernel's offsets.
pub(super) fn set(object: &[u8], fields: &Fields) -> Result<Vec<u8>, FieldError> {
    let mut out = object.to_vec();
    for &(field, offset) in fields {
        let to = u16::try_from(offset).ok().filter(|o| usize::from(*o) < field::FIRST);
        let to = to.ok_or(FieldError::TooFar(offset))?.to_le_bytes();
        let mut loads = 0;
        each_instruction(object, &mut out, |load| {
            if loads_at(load) == Some(field) {
                load.iter_mut().skip(2).zip(to).for_each(|(byte, new)| *byte = new);
                loads += 1;
            }
        });
        if loads == 0 {
            return Err(FieldError::NotLoaded(field));
        }
    }
    Ok(out)
}

/// The object with the address of the only value of a map, an array of so many stripes.
pub(super) fn place(object: &[u8], map: RawFd, stripes: u32) -> Result<Vec<u8>, FieldError> {
    const LOAD: u8 = 0x18; // BPF_LD | BPF_IMM | BPF_DW: an instruction for each half
    const MAP_VALUE: u8 = 2 << 4; // BPF_PSEUDO_MAP_VALUE as its source
    let mut out = object.to_vec();
    let (mut addresses, mut comparisons) = (0, 0);
    let mut in_value = false;
    each_instruction(object, &mut out, |i| {
        let [code, registers, _, _, constant @ ..] = i else { return };
        let number = constant.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b));
        if std::mem::take(&mut in_value) {
            constant.fill(0); // from the beginning of the value
        } else if *code == LOAD && number == placed::ADDRESS as u32 {
            *registers |= MAP_VALUE;
            constant.copy_from_slice(&map.to_le_bytes());
            in_value = true;
            addresses += 1;
        } else if let Some(given) = compares(*code, number, stripes) {
            constant.copy_from_slice(&given.to_le_bytes());
            comparisons += 1;
        }
    });
    if addresses == 0 || comparisons != addresses {
        return Err(FieldError::NotPlaced);
    }
    Ok(out)
}

/// What a comparison has in place of [`placed::STRIPES`], or of one less; `None` for others.
fn compares(code: u8, number: u32, stripes: u32) -> Option<u32> {
    // BPF_JMP | BPF_K, unsigned: BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE.
    let less = (placed::STRIPES as u32).checked_sub(number).filter(|less| *less <= 1)?;
    matches!(code, 0x25 | 0x35 | 0xa5 | 0xb5).then(|| stripes.saturating_sub(less))
}

/// The distance at which an instruction loads from what a register points to; `None` for other
/// instructions (`BPF_LDX | BPF_MEM`, `Documentation/bpf/standardization/instruction-set.rst`).
fn loads_at(instruction: &[u8]) -> Option<usize> {
    match instruction {
        [0x61 | 0x69 | 0x71 | 0x79, _, low, high, 0, 0, 0, 0] => {
            Some(usize::from(u16::from_le_bytes([*low, *high])))
        }
        _ => None,
    }
}

/// Calls `change` for the instructions of `object`, in its copy.
fn each_instruction(object: &[u8], copy: &mut [u8], mut change: impl FnMut(&mut [u8])) {
    for section in code(object) {
        copy.get_mut(section).unwrap_or_default().chunks_exact_mut(8).for_each(&mut change);
    }
}

/// Where the sections with instructions lie in the file (64-bit little-endian ELF).
fn code(object: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    const HEADER: usize = 64;
    const EXECUTABLE: u64 = 4;
    let number = |at: usize, bytes: usize| {
        let read = object.get(at..at.checked_add(bytes)?)?;
        Some(read.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    };
    let headers = number(0x28, 8).unwrap_or(0) as usize;
    let count = number(0x3c, 2).unwrap_or(0) as usize;
    (0..count).filter_map(move |i| {
        let header = headers.checked_add(i * HEADER)?;
        let field = |at: usize| number(header.checked_add(at)?, 8);
        let (start, len) = (field(0x18)? as usize, field(0x20)? as usize);
        (field(0x08)? & EXECUTABLE != 0).then_some(start..start.checked_add(len)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::bpf::objects;

    fn all() -> Fields {
        vec![
            (field::TASK_CPU, 20),
            (field::TASK_LAST_QUEUED, 1048),
            (field::TASK_CFS_RQ, 296),
            (field::TASK_STATE, 24),
            (field::CFS_RQ_RQ, 312),
            (field::RQ_CLOCK, 2776),
        ]
    }

    fn fields_in(object: &[u8]) -> Vec<usize> {
        let loads = code(object).flat_map(|s| object[s].chunks_exact(8).filter_map(loads_at));
        loads.filter(|at| (field::FIRST..0x8000).contains(at)).collect()
    }

    /// Whatever loads a field is found, nothing else is touched, and nothing is left.
    #[test]
    fn every_load_of_a_field_gets_its_offset() {
        let found = fields_in(objects::SCHED);
        assert!(found.len() >= 6 && found.iter().all(|f| all().iter().any(|(a, _)| a == f)));
        let out = set(objects::SCHED, &all()).expect("all six");
        assert!(fields_in(&out).is_empty());
        let old = objects::SCHED.chunks_exact(8).zip(out.chunks_exact(8));
        let changed: Vec<_> = old.filter(|(a, b)| a != b).collect();
        assert_eq!(changed.len(), found.len());
        for (was, is) in changed {
            let field = loads_at(was).expect("a load");
            let offset = all().iter().find(|(f, _)| *f == field).expect("a field").1;
            assert_eq!(loads_at(is), Some(offset as usize));
            assert_eq!((was[..2].to_vec(), &was[4..]), (is[..2].to_vec(), &is[4..]));
        }
        for other in [objects::IRQ, objects::BLOCK, objects::NET, objects::NET_PERF, objects::TASKS]
        {
            assert!(fields_in(other).is_empty());
        }
    }

    /// One program asks for the map: its address takes two instructions, its size one.
    #[test]
    fn the_map_is_placed() {
        let out = place(objects::SCHED, 0x1234_5678, 96).expect("placed");
        let pairs = objects::SCHED.chunks_exact(8).zip(out.chunks_exact(8));
        let changed: Vec<_> = pairs.filter(|(a, b)| a != b).collect();
        let [(limit, few), (low, map), (high, start)] = changed[..] else {
            panic!("{changed:?}");
        };
        let constant = |i: &[u8]| u32::from_le_bytes(i[4..].try_into().expect("four bytes"));
        assert_eq!((limit[0], constant(limit)), (0x25, placed::STRIPES as u32 - 1), "if above");
        assert_eq!((&few[..4], constant(few)), (&limit[..4], 95));
        let whole = u64::from(constant(high)) << 32 | u64::from(constant(low));
        assert_eq!((low[0], low[1] >> 4, whole), (0x18, 0, placed::ADDRESS));
        assert_eq!((map[0], map[1], constant(map)), (0x18, low[1] | 2 << 4, 0x1234_5678));
        assert_eq!(start, [0; 8]);
        assert_eq!(place(objects::BLOCK, 3, 2), Err(FieldError::NotPlaced));
    }

    /// Softirq and hard interrupt, entry and exit: three instructions each.
    #[test]
    fn each_program_has_the_map() {
        let out = place(objects::IRQ, 3, 96).expect("placed");
        let pairs = objects::IRQ.chunks_exact(8).zip(out.chunks_exact(8));
        assert_eq!(pairs.filter(|(a, b)| a != b).count(), 4 * 3);
    }

    #[test]
    fn comparisons_keep_their_meaning() {
        let n = placed::STRIPES as u32;
        for code in [0x25, 0x35, 0xa5, 0xb5] {
            assert_eq!([n - 1, n].map(|c| compares(code, c, 8)), [Some(7), Some(8)]);
            assert_eq!([0, n - 2, n + 1, u32::MAX].map(|c| compares(code, c, 8)), [None; 4]);
        }
        assert_eq!([0x15, 0x55, 0x65, 0xb7].map(|code| compares(code, n, 8)), [None; 4]);
    }

    #[test]
    fn what_cannot_be_set_is_an_error() {
        assert_eq!(
            set(objects::IRQ, &all()),
            Err(FieldError::NotLoaded(field::TASK_CPU)),
            "no load of it"
        );
        for offset in [field::FIRST as u32, 0x1_0008, u32::MAX] {
            let far = vec![(field::TASK_CPU, offset)];
            assert_eq!(set(objects::SCHED, &far), Err(FieldError::TooFar(offset)));
        }
        for torn in [&b""[..], b"\x7fELF", &[0xff; 256], &objects::SCHED[..64]] {
            assert_eq!(set(torn, &all()), Err(FieldError::NotLoaded(field::TASK_CPU)));
            assert_eq!(place(torn, 3, 2), Err(FieldError::NotPlaced));
        }
        assert_eq!(set(b"", &Fields::new()), Ok(Vec::new()));
    }
}

//! The payload of a tick: texts that are new in its group, then sections, one per
//! collector that has a sample and some of our own. Sections that a reader does not know are
//! skipped by their length.

use std::time::Duration;

use super::wire::{CodecError, Input, put_bytes, put_varint, zigzag};
use crate::sample::time::{MonoNs, Span};

/// Sections of one group: there are some twenty.
pub(super) const MAX_SECTIONS: usize = 1024;

/// New texts of one tick.
const MAX_NAMES: usize = 1 << 18;

/// A part of a payload that has not been decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawSection<'p> {
    /// Number among the sections of the group, or a new name.
    pub(crate) name: Result<usize, &'p str>,
    /// It begins with stamps.
    pub(super) is_sample: bool,
    pub(crate) bytes: &'p [u8],
}

/// Puts the new names of fields before the sections.
pub(super) fn put_names(names: &[String], payload: &mut Vec<u8>) {
    let mut head = Vec::new();
    put_varint(&mut head, names.len() as u64);
    for name in names {
        put_bytes(&mut head, name.as_bytes());
    }
    payload.splice(0..0, head);
}

/// Begins a section: by its number if the group has it, else by its name. Returns where it begins.
pub(super) fn open(name: Result<usize, &str>, is_sample: bool, out: &mut Vec<u8>) -> usize {
    let number = name.map_or(0, |n| n as u64 + 1);
    put_varint(out, number << 1 | u64::from(is_sample));
    if let Err(name) = name {
        put_bytes(out, name.as_bytes());
    }
    out.len()
}

/// Ends a section: puts its length before its bytes.
pub(super) fn close(start: usize, out: &mut Vec<u8>) {
    let mut len = Vec::new();
    put_varint(&mut len, out.len().saturating_sub(start) as u64);
    out.splice(start..start, len);
}

/// Cuts a payload: new names of fields, sections.
pub(crate) fn cut(payload: &[u8]) -> Result<(Vec<&str>, Vec<RawSection<'_>>), CodecError> {
    let mut input = Input::of("the tick", payload);
    let count = input.count(0)?;
    if count > MAX_NAMES {
        return Err(CodecError("too many names".to_owned()));
    }
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(text(&mut input)?);
    }
    let mut sections = Vec::new();
    while input.left() > 0 {
        let head = input.place()?;
        let name = match (head >> 1).checked_sub(1) {
            Some(i) => Ok(i),
            None => Err(text(&mut input)?),
        };
        let len = input.place()?;
        sections.push(RawSection { name, is_sample: head & 1 == 1, bytes: input.slice(len)? });
        if sections.len() > MAX_SECTIONS {
            return Err(CodecError("too many sections".to_owned()));
        }
    }
    Ok((names, sections))
}

fn text<'b>(input: &mut Input<'b>) -> Result<&'b str, CodecError> {
    let len = input.place()?;
    std::str::from_utf8(input.slice(len)?)
        .map_err(|_| CodecError("a name that is not UTF-8".to_owned()))
}

/// The steps in which collectors stamp, as the format has them.
const STEP: i64 = 10_000;

/// When a sample was read, and the CPU time that it took. `last_end` is the end of the one in the
/// section before, or the tick's own time, and becomes the end of this one.
pub(super) fn put_stamps(span: Span, cpu: Duration, last_end: &mut u64, out: &mut Vec<u8>) {
    // 584 years of CPU time fit.
    let (took, cpu) = (span.end.0.wrapping_sub(span.start.0), cpu.as_nanos() as u64);
    let stamps = [span.start.0.wrapping_sub(whole(*last_end)), took, cpu];
    let in_steps = stamps.iter().all(|d| d.cast_signed() % STEP == 0);
    let unit = if in_steps { STEP } else { 1 };
    put_varint(out, u64::from(in_steps));
    for d in stamps {
        put_varint(out, zigzag((d.cast_signed() / unit).cast_unsigned()));
    }
    *last_end = span.end.0;
}

pub(super) fn read_stamps(
    last_end: &mut u64,
    input: &mut Input<'_>,
) -> Result<(Span, Duration), CodecError> {
    let unit = if input.number()? == 1 { STEP.unsigned_abs() } else { 1 };
    let mut next = || input.signed().map(|d| d.wrapping_mul(unit));
    let start = whole(*last_end).wrapping_add(next()?);
    let end = start.wrapping_add(next()?);
    let cpu = Duration::from_nanos(next()?);
    *last_end = end;
    Ok((Span { start: MonoNs(start), end: MonoNs(end) }, cpu))
}

/// Rounded down to a step.
fn whole(ns: u64) -> u64 {
    ns - ns % STEP.unsigned_abs()
}

//! What a series of samples has shown recently: the last sample, whose lists also keep rows that
//! are gone from it.
//!
//! A sample may hold only what moved, such as the threads that ran. A row that comes back is then a
//! small difference from what it was, including its name. Lists are fields of the sample itself
//! whose rows have texts; rows are the same by their first two leaves. Writer and reader build the
//! memory by the same steps.

use std::collections::HashMap;

use super::flat::{At, Column, Flat, elements, key_hashes, shape_number, skip, token};
use super::wire::{CodecError, put_varint};

/// Larger samples are not remembered: their lists are ordered, and they are changed in place.
const MAX_SHAPE: usize = 1 << 14;
/// Numbers of a sample that is remembered.
const MAX_CELLS: usize = 1 << 14;
/// Bytes of its texts.
const MAX_TEXT: usize = 1 << 16;
/// The memory may hold this many times as much as a sample.
const MORE: usize = 4;
/// Rows of one list.
const MAX_ROWS: usize = 1024;

/// The memory after `now`; `None` for samples that are not worth it.
pub(crate) fn after(memory: Option<Flat>, now: &Flat) -> Option<Flat> {
    let fits = |f: &Flat, times: usize| {
        f.shape.len() <= MAX_SHAPE * times
            && f.cells() <= MAX_CELLS * times
            && f.texts.total() <= MAX_TEXT * times
    };
    if !fits(now, 1) {
        return None;
    }
    let Some(memory) = memory else {
        let is_list = |f: &Field| now.shape.get(f.from.shape) == Some(&token::SEQ);
        return fields(now).is_ok_and(|all| all.iter().any(is_list)).then(|| now.clone());
    };
    // A sample that could be taken apart has a shape that can be walked.
    let merged = merge(&memory, now).ok().filter(|m| fits(m, MORE));
    Some(merged.unwrap_or_else(|| now.clone()))
}

fn merge(memory: &Flat, now: &Flat) -> Result<Flat, CodecError> {
    // A name stands for one field; of several, for the first.
    let mut old: HashMap<usize, Field> = HashMap::new();
    for f in fields(memory)? {
        old.entry(f.name).or_insert(f);
    }
    let mut out = Flat::default();
    let mut at = At::default();
    for f in fields(now)? {
        copy(&mut out, now, at, f.from);
        at = f.from;
        if let Some(o) = old.remove(&f.name)
            && list(&mut out, memory, &o, now, &f)?
        {
            at = f.to;
        }
    }
    let mut end = At::default();
    skip(&now.shape, &mut end, 0)?;
    copy(&mut out, now, at, end);
    // They would have to be those of the columns here.
    out.tables.clear();
    Ok(out)
}

struct Field {
    name: usize,
    from: At,
    to: At,
}

fn fields(f: &Flat) -> Result<Vec<Field>, CodecError> {
    let mut at = At { shape: 1, ..At::default() };
    let n = shape_number(&f.shape, &mut at)?;
    let mut out = Vec::new();
    if f.shape.first() != Some(&token::STRUCT) {
        return Ok(out);
    }
    for _ in 0..n {
        let name = shape_number(&f.shape, &mut at)?;
        let from = at;
        skip(&f.shape, &mut at, 1)?;
        out.push(Field { name, from, to: at });
    }
    Ok(out)
}

/// Writes the rows of both, those of now where both have one. False: no such list.
fn list(
    out: &mut Flat,
    memory: &Flat,
    old: &Field,
    now: &Flat,
    new: &Field,
) -> Result<bool, CodecError> {
    let rows = |f: &Flat, field: &Field| -> Result<Option<Vec<At>>, CodecError> {
        let mut at = field.from;
        if f.shape.get(at.shape) != Some(&token::SEQ) || field.from.column != field.to.column {
            return Ok(None);
        }
        at.shape += 1;
        let mut rows = elements(&f.shape, &mut at, 1)?;
        rows.push(field.to);
        Ok(Some(rows))
    };
    let Some(before) = rows(memory, old)? else { return Ok(false) };
    let empty = [token::COLUMN, token::UNIT];
    let Some(after) = rows(now, new)? else {
        if now.shape.get(new.from.shape..new.to.shape) == Some(&empty) {
            // None now.
            copy(out, memory, old.from, old.to);
            return Ok(true);
        }
        return Ok(false);
    };
    let key = |f: &Flat, row: &[At]| key_hashes(f, row[0]).1;
    let mut young: HashMap<u64, &[At]> = HashMap::new();
    for row in after.windows(2) {
        young.entry(key(now, row)).or_insert(row);
    }
    let mut all: Vec<(&Flat, &[At])> = Vec::new();
    for row in before.windows(2) {
        all.push(young.remove(&key(memory, row)).map_or((memory, row), |row| (now, row)));
    }
    let left = after.windows(2).filter(|row| {
        young.get(&key(now, row)).is_some_and(|first| first[0].shape == row[0].shape)
    });
    all.extend(left.map(|row| (now, row)));
    if all.len() > MAX_ROWS {
        return Ok(false);
    }
    out.shape.push(token::SEQ);
    put_varint(&mut out.shape, all.len() as u64);
    for (f, row) in all {
        copy(out, f, row[0], row[1]);
    }
    Ok(true)
}

/// Appends what lies between two places of a sample.
fn copy(out: &mut Flat, f: &Flat, from: At, to: At) {
    out.shape.extend_from_slice(f.shape.get(from.shape..to.shape).unwrap_or_default());
    out.nums.extend_from_slice(f.nums.get(from.num..to.num).unwrap_or_default());
    for i in from.text..to.text {
        out.texts.push(f.texts.get(i).unwrap_or_default());
    }
    let columns: &[Column] = f.columns.get(from.column..to.column).unwrap_or_default();
    out.columns.extend_from_slice(columns);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::flat::{Names, from_flat, to_flat};
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Row {
        id: u32,
        tid: u32,
        name: String,
        ns: u64,
    }
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Sample {
        load: u32,
        rows: Vec<Row>,
        cells: Vec<u64>,
    }

    fn row(id: u32, ns: u64) -> Row {
        Row { id, tid: id + 1, name: format!("row {id}"), ns }
    }
    fn sample(load: u32, rows: &[(u32, u64)]) -> Sample {
        let rows = rows.iter().map(|r| row(r.0, r.1)).collect();
        Sample { load, rows, cells: vec![load.into(); 3] }
    }

    #[test]
    fn rows_that_are_gone_stay_as_they_were() {
        let mut names = Names::default();
        let mut flat = |s: &Sample| to_flat(s, &mut names).unwrap();
        let a = flat(&sample(1, &[(1, 10), (2, 20), (3, 30)]));
        let b = flat(&sample(2, &[(5, 50), (2, 21)]));
        let none = flat(&sample(3, &[]));
        let c = flat(&sample(4, &[(3, 33)]));
        let m = [a, b, none, c].iter().fold(None, after);
        let got: Sample = from_flat(&m.unwrap(), &names).unwrap();
        assert_eq!(got, sample(4, &[(1, 10), (2, 21), (3, 33), (5, 50)]));
    }

    #[test]
    fn a_list_of_ever_new_rows_does_not_grow_for_ever() {
        let mut names = Names::default();
        let mut m = None;
        for i in 0..5000_u32 {
            let s = to_flat(&sample(1, &[(i, 1), (i + 1, 1)]), &mut names).unwrap();
            m = after(m, &s);
        }
        let got: Sample = from_flat(&m.unwrap(), &names).unwrap();
        assert!(got.rows.len() <= MAX_ROWS);
    }
}

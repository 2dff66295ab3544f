//! Names of fields: those that are near a typo, and those that a beginning may become.

use crate::typo;
use crate::view::table::ColumnInfo;

/// Letters that a typo may have wrong.
const TYPO: usize = 2;

/// The fields that a name may have been meant to be, nearest first. `sure`: it may be something else
/// than a field; then only those that differ in one letter.
pub(super) fn nearest(name: &str, columns: &[ColumnInfo], sure: bool) -> Vec<&'static str> {
    let letters = if sure || name.len() <= 2 { 1 } else { TYPO };
    let mut near = typo::nearest(name, names(columns), letters);
    near.retain(|key| !sure || key.len().abs_diff(name.len()) <= letters);
    near
}

/// All names of fields, each once.
fn names(columns: &[ColumnInfo]) -> impl Iterator<Item = &'static str> {
    columns.iter().flat_map(|c| [Some(c.key), Some(c.also).filter(|a| *a != c.key)]).flatten()
}

/// What the name before the cursor may become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::view) struct Completion {
    /// What all of them go on with.
    pub(in crate::view) insert: &'static str,
    /// The fields.
    pub(in crate::view) names: Vec<&'static str>,
}

/// Completes the name that `before`, the text up to the cursor, ends with; an empty one to all.
pub(in crate::view) fn complete(before: &str, columns: &[ColumnInfo]) -> Completion {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    let word = word.strip_prefix('!').unwrap_or(word);
    of(word, names(columns))
}

/// Completes a word to one of these names.
pub(in crate::view) fn of(word: &str, all: impl Iterator<Item = &'static str>) -> Completion {
    let begins = |key: &&'static str| {
        key.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
    };
    let names: Vec<&'static str> = all.filter(begins).collect();
    let Some(first) = names.first() else { return Completion::default() };
    let same = |key: &&str| {
        first.bytes().zip(key.bytes()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count()
    };
    let shared = names.iter().map(same).min().unwrap_or(0);
    Completion { insert: first.get(word.len()..shared).unwrap_or(""), names }
}

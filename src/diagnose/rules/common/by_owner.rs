//! Whose sockets have what others wait for.

use std::collections::BTreeMap;

use super::super::super::culprit::{Culprit, Resource};
use super::largest::largest;
use crate::sample::sockets::Owner;

/// The process that has all of it, if it is known.
pub(crate) fn all_by(owner: Option<&Owner>, of: &Resource) -> Vec<Culprit> {
    by_owner([(owner, 1.0)].into_iter(), 0.0, of)
}

/// The processes with the largest parts of `whole`, by what each of their sockets has of it. 0 for a
/// whole that is all there is, sockets of unknown owners included.
pub(crate) fn by_owner<'a>(
    sockets: impl Iterator<Item = (Option<&'a Owner>, f64)>,
    whole: f64,
    of: &Resource,
) -> Vec<Culprit> {
    let mut held: BTreeMap<u32, (&Owner, f64)> = BTreeMap::new();
    let mut sum = 0.0;
    for (owner, part) in sockets {
        sum += part;
        if let Some(owner) = owner {
            held.entry(owner.pid).or_insert((owner, 0.0)).1 += part;
        }
    }
    let culprit = |(owner, share): (&Owner, _)| {
        Culprit::process(owner.pid, Some(owner.comm.clone()), None, share)
    };
    let named = largest(held.into_values().collect(), whole.max(sum), of);
    named.into_iter().map(culprit).collect()
}

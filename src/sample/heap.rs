//! What values take of the heap, so that a budget in bytes is one of memory: the contents, in
//! blocks as an allocator hands them out.
//!
//! Much of a moment is shared with the one before: a table that was not due, a name, a row that
//! did not change. It counts once, where it came first. How much is in the history decides what
//! rules can look back at, so live and replay must count the same: contents count, never what a
//! list happens to have reserved, and what is the same is known by its contents. That the memory
//! is no more than that is the work of [`Heap::settle`]. `tests/memory/heap.rs` compares the sums
//! with what an allocator counts.

use std::cmp::Ordering;
use std::sync::Arc;

use super::subject::{CgroupId, CpuId, DiskId, NetnsId, SockId, Subject, TaskId};
use super::tick::{CollectorHealth, HealthState, Tick};
use super::{Signal, SignalStatus, Stamped, Unseen};

/// Something that may own memory beside its own size.
pub trait Heap {
    /// No value of the type owns any: a list of them need not be walked.
    const FLAT: bool = false;
    /// Bytes of it, without what `before`, the same thing one moment earlier, shares with it.
    fn heap(&self, before: Option<&Self>) -> usize;
    /// Gives back room that was reserved and not used, and shares with `before` what is equal.
    fn settle(&mut self, _before: Option<&Self>) {}
    /// Shared values of the type that are the same may be one; false where nobody looks.
    fn same(&self, _other: &Self) -> bool {
        false
    }
}

/// Bytes that the allocator takes for a block of `bytes`: glibc's, which has a header of 8, steps
/// of 16 and 32 at least. Others differ by less than a header.
#[must_use]
pub const fn block(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => (bytes + 8).next_multiple_of(16),
    }
}

/// The counts of an `Arc` in front of its value.
const COUNTS: usize = 2 * size_of::<usize>();

/// Types without memory of their own.
macro_rules! flat {
    ($($ty:ty),+ $(,)?) => { $(
        impl $crate::sample::heap::Heap for $ty {
            const FLAT: bool = true;
            fn heap(&self, _: Option<&Self>) -> usize { 0 }
        }
    )+ };
}
/// A struct: the fields that own memory, then those that do not. One that is left out does not
/// compile.
///
/// `same by` says when two shared ones are the same.
macro_rules! owns {
    ($ty:ty { $($field:ident),* $(,)? } flat { $($flat:ident),* $(,)? } $(same by $same:expr)?) => {
        impl $crate::sample::heap::Heap for $ty {
            fn heap(&self, before: Option<&Self>) -> usize {
                let Self { $($field,)* $($flat: _,)* } = self;
                0 $( + $crate::sample::heap::Heap::heap($field, before.map(|b| &b.$field)) )*
            }
            fn settle(&mut self, before: Option<&Self>) {
                $( $crate::sample::heap::Heap::settle(&mut self.$field, before.map(|b| &b.$field)); )*
            }
            $( fn same(&self, other: &Self) -> bool {
                let same: fn(&Self, &Self) -> bool = $same;
                same(self, other)
            } )?
        }
    };
}
pub(crate) use {flat, owns};

flat!(bool, u8, u16, u32, u64, i32, i64, f64, [u8; 16], [u32; 9]);
flat!(CpuId, DiskId, NetnsId, SockId, CgroupId, TaskId);

impl Heap for &'static str {
    const FLAT: bool = true;
    fn heap(&self, _: Option<&Self>) -> usize {
        0
    }
}

impl Heap for String {
    fn heap(&self, _: Option<&Self>) -> usize {
        block(self.len())
    }
    fn settle(&mut self, _: Option<&Self>) {
        self.shrink_to_fit();
    }
}

impl Heap for Box<str> {
    fn heap(&self, _: Option<&Self>) -> usize {
        block(self.len())
    }
    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Heap for std::borrow::Cow<'static, str> {
    fn heap(&self, _: Option<&Self>) -> usize {
        match self {
            Self::Borrowed(_) => 0,
            Self::Owned(s) => s.heap(None),
        }
    }
    fn settle(&mut self, _: Option<&Self>) {
        if let Self::Owned(s) = self {
            s.shrink_to_fit();
        }
    }
}

impl<T: Heap> Heap for Option<T> {
    const FLAT: bool = T::FLAT;
    fn heap(&self, before: Option<&Self>) -> usize {
        self.as_ref().map_or(0, |v| v.heap(before.and_then(Option::as_ref)))
    }
    fn settle(&mut self, before: Option<&Self>) {
        if let Some(v) = self {
            v.settle(before.and_then(Option::as_ref));
        }
    }
}

impl<T: Heap> Heap for Vec<T> {
    /// Rows are compared with those in the same place.
    fn heap(&self, before: Option<&Self>) -> usize {
        let own = block(size_of_val(self.as_slice()));
        if T::FLAT {
            return own;
        }
        let old = before.map_or(&[][..], Vec::as_slice);
        own + self.iter().enumerate().map(|(i, v)| v.heap(old.get(i))).sum::<usize>()
    }
    fn settle(&mut self, before: Option<&Self>) {
        self.shrink_to_fit();
        if !T::FLAT {
            let old = before.map_or(&[][..], Vec::as_slice);
            self.iter_mut().enumerate().for_each(|(i, v)| v.settle(old.get(i)));
        }
    }
    fn same(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other).all(|(a, b)| a.same(b))
    }
}

impl<T: Heap> Heap for Arc<T> {
    fn heap(&self, before: Option<&Self>) -> usize {
        match before {
            Some(b) if Self::ptr_eq(self, b) || self.same(b) => 0,
            _ => block(COUNTS + size_of::<T>()) + (**self).heap(before.map(|b| &**b)),
        }
    }
    fn settle(&mut self, before: Option<&Self>) {
        match before {
            Some(b) if Self::ptr_eq(self, b) => {}
            Some(b) if (**self).same(b) => self.clone_from(b),
            _ => {
                if let Some(own) = Self::get_mut(self) {
                    own.settle(before.map(|b| &**b));
                }
            }
        }
    }
    fn same(&self, other: &Self) -> bool {
        (**self).same(other)
    }
}

impl Heap for Arc<str> {
    fn heap(&self, before: Option<&Self>) -> usize {
        if before == Some(self) { 0 } else { block(COUNTS + self.len()) }
    }
    fn settle(&mut self, before: Option<&Self>) {
        if let Some(b) = before.filter(|b| *b == self) {
            self.clone_from(b);
        }
    }
    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl<A: Heap, B: Heap> Heap for (A, B) {
    const FLAT: bool = A::FLAT && B::FLAT;
    fn heap(&self, before: Option<&Self>) -> usize {
        self.0.heap(before.map(|b| &b.0)) + self.1.heap(before.map(|b| &b.1))
    }
    fn settle(&mut self, before: Option<&Self>) {
        self.0.settle(before.map(|b| &b.0));
        self.1.settle(before.map(|b| &b.1));
    }
}

impl<A: Heap, B: Heap, C: Heap> Heap for (A, B, C) {
    const FLAT: bool = A::FLAT && B::FLAT && C::FLAT;
    fn heap(&self, before: Option<&Self>) -> usize {
        self.0.heap(before.map(|b| &b.0))
            + self.1.heap(before.map(|b| &b.1))
            + self.2.heap(before.map(|b| &b.2))
    }
    fn settle(&mut self, before: Option<&Self>) {
        self.0.settle(before.map(|b| &b.0));
        self.1.settle(before.map(|b| &b.1));
        self.2.settle(before.map(|b| &b.2));
    }
}

/// Shared rows in the order of `key`, of which some come and go: each is compared with the one of
/// its own key.
pub(crate) fn keyed<T: Heap, K: Ord>(
    now: &Vec<Arc<T>>,
    before: Option<&Vec<Arc<T>>>,
    key: impl Fn(&T) -> K,
) -> usize {
    let mut old = before.map_or(&[][..], Vec::as_slice).iter().peekable();
    let own = |row: &Arc<T>| {
        while old.next_if(|o| key(o).cmp(&key(row)) == Ordering::Less).is_some() {}
        row.heap(old.next_if(|o| key(o) == key(row)))
    };
    block(size_of_val(now.as_slice())) + now.iter().map(own).sum::<usize>()
}

impl<S: Heap> Heap for Stamped<S> {
    fn heap(&self, before: Option<&Self>) -> usize {
        self.data.heap(before.map(|b| &b.data))
    }
    fn settle(&mut self, before: Option<&Self>) {
        self.data.settle(before.map(|b| &b.data));
    }
    /// Two readings cannot be of one time.
    fn same(&self, other: &Self) -> bool {
        self.span == other.span
    }
}

/// Bytes that a tick holds, when nothing of it is shared with the one before.
#[must_use]
pub fn tick_bytes(tick: &Tick) -> usize {
    tick_heap(tick, None)
}

/// The same without what it shares with the tick before.
pub(crate) fn tick_heap(tick: &Tick, before: Option<&Tick>) -> usize {
    block(COUNTS + size_of::<Tick>())
        + tick.samples.heap(before.map(|b| &b.samples))
        + tick.health.heap(before.map(|b| &b.health))
}

owns!(CollectorHealth { state, signals } flat { id });
owns!(Signal { signal, source, status, unseen } flat {});
owns!(Unseen { what } flat { extent });

impl Heap for HealthState {
    fn heap(&self, _: Option<&Self>) -> usize {
        match self {
            Self::Fresh | Self::Thinned { .. } | Self::Late { .. } => 0,
            Self::Failed { error } => error.heap(None),
            Self::Off { reason, remedy } => reason.heap(None) + remedy.heap(None),
        }
    }
}

impl Heap for SignalStatus {
    fn heap(&self, _: Option<&Self>) -> usize {
        match self {
            Self::Ok => 0,
            Self::Degraded { reason, remedy } | Self::Missing { reason, remedy } => {
                reason.heap(None) + remedy.heap(None)
            }
        }
    }
}

impl Heap for Subject {
    fn heap(&self, _: Option<&Self>) -> usize {
        match self {
            Self::Host
            | Self::Peer { .. }
            | Self::Listener { .. }
            | Self::Netns { .. }
            | Self::Cpu { .. } => 0,
            Self::Link { dev: name, .. }
            | Self::Disk { name, .. }
            | Self::Filesystem { mount: name, .. }
            | Self::Cgroup { path: name, .. }
            | Self::Task { comm: name, .. }
            | Self::Process { comm: name, .. }
            | Self::UnixListener { path: name, .. } => name.heap(None),
            Self::Blocked { function } => function.heap(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_with_the_moment_before_counts_once() {
        let text: Arc<str> = "eth0".into();
        let before = vec![(1_u32, text.clone())];
        let now = vec![(1_u32, text), (2, "eth1".into())];
        assert_eq!(now.heap(Some(&before)), block(2 * 24) + 32);
        assert_eq!(now.heap(None), block(2 * 24) + 64);
    }

    #[test]
    fn rows_are_found_by_their_key_where_others_came_and_went() {
        let row = |n: u64| Arc::new(n);
        let before = vec![row(1), row(2), row(3), row(5)];
        let mut now = before.clone();
        now.remove(0);
        now.insert(2, row(4));
        *now.last_mut().unwrap_or(&mut row(0)) = row(5);
        // 4 is new, 5 is another one than before.
        assert_eq!(
            keyed(&now, Some(&before), |n| *n),
            block(now.len() * 8) + 2 * block(COUNTS + 8)
        );
    }

    /// A recording's reader makes each name anew; a list has room for more than is in it.
    #[test]
    fn what_has_settled_takes_what_was_counted() {
        let before: Vec<Arc<str>> = vec!["eth0".into(), "eth1".into()];
        let mut now: Vec<Arc<str>> = Vec::with_capacity(100);
        now.extend(["eth0".into(), "eth2".into()]);
        let counted = now.heap(Some(&before));
        now.settle(Some(&before));
        assert_eq!((now.heap(Some(&before)), now.capacity()), (counted, 2));
        assert!(Arc::ptr_eq(&now[0], &before[0]));
        assert_eq!(&*now[1], "eth2");
        assert_eq!((block(0), block(1), block(24), block(25)), (0, 32, 32, 48));
    }
}

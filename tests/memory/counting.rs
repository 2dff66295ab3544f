//! An allocator that counts, for each thread by itself: tests beside each other, and readers that
//! run along, do not disturb what one of them counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use stallscope::sample::heap::block;

/// What a thread has asked for so far.
struct Counts {
    allocations: Cell<u64>,
    /// Bytes: asked for, and held now and at most. What another thread has allocated is held by
    /// that one, so that the sum may be below zero.
    total: Cell<usize>,
    live: Cell<isize>,
    peak: Cell<isize>,
    /// Held, with what the allocator itself adds to each block.
    blocks: Cell<isize>,
}

thread_local! {
    // Needs no memory and has nothing to drop: it is there whenever something is allocated.
    static COUNTS: Counts = const {
        Counts {
            allocations: Cell::new(0),
            total: Cell::new(0),
            live: Cell::new(0),
            peak: Cell::new(0),
            blocks: Cell::new(0),
        }
    };
}

fn taken(size: usize) {
    COUNTS.with(|c| {
        c.allocations.set(c.allocations.get() + 1);
        c.total.set(c.total.get() + size);
        c.live.set(c.live.get() + size as isize);
        c.peak.set(c.peak.get().max(c.live.get()));
        c.blocks.set(c.blocks.get() + block(size) as isize);
    });
}

fn given_back(size: usize) {
    COUNTS.with(|c| {
        c.live.set(c.live.get() - size as isize);
        c.blocks.set(c.blocks.get() - block(size) as isize);
    });
}

struct Counting;

// SAFETY: passes every call on to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        given_back(layout.size());
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both are there while it is copied.
        taken(size);
        given_back(layout.size());
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread allocates in `what`.
pub fn allocations<T>(what: impl FnOnce() -> T) -> (T, u64) {
    let count = || COUNTS.with(|c| c.allocations.get());
    let before = count();
    let out = what();
    (out, count() - before)
}

/// Bytes that `what` takes at its peak, and altogether.
pub fn bytes<T>(what: impl FnOnce() -> T) -> (T, usize, usize) {
    let (live, total) = COUNTS.with(|c| {
        c.peak.set(c.live.get());
        (c.live.get(), c.total.get())
    });
    let out = what();
    COUNTS.with(|c| (out, (c.peak.get() - live) as usize, c.total.get() - total))
}

/// Bytes that this thread gives back in `what`, with what the allocator adds to each block.
pub fn freed(what: impl FnOnce()) -> usize {
    let held = || COUNTS.with(|c| c.blocks.get());
    let before = held();
    what();
    usize::try_from(before - held()).unwrap()
}

//! How the C library's allocator deals with a program like this one: blocks of a tick are taken by
//! the threads that read, live for many minutes in the history, and are given back by the thread
//! that draws, in another order and among others.
//!
//! Left alone, glibc gives each thread an arena of its own and keeps what is freed in it: a box
//! that first ran many threads and then opened many sockets made 64 MiB of history 139 MB of
//! resident memory, half of it free blocks in ten arenas. With one arena, large columns in mappings
//! of their own, and free pages handed back now and then, it is 70 to 90 MB.
//!
//! Other C libraries have no such settings: there this does nothing.
#![allow(unsafe_code)]

/// Free pages are handed back after so many ticks, each of which may have taken the place of an
/// older one. It takes one to two milliseconds where a full history was just taken over by ticks
/// of another kind, less otherwise.
pub const GIVE_BACK: u32 = 10;

/// To be called before the first thread is started.
#[cfg(target_env = "gnu")]
pub fn set_up() {
    /// Larger blocks are mappings of their own. Without a fixed value glibc raises it up to 32 MiB
    /// as soon as one of them is freed.
    const MAPPED: i32 = 128 << 10;
    /// Free memory at the top of the heap that is kept.
    const SPARE: i32 = 1 << 20;
    let set = |option, value| {
        // SAFETY: takes two numbers; what it does not know it refuses.
        unsafe { libc::mallopt(option, value) }
    };
    // A refusal leaves the defaults, which are right too, only larger.
    set(libc::M_ARENA_MAX, 1);
    set(libc::M_MMAP_THRESHOLD, MAPPED);
    set(libc::M_TRIM_THRESHOLD, SPARE);
}

/// Hands the pages of free blocks back to the system.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: takes a number, locks what it touches, and moves no block.
    unsafe { libc::malloc_trim(0) };
}

/// To be called before the first thread is started.
#[cfg(not(target_env = "gnu"))]
pub fn set_up() {}

/// Hands the pages of free blocks back to the system.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}

//! Maps that are read through memory: an array map of stripes, mapped read-only, so that a
//! reading costs no system call and holds up no program.
//!
//! This is the one file of the collectors with unsafe code. Where the kernel cannot map
//! arrays (before 5.5), stripes are copied with one system call each.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{Array, Map, MapData};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::rights::raised;
use crate::sample::bpf::hist::LINE;

/// Stripes of `W` words in a map.
pub(super) struct Stripes<const W: usize> {
    source: Source<W>,
    count: usize,
}

enum Source<const W: usize> {
    /// The map is kept: programs that are attached later refer to its descriptor.
    Mapped {
        memory: Mapping,
        _map: Map,
    },
    Copied {
        map: Array<MapData, [u64; W]>,
        words: Vec<[u64; W]>,
    },
}

/// A read-only mapping of a whole map. The map lives as long as the mapping, whatever
/// becomes of its file descriptor.
struct Mapping {
    at: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is shared with the kernel, not with a thread; we only load from it.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `mmap` returned; no reference outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}

impl<const W: usize> Stripes<W> {
    /// Takes a map of `count` stripes. It is mapped when `mapped`, else copied.
    pub(super) fn new(map: Map, count: usize, mapped: bool) -> io::Result<Self> {
        let source = if mapped {
            let Map::Array(data) = &map else {
                return Err(io::Error::other("the map is not an array"));
            };
            Source::Mapped { memory: map_words(data, count * W)?, _map: map }
        } else {
            let map = Array::try_from(map).map_err(io::Error::other)?;
            Source::Copied { map, words: vec![[0; W]; count] }
        };
        Ok(Self { source, count })
    }

    /// How many stripes there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Makes what follows see the present state; free where the map is mapped.
    pub(super) fn refresh(&mut self) -> io::Result<()> {
        let Source::Copied { map, words } = &mut self.source else { return Ok(()) };
        raised(|| {
            for (i, w) in words.iter_mut().enumerate() {
                *w = map.get(&(i as u32), 0).map_err(io::Error::other)?;
            }
            Ok(())
        })
    }

    /// One word. Words outside of the map read as 0.
    pub(super) fn get(&self, stripe: usize, word: usize) -> u64 {
        if stripe >= self.count || word >= W {
            return 0;
        }
        match &self.source {
            Source::Mapped { memory: m, .. } => {
                // SAFETY: `count * W` words are mapped, and both indices were checked. The
                // kernel writes the words while we read: atomic loads allow that.
                unsafe { m.at.add(stripe * W + word).as_ref() }.load(Ordering::Relaxed)
            }
            Source::Copied { words, .. } => {
                words.get(stripe).and_then(|s| s.get(word)).copied().unwrap_or(0)
            }
        }
    }

    /// Cache lines from word `from` on, without those that are all 0; each with its place.
    pub(super) fn lines(
        &self,
        stripe: usize,
        from: usize,
        count: usize,
        each: impl FnMut(usize, [u64; LINE]),
    ) {
        let from = from.min(W);
        let range = from..from.saturating_add(count.saturating_mul(LINE)).min(W);
        if stripe >= self.count {
            return;
        }
        match &self.source {
            Source::Mapped { memory: m, .. } => {
                // SAFETY: `count * W` words are mapped for as long as `self` lives, and the range
                // lies within stripe `stripe` of them. Atomics may be written while we read.
                let words = unsafe {
                    let first = m.at.add(stripe * W + range.start).as_ptr();
                    std::slice::from_raw_parts(first, range.len())
                };
                used(words, |w| w.load(Ordering::Relaxed), each);
            }
            Source::Copied { words, .. } => {
                let words = words.get(stripe).and_then(|s| s.get(range)).unwrap_or_default();
                used(words, |w| *w, each);
            }
        }
    }
}

/// The lines that are not all 0: nearly all of a histogram are.
fn used<T>(words: &[T], load: impl Fn(&T) -> u64, mut each: impl FnMut(usize, [u64; LINE])) {
    for (i, line) in words.chunks(LINE).enumerate() {
        let mut loaded = [0; LINE];
        loaded.iter_mut().zip(line).for_each(|(to, w)| *to = load(w));
        if loaded.iter().fold(0, |all, w| all | w) != 0 {
            each(i, loaded);
        }
    }
}

/// A counter from reading to reading: whether what its events write is all in the map.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Still {
    value: u64,
    readings: u8,
}

impl Still {
    /// True when the counter said the same in the two readings before as well: an event writes
    /// its tables after it was counted, but not for that long. They are as they were then.
    pub(super) fn stands(&mut self, value: u64) -> bool {
        if self.value != value || self.readings == 0 {
            *self = Self { value, readings: 1 };
            return false;
        }
        let stood = self.readings >= 2;
        self.readings = 2;
        stood
    }
}

fn map_words(data: &MapData, words: usize) -> io::Result<Mapping> {
    let bytes = words * size_of::<u64>();
    // SAFETY: a new mapping at an address of the kernel's choice; nothing else is there.
    let at = unsafe {
        mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, data.fd().as_fd(), 0)?
    };
    let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
    Ok(Mapping { at, words })
}

/// Gives the calling thread a mount namespace of its own.
pub(super) fn unshare_mounts() -> io::Result<()> {
    // SAFETY: file descriptors stay shared; only mounts (and with them the working directory
    // of this thread, which nothing here uses) become our own.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(Into::into)
}

/// Gives the calling thread a root and a working directory of its own.
pub(super) fn unshare_root() -> io::Result<()> {
    // SAFETY: file descriptors stay shared; nothing in this program uses relative paths of
    // another thread.
    unsafe { unshare_unsafe(UnshareFlags::FS) }.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_used_are_told_with_their_place() {
        let mut words = [0; 27];
        (words[0], words[7], words[16], words[26]) = (5, 6, u64::MAX, 1);
        let mut told = Vec::new();
        used(&words, |w| *w, |i, line| told.push((i, line)));
        let want = [
            (0, [5, 0, 0, 0, 0, 0, 0, 6]),
            (2, [u64::MAX, 0, 0, 0, 0, 0, 0, 0]),
            (3, [0, 0, 1, 0, 0, 0, 0, 0]),
        ];
        assert_eq!(told, want);
        used(&[] as &[u64], |w| *w, |_, _| panic!("no words"));
    }

    #[test]
    fn a_counter_stands_still_from_the_third_reading_on() {
        let mut c = Still::default();
        let said = [0, 0, 0, 0, 7, 7, 8, 8, 8, 0, 0, 0].map(|v| c.stands(v));
        let want = [0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1].map(|v| v == 1);
        assert_eq!(said, want);
    }
}

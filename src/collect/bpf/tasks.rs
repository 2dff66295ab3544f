//! A walk over all threads of the host in the kernel: those that run, and those that are in another
//! sleep than the walk before found them in.
//!
//! A `/proc` of 10,000 threads takes tens of milliseconds to read; a walk takes 0.25 us for each
//! thread, and some more for one that it writes a row of. Needs 5.8, system calls 5.15.

use std::fs::File;
use std::io::{self, Read as _};

use super::load::{self, Kernel, Loaded};
use super::rights::raised;
use super::{objects, offsets};
use crate::collect::{CollectOptions, HostFs, Unavailable};
use crate::sample::bpf::layout::tasks as l;

/// Kernel memory that does not depend on the number of CPUs.
pub(super) const BYTES_FIXED: usize = l::SLOTS * 8;

/// The program, and one that does nothing.
const PROGRAM: &str = "tasks";
const EMPTY: &str = "empty_walk";
/// Bytes that are read at once: as much as the kernel's own buffer has.
const CHUNK: usize = 1 << 15;

/// One thread, as a walk found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Number of the process.
    pub pid: u32,
    /// Number of the thread.
    pub tid: u32,
    /// Its state.
    pub state: State,
    /// Number of the system call; `None`: in none, or not known.
    pub call: Option<u32>,
    /// First arguments of the call.
    pub args: [u64; 3],
    /// When it began, ns since boot.
    pub start_ns: u64,
    /// On a CPU since it began, ns.
    pub run_ns: u64,
    /// Waited for a CPU since it began, ns.
    pub delay_ns: u64,
    /// In user mode since it began, ns.
    pub user_ns: u64,
    /// In the kernel since it began, ns.
    pub sys_ns: u64,
    /// Its `comm`, raw, with zeros behind.
    pub comm: [u8; 16],
    /// It is the kernel's own.
    pub is_kernel: bool,
    /// Where it sleeps, innermost first, with zeros behind; of an uninterruptible sleep only.
    pub stack: [u64; l::FRAMES],
}

/// What the state of a task means to us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Running, or ready to.
    #[default]
    Runs,
    /// Asleep or stopped, with the letter of `/proc/PID/stat`.
    Sleeps(char),
    /// It has ended, reaped or not.
    Ended,
}

impl State {
    /// As the kernel's `task_state_index`, without the states that nobody stays in.
    fn of(bits: u32) -> Self {
        const IDLE: u32 = l::UNINTERRUPTIBLE | l::NO_LOAD;
        match bits {
            0 => Self::Runs,
            b if b & (0x10 | 0x20 | 0x80) != 0 => Self::Ended,
            b if b & 0x40 != 0 || b & IDLE == IDLE => Self::Sleeps('I'),
            b if b & 8 != 0 => Self::Sleeps('t'),
            b if b & 4 != 0 => Self::Sleeps('T'),
            b if b & 1 != 0 => Self::Sleeps('S'),
            // Waking, or new.
            b if b & (0x200 | 0x800) != 0 => Self::Runs,
            // Uninterruptible, waiting for a lock of a real-time kernel, or frozen.
            _ => Self::Sleeps('D'),
        }
    }
}

/// The program, loaded.
pub struct TaskWalk {
    loaded: Loaded,
    program: &'static str,
    calls: bool,
    delays: bool,
    /// To begin a walk.
    needs_rights: bool,
    buf: Vec<u8>,
}

impl TaskWalk {
    /// Loads it.
    ///
    /// # Errors
    /// Why it cannot be had here.
    pub fn open(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        load::host_pids(host)?;
        Self::with(&kernel, PROGRAM, true).or_else(|_| Self::with(&kernel, PROGRAM, false))
    }

    /// With the system calls of threads where the kernel tells them, or without.
    fn with(kernel: &Kernel, program: &'static str, calls: bool) -> Result<Self, Unavailable> {
        let types = kernel.types.as_ref().map_err(Clone::clone)?;
        let (mut globals, known) = offsets::tasks(&types.own)?;
        let calls = calls && known;
        for (_, value) in globals.iter_mut().filter(|g| g.0 == "REGS_KNOWN") {
            *value = u32::from(calls);
        }
        let delays = globals.iter().any(|g| g.0 == "DELAY_KNOWN" && g.1 != 0);
        let mut loaded = Loaded::new(kernel, objects::TASKS, &globals, &[])?;
        loaded.load_walk(kernel, program, "task")?;
        Ok(Self { loaded, program, calls, delays, needs_rights: false, buf: Vec::new() })
    }

    /// Opens it as on a kernel that tells no system calls.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_without_calls(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        Self::with(&kernel, PROGRAM, false)
    }

    /// A walk that does nothing: what the walk itself costs.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_empty(host: &HostFs, opts: &CollectOptions) -> Result<Self, Unavailable> {
        let kernel = load::kernel(host, opts)?;
        Self::with(&kernel, EMPTY, true)
    }

    /// Whether rows have system calls.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.calls
    }

    /// Whether rows have the time that a thread waited for a CPU (CONFIG_SCHED_INFO).
    #[must_use]
    pub fn has_delays(&self) -> bool {
        self.delays
    }

    /// A walk from the beginning. Before 5.19 that needs the rights that loading it did; to have them
    /// for a moment takes longer than a walk over a hundred threads.
    fn begin(&mut self) -> io::Result<File> {
        if !self.needs_rights {
            match self.loaded.walk(self.program) {
                Ok(file) => return Ok(file),
                Err(_) => self.needs_rights = true,
            }
        }
        raised(|| self.loaded.walk(self.program))
    }

    /// One walk: the rows of all threads that run or are in a new sleep.
    ///
    /// # Errors
    /// When the kernel refuses, or the walk breaks off.
    pub fn walk(&mut self) -> io::Result<impl Iterator<Item = Row> + '_> {
        let mut file = self.begin()?;
        let mut len = 0;
        loop {
            self.buf.resize(len + CHUNK, 0);
            match file.read(self.buf.get_mut(len..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(n) => len += n,
                // It has come by a million tasks.
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.buf.truncate(len);
        Ok(rows(&self.buf))
    }
}

/// Lets go of what opening has read.
pub fn forget_kernel() {
    load::forget_kernel();
}

/// The rows of a walk. A row that is cut short, or says something impossible, ends it.
pub fn rows(mut bytes: &[u8]) -> impl Iterator<Item = Row> + '_ {
    std::iter::from_fn(move || {
        let (row, rest) = row(bytes)?;
        bytes = rest;
        Some(row)
    })
}

fn row(bytes: &[u8]) -> Option<(Row, &[u8])> {
    let (head, rest) = bytes.split_at_checked(l::HEAD_BYTES)?;
    let word = |from: &[u8], at: usize| {
        let bytes = from.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let half = |at: usize| {
        let bytes = head.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let frames = half(100)? as usize;
    let (stack, rest) =
        if frames == 0 { (&[][..], rest) } else { rest.split_at_checked(l::FRAMES * 8)? };
    if frames > l::FRAMES {
        return None;
    }
    let mut out = Row {
        pid: half(0)?,
        tid: half(4)?,
        state: State::of(half(8)?),
        call: half(12).filter(|c| (*c as i32) >= 0),
        args: [word(head, 16)?, word(head, 24)?, word(head, 32)?],
        start_ns: word(head, 40)?,
        run_ns: word(head, 48)?,
        delay_ns: word(head, 56)?,
        user_ns: word(head, 64)?,
        sys_ns: word(head, 72)?,
        comm: head.get(80..96)?.try_into().ok()?,
        is_kernel: half(96)? & l::KERNEL_THREAD != 0,
        stack: [0; l::FRAMES],
    };
    for (i, to) in out.stack.iter_mut().take(frames).enumerate() {
        *to = word(stack, i * 8)?;
    }
    Some((out, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A row as the program writes it.
    fn written(tid: u32, state: u32, call: i32, stack: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        for half in [7, tid, state, call as u32] {
            out.extend(half.to_ne_bytes());
        }
        for word in [1_u64, 2, 3, 40, 50, 60, 70, 80] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(*b"a b\0\0\0\0\0\0\0\0\0\0\0\0\0");
        out.extend(l::KERNEL_THREAD.to_ne_bytes());
        out.extend((stack.len() as u32).to_ne_bytes());
        if !stack.is_empty() {
            let padded = stack.iter().copied().chain(std::iter::repeat(0)).take(l::FRAMES);
            out.extend(padded.flat_map(u64::to_ne_bytes));
        }
        out
    }

    #[test]
    fn rows_with_and_without_a_stack_follow_each_other() {
        let bytes = [
            written(8, 1, 202, &[]),
            written(9, 2, l::CALL_UNKNOWN, &[0xffff_ffff_8100_0000, 5]),
            written(10, 0, -1, &[]),
        ]
        .concat();
        let all: Vec<Row> = rows(&bytes).collect();
        let [a, b, c] = &all[..] else { panic!("{all:?}") };
        assert_eq!((a.pid, a.tid, a.state, a.call), (7, 8, State::Sleeps('S'), Some(202)));
        assert_eq!((a.args, a.start_ns, a.run_ns, a.delay_ns), ([1, 2, 3], 40, 50, 60));
        assert_eq!((a.user_ns, a.sys_ns, &a.comm[..4], a.is_kernel), (70, 80, &b"a b\0"[..], true));
        assert_eq!(
            (b.state, b.call, b.stack[0]),
            (State::Sleeps('D'), None, 0xffff_ffff_8100_0000)
        );
        assert_eq!((b.stack[1], b.stack[2]), (5, 0));
        assert_eq!((c.tid, c.state, c.call), (10, State::Runs, None));
    }

    #[test]
    fn states_have_the_letters_of_proc() {
        for (bits, want) in [
            (0, State::Runs),
            (0x200, State::Runs),
            (1, State::Sleeps('S')),
            (0x2001, State::Sleeps('S')),
            (2, State::Sleeps('D')),
            (0x102, State::Sleeps('D')),
            (0x402, State::Sleeps('I')),
            (0x40, State::Sleeps('I')),
            (0x1000, State::Sleeps('D')),
            (0x8000, State::Sleeps('D')),
            (0x104, State::Sleeps('T')),
            (8, State::Sleeps('t')),
            (0x80, State::Ended),
            (0x20, State::Ended),
            (0x21, State::Ended),
        ] {
            assert_eq!(State::of(bits), want, "{bits:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(rows(&bytes).count() <= bytes.len() / l::HEAD_BYTES);
        }

        /// Whatever was written comes back, and what is cut off ends it.
        #[test]
        fn what_was_written_is_read(
            tids in proptest::collection::vec((any::<u32>(), 0_u32..3, 0_usize..=l::FRAMES), 0..8),
            cut in 0_usize..200,
        ) {
            let one = |(tid, state, frames): &(u32, u32, usize)| {
                written(*tid, *state, 0, &vec![9; *frames])
            };
            let mut bytes: Vec<u8> = tids.iter().flat_map(one).collect();
            let read: Vec<u32> = rows(&bytes).map(|r| r.tid).collect();
            let want: Vec<u32> = tids.iter().map(|t| t.0).collect();
            prop_assert_eq!(&read, &want);
            bytes.truncate(bytes.len().saturating_sub(cut));
            let short: Vec<u32> = rows(&bytes).map(|r| r.tid).collect();
            prop_assert!(want.starts_with(&short));
        }
    }
}

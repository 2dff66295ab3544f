//! What the kernel programs and the reader agree on: the shape of the maps, of the histogram
//! and of the event records. The programs under `ebpf/` include this very file, so it is
//! `no_std`, holds plain numbers and structs only, and uses nothing of this crate.
//!
//! Every map that is read each tick is an array of fixed-size *stripes* of 8-byte words,
//! mapped read-only into our memory. A stripe has named words, tables and histograms at fixed
//! word offsets.

#![allow(dead_code, reason = "each kernel program uses a part of this file")]
#![allow(clippy::inline_always, reason = "kernel programs must not call functions they can inline")]

// ---- histogram ------------------------------------------------------------------------

/// Buckets of one histogram. 242 are used; the rest pads the histogram to 2 KiB.
pub const BUCKETS: usize = 256;
/// The last bucket in use: everything from [`HIST_MAX_NS`] up.
pub const LAST_BUCKET: usize = 241;
/// Values below 2^6 ns share bucket 0.
pub const HIST_MIN_SHIFT: u32 = 6;
/// 2^36 ns (68.7 s) and more share the last bucket.
pub const HIST_MAX_NS: u64 = 1 << 36;

/// Bucket of a duration: 8 buckets per octave, so a bucket's middle is at most 6.25 % off.
#[inline(always)]
#[must_use]
pub fn bucket_of(ns: u64) -> usize {
    let from = if ns < 1 << 10 {
        if ns < 1 << HIST_MIN_SHIFT {
            return 0;
        }
        6
    } else if ns < 1 << 14 {
        10
    } else if ns < 1 << 18 {
        14
    } else if ns < 1 << 22 {
        18
    } else if ns < 1 << 26 {
        22
    } else if ns < 1 << 30 {
        26
    } else if ns < 1 << 34 {
        30
    } else if ns < HIST_MAX_NS {
        34
    } else {
        return LAST_BUCKET;
    };
    bucket_from(from, ns)
}

/// The same for a duration of 2^`from` ns up to 16 times that. BPF has no instruction for the
/// position of the top bit, and to find it by halving takes three times the instructions.
#[inline(always)]
#[must_use]
pub fn bucket_from(from: u32, ns: u64) -> usize {
    // Two bits for each of 0 to 15: the position of its top bit.
    const OCTAVES: u64 = 0xffff_aa50;
    let octave = (OCTAVES >> ((ns >> from) << 1 & 31)) as u32 & 3;
    // The three bits behind the top one.
    let part = (ns >> (octave + from - 3)) as usize & 7;
    ((from - HIST_MIN_SHIFT + octave) * 8) as usize + part + 1
}

/// Durations below this have their bucket from [`bucket_table`]: 1.05 ms.
pub const SHORT_NS: u64 = 1 << 20;

/// The buckets of 0 to 8 us, a byte for each 8 ns.
#[must_use]
pub const fn bucket_table() -> [u8; 1024] {
    let mut out = [0; 1024];
    let mut i = 0;
    while i < out.len() {
        let mut bucket = 0;
        while bucket_range(bucket + 1).0 <= (i as u64) << 3 {
            bucket += 1;
        }
        out[i] = bucket as u8;
        i += 1;
    }
    out
}

/// [`bucket_of`] for durations below [`SHORT_NS`], by the table: two steps in place of seven.
#[inline(always)]
#[must_use]
pub fn bucket_of_short(table: &[u8; 1024], ns: u64) -> usize {
    // Seven octaves up the buckets are the same, 128 times as wide.
    let (i, above) = if ns < 1 << 13 { (ns >> 3, 0) } else { (ns >> 10, 7 * 8) };
    table[(i & 1023) as usize] as usize + above
}

/// [`bucket_of`] by the table. The verifier follows each of these ways, but knows nothing of what
/// comes out of a table, so that all are one again after it: by halving there are 64.
#[inline(always)]
#[must_use]
pub fn bucket_by_table(table: &[u8; 1024], ns: u64) -> usize {
    let (i, above) = if ns < 1 << 13 {
        (ns >> 3, 0)
    } else if ns < 1 << 20 {
        (ns >> 10, 7 * 8)
    } else if ns < 1 << 27 {
        (ns >> 17, 14 * 8)
    } else if ns < 1 << 34 {
        (ns >> 24, 21 * 8)
    } else if ns < HIST_MAX_NS {
        (ns >> 31, 28 * 8)
    } else {
        return LAST_BUCKET;
    };
    table[(i & 1023) as usize] as usize + above
}

/// The values that fall into a bucket: from the first, up to and without the second, ns.
#[must_use]
pub const fn bucket_range(bucket: usize) -> (u64, u64) {
    if bucket == 0 {
        return (0, 1 << HIST_MIN_SHIFT);
    }
    if bucket >= LAST_BUCKET {
        return (HIST_MAX_NS, u64::MAX);
    }
    let (octave, sub) = ((bucket - 1) / 8, (bucket - 1) % 8);
    let width = 1u64 << (octave + 3);
    let low = (8 + sub as u64) * width;
    (low, low + width)
}

// ---- run queue: two pages per CPU -------------------------------------------------------

/// Words of the stripe of one CPU in `RUNQ`.
pub mod runq {
    /// Words per CPU: whole pages, so that no two CPUs share a cache line.
    pub const WORDS: usize = 1024;
    /// First word of the histogram.
    pub const HIST: usize = 0;
    /// First word of what most switches need, a cache line and the bins. The first lines of a page
    /// compete with those of all that begins with a page.
    pub const HOT: usize = HIST + super::BUCKETS;
    /// Waits passed over: the next one that is measured counts for them (tier A only).
    pub const UNREAD: usize = HOT;
    /// How many of these have been counted so.
    pub const READ: usize = HOT + 1;
    /// Until when such waits are passed over, in the rq clock, ns; [`SAMPLE_NS`] later a sample
    /// of the clock offset is due.
    pub const READ_UNTIL: usize = HOT + 2;
    /// Context switches, but for those in [`UNREAD`] and in the bins.
    pub const SWITCHES: usize = HOT + 3;
    /// Sum of the waits in the histogram, ns.
    pub const WAIT_NS: usize = HOT + 4;
    /// Largest (rq clock - CLOCK_MONOTONIC) in the running window, ns, signed.
    pub const OFF_NOW: usize = HOT + 5;
    /// The same for the window before.
    pub const OFF_BEFORE: usize = HOT + 6;
    /// When the running window began, ns.
    pub const WINDOW: usize = HOT + 7;
    /// The bins: word [`HOT`]` + wait / 32` counts the waits of that length that took the shortest
    /// way through the program, from [`BIN_FROM`] to [`BIN_TO`] (tier A only). They fill no more
    /// of the cache than the buckets would, and need no logarithm.
    pub const BIN_FROM: u64 = 256;
    /// First wait past the bins, ns.
    pub const BIN_TO: u64 = 4096;
    /// Width of a bin is 2 to the power of this, ns: that of a bucket of 256 ns, so a bin
    /// lies within one bucket.
    pub const BIN_SHIFT: u32 = 5;
    /// First word of a bin.
    pub const BIN: usize = HOT + (BIN_FROM >> BIN_SHIFT) as usize;
    /// Bins.
    pub const BINS: usize = ((BIN_TO - BIN_FROM) >> BIN_SHIFT) as usize;
    /// Waits left out: their stamp lies in the future or over 68 s back.
    pub const DISCARDED: usize = BIN + BINS;
    /// Waits counted while the clock offset was not settled (CPU idle for over 2 s).
    pub const UNSURE: usize = DISCARDED + 1;
    /// Stamps lost to another task in the same slot (tier B only).
    pub const COLLIDED: usize = DISCARDED + 2;
    /// Long waits written to the ring, ever; the ring keeps the last [`RING`].
    pub const LONG: usize = DISCARDED + 3;
    /// Long waits whose cgroup found no free row.
    pub const CGROUP_FULL: usize = DISCARDED + 4;
    /// Waits left out: the task slept in them, see [`SLEEP_NS`] (tier A only).
    pub const SLEPT: usize = DISCARDED + 5;
    /// First word of the cgroup table: [`CGROUPS`] rows of id, count, ns.
    pub const CGROUP: usize = (SLEPT + 1).next_multiple_of(8);
    /// Rows of the cgroup table.
    pub const CGROUPS: usize = 64;
    /// Words per row of the cgroup table.
    pub const CGROUP_WORDS: usize = 3;
    /// First word of the ring of long waits: rows of when, wait, pid and tgid, cgroup id, and
    /// the name of the task (two words; 0 when the program does not read it).
    pub const RING_AT: usize = CGROUP + CGROUPS * CGROUP_WORDS;
    /// Rows of the ring.
    pub const RING: usize = 64;
    /// Words per row of the ring.
    pub const RING_WORDS: usize = 6;
    /// Waits from here on are attributed to a task and a cgroup, ns.
    pub const LONG_NS: u64 = 1_000_000;
    /// Waits from here on are checked for sleep: since 6.12 a task that fell asleep stays queued
    /// for a while ("delayed dequeue"), and when it is moved to another CPU in that time, the
    /// scheduler stamps it as waiting and forgets the stamp until it wakes.
    pub const SLEEP_NS: u64 = 1 << 25;
    /// Waits that need a reading of CLOCK_MONOTONIC are measured once in so long per CPU, ns,
    /// where there are many. Those that began in between count as much as the one that is.
    pub const READ_NS: u64 = 1 << 19;
    /// The same where not more than [`FEW`] were passed over, ns.
    pub const READ_FEW_NS: u64 = 1 << 17;
    /// How many that is.
    pub const FEW: u64 = 16;
    /// Length of the window of the clock offset, ns.
    pub const WINDOW_NS: u64 = 1 << 26;
    /// A sample of the clock offset is due so long after [`READ_UNTIL`], if nothing has needed one
    /// since, ns.
    pub const SAMPLE_NS: u64 = 1 << 20;
    /// After this time without a sample the offset starts anew, ns.
    pub const STALE_NS: u64 = 2_000_000_000;
    /// Slots of the stamps of tier B.
    pub const STAMPS: u32 = 65_536;
    const _: () = assert!(RING_AT + RING * RING_WORDS <= WORDS);
    const _: () = assert!(WINDOW < BIN && HOT.is_multiple_of(8));
    const _: () = assert!(UNREAD == HOT && (BIN + BINS - HOT).is_power_of_two());
    const _: () =
        assert!(READ_FEW_NS < READ_NS && READ_NS < LONG_NS && READ_NS + SAMPLE_NS < WINDOW_NS / 16);

    /// Until when waits are passed over after one that stood for so many, in the rq clock, ns.
    #[inline(always)]
    #[must_use]
    pub const fn read_until(clock: u64, waits: u64) -> u64 {
        clock.wrapping_add(if waits > FEW { READ_NS } else { READ_FEW_NS })
    }
    /// Whether a wait is measured: what is left of the time in which they are passed over is
    /// negative, or more than there ever was.
    #[inline(always)]
    #[must_use]
    pub const fn read_due(left: u64) -> bool {
        left > READ_NS
    }
    /// How many of `waits`, of which one was measured, are as long as it. Those passed over ended
    /// within [`READ_NS`], so one that takes longer stands for itself alone.
    #[inline(always)]
    #[must_use]
    pub const fn stands_for(wait: u64, waits: u64) -> u64 {
        if wait > READ_NS { 1 } else { waits }
    }
    /// Whether that time ended so long ago that a sample of the clock offset is due.
    #[inline(always)]
    #[must_use]
    pub const fn sample_due(left: u64) -> bool {
        left.wrapping_add(SAMPLE_NS) > READ_NS + SAMPLE_NS
    }
}

/// Fields of the kernel's structures that a program loads at every event: it names these
/// distances, and the loader writes the running kernel's into the instructions. A variable
/// would cost a load of its own and an addition. No structure of the kernel is that large.
pub mod field {
    /// First of them.
    pub const FIRST: usize = 0x7f00;
    /// `task_struct.thread_info.cpu` (`task_struct.cpu` before 5.16).
    pub const TASK_CPU: usize = FIRST;
    /// `task_struct.sched_info.last_queued`.
    pub const TASK_LAST_QUEUED: usize = FIRST + 8;
    /// `task_struct.se.cfs_rq`.
    pub const TASK_CFS_RQ: usize = FIRST + 16;
    /// `task_struct.__state` (`state` before 5.14).
    pub const TASK_STATE: usize = FIRST + 24;
    /// `cfs_rq.rq`.
    pub const CFS_RQ_RQ: usize = FIRST + 32;
    /// `rq.clock`.
    pub const RQ_CLOCK: usize = FIRST + 40;
}

/// A map of one value, an array of stripes, whose address the loader writes into the instructions,
/// as a lookup costs a dozen of them.
pub mod placed {
    /// Stands for the address.
    pub const ADDRESS: u64 = 0x7ffe_0001_7ffe_0000;
    /// Stands for the number of stripes in comparisons.
    pub const STRIPES: u64 = 0x7ffe_0002;
}

/// Bits of a packed stamp that hold the time; the rest is the tag.
pub const STAMP_BITS: u32 = 42;
/// Mask of the time in a packed stamp.
pub const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

// ---- interrupts: one stripe per CPU -------------------------------------------------------

/// Words of the stripe of one CPU in `IRQ`.
pub mod irq {
    /// Softirq vectors with a row; the kernel has 10.
    pub const VECTORS: usize = 10;
    /// First row of the vectors, a cache line each: runs, sum of their times (ns), the longest
    /// (ns), and the words below. Behind it lies the vector's histogram.
    pub const VECTOR: usize = 0;
    /// Words from row to row.
    pub const VECTOR_WORDS: usize = 1 << VECTOR_SHIFT;
    /// The same by its power of two.
    pub const VECTOR_SHIFT: u32 = 8;
    /// In a row: which runs are timed, see [`timed`](super::timed).
    pub const TURN: usize = VECTOR + 3;
    /// In a row: when the last group of runs ended, ns.
    pub const SINCE: usize = VECTOR + 4;
    /// In a row: runs passed over that may have been long.
    pub const UNSURE: usize = VECTOR + 5;
    /// Words from the row to the histogram: what is left to the next row takes all buckets in use.
    pub const VECTOR_HIST: usize = 8;
    /// Words of the softirq that runs: in the cache line of the row of NET_RX, which is there
    /// most where there is most.
    const RUNNING: usize = VECTOR + 3 * VECTOR_WORDS + 6;
    /// When it began, and later by the time of the handlers that have interrupted it, ns; 0
    /// outside, and when it is not timed.
    pub const SOFT_START: usize = RUNNING;
    /// When a run began last in a group of which some are passed over, in jiffies.
    pub const SOFT_TICK: usize = RUNNING + 1;
    /// When the running handler began, ns; 0 outside.
    pub const HARD_START: usize = VECTOR + VECTORS * VECTOR_WORDS;
    /// Hard interrupt handlers run.
    pub const HARD_COUNT: usize = HARD_START + 1;
    /// Time in hard interrupt handlers since attach, ns.
    pub const HARD_NS: usize = HARD_START + 2;
    /// Exits without an entry.
    pub const UNPAIRED: usize = HARD_START + 3;
    /// Handlers whose interrupt found no free row.
    pub const TABLE_FULL: usize = HARD_START + 4;
    /// Histogram of hard interrupt handlers.
    pub const HARD_HIST: usize = HARD_START + 8;
    /// First row of the interrupts: number + 1, count, ns, longest.
    pub const LINE: usize = HARD_HIST + super::BUCKETS;
    /// Rows of the interrupt table.
    pub const LINES: usize = 128;
    /// Words per row.
    pub const LINE_WORDS: usize = 4;
    /// Rows tried for one interrupt.
    pub const PROBES: usize = 8;
    /// Words per CPU, a multiple of a page.
    pub const WORDS: usize = (LINE + LINES * LINE_WORDS).next_multiple_of(512);
    /// Softirqs of 2 to the power of this, ns, up to 16 times that take the shortest way through
    /// the program.
    pub const SHORT_FROM: u32 = 9;
    const _: () = assert!(VECTOR_HIST + super::LAST_BUCKET < VECTOR_WORDS);
    const _: () = assert!(SOFT_TICK < VECTOR + 3 * VECTOR_WORDS + VECTOR_HIST);
}

#[path = "timed.rs"]
pub mod timed;

// ---- block: shared by all CPUs --------------------------------------------------------------

/// Words of the stripe of one disk in `BLOCK`, and of the table that names the disks.
pub mod block {
    /// Disks that can be told apart.
    pub const DISKS: usize = 64;
    /// Slots of the table that finds the row of a disk: device number + 1, then 8 bits of row.
    pub const SLOTS: usize = 256;
    /// Slots tried for one disk.
    pub const PROBES: usize = 4;
    /// Kinds of request.
    pub const OPS: usize = 4;
    /// Histograms per kind: queued, on the device, both.
    pub const STAGES: usize = 3;
    /// Requests requeued.
    pub const REQUEUES: usize = 0;
    /// Bios that were split.
    pub const SPLITS: usize = 1;
    /// Requests that failed.
    pub const ERRORS: usize = 2;
    /// Requests without a time of issue.
    pub const NO_ISSUE: usize = 3;
    /// Requests whose times run backwards or over 68 s.
    pub const DISCARDED: usize = 4;
    /// Requests without a time of start.
    pub const NO_START: usize = 5;
    /// First row of the kinds, count and bytes: one cache line tells whether there was any.
    pub const OP: usize = 8;
    /// Words per kind.
    pub const OP_WORDS: usize = 2;
    /// First row of the sizes of a kind, by power of two.
    pub const SIZE: usize = OP + OPS * OP_WORDS;
    /// Size classes: up to 4 KiB, 8 KiB, .. and over.
    pub const SIZES: usize = 14;
    /// Words per row of sizes.
    pub const SIZE_WORDS: usize = 16;
    /// First histogram; `(op * STAGES + stage) * BUCKETS` words further.
    pub const HIST: usize = 128;
    /// Words per disk.
    pub const WORDS: usize = (HIST + OPS * STAGES * super::BUCKETS).next_multiple_of(512);
    /// Slots of the stamps of the issue program.
    pub const STAMPS: u32 = 16_384;
    /// The stripe after the disks: word 0 counts events of disks without a row, word 1
    /// stamps lost to another request.
    pub const UNKNOWN: usize = DISKS;
    const _: () = assert!(SIZE + OPS * SIZE_WORDS <= HIST && DISKS < 256 && SLOTS == 1 << 8);

    /// First slot tried for a device number (as the kernel's `dev_t`).
    #[inline(always)]
    #[must_use]
    pub const fn home(dev: u32) -> usize {
        dev.wrapping_mul(0x9e37_79b1) as usize >> 24
    }

    /// Size class of a request: the power of two of 4 KiB pages that holds it.
    #[inline(always)]
    #[must_use]
    pub fn size_class(bytes: u64) -> usize {
        let mut v = if bytes == 0 { 0 } else { (bytes - 1) >> 12 };
        let mut class = 0;
        // Halving instead of a loop, as in `bucket_of`.
        if v >= 1 << 8 {
            v >>= 8;
            class += 8;
        }
        if v >= 1 << 4 {
            v >>= 4;
            class += 4;
        }
        if v >= 1 << 2 {
            v >>= 2;
            class += 2;
        }
        if v >= 1 << 1 {
            v >>= 1;
            class += 1;
        }
        class += (v & 1) as usize;
        if class < SIZES { class } else { SIZES - 1 }
    }
}

// ---- network events ---------------------------------------------------------------------------

/// Words of the stripe of one CPU in `NET`, and the records of `EVENTS`.
pub mod net {
    /// Kinds of event.
    pub const KINDS: usize = 7;
    /// A segment was sent again (or would have been: `err`).
    pub const RETRANSMIT: usize = 0;
    /// We sent a reset.
    pub const SEND_RESET: usize = 1;
    /// A reset arrived.
    pub const RECEIVE_RESET: usize = 2;
    /// `sock_rcvqueue_full`: a packet found no room in a receive queue.
    pub const RCVQUEUE_FULL: usize = 3;
    /// A retransmit that the stack failed to send.
    pub const RETRANSMIT_FAILED: usize = 4;
    /// A process of this host connects.
    pub const CONNECT: usize = 5;
    /// A packet was dropped for a reason that says that it came in bad.
    pub const BAD_PACKET: usize = 6;
    /// First counter of the kinds.
    pub const KIND: usize = 0;
    /// Records left out by the rate limit.
    pub const LIMITED: usize = 8;
    /// Records left out because the ring was full.
    pub const RING_FULL: usize = 9;
    /// Tokens left of the rate limit.
    pub const TOKENS: usize = 10;
    /// When the tokens were filled up last, ns.
    pub const FILLED: usize = 11;
    /// Drops with a reason of another subsystem.
    pub const DROP_SUBSYS: usize = 12;
    /// Drops whose place found no free row.
    pub const PLACE_FULL: usize = 13;
    /// All drops.
    pub const DROPS: usize = 14;
    /// As [`TOKENS`] and [`FILLED`], of [`CONNECT`].
    pub const CONNECT_TOKENS: usize = 15;
    /// See there.
    pub const CONNECT_FILLED: usize = 16;
    /// As [`TOKENS`] and [`FILLED`], of [`BAD_PACKET`].
    pub const BAD_TOKENS: usize = 17;
    /// See there.
    pub const BAD_FILLED: usize = 18;
    /// First counter of the drop reasons.
    pub const REASON: usize = 64;
    /// Drop reasons with a counter; the last takes all above.
    pub const REASONS: usize = 192;
    /// First row of the places: reason << 48 | address & 2^48-1, count.
    pub const PLACE: usize = REASON + REASONS;
    /// Rows of places.
    pub const PLACES: usize = 64;
    /// Words per row.
    pub const PLACE_WORDS: usize = 2;
    /// Rows tried for one place.
    pub const PROBES: usize = 4;
    /// Words per CPU: two pages would waste; one is enough.
    pub const WORDS: usize = 512;
    /// Bytes of the ring buffer.
    pub const RING_BYTES: u32 = 1 << 20;
    /// Records per second and CPU, and the largest burst.
    pub const RATE: u64 = 20_000;
    /// The same for [`CONNECT`] and [`BAD_PACKET`]: of these only shares are told, and a sample has
    /// them, too.
    pub const SAMPLED_RATE: u64 = 250;
    const _: () = assert!(PLACE + PLACES * PLACE_WORDS <= WORDS);
    const _: () = assert!(KIND + KINDS <= LIMITED && BAD_FILLED < REASON);

    /// Reasons for which the sender is told.
    pub const BAD_REASONS: usize = 5;

    /// One record of the ring buffer. Addresses and `dport` are in network byte order.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Event {
        /// `CLOCK_MONOTONIC`, ns.
        pub at: u64,
        /// Socket cookie; 0 when nobody asked the kernel for one yet.
        pub cookie: u64,
        /// Kind, see above.
        pub kind: u16,
        /// `AF_INET` or `AF_INET6`; 0 without a socket.
        pub family: u16,
        /// Local port, host byte order.
        pub sport: u16,
        /// Remote port, network byte order.
        pub dport: u16,
        /// Inode of the network namespace.
        pub netns: u32,
        /// Reset reason, the error of a retransmit, the process that connects, or the reason of
        /// a drop.
        pub detail: i32,
        /// Local address: 4 bytes for IPv4. Of a packet, where it goes to.
        pub saddr: [u8; 16],
        /// Remote address. Of a packet, where it comes from.
        pub daddr: [u8; 16],
        /// TCP state number.
        pub state: u32,
        /// CPU it happened on.
        pub cpu: u32,
    }
    /// Size of [`Event`], bytes.
    pub const EVENT_BYTES: usize = core::mem::size_of::<Event>();
    const _: () = assert!(EVENT_BYTES == 72);
}

// ---- waits: all threads of the host ---------------------------------------------------------

/// What the walk over all threads remembers of each, and the rows that it writes.
pub mod tasks {
    /// Words of memory, one for a thread, found by the low bits of its number. Threads that share
    /// one are written every time: more to read, but nothing is missed.
    pub const SLOTS: usize = 1 << 16;
    /// Frames of a stack that a row has room for.
    pub const FRAMES: usize = 8;
    /// `PF_KTHREAD`: the same in all kernels so far.
    pub const KERNEL_THREAD: u32 = 0x0020_0000;
    /// `TASK_UNINTERRUPTIBLE`.
    pub const UNINTERRUPTIBLE: u32 = 2;
    /// `TASK_NOLOAD`: with the bit before, idle. Both are the same in all kernels so far.
    pub const NO_LOAD: u32 = 0x400;
    /// What stands for a system call where the kernel does not tell it to programs (before 5.15).
    pub const CALL_UNKNOWN: i32 = i32::MIN;

    /// One row: a thread that runs, or that is not in the sleep of the walk before.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Row {
        /// Number of the process, in the namespace of the host.
        pub pid: u32,
        /// Number of the thread.
        pub tid: u32,
        /// `task_struct.__state`, and `exit_state` in its own bits.
        pub state: u32,
        /// System call; negative outside of one.
        pub call: i32,
        /// First arguments of the call.
        pub args: [u64; 3],
        /// When it began, ns since boot, time of suspend included.
        pub start: u64,
        /// On a CPU since it began, ns.
        pub run: u64,
        /// Waited for a CPU since it began, ns.
        pub delay: u64,
        /// In user mode since it began, ns.
        pub user: u64,
        /// In the kernel since it began, ns.
        pub sys: u64,
        /// Its name, as bytes.
        pub comm: [u64; 2],
        /// `task_struct.flags`.
        pub flags: u32,
        /// Frames that follow; 0: none is written.
        pub frames: u32,
        /// Addresses of the functions that it sleeps in, innermost first.
        pub stack: [u64; FRAMES],
    }
    /// Bytes of a row.
    pub const ROW_BYTES: usize = core::mem::size_of::<Row>();
    /// Bytes of a row without frames.
    pub const HEAD_BYTES: usize = ROW_BYTES - FRAMES * 8;
    const _: () = assert!(HEAD_BYTES == 104);
}

// ---- files ------------------------------------------------------------------------------

#[path = "layout/files.rs"]
pub mod files;

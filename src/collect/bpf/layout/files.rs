//! Stripes of `FILES`, one per possible CPU.

/// Rows: a process and a file system, or a file system alone (process 0); how often it was tried, and
/// when it was last.
pub const ROWS: usize = 64;
/// Words per row.
pub const ROW_WORDS: usize = 3;
/// In a row: number of the process, and the device number of the file system below; 0: free.
pub const KEY: usize = 0;
/// In a row: attempts since it has this key.
pub const COUNT: usize = 1;
/// In a row: when the last one was, ns.
pub const LAST: usize = 2;
/// Bits of a device number, as the kernel holds it: 12 of the major number, 20 of the minor.
pub const DEV_BITS: u32 = 32;
/// The lower ones.
pub const MINOR_BITS: u32 = 20;
/// Rows tried for one key.
pub const PROBES: usize = 8;
/// Attempts of all.
pub const CREATES: usize = ROWS * ROW_WORDS;
/// Words per CPU.
pub const WORDS: usize = (CREATES + 1).next_multiple_of(8);

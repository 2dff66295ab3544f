//! Parsers of `/proc/PID/io`, and of the cgroup that limits a process's I/O.

use crate::parse::{fields, limiting_cgroup, lines, number, whole_lines};

/// Numbers that may have been given to processes that cannot be seen yet.
const UNSEEN: u32 = 16;

/// Counters of `/proc/PID/io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Bytes read from disks.
    pub read_bytes: u64,
    /// Bytes made dirty or written directly.
    pub write_bytes: u64,
    /// Bytes of dirty pages that were dropped.
    pub cancelled_write_bytes: u64,
    /// System calls that read.
    pub syscr: u64,
    /// System calls that write.
    pub syscw: u64,
}

impl Io {
    /// Has it moved the same bytes? What system calls did beside them is not of disks.
    pub(super) fn same_bytes(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }

    /// None read, none written.
    pub(super) fn no_bytes(&self) -> bool {
        self.same_bytes(&Self::default())
    }

    /// What it grew by; `None` if any counter fell.
    pub(super) fn grown_from(&self, before: &Self) -> Option<Self> {
        Some(Self {
            read_bytes: self.read_bytes.checked_sub(before.read_bytes)?,
            write_bytes: self.write_bytes.checked_sub(before.write_bytes)?,
            cancelled_write_bytes: self
                .cancelled_write_bytes
                .checked_sub(before.cancelled_write_bytes)?,
            syscr: self.syscr.checked_sub(before.syscr)?,
            syscw: self.syscw.checked_sub(before.syscw)?,
        })
    }

    fn bytes(&self) -> [u64; 3] {
        [self.read_bytes, self.write_bytes, self.cancelled_write_bytes]
    }
}

/// Parses the file; `None` unless every counter is there.
#[must_use]
pub fn parse_io(bytes: &[u8]) -> Option<Io> {
    let value = |name: &[u8]| {
        let line = lines(whole_lines(bytes)).find_map(|l| l.strip_prefix(name))?;
        number(line.strip_prefix(b": ")?)
    };
    Some(Io {
        read_bytes: value(b"read_bytes")?,
        write_bytes: value(b"write_bytes")?,
        cancelled_write_bytes: value(b"cancelled_write_bytes")?,
        syscr: value(b"syscr")?,
        syscw: value(b"syscw")?,
    })
}

/// The number that was given last: the last field of `/proc/loadavg`.
#[must_use]
pub fn parse_last_pid(loadavg: &[u8]) -> Option<u32> {
    let line = lines(whole_lines(loadavg)).next()?;
    u32::try_from(number(fields(line).nth(4)?)?).ok()
}

/// Numbers that were given after one and up to another; they begin anew when all were given. Some
/// before are in it: a number is given a moment before its process can be seen.
pub(super) fn given(after: Option<u32>, to: Option<u32>) -> [(u32, u32); 2] {
    let none = (1, 0);
    let Some((after, to)) = after.zip(to) else { return [none; 2] };
    let first = after.saturating_sub(UNSEEN).max(1);
    if to >= after { [(first, to), none] } else { [(first, u32::MAX), (1, to)] }
}

/// Path of a process in the hierarchy that limits its I/O: the v1 blkio controller, else the
/// unified one.
#[must_use]
pub fn parse_io_cgroup(cgroup: &[u8]) -> Option<String> {
    limiting_cgroup(cgroup, "blkio")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of a `dd` on 6.18.
    const TEXT: &[u8] = b"rchar: 1048579096\nwchar: 1048576000\nsyscr: 1015\nsyscw: 1000\n\
        read_bytes: 1048580096\nwrite_bytes: 1048576000\ncancelled_write_bytes: 4096\n";

    #[test]
    fn counters_are_found_by_name() {
        let want = Io {
            read_bytes: 1_048_580_096,
            write_bytes: 1_048_576_000,
            cancelled_write_bytes: 4096,
            syscr: 1015,
            syscw: 1000,
        };
        assert_eq!(parse_io(TEXT), Some(want));
        assert_eq!(parse_io(b"read_bytes: 1\n"), None);
        assert_eq!(parse_io(b""), None);
    }

    #[test]
    fn only_bytes_are_of_disks_and_a_counter_that_fell_gives_nothing() {
        let before = Io { read_bytes: 5, syscr: 7, ..Io::default() };
        let now = Io { syscr: 9, ..before };
        assert!(now.same_bytes(&before) && !now.no_bytes());
        assert_eq!(now.grown_from(&before), Some(Io { syscr: 2, ..Io::default() }));
        assert_eq!(before.grown_from(&now), None);
    }

    #[test]
    fn the_blkio_controller_wins_over_the_unified_hierarchy() {
        let hybrid = b"4:blkio:/db\n3:cpu,cpuacct:/a:b\n0::/unified\n";
        assert_eq!(parse_io_cgroup(hybrid).as_deref(), Some("/db"));
        assert_eq!(parse_io_cgroup(b"3:cpu:/a\n0::/u\n").as_deref(), Some("/u"));
        assert_eq!(parse_io_cgroup(b"3:cpu:/a\n"), None);
    }

    #[test]
    fn the_last_number_is_the_last_field() {
        assert_eq!(parse_last_pid(b"0.20 0.18 0.12 1/80 11206\n"), Some(11_206));
        assert_eq!(parse_last_pid(b"0.20 0.18 0.12 1/80 112"), None, "cut");
        assert_eq!(parse_last_pid(b"0.20 0.18\n"), None);
    }

    #[test]
    fn numbers_begin_anew_when_all_were_given() {
        assert_eq!(given(Some(500), Some(520)), [(484, 520), (1, 0)]);
        assert_eq!(given(Some(32_760), Some(310)), [(32_744, u32::MAX), (1, 310)]);
        assert_eq!(given(None, Some(310)), [(1, 0), (1, 0)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (parse_io(&bytes), parse_io_cgroup(&bytes), parse_last_pid(&bytes));
        }

        #[test]
        fn truncation_gives_nothing(cut in 0usize..TEXT.len()) {
            prop_assert_eq!(parse_io(&TEXT[..cut]), None);
        }
    }
}

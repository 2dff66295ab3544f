//! Parsers of `/proc/PID/task/TID/{stat,schedstat}`.

use crate::parse::{fields, number, signed};

/// Of a stat line, what we use. Numbers in brackets are the fields of proc(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// (2) Raw; may hold any byte but NUL, parentheses and newlines too.
    pub comm: &'a [u8],
    /// (3) One letter.
    pub state: char,
    /// (4) The process that waits for this one when it ends.
    pub parent: u32,
    /// (9) PF_KTHREAD is set.
    pub kernel_thread: bool,
    /// (14) Clock ticks in user mode.
    pub utime: u64,
    /// (15) Clock ticks in the kernel.
    pub stime: u64,
    /// (19) -20 to 19.
    pub nice: Option<i8>,
    /// (20) Threads of the process.
    pub num_threads: u32,
    /// (22) Clock ticks since boot.
    pub start: u64,
    /// (24) Pages of its process that are resident.
    pub rss: Option<u64>,
    /// (39) Where it ran last.
    pub last_cpu: Option<u32>,
    /// (41) `SCHED_*`.
    pub policy: Option<u32>,
    /// (9) PF_NO_SETAFFINITY is set.
    pub bound: bool,
}

const PF_KTHREAD: u64 = 0x0020_0000;
/// `sched_setaffinity` fails with EINVAL.
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

/// Parses a stat line; `None` when it is cut before the start time.
pub fn parse_stat(bytes: &[u8]) -> Option<Stat<'_>> {
    // Only comm can hold parentheses: it reaches from the first to the last.
    let open = bytes.iter().position(|b| *b == b'(')?;
    let close = bytes.iter().rposition(|b| *b == b')')?;
    let comm = bytes.get(open + 1..close)?;
    let line = bytes.get(close + 1..)?;
    let torn = !line.ends_with(b"\n");
    let mut f = fields(line).peekable();
    let [state] = *f.next()? else { return None };
    if !state.is_ascii_alphabetic() {
        return None;
    }
    let mut out = Stat {
        comm,
        state: char::from(state),
        parent: 0,
        kernel_thread: false,
        utime: 0,
        stime: 0,
        nice: None,
        num_threads: 0,
        start: 0,
        rss: None,
        last_cpu: None,
        policy: None,
        bound: false,
    };
    let mut at = 3u32;
    while let Some(field) = f.next() {
        at += 1;
        if torn && f.peek().is_none() {
            // The last number may be cut short.
            break;
        }
        match at {
            4 => out.parent = u32::try_from(number(field)?).ok()?,
            9 => {
                let flags = number(field)?;
                out.kernel_thread = flags & PF_KTHREAD != 0;
                out.bound = flags & PF_NO_SETAFFINITY != 0;
            }
            14 => out.utime = number(field)?,
            15 => out.stime = number(field)?,
            19 => out.nice = signed(field).and_then(|n| i8::try_from(n).ok()),
            20 => out.num_threads = u32::try_from(number(field)?).ok()?,
            22 => out.start = number(field)?,
            24 => out.rss = number(field),
            39 => out.last_cpu = number(field).and_then(|n| u32::try_from(n).ok()),
            41 => {
                out.policy = number(field).and_then(|n| u32::try_from(n).ok());
                return Some(out);
            }
            _ => {}
        }
    }
    (at > 22).then_some(out)
}

/// `run_ns run_delay_ns slices`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a CPU.
    pub run_ns: u64,
    /// Time that it waited for one.
    pub run_delay_ns: u64,
    /// How often it was put on one.
    pub slices: u64,
}

/// Parses a schedstat line; `None` when it is cut.
pub fn parse_schedstat(bytes: &[u8]) -> Option<Schedstat> {
    let mut f = fields(bytes.strip_suffix(b"\n")?).map(number);
    Some(Schedstat { run_ns: f.next()??, run_delay_ns: f.next()??, slices: f.next()?? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(comm: &str) -> Vec<u8> {
        // Each field holds its own number, so a shift by one shows.
        let rest: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        format!("7 ({comm}) D {}\n", rest.join(" ")).into_bytes()
    }

    #[test]
    fn fields_are_counted_from_the_last_parenthesis() {
        for comm in ["a", "a) S 1 (b", "new\nline", ") (", ""] {
            let line = line(comm);
            let s = parse_stat(&line).unwrap();
            assert_eq!((s.comm, s.state, s.parent), (comm.as_bytes(), 'D', 4));
            assert_eq!((s.nice, s.num_threads, s.start), (Some(19), 20, 22));
            assert_eq!((s.rss, s.last_cpu, s.policy), (Some(24), Some(39), Some(41)));
        }
    }

    #[test]
    fn a_captured_kernel_thread_is_one() {
        let text = b"13 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0 0 0 0 3 0 0 20 0 1 0 5 0 0 \
            18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        // 69238848 = 0x4208040: PF_KTHREAD is 0x200000.
        assert_ne!(0x0420_8040 & PF_KTHREAD, 0);
        let s = parse_stat(text).unwrap();
        assert!(s.kernel_thread && s.bound);
    }

    #[test]
    fn schedstat_has_three_numbers() {
        let want = Schedstat { run_ns: 174, run_delay_ns: 16, slices: 4 };
        assert_eq!(parse_schedstat(b"174 16 4\n"), Some(want));
        assert_eq!(parse_schedstat(b"174 16 4"), None);
        assert_eq!(parse_schedstat(b"174 16\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (parse_stat(&bytes), parse_schedstat(&bytes));
        }

        #[test]
        fn truncation_gives_nothing_or_the_same_values(cut in 0usize..200) {
            let whole = line("x");
            let all = parse_stat(&whole).unwrap();
            if let Some(s) = parse_stat(&whole[..cut.min(whole.len())]) {
                prop_assert_eq!((s.start, s.num_threads), (all.start, all.num_threads));
                prop_assert!(s.rss.is_none() || s.rss == all.rss);
                prop_assert!(s.last_cpu.is_none() || s.last_cpu == all.last_cpu);
                prop_assert!(s.policy.is_none() || s.policy == all.policy);
            }
        }
    }
}

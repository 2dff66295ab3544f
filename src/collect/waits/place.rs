//! The function of the kernel that a thread sleeps in: `wchan` names the first that is not of the
//! scheduler; where that is a helper for waiting of any kind, `stack` has who called it.

use crate::parse::lines;

/// Helpers that wait for whatever their caller wants: their name says nothing of what that is.
const HELPERS: &[&str] = &[
    "schedule",
    "__schedule",
    "schedule_preempt_disabled",
    "io_schedule",
    "wait_woken",
    "do_wait_intr",
    "wait_for_completion",
    "__wait_for_common",
    "wait_for_common",
    "__wait_on_bit",
    "out_of_line_wait_on_bit",
    "__wait_on_bit_lock",
    "bit_wait",
    "autoremove_wake_function",
    "prepare_to_wait",
    "usleep_range",
    "schedule_hrtimeout_range",
    "do_nanosleep",
    "preempt_schedule",
];

/// Does it wait for whatever its caller wants? `schedule_timeout_killable` too.
pub(super) fn is_helper(function: &str) -> bool {
    HELPERS
        .iter()
        .any(|h| function.strip_prefix(h).is_some_and(|rest| rest.is_empty() || is_variant(rest)))
}

/// `_timeout`, `_killable_timeout`, `_state`, `_clock`.
fn is_variant(rest: &str) -> bool {
    rest.strip_prefix('_').is_some_and(|words| {
        words.split('_').all(|w| {
            ["timeout", "killable", "interruptible", "io", "state", "clock", "common"].contains(&w)
        })
    })
}

/// The first function of a stack (`[<0>] pipe_read+0x2f1/0x4a0`) that is no helper.
pub(super) fn first_of(stack: &[u8]) -> Option<&str> {
    lines(stack)
        .filter_map(|l| std::str::from_utf8(l).ok())
        .filter_map(|l| l.strip_prefix("[<")?.split_once("] "))
        .map(|(_, rest)| rest.split(['+', ' ']).next().unwrap_or_default())
        // Clones that the compiler made: `do_wait.part.0`.
        .map(|f| f.split('.').next().unwrap_or_default())
        .find(|f| !f.is_empty() && !f.starts_with("0x") && !is_helper(f))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn helpers_give_way_to_who_called_them() {
        for f in ["wait_woken", "schedule_timeout", "schedule_timeout_killable", "io_schedule"] {
            assert!(is_helper(f), "{f}");
        }
        for f in ["pipe_read", "schedule_work", "bit_wait_table", "wait_for_space", ""] {
            assert!(!is_helper(f), "{f}");
        }
        let stack = b"[<0>] wait_woken+0x52/0x70\n[<0>] sk_wait_data+0x155/0x180\n\
                      [<0>] tcp_recvmsg_locked+0x37f/0x9f0\n";
        assert_eq!(first_of(stack), Some("sk_wait_data"));
        let clone = b"[<0>] do_wait.part.0+0x13/0x70 [module]\n";
        assert_eq!(first_of(clone), Some("do_wait"));
        assert_eq!(first_of(b""), None);
        assert_eq!(first_of(b"[<0>] 0xffffffffc0000000\n"), None);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = first_of(&bytes);
        }
    }
}

//! Who holds the lock of a file that a process waits for: `/proc/locks`.

use crate::collect::HostFs;
use crate::parse::lines;
use crate::sample::waits::Holder;

/// The process that a waiting one waits for. `None`: it does not wait any more, or who holds the lock
/// is not told: an open file description (OFD), a process of another PID namespace.
pub(super) fn holder(host: &HostFs, waiter: u32) -> Option<Holder> {
    let pid = blocker(&host.read("proc/locks").ok()?, waiter)?;
    let comm = host.read(format!("proc/{pid}/comm")).ok()?;
    Some(Holder { pid, comm: String::from_utf8_lossy(&comm).trim_end_matches('\n').to_owned() })
}

/// Those who wait for a lock follow who holds it:
/// `7: FLOCK  ADVISORY  WRITE 812 08:01:77 0 EOF`,
/// `7: -> FLOCK  ADVISORY  WRITE 950 08:01:77 0 EOF`.
fn blocker(locks: &[u8], waiter: u32) -> Option<u32> {
    let mut holds = None;
    for line in lines(locks).filter_map(|l| std::str::from_utf8(l).ok()) {
        let mut words = line.split_whitespace().skip(1).peekable();
        let waits = words.next_if_eq(&"->").is_some();
        // -1 for an open file description, 0 for another PID namespace.
        let pid = words.nth(3).and_then(|w| w.parse::<u32>().ok()).filter(|pid| *pid > 0);
        if !waits {
            holds = pid;
        } else if pid == Some(waiter) {
            return holds;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.18: `flock` and `fcntl` locks of processes, one of an open file description, a lease.
    const LOCKS: &[u8] = b"\
        1: POSIX  ADVISORY  WRITE 812 08:01:77 0 EOF\n\
        1: -> POSIX  ADVISORY  WRITE 950 08:01:77 0 EOF\n\
        1:  -> POSIX  ADVISORY  READ 951 08:01:77 0 9\n\
        2: FLOCK  ADVISORY  WRITE 813 08:01:78 0 EOF\n\
        2: -> FLOCK  ADVISORY  WRITE 952 08:01:78 0 EOF\n\
        3: OFDLCK ADVISORY  WRITE -1 08:01:79 0 EOF\n\
        3: -> OFDLCK ADVISORY  WRITE 953 08:01:79 0 EOF\n\
        4: LEASE  ACTIVE    WRITE 814 08:01:80 0 EOF\n";

    #[test]
    fn who_waits_follows_who_holds() {
        let of = |waiter| blocker(LOCKS, waiter);
        assert_eq!((of(950), of(951), of(952)), (Some(812), Some(812), Some(813)));
        assert_eq!((of(953), of(812), of(1)), (None, None, None));
        assert_eq!((blocker(b"", 1), blocker(b"x\n1:\n1: -> \xff\n", 1)), (None, None));
    }
}

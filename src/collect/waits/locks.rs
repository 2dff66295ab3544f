//! Who holds the locks of files that threads wait for: `/proc/locks`. To read it, the kernel stops all
//! who lock and unlock: once per reading, and only if somebody waits.

use std::collections::BTreeMap;

use crate::collect::HostFs;
use crate::metrics::waits::class::is_file_lock;
use crate::parse::lines;
use crate::sample::waits::{Holder, ThreadWaits};

/// Adds to each sleep in such a lock who holds it. Nobody is added where the process does not wait any
/// more, or where the kernel does not tell: an open file description (OFD), another PID namespace.
pub(super) fn name_holders(host: &HostFs, threads: &mut [ThreadWaits]) {
    let waits = threads.iter_mut().flat_map(|t| {
        let pid = t.task.pid;
        t.sleeps.iter_mut().map(move |s| (pid, s))
    });
    let mut waits = waits.filter(|(_, s)| s.wchan.as_deref().is_some_and(is_file_lock)).peekable();
    if waits.peek().is_none() {
        return;
    }
    let Ok(text) = host.read("proc/locks") else { return };
    let blockers = blockers(&text);
    let mut names: BTreeMap<u32, Option<Holder>> = BTreeMap::new();
    for (pid, sleep) in waits {
        let Some(blocker) = blockers.get(&pid) else { continue };
        let name = names.entry(*blocker).or_insert_with(|| named(host, *blocker));
        sleep.holder.clone_from(name);
    }
}

fn named(host: &HostFs, pid: u32) -> Option<Holder> {
    let comm = host.read(format!("proc/{pid}/comm")).ok()?;
    Some(Holder { pid, comm: String::from_utf8_lossy(&comm).trim_end_matches('\n').to_owned() })
}

/// By the process that waits. Those who wait for a lock follow who holds it:
/// `7: FLOCK  ADVISORY  WRITE 812 08:01:77 0 EOF`,
/// `7: -> FLOCK  ADVISORY  WRITE 950 08:01:77 0 EOF`.
fn blockers(locks: &[u8]) -> BTreeMap<u32, u32> {
    let (mut out, mut holds) = (BTreeMap::new(), None);
    for line in lines(locks).filter_map(|l| std::str::from_utf8(l).ok()) {
        let mut words = line.split_whitespace().skip(1).peekable();
        let waits = words.next_if_eq(&"->").is_some();
        // -1 for an open file description, 0 for another PID namespace.
        let pid = words.nth(3).and_then(|w| w.parse::<u32>().ok()).filter(|pid| *pid > 0);
        match (waits, pid.zip(holds)) {
            (false, _) => holds = pid,
            (true, Some((waiter, holder))) => _ = out.entry(waiter).or_insert(holder),
            (true, None) => {}
        }
    }
    out
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
        let found: Vec<(u32, u32)> = blockers(LOCKS).into_iter().collect();
        assert_eq!(found, [(950, 812), (951, 812), (952, 813)]);
        assert!(blockers(b"").is_empty() && blockers(b"x\n1:\n1: -> \xff\n").is_empty());
    }
}

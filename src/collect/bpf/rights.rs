//! Capabilities: what loading needs, what to say when it is refused, and giving up what is not
//! needed any more.
//!
//! Capabilities belong to a thread. Only the thread that loads the programs gives up its own;
//! the readers of other namespaces need theirs for as long as they run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::collect::Unavailable;

/// Capabilities that loading needs and the calling thread lacks. `SYS_ADMIN` stands for both,
/// and is the only one before 5.8.
#[must_use]
pub fn missing_capabilities() -> Vec<&'static str> {
    let Ok(caps) = capabilities(None) else { return Vec::new() };
    missing(caps.effective)
}

fn missing(have: CapabilitySet) -> Vec<&'static str> {
    if have.contains(CapabilitySet::SYS_ADMIN) {
        return Vec::new();
    }
    let needed = [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];
    needed.into_iter().filter(|(c, _)| !have.contains(*c)).map(|(_, n)| n).collect()
}

/// What to tell when the kernel does not permit it.
pub(super) fn refused() -> Unavailable {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    refusal(&missing_capabilities(), &lockdown)
}

fn refusal(missing: &[&str], lockdown: &str) -> Unavailable {
    if !missing.is_empty() {
        return Unavailable::new(
            format!("not permitted to load eBPF: no {}", missing.join(", no ")),
            "run as root, or setcap cap_bpf,cap_perfmon+ep on the program (Linux 5.8)",
        );
    }
    // `integrity` leaves us all we use; only `confidentiality` takes something away.
    if lockdown.contains("[confidentiality]") {
        return Unavailable::new(
            "kernel lockdown (confidentiality) forbids this program",
            "boot with lockdown=integrity",
        );
    }
    Unavailable::new(
        "the kernel refuses eBPF although we have the capabilities: seccomp, an LSM or a container",
        "run on the host, outside of the container",
    )
}

/// Rights that a later attachment may need: the program for what turns out to be missing.
const LATER: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// The fallback of the run queue may yet be loaded, for which tracefs may have to be mounted.
static FALLBACK: AtomicBool = AtomicBool::new(false);

/// Tells that the fallback may be needed, or that it will not.
pub(super) fn fallback_possible(yes: bool) {
    FALLBACK.store(yes, Ordering::Relaxed);
    if !yes {
        drop_admin();
    }
}

/// What of `have` stays permitted. Where one of the two is missing (before 5.8 both are),
/// `SYS_ADMIN` is what permits eBPF.
fn later(have: CapabilitySet, fallback: bool) -> CapabilitySet {
    if have.contains(LATER) && !fallback { LATER } else { LATER | CapabilitySet::SYS_ADMIN }
}

/// Gives up, for the calling thread, the capabilities that only loading and attaching need.
/// Those that a later attachment may need stay permitted, but are not effective outside of
/// `raised`; reading a process's name of another user and the kernel's symbols stay allowed.
///
/// # Errors
/// When the kernel refuses, which it has no reason to.
pub fn release_capabilities() -> io::Result<()> {
    let now = capabilities(None)?;
    let reading =
        CapabilitySet::SYSLOG | CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    let later = later(now.permitted, FALLBACK.load(Ordering::Relaxed));
    let set = CapabilitySets {
        effective: now.effective & reading,
        permitted: now.permitted & (reading | later),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, set)?)
}

/// Once rights were released, `SYS_ADMIN` goes too when no fallback will need it.
fn drop_admin() {
    let Ok(mut sets) = capabilities(None) else { return };
    let released = !sets.effective.intersects(LATER | CapabilitySet::SYS_ADMIN);
    if released && sets.permitted.contains(LATER) {
        sets.permitted.remove(CapabilitySet::SYS_ADMIN);
        // Fewer rights are a precaution; nothing depends on it.
        let _ = set_capabilities(None, sets);
    }
}

/// Runs `f` with the rights that [`release_capabilities`] left permitted.
pub(super) fn raised<T>(f: impl FnOnce() -> T) -> T {
    let Ok(before) = capabilities(None) else { return f() };
    let more = before.permitted & (LATER | CapabilitySet::SYS_ADMIN);
    if before.effective.contains(more) {
        return f();
    }
    let lent = CapabilitySets { effective: before.effective | more, ..before };
    let raised = set_capabilities(None, lent).is_ok();
    let out = f();
    if raised {
        let _ = set_capabilities(None, before);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_refusal_names_what_is_missing_and_how_to_unlock_it() {
        let locked = "none integrity [confidentiality]";
        let e = refusal(&["CAP_BPF", "CAP_PERFMON"], locked);
        assert_eq!(e.reason, "not permitted to load eBPF: no CAP_BPF, no CAP_PERFMON");
        assert!(e.remedy.contains("root") && e.remedy.contains("setcap"), "{}", e.remedy);
        let e = refusal(&[], locked);
        assert!(e.reason.contains("lockdown") && e.remedy.contains("lockdown=integrity"), "{e:?}");
        // The usual state of a machine with secure boot does not forbid what we load.
        let e = refusal(&[], "none [integrity] confidentiality");
        assert!(e.reason.contains("seccomp") && e.remedy.contains("host"), "{e:?}");
    }

    #[test]
    fn sys_admin_stands_for_both() {
        assert_eq!(missing(CapabilitySet::empty()), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing(CapabilitySet::BPF), ["CAP_PERFMON"]);
        assert!(missing(CapabilitySet::SYS_ADMIN).is_empty());
        let admin = CapabilitySet::SYS_ADMIN;
        assert!(later(admin, false).contains(admin), "before 5.8");
        assert_eq!(later(CapabilitySet::all(), false), LATER);
        assert!(later(CapabilitySet::all(), true).contains(admin), "to mount tracefs");
    }

    /// Raising works after releasing, and only as long as `f` runs. As root; for others there
    /// is nothing to raise, which must not fail either.
    #[test]
    fn rights_are_lent_for_a_moment() {
        std::thread::spawn(|| {
            let had = capabilities(None).unwrap().permitted & LATER;
            release_capabilities().unwrap();
            assert!(!capabilities(None).unwrap().effective.intersects(LATER));
            assert_eq!(raised(|| capabilities(None).unwrap().effective & LATER), had);
            assert!(!capabilities(None).unwrap().effective.intersects(LATER));
            assert!(!capabilities(None).unwrap().permitted.contains(CapabilitySet::SYS_TIME));
            drop_admin();
            let left = capabilities(None).unwrap().permitted;
            assert!(!left.contains(CapabilitySet::SYS_ADMIN) || !left.contains(LATER));
        })
        .join()
        .unwrap();
    }
}

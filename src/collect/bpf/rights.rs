//! Capabilities: what loading needs, what to say when it is refused, and giving up what is not
//! needed any more.
//!
//! Capabilities belong to a thread; [`crate::rights`] has what each of ours needs.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CapabilitySet, capabilities};

use crate::collect::Unavailable;
use crate::collect::permission::{AS_HOST_ROOT, AS_ROOT};
use crate::rights::{self, BPF, Duty, TRACEFS};
use crate::sample::GRANT;

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
    refusal(&missing_capabilities(), &lockdown, rustix::process::geteuid().is_root())
}

fn refusal(missing: &[&str], lockdown: &str, root: bool) -> Unavailable {
    if !missing.is_empty() {
        let remedy = if root {
            format!("{GRANT}{}", missing.join(" and "))
        } else {
            format!("{AS_ROOT}, or setcap cap_bpf,cap_perfmon+ep on the program (Linux 5.8)")
        };
        let reason = format!("not permitted to load eBPF: no {}", missing.join(", no "));
        return Unavailable::new(reason, remedy);
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
        format!("{AS_HOST_ROOT}, outside the container"),
    )
}

/// The fallback of the run queue may yet be loaded, for which tracefs may have to be mounted.
static FALLBACK: AtomicBool = AtomicBool::new(false);

/// Tells that the fallback may be needed, or that it will not.
pub(super) fn fallback_possible(yes: bool) {
    FALLBACK.store(yes, Ordering::Relaxed);
    if !yes {
        drop_fallback();
    }
}

/// What of `have` stays permitted for what may have to be attached later. Where one of the two
/// is missing (before 5.8 both are), `SYS_ADMIN` is what permits eBPF.
fn later(have: CapabilitySet, fallback: bool) -> CapabilitySet {
    let lent = Duty::ReadBpf.row().lent;
    match (fallback, have.contains(lent)) {
        (true, _) => lent | TRACEFS,
        (false, false) => lent | CapabilitySet::SYS_ADMIN,
        (false, true) => lent,
    }
}

/// Gives up, for the calling thread, the capabilities that only loading and attaching need.
/// Those that a later attachment may need stay permitted, but are not effective outside of
/// `raised`; reading a process's name of another user and the kernel's symbols stay allowed.
///
/// # Errors
/// When the kernel refuses, which it has no reason to.
pub fn release_capabilities() -> io::Result<()> {
    let held = Duty::ReadBpf.row().held;
    let later = later(capabilities(None)?.permitted, FALLBACK.load(Ordering::Relaxed));
    rights::keep(held, held | later)
}

/// Once rights were released, those of the fallback go too when nothing will need it.
fn drop_fallback() {
    let Ok(now) = capabilities(None) else { return };
    let released = !now.effective.intersects(BPF | CapabilitySet::SYS_ADMIN);
    if released {
        // Fewer rights are a precaution; nothing depends on it.
        let _ = release_capabilities();
    }
}

/// Runs `f` with the rights that [`release_capabilities`] left permitted.
pub(super) fn raised<T>(f: impl FnOnce() -> T) -> T {
    rights::lend(BPF | TRACEFS, f)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_refusal_names_what_is_missing_and_how_to_unlock_it() {
        let locked = "none integrity [confidentiality]";
        let e = refusal(&["CAP_BPF", "CAP_PERFMON"], locked, false);
        assert_eq!(e.reason, "not permitted to load eBPF: no CAP_BPF, no CAP_PERFMON");
        assert!(e.remedy.contains("root") && e.remedy.contains("setcap"), "{}", e.remedy);
        let e = refusal(&[], locked, true);
        assert!(e.reason.contains("lockdown") && e.remedy.contains("lockdown=integrity"), "{e:?}");
        // The usual state of a machine with secure boot does not forbid what we load.
        let e = refusal(&[], "none [integrity] confidentiality", true);
        assert!(e.reason.contains("seccomp") && e.remedy.contains("host"), "{e:?}");
    }

    #[test]
    fn sys_admin_stands_for_both() {
        assert_eq!(missing(CapabilitySet::empty()), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing(CapabilitySet::BPF), ["CAP_PERFMON"]);
        assert!(missing(CapabilitySet::SYS_ADMIN).is_empty());
        let admin = CapabilitySet::SYS_ADMIN;
        assert!(later(admin, false).contains(admin), "before 5.8");
        assert_eq!(later(CapabilitySet::all(), false), BPF);
        assert!(later(CapabilitySet::all(), true).contains(admin), "to mount tracefs");
    }

    /// Raising works after releasing, and only as long as `f` runs. As root; for others there
    /// is nothing to raise, which must not fail either.
    #[test]
    fn rights_are_lent_for_a_moment() {
        std::thread::spawn(|| {
            let had = capabilities(None).unwrap().permitted & BPF;
            release_capabilities().unwrap();
            assert!(!capabilities(None).unwrap().effective.intersects(BPF));
            assert_eq!(raised(|| capabilities(None).unwrap().effective & BPF), had);
            assert!(!capabilities(None).unwrap().effective.intersects(BPF));
            assert!(!capabilities(None).unwrap().permitted.contains(CapabilitySet::SYS_TIME));
            drop_fallback();
            let left = capabilities(None).unwrap().permitted;
            assert!(!left.contains(CapabilitySet::SYS_ADMIN) || !left.contains(BPF));
        })
        .join()
        .unwrap();
    }
}

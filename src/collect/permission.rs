//! What to say when the kernel refuses to show something: who may see it, and what it means when
//! we should be allowed and are not.

use rustix::thread::{CapabilitySet, capabilities};

use super::HostFs;
use crate::sample::GRANT;

/// What an ordinary user can do about nearly everything.
pub const AS_ROOT: &str = "run as root";
/// The same inside a user namespace, whose root is nobody outside of it.
pub const AS_HOST_ROOT: &str = "run as root on the host";

/// Number of the first user namespace, the same on every kernel since 3.8.
const FIRST_USER_NS: &str = "user:[4026531837]";

/// A capability that a reading needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To look into other processes: their descriptors, namespaces, wait channels.
    Ptrace,
    /// To enter another namespace.
    Admin,
    /// To open the kernel's log where `kernel.dmesg_restrict` is set.
    Syslog,
}

impl Right {
    /// As `capabilities(7)` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ptrace => "CAP_SYS_PTRACE",
            Self::Admin => "CAP_SYS_ADMIN",
            Self::Syslog => "CAP_SYSLOG",
        }
    }

    fn set(self) -> CapabilitySet {
        match self {
            Self::Ptrace => CapabilitySet::SYS_PTRACE,
            Self::Admin => CapabilitySet::SYS_ADMIN,
            Self::Syslog => CapabilitySet::SYSLOG,
        }
    }
}

/// Where we stand; decides what helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    root: bool,
    /// The calling thread has the capability.
    held: bool,
    /// Our user namespace is that of the host.
    host: bool,
}

/// A refusal in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Goes behind what was refused; empty where the remedy says it all.
    pub why: String,
    /// What would help; empty when nothing we know does.
    pub remedy: String,
}

/// What to say about something that needs `right` and was refused to the calling thread.
#[must_use]
pub fn refusal(host: &HostFs, right: Right) -> Refusal {
    let held = capabilities(None).is_ok_and(|c| c.effective.contains(right.set()));
    let first = host.link("proc/self/ns/user").map_or(true, |ns| ns == FIRST_USER_NS);
    let root = rustix::process::geteuid().is_root();
    explain(right, Standing { root, held, host: first })
}

fn explain(right: Right, s: Standing) -> Refusal {
    let remedy = |text: &str| Refusal { why: String::new(), remedy: text.to_owned() };
    match s {
        Standing { host: false, .. } => remedy(AS_HOST_ROOT),
        Standing { held: true, .. } => Refusal {
            why: format!(" although we have {}: a security module or a sandbox", right.name()),
            remedy: String::new(),
        },
        Standing { root: true, .. } => remedy(&format!("{GRANT}{}", right.name())),
        Standing { root: false, .. } => remedy(AS_ROOT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody is told to take what he has.
    #[test]
    fn the_remedy_is_what_is_lacking() {
        let say = |root, held, host| explain(Right::Ptrace, Standing { root, held, host });
        assert_eq!(say(false, false, true).remedy, "run as root");
        assert_eq!(say(true, false, true).remedy, "grant CAP_SYS_PTRACE");
        assert_eq!(say(true, true, false).remedy, "run as root on the host");
        for root in [true, false] {
            let r = say(root, true, true);
            assert_eq!(r.remedy, "");
            assert!(r.why.contains("although we have CAP_SYS_PTRACE"), "{r:?}");
        }
    }
}

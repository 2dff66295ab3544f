//! How to run a command in the network namespace that it is about: the same words wherever one
//! is offered, in findings and on pages.

use super::text::sh;
use crate::collect::sockets::NetnsTable;
use crate::model::subject::NetnsId;
use crate::model::tick::HostInfo;

/// What is known of a namespace: how to get in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door<'a> {
    /// Which.
    pub(crate) netns: NetnsId,
    /// `host`, a mount's name or path, or what a member process is called.
    pub(crate) label: &'a str,
    /// A process in it.
    pub(crate) member: Option<u32>,
}

impl<'a> From<&'a NetnsTable> for Door<'a> {
    fn from(t: &'a NetnsTable) -> Self {
        Self { netns: t.netns, label: &t.label, member: t.member }
    }
}

/// Is this the namespace that the program runs in?
pub(crate) fn is_own(host: &HostInfo, d: Door<'_>) -> bool {
    host.netns == Some(d.netns) || d.label == "host"
}

/// What to put in front of a command so that it runs there; empty for our own. `None` when
/// there is no way in that we know.
pub(crate) fn enter(host: &HostInfo, d: Door<'_>) -> Option<String> {
    match d {
        _ if is_own(host, d) => Some(String::new()),
        Door { member: Some(pid), .. } => Some(format!("nsenter -t {pid} -n ")),
        Door { label: "", .. } => None,
        // Asked for by path.
        Door { label, .. } if label.contains('/') => Some(format!("nsenter --net={} ", sh(label))),
        Door { label, .. } => Some(format!("ip netns exec {} ", sh(label))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_where_its_subject_is() {
        let host = HostInfo { netns: Some(NetnsId(1)), ..HostInfo::default() };
        let to = |netns, label, member| enter(&host, Door { netns: NetnsId(netns), label, member });
        assert_eq!(to(1, "", Some(7)), Some(String::new()));
        assert_eq!(to(1, "web", None), Some(String::new()));
        assert_eq!(to(2, "web", Some(7)).as_deref(), Some("nsenter -t 7 -n "));
        assert_eq!(to(2, "web", None).as_deref(), Some("ip netns exec web "));
        assert_eq!(to(2, "/run/a b", None).as_deref(), Some("nsenter --net='/run/a b' "));
        assert_eq!(to(2, "", None), None);
        // A host without namespaces has one, which is ours.
        let old = HostInfo::default();
        let d = Door { netns: NetnsId(0), label: "host", member: Some(7) };
        assert_eq!(enter(&old, d), Some(String::new()));
    }
}

//! How to run a command in the network namespace that it is about, with the same prefix wherever a
//! command is shown.

use super::text::sh;
use crate::sample::sockets::NetnsTable;
use crate::sample::subject::NetnsId;
use crate::sample::tick::HostInfo;

/// How to enter a network namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door<'a> {
    /// The namespace.
    pub(crate) netns: NetnsId,
    /// `host`, the name or path of a mount, or the name of a member process.
    pub(crate) label: &'a str,
    /// A process in it.
    pub(crate) member: Option<u32>,
}

impl<'a> From<&'a NetnsTable> for Door<'a> {
    fn from(t: &'a NetnsTable) -> Self {
        Self { netns: t.netns, label: &t.label, member: t.member }
    }
}

/// Is this the namespace that stallscope runs in?
pub(crate) fn is_own(host: &HostInfo, d: Door<'_>) -> bool {
    host.netns == Some(d.netns) || d.label == "host"
}

/// The prefix for a command to run in that namespace; empty for our own. `None` if no way to
/// enter it is known.
pub(crate) fn enter(host: &HostInfo, d: Door<'_>) -> Option<String> {
    match d {
        _ if is_own(host, d) => Some(String::new()),
        Door { member: Some(pid), .. } => Some(format!("nsenter -t {pid} -n ")),
        Door { label: "", .. } => None,
        // Given by path.
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
        // A host without network namespace support has a single one: ours.
        let old = HostInfo::default();
        let d = Door { netns: NetnsId(0), label: "host", member: Some(7) };
        assert_eq!(enter(&old, d), Some(String::new()));
    }
}

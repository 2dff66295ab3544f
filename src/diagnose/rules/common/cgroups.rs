//! Control groups. A budgeted walk reads some of them now and others later: what was not read this
//! time is unknown, not fine.

use std::time::Duration;

use super::super::super::{NOT_YET, Verdicts, Window};
use super::text::sh;
use crate::model::derive::cgroups::CgroupFigures;
use crate::model::subject::Subject;

/// Groups that were worth a look are remembered for so long.
pub(crate) const REMEMBER: Duration = Duration::from_secs(15);

/// What a finding about this group is about.
pub(crate) fn subject(g: &CgroupFigures) -> Subject {
    Subject::Cgroup { path: g.path.to_string(), id: g.id }
}

/// A control file of this group as a word of a command.
pub(crate) fn file(g: &CgroupFigures, name: &str) -> String {
    let dir = format!("{}{}", g.mount, g.path);
    sh(&format!("{}/{name}", dir.trim_end_matches('/')))
}

/// Is it of the v1 hierarchy of this controller? That has its name in the mount point:
/// `/sys/fs/cgroup/cpu,cpuacct`.
pub(crate) fn of_v1(mount: &str, controller: &str) -> bool {
    mount.rsplit('/').next().is_some_and(|n| n.split(',').any(|c| c == controller))
}

/// Groups of the last moments that matter and were not read this time are not known to be fine.
pub(crate) fn unread(w: &Window<'_>, out: &mut Verdicts, matters: impl Fn(&CgroupFigures) -> bool) {
    let all = |s: &crate::collect::cgroups::CgroupsSample| s.unread == 0;
    if w.tick.samples.cgroups.as_ref().is_none_or(|s| all(&s.data)) {
        return;
    }
    let now = w.derived.cgroups.as_deref().map_or(&[][..], |g| g);
    let past = w
        .history
        .back_from(w.tick.seq)
        .take_while(|m| w.tick.mono.since(m.tick.mono) < REMEMBER)
        .filter_map(|m| m.derived.cgroups.as_deref())
        .flatten();
    for g in past.filter(|g| matters(g)) {
        if !now.iter().any(|n| n.id == g.id && n.mount == g.mount) {
            out.unknown(subject(g), NOT_YET);
        }
    }
}

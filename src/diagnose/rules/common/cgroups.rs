//! Control groups. The walk over them is budgeted and reads only some in each tick: a cgroup that
//! was not read this time is unknown, not ok.

use std::time::Duration;

use super::super::super::{NOT_YET, Verdicts, Window};
use super::text::sh;
use crate::metrics::cgroups::CgroupFigures;
use crate::sample::cgroups::CgroupRow;
use crate::sample::subject::Subject;

/// How long cgroups of interest are remembered.
pub(crate) const REMEMBER: Duration = Duration::from_secs(15);

/// The subject of a finding about this cgroup.
pub(crate) fn subject(g: &CgroupFigures) -> Subject {
    Subject::Cgroup { path: g.path.to_string(), id: g.id }
}

/// The path of a control file of this cgroup, quoted for the shell.
pub(crate) fn file(g: &CgroupFigures, name: &str) -> String {
    let dir = format!("{}{}", g.mount, g.path);
    sh(&format!("{}/{name}", dir.trim_end_matches('/')))
}

/// Is this the mount point of the controller's v1 hierarchy? It contains the controller's name:
/// `/sys/fs/cgroup/cpu,cpuacct`.
pub(crate) fn of_v1(mount: &str, controller: &str) -> bool {
    mount.rsplit('/').next().is_some_and(|n| n.split(',').any(|c| c == controller))
}

/// The cgroups of this tick with the rows that their figures are of. Both have the same order, but
/// a cgroup that was read for the first time has no figures: there may be thousands, so no row is
/// searched for from the start.
pub(crate) fn with_rows<'a>(
    w: &Window<'a>,
) -> impl Iterator<Item = (&'a CgroupFigures, &'a CgroupRow)> + use<'a> {
    let figures = w.derived.cgroups.as_deref().map_or(&[][..], |g| g);
    let rows = w.tick.samples.cgroups.as_ref().map_or(&[][..], |s| &s.data.groups[..]);
    let mut next = 0;
    figures.iter().filter_map(move |g| {
        let (before, after) = rows.split_at_checked(next)?;
        let same = |r: &&CgroupRow| r.id == g.id && r.mount == g.mount;
        if let Some(n) = after.iter().position(|r| same(&r)) {
            next += n + 1;
            return after.get(n).map(|row| (g, row));
        }
        before.iter().find(same).map(|row| (g, row))
    })
}

/// Marks recently seen cgroups that matter but were not read this time as unknown.
pub(crate) fn unread(w: &Window<'_>, out: &mut Verdicts, matters: impl Fn(&CgroupFigures) -> bool) {
    let all = |s: &crate::sample::cgroups::CgroupsSample| s.unread == 0;
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

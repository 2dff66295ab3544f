//! Mounted file systems: which ones a rule checks, and the subject of its findings.

use super::super::super::{Verdicts, Window};
use super::text::time;
use crate::sample::filesystems::{FilesystemRow, Space};
use crate::sample::subject::Subject;

/// The subject of a finding about this file system.
pub(crate) fn subject(r: &FilesystemRow) -> Subject {
    Subject::Filesystem { mount: r.mount.to_string(), dev: r.dev }
}

/// The rows of this tick.
pub(crate) fn rows<'a>(w: &Window<'a>) -> &'a [FilesystemRow] {
    w.tick.samples.filesystems.as_ref().map_or(&[][..], |s| &s.data.filesystems)
}

/// Writable file systems with the result of their statvfs. Those that do not answer are unknown.
pub(crate) fn writable<'a>(w: &Window<'a>, out: &mut Verdicts) -> Vec<(&'a FilesystemRow, Space)> {
    let all = rows(w);
    let mut found: Vec<(&FilesystemRow, Space)> = Vec::new();
    for r in all.iter().filter(|r| !r.mounted_read_only() && !r.takes_no_writes()) {
        if let Some(since) = r.waits_since {
            let why = format!("has not responded for {}", time(w.tick.mono.since(since)));
            out.unknown(subject(r), why);
        } else if let Some(s) = r.space {
            // File systems of one pool share its space: report only one of them.
            let same = |(o, p): &&mut (&FilesystemRow, Space)| {
                pool(o).is_some() && pool(o) == pool(r) && p.avail_bytes() == s.avail_bytes()
            };
            match found.iter_mut().find(same) {
                Some(other) if r.mount.len() < other.0.mount.len() => *other = (r, s),
                Some(_) => {}
                None => found.push((r, s)),
            }
        }
    }
    found
}

fn pool(r: &FilesystemRow) -> Option<&str> {
    (&*r.kind == "zfs").then(|| r.source.split('/').next()).flatten()
}

//! `fs-full`: a file system is full or nearly full.

use super::common::filesystems::{subject, writable};
use super::common::largest::{LEAST, largest};
use super::common::text::{bytes, count, sh};
use crate::diagnose::culprit::Culprit;
use crate::diagnose::limits::Limit;
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::ratio;
use crate::sample::filesystems::{FilesystemRow, Holder, Space};

pub(in crate::diagnose) static LIMIT: Limit = Limit {
    rule: RuleId("fs-full"),
    of: "space available to ordinary users, %",
    warn: 5.0,
    clear: 7.0,
    crit: f64::INFINITY,
    range: (0.1, 50.0),
};
/// With this many bytes left nothing is urgent, however small a fraction of a huge disk that is.
const PLENTY: u64 = 10_000_000_000;
/// Less than this, on a file system of at least that size, counts as full.
const NOTHING: u64 = 1 << 20;
const NOT_TINY: u64 = 100 << 20;

/// Their files have other device numbers than their mounts: a subvolume, or the layer below.
const OWN_NUMBERS: [&str; 2] = ["btrfs", "overlay"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("fs-full"),
    title: "a file system is full or nearly full",
    condition: "5% or less of the space is available to ordinary users, and less than 10 GB, \
        for 3 of 5 s. Critical when none is available, or less than 1 MiB on a file system of \
        100 MiB or more: writes fail with ENOSPC. Clears above 7%. File systems mounted \
        read-only, and images that are always full (squashfs, iso9660), are not checked.",
    look_alikes: "Deleted files that a process still has open: du finds less than df reports, \
        and only closing them frees the space; those who keep most are named, and a command \
        lists the files. No inodes left: writes fail with ENOSPC too, while df shows space (fs-inodes). A disk quota: \
        ENOSPC or EDQUOT for one user or project. Blocks that ext4 reserves for root: df shows \
        100% while root can still write.",
    remedy: "Find what grew (du) or what keeps deleted files open; truncate or rotate logs, \
        restart or signal that process, enlarge the file system. On ext4, tune2fs -m lowers the \
        reserve for root.",
    sources: "statvfs(3): f_bavail against f_blocks - f_bfree + f_bavail, as in df. node-mixin \
        warns at 5% and is critical at 3%; awesome-prometheus-alerts warns at 10%. Measured: \
        ext4 of 16 MiB filled by root ends at f_bavail 0 with f_bfree 362.",
    hold: Hold::of(3, 5),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Filesystems], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let at = t.levels(&LIMIT);
    for (r, s) in writable(w, out) {
        let (used, avail) = (s.used_bytes(), s.avail_bytes());
        let Some(left) = ratio(avail as f64, used.saturating_add(avail) as f64) else {
            continue;
        };
        let left = 100.0 * left;
        if left <= at.warn && avail < PLENTY {
            out.fire(subject(r), fire(w, r, &s, left, at.warn));
        } else if left <= at.clear && avail < PLENTY / 4 * 5 {
            out.linger(subject(r));
        }
    }
}

fn fire(w: &Window<'_>, r: &FilesystemRow, s: &Space, left: f64, at: f64) -> Fire {
    let (avail, total) = (s.avail_bytes(), s.total_bytes());
    let none = avail == 0 || (avail < NOTHING && total >= NOT_TINY);
    let mut f = if none {
        let left = if avail == 0 { String::new() } else { format!(" ({} left)", bytes(avail)) };
        let text = format!("{} is full: no space for ordinary users{left}", r.mount);
        Fire::new(Severity::Crit, text)
    } else {
        let text = format!("{} is nearly full: {} left ({left:.1}%)", r.mount, bytes(avail));
        Fire::new(Severity::Warn, text)
    };
    let text = format!(
        "{} of {} available, {} used ({} on {})",
        bytes(avail),
        bytes(total),
        bytes(s.used_bytes()),
        r.kind,
        r.source
    );
    f.evidence.push(Evidence::new("avail", left, "%", text).over(at));
    let kept = s.free.saturating_sub(s.avail).saturating_mul(s.block);
    if kept > 0 {
        let text =
            format!("{} more is free, but reserved for root or by the file system", bytes(kept));
        f.evidence.push(Evidence::new("bfree", kept as f64, "bytes", text));
    }
    if s.files > 0 {
        let text = format!("{} of {} inodes free", s.files_free, s.files);
        if s.files_free > 0 {
            f.ruled_out.push(RuledOut::new("fs-inodes", text));
        } else {
            f.evidence.push(Evidence::new("ffree", 0.0, "", text));
        }
    }
    let text = format!("mounted {}: writes filled it", r.mount_options);
    f.ruled_out.push(RuledOut::new("read-only image", text));
    deleted(w, r, s, &mut f);
    let dir = sh(&r.mount);
    f.next.push(format!("df -h {dir}; du -xhd2 {dir} 2>/dev/null | sort -h | tail -20"));
    f.next.push(held_open(&r.mount));
    f
}

/// Names those who keep deleted files of it open, by what these take of the used space.
fn deleted(w: &Window<'_>, r: &FilesystemRow, s: &Space, f: &mut Fire) {
    if OWN_NUMBERS.contains(&&*r.kind) {
        let text = format!("who keeps deleted files open: those of {} are not found here", r.kind);
        return f.missing.push(text);
    }
    let found = w.tick.samples.filesystems.as_ref().and_then(|s| s.data.deleted.as_deref());
    let Some(found) = found else {
        f.missing.push("who keeps deleted files open (not looked for)".to_owned());
        return;
    };
    let here = found.holders.iter().filter(|h| h.dev == r.dev);
    let of = Resource::SpaceOn(r.mount.to_string());
    let named = largest(here.map(|h| (h, h.bytes as f64)).collect(), s.used_bytes() as f64, &of);
    let unseen = found.left + found.denied;
    if let Some((most, _)) = named.first() {
        let files = |h: &Holder| count(h.files as usize, "file");
        let one = |(h, _): &(&Holder, _)| {
            format!("{}/{} {} in {}", h.comm, h.pid, bytes(h.bytes), files(h))
        };
        let text: Vec<String> = named.iter().map(one).collect();
        let text = format!("deleted and open: {}", text.join(", "));
        f.evidence.push(Evidence::new("deleted", most.bytes as f64, "bytes", text));
    } else if unseen == 0 {
        let text =
            format!("less than {LEAST}% of the used space is in deleted files that are open");
        f.ruled_out.push(RuledOut::new("deleted files", text));
    }
    let rest = |n: u32| if n == 1 { "1 process".to_owned() } else { format!("{n} processes") };
    if found.left > 0 {
        let rest = rest(found.left);
        f.missing.push(format!("deleted files that {rest} may have open: still looking"));
    } else if found.denied > 0 {
        let rest = rest(found.denied);
        f.missing.push(format!("deleted files that {rest} of other users may have open"));
    }
    let culprit =
        |(h, share): (&Holder, _)| Culprit::process(h.pid, Some(h.comm.clone()), None, share);
    f.by = named.into_iter().map(culprit).collect();
}

/// Deleted files that are still open, largest first: bytes, and the descriptor.
fn held_open(mount: &str) -> String {
    // Escape the metacharacters of a find pattern.
    let mut name = String::new();
    for c in mount.trim_end_matches('/').chars() {
        if "*?[]\\".contains(c) {
            name.push('\\');
        }
        name.push(c);
    }
    let pattern = sh(&format!("{name}/* (deleted)"));
    format!(
        "find /proc/[0-9]*/fd -lname {pattern} -exec stat -Lc '%s %n' {{}} + 2>/dev/null | sort -rn | head"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_for_deleted_files_takes_names_as_they_are() {
        let at = |m: &str| held_open(m).split(" -exec").next().unwrap_or("").to_owned();
        assert_eq!(at("/var"), "find /proc/[0-9]*/fd -lname '/var/* (deleted)'");
        assert_eq!(at("/"), "find /proc/[0-9]*/fd -lname '/* (deleted)'");
        assert_eq!(at("/a[1]'b"), r"find /proc/[0-9]*/fd -lname '/a\[1\]'\''b/* (deleted)'");
    }
}

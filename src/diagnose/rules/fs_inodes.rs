//! `fs-inodes`: a file system is out of inodes, however much space it has.

use super::common::filesystems::{subject, writable};
use super::common::text::{bytes, count, sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::ratio;
use crate::sample::filesystems::{FilesystemRow, Space};

/// Free inodes, %.
const WARN: f64 = 5.0;
const CLEAR: f64 = 7.0;
/// With this many free nothing is urgent.
const PLENTY: u64 = 100_000;
/// XFS allocates inodes from free space and reports as many as would fit.
const MADE_OF_ROOM: [&str; 1] = ["xfs"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("fs-inodes"),
    title: "a file system is out of inodes or nearly so: new files cannot be created",
    condition: "5% or less of the inodes are free, and fewer than 100,000, for 3 of 5 s. \
        Critical when none is free: creating files fails with ENOSPC. Clears above 7%. File \
        systems without such a limit (btrfs, vfat) are not checked, nor is XFS, which allocates \
        inodes from free space.",
    look_alikes: "No space left: df shows that too (fs-full). A disk quota on the number of \
        files: EDQUOT, for one user or project.",
    remedy: "Find the directory with the most files (du --inodes): session and cache files, \
        mail queues, container layers. Delete or archive them. ext4 fixes its inode count when \
        it is created (mkfs.ext4 -i or -N), tmpfs by the mount option nr_inodes.",
    sources: "statvfs(3): f_ffree of f_files, as in df -i; node-mixin warns at 5%. Measured: \
        ext4 created with -N 16 has 5 to give, and the sixth file fails with ENOSPC with 90% of \
        the space free.",
    hold: Hold::of(3, 5),
    needs_time: Duration::from_secs(4),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Filesystems], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    for (r, s) in writable(w, out) {
        if MADE_OF_ROOM.contains(&&*r.kind) {
            continue;
        }
        let Some(left) = ratio(s.files_free as f64, s.files as f64) else { continue };
        let left = 100.0 * left;
        if left <= WARN && s.files_free < PLENTY {
            out.fire(subject(r), fire(r, &s, left));
        } else if left <= CLEAR && s.files_free < PLENTY / 4 * 5 {
            out.linger(subject(r));
        }
    }
}

fn fire(r: &FilesystemRow, s: &Space, left: f64) -> Fire {
    let mut f = if s.files_free == 0 {
        let text = format!("{} has no inodes left: no file can be created", r.mount);
        Fire::new(Severity::Crit, text)
    } else {
        let n = count(s.files_free as usize, "inode");
        Fire::new(Severity::Warn, format!("{} has {n} left ({left:.1}%)", r.mount))
    };
    let text = format!("{} of {} inodes free ({} on {})", s.files_free, s.files, r.kind, r.source);
    f.evidence.push(Evidence::new("ffree", left, "%", text).over(WARN));
    let (avail, total) = (s.avail_bytes(), s.total_bytes());
    let text = format!("{} of {} available", bytes(avail), bytes(total));
    if avail > 0 {
        f.ruled_out.push(RuledOut::new("fs-full", text));
    } else {
        f.evidence.push(Evidence::new("avail", 0.0, "bytes", text));
        f.ruled_out.push(RuledOut::new("quota", "the file system itself reports none free"));
    }
    f.missing.push("which process created the files (the kernel keeps no record of it)".to_owned());
    let dir = sh(&r.mount);
    f.next.push(format!("df -i {dir}; du -xd3 --inodes {dir} 2>/dev/null | sort -n | tail -20"));
    f
}

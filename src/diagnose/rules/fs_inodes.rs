//! `fs-inodes`: a file system is out of inodes, however much space it has.

use std::collections::BTreeMap;

use super::common::by;
use super::common::counters::SPAN;
use super::common::filesystems::{subject, writable};
use super::common::largest::largest;
use super::common::text::{bytes, count, sh};
use crate::diagnose::culprit::Culprit;
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::ratio;
use crate::sample::bpf::files::{Creator, Sees};
use crate::sample::filesystems::{FilesystemRow, Space};

/// Free inodes, %.
const WARN: f64 = 5.0;
const CLEAR: f64 = 7.0;
/// With this many free nothing is urgent.
const PLENTY: u64 = 100_000;
/// XFS allocates inodes from free space and reports as many as would fit.
const MADE_OF_ROOM: [&str; 1] = ["xfs"];

/// Served by the ext4 driver.
const BY_EXT4: [&str; 3] = ["ext2", "ext3", "ext4"];

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
            out.fire(subject(r), fire(w, r, &s, left));
        } else if left <= CLEAR && s.files_free < PLENTY / 4 * 5 {
            out.linger(subject(r));
        }
    }
}

fn fire(w: &Window<'_>, r: &FilesystemRow, s: &Space, left: f64) -> Fire {
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
    creators(w, r, &mut f);
    let dir = sh(&r.mount);
    f.next.push(format!("df -i {dir}; du -xd3 --inodes {dir} 2>/dev/null | sort -n | tail -20"));
    f
}

/// Names who tried to create files on it in the last [`SPAN`], or says why that is not known.
fn creators(w: &Window<'_>, r: &FilesystemRow, f: &mut Fire) {
    let now = w.tick.mono;
    let moments = w.history.back_from(w.tick.seq);
    let lately = moments.take_while(|m| now.since(m.tick.mono) < SPAN);
    let (mut sees, mut whole) = (None, 0_u64);
    let mut sums: BTreeMap<u32, (&Creator, u64)> = BTreeMap::new();
    for sample in lately.filter_map(|m| m.tick.samples.files_bpf.as_ref()) {
        sees = Some(sample.data.sees);
        for c in sample.data.filesystems.iter().filter(|c| c.dev == r.dev) {
            whole = whole.saturating_add(c.count);
            for who in &c.creators {
                let sum = sums.entry(who.pid).or_insert((who, 0));
                sum.1 = sum.1.saturating_add(who.count);
                if sum.0.comm.is_none() {
                    sum.0 = who;
                }
            }
        }
    }
    let parts: Vec<(&Creator, f64)> = sums.into_values().map(|(c, n)| (c, n as f64)).collect();
    let named = largest(parts, whole as f64, &Resource::CreatesOn(r.mount.to_string()));
    let culprit = |(c, share): (&Creator, _)| {
        let comm = c.comm.as_deref().map(str::to_owned).or_else(|| by::process_name(w, c.pid));
        Culprit::process(c.pid, comm, None, share)
    };
    f.by = named.into_iter().map(culprit).collect();
    let why = match sees {
        None => "needs eBPF",
        Some(Sees::Ext4) if !BY_EXT4.contains(&&*r.kind) => "eBPF sees only those on ext4 here",
        Some(_) if whole == 0 => "none tried to in the last 10 s",
        Some(sees) => {
            let n = whole as usize;
            let text = match sees {
                Sees::All => format!("{} to create a file in the last 10 s", count(n, "attempt")),
                Sees::Ext4 => format!(
                    "{} for an inode in the last 10 s, up to four of each attempt to create a file",
                    count(n, "request")
                ),
            };
            f.evidence.push(Evidence::new("creates", whole as f64, "", text));
            if !f.by.is_empty() {
                let pids = by::pids(&f.by);
                f.next.extend(pids.map(|p| format!("ps -o pid,ppid,lstart,args -p {p}")));
                return;
            }
            "there are many, and none of them creates a large part"
        }
    };
    f.missing.push(format!("which process creates files: {why}"));
}

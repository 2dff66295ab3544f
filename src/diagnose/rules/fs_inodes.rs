//! `fs-inodes`: a file system is out of inodes, however much space it has.

use std::collections::BTreeMap;

use super::common::by;
use super::common::counters::SPAN;
use super::common::filesystems::{subject, writable};
use super::common::largest::largest;
use super::common::text::{bytes, count, sh, time};
use crate::diagnose::culprit::Culprit;
use crate::diagnose::limits::Limit;
use crate::diagnose::rules::prelude::*;
use crate::metrics::rate::ratio;
use crate::sample::bpf::files::{Creator, FilesBpfSample};
use crate::sample::filesystems::{FilesystemRow, Space};

pub(in crate::diagnose) static LIMIT: Limit = Limit {
    rule: RuleId("fs-inodes"),
    of: "inodes free, %",
    warn: 5.0,
    clear: 7.0,
    crit: f64::INFINITY,
    range: (0.1, 50.0),
};
/// With this many free nothing is urgent.
const PLENTY: u64 = 100_000;
/// XFS allocates inodes from free space and reports as many as would fit.
const MADE_OF_ROOM: [&str; 1] = ["xfs"];

/// Served by the ext4 driver, and no other.
const BY_EXT4: [&str; 2] = ["ext3", "ext4"];

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

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let at = t.levels(&LIMIT);
    for (r, s) in writable(w, out) {
        if MADE_OF_ROOM.contains(&&*r.kind) {
            continue;
        }
        let Some(left) = ratio(s.files_free as f64, s.files as f64) else { continue };
        let left = 100.0 * left;
        if left <= at.warn && s.files_free < PLENTY {
            out.fire(subject(r), fire(w, r, &s, left, at.warn));
        } else if left <= at.clear && s.files_free < PLENTY / 4 * 5 {
            out.linger(subject(r));
        }
    }
}

fn fire(w: &Window<'_>, r: &FilesystemRow, s: &Space, left: f64, at: f64) -> Fire {
    let mut f = if s.files_free == 0 {
        let text = format!("{} has no inodes left: no file can be created", r.mount);
        Fire::new(Severity::Crit, text)
    } else {
        let n = count(s.files_free as usize, "inode");
        Fire::new(Severity::Warn, format!("{} has {n} left ({left:.1}%)", r.mount))
    };
    let text = format!("{} of {} inodes free ({} on {})", s.files_free, s.files, r.kind, r.source);
    f.evidence.push(Evidence::new("ffree", left, "%", text).over(at));
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

/// What the programs count on a file system.
enum Counts {
    /// Each inode that it is asked for, up to four in an attempt.
    Requests,
    Attempts,
    /// Not here, and why.
    Nothing(&'static str),
}

fn counts(s: &FilesBpfSample, r: &FilesystemRow) -> Counts {
    match &*r.kind {
        // Ours may be one of many on the same file system.
        "overlay" => Counts::Nothing("files are created on the file system below it"),
        kind if s.ext4 && BY_EXT4.contains(&kind) => Counts::Requests,
        "ext2" if s.ext4 => Counts::Nothing("eBPF does not see those on ext2 here"),
        _ if s.functions => Counts::Attempts,
        _ => Counts::Nothing("eBPF sees only those on ext4 here"),
    }
}

/// What was seen of a file system in the last [`SPAN`].
#[derive(Default)]
struct Seen<'a> {
    last: Option<&'a FilesBpfSample>,
    covered: Duration,
    all: u64,
    unlisted: u64,
    by_process: BTreeMap<u32, (&'a Creator, u64)>,
}

impl<'a> Seen<'a> {
    fn of(w: &Window<'a>, r: &FilesystemRow) -> Self {
        let now = w.tick.mono;
        let moments = w.history.back_from(w.tick.seq);
        let lately = moments.take_while(|m| now.since(m.tick.mono) < SPAN);
        let mut seen = Self::default();
        for sample in lately.filter_map(|m| m.tick.samples.files_bpf.as_ref()) {
            let s = &sample.data;
            seen.last.get_or_insert(s);
            seen.covered += Duration::from_nanos(s.covered_ns);
            seen.unlisted = seen.unlisted.saturating_add(s.unlisted);
            for c in s.filesystems.iter().filter(|c| c.dev == r.dev) {
                seen.all = seen.all.saturating_add(c.count);
                for who in &c.creators {
                    let sum = seen.by_process.entry(who.pid).or_insert((who, 0));
                    sum.1 = sum.1.saturating_add(who.count);
                    if sum.0.comm.is_none() {
                        sum.0 = who;
                    }
                }
            }
        }
        seen
    }
}

/// Names who tried to create files on it lately, or says why that is not known.
fn creators(w: &Window<'_>, r: &FilesystemRow, f: &mut Fire) {
    let seen = Seen::of(w, r);
    let why = match seen.last.map(|s| counts(s, r)) {
        None => "needs eBPF".to_owned(),
        Some(Counts::Nothing(why)) => why.to_owned(),
        Some(_) if seen.all == 0 && seen.unlisted > 0 => {
            "attempts were too many to tell apart".to_owned()
        }
        Some(_) if seen.all == 0 => format!("no attempt seen in {}", time(seen.covered)),
        Some(what) => {
            let (n, covered) = (seen.all as usize, time(seen.covered));
            let text = match what {
                Counts::Requests => format!(
                    "{} for an inode in {covered}, up to four of each attempt to create a file",
                    count(n, "request")
                ),
                _ => format!("{} to create a file in {covered}", count(n, "attempt")),
            };
            f.evidence.push(Evidence::new("creates", seen.all as f64, "", text));
            name(w, r, seen, f);
            if !f.by.is_empty() {
                return;
            }
            "there are many, and none of them creates a large part".to_owned()
        }
    };
    f.missing.push(format!("which process creates files: {why}"));
}

fn name(w: &Window<'_>, r: &FilesystemRow, seen: Seen<'_>, f: &mut Fire) {
    let parts = seen.by_process.into_values().map(|(c, n)| (c, n as f64)).collect();
    let named = largest(parts, seen.all as f64, &Resource::CreatesOn(r.mount.to_string()));
    let culprit = |(c, share): (&Creator, _)| {
        let comm = c.comm.as_deref().map(str::to_owned).or_else(|| by::process_name(w, c.pid));
        Culprit::process(c.pid, comm, None, share)
    };
    f.by = named.into_iter().map(culprit).collect();
    f.next.extend(by::pids(&f.by).map(|pids| format!("ps -o pid,ppid,lstart,args -p {pids}")));
}

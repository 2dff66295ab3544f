//! File systems (`df`) and memory (`free`, `top`, `sar -r`).

use std::fmt::Write as _;

use super::super::rules::common::text::{bytes, sh};
use super::super::{Evidence, Fire, RuledOut, Severity};
use super::{Judged, some};
use crate::sample::subject::Subject;
use crate::sample::told::{Filesystem, Memory};

/// Usage, %.
const FULL: f64 = 95.0;
/// With this many bytes left there is room, whatever the percentage.
const ROOM: f64 = 20.0 * 1024.0 * 1024.0 * 1024.0;
/// The same for inodes.
const INODES: f64 = 1e6;
/// Available memory, %.
const LITTLE: f64 = 5.0;
const NEARLY_NONE: f64 = 2.0;
/// Free swap, %.
const SWAP: f64 = 10.0;
/// Maximum number of rows named in a finding.
const NAMED: usize = 5;

/// Evaluates all rows of `df`.
pub(super) fn filesystems(all: &[Filesystem], out: &mut Judged) {
    let mut rows: Vec<&Filesystem> = Vec::new();
    for f in all.iter().filter(|f| !always_full(f)) {
        // Report a device that is mounted twice only once.
        let twice = |o: &&Filesystem| {
            f.source.starts_with('/')
                && o.source == f.source
                && o.avail == f.avail
                && o.ifree == f.ifree
        };
        if !rows.iter().any(twice) {
            rows.push(f);
        }
    }
    if all.is_empty() {
        return;
    }
    let most = |of: fn(&Filesystem) -> Option<f64>| {
        rows.iter().filter_map(|f| Some((of(f)?, *f))).max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let mut parts = Vec::new();
    if let Some((pct, f)) = most(|f| f.use_pct) {
        let left = f.avail.map_or(String::new(), |a| format!(", {} available", left(a)));
        parts.push(format!("the fullest is {} at {pct:.0}%{left}", f.mount));
    }
    if let Some((pct, f)) = most(|f| f.iuse_pct) {
        parts.push(format!("inodes: {} at {pct:.0}%", f.mount));
    }
    let n = some(rows.len() as u64, "file system");
    out.figures.push(format!("Disk space: {n}; {}", parts.join("; ")));
    let full: Vec<&Filesystem> = rows.iter().copied().filter(|f| is_full(f)).collect();
    if !full.is_empty() {
        space(&full, out);
    }
    let empty: Vec<&Filesystem> = rows.iter().copied().filter(|f| lacks_inodes(f)).collect();
    if !empty.is_empty() {
        inodes(&empty, out);
    }
}

fn left(bytes_left: f64) -> String {
    bytes(bytes_left.max(0.0) as u64)
}

/// Images are always full, and pseudo file systems have no space to count.
fn always_full(f: &Filesystem) -> bool {
    let image = ["squashfs", "iso9660", "udf", "erofs", "cramfs"];
    let other = ["devtmpfs", "efivarfs", "fuse.snapfuse", "autofs", "proc", "sysfs"];
    let kind = f.kind.as_deref().unwrap_or("");
    image.contains(&kind)
        || other.contains(&kind)
        || other.contains(&f.source.as_str())
        || f.mount.starts_with("/snap/")
        || f.mount.starts_with("/var/lib/snapd/snap/")
        || f.source.starts_with("/dev/sr")
        || f.mount == "/sys/firmware/efi/efivars"
        || f.size == Some(0.0)
}

fn is_full(f: &Filesystem) -> bool {
    let Some(pct) = f.use_pct else { return false };
    f.avail == Some(0.0) && pct >= 99.0 || pct >= FULL && f.avail.is_none_or(|a| a < ROOM)
}

fn lacks_inodes(f: &Filesystem) -> bool {
    f.iuse_pct.is_some_and(|pct| pct >= FULL) && f.ifree.is_none_or(|n| n < INODES)
}

fn space(full: &[&Filesystem], out: &mut Judged) {
    let worst = full.iter().any(|f| f.avail == Some(0.0) || f.use_pct >= Some(100.0));
    let severity = if worst { Severity::Crit } else { Severity::Warn };
    let [first, ..] = full else { return };
    let summary = match full {
        [f] => {
            let left = f.avail.map_or(String::new(), |a| format!(", {} available", left(a)));
            format!("{} is {:.0}% full{left}", f.mount, f.use_pct.unwrap_or(100.0))
        }
        _ => format!("{} are full or nearly so", some(full.len() as u64, "file system")),
    };
    let mut fire = Fire::new(severity, summary);
    fire.count = u32::try_from(full.len()).unwrap_or(u32::MAX);
    for f in full.iter().take(NAMED) {
        let pct = f.use_pct.unwrap_or(100.0);
        let size = f.size.map_or(String::new(), |s| format!(" of {}", left(s)));
        let avail = f.avail.map_or("unknown".to_owned(), left);
        let text = format!("{} on {}: {pct:.0}%{size}, available {avail}", f.source, f.mount);
        fire.evidence.push(Evidence::new("use", pct, "%", text).over(FULL));
    }
    match first.iuse_pct {
        Some(pct) if pct < FULL => {
            fire.ruled_out
                .push(RuledOut::new("fs-inodes", format!("{pct:.0}% of the inodes in use")));
        }
        Some(_) => {}
        None => fire.missing.push("whether inodes are left too (df -i)".to_owned()),
    }
    fire.missing
        .push("what fills it: files, or deleted files that a process keeps open".to_owned());
    let mount = sh(&first.mount);
    fire.next.push(format!("du -xh --max-depth=2 {mount} | sort -h | tail -20"));
    fire.next.push(format!("lsof -nP +L1 {mount}  # deleted but still open"));
    out.fire("fs-full", Subject::Host, fire);
}

fn inodes(empty: &[&Filesystem], out: &mut Judged) {
    let worst = empty.iter().any(|f| f.ifree == Some(0.0) || f.iuse_pct >= Some(100.0));
    let severity = if worst { Severity::Crit } else { Severity::Warn };
    let [first, ..] = empty else { return };
    let summary = match empty {
        [f] => format!("{} has used {:.0}% of its inodes", f.mount, f.iuse_pct.unwrap_or(100.0)),
        _ => format!("{} have used nearly all inodes", some(empty.len() as u64, "file system")),
    };
    let mut fire = Fire::new(severity, summary);
    fire.count = u32::try_from(empty.len()).unwrap_or(u32::MAX);
    for f in empty.iter().take(NAMED) {
        let pct = f.iuse_pct.unwrap_or(100.0);
        let free = f.ifree.map_or("unknown".to_owned(), |n| format!("{n:.0}"));
        let all = f.inodes.map_or(String::new(), |n| format!(" of {n:.0}"));
        let text = format!("{} on {}: {pct:.0}%{all} inodes, free {free}", f.source, f.mount);
        fire.evidence.push(Evidence::new("iuse", pct, "%", text).over(FULL));
    }
    match first.use_pct {
        Some(pct) if !is_full(first) => {
            fire.ruled_out.push(RuledOut::new("fs-full", format!("{pct:.0}% of the space in use")));
        }
        Some(_) => {}
        None => fire.missing.push("whether space is left (df -h)".to_owned()),
    }
    fire.missing.push("which directory holds so many files".to_owned());
    let mount = sh(&first.mount);
    fire.next.push(format!("du -x --inodes --max-depth=3 {mount} | sort -n | tail -20"));
    out.fire("fs-inodes", Subject::Host, fire);
}

/// Evaluates the last reading, and reports the lowest.
pub(super) fn memory(all: &[Memory], out: &mut Judged) {
    let share = |m: &Memory| m.available.filter(|_| m.total > 0.0).map(|a| 100.0 * a / m.total);
    let Some(last) = all.iter().rev().find(|m| share(m).is_some()) else { return };
    let Some(pct) = share(last) else { return };
    let swap = last.swap.filter(|s| s.0 > 0.0).map(|(total, free)| 100.0 * free / total);
    let about = if last.estimated { "about " } else { "" };
    let mut text = format!("Memory: {about}{pct:.0}% available");
    match (last.swap, swap) {
        (_, Some(free)) => {
            let _ = write!(text, ", {:.0}% of swap in use", 100.0 - free);
        }
        (Some(_), None) => text.push_str(", no swap"),
        _ => {}
    }
    let lowest = all.iter().filter_map(share).fold(pct, f64::min);
    if lowest < pct - 1.0 {
        let _ = write!(text, "; {lowest:.0}% at the lowest");
    }
    out.figures.push(text);
    if pct >= LITTLE {
        return;
    }
    let no_swap = swap.is_none_or(|free| free < SWAP);
    let severity = if no_swap && (pct < NEARLY_NONE || swap.is_some()) {
        Severity::Warn
    } else {
        Severity::Info
    };
    let mut f = Fire::new(severity, format!("{about}{pct:.1}% of memory is available"));
    let text = format!("available {:.0} of {:.0}", last.available.unwrap_or(0.0), last.total);
    f.evidence.push(Evidence::new("available", pct, "%", text).over(LITTLE));
    if let Some(free) = swap {
        let text = format!("{free:.0}% of swap is free");
        f.evidence.push(Evidence::new("swap", free, "%", text).over(SWAP));
    }
    f.ruled_out
        .push(RuledOut::new("page-cache", "cache that can be reclaimed counts as available"));
    f.missing.push(
        "whether anything waits for memory: reserved huge pages also leave little available"
            .to_owned(),
    );
    f.next.push("cat /proc/pressure/memory; vmstat 1 5  # si, so".to_owned());
    f.next.push("ps -eo rss,pid,comm --sort=-rss | head; grep -i huge /proc/meminfo".to_owned());
    out.fire("mem-stall", Subject::Host, f);
}

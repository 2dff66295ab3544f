//! `fs-read-only`: a file system mounted read-write has turned read-only.

use super::common::filesystems::{rows, subject};
use super::common::text::{sh, time};
use crate::diagnose::rules::prelude::*;
use crate::sample::filesystems::FilesystemRow;
use crate::sample::time::MonoNs;

/// Options that show that the kernel did it, not the administrator.
const BY_KERNEL: [&str; 3] = ["emergency_ro", "shutdown", "errors=remount-ro"];
/// Local file systems without a block device of their own.
const LOCAL: [&str; 3] = ["btrfs", "bcachefs", "ubifs"];

static DOC: RuleDoc = RuleDoc {
    id: RuleId("fs-read-only"),
    title: "a file system mounted read-write has turned read-only: writes fail",
    condition: "The mount point is rw, but the file system itself is ro or shows emergency_ro \
        or shutdown: the kernel did that because of an error. Only suspected, and a warning, \
        when it was already so at the start and no option says why.",
    look_alikes: "Mounted read-only on purpose: the mount point is ro too, and this rule is \
        silent, as it is for images (squashfs, iso9660), which cannot be written. A manual \
        remount (mount -o remount,ro) sets both. A full file system fails with ENOSPC, not \
        EROFS (fs-full).",
    remedy: "Look up the first error in the kernel log: a disk that is failing or vanished for a \
        moment, or a corrupt file system. Save the data, check the disk (smartctl, the storage \
        system's own log), unmount, run fsck, mount again. Remounting rw without fsck risks \
        more damage.",
    sources: "/proc/self/mountinfo: options of the mount point and, after the dash, of the file \
        system. Measured on 6.18: ext4 with errors=remount-ro is rw with emergency_ro (since \
        6.15) after an error, and writes fail with EROFS; older kernels set ro there.",
    hold: Hold::events(5),
    needs_time: Duration::from_secs(1),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Filesystems], explains: &[], check };

fn check(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let turned = w.derived.turned.as_deref().map_or(&[][..], |t| t);
    for r in rows(w).iter().filter(|r| r.takes_no_writes() && !r.mounted_read_only()) {
        let since = turned.iter().find(|t| t.dev == r.dev && t.mount == r.mount);
        // A remote or stacked file system may be read-only from the start.
        let local = r.dev.major != 0 || LOCAL.contains(&&*r.kind);
        if since.is_some() || local {
            out.fire(subject(r), fire(w, r, since.map(|t| t.at)));
        }
    }
}

fn fire(w: &Window<'_>, r: &FilesystemRow, since: Option<MonoNs>) -> Fire {
    let why = BY_KERNEL.iter().find(|o| r.has_option(o));
    let sure = since.is_some() || why.is_some();
    let severity = if sure { Severity::Crit } else { Severity::Warn };
    let mut f = Fire::new(severity, format!("{} turned read-only: writes to it fail", r.mount));
    f.since = since;
    let text = format!("mounted {}, but the file system is {}", r.mount_options, r.options);
    f.evidence.push(Evidence::text("options", text));
    match since {
        Some(at) => {
            let age = w.tick.mono.since(at);
            let text = format!("it was writable until {} ago", time(age));
            f.evidence.push(Evidence::new("since", age.as_secs_f64(), "s", text));
        }
        None => f.missing.push("since when: it was read-only from the start".to_owned()),
    }
    if !sure {
        f.confidence = Confidence::Suspected;
    }
    let text = format!("{} on {}", r.kind, r.source);
    f.evidence.push(Evidence::text("source", text));
    f.ruled_out.push(RuledOut::new("read-only by choice", "the mount point is rw"));
    let source = r.source.rsplit('/').next().unwrap_or(&r.source);
    let names = format!("{source}|remounting|I/O error");
    f.next.push(format!("dmesg -T | grep -iE {} | tail -20", sh(&names)));
    if &*r.kind == "ext4" {
        let name = w.derived.disk(r.dev).map_or(source, |d| &*d.name);
        let dir = sh(&format!("/sys/fs/ext4/{name}"));
        f.next.push(format!("grep . {dir}/errors_count {dir}/first_error_*"));
    }
    f.next.push(format!("findmnt {}", sh(&r.mount)));
    f
}

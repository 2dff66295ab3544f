//! Who reads and writes: the processes of the host that moved most bytes, and whether that can be
//! said of the disk shown.

use std::time::Duration;

use crate::metrics::process_io::{Flow, Lately, Suspects, User, Whole};
use crate::sample::subject::DiskId;
use crate::view::context::Cx;
use crate::view::lines::{LABEL, field};
use crate::view::vm::{Line, Tone};
use crate::view::{text, units};

/// What is looked back at.
const SPAN: Duration = Duration::from_secs(10);
/// Processes shown.
const SHOWN: usize = 5;

/// The process that moved most bytes, where that can be said of this disk.
pub(super) fn busiest(cx: &Cx<'_>, id: DiskId) -> Option<u32> {
    let window = cx.analysis.window(cx.now.tick.seq)?;
    let lately = Lately::new(&window, SPAN)?;
    let suspects = lately.suspects(id, Flow::Both);
    if suspects.whole != Whole::Disk {
        return None;
    }
    let moved = suspects.users.into_iter().filter(|u| u.bytes.of(Flow::Both) > 0.0);
    let most =
        moved.max_by(|a, b| a.bytes.of(Flow::Both).total_cmp(&b.bytes.of(Flow::Both)))?;
    Some(most.latest.task.pid)
}

pub(super) fn lines(cx: &Cx<'_>, id: DiskId) -> Vec<Line> {
    let window = cx.analysis.window(cx.now.tick.seq);
    let Some(lately) = window.as_ref().and_then(|w| Lately::new(w, SPAN)) else {
        return Vec::new();
    };
    let Suspects { mut users, whole, .. } = lately.suspects(id, Flow::Both);
    let elsewhere = lately.users.len().saturating_sub(users.len());
    users.retain(|u| u.bytes.of(Flow::Both) > 0.0);
    users.sort_by(|a, b| b.bytes.of(Flow::Both).total_cmp(&a.bytes.of(Flow::Both)));
    let lasted = units::duration(lately.lasted);
    let what = match (lately.whole(id, Flow::Both).0, whole) {
        (Whole::Disk, _) => "nearly all traffic of the host is this disk's",
        (_, Whole::Disk) => "all that they have open is on this disk",
        _ => "on any disk: the kernel does not tell which",
    };
    let mut head = Line::of(format!(" {:<LABEL$}", "processes"), Tone::Dim);
    if users.is_empty() {
        head.add(format!("none read or wrote in {lasted}"), Tone::Plain);
    } else {
        head.add(format!("bytes in {lasted}, {what}"), Tone::Dim);
    }
    let mut out = vec![head];
    out.extend(users.iter().take(SHOWN).map(|u| field("", user(&lately, u))));
    let left = [
        (users.len().saturating_sub(SHOWN) as u32, "more"),
        (elsewhere as u32, "with all files on other disks"),
        (lately.denied, "not ours to read"),
        (lately.unread, "not read for lack of budget"),
    ];
    let left = left.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    let left: Vec<String> = left.collect();
    if !left.is_empty() {
        let line = Line::of(format!(" {:<LABEL$}", ""), Tone::Dim);
        out.push(line.with(left.join(", "), Tone::Dim));
    }
    out
}

/// `fio/501              read 0B/s      write 97.3M/s   /bench`.
fn user(lately: &Lately<'_>, u: &User<'_>) -> String {
    let name = format!("{}/{}", text::clean(&u.latest.comm), u.latest.task.pid);
    let rate = |bytes: f64| format!("{}/s", units::bytes(lately.rate(bytes)));
    let cgroup = u.latest.cgroup.as_deref().filter(|p| p.len() > 1).unwrap_or("");
    let cgroup = text::cut_front(&text::clean(cgroup), 40).into_owned();
    let (read, written) = (rate(u.bytes.read), rate(u.bytes.written));
    format!("{name:<24} read {read:<9} write {written:<9} {cgroup}").trim_end().to_owned()
}

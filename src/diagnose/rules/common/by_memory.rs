//! Whose memory it is that others wait for: processes that grew, else those that hold most, else
//! the cgroup that is at its limit.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::culprit::{Culprit, Resource, Sched, Share, Who};
use super::super::super::{Evidence, Fire, Window};
use super::by;
use super::largest::largest;
use super::text::{bytes, time};
use crate::sample::cgroups::CgroupRow;
use crate::sample::sched::ThreadSched;
use crate::sample::subject::is_within;

/// What is looked back at.
const SPAN: Duration = Duration::from_secs(30);
/// Processes that together grew by less than this part of the memory did not fill it lately.
const GREW: f64 = 0.05;
const MIB: f64 = 1024.0 * 1024.0;

/// Names who fills the memory of the host.
pub(crate) fn blame(w: &Window<'_>, f: &mut Fire) {
    let all = residents(w);
    let total = w.tick.samples.memory.as_ref().and_then(|m| m.data.get("meminfo.MemTotal"));
    let whole = total.map_or(w.host.memory_bytes as f64, |kb| kb as f64 * 1024.0);
    blame_for(&all, whole, |grown| if grown { Resource::Growth } else { Resource::HostMemory }, f);
}

/// Names who fills a cgroup that is at its limit: itself, where its processes are not known.
pub(crate) fn blame_cgroup(w: &Window<'_>, g: &CgroupRow, used: u64, limit: u64, f: &mut Fire) {
    let mut all = residents(w);
    all.retain(|r| r.cgroup.is_some_and(|p| is_within(p, &g.path)));
    let path = || g.path.to_string();
    let of = |grown| {
        if grown { Resource::GrowthOfCgroup(path()) } else { Resource::MemoryOfCgroup(path()) }
    };
    blame_for(&all, used as f64, of, f);
    if f.by.is_empty() {
        let who = Who::Cgroup { path: path() };
        let share = Share::new(used as f64, limit as f64, Resource::MemoryLimitOf(path()));
        f.by.extend(share.map(|share| Culprit {
            who,
            share,
            sched: Sched::default(),
            cgroup: None,
        }));
    }
}

/// `ps` for those that were named.
pub(crate) fn next(f: &mut Fire) {
    f.next.push(match by::pids(&f.by) {
        Some(pids) => format!("ps -o pid,rss,maj_flt,args -p {pids}"),
        None => "ps -eo pid,rss,maj_flt,comm --sort=-rss | head".to_owned(),
    });
}

fn blame_for(all: &[Resident<'_>], whole: f64, of: impl Fn(bool) -> Resource, f: &mut Fire) {
    let sum = |of: fn(&Resident<'_>) -> f64| all.iter().fold(0.0, |sum, r| sum + of(r));
    let grew = sum(growth);
    if whole <= 0.0 {
        return;
    }
    let is_growth = grew >= GREW * whole;
    // What several processes share is resident in each of them.
    let (part, whole): (fn(&Resident<'_>) -> f64, f64) =
        if is_growth { (growth, grew) } else { (held, whole) };
    // In the order of pids, and so are equals.
    let named = largest(all.iter().map(|r| (r, part(r))).collect(), whole, &of(is_growth));
    if let Some((first, _)) = named.first() {
        let text: Vec<String> = named.iter().map(|(r, _)| r.text()).collect();
        let text = format!("resident: {}", text.join(", "));
        f.evidence.push(Evidence::new("rss", first.now, "bytes", text));
    }
    let culprit = |(r, share): (&Resident<'_>, _)| {
        Culprit::process(r.pid, r.comm.map(str::to_owned), r.cgroup.map(str::to_owned), share)
    };
    f.by = named.into_iter().map(culprit).collect();
}

/// A process and its memory, in bytes.
struct Resident<'a> {
    pid: u32,
    /// `comm` of its first thread.
    comm: Option<&'a str>,
    /// The cgroup that limits its memory.
    cgroup: Option<&'a str>,
    now: f64,
    /// The first reading in the span, and how long ago it was.
    first: f64,
    lasted: Duration,
}

fn growth(r: &Resident<'_>) -> f64 {
    (r.now - r.first).max(0.0)
}

fn held(r: &Resident<'_>) -> f64 {
    r.now
}

impl Resident<'_> {
    /// `java/2214 5.1 GB (+2.3 GB in 30 s)`.
    fn text(&self) -> String {
        let name = self.comm.unwrap_or("process");
        let grew = growth(self) as u64;
        let more = if grew > 0 {
            format!(" (+{} in {})", bytes(grew), time(self.lasted))
        } else {
            String::new()
        };
        format!("{name}/{} {}{more}", self.pid, bytes(self.now as u64))
    }
}

/// The processes whose size was read lately, which it is when they run; by pid.
fn residents<'a>(w: &Window<'a>) -> Vec<Resident<'a>> {
    let moments = w.history.back_from(w.tick.seq);
    let moments = moments.take_while(|m| w.tick.mono.since(m.tick.mono) <= SPAN);
    let mut found: BTreeMap<u32, Resident<'a>> = BTreeMap::new();
    let mut named: BTreeMap<u32, &'a ThreadSched> = BTreeMap::new();
    // The newest comes first.
    for m in moments {
        for t in m.derived.sched.iter().flat_map(|s| &s.threads) {
            let t = &t.thread;
            if t.task.tid == t.task.pid {
                named.entry(t.task.pid).or_insert(t);
            }
            let Some(mib) = t.rss_mib else { continue };
            let (now, lasted) = (f64::from(mib) * MIB, w.tick.mono.since(m.tick.mono));
            let cgroup = t.memory_cgroup.as_deref().or(t.cgroup.as_deref());
            let new = Resident { pid: t.task.pid, comm: None, cgroup, now, first: now, lasted };
            let r = found.entry(t.task.pid).or_insert(new);
            (r.first, r.lasted, r.cgroup) = (now, lasted, r.cgroup.or(cgroup));
        }
    }
    let name = |mut r: Resident<'a>| {
        r.comm = named.get(&r.pid).map(|t| t.comm.as_str());
        r
    };
    found.into_values().map(name).collect()
}

//! What an all-clear does not cover: what is there and was not checked, most important first.
//!
//! A fault in there would not be found, so nobody may read "no findings" as "healthy". Counted
//! among it is only what can hide a fault: a name that cannot be told, or a mean instead of a
//! histogram from a source that still rules, is a matter of `doctor`.

use serde::Serialize;

use crate::metrics::coverage::{EBPF, LADDERS};
use crate::sample::{Extent, GRANT, Signal, SignalStatus, Unseen};
use crate::text::sanitize;

/// Blind spots that a sentence for people names; the rest is counted.
pub const SHOWN: usize = 4;

/// Something that was not checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlindSpot {
    /// As shown: `4 network namespaces`.
    pub what: String,
    /// How many, or at least how many; `None` where it cannot be counted.
    pub count: Option<u32>,
    /// What it takes: `needs root`.
    #[serde(serialize_with = "as_text")]
    pub lack: Lack,
    /// The signal that is not complete.
    pub signal: String,
    /// Why.
    pub reason: String,
    /// What would help; may be empty.
    pub remedy: String,
    #[serde(skip)]
    base: String,
}

/// Why it was not checked, in a word; blind spots that lack the same are named together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A right, a module, a limit.
    Needs(String),
    /// The user said so, by this option.
    LeftOut(String),
    /// No reading came.
    Late,
    /// It cannot even be told whether it is there.
    Unseen,
    /// Anything else.
    Unavailable,
}

impl Lack {
    fn of(remedy: &str, extent: Extent) -> Self {
        let word =
            |rest: &str| rest.split([',', ';', '(']).next().unwrap_or(rest).trim().to_owned();
        let needs = [("run as ", ""), (GRANT, ""), ("modprobe ", "the module ")];
        if extent == Extent::Unknown {
            Self::Unseen
        } else if let Some((rest, of)) =
            needs.iter().find_map(|(p, of)| Some((remedy.strip_prefix(p)?, of)))
        {
            Self::Needs(format!("{of}{}", word(rest)))
        } else if let Some(option) = remedy.strip_prefix("start without ") {
            Self::LeftOut(option.to_owned())
        } else if remedy.starts_with("raise the limit of open files") {
            Self::Needs("more open files (ulimit -n)".to_owned())
        } else if remedy.starts_with("raise the limit of processes") {
            Self::Needs("more threads (pids.max, ulimit -u)".to_owned())
        } else if remedy.starts_with(crate::sample::LOOK_AGAIN) {
            Self::Late
        } else {
            Self::Unavailable
        }
    }

    fn text(&self, plural: bool) -> String {
        match self {
            Self::Needs(what) => format!("{} {what}", if plural { "need" } else { "needs" }),
            Self::LeftOut(option) => format!("left out ({option})"),
            Self::Late => "not read in time".to_owned(),
            Self::Unseen => "cannot be seen".to_owned(),
            Self::Unavailable => "not available".to_owned(),
        }
    }
}

fn as_text<S: serde::Serializer>(lack: &Lack, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&lack.text(false))
}

/// What matters most when it is missing comes first; what is not here comes last.
const ORDER: [&str; 14] = [
    "sockets",
    "TCP sockets",
    "UDP sockets",
    "UNIX sockets",
    "the chosen network namespace",
    "network namespace",
    "other network namespaces",
    "disks",
    "CPU time",
    "memory",
    "other users' processes",
    "eBPF",
    "parts of eBPF",
    "cgroups",
];

/// Signals without which no fault is missed, only a name or a number of it.
const HARMLESS: [&str; 6] =
    ["MPTCP sockets", "socket owners", "NUMA nodes", "file creation", "own cost", "self"];

/// Collectors whose name says little, in the words of the signals.
const NAMES: [(&str, &str); 9] = [
    ("netns-sockets", "other network namespaces"),
    ("disk counters", "disks"),
    ("cpu", "CPU time"),
    ("softirq", "softirqs"),
    ("sched", "run-queue delays"),
    ("net-counters", "protocol counters"),
    ("netdev", "network devices"),
    ("psi", "pressure (PSI)"),
    ("network devices, qdiscs", "network devices"),
];

/// The blind spots that a coverage has, most important first.
#[must_use]
pub fn blind_spots(coverage: &[Signal]) -> Vec<BlindSpot> {
    let mut out: Vec<BlindSpot> = Vec::new();
    let fallen = |s: &&Signal| {
        LADDERS.contains(&&*s.signal)
            && (s.source != EBPF || matches!(s.status, SignalStatus::Missing { .. }))
    };
    let fell = coverage.iter().filter(fallen).count();
    for s in coverage {
        let (reason, remedy) = match &s.status {
            SignalStatus::Ok => continue,
            SignalStatus::Degraded { reason, remedy }
            | SignalStatus::Missing { reason, remedy } => (reason.as_str(), remedy.as_str()),
        };
        let unseen = if fallen(&s) {
            let what = match fell {
                1 => format!("{} (eBPF)", s.signal).into(),
                n if n < LADDERS.len() => "parts of eBPF".into(),
                _ => "eBPF".into(),
            };
            Unseen { what, extent: Extent::Whole }
        } else if let Some(unseen) = unseen(s) {
            unseen
        } else {
            continue;
        };
        // Of a fallback, why it is one.
        let reason = reason.split_once("; eBPF: ").map_or(reason, |r| r.1);
        let (what, count) = shown(&unseen);
        add(
            &mut out,
            BlindSpot {
                what,
                count,
                lack: Lack::of(remedy, unseen.extent),
                signal: s.signal.to_string(),
                reason: reason.to_owned(),
                remedy: remedy.to_owned(),
                base: unseen.what.into_owned(),
            },
        );
    }
    sort(&mut out);
    out
}

fn unseen(s: &Signal) -> Option<Unseen> {
    let named = |name: &str, extent| {
        let name = NAMES.iter().find(|n| n.0 == name).map_or(name, |n| n.1);
        Some(Unseen { what: name.to_owned().into(), extent })
    };
    match s.status {
        _ if HARMLESS.contains(&&*s.signal) => None,
        _ if s.unseen.is_some() => s.unseen.as_ref().and_then(|u| named(&u.what, u.extent)),
        SignalStatus::Missing { .. } => named(&s.signal, Extent::Whole),
        // Recordings from before this was told apart.
        SignalStatus::Degraded { .. } if s.signal == "other network namespaces" => {
            named(&s.signal, Extent::Unknown)
        }
        _ => None,
    }
}

fn shown(u: &Unseen) -> (String, Option<u32>) {
    let counted = |n: u32| format!("{n} {}{}", u.what, if n == 1 { "" } else { "s" });
    match u.extent {
        Extent::Whole | Extent::Unknown => (u.what.to_string(), None),
        Extent::Exactly(n) => (counted(n), Some(n)),
        Extent::AtLeast(n) => (format!("{n}+ {}s", u.what), Some(n)),
    }
}

/// One that is known already counts once, with the larger number.
fn add(spots: &mut Vec<BlindSpot>, new: BlindSpot) {
    match spots.iter_mut().find(|s| s.base == new.base) {
        Some(old) if old.count < new.count => *old = new,
        Some(_) => {}
        None => spots.push(new),
    }
}

fn sort(spots: &mut [BlindSpot]) {
    let rank = |s: &BlindSpot| ORDER.iter().position(|o| s.base == *o).unwrap_or(ORDER.len());
    spots.sort_by_key(rank);
}

/// The blind spots of several runs together.
pub fn merge(into: &mut Vec<BlindSpot>, more: Vec<BlindSpot>) {
    for spot in more {
        add(into, spot);
    }
    sort(into);
}

/// `4 network namespaces and eBPF need root; disks not available`: `most` of them by name. `4+` are
/// four or more. Fit to be shown: a recording may hold any name of a signal.
#[must_use]
pub fn clause(spots: &[BlindSpot], most: usize) -> String {
    let named = spots.get(..most).unwrap_or(spots);
    let mut groups: Vec<(&Lack, Vec<&str>)> = Vec::new();
    for s in named {
        match groups.iter_mut().find(|g| g.0 == &s.lack) {
            Some(g) => g.1.push(&s.what),
            None => groups.push((&s.lack, vec![&s.what])),
        }
    }
    let mut parts: Vec<String> = groups
        .iter()
        .map(|(lack, what)| {
            let plural = what.len() > 1 || what.iter().all(|w| w.ends_with('s'));
            format!("{} {}", listed(what), lack.text(plural))
        })
        .collect();
    let rest = spots.len() - named.len();
    if rest > 0 {
        parts.push(format!("{rest} more"));
    }
    sanitize(&parts.join("; ")).into_owned()
}

fn listed(what: &[&str]) -> String {
    match what {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `no findings`, which only a box that was looked at as a whole may say, or what it covers.
#[must_use]
pub fn all_clear(spots: &[BlindSpot], most: usize) -> String {
    match clause(spots, most) {
        c if c.is_empty() => "no findings".to_owned(),
        c => format!("no findings in what is readable: {c}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn without_ebpf(remedy: &str) -> Vec<Signal> {
        let reason = "means only; eBPF: not permitted";
        LADDERS.iter().map(|n| Signal::degraded(n, "PSI", reason, remedy)).collect()
    }

    fn spaces(n: u32, remedy: &str) -> Signal {
        Signal::missing("other network namespaces", "netlink", "not permitted", remedy)
            .unseen("network namespace", Extent::Exactly(n))
    }

    #[test]
    fn a_complete_box_and_nothing_else_says_no_findings() {
        let mut all: Vec<Signal> = LADDERS.iter().map(|n| Signal::ok(n, EBPF)).collect();
        all.push(Signal::ok("other network namespaces", "netlink"));
        // What a kernel does not have cannot be sick, and a name is no fault.
        all.push(Signal::missing("MPTCP sockets", "netlink", "this kernel has no MPTCP", ""));
        all.push(Signal::degraded("socket owners", "/proc/PID/fd", "uid only", "run as root"));
        assert_eq!(all_clear(&blind_spots(&all), SHOWN), "no findings");
        all.push(Signal::missing("disks", "", "x", ""));
        assert_ne!(all_clear(&blind_spots(&all), SHOWN), "no findings");
    }

    #[test]
    fn what_lacks_the_same_is_named_together_the_most_important_first() {
        let root = "run as root, or setcap cap_bpf,cap_perfmon+ep on the program (Linux 5.8)";
        let mut all = without_ebpf(root);
        all.push(spaces(4, "run as root"));
        let spots = blind_spots(&all);
        assert_eq!(
            all_clear(&spots, SHOWN),
            "no findings in what is readable: 4 network namespaces and eBPF need root"
        );
        assert_eq!((spots[0].count, spots[1].count), (Some(4), None));
        assert_eq!(spots[1].reason, "not permitted");

        all.push(Signal::missing("memory", "", "/proc/meminfo: gone", "mount the host's /proc"));
        all.push(Signal::missing("cgroups", "", "x", ""));
        all.push(Signal::missing("psi", "", "x", ""));
        let spots = blind_spots(&all);
        assert_eq!(
            clause(&spots, 4),
            "4 network namespaces and eBPF need root; memory and cgroups not available; \
             1 more"
        );
        assert_eq!(clause(&spots, 1), "4 network namespaces need root; 4 more");
    }

    #[test]
    fn each_lack_has_its_words() {
        for (remedy, says) in [
            ("run as root", "1 network namespace needs root"),
            ("run as root on the host", "1 network namespace needs root on the host"),
            ("grant CAP_SYS_ADMIN", "1 network namespace needs CAP_SYS_ADMIN"),
            ("start without --netns", "1 network namespace left out (--netns)"),
            ("try again, or else", "1 network namespace not read in time"),
            ("", "1 network namespace not available"),
        ] {
            assert_eq!(clause(&blind_spots(&[spaces(1, remedy)]), SHOWN), says);
        }
        let unknown = Signal::degraded("other network namespaces", "", "hidepid", "run as root")
            .unseen("other network namespaces", Extent::Unknown);
        let says = "other network namespaces cannot be seen";
        assert_eq!(clause(&blind_spots(&[unknown]), SHOWN), says);
        let more = Signal::degraded("other network namespaces", "", "hidepid", "run as root")
            .unseen("network namespace", Extent::AtLeast(1));
        assert_eq!(clause(&blind_spots(&[more]), SHOWN), "1+ network namespaces need root");
        let some = without_ebpf("").into_iter().take(1).collect::<Vec<_>>();
        assert_eq!(clause(&blind_spots(&some), SHOWN), "run-queue latency (eBPF) not available");
        let most = without_ebpf("").into_iter().take(4).collect::<Vec<_>>();
        assert_eq!(clause(&blind_spots(&most), SHOWN), "parts of eBPF not available");
    }

    #[test]
    fn the_same_thing_counts_once_with_its_largest_number() {
        let mut of_links = Signal::degraded("network devices, qdiscs", "", "x", "run as root");
        of_links = of_links.unseen("network namespace", Extent::Exactly(2));
        let mut one = blind_spots(&[spaces(4, "run as root"), of_links.clone()]);
        assert_eq!(clause(&one, SHOWN), "4 network namespaces need root");
        merge(&mut one, blind_spots(&[spaces(5, "run as root"), of_links]));
        assert_eq!(clause(&one, SHOWN), "5 network namespaces need root");
        merge(&mut one, blind_spots(&without_ebpf("start without --no-bpf")));
        assert_eq!(clause(&one, SHOWN), "5 network namespaces need root; eBPF left out (--no-bpf)");
    }
}

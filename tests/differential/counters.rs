//! Our counters against `nstat` and the raw files.

use std::collections::BTreeMap;

use stallscope::collect::net_counters::NetCountersCollector;
use stallscope::collect::softirq::SoftirqCollector;
use stallscope::collect::{CollectOptions, HostFs, NetnsScope, namespaces};
use stallscope::sample::Interest;

use crate::kit::gate::with_tools;
use crate::kit::sh::run;
use crate::{open, read};

/// Name and value of every counter, zeros included, without touching anybody's history file.
fn nstat() -> BTreeMap<String, i64> {
    let text = run(&["env", "NSTAT_HISTORY=/dev/null", "nstat", "-asz"]);
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| {
            let mut words = l.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        })
        .collect()
}

/// What nstat leaves out of `/proc/net/snmp`: settings, and a gauge. Not counters.
const SETTINGS: &[&str] = &[
    "IpDefaultTTL",
    "IpForwarding",
    "TcpCurrEstab",
    "TcpMaxConn",
    "TcpRtoAlgorithm",
    "TcpRtoMax",
    "TcpRtoMin",
];

/// Every counter by `nstat`'s name, between its two readings. Gauges may go down between
/// them; nothing else may.
#[test]
fn protocol_counters_agree_with_nstat() {
    with_tools(&["nstat"], || {
        let opts = CollectOptions { netns: NetnsScope::Own, ..CollectOptions::default() };
        let mut collector: NetCountersCollector = open(&opts);
        let before = nstat();
        let ours = read(&mut collector, &Interest::default());
        let after = nstat();
        let own = namespaces::own(&HostFs::live()).unwrap();
        let space = ours.data.spaces.iter().find(|s| s.netns == own).unwrap();
        assert!(before.len() > 100, "nstat names {} counters", before.len());
        let mut compared = 0;
        for (name, a) in &before {
            let b = after[name];
            let n = space.get(name).unwrap_or_else(|| panic!("{name} is missing in ours"));
            assert!((*a.min(&b)..=*a.max(&b)).contains(&n), "{name}: {a} <= {n} <= {b}");
            compared += 1;
        }
        eprintln!("{compared} counters agree");
        // And none of ours under a name that nstat does not know.
        let only_ours: Vec<_> = space
            .names
            .iter()
            .filter(|n| !n.starts_with("sockstat") && !before.contains_key(&***n))
            .filter(|n| !SETTINGS.contains(&&***n))
            .collect();
        assert!(only_ours.is_empty(), "{only_ours:?}");
    });
}

/// Softirq counts per vector and CPU, softnet per CPU, between two plain reads of the files.
#[test]
fn softirqs_and_softnet_agree_with_the_files() {
    let mut collector: SoftirqCollector = open(&CollectOptions::default());
    let before = (softirqs(), softnet());
    let ours = read(&mut collector, &Interest::default());
    let after = (softirqs(), softnet());
    let s = &ours.data;
    assert_eq!(s.vectors.len(), before.0.len(), "vectors");
    for (name, counts) in &s.vectors {
        let (a, b) = (&before.0[&**name], &after.0[&**name]);
        assert_eq!(counts.len(), a.len(), "{name}: CPUs");
        for (cpu, n) in counts.iter().enumerate() {
            assert!(
                (a[cpu]..=b[cpu]).contains(n),
                "{name} cpu{cpu}: {} <= {n} <= {}",
                a[cpu],
                b[cpu]
            );
        }
    }
    assert_eq!(s.softnet.len(), before.1.len(), "softnet rows");
    for (i, row) in s.softnet.iter().enumerate() {
        let (a, b) = (&before.1[i], &after.1[i]);
        for (what, n, col) in [
            ("processed", row.processed, 0),
            ("dropped", row.dropped, 1),
            ("time_squeeze", row.time_squeeze, 2),
        ] {
            assert!((a[col]..=b[col]).contains(&n), "{what}: {} <= {n} <= {}", a[col], b[col]);
        }
    }
}

fn softirqs() -> BTreeMap<String, Vec<u64>> {
    let text = std::fs::read_to_string("/proc/softirqs").unwrap();
    text.lines()
        .skip(1)
        .map(|l| {
            let (name, counts) = l.trim().split_once(':').unwrap();
            (name.to_owned(), counts.split_whitespace().map(|c| c.parse().unwrap()).collect())
        })
        .collect()
}

fn softnet() -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let hex = |w: &str| u32::from_str_radix(w, 16).unwrap();
    text.lines().map(|l| l.split_whitespace().map(hex).collect()).collect()
}

//! Opening: what works with which rights, and how long it takes.

use std::time::Duration;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use stallscope::clock;
use stallscope::collect::bpf::block::BlockBpf;
use stallscope::collect::bpf::files::FilesBpf;
use stallscope::collect::bpf::irq::IrqBpf;
use stallscope::collect::bpf::net::NetBpf;
use stallscope::collect::bpf::runq::RunqBpf;
use stallscope::collect::bpf::tasks::TaskWalk;
use stallscope::collect::bpf::{map_bytes, missing_capabilities, release_capabilities};
use stallscope::collect::{Collector, HostFs, Unavailable};
use stallscope::sample::SignalStatus;

use crate::kit::gate::lab;
use crate::lab::{open, options, sample, until};

/// All collectors open at once, as the product does it, and count.
#[test]
fn every_collector_opens_and_counts() {
    lab(&[], || {
        let begun = clock::mono();
        let mut runq: RunqBpf = open();
        let mut irq: IrqBpf = open();
        let mut block: BlockBpf = open();
        let mut net: NetBpf = open();
        let mut files: FilesBpf = open();
        println!("opened all in {:?}", clock::mono().since(begun));
        let limit = Duration::from_secs(10);
        until(&mut runq, limit, "waits on each CPU", |s| {
            !s.cpus.is_empty() && s.cpus.iter().all(|c| c.waits.count() > 10)
        });
        until(&mut irq, limit, "softirqs", |s| s.cpus.iter().any(|c| !c.vectors.is_empty()));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("probe");
        std::fs::write(&file, vec![7u8; 1 << 20]).unwrap();
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
        until(&mut block, limit, "writes", |s| {
            s.disks.iter().any(|d| d.ops.iter().any(|o| o.count > 0))
        });
        sample(&mut net);
        sample(&mut files);
        let mut signals = Vec::new();
        files.signals(&mut signals);
        runq.signals(&mut signals);
        irq.signals(&mut signals);
        block.signals(&mut signals);
        net.signals(&mut signals);
        let source = |name| signals.iter().find(|s| s.signal == name).unwrap().source.clone();
        // On ext4 only where the host forbids programs at functions.
        assert_eq!(source("file creation"), "ebpf");
        for name in ["run-queue latency", "softirq time", "block latency", "TCP events"] {
            let s = signals.iter().find(|s| s.signal == name).unwrap();
            assert_eq!((s.source.as_ref(), &s.status), ("ebpf", &SignalStatus::Ok), "{s:?}");
        }
    });
}

/// What the kernel itself says the maps take.
#[test]
fn maps_take_what_is_documented() {
    lab(&[], || {
        let locked = || -> u64 {
            let fds = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
            fds.filter_map(|f| std::fs::read_to_string(f.path()).ok())
                .filter(|text| text.contains("map_type:"))
                .filter_map(|text| {
                    text.lines()
                        .find_map(|l| l.strip_prefix("memlock:")?.trim().parse::<u64>().ok())
                })
                .sum()
        };
        let before = locked();
        let walk = TaskWalk::open(&HostFs::live(), &options()).unwrap();
        let all: (RunqBpf, IrqBpf, BlockBpf, NetBpf) = (open(), open(), open(), open());
        let files: FilesBpf = open();
        let bytes = locked() - before;
        drop((all, files, walk));
        let cpus = aya::util::nr_cpus().unwrap();
        println!("{bytes} bytes on {cpus} CPUs, by formula up to {}", map_bytes(cpus));
        // The formula has the stamps of the fallback; the kernel has pages and heads of maps.
        assert!(bytes as usize <= map_bytes(cpus) + (64 << 10), "{bytes}");
        assert!(bytes as usize * 2 > map_bytes(cpus), "{bytes}: the kernel tells something else");
    });
}

/// Runs `f` on a thread that has only these capabilities (they are a thread's own).
fn with_capabilities<T: Send>(keep: CapabilitySet, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut sets: CapabilitySets = capabilities(None).unwrap();
            sets.effective = keep;
            sets.permitted = keep;
            sets.inheritable = CapabilitySet::empty();
            set_capabilities(None, sets).unwrap();
            f()
        })
        .join()
        .unwrap()
    })
}

fn try_all() -> Vec<(&'static str, Option<Unavailable>)> {
    fn one<C: Collector>() -> (&'static str, Option<Unavailable>) {
        (C::ID.name(), C::open(&HostFs::live(), &options()).err())
    }
    let walk = TaskWalk::open(&HostFs::live(), &options()).err();
    vec![
        one::<RunqBpf>(),
        one::<IrqBpf>(),
        one::<BlockBpf>(),
        one::<NetBpf>(),
        one::<FilesBpf>(),
        ("walk", walk),
    ]
}

#[test]
fn two_capabilities_are_enough() {
    lab(&[], || {
        let keep = CapabilitySet::BPF | CapabilitySet::PERFMON;
        for (name, error) in with_capabilities(keep, try_all) {
            assert_eq!(error, None, "{name}");
        }
    });
}

#[test]
fn missing_capabilities_are_named() {
    lab(&[], || {
        for (keep, want) in [
            (CapabilitySet::empty(), "no CAP_BPF, no CAP_PERFMON"),
            (CapabilitySet::BPF, "no CAP_PERFMON"),
            (CapabilitySet::PERFMON, "no CAP_BPF"),
        ] {
            for (name, error) in with_capabilities(keep, try_all) {
                let error = error.unwrap_or_else(|| panic!("{name} opened with {keep:?}"));
                assert!(error.reason.contains(want), "{name}: {}", error.reason);
                // Root has them to give; that it is root already is no use.
                assert!(error.remedy.starts_with("grant CAP_"), "{name}: {}", error.remedy);
            }
        }
    });
}

/// After the rights are given up, what is open goes on counting.
#[test]
fn counting_needs_no_rights() {
    lab(&[], || {
        with_capabilities(CapabilitySet::all() & capabilities(None).unwrap().effective, || {
            let mut irq: IrqBpf = open();
            let mut runq: RunqBpf = open();
            release_capabilities().unwrap();
            assert_eq!(missing_capabilities(), ["CAP_BPF", "CAP_PERFMON"]);
            let limit = Duration::from_secs(10);
            until(&mut irq, limit, "softirqs", |s| !s.cpus.is_empty());
            until(&mut runq, limit, "waits", |s| s.cpus.iter().any(|c| c.waits.count() > 0));
        });
    });
}

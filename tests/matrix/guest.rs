//! Runs inside of the guest: opens the collectors, makes load and compares what they count
//! with what the guest's kernel counts. The tests are ignored elsewhere.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use stallscope::clock;
use stallscope::collect::bpf::block::BlockBpf;
use stallscope::collect::bpf::files::FilesBpf;
use stallscope::collect::bpf::irq::IrqBpf;
use stallscope::collect::bpf::net::NetBpf;
use stallscope::collect::bpf::runq::RunqBpf;
use stallscope::collect::bpf::tasks::{Row, State, TaskWalk};
use stallscope::collect::{CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use stallscope::sample::bpf::block::{BlockBpfSample, BlockDisk, BlockOpKind};
use stallscope::sample::bpf::irq::{IrqBpfSample, VECTOR_NAMES};
use stallscope::sample::bpf::runq::{RunqBpfSample, RunqTier};
use stallscope::sample::subject::{CpuId, DiskId};
use stallscope::sample::{Interest, Signal, SignalStatus};

/// Only `init.sh` sets the variable.
fn guest(test: impl FnOnce()) {
    if std::env::var("STALLSCOPE_GUEST").as_deref() == Ok("1") {
        test();
    }
}

fn open<C: Collector>() -> Result<C, Unavailable> {
    C::open(&HostFs::live(), &CollectOptions::default())
}

#[track_caller]
fn opened<C: Collector>() -> C {
    let begun = clock::mono();
    let c = open().unwrap_or_else(|u| panic!("{}: {} ({})", C::ID.name(), u.reason, u.remedy));
    println!("{} opened in {:?}", C::ID.name(), clock::mono().since(begun));
    c
}

fn sample<C: Collector>(c: &mut C) -> C::Sample {
    let interest = Interest::default();
    let (at, interval) = (clock::mono(), Duration::from_secs(1));
    c.sample(&SampleContext { at, interval, interest: &interest }).unwrap()
}

#[track_caller]
fn works<C: Collector>(c: &C) {
    let mut signals: Vec<Signal> = Vec::new();
    c.signals(&mut signals);
    for s in signals {
        assert_eq!(s.status, SignalStatus::Ok, "{s:?}");
    }
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
#[ignore = "runs in the guest of the matrix"]
fn counts() {
    guest(|| {
        let mut runq: RunqBpf = opened();
        let mut irq: IrqBpf = opened();
        let mut block: BlockBpf = opened();
        let mut net: NetBpf = opened();
        let mut files: FilesBpf = opened();
        let mut all = TaskWalk::open(&HostFs::live(), &CollectOptions::default()).unwrap();
        assert_eq!(runq.programs(), ["runq"]);
        // Now, as looking gives up the right to load.
        let opts = CollectOptions::default();
        let mut by_lookup = RunqBpf::open_by_lookup(&HostFs::live(), &opts).unwrap();
        assert_eq!(by_lookup.programs(), ["runq_lookup"]);
        let mut irq_by_lookup = IrqBpf::open_by_lookup(&HostFs::live(), &opts).unwrap();
        assert!(irq.programs().iter().all(|p| !p.ends_with("_lookup")), "{:?}", irq.programs());
        spinners_wait(&mut runq, RunqTier::SchedInfo);
        softirqs(&mut irq);
        requests(&mut block);
        tcp_events(&mut net);
        spinners_wait(&mut by_lookup, RunqTier::SchedInfo);
        softirqs(&mut irq_by_lookup);
        creates(&mut files);
        sleeps(&mut all);
        works(&runq);
        works(&irq);
        works(&block);
        works(&net);
        works(&files);
    });
}

#[test]
#[ignore = "runs in the guest of the matrix"]
fn counts_without_btf() {
    guest(|| {
        let mut runq: RunqBpf = opened();
        let mut irq: IrqBpf = opened();
        spinners_wait(&mut runq, RunqTier::Wakeup);
        softirqs(&mut irq);
        works(&irq);
        // These either have a way without types or say that they need them.
        match open::<BlockBpf>() {
            Ok(mut block) => requests(&mut block),
            Err(u) => assert!(u.reason.contains("/sys/kernel/btf"), "{u:?}"),
        }
        match open::<NetBpf>() {
            Ok(mut net) => tcp_events(&mut net),
            Err(u) => assert!(u.reason.contains("/sys/kernel/btf"), "{u:?}"),
        }
    });
}

#[test]
#[ignore = "runs in the guest of the matrix"]
fn refuses() {
    guest(|| {
        for refused in [
            open::<RunqBpf>().err(),
            open::<IrqBpf>().err(),
            open::<BlockBpf>().err(),
            open::<NetBpf>().err(),
            open::<FilesBpf>().err(),
            TaskWalk::open(&HostFs::live(), &CollectOptions::default()).err(),
        ] {
            let u = refused.expect("loaded without rights");
            assert!(u.reason.contains("no CAP_BPF, no CAP_PERFMON"), "{u:?}");
        }
    });
}

// ---- run queue --------------------------------------------------------------------------

const SPINNERS: u64 = 3;
const SPIN: Duration = Duration::from_secs(3);

/// ns that the calling thread waited to run, by the scheduler's own account.
fn run_delay(tid: i32) -> u64 {
    file(&format!("/proc/self/task/{tid}/schedstat")).split(' ').nth(1).unwrap().parse().unwrap()
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
}

/// Threads pinned to CPU 1: one runs, the others wait.
fn spinners_wait(runq: &mut RunqBpf, tier: RunqTier) {
    // The spinners are threads of this process.
    runq.list_own();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let (tell, tids) = std::sync::mpsc::channel();
        for _ in 0..SPINNERS {
            let (stop, tell) = (&stop, tell.clone());
            s.spawn(move || {
                pin(1);
                tell.send(gettid().as_raw_nonzero().get()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let tids: Vec<i32> = (0..SPINNERS).map(|_| tids.recv().unwrap()).collect();
        let delays = || tids.iter().map(|t| run_delay(*t)).sum::<u64>();
        clock::sleep_until(clock::mono() + Duration::from_millis(300));
        let row = |s: &RunqBpfSample| {
            s.cpus.iter().find(|c| c.cpu == CpuId(1)).cloned().unwrap_or_default()
        };
        let (first, delay, begun) = (row(&sample(runq)), delays(), clock::mono());
        clock::sleep_until(begun + SPIN);
        let sampled = sample(runq);
        let (last, delay, took) = (row(&sampled), delays() - delay, clock::mono().since(begun));
        stop.store(true, Ordering::Relaxed);
        let per_second = |ns: u64| ns as f64 / took.as_nanos() as f64;
        let (ours, theirs) = (per_second(last.wait_ns - first.wait_ns), per_second(delay));
        let waits = last.waits.since(&first.waits).unwrap();
        println!(
            "run queue: {} switches, waiting per second {ours:.2}, of the spinners {theirs:.2}, \
             arithmetic {}, p99 {:?} ns, {} discarded",
            last.switches - first.switches,
            SPINNERS - 1,
            waits.quantile(0.99),
            last.discarded - first.discarded,
        );
        assert_eq!(sampled.tier, tier);
        let least = (SPINNERS - 1) as f64 * 0.9;
        assert!(ours > least && theirs > least && ours > theirs * 0.9, "{ours} {theirs}");
        assert!(ours < theirs * 1.3, "{ours} of {theirs}");
        assert_eq!(last.discarded, first.discarded);
        if tier == RunqTier::SchedInfo {
            for tid in &tids {
                let long = sampled.long_waits.iter().find(|w| w.tid == *tid as u32);
                assert!(long.is_some_and(|w| w.comm.is_some()), "{tid}: {:?}", sampled.long_waits);
            }
        }
    });
}

// ---- interrupts -------------------------------------------------------------------------

fn refused_connections(n: u32) {
    for _ in 0..n {
        TcpStream::connect("127.0.0.1:9").map(|_| ()).unwrap_err();
    }
}

/// Sum over all CPUs of each vector, as `/proc/softirqs` has it.
fn proc_softirqs() -> Vec<u64> {
    let text = file("/proc/softirqs");
    let row = |name: &str| -> u64 {
        let line = text.lines().find_map(|l| l.trim_start().strip_prefix(&format!("{name}:")));
        line.unwrap().split_whitespace().map(|n| n.parse::<u64>().unwrap()).sum()
    };
    VECTOR_NAMES.map(row).to_vec()
}

fn softirqs(irq: &mut IrqBpf) {
    let ours = |s: &IrqBpfSample| -> Vec<u64> {
        let rows = || s.cpus.iter().flat_map(|c| &c.vectors);
        (0..VECTOR_NAMES.len())
            .map(|v| rows().filter(|r| usize::from(r.vector) == v).map(|r| r.count).sum())
            .collect()
    };
    let outer = proc_softirqs();
    let first = ours(&sample(irq));
    let inner = proc_softirqs();
    refused_connections(500);
    let inner_end = proc_softirqs();
    let s = sample(irq);
    let outer_end = proc_softirqs();
    let last = ours(&s);
    // The kernel counts at the entry, we at the exit: one per CPU may be under way.
    let slack = 2 * s.cpus.len() as u64;
    for (v, name) in VECTOR_NAMES.iter().enumerate() {
        let seen = last[v] - first[v];
        let (least, most) = (inner_end[v] - inner[v], outer_end[v] - outer[v]);
        if most > 0 {
            println!("softirq {name}: {seen}, the kernel says {least}..={most}");
        }
        assert!(seen + least / 100 + slack >= least && seen <= most + slack, "{name}");
    }
    assert!(last[3] - first[3] >= 500, "NET_RX of 500 refused connections");
    let hard = |s: &IrqBpfSample| s.cpus.iter().map(|c| c.hard_count).sum::<u64>();
    let before = hard(&s);
    direct_reads("/dev/vda", 100);
    let s = sample(irq);
    let handlers = hard(&s) - before;
    let ns: u64 = s.cpus.iter().flat_map(|c| &c.vectors).map(|v| v.ns).sum();
    println!("softirqs took {ns} ns since attach; 100 reads ran {handlers} interrupt handlers");
    assert!(ns > 0 && s.hardirqs && handlers >= 100, "{s:?}");
}

// ---- block ------------------------------------------------------------------------------

const O_DIRECT: i32 = 0o40_000;

fn direct_reads(path: &str, n: u64) {
    let disk = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).unwrap();
    let mut buffer = vec![0u8; 8192];
    let at = buffer.as_ptr().align_offset(4096);
    for i in 0..n {
        disk.read_exact_at(&mut buffer[at..at + 4096], i * 8192).unwrap();
    }
}

/// Reads completed, as `/proc/diskstats` has it.
fn proc_reads(name: &str) -> u64 {
    let text = file("/proc/diskstats");
    let mut rows = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    rows.find(|r| r[2] == name).unwrap()[3].parse().unwrap()
}

fn requests(block: &mut BlockBpf) {
    // Two drivers: one with a bounce through the host, one with queues per CPU.
    for name in ["vda", "nvme0n1"] {
        let dev = file(&format!("/sys/block/{name}/dev"));
        let (major, minor) = dev.trim().split_once(':').unwrap();
        let id = DiskId { major: major.parse().unwrap(), minor: minor.parse().unwrap() };
        let path = format!("/dev/{name}");
        let row = |s: &BlockBpfSample| -> BlockDisk {
            s.disks.iter().find(|d| d.id == id).cloned().unwrap_or_default()
        };
        direct_reads(&path, 50);
        sample(block);
        let (first, base) = (row(&sample(block)), proc_reads(name));
        direct_reads(&path, 200);
        let s = sample(block);
        let (last, kernel) = (row(&s), proc_reads(name) - base);
        let read = |d: &BlockDisk| {
            d.ops.iter().find(|o| o.op == BlockOpKind::Read).cloned().unwrap_or_default()
        };
        let (before, after) = (read(&first), read(&last));
        let count = after.count - before.count;
        println!(
            "block {name}: {count} reads, the kernel says {kernel}; total p50 {:?} ns, device \
             times {}, stamped by us: {}",
            after.total.since(&before.total).unwrap().quantile(0.5),
            after.device.count() - before.device.count(),
            s.stamps_issue,
        );
        assert_eq!((count, kernel), (200, 200), "{name}");
        assert_eq!(after.bytes - before.bytes, 200 * 4096, "{name}");
        assert_eq!(after.device.count() - before.device.count(), 200, "{name}: {last:?}");
        assert_eq!((last.discarded, last.no_start, last.errors), (0, 0, 0), "{name}");
        assert_eq!(s.unknown, 0);
    }
}

// ---- files ------------------------------------------------------------------------------

fn creates(files: &mut FilesBpf) {
    let dir = std::env::temp_dir().join("creates");
    std::fs::create_dir_all(&dir).unwrap();
    sample(files);
    for n in 0..70 {
        std::fs::write(dir.join(format!("f{n}")), "").unwrap();
        std::fs::create_dir(dir.join(format!("d{n}"))).unwrap();
    }
    let s = sample(files);
    let own = std::process::id();
    let here = s.filesystems.iter().find(|c| c.creators.iter().any(|w| w.pid == own));
    let here = here.unwrap_or_else(|| panic!("{s:?}"));
    let dev = std::os::unix::fs::MetadataExt::dev(&dir.metadata().unwrap());
    assert_eq!((here.dev.major, here.dev.minor), (rustix::fs::major(dev), rustix::fs::minor(dev)));
    let count = here.creators.iter().find(|w| w.pid == own).unwrap().count;
    println!("files: {count} attempts of 140 on {dev:#x}");
    assert_eq!(count, 140);
}

// ---- TCP --------------------------------------------------------------------------------

/// A counter of `/proc/net/snmp`, such as `("Tcp", "RetransSegs")`.
fn snmp(group: &str, name: &str) -> u64 {
    let text = file("/proc/net/snmp");
    let mut rows = text.lines().filter_map(|l| l.strip_prefix(&format!("{group}: ")));
    let at = rows.next().unwrap().split(' ').position(|n| n == name).unwrap();
    rows.next().unwrap().split(' ').nth(at).unwrap().parse().unwrap()
}

fn tcp() -> OwnedFd {
    let flags = SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
}

fn tcp_events(net: &mut NetBpf) {
    let first = sample(net);
    let resets = snmp("Tcp", "OutRsts");
    refused_connections(100);
    let s = sample(net);
    let resets = snmp("Tcp", "OutRsts") - resets;
    let received = s.resets_received.unwrap() - first.resets_received.unwrap();
    let reason = s.reasons.iter().find(|r| &*r.name == "NO_SOCKET").map_or(0, |r| r.count);
    println!(
        "TCP: {received} resets received of {resets} sent; NO_SOCKET {reason}, places {:?}",
        s.places
    );
    assert_eq!((resets, received), (100, 100));
    assert!(reason >= 100, "{:?}", s.reasons);

    // An accept queue of one: the other connections' SYNs are dropped and sent again.
    let base = snmp("Tcp", "RetransSegs");
    let before = s.retransmits.unwrap();
    let (listener, address) = (tcp(), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4000));
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let clients: Vec<OwnedFd> = (0..5).map(|_| tcp()).collect();
    for c in &clients {
        // In progress.
        let _ = rustix::net::connect(c, &address);
    }
    let end = clock::mono() + Duration::from_secs(20);
    let mut listed = 0;
    let (ours, kernel) = loop {
        // Before ours, so that ours has at least as many.
        let kernel = snmp("Tcp", "RetransSegs") - base;
        let s = sample(net);
        let to = s.flows.iter().filter(|f| f.ends.is_some_and(|(_, r)| r.port == 4000));
        listed += to.map(|f| f.count).sum::<u64>();
        if kernel >= 3 {
            break (s.retransmits.unwrap() - before, kernel);
        }
        assert!(clock::mono() < end, "no retransmit within 20 s");
        clock::sleep_until(clock::mono() + Duration::from_millis(100));
    };
    println!("TCP: {ours} retransmits, the kernel says {kernel}, {listed} with their connection");
    let later = snmp("Tcp", "RetransSegs") - base;
    assert!((kernel..=later).contains(&ours), "{ours}: {kernel}..={later}");
    assert!(listed > 0, "no connection listed");
}

// ---- tasks ------------------------------------------------------------------------------

/// A reader of a pipe is told once, with its call; a reader of a disk with the place in the kernel.
fn sleeps(all: &mut TaskWalk) {
    assert!(all.has_calls() && all.has_delays(), "kernels here tell both");
    let (mut from, to) = std::io::pipe().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let (tell, tids) = std::sync::mpsc::channel();
        let (tell_pipe, stop_disk) = (tell.clone(), &stop);
        let own = || gettid().as_raw_nonzero().get() as u32;
        s.spawn(move || {
            tell_pipe.send(own()).unwrap();
            let _ = from.read(&mut [0]);
        });
        let pipe = tids.recv().unwrap();
        s.spawn(move || {
            tell.send(own()).unwrap();
            while !stop_disk.load(Ordering::Relaxed) {
                direct_reads("/dev/vda", 10);
            }
        });
        let disk = tids.recv().unwrap();
        clock::sleep_until(clock::mono() + Duration::from_millis(500));
        let mut walk = || -> Vec<Row> { all.walk().unwrap().collect() };
        let first = walk();
        let r = first.iter().find(|r| r.tid == pipe).unwrap();
        assert_eq!((r.pid, r.state), (std::process::id(), State::Sleeps('S')), "{r:?}");
        assert_eq!(r.call, Some(0), "`read` of x86_64: {r:?}");
        let end = clock::mono() + Duration::from_secs(60);
        // On its way to sleep it still runs and has no stack: the program asks /proc then.
        let in_disk =
            |r: &Row| r.tid == disk && r.state == State::Sleeps('D') && r.stack.first() != Some(&0);
        let mut walks = 0;
        let found = loop {
            let rows = walk();
            assert!(rows.iter().all(|r| r.tid != pipe), "the same sleep, told twice");
            walks += 1;
            if let Some(r) = rows.into_iter().find(in_disk) {
                break r;
            }
            assert!(clock::mono() < end, "never seen in its {walks} walks");
        };
        stop.store(true, Ordering::Relaxed);
        drop(to);
        let names = file("/proc/kallsyms");
        let mut names: Vec<(u64, &str)> = names
            .lines()
            .filter_map(|l| {
                let mut words = l.split_whitespace();
                let at = u64::from_str_radix(words.next()?, 16).ok()?;
                Some((at, words.nth(1)?))
            })
            .collect();
        names.sort_unstable();
        let stack: Vec<&str> = found
            .stack
            .iter()
            .take_while(|a| **a != 0)
            .filter_map(|a| Some(names[names.partition_point(|n| n.0 <= *a).checked_sub(1)?].1))
            .collect();
        println!("tasks: {} at first, in D after {walks} walks: {stack:?}", first.len());
        let is_block = |n: &&str| n.contains("io_schedule") || n.contains("blk");
        assert!(stack.iter().any(is_block), "{stack:?}");
    });
}

//! Softirqs and interrupts against `/proc/softirqs` and `/proc/interrupts`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_getres};
use stallscope::collect::HostFs;
use stallscope::collect::bpf::irq::IrqBpf;
use stallscope::sample::bpf::Hist;
use stallscope::sample::bpf::irq::{IrqBpfSample, VECTOR_NAMES, VectorTime};
use stallscope::sample::bpf::layout::bucket_range;

use crate::agree::{apart, part_of_tool, rows, rows_of_tool, total};
use crate::kit::gate::lab;
use crate::kit::secs;
use crate::kit::sh::run;
use crate::lab::{open, options, run_for, sample};

type Counts = BTreeMap<(String, usize), u64>;

/// Vector and CPU, as the kernel itself counts.
fn proc_softirqs() -> Counts {
    let text = std::fs::read_to_string("/proc/softirqs").unwrap();
    let rows = text.lines().skip(1).filter_map(|l| l.split_once(':'));
    rows.flat_map(|(name, counts)| {
        let counts = counts.split_whitespace().map(|n| n.parse::<u64>().unwrap()).enumerate();
        counts.map(|(cpu, n)| ((name.trim().to_owned(), cpu), n)).collect::<Vec<_>>()
    })
    .collect()
}

fn ours(s: &IrqBpfSample) -> Counts {
    let mut out = Counts::new();
    for c in &s.cpus {
        for v in &c.vectors {
            // At most five are passed over until one is timed that counts for them.
            let told = v.hist.count();
            assert!((told..=told + 5).contains(&v.count), "{told} of {} runs", v.count);
            let name = VECTOR_NAMES[usize::from(v.vector)].to_owned();
            in_their_buckets(&name, v);
            out.insert((name, c.cpu.0 as usize), v.count);
        }
    }
    out
}

/// The program puts each run into a bucket, and adds its time up: the sum must be one that runs
/// of such lengths can have, but for one under way and for what whole us leave out.
fn in_their_buckets(name: &str, v: &VectorTime) {
    let range = |(b, n): (u16, u64)| {
        let (low, high) = bucket_range(usize::from(b));
        (low * n, high * n)
    };
    let (low, high) = v.hist.buckets().map(range).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let slack = v.max_ns + 1000;
    assert!(low <= v.ns + slack && v.ns <= high + slack, "{name}: {low} {} {high}", v.ns);
    let top = bucket_range(usize::from(v.hist.top().unwrap()));
    assert!((top.0..top.1).contains(&v.max_ns), "{name}: {top:?} {}", v.max_ns);
}

/// Softirqs of the network: bytes over the loopback device.
fn traffic() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut tx = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut rx = listener.accept().unwrap().0;
    let mut buf = [0u8; 1000];
    for _ in 0..5000 {
        tx.write_all(&buf).unwrap();
        rx.read_exact(&mut buf).unwrap();
    }
}

/// How many of `n` events may have no run of the program; see `block::nearly`.
fn nearly_all(n: u64) -> u64 {
    n / 100 + 8
}

/// The programs are attached one after the other, exits first. Softirqs between the two are
/// no loss: nothing was promised yet.
#[test]
fn attaching_under_load_loses_nothing() {
    lab(&[], || {
        let stop = AtomicBool::new(false);
        let unpaired = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    traffic();
                }
            });
            let most = (0..5).map(|_| {
                let s = sample(&mut open::<IrqBpf>());
                s.cpus.iter().map(|c| c.unpaired).sum::<u64>()
            });
            let most = most.max();
            stop.store(true, Ordering::Relaxed);
            most
        });
        // Per CPU a softirq and a handler on their way, and the few that have no run.
        let cpus = std::thread::available_parallelism().unwrap().get() as u64;
        println!("at most {unpaired:?} exits without an entry");
        assert!(unpaired.unwrap() <= 2 * cpus + nearly_all(0), "{unpaired:?}");
    });
}

#[test]
fn softirqs_are_counted_as_the_kernel_counts() {
    // No host of this suite has more CPUs than the one value of a map has room for.
    lab(&[], || counts_as_the_kernel(open(), ""));
}

#[test]
fn softirqs_are_counted_by_lookup_too() {
    lab(&[], || {
        let by_lookup = IrqBpf::open_by_lookup(&HostFs::live(), &options()).unwrap();
        counts_as_the_kernel(by_lookup, "_lookup");
    });
}

fn counts_as_the_kernel(mut irq: IrqBpf, way: &str) {
    let programs = ["hardirq_exit", "hardirq_entry", "softirq_exit", "softirq_entry"];
    assert_eq!(irq.programs(), programs.map(|p| format!("{p}{way}")));
    // The kernel's counts are read around ours, so that ours must lie between.
    let outer = proc_softirqs();
    let first = ours(&sample(&mut irq));
    let inner = proc_softirqs();
    // A reading of little, so that the last one finds lengths which this one did not have.
    run_for(Duration::from_millis(100));
    sample(&mut irq);
    traffic();
    run_for(secs(2));
    let inner_end = proc_softirqs();
    let s = sample(&mut irq);
    let last = ours(&s);
    let outer_end = proc_softirqs();
    let mut seen = 0;
    let (mut least, mut most) = (0, 0);
    for (key, end) in &last {
        seen += end - first.get(key).copied().unwrap_or(0);
        least += inner_end[key] - inner[key];
        most += outer_end[key] - outer[key];
    }
    // We count at the exit, the kernel at the entry: one per CPU may be running. A few
    // events have no run of the program, see `block::nearly`.
    let slack = 2 * s.cpus.len() as u64;
    println!("{seen} softirqs, the kernel says {least}..={most}");
    assert!(seen + nearly_all(least) + slack >= least, "{seen} of {least}");
    assert!(seen <= most + slack, "{seen} of {most}");
    // An exit without an entry is a run that the kernel counts and we do not, and on each CPU
    // one softirq and one handler may have been on their way when we came.
    let unpaired: u64 = s.cpus.iter().map(|c| c.unpaired).sum();
    let handlers: u64 = s.cpus.iter().map(|c| c.hard_count).sum();
    let missing = most.saturating_sub(seen) + nearly_all(handlers);
    println!("{unpaired} exits without an entry, {missing} runs at most have none");
    assert!(unpaired <= missing + slack, "{unpaired} of {missing}");
    let net: u64 = last.iter().filter(|(k, _)| k.0 == "NET_RX").map(|(_, n)| *n).sum();
    assert!(net >= 2500, "{net} runs of NET_RX for 10000 segments");
    assert_eq!(s.missed, Some(0));
    // Time is plausible: no vector took longer than the time that passed.
    for c in &s.cpus {
        let busy: u64 = c.vectors.iter().map(|v| v.ns).sum();
        assert!(busy < 10_000_000_000, "{busy} ns in softirqs of {:?}", c.cpu);
    }
}

/// Where softirqs come often, some stand for others: beside programs that time each of the same
/// softirqs, they must come to the same counts, the same lengths, and the same sum.
#[test]
fn a_part_of_the_softirqs_stands_for_all() {
    lab(&[], || {
        let (part, each) = both(|| datagrams(5_000));
        let timed = 1.0 - part.passed as f64 / part.count as f64;
        // One of 2 + 1 to 5 + 1, 4.5 on average, and those timed until they are many.
        assert!(timed > 0.2 && part.passed > 0, "{timed}");
        // Five at most, and then a streak of timed ones.
        assert!(part.unsure * 1024 <= part.count * 5 + 5 * 1024, "{}", part.unsure);
        let outliers = apart(&rows(&part.hist), &rows(&each.hist), |ns| ns * 1.15 + 200.0);
        println!("{:.2} % of the runs are apart", outliers * 100.0);
        assert!(outliers < 0.02, "{outliers}\n{:?}\n{:?}", part.hist, each.hist);
    });
}

/// Longer ones among them, too short for two ticks, have their share of the time, whether they
/// come in each streak or more seldom.
#[test]
fn longer_softirqs_have_their_share_of_the_time() {
    lab(&[], || {
        let mut sockets = 1_000;
        for short in [300, 3_000] {
            let (part, each) = loop {
                let crowd = Crowd::new(sockets);
                let seen = both(|| {
                    datagrams(short);
                    crowd.send();
                });
                // A fast machine serves a thousand of them in less than what counts as long here.
                if seen.1.hist.at_least(100_000) > 50 || sockets >= 8_000 {
                    break seen;
                }
                sockets *= 2;
            };
            let long = |v: &VectorTime| v.hist.at_least(100_000) as f64 / v.count as f64;
            let (a, b) = (long(&part), long(&each));
            println!("of a thousand {:.2} and {:.2} long", a * 1e3, b * 1e3);
            assert!(each.hist.at_least(100_000) > 50, "{:?}", each.hist);
            // By arithmetic a hundred of them are counted to 15 % (one sigma) at the worst.
            assert!(a > b / 2.0 && a < b * 1.5, "{a} {b}");
        }
    });
}

/// What some load adds to NET_RX, by the programs that users run and by those that time each, at
/// the same time. The sums agree.
fn both(load: impl Fn() + Sync) -> (VectorTime, VectorTime) {
    let stop = AtomicBool::new(false);
    let (part, each) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                load();
            }
        });
        let mut part: IrqBpf = open();
        let mut each = IrqBpf::open_by_lookup(&HostFs::live(), &options()).unwrap();
        // What is read between two readings of the other is no more.
        let (e0, p0, e1) = (sample(&mut each), sample(&mut part), sample(&mut each));
        run_for(secs(4));
        let (e2, p1, e3) = (sample(&mut each), sample(&mut part), sample(&mut each));
        stop.store(true, Ordering::Relaxed);
        let (least, part, most) = (rx(&e1, &e2), rx(&p0, &p1), rx(&e0, &e3));
        assert!(part.count + nearly_all(part.count) >= least.count, "{least:?} {part:?}");
        assert!(part.count <= most.count + nearly_all(most.count), "{part:?} {most:?}");
        (part, least)
    });
    let mean = |v: &VectorTime| v.ns as f64 / v.hist.count() as f64;
    println!(
        "{} runs, {:.1} % timed, {} unsure, mean {:.0} and {:.0} ns",
        part.count,
        100.0 - part.passed as f64 * 100.0 / part.count as f64,
        part.unsure,
        mean(&part),
        mean(&each)
    );
    assert_eq!((each.unsure, each.passed), (0, 0), "each is timed");
    // Each meter has some of the other's work in it.
    let (a, b) = (mean(&part), mean(&each));
    assert!((a - b).abs() < 0.1 * b + 100.0, "{a} {b}");
    (part, each)
}

/// What was added to NET_RX between two readings.
fn rx(before: &IrqBpfSample, after: &IrqBpfSample) -> VectorTime {
    grown(before, after).remove("NET_RX").unwrap()
}

/// One of two ticks of the kernel is never passed over, however many short softirqs there are
/// around: a datagram to thousands of sockets is one run of NET_RX.
#[test]
fn a_long_softirq_among_short_ones_is_seen() {
    lab(&[], || {
        let crowd = Crowd::new(30_000);
        let (judged, passed) = std::thread::scope(|scope| {
            let sends = scope.spawn(|| {
                let mut cpu = CpuSet::new();
                cpu.set(0);
                sched_setaffinity(None, &cpu).unwrap();
                long_ones(&crowd)
            });
            sends.join().unwrap()
        });
        println!("{judged} judged, {passed} of them were to be passed over");
        assert!(judged >= 4, "too few sockets for this box, or its host is too busy");
        // By arithmetic three in four or more.
        assert!(passed > 0, "none was to be passed over");
    });
}

/// How many long softirqs both kinds of programs agree on, and how many of these were not timed.
fn long_ones(crowd: &Crowd) -> (u64, u64) {
    let tick = clock_getres(ClockId::MonotonicCoarse).tv_nsec as u64;
    let mut part: IrqBpf = open();
    let mut each = IrqBpf::open_by_lookup(&HostFs::live(), &options()).unwrap();
    let (mut judged, mut passed) = (0, 0);
    for _ in 0..60 {
        datagrams(5_000);
        let stolen = steal();
        let (a, b) = (sample(&mut part), sample(&mut each));
        crowd.send();
        let (c, d) = (sample(&mut part), sample(&mut each));
        let (part, each) = (rx(&a, &c), rx(&b, &d));
        println!("{} us, seen as {}", each.ns / 1000, part.ns / 1000);
        // Ticks come late while the host has the CPU that counts them.
        if steal() != stolen || each.hist.at_least(2 * tick) == 0 {
            continue;
        }
        judged += 1;
        passed += part.passed;
        let one = part.hist.at_least(tick * 3 / 2);
        assert_eq!(one, 1, "{:?}\n{:?}", part.hist, each.hist);
        // The pause before it may count.
        let (least, most) = (each.ns - 1_000_000, each.ns + 2 * tick + 1_000_000);
        assert!((least..most).contains(&part.ns), "{} {}", part.ns, each.ns);
        if judged == 8 {
            break;
        }
    }
    (judged, passed)
}

/// What the host took of all CPUs since boot, in steps of 10 ms.
fn steal() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    text.lines().next().unwrap().split_whitespace().nth(8).unwrap().parse().unwrap()
}

/// Sockets that all get a datagram to the broadcast address of the loopback device.
struct Crowd {
    tx: UdpSocket,
    to: SocketAddr,
    _all: Vec<OwnedFd>,
}

impl Crowd {
    fn new(most: u64) -> Self {
        // Root in a container may not raise it; then there are as many as there can be.
        let more = Rlimit { current: Some(most + 500), maximum: Some(most + 500) };
        let max = getrlimit(Resource::Nofile).maximum;
        if max.is_some_and(|max| max < most + 500) && setrlimit(Resource::Nofile, more).is_err() {
            println!("{max:?} files");
        }
        let max = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: max, maximum: max }).unwrap();
        let many = max.map_or(most, |max| most.min(max - 500));
        let tx = UdpSocket::bind("127.0.0.1:0").unwrap();
        tx.set_broadcast(true).unwrap();
        let free = UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, free));
        let socket = |_| {
            let fd = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
            sockopt::set_socket_reuseaddr(&fd, true).unwrap();
            rustix::net::bind(&fd, &any).unwrap();
            fd
        };
        let to = SocketAddr::from(([127, 255, 255, 255], free));
        Self { tx, to, _all: (0..many).map(socket).collect() }
    }

    fn send(&self) {
        self.tx.send_to(&[0], self.to).unwrap();
    }
}

/// Each a softirq of its own, as fast as the box can.
fn datagrams(n: u32) {
    let rx = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tx = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = rx.local_addr().unwrap();
    let mut buf = [0u8; 64];
    for _ in 0..n {
        tx.send_to(&buf, to).unwrap();
        rx.recv(&mut buf).unwrap();
    }
}

/// What was added to each vector between two readings, on all CPUs.
fn grown(before: &IrqBpfSample, after: &IrqBpfSample) -> BTreeMap<String, VectorTime> {
    let sums = |s: &IrqBpfSample| {
        let mut out = BTreeMap::<String, VectorTime>::new();
        for v in s.cpus.iter().flat_map(|c| &c.vectors) {
            let sum = out.entry(VECTOR_NAMES[usize::from(v.vector)].to_owned()).or_default();
            sum.count += v.count;
            sum.ns += v.ns;
            sum.unsure += v.unsure;
            sum.passed += v.passed;
            sum.max_ns = sum.max_ns.max(v.max_ns);
            sum.hist.merge(&v.hist);
        }
        out
    };
    let mut out = sums(after);
    for (name, old) in sums(before) {
        let new = out.get_mut(&name).unwrap();
        new.count -= old.count;
        new.ns -= old.ns;
        new.unsure -= old.unsure;
        new.passed -= old.passed;
        new.hist = new.hist.since(&old.hist).unwrap();
    }
    out
}

/// libbpf-tools' `softirqs`, attached at the same time to the same softirqs.
#[test]
fn softirqs_take_as_long_as_softirqs_says() {
    lab(&["softirqs"], || {
        let stop = AtomicBool::new(false);
        let (before, text, after) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    traffic();
                }
            });
            let mut irq: IrqBpf = open();
            let before = hists(&sample(&mut irq));
            let text = run(&["softirqs", "-d", "4", "1"]);
            let after = hists(&sample(&mut irq));
            stop.store(true, Ordering::Relaxed);
            (before, text, after)
        });
        let mut compared = 0.0;
        for (name, after) in after {
            let theirs = part_of_tool(&text, "softirq", &name.to_lowercase());
            let theirs = rows_of_tool(theirs);
            let Some(ours) = after.since(before.get(&name).unwrap_or(&Hist::default())) else {
                panic!("{name} went backwards");
            };
            let (count, outliers) = (total(&theirs), apart(&rows(&ours), &theirs, as_long));
            println!(
                "{name}: {} runs, softirqs {count}, {:.2} % apart",
                ours.count(),
                outliers * 100.0
            );
            if count < 200.0 {
                continue;
            }
            compared += count;
            // It starts after us and ends before.
            assert!(
                ours.count() as f64 > count * 0.99 && count * 2.0 > ours.count() as f64,
                "{name}"
            );
            assert!(outliers <= 0.05, "{name}: {outliers}\n{ours:?}\n{text}");
        }
        assert!(compared > 10_000.0, "{text}");
    });
}

/// Lengths by vector, of all CPUs.
fn hists(s: &IrqBpfSample) -> BTreeMap<String, Hist> {
    let mut out = BTreeMap::<_, Hist>::new();
    for v in s.cpus.iter().flat_map(|c| &c.vectors) {
        out.entry(VECTOR_NAMES[usize::from(v.vector)].to_owned()).or_default().merge(&v.hist);
    }
    out
}

/// How much two meters of the same softirq may differ: each has some of the other's work in it,
/// and the tool has the hard interrupts.
fn as_long(ns: f64) -> f64 {
    ns * 1.25 + 1_000.0
}

#[test]
fn interrupts_are_counted_by_number() {
    lab(&[], || {
        let mut irq: IrqBpf = open();
        let dir = tempfile::tempdir().unwrap();
        let count = |irq: u32| -> u64 {
            let text = std::fs::read_to_string("/proc/interrupts").unwrap();
            let prefix = format!("{irq}:");
            let line = text.lines().find(|l| l.trim_start().starts_with(&prefix)).unwrap();
            let numbers = line.split_whitespace().skip(1);
            numbers.map_while(|n| n.parse::<u64>().ok()).sum()
        };
        let write = |i: u32| {
            let file = dir.path().join(i.to_string());
            std::fs::write(&file, vec![1u8; 1 << 16]).unwrap();
            std::fs::File::open(&file).unwrap().sync_all().unwrap();
        };
        write(0);
        let first = sample(&mut irq);
        let Some(line) = first.cpus.iter().flat_map(|c| &c.lines).max_by_key(|l| l.count) else {
            panic!("no interrupt while writing to a disk");
        };
        let total = |s: &IrqBpfSample| -> u64 {
            s.cpus
                .iter()
                .flat_map(|c| &c.lines)
                .filter(|l| l.irq == line.irq)
                .map(|l| l.count)
                .sum()
        };
        let before = count(line.irq);
        let base = total(&sample(&mut irq));
        (1..50).for_each(write);
        let end = total(&sample(&mut irq));
        let after = count(line.irq);
        // One handler per interrupt here; read within the kernel's two readings.
        assert!(end - base <= after - before, "{} of {}", end - base, after - before);
        assert!(end - base >= 40, "{} interrupts for 49 writes", end - base);
    });
}

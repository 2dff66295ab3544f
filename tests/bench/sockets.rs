//! What reading many sockets costs: the collector beside a dump that only receives and
//! discards, and beside `ss -tinmo`, in the same run. Prints CPU time and ratios, asserts
//! nothing about time.
//!
//! `cargo bench --bench sockets -- 50000`: that many TCP sockets, half of them each end of a
//! loopback connection. As root everything happens in a network namespace of its own; else
//! the sockets are opened beside the host's.
#![allow(unsafe_code, clippy::unwrap_used, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stallscope::clock;
use stallscope::collect::sockets::cookies::CookieMap;
use stallscope::collect::sockets::diag::{self, InetRequest, InetSink};
use stallscope::collect::sockets::netlink::{Buffers, NlSocket, SOCK_DIAG};
use stallscope::collect::sockets::nlmsg::Step;
use stallscope::collect::sockets::{HostSockets, InetRows, Proto};
use stallscope::collect::{CollectOptions, Collector, HostFs, Interest, SampleContext};

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes every call on to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CHILD: &str = "STALLSCOPE_BENCH_CHILD";
const INSIDE: &str = "STALLSCOPE_BENCH_INSIDE";
/// Sockets per process, below common hard limits of `nofile`.
const PER_CHILD: usize = 18_000;
const ROUNDS: usize = 15;

fn main() {
    if let Ok(sockets) = std::env::var(CHILD) {
        return child(sockets.parse().unwrap());
    }
    let sockets = std::env::args()
        .skip(1)
        .find_map(|a| a.parse().ok())
        .or_else(|| std::env::var("STALLSCOPE_BENCH_SOCKETS").ok()?.parse().ok())
        .unwrap_or(50_000);
    if std::env::var(INSIDE).is_err() && in_own_namespace(sockets) {
        return;
    }
    run(sockets);
}

/// Runs this program again in a fresh network namespace; false when that is not permitted.
fn in_own_namespace(sockets: usize) -> bool {
    let setup = "ip link set lo up && echo '1024 65535' > /proc/sys/net/ipv4/ip_local_port_range";
    let script = format!("{setup} && exec \"$0\" {sockets}");
    let exe = std::env::current_exe().unwrap();
    Command::new("unshare")
        .args(["-n", "sh", "-c", &script])
        .arg(exe)
        .env(INSIDE, "1")
        .status()
        .is_ok_and(|s| s.success())
}

/// Holds sockets until stdin closes.
fn child(sockets: usize) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, all);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut held = Vec::with_capacity(sockets);
    for _ in 0..sockets / 2 {
        held.push(TcpStream::connect(addr).unwrap());
        held.push(listener.accept().unwrap().0);
    }
    println!("ready");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

fn children(mut sockets: usize) -> Vec<Child> {
    let mut out = Vec::new();
    while sockets > 0 {
        let n = sockets.min(PER_CHILD);
        sockets -= n;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CHILD, n.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
        out.push(child);
    }
    out
}

fn cpu<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = clock::thread_cpu();
    let out = work();
    (clock::thread_cpu().saturating_sub(start), out)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

const TCP4: InetRequest = InetRequest {
    family: diag::AF_INET,
    proto: Proto::Tcp,
    ext: diag::EXT_SKMEMINFO,
    states: diag::ALL_STATES,
};

/// The dumps that the collector makes in a namespace with v4 TCP only: TCP, and MPTCP of
/// both families, which the kernel answers from a small table.
fn bare(socket: &mut NlSocket, buffers: &mut Buffers, sink: &mut impl FnMut(&[u8])) {
    socket
        .dump(
            buffers,
            |tx, seq| TCP4.put_dump(tx, seq),
            |bytes, _| {
                sink(bytes);
                // DONE is the last message of a datagram: 20 bytes of type 3.
                let done = bytes.len().checked_sub(20).and_then(|at| bytes.get(at..at + 6));
                if done == Some(&[20, 0, 0, 0, 3, 0]) { Step::Done } else { Step::More }
            },
        )
        .unwrap();
}

fn run(sockets: usize) {
    let mut held = children(sockets);
    let mut socket = NlSocket::open(SOCK_DIAG).unwrap();
    let mut buffers = Buffers::default();
    let mut datagrams: Vec<Vec<u8>> = Vec::new();
    bare(&mut socket, &mut buffers, &mut |b| datagrams.push(b.to_vec()));

    let mut host = HostSockets::open(&HostFs::live(), &CollectOptions::default()).unwrap();
    let interest = Interest::default();
    let mut sample = || {
        let cx = SampleContext {
            at: clock::mono(),
            interval: Duration::from_secs(1),
            interest: &interest,
        };
        host.sample(&cx).unwrap()
    };
    let (mut bares, mut tcps, mut fulls, mut allocations) = (vec![], vec![], vec![], vec![]);
    let mut last = sample();
    let mut rows = 0;
    for _ in 0..ROUNDS {
        bares.push(cpu(|| bare(&mut socket, &mut buffers, &mut |_| ())).0);
        tcps.push(cpu(|| rows = tcp_only(&mut socket, &mut buffers, sockets)).0);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let (time, next) = cpu(&mut sample);
        allocations.push(ALLOCATIONS.load(Ordering::Relaxed) - before);
        fulls.push(time);
        last = next;
    }
    let table = &last.spaces[0];
    let (bare, tcp, full) = (median(bares), median(tcps), median(fulls));
    allocations.sort_unstable();
    println!("sockets              {}", table.inet.len());
    println!("bare dump            {bare:?}");
    println!("dump into columns    {tcp:?}  {:.2} x bare", ratio(tcp, bare));
    println!("whole collector      {full:?}  {:.2} x bare", ratio(full, bare));
    println!("allocations          {} per reading, {rows} rows", allocations[ROUNDS / 2]);
    println!("rows in memory       {} B per socket", table.inet.bytes() / table.inet.len().max(1));
    parse(&datagrams, sockets);
    ss(full);
    for child in &mut held {
        drop(child.stdin.take());
        let _ = child.wait();
    }
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64().max(1e-9)
}

fn tcp_only(socket: &mut NlSocket, buffers: &mut Buffers, expected: usize) -> usize {
    let (mut rows, mut seen, mut marks) = (InetRows::default(), CookieMap::default(), Vec::new());
    rows.reserve(expected + 64);
    seen.reset(expected);
    let mut sink = InetSink {
        rows: &mut rows,
        seen: &mut seen,
        marks: &mut marks,
        proto: Proto::Tcp,
        bad: 0,
        twice: 0,
    };
    socket.dump_inet(buffers, TCP4, &mut sink).unwrap();
    rows.len()
}

/// The parser alone, over what the kernel sent before.
fn parse(datagrams: &[Vec<u8>], expected: usize) {
    let seq = u32::from_ne_bytes(datagrams[0][8..12].try_into().unwrap());
    let (mut fresh, mut reused, mut count, mut allocated) = (vec![], vec![], 0, 0);
    let mut seen = CookieMap::default();
    for _ in 0..ROUNDS {
        let mut rows = InetRows::default();
        let mut marks = Vec::new();
        for times in [&mut fresh, &mut reused] {
            let mut before = 0;
            let (time, ()) = cpu(|| {
                if rows.is_empty() {
                    rows.reserve(expected + 64);
                } else {
                    rows.clear();
                }
                seen.reset(expected);
                before = ALLOCATIONS.load(Ordering::Relaxed);
                let mut sink = InetSink {
                    rows: &mut rows,
                    seen: &mut seen,
                    marks: &mut marks,
                    proto: Proto::Tcp,
                    bad: 0,
                    twice: 0,
                };
                for datagram in datagrams {
                    sink.datagram(datagram, seq);
                }
            });
            allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
            times.push(time);
        }
        count = rows.len();
    }
    let per = |t: Vec<Duration>| median(t).as_nanos() as f64 / count.max(1) as f64;
    println!("parse                {:.1} ns per socket into new columns", per(fresh));
    println!("                     {:.1} ns per socket into warm columns", per(reused));
    println!("                     {allocated} allocations for {count} sockets");
}

/// `ss` counts in ticks of 10 ms, so several runs are added up.
fn ss(ours: Duration) {
    const RUNS: u32 = 5;
    let before = children_cpu();
    for _ in 0..RUNS {
        let done = Command::new("ss").arg("-tinmo").stdout(Stdio::null()).status();
        if !done.is_ok_and(|s| s.success()) {
            println!("ss                   not installed");
            return;
        }
    }
    let ss = children_cpu().saturating_sub(before) / RUNS;
    println!("ss -tinmo            {ss:?}  {:.2} x the whole collector", ratio(ss, ours));
}

/// User and system time of children that ended.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<u64> = stat[stat.rfind(')').unwrap() + 1..]
        .split_whitespace()
        .filter_map(|f| f.parse().ok())
        .collect();
    // The state letter is dropped by the filter, so field 16 is at 12.
    Duration::from_millis((fields[12] + fields[13]) * 10)
}

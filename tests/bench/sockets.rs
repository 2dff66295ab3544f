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
use stallscope::collect::sockets::diag::{self, ExactId, InetRequest, InetSink};
use stallscope::collect::sockets::netlink::{Buffers, NlSocket, SOCK_DIAG};
use stallscope::collect::sockets::netns::NetnsSocketsCollector;
use stallscope::collect::sockets::nlmsg::Step;
use stallscope::collect::sockets::owners::OwnerResolver;
use stallscope::collect::sockets::{HostSockets, suspects};
use stallscope::collect::{CollectOptions, Collector, HostFs, SampleContext};
use stallscope::sample::Interest;
use stallscope::sample::heap::Heap as _;
use stallscope::sample::sockets::{InetRows, Proto, SockState};

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

/// The dump that the collector makes here: below a thousand sockets with `tcp_info`.
fn request(sockets: usize) -> InetRequest {
    let info = if sockets < 1000 { diag::EXT_INFO } else { 0 };
    InetRequest { ext: TCP4.ext | info, ..TCP4 }
}

/// The same dump, received and discarded.
fn bare(
    socket: &mut NlSocket,
    buffers: &mut Buffers,
    sockets: usize,
    sink: &mut impl FnMut(&[u8]),
) {
    socket
        .dump(
            buffers,
            |tx, seq| request(sockets).put_dump(tx, seq),
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
    bare(&mut socket, &mut buffers, sockets, &mut |b| datagrams.push(b.to_vec()));

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
    let mut others = Vec::new();
    let mut last = sample();
    let mut rows = 0;
    for _ in 0..ROUNDS {
        bares.push(cpu(|| bare(&mut socket, &mut buffers, sockets, &mut |_| ())).0);
        tcps.push(cpu(|| rows = tcp_only(&mut socket, &mut buffers, sockets)).0);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let (time, next) = cpu(&mut sample);
        allocations.push(ALLOCATIONS.load(Ordering::Relaxed) - before);
        fulls.push(time);
        last = next;
        others.extend(ss());
    }
    let table = &last.spaces[0];
    let (bare, tcp, full) = (median(bares), median(tcps), median(fulls));
    allocations.sort_unstable();
    println!("sockets              {}", table.inet.len());
    println!("bare dump            {bare:?}");
    println!("dump into columns    {tcp:?}  {:.2} x bare", ratio(tcp, bare));
    println!("whole collector      {full:?}  {:.2} x bare", ratio(full, bare));
    println!("allocations          {} per reading, {rows} rows", allocations[ROUNDS / 2]);
    println!(
        "rows in memory       {} B per socket",
        table.inet.heap(None) / table.inet.len().max(1)
    );
    parse(&datagrams, sockets);
    if others.is_empty() {
        println!("ss                   not installed");
    } else {
        let ss = median(others);
        println!("ss -tinmo            {ss:?}  {:.2} x the TCP dump into columns", ratio(ss, tcp));
        println!("                     {:.2} x the whole collector", ratio(ss, full));
        println!("                     {:.2} x the bare dump", ratio(ss, bare));
    }
    lookups(&mut socket, &mut buffers, &table.inet);
    owners(&table.inet);
    walker();
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
        subflows: false,
        proto: Proto::Tcp,
        bad: 0,
        twice: 0,
    };
    socket.dump_inet(buffers, request(expected), &mut sink).unwrap();
    rows.len()
}

/// The parser alone, over what the kernel sent before. As after a system call, a datagram lies
/// in the cache: it is copied to the receive buffer first, and the copying is taken off.
fn parse(datagrams: &[Vec<u8>], expected: usize) {
    let seq = u32::from_ne_bytes(datagrams[0][8..12].try_into().unwrap());
    let (mut fresh, mut reused, mut copies) = (vec![], vec![], vec![]);
    let (mut count, mut allocated) = (0, 0);
    let mut seen = CookieMap::default();
    let mut buffer = vec![0; datagrams.iter().map(Vec::len).max().unwrap_or(0)];
    for _ in 0..ROUNDS {
        let (time, ()) = cpu(|| {
            for datagram in datagrams {
                std::hint::black_box(received(&mut buffer, datagram));
            }
        });
        copies.push(time);
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
                    subflows: false,
                    proto: Proto::Tcp,
                    bad: 0,
                    twice: 0,
                };
                for datagram in datagrams {
                    sink.datagram(received(&mut buffer, datagram), seq);
                }
            });
            allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
            times.push(time);
        }
        count = rows.len();
    }
    let copies = median(copies);
    let per = |t| median(t).saturating_sub(copies).as_nanos() as f64 / count.max(1) as f64;
    println!("parse                {:.1} ns per socket into new columns", per(fresh));
    println!("                     {:.1} ns per socket into warm columns", per(reused));
    println!("                     {allocated} allocations for {count} sockets");
}

fn received<'a>(buffer: &'a mut [u8], datagram: &[u8]) -> &'a [u8] {
    let part = &mut buffer[..datagram.len()];
    part.copy_from_slice(datagram);
    part
}

/// Exact lookups with `tcp_info`, as suspects get them.
fn lookups(socket: &mut NlSocket, buffers: &mut Buffers, before: &InetRows) {
    let wanted: Vec<_> = (0..before.len())
        .filter(|i| before.state[*i] == SockState::ESTAB)
        .take(suspects::CAP)
        .filter_map(|i| Some((ExactId::of(before, i)?, None)))
        .collect();
    let (mut rows, mut seen, mut marks) = (InetRows::default(), CookieMap::default(), Vec::new());
    seen.reset(wanted.len());
    let mut sink = InetSink {
        rows: &mut rows,
        seen: &mut seen,
        marks: &mut marks,
        subflows: false,
        proto: Proto::Tcp,
        bad: 0,
        twice: 0,
    };
    let ext = diag::EXT_SKMEMINFO | diag::EXT_INFO;
    let (time, ()) = cpu(|| socket.lookup(buffers, ext, &wanted, &mut sink, |_, _| ()).unwrap());
    let n = rows.infos.len().max(1) as u32;
    println!("exact lookups        {time:?} for {n}, {:?} each", time / n);
}

/// One search for the owner of a socket that nobody holds: all descriptors of the host.
fn owners(rows: &InetRows) {
    let mut resolver = OwnerResolver::new(HostFs::live());
    let (time, _) = cpu(|| resolver.resolve(&[u32::MAX - 1], Duration::from_secs(60)));
    println!("search for an owner  {time:?} for all descriptors of the host");
    let wanted: Vec<u32> = rows.inode.iter().copied().filter(|i| *i != 0).take(100).collect();
    let (time, found) = cpu(|| resolver.resolve(&wanted, Duration::from_secs(60)));
    let n = found.len().max(1) as u32;
    println!("known owners         {time:?} for {n}, {:?} each", time / n);
}

/// Other namespaces, one of them empty, while the host has all these sockets.
fn walker() {
    let Ok(mut empty) = Command::new("unshare").args(["-n", "sleep", "60"]).spawn() else { return };
    let opts = CollectOptions { netns_budget: 1.0, ..CollectOptions::default() };
    let mut walker = NetnsSocketsCollector::open(&HostFs::live(), &opts).unwrap();
    let interest = Interest::default();
    let mut times = Vec::new();
    let mut spaces = 0;
    for _ in 0..ROUNDS {
        let cx = SampleContext {
            at: clock::mono(),
            interval: Duration::from_secs(1),
            interest: &interest,
        };
        let (time, sample) = cpu(|| walker.sample(&cx).unwrap());
        times.push(time);
        spaces = sample.spaces.len();
        clock::sleep_until(clock::mono() + Duration::from_millis(20));
    }
    println!("walker               {:?} for {spaces} other namespaces", median(times));
    let _ = empty.kill();
    let _ = empty.wait();
}

/// CPU time of one `ss -tinmo`; `None` when it is not installed. From the scheduler's own
/// account of the ended process: `times()` counts in ticks of 10 ms.
fn ss() -> Option<Duration> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let mut child = Command::new("ss").arg("-tinmo").stdout(Stdio::null()).spawn().ok()?;
    let pid = Pid::from_child(&child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).ok()?;
    let spent = stat.split(' ').next()?.parse().ok()?;
    child.wait().is_ok_and(|s| s.success()).then(|| Duration::from_nanos(spent))
}

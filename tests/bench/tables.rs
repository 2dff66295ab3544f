//! What exporting tables costs: rows per second of each format, beside the same rows as JSON by
//! serde_json alone, in the same run. Prints, asserts nothing.
//!
//! `cargo bench --bench tables [-- FILE]`. Without a file, ticks of `STALLSCOPE_BENCH_SOCKETS`
//! sockets (default 10,000) are made in memory, all with their `tcp_info`; a fifth of them
//! retransmits. With `--features parquet` Parquet is measured too.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use stallscope::analysis::Analysis;
use stallscope::clock;
use stallscope::diagnose::Engine;
use stallscope::metrics::history::DEFAULT_BUDGET;
use stallscope::recording::Reader;
use stallscope::report::table::{Format, Names, Table, Tables};
use stallscope::sample::sockets::{
    InetRows, NetnsTable, Owner, Proto, SockState, SockTimer, SocketsSample, TcpInfo, map_v4,
};
use stallscope::sample::subject::NetnsId;
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, Span, WallNs};
use stallscope::sample::{Samples, Stamped};

/// Ticks that are made.
const TICKS: u64 = 20;

fn main() {
    let file = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let (host, ticks) = file.map_or_else(made, |f| recorded(Path::new(&f)));
    println!("{} ticks of {}", ticks.len(), host.hostname);
    let begun = clock::mono();
    fold(&host, &ticks, |_| ());
    println!("folding them alone: {:?}", clock::mono().since(begun));
    let table = Table::named("sockets").unwrap();
    let peer = peer(&host, &ticks);
    println!("serde_json of the same sockets, fewer fields: {}", told(peer, peer));
    let formats = [
        ("csv", Format::Csv),
        ("jsonl", Format::JsonLines),
        #[cfg(feature = "parquet")]
        ("parquet", Format::Parquet),
    ];
    for (name, format) in formats {
        let bytes = Arc::new(AtomicU64::new(0));
        let to = format.encoder(table, Box::new(Counted(bytes.clone())), Names::Raw).unwrap();
        let all = (WallNs(i64::MIN), WallNs(i64::MAX));
        let mut tables = Tables::new(all, vec![(table, to)]);
        let mut took = fold(&host, &ticks, |run| tables.moment(run).unwrap());
        let begun = clock::mono();
        let rows = tables.finish().unwrap().rows[0];
        took += clock::mono().since(begun);
        println!("{name}: {}", told((rows, took, bytes.load(Ordering::Relaxed)), peer));
    }
}

/// Rows, how long they took, and bytes; against the peer's rows per second.
fn told((rows, took, bytes): (u64, Duration, u64), peer: (u64, Duration, u64)) -> String {
    let rate = |(rows, took, _): (u64, Duration, u64)| rows as f64 / took.as_secs_f64();
    format!(
        "{rows} rows in {took:?}, {:.0} rows/s, {:.1} MB/s, {:.0} B a row, {:.2} of the peer",
        rate((rows, took, bytes)),
        bytes as f64 / 1e6 / took.as_secs_f64(),
        bytes as f64 / rows.max(1) as f64,
        rate((rows, took, bytes)) / rate(peer),
    )
}

/// Counts bytes and forgets them.
struct Counted(Arc<AtomicU64>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Folds the ticks; how long `seen` took of it.
fn fold(host: &HostInfo, ticks: &[Arc<Tick>], mut seen: impl FnMut(&Analysis)) -> Duration {
    let mut run = Analysis::new(host.clone(), Engine::default(), DEFAULT_BUDGET);
    let mut took = Duration::ZERO;
    for tick in ticks {
        run.push(tick.clone());
        let begun = clock::mono();
        seen(&run);
        took += clock::mono().since(begun);
    }
    took
}

/// The values of a socket that everybody would write, with the names of the table.
#[derive(Serialize)]
struct Socket<'a> {
    time: i64,
    host: &'a str,
    netns: &'a str,
    state: &'static str,
    local: String,
    peer: String,
    inode: u32,
    cookie: u64,
    sendq_bytes: u32,
    recvq_bytes: u32,
    retr: u8,
    rto_s: Option<f64>,
    rtt_s: Option<f64>,
    cwnd: Option<u32>,
    total_retrans: Option<u32>,
    bytes_acked: Option<u64>,
    bytes_received: Option<u64>,
    segs_out: Option<u32>,
    segs_in: Option<u32>,
    skmem: &'a [u32; 9],
}

/// What serde_json takes for them: a struct of twenty fields each.
fn peer(host: &HostInfo, ticks: &[Arc<Tick>]) -> (u64, Duration, u64) {
    let bytes = Arc::new(AtomicU64::new(0));
    let mut to = io::BufWriter::new(Counted(bytes.clone()));
    let begun = clock::mono();
    let mut rows = 0;
    for tick in ticks {
        let spaces = tick.samples.sockets.iter().flat_map(|s| &s.data.spaces);
        for t in spaces {
            for i in 0..t.inet.len() {
                let info = t.inet.tcp_info(i);
                let row = Socket {
                    time: tick.wall.0,
                    host: &host.hostname,
                    netns: &t.label,
                    state: t.inet.state[i].name(),
                    local: t.inet.local_endpoint(i).to_string(),
                    peer: t.inet.remote_endpoint(i).to_string(),
                    inode: t.inet.inode[i],
                    cookie: t.inet.cookie[i],
                    sendq_bytes: t.inet.wqueue[i],
                    recvq_bytes: t.inet.rqueue[i],
                    retr: t.inet.retrans[i],
                    rto_s: info.and_then(TcpInfo::rto_us).map(|us| f64::from(us) / 1e6),
                    rtt_s: info.and_then(TcpInfo::rtt_us).map(|us| f64::from(us) / 1e6),
                    cwnd: info.and_then(TcpInfo::snd_cwnd),
                    total_retrans: info.and_then(TcpInfo::total_retrans),
                    bytes_acked: info.and_then(TcpInfo::bytes_acked),
                    bytes_received: info.and_then(TcpInfo::bytes_received),
                    segs_out: info.and_then(TcpInfo::segs_out),
                    segs_in: info.and_then(TcpInfo::segs_in),
                    skmem: &t.inet.skmem[i],
                };
                serde_json::to_writer(&mut to, &row).unwrap();
                to.write_all(b"\n").unwrap();
                rows += 1;
            }
        }
    }
    to.flush().unwrap();
    (rows, clock::mono().since(begun), bytes.load(Ordering::Relaxed))
}

fn recorded(file: &Path) -> (HostInfo, Vec<Arc<Tick>>) {
    let mut r = Reader::file(file).unwrap();
    let ticks = (0..r.len()).filter_map(|n| r.tick(n).ok()).collect();
    (r.host(), ticks)
}

fn made() -> (HostInfo, Vec<Arc<Tick>>) {
    let sockets = std::env::var("STALLSCOPE_BENCH_SOCKETS").ok().and_then(|v| v.parse().ok());
    let sockets: usize = sockets.unwrap_or(10_000);
    let host = HostInfo {
        hostname: "bench".into(),
        kernel: "6.12.0".into(),
        cpus: 4,
        interval: Duration::from_secs(1),
        netns: Some(NetnsId(1)),
        ..HostInfo::default()
    };
    (host, (0..TICKS).map(|t| Arc::new(tick(t, rows(sockets, t)))).collect())
}

fn rows(n: usize, t: u64) -> InetRows {
    let place = |name: &str| TcpInfo::FIELDS.iter().find(|f| f.0 == name).unwrap().1;
    let (acked, rtt, rto) = (place("bytes_acked"), place("rtt_us"), place("rto_us"));
    let mut r = InetRows::default();
    for i in 0..n {
        let stuck = i % 5 == 0;
        r.cookie.push(1 + i as u64);
        r.proto.push(Proto::Tcp);
        r.state.push(SockState::ESTAB);
        r.timer.push(if stuck { SockTimer::ON } else { SockTimer::OFF });
        r.retrans.push(if stuck { (t / 4) as u8 } else { 0 });
        r.expires_ms.push(if stuck { 700 } else { 0 });
        r.rqueue.push(0);
        r.wqueue.push((i % 7 * 1448) as u32);
        r.local.push(map_v4([10, 0, 0, 1]));
        r.remote.push(map_v4([10, (i >> 16) as u8, (i >> 8) as u8, i as u8]));
        r.lport.push(443);
        r.rport.push(32_768 + (i % 28_000) as u16);
        r.ifindex.push(0);
        r.uid.push(1000);
        r.inode.push(100_000 + i as u32);
        r.cgroup.push(0);
        r.skmem.push([0, 131_072, 0, 87_040, 0, 0, 0, 0, 0]);
        r.skmem_words.push(9);
        r.info.push(i as u32);
        let info = TcpInfo::from_bytes(&[0; 248]);
        let info = info.with(acked, &(t * 1000 + i as u64).to_ne_bytes());
        let info = info.with(rtt, &(200 + i as u32 % 1000).to_ne_bytes());
        r.infos.push(info.with(rto, &204_000_u32.to_ne_bytes()));
    }
    r
}

fn tick(t: u64, inet: InetRows) -> Tick {
    let mono = MonoNs((1000 + t) * 1_000_000_000);
    let owners = inet.inode.iter().take(1000).map(|i| Owner::new(*i, 4321, "nginx")).collect();
    let table = NetnsTable {
        netns: NetnsId(1),
        label: "host".into(),
        span: Span::at(mono),
        inet,
        owners,
        ..NetnsTable::default()
    };
    let data = SocketsSample { spaces: vec![Arc::new(table)], unread: Vec::new() };
    let sample = Stamped { span: Span::at(mono), cpu: Duration::ZERO, data };
    let samples = Samples { sockets: Some(Arc::new(sample)), ..Samples::default() };
    let wall = WallNs(1_700_000_000_000_000_000 + mono.0 as i64);
    Tick { seq: Seq(t), mono, wall, samples, ..Tick::default() }
}

//! How fast `explain` reads: the built program over 10 MB of each format and of a mixture, from
//! start to exit, and its peak memory; then 100 MB of the mixture and of garbage.
//!
//! `cargo bench --bench explain`. Prints MB/s; asserts nothing.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

const MB: usize = 1_000_000;

/// Text of `part` with numbers that move on, up to `bytes`.
fn fill(bytes: usize, part: impl Fn(usize) -> String) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 4096);
    let mut i = 0;
    while out.len() < bytes {
        out.extend_from_slice(part(i).as_bytes());
        i += 1;
    }
    out
}

fn ss(i: usize) -> String {
    let (a, b, c) = (i >> 16 & 255, i >> 8 & 255, i & 255);
    let sick = i.is_multiple_of(50);
    let timer = if sick { "timer:(on,5.944ms,5) " } else { "" };
    let detail =
        if sick { "rto:6528 backoff:5 unacked:11 lost:11 retrans:1/5 " } else { "rto:204 " };
    format!(
        "ESTAB 0      {}       10.{a}.{b}.{c}:40000     10.200.0.2:3306  users:((\"java\",pid=2214,fd={i})) {timer}ino:{i} sk:{i:x} <->\n\
         \t skmem:(r0,rb131072,t0,tb87040,f2832,w{},o0,bl0,d0) ts sack cubic wscale:7,7 {detail}rtt:0.051/0.025 ato:40 mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:10 bytes_sent:23168 bytes_acked:23169 bytes_received:1207 segs_out:18 segs_in:12 data_segs_out:16 data_segs_in:9 send 2271372549bps lastsnd:584 lastrcv:584 lastack:584 pacing_rate 4542745096bps delivery_rate 454274504bps delivered:17 app_limited busy:72ms rcv_space:14480 rcv_ssthresh:64088 minrtt:0.03 snd_wnd:65160\n",
        if sick { 15_000 } else { 0 },
        if sick { 16_896 } else { 0 },
    )
}

fn iostat(i: usize) -> String {
    let mut out = String::from(
        "\nDevice            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util\n",
    );
    for d in 0..8 {
        let _ = writeln!(
            out,
            "vd{}            {}.00     40.00     0.00   0.00    0.50     4.00  500.00   2000.00     1.00   0.20   {}.00     4.00    0.00      0.00     0.00   0.00    0.00     0.00    0.00    0.00    {}.00  99.00",
            char::from(b'a' + d),
            i % 10,
            8 + d,
            4 + d
        );
    }
    out
}

fn nstat(i: usize) -> String {
    let mut out = String::from("#kernel\n");
    for n in [
        "TcpOutSegs",
        "TcpRetransSegs",
        "TcpExtTCPTimeouts",
        "TcpExtListenOverflows",
        "TcpExtListenDrops",
        "UdpRcvbufErrors",
        "IpInReceives",
        "TcpExtTCPWqueueTooBig",
    ] {
        let _ = writeln!(out, "{n:<31} {:<18} 0.0", 1000 + i);
    }
    out
}

fn dmesg(i: usize) -> String {
    format!(
        "[{i}.184481] nf_conntrack: nf_conntrack: table full, dropping packet\n\
         [{i}.184502] EXT4-fs (loop0): mounted filesystem e5582505 r/w with ordered data mode.\n\
         [{i}.184517]  do_syscall_64+0x71/0x280\n"
    )
}

fn sar(i: usize) -> String {
    let at = format!("{:02}:{:02}:{:02}", i / 3600 % 24, i / 60 % 60, i % 60);
    let mut out =
        format!("\n{at}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   %ifutil\n");
    for d in 0..8 {
        let _ =
            writeln!(out, "{at}         eth{d}    10.00    12.00     8.00     9.00      {i}.00");
    }
    out
}

fn garbage(i: usize) -> String {
    format!(
        "{i} Mon Jan  1 00:00:00 db7 java[2214]: request {i} took {} ms, user=\"x\" state=ok \u{1b}[0m\n",
        i % 977
    )
}

fn mixed(i: usize) -> String {
    match i % 8 {
        0 => iostat(i),
        1 => nstat(i),
        2 => garbage(i),
        3 => format!("[root@db7 ~]# ss -tinmo\r\n{}", ss(i).replace('\n', "\r\n")),
        _ => ss(i),
    }
}

type Case = (&'static str, usize, fn(usize) -> String);

/// Seconds from start to exit, and peak resident MiB.
fn run(text: &[u8]) -> (f64, f64, Option<i32>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all(text).unwrap();
    let start = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stallscope"))
        .args(["explain", "--format", "json"])
        .arg(file.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0_f64;
    let code = loop {
        if let Ok(text) = std::fs::read_to_string(&status)
            && let Some(kb) = text.lines().find_map(|l| l.strip_prefix("VmHWM:"))
        {
            let kb: f64 = kb.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
            peak = peak.max(kb / 1024.0);
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        std::thread::yield_now();
    };
    (start.elapsed().as_secs_f64(), peak, code)
}

fn main() {
    println!("{:<22} {:>6} {:>8} {:>8} {:>9}  exit", "text", "MB", "s", "MB/s", "RSS MiB");
    let cases: [Case; 10] = [
        ("ss -tinmoe", 10, ss),
        ("iostat -x", 10, iostat),
        ("nstat", 10, nstat),
        ("dmesg", 10, dmesg),
        ("sar -n DEV", 10, sar),
        ("garbage", 10, garbage),
        ("mixed, CR LF", 10, mixed),
        ("ss -tinmoe", 100, ss),
        ("mixed, CR LF", 100, mixed),
        ("garbage", 100, garbage),
    ];
    for (name, mb, part) in cases {
        let text = fill(mb * MB, part);
        let runs: Vec<_> = (0..3).map(|_| run(&text)).collect();
        let best = runs.iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        println!(
            "{name:<22} {mb:>6} {:>8.3} {:>8.0} {:>9.1}  {:?}",
            best.0,
            text.len() as f64 / 1e6 / best.0,
            runs.iter().map(|r| r.1).fold(0.0, f64::max),
            best.2
        );
    }
}

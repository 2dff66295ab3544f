//! Load that makes events.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use stallscope::clock;

use super::median;

const CPU: usize = 1;

fn pin() {
    let mut set = CpuSet::new();
    set.set(CPU);
    sched_setaffinity(None, &set).unwrap();
}

/// Trips of one slice: some 10 ms.
const SLICE: u32 = 2000;

/// Switches tasks `2 * trips` times on one CPU; CPU time per switch, ns. The time of both
/// threads holds all of the switch, and nothing of what others do on the CPU, but for the
/// caches that they spoil: what comes back is the median of slices.
pub(crate) fn ping_pong(trips: u32) -> f64 {
    let (mut a_rx, mut b_tx) = std::io::pipe().unwrap();
    let (mut b_rx, mut a_tx) = std::io::pipe().unwrap();
    // A byte that is 1 ends a slice; the first one says that both are there.
    let echo = std::thread::spawn(move || {
        pin();
        let (mut byte, mut edges) = ([0], Vec::new());
        while b_rx.read_exact(&mut byte).is_ok() && b_tx.write_all(&byte).is_ok() {
            if byte == [1] {
                edges.push(clock::thread_cpu());
            }
        }
        edges
    });
    let ping = std::thread::spawn(move || {
        pin();
        let (mut byte, mut edges) = ([1], Vec::new());
        for n in 0..=trips {
            let edge = n % SLICE == 0;
            a_tx.write_all(&[u8::from(edge)]).unwrap();
            a_rx.read_exact(&mut byte).unwrap();
            if edge {
                edges.push(clock::thread_cpu());
            }
        }
        edges
    });
    let (ping, echo) = (ping.join().unwrap(), echo.join().unwrap());
    let took = |w: &[Duration]| w[1].saturating_sub(w[0]);
    let slices = ping.windows(2).zip(echo.windows(2)).map(|(p, e)| took(p) + took(e));
    let per_switch = |d: Duration| d.as_nanos() as f64 / f64::from(SLICE * 2);
    median(&mut slices.map(per_switch).collect::<Vec<_>>())
}

/// Softirqs of the network.
pub(crate) fn udp() {
    let rx = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let tx = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = rx.local_addr().unwrap();
    let mut buf = [0; 64];
    for _ in 0..60_000 {
        tx.send_to(&buf, to).unwrap();
        rx.recv(&mut buf).unwrap();
    }
}

/// Reads of 4 KiB past the page cache, one at a time.
pub(crate) fn direct_reads() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bpf-bench");
    let status = Command::new("fio")
        .arg(format!("--filename={}", file.display()))
        .args(["--name=t", "--size=64m", "--rw=randread", "--bs=4k", "--direct=1"])
        .args(["--time_based", "--runtime=2", "--thread"])
        .stdout(Stdio::null())
        .status();
    assert!(status.is_ok_and(|s| s.success()), "fio is needed");
}

/// Refused connections: resets and drops.
pub(crate) fn refused() {
    for _ in 0..5000 {
        let _ = std::net::TcpStream::connect("127.0.0.1:9");
    }
}

/// Files that are created and removed.
pub(crate) fn files() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..5000 {
        let path = dir.path().join(n.to_string());
        std::fs::File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

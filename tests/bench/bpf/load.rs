//! Load that makes events.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use stallscope::clock;

const CPU: usize = 1;

fn pin() {
    let mut set = CpuSet::new();
    set.set(CPU);
    sched_setaffinity(None, &set).unwrap();
}

/// Switches tasks `2 * trips` times on one CPU; CPU time per switch, ns. The time of both
/// threads holds all of the switch, and nothing of what others do on the CPU.
pub(crate) fn ping_pong(trips: u32) -> f64 {
    let (mut a_rx, mut b_tx) = std::io::pipe().unwrap();
    let (mut b_rx, mut a_tx) = std::io::pipe().unwrap();
    let echo = std::thread::spawn(move || {
        pin();
        let mut byte = [0];
        // The first byte says that both are there.
        let mut begun = Duration::ZERO;
        while b_rx.read_exact(&mut byte).is_ok() && b_tx.write_all(&byte).is_ok() {
            if byte == [1] {
                begun = clock::thread_cpu();
            }
        }
        clock::thread_cpu().saturating_sub(begun)
    });
    let ping = std::thread::spawn(move || {
        pin();
        let mut byte = [1];
        let mut trip = |b: u8| {
            a_tx.write_all(&[b]).unwrap();
            a_rx.read_exact(&mut byte).unwrap();
        };
        trip(1);
        let begun = clock::thread_cpu();
        (0..trips).for_each(|_| trip(0));
        clock::thread_cpu().saturating_sub(begun)
    });
    let took = ping.join().unwrap() + echo.join().unwrap();
    took.as_nanos() as f64 / f64::from(trips * 2)
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

//! Hours of healthy work in minutes: one long session, in which a machine does one ordinary
//! thing after another, some of them at once. Not one alarm may fire, not even for a second.
//!
//! Five minutes; `STALLSCOPE_SOAK=1200` makes it so many seconds.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::set_socket_send_buffer_size;
use stallscope::clock;
use stallscope::sample::time::MonoNs;

use crate::kit::block::{Dir, Loop, writer};
use crate::kit::gate::lab;
use crate::kit::net::{B, Pair};
use crate::kit::product::check;
use crate::kit::sh::Held;

fn pause(d: Duration) {
    let now = clock::mono();
    clock::sleep_until(MonoNs(now.0 + u64::try_from(d.as_nanos()).unwrap()));
}

/// Set when dropped, so that the loads end even when the session fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One kind of ordinary work, for a while.
type Phase<'a> = (&'static str, Box<dyn Fn(Duration) + 'a>);

#[test]
fn healthy_load_raises_no_alarm() {
    lab(&["ip", "ss", "losetup", "fio", "cc", "sha256sum"], || {
        let total = std::env::var("STALLSCOPE_SOAK").ok().map_or(300, |s| s.parse().unwrap());
        let (net, dir) = (Pair::new(), Dir::new());
        let dev = Loop::new(&dir.image("disk.img", 256), true);
        let done = AtomicBool::new(false);
        let phases: [Phase<'_>; 7] = [
            ("bulk TCP with small buffers", Box::new(|d| bulk(&net, d))),
            ("short connections", Box::new(|d| short_connections(&net, d))),
            ("fsync loop", Box::new(|d| fsyncs(&dir, d))),
            ("fast disk at depth 8", Box::new(|d| depth_eight(&dev, d))),
            ("compile job", Box::new(|d| compile(&dir, d))),
            ("bursts as of cron", Box::new(bursts)),
            ("rest", Box::new(pause)),
        ];
        let report = std::thread::scope(|s| {
            let session = s.spawn(|| {
                let _over = Stop(&done);
                check("soak", &format!("{total}s"), &[])
            });
            // Twice around in a session, so that each work follows its neighbour once more
            // after the machine has shown what is usual.
            let share = Duration::from_secs(total) / u32::try_from(2 * phases.len()).unwrap();
            for (name, load) in phases.iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                eprintln!("lab: soak: {name}");
                load(share);
            }
            session.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        });
        // At each moment of the session, not only at its end: what came and went is listed too.
        report.exactly(|_| true, &[], &[]);
    });
}

/// Writes as fast as the reader takes it, with a send buffer of 4 KiB: `w > 2 tb` nearly always.
fn bulk(net: &Pair, d: Duration) {
    let (tx, rx) = net.connect(5001);
    set_socket_send_buffer_size(&tx, 4096).unwrap();
    std::thread::scope(|s| {
        let (mut out, mut back) = (&tx, &rx);
        s.spawn(move || {
            let block = vec![7; 1 << 16];
            while out.write_all(&block).is_ok() {}
        });
        s.spawn(move || {
            let mut block = vec![0; 1 << 18];
            while back.read(&mut block).is_ok_and(|n| n > 0) {}
        });
        pause(d);
        let _ = tx.shutdown(Shutdown::Both);
    });
}

/// Connect, ask, answer, close: as fast as one client can.
fn short_connections(net: &Pair, d: Duration) {
    let listener = net.b.inside(|| std::net::TcpListener::bind((B, 5002)).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while let Ok((mut c, _)) = listener.accept() {
                let mut ask = [0; 64];
                if c.read_exact(&mut ask).is_ok() {
                    let _ = c.write_all(&[1; 4096]);
                }
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let ask = || {
            let mut c = TcpStream::connect((B, 5002)).unwrap();
            c.write_all(&[2; 64]).unwrap();
            let mut all = Vec::new();
            c.read_to_end(&mut all).unwrap();
        };
        net.a.inside(|| {
            let begun = clock::mono();
            while clock::mono().since(begun) < d {
                ask();
                // 400 a second leave the ports of a minute of TIME_WAIT free.
                pause(Duration::from_millis(2));
            }
            done.store(true, Ordering::Relaxed);
            ask();
        });
    });
}

/// A database's log: small appends, each made durable.
fn fsyncs(dir: &Dir, d: Duration) {
    let file = dir.image("log", 16);
    let fio = format!(
        "exec fio --name=log --filename={file} --rw=write --bs=4k --size=16m --fsync=1 \
         --time_based --runtime=3600 --thread --eta=never"
    );
    let mut load = Held::start(&["sh", "-c", &fio]);
    pause(d);
    load.assert_running();
}

fn depth_eight(dev: &Loop, d: Duration) {
    let mut load = writer(&dev.dev, 8, |fio| format!("exec {fio}"));
    pause(d);
    load.assert_running();
}

/// As many compilers as CPUs.
fn compile(dir: &Dir, d: Duration) {
    let source = dir.path.join("unit.c").to_str().unwrap().to_owned();
    let mut body = String::new();
    for n in 0..2000 {
        let _ = writeln!(body, "int f{n}(int x) {{ return x * {n} + (x >> {}) % 7; }}", n % 31);
    }
    std::fs::write(&source, body).unwrap();
    let jobs = std::thread::available_parallelism().unwrap().get();
    let line = format!("while :; do cc -O1 -c -o /dev/null {source}; done");
    let mut loads: Vec<Held> = (0..jobs).map(|_| Held::start(&["sh", "-c", &line])).collect();
    pause(d);
    loads.iter_mut().for_each(Held::assert_running);
}

/// A dozen processes at once, every few seconds.
fn bursts(d: Duration) {
    let begun = clock::mono();
    while clock::mono().since(begun) < d {
        let line = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do \
                    head -c 4000000 /dev/zero | sha256sum & done; wait; sleep 60";
        let _load = Held::start(&["sh", "-c", line]);
        pause(Duration::from_secs(3));
    }
}

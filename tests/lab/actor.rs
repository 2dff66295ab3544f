//! Processes that wait in one way each, for tests that want a process of its own for that.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::kit::pause;
use crate::kit::sh::Held;

/// Which wait a process of this very program is to make.
const ACTOR: &str = "STALLSCOPE_LAB_ACTOR";

/// A process of this program that waits in one way.
pub fn actor(kind: &str) -> Held {
    let exe = std::env::current_exe().unwrap();
    let exe = exe.to_str().unwrap();
    let env = format!("{ACTOR}={kind}");
    Held::start(&["env", &env, exe, "--ignored", "--exact", "actor::acts", "--nocapture"])
}

/// Not a test: what [`actor`] starts.
#[test]
#[ignore = "what `actor` starts"]
fn acts() {
    match std::env::var(ACTOR).as_deref() {
        Ok("mutex") => {
            static LOCK: Mutex<()> = Mutex::new(());
            let _held = LOCK.lock().unwrap();
            std::thread::spawn(|| drop(LOCK.lock()));
            pause(3_600_000);
        }
        Ok("convoy") => threads(16, |lock| {
            let _held = lock.lock().unwrap();
            spin(1000);
        }),
        Ok("sleepy convoy") => threads(16, |lock| {
            let _held = lock.lock().unwrap();
            pause(1);
        }),
        Ok("short locks") => threads(16, |lock| {
            drop(lock.lock().map(|_held| spin(20)));
            pause(1);
        }),
        Ok("pool") => {
            static WORK: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
            // Its futex then expects what that of a contended mutex expects.
            std::thread::spawn(|| {
                for _ in 0..2 {
                    pause(300);
                    WORK.1.notify_all();
                }
            });
            threads(16, |_| {
                let idle = WORK.0.lock().unwrap();
                drop(WORK.1.wait_while(idle, |work| !*work));
            });
        }
        Ok("turns") => {
            static DOOR: Mutex<Option<TcpListener>> = Mutex::new(None);
            *DOOR.lock().unwrap() = Some(TcpListener::bind("127.0.0.1:0").unwrap());
            threads(16, |_| drop(DOOR.lock().unwrap().as_ref().map(TcpListener::accept)));
        }
        Ok("pipe") => {
            let (mut from, _to) = std::io::pipe().unwrap();
            let _ = from.read(&mut [0]);
        }
        Ok("child") => {
            Command::new("sleep").arg("3600").status().unwrap();
        }
        Ok("silent peer") => {
            let (mut near, _far) = connection();
            near.write_all(b"a question").unwrap();
            let _ = near.read(&mut [0]);
        }
        Ok("slow reader") => {
            let (mut near, _far) = connection();
            while near.write_all(&[0; 4096]).is_ok() {}
        }
        Ok("no request") => {
            // A server that has answered, and reads the next question.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(b"a question").unwrap();
            far.read_exact(&mut [0; 10]).unwrap();
            pause(20);
            far.write_all(b"an answer").unwrap();
            let _ = far.read(&mut [0]);
        }
        Ok("unix backlog") => {
            let unix = || {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
            };
            let addr = unix_name(std::process::id());
            let addr = SocketAddrUnix::new_abstract_name(addr.as_bytes()).unwrap();
            let listener = unix();
            bind(&listener, &addr).unwrap();
            listen(&listener, 1).unwrap();
            let clients: Vec<_> = (0..3).map(|_| unix()).collect();
            let refused = clients.iter().filter(|c| connect(c, &addr).is_err()).count();
            assert_eq!(refused, 1, "the kernel holds one more than the backlog");
            pause(3_600_000);
        }
        Ok("sleep") => pause(3_600_000),
        Ok("spin") => loop {
            std::hint::spin_loop();
        },
        other => panic!("no such wait: {other:?}"),
    }
}

/// So many threads that do the same over and over, with one lock between them.
fn threads(n: usize, work: impl Fn(&Mutex<()>) + Sync) {
    let lock = Mutex::new(());
    std::thread::scope(|s| {
        for _ in 0..n {
            s.spawn(|| {
                loop {
                    work(&lock);
                }
            });
        }
    });
}

/// Where the actor with a full backlog listens.
pub fn unix_name(pid: u32) -> String {
    format!("stlab-{pid}")
}

/// Uses a CPU for so many microseconds.
fn spin(us: u64) {
    let begun = stallscope::clock::mono();
    while stallscope::clock::mono().since(begun) < Duration::from_micros(us) {
        std::hint::spin_loop();
    }
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

//! What the product's threads give up is nothing that they read with. Which capabilities they
//! keep is asserted by `tests/suite/pty`; here is what for.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use stallscope::collect::enter::inside;
use stallscope::collect::sockets::diag::{AF_INET, ALL_STATES, InetRequest};
use stallscope::collect::sockets::netlink::{Buffers, NlSocket, SOCK_DIAG};
use stallscope::collect::sockets::nlmsg::{Attrs, Message, Messages, Step};
use stallscope::recording::Reader;
use stallscope::rights::{Duty, restrict};
use stallscope::sample::Samples;
use stallscope::sample::sockets::Proto;
use stallscope::sample::subject::NetnsId;

use crate::kit::gate::{Place, beside};
use crate::kit::net::{Pair, fill};
use crate::kit::sh::run;
use crate::kit::{secs, wait_for};

const PORT: u16 = 5000;

struct Killed(Child);
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `record` reads in some seconds.
fn recorded() -> Vec<Arc<stallscope::sample::tick::Tick>> {
    let dir = tempfile::tempdir().unwrap();
    let tape: PathBuf = dir.path().join("a.stall");
    let path = tape.to_str().unwrap();
    run(&[env!("CARGO_BIN_EXE_stallscope"), "record", "-o", path, "--duration", "6s"]);
    let mut r = Reader::file(&tape).unwrap();
    (0..r.len()).map(|i| r.tick(i).unwrap()).collect()
}

/// Sockets, their owners of another user, qdiscs, connection tracking and protocol counters of
/// namespaces that a process holds (`a`) and that only a mount holds (`b`); and all that eBPF
/// measures.
#[test]
fn what_root_may_read_is_still_read() {
    beside(Place::Network, &["ip", "nft", "tc", "setpriv", "ss"], || {
        let net = Pair::new();
        for ns in [&net.a, &net.b] {
            ns.exec(&["nft", "add table inet t"]);
            ns.exec(&["nft", "add chain inet t c { type filter hook input priority 0; }"]);
            ns.exec(&["nft", "add rule inet t c ct state established counter"]);
        }
        net.a.exec(&[
            "tc", "qdisc", "add", "dev", "v0", "root", "handle", "7:", "bfifo", "limit", "1000000",
        ]);
        let (mut tx, rx) = net.connect(PORT);
        // The one end that nobody reads belongs to another user, and to no other process.
        let sleeper = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sleep", "600"])
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(rx)))
            .process_group(0)
            .spawn();
        let sleeper = Killed(sleeper.unwrap());
        let pid = sleeper.0.id();
        wait_for("a full receive buffer", secs(20), || {
            fill(&mut tx);
            net.b.ss_one("sport = :5000").filter(|s| s.recv_q() > 100_000)
        });
        let ticks = recorded();
        let any = |f: &dyn Fn(&Samples) -> bool| ticks.iter().any(|t| f(&t.samples));
        let (a, b) = (NetnsId(net.a.inode), NetnsId(net.b.inode));
        for ns in [a, b] {
            assert!(any(&|s| s.netns_sockets.as_ref().is_some_and(|s| {
                s.data.unread.is_empty()
                    && s.data.spaces.iter().any(|t| t.netns == ns && !t.inet.is_empty())
            })));
            assert!(any(&|s| s.netdev.as_ref().is_some_and(|s| {
                s.data.spaces.iter().any(|n| {
                    n.netns == ns && n.conntrack.is_some_and(|c| c.count > 0) && n.holes.is_empty()
                })
            })));
            assert!(any(&|s| s.net_counters.as_ref().is_some_and(|s| {
                s.data.spaces.iter().any(|n| n.netns == ns && n.values.iter().any(|v| *v > 0))
            })));
        }
        assert!(any(&|s| s.netns_sockets.as_ref().is_some_and(|s| {
            let of_b = s.data.spaces.iter().filter(|t| t.netns == b);
            of_b.flat_map(|t| &t.owners).any(|o| o.pid == pid && o.comm == "sleep")
        })));
        assert!(any(&|s| s.netdev.as_ref().is_some_and(|s| {
            let of_a = s.data.spaces.iter().filter(|n| n.netns == a);
            of_a.flat_map(|n| &n.qdiscs).any(|q| &*q.kind == "bfifo" && q.handle == 7 << 16)
        })));
        let last = &ticks.last().unwrap().samples;
        assert!(last.runq_bpf.is_some() && last.irq_bpf.is_some());
        assert!(last.block_bpf.is_some() && last.net_bpf.is_some());
    });
}

/// Does the kernel tell the mark of sockets in the namespace of the calling thread?
fn tells_marks() -> bool {
    const INET_DIAG_MSG: usize = 72;
    const INET_DIAG_MARK: u16 = 15;
    let asked = InetRequest { family: AF_INET, proto: Proto::Tcp, ext: 0, states: ALL_STATES };
    let mut socket = NlSocket::open(SOCK_DIAG).unwrap();
    let mut told = false;
    let done = socket.dump(
        &mut Buffers::default(),
        |tx, seq| asked.put_dump(tx, seq),
        |bytes, seq| {
            let mut step = Step::More;
            for message in Messages::new(bytes) {
                match message {
                    Message::Data(_, s, payload) if s == seq => {
                        let attrs = payload.get(INET_DIAG_MSG..).unwrap_or_default();
                        told |= Attrs(attrs).any(|(kind, _)| kind == INET_DIAG_MARK);
                    }
                    Message::Done(s, 0) if s == seq => step = Step::Done,
                    _ => {}
                }
            }
            step
        },
    );
    done.unwrap_or_else(|e| panic!("{}", e.text()));
    told
}

/// A route that depends on a mark is looked up with it: without the mark, a socket that has a
/// route would be told to have none.
#[test]
fn marks_of_sockets_are_told() {
    beside(Place::Network, &["ip"], || {
        let net = Pair::new();
        let _both = net.connect(PORT);
        let handle = format!("/run/netns/{}", net.a.name);
        let under = |duty: Duty| {
            let handle = Path::new(&handle);
            std::thread::scope(|s| {
                let work = move || {
                    let home = File::open("/proc/thread-self/ns/net").unwrap();
                    if duty == Duty::HostSockets {
                        // Of a namespace that it need not enter.
                        let target = File::open(handle).unwrap();
                        let net = Some(rustix::thread::LinkNameSpaceType::Network);
                        rustix::thread::move_into_link_name_space(target.as_fd(), net).unwrap();
                        restrict(duty);
                        return tells_marks();
                    }
                    restrict(duty);
                    inside(&home, handle, tells_marks).unwrap_or_else(|_| panic!("not entered"))
                };
                s.spawn(work).join().unwrap()
            })
        };
        assert!(under(Duty::HostSockets));
        assert!(under(Duty::Namespaces));
    });
}

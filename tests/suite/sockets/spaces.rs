//! Other network namespaces, as root. Everything happens below a namespace of our own, which
//! this program enters by running itself again under `unshare -n`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use stallscope::collect::sockets::HostSockets;
use stallscope::collect::sockets::netns::NetnsSocketsCollector;
use stallscope::collect::{CollectOptions, Collector, HostFs, NetnsScope, namespaces};
use stallscope::sample::sockets::RouteOutcome;
use stallscope::sample::{Interest, Signal, SignalStatus};

use crate::support::skip;
use crate::support::sockets::{read, row, until};

const PARENT: &str = "STALLSCOPE_TEST_PARENT";
const HOLDER: &str = "STALLSCOPE_TEST_HOLDER";

/// Runs `test` of this program inside a fresh namespace; true when it is to run here.
fn below_own_namespace(test: &str) -> bool {
    if std::env::var(PARENT).as_deref() == Ok(test) {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        skip("namespaces: not root");
        return false;
    }
    let script = "ip link set lo up && exec \"$0\" --exact --nocapture --test-threads=1 \"$1\"";
    let done = Command::new("unshare")
        .args(["-n", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(format!("sockets::spaces::{test}"))
        .env(PARENT, test)
        .output();
    match done {
        Ok(out) if out.status.success() => {
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(text.contains("1 passed"), "{text}");
        }
        Ok(out) => panic!(
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        ),
        Err(e) => skip(&format!("unshare: {e}")),
    }
    false
}

/// Not a test by itself: holds sockets in a namespace of its own until stdin closes.
#[test]
fn holder() {
    if std::env::var(HOLDER).is_err() {
        return;
    }
    let listener = TcpListener::bind("0.0.0.0:7777").unwrap();
    let client = TcpStream::connect("127.0.0.1:7777").unwrap();
    let server = listener.accept().unwrap().0;
    println!("ready {}", client.local_addr().unwrap().port());
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    drop((client, server));
}

struct Holder {
    child: Child,
    port: u16,
}

impl Holder {
    fn start() -> Self {
        let script = "ip link set lo up && exec \"$0\" --exact --nocapture sockets::spaces::holder";
        let mut child = Command::new("unshare")
            .args(["-n", "sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .env(HOLDER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        // The harness prints before the test does, on the same line in some versions.
        let port = lines
            .map_while(Result::ok)
            .find_map(|l| l.rsplit_once("ready ")?.1.trim().parse().ok())
            .expect("the holder is ready");
        Self { child, port }
    }
    fn handle(&self) -> String {
        format!("/proc/{}/ns/net", self.child.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn options(netns: NetnsScope) -> CollectOptions {
    // The whole core: what the budget does is tested without a kernel.
    CollectOptions { netns, netns_budget: 1.0, ..CollectOptions::default() }
}

fn ip(args: &str) {
    let done = Command::new("ip").args(args.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {args}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_namespace_is_read_and_let_go() {
    if !below_own_namespace("a_namespace_is_read_and_let_go") {
        return;
    }
    let host = HostFs::live();
    let holder = Holder::start();
    let id = namespaces::of_path(holder.handle().as_ref()).unwrap();
    // Our end of this pair disappears when the kernel frees the holder's namespace.
    ip(&format!("link add probe0 type veth peer name probe1 netns {}", holder.child.id()));

    let mut walker = NetnsSocketsCollector::open(&host, &options(NetnsScope::All)).unwrap();
    let home = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let interest = Interest::default();
    let table = until("its turn has come", || {
        let sample = read(&mut walker, &interest);
        sample.spaces.iter().find(|t| t.netns == id).cloned()
    });
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), home);
    assert_eq!(table.member, Some(holder.child.id()));
    assert_eq!(table.holes, [] as [String; 0]);
    let listener = row(&table.inet, 7777, 0).unwrap();
    let client = row(&table.inet, holder.port, 7777).unwrap();
    assert_eq!(table.inet.len(), 3);
    assert!(table.inet.tcp_info(client).is_some() && table.inet.tcp_info(listener).is_none());

    // Our own namespace is not among the others.
    let own = namespaces::own(&host).unwrap();
    let sample = read(&mut walker, &interest);
    assert!(sample.spaces.iter().all(|t| t.netns != own));

    // The owner is found across namespaces.
    let inode = table.inet.inode[client];
    let named = Interest { inodes: vec![inode], ..Interest::default() };
    until("the owner is found", || {
        let sample = read(&mut walker, &named);
        let table = sample.spaces.iter().find(|t| t.netns == id)?.clone();
        (table.owner(inode)?.pid == holder.child.id()).then_some(())
    });

    drop(holder);
    until("the table is gone", || {
        let sample = read(&mut walker, &interest);
        (sample.spaces.iter().all(|t| t.netns != id) && sample.unread.iter().all(|u| u.netns != id))
            .then_some(())
    });
    // The walker still lives: if it held the namespace, the pair would stay.
    until("the namespace is freed", || {
        let gone = Command::new("ip").args(["link", "show", "probe0"]).output().unwrap();
        (!gone.status.success()).then_some(())
    });
    let mut signals: Vec<Signal> = Vec::new();
    walker.signals(&mut signals);
    assert_eq!(signals[0].signal, "other network namespaces");
    assert!(!matches!(signals[0].status, SignalStatus::Missing { .. }), "{signals:?}");
}

#[test]
fn a_path_names_the_only_namespace_to_read() {
    if !below_own_namespace("a_path_names_the_only_namespace_to_read") {
        return;
    }
    let host = HostFs::live();
    let holder = Holder::start();
    let only = options(NetnsScope::Path(holder.handle().into()));
    assert!(HostSockets::open(&host, &only).is_err());
    let mut walker = NetnsSocketsCollector::open(&host, &only).unwrap();
    let sample = read(&mut walker, &Interest::default());
    assert_eq!(sample.spaces.len(), 1);
    assert_eq!(sample.spaces[0].member, Some(holder.child.id()));
    assert!(row(&sample.spaces[0].inet, 7777, holder.port).is_some());

    let own = options(NetnsScope::Path("/proc/self/ns/net".into()));
    assert!(HostSockets::open(&host, &own).is_ok());
    assert!(NetnsSocketsCollector::open(&host, &own).is_err());
    assert!(NetnsSocketsCollector::open(&host, &options(NetnsScope::Own)).is_err());
    for wrong in ["/nowhere", "/proc/self/status", "/proc/self/ns/mnt"] {
        let wrong = options(NetnsScope::Path(wrong.into()));
        assert!(NetnsSocketsCollector::open(&host, &wrong).is_err());
        assert!(HostSockets::open(&host, &wrong).is_err());
    }
}

#[test]
fn a_route_that_was_deleted_is_told_from_a_silent_peer() {
    if !below_own_namespace("a_route_that_was_deleted_is_told_from_a_silent_peer") {
        return;
    }
    let holder = Holder::start();
    let pid = holder.child.id();
    ip(&format!("link add a0 type veth peer name b0 netns {pid}"));
    ip("addr add 10.99.0.1/24 dev a0");
    ip("link set a0 up");
    let enter = |what: &str| {
        let args = format!("-t {pid} -n {what}");
        assert!(Command::new("nsenter").args(args.split(' ')).status().unwrap().success());
    };
    enter("ip addr add 10.99.0.2/24 dev b0");
    enter("ip link set b0 up");
    let mut stream = TcpStream::connect("10.99.0.2:7777").unwrap();
    let local = stream.local_addr().unwrap().port();
    let mut collector = HostSockets::open(&HostFs::live(), &options(NetnsScope::Own)).unwrap();
    let interest = Interest::default();
    let mut outcome = |why: &str, want: &dyn Fn(&RouteOutcome) -> bool| {
        until(why, || {
            let sample = read(&mut collector, &interest);
            let table = &sample.spaces[0];
            let i = row(&table.inet, local, 7777)?;
            let route = table.route(table.inet.cookie[i])?;
            assert!(table.inet.tcp_info(i)?.retransmits() >= Some(2));
            want(route).then_some(())
        });
    };
    // A peer that is silent, by a route that exists.
    enter("ip addr flush dev b0");
    stream.write_all(b"anyone there?").unwrap();
    outcome("the way out is a0", &|r| matches!(r, RouteOutcome::Via { dev, .. } if dev == "a0"));
    ip("route del 10.99.0.0/24");
    outcome("there is no way out", &|r| *r == RouteOutcome::Errno(101));
}

//! Healthy loads: what machines do all day. Each runs until it is dropped.
//!
//! None asks for more than two CPUs have. A benchmark in a closed loop with as many clients as it
//! likes keeps every CPU busy with tasks waiting, and `cpu-saturation` is right to say so (seen:
//! redis-benchmark -c 20, idle 6%, pressure 61%); so rates and numbers of clients are bounded.

use std::net::TcpStream;

use crate::clients::{Askers, Restless, client};
use crate::kit::block::{Dir, Loop, writer};
use crate::kit::net::Pair;
use crate::kit::pause;
use crate::kit::sh::{Held, run};
use crate::servers::{self, HOST, Home, Server, pg, to};

/// A load.
pub struct Load {
    pub name: &'static str,
    pub tools: fn() -> Vec<String>,
    /// Part of the short set?
    pub short: bool,
    pub start: fn() -> Running,
}

/// What it consists of; dropped in this order.
#[derive(Default)]
pub struct Running {
    pub clients: Vec<Held>,
    pub threads: Vec<Restless>,
    pub askers: Vec<Askers>,
    pub servers: Vec<Server>,
    pub net: Option<Pair>,
    #[allow(dead_code, reason = "held until the load ends")]
    pub disk: Option<Loop>,
    pub dir: Option<Dir>,
}

impl Running {
    /// A load that ended is no load.
    #[track_caller]
    pub fn assert_running(&mut self) {
        self.clients.iter_mut().for_each(Held::assert_running);
        self.servers.iter_mut().for_each(Server::assert_running);
    }
}

/// Servers by `serve`, clients by their command lines.
fn servers_and_clients(
    serve: impl FnOnce(Home<'_>) -> Vec<Server>,
    clients: &[&[&str]],
) -> Running {
    let (net, dir) = (Pair::new(), Dir::new());
    let servers = serve(Home::new(&net, &dir.path));
    let clients = clients.iter().map(|argv| client(&net, &dir.path, argv)).collect();
    Running { clients, servers, net: Some(net), dir: Some(dir), ..Running::default() }
}

fn shell(line: &str) -> Running {
    let dir = Dir::new();
    let line = line.replace("DIR", dir.path.to_str().unwrap());
    let clients = vec![Held::start(&["sh", "-c", &line])];
    Running { clients, dir: Some(dir), ..Running::default() }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn postgres_tools() -> Vec<String> {
    vec![pg("postgres"), pg("pgbench"), pg("psql")]
}

fn pgbench(how: &[&str]) -> Running {
    let bench = pg("pgbench");
    let fixed = [&*bench, "-n", "-T", "36000", "-h", HOST, "-U", "postgres"];
    let argv = [&fixed, how, &["postgres"]].concat();
    servers_and_clients(|home| vec![servers::postgres(home, &[])], &[&argv])
}

const REDIS_BENCHMARK: [&str; 9] =
    ["redis-benchmark", "-h", HOST, "-q", "-l", "-c", "1", "-t", "get,set,lpush"];

/// All of them.
pub const LOADS: &[Load] = &[
    Load {
        name: "pgbench-select",
        tools: postgres_tools,
        short: false,
        start: || pgbench(&["-S", "-c", "2", "-R", "4000"]),
    },
    Load {
        name: "pgbench-fsync",
        tools: postgres_tools,
        short: true,
        start: || pgbench(&["-c", "4", "-R", "200"]),
    },
    Load {
        name: "redis-benchmark",
        tools: || names(&["redis-server", "redis-benchmark"]),
        short: true,
        start: || servers_and_clients(|home| vec![servers::redis(home, &[])], &[&REDIS_BENCHMARK]),
    },
    Load {
        name: "nginx",
        tools: || names(&["nginx", "ab"]),
        short: false,
        start: || {
            // As many connections as requests. ab keeps 32 bytes of each to come.
            let url = format!("http://{HOST}:8080/");
            let ab = ["ab", "-q", "-r", "-c", "2", "-t", "36000", "-n", "20000000", &url];
            servers_and_clients(
                |home| vec![servers::nginx(home, "worker_processes 1;", "backlog=511")],
                &[&ab],
            )
        },
    },
    Load {
        name: "haproxy",
        tools: || names(&["nginx", "haproxy", "wrk"]),
        short: true,
        start: || {
            let url = format!("http://{HOST}:8000/");
            servers_and_clients(
                |home| {
                    let nginx = servers::nginx(home, "worker_processes 1;", "");
                    vec![servers::haproxy(home), nginx]
                },
                &[&["wrk", "-t", "1", "-c", "1", "-d", "36000", &url]],
            )
        },
    },
    Load {
        name: "memcached",
        tools: || names(&["memcached"]),
        short: false,
        start: || {
            let mut out = servers_and_clients(|home| vec![servers::memcached(home, &[])], &[]);
            let ns = &out.net.as_ref().unwrap().a;
            out.askers.push(Askers::start(ns, to(11211), 50, b"get a b c d\r\n"));
            // Somebody who connects anew for each question, but not so often that the ports run out
            // in TIME-WAIT: 28,000 of them last for a minute.
            out.threads.push(Restless::start(ns, 1, || {
                use std::io::{Read, Write};
                pause(5);
                if let Ok(mut s) = TcpStream::connect(to(11211)) {
                    let _ = s.write_all(b"set a 0 60 1\r\nx\r\n");
                    let _ = s.read(&mut [0; 64]);
                }
            }));
            out
        },
    },
    Load {
        name: "unbound",
        tools: || names(&["unbound", "dnsperf"]),
        short: false,
        start: || {
            let mut out = servers_and_clients(|home| vec![servers::unbound(home)], &[]);
            let (net, dir) = (out.net.as_ref().unwrap(), &out.dir.as_ref().unwrap().path);
            let file = dir.join("queries");
            let argv =
                ["dnsperf", "-s", HOST, "-d", file.to_str().unwrap(), "-l", "36000", "-Q", "10000"];
            out.clients.push(client(net, dir, &argv));
            out
        },
    },
    Load {
        name: "iperf-one",
        tools: || names(&["iperf3"]),
        short: false,
        start: || {
            let argv = ["iperf3", "-c", HOST, "-t", "36000", "-b", "5G"];
            servers_and_clients(|home| vec![servers::iperf(home)], &[&argv])
        },
    },
    Load {
        name: "iperf-eight",
        tools: || names(&["iperf3"]),
        short: false,
        start: || {
            let argv = ["iperf3", "-c", HOST, "-t", "36000", "-P", "8", "-b", "500M"];
            servers_and_clients(|home| vec![servers::iperf(home)], &[&argv])
        },
    },
    Load {
        name: "small-buffers",
        tools: || names(&["iperf3"]),
        short: false,
        start: || {
            // As fast as the reader takes it: the queue holds more than twice the buffer nearly
            // always.
            let argv = ["iperf3", "-c", HOST, "-t", "36000", "-w", "4K"];
            servers_and_clients(|home| vec![servers::iperf(home)], &[&argv])
        },
    },
    Load {
        name: "shaped-link",
        tools: || names(&["iperf3", "tc"]),
        short: false,
        start: || {
            // Bursts wait in the shaper and overlimits grow; the link has room for 2.5 times more.
            let argv = ["iperf3", "-c", HOST, "-t", "36000", "-b", "40M"];
            let out = servers_and_clients(|home| vec![servers::iperf(home)], &[&argv]);
            let tbf = "tc qdisc add dev v0 root tbf rate 100mbit burst 64k latency 50ms";
            out.net.as_ref().unwrap().a.exec(&tbf.split(' ').collect::<Vec<_>>());
            out
        },
    },
    Load {
        name: "tar",
        tools: || names(&["tar", "gzip"]),
        short: true,
        start: || {
            shell("while :; do tar -C /usr -cf - include share lib | gzip -1 > DIR/t.gz; done")
        },
    },
    Load {
        name: "fsync-log",
        tools: || names(&["fio"]),
        short: false,
        start: || {
            // A database's log: small appends, each made durable.
            shell(
                "cd DIR && exec fio --name=log --filename=log --rw=write --bs=4k --size=16m \
                 --fsync=1 --time_based --runtime=36000 --thread --eta=never",
            )
        },
    },
    Load {
        name: "fast-disk",
        tools: || names(&["fio", "losetup", "dd"]),
        short: false,
        start: || {
            let dir = Dir::new();
            let disk = Loop::new(&dir.image("disk.img", 256), true);
            let clients = vec![writer(&disk.dev, 8, |fio| format!("exec {fio}"))];
            Running { clients, disk: Some(disk), dir: Some(dir), ..Running::default() }
        },
    },
    Load {
        name: "cron",
        tools: || names(&["sha256sum"]),
        short: false,
        start: || {
            // A dozen processes at once, every few seconds.
            shell(
                "while :; do for i in 1 2 3 4 5 6 7 8 9 10 11 12; do \
                 head -c 4000000 /dev/zero | sha256sum > /dev/null & done; wait; sleep 3; done",
            )
        },
    },
    Load {
        name: "forks",
        tools: || names(&["true"]),
        short: false,
        start: || shell("while :; do /bin/true; done"),
    },
    Load {
        name: "netns",
        tools: Vec::new,
        short: false,
        start: || {
            let id = std::process::id();
            let line = format!(
                "while :; do ip netns add stlab{id}c && ip -n stlab{id}c link set lo up && \
                 ip netns exec stlab{id}c true; ip netns del stlab{id}c; done"
            );
            let mut out = shell(&line);
            out.dir.take();
            out
        },
    },
    Load {
        name: "build",
        tools: || names(&["cc"]),
        short: false,
        start: || {
            let code = "for i in $(seq 400); do echo \"int f$i(int a){int s=0;for(int k=0;k<a;k++)\
                        s+=k*a%$i;return s;}\"; done > DIR/a.c; \
                        while :; do cc -O2 -c DIR/a.c -o DIR/a.o & cc -O1 -c DIR/a.c -o DIR/b.o; \
                        wait; done";
            shell(code)
        },
    },
    Load {
        name: "niced-batch",
        tools: || names(&["nice", "redis-server"]),
        short: false,
        start: || {
            let mut out = servers_and_clients(|home| vec![servers::redis(home, &[])], &[]);
            let spin = "while :; do :; done";
            let hog = |_| Held::start(&["nice", "-n", "19", "sh", "-c", spin]);
            out.clients = (0..4).map(hog).collect();
            let ns = &out.net.as_ref().unwrap().a;
            out.askers.push(Askers::start(ns, to(6379), 20, b"PING\r\n"));
            out
        },
    },
];

/// A namespace that a load was killed in the middle of.
pub fn sweep() {
    let name = format!("stlab{}c", std::process::id());
    if std::path::Path::new("/run/netns").join(&name).exists() {
        run(&["ip", "netns", "del", &name]);
    }
}

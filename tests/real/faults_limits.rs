//! Servers that get too little of the machine.

use stallscope::diagnose::Finding;

use crate::clients::{Askers, client, connections};
use crate::kit::block::Dir;
use crate::kit::cgroup::Cgroup;
use crate::kit::gate::Place;
use crate::kit::net::Pair;
use crate::kit::sh::{Held, attempt};
use crate::kit::{secs, wait_for};
use crate::servers::{self, HOST, Home, pg, to};
use crate::stage::{Case, about_group, anywhere, fault, says, within};

const PING: &[u8] = b"PING\r\n";
const SPIN: &str = "while :; do :; done";

/// pgbench that only reads, at this part of what the machine can do: without a rate it keeps both
/// CPUs busy before anything is broken, and a fixed one is little to a fast machine.
fn select_only(net: &Pair, dir: &Dir, clients: &str, part: f64) -> Held {
    let bench = pg("pgbench");
    let to = ["-S", "-n", "-h", HOST, "-c", clients, "-U", "postgres"];
    let trial = [&[&*bench], &to[..], &["-T", "2", "postgres"]].concat();
    let said = net.a.exec(&trial);
    let most = said.lines().find_map(|l| l.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    let most: f64 = most.unwrap_or_else(|| panic!("no rate in {said}"));
    let rate = format!("{:.0}", part * most);
    let long = [&[&*bench], &to[..], &["-T", "600", "-R", &rate, "postgres"]].concat();
    client(net, &dir.path, &long)
}

/// postgres gets a tenth of a CPU.
#[test]
fn postgres_under_a_quota() {
    let tools = [&*pg("pgbench"), &*pg("postgres")];
    let case = Case { name: "pg-quota", tools: &tools, short: true, place: None };
    fault(&case, |stage| {
        let group = Cgroup::new("cpu", "pg");
        let (net, dir) = (Pair::new(), Dir::new());
        let groups = [&group];
        let _pg = servers::postgres(Home { groups: &groups, ..Home::new(&net, &dir.path) }, &[]);
        let _load = select_only(&net, &dir, "2", 0.4);
        stage.watch(14);
        stage.breaks();
        group.set("cpu.cfs_quota_us", "10000");
        wait_for("throttled periods", secs(10), || {
            (group.stat("cpu.stat", "nr_throttled")? >= 5).then_some(())
        });
        stage.first(&["cfs-throttle"], anywhere, about_group(&group.name));
    });
}

/// postgres and its clients share CPU 0 while CPU 1 idles.
#[test]
fn postgres_on_one_cpu() {
    let tools = [&*pg("pgbench"), &*pg("postgres"), "taskset"];
    let case = Case { name: "pg-pinned", tools: &tools, short: false, place: None };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let postgres = servers::postgres(Home::new(&net, &dir.path), &[]);
        let load = select_only(&net, &dir, "4", 0.75);
        wait_for("four backends", secs(5), || {
            (net.b.ss("state established sport = :5432").len() >= 4).then_some(())
        });
        stage.watch(14);
        stage.breaks();
        for pid in postgres.children().into_iter().chain([postgres.pid(), load.pid()]) {
            // One of the children may have ended by now.
            let _ = attempt(&["taskset", "-a", "-p", "1", &pid.to_string()]);
        }
        stage.first(&["runq-latency-idle-elsewhere"], anywhere, |_| true);
    });
}

/// Six busy loops beside redis.
#[test]
fn hogs_beside_redis() {
    let tools = ["redis-server", "redis-benchmark"];
    let case = Case { name: "hogs", tools: &tools, short: false, place: None };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let _redis = servers::redis(Home::new(&net, &dir.path), &[]);
        let _askers = Askers::start(&net.a, to(6379), 20, PING);
        stage.watch(20);
        stage.breaks();
        let _hogs: Vec<_> = (0..6).map(|_| Held::start(&["sh", "-c", SPIN])).collect();
        stage.first(&["cpu-saturation"], anywhere, |_| true);
    });
}

/// A flood of small datagrams through a long list of rules, all on the CPU of the sender.
#[test]
fn flood_of_small_packets() {
    let tools = ["iperf3", "taskset"];
    let case = Case { name: "flood", tools: &tools, short: false, place: None };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let _server = servers::iperf(Home::new(&net, &dir.path));
        // Lost behind the rules, or the socket would be the first to be overrun. What greets the
        // server is shorter.
        let rules = "add rule inet t c udp dport 1 counter\n".repeat(500);
        let chain = "add table inet t\nadd chain inet t c { type filter hook input priority 0; }\n";
        let last = "add rule inet t c udp dport 5201 udp length 72 drop\n";
        let file = dir.path.join("rules.nft");
        std::fs::write(&file, format!("{chain}{rules}{last}")).unwrap();
        net.b.exec(&["nft", "-f", file.to_str().unwrap()]);
        stage.watch(18);
        stage.breaks();
        let pinned = ["taskset", "-c", "0", "iperf3", "-c", HOST];
        let argv = [&pinned[..], &["-u", "-l", "64", "-b", "0", "-t", "600"]].concat();
        let _load = client(&net, &dir.path, &argv);
        stage.first(&["softirq-one-core"], anywhere, |_| true);
    });
}

/// redis grows beyond the limit of its memory cgroup.
#[test]
fn redis_out_of_memory() {
    let tools = ["redis-server", "redis-cli"];
    let place = Some(Place::Network);
    let case = Case { name: "oom", tools: &tools, short: false, place };
    fault(&case, |stage| {
        let group = Cgroup::new("memory", "redis");
        group.set("memory.limit_in_bytes", "48M");
        let (net, dir) = (Pair::new(), Dir::new());
        let groups = [&group];
        let home = Home { groups: &groups, ..Home::new(&net, &dir.path) };
        let redis = servers::redis(home, &["--enable-debug-command", "yes"]);
        let _askers = Askers::start(&net.a, to(6379), 4, PING);
        stage.watch(14);
        stage.breaks();
        let fill = ["redis-cli", "-h", HOST, "DEBUG", "POPULATE", "1000000", "key", "100"];
        let _fill = client(&net, &dir.path, &fill);
        wait_for("a kill", secs(10), || {
            (group.stat("memory.oom_control", "oom_kill ")? >= 1).then_some(())
        });
        drop(redis);
        let here = |f: &Finding| within(&net)(f) || says(&group.name)(f);
        stage.first(&["oom-kill"], here, says(&group.name));
    });
}

/// nginx has 96 file descriptors, of which it needs some ten itself, for 96 clients.
#[test]
fn nginx_out_of_descriptors() {
    let place = Some(Place::Network);
    let case = Case { name: "fd-limit", tools: &["nginx"], short: false, place };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let top = "worker_processes 1; worker_rlimit_nofile 96;";
        let nginx = servers::nginx(Home::new(&net, &dir.path), top, "backlog=16");
        let worker = nginx.children()[0];
        stage.watch(16);
        stage.breaks();
        let _idle = connections(&net.a, to(8080), 96);
        let says_so = dir.path.join("nginx.err");
        wait_for("EMFILE", secs(5), || {
            std::fs::read_to_string(&says_so).ok()?.contains("Too many open files").then_some(())
        });
        stage.first(&["fd-limit"], |f| within(&net)(f) || says(worker)(f), says(worker));
    });
}

//! The servers: each in the foreground, on the far end of a [`Pair`], with a directory of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::cgroup::Cgroup;
use crate::kit::net::{B, Ns, Pair};
use crate::kit::sh::{Held, run};
use crate::kit::{secs, wait_for};

/// The far end's address as text.
pub const HOST: &str = "10.9.0.2";
/// The same of [`with_v6`].
pub const HOST6: &str = "fd09::2";

/// Who runs postgres, which refuses root. It reads our directories all the same.
const NOBODY: &str = "exec setpriv --reuid=65534 --regid=65534 --clear-groups \
    --inh-caps=+dac_override --ambient-caps=+dac_override --pdeathsig KILL --";

/// Where a server runs.
#[derive(Clone, Copy)]
pub struct Home<'a> {
    pub ns: &'a Ns,
    pub dir: &'a Path,
    /// Hierarchies and groups that it is born in.
    pub groups: &'a [&'a Cgroup],
}

impl<'a> Home<'a> {
    pub fn new(net: &'a Pair, dir: &'a Path) -> Self {
        Self { ns: &net.b, dir, groups: &[] }
    }
}

/// A server with its children; ended when dropped.
pub struct Server {
    held: Held,
    /// Asked to end with this first, as it has more to put back than files.
    ask: Option<Signal>,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.held.pid()
    }
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }
    #[track_caller]
    pub fn assert_running(&mut self) {
        self.held.assert_running();
    }
    /// Processes that it forked.
    pub fn children(&self) -> Vec<u32> {
        let pid = self.pid();
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        text.split_whitespace().map(|p| p.parse().unwrap()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(signal) = self.ask else { return };
        self.signal(Signal::CONT);
        self.signal(signal);
        let stat = format!("/proc/{}/stat", self.pid());
        let over = || {
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            text.rsplit(") ").next().is_none_or(|s| s.is_empty() || s.starts_with('Z'))
        };
        let end = stallscope::clock::mono() + secs(3);
        while !over() && stallscope::clock::mono() < end {
            crate::kit::pause(20);
        }
    }
}

/// Sends a signal.
pub fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}

/// For a shell.
fn quoted(argv: &[&str]) -> String {
    argv.iter().map(|a| format!("'{}'", a.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
}

/// Starts a program inside; what it says goes to a file of its name.
pub fn inside(home: Home<'_>, argv: &[&str]) -> Held {
    let name = argv[0].rsplit('/').next().unwrap();
    let log = home.dir.join(format!("{name}.log"));
    let log = quoted(&[log.to_str().unwrap()]);
    let mut line =
        format!("exec nsenter --net=/run/netns/{} -- {} >{log} 2>&1", home.ns.name, quoted(argv));
    for g in home.groups {
        line = g.enter_and(&format!("sh -c {}", quoted(&[&line])));
    }
    Held::start(&["sh", "-c", &line])
}

fn server(home: Home<'_>, to: SocketAddr, argv: &[&str]) -> Server {
    let mut held = inside(home, argv);
    wait_for(&format!("{} listens", argv[0]), secs(20), || {
        held.assert_running();
        home.ns.inside(|| TcpStream::connect(to)).ok()
    });
    Server { held, ask: None }
}

fn at(port: u16) -> SocketAddr {
    (IpAddr::V4(B), port).into()
}

/// Adds fd09::1 and fd09::2.
pub fn with_v6(net: &Pair) {
    for (ns, dev, addr) in [(&net.a, "v0", "fd09::1/64"), (&net.b, "v1", "fd09::2/64")] {
        run(&["ip", "-n", &ns.name, "-6", "addr", "add", addr, "dev", dev, "nodad"]);
    }
}

/// At the address of v4 or v6.
pub fn redis_at(home: Home<'_>, host: &str, more: &[&str]) -> Server {
    let dir = home.dir.to_str().unwrap();
    let fixed = [
        "redis-server",
        "--port",
        "6379",
        "--bind",
        host,
        "--save",
        "",
        "--appendonly",
        "no",
        "--protected-mode",
        "no",
        "--dir",
        dir,
    ];
    server(home, (host.parse::<IpAddr>().unwrap(), 6379).into(), &[&fixed, more].concat())
}

pub fn redis(home: Home<'_>, more: &[&str]) -> Server {
    redis_at(home, HOST, more)
}

/// nginx with files in `www`; `top` goes to the head of its configuration, `listen` behind the
/// address.
pub fn nginx(home: Home<'_>, top: &str, listen: &str) -> Server {
    let dir = home.dir.to_str().unwrap();
    let www = home.dir.join("www");
    std::fs::create_dir_all(&www).unwrap();
    std::fs::write(www.join("index.html"), "x".repeat(2048)).unwrap();
    std::fs::write(www.join("large"), vec![b'x'; 256 << 10]).unwrap();
    let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|t| format!("{t}_temp_path {dir}/{t};"))
        .join(" ");
    let text = format!(
        "daemon off; user root; pid {dir}/nginx.pid; error_log {dir}/nginx.err;\n{top}\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; {temp} keepalive_requests 1000000000;\n\
         server {{ listen {HOST}:8080 {listen}; root {dir}/www; }} }}\n"
    );
    let conf = home.dir.join("nginx.conf");
    std::fs::write(&conf, text).unwrap();
    let errors = format!("{dir}/nginx.err");
    let argv = ["nginx", "-p", dir, "-e", &errors, "-c", conf.to_str().unwrap()];
    server(home, at(8080), &argv)
}

/// haproxy on 8000 in front of [`nginx`].
pub fn haproxy(home: Home<'_>) -> Server {
    let conf = home.dir.join("haproxy.cfg");
    let text = format!(
        "global\n  maxconn 2000\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 2s\n  \
         timeout client 60s\n  timeout server 60s\n  retries 0\n  option clitcpka\n  \
         clitcpka-idle 4s\n  clitcpka-intvl 2s\n  clitcpka-cnt 20\n\
         listen web\n  bind {HOST}:8000\n  server one {HOST}:8080\n"
    );
    std::fs::write(&conf, text).unwrap();
    server(home, at(8000), &["haproxy", "-db", "-f", conf.to_str().unwrap()])
}

pub fn memcached(home: Home<'_>, more: &[&str]) -> Server {
    let fixed = ["memcached", "-u", "root", "-l", HOST, "-p", "11211", "-U", "0", "-m", "64"];
    server(home, at(11211), &[&fixed, more].concat())
}

/// unbound with one zone of its own.
pub fn unbound(home: Home<'_>) -> Server {
    let dir = home.dir.to_str().unwrap();
    let text = format!(
        "server:\n  interface: {HOST}\n  port: 53\n  do-daemonize: no\n  username: \"\"\n  \
         chroot: \"\"\n  directory: \"{dir}\"\n  pidfile: \"{dir}/unbound.pid\"\n  \
         use-syslog: no\n  access-control: 0.0.0.0/0 allow\n  module-config: \"iterator\"\n  \
         num-threads: 1\n  local-zone: \"example.\" static\n  \
         local-data: \"www.example. A 192.0.2.1\"\n"
    );
    let conf = home.dir.join("unbound.conf");
    std::fs::write(&conf, text).unwrap();
    std::fs::write(home.dir.join("queries"), "www.example A\n").unwrap();
    server(home, at(53), &["unbound", "-d", "-c", conf.to_str().unwrap()])
}

pub fn iperf(home: Home<'_>) -> Server {
    // Asked by connecting, it takes the question for its one client and refuses the next.
    let mut held = inside(home, &["iperf3", "-s", "-B", HOST]);
    wait_for("iperf3 listens", secs(20), || {
        held.assert_running();
        let listening = home.ns.ss("state listening sport = :5201");
        (!listening.is_empty()).then_some(())
    });
    Server { held, ask: None }
}

/// A program of postgres, which Debian keeps out of the way.
pub fn pg(program: &str) -> String {
    let all = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = all.map(|d| d.path().join("bin").join(program)).collect();
    found.sort();
    found.pop().map_or(program.to_owned(), |p| p.to_str().unwrap().to_owned())
}

/// A fresh cluster in `home.dir/pg`, with tables for pgbench.
pub fn postgres(home: Home<'_>, more: &[&str]) -> Server {
    let data = home.dir.join("pg");
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::chown(&data, Some(65534), Some(65534)).unwrap();
    let data = data.to_str().unwrap();
    let init = quoted(&[
        &pg("initdb"),
        "--no-sync",
        "-U",
        "postgres",
        "-A",
        "trust",
        "--locale=C",
        "-D",
        data,
    ]);
    run(&["sh", "-c", &format!("{NOBODY} {init}")]);
    // No access list by address: each cluster is alone in its namespace.
    let hba = format!("{data}/pg_hba.conf");
    std::fs::write(&hba, "host all all all trust\n").unwrap();
    let program = pg("postgres");
    let fixed = [
        &*program,
        "-D",
        data,
        "-c",
        "unix_socket_directories=",
        "-c",
        "listen_addresses=10.9.0.2",
        "-c",
        "max_wal_size=4GB",
    ];
    let line = format!("{NOBODY} {}", quoted(&[&fixed, more].concat()));
    let mut out = server(home, at(5432), &["sh", "-c", &line]);
    out.ask = Some(Signal::QUIT);
    wait_for("postgres answers", secs(20), || {
        let argv = [&*pg("psql"), "-h", HOST, "-U", "postgres", "-c", "select 1"];
        home.ns_command(&argv).ok()
    });
    let argv = [&*pg("pgbench"), "-q", "-i", "-s", "5", "-h", HOST, "-U", "postgres", "postgres"];
    home.ns_command(&argv).unwrap();
    out
}

impl Home<'_> {
    /// Runs a command in the server's namespace.
    pub fn ns_command(&self, argv: &[&str]) -> Result<String, String> {
        let at = format!("--net=/run/netns/{}", self.ns.name);
        crate::kit::sh::attempt(&[&["nsenter", &at, "--"], argv].concat())
    }
}

/// The address of a server.
pub const fn to(port: u16) -> SocketAddr {
    SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), port))
}

/// The same over v6.
pub const fn to6(port: u16) -> SocketAddr {
    let ip = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2);
    SocketAddr::V6(std::net::SocketAddrV6::new(ip, port, 0, 0))
}

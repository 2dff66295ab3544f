//! Two network namespaces joined by a veth pair: `a` is 10.9.0.1, `b` is 10.9.0.2. A process
//! lives in `a`, as in a container; `b` is held by its mount alone, as `ip netns add` leaves it.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::product::Found;
use super::sh::{Held, attempt, run};
use super::undo::Undo;
use super::{secs, wait_for};

pub const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// Prefix of everything the lab creates; `.ci/run` sweeps by it.
pub const PREFIX: &str = "stlab";

/// One end.
pub struct Ns {
    pub name: String,
    /// Inode: how the product names it.
    pub inode: u64,
    /// A process inside, as containers have.
    _member: Option<Held>,
}

impl Ns {
    fn new(name: String, member: bool, undo: &mut Undo) -> Self {
        run(&["ip", "netns", "add", &name]);
        undo.command(&["ip", "netns", "del", &name]);
        run(&["ip", "-n", &name, "link", "set", "lo", "up"]);
        let inode = std::fs::metadata(format!("/run/netns/{name}")).unwrap().ino();
        let member = member.then(|| Held::start(&["ip", "netns", "exec", &name, "sleep", "3600"]));
        Self { name, inode, _member: member }
    }

    /// Runs `f` on a thread inside the namespace; sockets it returns stay inside.
    pub fn inside<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let file = std::fs::File::open(format!("/run/netns/{}", self.name)).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                f()
            })
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    }

    /// Runs a command inside.
    #[track_caller]
    pub fn exec(&self, argv: &[&str]) -> String {
        run(&[&["ip", "netns", "exec", &self.name], argv].concat())
    }

    /// Drops TCP to `port` in `hook` (`input` or `output`).
    pub fn drop_tcp_to(&self, hook: &str, port: u16) {
        let chain = format!("add chain inet t c {{ type filter hook {hook} priority 0; }}");
        let rule = format!("add rule inet t c tcp dport {port} drop");
        for line in ["add table inet t", &chain, &rule] {
            self.exec(&["nft", line]);
        }
    }

    /// Socket counters and names from `nstat`: an eye that is not ours.
    pub fn counter(&self, name: &str) -> u64 {
        let text = self.exec(&["nstat", "-asz", name]);
        text.lines()
            .filter_map(|l| l.split_whitespace().collect::<Vec<_>>().try_into().ok())
            .find_map(|[n, v, _]: [&str; 3]| (n == name).then(|| v.parse().unwrap()))
            .unwrap_or_else(|| panic!("no counter {name} in: {text}"))
    }

    /// What `ss` shows of the TCP sockets that match `filter`.
    pub fn ss(&self, filter: &str) -> Vec<SsLine> {
        let mut argv = vec!["ss", "-tainmoeHO"];
        argv.extend(filter.split_whitespace());
        self.exec(&argv).lines().map(|l| SsLine(l.to_owned())).collect()
    }

    /// The one socket that `ss` shows for `filter`.
    pub fn ss_one(&self, filter: &str) -> Option<SsLine> {
        let mut all = self.ss(filter);
        (all.len() == 1).then(|| all.remove(0))
    }
}

/// One line of `ss -tainmoeHO`.
#[derive(Clone, Debug)]
pub struct SsLine(pub String);

impl SsLine {
    fn word(&self, n: usize) -> &str {
        self.0.split_whitespace().nth(n).unwrap_or("")
    }
    pub fn state(&self) -> &str {
        self.word(0)
    }
    pub fn recv_q(&self) -> u64 {
        self.word(1).parse().unwrap()
    }
    pub fn send_q(&self) -> u64 {
        self.word(2).parse().unwrap()
    }
    /// Number after `key:`, without the share of `61ms(58.7%)`; `ss` leaves zero fields out.
    pub fn num(&self, key: &str) -> Option<f64> {
        let value = self.0.split_whitespace().find_map(|w| w.strip_prefix(key)?.strip_prefix(':'));
        value?.split("ms").next()?.parse().ok()
    }
    /// Lifetime total of `retrans:out/total`.
    pub fn retrans_total(&self) -> u64 {
        let pair = self.0.split_whitespace().find_map(|w| w.strip_prefix("retrans:"));
        pair.and_then(|p| p.split('/').nth(1)).map_or(0, |t| t.parse().unwrap())
    }
    /// Name of the running timer.
    pub fn timer(&self) -> &str {
        self.0.split_once("timer:(").and_then(|(_, r)| r.split(',').next()).unwrap_or("")
    }
    /// A word of `skmem:(r..,rb..,t..,tb..,f..,w..,o..,bl..,d..)`.
    pub fn skmem(&self, key: &str) -> Option<u64> {
        let inner = self.0.split_once("skmem:(")?.1.split(')').next()?;
        inner.split(',').find_map(|f| {
            let digits = f.find(|c: char| c.is_ascii_digit())?;
            (&f[..digits] == key).then(|| f[digits..].parse().ok())?
        })
    }
}

/// Both ends and the wire.
pub struct Pair {
    // Dropped in this order: the members leave before the namespaces are deleted.
    pub a: Ns,
    pub b: Ns,
    _undo: Undo,
}

impl Pair {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id =
            format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut undo = Undo::default();
        let a = Ns::new(format!("{id}a"), true, &mut undo);
        let b = Ns::new(format!("{id}b"), false, &mut undo);
        let veth = ["link", "add", "v0", "netns", &a.name, "type", "veth", "peer", "name", "v1"];
        run(&[&["ip"], &veth[..], &["netns", &b.name]].concat());
        for (ns, dev, addr) in [(&a, "v0", A), (&b, "v1", B)] {
            run(&["ip", "-n", &ns.name, "addr", "add", &format!("{addr}/24"), "dev", dev]);
            run(&["ip", "-n", &ns.name, "link", "set", dev, "up"]);
        }
        wait_for("veth carrier", secs(5), || {
            let shown = attempt(&["ip", "-n", &a.name, "-br", "link", "show", "v0"]).ok()?;
            shown.split_whitespace().any(|w| w == "UP").then_some(())
        });
        Self { a, b, _undo: undo }
    }

    /// A connection from `a` to `b`: (a's end, b's end).
    pub fn connect(&self, port: u16) -> (TcpStream, TcpStream) {
        let listener = self.b.inside(|| TcpListener::bind(SocketAddrV4::new(B, port)).unwrap());
        let tx = self.a.inside(|| TcpStream::connect(SocketAddrV4::new(B, port)).unwrap());
        let rx = listener.accept().unwrap().0;
        (tx, rx)
    }

    /// Picks the findings about sockets of either end.
    pub fn affected(&self) -> impl Fn(Found<'_>) -> bool {
        let ends = [self.a.inode, self.b.inode];
        move |f| f.netns().is_some_and(|n| ends.contains(&n))
    }
}

/// Writes until the kernel takes no more. The sender stays non-blocking.
pub fn fill(tx: &mut TcpStream) -> usize {
    use std::io::{ErrorKind, Write};
    tx.set_nonblocking(true).unwrap();
    let block = vec![0x5a; 1 << 16];
    let mut sum = 0;
    loop {
        match tx.write(&block) {
            Ok(n) => sum += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return sum,
            Err(e) => panic!("write: {e}"),
        }
    }
}

/// What only the comparisons need.
impl SsLine {
    /// Local and remote `address:port`.
    pub fn ends(&self) -> (&str, &str) {
        (self.word(3), self.word(4))
    }
    /// Hexadecimal number after `key:`.
    pub fn hex(&self, key: &str) -> Option<u64> {
        let value = self.0.split_whitespace().find_map(|w| w.strip_prefix(key)?.strip_prefix(':'));
        u64::from_str_radix(value?, 16).ok()
    }
    /// `key:a/b`.
    pub fn pair(&self, key: &str) -> Option<(f64, f64)> {
        let value = self.0.split_whitespace().find_map(|w| w.strip_prefix(key)?.strip_prefix(':'));
        let (a, b) = value?.split_once('/')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    }
    fn timer_field(&self, n: usize) -> Option<&str> {
        self.0.split_once("timer:(")?.1.split(')').next()?.split(',').nth(n)
    }
    /// Third part of `timer:(name,time,count)`.
    pub fn timer_count(&self) -> f64 {
        self.timer_field(2).map_or(0.0, |c| c.parse().unwrap())
    }
    /// Second part: `870ms`, `1.632ms` (which older versions print for 1.632 s), `12sec`,
    /// `1min2sec`.
    pub fn timer_ms(&self) -> f64 {
        let text = self.timer_field(1).unwrap_or("0ms");
        let (minutes, rest) = text.split_once("min").unwrap_or(("0", text));
        let scale = if rest.ends_with("ms") && !rest.contains('.') { 1.0 } else { 1000.0 };
        let digits = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        minutes.parse::<f64>().unwrap() * 60_000.0 + digits.parse().unwrap_or(0.0) * scale
    }
    /// Without the words that move on a socket at rest: ages and remaining times.
    pub fn without_clocks(&self) -> String {
        let moves = ["lastsnd:", "lastrcv:", "lastack:", "timer:", "busy:"];
        let kept = |w: &&str| !moves.iter().any(|m| w.starts_with(m));
        self.0.split_whitespace().filter(kept).collect::<Vec<_>>().join(" ")
    }
}

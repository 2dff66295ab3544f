//! `sockets`: every TCP, MPTCP, UDP and UNIX socket of the namespaces that were read in the tick.

use std::collections::HashMap;

use super::{Moment, OF_TICK, Out, Rows, Table, columns};
use crate::diagnose::Severity;
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::{
    InetRows, NO_CGROUP, NetnsTable, Owner, Proto, SockState, SockTimer, TcpInfo,
};
use crate::sample::subject::SockId;
use crate::view::panes::sockets::unix_has_queues;

pub(super) static TABLE: Table = Table {
    name: "sockets",
    about: "all sockets; on a big host namespaces take turns, and have rows in the ticks that read them",
    time: OF_TICK,
    own: COLUMNS,
    rows: Rows::OfTick(rows),
};

/// Where a socket is in its table.
#[derive(Clone, Copy)]
enum Place {
    Inet(usize),
    Unix(usize),
}

struct Socket<'a> {
    m: &'a Moment<'a>,
    t: &'a NetnsTable,
    at: Place,
    owner: Option<&'a Owner>,
    cgroup: Option<&'a str>,
    /// Of a connection, where it was read.
    info: Option<&'a TcpInfo>,
    suspect: Option<&'a Suspect>,
    finding: Option<(Severity, &'static str)>,
}

fn rows(m: &Moment<'_>, out: &mut Out<'_>) {
    let mut named: HashMap<SockId, (Severity, &'static str)> = HashMap::new();
    for f in m.now.findings.all() {
        let this = (f.fire.severity, f.rule.0);
        for id in &f.fire.sockets {
            let worst = named.entry(*id).or_insert(this);
            *worst = (*worst).max(this);
        }
    }
    for t in m.sockets {
        let owners: HashMap<u32, &Owner> = t.owners.iter().map(|o| (o.inode, o)).collect();
        let cgroups: HashMap<u64, &str> = t.cgroups.iter().map(|c| (c.0, &*c.1)).collect();
        for i in 0..t.inet.len() {
            let (id, inet) = (t.id(i), &t.inet);
            let suspect = m.now.derived.sockets.get(id).map(|s| &**s);
            let owner = owners.get(&inet.inode[i]).copied().filter(|o| o.inode != 0);
            let row = Socket {
                m,
                t,
                at: Place::Inet(i),
                owner: owner.or_else(|| suspect?.owner.as_ref()),
                cgroup: cgroups.get(&inet.cgroup[i]).copied(),
                info: inet.tcp_info(i).filter(|_| is_connection(inet, i)),
                suspect,
                finding: named.get(&id).copied(),
            };
            out.row(|line| put(line, &row));
        }
        for i in 0..t.unix.len() {
            let row = Socket {
                m,
                t,
                at: Place::Unix(i),
                owner: owners.get(&t.unix.inode[i]).copied(),
                cgroup: None,
                info: None,
                suspect: None,
                finding: None,
            };
            out.row(|line| put(line, &row));
        }
    }
}

/// Of a listener the fields of `tcp_info` mean something else.
fn is_connection(r: &InetRows, i: usize) -> bool {
    r.proto[i] != Proto::Udp && !matches!(r.state[i], SockState::LISTEN | SockState::TIME_WAIT)
}

columns! {
    |r: &Socket<'_>|
    netns: text, "network namespace: host, or the name of a member" = r.t.label.as_str();
    netns_id: integer, "its inode" = r.t.netns.0;
    proto: text, "tcp, mptcp, udp or unix" = r.proto();
    state: text, "as ss has it: ESTAB, LISTEN, TIME-WAIT, ..." = r.state().name();
    local: text, "local end; UNIX: the name, with @ when abstract" = r.local().as_deref();
    sport: integer, "local port" = r.inet(|t, i| t.lport[i]);
    peer: text, "remote end; missing for one that is not connected, and for UNIX"
        = r.peer().as_deref();
    dport: integer, "remote port" = r.inet(|t, i| t.rport[i]).filter(|p| *p != 0);
    inode: integer, "of the socket" = Some(r.inode()).filter(|i| *i != 0);
    peer_inode: integer, "UNIX: the socket at the other end" = r.unix_peer();
    cookie: integer, "the kernel's number of the socket: the same in each tick"
        = r.inet(|t, i| t.cookie[i]).filter(|c| *c != 0);
    pid: integer, "process that holds it, where it was looked up" = r.owner.map(|o| o.pid);
    comm: text, "its name" = r.owner.map(|o| o.comm.as_str());
    uid: integer, "user id of its owner" = r.inet(|t, i| t.uid[i]);
    cgroup: text, "its cgroup, where known" = r.cgroup;
    cgroup_id: integer, "inode of that" = r.inet(|t, i| t.cgroup[i]).filter(|c| *c != NO_CGROUP);
    sendq_bytes: integer ("bytes"), "sent and not acknowledged, or not sent yet" = r.queues().map(|q| q.1);
    recvq_bytes: integer ("bytes"), "received and not read" = r.queues().map(|q| q.0);
    accept_queue: integer, "LISTEN: connections that wait to be accepted" = r.accept().map(|q| q.0);
    accept_limit: integer, "LISTEN: how many may" = r.accept().map(|q| q.1);
    stall_s: float ("s"), "time since data was last acknowledged or read, although some waits"
        = r.suspect.and_then(Suspect::stalled_since).map(|t| r.m.now.tick.mono.since(t).as_secs_f64());
    timer: text, "running timer: on, keepalive, timewait, persist or delack"
        = r.timer().map(SockTimer::name).filter(|n| !n.is_empty());
    expires_s: float ("s"), "until it fires"
        = r.timer().filter(|t| *t != SockTimer::OFF)
            .and(r.inet(|t, i| f64::from(t.expires_ms[i]) / 1000.0));
    retr: integer, "timeouts or probes without an answer"
        = r.inet(|t, i| is_connection(t, i).then_some(t.retrans[i])).flatten();
    backoff: integer, "exponential backoff of the timer" = r.info.and_then(TcpInfo::backoff);
    rto_s: float ("s"), "retransmission timeout" = micros(r.info.and_then(TcpInfo::rto_us));
    rtt_s: float ("s"), "smoothed round-trip time" = micros(r.info.and_then(TcpInfo::rtt_us));
    rttvar_s: float ("s"), "its mean deviation" = micros(r.info.and_then(TcpInfo::rttvar_us));
    min_rtt_s: float ("s"), "the smallest one"
        = micros(r.info.and_then(TcpInfo::min_rtt_us).filter(|us| *us != u32::MAX));
    cwnd: integer, "congestion window, segments" = r.info.and_then(TcpInfo::snd_cwnd);
    snd_mss_bytes: integer ("bytes"), "largest segment to send" = r.info.and_then(TcpInfo::snd_mss);
    snd_wnd_bytes: integer ("bytes"), "window of the peer" = r.info.and_then(TcpInfo::snd_wnd);
    total_retrans: integer, "segments retransmitted since it was created"
        = r.info.and_then(TcpInfo::total_retrans);
    bytes_acked: integer ("bytes"), "acknowledged since it was created"
        = r.info.and_then(TcpInfo::bytes_acked);
    bytes_received: integer ("bytes"), "received since it was created"
        = r.info.and_then(TcpInfo::bytes_received);
    segs_out: integer, "segments sent since it was created" = r.info.and_then(TcpInfo::segs_out);
    segs_in: integer, "segments received since it was created" = r.info.and_then(TcpInfo::segs_in);
    notsent_bytes: integer ("bytes"), "in the send queue and never sent"
        = r.info.and_then(TcpInfo::notsent_bytes);
    delivery_rate_bytes_per_s: float ("bytes/s"), "at which data was delivered lately"
        = r.info.and_then(TcpInfo::delivery_rate).map(|b| b as f64);
    last_data_sent_s: float ("s"), "since data was last sent"
        = millis(r.info.and_then(TcpInfo::last_data_sent_ms));
    last_data_recv_s: float ("s"), "since data was last received"
        = millis(r.info.and_then(TcpInfo::last_data_recv_ms));
    last_ack_recv_s: float ("s"), "since an ACK was last received"
        = millis(r.info.and_then(TcpInfo::last_ack_recv_ms));
    skmem_r_bytes: integer ("bytes"), "memory of the receive queue" = r.skmem(0);
    skmem_rb_bytes: integer ("bytes"), "its limit" = r.skmem(1);
    skmem_t_bytes: integer ("bytes"), "handed to qdisc or driver" = r.skmem(2);
    skmem_tb_bytes: integer ("bytes"), "limit of the send queue" = r.skmem(3);
    skmem_w_bytes: integer ("bytes"), "memory of the write and retransmit queue" = r.skmem(5);
    drops: integer, "packets that this socket dropped since it was created" = r.skmem(8);
    rule: text, "rule of the worst active finding that names the socket" = r.finding.map(|f| f.1);
    severity: text, "its severity" = r.finding.map(|f| f.0.name());
}

impl Socket<'_> {
    fn inet<T>(&self, of: impl FnOnce(&InetRows, usize) -> T) -> Option<T> {
        match self.at {
            Place::Inet(i) => Some(of(&self.t.inet, i)),
            Place::Unix(_) => None,
        }
    }
    fn proto(&self) -> &'static str {
        match self.inet(|t, i| t.proto[i]) {
            Some(Proto::Tcp) => "tcp",
            Some(Proto::Mptcp) => "mptcp",
            Some(Proto::Udp) => "udp",
            None => "unix",
        }
    }
    fn state(&self) -> SockState {
        match self.at {
            Place::Inet(i) => self.t.inet.state[i],
            Place::Unix(i) => self.t.unix.state[i],
        }
    }
    fn local(&self) -> Option<String> {
        match self.at {
            Place::Inet(i) => Some(self.t.inet.local_endpoint(i).to_string()),
            Place::Unix(i) => unix_name(self.t.unix.name(i)),
        }
    }
    fn peer(&self) -> Option<String> {
        let end = self.inet(InetRows::remote_endpoint)?;
        (end.port != 0).then(|| end.to_string())
    }
    fn inode(&self) -> u32 {
        match self.at {
            Place::Inet(i) => self.t.inet.inode[i],
            Place::Unix(i) => self.t.unix.inode[i],
        }
    }
    fn unix_peer(&self) -> Option<u32> {
        match self.at {
            Place::Inet(_) => None,
            Place::Unix(i) => Some(self.t.unix.peer[i]).filter(|p| *p != 0),
        }
    }
    /// Received and sent, of whatever it is: of a listener connections and their limit.
    fn both(&self) -> Option<(u32, u32)> {
        match self.at {
            Place::Inet(i) => Some((self.t.inet.rqueue[i], self.t.inet.wqueue[i])),
            Place::Unix(i) => {
                unix_has_queues(self.t).then(|| (self.t.unix.rqueue[i], self.t.unix.wqueue[i]))
            }
        }
    }
    fn queues(&self) -> Option<(u32, u32)> {
        let bare = matches!(self.state(), SockState::LISTEN | SockState::TIME_WAIT);
        self.both().filter(|_| !bare)
    }
    fn accept(&self) -> Option<(u32, u32)> {
        self.both().filter(|_| self.state() == SockState::LISTEN)
    }
    fn timer(&self) -> Option<SockTimer> {
        self.inet(|t, i| t.timer[i])
    }
    /// A word of skmem, if the kernel sent it.
    fn skmem(&self, word: u8) -> Option<u32> {
        self.inet(|t, i| {
            (word < t.skmem_words[i]).then(|| t.skmem[i].get(usize::from(word)).copied())
        })
        .flatten()
        .flatten()
    }
}

fn micros(us: Option<u32>) -> Option<f64> {
    us.map(|us| f64::from(us) / 1e6)
}

fn millis(ms: Option<u32>) -> Option<f64> {
    ms.map(|ms| f64::from(ms) / 1e3)
}

/// The path, or `@` and the abstract name, whose other NULs are `@` too. A program that binds with
/// the length of the whole struct leaves NULs after the name.
fn unix_name(raw: &[u8]) -> Option<String> {
    let (first, rest) = raw.split_first()?;
    if *first != 0 {
        return Some(String::from_utf8_lossy(raw).into_owned());
    }
    let end = rest.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    let rest: Vec<u8> = rest.iter().take(end).map(|b| if *b == 0 { b'@' } else { *b }).collect();
    Some(format!("@{}", String::from_utf8_lossy(&rest)))
}

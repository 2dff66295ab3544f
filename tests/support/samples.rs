//! Readings by hand: a row of the socket table, its `tcp_info`, a histogram, a sample and when it
//! was read.

use std::sync::Arc;
use std::time::Duration;

use stallscope::sample::bpf::Hist;
use stallscope::sample::bpf::layout::bucket_of;
use stallscope::sample::sockets::{
    InetRows, NO_INFO, Proto, SockState, SockTimer, TcpInfo, map_v4,
};
use stallscope::sample::time::Span;
use stallscope::sample::{Shared, Stamped};

/// What was read, and when.
pub fn stamped<S>(span: Span, data: S) -> Shared<S> {
    Arc::new(Stamped { span, cpu: Duration::ZERO, data })
}

/// Address and port of one end of a connection.
pub type End = ([u8; 16], u16);

pub fn v4(addr: [u8; 4], port: u16) -> End {
    (map_v4(addr), port)
}

/// A socket; by default an established and idle TCP connection.
#[derive(Clone)]
pub struct Row {
    pub cookie: u64,
    pub proto: Proto,
    pub state: SockState,
    pub timer: SockTimer,
    pub retrans: u8,
    pub expires_ms: u32,
    pub rqueue: u32,
    pub wqueue: u32,
    pub local: End,
    pub remote: End,
    pub uid: u32,
    pub inode: u32,
    pub skmem: [u32; 9],
    /// So many words of it were read.
    pub skmem_words: u8,
    pub info: Option<TcpInfo>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            cookie: 0,
            proto: Proto::Tcp,
            state: SockState::ESTAB,
            timer: SockTimer::OFF,
            retrans: 0,
            expires_ms: 0,
            rqueue: 0,
            wqueue: 0,
            local: v4([0; 4], 0),
            remote: v4([0; 4], 0),
            uid: 1000,
            inode: 0,
            skmem: [0, 131_072, 0, 87_040, 0, 0, 0, 0, 0],
            skmem_words: 9,
            info: None,
        }
    }
}

pub fn add(t: &mut InetRows, r: Row) {
    t.cookie.push(r.cookie);
    t.proto.push(r.proto);
    t.state.push(r.state);
    t.timer.push(r.timer);
    t.retrans.push(r.retrans);
    t.expires_ms.push(r.expires_ms);
    t.rqueue.push(r.rqueue);
    t.wqueue.push(r.wqueue);
    t.local.push(r.local.0);
    t.remote.push(r.remote.0);
    t.lport.push(r.local.1);
    t.rport.push(r.remote.1);
    t.ifindex.push(0);
    t.uid.push(r.uid);
    t.inode.push(r.inode);
    t.cgroup.push(0);
    t.skmem.push(r.skmem);
    t.skmem_words.push(r.skmem_words);
    let index = r.info.map_or(NO_INFO, |i| {
        t.infos.push(i);
        t.infos.len() as u32 - 1
    });
    t.info.push(index);
}

/// A `tcp_info` of so many bytes with these fields, by their names in `TcpInfo::FIELDS`.
pub fn info<'n>(len: usize, fields: impl IntoIterator<Item = (&'n str, u64)>) -> TcpInfo {
    let mut out = TcpInfo::from_bytes(&vec![0; len]);
    for (name, value) in fields {
        let end = set(&mut out, name, value);
        assert!(end <= len, "{name} does not fit into {len} bytes");
    }
    out
}

/// Sets a field and says where it ends. A number that is too large wraps, as a counter does.
pub fn set(info: &mut TcpInfo, name: &str, value: u64) -> usize {
    let field = TcpInfo::FIELDS.iter().find(|f| f.0 == name);
    let (_, at, size) = *field.unwrap_or_else(|| panic!("tcp_info has no {name}"));
    *info = info.with(at, &value.to_ne_bytes()[..size]);
    at + size
}

/// A histogram of so many of each length of time: `(ns, how many)`.
pub fn hist(lengths: &[(u64, u64)]) -> Hist {
    let mut h = Hist::default();
    for (ns, n) in lengths.iter().filter(|(_, n)| *n > 0) {
        h.merge(&[(bucket_of(*ns) as u16, *n)].into());
    }
    h
}

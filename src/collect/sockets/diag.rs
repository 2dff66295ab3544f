//! `inet_diag`: requests (`struct inet_diag_req_v2`) and replies (`struct inet_diag_msg` with
//! attributes), from `linux/inet_diag.h`.
//!
//! Replies go from the receive buffer straight into the columns of [`InetRows`]: no message
//! tree, no allocation per socket. A reply may be the bare 72-byte header: TIME_WAIT and
//! request sockets are sent that way. Kernel versions are never asked; attributes are taken
//! by presence and length.

use super::cookies::CookieMap;
use super::nlmsg::{self, Attrs, Message, Messages, Step};
use crate::sample::sockets::{InetRows, Proto, SockState, SockTimer};

/// `SOCK_DIAG_BY_FAMILY`.
pub const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `AF_INET`.
pub const AF_INET: u8 = 2;
/// `AF_INET6`.
pub const AF_INET6: u8 = 10;
/// Extension bit that asks for `INET_DIAG_SKMEMINFO`.
pub const EXT_SKMEMINFO: u8 = 1 << (SKMEMINFO - 1);
/// Extension bit that asks for `INET_DIAG_INFO`.
pub const EXT_INFO: u8 = 1 << (INFO - 1);
/// Every state up to `TCP_NEW_SYN_RECV`. `TCP_BOUND_INACTIVE` (since 6.8) is left out: such
/// sockets have no peer and no queue.
pub const ALL_STATES: u32 = 0x1ffe;
/// Length of `struct inet_diag_msg`.
pub const INET_MSG: usize = 72;

const INFO: u16 = 2;
const SKMEMINFO: u16 = 7;
const MARK: u16 = 15;
const ULP_INFO: u16 = 19;
const CGROUP_ID: u16 = 21;
const REQ_PROTOCOL: u16 = 3;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const IPPROTO_MPTCP: u32 = 262;

/// The request of kernels before 3.3, which all later ones still serve
/// (`inet_diag_dump_compat`): it knows no family, so one walk over the hash tables, which is
/// most of what a dump costs on a calm box, yields v4 and v6.
const TCPDIAG_GETSOCK: u16 = 18;
/// AF_UNSPEC: v4 and v6 in one dump. TCP only.
pub const BOTH_FAMILIES: u8 = 0;

/// What to ask `inet_diag` for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InetRequest {
    /// [`AF_INET`] or [`AF_INET6`]; for a dump of TCP also [`BOTH_FAMILIES`].
    pub family: u8,
    /// Protocol.
    pub proto: Proto,
    /// `EXT_*` bits.
    pub ext: u8,
    /// Mask of states, bit N for state N.
    pub states: u32,
}

impl InetRequest {
    /// Appends the request for a dump.
    pub fn put_dump(self, out: &mut Vec<u8>, seq: u32) {
        let flags = nlmsg::F_REQUEST | nlmsg::F_DUMP;
        if self.family == BOTH_FAMILIES {
            // struct inet_diag_req: four bytes, the id, states, dbs.
            nlmsg::put_message(out, TCPDIAG_GETSOCK, flags, seq, |body| {
                body.extend_from_slice(&[AF_INET, 0, 0, self.ext]);
                body.extend_from_slice(&[0; 48]);
                body.extend_from_slice(&self.states.to_ne_bytes());
                body.extend_from_slice(&[0; 4]);
            });
            return;
        }
        nlmsg::put_message(out, SOCK_DIAG_BY_FAMILY, flags, seq, |body| {
            self.put_head(body);
            body.extend_from_slice(&[0; 48]);
            if self.proto == Proto::Mptcp {
                // Its number does not fit the byte in the header. That byte is 0: a kernel
                // that does not know the attribute answers ENOENT, where 255 would dump raw
                // sockets.
                nlmsg::put_attr(body, REQ_PROTOCOL, &IPPROTO_MPTCP.to_ne_bytes());
            }
        });
    }

    /// Appends the request for exactly one socket, by addresses and cookie.
    pub fn put_exact(self, out: &mut Vec<u8>, seq: u32, id: &ExactId) {
        nlmsg::put_message(out, SOCK_DIAG_BY_FAMILY, nlmsg::F_REQUEST, seq, |body| {
            self.put_head(body);
            id.put(body, self.family);
        });
    }

    fn put_head(self, body: &mut Vec<u8>) {
        let proto = match self.proto {
            Proto::Tcp => IPPROTO_TCP,
            Proto::Udp => IPPROTO_UDP,
            Proto::Mptcp => 0,
        };
        body.extend_from_slice(&[self.family, proto, self.ext, 0]);
        body.extend_from_slice(&self.states.to_ne_bytes());
    }
}

/// What names one socket in a request (`struct inet_diag_sockid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactId {
    /// Local address, v4 as v4-mapped v6.
    pub local: [u8; 16],
    /// Remote address, likewise.
    pub remote: [u8; 16],
    /// Local port.
    pub lport: u16,
    /// Remote port.
    pub rport: u16,
    /// Bound interface, 0 for none.
    pub ifindex: u32,
    /// Cookie.
    pub cookie: u64,
}

impl ExactId {
    /// The id of row `i`.
    #[must_use]
    pub fn of(rows: &InetRows, i: usize) -> Option<Self> {
        Some(Self {
            local: *rows.local.get(i)?,
            remote: *rows.remote.get(i)?,
            lport: *rows.lport.get(i)?,
            rport: *rows.rport.get(i)?,
            ifindex: *rows.ifindex.get(i)?,
            cookie: *rows.cookie.get(i)?,
        })
    }

    /// The family to ask in. v4-mapped connections of v6 sockets are hashed as v4, so the v4
    /// lookup finds them on every kernel; the v6 lookup only does since 4.8.
    #[must_use]
    pub fn family(&self) -> u8 {
        if is_mapped(&self.local) && is_mapped(&self.remote) { AF_INET } else { AF_INET6 }
    }

    fn put(&self, body: &mut Vec<u8>, family: u8) {
        body.extend_from_slice(&self.lport.to_be_bytes());
        body.extend_from_slice(&self.rport.to_be_bytes());
        for addr in [&self.local, &self.remote] {
            if family == AF_INET {
                body.extend_from_slice(&addr[12..]);
                body.extend_from_slice(&[0; 12]);
            } else {
                body.extend_from_slice(addr);
            }
        }
        body.extend_from_slice(&self.ifindex.to_ne_bytes());
        body.extend_from_slice(&(self.cookie as u32).to_ne_bytes());
        body.extend_from_slice(&((self.cookie >> 32) as u32).to_ne_bytes());
    }
}

fn is_mapped(addr: &[u8; 16]) -> bool {
    addr.starts_with(&MAPPED)
}

const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// One reply, still in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct InetMsg<'a> {
    head: &'a [u8; INET_MSG],
    /// `INET_DIAG_SKMEMINFO`, empty when not sent.
    pub skmem: &'a [u8],
    /// `INET_DIAG_INFO`, empty when not sent.
    pub info: &'a [u8],
    /// `INET_DIAG_ULP_INFO`, empty when no upper protocol sits on the socket.
    pub ulp: &'a [u8],
    /// `INET_DIAG_CGROUP_ID`, 0 when not sent (before 5.8).
    pub cgroup: u64,
    /// `INET_DIAG_MARK`, 0 when not sent (it needs CAP_NET_ADMIN).
    pub mark: u32,
}

impl<'a> InetMsg<'a> {
    /// Reads a payload. `None` when it is shorter than its fixed part or of another family;
    /// attributes that cannot be read are left out.
    #[inline]
    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let head = payload.first_chunk::<INET_MSG>()?;
        if head[0] != AF_INET && head[0] != AF_INET6 {
            return None;
        }
        let mut msg = Self { head, skmem: &[], info: &[], ulp: &[], cgroup: 0, mark: 0 };
        for (kind, body) in Attrs(payload.get(INET_MSG..).unwrap_or_default()) {
            // Not a `match`: its jump table is mispredicted for nearly every attribute, while
            // the few compares repeat with every socket.
            if kind == SKMEMINFO {
                msg.skmem = body;
            } else if kind == CGROUP_ID {
                msg.cgroup = body.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
            } else if kind == INFO {
                msg.info = body;
            } else if kind == MARK {
                msg.mark = body.first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
            } else if kind == ULP_INFO {
                msg.ulp = body;
            }
        }
        Some(msg)
    }

    #[inline]
    fn word<const AT: usize>(&self) -> u32 {
        const { assert!(AT + 4 <= INET_MSG) };
        let h = self.head;
        u32::from_ne_bytes([h[AT], h[AT + 1], h[AT + 2], h[AT + 3]])
    }

    #[inline]
    fn port<const AT: usize>(&self) -> u16 {
        const { assert!(AT + 2 <= INET_MSG) };
        u16::from_be_bytes([self.head[AT], self.head[AT + 1]])
    }

    #[inline]
    fn addr<const AT: usize>(&self) -> [u8; 16] {
        const { assert!(AT + 16 <= INET_MSG) };
        let mut out = [0; 16];
        if self.head[0] == AF_INET {
            out[..12].copy_from_slice(&MAPPED);
            out[12..].copy_from_slice(&self.head[AT..AT + 4]);
        } else {
            out.copy_from_slice(&self.head[AT..AT + 16]);
        }
        out
    }

    /// State.
    #[inline]
    #[must_use]
    pub fn state(&self) -> SockState {
        SockState(self.head[1])
    }
    /// Timer.
    #[inline]
    #[must_use]
    pub fn timer(&self) -> SockTimer {
        SockTimer(self.head[2])
    }
    /// `idiag_retrans`.
    #[inline]
    #[must_use]
    pub fn retrans(&self) -> u8 {
        self.head[3]
    }
    /// Local port.
    #[inline]
    #[must_use]
    pub fn lport(&self) -> u16 {
        self.port::<4>()
    }
    /// Remote port.
    #[inline]
    #[must_use]
    pub fn rport(&self) -> u16 {
        self.port::<6>()
    }
    /// Local address, v4 as v4-mapped v6.
    #[inline]
    #[must_use]
    pub fn local(&self) -> [u8; 16] {
        self.addr::<8>()
    }
    /// Remote address, likewise.
    #[inline]
    #[must_use]
    pub fn remote(&self) -> [u8; 16] {
        self.addr::<24>()
    }
    /// Bound interface.
    #[inline]
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.word::<40>()
    }
    /// Cookie.
    #[inline]
    #[must_use]
    pub fn cookie(&self) -> u64 {
        u64::from(self.word::<44>()) | u64::from(self.word::<48>()) << 32
    }
    /// ms to the timer's next firing. Old kernels subtract unsigned: a huge value is a timer
    /// that is overdue, so it is 0.
    #[inline]
    #[must_use]
    pub fn expires_ms(&self) -> u32 {
        let ms = self.word::<52>();
        if ms > 1 << 31 { 0 } else { ms }
    }
    /// Receive queue.
    #[inline]
    #[must_use]
    pub fn rqueue(&self) -> u32 {
        self.word::<56>()
    }
    /// Send queue.
    #[inline]
    #[must_use]
    pub fn wqueue(&self) -> u32 {
        self.word::<60>()
    }
    /// Owner's uid.
    #[inline]
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.word::<64>()
    }
    /// Socket inode.
    #[inline]
    #[must_use]
    pub fn inode(&self) -> u32 {
        self.word::<68>()
    }

    /// Is this the TCP subflow of an MPTCP socket, or its listener?
    #[must_use]
    pub fn is_subflow(&self) -> bool {
        const INET_ULP_INFO_NAME: u16 = 1;
        Attrs(self.ulp).any(|(kind, name)| kind == INET_ULP_INFO_NAME && name.starts_with(b"mptcp"))
    }

    /// The words of `INET_DIAG_SKMEMINFO`, and how many of the nine the kernel sent.
    #[inline]
    #[must_use]
    pub fn skmem_words(&self) -> ([u32; 9], u8) {
        // All nine, as every kernel since 4.7 sends: without a loop over an unknown length.
        if let Some(all) = self.skmem.first_chunk::<36>() {
            let word = |i: usize| u32::from_ne_bytes([all[i], all[i + 1], all[i + 2], all[i + 3]]);
            return (std::array::from_fn(|n| word(4 * n)), 9);
        }
        let mut out = [0; 9];
        let mut n = 0;
        for (word, bytes) in out.iter_mut().zip(self.skmem.as_chunks::<4>().0) {
            *word = u32::from_ne_bytes(*bytes);
            n += 1;
        }
        (out, n)
    }
}

/// Where replies go.
#[derive(Debug)]
pub struct InetSink<'a> {
    /// The columns.
    pub rows: &'a mut InetRows,
    /// Cookies of `rows`, to tell the second copy of a socket.
    pub seen: &'a mut CookieMap,
    /// Firewall marks by cookie, for sockets whose route may be asked for.
    pub marks: &'a mut Vec<(u64, u32)>,
    /// Set when a TCP socket is a subflow: only then there are MPTCP sockets to ask for.
    pub subflows: bool,
    /// Protocol of the request: decides what `INET_DIAG_INFO` is.
    pub proto: Proto,
    /// Replies that were left out because they could not be read.
    pub bad: u32,
    /// Replies that were left out because their socket was there already.
    pub twice: u32,
}

/// Marks are kept for sockets whose timer fired at least this often.
pub const MARK_RETRANS: u8 = 2;

impl InetSink<'_> {
    /// Takes one datagram of the answer to request `seq`. Messages with another number
    /// belong to an earlier request and are dropped.
    pub fn datagram(&mut self, bytes: &[u8], seq: u32) -> Step {
        let first = self.rows.len();
        let mut messages = Messages::new(bytes);
        let mut step = Step::More;
        for message in &mut messages {
            match message {
                Message::Data(SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK, s, payload) if s == seq => {
                    self.reply(payload);
                }
                Message::Done(s, 0) if s == seq => step = Step::Done,
                Message::Done(s, errno) | Message::Error(s, errno) if s == seq => {
                    step = Step::Failed(errno);
                }
                _ => {}
            }
            if step != Step::More {
                break;
            }
        }
        self.bad += u32::from(messages.torn());
        self.drop_copies(first);
        step
    }

    /// Drops the second copies of sockets among the rows from `first` on. Once per datagram
    /// and not per reply: the set is bigger than the cache, and the misses of a tight loop
    /// overlap.
    fn drop_copies(&mut self, first: usize) {
        let mut row = first;
        while let Some((before, [cookie, ..])) = self.rows.cookie.split_at_checked(row) {
            if self.seen.insert(*cookie, before) {
                row += 1;
            } else {
                self.rows.swap_remove(row);
                self.twice += 1;
            }
        }
    }

    #[inline]
    fn reply(&mut self, payload: &[u8]) {
        let Some(msg) = InetMsg::parse(payload) else {
            self.bad += 1;
            return;
        };
        self.note_mark(&msg);
        self.subflows |= !msg.ulp.is_empty() && msg.is_subflow();
        self.rows.push(&msg, self.proto);
    }

    /// Takes the fresh reply of an exact lookup for row `i`, or for a new row.
    pub fn refresh(&mut self, i: Option<usize>, msg: &InetMsg<'_>) {
        self.note_mark(msg);
        match i {
            Some(i) => self.rows.replace(i, msg, self.proto),
            None if self.seen.insert(msg.cookie(), &self.rows.cookie) => {
                self.rows.push(msg, self.proto);
            }
            None => self.twice += 1,
        }
    }

    #[inline]
    fn note_mark(&mut self, msg: &InetMsg<'_>) {
        if msg.mark != 0 && msg.retrans() >= MARK_RETRANS && msg.timer() == SockTimer::ON {
            self.marks.push((msg.cookie(), msg.mark));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

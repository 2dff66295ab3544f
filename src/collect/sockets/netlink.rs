//! Transport: a netlink socket with a receive timeout, its own sequence numbers, and dumps
//! that hand over one datagram at a time.
//!
//! Dumps are flow-controlled by the reader, so the size of the socket's buffer does not
//! matter; the kernel fills as much as the largest `recv` asked for, up to 32 KiB. A socket
//! on which a dump went wrong is not used again: the kernel would answer `EBUSY`.

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::cookies::CookieMap;
use super::diag::{ExactId, InetMsg, InetRequest, InetSink};
use super::nlmsg::{Message, Messages, Step};
use super::unix_diag::{self, UnixSink};
use crate::sample::sockets::{InetRows, Proto};

/// `NETLINK_SOCK_DIAG`.
pub const SOCK_DIAG: isize = netlink_sys::protocols::NETLINK_SOCK_DIAG;
/// `NETLINK_ROUTE`.
pub const ROUTE: isize = netlink_sys::protocols::NETLINK_ROUTE;
/// `NETLINK_NETFILTER`.
pub const NETFILTER: isize = netlink_sys::protocols::NETLINK_NETFILTER;
/// `NETLINK_GENERIC`.
pub const GENERIC: isize = netlink_sys::protocols::NETLINK_GENERIC;

/// The kernel sizes dump datagrams by the largest `recv`, up to this.
pub const RECV: usize = 32 << 10;
/// How long one `recv` may take. The kernel answers within the call or not at all.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Exact lookups per `send`: the answers wait in the socket's buffer (208 KiB by default, up
/// to 2.3 KiB each), so that a few dozen always fit.
const BATCH: usize = 32;
const MSG_TRUNC: i32 = 0x20;

/// Buffers that outlive sockets: one set serves all namespaces of a thread.
#[derive(Debug)]
pub struct Buffers {
    rx: Vec<u8>,
    tx: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { rx: Vec::with_capacity(RECV), tx: Vec::with_capacity(4 << 10) }
    }
}

/// How a dump ended.
#[derive(Debug)]
pub enum DumpError {
    /// The kernel has no handler: the diag module is neither built in nor loaded.
    NoModule(i32),
    /// The kernel gave up with this errno; what came before stands.
    Kernel(i32),
    /// The exchange failed; the socket is spent.
    Transport(io::Error),
}

impl DumpError {
    /// One line for the table's `holes`.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NoModule(_) => "no diag module".to_owned(),
            Self::Kernel(errno) => io::Error::from_raw_os_error(*errno).to_string(),
            Self::Transport(e) if e.kind() == io::ErrorKind::WouldBlock => {
                "the kernel did not answer within 1 s".to_owned()
            }
            Self::Transport(e) => e.to_string(),
        }
    }
    /// As an error of the operating system.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match self {
            Self::NoModule(errno) | Self::Kernel(errno) => io::Error::from_raw_os_error(errno),
            Self::Transport(e) => e,
        }
    }
}

/// Result of an exact lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The socket lives; its row was refreshed.
    Found,
    /// `ENOENT`: the socket is gone, for certain.
    Gone,
    /// Another errno, or no answer.
    Failed(i32),
}

/// A netlink socket.
#[derive(Debug)]
pub struct NlSocket {
    socket: Socket,
    seq: u32,
}

impl NlSocket {
    /// Opens one in the network namespace of the calling thread.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let socket = Socket::new(protocol)?;
        // Connected to the kernel: nobody else can send to us.
        socket.connect(&SocketAddr::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self { socket, seq: 1 })
    }

    fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1).max(1);
        self.seq
    }

    fn recv(&self, rx: &mut Vec<u8>) -> io::Result<()> {
        loop {
            rx.clear();
            rx.reserve(RECV);
            match self.socket.recv(rx, MSG_TRUNC) {
                Ok(len) if len > rx.len() => {
                    return Err(io::Error::other("netlink datagram was truncated"));
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn send(&self, tx: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.send(tx, 0) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(|_| ()),
            }
        }
    }

    /// Sends one request and hands every datagram of the answer to `take`, until it says
    /// that the answer is complete.
    ///
    /// # Errors
    /// [`DumpError`]; what was taken before stands.
    pub fn dump(
        &mut self,
        buffers: &mut Buffers,
        put: impl FnOnce(&mut Vec<u8>, u32),
        mut take: impl FnMut(&[u8], u32) -> Step,
    ) -> Result<(), DumpError> {
        let seq = self.next_seq();
        buffers.tx.clear();
        put(&mut buffers.tx, seq);
        self.send(&buffers.tx).map_err(DumpError::Transport)?;
        loop {
            self.recv(&mut buffers.rx).map_err(DumpError::Transport)?;
            match take(&buffers.rx, seq) {
                Step::More => {}
                Step::Done => return Ok(()),
                Step::Failed(errno) if NO_MODULE.contains(&errno) => {
                    return Err(DumpError::NoModule(errno));
                }
                Step::Failed(errno) => return Err(DumpError::Kernel(errno)),
            }
        }
    }

    /// Dumps inet sockets into `sink`.
    ///
    /// # Errors
    /// As [`Self::dump`].
    pub fn dump_inet(
        &mut self,
        buffers: &mut Buffers,
        request: InetRequest,
        sink: &mut InetSink<'_>,
    ) -> Result<(), DumpError> {
        self.dump(buffers, |tx, seq| request.put_dump(tx, seq), |b, seq| sink.datagram(b, seq))
    }

    /// Dumps UNIX sockets into `sink`.
    ///
    /// # Errors
    /// As [`Self::dump`].
    pub fn dump_unix(
        &mut self,
        buffers: &mut Buffers,
        sink: &mut UnixSink<'_>,
    ) -> Result<(), DumpError> {
        self.dump(buffers, unix_diag::put_dump, |b, seq| sink.datagram(b, seq))
    }

    /// Looks up sockets one by one, `BATCH` requests per system call, and refreshes their
    /// rows. `wanted` holds ids with the row to refresh, `None` for a new row; `seen` is told
    /// the outcome of each.
    ///
    /// # Errors
    /// When the exchange fails; the socket is spent then.
    pub fn lookup(
        &mut self,
        buffers: &mut Buffers,
        ext: u8,
        wanted: &[(ExactId, Option<usize>)],
        sink: &mut InetSink<'_>,
        mut outcome: impl FnMut(&ExactId, Lookup),
    ) -> io::Result<()> {
        for batch in wanted.chunks(BATCH) {
            let first = self.seq.wrapping_add(1);
            buffers.tx.clear();
            for (id, _) in batch {
                let seq = self.next_seq();
                let request =
                    InetRequest { family: id.family(), proto: sink.proto, ext, states: u32::MAX };
                request.put_exact(&mut buffers.tx, seq, id);
            }
            self.send(&buffers.tx)?;
            let mut answered = 0;
            while answered < batch.len() {
                self.recv(&mut buffers.rx)?;
                for message in Messages::new(&buffers.rx) {
                    let (seq, result) = match message {
                        Message::Data(_, seq, payload) => (seq, Ok(payload)),
                        Message::Error(seq, errno) | Message::Done(seq, errno) => (seq, Err(errno)),
                    };
                    let Some((id, row)) = batch.get(seq.wrapping_sub(first) as usize) else {
                        continue;
                    };
                    answered += 1;
                    outcome(id, take_lookup(id, *row, result, sink));
                }
            }
        }
        Ok(())
    }
}

/// Errnos of a dump for which the kernel has no handler.
const NO_MODULE: [i32; 3] = [ENOENT, 93 /* EPROTONOSUPPORT */, 95 /* EOPNOTSUPP */];
const ENOENT: i32 = 2;
const EPROTO: i32 = 71;

fn take_lookup(
    id: &ExactId,
    row: Option<usize>,
    result: Result<&[u8], i32>,
    sink: &mut InetSink<'_>,
) -> Lookup {
    match result {
        Ok(payload) => match InetMsg::parse(payload) {
            Some(msg) if msg.cookie() == id.cookie => {
                sink.refresh(row, &msg);
                Lookup::Found
            }
            // Another socket has the addresses now.
            Some(_) => Lookup::Gone,
            None => {
                sink.bad += 1;
                Lookup::Failed(EPROTO)
            }
        },
        Err(ENOENT) => Lookup::Gone,
        Err(errno) => Lookup::Failed(errno),
    }
}

/// Looks up one socket, for tests and one-shot questions.
///
/// # Errors
/// When the exchange fails.
pub fn lookup_one(
    socket: &mut NlSocket,
    buffers: &mut Buffers,
    ext: u8,
    id: ExactId,
) -> io::Result<(Lookup, InetRows)> {
    let (mut rows, mut seen, mut marks) = (InetRows::default(), CookieMap::default(), Vec::new());
    seen.reset(1);
    let mut sink = InetSink {
        rows: &mut rows,
        seen: &mut seen,
        marks: &mut marks,
        subflows: false,
        proto: Proto::Tcp,
        bad: 0,
        twice: 0,
    };
    let mut found = Lookup::Failed(EPROTO);
    socket.lookup(buffers, ext, &[(id, None)], &mut sink, |_, outcome| found = outcome)?;
    Ok((found, rows))
}

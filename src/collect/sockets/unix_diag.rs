//! `unix_diag`: request and replies for UNIX sockets (`linux/unix_diag.h`, since 3.3).

use super::cookies::CookieMap;
use super::diag::SOCK_DIAG_BY_FAMILY;
use super::nlmsg::{self, Attrs, Message, Messages, Step};
use crate::sample::sockets::{SockState, UnixRows};

const AF_UNIX: u8 = 1;
const NAME: u16 = 0;
const PEER: u16 = 2;
const RQLEN: u16 = 4;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN`.
const SHOW: u32 = 1 | 4 | 16;
/// Length of `struct unix_diag_msg`.
const UNIX_MSG: usize = 16;
/// `sun_path` has 108 bytes.
const NAME_MAX: usize = 108;

/// Appends the request for a dump of all UNIX sockets.
pub fn put_dump(out: &mut Vec<u8>, seq: u32) {
    nlmsg::put_message(out, SOCK_DIAG_BY_FAMILY, nlmsg::F_REQUEST | nlmsg::F_DUMP, seq, |body| {
        body.extend_from_slice(&[AF_UNIX, 0, 0, 0]);
        body.extend_from_slice(&u32::MAX.to_ne_bytes());
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&SHOW.to_ne_bytes());
        body.extend_from_slice(&[0; 8]);
    });
}

/// Where replies go.
#[derive(Debug)]
pub struct UnixSink<'a> {
    /// The columns.
    pub rows: &'a mut UnixRows,
    /// Cookies of `rows`.
    pub seen: &'a mut CookieMap,
    /// Replies that were left out because they could not be read.
    pub bad: u32,
}

impl UnixSink<'_> {
    /// Takes one datagram of the answer to request `seq`.
    pub fn datagram(&mut self, bytes: &[u8], seq: u32) -> Step {
        let mut messages = Messages::new(bytes);
        for message in &mut messages {
            match message {
                Message::Data(SOCK_DIAG_BY_FAMILY, s, payload) if s == seq => {
                    self.bad += u32::from(self.reply(payload).is_none());
                }
                Message::Done(s, 0) if s == seq => return Step::Done,
                Message::Done(s, errno) | Message::Error(s, errno) if s == seq => {
                    return Step::Failed(errno);
                }
                _ => {}
            }
        }
        self.bad += u32::from(messages.torn());
        Step::More
    }

    fn reply(&mut self, payload: &[u8]) -> Option<()> {
        let head = payload.first_chunk::<UNIX_MSG>()?;
        let [family, kind, state, _, i0, i1, i2, i3, c0, c1, c2, c3, c4, c5, c6, c7] = *head;
        if family != AF_UNIX {
            return None;
        }
        let cookie = u64::from(u32::from_ne_bytes([c0, c1, c2, c3]))
            | u64::from(u32::from_ne_bytes([c4, c5, c6, c7])) << 32;
        if !self.seen.insert(cookie, &self.rows.cookie) {
            return Some(());
        }
        let mut row = UnixRow {
            cookie,
            inode: u32::from_ne_bytes([i0, i1, i2, i3]),
            kind,
            state: SockState(state),
            ..UnixRow::default()
        };
        for (kind, body) in Attrs(payload.get(UNIX_MSG..).unwrap_or_default()) {
            match kind {
                NAME => row.name = name_of(body),
                PEER => row.peer = word(body, 0),
                RQLEN => (row.rqueue, row.wqueue) = (word(body, 0), word(body, 4)),
                _ => {}
            }
        }
        self.rows.push(&row);
        Some(())
    }
}

/// A path is sent with its NUL, an abstract name begins with one and may hold more.
fn name_of(body: &[u8]) -> &[u8] {
    let body = body.get(..body.len().min(NAME_MAX)).unwrap_or_default();
    match body.first() {
        Some(0) | None => body,
        Some(_) => body.split(|b| *b == 0).next().unwrap_or_default(),
    }
}

fn word(body: &[u8], at: usize) -> u32 {
    body.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// One UNIX socket, on its way into the columns.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnixRow<'a> {
    /// Cookie.
    pub cookie: u64,
    /// Inode.
    pub inode: u32,
    /// `SOCK_*` type.
    pub kind: u8,
    /// State.
    pub state: SockState,
    /// Receive queue.
    pub rqueue: u32,
    /// Send queue.
    pub wqueue: u32,
    /// Inode of the peer.
    pub peer: u32,
    /// Raw name.
    pub name: &'a [u8],
}

impl UnixRows {
    /// Appends a socket.
    pub fn push(&mut self, row: &UnixRow<'_>) {
        self.cookie.push(row.cookie);
        self.inode.push(row.inode);
        self.kind.push(row.kind);
        self.state.push(row.state);
        self.rqueue.push(row.rqueue);
        self.wqueue.push(row.wqueue);
        self.peer.push(row.peer);
        self.names.extend_from_slice(row.name);
        self.name_end.push(self.names.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::collect::sockets::nlmsg::{put_attr, put_message};
    use proptest::prelude::*;

    fn reply(out: &mut Vec<u8>, inode: u32, attrs: &[(u16, &[u8])]) {
        put_message(out, SOCK_DIAG_BY_FAMILY, 2, 9, |b| {
            b.extend_from_slice(&[AF_UNIX, 1, 10, 0]);
            b.extend_from_slice(&inode.to_ne_bytes());
            b.extend_from_slice(&inode.to_ne_bytes());
            b.extend_from_slice(&1u32.to_ne_bytes());
            for (kind, body) in attrs {
                put_attr(b, *kind, body);
            }
        });
    }

    fn parse(bytes: &[u8]) -> (UnixRows, Step, u32) {
        let (mut rows, mut seen) = (UnixRows::default(), CookieMap::default());
        seen.reset(4);
        let mut sink = UnixSink { rows: &mut rows, seen: &mut seen, bad: 0 };
        let step = sink.datagram(bytes, 9);
        let bad = sink.bad;
        (rows, step, bad)
    }

    #[test]
    fn names_peers_and_queues_are_read() {
        let mut bytes = Vec::new();
        let queues = [3u32.to_ne_bytes(), 128u32.to_ne_bytes()].concat();
        reply(&mut bytes, 5, &[(NAME, b"/run/x.sock\0"), (RQLEN, &queues)]);
        reply(&mut bytes, 6, &[(NAME, b"\0abstract"), (PEER, &5u32.to_ne_bytes())]);
        reply(&mut bytes, 7, &[]);
        reply(&mut bytes, 6, &[]);
        let (rows, step, bad) = parse(&bytes);
        assert_eq!((step, bad, rows.len()), (Step::More, 0, 3));
        assert_eq!(rows.name(0), b"/run/x.sock");
        assert_eq!((rows.rqueue[0], rows.wqueue[0]), (3, 128));
        assert_eq!(rows.name(1), b"\0abstract");
        assert_eq!(rows.peer, [0, 5, 0]);
        assert_eq!(rows.name(2), b"");
        assert_eq!(rows.cookie[2], 7 | 1 << 32);
    }

    #[test]
    fn the_request_is_the_kernels_struct() {
        let mut out = Vec::new();
        put_dump(&mut out, 9);
        assert_eq!(out.len(), 16 + 24);
        assert_eq!(out[28..32], SHOW.to_ne_bytes());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let (rows, ..) = parse(&bytes);
            prop_assert_eq!(rows.len(), rows.name_end.len());
        }

        #[test]
        fn a_cut_anywhere_gives_a_shorter_table(cut in 0usize..140) {
            let mut bytes = Vec::new();
            reply(&mut bytes, 5, &[(NAME, b"/run/x.sock")]);
            reply(&mut bytes, 6, &[(PEER, &5u32.to_ne_bytes())]);
            let whole = parse(&bytes).0;
            let part = parse(&bytes[..cut.min(bytes.len())]).0;
            prop_assert!(part.len() <= whole.len());
            prop_assert_eq!(&part.inode[..], &whole.inode[..part.len()]);
        }
    }
}

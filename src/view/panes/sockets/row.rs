//! A row of the pane: which socket, UNIX socket or group it is.

use super::{group, unix};
use crate::metrics::sockets::Suspect;
use crate::sample::sockets::{NetnsTable, Owner, TcpInfo};
use crate::sample::subject::SockId;
use crate::view::context::Cx;
use crate::view::state::RowKey;

/// A row: table of the context, index in the table. UNIX rows are numbered after the others, and
/// groups have a table of their own.
#[derive(Clone, Copy, Debug)]
pub struct SockRow {
    /// Index into `Cx::tables`.
    pub table: u16,
    /// Index into its `inet` rows; from their number on, into its `unix` rows.
    pub row: u32,
}

impl SockRow {
    /// The table and the index of its row, which exists and is not a UNIX socket.
    #[must_use]
    pub fn get<'a>(self, cx: &Cx<'a>) -> Option<(&'a NetnsTable, usize)> {
        let t = *cx.tables.get(usize::from(self.table))?;
        let i = self.row as usize;
        (i < t.inet.len()).then_some((t, i))
    }
    /// The table and the index of its UNIX row, which exists.
    #[must_use]
    pub fn unix<'a>(self, cx: &Cx<'a>) -> Option<(&'a NetnsTable, usize)> {
        let t = *cx.tables.get(usize::from(self.table))?;
        let i = (self.row as usize).checked_sub(t.inet.len())?;
        (i < t.unix.len()).then_some((t, i))
    }
    /// What to ask the collector for while the row is on the screen: `tcp_info` by the id (UNIX
    /// sockets have none), the owner by the inode.
    #[must_use]
    pub fn asked(self, cx: &Cx<'_>) -> Option<(SockId, u32)> {
        if let Some((t, i)) = self.unix(cx) {
            return Some((SockId { netns: t.netns, cookie: 0 }, t.unix.inode[i]));
        }
        if let Some(g) = group::get(cx, self) {
            return Some((SockId { netns: g.netns, cookie: 0 }, g.inode));
        }
        self.get(cx).map(|(t, i)| (t.id(i), t.inet.inode[i]))
    }
    /// `tcp_info` of this tick, or the last one read.
    #[must_use]
    pub fn info(self, cx: &Cx<'_>) -> Option<TcpInfo> {
        let (t, i) = self.get(cx)?;
        t.inet.tcp_info(i).copied().or_else(|| self.suspect(cx)?.info)
    }
    /// What is known if the socket is tracked.
    #[must_use]
    pub fn suspect<'a>(self, cx: &Cx<'a>) -> Option<&'a Suspect> {
        let (t, i) = self.get(cx)?;
        cx.suspects.get(t.id(i)).map(|s| &**s)
    }
    /// The process that owns it.
    #[must_use]
    pub fn owner<'a>(self, cx: &Cx<'a>) -> Option<&'a Owner> {
        if let Some((t, i)) = self.unix(cx) {
            return t.owner(t.unix.inode[i]);
        }
        if let Some(g) = group::get(cx, self) {
            return g.owner.as_ref();
        }
        let (t, i) = self.get(cx)?;
        t.owner(t.inet.inode[i]).or_else(|| self.suspect(cx)?.owner.as_ref())
    }
}

/// Identity of a row. Rows without a cookie (`/proc/net`) are distinguished by what they connect.
#[must_use]
pub fn key_of(t: &NetnsTable, i: usize) -> RowKey {
    let id = t.id(i);
    let r = &t.inet;
    let alt = if id.cookie == 0 {
        // FNV-1a over the tuple.
        let mut h = 0xcbf2_9ce4_8422_2325_u64;
        let bytes = r.local[i].into_iter().chain(r.remote[i]);
        let bytes = bytes.chain(r.lport[i].to_ne_bytes()).chain(r.rport[i].to_ne_bytes());
        for b in bytes.chain(r.inode[i].to_ne_bytes()).chain([r.proto[i] as u8]) {
            h = (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
        h
    } else {
        0
    };
    RowKey::Socket(id, alt)
}

/// Finds a socket in this moment.
#[must_use]
pub fn find(cx: &Cx<'_>, id: SockId, alt: u64) -> Option<SockRow> {
    let (ti, t) = cx.tables.iter().enumerate().find(|(_, t)| t.netns == id.netns)?;
    let row = if id.cookie == 0 {
        (0..t.inet.len()).find(|i| key_of(t, *i) == RowKey::Socket(id, alt))?
    } else if unix::is_key(alt) {
        let key = RowKey::Socket(id, alt);
        t.inet.len() + (0..t.unix.len()).find(|i| unix::key_of(t, *i) == key)?
    } else {
        t.inet.find(id.cookie)?
    };
    Some(SockRow { table: ti as u16, row: row as u32 })
}

//! Which sockets dropped what they received: `d` of socket memory (since 4.7), from reading to
//! reading. Only the sockets that ever dropped anything are remembered.

use super::SkMemWords;
use crate::sample::sockets::{NetnsTable, Owner, Proto, SockState};
use crate::sample::subject::{Endpoint, SockId};

/// Sockets named per reading of a namespace, those with most drops.
const MAX_NAMED: usize = 16;

/// A socket that dropped packets in the last interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropper {
    /// The socket.
    pub id: SockId,
    /// Protocol.
    pub proto: Proto,
    /// State.
    pub state: SockState,
    /// Local endpoint.
    pub local: Endpoint,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// Process that holds it, where known.
    pub owner: Option<Owner>,
    /// Socket memory.
    pub skmem: SkMemWords,
    /// Packets dropped since the previous reading.
    pub drops: u32,
}

/// `d` of the sockets of one namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct DropTracker {
    /// Cookie and `d` at the previous reading, sorted.
    last: Vec<(u64, u32)>,
    next: Vec<(u64, u32, u32)>,
    read: bool,
}

impl DropTracker {
    /// Bytes that it holds, about.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.last.as_slice()) + size_of_val(self.next.as_slice())
    }

    /// A row of the reading under way.
    #[inline]
    pub(super) fn row(&mut self, cookie: u64, d: u32, i: usize) {
        if d > 0 {
            self.next.push((cookie, d, i as u32));
        }
    }

    /// Ends a reading; adds the sockets that dropped most since the previous one.
    pub(super) fn finish(&mut self, space: &NetnsTable, out: &mut Vec<Dropper>) {
        self.next.sort_unstable();
        let mut grown: Vec<(u32, u32)> = Vec::new();
        let mut old = self.last.iter().peekable();
        for (cookie, d, i) in &self.next {
            while old.next_if(|o| o.0 < *cookie).is_some() {}
            // A socket that had none before, or is new: all of them are of this interval.
            let before = old.peek().filter(|o| o.0 == *cookie).map_or(0, |o| o.1);
            let delta = d.wrapping_sub(before);
            if self.read && delta > 0 && delta < u32::MAX / 2 {
                grown.push((delta, *i));
            }
        }
        self.last.clear();
        self.last.extend(self.next.drain(..).map(|(cookie, d, _)| (cookie, d)));
        self.read = true;
        grown.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        grown.truncate(MAX_NAMED);
        out.extend(grown.into_iter().map(|(drops, i)| dropper(space, i as usize, drops)));
    }
}

fn dropper(space: &NetnsTable, i: usize, drops: u32) -> Dropper {
    let rows = &space.inet;
    Dropper {
        id: space.id(i),
        proto: rows.proto[i],
        state: rows.state[i],
        local: rows.local_endpoint(i),
        remote: rows.remote_endpoint(i),
        owner: space.owner(rows.inode[i]).cloned(),
        skmem: SkMemWords { words: rows.skmem[i], len: rows.skmem_words[i].min(9) },
        drops,
    }
}

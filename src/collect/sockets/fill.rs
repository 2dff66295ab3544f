//! How replies of the kernel become rows.

use super::diag::InetMsg;
use crate::sample::sockets::{InetRows, NO_INFO, Proto, SockState, TcpInfo};

impl InetRows {
    /// Appends the socket that a reply describes.
    #[inline]
    pub fn push(&mut self, msg: &InetMsg<'_>, proto: Proto) {
        let (skmem, skmem_words) = msg.skmem_words();
        self.cookie.push(msg.cookie());
        self.proto.push(proto);
        self.state.push(msg.state());
        self.timer.push(msg.timer());
        self.retrans.push(msg.retrans());
        self.expires_ms.push(msg.expires_ms());
        self.rqueue.push(msg.rqueue());
        self.wqueue.push(msg.wqueue());
        self.local.push(msg.local());
        self.remote.push(msg.remote());
        self.lport.push(msg.lport());
        self.rport.push(msg.rport());
        self.ifindex.push(msg.ifindex());
        self.uid.push(msg.uid());
        self.inode.push(msg.inode());
        self.cgroup.push(msg.cgroup);
        self.skmem.push(skmem);
        self.skmem_words.push(skmem_words);
        let info = self.keep_info(msg, proto).unwrap_or(NO_INFO);
        self.info.push(info);
    }
    /// Overwrites what changes in the life of a socket, so that row `i` and its `tcp_info`
    /// are of the same moment.
    pub fn replace(&mut self, i: usize, msg: &InetMsg<'_>, proto: Proto) {
        let (skmem, skmem_words) = msg.skmem_words();
        set(&mut self.state, i, msg.state());
        set(&mut self.timer, i, msg.timer());
        set(&mut self.retrans, i, msg.retrans());
        set(&mut self.expires_ms, i, msg.expires_ms());
        set(&mut self.rqueue, i, msg.rqueue());
        set(&mut self.wqueue, i, msg.wqueue());
        set(&mut self.uid, i, msg.uid());
        set(&mut self.inode, i, msg.inode());
        set(&mut self.skmem, i, skmem);
        set(&mut self.skmem_words, i, skmem_words);
        if let Some(info) = self.keep_info(msg, proto) {
            set(&mut self.info, i, info);
        }
    }
    /// Keeps a reply's `tcp_info`. MPTCP sends another struct under the same number, and of a
    /// listener it holds nothing that the row does not.
    #[inline]
    fn keep_info(&mut self, msg: &InetMsg<'_>, proto: Proto) -> Option<u32> {
        if msg.info.is_empty() || proto != Proto::Tcp || msg.state() == SockState::LISTEN {
            return None;
        }
        self.infos.push(TcpInfo::from_bytes(msg.info));
        Some(self.infos.len() as u32 - 1)
    }
}

fn set<T>(column: &mut [T], i: usize, value: T) {
    if let Some(cell) = column.get_mut(i) {
        *cell = value;
    }
}

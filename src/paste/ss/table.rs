//! A snapshot as the collector would have read it.
//!
//! What `ss` was not asked for is inferred from what it did print, if the kernel leaves only one
//! possibility: without `-o`, a connection that backs off with data in flight runs its
//! retransmission timer, and one that backs off with nothing in flight probes a window.

use std::collections::HashSet;

use super::info::Info;
use super::socket::Socket;
use crate::sample::sockets::{InetRows, NO_INFO, NetnsTable, Owner, SockState, SockTimer};
use crate::sample::subject::NetnsId;
use crate::sample::time::{MonoNs, Span};

/// uid of sockets whose owner was not printed; the kernel never gives this one.
const NO_UID: u32 = u32::MAX;
/// Where no inode was printed, one is made up from here on, because 0 means "orphan".
const MADE_UP: u32 = 0x8000_0000;

/// The rows as columns. `top`: end of the newest field of `tcp_info` that any of them shows.
pub(super) fn build(sockets: &[Socket], top: usize, at: MonoNs) -> NetnsTable {
    let mut rows = InetRows::default();
    rows.reserve(sockets.len());
    let mut owners = Vec::new();
    // Commands with -o: no printed timer means that none runs.
    let timers: HashSet<u32> =
        sockets.iter().filter(|s| s.timer.is_some()).map(|s| s.run).collect();
    let known = Info::known(top);
    for (i, s) in sockets.iter().enumerate() {
        let (timer, expires, times) = s.timer.unwrap_or_else(|| {
            if timers.contains(&s.run) { (SockTimer::OFF, 0, 0) } else { told(s) }
        });
        let inode = s.inode.unwrap_or(MADE_UP | (i as u32 & !MADE_UP));
        if let Some((pid, comm)) = &s.owner
            && (s.wqueue > 0 || s.rqueue > 0 || timer != SockTimer::OFF)
            && owners.len() < 4000
        {
            owners.push(Owner::new(inode, *pid, comm.clone()));
        }
        rows.cookie.push(s.cookie);
        rows.proto.push(s.proto);
        rows.state.push(s.state);
        rows.timer.push(timer);
        rows.retrans.push(times);
        rows.expires_ms.push(expires);
        rows.rqueue.push(s.rqueue);
        rows.wqueue.push(s.wqueue);
        rows.local.push(s.local);
        rows.remote.push(s.remote);
        rows.lport.push(s.lport);
        rows.rport.push(s.rport);
        rows.ifindex.push(0);
        // ss leaves out uid 0 if it prints inodes.
        rows.uid.push(s.uid.unwrap_or(if s.inode.is_some() { 0 } else { NO_UID }));
        rows.inode.push(inode);
        rows.cgroup.push(0);
        rows.skmem.push(s.skmem);
        rows.skmem_words.push(s.skmem_words);
        rows.info.push(match &s.info {
            Some(info) if s.state != SockState::LISTEN => {
                rows.infos.push(block(info, timer, times, known));
                (rows.infos.len() - 1) as u32
            }
            _ => NO_INFO,
        });
    }
    NetnsTable {
        netns: NetnsId(0),
        label: "host".to_owned(),
        span: Span::at(at),
        inet: rows,
        owners,
        ..NetnsTable::default()
    }
}

fn block(
    info: &Info,
    timer: SockTimer,
    times: u8,
    known: usize,
) -> crate::sample::sockets::TcpInfo {
    let (retransmits, probes) = match timer {
        SockTimer::ON => (times, 0),
        SockTimer::PERSIST => (0, times),
        _ => (0, 0),
    };
    // Probes are answered (their count stays 0 while they back off) and nothing is in flight: the
    // peer is alive and takes nothing. ss prints `snd_wnd` only above 0.
    let answered = timer == SockTimer::PERSIST && times == 0 && info.backoff() >= 2;
    let closed = answered && info.unacked() == 0;
    let known = Info::closed(known).filter(|_| closed).unwrap_or(known);
    info.block(known, retransmits, probes)
}

/// Which timer runs, ms to its firing, and how often it fired, where `-o` was not given.
fn told(s: &Socket) -> (SockTimer, u32, u8) {
    let Some(i) = &s.info else { return (SockTimer::OFF, 0, 0) };
    if s.state == SockState::SYN_SENT && i.total_retrans() > 0 {
        return (SockTimer::ON, 0, i.total_retrans().min(255) as u8);
    }
    match (i.backoff(), i.unacked()) {
        (0, _) => (SockTimer::OFF, 0, 0),
        // Each consecutive RTO doubles; only those of thin streams and SYNs do not. If something
        // was sent since the timer was set, it was by its last firing.
        (n, 1..) => (SockTimer::ON, i.rto_ms().saturating_sub(i.last_sent_ms()), n),
        // A probe that finds an open window ends the probing, unless no probe gets out.
        (n, 0) if s.wqueue > 0 => (SockTimer::PERSIST, 0, if i.snd_wnd() > 0 { n } else { 0 }),
        _ => (SockTimer::OFF, 0, 0),
    }
}

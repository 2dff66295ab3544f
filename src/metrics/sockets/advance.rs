//! One followed socket, one tick further.

use std::time::Duration;

use super::super::rate::{grown, grown32};
use super::{KEEP, MAX_EVENTS, NetGrowth, SkMemWords, Suspect, TimerEvent, TimerKind};
use crate::sample::sockets::{NetnsTable, Proto, SockState, SockTimer, TcpInfo};
use crate::sample::subject::SockId;
use crate::sample::time::MonoNs;

/// The socket as of now, given what was known before. `None` when it has been healthy for a
/// while and has nothing to remember.
pub(super) fn advance(
    before: Option<&Suspect>,
    space: &NetnsTable,
    i: usize,
    (id, at): (SockId, MonoNs),
    odd: bool,
    inbound: bool,
) -> Option<Suspect> {
    let mut now = first(space, i, (id, at), inbound);
    let Some(p) = before else { return Some(now) };
    now.first_seen = p.first_seen;
    now.inbound |= p.inbound;
    if !odd {
        now.troubled_at = p.troubled_at;
    }
    now.owner = now.owner.or_else(|| p.owner.clone());
    now.drops = p.skmem.d().zip(now.skmem.d()).map(|(a, b)| grown32(a, b));
    now.persist_since = now.persist_since.map(|t| p.persist_since.unwrap_or(t));
    now.unread_since = match (p.unread_since, now.unread_since) {
        (Some(old), Some(_)) if now.rqueue >= p.rqueue && !was_read(p, &now) => Some(old),
        (_, new) => new,
    };
    now.zero_window_since = match (now.timer == SockTimer::PERSIST, now.info.is_some()) {
        (true, true) => now.zero_window_since.map(|t| p.zero_window_since.unwrap_or(t)),
        (true, false) => p.zero_window_since,
        (false, _) => None,
    };
    let progressed = compare_infos(p, &mut now);
    if !progressed {
        now.route = now.route.or_else(|| p.route.clone());
        now.events.clone_from(&p.events);
        if let Some(e) = timer_event(p, &now, at) {
            if now.events.len() == MAX_EVENTS {
                now.events.remove(0);
            }
            now.events.push(e);
        }
    }
    let calm = !odd && now.events.is_empty();
    (!calm || at.since(now.troubled_at) < KEEP).then_some(now)
}

/// The socket as one look at it shows it.
fn first(space: &NetnsTable, i: usize, (id, at): (SockId, MonoNs), inbound: bool) -> Suspect {
    let rows = &space.inet;
    // An MPTCP row's info is mptcp_info: another structure.
    let info = rows.tcp_info(i).copied().filter(|_| rows.proto[i] == Proto::Tcp);
    let persist = rows.timer[i] == SockTimer::PERSIST;
    let zero_window = info.and_then(|i| i.snd_wnd()) == Some(0);
    Suspect {
        id,
        proto: rows.proto[i],
        local: rows.local_endpoint(i),
        remote: rows.remote_endpoint(i),
        state: rows.state[i],
        timer: rows.timer[i],
        retrans: rows.retrans[i],
        expires_ms: rows.expires_ms[i],
        rqueue: rows.rqueue[i],
        wqueue: rows.wqueue[i],
        inode: rows.inode[i],
        uid: rows.uid[i],
        cgroup: rows.cgroup[i],
        skmem: SkMemWords { words: rows.skmem[i], len: rows.skmem_words[i].min(9) },
        info,
        owner: space.owner(rows.inode[i]).cloned(),
        route: space.route(rows.cookie[i]).cloned(),
        inbound,
        first_seen: at,
        seen_at: at,
        troubled_at: at,
        info_at: info.map(|_| at),
        acked_flat_since: info.and_then(|i| i.bytes_acked()).map(|_| at),
        segs_out_flat_since: info.and_then(|i| i.segs_out()).map(|_| at),
        persist_since: persist.then_some(at),
        zero_window_since: (persist && zero_window).then_some(at),
        unread_since: (rows.rqueue[i] > 0 && rows.state[i] != SockState::LISTEN).then_some(at),
        events: Vec::new(),
        rwnd_limited: None,
        drops: None,
        flow: None,
        missing_since: None,
    }
}

/// Has the application taken bytes since the last look? A queue that is full each time we
/// look may be emptied in between: then more came in than it grew by.
fn was_read(p: &Suspect, now: &Suspect) -> bool {
    let received = |s: &Suspect| s.info.filter(|_| s.info_at == Some(s.seen_at))?.bytes_received();
    let came = received(p).zip(received(now)).and_then(|(a, b)| grown(a, b));
    came.is_some_and(|n| n > u64::from(now.rqueue.saturating_sub(p.rqueue)))
}

/// Fills what follows from two `tcp_info` blocks; true when data was acknowledged in between.
fn compare_infos(p: &Suspect, now: &mut Suspect) -> bool {
    let Some(new) = now.info else {
        // Not read this time: what was known stays known. Only an ACK shortens the queue.
        now.info = p.info;
        now.info_at = p.info_at;
        now.acked_flat_since = p.acked_flat_since;
        now.segs_out_flat_since = p.segs_out_flat_since;
        return now.wqueue < p.wqueue;
    };
    let Some(old) = p.info else { return now.wqueue < p.wqueue };
    let flat = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a == b);
    // While nothing was outstanding there was nothing to acknowledge.
    if flat(old.bytes_acked(), new.bytes_acked()) && p.wqueue > 0 {
        now.acked_flat_since = p.acked_flat_since;
    }
    if flat(old.segs_out().map(u64::from), new.segs_out().map(u64::from)) {
        now.segs_out_flat_since = p.segs_out_flat_since;
    }
    if let (Some(a), Some(b), Some(then), Some(at)) =
        (old.rwnd_limited_us(), new.rwnd_limited_us(), p.info_at, now.info_at)
    {
        now.rwnd_limited = grown(a, b).map(|us| (Duration::from_micros(us), at.since(then)));
    }
    match (old.bytes_acked(), new.bytes_acked()) {
        (Some(a), Some(b)) => b != a,
        // Before 4.1: an ACK of new data resets the counter of RTOs.
        _ => {
            now.wqueue < p.wqueue
                || old.retransmits().zip(new.retransmits()).is_some_and(|(a, b)| b < a)
        }
    }
}

/// The firing of the timer between two looks, if there was one.
fn timer_event(p: &Suspect, now: &Suspect, at: MonoNs) -> Option<TimerEvent> {
    let fresh = now.info_at == Some(at);
    if p.info.is_some() && !fresh {
        // The next tcp_info will tell how often the timer fired and what left the host with
        // it; counting by the header now would count those firings twice.
        return None;
    }
    // Inside one tcp_info block retransmits and segs_out belong together; the dump's header
    // may be older than the block by some ms.
    let infos = p.info.zip(now.info).filter(|_| fresh);
    let rise = |a: Option<u8>, b: Option<u8>| Some(u32::from(b?.saturating_sub(a?)));
    let (kind, count) = match now.timer {
        SockTimer::ON if now.state != SockState::LISTEN => {
            let by_total = infos
                .and_then(|(a, b)| Some(u32::from(b.total_rto()?.wrapping_sub(a.total_rto()?))));
            let by_info = infos.and_then(|(a, b)| rise(a.retransmits(), b.retransmits()));
            let before = if p.timer == SockTimer::ON { p.retrans } else { 0 };
            let by_header = u32::from(now.retrans.saturating_sub(before));
            (TimerKind::Rto, by_total.filter(|n| *n > 0).or(by_info).unwrap_or(by_header))
        }
        SockTimer::PERSIST if p.timer == SockTimer::PERSIST => {
            let by_backoff = infos.and_then(|(a, b)| rise(a.backoff(), b.backoff())).unwrap_or(0);
            let by_probes = u32::from(now.retrans.saturating_sub(p.retrans));
            // A live peer answers each probe, which resets the count: then only the timer's
            // restart shows that it fired.
            let restarted = u32::from(now.expires_ms > p.expires_ms);
            (TimerKind::Probe, by_backoff.max(by_probes).max(restarted))
        }
        _ => return None,
    };
    let d32 =
        |f: fn(&TcpInfo) -> Option<u32>| infos.and_then(|(a, b)| Some(grown32(f(&a)?, f(&b)?)));
    (count > 0).then(|| TimerEvent {
        at,
        after: if infos.is_some() { p.as_of() } else { p.seen_at },
        kind,
        count,
        segs_out: d32(TcpInfo::segs_out),
        data_segs_out: d32(TcpInfo::data_segs_out),
        total_retrans: d32(TcpInfo::total_retrans),
        bytes_acked: infos.and_then(|(a, b)| grown(a.bytes_acked()?, b.bytes_acked()?)),
        t: now.skmem.t(),
        net: NetGrowth::default(),
    })
}

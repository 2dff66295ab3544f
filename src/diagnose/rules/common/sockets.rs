//! One cause per socket. The five rules about stalled connections share this ladder, so that no
//! socket is in two findings: kernel bug > silent RTO > local drop > zero window > RTO storm.
//!
//! The ladder asks where the packet is. RTOs fire but `data_segs_out` stays flat: it never left
//! TCP. Retransmissions leave TCP but the local stack refuses them (`TCPRetransFail`), or probes
//! with data leave while nothing is in flight: this host drops it. They leave the host and no
//! answer comes: the network or the peer. The window is closed: the peer does not read.
//!
//! Timer events are counted, not seconds, because RTOs are up to two minutes apart. A socket with
//! no event observed yet can still be *suspected*: `last_data_sent` shows whether the last RTO sent
//! anything.

use std::time::Duration;

use super::super::super::{Confidence, Thresholds, Window};
use super::release::{Release, tb_lt_w_bug};
use crate::metrics::sockets::{Suspect, TimerEvent, TimerKind};
use crate::sample::sockets::{RouteOutcome, SockTimer};
use crate::sample::tick::Tick;
use crate::sample::time::MonoNs;

/// Timer events that must agree before a verdict is confirmed.
const EVENTS: u32 = 2;
/// Consecutive RTOs before a connection counts as retransmitting without an answer.
pub(crate) const STORM_RTOS: u8 = 3;
/// A closed window is reported as info after this ...
pub(crate) const ZERO_WINDOW_EARLY: Duration = Duration::from_secs(3);
/// ... and as a stall after this.
pub(crate) const ZERO_WINDOW: Duration = Duration::from_secs(5);
/// If one retransmission in this many or more is refused, it is unclear whose they are.
const MIXED: u64 = 10;
/// Slack between the timer and `last_data_sent`, ms: a jiffy plus a delayed dump.
const CLOCK_SLACK_MS: u32 = 300;

/// Why a connection makes no progress.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// `tcp_fragment()` refuses to retransmit: the bug of 4.19.52 to 4.19.61.
    Frozen {
        /// Growth of `TCPWqueueTooBig` around the RTOs; `None` when only suspected.
        too_big: Option<u64>,
    },
    /// RTOs fire, but nothing leaves TCP.
    Silent(Silence),
    /// This host refuses its own packets.
    LocalDrop(LocalDrop),
    /// The peer's window is closed.
    ZeroWindow {
        /// Minimum duration.
        stalled: Duration,
    },
    /// Packets leave, no answer comes.
    Storm,
    // The rest is not on the ladder: causes of rules for sockets that those five leave alone.
    /// SYNs leave, no answer comes.
    NoAnswer,
    /// Keepalive probes leave, no answer comes.
    Gone,
    /// The local application does not read.
    Unread,
    /// A buffer limits throughput, not the path.
    Limited(Limit),
    /// A queue on this host inflates the RTT.
    Bloat,
}

/// Which buffer limits a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The peer's receive window.
    Window,
    /// Our send buffer.
    SendBuffer,
}

/// What keeps a retransmission from leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Silence {
    /// The route lookup fails with this errno.
    NoRoute(i32),
    /// The original is still in the qdisc or driver.
    QdiscOrNic,
    /// None of these.
    Unknown,
}

/// How a local drop shows up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalDrop {
    /// Persist timer with an open window and nothing in flight: no packet ever left.
    Persist,
    /// `TCPRetransFail` grows with each RTO: the drop began mid-flight.
    Retransmit {
        /// Growth of `TCPRetransFail` around the RTOs.
        failed: u64,
    },
}

/// A socket with its cause.
#[derive(Clone, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) socket: &'a Suspect,
    pub(crate) cause: Cause,
    pub(crate) confidence: Confidence,
    /// What is not known.
    pub(crate) missing: Vec<&'static str>,
}

impl<'a> Case<'a> {
    pub(crate) fn sure(socket: &'a Suspect, cause: Cause) -> Self {
        Self { socket, cause, confidence: Confidence::Confirmed, missing: Vec::new() }
    }
    pub(crate) fn suspected(socket: &'a Suspect, cause: Cause, missing: &'static str) -> Self {
        Self { socket, cause, confidence: Confidence::Suspected, missing: vec![missing] }
    }
    /// When the connection stopped making progress, as far as known.
    pub(crate) fn since(&self, now: MonoNs) -> MonoNs {
        match self.cause {
            Cause::ZeroWindow { stalled } => now.back(stalled),
            Cause::Unread => self.socket.unread_since.unwrap_or(now),
            // The engine tracks when it began.
            Cause::Limited(_) | Cause::Bloat => now,
            _ => self.socket.stalled_since().unwrap_or(self.socket.first_seen),
        }
    }
}

/// The causes of all stuck sockets, ordered by socket id.
pub(crate) fn cases<'a>(w: &Window<'a>, t: &'a Thresholds) -> impl Iterator<Item = Case<'a>> {
    let w = *w;
    w.derived.sockets.suspects.iter().filter_map(move |s| classify(&w, t, s))
}

/// The cause of one socket.
pub(crate) fn classify<'a>(w: &Window<'_>, t: &Thresholds, s: &'a Suspect) -> Option<Case<'a>> {
    if !s.state.may_send() || is_gone(w, s) {
        return None;
    }
    match s.timer {
        SockTimer::ON => rto_cause(w, t, s),
        SockTimer::PERSIST => persist_cause(w, s),
        _ => None,
    }
}

/// Is the socket gone? A single dump may miss it; after two it is gone.
pub(crate) fn is_gone(w: &Window<'_>, s: &Suspect) -> bool {
    s.missing_since.is_some_and(|m| w.tick.mono.since(m) * 2 > w.host.interval * 3)
}

/// Certainly nothing left the host with this event.
fn silent(e: &TimerEvent) -> bool {
    e.data_segs_out.or(e.segs_out) == Some(0) && e.total_retrans == Some(0)
}

/// `TCPWqueueTooBig` was read after this event and had not grown.
fn never_too_big(e: &TimerEvent) -> bool {
    e.net.is_settled() && e.net.wqueue_too_big == Some(0)
}

/// Is it still undecided whether the kernel refuses to fragment? It may have the bug and it counts
/// refusals, but the counter was not read since an RTO that sent nothing. Pasted text has no later
/// reading.
fn waits(w: &Window<'_>, t: &Thresholds, s: &Suspect) -> bool {
    if t.single_sample
        || tb_lt_w_bug(&w.host.kernel) == Release::Fixed
        || too_big_ever(w, s) == Some(0)
    {
        return false;
    }
    let mut silent = s.events.iter().filter(|e| silent(e)).peekable();
    match silent.peek() {
        None => too_big_ever(w, s).is_none() && counted_lately(w, s),
        Some(_) => {
            silent.clone().any(|e| e.net.wqueue_too_big.is_some())
                && !silent.any(|e| e.net.is_settled())
        }
    }
}

/// Was `TCPWqueueTooBig` read in the last few ticks?
fn counted_lately(w: &Window<'_>, s: &Suspect) -> bool {
    w.history.back_from(w.tick.seq).take(30).any(|m| too_big_at(&m.tick, s).is_some())
}

fn left(e: &TimerEvent) -> bool {
    e.total_retrans.is_some_and(|n| n > 0)
}

fn rto_cause<'a>(w: &Window<'_>, t: &Thresholds, s: &'a Suspect) -> Option<Case<'a>> {
    let quiet: Vec<&TimerEvent> = s.trailing(TimerKind::Rto, silent).collect();
    if quiet.iter().map(|e| e.count).sum::<u32>() >= EVENTS {
        return silent_cause(s, &quiet, waits(w, t, s));
    }
    let leaving = s.trailing(TimerKind::Rto, |_| true).take(2).any(left);
    if leaving && s.retransmits() >= STORM_RTOS {
        return match refused(t, s) {
            None => storm(w, t, s),
            Some((drop, events)) if events >= EVENTS => Some(Case::sure(s, Cause::LocalDrop(drop))),
            Some((drop, _)) => {
                let why = "whether all RTOs fail on this host (only one was seen)";
                Some(Case::suspected(s, Cause::LocalDrop(drop), why))
            }
        };
    }
    if s.retransmits() < STORM_RTOS || leaving {
        return None;
    }
    if s.info.is_none() {
        let why = "whether retransmissions leave this host (no tcp_info)";
        return Some(Case::suspected(s, Cause::Storm, why));
    }
    one_sample(w, t, s)
}

/// Are the counters around this event final? They were read after it, or there are none, or no
/// later sample will come.
fn is_ripe(t: &Thresholds, e: &TimerEvent) -> bool {
    t.single_sample || e.net.is_settled() || e.net.retrans_fail.is_none()
}

/// What is not known while `TCPRetransFail` may cover this socket's retransmissions.
const UNREFUSED: &str = "whether this host refuses some of them (TCPRetransFail)";

/// Counters of each namespace are read within so many intervals, as a rule.
const COUNTERS_DUE: u32 = 4;

/// Retransmissions leave and no answer comes. There is no verdict until the counters show whether
/// this host refuses them. It is only suspected if the counters are not read, or while this host
/// refuses some: around an early RTO the counters include other sockets too.
fn storm<'a>(w: &Window<'_>, t: &Thresholds, s: &'a Suspect) -> Option<Case<'a>> {
    let all: Vec<&TimerEvent> = s.trailing(TimerKind::Rto, |_| true).collect();
    let Some(newest) = all.first() else { return Some(Case::sure(s, Cause::Storm)) };
    let last = all.iter().find(|e| is_ripe(t, e))?;
    let why = UNREFUSED;
    let told: u32 = all.iter().filter(|e| is_ripe(t, e)).map(|e| e.count).sum();
    if !is_ripe(t, newest) && told < STORM_RTOS.into() {
        // What the counters said of the first ones need not hold for those that followed: our own
        // firewall may have closed since.
        let is_due = w.tick.mono.since(newest.at) <= w.host.interval * COUNTERS_DUE;
        return (!is_due).then(|| Case::suspected(s, Cause::Storm, why));
    }
    let young = w.tick.mono.since(last.at) <= w.host.interval * 2;
    Some(match (last.net.retrans_fail, last.net.retrans_segs) {
        (None, _) if young => Case::suspected(s, Cause::Storm, why),
        (Some(failed), Some(all)) if failed > 0 && failed.saturating_mul(MIXED) >= all => {
            Case::suspected(s, Cause::Storm, why)
        }
        (known, _) => {
            let mut case = Case::sure(s, Cause::Storm);
            if known.is_none() {
                case.missing.push(why);
            }
            case
        }
    })
}

/// Two or more RTOs sent nothing.
fn silent_cause<'a>(s: &'a Suspect, quiet: &[&TimerEvent], waits: bool) -> Option<Case<'a>> {
    let grown = |f: fn(&TimerEvent) -> Option<u64>| quiet.iter().filter_map(|e| f(e)).max();
    let too_big = grown(|e| e.net.wqueue_too_big);
    let frozen = over_half(s) && s.skmem.t() == Some(0);
    if frozen && too_big.is_some_and(|n| n > 0) {
        return Some(Case::sure(s, Cause::Frozen { too_big }));
    }
    if frozen && waits {
        return None;
    }
    let in_host = grown(|e| e.net.host_queues).is_some_and(|n| n > 0);
    let mut case = Case::sure(s, Cause::Silent(silence(s, in_host)));
    if over_half(s) && too_big.is_none() {
        case.missing.push("whether the kernel bug of 4.19.52 froze it (no TCPWqueueTooBig)");
    }
    if case.cause == Cause::Silent(Silence::Unknown) && s.route.is_none() {
        case.missing.push("whether a route to the peer exists (no route lookup)");
    }
    Some(case)
}

fn silence(s: &Suspect, in_host: bool) -> Silence {
    if let Some(RouteOutcome::Errno(e)) = &s.route {
        return Silence::NoRoute(*e);
    }
    let below_tcp = s.skmem.t().is_some_and(|t| t > 0);
    if below_tcp || in_host { Silence::QdiscOrNic } else { Silence::Unknown }
}

/// `w/2 > tb`: the condition under which the buggy kernel refuses to fragment.
fn over_half(s: &Suspect) -> bool {
    s.skmem.w().zip(s.skmem.tb()).is_some_and(|(w, tb)| w / 2 > tb)
}

/// Do the retransmissions of this socket fail on their way out? `TCPRetransFail` covers the whole
/// network namespace, so it must account for at least half of what is retransmitted there. The
/// number is that of consecutive RTOs for which it does.
fn refused(t: &Thresholds, s: &Suspect) -> Option<(LocalDrop, u32)> {
    let fails = |e: &TimerEvent| {
        let (failed, all) = (e.net.retrans_fail.unwrap_or(0), e.net.retrans_segs.unwrap_or(0));
        left(e) && failed > 0 && failed.saturating_mul(2) >= all
    };
    let ripe = s.trailing(TimerKind::Rto, |_| true).filter(|e| is_ripe(t, e));
    let run: Vec<&TimerEvent> = ripe.take_while(|e| fails(e)).collect();
    let events: u32 = run.iter().map(|e| e.count).sum();
    let failed = run.iter().filter_map(|e| e.net.retrans_fail).max()?;
    Some((LocalDrop::Retransmit { failed }, events))
}

/// Fewer than two events observed: infer the cause from the socket's own timestamps.
fn one_sample<'a>(w: &Window<'_>, t: &Thresholds, s: &'a Suspect) -> Option<Case<'a>> {
    let why = "what earlier RTOs did (fewer than two observed; inferred from last_data_sent)";
    if last_rto_sent(s)? {
        let total = s.info?.total_retrans()?;
        let all_left = total >= u32::from(s.retransmits());
        return all_left.then(|| {
            let mut case = Case::suspected(s, Cause::Storm, why);
            if retrans_fail_ever(w, s) != Some(0) {
                case.missing.push(UNREFUSED);
            }
            case
        });
    }
    let frozen =
        over_half(s) && s.skmem.t() == Some(0) && tb_lt_w_bug(&w.host.kernel) != Release::Fixed;
    if frozen && waits(w, t, s) {
        return None;
    }
    let counted = || {
        let asked = s.events.iter().any(|e| silent(e) && never_too_big(e));
        asked || too_big_over_rtos(w, s) == Some(0)
    };
    if frozen && !counted() {
        return Some(Case::suspected(s, Cause::Frozen { too_big: None }, why));
    }
    Some(Case::suspected(s, Cause::Silent(silence(s, false)), why))
}

/// `TCPWqueueTooBig` since boot: while it is 0, the bug never refused a retransmission.
pub(crate) fn too_big_ever(w: &Window<'_>, s: &Suspect) -> Option<i64> {
    too_big_at(w.tick, s)
}

/// `TCPRetransFail` since boot: while it is 0, this host never refused a retransmission.
pub(crate) fn retrans_fail_ever(w: &Window<'_>, s: &Suspect) -> Option<i64> {
    counter_at(w.tick, s, "TcpExtTCPRetransFail")
}

fn too_big_at(tick: &Tick, s: &Suspect) -> Option<i64> {
    counter_at(tick, s, "TcpExtTCPWqueueTooBig")
}

fn counter_at(tick: &Tick, s: &Suspect, name: &str) -> Option<i64> {
    let counters = tick.samples.net_counters.as_ref()?;
    counters.data.spaces.iter().find(|n| n.netns == s.id.netns)?.get(name)
}

/// Its growth since before the RTOs of this socket began, observed or not; since boot if nothing
/// was read that early.
fn too_big_over_rtos(w: &Window<'_>, s: &Suspect) -> Option<i64> {
    let before = s.retransmitting_for().and_then(|elapsed| {
        let began = s.as_of().back(elapsed);
        let mut earlier = w.history.back_from(w.tick.seq).filter(|m| m.tick.mono < began);
        earlier.find_map(|m| too_big_at(&m.tick, s))
    });
    too_big_ever(w, s)?.checked_sub(before.unwrap_or(0))
}

/// Did the last RTO send anything? The timer was set `rto - expires` ago, and sending resets
/// `last_data_sent`, whether or not the segment arrives.
fn last_rto_sent(s: &Suspect) -> Option<bool> {
    let i = s.info.filter(|_| s.info_at == Some(s.seen_at))?;
    let (sent_ago, rto) = (i.last_data_sent_ms()?, i.rto_us()? / 1000);
    if sent_ago > rto.saturating_add(rto / 10).saturating_add(CLOCK_SLACK_MS) {
        return Some(false);
    }
    let fired_ago = rto.checked_sub(s.expires_ms)?;
    (s.expires_ms > 0 && sent_ago <= fired_ago.saturating_add(CLOCK_SLACK_MS)).then_some(true)
}

fn persist_cause<'a>(w: &Window<'_>, s: &'a Suspect) -> Option<Case<'a>> {
    if s.wqueue == 0 {
        return None;
    }
    let i = s.info?;
    let (window, mss) = (i.snd_wnd(), i.snd_mss().unwrap_or(536));
    if window == Some(0) {
        return zero_window(w, s);
    }
    // Zero-window probes carry no data; a window below one segment only lets a trickle through.
    let open = window.is_none_or(|n| n >= mss);
    if open && i.unacked() == Some(0) {
        let sent = s.trailing(TimerKind::Probe, |e| e.data_segs_out.is_some_and(|n| n > 0));
        if sent.map(|e| e.count).sum::<u32>() >= EVENTS {
            let mut case = Case::sure(s, Cause::LocalDrop(LocalDrop::Persist));
            if window.is_none() {
                case.confidence = Confidence::Suspected;
                case.missing.push("the peer's window (snd_wnd needs Linux 5.4)");
            }
            return Some(case);
        }
        if window.is_some() && s.unanswered_probes() >= STORM_RTOS {
            let why =
                "what earlier probes did (fewer than two observed; inferred from their count)";
            return Some(Case::suspected(s, Cause::LocalDrop(LocalDrop::Persist), why));
        }
    }
    let limited = s.rwnd_limited.is_some_and(|(us, dt)| us.as_secs_f64() >= 0.9 * dt.as_secs_f64());
    if window.is_none() && limited {
        let mut case = zero_window(w, s)?;
        case.confidence = Confidence::Suspected;
        case.missing
            .push("the peer's window (snd_wnd needs Linux 5.4; inferred from rwnd_limited)");
        return Some(case);
    }
    None
}

fn zero_window<'a>(w: &Window<'_>, s: &'a Suspect) -> Option<Case<'a>> {
    let seen = w.tick.mono.since(s.closed_seen_since()?);
    let stalled = w.tick.mono.since(s.closed_since()?);
    if stalled < ZERO_WINDOW_EARLY {
        return None;
    }
    let cause = Cause::ZeroWindow { stalled };
    Some(if stalled < ZERO_WINDOW {
        Case::suspected(s, cause, "whether it lasts: 5 s counts as a stall")
    } else if seen >= ZERO_WINDOW {
        Case::sure(s, cause)
    } else {
        Case::suspected(
            s,
            cause,
            "how long it has lasted (seen only briefly; inferred from the probes)",
        )
    })
}

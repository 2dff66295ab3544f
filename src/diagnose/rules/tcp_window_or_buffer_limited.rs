//! `tcp-window-or-buffer-limited`: a buffer limits throughput, not the path.

use super::common::peers::{Group, by_peer, enter, on_peer, ss_dst};
use super::common::sockets::{Case, Cause, Limit, classify, is_gone};
use super::common::text::{bytes, time_us};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::{Flow, Suspect};

/// The time that a connection is evaluated over: 10 s, less the slack of ten ticks.
const SPAN: Duration = Duration::from_secs(9);
/// Fraction of the busy time in which the peer's window must be the limit ...
const BY_WINDOW: f64 = 0.5;
/// ... or our send buffer.
const BY_SNDBUF: f64 = 0.3;
/// Minimum rate of a connection, bytes/s.
const MIN_RATE: f64 = 1e6;
/// Fraction of the time in which it must have data outstanding.
const MIN_BUSY: f64 = 0.3;
/// At a higher loss rate, cwnd is the limit.
const MAX_LOSS: f64 = 0.01;
/// min_rtt, us, from which a small buffer costs throughput ...
const LONG_US: u32 = 5000;
/// ... if it caps the connection below this, bytes/s.
const LOW_CEILING: f64 = 12.5e6;

static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-window-or-buffer-limited"),
    title: "a buffer limits the throughput of a connection, not the path",
    condition: "Over 10 s, at 1 MB/s acknowledged or more, or at any rate with unsent data and \
        a min_rtt of 5 ms or more: rwnd_limited is 50% of the busy time or more while the \
        window never closed (the peer's receive buffer), or sndbuf_limited is 30% or more (our \
        send buffer). Info; a warning when min_rtt is 5 ms or more and the buffer allows less \
        than 12.5 MB/s at that RTT.",
    look_alikes: "A window that closes is a slow reader, not a small buffer \
        (tcp-receiver-not-reading at the peer). Loss above 1%: cwnd is the limit \
        (tcp-retrans-rate). An application that sends little is not busy.",
    remedy: "Let the kernel size the buffer: do not set SO_SNDBUF or SO_RCVBUF (that turns \
        autotuning off); raise the third value of net.ipv4.tcp_wmem here, or of tcp_rmem at the \
        peer, to bandwidth times RTT. Without window scaling (wscale 0) 64 kB is the maximum: \
        look for a middlebox that strips the option.",
    sources: "tcp_info chronographs busy, rwnd_limited, sndbuf_limited (since 4.10), \
        net/ipv4/tcp_output.c tcp_chrono_start(). Measured on 6.18 over loopback with a peer's \
        SO_RCVBUF of 32768: rwnd_limited 63% with snd_wnd 32768 throughout (8192: 44%), and 58 \
        to 61% where ACKs took 2 ms and only the window was the limit. The kernel counts \
        sndbuf_limited only while the write queue is empty: with SO_SNDBUF 16384 it stayed 0.",
    hold: Hold::events(10),
    needs_time: Duration::from_secs(12),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Sockets], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let all = w.derived.sockets.suspects.iter().filter(|s| !is_gone(w, s));
    let limited = all.filter_map(|s| {
        let case = case(s)?;
        // A stalled connection has another cause.
        classify(w, t, s).is_none().then_some(case)
    });
    for g in by_peer(limited, w) {
        out.fire(g.subject.clone(), fire(w, &g));
    }
}

fn case(s: &Suspect) -> Option<Case<'_>> {
    let f = s.flow.filter(|f| f.dt >= SPAN)?;
    if f.rate() < MIN_RATE && !starved(s) {
        return None;
    }
    let busy = f.busy_us as f64 >= MIN_BUSY * f.dt.as_micros() as f64;
    let lossy = f64::from(f.retrans) > MAX_LOSS * f64::from(f.segs_out);
    if !busy || lossy {
        return None;
    }
    if f.by_sndbuf() >= BY_SNDBUF && f.by_sndbuf() >= f.by_window() {
        return Some(Case::sure(s, Cause::Limited(Limit::SendBuffer)));
    }
    if f.by_window() < BY_WINDOW {
        return None;
    }
    let why = "whether the window closed at times (snd_wnd needs Linux 5.4)";
    match f.least_wnd {
        Some(0) => None,
        Some(_) => Some(Case::sure(s, Cause::Limited(Limit::Window))),
        None => Some(Case::suspected(s, Cause::Limited(Limit::Window), why)),
    }
}

/// The smaller the window, the lower the rate: a slow connection counts too if the path is long and
/// there is more to send.
fn starved(s: &Suspect) -> bool {
    let Some(i) = s.info else { return false };
    i.min_rtt_us().is_some_and(|n| n >= LONG_US) && i.notsent_bytes().is_some_and(|n| n > 0)
}

/// The buffer in bytes: how much may be outstanding at a time.
fn buffer(s: &Suspect, limit: Limit) -> Option<u32> {
    match limit {
        Limit::Window => s.info?.snd_wnd(),
        Limit::SendBuffer => s.skmem.tb(),
    }
}

/// What the buffer allows on this path, bytes/s.
fn ceiling(s: &Suspect, limit: Limit) -> Option<f64> {
    let rtt = s.info?.min_rtt_us().filter(|n| *n > 0)?;
    Some(f64::from(buffer(s, limit)?) / (f64::from(rtt) / 1e6))
}

fn costs(s: &Suspect, limit: Limit) -> bool {
    s.info.and_then(|i| i.min_rtt_us()).is_some_and(|n| n >= LONG_US)
        && ceiling(s, limit).is_some_and(|c| c < LOW_CEILING)
}

fn limit_of(c: &Case<'_>) -> Limit {
    if let Cause::Limited(l) = c.cause { l } else { Limit::Window }
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let first = g.first();
    let (s, limit) = (first.socket, limit_of(first));
    let costly = g.cases.iter().any(|c| costs(c.socket, limit_of(c)));
    let rate: f64 = g.cases.iter().filter_map(|c| c.socket.flow).map(|f| f.rate()).sum();
    let what = match limit {
        Limit::Window => "the peer's receive window",
        Limit::SendBuffer => "the send buffer",
    };
    let mut f = Fire::new(
        if costly { Severity::Warn } else { Severity::Info },
        format!("{}: limited by {what}, to {}/s", g.who(), bytes(rate as u64)),
    );
    g.fill(&mut f, w);
    // The engine knows better than a single ten-second window.
    f.since = None;
    let Some(flow) = s.flow else { return f };
    shares(&mut f, &flow, limit);
    sizes(&mut f, s, limit);
    rule_out(&mut f, &flow);
    let enter = enter(w, g.netns());
    f.next.push(format!("{enter}ss -tinmo dst {}", ss_dst(s)));
    f.next.push(match limit {
        Limit::SendBuffer => format!("{enter}sysctl net.ipv4.tcp_wmem"),
        Limit::Window => on_peer(w, s, "sysctl net.ipv4.tcp_rmem"),
    });
    if let (Limit::SendBuffer, Some(o)) = (limit, &s.owner) {
        f.next.push(format!("strace -fp {} -e trace=setsockopt  # SO_SNDBUF", o.pid));
    }
    f
}

fn shares(f: &mut Fire, flow: &Flow, limit: Limit) {
    let (field, share, least) = match limit {
        Limit::Window => ("rwnd_limited", flow.by_window(), BY_WINDOW),
        Limit::SendBuffer => ("sndbuf_limited", flow.by_sndbuf(), BY_SNDBUF),
    };
    let secs = flow.dt.as_secs_f64();
    let text = format!("{field} {:.0}% of the busy time of {secs:.0} s", 100.0 * share);
    f.evidence.push(Evidence::new(field, 100.0 * share, "%", text).over(100.0 * least));
}

fn sizes(f: &mut Fire, s: &Suspect, limit: Limit) {
    let Some(i) = s.info else { return };
    let name = match limit {
        Limit::Window => "snd_wnd",
        Limit::SendBuffer => "tb",
    };
    if let (Some(size), Some(rtt)) = (buffer(s, limit), i.min_rtt_us().filter(|n| *n > 0)) {
        let text = match ceiling(s, limit) {
            Some(c) => format!(
                "{name} {size} at a round trip of {} allows {}/s",
                time_us(rtt.into()),
                bytes(c as u64)
            ),
            None => format!("{name} {size}"),
        };
        f.evidence.push(Evidence::new(name, size.into(), "bytes", text));
        if let Some(d) = i.delivery_rate() {
            let bdp = (d as f64 * f64::from(rtt) / 1e6) as u64;
            let text = format!("delivery_rate {}/s x min_rtt = {}", bytes(d), bytes(bdp));
            f.evidence.push(Evidence::new("bdp", bdp as f64, "bytes", text));
        }
    }
    if let (Limit::SendBuffer, Some(tb), Some(w)) = (limit, s.skmem.tb(), s.skmem.w())
        && tb < 64 << 10
    {
        let text = format!("tb {tb} < 64 kB with w {w}: SO_SNDBUF is set, autotuning is off");
        f.evidence.push(Evidence::new("w", w.into(), "bytes", text));
    }
    if let (Limit::Window, Some(scale)) = (limit, i.wscale().map(|n| n & 15)) {
        let text = match scale {
            0 => "wscale 0: the window cannot exceed 64 kB".to_owned(),
            n => format!("wscale {n}"),
        };
        f.evidence.push(Evidence::new("wscale", scale.into(), "", text));
    }
}

fn rule_out(f: &mut Fire, flow: &Flow) {
    let because = format!("{} of {} segments retransmitted", flow.retrans, flow.segs_out);
    f.ruled_out.push(RuledOut::new("tcp-retrans-rate", because));
    let pct = 100.0 * flow.busy_us as f64 / flow.dt.as_micros().max(1) as f64;
    f.ruled_out.push(RuledOut::new("application-limited", format!("busy {pct:.0}% of the time")));
    if let Some(n) = flow.least_wnd.filter(|n| *n > 0) {
        let because = format!("snd_wnd was never below {n}");
        f.ruled_out.push(RuledOut::new("tcp-zero-window-stall", because));
    }
}

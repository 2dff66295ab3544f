//! `tcp-tb-lt-w-stall`: a kernel bug has frozen the connection.

use super::common::peers::{Group, by_peer, enter, ss_dst};
use super::common::release::{Release, tb_lt_w_bug};
use super::common::sockets::{Cause, cases, too_big_ever};
use super::common::{evidence, text::sh};
use crate::diagnose::rules::prelude::*;
use crate::metrics::sockets::TimerKind;
static DOC: RuleDoc = RuleDoc {
    id: RuleId("tcp-tb-lt-w-stall"),
    title: "a kernel bug has frozen this connection; it does not recover by itself",
    condition: "The retransmission timer of a sending connection runs; 2 or more RTOs fired \
        with data_segs_out and total_retrans flat; t = 0, so nothing is in the qdisc or the \
        driver; w/2 > tb; and TCPWqueueTooBig grew in the namespace within one tick of an RTO. \
        Each RTO doubles although tcp_fragment() refused to split the segment that had to be \
        retransmitted. With fewer than two RTOs seen it is only suspected, from last_data_sent, \
        and only on kernels not known to be fixed. Clears when data is acknowledged or a \
        retransmission leaves.",
    look_alikes: "w > tb alone is normal: a healthy sender with a small SO_SNDBUF shows w at 8 \
        times tb. TCPWqueueTooBig above 0 alone proves nothing either: it also counts harmless \
        refusals. A deleted route or a stuck qdisc gives the same flat counters, but \
        TCPWqueueTooBig does not grow: tcp-silent-rto. A shrunk SO_SNDBUF with a dead peer has \
        w far above tb, but its retransmissions leave: tcp-rto-storm.",
    remedy: "Upgrade the kernel: f070ef2ac667 (4.19.52, June 2019) introduced the bug, \
        b617158dc096 (4.19.62, 4.9.189, 5.3) fixed it. Until then raise SO_SNDBUF and \
        net.ipv4.tcp_wmem, or stop setting small send buffers. Kill the frozen socket with ss \
        -K so that the application can reconnect. On a kernel outside that range keep the \
        numbers and report them: the signature without the known bug is news.",
    sources: "Field report on 4.19.57 (w 22680, tb 8192, rto 37760, backoff 7, no \
        retransmission); net/ipv4/tcp_output.c, tcp_fragment(). Measured on 6.18: w > tb in up \
        to 97% of the samples of healthy senders.",
    hold: Hold::events(4),
    needs_time: Duration::from_secs(5),
};

pub(super) static RULE: Rule =
    Rule { doc: &DOC, kind: Kind::Rule, needs: &[CollectorId::Sockets], explains: &[], check };

fn check(w: &Window<'_>, t: &Thresholds, out: &mut Verdicts) {
    let frozen = cases(w, t).filter(|c| matches!(c.cause, Cause::Frozen { .. }));
    for g in by_peer(frozen, w) {
        out.fire(g.subject.clone(), fire(w, &g));
    }
}

fn fire(w: &Window<'_>, g: &Group<'_>) -> Fire {
    let first = g.first();
    let s = first.socket;
    let release = tb_lt_w_bug(&w.host.kernel);
    let sure = first.confidence == Confidence::Confirmed;
    let severity = if sure { Severity::Crit } else { Severity::Warn };
    let mut f = Fire::new(
        severity,
        format!("{} frozen by the kernel: RTOs fire, nothing is sent, w/2 > tb", g.who()),
    );
    g.fill(&mut f, w);
    let tb = s.skmem.tb().unwrap_or(0);
    f.evidence.extend(evidence::memory(s).map(|e| e.over(f64::from(tb) * 2.0)));
    f.evidence.extend(evidence::rto(s));
    f.evidence.extend(evidence::sent(s, TimerKind::Rto));
    f.evidence.extend(evidence::outstanding(s));
    if let Cause::Frozen { too_big: Some(n) } = first.cause {
        let text = format!("TCPWqueueTooBig +{n} around the RTOs");
        f.evidence.push(Evidence::new("TCPWqueueTooBig", n as f64, "", text).over(1.0));
    } else if let Some(n) = too_big_ever(w, s) {
        let text = format!("TCPWqueueTooBig {n} since boot, at an unknown time");
        f.evidence.push(Evidence::new("TCPWqueueTooBig", n as f64, "", text));
    }
    let kernel =
        Some(w.host.kernel.as_str()).filter(|k| !k.is_empty()).unwrap_or("release unknown");
    let text = match release {
        Release::Affected => format!("kernel {kernel} has the bug (4.19.52 to 4.19.61)"),
        Release::Fixed => format!("kernel {kernel} is fixed: the signature without the known bug"),
        Release::Unknown => format!("kernel {kernel}: unknown whether it has the bug"),
    };
    f.evidence.push(Evidence::text("kernel", text));
    if release != Release::Affected {
        f.confidence = Confidence::Suspected;
    }
    rule_out(&mut f, g);
    let enter = enter(w, g.netns());
    let dst = ss_dst(s);
    f.next.push(format!("{enter}nstat -az TcpExtTCPWqueueTooBig"));
    f.next.push(format!("{enter}ss -tinmo dst {dst}"));
    f.next.push(format!(
        "{enter}ss -K dst {} dport = {}",
        sh(&s.remote.addr.to_string()),
        sh(&format!(":{}", s.remote.port))
    ));
    f.next.push(format!("{enter}sysctl net.ipv4.tcp_wmem"));
    f
}

fn rule_out(f: &mut Fire, g: &Group<'_>) {
    let s = g.first().socket;
    let total = s.info.and_then(|i| i.total_retrans());
    if let Some(n) = total {
        let because = format!("no retransmission left: total_retrans stays at {n}");
        f.ruled_out.push(RuledOut::new("tcp-rto-storm", because));
    }
    if let Cause::Frozen { too_big: Some(n) } = g.first().cause {
        let because = format!("TCPWqueueTooBig +{n}: it stays flat with no route or a stuck queue");
        f.ruled_out.push(RuledOut::new("tcp-silent-rto", because));
    }
    if s.skmem.t() == Some(0) {
        f.ruled_out.push(RuledOut::new("stuck-in-qdisc-or-nic", "t = 0: nothing below TCP"));
    }
    if let Some(because) = evidence::open_window(s) {
        f.ruled_out.push(RuledOut::new("tcp-zero-window-stall", because));
    } else {
        f.ruled_out.push(RuledOut::new("tcp-zero-window-stall", "timer is on, not persist"));
    }
}

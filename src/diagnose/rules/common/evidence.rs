//! Evidence about sockets that several rules report in the same words.

use super::super::super::Evidence;
use super::sockets::STORM_RTOS;
use super::text::{bytes, count, time_us};
use crate::metrics::sockets::{Suspect, TimerKind};

/// The rto and what it grew from: `rto 6.53 s = 204 ms << 5`, or `rto at its 120 s limit`.
pub(crate) fn rto(s: &Suspect) -> Option<Evidence> {
    let r = s.rto()?;
    let write = |us: u32| time_us(us.into());
    let text = format!(
        "{} consecutive RTOs, the next {} after the last (rto {})",
        s.retransmits(),
        write(r.us),
        r.text(write),
    );
    Some(Evidence::new("rto", f64::from(r.us) / 1000.0, "ms", text))
}

/// The number of RTOs, if `tcp_info` was not read.
pub(crate) fn retransmits(s: &Suspect) -> Evidence {
    let n = s.retransmits();
    Evidence::new("retr", n.into(), "", format!("{n} consecutive RTOs")).over(f64::from(STORM_RTOS))
}

/// What left the host with the timer events observed.
pub(crate) fn sent(s: &Suspect, kind: TimerKind) -> Option<Evidence> {
    let sum = |f: fn(&crate::metrics::sockets::TimerEvent) -> Option<u32>| {
        s.trailing(kind, |_| true).filter_map(f).reduce(u32::saturating_add)
    };
    let what = match kind {
        TimerKind::Rto => "RTO",
        TimerKind::Probe => "probe",
    };
    let fired = s.fired(kind);
    let data = sum(|e| e.data_segs_out)?;
    let again = sum(|e| e.total_retrans)?;
    let text = format!(
        "observed: {} fired, data_segs_out +{data}, retransmissions +{again}, bytes_acked +0",
        count(fired as usize, what)
    );
    Some(Evidence::new("data_segs_out", data.into(), "", text))
}

/// What is outstanding: `unacked 11, lost 11, Send-Q 83.2 kB`.
pub(crate) fn outstanding(s: &Suspect) -> Option<Evidence> {
    let i = s.info?;
    let (unacked, lost) = (i.unacked()?, i.lost()?);
    let text = format!("unacked {unacked}, lost {lost}, Send-Q {}", bytes(s.wqueue.into()));
    Some(Evidence::new("unacked", unacked.into(), "segments", text))
}

/// Time since the last ACK from the peer.
pub(crate) fn last_ack(s: &Suspect) -> Option<Evidence> {
    let ms = s.info?.last_ack_recv_ms()?;
    let text = format!("last ACK {} ago", time_us(u64::from(ms) * 1000));
    Some(Evidence::new("lastack", ms.into(), "ms", text))
}

/// `skmem w 22680, tb 8192, t 0`, for the rules that look at socket memory.
pub(crate) fn memory(s: &Suspect) -> Option<Evidence> {
    let (w, tb, t) = (s.skmem.w()?, s.skmem.tb()?, s.skmem.t()?);
    let text = format!("skmem w {w}, tb {tb}, t {t}: w/2 = {} against tb {tb}", w / 2);
    Some(Evidence::new("w", w.into(), "bytes", text))
}

/// `snd_wnd 65160 > 0`: rules out a closed window.
pub(crate) fn open_window(s: &Suspect) -> Option<String> {
    let n = s.info?.snd_wnd()?;
    (n > 0).then(|| format!("snd_wnd {n} > 0"))
}

//! `tcp_info` from the words of `ss -i`.
//!
//! ss prints a field only if it is not zero. A missing field is zero if this ss and this kernel
//! know it, otherwise unknown. They know it if any socket of the same run shows it or a newer one:
//! fields were always appended to the structure, never inserted.

use super::super::number::{bps, float, uint};
use crate::sample::sockets::TcpInfo;

/// Bytes kept: up to `total_rto_time`, which ss does not print, so never all of them.
const LEN: usize = 240;
/// Lengths of the structure in kernel releases; the newest field rounds up to one of them.
const LENGTHS: [usize; 10] = [104, 120, 136, 144, 160, 168, 192, 200, 224, 240];
/// Up to `snd_wnd`, from 5.4 on; what 6.2 added came with an ss that prints both.
const WITH_SND_WND: usize = 232;

/// Fields of one socket, in the layout of `tcp_info`.
#[derive(Clone)]
pub(super) struct Info {
    raw: [u8; LEN],
    /// End of the newest field that was printed.
    pub(super) top: usize,
    rto: bool,
    minrtt: bool,
    /// `rwnd_limited` as % of `busy`.
    pub(super) any: bool,
}

impl Default for Info {
    fn default() -> Self {
        Self { raw: [0; LEN], top: 0, rto: false, minrtt: false, any: false }
    }
}

impl std::fmt::Debug for Info {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Info(up to {})", self.top)
    }
}

/// Words without a value.
const FLAGS: [(&str, u8); 6] =
    [("ts", 1), ("sack", 2), ("ecn", 8), ("ecnseen", 16), ("fastopen", 32), ("usec_ts", 64)];
/// Congestion control algorithms of the kernel tree.
const CONTROLS: [&str; 18] = [
    "cubic", "reno", "bbr", "bbr2", "bbr3", "dctcp", "vegas", "westwood", "bic", "htcp",
    "illinois", "hybla", "veno", "yeah", "nv", "cdg", "lp", "scalable",
];
/// Words whose value is the next word.
pub(super) const RATES: [&str; 3] = ["send", "pacing_rate", "delivery_rate"];

/// A word that ss prints on its own.
pub(super) fn is_flag(word: &str) -> bool {
    FLAGS.iter().any(|f| f.0 == word)
        || CONTROLS.contains(&word)
        || RATES.contains(&word)
        || matches!(word, "app_limited" | "highspeed" | "<->" | "-->" | "<--" | "---" | "mptcp")
}

/// Is this a word such as `rto:204`, known to some ss?
pub(super) fn is_pair(word: &str) -> bool {
    let Some((key, _)) = word.split_once(':') else { return false };
    layout(key).is_some()
        || matches!(
            key,
            "rto"
                | "rtt"
                | "ato"
                | "wscale"
                | "retrans"
                | "busy"
                | "rwnd_limited"
                | "sndbuf_limited"
                | "rcv_rtt"
                | "minrtt"
                | "fackets"
                | "skmem"
                | "mem"
                | "timer"
                | "users"
                | "uid"
                | "ino"
                | "sk"
                | "fwmark"
                | "cgroup"
                | "v6only"
                | "dctcp"
                | "class_id"
                | "tos"
                | "tclass"
                | "inet-sockopt"
                | "token"
                | "seq"
                | "maxseg"
                | "mptcp_info"
                | "tcp-ulp-mptcp"
                | "tcp-ulp-tls"
        )
        || (key == "bbr" && word.starts_with("bbr:("))
}

/// Is this a word such as `rto:204`, whole: known, and with a value that makes sense?
pub(super) fn is_sound(word: &str) -> bool {
    let Some((key, value)) = word.split_once(':') else { return false };
    if !is_pair(word) {
        return false;
    }
    let other = matches!(
        key,
        "skmem"
            | "mem"
            | "timer"
            | "users"
            | "uid"
            | "ino"
            | "sk"
            | "fwmark"
            | "cgroup"
            | "bbr"
            | "dctcp"
    );
    if other { !value.contains('#') } else { Info::default().pair(key, value) }
}

/// Plain numbers: offset and size in `tcp_info`.
fn layout(key: &str) -> Option<(usize, usize)> {
    Some(match key {
        "backoff" => (4, 1),
        "mss" => (16, 4),
        "rcvmss" => (20, 4),
        "unacked" => (24, 4),
        "sacked" => (28, 4),
        "lost" => (32, 4),
        "lastsnd" => (44, 4),
        "lastrcv" => (52, 4),
        "lastack" => (56, 4),
        "pmtu" => (60, 4),
        "rcv_ssthresh" => (64, 4),
        "ssthresh" => (76, 4),
        "cwnd" => (80, 4),
        "advmss" => (84, 4),
        "reordering" => (88, 4),
        "rcv_space" => (96, 4),
        "bytes_acked" => (120, 8),
        "bytes_received" => (128, 8),
        "segs_out" => (136, 4),
        "segs_in" => (140, 4),
        "notsent" => (144, 4),
        "data_segs_in" => (152, 4),
        "data_segs_out" => (156, 4),
        "delivered" => (192, 4),
        "bytes_sent" => (200, 8),
        "bytes_retrans" => (208, 8),
        "dsack_dups" => (216, 4),
        "reord_seen" => (220, 4),
        "rcv_ooopack" => (224, 4),
        "snd_wnd" => (228, 4),
        "rcv_wnd" => (232, 4),
        "rehash" => (236, 4),
        _ => return None,
    })
}

impl Info {
    /// Takes in `key:value`; false if it is not about `tcp_info` or not valid.
    pub(super) fn pair(&mut self, key: &str, value: &str) -> bool {
        let taken = self.try_pair(key, value).is_some();
        self.any |= taken;
        taken
    }

    fn try_pair(&mut self, key: &str, value: &str) -> Option<()> {
        if let Some((at, size)) = layout(key) {
            self.put(at, size, uint(value)?);
            return Some(());
        }
        let us = |ms: &str| float(ms).map(|v| (v * 1000.0).round() as u64);
        match key {
            "rto" => {
                self.rto = true;
                self.put(8, 4, us(value)?);
            }
            "ato" => self.put(12, 4, us(value)?),
            "rtt" => {
                let (rtt, var) = value.split_once('/')?;
                self.put(68, 4, us(rtt)?);
                self.put(72, 4, us(var)?);
            }
            "rcv_rtt" => self.put(92, 4, us(value)?),
            "minrtt" => {
                self.minrtt = true;
                self.put(148, 4, us(value)?);
            }
            "retrans" => {
                let (out, total) = value.split_once('/')?;
                self.put(36, 4, uint(out)?);
                self.put(100, 4, uint(total)?);
            }
            "wscale" => {
                let (snd, rcv) = value.split_once(',')?;
                self.put(6, 1, (uint(snd)? & 15) | (uint(rcv)? & 15) << 4);
            }
            "busy" => self.put(168, 8, us(value.strip_suffix("ms")?)?),
            // `1234ms(99.5%)`
            "rwnd_limited" => self.put(176, 8, us(value.split_once("ms")?.0)?),
            "sndbuf_limited" => self.put(184, 8, us(value.split_once("ms")?.0)?),
            _ => return None,
        }
        Some(())
    }

    /// Takes in a rate: the word and the one after it.
    pub(super) fn rate(&mut self, word: &str, value: &str) -> bool {
        let Some(rate) = bps(value.split('/').next().unwrap_or(value)) else { return false };
        let bytes = (rate / 8.0) as u64;
        match word {
            "pacing_rate" => self.put(104, 8, bytes),
            "delivery_rate" => self.put(160, 8, bytes),
            // cwnd * mss / rtt: ss computes it, the kernel does not know it.
            _ => {}
        }
        self.any = true;
        true
    }

    /// Takes in a word without value.
    pub(super) fn flag(&mut self, word: &str) {
        if let Some((_, bit)) = FLAGS.iter().find(|f| f.0 == word) {
            self.raw[5] |= bit;
            self.any = true;
        } else if word == "app_limited" {
            self.raw[7] |= 1;
            self.any = true;
        } else if CONTROLS.contains(&word) {
            self.any = true;
        }
    }

    fn put(&mut self, at: usize, size: usize, value: u64) {
        let most = if size >= 8 { u64::MAX } else { (1_u64 << (8 * size)) - 1 };
        let bytes = value.min(most);
        let field = match size {
            1 => &(bytes as u8).to_ne_bytes()[..],
            4 => &(bytes as u32).to_ne_bytes()[..],
            _ => &bytes.to_ne_bytes()[..],
        };
        if let Some(slot) = self.raw.get_mut(at..at + size) {
            slot.copy_from_slice(field);
            self.top = self.top.max(at + size);
        }
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.raw.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }
    pub(super) fn rto_ms(&self) -> u32 {
        if self.rto { self.u32_at(8) / 1000 } else { 3000 }
    }
    pub(super) fn last_sent_ms(&self) -> u32 {
        self.u32_at(44)
    }
    pub(super) fn snd_wnd(&self) -> u32 {
        self.u32_at(228)
    }
    /// Ages of the last data sent, data received and ACK received, ms.
    pub(super) fn ages(&self) -> [u32; 3] {
        [44, 52, 56].map(|at| self.u32_at(at))
    }
    pub(super) fn backoff(&self) -> u8 {
        self.raw[4]
    }
    pub(super) fn unacked(&self) -> u32 {
        self.u32_at(24)
    }
    pub(super) fn total_retrans(&self) -> u32 {
        self.u32_at(100)
    }

    /// The block, `known` bytes of which this ss and kernel know. `retransmits` and `probes`
    /// are not printed with it: they come from the timer.
    pub(super) fn block(&self, known: usize, retransmits: u8, probes: u8) -> TcpInfo {
        let mut raw = self.raw;
        raw[2] = retransmits;
        raw[3] = probes;
        if !self.rto {
            // Left out when it is the initial one of before 3.1, 3 s.
            raw[8..12].copy_from_slice(&3_000_000_u32.to_ne_bytes());
        }
        if !self.minrtt {
            // Never measured, as the kernel writes it.
            raw[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        }
        TcpInfo::from_bytes(raw.get(..known).unwrap_or(&raw))
    }

    /// The length of the structure that holds the newest printed field. A window that is not
    /// printed next to fields that are always there is a closed one: see [`Self::closed`].
    pub(super) fn known(top: usize) -> usize {
        if top > 228 && top <= WITH_SND_WND {
            return WITH_SND_WND;
        }
        LENGTHS.into_iter().find(|l| *l >= top).unwrap_or(LEN)
    }

    /// Length that makes `snd_wnd` 0 known, for a socket whose probes are answered: the window
    /// would be printed if it were open. Only where fields of 4.19 are there, so that what lies
    /// in between is no guess.
    pub(super) fn closed(known: usize) -> Option<usize> {
        (224..WITH_SND_WND).contains(&known).then_some(WITH_SND_WND)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The offsets here are those of the collector.
    #[test]
    fn the_layout_is_that_of_the_kernel() {
        let names = [
            ("backoff", "backoff"),
            ("mss", "snd_mss"),
            ("rcvmss", "rcv_mss"),
            ("unacked", "unacked"),
            ("sacked", "sacked"),
            ("lost", "lost"),
            ("lastsnd", "last_data_sent_ms"),
            ("lastrcv", "last_data_recv_ms"),
            ("lastack", "last_ack_recv_ms"),
            ("pmtu", "pmtu"),
            ("rcv_ssthresh", "rcv_ssthresh"),
            ("ssthresh", "snd_ssthresh"),
            ("cwnd", "snd_cwnd"),
            ("advmss", "advmss"),
            ("reordering", "reordering"),
            ("rcv_space", "rcv_space"),
            ("bytes_acked", "bytes_acked"),
            ("bytes_received", "bytes_received"),
            ("segs_out", "segs_out"),
            ("segs_in", "segs_in"),
            ("notsent", "notsent_bytes"),
            ("data_segs_in", "data_segs_in"),
            ("data_segs_out", "data_segs_out"),
            ("delivered", "delivered"),
            ("bytes_sent", "bytes_sent"),
            ("bytes_retrans", "bytes_retrans"),
            ("dsack_dups", "dsack_dups"),
            ("reord_seen", "reord_seen"),
            ("rcv_ooopack", "rcv_ooopack"),
            ("snd_wnd", "snd_wnd"),
            ("rcv_wnd", "rcv_wnd"),
            ("rehash", "rehash"),
        ];
        for (ss, ours) in names {
            let (_, at, size) = *TcpInfo::FIELDS.iter().find(|f| f.0 == ours).unwrap();
            assert_eq!(layout(ss), Some((at, size)), "{ss}");
        }
    }

    #[test]
    fn units_and_compound_fields() {
        let mut i = Info::default();
        for (k, v) in [
            ("rto", "37760"),
            ("rtt", "87.643/51.642"),
            ("ato", "40"),
            ("minrtt", "0,044"),
            ("retrans", "1/4"),
            ("wscale", "7,2"),
            ("busy", "63524ms"),
            ("rwnd_limited", "1200ms(99.5%)"),
        ] {
            assert!(i.pair(k, v), "{k}");
        }
        assert!(i.rate("delivery_rate", "8Mbps"));
        for (k, v) in [("rto", "x"), ("retrans", "1"), ("mss", "-1"), ("nonsense", "1")] {
            assert!(!i.pair(k, v), "{k}:{v}");
        }
        let b = i.block(Info::known(i.top), 7, 0);
        assert_eq!(b.as_bytes().len(), 192, "busy came with 4.10");
        assert_eq!(
            (b.rto_us(), b.rtt_us(), b.rttvar_us()),
            (Some(37_760_000), Some(87_643), Some(51_642))
        );
        assert_eq!((b.ato_us(), b.min_rtt_us()), (Some(40_000), Some(44)));
        assert_eq!((b.retrans(), b.total_retrans(), b.wscale()), (Some(1), Some(4), Some(0x27)));
        assert_eq!((b.busy_us(), b.rwnd_limited_us()), (Some(63_524_000), Some(1_200_000)));
        assert_eq!(
            (b.delivery_rate(), b.retransmits(), b.probes()),
            (Some(1_000_000), Some(7), Some(0))
        );
        assert_eq!((b.unacked(), b.sacked()), (Some(0), Some(0)), "zero is not printed");
        assert_eq!((b.bytes_sent(), b.snd_wnd()), (None, None), "unknown to this ss or kernel");
    }

    #[test]
    fn what_is_left_out_when_it_is_usual() {
        let mut i = Info::default();
        assert!(i.pair("cwnd", "10"));
        let b = i.block(Info::known(i.top), 0, 0);
        assert_eq!(b.rto_us(), Some(3_000_000));
        assert_eq!(b.min_rtt_us(), None, "104 bytes have none");
        let b = i.block(192, 0, 0);
        assert_eq!(b.min_rtt_us(), Some(u32::MAX));
    }
}

//! Counters by name: `nstat`, `netstat -s`, `/proc/net/netstat` and `/proc/net/snmp`.
//!
//! `nstat` prints growth since it was last run, `nstat -a` and all others print totals since boot.
//! A single reading only says what has ever happened; a second one gives growth.

use std::collections::{BTreeMap, VecDeque};

use super::number::{float, uint};
use super::{Line, Took};

/// Readings kept; the oldest go. Names of one reading.
const MAX_READINGS: usize = 600;
const MAX_NAMES: usize = 4000;
/// Values kept in all readings.
const MAX_VALUES: usize = 400_000;

type Reading = BTreeMap<Box<str>, i64>;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Counters {
    readings: VecDeque<Reading>,
    kept: usize,
    fresh: bool,
    /// Group of `netstat -s`.
    group: Option<&'static str>,
    /// Header of a table of /proc/net/netstat: group and names.
    header: Option<(String, Vec<String>)>,
    /// nstat was run with -a, if a prompt shows it.
    absolute: Option<bool>,
    /// All values come from nstat; those of other tools are absolute.
    nstat_only: bool,
    seen_any: bool,
    pub(super) values: u64,
    pub(super) dropped: u64,
}

/// Prefixes of names that nstat prints.
const PREFIXES: [&str; 14] = [
    "TcpExt", "IpExt", "MPTcpExt", "Ip6", "Icmp6", "Udp6", "UdpLite6", "Udp", "UdpLite", "Tcp",
    "IcmpMsg", "Icmp", "Ip", "Sctp",
];

/// Group titles of `netstat -s`.
const GROUPS: [&str; 11] = [
    "Ip", "Icmp", "IcmpMsg", "Tcp", "Udp", "UdpLite", "TcpExt", "IpExt", "MPTcpExt", "Ip6", "Udp6",
];

/// Sentences of `netstat -s` that stand for counters which rules read. `%` is the number.
const SENTENCES: [(&str, &str, &str); 44] = [
    ("Tcp", "% segments received", "TcpInSegs"),
    ("Tcp", "% segments sent out", "TcpOutSegs"),
    ("Tcp", "% segments send out", "TcpOutSegs"),
    ("Tcp", "% segments retransmitted", "TcpRetransSegs"),
    ("Tcp", "% segments retransmited", "TcpRetransSegs"),
    ("Tcp", "% resets sent", "TcpOutRsts"),
    ("Tcp", "% connections established", "TcpCurrEstab"),
    ("Tcp", "% connection resets received", "TcpEstabResets"),
    ("Tcp", "% failed connection attempts", "TcpAttemptFails"),
    ("Tcp", "% active connection openings", "TcpActiveOpens"),
    ("Tcp", "% active connections openings", "TcpActiveOpens"),
    ("Tcp", "% passive connection openings", "TcpPassiveOpens"),
    ("Udp", "% packets received", "UdpInDatagrams"),
    ("Udp", "% packets sent", "UdpOutDatagrams"),
    ("Udp", "% packet receive errors", "UdpInErrors"),
    ("Udp", "% receive buffer errors", "UdpRcvbufErrors"),
    ("Udp", "% send buffer errors", "UdpSndbufErrors"),
    ("Ip", "% dropped because of missing route", "IpOutNoRoutes"),
    ("TcpExt", "% times the listen queue of a socket overflowed", "TcpExtListenOverflows"),
    ("TcpExt", "% SYNs to LISTEN sockets dropped", "TcpExtListenDrops"),
    ("TcpExt", "% SYNs to LISTEN sockets ignored", "TcpExtListenDrops"),
    ("TcpExt", "% SYN cookies sent", "TcpExtSyncookiesSent"),
    ("TcpExt", "% invalid SYN cookies received", "TcpExtSyncookiesFailed"),
    ("TcpExt", "% other TCP timeouts", "TcpExtTCPTimeouts"),
    ("TcpExt", "% fast retransmits", "TcpExtTCPFastRetrans"),
    ("TcpExt", "% retransmits in slow start", "TcpExtTCPSlowStartRetrans"),
    ("TcpExt", "% retransmits lost", "TcpExtTCPLostRetransmit"),
    ("TcpExt", "% SACK retransmits failed", "TcpExtTCPSackRecoveryFail"),
    (
        "TcpExt",
        "% times recovered from packet loss by selective acknowledgements",
        "TcpExtTCPSackRecovery",
    ),
    ("TcpExt", "% connections aborted due to timeout", "TcpExtTCPAbortOnTimeout"),
    ("TcpExt", "% connections aborted due to memory pressure", "TcpExtTCPAbortOnMemory"),
    ("TcpExt", "% connections reset due to early user close", "TcpExtTCPAbortOnClose"),
    ("TcpExt", "% connections reset due to unexpected data", "TcpExtTCPAbortOnData"),
    (
        "TcpExt",
        "% packets pruned from receive queue because of socket buffer overrun",
        "TcpExtPruneCalled",
    ),
    ("TcpExt", "% packets pruned from receive queue", "TcpExtRcvPruned"),
    (
        "TcpExt",
        "% packets dropped from out-of-order queue because of socket buffer overrun",
        "TcpExtOfoPruned",
    ),
    (
        "TcpExt",
        "% packets collapsed in receive queue due to low socket buffer",
        "TcpExtTCPRcvCollapsed",
    ),
    ("TcpExt", "% DSACKs received", "TcpExtTCPDSACKRecv"),
    ("TcpExt", "% congestion windows recovered without slow start by DSACK", "TcpExtTCPDSACKUndo"),
    (
        "TcpExt",
        "% congestion windows recovered without slow start after partial ack",
        "TcpExtTCPLossUndo",
    ),
    (
        "TcpExt",
        "% times receiver scheduled too late for direct processing",
        "TcpExtTCPSchedulerFailed",
    ),
    ("TcpExt", "% ICMP packets dropped because they were out-of-window", "TcpExtOutOfWindowIcmps"),
    ("TcpExt", "% time wait sockets recycled by time stamp", "TcpExtTWRecycled"),
    ("TcpExt", "% TCP sockets finished time wait in fast timer", "TcpExtTW"),
];

/// Counters worth mentioning when above zero, if there is only one reading.
const TELLING: [&str; 14] = [
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtTCPWqueueTooBig",
    "TcpExtTCPRetransFail",
    "TcpExtTCPSpuriousRtxHostQueues",
    "TcpExtTCPReqQFullDrop",
    "TcpExtTCPAbortOnTimeout",
    "TcpExtTCPAbortOnMemory",
    "TcpExtTCPBacklogDrop",
    "TcpExtTCPRcvQDrop",
    "TcpExtTCPZeroWindowDrop",
    "TcpExtPruneCalled",
    "TcpExtTCPTimeouts",
    "UdpRcvbufErrors",
];

impl Counters {
    /// A prompt: another reading. `absolute`: nstat was given -a.
    pub(super) fn command(&mut self, absolute: Option<bool>) {
        self.fresh = true;
        (self.group, self.header) = (None, None);
        if absolute.is_some() {
            self.absolute = absolute;
        }
    }

    pub(super) fn line(&mut self, line: &Line<'_>) -> Took {
        let text = line.text;
        if text.trim() == "#kernel" {
            self.fresh = true;
            return Took::Yes;
        }
        if self.nstat(text) {
            return Took::Yes;
        }
        if let Some(found) = self.proc_table(text) {
            return found;
        }
        self.netstat(text)
    }

    /// `TcpExtTCPTimeouts    5    0.0`.
    fn nstat(&mut self, text: &str) -> bool {
        let mut w = text.split_ascii_whitespace();
        let (Some(name), Some(value)) = (w.next(), w.next()) else { return false };
        let (rate, more) = (w.next(), w.next());
        let known = PREFIXES.iter().any(|p| {
            name.strip_prefix(p).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_alphanumeric()))
        });
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !known || !plain || more.is_some() || rate.is_some_and(|r| float(r).is_none()) {
            return false;
        }
        let Some(v) = integer(value) else { return false };
        self.nstat_only = self.nstat_only || !self.seen_any;
        self.put(name, v);
        true
    }

    /// `TcpExt: SyncookiesSent ...` and the line of values below it.
    fn proc_table(&mut self, text: &str) -> Option<Took> {
        let (group, rest) = text.split_once(':')?;
        if !group.bytes().all(|b| b.is_ascii_alphanumeric()) || !GROUPS.contains(&group) {
            return None;
        }
        let first = rest.split_ascii_whitespace().next()?;
        if let Some((g, names)) = self.header.take_if(|h| h.0 == group)
            && integer(first).is_some()
        {
            for (name, value) in names.iter().zip(rest.split_ascii_whitespace()) {
                if let Some(v) = integer(value) {
                    self.put(&format!("{g}{name}"), v);
                }
            }
            self.nstat_only = false;
            return Some(Took::Yes);
        }
        let names: Vec<String> =
            rest.split_ascii_whitespace().take(MAX_NAMES).map(str::to_owned).collect();
        let plain = |n: &String| {
            n.starts_with(|c: char| c.is_ascii_alphabetic())
                && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        if names.len() < 2 || !names.iter().all(plain) {
            return None;
        }
        self.header = Some((group.to_owned(), names));
        Some(Took::Yes)
    }

    /// Sentences under a group title.
    fn netstat(&mut self, text: &str) -> Took {
        if let Some(title) = text.strip_suffix(':')
            && let Some(group) = GROUPS.iter().find(|g| **g == title)
        {
            // The first group again: another reading.
            if *group == "Ip" {
                self.fresh = true;
            }
            self.group = Some(group);
            return Took::Yes;
        }
        let Some(group) = self.group else { return Took::No };
        if !text.starts_with([' ', '\t']) {
            return Took::No;
        }
        let text = text.trim_start();
        // `TCPTimeouts: 5`: names without a sentence.
        if let Some((name, value)) = text.split_once(": ") {
            let plain = name.bytes().all(|b| b.is_ascii_alphanumeric());
            if plain && let Some(v) = integer(value.trim()) {
                self.nstat_only = false;
                self.put(&format!("{group}{name}"), v);
                return Took::Yes;
            }
        }
        let has_number = text.split_ascii_whitespace().any(|w| uint(w).is_some());
        if !has_number {
            return if text.ends_with(':') { Took::Yes } else { Took::No };
        }
        for (g, sentence, name) in SENTENCES {
            if g == group
                && let Some(rest) = sentence.strip_prefix('%')
                && let Some(number) = text.strip_suffix(rest)
                && let Some(v) = integer(number)
            {
                self.nstat_only = false;
                self.put(name, v);
                return Took::Yes;
            }
        }
        // A sentence that no rule needs, or one in another language.
        Took::Yes
    }

    fn put(&mut self, name: &str, value: i64) {
        self.seen_any = true;
        self.values += 1;
        let again = self.readings.back().is_none_or(|r| r.contains_key(name));
        let small = self.readings.back().is_some_and(Reading::is_empty);
        if (self.fresh && !small) || again {
            self.readings.push_back(Reading::new());
            while self.readings.len() > MAX_READINGS
                || (self.kept >= MAX_VALUES && self.readings.len() > 2)
            {
                self.kept -= self.readings.pop_front().map_or(0, |r| r.len());
                self.dropped += 1;
            }
        }
        self.fresh = false;
        if let Some(now) = self.readings.back_mut()
            && now.len() < MAX_NAMES
            && name.len() <= 64
        {
            now.insert(name.into(), value);
            self.kept += 1;
        }
    }

    /// Readings as sums, oldest first.
    pub(super) fn readings(&self) -> Vec<Reading> {
        let mut out: Vec<Reading> = self.readings.iter().cloned().collect();
        if out.len() < 2 || !self.growth() {
            return out;
        }
        let mut sum = Reading::new();
        for r in &mut out {
            for (name, v) in r.iter() {
                let so_far = sum.entry(name.clone()).or_insert(0);
                *so_far = so_far.saturating_add(*v);
            }
            r.clone_from(&sum);
        }
        out
    }

    /// Does each reading hold growth since the one before? Known from the command; otherwise from a
    /// counter that falls, which totals do not.
    fn growth(&self) -> bool {
        if !self.nstat_only {
            return false;
        }
        if let Some(absolute) = self.absolute {
            return !absolute;
        }
        let falls = |a: &Reading, b: &Reading| {
            a.iter().any(|(n, v)| {
                let gauge = n.contains("Curr");
                !gauge && b.get(n).is_some_and(|now| now < v)
            })
        };
        self.readings.iter().zip(self.readings.iter().skip(1)).any(|(a, b)| falls(a, b))
    }

    /// What a single reading says.
    pub(super) fn note(&self) -> Option<String> {
        let one = self.readings.front().filter(|_| self.readings.len() == 1)?;
        let since = match self.absolute {
            Some(false) if self.nstat_only => "since nstat was last run",
            _ => "since boot, or since nstat was last run",
        };
        let telling: Vec<String> = TELLING
            .iter()
            .filter_map(|n| Some((n, *one.get(*n)?)))
            .filter(|(_, v)| *v > 0)
            .map(|(n, v)| format!("{} {v}", n.trim_start_matches("TcpExt")))
            .take(6)
            .collect();
        let what = if telling.is_empty() {
            "no trouble counter is above 0".to_owned()
        } else {
            telling.join(", ")
        };
        Some(format!(
            "one reading of the counters ({since}): {what}; paste a second one to see what grows"
        ))
    }

    pub(super) fn samples(&self) -> usize {
        self.readings.len()
    }
}

/// Counters above 2^63 stay monotonic as two's complement; `MaxConn` is -1.
fn integer(text: &str) -> Option<i64> {
    if let Some(n) = uint(text) {
        return Some(n as i64);
    }
    text.strip_prefix('-').and_then(uint).and_then(|n| i64::try_from(n).ok()).map(|n| -n)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Counters {
        let mut c = Counters::default();
        for (i, l) in text.lines().enumerate() {
            if let Some(flags) = l.strip_prefix("$ nstat") {
                c.command(Some(flags.contains('a')));
            } else {
                c.line(&Line { no: i as u64 + 1, text: l });
            }
        }
        c
    }

    fn get(c: &Counters, i: usize, name: &str) -> Option<i64> {
        c.readings().get(i)?.get(name).copied()
    }

    #[test]
    fn sums_and_growth_are_told_apart() {
        let sums = read(
            "#kernel\nTcpRetransSegs 5 0.0\nTcpExtTCPTimeouts 5 0.0\n#kernel\nTcpRetransSegs 7 0.0\nTcpExtTCPTimeouts 5 0.0",
        );
        assert_eq!(
            (get(&sums, 0, "TcpRetransSegs"), get(&sums, 1, "TcpRetransSegs")),
            (Some(5), Some(7))
        );
        let growth = read("#kernel\nTcpRetransSegs 5 0.0\n#kernel\nTcpRetransSegs 2 0.0");
        assert_eq!(get(&growth, 1, "TcpRetransSegs"), Some(7));
        let told = read("$ nstat\nTcpRetransSegs 5 0.0\n$ nstat\nTcpRetransSegs 6 0.0");
        assert_eq!(get(&told, 1, "TcpRetransSegs"), Some(11));
        let told = read("$ nstat -az\nTcpRetransSegs 5 0.0\n$ nstat -az\nTcpRetransSegs 6 0.0");
        assert_eq!(get(&told, 1, "TcpRetransSegs"), Some(6));
    }

    #[test]
    fn sentences_names_and_tables() {
        let c = read(
            "Ip:\n    Forwarding: 1\n    12 total packets received\nTcp:\n    99 segments retransmitted\nUdp:\n    1997 receive buffer errors\n\
             TcpExt:\n    32 times the listen queue of a socket overflowed\n    32 SYNs to LISTEN sockets dropped\n    TCPWqueueTooBig: 3\n    8 Segmente irgendwas",
        );
        for (name, v) in [
            ("TcpRetransSegs", 99),
            ("UdpRcvbufErrors", 1997),
            ("TcpExtListenOverflows", 32),
            ("TcpExtListenDrops", 32),
            ("TcpExtTCPWqueueTooBig", 3),
        ] {
            assert_eq!(get(&c, 0, name), Some(v), "{name}");
        }
        let c = read(
            "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 1 5\nTcp: MaxConn RetransSegs\nTcp: -1 7",
        );
        assert_eq!(
            (get(&c, 0, "TcpExtTCPTimeouts"), get(&c, 0, "TcpMaxConn")),
            (Some(5), Some(-1))
        );
        assert_eq!(c.samples(), 1);
    }

    #[test]
    fn one_reading_says_what_ever_happened() {
        let note = read("TcpExtListenOverflows 32 0.0").note().unwrap();
        assert!(note.contains("ListenOverflows 32") && note.contains("since boot"), "{note}");
        assert_eq!(read("TcpRetransSegs 1 0\n#kernel\nTcpRetransSegs 2 0").note(), None);
    }
}

//! Messages of the kernel that mean trouble, as kernels from 3.10 on print them.

use super::{after, leading};
use crate::sample::told::Trouble;

/// What a message reports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) kind: Trouble,
    pub(super) subject: &'a str,
    pub(super) value: Option<u64>,
}

fn found(kind: Trouble, subject: &str) -> Found<'_> {
    let end = subject.char_indices().nth(64).map_or(subject.len(), |(i, _)| i);
    Found { kind, subject: subject.get(..end).unwrap_or(subject), value: None }
}

/// Texts that mean one kind of trouble and name no subject.
const PLAIN: [(&str, Trouble); 17] = [
    ("TCP: out of memory -- consider tuning tcp_mem", Trouble::TcpMemory),
    ("TCP: too many orphaned sockets", Trouble::TcpMemory),
    ("Neighbour table overflow", Trouble::NeighFull),
    ("VFS: file-max limit ", Trouble::FdLimit),
    ("Watchdog detected hard LOCKUP on cpu", Trouble::HardLockup),
    ("BUG: unable to handle ", Trouble::Oops),
    ("kernel BUG at ", Trouble::Oops),
    ("Oops: ", Trouble::Oops),
    ("Internal error: Oops", Trouble::Oops),
    ("Kernel panic - not syncing", Trouble::Oops),
    ("mce: [Hardware Error]", Trouble::Hardware),
    ("[Hardware Error]: ", Trouble::Hardware),
    ("Machine check events logged", Trouble::Hardware),
    ("clocksource 'tsc' as unstable", Trouble::Clock),
    ("Clocksource tsc unstable", Trouble::Clock),
    ("cpu clock throttled", Trouble::Hot),
    ("temperature above threshold", Trouble::Hot),
];

/// Tries one kind after the other.
pub(super) fn find(text: &str) -> Option<Found<'_>> {
    if text.len() < 12 {
        return None;
    }
    let plain = || PLAIN.iter().find(|(words, _)| text.contains(words)).map(|(_, k)| found(*k, ""));
    stuck(text)
        .or_else(|| disk(text))
        .or_else(|| filesystem(text))
        .or_else(|| network(text))
        .or_else(|| link(text))
        .or_else(plain)
}

/// Tasks and CPUs that are stuck.
fn stuck(text: &str) -> Option<Found<'_>> {
    if let Some(rest) = text.strip_prefix("INFO: task ")
        && let Some((who, time)) = rest.split_once(" blocked for more than ")
    {
        return Some(Found { value: leading(time), ..found(Trouble::HungTask, who) });
    }
    if let Some(rest) = after(text, "soft lockup - CPU#") {
        let value = after(rest, "stuck for ").and_then(leading);
        return Some(Found { value, ..found(Trouble::SoftLockup, number(rest)) });
    }
    if text.contains("rcu")
        && (text.contains("self-detected stall on CPU") || text.contains("detected stalls on CPU"))
    {
        return Some(found(Trouble::RcuStall, ""));
    }
    if let Some(rest) = after(text, "page allocation failure") {
        let value = after(rest, "order:").and_then(leading);
        return Some(Found { value, ..found(Trouble::AllocFailure, "") });
    }
    let group = after(text, "fork rejected by pids controller in ")?;
    Some(found(Trouble::TaskLimit, group.trim()))
}

fn number(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).unwrap_or("")
}

/// The name up to what ends it.
fn name(text: &str) -> Option<&str> {
    let end = text.find([',', ')', ':', ' ', '\t']).unwrap_or(text.len());
    text.get(..end).filter(|n| !n.is_empty() && n.len() <= 64)
}

/// `I/O error, dev sda, sector 5` with `blk_update_request:`, `print_req_error:`, `end_request:`
/// or nothing in front, `critical medium error, dev sda`, `Buffer I/O error on dev sda1,`.
fn disk(text: &str) -> Option<Found<'_>> {
    let dev = after(text, " error, dev ").or_else(|| {
        let rest = after(text, "Buffer I/O error on dev")?;
        rest.strip_prefix("ice ").or_else(|| rest.strip_prefix(' '))
    });
    if let Some(dev) = dev.and_then(name) {
        return Some(found(Trouble::DiskError, dev));
    }
    if let Some(rest) = text.strip_prefix("nvme ")
        && (text.contains(" timeout, ") || text.contains("controller is down"))
    {
        return Some(found(Trouble::DiskError, name(rest)?));
    }
    if text.starts_with("md") && text.contains("Disk failure on ") {
        let md = text.split(':').find(|p| p.starts_with("md") && !p.contains('/'));
        return Some(found(Trouble::ArrayFailed, md.unwrap_or("md")));
    }
    None
}

fn filesystem(text: &str) -> Option<Found<'_>> {
    let (kind, rest) = text.split_once(' ')?;
    if !(kind.starts_with("EXT")
        || kind.starts_with("XFS")
        || kind.starts_with("BTRFS")
        || kind.starts_with("F2FS"))
    {
        return None;
    }
    let dev = after(rest, "(device ").or_else(|| after(rest, "(")).and_then(name)?;
    let has = |w: &[&str]| w.iter().any(|w| text.contains(w));
    let no_writes = [
        "Remounting filesystem read-only",
        "forced readonly",
        "has been shut down",
        "hutting down filesystem",
    ];
    if has(&no_writes) {
        return Some(found(Trouble::FsReadOnly, dev));
    }
    let for_reading = [" ro with ", " ro.", " ro "];
    if has(&["): mounted filesystem ", "): re-mounted ", "): Ending clean mount"]) {
        return (!has(&for_reading)).then(|| found(Trouble::FsMounted, dev));
    }
    let damaged = ["-fs error ", "BTRFS error ", "BTRFS critical ", "Corruption ", "Metadata corr"];
    has(&damaged).then(|| found(Trouble::FsError, dev))
}

fn network(text: &str) -> Option<Found<'_>> {
    if text.contains("nf_conntrack: table full") || text.contains("ip_conntrack: table full") {
        return Some(found(Trouble::ConntrackFull, ""));
    }
    if let Some((table, _)) = text.split_once(": neighbor table overflow") {
        let table = table.rsplit(' ').next().unwrap_or("");
        return Some(found(Trouble::NeighFull, table));
    }
    let rest = after(text, "ossible SYN flooding on port ")?;
    let end = rest.find(". ").unwrap_or(rest.len());
    Some(found(Trouble::SynFlood, rest.get(..end).unwrap_or("").trim_end_matches('.')))
}

/// `e1000e 0000:00:1f.6 eno1: NIC Link is Down`, `bond0: (slave eth0): link status definitely
/// down`. Ports of SATA controllers and PCI slots have links too, and most are empty.
fn link(text: &str) -> Option<Found<'_>> {
    const WORDS: [(&str, Trouble); 10] = [
        ("NIC Link is Down", Trouble::LinkDown),
        ("Link is Down", Trouble::LinkDown),
        ("Link is down", Trouble::LinkDown),
        ("link is down", Trouble::LinkDown),
        ("Link down", Trouble::LinkDown),
        ("NIC Link is Up", Trouble::LinkUp),
        ("Link is Up", Trouble::LinkUp),
        ("Link is up", Trouble::LinkUp),
        ("link is up", Trouble::LinkUp),
        ("Link up", Trouble::LinkUp),
    ];
    if text.contains("SATA") || text.contains("pciehp") || text.contains("pcieport") {
        return None;
    }
    if let Some((_, rest)) = text.split_once("(slave ")
        && let Some((slave, rest)) = rest.split_once(')')
        && rest.contains("link status definitely ")
    {
        let up = rest.contains("definitely up");
        return Some(found(if up { Trouble::LinkUp } else { Trouble::LinkDown }, slave));
    }
    let (head, kind) =
        WORDS.iter().find_map(|(w, kind)| text.split_once(w).map(|(head, _)| (head, *kind)))?;
    let dev =
        head.split_ascii_whitespace().rev().map(|w| w.trim_end_matches([':', ','])).find(|w| {
            !w.is_empty()
                && !w.contains(':')
                && w.len() <= 15
                && w.starts_with(|c: char| c.is_ascii_alphabetic())
        })?;
    Some(found(kind, dev))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn messages_of_many_kernels() {
        use Trouble as T;
        for (text, kind, subject) in [
            (
                "INFO: task kworker/u8:3:123 blocked for more than 120 seconds.",
                T::HungTask,
                "kworker/u8:3:123",
            ),
            (
                "blk_update_request: I/O error, dev sda, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
                T::DiskError,
                "sda",
            ),
            ("print_req_error: I/O error, dev fd0, sector 0", T::DiskError, "fd0"),
            ("end_request: I/O error, dev sdb, sector 4", T::DiskError, "sdb"),
            (
                "I/O error, dev loop0, sector 40000 op 0x0:(READ) flags 0x800 phys_seg 1 prio class 2",
                T::DiskError,
                "loop0",
            ),
            ("critical medium error, dev sdc, sector 123 op 0x1:(WRITE)", T::DiskError, "sdc"),
            (
                "Buffer I/O error on dev dm-0, logical block 12, async page read",
                T::DiskError,
                "dm-0",
            ),
            ("Buffer I/O error on device sda1, logical block 1", T::DiskError, "sda1"),
            ("nvme nvme0: I/O 12 QID 3 timeout, aborting", T::DiskError, "nvme0"),
            ("md/raid1:md0: Disk failure on sdb1, disabling device.", T::ArrayFailed, "md0"),
            (
                "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory",
                T::FsError,
                "sda1",
            ),
            ("EXT4-fs (sda1): Remounting filesystem read-only", T::FsReadOnly, "sda1"),
            (
                "EXT4-fs (loop0): mounted filesystem e5582505 r/w with ordered data mode.",
                T::FsMounted,
                "loop0",
            ),
            (
                "XFS (dm-3): Filesystem has been shut down due to log error (0x2).",
                T::FsReadOnly,
                "dm-3",
            ),
            ("nf_conntrack: nf_conntrack: table full, dropping packet", T::ConntrackFull, ""),
            (
                "nf_conntrack: nf_conntrack: table full in netns 4026532315, dropping packet",
                T::ConntrackFull,
                "",
            ),
            ("neighbour: arp_cache: neighbor table overflow!", T::NeighFull, "arp_cache"),
            ("TCP: out of memory -- consider tuning tcp_mem", T::TcpMemory, ""),
            (
                "TCP: request_sock_TCP: Possible SYN flooding on port 10.9.0.2:5000. Sending cookies.",
                T::SynFlood,
                "10.9.0.2:5000",
            ),
            (
                "TCP: Possible SYN flooding on port 80. Sending cookies.  Check SNMP counters.",
                T::SynFlood,
                "80",
            ),
            ("watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [java:2214]", T::SoftLockup, "3"),
            ("rcu: INFO: rcu_sched self-detected stall on CPU", T::RcuStall, ""),
            (
                "INFO: rcu_sched detected stalls on CPUs/tasks: { 3} (detected by 1, t=60002 jiffies)",
                T::RcuStall,
                "",
            ),
            ("e1000e 0000:00:1f.6 eno1: NIC Link is Down", T::LinkDown, "eno1"),
            ("igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down", T::LinkDown, "eth0"),
            ("mlx5_core 0000:5e:00.0 ens1f0: Link down", T::LinkDown, "ens1f0"),
            ("tg3 0000:02:00.0: eth1: Link is up at 1000 Mbps, full duplex", T::LinkUp, "eth1"),
            (
                "bond0: (slave eth0): link status definitely down, disabling slave",
                T::LinkDown,
                "eth0",
            ),
            (
                "cgroup: fork rejected by pids controller in /stlab-threads",
                T::TaskLimit,
                "/stlab-threads",
            ),
            (
                "java: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)",
                T::AllocFailure,
                "",
            ),
        ] {
            let f = find(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((f.kind, f.subject), (kind, subject), "{text}");
        }
        assert_eq!(
            find("watchdog: BUG: soft lockup - CPU#3 stuck for 23s!").unwrap().value,
            Some(23)
        );
    }

    #[test]
    fn what_sounds_bad_and_is_not() {
        for text in [
            "ata1: SATA link down (SStatus 0 SControl 300)",
            "pcieport 0000:00:1c.0: pciehp: Slot(0): Link Down",
            "EXT4-fs (loop0): unmounting filesystem e5582505.",
            "EXT4-fs (loop0): mounted filesystem e5582505 ro with ordered data mode.",
            "EXT4-fs (sda1): re-mounted a-b ro.",
            "EXT4-fs (loop0): INFO: recovery required on readonly filesystem",
            "EXT4-fs (loop0): write access will be enabled during recovery",
            "EXT4-fs (loop0): warning: mounting fs with errors, running e2fsck is recommended",
            "XFS (sda1): Mounting V5 Filesystem",
            "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
            "EXT4-fs (sdb1): mounted filesystem x ro with ordered data mode. Opts: errors=remount-ro",
            "rcu: Hierarchical RCU implementation.",
            "clocksource: Switched to clocksource tsc",
            "sch_tbf: burst 100 is lower than device v1 mtu (1514) !",
            "nf_conntrack version 0.5.0 (65536 buckets, 262144 max)",
        ] {
            assert_eq!(find(text), None, "{text}");
        }
    }
}

//! Lines of `/proc/diskstats`, and what the attributes of a device say of it.
//!
//! Lines have 11 counters, 15 since 4.18 (discards), 17 since 5.5 (flushes), and 4 for
//! partitions of very old kernels.

use super::{fields, number, signed};
use crate::sample::disks::{DiscardCounters, DiskClass, DiskCounters, FlushCounters};
use crate::sample::subject::DiskId;

/// A line, borrowed from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedLine<'a> {
    /// Device number.
    pub id: DiskId,
    /// Kernel name.
    pub name: &'a [u8],
    /// The counters.
    pub stat: DiskCounters,
}

/// Most counters that a kernel prints and we know.
const KNOWN: usize = 17;

/// Parses one line; `None` when it is not one. A kernel that adds fields is understood.
#[must_use]
pub fn parse_line(line: &[u8]) -> Option<ParsedLine<'_>> {
    let mut rest = fields(line);
    let id = DiskId { major: u32_of(rest.next()?)?, minor: u32_of(rest.next()?)? };
    let name = rest.next()?;
    let mut raw = [0u64; KNOWN];
    let mut in_flight = 0;
    let mut len = 0usize;
    for (i, field) in rest.enumerate() {
        len = i + 1;
        if i == 8 {
            in_flight = gauge(field)?;
        } else if let Some(slot) = raw.get_mut(i) {
            *slot = counter(field)?;
        }
    }
    let v = raw;
    if len == 4 {
        let stat = DiskCounters {
            rd_ios: v[0],
            rd_sectors: v[1],
            wr_ios: v[2],
            wr_sectors: v[3],
            ..DiskCounters::default()
        };
        return Some(ParsedLine { id, name, stat });
    }
    if !matches!(len, 11 | 15 | 17..) {
        return None;
    }
    let stat = DiskCounters {
        rd_ios: v[0],
        rd_merges: v[1],
        rd_sectors: v[2],
        rd_ticks: v[3] as u32,
        wr_ios: v[4],
        wr_merges: v[5],
        wr_sectors: v[6],
        wr_ticks: v[7] as u32,
        in_flight,
        io_ticks: v[9] as u32,
        weighted: v[10] as u32,
        discard: (len >= 15).then_some(DiscardCounters {
            ios: v[11],
            merges: v[12],
            sectors: v[13],
            ticks: v[14] as u32,
        }),
        flush: (len >= 17).then_some(FlushCounters { ios: v[15], ticks: v[16] as u32 }),
    };
    Some(ParsedLine { id, name, stat })
}

fn u32_of(field: &[u8]) -> Option<u32> {
    u32::try_from(number(field)?).ok()
}

/// Some old kernels print a counter with `%d`: after 2^31 ms it shows as negative. The low 32
/// bits are right either way.
fn counter(field: &[u8]) -> Option<u64> {
    number(field).or_else(|| signed(field).map(|n| n as u64))
}

/// `in_flight` may be -1, or -1 printed as an unsigned 32-bit or 64-bit number.
fn gauge(field: &[u8]) -> Option<i64> {
    if let Some(n) = signed(field) {
        let negative = (i64::from(i32::MAX) + 1..=i64::from(u32::MAX)).contains(&n);
        return Some(if negative { i64::from(n as u32 as i32) } else { n });
    }
    number(field).map(|n| n as i64)
}

/// Names of cloud and hypervisor disks in vendor and model. Their latency and caps are those
/// of a service, and what they say about `rotational` is not to be believed.
const VIRTUAL_MODELS: [&str; 15] = [
    "Amazon Elastic Block Store",
    "Alibaba Cloud Elastic Block Storage",
    "Alibaba Cloud",
    "QEMU",
    "VBOX",
    "VMware",
    "Virtual disk",
    "Virtual Disk",
    "PersistentDisk",
    "nvme_card-pd",
    "MSFT NVMe Accelerator",
    "BlockVolume",
    "ORCL-VBOX",
    "Google",
    "UCloud",
];

/// Class, and `rotational` where it can be believed: layers inherit it from below, and
/// virtual disks make it up.
pub(crate) fn classify(
    name: &str,
    vendor: Option<&str>,
    model: Option<&str>,
    rotational: Option<bool>,
) -> (DiskClass, Option<bool>) {
    let numbered = |prefix| is_numbered(name, prefix);
    if numbered("ram") || numbered("zram") {
        return (DiskClass::Memory, None);
    }
    if ["dm-", "md", "bcache", "loop"].into_iter().any(numbered) || name.starts_with("md_") {
        return (DiskClass::Stack, None);
    }
    let known_virtual = [vendor, model]
        .into_iter()
        .flatten()
        .any(|t| VIRTUAL_MODELS.iter().any(|v| t.starts_with(v)));
    if known_virtual || name.starts_with("vd") || name.starts_with("xvd") {
        return (DiskClass::Virtual, None);
    }
    if name.starts_with("nvme") {
        return (DiskClass::Nvme, rotational);
    }
    if name.starts_with("sd") || name.starts_with("hd") || name.starts_with("dasd") {
        let class = match rotational {
            Some(true) => DiskClass::Hdd,
            Some(false) => DiskClass::Ssd,
            None => DiskClass::Other,
        };
        return (class, rotational);
    }
    (DiskClass::Other, if name.starts_with("mmcblk") { rotational } else { None })
}

/// `prefix` followed by a digit: `md0`, not `mdfoo`.
pub(crate) fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
}

/// The scheduler in brackets; a lone word stands for itself (`none`).
pub(crate) fn active_scheduler(text: &str) -> Option<String> {
    let inside = text.split_once('[').and_then(|(_, r)| r.split_once(']')).map(|(a, _)| a);
    let name = inside.or_else(|| text.split_whitespace().next().filter(|_| !text.contains(' ')))?;
    Some(name.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stat(line: &str) -> DiskCounters {
        parse_line(line.as_bytes()).unwrap().stat
    }

    #[test]
    fn seventeen_fields_land_where_the_kernel_documents_them() {
        let line = b" 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17";
        let p = parse_line(line).unwrap();
        assert_eq!((p.id, p.name), (DiskId { major: 254, minor: 0 }, &b"vda"[..]));
        let want = DiskCounters {
            rd_ios: 1,
            rd_merges: 2,
            rd_sectors: 3,
            rd_ticks: 4,
            wr_ios: 5,
            wr_merges: 6,
            wr_sectors: 7,
            wr_ticks: 8,
            in_flight: 9,
            io_ticks: 10,
            weighted: 11,
            discard: Some(DiscardCounters { ios: 12, merges: 13, sectors: 14, ticks: 15 }),
            flush: Some(FlushCounters { ios: 16, ticks: 17 }),
        };
        assert_eq!(p.stat, want);
        assert_eq!(stat("8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19"), want);
    }

    #[test]
    fn older_kernels_lack_the_later_groups() {
        let s = stat("8 0 sda 1 2 3 4 5 6 7 8 9 10 11");
        assert_eq!((s.weighted, s.discard, s.flush), (11, None, None));
        let s = stat("8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
        assert_eq!(s.discard.unwrap().ticks, 15);
        assert_eq!(s.flush, None);
        let s = stat("3 1 hda1 1 2 3 4");
        assert_eq!((s.rd_ios, s.rd_sectors, s.wr_ios, s.wr_sectors), (1, 2, 3, 4));
    }

    #[test]
    fn times_keep_their_low_32_bits_and_in_flight_may_be_negative() {
        let s = stat("8 0 sda 1 2 3 4294967296 5 6 7 4294967301 -1 -2 11");
        assert_eq!((s.rd_ticks, s.wr_ticks, s.in_flight, s.io_ticks), (0, 5, -1, u32::MAX - 1));
        assert_eq!(stat("8 0 sda 1 2 3 4 5 6 7 8 4294967295 10 11").in_flight, -1);
        assert_eq!(stat("8 0 sda 1 2 3 4 5 6 7 8 18446744073709551615 10 11").in_flight, -1);
    }

    #[test]
    fn other_lengths_are_refused() {
        for n in (0..20).filter(|n| ![4, 11, 15, 17, 18, 19].contains(n)) {
            let line = format!("8 0 sda{}", " 7".repeat(n));
            assert_eq!(parse_line(line.as_bytes()), None, "{n} counters");
        }
    }

    #[test]
    fn virtual_disks_are_not_believed_about_rotation() {
        let c = |n, v, m, r| classify(n, v, m, Some(r));
        assert_eq!(c("vda", None, None, true), (DiskClass::Virtual, None));
        assert_eq!(c("xvdf", None, None, true), (DiskClass::Virtual, None));
        let ebs = "Amazon Elastic Block Store";
        assert_eq!(c("nvme1n1", None, Some(ebs), false), (DiskClass::Virtual, None));
        assert_eq!(c("sda", Some("QEMU"), Some("HARDDISK"), true), (DiskClass::Virtual, None));
    }

    #[test]
    fn real_disks_follow_the_attribute() {
        let c = |n, m, r| classify(n, Some("ATA"), m, r);
        assert_eq!(c("sda", Some("ST4000NM"), Some(true)), (DiskClass::Hdd, Some(true)));
        assert_eq!(c("sdb", Some("SAMSUNG"), Some(false)), (DiskClass::Ssd, Some(false)));
        assert_eq!(c("sdc", None, None), (DiskClass::Other, None));
        assert_eq!(c("nvme0n1", Some("INTEL SSD"), Some(false)), (DiskClass::Nvme, Some(false)));
    }

    #[test]
    fn layers_and_memory_have_their_own_class() {
        for n in ["dm-0", "md127", "md_d0", "bcache0", "loop3"] {
            assert_eq!(classify(n, None, None, Some(true)), (DiskClass::Stack, None), "{n}");
        }
        assert_eq!(classify("zram0", None, None, Some(false)).0, DiskClass::Memory);
        assert_eq!(classify("sr0", None, None, Some(true)), (DiskClass::Other, None));
    }

    #[test]
    fn the_scheduler_is_the_one_in_brackets() {
        assert_eq!(active_scheduler("mq-deadline kyber [bfq] none").as_deref(), Some("bfq"));
        assert_eq!(active_scheduler("none").as_deref(), Some("none"));
        assert_eq!(active_scheduler("a b"), None);
        assert_eq!(active_scheduler("[").as_deref(), Some("["));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_line(&bytes);
        }

        #[test]
        fn any_line_like_text_is_survived(line in "[ 0-9a-z\\-]{0,200}") {
            let _ = parse_line(line.as_bytes());
        }

        #[test]
        fn u32_times_wrap_into_the_same_difference(before in any::<u32>(), step in 0u32..1_000_000) {
            let line = |t: u64| format!("8 0 sda 1 2 3 {t} 5 6 7 8 0 10 11");
            let (a, b) = (u64::from(before), u64::from(before) + u64::from(step));
            let diff = stat(&line(b)).rd_ticks.wrapping_sub(stat(&line(a)).rd_ticks);
            prop_assert_eq!(diff, step);
        }
    }
}

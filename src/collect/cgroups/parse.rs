//! Parsers of the control files. Each skips what it does not understand.

use crate::parse::{fields, lines, number, whole_lines};
use crate::sample::cgroups::CgroupIo;
use crate::sample::subject::DiskId;

/// Most devices of one group; hosts with more disks show the first ones.
const MAX_DEVICES: usize = 1024;

/// `cpu.stat` of either version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Periods that had runnable tasks; absent without the cpu controller (v2).
    pub nr_periods: Option<u64>,
    /// Periods in which the quota ran out.
    pub nr_throttled: Option<u64>,
    /// `throttled_time` (v1) or `throttled_usec` (v2), in ns.
    pub throttled_ns: Option<u64>,
    /// `usage_usec` (v2), in ns.
    pub usage_ns: Option<u64>,
}

/// Parses `cpu.stat`.
#[must_use]
pub fn parse_cpu_stat(bytes: &[u8]) -> CpuStat {
    let mut out = CpuStat::default();
    for line in lines(whole_lines(bytes)) {
        let mut f = fields(line);
        let (Some(name), Some(value)) = (f.next(), f.next().and_then(number)) else { continue };
        match name {
            b"nr_periods" => out.nr_periods = Some(value),
            b"nr_throttled" => out.nr_throttled = Some(value),
            b"throttled_time" => out.throttled_ns = Some(value),
            b"throttled_usec" => out.throttled_ns = Some(value.saturating_mul(1000)),
            b"usage_usec" => out.usage_ns = Some(value.saturating_mul(1000)),
            _ => {}
        }
    }
    out
}

/// `cpu.max`: quota in us, `None` for `max`, and period in us.
#[must_use]
pub fn parse_cpu_max(bytes: &[u8]) -> Option<(Option<u64>, u64)> {
    let mut f = fields(whole_lines(bytes));
    let quota = f.next()?;
    let period = number(f.next()?)?;
    if quota == b"max" { Some((None, period)) } else { Some((Some(number(quota)?), period)) }
}

/// `io.stat`: the counters of each device.
#[must_use]
pub fn parse_io_stat(bytes: &[u8]) -> Vec<CgroupIo> {
    keyed(bytes, |row, key, value| {
        let value = number(value);
        match key {
            b"rbytes" => row.rbytes = value,
            b"wbytes" => row.wbytes = value,
            b"rios" => row.rios = value,
            b"wios" => row.wios = value,
            _ => {}
        }
    })
}

/// `io.max`: the limits of each device; `max` is none.
#[must_use]
pub fn parse_io_max(bytes: &[u8]) -> Vec<CgroupIo> {
    keyed(bytes, |row, key, value| {
        let value = number(value);
        match key {
            b"rbps" => row.max_rbps = value,
            b"wbps" => row.max_wbps = value,
            b"riops" => row.max_riops = value,
            b"wiops" => row.max_wiops = value,
            _ => {}
        }
    })
}

/// `io.latency`: the latency that is protected on each device, us.
pub(super) fn parse_io_latency(bytes: &[u8], rows: &mut Vec<CgroupIo>) {
    let found = keyed(bytes, |row, key, value| {
        if key == b"target" {
            row.latency_us = number(value).filter(|n| *n > 0);
        }
    });
    for io in found {
        if let Some(row) = row_of(rows, io.dev) {
            row.latency_us = io.latency_us;
        }
    }
}

/// `io.cost.qos` of the root: the devices that the cost model shares.
pub(super) fn parse_io_cost(bytes: &[u8], rows: &mut Vec<CgroupIo>) {
    let found = keyed(bytes, |row, key, value| row.iocost |= key == b"enable" && value == b"1");
    for io in found {
        if let Some(row) = row_of(rows, io.dev) {
            row.iocost = true;
        }
    }
}

/// `MAJ:MIN key=value ...` per device. Some kernels print a device without values and the next
/// one on the same line, so every device number starts a row.
fn keyed(bytes: &[u8], mut set: impl FnMut(&mut CgroupIo, &[u8], &[u8])) -> Vec<CgroupIo> {
    let mut out: Vec<CgroupIo> = Vec::new();
    for line in lines(whole_lines(bytes)) {
        let mut row: Option<CgroupIo> = None;
        for field in fields(line) {
            if let Some(dev) = device(field) {
                row = Some(CgroupIo { dev, ..CgroupIo::default() });
            } else if let (Some(row), Some(eq)) = (&mut row, field.iter().position(|b| *b == b'='))
                && let (Some(key), Some(value)) = (field.get(..eq), field.get(eq + 1..))
            {
                set(row, key, value);
            }
        }
        if let Some(row) = row
            && out.len() < MAX_DEVICES
            && row != (CgroupIo { dev: row.dev, ..CgroupIo::default() })
        {
            out.push(row);
        }
    }
    out
}

/// Which pair of counters a v1 file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum V1Counters {
    /// `blkio.throttle.io_serviced`.
    Ios,
    /// `blkio.throttle.io_service_bytes`.
    Bytes,
}

/// v1 counters, `MAJ:MIN Read N` and `MAJ:MIN Write N`, put into `rows`.
pub fn parse_v1_io(bytes: &[u8], what: V1Counters, rows: &mut Vec<CgroupIo>) {
    for line in lines(whole_lines(bytes)) {
        let mut f = fields(line);
        let (Some(dev), Some(kind), Some(n)) =
            (f.next().and_then(device), f.next(), f.next().and_then(number))
        else {
            continue;
        };
        let read = match kind {
            b"Read" => true,
            b"Write" => false,
            _ => continue,
        };
        let Some(row) = row_of(rows, dev) else { continue };
        let slot = match (what, read) {
            (V1Counters::Ios, true) => &mut row.rios,
            (V1Counters::Ios, false) => &mut row.wios,
            (V1Counters::Bytes, true) => &mut row.rbytes,
            (V1Counters::Bytes, false) => &mut row.wbytes,
        };
        *slot = Some(n);
    }
}

/// v1 limits, `MAJ:MIN N`; `set` puts one into its row.
pub fn parse_v1_limits(bytes: &[u8], rows: &mut Vec<CgroupIo>, set: impl Fn(&mut CgroupIo, u64)) {
    for line in lines(whole_lines(bytes)) {
        let mut f = fields(line);
        if let (Some(dev), Some(n)) = (f.next().and_then(device), f.next().and_then(number))
            && let Some(row) = row_of(rows, dev)
        {
            set(row, n);
        }
    }
}

/// The row of `dev`, made if it is not there.
pub(super) fn row_of(rows: &mut Vec<CgroupIo>, dev: DiskId) -> Option<&mut CgroupIo> {
    let at = match rows.iter().position(|r| r.dev == dev) {
        Some(i) => i,
        None if rows.len() < MAX_DEVICES => {
            rows.push(CgroupIo { dev, ..CgroupIo::default() });
            rows.len() - 1
        }
        None => return None,
    };
    rows.get_mut(at)
}

/// A memory file: a number of bytes; `None` for `max`, and for the huge number that v1 prints
/// when there is no limit.
pub(super) fn parse_memory(bytes: &[u8]) -> Option<u64> {
    number(whole_lines(bytes).trim_ascii()).filter(|n| *n < 1 << 62)
}

/// The count of one event in a file of `name count` lines, such as `memory.events`.
pub(super) fn parse_event(bytes: &[u8], name: &[u8]) -> Option<u64> {
    lines(whole_lines(bytes)).find_map(|line| {
        let mut f = fields(line);
        (f.next()? == name).then(|| number(f.next()?))?
    })
}

/// `254:0`.
fn device(field: &[u8]) -> Option<DiskId> {
    let colon = field.iter().position(|b| *b == b':')?;
    let part = |b: &[u8]| u32::try_from(number(b)?).ok();
    Some(DiskId { major: part(field.get(..colon)?)?, minor: part(field.get(colon + 1..)?)? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VDA: DiskId = DiskId { major: 254, minor: 0 };
    const SDB: DiskId = DiskId { major: 8, minor: 16 };

    #[test]
    fn cpu_files_of_both_versions_end_up_in_ns() {
        let v1 = parse_cpu_stat(b"nr_periods 20\nnr_throttled 19\nthrottled_time 1571000000\n");
        let v2 = parse_cpu_stat(
            b"usage_usec 400000\nuser_usec 1\nnr_periods 20\nnr_throttled 19\nthrottled_usec 1571000\n",
        );
        assert_eq!(v1.throttled_ns, v2.throttled_ns);
        assert_eq!((v1.usage_ns, v2.usage_ns), (None, Some(400_000_000)));
        assert_eq!((v2.nr_periods, v2.nr_throttled), (Some(20), Some(19)));
        assert_eq!(parse_cpu_max(b"20000 100000\n"), Some((Some(20_000), 100_000)));
        assert_eq!(parse_cpu_max(b"max 100000\n"), Some((None, 100_000)));
        assert_eq!(parse_cpu_max(b"max\n"), None);
    }

    #[test]
    fn io_files_of_v2_keep_devices_apart() {
        let rows = parse_io_stat(
            b"254:0 rbytes=90112 wbytes=4096 rios=2 wios=1 dbytes=0 dios=0 cost.usage=3\n8:0 \n\
              7:0 8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n",
        );
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].dev, rows[0].rbytes, rows[0].wios), (VDA, Some(90_112), Some(1)));
        assert_eq!((rows[1].dev, rows[1].rios, rows[1].wios), (SDB, Some(3), Some(4)));
        let rows = parse_io_max(b"8:16 rbps=2097152 wbps=max riops=max wiops=120\n");
        let want = CgroupIo {
            dev: SDB,
            max_rbps: Some(2_097_152),
            max_wiops: Some(120),
            ..CgroupIo::default()
        };
        assert_eq!(rows, [want]);
    }

    #[test]
    fn latency_and_cost_join_the_limits_of_a_device() {
        let mut rows = parse_io_max(b"8:16 rbps=max wbps=max riops=max wiops=120\n");
        parse_io_latency(b"8:16 target=75000\n254:0 target=0\n", &mut rows);
        parse_io_cost(b"254:0 enable=1 ctrl=auto rpct=0.00\n8:16 enable=0 ctrl=auto\n", &mut rows);
        let want = [
            CgroupIo {
                dev: SDB,
                max_wiops: Some(120),
                latency_us: Some(75_000),
                ..CgroupIo::default()
            },
            CgroupIo { dev: VDA, iocost: true, ..CgroupIo::default() },
        ];
        assert_eq!(rows, want);
        parse_io_latency(b"x target\n8:16 target=\n", &mut rows);
        parse_io_cost(b"\xff 8:16 enable\n", &mut rows);
        assert_eq!(rows, want);
    }

    #[test]
    fn v1_counters_and_limits_meet_in_one_row() {
        let mut rows = Vec::new();
        // As captured: Sync, Async, Discard and Total repeat what Read and Write say.
        let text = b"254:0 Read 2\n254:0 Write 1\n254:0 Sync 3\n254:0 Total 3\nTotal 3\n";
        parse_v1_io(text, V1Counters::Ios, &mut rows);
        parse_v1_io(b"254:0 Read 90112\n254:0 Write 7\nTotal 9\n", V1Counters::Bytes, &mut rows);
        parse_v1_limits(b"254:0 500\n", &mut rows, |r, n| r.max_wiops = Some(n));
        let want = CgroupIo {
            dev: VDA,
            rios: Some(2),
            wios: Some(1),
            rbytes: Some(90_112),
            wbytes: Some(7),
            max_wiops: Some(500),
            ..CgroupIo::default()
        };
        assert_eq!(rows, [want]);
    }

    /// Both of 6.18; `oom_kill` is not `oom_kill_disable`, nor `oom`.
    #[test]
    fn events_are_found_by_their_whole_name() {
        let v1 = b"oom_kill_disable 0\nunder_oom 0\noom_kill 17\n";
        let v2 = b"low 0\nhigh 7\nmax 5\noom 4\noom_kill 3\noom_group_kill 1\n";
        assert_eq!(parse_event(v1, b"oom_kill"), Some(17));
        assert_eq!(parse_event(v2, b"oom_kill"), Some(3));
        assert_eq!(parse_event(v2, b"max"), Some(5));
        // Before 4.13.
        assert_eq!(parse_event(b"oom_kill_disable 0\nunder_oom 0\n", b"oom_kill"), None);
        assert_eq!(parse_event(b"max 5", b"max"), None, "cut");
    }

    #[test]
    fn no_memory_limit_is_none() {
        assert_eq!(parse_memory(b"max\n"), None);
        assert_eq!(parse_memory(b"9223372036854771712\n"), None);
        assert_eq!(parse_memory(b"536870912\n"), Some(512 << 20));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (parse_cpu_stat(&bytes), parse_cpu_max(&bytes), parse_memory(&bytes));
            let _ = parse_event(&bytes, b"max");
            let _ = (parse_io_stat(&bytes), parse_io_max(&bytes));
            let mut rows = Vec::new();
            parse_v1_io(&bytes, V1Counters::Ios, &mut rows);
            parse_v1_limits(&bytes, &mut rows, |r, n| r.max_rbps = Some(n));
        }

        #[test]
        fn any_io_like_text_is_survived(text in "([0-9:]{1,6}( [a-z]{1,6}=?[0-9max]{0,12}){0,4}\n){0,6}") {
            let _ = (parse_io_stat(text.as_bytes()), parse_io_max(text.as_bytes()));
        }

        #[test]
        fn truncation_shortens_and_changes_nothing(cut in 0usize..120) {
            let text = b"254:0 rbytes=90112 wbytes=4096 rios=2 wios=1\n8:16 rbytes=10 wbytes=20 rios=30 wios=40\n";
            let part = parse_io_stat(&text[..cut.min(text.len())]);
            prop_assert!(parse_io_stat(text).starts_with(&part));
        }
    }
}

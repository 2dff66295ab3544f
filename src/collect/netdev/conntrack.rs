//! Connection tracking: `/proc/sys/net/netfilter/nf_conntrack_{count,max}` and
//! `/proc/net/stat/nf_conntrack` (one row of hexadecimal counters per CPU, columns by name).
//! The sysctls are those of the calling thread's namespace.

use crate::collect::HostFs;
use crate::parse::{fields, hex, lines, whole_lines};
use crate::sample::netdev::Conntrack;

/// Reads them; `net` is where the files of `/proc/net` are. `None` without the module.
pub(super) fn read(host: &HostFs, net: &str, buf: &mut Vec<u8>) -> Option<Conntrack> {
    let number = |name: &str| host.read_number(format!("proc/sys/net/netfilter/{name}")).ok();
    let mut out = Conntrack {
        count: number("nf_conntrack_count")?,
        max: number("nf_conntrack_max")?,
        ..Conntrack::default()
    };
    if host.read_into(format!("{net}/stat/nf_conntrack"), buf).is_ok() {
        [out.drop, out.insert_failed, out.early_drop] = parse_stat(buf);
    }
    Some(out)
}

/// The sums over all CPUs of `drop`, `insert_failed` and `early_drop`, wrapping as the counters
/// themselves do. `None` for a column that is not there, or a row that is torn.
#[must_use]
pub fn parse_stat(bytes: &[u8]) -> [Option<u32>; 3] {
    const NAMES: [&[u8]; 3] = [b"drop", b"insert_failed", b"early_drop"];
    let whole = whole_lines(bytes);
    let torn = whole.len() < bytes.len();
    let mut rows = lines(whole);
    let Some(header) = rows.next() else { return [None; 3] };
    let columns = NAMES.map(|n| fields(header).position(|f| f == n));
    let mut sums = columns.map(|c| (c.is_some() && !torn).then_some(0_u32));
    let mut any = false;
    for row in rows {
        any = true;
        for (sum, column) in sums.iter_mut().zip(columns) {
            let value = column.and_then(|c| fields(row).nth(c)).and_then(hex);
            *sum = sum.zip(value).map(|(s, v)| s.wrapping_add(v as u32));
        }
    }
    if any { sums } else { [None; 3] }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::collect::testing::fixtures;
    use proptest::prelude::*;

    fn fixture(kernel: &str) -> Option<Conntrack> {
        let host = HostFs::at(fixtures().join(kernel));
        read(&host, "proc/net", &mut Vec::new())
    }

    #[test]
    fn the_captured_table_is_read() {
        let c = fixture("6.18").unwrap();
        assert_eq!((c.count, c.max), (64, 64));
        // All on CPU 1: 214 in hexadecimal, of 599 new connections.
        assert_eq!((c.drop, c.insert_failed, c.early_drop), (Some(532), Some(0), Some(3)));
        assert_eq!(fixture("3.10"), None, "no such module there");
    }

    #[test]
    fn columns_are_found_by_name_and_sums_wrap() {
        let text = b"entries  drop new insert_failed\n00000001 ffffffff 2 3\n1 2 2 4\n";
        assert_eq!(parse_stat(text), [Some(1), Some(7), None]);
        assert_eq!(parse_stat(b"entries drop\n"), [None; 3], "no CPU, no sum");
        assert_eq!(parse_stat(b"entries drop\n1 2\n1"), [None; 3], "torn");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_stat(&bytes);
        }
    }
}

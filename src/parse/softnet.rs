//! `/proc/net/softnet_stat`.

use super::{fields, hex, lines, whole_lines};
use crate::sample::softirq::SoftnetRow;
use crate::sample::subject::CpuId;

/// `/proc/net/softnet_stat`, with the number of lines that are none. `online` names the CPUs
/// of the rows where the kernel does not; it is used only when the row count fits.
#[must_use]
pub fn parse_softnet(bytes: &[u8], online: &[CpuId]) -> (Vec<SoftnetRow>, u32) {
    let whole = whole_lines(bytes);
    let rows = lines(whole).count();
    let mut bad = u32::from(whole.len() < bytes.len());
    let torn = bad > 0;
    let mut out = Vec::with_capacity(rows);
    for (i, line) in lines(whole).enumerate() {
        let by_order = online.get(i).filter(|_| rows == online.len() && !torn).copied();
        match softnet_row(line, by_order) {
            Some(row) => out.push(row),
            None => bad = bad.saturating_add(1),
        }
    }
    (out, bad)
}

fn softnet_row(line: &[u8], by_order: Option<CpuId>) -> Option<SoftnetRow> {
    let mut v = [None; 13];
    let mut len = 0usize;
    for (slot, field) in v.iter_mut().zip(fields(line)) {
        *slot = Some(hex(field)? as u32);
        len += 1;
    }
    // 9 columns at the least; the 12th and 13th came together.
    if len < 9 || len == 12 {
        return None;
    }
    let [processed, dropped, time_squeeze, _, _, _, _, _, _, rps, flow, backlog, cpu] = v;
    Some(SoftnetRow {
        cpu: if len >= 13 { cpu.map(CpuId) } else { by_order },
        processed: processed?,
        dropped: dropped?,
        time_squeeze: time_squeeze?,
        received_rps: rps,
        flow_limit: flow,
        backlog_len: backlog,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(ids: &[u32]) -> Vec<CpuId> {
        ids.iter().copied().map(CpuId).collect()
    }

    fn line(columns: usize, cpu: u32) -> String {
        let mut v = vec!["00000000".to_owned(); columns];
        v[0] = "0000002a".into();
        if columns > 12 {
            v[12] = format!("{cpu:08x}");
        }
        v.join(" ") + "\n"
    }

    #[test]
    fn softnet_of_every_age_is_read() {
        for columns in [9, 10, 11, 13, 15, 17] {
            let text = line(columns, 0) + &line(columns, 3);
            let (rows, bad) = parse_softnet(text.as_bytes(), &cpus(&[0, 2]));
            assert_eq!((rows.len(), bad), (2, 0), "{columns}");
            assert_eq!(rows[1].processed, 42);
            let second = if columns >= 13 { 3 } else { 2 };
            assert_eq!(rows[1].cpu, Some(CpuId(second)), "{columns}");
            assert_eq!(rows[0].received_rps.is_some(), columns >= 10, "{columns}");
            assert_eq!(rows[0].flow_limit.is_some(), columns >= 11, "{columns}");
            assert_eq!(rows[0].backlog_len.is_some(), columns >= 13, "{columns}");
        }
    }

    #[test]
    fn rows_that_do_not_match_the_online_cpus_have_no_cpu() {
        let text = line(11, 0) + &line(11, 0);
        let (rows, _) = parse_softnet(text.as_bytes(), &cpus(&[0, 1, 2]));
        assert_eq!(rows.iter().map(|r| r.cpu).collect::<Vec<_>>(), [None, None]);
        let (rows, bad) = parse_softnet(b"xyz\n12 34\n", &[]);
        assert_eq!((rows.len(), bad), (0, 2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse_softnet(&bytes, &[CpuId(0)]);
        }
    }
}

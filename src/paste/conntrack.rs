//! `conntrack -S` and the two sysctls that go with it. The columns differ between releases, so they
//! are read by name.

use super::number::uint;
use super::{Line, Took};
use crate::sample::told::Conntrack;

/// Readings kept; the oldest go.
const MAX_READINGS: usize = 600;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Stat {
    pub(super) list: Vec<Conntrack>,
    /// Highest CPU number in the current reading.
    cpu: Option<u64>,
    pub(super) count: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) rows: u64,
    pub(super) dropped: u64,
}

impl Stat {
    /// A prompt with a command: what follows is another reading.
    pub(super) fn command(&mut self) {
        self.cpu = None;
    }

    pub(super) fn line(&mut self, line: &Line<'_>) -> Took {
        let text = line.text.trim();
        if self.sysctl(text).is_some() {
            self.rows += 1;
            return Took::Yes;
        }
        let Some(rest) = text.strip_prefix("cpu=") else { return Took::No };
        let mut words = rest.split_ascii_whitespace();
        let Some(cpu) = words.next().and_then(uint) else { return Took::No };
        let mut row = Conntrack::default();
        let mut known = 0;
        for word in words.take(40) {
            let Some((name, value)) = word.split_once('=') else { return Took::No };
            let Some(value) = uint(value) else { return Took::No };
            let slot = match name {
                "drop" => &mut row.drop,
                "insert_failed" => &mut row.insert_failed,
                "early_drop" => &mut row.early_drop,
                "invalid" => &mut row.invalid,
                "clash_resolve" => &mut row.clash_resolve,
                "chaintoolong" => &mut row.chaintoolong,
                _ => continue,
            };
            *slot = Some(value);
            known += 1;
        }
        if known < 2 {
            return Took::No;
        }
        self.rows += 1;
        let next = self.cpu.is_some_and(|last| cpu > last);
        self.cpu = Some(cpu);
        if let Some(sum) = self.list.last_mut().filter(|_| next) {
            add(sum, &row);
        } else {
            if self.list.len() >= MAX_READINGS {
                self.list.remove(0);
                self.dropped += 1;
            }
            self.list.push(row);
        }
        Took::Yes
    }

    /// `net.netfilter.nf_conntrack_count = 64`.
    fn sysctl(&mut self, text: &str) -> Option<()> {
        let (name, value) = text.split_once('=')?;
        let slot = match name.trim_end().rsplit(['.', '/']).next()? {
            "nf_conntrack_count" => &mut self.count,
            "nf_conntrack_max" => &mut self.max,
            _ => return None,
        };
        *slot = Some(uint(value.trim())?);
        Some(())
    }
}

fn add(sum: &mut Conntrack, row: &Conntrack) {
    let plus = |a: &mut Option<u64>, b: Option<u64>| {
        *a = a.zip(b).map(|(a, b)| a.saturating_add(b));
    };
    plus(&mut sum.drop, row.drop);
    plus(&mut sum.insert_failed, row.insert_failed);
    plus(&mut sum.early_drop, row.early_drop);
    plus(&mut sum.invalid, row.invalid);
    plus(&mut sum.clash_resolve, row.clash_resolve);
    plus(&mut sum.chaintoolong, row.chaintoolong);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_summed_and_readings_told_apart() {
        let mut s = Stat::default();
        for text in [
            "cpu=0   \tfound=0 invalid=1 insert=0 insert_failed=2 drop=3 early_drop=0 error=0 search_restart=0 clash_resolve=0 chaintoolong=0 ",
            "cpu=1   \tfound=0 invalid=2 insert=0 insert_failed=3 drop=4 early_drop=1 error=0 search_restart=0 clash_resolve=5 chaintoolong=0 ",
            "cpu=0   \tsearched=9 found=0 new=0 invalid=5 ignore=0 delete=0 delete_list=0 insert=0 insert_failed=9 drop=9 early_drop=0 error=0 search_restart=0",
            "net.netfilter.nf_conntrack_count = 64",
            "net.netfilter.nf_conntrack_max = 65536",
        ] {
            assert_eq!(s.line(&Line { no: 1, text }), Took::Yes, "{text}");
        }
        let first = Conntrack {
            drop: Some(7),
            insert_failed: Some(5),
            early_drop: Some(1),
            invalid: Some(3),
            clash_resolve: Some(5),
            chaintoolong: Some(0),
        };
        assert_eq!(s.list.first(), Some(&first));
        assert_eq!(s.list.get(1).and_then(|r| r.clash_resolve), None, "old tool");
        assert_eq!((s.count, s.max), (Some(64), Some(65536)));
        for text in
            ["cpu=x drop=1 invalid=2", "cpu=0", "cpu=0 drop=1 y", "a=b", "cpu=0 drop=-1 z=2"]
        {
            assert_eq!(s.line(&Line { no: 1, text }), Took::No, "{text}");
        }
    }
}

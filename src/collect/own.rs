//! What this program itself costs: CPU time and memory, from `/proc/self`.

use std::time::Duration;

use super::hot::HotFile;
use super::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::clock;
use crate::parse::{fields, number};
use crate::sample::own::OwnSample;
use crate::sample::time::STAMP_NS;
use crate::sample::{CollectorId, Signal};

/// Reads it. See the module head.
pub struct OwnCollector {
    statm: HotFile,
    stat: HotFile,
    live: bool,
}

/// Bytes per page and USER_HZ of captured files.
const CAPTURED_PAGE: u64 = 4096;
const CAPTURED_HZ: u64 = 100;

impl Collector for OwnCollector {
    type Sample = OwnSample;
    const ID: CollectorId = CollectorId::Own;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let file = |name: &str| HotFile::record(host, format!("proc/self/{name}"));
        Ok(Self { statm: file("statm"), stat: file("stat"), live: host.is_live() })
    }

    fn sample(&mut self, _cx: &SampleContext<'_>) -> Result<OwnSample, CollectError> {
        let page = if self.live { rustix::param::page_size() as u64 } else { CAPTURED_PAGE };
        let rss_bytes = self.statm.read().ok().and_then(|b| resident(b)?.checked_mul(page));
        let cpu = if self.live {
            let ns = clock::process_cpu().as_nanos() as u64;
            Duration::from_nanos(ns - ns % STAMP_NS)
        } else {
            let stat = self.stat.read().map_err(|e| CollectError::read("proc/self/stat", e))?;
            used_ticks(stat)
                .map(|t| Duration::from_millis(t * (1000 / CAPTURED_HZ)))
                .unwrap_or_default()
        };
        Ok(OwnSample { cpu, rss_bytes })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        out.push(Signal::ok("own cost", "/proc/self"));
    }
}

/// Second field of statm: resident pages.
fn resident(statm: &[u8]) -> Option<u64> {
    number(fields(statm).nth(1)?)
}

/// `utime` and `stime` of a stat line, in ticks. `comm` may hold blanks and parentheses.
fn used_ticks(stat: &[u8]) -> Option<u64> {
    let after = stat.get(stat.iter().rposition(|b| *b == b')')? + 1..)?;
    let mut times = fields(after).skip(11).map(number);
    times.next()??.checked_add(times.next()??)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sample::Interest;
    use crate::sample::time::MonoNs;
    use proptest::prelude::*;

    #[test]
    fn fields_are_found_behind_a_hostile_comm() {
        assert_eq!(resident(b"100 42 3 4 5 6 7\n"), Some(42));
        let stat = b"7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13\n";
        // state=S ppid=1 ... cmajflt=10, utime=11, stime=12
        assert_eq!(used_ticks(stat), Some(11 + 12));
        assert_eq!(used_ticks(b"7 (a"), None);
    }

    #[test]
    fn a_live_reading_counts_our_work() {
        let mut c = OwnCollector::open(&HostFs::live(), &CollectOptions::default()).unwrap();
        let interest = Interest::default();
        let cx =
            SampleContext { at: MonoNs(0), interval: Duration::from_secs(1), interest: &interest };
        let before = c.sample(&cx).unwrap();
        assert!(before.rss_bytes.unwrap() > 1 << 20);
        while c.sample(&cx).unwrap().cpu == before.cpu {}
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (resident(&bytes), used_ticks(&bytes));
        }
    }
}

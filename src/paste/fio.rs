//! The disk statistics that fio prints at its end: `vdb: ios=2019321/6, merge=0/0,
//! ticks=15250526/85, in_queue=15009984, util=99.95%`, and what is needed from the lines before:
//! the run time, and the size of requests. The other lines of fio's output, from 2.x to 3.x, are
//! recognised but give nothing to judge.
//!
//! The numbers are totals of the run, so without a run time there are latencies but no rates.

use std::collections::VecDeque;
use std::time::Duration;

use super::iostat::{DiskRates, Interval, Names, device};
use super::number::{float, uint};
use super::{Line, Took};

/// Runs kept; the oldest go.
const MAX_RUNS: usize = 600;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Fio {
    /// Run time and request size of the job whose output is being read.
    run_ms: Option<u64>,
    block: Option<u64>,
    /// A new job began since the last disk line.
    fresh: bool,
    runs: VecDeque<Interval>,
    pub(super) rows: u64,
    /// Rows without a run time.
    pub(super) timeless: u64,
    pub(super) dropped: u64,
}

impl Fio {
    /// A prompt: another run.
    pub(super) fn command(&mut self) {
        (self.run_ms, self.block, self.fresh) = (None, None, true);
    }

    pub(super) fn line(&mut self, line: &Line<'_>, names: &mut Names) -> Took {
        let text = line.text.trim_start();
        if let Some(ios) = text.find("ios=").filter(|_| text.contains("ticks=")) {
            return self.disk(text, ios, names);
        }
        let Some(kind) = job_line(text) else { return Took::No };
        if kind == Job::Start {
            self.command();
            self.block = block_size(text);
        } else if let Some(ms) = run_time(text) {
            // Several groups: the longest run is the one that the statistics cover.
            self.run_ms = Some(self.run_ms.unwrap_or(0).max(ms));
        }
        Took::Yes
    }

    fn disk(&mut self, text: &str, ios: usize, names: &mut Names) -> Took {
        let Some((name, _)) = text.get(..ios).and_then(|t| t.split_once(':')) else {
            return Took::No;
        };
        let name = name.split_ascii_whitespace().next().unwrap_or("");
        if !device(name) {
            return Took::No;
        }
        let get = |key: &str| value(text, key);
        let (Some((rd, wr)), Some((rt, wt))) =
            (get("ios=").and_then(pair), get("ticks=").and_then(pair))
        else {
            return Took::No;
        };
        self.rows += 1;
        let inline = trailing_ms(text);
        let known = inline.or(self.run_ms).filter(|ms| *ms > 0);
        self.timeless += u64::from(known.is_none());
        // Without a run time the totals are put into one second, of which nothing else is known.
        let ms = known.unwrap_or(1000);
        let seconds = ms as f64 / 1000.0;
        let kb = |ios: u64, sectors: Option<u64>| match (sectors, self.block) {
            (Some(s), _) => s as f64 / 2.0,
            (None, Some(block)) => ios as f64 * block as f64 / 1024.0,
            (None, None) => 0.0,
        };
        let sectors = get("sectors=").and_then(pair);
        let merged = get("merge=").and_then(pair).unwrap_or((0, 0));
        let queue = get("in_queue=").and_then(uint).unwrap_or(0);
        let mean = |ticks: u64, ios: u64| if ios > 0 { ticks as f64 / ios as f64 } else { 0.0 };
        let d = DiskRates {
            r_s: rd as f64 / seconds,
            w_s: wr as f64 / seconds,
            rkb_s: kb(rd, sectors.map(|s| s.0)) / seconds,
            wkb_s: kb(wr, sectors.map(|s| s.1)) / seconds,
            rrqm_s: merged.0 as f64 / seconds,
            wrqm_s: merged.1 as f64 / seconds,
            r_await: mean(rt, rd),
            w_await: mean(wt, wr),
            aqu_sz: queue as f64 / ms as f64,
            util: get("util=").and_then(float).unwrap_or(0.0),
            ..DiskRates::default()
        };
        let Some(i) = names.of(name) else { return Took::Yes };
        let length = Duration::from_millis(ms.min(30 * 86_400_000));
        let untimed = known.is_none();
        let joins = |r: &Interval| {
            !self.fresh
                && inline.is_none()
                && (r.length, r.untimed) == (Some(length), untimed)
                && r.rows.len() < 1000
                && r.rows.iter().all(|(n, _)| *n != i)
        };
        if let Some(run) = self.runs.back_mut().filter(|r| joins(r)) {
            run.rows.push((i, d));
        } else {
            let rows = vec![(i, d)];
            self.runs.push_back(Interval { length: Some(length), untimed, rows });
        }
        self.fresh = false;
        if self.runs.len() > MAX_RUNS {
            self.runs.pop_front();
            self.dropped += 1;
        }
        Took::Yes
    }

    /// Runs, oldest first.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Interval> {
        self.runs.iter()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    /// `job: (g=0): rw=randread, bs=(R) 4096B-4096B, ...`.
    Start,
    /// Another line of fio's output.
    Other,
}

/// Lines of fio's output that are known by their first word or by their form.
fn job_line(text: &str) -> Option<Job> {
    if text.contains("(g=") && text.contains("rw=") {
        return Some(Job::Start);
    }
    let first = text
        .split(|c: char| c == ':' || c == '(' || c == '=' || c.is_whitespace())
        .next()
        .unwrap_or("");
    let known = match first {
        "READ" | "WRITE" | "TRIM" | "MIXED" | "read" | "write" | "trim" | "mixed" | "bw" => {
            ["run=", "runt=", "maxt=", "msec)", "min=", "IOPS=", "iops="]
                .iter()
                .any(|key| text.contains(key))
        }
        "slat" | "clat" | "lat" | "iops" | "sync" => {
            text.contains("min=") || text.contains('%') || text.contains("percentiles")
        }
        "cpu" => text.contains("usr="),
        "IO" => text.starts_with("IO depths"),
        "submit" | "complete" => text.contains("4="),
        "latency" => text.contains("target="),
        "errors" => text.contains("first_error="),
        "Run" => text.starts_with("Run status group"),
        "Disk" => text.starts_with("Disk stats"),
        "Jobs" => text.contains("(f="),
        "fsync/fdatasync/sync_file_range" | "issued" | "fio-2" | "fio-3" => true,
        _ => {
            // A row of percentiles, with or without the bar before it.
            text.contains("th=[")
                || text.contains(": (groupid=")
                || text.contains(": Laying out IO file")
                || text.starts_with("fio-")
                || text.starts_with("fio: ")
                || (text.starts_with("Starting ")
                    && (text.contains("process") || text.contains("thread")))
        }
    };
    known.then_some(Job::Other)
}

/// `key=value` up to the next comma or blank.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    // `aggrios=` holds `ios=` too: a key begins a word.
    let at = text.match_indices(key).map(|(i, _)| i).find(|i| {
        text.get(..*i).and_then(|t| t.chars().next_back()).is_none_or(|c| !c.is_alphanumeric())
    })?;
    let rest = text.get(at + key.len()..)?;
    // The decimal comma of util is followed by a digit, the one between keys by a blank.
    let end = rest
        .char_indices()
        .find(|(i, c)| {
            let next = rest.get(i + c.len_utf8()..).and_then(|t| t.chars().next());
            c.is_whitespace()
                || *c == ';'
                || (*c == ',' && !next.is_some_and(|n| n.is_ascii_digit()))
        })
        .map_or(rest.len(), |(i, _)| i);
    rest.get(..end)
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (a, b) = text.split_once('/')?;
    Some((uint(a)?, uint(b.split('/').next()?)?))
}

/// `run=120007-120007msec`, `runt=120007msec`, `(7888MiB/120007msec)`, and before 3.0
/// `mint=19913msec, maxt=19927msec`: the longest.
fn run_time(text: &str) -> Option<u64> {
    let digits_before = |end: usize| {
        let head = text.get(..end)?.trim_end();
        let from = head.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1);
        uint(head.get(from..)?)
    };
    text.match_indices("msec").filter_map(|(end, _)| digits_before(end)).max()
}

/// `... 120007 ms` at the end of a disk line, as people add it by hand.
fn trailing_ms(text: &str) -> Option<u64> {
    let head = text.strip_suffix("msec").or_else(|| text.strip_suffix("ms"))?.trim_end();
    uint(head.rsplit(|c: char| c.is_whitespace() || c == '(').next()?)
}

/// `bs=(R) 4096B-4096B, (W) ...`, `bs=4K-4K/4K-4K`, when all are one size.
fn block_size(text: &str) -> Option<u64> {
    let rest = text.get(text.find("bs=")? + 3..)?;
    let word = rest.trim_start_matches("(R)").trim_start();
    let (least, more) = word.split_once('-')?;
    let most = more.split([',', '/', ' ']).next()?;
    let size = |w: &str| {
        let w = w.trim_end_matches('B').trim_end_matches('i');
        let (n, scale) = match w.as_bytes().last()? {
            b'k' | b'K' => (w.get(..w.len() - 1)?, 1024),
            b'm' | b'M' => (w.get(..w.len() - 1)?, 1024 * 1024),
            _ => (w, 1),
        };
        uint(n)?.checked_mul(scale)
    };
    let n = size(least)?;
    (size(most)? == n && n > 0 && n <= 1 << 30).then_some(n)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> (Fio, Names) {
        let (mut fio, mut names) = (Fio::default(), Names::default());
        for (i, l) in text.lines().enumerate() {
            fio.line(&Line { no: i as u64 + 1, text: l }, &mut names);
        }
        (fio, names)
    }

    const RUN: &str = "\
randread: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=128
fio-3.7
Starting 1 process
randread: (groupid=0, jobs=1): err= 0: pid=1: Mon Jan  1 00:00:00 2026
   read: IOPS=16.8k, BW=65.7MiB/s (68.9MB/s)(7888MiB/120007msec)
    clat (usec): min=250, max=20000, avg=7599.75, stdev=747.00
Run status group 0 (all jobs):
   READ: bw=65.7MiB/s (68.9MB/s), 65.7MiB/s-65.7MiB/s (68.9MB/s-68.9MB/s), io=7888MiB (8271MB), run=120007-120007msec
Disk stats (read/write):
  vdb: ios=2019321/6, merge=0/0, ticks=15250526/85, in_queue=15009984, util=99,95%
";

    /// Little's law: 2019327 requests and 15250611 ms over 120007 ms are 16827 IOPS of 7.552
    /// ms and a queue of 127.1.
    #[test]
    fn a_run_gives_rates() {
        let (fio, names) = read(RUN);
        let run = fio.runs().next().unwrap();
        assert_eq!(
            (names.list[0].as_str(), run.length),
            ("vdb", Some(Duration::from_millis(120_007)))
        );
        let d = run.rows[0].1;
        assert!((d.r_s + d.w_s - 16_826.7).abs() < 0.1);
        assert!((d.r_s * d.r_await / 1000.0 - 127.08).abs() < 0.01);
        assert!((d.rkb_s / d.r_s - 4.0).abs() < 1e-9, "4 kB each");
        assert_eq!((d.util, (d.aqu_sz * 100.0).round()), (99.95, 12508.0));
    }

    #[test]
    fn without_a_run_time_there_are_no_rates() {
        let line =
            "  sda: ios=29639/657, merge=0/0, ticks=633013/17071, in_queue=655713, util=99.00%";
        let (fio, _) = read(line);
        assert_eq!((fio.rows, fio.timeless), (1, 1));
        let run = fio.runs().next().unwrap();
        let d = run.rows[0].1;
        assert!(run.untimed);
        // What a mean needs is there: counts and times.
        assert_eq!((d.r_s, d.w_s, d.util), (29639.0, 657.0, 99.0));
        assert!((d.r_await - 21.357).abs() < 0.001 && (d.w_await - 25.983).abs() < 0.001);
        let (fio, _) = read(&format!("{line} over 60050 ms"));
        let d = fio.runs().next().unwrap().rows[0].1;
        assert!((d.r_s + d.w_s - 504.5).abs() < 0.1);
    }

    /// As fio 2.x prints a run; the longest of the group counts.
    #[test]
    fn the_run_time_of_older_output() {
        for (line, want) in [
            (
                "WRITE: io=2048KB, aggrb=102KB/s, minb=102KB/s, maxb=102KB/s, mint=19913msec, maxt=19913msec",
                19_913,
            ),
            (
                "READ: io=64MB, aggrb=1KB/s, minb=1KB/s, maxb=1KB/s, mint=900msec, maxt=30001msec",
                30_001,
            ),
            ("write: io=2048.0KB, bw=105316B/s, iops=25, runt= 19913msec", 19_913),
            ("read : io=7888.0MB, bw=67.3MB/s, iops=16827, runt=120007msec", 120_007),
            ("READ: bw=1MiB/s, io=1MiB, run=1000-2000msec", 2000),
        ] {
            assert!(job_line(line) == Some(Job::Other), "{line}");
            assert_eq!(run_time(line), Some(want), "{line}");
        }
        for line in ["clat (msec): min=1, max=2200", "lat (msec) : 2=0.2%, 4=1.0%"] {
            assert_eq!(run_time(line), None, "{line}");
        }
    }

    /// Whoever writes of a CPU, of an error or of latency is not taken for fio.
    #[test]
    fn prose_is_not_fio() {
        for line in ["cpu is at 100%", "IO is slow", "latency went up", "errors: many", "read this"]
        {
            assert!(job_line(line).is_none(), "{line}");
        }
    }

    #[test]
    fn layers_and_aggregates() {
        let text = "   READ: bw=1MiB/s, run=1000-2000msec\nDisk stats (read/write):\n    dm-0: ios=100/0, merge=0/0, ticks=10/0, in_queue=10, util=1.00%, aggrios=50/0, aggrmerge=0/0, aggrticks=5/0, aggrin_queue=5, aggrutil=1.00%\n  sda: ios=50/0, merge=0/0, ticks=5/0, in_queue=5, util=1.00%";
        let (fio, names) = read(text);
        let run = fio.runs().next().unwrap();
        assert_eq!((run.rows.len(), names.list), (2, vec!["dm-0".to_owned(), "sda".to_owned()]));
        assert_eq!(run.rows[0].1.r_s, 100.0 / 2.0, "the longest of the group");
    }
}

//! `iostat -x` of any age: old columns (`avgrq-sz avgqu-sz await svctm`), those since 11.7
//! (`rareq-sz aqu-sz`), with discards (12.0) and flushes (12.3), in kB, MB or sectors, `-h` with
//! the device at the end, and rows that lost their header.
//!
//! Rates of one interval each; the length of an interval comes from timestamps (`-t`) or the
//! command in the prompt, else it counts as one second.

use std::collections::HashMap;
use std::time::Duration;

use super::number::{float, human};
use super::{Line, Took};

/// One device over one interval, as printed. Rates are per second, times ms, sizes kB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DiskRates {
    pub(super) r_s: f64,
    pub(super) w_s: f64,
    pub(super) d_s: Option<f64>,
    pub(super) f_s: Option<f64>,
    pub(super) rkb_s: f64,
    pub(super) wkb_s: f64,
    pub(super) dkb_s: f64,
    pub(super) rrqm_s: f64,
    pub(super) wrqm_s: f64,
    pub(super) r_await: f64,
    pub(super) w_await: f64,
    pub(super) d_await: f64,
    pub(super) f_await: f64,
    pub(super) aqu_sz: f64,
    pub(super) util: f64,
}

/// Devices of one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Interval {
    /// Its length; `None` if unknown.
    pub(super) length: Option<Duration>,
    /// Its rows are totals over an unknown time, and `length` is made up.
    pub(super) untimed: bool,
    pub(super) rows: Vec<(usize, DiskRates)>,
}

/// Names of devices by number, shared by all formats about disks.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) list: Vec<String>,
    index: HashMap<String, usize>,
}

/// Devices kept; a paste with more is not from one machine.
const MAX_NAMES: usize = 10_000;

impl Names {
    /// The number of a device; `None` when there are too many.
    pub(super) fn of(&mut self, name: &str) -> Option<usize> {
        if let Some(i) = self.index.get(name) {
            return Some(*i);
        }
        if self.list.len() >= MAX_NAMES {
            return None;
        }
        self.list.push(name.to_owned());
        self.index.insert(name.to_owned(), self.list.len() - 1);
        Some(self.list.len() - 1)
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Device,
    RdIos,
    WrIos,
    DcIos,
    FlIos,
    RdKb(u32),
    WrKb(u32),
    DcKb(u32),
    RdMerged,
    WrMerged,
    RdWait,
    WrWait,
    DcWait,
    FlWait,
    Wait,
    Queue,
    Util,
    Other,
}

/// Bytes per unit of throughput.
const SECTOR: u32 = 512;
const KB: u32 = 1024;
const MB: u32 = 1024 * 1024;

fn column(name: &str) -> Column {
    match name {
        "Device" | "Device:" => Column::Device,
        // `-s` does not separate reads from writes.
        "r/s" | "tps" => Column::RdIos,
        "w/s" => Column::WrIos,
        "d/s" => Column::DcIos,
        "f/s" => Column::FlIos,
        "rsec/s" => Column::RdKb(SECTOR),
        "wsec/s" => Column::WrKb(SECTOR),
        "rkB/s" | "kB/s" => Column::RdKb(KB),
        "wkB/s" => Column::WrKb(KB),
        "dkB/s" => Column::DcKb(KB),
        "rMB/s" | "MB/s" => Column::RdKb(MB),
        "wMB/s" => Column::WrKb(MB),
        "dMB/s" => Column::DcKb(MB),
        "rrqm/s" => Column::RdMerged,
        "wrqm/s" => Column::WrMerged,
        "r_await" => Column::RdWait,
        "w_await" => Column::WrWait,
        "d_await" => Column::DcWait,
        "f_await" => Column::FlWait,
        "await" => Column::Wait,
        "aqu-sz" | "avgqu-sz" => Column::Queue,
        "%util" => Column::Util,
        _ => Column::Other,
    }
}

/// Column sets by number of values, for rows without a header. The unit is inferred from the row.
const OLD: &str =
    "Device rrqm/s wrqm/s r/s w/s rkB/s wkB/s avgrq-sz avgqu-sz await r_await w_await svctm %util";
const V11_7: &str = "Device r/s w/s rkB/s wkB/s rrqm/s wrqm/s %rrqm %wrqm r_await w_await aqu-sz rareq-sz wareq-sz svctm %util";
const V12: &str = "Device r/s rkB/s rrqm/s %rrqm r_await rareq-sz w/s wkB/s wrqm/s %wrqm w_await wareq-sz d/s dkB/s drqm/s %drqm d_await dareq-sz aqu-sz %util";
const V12_3: &str = "Device r/s rkB/s rrqm/s %rrqm r_await rareq-sz w/s wkB/s wrqm/s %wrqm w_await wareq-sz d/s dkB/s drqm/s %drqm d_await dareq-sz f/s f_await aqu-sz %util";

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Iostat {
    columns: Vec<Column>,
    intervals: std::collections::VecDeque<Interval>,
    /// From the command in the prompt, and from the last two timestamps.
    command: Option<Duration>,
    stamped: Option<Duration>,
    stamp: Option<u32>,
    fresh: bool,
    pub(super) rows: u64,
    kept: usize,
    /// Oldest intervals left out.
    pub(super) dropped: u64,
    /// Rows left out for lack of space.
    pub(super) over: u64,
    /// Rows without latency columns: iostat without `-x`.
    pub(super) basic: bool,
    /// The unit of rows without a header was inferred from their numbers.
    pub(super) guessed: bool,
}

/// Intervals kept, and rows in all of them.
pub(super) const MAX_INTERVALS: usize = 600;
pub(super) const MAX_ROWS: usize = 100_000;

impl Iostat {
    /// A prompt with this command: its rows are another run.
    pub(super) fn command(&mut self, interval: Option<Duration>) {
        self.columns.clear();
        self.command = interval;
        (self.stamp, self.stamped) = (None, None);
        self.fresh = true;
    }

    pub(super) fn line(&mut self, line: &Line<'_>, names: &mut Names) -> Took {
        let text = line.text;
        if self.header(text) {
            return Took::Yes;
        }
        if let Some(seconds) = timestamp(text) {
            if let Some(before) = self.stamp.replace(seconds) {
                // Midnight, or noon on a clock of twelve hours.
                let passed = (i64::from(seconds) - i64::from(before)).rem_euclid(43_200);
                self.stamped =
                    (1..=3600).contains(&passed).then(|| Duration::from_secs(passed as u64));
            }
            return Took::Yes;
        }
        if !self.columns.is_empty()
            && let Some((name, rates)) = row(&self.columns, text)
        {
            if !self.basic {
                self.push(names, name, rates);
            }
            return Took::Yes;
        }
        match headless(text) {
            Some((name, rates)) => {
                self.guessed = true;
                self.push(names, name, rates);
                Took::Yes
            }
            None => Took::No,
        }
    }

    fn header(&mut self, text: &str) -> bool {
        let mut words = text.split_ascii_whitespace();
        let first = words.next().unwrap_or("");
        let is_device = |w: &str| w == "Device" || w == "Device:";
        if !(is_device(first) || text.ends_with("Device")) {
            return false;
        }
        let columns: Vec<Column> = text.split_ascii_whitespace().map(column).collect();
        let has = |c: Column| columns.contains(&c);
        if !has(Column::RdIos) && !has(Column::Util) {
            return false;
        }
        self.basic = !(has(Column::Util) || has(Column::Queue) || has(Column::RdWait));
        self.columns = columns;
        self.fresh = true;
        true
    }

    fn push(&mut self, names: &mut Names, name: &str, rates: DiskRates) {
        self.rows += 1;
        let Some(i) = names.of(name) else {
            self.over += 1;
            return;
        };
        let again = self.intervals.back().is_none_or(|n| n.rows.iter().any(|r| r.0 == i));
        if self.fresh || again {
            let length = self.stamped.or(self.command);
            self.intervals.push_back(Interval { length, ..Interval::default() });
            self.fresh = false;
        }
        while self.intervals.len() > MAX_INTERVALS
            || (self.kept >= MAX_ROWS && self.intervals.len() > 1)
        {
            if let Some(old) = self.intervals.pop_front() {
                self.kept -= old.rows.len();
                self.dropped += 1;
            }
        }
        if self.kept >= MAX_ROWS {
            self.over += 1;
        } else if let Some(now) = self.intervals.back_mut() {
            now.rows.push((i, rates));
            self.kept += 1;
        }
    }

    /// A row of another tool's table. `new`: the first one of an interval of this length.
    pub(super) fn table(
        &mut self,
        names: &mut Names,
        name: &str,
        rates: DiskRates,
        length: Option<Duration>,
        new: bool,
    ) {
        self.fresh |= new;
        let stamped = std::mem::replace(&mut self.stamped, length);
        self.push(names, name, rates);
        self.stamped = stamped;
    }

    /// Intervals, oldest first.
    pub(super) fn intervals(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter().filter(|i| !i.rows.is_empty())
    }
}

/// A row under a header.
fn row<'a>(columns: &[Column], text: &'a str) -> Option<(&'a str, DiskRates)> {
    let mut d = DiskRates::default();
    let (mut name, mut wait, mut waits) = (None, 0.0, false);
    let mut words = text.split_ascii_whitespace();
    for c in columns {
        let word = words.next()?;
        let count = || human(word, 1000.0);
        match c {
            Column::Device => name = Some(word),
            Column::RdIos => d.r_s = count()?,
            Column::WrIos => d.w_s = count()?,
            Column::DcIos => d.d_s = Some(count()?),
            Column::FlIos => d.f_s = Some(count()?),
            Column::RdKb(unit) => d.rkb_s = human(word, 1.0)? * kilo(*unit),
            Column::WrKb(unit) => d.wkb_s = human(word, 1.0)? * kilo(*unit),
            Column::DcKb(unit) => d.dkb_s = human(word, 1.0)? * kilo(*unit),
            Column::RdMerged => d.rrqm_s = count()?,
            Column::WrMerged => d.wrqm_s = count()?,
            Column::RdWait => (d.r_await, waits) = (count()?, true),
            Column::WrWait => (d.w_await, waits) = (count()?, true),
            Column::DcWait => d.d_await = count()?,
            Column::FlWait => d.f_await = count()?,
            Column::Wait => wait = count()?,
            Column::Queue => d.aqu_sz = count()?,
            Column::Util => d.util = count()?,
            Column::Other => {
                count()?;
            }
        }
    }
    if words.next().is_some() {
        return None;
    }
    if !waits {
        // Before 9.1.2 there was one latency for both.
        (d.r_await, d.w_await) = (wait, wait);
    }
    let name = name.filter(|n| device(n))?;
    Some((name, d))
}

fn kilo(unit: u32) -> f64 {
    f64::from(unit) / f64::from(KB)
}

/// A possible name of a block device, not a number.
pub(super) fn device(name: &str) -> bool {
    let ok = |c: char| c.is_alphanumeric() || "-_./!:".contains(c);
    name.len() <= 64 && name.starts_with(char::is_alphabetic) && name.chars().all(ok)
}

/// A row without a header: the number of values names the columns, and throughput must fit
/// the mean request size in some unit.
fn headless(text: &str) -> Option<(&str, DiskRates)> {
    let mut words = text.split_ascii_whitespace();
    let name = words.next().filter(|n| device(n))?;
    if name.ends_with(':') {
        return None;
    }
    let mut values = Vec::with_capacity(24);
    for w in words {
        if values.len() == 24 {
            return None;
        }
        values.push(float(w)?);
    }
    let header = match values.len() {
        13 => OLD,
        15 => V11_7,
        20 => V12,
        22 => V12_3,
        _ => return None,
    };
    let columns: Vec<Column> = header.split(' ').map(column).collect();
    let (_, mut d) = row(&columns, text)?;
    let ios = d.r_s + d.w_s;
    if d.util > 200.0 || (ios > 0.0 && d.util == 0.0 && d.aqu_sz > 1.0) {
        return None;
    }
    if values.len() == 13 && ios > 0.0 {
        // avgrq-sz is in sectors of 512 B whatever the unit of the others.
        let kb = values.get(6)? / 2.0 * ios;
        let shown = d.rkb_s + d.wkb_s;
        let unit = [1.0, 1024.0, 0.5].into_iter().find(|u| {
            let both = (shown * u, kb);
            (both.0 - both.1).abs() <= 0.1 * both.1 + 0.02 * u
        })?;
        d.rkb_s *= unit;
        d.wkb_s *= unit;
    }
    Some((name, d))
}

/// A line that is a time of day, with a date or without: seconds since midnight.
fn timestamp(text: &str) -> Option<u32> {
    let mut found = None;
    for (i, word) in text.split_ascii_whitespace().enumerate() {
        if i == 4 || word.len() > 32 {
            return None;
        }
        let time = word.split_once('T').map_or(word, |(_, t)| t);
        let time = time.get(..8).filter(|_| time.is_char_boundary(8)).unwrap_or(time);
        let mut parts = time.split(':');
        let number = |p: Option<&str>, most: u32| {
            p.filter(|p| p.len() == 2)?.parse::<u32>().ok().filter(|n| *n <= most)
        };
        if let (Some(h), Some(m), Some(s), None) = (
            number(parts.next(), 23),
            number(parts.next(), 59),
            number(parts.next(), 60),
            parts.next(),
        ) {
            found = Some(h * 3600 + m * 60 + s);
        } else if !(word == "AM" || word == "PM" || word.starts_with(|c: char| c.is_ascii_digit()))
        {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> (Iostat, Names) {
        let (mut io, mut names) = (Iostat::default(), Names::default());
        for (i, l) in text.lines().enumerate() {
            io.line(&Line { no: i as u64 + 1, text: l }, &mut names);
        }
        (io, names)
    }

    #[test]
    fn columns_of_every_age() {
        let old = "Device:         rrqm/s   wrqm/s     r/s     w/s    rMB/s    wMB/s avgrq-sz avgqu-sz   await r_await w_await  svctm  %util\n\
            sda               0,00   100,00    1,00  301,00     0,00     1,56    10,60    63,82  271,62  460,00  270,99   3,31 100,00";
        let (io, names) = read(old);
        let i = io.intervals().next().unwrap();
        let d = i.rows[0].1;
        assert_eq!(names.list, ["sda"]);
        assert_eq!((d.r_s, d.w_s, d.wrqm_s), (1.0, 301.0, 100.0));
        assert_eq!((d.r_await, d.w_await, d.aqu_sz, d.util), (460.0, 270.99, 63.82, 100.0));
        assert!((d.wkb_s - 1.56 * 1024.0).abs() < 1e-9);
        let new = "Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util\n\
            vda              1.00      4.00     0.50  10.00    0.25     4.00    2.00      8.00     0.00   0.00    0.50     4.00    3.00     12.00     0.00   0.00    0.10     4.00    5.00    0.20    1.50  30.00";
        let (io, _) = read(new);
        let d = io.intervals().next().unwrap().rows[0].1;
        assert_eq!((d.d_s, d.f_s, d.f_await, d.d_await), (Some(3.0), Some(5.0), 0.2, 0.1));
        let human = "     r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz  aqu-sz  %util Device\n\
             1.2k      4.5M     0.00   0.0%    0.25     4.0k    0.00      0.0k     0.00   0.0%    0.00     0.0k    1.50  30.0% nvme0n1";
        let (io, names) = read(human);
        let d = io.intervals().next().unwrap().rows[0].1;
        assert_eq!((d.r_s, d.rkb_s, names.list[0].as_str()), (1200.0, 4608.0, "nvme0n1"));
    }

    #[test]
    fn a_device_seen_again_begins_an_interval() {
        let head = "Device r/s w/s rkB/s wkB/s aqu-sz %util";
        let text = format!(
            "{head}\nvda 1 0 4 0 0 1\nvdb 1 0 4 0 0 1\nvda 2 0 4 0 0 1\n\n{head}\nvda 3 0 4 0 0 1"
        );
        let (io, _) = read(&text);
        let sizes: Vec<usize> = io.intervals().map(|i| i.rows.len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
        let (io, _) = read(&format!(
            "10:00:00\n{head}\nvda 1 0 4 0 0 1\n10/12/26 10:00:05 AM\n{head}\nvda 1 0 4 0 0 1"
        ));
        assert_eq!(io.intervals().last().unwrap().length, Some(Duration::from_secs(5)));
    }

    #[test]
    fn rows_without_header_name_their_unit() {
        let (io, _) = read(
            "sda 0.00 100.00 1.00 301.00 0.00 1.56 10.60 63.82 271.62 460.00 270.99 3.31 100.00",
        );
        let d = io.intervals().next().unwrap().rows[0].1;
        assert!((d.wkb_s - 1.56 * 1024.0).abs() < 1e-9, "MB/s by the request size");
        let (io, _) = read("sfdv0n1 0 0 0 11158 0 54448 9.76 1.03 0.02 0 0.02 0.09 100.00");
        assert!((io.intervals().next().unwrap().rows[0].1.wkb_s - 54_448.0).abs() < 1e-9);
        for none in [
            "sda 1 2 3",
            "1 2 3 4 5 6 7 8 9 10 11 12 13 14",
            "java 0 0 0 5 0 54448 9.76 1.03 0.02 0 0.02 0.09 100.00",
        ] {
            assert_eq!(read(none).0.intervals().count(), 0, "{none}");
        }
    }

    #[test]
    fn what_is_no_time_is_no_timestamp() {
        assert_eq!(timestamp("10/12/26 10:00:05 PM"), Some(36_005));
        assert_eq!(timestamp("2026-10-12T00:00:05+0200"), Some(5));
        for none in ["", "at 10:00:05", "10:00", "25:00:00", "1 2 3 4 10:00:00"] {
            assert_eq!(timestamp(none), None, "{none}");
        }
    }
}

//! Tables of sysstat: `mpstat`, `pidstat` and `sar`. All are alike: a time (24 hours, AM or PM) or
//! `Average:`, then columns by name. The columns identify the table.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cpu::{Cpu, Frame};
use super::iostat::{DiskRates, Iostat, Names};
use super::memory::{Free, with_cache};
use super::number::{float, human, uint};
use super::top::short;
use super::{Line, Took};
use crate::sample::told::{CpuRow, LinkRow, Memory, Paging, Queue, TaskRow, Tasks};

/// Rows kept of each table; the oldest go.
const MAX_ROWS: usize = 20_000;
const MAX_TASKS: usize = 5000;
/// Titles of tables that are read but not judged.
const MAX_OTHERS: usize = 8;

/// Which table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    #[default]
    None,
    Cpu,
    Queue,
    Link,
    Disk,
    Paging,
    Memory,
    Tasks,
    Other,
}

/// What other parsers get from the rows.
pub(super) struct Sinks<'a> {
    pub(super) cpu: &'a mut Cpu,
    pub(super) free: &'a mut Free,
    pub(super) iostat: &'a mut Iostat,
    pub(super) names: &'a mut Names,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Sysstat {
    kind: Kind,
    columns: Vec<String>,
    /// Time of the rows before, s since midnight; at first that of the titles.
    time: Option<u32>,
    /// Tables of which rows with a time were seen: averages add nothing to them.
    timed: BTreeSet<Kind>,
    /// A row of the current averages was seen: the next one belongs to the same reading.
    averaged: bool,
    /// Length of the interval that is being read.
    length: Option<Duration>,
    /// Number of the interval.
    at: usize,
    pub(super) cpus: Vec<CpuRow>,
    pub(super) links: Vec<LinkRow>,
    pub(super) paging: Vec<Paging>,
    pub(super) tasks: Tasks,
    /// Titles of tables that are not judged.
    pub(super) others: Vec<String>,
    /// Runnable tasks and blocked ones, of the last reading and the worst.
    pub(super) queue: Option<Queue>,
    pub(super) rows: u64,
    pub(super) dropped: u64,
    /// Reads and writes of `sar -d` were split by volume.
    pub(super) split: bool,
}

/// What a line begins with.
enum Head {
    Average,
    Time(u32, String),
}

impl Sysstat {
    /// A prompt with a command.
    pub(super) fn command(&mut self) {
        self.kind = Kind::None;
        self.columns.clear();
        self.timed.clear();
        (self.time, self.length) = (None, None);
    }

    /// Titles that begin like a prompt: `# Time  UID  PID`.
    pub(super) fn titles(text: &str) -> bool {
        let mut words = text.split_ascii_whitespace();
        words.next() == Some("#")
            && words.next() == Some("Time")
            && words.any(|w| w == "PID" || w == "TGID")
    }

    pub(super) fn line(&mut self, line: &Line<'_>, to: &mut Sinks<'_>) -> Took {
        let text = line.text.trim();
        let (head, rest) = match text.strip_prefix("# Time") {
            Some(rest) if Self::titles(text) => (Head::Average, rest),
            _ => match head(text) {
                Some(found) => found,
                None => return Took::No,
            },
        };
        if rest.trim_start().starts_with("LINUX RESTART") {
            self.time = None;
            return Took::Yes;
        }
        let words: Vec<&str> = rest.split_ascii_whitespace().take(200).collect();
        if let Some(kind) = titles(&words) {
            if self.kind != kind || self.columns.iter().ne(words.iter()) {
                self.kind = kind;
                self.columns = words.iter().map(|w| (*w).to_owned()).collect();
            }
            self.averaged = false;
            if let Head::Time(secs, _) = head {
                (self.time, self.length) = (Some(secs), None);
            }
            if kind == Kind::Other && self.others.len() < MAX_OTHERS {
                let title: Vec<&str> = words.into_iter().take(4).collect();
                let title = title.join(" ").chars().take(60).collect::<String>();
                if !self.others.contains(&title) {
                    self.others.push(title);
                }
            }
            return Took::Yes;
        }
        let columns = std::mem::take(&mut self.columns);
        let took = match Row::new(&columns, rest) {
            Some(row) => {
                self.row(&row, head, to);
                Took::Yes
            }
            None => Took::No,
        };
        self.columns = columns;
        took
    }

    fn row(&mut self, row: &Row<'_>, head: Head, to: &mut Sinks<'_>) {
        self.rows += 1;
        let mut at = At { time: "average".to_owned(), length: None, new: true };
        match head {
            Head::Average if self.timed.contains(&self.kind) => return,
            Head::Average => at.new = !std::mem::replace(&mut self.averaged, true),
            Head::Time(secs, text) => {
                let passed = self.time.map(|t| (i64::from(secs) - i64::from(t)).rem_euclid(86_400));
                at.new = passed != Some(0) || self.timed.insert(self.kind);
                if passed != Some(0) {
                    self.length = passed.map(|s| Duration::from_secs(s as u64));
                }
                at.length = self.length;
                at.time = text;
                self.timed.insert(self.kind);
                self.time = Some(secs);
            }
        }
        if at.new {
            self.at += 1;
        }
        match self.kind {
            Kind::Cpu => self.cpu(row, &at, to.cpu),
            Kind::Queue => self.queue(row, to.cpu),
            Kind::Link => self.link(row, &at),
            Kind::Disk => self.disk(row, &at, to),
            Kind::Paging => self.paging(row, &at),
            Kind::Memory => memory(row, to.free),
            Kind::Tasks => self.task(row, &at),
            Kind::Other | Kind::None => {}
        }
    }

    fn cpu(&mut self, row: &Row<'_>, at: &At, cpu: &mut Cpu) {
        let n = |names: &[&str]| names.iter().find_map(|c| row.number(c)).unwrap_or(0.0);
        let Some(idle) = row.number("%idle") else { return };
        let f = Frame {
            length: at.length,
            user: n(&["%usr", "%user"]) + n(&["%guest"]),
            nice: n(&["%nice"]) + n(&["%gnice"]),
            system: n(&["%sys", "%system"]),
            iowait: n(&["%iowait"]),
            steal: n(&["%steal"]),
            irq: n(&["%irq"]),
            softirq: n(&["%soft"]),
            idle,
            ..Frame::default()
        };
        let number = row.text("CPU").and_then(uint).and_then(|n| u32::try_from(n).ok());
        if let Some(cpu) = number {
            let new = CpuRow {
                cpu,
                at: self.at,
                time: at.time.clone(),
                soft: row.number("%soft"),
                idle: idle + f.iowait,
            };
            push(&mut self.cpus, new, &mut self.dropped);
        }
        cpu.table(f, number, at.length, at.new);
    }

    fn queue(&mut self, row: &Row<'_>, cpu: &mut Cpu) {
        if let (Some(a), Some(b), Some(c)) =
            (row.number("ldavg-1"), row.number("ldavg-5"), row.number("ldavg-15"))
        {
            cpu.load = Some([a, b, c]);
        }
        if let Some(running) = row.number("runq-sz") {
            let most = self.queue.map_or(running, |q| q.most.max(running));
            self.queue = Some(Queue { running, most, blocked: row.number("blocked") });
        }
    }

    fn link(&mut self, row: &Row<'_>, at: &At) {
        let Some(dev) = row.text("IFACE") else { return };
        let pair = |a: &str, b: &str| row.number(a).zip(row.number(b));
        let kb = |c: &str| row.kb(c);
        let new = LinkRow {
            dev: dev.chars().take(32).collect(),
            time: at.time.clone(),
            packets: pair("rxpck/s", "txpck/s"),
            kb: kb("rxkB/s").zip(kb("txkB/s")),
            util: row.number("%ifutil"),
            errors: pair("rxerr/s", "txerr/s"),
            drops: pair("rxdrop/s", "txdrop/s"),
            fifo: row.number("rxfifo/s"),
        };
        // Both tables of one device and time make one row; errors come second.
        let same = |r: &&mut LinkRow| r.dev == new.dev && r.time == new.time;
        let recent = if new.errors.is_some() { 4000 } else { 0 };
        if let Some(old) = self.links.iter_mut().rev().take(recent).find(same) {
            old.packets = new.packets.or(old.packets);
            old.kb = new.kb.or(old.kb);
            old.util = new.util.or(old.util);
            old.errors = new.errors.or(old.errors);
            old.drops = new.drops.or(old.drops);
            old.fifo = new.fifo.or(old.fifo);
        } else {
            push(&mut self.links, new, &mut self.dropped);
        }
    }

    fn disk(&mut self, row: &Row<'_>, at: &At, to: &mut Sinks<'_>) {
        let Some(name) = row.text("DEV").filter(|n| super::iostat::device(n)) else { return };
        let kb = |new: &str, sectors: &str| {
            row.kb(new).or_else(|| row.number(sectors).map(|s| s / 2.0)).unwrap_or(0.0)
        };
        let (rkb_s, wkb_s) = (kb("rkB/s", "rd_sec/s"), kb("wkB/s", "wr_sec/s"));
        let tps = row.number("tps").unwrap_or(0.0);
        // It does not separate reads from writes.
        let reads = if rkb_s + wkb_s > 0.0 { rkb_s / (rkb_s + wkb_s) } else { 0.0 };
        self.split |= reads > 0.0 && reads < 1.0;
        let wait = row.number("await").unwrap_or(0.0);
        let rates = DiskRates {
            r_s: tps * reads,
            w_s: tps * (1.0 - reads),
            rkb_s,
            wkb_s,
            r_await: wait,
            w_await: wait,
            aqu_sz: row.number("aqu-sz").or_else(|| row.number("avgqu-sz")).unwrap_or(0.0),
            util: row.number("%util").unwrap_or(0.0),
            ..DiskRates::default()
        };
        to.iostat.table(to.names, name, rates, at.length, at.new);
    }

    fn paging(&mut self, row: &Row<'_>, at: &At) {
        let new = Paging {
            time: at.time.clone(),
            majflt: row.number("majflt/s"),
            scan_direct: row.number("pgscand/s"),
            swap: row.number("pswpin/s").zip(row.number("pswpout/s")),
        };
        let same = |r: &&mut Paging| r.time == new.time;
        if let Some(old) = self.paging.iter_mut().rev().take(4000).find(same) {
            old.majflt = new.majflt.or(old.majflt);
            old.scan_direct = new.scan_direct.or(old.scan_direct);
            old.swap = new.swap.or(old.swap);
        } else {
            push(&mut self.paging, new, &mut self.dropped);
        }
    }

    /// Tasks of the last interval; figures of two tables about one process make one row.
    fn task(&mut self, row: &Row<'_>, at: &At) {
        let id = ["PID", "TID", "TGID"].iter().find_map(|c| row.text(c).and_then(uint));
        let Some(pid) = id.and_then(|n| u32::try_from(n).ok()) else { return };
        let has = |c: &str| row.columns.iter().any(|n| n == c);
        self.tasks.threads = has("TID");
        if at.new {
            for old in &mut self.tasks.rows {
                if has("%CPU") {
                    (old.cpu, old.wait) = (None, None);
                }
                if has("kB_rd/s") {
                    (old.read_kb, old.write_kb, old.iodelay) = (None, None, None);
                }
            }
            self.tasks
                .rows
                .retain(|r| r.cpu.is_some() || r.read_kb.is_some() || r.iodelay.is_some());
            self.tasks.interval =
                at.length.as_ref().map(Duration::as_secs_f64).or(self.tasks.interval);
        }
        let new = TaskRow {
            pid,
            name: short(row.text("Command").unwrap_or("?").trim_start_matches("|__")),
            state: None,
            cpu: row.number("%CPU"),
            wait: row.number("%wait"),
            read_kb: row.kb("kB_rd/s"),
            write_kb: row.kb("kB_wr/s"),
            iodelay: row.number("iodelay"),
        };
        let same = |r: &TaskRow| r.pid == pid && r.name == new.name;
        let rows = &mut self.tasks.rows;
        match rows.iter().position(same) {
            Some(at) => {
                let Some(old) = rows.get_mut(at) else { return };
                old.cpu = new.cpu.or(old.cpu);
                old.wait = new.wait.or(old.wait);
                old.read_kb = new.read_kb.or(old.read_kb);
                old.write_kb = new.write_kb.or(old.write_kb);
                old.iodelay = new.iodelay.or(old.iodelay);
            }
            None if rows.len() < MAX_TASKS => rows.push(new),
            None => self.dropped += 1,
        }
    }
}

/// The interval of a row.
struct At {
    time: String,
    length: Option<Duration>,
    /// The first row of it.
    new: bool,
}

fn push<T>(list: &mut Vec<T>, row: T, dropped: &mut u64) {
    if list.len() >= MAX_ROWS {
        // Half of them at a time: one by one would be quadratic.
        list.drain(..MAX_ROWS / 2);
        *dropped += MAX_ROWS as u64 / 2;
    }
    list.push(row);
}

fn memory(row: &Row<'_>, free: &mut Free) {
    let (Some(unused), Some(used)) = (row.kb("kbmemfree"), row.kb("kbmemused")) else { return };
    let cache = row.kb("kbbuffers").unwrap_or(0.0) + row.kb("kbcached").unwrap_or(0.0);
    // Since 11.7 the used value excludes the cache; the percentage is of the total.
    let share = row.number("%memused").filter(|p| *p > 0.0);
    let total = share.map_or(used + unused, |p| 100.0 * used / p).max(used + unused);
    let told = row.kb("kbavail");
    free.push(Memory { total, free: unused, ..with_cache(told, unused, cache, None) });
}

/// `03:08:20`, `03:08:20 AM`, `Average:`, seconds since 1970 as old `pidstat -h` writes them.
fn head(text: &str) -> Option<(Head, &str)> {
    if let Some(rest) = text.strip_prefix("Average:").or_else(|| text.strip_prefix("Summary:")) {
        return Some((Head::Average, rest));
    }
    let (word, rest) = text.split_once([' ', '\t'])?;
    if word.len() == 10
        && let Some(epoch) = uint(word)
    {
        return Some((Head::Time((epoch % 86_400) as u32, word.to_owned()), rest));
    }
    let mut parts = word.split(':');
    let mut two = |most: u32| {
        let p = parts.next().filter(|p| p.len() == 2)?;
        uint(p).and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= most)
    };
    let (h, m, s) = (two(23)?, two(59)?, two(60)?);
    if word.len() != 8 {
        return None;
    }
    let after = rest.trim_start();
    let half = after.split_ascii_whitespace().next().filter(|w| *w == "AM" || *w == "PM");
    let (h, rest, text) = match half {
        Some(half) if (1..=12).contains(&h) => {
            let h = h % 12 + if half == "PM" { 12 } else { 0 };
            (h, after.get(2..)?, format!("{word} {half}"))
        }
        _ => (h, rest, word.to_owned()),
    };
    Some((Head::Time(h * 3600 + m * 60 + s, text), rest))
}

/// Is this a line of titles, and of which table?
fn titles(words: &[&str]) -> Option<Kind> {
    let is_title = |w: &&&str| w.ends_with("/s") || (w.starts_with('%') && w.len() > 1);
    let has = |c: &str| words.contains(&c);
    let named =
        ["runq-sz", "kbmemfree", "kbswpfree", "kbhugfree", "dentunusd", "totsck", "iodelay"];
    if words.len() < 2
        || words.iter().any(|w| human(w, 1.0).is_some())
        || !(words.iter().filter(is_title).count() >= 2 || named.iter().any(|c| has(c)))
    {
        return None;
    }
    Some(if has("PID") || has("TGID") {
        Kind::Tasks
    } else if has("CPU") && has("%idle") {
        Kind::Cpu
    } else if has("runq-sz") {
        Kind::Queue
    } else if has("IFACE") && (has("rxpck/s") || has("rxerr/s")) {
        Kind::Link
    } else if has("DEV") && has("%util") {
        Kind::Disk
    } else if has("pgscand/s") || has("majflt/s") || has("pswpin/s") {
        Kind::Paging
    } else if has("kbmemfree") && has("kbmemused") {
        Kind::Memory
    } else {
        Kind::Other
    })
}

/// Cells by the name of their column.
struct Row<'a> {
    columns: &'a [String],
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// `None` when there are more or fewer cells than columns.
    fn new(columns: &'a [String], text: &'a str) -> Option<Self> {
        let rest_of_line = columns.last().is_some_and(|c| c == "Command");
        let mut cells = Vec::with_capacity(columns.len());
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            if rest_of_line && cells.len() + 1 == columns.len() {
                cells.push(rest);
                break;
            }
            if cells.len() == columns.len() {
                return None;
            }
            let end = rest.find([' ', '\t']).unwrap_or(rest.len());
            let (word, more) = rest.split_at_checked(end)?;
            cells.push(word);
            rest = more.trim_start();
        }
        let numbers = cells.iter().filter(|c| human(c, 1.0).is_some()).count();
        (cells.len() == columns.len() && numbers > 0).then_some(Self { columns, cells })
    }

    fn text(&self, column: &str) -> Option<&'a str> {
        let at = self.columns.iter().position(|c| c == column)?;
        self.cells.get(at).copied()
    }

    fn number(&self, column: &str) -> Option<f64> {
        float(self.text(column)?)
    }

    /// kB, also where `-h` wrote a letter.
    fn kb(&self, column: &str) -> Option<f64> {
        human(self.text(column)?, 1.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Default)]
    struct Read {
        all: Sysstat,
        cpu: Cpu,
        free: Free,
        iostat: Iostat,
        names: Names,
    }

    fn read(text: &str) -> Read {
        let mut r = Read::default();
        for (i, l) in text.lines().enumerate() {
            let mut to = Sinks {
                cpu: &mut r.cpu,
                free: &mut r.free,
                iostat: &mut r.iostat,
                names: &mut r.names,
            };
            let took = r.all.line(&Line { no: i as u64 + 1, text: l }, &mut to);
            assert_eq!(took, Took::Yes, "{l}");
        }
        r
    }

    #[test]
    fn times_of_both_clocks() {
        for (text, secs, shown) in [
            ("03:08:20 x", 11_300, "03:08:20"),
            ("12:00:01 AM x", 1, "12:00:01 AM"),
            ("12:00:01 PM x", 43_201, "12:00:01 PM"),
            ("11:59:59 PM x", 86_399, "11:59:59 PM"),
            ("1700000000 x", 1_700_000_000 % 86_400, "1700000000"),
        ] {
            let Some((Head::Time(s, t), rest)) = head(text) else { panic!("{text}") };
            assert_eq!((s, t.as_str(), rest.trim()), (secs, shown, "x"));
        }
        for text in ["3:08:20 x", "03:08 x", "24:00:00 x", "03:08:20", "Mean: x", "03:08:2x y"] {
            assert!(head(text).is_none(), "{text}");
        }
    }

    #[test]
    fn averages_count_where_nothing_else_was_pasted() {
        let titles =
            "CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle";
        let rows = "all 10 0 0 0 0 40 0 0 0 50\nAverage: 0 20 0 0 0 0 0 0 0 0 80\nAverage: 1 0 0 0 0 0 80 0 0 0 20";
        let alone = format!("Average: {titles}\nAverage: {rows}");
        let r = read(&alone);
        let frames: Vec<_> = r.cpu.frames().map(|f| (f.softirq, f.cpus.len())).collect();
        assert_eq!(frames, [(40.0, 2)]);
        assert_eq!(r.all.cpus.iter().map(|c| (c.cpu, c.at)).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
        let timed = format!(
            "03:08:20 AM {titles}\n03:08:25 AM {}\n{alone}",
            rows.replace("Average:", "03:08:25 AM")
        );
        let r = read(&timed);
        let frames: Vec<_> = r.cpu.frames().map(|f| (f.length, f.cpus.len())).collect();
        assert_eq!(frames, [(Some(Duration::from_secs(5)), 2)]);
    }

    #[test]
    fn disks_links_and_memory() {
        let r = read(
            "03:08:30          DEV       tps     rkB/s     wkB/s     dkB/s   areq-sz    aqu-sz     await     %util\n\
             03:08:32          vda    100.00    300.00    100.00      0.00      4.00      0.50      5.00     40.00\n\
             03:08:32          vdb      0.00      0.00      0.00      0.00      0.00      0.00      0.00      0.00\n\
             03:08:30        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil\n\
             03:08:32         eth0    100.00     50.00   9000.00     10.00      0.00      0.00      0.00     91.00\n\
             03:08:30        IFACE   rxerr/s   txerr/s    coll/s  rxdrop/s  txdrop/s  txcarr/s  rxfram/s  rxfifo/s  txfifo/s\n\
             03:08:32         eth0      1.00      2.00      0.00      3.00      4.00      0.00      0.00      5.00      0.00\n\
             03:08:30    kbmemfree   kbavail kbmemused  %memused kbbuffers  kbcached  kbcommit   %commit  kbactive   kbinact   kbdirty\n\
             03:08:32          100       400       500     50.00         0       400         0      0.00         0         0         0\n\
             03:08:30       proc/s   cswch/s\n\
             03:08:32         8.00    290.00",
        );
        let i = r.iostat.intervals().next().unwrap();
        assert_eq!((i.length, i.rows.len()), (Some(Duration::from_secs(2)), 2));
        // 100 transfers, of 400 kB three parts read.
        assert_eq!((i.rows[0].1.r_s, i.rows[0].1.w_s, i.rows[0].1.r_await), (75.0, 25.0, 5.0));
        assert!(r.all.split);
        let [l] = r.all.links.as_slice() else { panic!("{:?}", r.all.links) };
        assert_eq!((l.util, l.errors, l.fifo), (Some(91.0), Some((1.0, 2.0)), Some(5.0)));
        let m = r.free.list[0];
        assert_eq!((m.total, m.available, m.estimated), (1000.0, Some(400.0), false));
        assert_eq!(r.all.others, ["proc/s cswch/s"]);
    }

    #[test]
    fn tasks_of_two_tables_are_one() {
        let r = read(
            "# Time        UID       PID    %usr %system  %guest   %wait    %CPU   CPU   kB_rd/s   kB_wr/s kB_ccwr/s iodelay  Command\n\
             03:08:25        0         1    0.00    1.00    0.00    0.00    1.00     1      0.00      0.00      0.00       0  systemd\n\
             03:08:25        0     27986  184.00    9.00    0.00   61.00  193.00     0      0.00   2508.00      0.00       7  /usr/bin/rustc --crate-name x y",
        );
        let [_, t] = r.all.tasks.rows.as_slice() else { panic!("{:?}", r.all.tasks) };
        assert_eq!((t.pid, t.name.as_str(), t.cpu), (27986, "rustc", Some(193.0)));
        assert_eq!((t.wait, t.write_kb, t.iodelay), (Some(61.0), Some(2508.0), Some(7.0)));
        let r = read(
            "03:08:21      UID       PID   kB_rd/s   kB_wr/s kB_ccwr/s iodelay  Command\n\
             03:08:22        0     27986      0.00   2598.02      0.00       0  rustc\n\
             03:08:22        0         5      1.00      0.00      0.00       0  a b\n\
             03:08:22      UID       PID   kB_rd/s   kB_wr/s kB_ccwr/s iodelay  Command\n\
             03:08:23        0     27986     -1.00     -1.00     -1.00      99  rustc",
        );
        let [t] = r.all.tasks.rows.as_slice() else { panic!("{:?}", r.all.tasks) };
        assert_eq!((t.iodelay, t.read_kb), (Some(99.0), None), "-1 is what nobody may read");
        assert_eq!(r.all.tasks.interval, Some(1.0));
    }
}

//! CPU figures: rows of `vmstat`, the `avg-cpu` block of `iostat`, `uptime`.

use std::collections::VecDeque;
use std::time::Duration;

use super::number::{float, uint};
use super::{Line, Took};

/// Intervals kept; the oldest go. CPUs kept of one.
const MAX_FRAMES: usize = 600;
pub(super) const MAX_CPUS: usize = 1024;

/// One interval: percent of CPU time, and what vmstat adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Frame {
    pub(super) length: Option<Duration>,
    pub(super) user: f64,
    pub(super) nice: f64,
    pub(super) system: f64,
    pub(super) idle: f64,
    pub(super) iowait: f64,
    pub(super) steal: f64,
    pub(super) irq: f64,
    pub(super) softirq: f64,
    /// Context switches per second.
    pub(super) ctxt_s: Option<f64>,
    pub(super) running: Option<u32>,
    pub(super) blocked: Option<u32>,
    /// The same of single CPUs, by number: user, nice, system, idle, iowait, steal, irq, softirq.
    pub(super) cpus: Vec<(u32, [f64; 8])>,
}

impl Frame {
    /// % of the time by kind, in the order of `cpus`.
    pub(super) fn shares(&self) -> [f64; 8] {
        let Self { user, nice, system, idle, iowait, steal, irq, softirq, .. } = *self;
        [user, nice, system, idle, iowait, steal, irq, softirq]
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    /// Column names of vmstat, while its table lasts.
    columns: Vec<String>,
    /// The next line holds the values of avg-cpu.
    average: bool,
    interval: Option<Duration>,
    frames: VecDeque<Frame>,
    pub(super) load: Option<[f64; 3]>,
    pub(super) dropped: u64,
    pub(super) rows: u64,
    /// A row of vmstat, top or mpstat was seen: iostat averages in the same paste are from other
    /// times.
    vmstat: bool,
    /// The frame being read has no row for all CPUs.
    single: bool,
}

/// `r b swpd ... cs ...`, with any blanks in between.
fn vmstat_titles(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    words.next() == Some("r") && ["b", "swpd", "cs"].iter().all(|t| words.any(|w| w == *t))
}

impl Cpu {
    /// A prompt with a command.
    pub(super) fn command(&mut self, interval: Option<Duration>) {
        self.columns.clear();
        self.average = false;
        self.interval = interval;
    }

    pub(super) fn line(&mut self, line: &Line<'_>) -> Took {
        let text = line.text.trim();
        if std::mem::take(&mut self.average)
            && let Some(f) = averages(text)
        {
            if !self.vmstat {
                self.push(f);
            }
            return Took::Yes;
        }
        if text.starts_with("avg-cpu:") && text.contains("%idle") {
            self.average = true;
            return Took::Yes;
        }
        if text.starts_with("procs ") && text.contains("-memory-") {
            return Took::Yes;
        }
        if vmstat_titles(text) {
            self.columns = text.split_ascii_whitespace().map(str::to_owned).collect();
            if !self.vmstat {
                self.frames.clear();
                self.vmstat = true;
            }
            return Took::Yes;
        }
        if !self.columns.is_empty()
            && let Some(f) = self.vmstat_row(text)
        {
            self.push(f);
            return Took::Yes;
        }
        match load(text) {
            Some(l) => {
                self.load = Some(l);
                self.rows += 1;
                Took::Yes
            }
            None => Took::No,
        }
    }

    /// A row of another tool's table: all CPUs together, or one of them by its number. `new`: the
    /// first row of an interval. Without a row for all CPUs, the mean of the single ones is used.
    pub(super) fn table(
        &mut self,
        f: Frame,
        number: Option<u32>,
        length: Option<Duration>,
        new: bool,
    ) {
        if !self.vmstat {
            self.frames.clear();
            self.vmstat = true;
        }
        let Some(number) = number else {
            self.single = false;
            self.keep(Frame { length, ..f });
            return;
        };
        if new || self.frames.is_empty() {
            self.single = true;
            self.keep(Frame { length, ..Frame::default() });
        }
        let Some(now) = self.frames.back_mut().filter(|n| n.cpus.len() < MAX_CPUS) else { return };
        now.cpus.push((number, f.shares()));
        if self.single {
            // The mean of one more.
            let n = now.cpus.len() as f64;
            let step = |mean: &mut f64, v: f64| *mean += (v - *mean) / n;
            step(&mut now.user, f.user);
            step(&mut now.nice, f.nice);
            step(&mut now.system, f.system);
            step(&mut now.idle, f.idle);
            step(&mut now.iowait, f.iowait);
            step(&mut now.steal, f.steal);
            step(&mut now.irq, f.irq);
            step(&mut now.softirq, f.softirq);
        }
    }

    fn push(&mut self, f: Frame) {
        let length = self.interval;
        self.keep(Frame { length, ..f });
    }

    fn keep(&mut self, f: Frame) {
        self.rows += 1;
        self.frames.push_back(f);
        if self.frames.len() > MAX_FRAMES {
            self.frames.pop_front();
            self.dropped += 1;
        }
    }

    fn vmstat_row(&self, text: &str) -> Option<Frame> {
        let mut f = Frame::default();
        let mut words = text.split_ascii_whitespace();
        for c in &self.columns {
            let word = words.next()?;
            // -t appends a time; its header words are no columns of numbers.
            let Some(n) = uint(word) else {
                if matches!(
                    c.as_str(),
                    "UTC" | "CST" | "CET" | "CEST" | "EST" | "EDT" | "PST" | "PDT" | "GMT" | "JST"
                ) {
                    break;
                }
                return None;
            };
            let small = u32::try_from(n).ok()?;
            let v = n as f64;
            match c.as_str() {
                "r" => f.running = Some(small),
                "b" => f.blocked = Some(small),
                "cs" => f.ctxt_s = Some(v),
                // Guest time (gu) is apart from user time since procps 4.
                "us" | "gu" => f.user += v,
                "sy" => f.system = v,
                "id" => f.idle = v,
                "wa" => f.iowait = v,
                "st" => f.steal = v,
                _ => {}
            }
        }
        let sum = f.user + f.system + f.idle + f.iowait + f.steal;
        (90.0..=110.0).contains(&sum).then_some(f)
    }

    /// Intervals, oldest first.
    pub(super) fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter()
    }
}

/// `%user %nice %system %iowait %steal %idle`.
fn averages(text: &str) -> Option<Frame> {
    let mut v = [0.0; 6];
    let mut words = text.split_ascii_whitespace();
    for slot in &mut v {
        *slot = float(words.next()?)?;
    }
    let [user, nice, system, iowait, steal, idle] = v;
    let sum: f64 = v.iter().sum();
    ((90.0..=110.0).contains(&sum) && words.next().is_none()).then_some(Frame {
        user,
        nice,
        system,
        idle,
        iowait,
        steal,
        ..Frame::default()
    })
}

/// `... load average: 1.20, 3.40, 5.60`; with decimal commas `1,20, 3,40, 5,60`.
fn load(text: &str) -> Option<[f64; 3]> {
    let rest = text.split_once("load average: ").or_else(|| text.split_once("load averages: "))?.1;
    let mut out = [0.0; 3];
    let mut words = rest.split_ascii_whitespace();
    for slot in &mut out {
        *slot = float(words.next()?.trim_end_matches(','))?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Cpu {
        let mut c = Cpu::default();
        for (i, l) in text.lines().enumerate() {
            c.line(&Line { no: i as u64 + 1, text: l });
        }
        c
    }

    #[test]
    fn rows_of_vmstat() {
        let c = read(
            "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n11  0      0 100 100 100    0    0     0     0 30640 113918 57 22 21  0  0",
        );
        let f = c.frames().next().unwrap();
        assert_eq!((f.running, f.blocked, f.ctxt_s), (Some(11), Some(0), Some(113_918.0)));
        assert_eq!((f.user, f.system, f.idle), (57.0, 22.0, 21.0));
    }

    #[test]
    fn averages_and_load() {
        let c = read(
            "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n           0,50    0,00    1,50    8,00   30,00   60,00",
        );
        assert_eq!(c.frames().next().unwrap().steal, 30.0);
        let c = read(" 10:00:00 up 3 days,  2 users,  load average: 1,20, 3,40, 5,60");
        assert_eq!(c.load, Some([1.2, 3.4, 5.6]));
        assert_eq!(read("r b swpd cs us\n1 2 3 4 5").rows, 0);
    }
}

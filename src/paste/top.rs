//! `top -b` of procps (3 and 4, with `-H` and with a line per CPU) and of busybox: the summary
//! lines of a screen and its table of tasks. The tasks of the last screen count.

use super::cpu::{Cpu, Frame};
use super::memory::{Free, with_cache};
use super::number::{float, uint};
use super::{Line, Took};
use crate::sample::told::{Memory, TaskRow, Tasks};

/// Tasks kept of a screen, characters of a name.
const MAX_TASKS: usize = 5000;
const MAX_NAME: usize = 64;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Top {
    /// A screen began, and no other command since.
    inside: bool,
    columns: Vec<String>,
    memory: Option<Memory>,
    pub(super) tasks: Tasks,
    pub(super) screens: usize,
    pub(super) rows: u64,
}

impl Top {
    /// A prompt with a command.
    pub(super) fn command(&mut self) {
        self.inside = false;
        self.columns.clear();
        self.memory = None;
    }

    pub(super) fn line(&mut self, line: &Line<'_>, cpu: &mut Cpu, free: &mut Free) -> Took {
        let text = line.text.trim();
        let took = text.starts_with("top - ") && text.contains("load average") && {
            self.screen();
            cpu.line(line) == Took::Yes
        };
        if took
            || self.memory(text, free)
            || self.cpu(text, cpu)
            || (self.inside && (self.summary(text, cpu) || self.header(text) || self.row(text)))
        {
            self.rows += 1;
            return Took::Yes;
        }
        Took::No
    }

    fn screen(&mut self) {
        self.inside = true;
        self.screens += 1;
        self.columns.clear();
        self.memory = None;
        self.tasks = Tasks::default();
    }

    /// `Tasks: 83 total, 1 running, ...`, and the load of busybox.
    fn summary(&mut self, text: &str, cpu: &mut Cpu) -> bool {
        if let Some(rest) = text.strip_prefix("Load average: ") {
            let mut words = rest.split_ascii_whitespace().map(float);
            let mut next = || words.next().flatten();
            if let (Some(a), Some(b), Some(c)) = (next(), next(), next()) {
                cpu.load = Some([a, b, c]);
                return true;
            }
            return false;
        }
        let threads = text.starts_with("Threads:");
        if !(threads || text.starts_with("Tasks:")) {
            return false;
        }
        let values = pairs(text);
        let of = |name: &str| values.iter().find(|p| p.1 == name).map(|p| p.0 as u64);
        self.tasks.threads = threads;
        self.tasks.total = of("total").map(|n| (n, of("zombie").unwrap_or(0)));
        self.tasks.total.is_some()
    }

    /// `%Cpu(s): 0.0 us, ...`, `Cpu(s): 0.0%us, ...`, `%Cpu3 : ...`, `CPU: 0% usr ...`.
    fn cpu(&mut self, text: &str, cpu: &mut Cpu) -> bool {
        let Some((title, _)) = text.split_once(':') else { return false };
        let title = title.trim_end().trim_start_matches('%');
        let Some(which) = title.strip_prefix("Cpu").or_else(|| title.strip_prefix("CPU")) else {
            return false;
        };
        let number = uint(which).and_then(|n| u32::try_from(n).ok());
        if !(which == "(s)" || which.is_empty() || number.is_some()) || !self.inside {
            return false;
        }
        let mut f = Frame::default();
        let mut sum = 0.0;
        for (value, label) in pairs(text) {
            let slot = match label {
                "us" | "usr" | "user" => &mut f.user,
                "sy" | "sys" | "system" => &mut f.system,
                "ni" | "nic" | "nice" => &mut f.nice,
                "id" | "idle" => &mut f.idle,
                "wa" | "io" => &mut f.iowait,
                "hi" | "irq" => &mut f.irq,
                "si" | "sirq" => &mut f.softirq,
                "st" => &mut f.steal,
                _ => continue,
            };
            *slot = value;
            sum += value;
        }
        if !(90.0..=110.0).contains(&sum) {
            // Bars instead of numbers.
            return text.contains('[');
        }
        self.tasks.idle = match number {
            // Then there is no row for all CPUs.
            Some(_) => None,
            None => Some(f.idle + f.iowait),
        };
        cpu.table(f, number, None, number == Some(0));
        true
    }

    /// `MiB Mem : 24105.6 total, ...`, `Mem: 4367668K used, 20316416K free, ...`.
    fn memory(&mut self, text: &str, free: &mut Free) -> bool {
        let Some((title, _)) = text.split_once(':') else { return false };
        let swap = title.trim_end().ends_with("Swap");
        let busybox = title == "Mem" && text.contains("K used,");
        let known = swap || title.trim_end().ends_with("Mem");
        if !known || title.len() > 12 || !(self.inside || busybox) {
            return false;
        }
        let values = pairs(text);
        let of = |name: &str| values.iter().find(|p| p.1 == name).map(|p| p.0);
        if busybox {
            // The first line of its screen.
            self.screen();
        }
        if swap {
            let Some((total, unused)) = of("total").zip(of("free")) else { return false };
            let Some(mut m) = self.memory.take() else { return false };
            m.swap = Some((total, unused));
            if let Some(available) = of("avail") {
                (m.available, m.estimated) = (Some(available), false);
            } else if let (Some(cached), Some(a)) = (of("cached"), m.available) {
                m.available = Some(a + cached);
            }
            free.push(m);
            return true;
        }
        let (Some(used), Some(unused)) = (of("used"), of("free")) else { return false };
        let total = of("total").unwrap_or(used + unused);
        let cache = ["buff/cache", "buff", "buffers", "cached"].iter().filter_map(|n| of(n)).sum();
        let m = Memory { total, free: unused, ..with_cache(None, unused, cache, of("shrd")) };
        if busybox {
            free.push(m);
        } else {
            self.memory = Some(m);
        }
        true
    }

    fn header(&mut self, text: &str) -> bool {
        let words: Vec<&str> = text.split_ascii_whitespace().take(60).collect();
        let last = words.last().is_some_and(|w| w.eq_ignore_ascii_case("command"));
        if !(last && words.contains(&"PID") && words.contains(&"%CPU")) {
            return false;
        }
        self.columns = words.into_iter().map(str::to_owned).collect();
        true
    }

    fn row(&mut self, text: &str) -> bool {
        let Some(row) = task(&self.columns, text) else { return false };
        if self.tasks.rows.len() < MAX_TASKS {
            self.tasks.rows.push(row);
        }
        true
    }
}

/// A row of the table; the command is the rest of the line.
fn task(columns: &[String], text: &str) -> Option<TaskRow> {
    let (_, columns) = columns.split_last()?;
    let mut out = TaskRow::default();
    let mut rest = text;
    let mut pid = None;
    for c in columns {
        let word;
        (word, rest) = next_word(rest)?;
        match c.as_str() {
            "PID" => pid = Some(u32::try_from(uint(word)?).ok()?),
            "S" | "STAT" => {
                out.state = word.chars().next().filter(char::is_ascii_alphabetic);
                out.state?;
                // busybox pads the flags: `S <`.
                if let Some(("<" | "N", more)) = next_word(rest)
                    && c == "STAT"
                {
                    rest = more;
                }
            }
            "%CPU" => out.cpu = Some(float(word)?),
            _ => {}
        }
    }
    out.pid = pid?;
    let name = rest.trim();
    if name.is_empty() {
        return None;
    }
    out.name = short(name);
    Some(out)
}

/// A command without path and arguments; names in brackets or braces stay.
pub(super) fn short(command: &str) -> String {
    let first = match command.chars().next() {
        Some('/') => command.split_ascii_whitespace().next().unwrap_or(command),
        _ => command,
    };
    let name =
        if first.starts_with('/') { first.rsplit('/').next().unwrap_or(first) } else { first };
    name.chars().take(MAX_NAME).collect()
}

fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find([' ', '\t']).unwrap_or(text.len());
    if end == 0 { None } else { text.split_at_checked(end) }
}

/// Numbers with their labels after a title: `0.0 us`, `1.5%us`, `4367668K used`, also if only a
/// comma separates them (`ni,100.0 id`).
fn pairs(text: &str) -> Vec<(f64, &str)> {
    let rest = text.split_once(':').map_or(text, |p| p.1);
    let label = |c: char| c.is_ascii_alphabetic() || c == '/';
    let mut out = Vec::new();
    let mut rest = rest;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest.get(start..).unwrap_or("");
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','))
            .unwrap_or(rest.len());
        let Some(value) = rest.get(..end).and_then(|n| float(n.trim_end_matches([',', '.'])))
        else {
            break;
        };
        rest = rest.get(end..).unwrap_or("");
        // A unit or a mark of truncation directly behind the number.
        let glued = rest.trim_start_matches(['%', '+', 'k', 'K', 'm', 'g']);
        let name =
            if glued.starts_with([' ', '\t']) || rest.starts_with('%') { glued } else { rest };
        let name = name.trim_start();
        let end = name.find(|c: char| !label(c)).unwrap_or(name.len());
        if let Some(n) = name.get(..end).filter(|n| !n.is_empty()) {
            out.push((value, n));
        }
        rest = name.get(end..).unwrap_or("");
        if out.len() >= 32 {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> (Top, Cpu, Free) {
        let (mut top, mut cpu, mut free) = (Top::default(), Cpu::default(), Free::default());
        for (i, l) in text.lines().enumerate() {
            let took = top.line(&Line { no: i as u64 + 1, text: l }, &mut cpu, &mut free);
            assert_eq!(took, Took::Yes, "{l}");
        }
        (top, cpu, free)
    }

    #[test]
    fn numbers_and_labels() {
        let got = pairs("%Cpu(s):  0.5 us,  0.0 sy,  0.0 ni,99.5 id");
        assert_eq!(got, [(0.5, "us"), (0.0, "sy"), (0.0, "ni"), (99.5, "id")]);
        assert_eq!(pairs("Cpu(s):  1.5%us, 98.5%id"), [(1.5, "us"), (98.5, "id")]);
        assert_eq!(pairs("%Cpu(s):  1,5 us, 98,5 id"), [(1.5, "us"), (98.5, "id")]);
        let got =
            pairs("MiB Swap:      0.0 total,      0.0 free,      0.0 used.  22483.3 avail Mem ");
        assert_eq!(got[2..], [(0.0, "used"), (22483.3, "avail")]);
        let got = pairs("Mem:   8165300k total,  8000000k used,   165300k free");
        assert_eq!(got, [(8_165_300.0, "total"), (8e6, "used"), (165_300.0, "free")]);
    }

    #[test]
    fn a_screen_of_procps() {
        let (top, cpu, free) = read(
            "top - 03:08:20 up  7:13,  0 user,  load average: 2.18, 1.74, 1.39\n\
             Threads: 108 total,   3 running, 105 sleeping,   0 stopped,   2 zombie\n\
             %Cpu(s):100.0 us,  0.0 sy,  0.0 ni,  0.0 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st \n\
             MiB Mem :  24105.6 total,  19849.5 free,   1622.3 used,   2961.9 buff/cache     \n\
             MiB Swap:      0.0 total,      0.0 free,      0.0 used.  22483.3 avail Mem \n\
             \x20 PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n\
             27986 root      20   0 2894064   1.1g 105728 S 181.2   4.7   2:18.26 rustc\n\
             \x20  12 root       0 -20       0      0      0 D   0.0   0.0   0:00.00 kworker/u8:3 x",
        );
        assert_eq!(cpu.load, Some([2.18, 1.74, 1.39]));
        assert_eq!(cpu.frames().next().unwrap().user, 100.0);
        assert_eq!(free.list[0].available, Some(22483.3));
        assert_eq!((top.tasks.threads, top.tasks.total), (true, Some((108, 2))));
        let rows: Vec<_> =
            top.tasks.rows.iter().map(|r| (r.pid, r.state, r.cpu, r.name.as_str())).collect();
        assert_eq!(
            rows,
            [
                (27986, Some('S'), Some(181.2), "rustc"),
                (12, Some('D'), Some(0.0), "kworker/u8:3 x"),
            ]
        );
    }

    #[test]
    fn a_screen_of_busybox() {
        let (top, cpu, free) = read(
            "Mem: 4367668K used, 20316416K free, 8872K shrd, 124188K buff, 2415704K cached\n\
             CPU:  99% usr   1% sys   0% nic   0% idle   0% io   0% irq   0% sirq\n\
             Load average: 2.18 1.74 1.39 3/108 28503\n\
             \x20 PID  PPID USER     STAT   VSZ %VSZ %CPU COMMAND\n\
             27986 27684 root     S    2826m  11% 100% /usr/bin/rustc --crate-name x\n\
             \x20   1     0 root     S <  45988   0%   0% init",
        );
        assert_eq!(cpu.load, Some([2.18, 1.74, 1.39]));
        let m = free.list[0];
        assert_eq!(m.total, 24_684_084.0);
        assert_eq!(m.available, Some(20_316_416.0 + 124_188.0 + 2_415_704.0 - 8872.0));
        assert_eq!(top.tasks.rows[0].name, "rustc");
        assert_eq!(top.tasks.rows[1].name, "init");
    }
}

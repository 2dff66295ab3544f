//! Pasted text as a source of ticks: what tools printed on a machine that you cannot log in to.
//!
//! Each format has its own file; this one decides which format a line belongs to, counts lines, and
//! keeps the first ones that no format claims. Text is read as a stream in bounded memory; the
//! limits are the constants `MAX_*` and are reported when they are hit. What is read becomes partly
//! filled samples (`build`): absent stays absent. Nothing here judges.
//!
//! The samples have no timestamps. They are taken to be one interval apart, but cannot show that
//! something *lasts*, so the engine that judges them must be one for single samples.

mod build;
mod clean;
mod conntrack;
mod counters;
mod cpu;
mod df;
mod fio;
mod iostat;
mod lines;
mod log;
mod memory;
mod number;
mod procfs;
mod prompt;
mod ss;
mod sysstat;
mod top;
pub mod understood;

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::Arc;

use crate::sample::tick::{HostInfo, Tick};
use crate::sample::told::Told;
use crate::text::sanitize;
use understood::{FormatCount, Understood};

/// Maximum number of quoted lines that were not understood.
const EXAMPLES: usize = 5;
/// Characters of each.
const EXAMPLE_LEN: usize = 100;

/// A cleaned line.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    /// From 1.
    no: u64,
    /// Without blanks at its end.
    text: &'a str,
}

/// A parser's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Took {
    /// Mine.
    Yes,
    /// Mine, if it makes sense together with the lines that follow; counted at the end.
    Provisional,
    /// Not mine.
    No,
}

/// Formats, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Log,
    Df,
    Free,
    Conntrack,
    Top,
    Sysstat,
    Ss,
    Iostat,
    Counters,
    Softnet,
    Diskstats,
    Cpu,
    Fio,
    Facts,
}

impl Format {
    const ALL: [Self; 14] = [
        Self::Log,
        Self::Df,
        Self::Free,
        Self::Conntrack,
        Self::Top,
        Self::Sysstat,
        Self::Ss,
        Self::Iostat,
        Self::Counters,
        Self::Softnet,
        Self::Diskstats,
        Self::Cpu,
        Self::Fio,
        Self::Facts,
    ];

    /// Its name, and that of one item.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Log => ("kernel log", "message"),
            Self::Df => ("df", "file system"),
            Self::Free => ("free", "row"),
            Self::Conntrack => ("conntrack -S", "row"),
            Self::Top => ("top", "line"),
            Self::Sysstat => ("mpstat, pidstat, sar", "row"),
            Self::Ss => ("ss", "socket"),
            Self::Iostat => ("iostat -x", "disk row"),
            Self::Counters => ("nstat, netstat -s", "counter"),
            Self::Softnet => ("softnet_stat", "CPU row"),
            Self::Diskstats => ("diskstats", "disk row"),
            Self::Cpu => ("vmstat, uptime, avg-cpu", "row"),
            Self::Fio => ("fio disk stats", "disk row"),
            Self::Facts => ("lsblk, /sys/block, mdstat", "attribute"),
        }
    }
}

/// Everything that was read so far.
#[derive(Debug, Default)]
struct Parsers {
    ss: ss::Ss,
    iostat: iostat::Iostat,
    names: iostat::Names,
    counters: counters::Counters,
    procfs: procfs::Procfs,
    cpu: cpu::Cpu,
    fio: fio::Fio,
    log: log::Kernel,
    df: df::Df,
    free: memory::Free,
    conntrack: conntrack::Stat,
    top: top::Top,
    sysstat: sysstat::Sysstat,
    banner: Option<prompt::Banner>,
}

/// A paste that has been read.
#[derive(Debug)]
pub struct Paste {
    host: HostInfo,
    ticks: VecDeque<Arc<Tick>>,
    understood: Understood,
    told: Told,
}

impl Paste {
    /// What it says beyond samples of collectors.
    #[must_use]
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// The machine that printed it, if a prompt shows it.
    #[must_use]
    pub fn host(&self) -> &HostInfo {
        &self.host
    }

    /// Takes its ticks out, oldest first.
    pub fn ticks(&mut self) -> impl Iterator<Item = Arc<Tick>> + use<> {
        std::mem::take(&mut self.ticks).into_iter()
    }

    /// What was understood.
    #[must_use]
    pub fn understood(&self) -> &Understood {
        &self.understood
    }
}

/// Reads pasted text to its end.
///
/// # Errors
/// Read errors of the stream.
pub fn read(input: &mut dyn BufRead) -> io::Result<Paste> {
    let mut r = Reader::default();
    let mut buf = String::new();
    let read = lines::each_line(input, |no, raw| {
        let text = clean::clean(raw, &mut buf);
        r.line(Line { no, text });
    })?;
    r.flush();
    r.understood.bytes = read.bytes;
    if read.cut > 0 {
        let kb = lines::MAX_LINE / 1024;
        r.understood.notes.push(format!("{} lines were cut after {kb} KiB", read.cut));
    }
    Ok(r.finish())
}

/// Gives lines to parsers.
#[derive(Debug, Default)]
struct Reader {
    parsers: Parsers,
    current: Option<Format>,
    lines: [u64; Format::ALL.len()],
    /// Formats in the order of their first line.
    order: Vec<Format>,
    prompts: u64,
    understood: Understood,
}

impl Reader {
    fn line(&mut self, line: Line<'_>) {
        let text = unquoted(line.text);
        let line = Line { text, ..line };
        if text.trim_start().is_empty() {
            return;
        }
        self.understood.lines += 1;
        if self.parsers.ss.starts(text) {
            self.flush();
        }
        // A format in the middle of its own output comes first.
        if let Some(current) = self.current
            && self.offer(current, &line)
        {
            return;
        }
        if !sysstat::Sysstat::titles(text) && self.around(&line) {
            return;
        }
        for format in Format::ALL {
            if Some(format) != self.current && self.offer(format, &line) {
                return;
            }
        }
        if prompt::decoration(text) {
            self.understood.lines -= 1;
            return;
        }
        if self.current == Some(Format::Log) && self.parsers.log.rest() {
            self.count(Format::Log, 1);
            return;
        }
        self.not_understood(line.no, text);
    }

    /// Prompts and banners.
    fn around(&mut self, line: &Line<'_>) -> bool {
        if let Some(b) = prompt::banner(line.text) {
            let old = self.parsers.banner.get_or_insert_default();
            old.kernel = b.kernel;
            old.host = b.host.or_else(|| old.host.take());
            old.cpus = b.cpus.or(old.cpus);
            self.prompts += 1;
            return true;
        }
        let Some(c) = prompt::command(line.text) else { return false };
        self.flush();
        self.prompts += 1;
        self.current = None;
        let p = &mut self.parsers;
        let interval = c.interval.filter(|_| c.name == "iostat" || c.name == "vmstat");
        p.ss.command();
        p.iostat.command(interval);
        p.cpu.command(interval);
        p.counters.command((c.name == "nstat").then_some(c.absolute));
        p.procfs.command();
        p.fio.command();
        p.log.command();
        p.df.command();
        p.free.command();
        p.conntrack.command();
        p.top.command();
        p.sysstat.command();
        true
    }

    fn offer(&mut self, format: Format, line: &Line<'_>) -> bool {
        let p = &mut self.parsers;
        let current = self.current == Some(format);
        let took = match format {
            Format::Log => p.log.line(line),
            Format::Df => p.df.line(line, current),
            Format::Free => p.free.line(line),
            Format::Conntrack => p.conntrack.line(line),
            Format::Top => p.top.line(line, &mut p.cpu, &mut p.free),
            Format::Sysstat => {
                let mut to = sysstat::Sinks {
                    cpu: &mut p.cpu,
                    free: &mut p.free,
                    iostat: &mut p.iostat,
                    names: &mut p.names,
                };
                p.sysstat.line(line, &mut to)
            }
            Format::Ss => p.ss.line(line, current),
            Format::Iostat => p.iostat.line(line, &mut p.names),
            Format::Counters => p.counters.line(line),
            Format::Softnet => p.procfs.softnet(line),
            Format::Diskstats => p.procfs.diskstats(line, &mut p.names),
            Format::Cpu => p.cpu.line(line),
            Format::Fio => p.fio.line(line, &mut p.names),
            Format::Facts => p.procfs.facts.line(line),
        };
        if took == Took::No {
            return false;
        }
        if !current {
            if format != Format::Ss {
                self.flush();
            }
            self.current = Some(format);
            if !self.order.contains(&format) {
                self.order.push(format);
            }
        }
        if took == Took::Yes {
            self.count(format, 1);
        }
        true
    }

    fn count(&mut self, format: Format, lines: u64) {
        if let Some(i) = Format::ALL.iter().position(|f| *f == format)
            && let Some(n) = self.lines.get_mut(i)
        {
            *n += lines;
        }
    }

    /// Ends a socket whose lines are still being collected.
    fn flush(&mut self) {
        let text = self.parsers.ss.pending().chars().take(EXAMPLE_LEN).collect::<String>();
        let Some((no, lines, ok)) = self.parsers.ss.flush() else { return };
        if ok {
            self.count(Format::Ss, lines);
        } else {
            self.not_understood(no, &text);
            self.understood.not_understood += lines - 1;
        }
    }

    fn not_understood(&mut self, no: u64, text: &str) {
        self.understood.not_understood += 1;
        if self.understood.examples.len() < EXAMPLES {
            let short: String = text.trim().chars().take(EXAMPLE_LEN).collect();
            let short = sanitize(&short.replace('\t', " ")).into_owned();
            self.understood.examples.push((no, short));
        }
    }

    fn finish(mut self) -> Paste {
        let p = &self.parsers;
        for format in &self.order {
            let (items, samples) = match format {
                Format::Log => (p.log.log.lines, 1),
                Format::Df => (p.df.rows, 1),
                Format::Free => (p.free.rows, p.free.list.len()),
                Format::Conntrack => (p.conntrack.rows, p.conntrack.list.len()),
                Format::Top => (p.top.rows, p.top.screens),
                Format::Sysstat => (p.sysstat.rows, 1),
                Format::Ss => (p.ss.sockets + p.ss.others, p.ss.samples()),
                Format::Iostat => (p.iostat.rows, p.iostat.intervals().count()),
                Format::Counters => (p.counters.values, p.counters.samples()),
                Format::Softnet => (p.procfs.softnet.rows, p.procfs.softnet.list.len()),
                Format::Diskstats => (p.procfs.diskstats.rows, p.procfs.diskstats.list.len()),
                Format::Cpu => (p.cpu.rows, p.cpu.frames().count()),
                Format::Fio => (p.fio.rows, p.fio.runs().count()),
                Format::Facts => (p.procfs.facts.count, 1),
            };
            let lines = Format::ALL.iter().zip(self.lines).find(|(f, _)| *f == format);
            let (name, item) = format.names();
            self.understood.formats.push(FormatCount {
                format: name,
                lines: lines.map_or(0, |l| l.1),
                items,
                samples: samples as u64,
                item,
            });
        }
        if self.prompts > 0 {
            self.understood.formats.push(FormatCount {
                format: "prompts and banners",
                lines: self.prompts,
                items: 0,
                samples: 0,
                item: "line",
            });
        }
        self.understood.notes.extend(notes(p));
        let (host, ticks) = build::ticks(&self.parsers);
        let told = told(self.parsers);
        Paste { host, ticks, understood: self.understood, told }
    }
}

/// What no collector reads.
fn told(p: Parsers) -> Told {
    let cpus = build::cpus(&p);
    let tasks = [p.top.tasks, p.sysstat.tasks];
    Told {
        host_cpus: cpus,
        tasks: tasks.into_iter().filter(|t| !t.rows.is_empty()).collect(),
        cpus: p.sysstat.cpus,
        links: p.sysstat.links,
        paging: p.sysstat.paging,
        queue: p.sysstat.queue,
        log: p.log.log,
        filesystems: p.df.list,
        memory: p.free.list,
        conntrack: p.conntrack.list,
        conntrack_used: (p.conntrack.count, p.conntrack.max),
    }
}

/// Limits that were hit and guesses that were made.
fn notes(p: &Parsers) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |n: u64, text: String| {
        if n > 0 {
            out.push(text);
        }
    };
    let n = p.ss.over;
    say(n, format!("{n} sockets beyond the first {} were only counted", ss::MAX_SOCKETS));
    let n = p.ss.dropped;
    say(
        n,
        format!(
            "{n} older snapshots of ss were left out; only the last {} count",
            ss::MAX_SNAPSHOTS
        ),
    );
    let n = p.iostat.dropped + p.cpu.dropped + p.fio.dropped;
    say(
        n,
        format!(
            "{n} older intervals were left out; only the last {} with at most {} disk rows count",
            iostat::MAX_INTERVALS,
            iostat::MAX_ROWS
        ),
    );
    let n = p.iostat.over;
    say(n, format!("{n} disk rows beyond the limit were left out"));
    let n = p.counters.dropped
        + p.conntrack.dropped
        + p.procfs.softnet.dropped
        + p.procfs.diskstats.dropped;
    say(n, format!("{n} older readings of counters were left out"));
    let n = p.sysstat.dropped;
    say(n, format!("{n} older sysstat rows were left out"));
    let others = &p.sysstat.others;
    say(others.len() as u64, format!("no rule judges these sysstat tables: {}", others.join("; ")));
    let text = "sar -d does not separate reads from writes: they were split by volume";
    say(u64::from(p.sysstat.split), text.to_owned());
    let n = p.df.over;
    say(n, format!("{n} file systems beyond the limit were left out"));
    let n = p.free.dropped;
    say(n, format!("{n} older readings of memory were left out"));
    let n = p.fio.timeless;
    let text =
        "of fio without a run time (run=...msec, maxt=...msec): only means, no rates, no queue";
    say(n, format!("{n} disk row{} {text}", if n == 1 { "" } else { "s" }));
    say(u64::from(p.iostat.basic), "iostat without -x shows neither latency nor queue".to_owned());
    let guessed = "iostat rows without a header: their columns were inferred from their number";
    say(u64::from(p.iostat.guessed), guessed.to_owned());
    if p.procfs.softnet.list.len() == 1 {
        say(1, softnet_note(p));
    }
    out.extend(p.counters.note());
    out
}

fn softnet_note(p: &Parsers) -> String {
    let rows = p.procfs.softnet.list.front().map_or(&[][..], Vec::as_slice);
    let sum = |f: fn(&crate::sample::softirq::SoftnetRow) -> u32| -> u64 {
        rows.iter().map(|r| u64::from(f(r))).sum()
    };
    format!(
        "one reading of softnet_stat (since boot): {} packets dropped, {} times out of budget; \
         paste a second one to see what grows",
        sum(|r| r.dropped),
        sum(|r| r.time_squeeze)
    )
}

/// Without the marks that mail and chat programs put before quoted lines.
fn unquoted(text: &str) -> &str {
    let mut rest = text;
    while let Some(r) = rest.strip_prefix("> ").or_else(|| rest.strip_prefix("| ")) {
        rest = r;
    }
    rest
}

//! The command line, as typed. What it means is decided in `config`.

mod record;
mod replay;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use record::{RecordArgs, RecordTo, RotateArg, SyncArg, ThinArg};
pub use replay::{ExportArgs, ReplayArgs};

/// Shows where the work on this Linux box is stuck, and why: sockets, disks, softirqs, run
/// queue, with findings that say what is wrong, what was ruled out, and what to type next.
///
/// Without a command: the live console. It needs no root; root shows more (see `doctor`).
#[derive(Debug, Parser)]
#[command(name = "stallscope", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of the live console.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings of the console.
    #[command(flatten)]
    pub console: ConsoleArgs,
}

const EXAMPLES: &str = "\
Examples:
  stallscope                              live console; ? shows the keys, q quits
  stallscope check                        watch for 15 s and print the findings
  stallscope check --duration 60s --format json
  stallscope record -o box.stall          write everything that is measured into a file
  ssh box stallscope record -o - > box.stall
  stallscope replay box.stall             the console over that file, anywhere, without root
  stallscope check box.stall              the findings of the whole file
  stallscope export box.stall --from 14:00 --to 14:10 -o part.stall --redact
  stallscope explain incident.txt         the same rules over pasted ss, iostat, dmesg, top output
  stallscope doctor                       what is measured here, and how to unlock the rest

Exit codes:
  0  nothing found in what is readable (also: closed pipe)
  1  findings at warn or worse (check, explain)
  2  usage
  3  cannot collect, cannot read or cannot record";

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch for a while, or look through a recording, without a screen; print the findings.
    Check(CheckArgs),
    /// Write everything that is measured into a file, without a screen.
    Record(RecordArgs),
    /// Go through a recording as if it were live.
    Replay(ReplayArgs),
    /// Cut a part out of a recording, to share it.
    Export(ExportArgs),
    /// What works here, what does not, why, and how to unlock it.
    Doctor(DoctorArgs),
    /// Diagnose pasted output of ss, iostat -x, nstat, dmesg, top -b, df, sar and others.
    ///
    /// Reads what these print, alone or mixed, with prompts, from any terminal: ss, netstat,
    /// nstat, iostat, vmstat, uptime, fio, lsblk, dmesg, journalctl -k, df, free, top -b, mpstat,
    /// pidstat, sar, conntrack -S, and the files softnet_stat, diskstats and mdstat of /proc. Says
    /// what was understood, what was not, and what cannot be told from it.
    Explain(ExplainArgs),
    /// What is inside a recording: host, time, gaps, marks, findings, damage, sizes.
    Info(InfoArgs),
    /// What the rules mean.
    Rules(RulesArgs),
}

/// What every live command obeys.
#[derive(Args, Debug)]
pub struct LiveArgs {
    /// Distance of two ticks, 100ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Network namespaces to read: all, self, or the path of one, such as /run/netns/blue.
    #[arg(long, value_name = "all|self|PATH", default_value = "all")]
    pub netns: String,
    /// Never load eBPF programs.
    #[arg(long)]
    pub no_bpf: bool,
}

/// `stallscope`.
#[derive(Args, Debug)]
pub struct ConsoleArgs {
    /// Shared settings.
    #[command(flatten)]
    pub live: LiveArgs,
    /// Colours: auto obeys NO_COLOR and TERM.
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
    /// Characters of charts and frames: auto obeys the locale.
    #[arg(long, value_enum, default_value_t = GlyphArg::Auto)]
    pub glyphs: GlyphArg,
    /// Let the mouse select panes and rows; text selection then needs Shift.
    #[arg(long)]
    pub mouse: bool,
    /// Recording.
    #[command(flatten)]
    pub to: RecordTo,
}

/// `stallscope check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// A recording to look through, instead of this machine; - for a pipe.
    #[arg(
        value_name = "FILE",
        conflicts_with_all = ["interval", "netns", "no_bpf", "duration", "record", "append"]
    )]
    pub file: Option<PathBuf>,
    /// Shared settings.
    #[command(flatten)]
    pub live: LiveArgs,
    /// How long to watch, 1s to 24h.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = watch_time)]
    pub duration: Duration,
    /// Recording.
    #[command(flatten)]
    pub to: RecordTo,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// `stallscope doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Network namespaces to read: all, self, or the path of one.
    #[arg(long, value_name = "all|self|PATH", default_value = "all")]
    pub netns: String,
    /// Never load eBPF programs.
    #[arg(long)]
    pub no_bpf: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// `stallscope explain`: the rules of the live console over text from a machine out of reach.
/// One sample cannot tell whether something lasts, so every finding is a suspicion.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// File with the pasted text; - or nothing for standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// `stallscope info`.
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// The recording; - for a pipe.
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// `stallscope rules`.
#[derive(Args, Debug)]
pub struct RulesArgs {
    /// A rule's id; without it, one line per rule.
    pub id: Option<String>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs; schema 1.
    Json,
}

/// `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// By NO_COLOR and TERM.
    Auto,
    /// The 16 named colours.
    Always,
    /// None.
    Never,
    /// The palette of 256.
    #[value(name = "256")]
    Palette,
}

/// `--glyphs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GlyphArg {
    /// By locale and TERM.
    Auto,
    /// Braille dots: finest.
    Braille,
    /// Eighth blocks.
    Block,
    /// ASCII only.
    Ascii,
}

/// What `--netns PATH` and its siblings become.
#[must_use]
pub fn netns_scope(text: &str) -> crate::collect::NetnsScope {
    use crate::collect::NetnsScope;
    match text {
        "all" => NetnsScope::All,
        "self" => NetnsScope::Own,
        path => NetnsScope::Path(PathBuf::from(path)),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(100), Duration::from_secs(60), "100ms to 60s")
}

fn watch_time(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_secs(1), Duration::from_secs(86400), "1s to 24h")
}

fn time(text: &str, least: Duration, most: Duration, range: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time such as 500ms, 15s or 2m");
    let d: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    let d = Duration::try_from(d).map_err(|_| wrong())?;
    if (least..=most).contains(&d) { Ok(d) } else { Err(format!("out of range: {range}")) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_a_unit_and_a_range() {
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(watch_time("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "5", "-3s", "50ms", "2h", "1e9999s", "s", "10 parsecs"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}

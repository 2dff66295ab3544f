//! The command line, as typed. What it means is decided in `config`.

mod help;
mod record;
mod replay;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use help::{HelpArgs, commands};
pub use record::{RecordArgs, RecordTo, RotateArg, SyncArg, ThinArg};
pub use replay::{ExportArgs, ReplayArgs};

/// Shows where the work on this Linux box is stuck, and why.
///
/// Watches sockets, disks, softirqs and the run queue, and reports findings: what is wrong, what
/// was ruled out, and what to type next.
///
/// Without a command, it starts the live console. It needs no root, but root sees more.
#[derive(Debug, Parser)]
#[command(
    name = "stallscope",
    version,
    after_help = after_help(),
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
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
  stallscope                             live console; ? shows the keys, q quits
  stallscope check                       watch for 15 s and print the findings
  stallscope check --duration 60s --format json
  stallscope record -o box.stall         record everything that is measured
  ssh box stallscope record -o - > box.stall
  stallscope replay box.stall            the console over a recording
  stallscope check box.stall             the findings of the whole recording
  stallscope export box.stall --from 14:00 --to 14:10 -o part.stall --redact
  stallscope explain incident.txt        diagnose pasted ss, iostat, dmesg, ...
  stallscope doctor                      what is measured here, what is missing";

fn after_help() -> String {
    format!(
        "{EXAMPLES}\n\nExit codes:\n{}\nHelp topics (stallscope help TOPIC):\n{}",
        crate::help::exit_codes(),
        crate::help::list().trim_end()
    )
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check this host or a recording, non-interactively, and print the findings.
    Check(CheckArgs),
    /// Record everything that is measured, non-interactively.
    ///
    /// Writes one tick per interval until it gets TERM, INT or HUP, then closes the file. If it is
    /// killed or crashes, at most one tick is lost. USR1 puts a mark into the recording. On a
    /// terminal, one line shows the progress; otherwise only errors are printed.
    ///
    /// A slow disk never delays a tick: what cannot be written in time is dropped, and the
    /// recording says so. While the disk is full, recording pauses.
    ///
    /// More: stallscope help recording
    Record(RecordArgs),
    /// Open a recording in the console.
    ///
    /// Screens and keys are those of the live console. It needs no root and may run on another
    /// machine than the recording. The timeline covers the whole recording. `space` pauses and
    /// plays, `[` and `]` step, `{` and `}` jump between findings, `t` jumps to a
    /// time.
    ///
    /// More: stallscope help replay
    Replay(ReplayArgs),
    /// Copy part of a recording into a new one, to share it.
    ///
    /// Copies groups of up to 60 ticks as they are, so the part may begin up to a group earlier and
    /// end up to a group later than asked for.
    Export(ExportArgs),
    /// Check which signals are available, and how to get the missing ones.
    Doctor(DoctorArgs),
    /// Diagnose pasted output of ss, iostat -x, nstat, dmesg, top -b, df, sar and others.
    ///
    /// Applies the rules of the live console to text from a machine you cannot log in to. Reads the
    /// output of ss, netstat, nstat, iostat, vmstat, uptime, fio, lsblk, dmesg, journalctl -k, df,
    /// free, top -b, mpstat, pidstat, sar and conntrack -S, and the files softnet_stat, diskstats
    /// and mdstat of /proc; alone or mixed, with prompts, from any terminal. Says what was
    /// understood, what was not, and what cannot be told from it.
    ///
    /// More: stallscope help explain
    Explain(ExplainArgs),
    /// Show what a recording contains: host, time span, gaps, marks, findings, damage, sizes.
    Info(InfoArgs),
    /// List the rules, or explain one.
    Rules(RulesArgs),
    /// Show the help of a command, or a topic.
    Help(HelpArgs),
}

/// Options of every command that reads this host.
#[derive(Args, Debug)]
pub struct LiveArgs {
    /// Sampling interval, 100ms to 60s.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Network namespaces to read: all, self, or the path of one, such as /run/netns/blue.
    #[arg(long, value_name = "all|self|PATH", default_value = "all")]
    pub netns: String,
    /// Never load eBPF programs.
    #[arg(long)]
    pub no_bpf: bool,
}

/// Arguments of `stallscope` without a command.
#[derive(Args, Debug)]
pub struct ConsoleArgs {
    /// What to read.
    #[command(flatten)]
    pub live: LiveArgs,
    /// Colours; auto follows NO_COLOR and TERM.
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
    /// Glyphs for charts and borders; auto follows the locale.
    #[arg(long, value_enum, default_value_t = GlyphArg::Auto)]
    pub glyphs: GlyphArg,
    /// Select panes and rows with the mouse; selecting text then needs Shift.
    #[arg(long)]
    pub mouse: bool,
    /// Whether to record.
    #[command(flatten)]
    pub to: RecordTo,
}

/// Arguments of `stallscope check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Recording to check instead of this host; - for a pipe.
    #[arg(
        value_name = "FILE",
        conflicts_with_all = ["interval", "netns", "no_bpf", "duration", "record", "append"]
    )]
    pub file: Option<PathBuf>,
    /// What to read.
    #[command(flatten)]
    pub live: LiveArgs,
    /// How long to watch, 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = watch_time)]
    pub duration: Duration,
    /// Whether to record.
    #[command(flatten)]
    pub to: RecordTo,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Arguments of `stallscope doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Network namespaces to read: all, self, or the path of one, such as /run/netns/blue.
    #[arg(long, value_name = "all|self|PATH", default_value = "all")]
    pub netns: String,
    /// Never load eBPF programs.
    #[arg(long)]
    pub no_bpf: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Arguments of `stallscope explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// File with the pasted text; - for standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Arguments of `stallscope info`.
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// The recording; - for a pipe.
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Arguments of `stallscope rules`.
#[derive(Args, Debug)]
pub struct RulesArgs {
    /// Rule to explain; without it, one line per rule.
    pub id: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable.
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
    /// No colours.
    Never,
    /// 256 colours.
    #[value(name = "256")]
    Palette,
}

/// `--glyphs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GlyphArg {
    /// By locale and TERM.
    Auto,
    /// Braille dots: the finest.
    Braille,
    /// Eighth blocks.
    Block,
    /// ASCII only.
    Ascii,
}

/// What the value of `--netns` stands for.
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
    let wrong = || "expected a duration such as 500ms, 15s or 2m".to_owned();
    let d: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    let d = Duration::try_from(d).map_err(|_| wrong())?;
    if (least..=most).contains(&d) { Ok(d) } else { Err(format!("out of range; expected {range}")) }
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

//! The command line. Each command is a file here: its arguments, as clap reads them, and below
//! them its `run`, which wires a source to the analysis and the analysis to an outlet.
//!
//! A new command is a file with a struct of arguments that implements `Run`, and a line in the
//! list below. The documentation of the struct is what `--help` prints. Flags that several
//! commands have are groups in `shared`; what the value of a flag may be is known by the type
//! that it becomes (`FromStr`, `ValueEnum`).

mod check;
mod completions;
mod config;
mod console;
mod doctor;
mod explain;
mod export;
mod help;
mod info;
mod man;
mod record;
mod replay;
mod report;
mod rules;
mod serve;
mod shared;
mod why;

use clap::{Parser, Subcommand};

pub use help::names;

use crate::exit::Exit;
use crate::rights::{self, Duty};
use crate::signals;

/// A command: its arguments, and what it does with them.
trait Run {
    /// Whether it reads the running kernel. A command that does not gives up the rights for that
    /// before it starts.
    fn reads_kernel(&self) -> bool {
        false
    }
    fn run(&self) -> anyhow::Result<Exit>;
}

/// Each line: the struct of its arguments, and its file. In the order of the help.
macro_rules! commands {
    ($($args:ident in $file:ident,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($args($file::$args),)*
        }

        impl Command {
            fn chosen(&self) -> &dyn Run {
                match self {
                    $(Self::$args(c) => c,)*
                }
            }
        }
    };
}

commands! {
    Check in check,
    Why in why,
    Record in record,
    Serve in serve,
    Replay in replay,
    Export in export,
    Report in report,
    Doctor in doctor,
    Explain in explain,
    Info in info,
    Rules in rules,
    Config in config,
    Completions in completions,
    Man in man,
    Help in help,
}

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
    command: Option<Command>,
    /// Settings of the console.
    #[command(flatten)]
    console: console::Console,
}

const EXAMPLES: &str = "\
Examples:
  stallscope                             live console; ? shows the keys, q quits
  stallscope check                       watch for 15 s and print the findings
  stallscope check --duration 60s --format json
  stallscope why postgres                where its threads spend their time
  stallscope record -o box.stall         record everything that is measured
  ssh box stallscope record -o - > box.stall
  stallscope serve                       metrics for Prometheus, on port 9464
  stallscope replay box.stall            the console over a recording
  stallscope check box.stall             the findings of the whole recording
  stallscope export box.stall --from 14:00 --to 14:10 -o part.stall --redact
  stallscope export box.stall --format csv --table sockets,findings -o box/
  stallscope report box.stall -o incident.html
  stallscope explain incident.txt        diagnose pasted ss, iostat, dmesg, ...
  stallscope doctor                      what is measured here, what is missing";

fn after_help() -> String {
    format!(
        "{EXAMPLES}\n\nExit codes:\n{}\nHelp topics (stallscope help TOPIC):\n{}",
        crate::help::exit_codes(),
        crate::help::list().trim_end()
    )
}

/// Runs the command that was typed.
///
/// # Errors
/// What to tell the user: [`crate::exit::Stop`] holds the exit code, anything else is
/// [`Exit::CannotCollect`].
pub fn run(cli: &Cli) -> anyhow::Result<Exit> {
    signals::ignore_file_size_limit();
    rights::begin();
    let command = cli.command.as_ref().map_or(&cli.console as &dyn Run, Command::chosen);
    if !command.reads_kernel() {
        rights::restrict(Duty::Files);
    }
    command.run()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}

//! `stallscope man`: manual pages, made of the definition of the command line and of what the
//! program knows of itself: exit codes, variables, files, topics.
//!
//! They have no date: the same version has the same pages, whenever it is built.

use std::iter;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::shared::environment::VARIABLES;
use super::shared::output::print;
use super::shared::settings::FILES;
use super::{Cli, EXAMPLES, Run, help};
use crate::exit::{Exit, Stop};
use crate::help::TOPICS;
use crate::typo::{nearest, question};

/// User commands.
const SECTION: &str = "1";
/// Letters that a typo may have wrong.
const LETTERS: usize = 2;
/// What `Roff` puts before everything it writes: once is enough.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// Print the manual page of stallscope, or of one of its commands.
///
/// On a terminal: stallscope man | man -l -
#[derive(Args, Debug)]
pub(super) struct Man {
    /// The command; without it, the page of stallscope itself.
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    command: Option<String>,
    /// Write all pages into this directory, over those that it has.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Run for Man {
    fn run(&self) -> anyhow::Result<Exit> {
        if let Some(dir) = &self.output {
            write_all(dir)?;
            return Ok(Exit::Ok);
        }
        let name = self.command.as_deref();
        let Some(command) = commands().into_iter().find(|c| name.is_none_or(|n| c.get_name() == n))
        else {
            let name = name.unwrap_or_default();
            let near = nearest(name, help::names(), LETTERS);
            let hint = question(&near).unwrap_or("`stallscope help` lists them".to_owned());
            return Err(Stop::usage(format!("no command '{name}'; {hint}")));
        };
        print(&page(command)?)?;
        Ok(Exit::Ok)
    }
}

fn write_all(dir: &Path) -> anyhow::Result<()> {
    for command in commands() {
        let file = dir.join(format!("{}.{SECTION}", title(&command)));
        std::fs::write(&file, page(command)?).map_err(|e| {
            Stop::cannot(format!("{}: {e}; -o takes a directory to write into", file.display()))
        })?;
    }
    Ok(())
}

/// Those that have a page: the program itself first.
fn commands() -> Vec<Command> {
    let mut cli = Cli::command().subcommand_help_heading("COMMANDS");
    cli.build();
    let below: Vec<Command> = cli.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect();
    iter::once(cli).chain(below).collect()
}

/// Such as `stallscope-check`.
fn title(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

/// The page of one command.
fn page(mut command: Command) -> anyhow::Result<String> {
    let title = title(&command);
    // As `--help` has it: clap knows what goes with what.
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage:").unwrap_or(&usage).trim().to_owned();
    let (is_main, notes) = (command.has_subcommands(), command.get_after_help().cloned());
    let man = clap_mangen::Man::new(command.override_usage(usage)).section(SECTION);
    let mut out = Vec::new();
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut more = Roff::new();
    if is_main {
        man.render_subcommands_section(&mut out)?;
        verbatim(&mut more, "EXAMPLES", EXAMPLES.lines().skip(1));
    } else if let Some(notes) = notes {
        verbatim(&mut more, "NOTES", notes.to_string().lines());
    }
    list(&mut more, "EXIT STATUS", Exit::ALL.map(|e| ((e as u8).to_string(), e.meaning())));
    list(&mut more, "ENVIRONMENT", VARIABLES.map(|(name, what)| (name.to_owned(), what)));
    list(&mut more, "FILES", FILES.map(|(path, what)| (path.to_owned(), what)));
    see_also(&mut more, &title);
    more.to_writer(&mut out)?;
    // A line of its own between what an option does and its values, not three.
    let text = String::from_utf8(out)?.replace(PREAMBLE, "").replace(".br\n\n.br\n", ".sp\n");
    Ok(format!("{PREAMBLE}{}{text}", head(&title)))
}

/// The title line. `Man` would leave the empty date out, and what follows would be the date.
fn head(title: &str) -> String {
    let (title, version) = (title.to_uppercase(), env!("CARGO_PKG_VERSION"));
    format!(".TH \"{title}\" \"{SECTION}\" \"\" \"stallscope {version}\" \"User Commands\"\n")
}

/// Lines as they are.
fn verbatim<'a>(out: &mut Roff, heading: &str, lines: impl Iterator<Item = &'a str>) {
    out.control("SH", [heading]).control("nf", []);
    for line in lines {
        out.text([roman(line)]);
    }
    out.control("fi", []);
}

/// Names, each with what it is.
fn list<'a>(out: &mut Roff, heading: &str, rows: impl IntoIterator<Item = (String, &'a str)>) {
    out.control("SH", [heading]);
    for (name, what) in rows {
        out.control("TP", []).text([bold(name)]).text([roman(what)]);
    }
}

/// The other pages, and what only the program itself explains.
fn see_also(out: &mut Roff, title: &str) {
    let titles = commands().iter().map(self::title).collect::<Vec<_>>();
    let others = titles.iter().filter(|t| *t != title);
    let mut line: Vec<Inline> = Vec::new();
    for other in others {
        let sep = if line.is_empty() { "" } else { ", " };
        line.extend([roman(sep), bold(other), roman(format!("({SECTION})"))]);
    }
    out.control("SH", ["SEE ALSO"]).text(line);
    out.control("PP", []).text([roman("More is in the program itself:")]);
    for topic in TOPICS {
        out.control("TP", []).text([bold(format!("stallscope help {}", topic.name))]);
        out.text([roman(topic.about)]);
    }
}

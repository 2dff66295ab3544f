//! `stallscope help [TOPIC]`: a page of [`crate::help`], the help of a command, or the list of
//! both.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::sync::LazyLock;

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command, CommandFactory as _, Error, Parser as _};

use super::shared::output::print;
use super::{Cli, Run};
use crate::exit::Exit;
use crate::help::{TOPICS, Topic};

/// Show the help of a command, or a topic.
#[derive(Args, Debug)]
pub(super) struct Help {
    /// A topic or a command; without it, all of them are listed.
    #[arg(value_name = "TOPIC|COMMAND", value_parser = TopicOrCommand)]
    name: Option<String>,
}

impl Run for Help {
    /// Prints both for a name that is a command and a topic.
    fn run(&self) -> anyhow::Result<Exit> {
        let Some(name) = self.name.as_deref() else {
            print_usage(&["stallscope", "--help"])?;
            return Ok(Exit::Ok);
        };
        let is_command = names().any(|c| c == name);
        if is_command {
            print_usage(&["stallscope", name, "--help"])?;
        }
        if let Some(topic) = Topic::named(name) {
            let blank = if is_command { "\n" } else { "" };
            print(&format!("{blank}{}", topic.page()))?;
        }
        Ok(Exit::Ok)
    }
}

/// What clap answers to `--help`; a reader that went away is not an error.
fn print_usage(line: &[&str]) -> anyhow::Result<()> {
    match Cli::try_parse_from(line).map_err(|help| help.print()) {
        Err(Err(e)) if e.kind() != ErrorKind::BrokenPipe => {
            Err(e).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}

/// The finished definition of the command line.
static DEFINITION: LazyLock<Command> = LazyLock::new(Cli::command);

/// The names of the commands that the help lists.
pub fn names() -> impl Iterator<Item = &'static str> {
    DEFINITION.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name)
}

/// Everything that there is help on: the commands, then the topics that are not named like one.
pub(super) fn known() -> impl Iterator<Item = &'static str> {
    names().chain(TOPICS.iter().map(|t| t.name).filter(|t| names().all(|c| c != *t)))
}

/// Accepts what there is help on. Otherwise clap lists it and suggests the nearest.
///
/// The names are looked up when an argument is parsed, since the definition of the command line
/// cannot ask itself for its commands while it is being built.
#[derive(Clone)]
struct TopicOrCommand;

impl TypedValueParser for TopicOrCommand {
    type Value = String;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        PossibleValuesParser::new(known()).parse_ref(cmd, arg, value)
    }
}

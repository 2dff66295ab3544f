//! `stallscope help [TOPIC]`: a page of [`crate::help`], or the help of a command.

use std::ffi::OsStr;
use std::sync::LazyLock;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command, CommandFactory as _, Error};

use super::Cli;
use crate::help::TOPICS;

/// Arguments of `stallscope help`.
#[derive(Args, Debug)]
pub struct HelpArgs {
    /// A topic or a command; without it, all of them are listed.
    #[arg(value_name = "TOPIC|COMMAND", value_parser = TopicOrCommand)]
    pub name: Option<String>,
}

/// The finished definition of the command line.
static DEFINITION: LazyLock<Command> = LazyLock::new(Cli::command);

/// The names of the commands.
pub fn commands() -> impl Iterator<Item = &'static str> {
    DEFINITION.get_subcommands().map(Command::get_name)
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
        let topics = TOPICS.iter().map(|t| t.name).filter(|t| commands().all(|c| c != *t));
        PossibleValuesParser::new(commands().chain(topics)).parse_ref(cmd, arg, value)
    }
}

//! `help [TOPIC]`: a page, the help of a command, or the list of both.

use std::io::ErrorKind;

use anyhow::Context as _;
use clap::Parser as _;

use super::{Exit, print};
use crate::cli::{Cli, HelpArgs, commands};
use crate::help::Topic;

/// Of what is a command as well as a topic, prints both.
pub(super) fn help(args: &HelpArgs) -> anyhow::Result<Exit> {
    let Some(name) = args.name.as_deref() else {
        print_usage(&["stallscope", "--help"])?;
        return Ok(Exit::Ok);
    };
    let is_command = commands().any(|c| c == name);
    if is_command {
        print_usage(&["stallscope", name, "--help"])?;
    }
    if let Some(topic) = Topic::named(name) {
        let blank = if is_command { "\n" } else { "" };
        print(&format!("{blank}{}", topic.page()))?;
    }
    Ok(Exit::Ok)
}

/// What clap answers to `--help`; a reader that went away is no error.
fn print_usage(line: &[&str]) -> anyhow::Result<()> {
    match Cli::try_parse_from(line).map_err(|help| help.print()) {
        Err(Err(e)) if e.kind() != ErrorKind::BrokenPipe => {
            Err(e).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}

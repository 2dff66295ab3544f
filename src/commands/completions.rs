//! `stallscope completions SHELL`: what a shell offers after `stallscope` and Tab, made of the
//! definition of the command line.

use clap::builder::PossibleValuesParser;
use clap::{Args, Command, CommandFactory as _, ValueEnum};
use clap_complete::aot::{Bash, Elvish, Fish, Zsh};
use clap_complete::generate;

use super::shared::output::print;
use super::{Cli, Run, help};
use crate::diagnose::RULES;
use crate::exit::Exit;

/// Print a completion script for a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Where a shell looks for it (packages have put it there):
  bash    ~/.local/share/bash-completion/completions/stallscope
  zsh     _stallscope in a directory of $fpath
  fish    ~/.config/fish/completions/stallscope.fish
  elvish  a line of rc.elv: eval (stallscope completions elvish | slurp)")]
pub(super) struct Completions {
    /// For which shell.
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
}

impl Run for Completions {
    fn run(&self) -> anyhow::Result<Exit> {
        let (mut cli, mut out) = (with_names(Cli::command()), Vec::new());
        let name = cli.get_name().to_owned();
        match self.shell {
            Shell::Bash => generate(Bash, &mut cli, name, &mut out),
            Shell::Zsh => generate(Zsh, &mut cli, name, &mut out),
            Shell::Fish => generate(Fish, &mut cli, name, &mut out),
            Shell::Elvish => generate(Elvish, &mut cli, name, &mut out),
        }
        print(&String::from_utf8(out)?)?;
        Ok(Exit::Ok)
    }
}

/// With the names that commands themselves look up only when they run.
fn with_names(cli: Command) -> Command {
    let rules = || RULES.iter().map(|r| r.id().0);
    cli.mut_subcommand("help", |c| {
        c.mut_arg("name", |a| a.value_parser(PossibleValuesParser::new(help::known())))
    })
    .mut_subcommand("man", |c| {
        c.mut_arg("command", |a| a.value_parser(PossibleValuesParser::new(help::names())))
    })
    .mut_subcommand("rules", |c| {
        c.mut_arg("id", |a| a.value_parser(PossibleValuesParser::new(rules())))
    })
}

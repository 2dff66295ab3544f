//! `stallscope config`: the settings that hold, and where each comes from.

use clap::Args;

use super::Run;
use super::shared::environment::Environment;
use super::shared::output::print;
use super::shared::settings::{Flags, Settings};
use crate::exit::Exit;

/// Print the settings that hold, each with where it comes from.
///
/// They are read from $XDG_CONFIG_HOME/stallscope/config.toml, or ~/.config/stallscope/config.toml;
/// none is needed. What is printed has the form of that file.
#[derive(Args, Debug)]
pub(super) struct Config {}

impl Run for Config {
    fn run(&self) -> anyhow::Result<Exit> {
        let settings = Settings::read(Flags::default(), &Environment::read())?;
        print(&settings.text())?;
        Ok(Exit::Ok)
    }
}

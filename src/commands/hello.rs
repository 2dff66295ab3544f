//! `stallscope hello`: proves that a command is a file and its registration.

use clap::Args;

use super::Run;
use super::shared::output::print;
use crate::exit::Exit;

/// Say hello.
#[derive(Args, Debug)]
#[command(hide = true)]
pub(super) struct Hello {}

impl Run for Hello {
    fn run(&self) -> anyhow::Result<Exit> {
        print("hello\n")?;
        Ok(Exit::Ok)
    }
}

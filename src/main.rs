//! Parse, run, exit code; nothing else.

use std::process::ExitCode;

use clap::Parser as _;
use stallscope::cli::Cli;
use stallscope::model::text::sanitize;
use stallscope::run::{Exit, Stop, run};

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(e) => {
            let exit = e.downcast_ref::<Stop>().map_or(Exit::CannotCollect, |s| s.exit);
            let text = format!("{e:#}");
            eprintln!("stallscope: {}", sanitize(&text));
            ExitCode::from(exit as u8)
        }
    }
}

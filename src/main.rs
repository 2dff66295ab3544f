//! Parse, run, exit code; nothing else.

use std::process::ExitCode;

use clap::Parser as _;
use stallscope::commands::{Cli, run};
use stallscope::exit::{Exit, Stop};
use stallscope::text::sanitize;

fn main() -> ExitCode {
    stallscope::allocator::set_up();
    match run(&parse()) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(e) => {
            let exit = e.downcast_ref::<Stop>().map_or(Exit::CannotCollect, |s| s.exit);
            let text = format!("{e:#}");
            eprintln!("stallscope: {}", sanitize(&text));
            ExitCode::from(exit as u8)
        }
    }
}

fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|e| {
        // It repeats arguments, which may be file names that somebody else chose: `info *`.
        let shown = std::env::args_os().map(|a| sanitize(&a.to_string_lossy()).into_owned());
        Cli::try_parse_from(shown).err().unwrap_or(e).exit()
    })
}

//! `stallscope info FILE`: what is inside a recording, down to the last block.

use std::path::PathBuf;

use clap::Args;

use super::Run;
use super::shared::output::Output;
use super::shared::recording::{named, open_whole, wrong};
use super::shared::status_line::{StatusLine, groups_so_far};
use crate::exit::Exit;
use crate::recording::tools::info;
use crate::report;

/// Show what a recording contains: host, time span, gaps, marks, findings, damage, sizes.
#[derive(Args, Debug)]
pub(super) struct Info {
    /// The recording; - for a pipe.
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// How to print.
    #[command(flatten)]
    output: Output,
}

impl Run for Info {
    fn run(&self) -> anyhow::Result<Exit> {
        let mut reader = open_whole(&self.file)?;
        let (name, mut line) = (named(&self.file), StatusLine::new());
        let info = info::Info::gather(&mut reader, &name, |done, all| {
            line.draw(|| format!("reading {name}: {}", groups_so_far(done, all)));
        })
        .map_err(|e| wrong(&self.file, &e))?;
        line.clear();
        let json = serde_json::to_value(&info)?;
        self.output.print(|| report::info::text(&info), || json)?;
        Ok(Exit::Ok)
    }
}

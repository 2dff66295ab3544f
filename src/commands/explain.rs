//! `stallscope explain [FILE]`: judges pasted text.

use std::io::{BufRead, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::Args;

use super::Run;
use super::shared::output::{Output, say};
use crate::analysis::Analysis;
use crate::diagnose::{Engine, told};
use crate::exit::{Exit, Stop};
use crate::metrics::history::DEFAULT_BUDGET;
use crate::paste;
use crate::report::{self, CheckReport};
use crate::session::Session;

/// Diagnose pasted output of ss, iostat -x, nstat, dmesg, top -b, df, sar and others.
///
/// Applies the rules of the live console to text from a machine you cannot log in to. Reads the
/// output of ss, netstat, nstat, iostat, vmstat, uptime, fio, lsblk, dmesg, journalctl -k, df,
/// free, top -b, mpstat, pidstat, sar and conntrack -S, and the files softnet_stat, diskstats
/// and mdstat of /proc; alone or mixed, with prompts, from any terminal. Says what was
/// understood, what was not, and what cannot be told from it.
///
/// More: stallscope help explain
#[derive(Args, Debug)]
pub(super) struct Explain {
    /// File with the pasted text; - for standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// How to print.
    #[command(flatten)]
    output: Output,
}

impl Run for Explain {
    fn run(&self) -> anyhow::Result<Exit> {
        let (name, mut input) = open_text(&self.file)?;
        let mut paste = paste::read(&mut input)
            .map_err(|e| Stop::cannot(format!("{}: {e}", name.display())))?;
        if paste.understood().is_empty() {
            return Err(Stop::cannot(report::explain::nothing(
                &name.to_string_lossy(),
                paste.understood(),
            )));
        }
        let run = Analysis::new(paste.host().clone(), Engine::single_sample(), DEFAULT_BUDGET);
        let mut session = Session::new(run);
        let mut samples = 0;
        for tick in paste.ticks() {
            samples += 1;
            session.push(tick);
        }
        let told = told::judge(paste.told());
        let report = CheckReport::of_paste(session.run(), samples, &told.findings);
        let disks = report::explain::disks(session.run());
        let understood = paste.understood();
        self.output.print_findings(
            || report::explain::render(&report, understood, &disks, &told.figures),
            || report::explain::json(&report, understood, &disks, &told.figures),
        )?;
        Ok(if report.has_findings() { Exit::Findings } else { Exit::Ok })
    }
}

/// The pasted text and its name for messages.
fn open_text(file: &Path) -> anyhow::Result<(PathBuf, Box<dyn BufRead>)> {
    const BUFFER: usize = 256 * 1024;
    if file == Path::new("-") {
        if std::io::stdin().is_terminal() {
            say("paste the text, then press Ctrl-D on a line of its own");
        }
        let input = BufReader::with_capacity(BUFFER, std::io::stdin());
        return Ok((PathBuf::from("standard input"), Box::new(input)));
    }
    let open =
        std::fs::File::open(file).map_err(|e| Stop::cannot(format!("{}: {e}", file.display())))?;
    Ok((file.to_owned(), Box::new(BufReader::with_capacity(BUFFER, open))))
}

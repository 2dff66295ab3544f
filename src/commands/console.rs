//! `stallscope` without a command: the live console.

use std::io::IsTerminal as _;

use clap::Args;

use super::Run;
use super::shared::environment::Environment;
use super::shared::limits;
use super::shared::live::Live;
use super::shared::recorder::Beside;
use super::shared::screen::{Screen, leave};
use crate::analysis::Analysis;
use crate::diagnose::Engine;
use crate::exit::{Exit, Stop};
use crate::metrics::history::DEFAULT_BUDGET;
use crate::rights::Duty;
use crate::ui;

/// The live console.
#[derive(Args, Debug)]
pub(super) struct Console {
    /// What to read.
    #[command(flatten)]
    live: Live,
    /// How it looks.
    #[command(flatten)]
    screen: Screen,
    /// Whether to record.
    #[command(flatten)]
    to: Beside,
}

impl Run for Console {
    fn reads_kernel(&self) -> bool {
        true
    }

    fn run(&self) -> anyhow::Result<Exit> {
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Err(Stop::usage(
                "the console needs a terminal; use `stallscope check` for findings as text or JSON",
            ));
        }
        limits::ready_to_read()?;
        let recorder = self.to.open(&self.live.host())?;
        let no_screen = |e| Stop::cannot(format!("{e}; `stallscope check` needs no terminal"));
        let settings = self.screen.settings(&Environment::read());
        let stage = ui::Stage::open(settings).map_err(no_screen)?;
        let feed = self.live.feed(Duty::Console)?;
        let analysis = Analysis::new(feed.host.clone(), Engine::default(), DEFAULT_BUDGET);
        let out = ui::run(stage, feed, analysis, recorder).map_err(no_screen)?;
        leave(out, "a reader thread")?;
        Ok(Exit::Ok)
    }
}

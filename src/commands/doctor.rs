//! `stallscope doctor`: which signals there are here, and what keeps the others away.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::Run;
use super::shared::limits;
use super::shared::live::Reach;
use super::shared::output::{Output, say};
use crate::exit::{Exit, Stop};
use crate::report;
use crate::rights::{self, Duty};
use crate::sample::tick::Tick;
use crate::source::Event;

/// Time between its ticks.
const INTERVAL: Duration = Duration::from_millis(300);
/// How long it waits for collectors that still open.
const PATIENCE: Duration = Duration::from_secs(30);
/// After this time it says what it is waiting for.
const TELLS: Duration = Duration::from_secs(2);

/// Check which signals are available, and how to get the missing ones.
#[derive(Args, Debug)]
pub(super) struct Doctor {
    /// What to read.
    #[command(flatten)]
    reach: Reach,
    /// How to print.
    #[command(flatten)]
    output: Output,
}

impl Run for Doctor {
    fn reads_kernel(&self) -> bool {
        true
    }

    fn run(&self) -> anyhow::Result<Exit> {
        limits::ready_to_read()?;
        // Two short ticks: the second shows what a steady reading looks like. More only while a
        // collector is still opening: eBPF programs take long to load on a slow machine.
        let mut feed = self.reach.feed(INTERVAL, Duty::Figures)?;
        let mut last: Option<Arc<Tick>> = None;
        let mut first = None;
        let mut ticks = 0;
        let mut told = !std::io::stderr().is_terminal();
        while let Some(Event::Tick(tick)) = feed.events.blocking_recv() {
            ticks += 1;
            let waited = tick.mono.since(*first.get_or_insert(tick.mono));
            let waiting = report::doctor::waiting(&tick);
            if !told && !waiting.is_empty() && waited >= TELLS {
                say(&format!("still waiting for {}", waiting.join(", ")));
                told = true;
            }
            let done = ticks >= 2 && (waited >= PATIENCE || waiting.is_empty());
            last = Some(tick);
            if done {
                break;
            }
        }
        let tick = last.ok_or_else(|| Stop::cannot("no reading arrived"))?;
        let rights = rights::account();
        self.output.print(
            || report::doctor::text(&feed.host, &tick.health) + &report::rights::text(&rights),
            || {
                let mut report = report::doctor::json(&feed.host, &tick.health);
                report["capabilities"] = report::rights::json(&rights);
                report
            },
        )?;
        Ok(Exit::Ok)
    }
}

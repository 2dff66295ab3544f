//! `stallscope` without a command: the live console.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;

use super::Run;
use super::shared::environment::Environment;
use super::shared::limits;
use super::shared::live::{Reach, host, interval};
use super::shared::output::print;
use super::shared::recorder::Beside;
use super::shared::screen::{Screen, leave, obeyed};
use super::shared::status_line::StatusLine;
use super::shared::wait::{Ended, Ticks, runtime};
use crate::analysis::Analysis;
use crate::diagnose::Engine;
use crate::exit::{Exit, Stop};
use crate::metrics::history::DEFAULT_BUDGET;
use crate::rights::Duty;
use crate::sample::tick::HostInfo;
use crate::session::Session;
use crate::source::Feed;
use crate::ui::{self, ConsoleSettings, once};
use crate::view::build::build;
use crate::view::update;
use crate::view::vm::Size;

/// The live console.
#[derive(Args, Debug)]
pub(super) struct Console {
    /// Sampling interval, 100ms to 60s; without this, that of the settings, which is 1s as a rule.
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    interval: Option<Duration>,
    /// What to read.
    #[command(flatten)]
    reach: Reach,
    /// How it looks.
    #[command(flatten)]
    screen: Screen,
    /// Print the first screen as text and end, after as many readings as its figures need. Without a
    /// terminal it has 120 columns and 40 rows.
    #[arg(long, conflicts_with_all = ["record", "append", "mouse", "color"])]
    once: bool,
    /// Whether to record.
    #[command(flatten)]
    to: Beside,
}

/// Readings that the first screen needs: rates take two, and details are read of what was on the
/// screen before.
const READINGS: u32 = 3;
/// Columns and rows without a terminal.
const PAGE: Size = Size::new(120, 40);

impl Run for Console {
    fn reads_kernel(&self) -> bool {
        true
    }

    fn run(&self) -> anyhow::Result<Exit> {
        if self.once {
            return self.print();
        }
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Err(Stop::usage(
                "the console needs a terminal; use `stallscope check` for findings as text or JSON",
            ));
        }
        limits::ready_to_read()?;
        let (this, settings) = self.settings()?;
        let recorder = self.to.open(&this)?;
        let no_screen = |e| Stop::cannot(format!("{e}; `stallscope check` needs no terminal"));
        let stage = ui::Stage::open(settings).map_err(no_screen)?;
        let mut feed = self.reach.feed(this.interval, Duty::Console)?;
        feed.host.rules = this.rules;
        let analysis = Analysis::new(feed.host.clone(), Engine::default(), DEFAULT_BUDGET);
        let out = ui::run(stage, feed, analysis, recorder).map_err(no_screen)?;
        leave(out, "a reader thread")?;
        Ok(Exit::Ok)
    }
}

impl Console {
    /// This host, and what the console obeys, by what was said here and in the file.
    fn settings(&self) -> anyhow::Result<(HostInfo, ConsoleSettings)> {
        let env = Environment::read();
        let mut chosen = self.screen.chosen(self.interval, &env)?;
        let this = host(chosen.interval.value, std::mem::take(&mut chosen.rules));
        Ok((this, obeyed(chosen, &env)))
    }

    /// The first screen, on standard output.
    fn print(&self) -> anyhow::Result<Exit> {
        limits::ready_to_read()?;
        let (this, settings) = self.settings()?;
        let interval = this.interval;
        let runtime = runtime()?;
        let Feed { events, interest, .. } = self.reach.feed(interval, Duty::Figures)?;
        let run = Analysis::new(this, Engine::default(), DEFAULT_BUDGET);
        let mut session = Session::new(run).read_by(interest);
        let (mut view, size) = (settings.view(), page());
        let mut line = StatusLine::new();
        let seen = runtime.block_on(async {
            let mut ticks = Ticks::new(events, (interval * READINGS, interval), None)?;
            for n in 1..=READINGS {
                let tick = match ticks.next(&mut None).await {
                    Ok(tick) => tick,
                    Err(Ended::Asked | Ended::Silent) => return anyhow::Ok(n - 1),
                };
                session.push(tick);
                update::tick(&mut view, session.run());
                let vm = build(session.run(), &view, size);
                session.look_at(&vm.visible, vm.watched);
                line.draw(|| format!("reading this host: {n} of {READINGS}"));
            }
            Ok(READINGS)
        })?;
        line.clear();
        if seen == 0 {
            return Err(Stop::cannot(
                "no reading arrived; `stallscope doctor` shows which signal hangs",
            ));
        }
        print(&once::text(&build(session.run(), &view, size), settings.glyphs))?;
        Ok(Exit::Ok)
    }
}

/// The terminal, but for the line of the prompt that follows.
fn page() -> Size {
    let out = std::io::stdout();
    match rustix::termios::tcgetwinsize(&out) {
        Ok(w) if out.is_terminal() && w.ws_col > 0 && w.ws_row > 1 => {
            Size::new(w.ws_col, w.ws_row - 1)
        }
        _ => PAGE,
    }
}

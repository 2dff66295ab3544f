//! The only file that wires a source to the analysis and the analysis to an outlet.

mod help;
mod limits;
mod record;
mod replay;

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::analysis::Analysis;
use crate::cli::{
    CheckArgs, Cli, Command, ConsoleArgs, DoctorArgs, ExplainArgs, Format, LiveArgs, RulesArgs,
    netns_scope,
};
use crate::collect::{BpfMode, CollectOptions, HostFs, NetnsScope, namespaces};
use crate::config::{self, Environment};
use crate::diagnose::{Engine, RULES, told};
pub use crate::exit::Exit;
use crate::metrics::history::DEFAULT_BUDGET;
use crate::paste;
use crate::recording::Recorder;
use crate::report::{self, CheckReport, Observed};
use crate::rights::{self, Duty};
use crate::sample::tick::Tick;
use crate::signals;
use crate::source::{Event, Feed, live};
use crate::text::sanitize;
use crate::ui::{self, ExitReason};

/// How long `doctor` waits for collectors that still open.
const DOCTOR_PATIENCE: Duration = Duration::from_secs(30);
/// After that long it says what it waits for.
const DOCTOR_TELLS: Duration = Duration::from_secs(2);

/// A message for the user that ends the program with its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Stop {
    /// How to end.
    pub exit: Exit,
    /// One line: what, where, what to do.
    pub message: String,
}

impl Stop {
    fn usage(message: impl Into<String>) -> anyhow::Error {
        Self { exit: Exit::Usage, message: message.into() }.into()
    }
    fn cannot(message: impl Into<String>) -> anyhow::Error {
        Self { exit: Exit::CannotCollect, message: message.into() }.into()
    }
}

/// Runs the command.
///
/// # Errors
/// What to tell the user; [`Stop`] holds the exit code, anything else is
/// [`Exit::CannotCollect`].
pub fn run(cli: Cli) -> anyhow::Result<Exit> {
    signals::ignore_file_size_limit();
    rights::begin();
    if !reads_kernel(&cli) {
        rights::restrict(Duty::Files);
    }
    match cli.command {
        None => console(&cli.console),
        Some(Command::Check(args)) => check(&args),
        Some(Command::Record(args)) => record::record(&args),
        Some(Command::Replay(args)) => replay::replay(&args),
        Some(Command::Export(args)) => replay::export(&args),
        Some(Command::Doctor(args)) => doctor(&args),
        Some(Command::Explain(args)) => explain(&args),
        Some(Command::Info(args)) => replay::info(&args),
        Some(Command::Rules(args)) => rules(&args),
        Some(Command::Help(args)) => help::help(&args),
    }
}

fn reads_kernel(cli: &Cli) -> bool {
    match &cli.command {
        None | Some(Command::Record(_) | Command::Doctor(_)) => true,
        Some(Command::Check(args)) => args.file.is_none(),
        Some(_) => false,
    }
}

fn console(args: &ConsoleArgs) -> anyhow::Result<Exit> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Stop::usage(
            "the console needs a terminal; use `stallscope check` for findings as text or JSON",
        ));
    }
    limits::ready_to_read()?;
    let host = live::host_info(&HostFs::live(), args.live.interval);
    let recorder = record::beside(&args.to, &host)?;
    let no_screen = |e| Stop::cannot(format!("{e}; `stallscope check` needs no terminal"));
    let stage = ui::Stage::open(config::console(args, &Environment::read())).map_err(no_screen)?;
    let feed = feed(&args.live, Duty::Console)?;
    let analysis = Analysis::new(feed.host.clone(), Engine::default(), DEFAULT_BUDGET);
    let out = ui::run(stage, feed, analysis, recorder).map_err(no_screen)?;
    if out.reason != ExitReason::Hangup {
        print(&(out.lines.join("\n") + "\n"))?;
        for p in out.panics {
            eprintln!("stallscope: a reader thread failed: {}", sanitize(&p));
        }
    }
    Ok(Exit::Ok)
}

/// Starts the readers. The calling thread keeps the rights that its own `duty` needs.
fn feed(args: &LiveArgs, duty: Duty) -> anyhow::Result<Feed> {
    let feed = start(&args.netns, args.no_bpf, args.interval)?;
    rights::restrict(duty);
    Ok(feed)
}

fn start(netns: &str, no_bpf: bool, interval: Duration) -> anyhow::Result<Feed> {
    let scope = netns_scope(netns);
    if let NetnsScope::Path(p) = &scope {
        std::fs::metadata(p).map_err(|e| {
            Stop::cannot(format!("--netns {}: {e}; `ip netns list` names them", p.display()))
        })?;
        // Reading on without it would end in "No findings", a false all-clear.
        if namespaces::of_path(p).is_none() {
            return Err(Stop::cannot(format!(
                "--netns {}: no network namespace; name a file such as /run/netns/NAME or \
                 /proc/PID/ns/net",
                p.display()
            )));
        }
    }
    let bpf = if no_bpf { BpfMode::Off } else { BpfMode::Auto };
    let opts = CollectOptions { netns: scope, bpf, ..CollectOptions::default() };
    live::start(&HostFs::live(), &opts, interval)
        .map_err(|e| Stop::cannot(format!("cannot start a thread: {e}; {}", live::MORE_THREADS)))
}

fn check(args: &CheckArgs) -> anyhow::Result<Exit> {
    if let Some(file) = &args.file {
        return replay::check(file, args.format);
    }
    if args.duration < args.live.interval {
        return Err(Stop::usage(format!(
            "--duration {:?} is shorter than --interval {:?}: one tick gives no rates",
            args.duration, args.live.interval
        )));
    }
    limits::ready_to_read()?;
    let host = live::host_info(&HostFs::live(), args.live.interval);
    let mut recorder = record::beside(&args.to, &host)?;
    // Before the readers, which open as many files as they may.
    let runtime = runtime()?;
    let feed = feed(&args.live, Duty::Figures)?;
    let mut analysis = Analysis::new(feed.host.clone(), Engine::default(), DEFAULT_BUDGET);
    let (duration, interval) = (args.duration, args.live.interval);
    let observed =
        runtime.block_on(watch(feed, &mut analysis, duration, interval, recorder.as_mut()));
    let recorded = recorder.map(record::close_and_tell).transpose();
    let observed = observed?;
    let report = CheckReport::new(&analysis, "live", observed);
    match args.format {
        Format::Text => print(&report::text::render(&report))?,
        Format::Json => print(&report::json::text(&report::json::render(&report)))?,
    }
    recorded?;
    Ok(if report.has_findings() { Exit::Findings } else { Exit::Ok })
}

/// An interrupt came first.
const STOPPED: &str = "stopped before the first reading";

/// What was seen, if anything was: nothing seen is no all-clear.
fn if_any(seen: Observed, why: &str) -> anyhow::Result<Observed> {
    if seen.ticks == 0 { Err(Stop::cannot(why)) } else { Ok(seen) }
}

/// Takes in ticks for `duration`; an interrupt ends it early with what was seen.
async fn watch(
    mut feed: Feed,
    analysis: &mut Analysis,
    duration: Duration,
    interval: Duration,
    mut recorder: Option<&mut Recorder>,
) -> anyhow::Result<Observed> {
    let mut seen = Observed { interval, ..Observed::default() };
    let mut first = None;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    let mut term = signal(SignalKind::terminate()).context("signals")?;
    let mut hup = record::hup().context("signals")?;
    let marks = recorder.as_ref().map(|_| signal(SignalKind::user_defined1()));
    let mut marks = marks.transpose().context("signals")?;
    // Ticks end the run; the timer only catches a source that stopped delivering.
    let patience = tokio::time::sleep(duration + interval * 3 + Duration::from_secs(10));
    tokio::pin!(patience);
    loop {
        let event = tokio::select! {
            e = feed.events.recv() => e,
            _ = interrupt.recv() => return if_any(seen, STOPPED),
            _ = term.recv() => return if_any(seen, STOPPED),
            () = record::next(&mut hup) => return if_any(seen, STOPPED),
            () = record::next(&mut marks) => {
                if let Some(r) = &mut recorder {
                    r.mark("SIGUSR1");
                }
                continue;
            }
            () = &mut patience => None,
        };
        let Some(Event::Tick(tick)) = event else {
            let why = "no reading arrived; `stallscope doctor` shows which signal hangs";
            return if_any(seen, why);
        };
        let start = *first.get_or_insert(tick.mono);
        seen.first_wall.get_or_insert(tick.wall);
        seen.ticks += 1;
        seen.duration = tick.mono.since(start);
        analysis.push(tick.clone());
        if let Some(r) = &mut recorder {
            r.push(&tick, analysis.latest().map(|m| m.note()).unwrap_or_default());
        }
        let interest = Arc::new(analysis.interest());
        feed.interest.send_if_modified(|old| {
            let changed = **old != *interest;
            *old = interest;
            changed
        });
        // Half an interval of slack: 15 ticks of 1 s span 14.99 s now and then.
        if seen.duration + interval / 2 >= duration {
            return Ok(seen);
        }
    }
}

fn explain(args: &ExplainArgs) -> anyhow::Result<Exit> {
    let (name, mut input) = open_text(&args.file)?;
    let mut paste =
        paste::read(&mut input).map_err(|e| Stop::cannot(format!("{}: {e}", name.display())))?;
    if paste.understood().is_empty() {
        return Err(Stop::cannot(report::explain::nothing(
            &name.to_string_lossy(),
            paste.understood(),
        )));
    }
    let mut analysis = Analysis::new(paste.host().clone(), Engine::single_sample(), DEFAULT_BUDGET);
    let mut samples = 0;
    for tick in paste.ticks() {
        samples += 1;
        analysis.push(tick);
    }
    let told = told::judge(paste.told());
    let report = CheckReport::of_paste(&analysis, samples, &told.findings);
    let disks = report::explain::disks(&analysis);
    let understood = paste.understood();
    match args.format {
        Format::Text => {
            print(&report::explain::render(&report, understood, &disks, &told.figures))?;
        }
        Format::Json => {
            let v = report::explain::json(&report, understood, &disks, &told.figures);
            print(&report::json::text(&v))?;
        }
    }
    Ok(if report.has_findings() { Exit::Findings } else { Exit::Ok })
}

/// The pasted text and its name for messages.
fn open_text(file: &Path) -> anyhow::Result<(PathBuf, Box<dyn BufRead>)> {
    const BUFFER: usize = 256 * 1024;
    if file == Path::new("-") {
        if std::io::stdin().is_terminal() {
            eprintln!("stallscope: paste the text, then press Ctrl-D on a line of its own");
        }
        let input = BufReader::with_capacity(BUFFER, std::io::stdin());
        return Ok((PathBuf::from("standard input"), Box::new(input)));
    }
    let open =
        std::fs::File::open(file).map_err(|e| Stop::cannot(format!("{}: {e}", file.display())))?;
    Ok((file.to_owned(), Box::new(BufReader::with_capacity(BUFFER, open))))
}

fn doctor(args: &DoctorArgs) -> anyhow::Result<Exit> {
    limits::ready_to_read()?;
    // Two short ticks: the second shows what a steady reading looks like. More only while a
    // collector still opens: kernel programs take long to load on a slow machine.
    let mut feed = start(&args.netns, args.no_bpf, Duration::from_millis(300))?;
    rights::restrict(Duty::Figures);
    let mut last: Option<Arc<Tick>> = None;
    let mut first = None;
    let mut ticks = 0;
    let mut told = !std::io::stderr().is_terminal();
    while let Some(Event::Tick(tick)) = feed.events.blocking_recv() {
        ticks += 1;
        let waited = tick.mono.since(*first.get_or_insert(tick.mono));
        let waiting = report::doctor::waiting(&tick);
        if !told && !waiting.is_empty() && waited >= DOCTOR_TELLS {
            eprintln!("stallscope: still waiting for {}", waiting.join(", "));
            told = true;
        }
        let done = ticks >= 2 && (waited >= DOCTOR_PATIENCE || waiting.is_empty());
        last = Some(tick);
        if done {
            break;
        }
    }
    let tick = last.ok_or_else(|| Stop::cannot("no reading arrived"))?;
    let rights = rights::account();
    match args.format {
        Format::Text => {
            let signals = report::doctor::text(&feed.host, &tick.health);
            print(&(signals + &report::rights::text(&rights)))?;
        }
        Format::Json => {
            let mut report = report::doctor::json(&feed.host, &tick.health);
            report["capabilities"] = report::rights::json(&rights);
            print(&report::json::text(&report))?;
        }
    }
    Ok(Exit::Ok)
}

fn rules(args: &RulesArgs) -> anyhow::Result<Exit> {
    let chosen: Vec<_> = match &args.id {
        None => RULES.to_vec(),
        Some(id) => RULES.iter().copied().filter(|r| r.id().0 == id).collect(),
    };
    if let (Some(id), true) = (&args.id, chosen.is_empty()) {
        if told::RULES.contains(&&**id) {
            let text = format!("'{id}' is told from pasted text alone: `stallscope explain`");
            return Err(Stop::usage(text));
        }
        return Err(Stop::usage(format!("no rule '{id}'; `stallscope rules` lists them")));
    }
    match (args.format, &args.id) {
        (Format::Json, _) => print(&report::json::text(&report::rules::json(&chosen)))?,
        (Format::Text, None) => print(&report::rules::list(&chosen))?,
        (Format::Text, Some(_)) => {
            for r in chosen {
                print(&report::rules::page(r, RULES))?;
            }
        }
    }
    Ok(Exit::Ok)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")
}

/// Writes to stdout; a reader that went away is no error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}

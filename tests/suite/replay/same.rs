//! A scripted live run and its recording, moment by moment.

use std::sync::Arc;

use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use stallscope::analysis::Analysis;
use stallscope::diagnose::Engine;
use stallscope::playback::tape::{Played, Tape};
use stallscope::playback::whole::whole;
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::ui::Theme;
use stallscope::ui::render::render;
use stallscope::view::action::{Action, Step};
use stallscope::view::build::build;
use stallscope::view::state::ViewState;
use stallscope::view::update;
use stallscope::view::vm::Size;

use crate::support::incident::{incidents, run_of};
use crate::support::long::{BUDGET, all, long, reader, record, same};

const SIZE: Size = Size::new(120, 36);

/// A console without a terminal.
struct Console {
    analysis: Analysis,
    view: ViewState,
}

impl Console {
    fn new(host: HostInfo) -> Self {
        let analysis = Analysis::new(host, Engine::default(), BUDGET);
        Self { analysis, view: ViewState::new(TimeZone::UTC) }
    }
    fn push(&mut self, tick: Arc<Tick>) {
        self.analysis.push(tick);
        update::tick(&mut self.view, &self.analysis);
        // Somebody walks through panes and details while it goes on.
        let n = self.analysis.latest().unwrap().tick.seq.0;
        let does = match n % 9 {
            2 => Action::FocusNext,
            4 => Action::Move(Step::Down),
            6 => Action::Open,
            8 => Action::Back,
            _ => return,
        };
        update::update(&mut self.view, &self.analysis, SIZE, does);
    }
    fn frame(&self) -> Buffer {
        let vm = build(&self.analysis, &self.view, SIZE);
        let area = Rect::new(0, 0, SIZE.w, SIZE.h);
        let mut buf = Buffer::empty(area);
        render(&vm, &Theme::default(), area, &mut buf);
        buf
    }
}

fn same_frames(what: &str, host: &HostInfo, ticks: &[Arc<Tick>]) {
    let made = record(host, ticks);
    let mut tape = Tape::new(reader(&made.bytes));
    let (mut live, mut replay) = (Console::new(host.clone()), None::<Console>);
    let mut n = 0;
    loop {
        match tape.play() {
            Played::Segment(h) => {
                assert_eq!(h, made.host, "{what}");
                replay = Some(Console::new(h));
            }
            Played::Tick(t) => {
                let replay = replay.as_mut().expect("a segment comes first");
                live.push(ticks[n].clone());
                replay.push(t);
                let found = all(replay.analysis.latest().unwrap().findings);
                same(&found, &made.said[n], &format!("{what}: findings at tick {n}"));
                if n % 4 == 1 || n + 1 == ticks.len() {
                    assert_eq!(replay.frame(), live.frame(), "{what}: frame at tick {n}");
                }
                assert_eq!(
                    replay.analysis.history().bytes(),
                    live.analysis.history().bytes(),
                    "{what}"
                );
                n += 1;
            }
            Played::Lost(d) => panic!("{what}: {d}"),
            Played::End => break,
        }
    }
    assert_eq!(n, ticks.len(), "{what}");
}

#[test]
fn findings_and_frames_of_every_scenario_are_those_of_the_live_run() {
    for (name, i) in incidents() {
        let interval = i.intervals.iter().copied().fold(0.0, f64::max);
        let (host, ticks) = run_of(i, interval);
        same_frames(&format!("{name} at {interval} s"), &host, &ticks);
    }
}

#[test]
fn a_report_of_the_whole_file_forgets_nothing_that_came_and_went() {
    let (made, ticks) = long();
    let whole = whole(&mut Tape::new(reader(&made.bytes)), |_, _| {}).unwrap();
    assert_eq!(whole.ticks, ticks.len() as u64);
    let mut live = Analysis::new(made.host.clone(), Engine::default(), BUDGET);
    let mut ended = std::collections::BTreeSet::new();
    for t in ticks {
        live.push(t.clone());
        let now = live.latest().unwrap();
        ended.extend(now.findings.cleared.iter().map(|f| all_of(f)));
    }
    let last = whole.analysis.latest().unwrap();
    same(&all(last.findings), made.said.last().unwrap(), "the last moment");
    let told: std::collections::BTreeSet<_> =
        whole.over.iter().chain(&last.findings.cleared).map(|f| all_of(f)).collect();
    assert_eq!(told, ended);
    assert!(last.findings.cleared.len() < told.len(), "the run is long enough to forget");
}

fn all_of(f: &stallscope::diagnose::Finding) -> String {
    stallscope::report::json::finding(f).to_string()
}

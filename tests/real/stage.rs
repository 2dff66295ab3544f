//! One fault from its healthy beginning to its verdict, as often as `STALLSCOPE_TIMES` says.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::JoinHandle;

use stallscope::analysis::Analysis;
use stallscope::clock;
use stallscope::diagnose::rules::RULES;
use stallscope::diagnose::{Engine, Finding, Findings, Severity};
use stallscope::metrics::history::DEFAULT_BUDGET;
use stallscope::playback::tape::{Played, Tape};
use stallscope::recording::Reader;
use stallscope::report::json;
use stallscope::sample::time::WallNs;

use crate::kit::gate::{Place, beside, lab};
use crate::kit::net::Pair;
use crate::kit::product::{Report, check, tape};
use crate::kit::{secs, wait_for};

/// Ticks without the fault: what the rules learn as usual.
const HEALTHY: u64 = 4;

/// Where and when a test runs.
pub struct Case<'a> {
    pub name: &'a str,
    /// Programs that it starts.
    pub tools: &'a [&'a str],
    /// Part of the short set?
    pub short: bool,
    /// What it may run beside; none: it needs the machine.
    pub place: Option<Place>,
}

/// Runs `body`, once for each time that is asked for, and asserts that each verdict was right.
pub fn fault(case: &Case<'_>, body: impl Fn(&mut Stage)) {
    in_turn(case, || {
        let times = std::env::var("STALLSCOPE_TIMES").map_or(1, |n| n.parse().unwrap());
        let mut answers = Vec::new();
        for n in 0..times {
            let name = if times == 1 {
                format!("real-{}", case.name)
            } else {
                format!("real-{}-{n}", case.name)
            };
            let mut stage =
                Stage { name, session: None, broke: None, seen: Vec::new(), answers: Vec::new() };
            body(&mut stage);
            assert!(!stage.answers.is_empty(), "{}: nothing was judged", stage.name);
            answers.append(&mut stage.answers);
        }
        if times > 1 {
            score(case.name, &answers);
        }
        let wrong: Vec<_> = answers.iter().filter(|a| !a.right).collect();
        assert!(
            wrong.is_empty(),
            "{}: {} of {} wrong: {wrong:#?}",
            case.name,
            wrong.len(),
            answers.len()
        );
    });
}

/// Runs `body` in its turn, if it is part of the set.
pub fn in_turn(case: &Case<'_>, body: impl FnOnce()) {
    let all = std::env::var("STALLSCOPE_REAL").as_deref() == Ok("all");
    let body = || {
        if case.short || all {
            body();
        } else {
            eprintln!("real: {}: not in the short set (STALLSCOPE_REAL=all)", case.name);
        }
    };
    let tools = [case.tools, &["ip", "nft", "nsenter", "setpriv"]].concat();
    match case.place {
        Some(place) => beside(place, &tools, body),
        None => lab(&tools, body),
    }
}

/// What a run put first.
#[derive(Debug)]
#[allow(dead_code, reason = "printed when it is wrong")]
pub struct Answer {
    first: String,
    right: bool,
    after: Option<f64>,
    findings: Vec<String>,
}

/// One run.
pub struct Stage {
    name: String,
    session: Option<JoinHandle<Report>>,
    broke: Option<WallNs>,
    /// What was said at each tick.
    seen: Vec<(WallNs, std::sync::Arc<Findings>)>,
    answers: Vec<Answer>,
}

impl Stage {
    /// Starts `check` for so many seconds, and returns when it has seen the machine healthy.
    pub fn watch(&mut self, seconds: u64) {
        let name = self.name.clone();
        let file = tape(&name);
        let _ = std::fs::remove_file(&file);
        self.session = Some(std::thread::spawn(move || check(&name, &format!("{seconds}s"), &[])));
        wait_for("the first ticks", secs(30), || (ticks(&file) >= HEALTHY).then_some(()));
    }

    /// It breaks now.
    pub fn breaks(&mut self) {
        self.broke = Some(clock::wall());
    }

    /// Waits for the report and plays its recording, tick by tick.
    pub fn ends(&mut self) {
        let session = self.session.take().expect("watch() comes first");
        session.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        let mut tape = Tape::new(Reader::file(&tape(&self.name)).unwrap());
        let mut run = None;
        loop {
            match tape.play() {
                Played::Segment(host) => {
                    run = Some(Analysis::new(host, Engine::default(), DEFAULT_BUDGET));
                }
                Played::Tick(tick) => {
                    let run = run.as_mut().expect("a segment comes first");
                    let wall = tick.wall;
                    run.push(tick);
                    self.seen.push((wall, run.latest().unwrap().findings.clone()));
                }
                Played::Lost(d) => panic!("{}: {d}", self.name),
                Played::End => break,
            }
        }
    }

    /// Of the findings `here`, at warn or worse, the first one is of one of these rules and
    /// about the right subject.
    pub fn first(
        &mut self,
        rules: &[&str],
        here: impl Fn(&Finding) -> bool,
        right: impl Fn(&Finding) -> bool,
    ) {
        if self.session.is_some() {
            self.ends();
        }
        let broke = self.broke.expect("breaks() comes before");
        let wanted = |f: &Finding| rules.contains(&f.rule.0) && right(f);
        let top = |f: &Findings| {
            f.active.iter().find(|f| f.fire.severity >= Severity::Warn && here(f)).cloned()
        };
        let after = |w: WallNs| (w.0 - broke.0) as f64 / 1e9;
        let last = self.seen.iter().rev().find_map(|(_, f)| top(f));
        let is_right = last.as_ref().is_some_and(|f| wanted(f));
        let when = self.seen.iter().find(|(_, f)| top(f).is_some_and(|f| wanted(&f)));
        let when = when.map(|(w, _)| after(*w));
        let began = self.seen.iter().find_map(|(w, f)| Some((after(*w), top(f)?)));
        let first = last.map_or("nothing".to_owned(), |f| line(&f));
        eprintln!(
            "real: {}: {} after {}: {first}",
            self.name,
            if is_right { "right" } else { "WRONG" },
            when.map_or("never".to_owned(), |w| format!("{w:.1} s")),
        );
        if let Some((w, f)) = began.filter(|(_, f)| !wanted(f)) {
            eprintln!("real: {}: first said after {w:.1} s: {}", self.name, line(&f));
        }
        // A rule that this build does not have is somebody's task, and no failure of this one.
        let known = rules.iter().any(|r| RULES.iter().any(|k| k.id().0 == *r));
        if !known {
            eprintln!("real: {}: WAITING for the rule {rules:?}", self.name);
        }
        let findings = self.seen.last().map(|(_, f)| f.all().map(|f| line(f)).collect());
        self.answers.push(Answer {
            first,
            right: is_right || !known,
            after: when,
            findings: findings.unwrap_or_default(),
        });
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.join();
        }
    }
}

fn ticks(file: &Path) -> u64 {
    Reader::file(file).map_or(0, |r| r.len())
}

fn line(f: &Finding) -> String {
    let v = json::finding(f);
    let by = f.cause.as_ref().map_or(String::new(), |(r, _)| format!(" (because of {})", r.0));
    format!(
        "{} {}{by} {}: {}",
        v["severity"].as_str().unwrap(),
        f.rule.0,
        v["subject"],
        f.fire.summary
    )
}

fn score(name: &str, answers: &[Answer]) {
    let mut by: BTreeMap<&str, usize> = BTreeMap::new();
    for a in answers {
        let rule = a.first.split_whitespace().nth(1).unwrap_or("nothing");
        *by.entry(rule).or_default() += 1;
    }
    let right = answers.iter().filter(|a| a.right).count();
    let worst = answers.iter().filter_map(|a| a.after).fold(0.0, f64::max);
    eprintln!(
        "real: SCORE {name}: {right} of {} right, slowest {worst:.1} s, {by:?}",
        answers.len()
    );
}

/// Wherever it is.
pub fn anywhere(_: &Finding) -> bool {
    true
}

/// In one of the two namespaces.
pub fn within(net: &Pair) -> impl Fn(&Finding) -> bool {
    let ends = [net.a.inode, net.b.inode];
    move |f| {
        let netns = json::finding(f)["subject"]["netns"].as_u64();
        netns.is_some_and(|n| ends.contains(&n))
    }
}

/// Says `text` somewhere in its report.
pub fn says(text: impl ToString) -> impl Fn(&Finding) -> bool {
    let text = text.to_string();
    move |f| json::finding(f).to_string().contains(&text)
}

/// Is about a cgroup of this name.
pub fn about_group(name: &str) -> impl Fn(&Finding) -> bool {
    let name = name.to_owned();
    move |f| json::finding(f)["subject"]["path"].as_str().is_some_and(|p| p.ends_with(&name))
}

/// Is about this disk.
pub fn about_disk(name: &str) -> impl Fn(&Finding) -> bool {
    let name = name.to_owned();
    move |f| json::finding(f)["subject"]["name"] == *name
}

//! From pasted text to report, as `explain` goes, and the texts of `tests/fixtures/pastes`.

use std::path::PathBuf;

use stallscope::analysis::Analysis;
use stallscope::diagnose::{Confidence, Engine, RULES, told};
use stallscope::metrics::disks::DiskFigures;
use stallscope::metrics::history::DEFAULT_BUDGET;
use stallscope::paste;
use stallscope::paste::understood::Understood;
use stallscope::report::{CheckReport, explain};

/// What came out.
pub struct Explained {
    pub report: CheckReport,
    pub understood: Understood,
    pub disks: Vec<DiskFigures>,
    pub figures: Vec<String>,
}

pub fn explain(text: &[u8]) -> Explained {
    let mut input = text;
    let mut paste = paste::read(&mut input).unwrap();
    let understood = paste.understood().clone();
    let mut analysis = Analysis::new(paste.host().clone(), Engine::single_sample(), DEFAULT_BUDGET);
    let mut samples = 0;
    for tick in paste.ticks() {
        samples += 1;
        analysis.push(tick);
    }
    let told = told::judge(paste.told());
    let report = CheckReport::of_paste(&analysis, samples, &told.findings);
    let figures = told.figures;
    Explained { disks: explain::disks(&analysis), report, understood, figures }
}

impl Explained {
    /// Rules that fired, remarks among them, sorted.
    pub fn fired(&self) -> Vec<&'static str> {
        let all = self.report.findings.iter().chain(&self.report.annotations);
        let mut out: Vec<&str> = all.map(|f| f.rule.0).collect();
        out.sort_unstable();
        out.dedup();
        out
    }
    pub fn sure(&self) -> bool {
        self.report.findings.iter().any(|f| f.fire.confidence == Confidence::Confirmed)
    }
    pub fn text(&self) -> String {
        explain::render(&self.report, &self.understood, &self.disks, &self.figures)
    }
    pub fn json(&self) -> String {
        let v = explain::json(&self.report, &self.understood, &self.disks, &self.figures);
        stallscope::report::json::text(&v)
    }
}

/// Is there a rule of this id?
pub fn exists(id: &str) -> bool {
    RULES.iter().any(|r| r.id().0 == id)
}

fn dir(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", "pastes", name].iter().collect()
}

pub fn vector(name: &str) -> Vec<u8> {
    std::fs::read(dir("vectors").join(format!("{name}.txt"))).unwrap()
}

pub fn captured(name: &str) -> Vec<u8> {
    std::fs::read(dir("captured").join(format!("{name}.txt"))).unwrap()
}

/// All pastes with their names, sorted.
pub fn all() -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for d in ["vectors", "captured"] {
        for f in std::fs::read_dir(dir(d)).unwrap() {
            let path = f.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            out.push((name, std::fs::read(&path).unwrap()));
        }
    }
    out.sort();
    out
}

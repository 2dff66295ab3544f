//! What a page about an hour costs: seconds and bytes, beside `check` on the same recording in
//! the same run.
//!
//! `cargo bench --bench report [-- FILE]`. Prints, asserts nothing. Without a file an hour of a
//! sick box is recorded, once: 1,000 connections (`STALLSCOPE_BENCH_SOCKETS`), one tick a second,
//! every collector, faults from the tenth minute on; kept in the temporary directory. Goal: 3 s
//! and 5 MB.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use stallscope::clock;
use stallscope::recording::{TickSummary, Writer};

use support::program::program;
use support::script::Script;

/// Each is run so often; the median counts.
const ROUNDS: usize = 3;
/// An hour.
const TICKS: u64 = 3600;

fn main() {
    let file = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let file = file.map_or_else(made, PathBuf::from);
    let size = std::fs::metadata(&file).unwrap().len();
    println!("{}: {:.1} MB", file.display(), size as f64 / 1e6);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("page");
    let out = out.to_str().unwrap();
    let name = file.to_str().unwrap();
    let commands: [(&str, Vec<&str>); 4] = [
        ("check", vec!["check", name]),
        ("report html", vec!["report", name, "--force", "-o", out, "--format", "html"]),
        ("report md", vec!["report", name, "--force", "-o", out, "--format", "md"]),
        ("report --redact", vec!["report", name, "--force", "-o", out, "--redact"]),
    ];
    let mut times = vec![Vec::new(); commands.len()];
    let mut bytes = vec![0; commands.len()];
    // In turns, so that what else the machine does is shared.
    for _ in 0..ROUNDS {
        for (i, (_, args)) in commands.iter().enumerate() {
            let begun = clock::mono();
            let status = program().args(args).stdout(Stdio::null()).status().unwrap();
            times[i].push(clock::mono().since(begun));
            assert!(matches!(status.code(), Some(0 | 1)), "{args:?}: {status}");
            bytes[i] = std::fs::metadata(out).map_or(0, |m| m.len());
        }
    }
    let check = median(&mut times[0]);
    println!("{:<16} {:>6.2} s", "check", check.as_secs_f64());
    for (i, (what, _)) in commands.iter().enumerate().skip(1) {
        let took = median(&mut times[i]);
        println!(
            "{what:<16} {:>6.2} s, {:.2} times check, {:.2} MB",
            took.as_secs_f64(),
            took.as_secs_f64() / check.as_secs_f64(),
            bytes[i] as f64 / 1e6
        );
    }
}

fn median(all: &mut [Duration]) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

fn made() -> PathBuf {
    let connections = std::env::var("STALLSCOPE_BENCH_SOCKETS").ok().and_then(|v| v.parse().ok());
    let connections = connections.unwrap_or(1000);
    let path = std::env::temp_dir().join(format!("stallscope-bench-report-{connections}.stall"));
    if !path.exists() {
        let begun = clock::mono();
        record(&path.with_extension("making"), connections);
        std::fs::rename(path.with_extension("making"), &path).unwrap();
        println!("{TICKS} ticks made in {:?}", clock::mono().since(begun));
    }
    path
}

fn record(path: &Path, connections: u32) {
    let script = Script { connections, from: 600, unix: 50, ..Script::three_faults().with_bpf() };
    let out = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(path).unwrap());
    let mut w = Writer::new(out, &script.host()).unwrap();
    for n in 0..TICKS {
        w.tick(&script.tick(n), &TickSummary::default()).unwrap();
    }
    w.seal().unwrap();
}

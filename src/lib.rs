//! stallscope: where is the work on this box stuck, and why.
//!
//! ```text
//!  kernel --collect/----> source/ ----+
//!                                     +--Arc<Tick>--> session: analysis (metrics/: figures; diagnose/: findings)
//!  file ----recording/--> playback/ --+                            |                    |
//!                                                             view/ --Vm--> ui/      report/
//! ```
//!
//! A [`sample::tick::Tick`] is the only thing that flows and the only thing that is recorded:
//! raw counters with the times at which they were read. Rates, verdicts and screens are pure
//! functions of ticks, so live and replay cannot differ. Hence the direction of imports: `sample`
//! lies below everything, and what judges, draws or records knows nothing of `collect`.
//!
//! A collector is a file in `sample`, a file in `collect` and a row in `collectors`.
//!
//! | module | job | may not |
//! |---|---|---|
//! | [`sample`] | what is read, as data: ids, rows, ticks | anything else |
//! | [`parse`] | the kernel's text as numbers and rows | open files |
//! | [`collect`] | read the kernel, one file per collector | know of rules, filters, screens |
//! | [`source`] | turn readings into ticks | judge |
//! | [`paste`] | turn pasted text into a tick | judge |
//! | [`metrics`] | rates and figures of ticks, and their history | clock, files, environment |
//! | [`diagnose`] | rules and the engine | clock, files, state in rules |
//! | [`analysis`] | the fold: what is known after so many ticks | clock, files |
//! | [`incident`] | when the flight recorder begins a file, and when it ends it | clock, files |
//! | [`recording`] | ticks in a file, and back | know of rules, screens |
//! | [`session`] | the one place where a tick is taken in: folded, noted, told to collectors | clock, files |
//! | [`playback`] | a recording from any of its ticks; what there is beyond memory | draw |
//! | [`view`] | the screen as data | terminal, clock, files |
//! | [`ui`] | draw it, read keys | judge, compute |
//! | [`openmetrics`] | the last tick as metrics | clock, files |
//! | [`report`] | findings as text and JSON | judge |
//! | [`commands`] | a file per command: its arguments, and source, analysis and outlet wired up | judge |
//! | [`help`] | what `stallscope help TOPIC` prints | anything else |
//! | [`amount`] | lengths of time and sizes as people type them | anything else |
//! | [`typo`] | what may have been meant by a wrong name | anything else |
//! | [`time_spec`] | times as people type them | ask what time it is |
//! | [`text`] | untrusted text made safe to show | anything else |
//! | [`rights`] | which thread keeps which capability | anything else |
//! | [`signals`] | those that kill, and those that must not | anything else |
//! | [`clock`] | ask the kernel for the time | anything else |
//! | [`exit`] | the exit codes and what they mean | anything else |
//! | [`allocator`] | keep resident memory near what is used | anything else |
//!
//! # Tests
//!
//! `cargo test` needs no root; `cargo test -p unit` runs only the tests that are beside the code
//! here. What breaks real things (network namespaces, loop devices, cgroups) runs as root with
//! `STALLSCOPE_LAB=1 cargo test --test lab`, and against real servers with `--test real`.
//! `.ci/run` runs everything. The parsers of recordings, netlink, `/proc`, BTF, pasted text and
//! terminal input can be fuzzed, for example by `cargo +nightly fuzz run --fuzz-dir tests/fuzz
//! recording`; `tests/fuzz/src/lib.rs` lists the targets and where to begin.

pub mod allocator;
pub mod amount;
pub mod analysis;
pub mod clock;
pub mod collect;
mod collectors;
pub mod commands;
pub mod diagnose;
pub mod exit;
pub mod help;
pub mod incident;
pub mod metrics;
pub mod openmetrics;
pub mod parse;
pub mod paste;
pub mod playback;
pub mod recording;
pub mod report;
pub mod rights;
pub mod sample;
pub mod session;
pub mod signals;
pub mod source;
pub mod text;
pub mod time_spec;
pub mod typo;
pub mod ui;
pub mod view;

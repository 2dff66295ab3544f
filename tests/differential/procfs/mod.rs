//! Our parsers against those of the `procfs` crate, on the same bytes: files of the running kernel,
//! each read once, and captured ones. What moves, moves for both, so that nothing is tolerated.
//! Needs no root: files that are not ours to read are passed over.

mod host;
mod net;
mod tasks;

use std::path::{Path, PathBuf};

use procfs_core::ExplicitSystemInfo;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

/// `proc/NAME` of the running kernel, which must have it, and of the captured ones that do.
fn files(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let found = captured(name);
    let path = Path::new("/proc").join(name);
    let live = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    std::iter::once((path, live)).chain(found).collect()
}

fn captured(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let paths =
        std::fs::read_dir(FIXTURES).unwrap().map(|e| e.unwrap().path().join("proc").join(name));
    paths.filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?))).collect()
}

/// `/proc/PID/task/TID/NAME` of every thread that may be read.
fn of_threads(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let numbers = |dir: &Path| -> Vec<PathBuf> {
        let is_number = |p: &PathBuf| {
            p.file_name().is_some_and(|n| n.as_encoded_bytes().iter().all(u8::is_ascii_digit))
        };
        // A process may end meanwhile.
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|e| e.path()).filter(is_number).collect()
    };
    let processes = numbers(Path::new("/proc"));
    let threads = processes.iter().flat_map(|p| numbers(&p.join("task")));
    let paths = threads.map(|t| t.join(name));
    let read = paths.filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?)));
    // That of a thread which ends just now may be empty.
    read.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

/// As the crate wants it: it gives up a file that is not UTF-8.
fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the crate asks of the system that a file is of.
fn system() -> ExplicitSystemInfo {
    ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: cfg!(target_endian = "little"),
    }
}

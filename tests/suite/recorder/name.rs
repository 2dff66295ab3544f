//! A recorder whose file somebody moves, replaces or deletes while it is being written. How it is
//! renamed and replaced is tested in `stallscope::recording::file::home`.

use std::path::{Path, PathBuf};

use stallscope::recording::Reader;
use stallscope::recording::recorder::{End, Existing, Options, Rotate, State};

use super::{WAIT, files, push, seqs, start};

const LETTER: &str = "a letter to my mother";

fn rotating() -> Options {
    Options { rotate: Some(Rotate::Size(6_000)), ..Options::default() }
}

fn read_all(files: &[PathBuf]) -> Vec<u64> {
    let mut all: Vec<u64> = files.iter().flat_map(|p| seqs(p)).collect();
    all.sort_unstable();
    all
}

/// Parts of `box.stall` in a directory.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let dated = |p: &PathBuf| p.to_str().unwrap().contains("box.2");
    files(dir).into_iter().filter(dated).collect()
}

#[test]
fn a_rotation_renames_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("box.stall"), dir.path().join("moved.stall"));
    let mut r = start(&path, rotating());
    (0..150).for_each(|n| push(&mut r, n));
    let before = parts(dir.path());
    assert!(!before.is_empty());
    std::fs::rename(&path, &moved).unwrap();
    std::fs::write(&path, LETTER).unwrap();
    (150..400).for_each(|n| push(&mut r, n));
    let end = r.finish(WAIT).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), LETTER);
    assert_eq!(parts(dir.path()), before, "nothing was set aside");
    assert_eq!((end.state, end.lost), (State::Ended(End::Closed), 0));
    let says = "another file has this name now; the recording stays in the old one";
    assert_eq!(end.trouble.unwrap(), says);
    assert_eq!(read_all(&[before, vec![moved]].concat()), (0..400).collect::<Vec<_>>());
}

/// The same with a limit of the whole: it is kept, and not by deleting everything else.
#[test]
fn a_limit_is_kept_though_another_file_has_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir_in(dir.path()).unwrap();
    let (path, moved) = (dir.path().join("box.stall"), elsewhere.path().join("moved.stall"));
    let mut r = start(&path, Options { max_size: Some(60_000), ..Options::default() });
    (0..100).for_each(|n| push(&mut r, n));
    std::fs::rename(&path, &moved).unwrap();
    std::fs::write(&path, LETTER).unwrap();
    let mut size = 0;
    for n in 100..1500 {
        push(&mut r, n);
        let ours = parts(dir.path()).iter().map(|p| p.metadata().map_or(0, |m| m.len())).sum();
        size = size.max(ours);
    }
    let says = r.status().trouble.unwrap();
    // Away with the other one: FILE is ours again.
    std::fs::remove_file(&path).unwrap();
    (1500..1700).for_each(|n| push(&mut r, n));
    let end = r.finish(WAIT).unwrap();
    assert!(
        says.starts_with("another file has this name now; the recording stays in box.2"),
        "{says}"
    );
    assert!(size < 60_000, "{size} bytes of parts");
    assert_eq!((end.state, end.lost, end.trouble), (State::Ended(End::Closed), 0, None));
    let mine = [parts(dir.path()), vec![path]].concat();
    assert!(mine.len() > 3, "{mine:?}");
    let kept = read_all(&mine);
    assert_eq!(kept, (kept[0]..1700).collect::<Vec<_>>());
    assert!(kept.len() > 300, "{} ticks", kept.len());
    let first = seqs(&moved);
    assert!(first.last().is_some_and(|n| *n < 200), "{first:?}");
}

/// Moved away, and the name is free: it stays where it was put, and FILE begins anew.
#[test]
fn a_file_that_was_moved_is_closed_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir_in(dir.path()).unwrap();
    let (path, moved) = (dir.path().join("box.stall"), elsewhere.path().join("moved.stall"));
    let mut r = start(&path, rotating());
    (0..10).for_each(|n| push(&mut r, n));
    std::fs::rename(&path, &moved).unwrap();
    (10..400).for_each(|n| push(&mut r, n));
    let end = r.finish(WAIT).unwrap();
    assert_eq!((end.state, end.lost, end.trouble), (State::Ended(End::Closed), 0, None));
    assert!(Reader::file(&moved).unwrap().is_sealed());
    let first = seqs(&moved);
    assert!(first.len() > 10 && first.len() < 200, "{}", first.len());
    let all = [parts(dir.path()), vec![path, moved]].concat();
    assert!(all.len() > 3, "{all:?}");
    assert_eq!(read_all(&all), (0..400).collect::<Vec<_>>());
}

/// Deleted, and another file has the name: not one tick more is lost than went with the file.
#[test]
fn a_deleted_file_whose_name_is_taken_is_begun_under_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("box.stall");
    let mut r = start(&path, Options { rotate: Some(Rotate::Size(100_000)), ..rotating() });
    (0..10).for_each(|n| push(&mut r, n));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, LETTER).unwrap();
    let mut n = 10;
    // Looked at every few seconds, and at the latest when it is to be rotated.
    while parts(dir.path()).is_empty() {
        push(&mut r, n);
        n += 1;
    }
    (n..n + 10).for_each(|n| push(&mut r, n));
    let end = r.finish(WAIT).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), LETTER);
    let made = parts(dir.path());
    assert_eq!((made.len(), end.lost), (1, 0), "{made:?}");
    let name = made[0].file_name().unwrap().to_str().unwrap();
    let says = "the file was deleted and another one has its name; recording continues in";
    assert_eq!(end.trouble.unwrap(), format!("{says} {name}"));
    assert_eq!(seqs(&made[0]), (n..n + 10).collect::<Vec<_>>());
}

/// A limit of the whole is kept with what is ours, whatever somebody puts beside it.
#[test]
fn planted_parts_push_nothing_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("box.stall");
    let planted = dir.path().join("box.20010101T000000Z.stall");
    let root = rustix::process::geteuid().is_root();
    let options = Options { max_size: Some(60_000), ..Options::default() };
    let mut r = start(&path, options);
    (0..100).for_each(|n| push(&mut r, n));
    r.finish(WAIT).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.resize(100_000, 0);
    std::fs::write(&planted, bytes).unwrap();
    if root {
        std::os::unix::fs::chown(&planted, Some(65_534), Some(65_534)).unwrap();
    }
    let mut r = start(&path, Options { existing: Existing::Append, ..options });
    (100..200).for_each(|n| push(&mut r, n));
    let end = r.finish(WAIT).unwrap();
    assert!(end.size < 60_000);
    // Without root it is one of ours, and the oldest.
    assert_eq!(planted.exists(), root);
    let mine: Vec<_> = files(dir.path()).into_iter().filter(|p| *p != planted).collect();
    assert_eq!(read_all(&mine), (0..200).collect::<Vec<_>>());
}

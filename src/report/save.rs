//! Saves a pane to a new file in the working directory; never overwrites one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names to try if the first one is taken.
const TRIES: u32 = 100;

/// Writes `text` to `stallscope-<pane>-<HHMMSS>.txt` in `dir` and returns the path.
///
/// # Errors
/// If the file cannot be created or written.
pub fn save(dir: &Path, pane: &str, stamp: &str, text: &str) -> io::Result<PathBuf> {
    for n in 1..=TRIES {
        let suffix = if n == 1 { String::new() } else { format!("-{n}") };
        let path = dir.join(format!("stallscope-{pane}-{stamp}{suffix}.txt"));
        // O_EXCL: a symlink planted in /tmp is not followed.
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut f) => {
                // Half a pane could be taken for all of it.
                f.write_all(text.as_bytes()).inspect_err(|_| discard(&f, &path))?;
                return Ok(path);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Removes the partial file, unless the name belongs to another file by now.
fn discard(f: &File, path: &Path) {
    let same = f.metadata().ok().zip(std::fs::symlink_metadata(path).ok());
    if same.is_some_and(|(a, b)| (a.dev(), a.ino()) == (b.dev(), b.ino())) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let a = save(dir.path(), "sockets", "141743", "one").unwrap();
        let b = save(dir.path(), "sockets", "141743", "two").unwrap();
        assert_eq!(a.file_name().unwrap(), "stallscope-sockets-141743.txt");
        assert_eq!(b.file_name().unwrap(), "stallscope-sockets-141743-2.txt");
        assert_eq!(std::fs::read_to_string(a).unwrap(), "one");
    }

    #[test]
    fn only_our_own_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pane.txt");
        let ours = File::create(&path).unwrap();
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        std::fs::write(&path, "a stranger's").unwrap();
        discard(&ours, &path);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a stranger's");
        discard(&File::open(&path).unwrap(), &path);
        assert!(!path.exists());
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        std::fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("stallscope-x-1.txt")).unwrap();
        let p = save(dir.path(), "x", "1", "text").unwrap();
        assert_eq!(p.file_name().unwrap(), "stallscope-x-1-2.txt");
        assert_eq!(std::fs::read_to_string(target).unwrap(), "mine");
    }
}

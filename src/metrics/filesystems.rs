//! File systems that turned read-only while we looked.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sample::Stamped;
use crate::sample::filesystems::FilesystemsSample;
use crate::sample::subject::DiskId;
use crate::sample::time::MonoNs;

/// A file system that took writes and does not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turned {
    /// Where it is mounted.
    pub mount: Arc<str>,
    /// Its device number.
    pub dev: DiskId,
    /// When we first saw it so.
    pub at: MonoNs,
}

/// What was last seen of a file system.
#[derive(Clone, Copy, Debug)]
enum State {
    Writable,
    /// Since then, if it ever took writes.
    ReadOnly(Option<MonoNs>),
}

/// Remembers which file systems took writes.
#[derive(Clone, Debug, Default)]
pub struct FilesystemTracker {
    known: HashMap<(DiskId, Arc<str>), State>,
}

impl FilesystemTracker {
    /// Bytes that it holds; names are those of samples.
    pub(super) fn bytes(&self) -> usize {
        self.known.len() * 2 * size_of::<((DiskId, Arc<str>), State)>()
    }

    /// Those of this sample.
    pub fn push(&mut self, now: &Stamped<FilesystemsSample>) -> Vec<Turned> {
        let mut all = HashMap::new();
        let mut out = Vec::new();
        for row in now.data.filesystems.iter() {
            let key = (row.dev, row.mount.clone());
            let state = match self.known.get(&key) {
                _ if !row.takes_no_writes() => State::Writable,
                Some(State::Writable) => State::ReadOnly(Some(now.span.mid())),
                Some(known) => *known,
                None => State::ReadOnly(None),
            };
            if let State::ReadOnly(Some(at)) = state {
                out.push(Turned { mount: row.mount.clone(), dev: row.dev, at });
            }
            all.insert(key, state);
        }
        self.known = all;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::filesystems::FilesystemRow;
    use crate::sample::time::Span;
    use std::time::Duration;

    fn push(t: &mut FilesystemTracker, s: u64, options: &[(&str, &str)]) -> Vec<(String, u64)> {
        let row = |(n, (mount, options)): (usize, &(&str, &str))| FilesystemRow {
            mount: (*mount).into(),
            dev: DiskId { major: 8, minor: n as u32 },
            options: (*options).into(),
            ..FilesystemRow::default()
        };
        let rows = options.iter().enumerate().map(row).collect();
        let data =
            FilesystemsSample { filesystems: Arc::new(rows), ..FilesystemsSample::default() };
        let span = Span::at(MonoNs(s * 1_000_000_000));
        let all = t.push(&Stamped { span, cpu: Duration::ZERO, data });
        all.iter().map(|t| (t.mount.to_string(), t.at.0 / 1_000_000_000)).collect()
    }

    #[test]
    fn a_turn_is_remembered_until_it_is_over() {
        let mut t = FilesystemTracker::default();
        assert_eq!(push(&mut t, 1, &[("/", "rw"), ("/image", "ro")]), []);
        let turned = [("/", "rw,emergency_ro"), ("/image", "ro")];
        assert_eq!(push(&mut t, 2, &turned), [("/".to_owned(), 2)]);
        assert_eq!(push(&mut t, 3, &turned), [("/".to_owned(), 2)], "not since now");
        assert_eq!(push(&mut t, 4, &[("/", "rw"), ("/image", "rw")]), []);
        assert_eq!(push(&mut t, 5, &[("/", "rw"), ("/image", "ro")]), [("/image".to_owned(), 5)]);
        // Unmounted, and another one mounted there.
        assert_eq!(push(&mut t, 6, &[("/", "rw")]), []);
        assert_eq!(push(&mut t, 7, &[("/", "rw"), ("/image", "ro")]), []);
    }
}

//! What was understood of pasted text: counts, and the first lines that were not. Data for
//! reports; who reads the text is `paste`.

use serde::Serialize;

/// The account of one paste.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Understood {
    /// Lines that are not blank.
    pub lines: u64,
    /// Bytes read.
    pub bytes: u64,
    /// By format, in the order of their first line.
    pub formats: Vec<FormatCount>,
    /// Lines that fit no format.
    pub not_understood: u64,
    /// The first of them: line number from 1 and text, cut and free of controls.
    pub examples: Vec<(u64, String)>,
    /// What the reader should know about the data: limits that were hit, units that were
    /// guessed, counters without a second reading.
    pub notes: Vec<String>,
}

/// How much of one format was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FormatCount {
    /// Name that users know: `ss`, `iostat -x`, `nstat`.
    pub format: &'static str,
    /// Lines.
    pub lines: u64,
    /// What they hold: sockets, disk rows, counters, CPUs.
    pub items: u64,
    /// Snapshots or intervals.
    pub samples: u64,
    /// Name of one item.
    pub item: &'static str,
}

impl Understood {
    /// Nothing to judge?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.formats.iter().all(|f| f.items == 0)
    }
}

//! The incident files of a host in a directory: what they are called, and which of them are older
//! and may be deleted for a new one. `stallscope-HOST-RULE-YYYYMMDDTHHMMSSZ.stall`, with a number
//! behind the time when that name is taken.

use super::parts::{stamp, time_and_number};
use super::plain_host;
use crate::sample::time::WallNs;

const START: &str = "stallscope-";
const END: &str = ".stall";

/// The files that one naming makes.
#[derive(Clone, Debug)]
pub struct IncidentFiles {
    /// `stallscope-HOST-`
    start: String,
    /// What may stand for RULE. Without this list a recording of host `db-fs-full` would be an
    /// incident of host `db`.
    rules: Vec<&'static str>,
    /// Bytes of all of them; the oldest are deleted.
    most: Option<u64>,
}

impl IncidentFiles {
    /// The incident files of `hostname`, kept below `most` bytes.
    pub fn new(hostname: &str, rules: Vec<&'static str>, most: Option<u64>) -> Self {
        Self { start: format!("{START}{}-", plain_host(hostname)), rules, most }
    }

    /// Name of the file of an incident that began at `at`.
    pub fn file_name(&self, rule: &str, at: WallNs) -> String {
        format!("{}{rule}-{}{END}", self.start, stamp(at))
    }

    pub(super) fn most(&self) -> Option<u64> {
        self.most
    }

    /// Time and number of a file that has such a name.
    pub(super) fn order(&self, name: &str) -> Option<(String, u32)> {
        let rest = name.strip_prefix(self.start.as_str())?.strip_suffix(END)?;
        let when = |rule: &&str| rest.strip_prefix(*rule)?.strip_prefix('-');
        self.rules.iter().filter_map(when).find_map(time_and_number)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOON: WallNs = WallNs(1_700_000_000_000_000_000);

    fn incident_files(host: &str) -> IncidentFiles {
        IncidentFiles::new(host, vec!["fs-full", "fs-inodes"], Some(1 << 20))
    }

    #[test]
    fn a_name_says_host_rule_and_time() {
        let name = incident_files("db7").file_name("fs-full", NOON);
        assert_eq!(name, "stallscope-db7-fs-full-20231114T221320Z.stall");
        let hostile = incident_files("../a b\n\u{1b}[2J").file_name("fs-full", NOON);
        assert_eq!(hostile, "stallscope-___a_b___2J-fs-full-20231114T221320Z.stall");
        let long = incident_files(&"x".repeat(300)).file_name("fs-full", NOON);
        assert!(long.len() < 128, "{long}");
    }

    #[test]
    fn only_what_this_naming_made_is_kin() {
        let k = incident_files("db7");
        let name = k.file_name("fs-full", NOON);
        assert_eq!(k.order(&name), Some(("20231114T221320Z".to_owned(), 1)));
        let twin = name.replace(".stall", "-12.stall");
        assert_eq!(k.order(&twin), Some(("20231114T221320Z".to_owned(), 12)));
        for other in [
            "stallscope-db7-20231114T221320Z.stall",
            "stallscope-db7-tcp-own-20231114T221320Z.stall",
            "stallscope-db7-fs-full-x-20231114T221320Z.stall",
            "stallscope-db8-fs-full-20231114T221320Z.stall",
            "stallscope-db7-a-fs-full-20231114T221320Z.stall",
            "stallscope-db7-fs-full-20231114T221320Z.stall.bak",
            "stallscope-db7-fs-full-2023.stall",
            "db7-fs-full-20231114T221320Z.stall",
        ] {
            assert_eq!(k.order(other), None, "{other}");
        }
        // Another host, whose name begins like this one's.
        assert_eq!(k.order(&incident_files("db7-fs").file_name("fs-full", NOON)), None);
    }
}

//! What may have been meant by a name that does not exist.

/// Names that are told.
const MOST: usize = 3;

/// The names that differ from `name` in at most `letters`, or the end of which does, and those of
/// which it is a part, nearest first.
#[must_use]
pub fn nearest<'a>(
    name: &str,
    all: impl IntoIterator<Item = &'a str>,
    letters: usize,
) -> Vec<&'a str> {
    let name = name.to_ascii_lowercase();
    let mut near: Vec<(usize, &str)> = Vec::new();
    for known in all {
        let lower = known.to_ascii_lowercase();
        // `rto-storm` is meant to be `tcp-rto-storm`.
        let tails = lower.match_indices('-').filter_map(|(at, _)| lower.get(at + 1..));
        let differs = |known| strsim::damerau_levenshtein(&name, known);
        let differs = tails.map(differs).fold(differs(&lower), usize::min);
        let is_part = name.len() > 1 && lower.contains(&name);
        if differs <= letters && differs < name.len().max(known.len()) || is_part {
            near.push((differs, known));
        }
    }
    near.sort_unstable();
    near.into_iter().map(|(_, known)| known).take(MOST).collect()
}

/// `did you mean a, b?`; nothing without any.
#[must_use]
pub fn question(near: &[&str]) -> Option<String> {
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_what_differs_little_or_contains_it() {
        let all = ["tcp-rto-storm", "fs-full", "fs-inodes", "rto", "rtt"];
        assert_eq!(nearest("rto-storm", all, 2), ["tcp-rto-storm"]);
        assert_eq!(nearest("rto-strom", all, 2), ["tcp-rto-storm"]);
        assert_eq!(nearest("FS-FUL", all, 2), ["fs-full"]);
        assert_eq!(nearest("rtx", all, 1), ["rto", "rtt"]);
        assert_eq!(nearest("fs", all, 2), ["fs-full", "fs-inodes"]);
        assert!(nearest("zzzz", all, 2).is_empty() && nearest("", all, 2).is_empty());
        assert_eq!(question(&["rto", "rtt"]).as_deref(), Some("did you mean rto, rtt?"));
        assert_eq!(question(&[]), None);
    }
}

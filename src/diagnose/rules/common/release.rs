//! Which kernels have the bug behind `tcp-tb-lt-w-stall`.

/// What a kernel release says about the bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// It has the bug.
    Affected,
    /// It never had the bug, or has the fix.
    Fixed,
    /// A branch with its own backports, or the release is unknown.
    Unknown,
}

/// f070ef2ac667 came with 4.19.52 (2019-06-17, the SACK panic fixes) and was fixed by
/// b617158dc096 in 4.19.62. The same pair went into 4.9 (fixed in .189) and into 4.14 and 4.4
/// in releases that were not verified. Mainline has the fix since 5.3.
pub(crate) fn tb_lt_w_bug(release: &str) -> Release {
    let Some((major, minor, patch)) = parse(release) else { return Release::Unknown };
    match (major, minor, patch) {
        (4, 19, 52..=61) => Release::Affected,
        (4, 19, _) | (4, 9, 189..) | (5, 3.., _) | (6.., _, _) => Release::Fixed,
        _ => Release::Unknown,
    }
}

/// `4.19.57-15.1.al7.x86_64` is (4, 19, 57).
fn parse(release: &str) -> Option<(u32, u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next()?.parse().ok();
    let (major, minor) = (next()?, next()?);
    Some((major, minor, next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_of_the_bug() {
        assert_eq!(tb_lt_w_bug("4.19.57-15.1.al7.x86_64"), Release::Affected);
        for fixed in ["4.19.51", "4.19.62", "4.19.325", "4.9.189", "5.10.0", "6.18.44", "6.1"] {
            assert_eq!(tb_lt_w_bug(fixed), Release::Fixed, "{fixed}");
        }
        for unknown in ["4.18.0-147.el8.x86_64", "4.14.131", "5.2.1", "3.10.0", "", "x.y", "4"] {
            assert_eq!(tb_lt_w_bug(unknown), Release::Unknown, "{unknown}");
        }
    }
}

//! The environment. The only reader of its variables.

use std::path::PathBuf;

/// The variables that matter, each with what it does.
pub(crate) const VARIABLES: [(&str, &str); 5] = [
    ("NO_COLOR", "If it is set and not empty, nothing is coloured unless --color asks for it."),
    ("TERM", "Which colours and glyphs the terminal has."),
    (
        "LC_ALL, LC_CTYPE, LANG",
        "The first that is set says whether the terminal takes UTF-8: charts need it.",
    ),
    ("XDG_CONFIG_HOME", "Where stallscope/config.toml is; by default .config in HOME."),
    ("TZ", "The time zone of the times that are shown and given."),
];

/// What they are set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    /// `NO_COLOR`.
    pub no_color: Option<String>,
    /// `TERM`.
    pub term: Option<String>,
    /// `LC_ALL`, `LC_CTYPE` or `LANG`: the first that is set and not empty.
    pub locale: Option<String>,
    /// `XDG_CONFIG_HOME`, or `.config` in `HOME`.
    pub config_home: Option<PathBuf>,
}

impl Environment {
    /// Of this process.
    pub(crate) fn read() -> Self {
        let var = |name| std::env::var(name).ok();
        let set = |name| var(name).filter(|v| !v.is_empty());
        Self {
            no_color: var("NO_COLOR"),
            term: var("TERM"),
            config_home: set("XDG_CONFIG_HOME")
                .map(PathBuf::from)
                // A relative one is to be ignored, by the specification.
                .filter(|dir| dir.is_absolute())
                .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config"))),
            locale: set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")),
        }
    }
}

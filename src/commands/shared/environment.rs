//! The environment. The only reader of its variables.

/// The variables that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    /// `NO_COLOR`.
    pub no_color: Option<String>,
    /// `TERM`.
    pub term: Option<String>,
    /// `LC_ALL`, `LC_CTYPE` or `LANG`: the first that is set and not empty.
    pub locale: Option<String>,
}

impl Environment {
    /// Of this process.
    pub(crate) fn read() -> Self {
        let var = |name| std::env::var(name).ok();
        let set = |name| var(name).filter(|v| !v.is_empty());
        Self {
            no_color: var("NO_COLOR"),
            term: var("TERM"),
            locale: set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")),
        }
    }
}

//! How the program ends: the exit codes and their meaning for scripts.

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Nothing at warn or worse, or the console was closed.
    Ok = 0,
    /// `check`, `report` or `explain` found something at warn or worse, or it explains a wait of `why`.
    Findings = 1,
    /// Invalid command line.
    Usage = 2,
    /// The kernel or a file cannot be read, a recording cannot be written, or a port is not to be
    /// had.
    CannotCollect = 3,
}

impl Exit {
    /// Every exit code, in order.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Findings, Self::Usage, Self::CannotCollect];

    /// One line for the help.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "no findings at warn or worse, or the console was closed",
            Self::Findings => "findings at warn or worse (check, report, explain, why)",
            Self::Usage => "invalid command line, or no terminal for the console",
            Self::CannotCollect => "cannot read the kernel or the file, cannot record or listen",
        }
    }
}

/// A message for the user that ends the program with its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Stop {
    /// How to end.
    pub exit: Exit,
    /// One line: what, where, what to do.
    pub message: String,
}

impl Stop {
    /// What was typed makes no sense.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Self { exit: Exit::Usage, message: message.into() }.into()
    }
    /// What is to be read or written cannot be.
    pub fn cannot(message: impl Into<String>) -> anyhow::Error {
        Self { exit: Exit::CannotCollect, message: message.into() }.into()
    }
}

//! What several commands share: groups of flags with what they mean, and what a command needs
//! around its work.

mod dress;
pub(super) mod environment;
pub(super) mod limits;
pub(super) mod live;
pub(super) mod new_file;
pub(super) mod output;
pub(super) mod recorder;
pub(super) mod recording;
pub(super) mod screen;
pub(super) mod settings;
pub(super) mod span;
pub(super) mod status_line;
pub(super) mod wait;
pub(super) mod wakeups;

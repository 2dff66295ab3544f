//! Draws the parts of the view model into cells.

pub(super) mod frame;
pub(super) mod line;

//! What the view model is made of, drawn into cells.

pub(super) mod frame;
pub(super) mod line;

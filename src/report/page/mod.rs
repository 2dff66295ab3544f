//! `report`: an incident as one page, to be mailed, printed, or pasted into a ticket.
//!
//! - `seen`: what a page needs beyond the report of a finished run, taken in tick by tick
//! - `incident`: from both to a [`Document`], which knows neither HTML nor Markdown
//! - [`html`] and [`markdown`] print it
//!
//! Pure: a function of ticks. The page has no script, and loads nothing.

mod axis;
mod document;
mod html;
mod incident;
mod markdown;
mod plot;
mod section;
mod seen;
mod series;
mod tables;

pub use document::Document;
pub use html::html;
pub use incident::{About, document};
pub use markdown::markdown;
pub use seen::Seen;

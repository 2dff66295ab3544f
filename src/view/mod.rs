//! The screen as data: turns a run and what the user chose into rectangles with lines. Pure: no
//! terminal, no clock, no files, no environment.
//!
//! `update` turns keys into a new [`state::ViewState`]; [`build::build`] turns it into a
//! [`vm::Vm`]; `crate::ui` draws that.

pub mod action;
pub mod build;
pub mod chrome;
pub mod click;
pub mod command;
pub mod context;
pub mod detail;
pub mod filter;
mod filtering;
mod input;
pub mod keymap;
pub mod layout;
mod lines;
mod mean;
mod opening;
pub mod order;
pub mod overlay;
pub mod pace;
pub mod panes;
pub mod scrub;
pub mod series;
mod sorting;
pub mod state;
pub mod table;
pub mod text;
mod travel;
pub mod units;
pub mod update;
pub mod vitals;
pub mod vm;

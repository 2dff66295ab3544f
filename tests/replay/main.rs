//! Replay equals live: the same findings and the same frames, from the beginning and from any
//! place, whole files and hurt ones.
#![allow(clippy::unwrap_used)]

mod ahead;
mod console;
mod hurt;
#[allow(dead_code, reason = "shared with the scenario tests")]
#[path = "../scenarios/incident.rs"]
mod incident;
#[path = "../scenarios/links.rs"]
mod links;
#[path = "../scenarios/room.rs"]
mod room;
mod same;
mod seek;
mod support;
mod thin;
#[path = "../scenarios/ticks.rs"]
mod ticks;

//! Replay equals live: the same findings and the same frames, from the beginning and from any
//! place, whole files and hurt ones.

mod ahead;
mod console;
mod hurt;
mod same;
mod seek;
mod thin;

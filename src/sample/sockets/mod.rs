//! Sockets: columns of a dump per namespace, `tcp_info` blocks, and what was looked up beside
//! them. Nothing here says what is wrong: rows are what the kernel said.

mod choice;
mod columns;
mod lookups;
mod rows;
mod tcp_info;
mod unix_rows;

pub use choice::*;
pub use lookups::*;
pub use rows::*;
pub use tcp_info::{TCP_INFO_MAX, TcpInfo};
pub use unix_rows::UnixRows;

//! What replay costs.
fn main() {}

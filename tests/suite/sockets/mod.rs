//! The socket collectors against the running kernel: own namespace as any user, other
//! namespaces as root.

mod captured;
mod live;
mod spaces;

//! The running kernel as a source.

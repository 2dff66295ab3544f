//! Hurt recordings: what can still be read says the same, and nothing panics.

//! The rules, one per file.

use super::Rule;

/// Every rule. The order is the order of documentation; findings are ordered by severity.
pub const RULES: &[&dyn Rule] = &[];

//! What is typed after `/`: words that must occur, and `field op value` on any column.
//!
//! `java rto>1s dport:3306 !state:listen` means: `java` somewhere, an rto above one second,
//! port 3306, and not listening. A bare number is ms for times, bytes for sizes. What `ss` takes is
//! taken too: `dport = :3306`, `dst 10.0.0.0/8`, `state established`.
//!
//! A field, an operator or a unit that does not exist is an error, with the nearest names: a typo
//! that is searched for as a word looks like an empty table.

mod complete;
mod parse;

use std::net::{IpAddr, SocketAddr};

use super::context::Cx;
use super::table::{ColumnInfo, Table, Value};

pub(super) use complete::{complete, of as completion};

/// Comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// `:` equal for numbers, contained for words.
    Has,
    Eq,
    Ne,
    Gt,
    Lt,
    Ge,
    Le,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    /// Occurs in the row's text; lower case.
    Word(String),
    /// A comparison on a column.
    Field { column: usize, op: Op, text: String, number: Option<f64> },
    /// An address of a column of endpoints.
    Net { column: usize, net: Net },
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    not: bool,
    test: Test,
}

/// Addresses, and perhaps a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Net {
    /// With so many bits that count; `None` is any.
    addr: Option<(IpAddr, u32)>,
    port: Option<u16>,
}

impl Net {
    fn has(&self, endpoint: &str) -> bool {
        let Some((addr, port)) = address(endpoint) else { return false };
        self.port.is_none_or(|p| p == port)
            && self.addr.is_none_or(|(net, bits)| match (net, addr) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    (a.to_bits() ^ b.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => {
                    (a.to_bits() ^ b.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
                }
                _ => false,
            })
    }
}

/// Of `10.0.0.5:443`, `[::1]:443`, `0.0.0.0:*`.
fn address(endpoint: &str) -> Option<(IpAddr, u16)> {
    if let Ok(a) = endpoint.parse::<SocketAddr>() {
        return Some((a.ip(), a.port()));
    }
    let addr = endpoint.strip_suffix(":*")?;
    let addr = addr.trim_start_matches('[').trim_end_matches(']');
    Some((addr.parse().ok()?, 0))
}

/// A parsed filter. The empty one accepts everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// As typed.
    pub text: String,
    terms: Vec<Term>,
    wrong: Option<String>,
}

impl Filter {
    /// Parses what was typed. What is wrong is left out, and told by [`wrong`](Self::wrong).
    #[must_use]
    pub fn parse(text: &str, columns: &[ColumnInfo]) -> Self {
        let (terms, wrong) = parse::parse(text, columns);
        Self { text: text.to_owned(), terms, wrong }
    }

    /// What cannot be understood, first of all, and what could be meant.
    #[must_use]
    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    /// Accepts everything?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether a row passes.
    pub fn accepts<T: Table + ?Sized>(
        &self,
        t: &T,
        cx: &Cx<'_>,
        row: T::Row,
        scratch: &mut String,
    ) -> bool {
        let mut searched = false;
        self.terms.iter().all(|term| {
            let hit = match &term.test {
                Test::Word(w) => {
                    if !searched {
                        scratch.clear();
                        t.search(cx, row, scratch);
                        scratch.make_ascii_lowercase();
                        searched = true;
                    }
                    scratch.contains(w.as_str())
                }
                Test::Field { column, op, text, number } => t
                    .columns()
                    .get(*column)
                    .is_some_and(|c| compare(&(c.value)(cx, row), *op, text, *number)),
                Test::Net { column, net } => t
                    .columns()
                    .get(*column)
                    .is_some_and(|c| matches!((c.value)(cx, row), Value::Text(s) if net.has(&s))),
            };
            hit != term.not
        })
    }
}

fn compare(v: &Value, op: Op, text: &str, number: Option<f64>) -> bool {
    match v {
        Value::Num(n) => {
            let Some(x) = number else { return op == Op::Ne };
            // Typed numbers have few digits: equal means equal as shown.
            let same = (n - x).abs() <= x.abs() * 0.005;
            match op {
                Op::Has | Op::Eq => same,
                Op::Ne => !same,
                Op::Gt => *n > x,
                Op::Lt => *n < x,
                Op::Ge => *n >= x || same,
                Op::Le => *n <= x || same,
            }
        }
        Value::Text(s) => {
            let s = s.to_lowercase();
            match op {
                Op::Has => s.contains(text),
                Op::Eq => s == text,
                Op::Ne => s != text,
                Op::Gt => s.as_str() > text,
                Op::Lt => s.as_str() < text,
                Op::Ge => s.as_str() >= text,
                Op::Le => s.as_str() <= text,
            }
        }
        // An unknown value is neither above nor below anything.
        Value::Unknown | Value::Empty => op == Op::Ne,
    }
}

#[cfg(test)]
mod tests;

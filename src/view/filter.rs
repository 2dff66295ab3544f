//! What is typed after `/`: words that must occur, and `field op value` on any column.
//!
//! `java rto>1s dport:3306 !state:listen` means: `java` somewhere, an rto above one second,
//! port 3306, and not listening. A bare number is ms for times, bytes for sizes.

use super::context::Cx;
use super::table::{ColumnInfo, Table, Unit, Value};

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
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    not: bool,
    test: Test,
}

/// A parsed filter. The empty one accepts everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// As typed.
    pub text: String,
    terms: Vec<Term>,
    /// Fields that do not exist, for the message.
    pub unknown: Vec<String>,
}

impl Filter {
    /// Parses what was typed. Nothing is an error: a field that does not exist is searched for
    /// as text and named in `unknown`.
    #[must_use]
    pub fn parse(text: &str, columns: &[ColumnInfo]) -> Self {
        let mut out = Self { text: text.to_owned(), ..Self::default() };
        for word in text.split_whitespace() {
            let (not, body) = match word.strip_prefix('!') {
                Some(rest) if !rest.is_empty() => (true, rest),
                _ => (false, word),
            };
            let test = match split(body) {
                Some((field, op, value)) => match find(columns, field) {
                    Some(column) => Test::Field {
                        column,
                        op,
                        text: value.to_lowercase(),
                        number: number(value, columns[column].unit),
                    },
                    None if is_field(field) => {
                        out.unknown.push(field.to_owned());
                        Test::Word(body.to_lowercase())
                    }
                    None => Test::Word(body.to_lowercase()),
                },
                None => Test::Word(body.to_lowercase()),
            };
            out.terms.push(Term { not, test });
        }
        out
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

fn split(word: &str) -> Option<(&str, Op, &str)> {
    const OPS: [(&str, Op); 8] = [
        (">=", Op::Ge),
        ("<=", Op::Le),
        ("!=", Op::Ne),
        ("==", Op::Eq),
        (">", Op::Gt),
        ("<", Op::Lt),
        ("=", Op::Eq),
        (":", Op::Has),
    ];
    let at = word.find(['>', '<', '=', '!', ':'])?;
    let (field, rest) = word.split_at(at);
    let (sign, op) = OPS.iter().find(|(s, _)| rest.starts_with(s))?;
    let value = &rest[sign.len()..];
    (!field.is_empty() && !value.is_empty()).then_some((field, *op, value))
}

/// `10.0.3.7:3306` and `::1` are text to search for, `foo:1` is a field that does not exist.
fn is_field(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic())
        && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '%'))
}

fn find(columns: &[ColumnInfo], field: &str) -> Option<usize> {
    let same = |s: &str| s.eq_ignore_ascii_case(field);
    columns.iter().position(|c| same(c.key) || same(c.also))
}

/// A typed number in the column's base unit.
fn number(s: &str, unit: Unit) -> Option<f64> {
    let at = s.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(s.len());
    let (digits, suffix) = s.split_at(at);
    let n: f64 = digits.parse().ok()?;
    let suffix = suffix.to_ascii_lowercase();
    let factor = match (unit, suffix.as_str()) {
        (Unit::Time, "s") | (Unit::Bytes, "" | "b") => 1.0,
        (Unit::Time, "" | "ms") => 1e-3,
        (Unit::Time, "us") => 1e-6,
        (Unit::Time, "m" | "min") => 60.0,
        (Unit::Time, "h") => 3600.0,
        (Unit::Time, "d") => 86_400.0,
        (Unit::Bytes, "k" | "kb" | "kib") => 1024.0,
        (Unit::Bytes, "m" | "mb" | "mib") => 1024.0 * 1024.0,
        (Unit::Bytes, "g" | "gb" | "gib") => 1024.0 * 1024.0 * 1024.0,
        (Unit::Time | Unit::Bytes, _) => return None,
        (_, "" | "%") => 1.0,
        (_, "k") => 1e3,
        (_, "m") => 1e6,
        (_, "g") => 1e9,
        _ => return None,
    };
    Some(n * factor)
}

#[cfg(test)]
mod tests {
    use super::super::table::First;
    use super::*;

    fn columns() -> Vec<ColumnInfo> {
        let col = |key, unit| ColumnInfo {
            key,
            also: key,
            help: "",
            priority: 1,
            unit,
            first: First::High,
        };
        vec![
            col("state", Unit::Text),
            col("rto", Unit::Time),
            col("dport", Unit::Count),
            col("sendq", Unit::Bytes),
        ]
    }

    fn holds(filter: &str, v: &Value) -> bool {
        let f = Filter::parse(filter, &columns());
        match &f.terms[0].test {
            Test::Field { op, text, number, .. } => compare(v, *op, text, *number),
            Test::Word(_) => panic!("{filter} is not a field test"),
        }
    }

    #[test]
    fn times_and_sizes_have_units() {
        assert!(holds("rto>1s", &Value::Num(6.53)));
        assert!(!holds("rto>1s", &Value::Num(0.204)));
        assert!(holds("rto>=204", &Value::Num(0.204)));
        assert!(holds("sendq>64k", &Value::Num(65_537.0)));
        assert!(!holds("sendq>64k", &Value::Num(65_536.0)));
        assert!(holds("dport:3306", &Value::Num(3306.0)));
        assert!(!holds("dport:3306", &Value::Num(33_060.0)));
        assert!(holds("state:estab", &Value::Text("ESTAB".into())));
        assert!(holds("state!=listen", &Value::Text("ESTAB".into())));
    }

    #[test]
    fn unknown_values_pass_no_comparison() {
        assert!(!holds("rto>1s", &Value::Unknown));
        assert!(!holds("rto<1s", &Value::Unknown));
    }

    #[test]
    fn addresses_are_words_and_typos_are_named() {
        let f = Filter::parse("10.0.3.7:3306 ::1 rtt0>5", &columns());
        assert_eq!(f.unknown, ["rtt0"]);
        assert_eq!(f.terms.len(), 3);
        assert!(f.terms.iter().all(|t| matches!(t.test, Test::Word(_))));
        assert!(Filter::parse("  ", &columns()).is_empty());
        assert!(Filter::parse("!state:listen", &columns()).terms[0].not);
    }
}

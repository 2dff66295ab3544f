//! From what was typed to tests.

use std::net::{IpAddr, SocketAddr};

use super::complete::nearest;
use super::{Net, Op, Term, Test};
use crate::typo::question;
use crate::view::table::{ColumnInfo, Unit};

/// Signs of comparisons, longest first, and how `ss` spells them as words.
const SIGNS: [(&str, Op); 8] = [
    (">=", Op::Ge),
    ("<=", Op::Le),
    ("!=", Op::Ne),
    ("==", Op::Eq),
    (">", Op::Gt),
    ("<", Op::Lt),
    ("=", Op::Eq),
    (":", Op::Has),
];
const WORDS: [(&str, &str); 8] = [
    ("eq", "="),
    ("ne", "!="),
    ("neq", "!="),
    ("gt", ">"),
    ("lt", "<"),
    ("ge", ">="),
    ("geq", ">="),
    ("le", "<="),
];
/// States as `ss` takes them, where it prints them in another way.
const STATES: [(&str, &str); 4] =
    [("established", "estab"), ("listening", "listen"), ("closed", "unconn"), ("close", "unconn")];

/// The tests, and what is wrong first of all.
pub(super) fn parse(text: &str, columns: &[ColumnInfo]) -> (Vec<Term>, Option<String>) {
    let mut words = Words { rest: text.split_whitespace().collect::<Vec<_>>().into_iter() };
    let (mut terms, mut wrong) = (Vec::new(), None);
    let (mut not, mut is_first) = (false, true);
    while let Some(word) = words.rest.next() {
        let more = words.peek().is_some();
        match word {
            "and" | "&&" if more && !is_first => {}
            "not" if more => not = !not,
            "or" | "||" if more && !is_first => {
                wrong.get_or_insert(format!(
                    "{word}: all words have to hold, there is no other way"
                ));
            }
            _ => {
                let (own, body) = match word.strip_prefix('!') {
                    Some(rest) if !rest.is_empty() => (true, rest),
                    _ => (false, word),
                };
                let negated = std::mem::take(&mut not) != own;
                match words.test(body, columns) {
                    Ok(Sign::Plain(test)) => terms.push(Term { not: negated, test }),
                    Ok(Sign::Opposite(test)) => terms.push(Term { not: !negated, test }),
                    Err(what) => _ = wrong.get_or_insert(what),
                }
            }
        }
        is_first = false;
    }
    (terms, wrong)
}

/// A test, or that it must not hold.
enum Sign {
    Plain(Test),
    Opposite(Test),
}

struct Words<'a> {
    rest: std::vec::IntoIter<&'a str>,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.rest.as_slice().first().copied()
    }

    /// What a word means, with those after it that belong to it.
    fn test(&mut self, body: &'a str, columns: &[ColumnInfo]) -> Result<Sign, String> {
        let column = |name: &str| find(columns, name);
        match body {
            "dst" if column("peer").is_some() => return self.address(body, column("peer")),
            "src" if column("local").is_some() => return self.address(body, column("local")),
            "state" | "exclude" if column("state").is_some() => {
                let name = self.rest.next().ok_or(incomplete(body))?;
                let test = field(columns, column("state").unwrap_or(0), Op::Has, name)?;
                return Ok(if body == "state" { Sign::Plain(test) } else { Sign::Opposite(test) });
            }
            _ => {}
        }
        // `dport = :3306`, and the same with fewer blanks.
        let spaced = self.peek().filter(|_| column(body).is_some()).and_then(as_sign);
        let joined = match spaced {
            Some((sign, value)) => {
                self.rest.next();
                let value = if value.is_empty() { self.rest.next().unwrap_or("") } else { value };
                format!("{body}{sign}{value}")
            }
            None => match split(body) {
                Some((name, _, "")) if column(name).is_some() && self.peek().is_some() => {
                    format!("{body}{}", self.rest.next().unwrap_or(""))
                }
                _ => body.to_owned(),
            },
        };
        test(&joined, columns).map(Sign::Plain)
    }

    /// What follows `dst` and `src`.
    fn address(&mut self, body: &str, column: Option<usize>) -> Result<Sign, String> {
        let mut word = self.rest.next().ok_or(incomplete(body))?;
        if word == "=" || word == "==" {
            word = self.rest.next().ok_or(incomplete(body))?;
        }
        let net = net(word)
            .ok_or_else(|| format!("{body} {word}: an address is expected, as in 10.0.0.0/8"))?;
        Ok(Sign::Plain(Test::Net { column: column.unwrap_or(0), net }))
    }
}

fn incomplete(body: &str) -> String {
    format!("{body} is not complete")
}

/// A word that begins with a comparison: its sign and the rest.
fn as_sign(word: &str) -> Option<(&'static str, &str)> {
    if let Some((_, sign)) = WORDS.iter().find(|(w, _)| *w == word) {
        return Some((sign, ""));
    }
    let (sign, _) = SIGNS.iter().find(|(s, op)| *op != Op::Has && word.starts_with(s))?;
    Some((sign, &word[sign.len()..]))
}

fn test(body: &str, columns: &[ColumnInfo]) -> Result<Test, String> {
    let Some((name, op, value)) = split(body) else { return Ok(Test::Word(body.to_lowercase())) };
    if let Some(column) = find(columns, name) {
        if value.is_empty() {
            return Err(incomplete(body));
        }
        return field(columns, column, op, value);
    }
    let near = nearest(name, columns, op == Op::Has);
    // `10.0.3.7:3306`, `::1` and `nginx:` are text to search for.
    let is_text = op == Op::Has && near.is_empty() || name.is_empty() || value.is_empty();
    if is_text || !is_name(name) {
        return Ok(Test::Word(body.to_lowercase()));
    }
    let hint = question(&near).unwrap_or("Tab lists them".to_owned());
    Err(format!("no field {name}; {hint}"))
}

fn field(columns: &[ColumnInfo], column: usize, op: Op, value: &str) -> Result<Test, String> {
    let Some(c) = columns.get(column) else { return Ok(Test::Word(value.to_lowercase())) };
    if value.starts_with(['=', '<', '>', '!', '~']) {
        return Err(format!("{}: operators are : = != > < >= <=", c.key));
    }
    let wanted = match c.unit {
        Unit::Text | Unit::Endpoint | Unit::Task | Unit::Path => None,
        Unit::Time => Some("a time is expected, as in 500us 200ms 1s 5m 2h"),
        Unit::Bytes => Some("a size is expected, as in 512 64k 10M 1G"),
        Unit::Percent => Some("a percentage is expected, as in 80"),
        Unit::Count | Unit::Number => Some("a number is expected, as in 12 or 10k"),
    };
    let Some(wanted) = wanted else {
        let lower = value.to_lowercase();
        let state = STATES.iter().find(|(s, _)| c.also == "state" && *s == lower);
        let text = state.map_or(lower.clone(), |(_, shown)| (*shown).to_owned());
        return Ok(Test::Field { column, op, text, number: None });
    };
    // `ss` writes a port with a colon in front.
    let digits = if c.unit == Unit::Count { value.trim_start_matches(':') } else { value };
    match number(digits, c.unit) {
        Some(n) => Ok(Test::Field { column, op, text: digits.to_lowercase(), number: Some(n) }),
        None => Err(format!("{} {value}: {wanted}", c.key)),
    }
}

/// Field, comparison, value: both may be empty.
fn split(word: &str) -> Option<(&str, Op, &str)> {
    let at = word.find(['>', '<', '=', '!', ':'])?;
    let (field, rest) = word.split_at(at);
    let (sign, op) = SIGNS.iter().find(|(s, _)| rest.starts_with(s))?;
    Some((field, *op, &rest[sign.len()..]))
}

/// Could it be the name of a field?
fn is_name(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic())
        && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '%'))
}

fn find(columns: &[ColumnInfo], field: &str) -> Option<usize> {
    let same = |s: &str| s.eq_ignore_ascii_case(field);
    columns.iter().position(|c| same(c.key) || same(c.also))
}

/// `10.0.0.0/8`, `10.0.0.5:443`, `[fd00::1]:443`, `*:443`.
fn net(word: &str) -> Option<Net> {
    let port = word.strip_prefix("*:").or_else(|| word.strip_prefix(':'));
    if let Some(port) = port.and_then(|p| p.parse().ok()) {
        return Some(Net { addr: None, port: Some(port) });
    }
    let whole = |addr: IpAddr| if addr.is_ipv4() { 32 } else { 128 };
    if let Ok(a) = word.parse::<SocketAddr>() {
        return Some(Net { addr: Some((a.ip(), whole(a.ip()))), port: Some(a.port()) });
    }
    let (addr, rest) = word.split_once('/').map_or((word, None), |(a, r)| (a, Some(r)));
    let addr: IpAddr = addr.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    let Some(rest) = rest else { return Some(Net { addr: Some((addr, whole(addr))), port: None }) };
    let (bits, port) = rest.split_once(':').map_or((rest, None), |(b, p)| (b, Some(p)));
    let bits = bits.parse().ok().filter(|b| *b <= whole(addr))?;
    let port = port.map(str::parse).transpose().ok()?;
    Some(Net { addr: Some((addr, bits)), port })
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

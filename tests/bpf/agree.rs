//! Whether two meters that watched the same waits saw the same.
//!
//! Their quantiles cannot be compared one by one: a mixed load has short waits and long ones
//! with little between, and where a quantile falls into that gap, a handful of waits moves it
//! over decades. What follows from "each wait differs by at most so much" and survives the gap
//! is a statement on counts: no more waits of one lie up to a limit than of the other up to
//! the stretched limit.

use stallscope::sample::bpf::Hist;
use stallscope::sample::bpf::layout::bucket_range;

/// Waits by length: from (ns), up to and without (ns), how many.
pub(crate) type Rows = Vec<(f64, f64, f64)>;

/// The buckets of one of our histograms.
pub(crate) fn rows(hist: &Hist) -> Rows {
    let range = |b: u16| bucket_range(usize::from(b));
    hist.buckets().map(|(b, n)| (range(b).0 as f64, range(b).1 as f64, n as f64)).collect()
}

/// What a tool of libbpf-tools prints: `   8 -> 15   : 123   |****|`, in microseconds.
pub(crate) fn rows_of_tool(text: &str) -> Rows {
    let row = |l: &str| {
        let (range, rest) = l.split_once(':')?;
        let (low, high) = range.split_once("->")?;
        let count = rest.split_whitespace().next()?.parse().ok()?;
        let us = |s: &str| s.trim().parse::<f64>().ok();
        Some((us(low)? * 1000.0, (us(high)? + 1.0) * 1000.0, count))
    };
    text.lines().filter_map(row).filter(|r| r.2 > 0.0).collect()
}

/// The part of such a text under the heading `what`: ` = ` and a name at the end of a line.
pub(crate) fn part_of_tool<'a>(text: &'a str, what: &str, name: &str) -> &'a str {
    let from = text.find(&format!("{what} = {name}")).map_or(text.len(), |at| at + what.len() + 2);
    let part = text.get(from..).unwrap_or_default();
    part.get(..part.find(" = ").unwrap_or(part.len())).unwrap_or_default()
}

/// How many there are.
pub(crate) fn total(rows: &Rows) -> f64 {
    rows.iter().map(|r| r.2).sum()
}

/// The smallest share of waits that must differ by more than `stretch` allows (the longest a
/// wait of that many ns may be for the other meter), however one pairs the two.
pub(crate) fn apart(a: &Rows, b: &Rows, stretch: impl Fn(f64) -> f64) -> f64 {
    let one = |a: &Rows, b: &Rows| {
        a.iter()
            .map(|&(_, limit, _)| {
                // What is surely below the limit may not exceed what may be below the other.
                let surely = a.iter().filter(|r| r.1 <= limit).map(|r| r.2).sum::<f64>();
                let maybe = b.iter().filter(|r| r.0 <= stretch(limit)).map(|r| r.2).sum::<f64>();
                surely / total(a) - maybe / total(b)
            })
            .fold(0.0, f64::max)
    };
    one(a, b).max(one(b, a))
}

#[test]
fn parts_of_what_a_tool_prints() {
    let text = "disk = loop0\t\n usecs : count\n 0 -> 1 : 0 | |\n 8 -> 15 : 7 |*|\n\ndisk = loop1\n\
                 16 -> 31 : 2 |*|\n";
    let rows = |name| rows_of_tool(part_of_tool(text, "disk", name));
    assert_eq!(rows("loop0"), [(8_000.0, 16_000.0, 7.0)]);
    assert_eq!(rows("loop1"), [(16_000.0, 32_000.0, 2.0)]);
    assert_eq!(rows("vda"), []);
    assert_eq!(total(&rows_of_tool(text)), 9.0);
}

#[test]
fn apart_counts_what_differs_too_much() {
    let at = |v: &[(f64, f64)]| v.iter().map(|&(t, n)| (t, t * 1.1, n)).collect::<Rows>();
    let wide = |t: f64| t * 1.5 + 3_000.0;
    let a = at(&[(4_000.0, 250.0), (4_000_000.0, 750.0)]);
    // 2 us later each: the same.
    assert!(apart(&a, &at(&[(2_000.0, 250.0), (3_998_000.0, 750.0)]), wide) < 1e-9);
    // Two more are short: the quartile jumps from 4 us to 4 ms, two in a thousand differ.
    let b = at(&[(4_000.0, 248.0), (4_000_000.0, 752.0)]);
    assert!((apart(&a, &b, wide) - 0.002).abs() < 1e-9);
    // All long ones are twice as long, or the short ones ten times.
    let b = at(&[(4_000.0, 250.0), (8_000_000.0, 750.0)]);
    assert!((apart(&a, &b, wide) - 0.75).abs() < 1e-9);
    let b = at(&[(40_000.0, 250.0), (4_000_000.0, 750.0)]);
    assert!((apart(&a, &b, wide) - 0.25).abs() < 1e-9);
}

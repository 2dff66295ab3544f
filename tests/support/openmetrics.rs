//! A strict reader of OpenMetrics text: what it does not like, a scraper need not like either.

use std::collections::{BTreeMap, BTreeSet};

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name of its family.
    pub family: String,
    /// Its own name.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// A page that was read.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub samples: Vec<Sample>,
    /// Type by family.
    pub types: BTreeMap<String, String>,
}

impl Metrics {
    /// The value of the sample with this name and just these labels.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: BTreeMap<String, String> =
            labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.all(name).find(|s| s.labels == wanted).map(|s| s.value)
    }
    /// All samples of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |s| s.name == name)
    }
    /// The values of a label in the samples of this name.
    pub fn values<'a>(&'a self, name: &'a str, label: &'a str) -> Vec<&'a str> {
        self.all(name).map(|s| s.labels[label].as_str()).collect()
    }
}

/// Reads a page that must be right.
#[track_caller]
pub fn read(text: &str) -> Metrics {
    try_read(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Reads a page; the first line that breaks a rule, and which.
pub fn try_read(text: &str) -> Result<Metrics, String> {
    let mut body = text.strip_suffix("# EOF\n").ok_or("does not end in # EOF")?.lines();
    let mut out = Metrics::default();
    let mut units: BTreeMap<String, String> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut series = BTreeSet::new();
    // The family under way, and those that are over.
    let (mut now, mut over) = (String::new(), BTreeSet::new());
    for line in &mut body {
        let wrong = |why: &str| format!("{why}: {line:?}");
        if line.chars().any(char::is_control) {
            return Err(wrong("control character"));
        }
        let name = if let Some(about) = line.strip_prefix("# ") {
            let mut parts = about.splitn(3, ' ');
            let (word, name) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            let rest = parts.next().ok_or_else(|| wrong("metadata without a value"))?;
            let (name, rest) = (name.to_owned(), rest.to_owned());
            if out.samples.last().is_some_and(|s| s.family == name) {
                return Err(wrong("metadata after samples"));
            }
            let again = match word {
                "TYPE" => out.types.insert(name.clone(), rest).is_some(),
                "UNIT" => units.insert(name.clone(), rest).is_some(),
                "HELP" => !helped.insert(name.clone()),
                _ => return Err(wrong("no such metadata")),
            };
            if again {
                return Err(wrong("metadata twice"));
            }
            name
        } else {
            let sample = sample(line, &out.types).map_err(|e| wrong(&e))?;
            if !series.insert((sample.name.clone(), sample.labels.clone())) {
                return Err(wrong("series twice"));
            }
            let family = sample.family.clone();
            out.samples.push(sample);
            family
        };
        if name != now {
            if !over.insert(name.clone()) {
                return Err(wrong("the family was over"));
            }
            now = name;
        }
    }
    for (family, unit) in &units {
        if !family.ends_with(&format!("_{unit}")) {
            return Err(format!("{family} does not end in its unit {unit}"));
        }
    }
    Ok(out)
}

fn sample(line: &str, types: &BTreeMap<String, String>) -> Result<Sample, String> {
    let name_end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, rest) = line.split_at(name_end);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = value.strip_prefix(' ').ok_or("no blank before the value")?;
    let value: f64 = value.parse().map_err(|_| "no number")?;
    let of = |family: &str| types.get(family).map(String::as_str);
    let family = [("_total", "counter"), ("_info", "info")]
        .into_iter()
        .find_map(|(end, kind)| {
            let family = name.strip_suffix(end)?;
            (of(family) == Some(kind)).then_some(family)
        })
        .or_else(|| (of(name) == Some("gauge")).then_some(name))
        .ok_or("no type before it that has such a sample")?;
    if of(family) == Some("info") && value != 1.0 {
        return Err("information is always 1".to_owned());
    }
    if of(family) == Some("counter") && !(value >= 0.0 && value.is_finite()) {
        return Err("no value of a counter".to_owned());
    }
    Ok(Sample { family: family.to_owned(), name: name.to_owned(), labels, value })
}

/// Labels behind `{`, and what is behind `}`.
fn labels(mut text: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut out = BTreeMap::new();
    loop {
        let (name, rest) = text.split_once("=\"").ok_or("no label")?;
        let ok = |c: char| c.is_ascii_alphabetic() || c == '_';
        if name.is_empty() || !name.chars().all(ok) {
            return Err(format!("no name of a label: {name}"));
        }
        let (mut value, mut end) = (String::new(), None);
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = Some(at);
                    break;
                }
                '\\' => value.push(match chars.next().map(|c| c.1) {
                    Some('n') => '\n',
                    Some(c @ ('\\' | '"')) => c,
                    _ => return Err("no such escape".to_owned()),
                }),
                c => value.push(c),
            }
        }
        if out.insert(name.to_owned(), value).is_some() {
            return Err(format!("label twice: {name}"));
        }
        let rest = &rest[end.ok_or("a label without end")? + 1..];
        match rest.strip_prefix(',') {
            Some(more) => text = more,
            None => return Ok((out, rest.strip_prefix('}').ok_or("no end of labels")?)),
        }
    }
}

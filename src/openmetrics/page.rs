//! A page of metrics as text: OpenMetrics 1.0, or the older text format of Prometheus. Whatever
//! goes in, each family stands together below its type, no series comes twice, none has more series
//! than the table allows, and no name of the kernel's breaks a line.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::families::{FAMILIES, Id, Kind};
use crate::text::sanitize;

/// Characters of a label's value. What is longer keeps its beginning and its end.
pub(super) const MAX_VALUE: usize = 200;

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Prometheus,
}

impl Format {
    /// Its media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The samples of one family, labels written.
#[derive(Clone, Debug, Default)]
struct Samples {
    lines: Vec<(String, f64)>,
    seen: HashSet<String>,
}

/// Samples by family.
pub(super) struct Page(Vec<Samples>);

impl Page {
    pub(super) fn new() -> Self {
        Self(vec![Samples::default(); FAMILIES.len()])
    }

    /// Adds a sample, its labels in the order of the table. What is unknown or no number is left
    /// out, and so is a series that is there already, or has no room.
    pub(super) fn add(&mut self, id: Id, labels: &[&str], value: impl Into<Option<f64>>) {
        let family = id.family();
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        let Some(value) = value.into().filter(|v| v.is_finite()) else { return };
        let Some(samples) = self.0.get_mut(id as usize) else { return };
        if samples.lines.len() >= family.most {
            return;
        }
        let mut text = String::new();
        for (i, (name, value)) in family.labels.iter().zip(labels).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{name}=\"");
            escaped(&mut text, value);
            text.push('"');
        }
        if samples.seen.insert(text.clone()) {
            samples.lines.push((text, value));
        }
    }

    /// Series that a family has so far.
    pub(super) fn count(&self, id: Id) -> usize {
        self.0.get(id as usize).map_or(0, |s| s.lines.len())
    }

    /// The text.
    pub(super) fn render(&self, format: Format) -> String {
        let mut out = String::with_capacity(64 << 10);
        for (family, samples) in FAMILIES.iter().zip(&self.0) {
            if samples.lines.is_empty() {
                continue;
            }
            let sample = family.sample();
            let (name, kind) = match (format, family.kind) {
                (Format::OpenMetrics, kind) => (family.name, kind.name()),
                // There a family has the name of its samples, and no type for information.
                (Format::Prometheus, Kind::Info) => (&*sample, Kind::Gauge.name()),
                (Format::Prometheus, kind) => (&*sample, kind.name()),
            };
            let _ = writeln!(out, "# TYPE {name} {kind}");
            if format == Format::OpenMetrics && !family.unit().is_empty() {
                let _ = writeln!(out, "# UNIT {name} {}", family.unit());
            }
            let _ = writeln!(out, "# HELP {name} {}", family.help);
            for (labels, value) in &samples.lines {
                let _ = match &**labels {
                    "" => writeln!(out, "{sample} {value}"),
                    labels => writeln!(out, "{sample}{{{labels}}} {value}"),
                };
            }
        }
        if format == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

/// A label's value: harmless, bounded, and escaped as both formats want it.
fn escaped(out: &mut String, raw: &str) {
    let text = sanitize(raw);
    let mut put = |c: char| {
        if matches!(c, '\\' | '"') {
            out.push('\\');
        }
        out.push(c);
    };
    let long = text.chars().nth(MAX_VALUE).is_some();
    if !long {
        text.chars().for_each(put);
        return;
    }
    let half = MAX_VALUE / 2;
    text.chars().take(half - 1).for_each(&mut put);
    put('…');
    let mut end: Vec<char> = text.chars().rev().take(half).collect();
    end.reverse();
    end.into_iter().for_each(put);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(samples: &[(Id, &[&str], f64)]) -> Page {
        let mut page = Page::new();
        for (id, labels, value) in samples {
            page.add(*id, labels, *value);
        }
        page
    }

    #[test]
    fn a_family_stands_together_below_its_type() {
        let p = page(&[
            (Id::DiskReads, &["vda"], 3.0),
            (Id::Build, &["1.2.3"], 1.0),
            (Id::DiskAwait, &["vda", "read"], 0.0125),
            (Id::DiskReads, &["vdb"], 4.0),
        ]);
        let help = |id: Id| id.family().help;
        let want = format!(
            "# TYPE stallscope_build info\n\
             # HELP stallscope_build {}\n\
             stallscope_build_info{{version=\"1.2.3\"}} 1\n\
             # TYPE stallscope_disk_reads counter\n\
             # HELP stallscope_disk_reads {}\n\
             stallscope_disk_reads_total{{device=\"vda\"}} 3\n\
             stallscope_disk_reads_total{{device=\"vdb\"}} 4\n\
             # TYPE stallscope_disk_await_seconds gauge\n\
             # UNIT stallscope_disk_await_seconds seconds\n\
             # HELP stallscope_disk_await_seconds {}\n\
             stallscope_disk_await_seconds{{device=\"vda\",operation=\"read\"}} 0.0125\n\
             # EOF\n",
            help(Id::Build),
            help(Id::DiskReads),
            help(Id::DiskAwait)
        );
        assert_eq!(p.render(Format::OpenMetrics), want);
        let old = p.render(Format::Prometheus);
        assert!(old.starts_with("# TYPE stallscope_build_info gauge\n"), "{old}");
        assert!(old.contains("# TYPE stallscope_disk_reads_total counter\n"), "{old}");
        assert!(!old.contains("# UNIT") && !old.contains("# EOF"), "{old}");
    }

    #[test]
    fn names_of_the_kernel_break_nothing() {
        let mut out = String::new();
        escaped(&mut out, "a\"b\\c\nd\x1b[2J\u{202e}e");
        assert_eq!(out, "a\\\"b\\\\c\u{FFFD}d\u{FFFD}[2J\u{FFFD}e");
        let long = format!("/begin{}/end", "ü".repeat(5000));
        out.clear();
        escaped(&mut out, &long);
        assert_eq!(out.chars().count(), MAX_VALUE);
        assert!(out.starts_with("/beginü") && out.contains("ü…ü") && out.ends_with("ü/end"));
    }

    #[test]
    fn what_is_unknown_comes_twice_or_has_no_room_is_left_out() {
        let mut p = Page::new();
        p.add(Id::Switches, &[], None);
        p.add(Id::Load, &["1"], f64::NAN);
        assert_eq!(p.render(Format::OpenMetrics), "# EOF\n");
        p.add(Id::DiskReads, &["a\n"], 1.0);
        p.add(Id::DiskReads, &["a\r"], 2.0);
        assert_eq!(p.count(Id::DiskReads), 1, "the same once they are harmless");
        for i in 0..1000 {
            p.add(Id::DiskReads, &[&i.to_string()], 1.0);
        }
        assert_eq!(p.count(Id::DiskReads), Id::DiskReads.family().most);
    }

    proptest::proptest! {
        /// Whatever a name is made of, its line stays one, and says the name without what is
        /// harmful in it.
        #[test]
        fn any_name_is_one_label(name: String) {
            let mut out = String::new();
            escaped(&mut out, &name);
            proptest::prop_assert!(!out.chars().any(char::is_control));
            // What a reader makes of it.
            let (mut read, mut chars) = (String::new(), out.chars());
            while let Some(c) = chars.next() {
                proptest::prop_assert!(c != '"', "{}", out);
                read.extend(if c == '\\' { chars.next() } else { Some(c) });
            }
            if name.chars().count() <= MAX_VALUE {
                proptest::prop_assert_eq!(read, sanitize(&name).into_owned());
            } else {
                proptest::prop_assert_eq!(read.chars().count(), MAX_VALUE);
            }
        }
    }
}

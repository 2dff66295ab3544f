//! Settings of the console and of rules: a TOML file in `$XDG_CONFIG_HOME/stallscope` (or
//! `~/.config/stallscope`), which need not exist. The command line goes before the file, the file
//! before the defaults.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;
use toml::Spanned;

use super::environment::Environment;
use crate::amount;
use crate::diagnose::LIMITS;
use crate::exit::Stop;
use crate::sample::rule_settings::RuleSettings;
use crate::text::sanitize;
use crate::typo::{nearest, question};
use crate::ui::{ColorChoice, GlyphChoice, MouseMode, Palette};
use crate::view::action::{Action, Key};
use crate::view::keymap::{self, Context, KEYMAP};
use crate::view::panes::{PANES, PaneId};

/// Files that a user may look for, each with what it is.
pub(crate) const FILES: [(&str, &str); 3] = [
    (
        "$XDG_CONFIG_HOME/stallscope/config.toml, ~/.config/stallscope/config.toml",
        "Settings of the console and of rules; need not exist. `stallscope config` prints those \
         that hold.",
    ),
    ("/usr/share/doc/stallscope/example.toml", "All settings with their defaults."),
    (
        "/var/lib/stallscope/stallscope-HOST-RULE-TIME.stall",
        "Recordings of incidents by the service stallscope-recorder, which nobody starts but you: \
         systemctl enable --now stallscope-recorder.",
    ),
];

/// Disks that spin whatever the kernel says.
const ROTATIONAL: &str = "rotational";

/// Letters that a typo may have wrong.
const TYPO: usize = 2;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody said otherwise.
    #[default]
    Default,
    /// The file.
    File,
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Flag => "command line",
        })
    }
}

/// A value with where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct From<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> From<T> {
    fn of(flag: Option<T>, file: Option<T>, default: T) -> Self {
        match (flag, file) {
            (Some(value), _) => Self { value, origin: Origin::Flag },
            (None, Some(value)) => Self { value, origin: Origin::File },
            (None, None) => Self { value: default, origin: Origin::Default },
        }
    }
}

/// What was said on the command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub interval: Option<Duration>,
    pub color: Option<ColorChoice>,
    pub palette: Option<Palette>,
    pub glyphs: Option<GlyphChoice>,
    pub mouse: Option<MouseMode>,
}

/// Has this user no such file? A home that may not be entered is somebody else's; a file that is seen
/// in it and may not be read is a mistake.
fn is_absent(error: ErrorKind, is_there: impl FnOnce() -> bool) -> bool {
    match error {
        ErrorKind::NotFound | ErrorKind::NotADirectory => true,
        ErrorKind::PermissionDenied => !is_there(),
        _ => false,
    }
}

fn is_there(file: Option<&Path>) -> bool {
    file.is_some_and(|f| f.symlink_metadata().is_ok())
}

/// What holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// The file, whether it exists or not; `None` without a home.
    pub file: Option<PathBuf>,
    /// Of the console.
    pub interval: From<Duration>,
    /// Colours.
    pub color: From<ColorChoice>,
    /// Which colours.
    pub palette: From<Palette>,
    /// Characters.
    pub glyphs: From<GlyphChoice>,
    /// Mouse.
    pub mouse: From<MouseMode>,
    /// Keys beside those that actions have anyway.
    pub keys: Vec<(Key, Action)>,
    /// The columns of panes, instead of their own.
    pub columns: Vec<(PaneId, Vec<&'static str>)>,
    /// Of whatever reads this host: they are recorded with it.
    pub rules: RuleSettings,
}

/// Sampling interval of the console.
const INTERVAL: Duration = Duration::from_secs(1);

/// The file, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    interval: Option<Spanned<String>>,
    color: Option<Spanned<String>>,
    theme: Option<Spanned<String>>,
    glyphs: Option<Spanned<String>>,
    mouse: Option<bool>,
    #[serde(default)]
    keys: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    columns: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    #[serde(default)]
    thresholds: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
}

/// Names of what stands at the top of the file.
const NAMES: [&str; 8] =
    ["interval", "color", "theme", "glyphs", "mouse", "keys", "columns", "thresholds"];

impl Settings {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or says what does not exist: file, line, what.
    pub(crate) fn read(flags: Flags, env: &Environment) -> anyhow::Result<Self> {
        let file = env.config_home.as_ref().map(|dir| dir.join("stallscope").join("config.toml"));
        let text = match file.as_deref().map(std::fs::read_to_string) {
            None => String::new(),
            Some(Ok(text)) => text,
            Some(Err(e)) if is_absent(e.kind(), || is_there(file.as_deref())) => String::new(),
            Some(Err(e)) => return Err(Stop::cannot(format!("{}: {e}", shown(file.as_deref())))),
        };
        let settings = Self::parse(&text, flags).map_err(|(line, why)| {
            Stop::usage(format!("{}:{line}: {why}", shown(file.as_deref())))
        })?;
        Ok(Self { file, ..settings })
    }

    /// From the text of the file.
    ///
    /// # Errors
    /// The line, and what is wrong with it.
    fn parse(text: &str, flags: Flags) -> Result<Self, (usize, String)> {
        let line = |at: usize| text.get(..at).map_or(1, |t| t.matches('\n').count() + 1);
        let file: File = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            (line(at), wrong(e.message()))
        })?;
        let at = |s: &Spanned<String>, why: String| (line(s.span().start), why);
        let interval =
            file.interval.as_ref().map(|s| amount::interval(s.get_ref()).map_err(|e| at(s, e)));
        let mut out = Self {
            file: None,
            interval: From::of(flags.interval, interval.transpose()?, INTERVAL),
            color: From::of(flags.color, one_of(file.color.as_ref(), &at)?, ColorChoice::default()),
            palette: From::of(flags.palette, one_of(file.theme.as_ref(), &at)?, Palette::default()),
            glyphs: From::of(
                flags.glyphs,
                one_of(file.glyphs.as_ref(), &at)?,
                GlyphChoice::default(),
            ),
            mouse: From::of(flags.mouse, file.mouse.map(MouseMode::from), MouseMode::Off),
            keys: Vec::new(),
            columns: Vec::new(),
            rules: RuleSettings::default(),
        };
        for (name, key) in &file.keys {
            let action = action(name.get_ref()).map_err(|e| at(name, e))?;
            let key_of = keymap::parse_key(key.get_ref());
            let parsed = key_of.ok_or_else(|| at(key, format!("no key {}", key.get_ref())))?;
            if let Some((_, other)) = out.keys.iter().find(|(k, _)| *k == parsed) {
                let other = other.name().unwrap_or_default();
                return Err(at(key, format!("the key {} is bound to {other}, too", key.get_ref())));
            }
            out.keys.push((parsed, action));
        }
        for (name, columns) in &file.columns {
            let pane = PANES.iter().find(|p| p.name() == name.get_ref()).ok_or_else(|| {
                at(name, unknown("pane", name.get_ref(), PANES.iter().map(|p| p.name())))
            })?;
            let known = pane.columns();
            let column = |c: &Spanned<String>| {
                let found = known.iter().find(|k| k.key == c.get_ref()).map(|k| k.key);
                found.ok_or_else(|| {
                    at(c, unknown("column", c.get_ref(), known.iter().map(|k| k.key)))
                })
            };
            let chosen = columns.iter().map(column).collect::<Result<_, _>>()?;
            out.columns.push((pane.id(), chosen));
        }
        for (name, value) in &file.thresholds {
            let set = set_threshold(&mut out.rules, name.get_ref(), value.get_ref());
            set.map_err(|why| at(name, why))?;
        }
        Ok(out)
    }

    /// As a file, each value with where it comes from.
    pub(crate) fn text(&self) -> String {
        let mut out = format!("# {}\n", shown(self.file.as_deref()));
        let mut line = |name: &str, value: String, origin: Origin| {
            let _ = writeln!(out, "{:<32}# {origin}", format!("{name} = {value}"));
        };
        let quoted = |name: String| format!("\"{name}\"");
        let interval = crate::view::pace::interval_text(self.interval.value);
        line("interval", quoted(interval), self.interval.origin);
        line("color", quoted(name_of(&self.color.value)), self.color.origin);
        line("theme", quoted(name_of(&self.palette.value)), self.palette.origin);
        line("glyphs", quoted(name_of(&self.glyphs.value)), self.glyphs.origin);
        line("mouse", (self.mouse.value == MouseMode::On).to_string(), self.mouse.origin);
        out.push_str("\n[keys]\n");
        let mut seen = Vec::new();
        for b in KEYMAP.iter().filter(|b| b.context == Context::Normal) {
            let Some(name) = b.action.name() else { continue };
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            let own = self.keys.iter().find(|(_, action)| *action == b.action).map(|(k, _)| *k);
            let origin = if own.is_some() { Origin::File } else { Origin::Default };
            if let Some(key) = own.or(b.keys.first().copied()) {
                let key = quoted(keymap::key_name(key));
                let _ = writeln!(out, "{:<32}# {origin}", format!("{name} = {key}"));
            }
        }
        out.push_str("\n[columns]\n");
        for p in PANES {
            let own = self.columns.iter().find(|(id, _)| *id == p.id()).map(|(_, c)| c.clone());
            let origin = if own.is_some() { Origin::File } else { Origin::Default };
            let shown = own.unwrap_or_else(|| {
                let all = p.columns().into_iter();
                all.filter(|c| c.priority != crate::view::table::HIDDEN).map(|c| c.key).collect()
            });
            let list: Vec<String> = shown.iter().map(|c| format!("\"{c}\"")).collect();
            let _ = writeln!(out, "# {origin}\n{} = [{}]", p.name(), list.join(", "));
        }
        self.thresholds(&mut out);
        out
    }
}

impl Settings {
    fn thresholds(&self, out: &mut String) {
        out.push_str("\n[thresholds]\n");
        let origin = |own: bool| if own { Origin::File } else { Origin::Default };
        let mut line = |name: &str, value: String, own: bool| {
            let _ = writeln!(out, "{:<32}# {}", format!("{name} = {value}"), origin(own));
        };
        let disks: Vec<String> = self.rules.rotational.iter().map(|d| format!("\"{d}\"")).collect();
        line(ROTATIONAL, format!("[{}]", disks.join(", ")), !disks.is_empty());
        for l in LIMITS {
            let own = self.rules.limits.get(l.rule.0);
            line(l.rule.0, own.unwrap_or(&l.warn).to_string(), own.is_some());
        }
    }
}

/// Takes over a line of `[thresholds]`.
fn set_threshold(rules: &mut RuleSettings, name: &str, value: &toml::Value) -> Result<(), String> {
    if name == ROTATIONAL {
        let names = value.as_array().map(|all| all.iter().map(toml::Value::as_str).collect());
        let names: Option<Vec<&str>> = names.flatten();
        let is_name = |n: &&str| {
            !n.is_empty() && n.chars().all(|c| c.is_ascii_graphic() && !['"', '\\'].contains(&c))
        };
        let names = names.filter(|all| all.iter().all(is_name));
        let names = names.ok_or("expected names of disks, such as [\"sdb\"]")?;
        rules.rotational = names.into_iter().map(str::to_owned).collect();
        return Ok(());
    }
    let Some(limit) = LIMITS.iter().find(|l| l.rule.0 == name) else {
        let all = LIMITS.iter().map(|l| l.rule.0).chain([ROTATIONAL]);
        return Err(unknown("threshold", name, all));
    };
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let (least, most) = limit.range;
    match number.filter(|n| (least..=most).contains(n)) {
        // Said again, and no other.
        Some(n) if n == limit.warn => Ok(()),
        Some(n) => {
            rules.limits.insert(name.to_owned(), n);
            Ok(())
        }
        None => Err(format!("{name} is {}: expected {least} to {most}", limit.of)),
    }
}

fn shown(file: Option<&Path>) -> String {
    file.map_or("no home, no file".to_owned(), |f| sanitize(&f.to_string_lossy()).into_owned())
}

/// What toml says, in one line, with the nearest name for one that does not exist.
fn wrong(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let name = first.strip_prefix("unknown field `").and_then(|r| r.split('`').next());
    match name {
        Some(name) => unknown("setting", name, NAMES),
        None => sanitize(first).into_owned(),
    }
}

fn unknown<'a>(what: &str, name: &str, all: impl IntoIterator<Item = &'a str>) -> String {
    let hint = question(&nearest(name, all, TYPO)).map_or(String::new(), |q| format!("; {q}"));
    format!("no {what} {}{hint}", sanitize(name))
}

fn name_of<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned())
}

/// A value by its name on the command line.
fn one_of<T: ValueEnum>(
    said: Option<&Spanned<String>>,
    at: &impl Fn(&Spanned<String>, String) -> (usize, String),
) -> Result<Option<T>, (usize, String)> {
    let Some(s) = said else { return Ok(None) };
    let named = T::from_str(s.get_ref(), false);
    named.map(Some).map_err(|_| {
        let all: Vec<String> = T::value_variants().iter().map(name_of).collect();
        at(s, format!("{} is none of {}", sanitize(s.get_ref()), all.join(", ")))
    })
}

fn action(name: &str) -> Result<Action, String> {
    let all = || KEYMAP.iter().filter(|b| b.context == Context::Normal).map(|b| b.action);
    let found = all().find(|a| a.name() == Some(name));
    found.ok_or_else(|| unknown("command", name, all().filter_map(Action::name)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Result<Settings, (usize, String)> {
        Settings::parse(text, Flags::default())
    }

    #[test]
    fn a_file_that_may_not_be_read_is_not_an_absent_one() {
        assert!(is_absent(ErrorKind::NotFound, || false));
        assert!(is_absent(ErrorKind::NotADirectory, || false));
        assert!(is_absent(ErrorKind::PermissionDenied, || false), "somebody else's home");
        assert!(!is_absent(ErrorKind::PermissionDenied, || true));
        assert!(!is_absent(ErrorKind::InvalidData, || true));
    }

    #[test]
    fn the_example_says_what_holds_without_a_file() {
        let example = include_str!("../../../assets/example.toml");
        let (with, without) = (parse(example).unwrap(), parse("").unwrap());
        assert_eq!(with.interval.value, without.interval.value);
        assert_eq!(with.color.value, without.color.value);
        assert_eq!(with.palette.value, without.palette.value);
        assert_eq!(with.glyphs.value, without.glyphs.value);
        assert_eq!(with.mouse.value, without.mouse.value);
        // Every key and every column that it names is what the program has anyway.
        let text = |s: &Settings| {
            let all = s.text();
            let lines = all.lines().skip(1).map(|l| l.split('#').next().unwrap().trim_end());
            lines.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(text(&with), text(&without));
        for (key, action) in &with.keys {
            let b = KEYMAP.iter().find(|b| b.action == *action).unwrap();
            assert!(b.keys.contains(key), "{action:?}");
        }
        // And nothing is left out of it.
        assert_eq!(with.columns.len(), PANES.len());
        assert!(with.rules.is_empty());
        let file: File = toml::from_str(example).unwrap();
        assert_eq!(file.thresholds.len(), LIMITS.len() + 1);
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let flags = Flags { color: Some(ColorChoice::Never), ..Flags::default() };
        let s = Settings::parse("color = \"256\"\ntheme = \"light\"\n", flags).unwrap();
        assert_eq!(s.color, From { value: ColorChoice::Never, origin: Origin::Flag });
        assert_eq!(s.palette, From { value: Palette::Light, origin: Origin::File });
        assert_eq!(s.mouse.origin, Origin::Default);
    }

    #[test]
    fn what_does_not_exist_is_told_with_its_line() {
        for (text, line, says) in [
            ("color = \"auto\"\ncolour = \"never\"\n", 2, "no setting colour; did you mean color?"),
            ("color = \"red\"\n", 1, "red is none of auto, always, never, 256"),
            ("interval = \"5ms\"\n", 1, "100ms to 60s"),
            ("mouse = 3\n", 1, "invalid type"),
            ("\n\ncolor = \n", 3, ""),
            ("[keys]\nfiltr = \"x\"\n", 2, "no command filtr; did you mean filter?"),
            ("[keys]\nfilter = \"hyper-x\"\n", 2, "no key hyper-x"),
            ("[keys]\nfilter = \"x\"\nsort = \"x\"\n", 3, "the key x is bound to filter, too"),
            ("[columns]\nsocket = []\n", 2, "no pane socket; did you mean sockets?"),
            ("[columns]\nsockets = [\"st\",\n\"rtoo\"]\n", 3, "no column rtoo; did you mean rto"),
            ("[thresholds]\nfs-ful = 3\n", 2, "no threshold fs-ful; did you mean fs-full?"),
            ("[thresholds]\n\nfs-full = 0\n", 3, "ordinary users, %: expected 0.1 to 50"),
            ("[thresholds]\nfs-full = \"3\"\n", 2, "expected 0.1 to 50"),
            ("[thresholds]\nfs-full = nan\n", 2, "expected 0.1 to 50"),
            ("[thresholds]\nrotational = \"sdb\"\n", 2, "such as [\"sdb\"]"),
            ("[thresholds]\nrotational = [\"a b\"]\n", 2, "expected names of disks"),
        ] {
            let (at, why) = parse(text).unwrap_err();
            assert_eq!(at, line, "{text}: {why}");
            assert!(why.contains(says) && !why.contains('\n'), "{text}: {why}");
        }
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let text = "theme = \"contrast\"\n[keys]\nfilter = \"^F\"\n[thresholds]\nfs-full = 12.5\n\
            mem-stall = 10\nrotational = [\"sdb\", \"vdc\"]\n";
        let s = parse(text).unwrap();
        assert!(s.text().contains("fs-full = 12.5                  # file\n"), "{}", s.text());
        assert!(s.text().contains("mem-stall = 10                  # default\n"), "{}", s.text());
        let again = parse(&s.text()).unwrap();
        assert_eq!(again.palette.value, Palette::Contrast);
        assert!(again.keys.contains(&(Key::Ctrl('f'), Action::Filter)));
        assert_eq!(again.rules.rotational, ["sdb", "vdc"]);
        assert_eq!(
            again.rules.limits.into_iter().collect::<Vec<_>>(),
            [("fs-full".to_owned(), 12.5)]
        );
    }

    proptest::proptest! {
        #[test]
        fn any_file_is_read_or_refused(text in "(?s).{0,200}") {
            let _ = parse(&text);
        }
    }
}

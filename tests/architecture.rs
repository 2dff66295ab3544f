//! Layer rules that the compiler does not know: who may use whom, who may touch files,
//! clocks and the terminal, how long a file may be, what may lie at the top of the tree.
//!
//! A purely textual scan of `src/`: comments, string literals and test code are cut out first.
//! When a rule is in the way, change the table here in the same commit and say why.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest part of a file that is not test code, in lines. Aim at 400.
const MAX_LINES: usize = 600;

/// What may lie at the top of the tree; `true` for what must.
const TOP: &[(&str, bool)] = &[
    // The command that builds the static program.
    (".cargo", true),
    (".ci", true),
    (".clippy.toml", true),
    (".gitignore", true),
    (".rustfmt.toml", true),
    ("CHANGELOG.md", false),
    ("Cargo.lock", true),
    ("Cargo.toml", true),
    ("LICENSE-APACHE", true),
    ("LICENSE-MIT", true),
    ("README.md", false),
    ("assets", false),
    ("ebpf", false),
    ("src", true),
    ("tests", true),
];

/// Mapping memory of the kernel, handling signals and any call of C are unsafe by nature: one
/// file each.
const UNSAFE: &[&str] = &["allocator.rs", "collect/bpf/maps.rs", "signals.rs"];

/// Who may use whom, lowest first: a layer, which is the first part of a module's path, and those
/// before it in this list, or parts of them, whose items it may name.
const LAYERS: &[(&str, &str)] = &[
    ("allocator", ""),
    ("rights", ""),
    ("exit", ""),
    ("text", ""),
    ("amount", ""),
    ("typo", ""),
    ("collectors", ""),
    ("sample", "collectors"),
    ("clock", "sample::time"),
    ("signals", "sample::time clock"),
    ("time_spec", "sample::time"),
    ("parse", "sample"),
    ("metrics", "sample"),
    ("diagnose", "sample metrics text"),
    // Decides by findings alone; who acts on it is a command.
    ("incident", "sample diagnose"),
    ("recording", "amount sample text clock rights"),
    // What a timeline shows of a moment is the recording's type.
    ("analysis", "sample metrics diagnose recording::TickSummary recording::ActiveFinding"),
    ("paste", "sample parse text"),
    // Whoever takes in ticks does it by this, wherever they come from.
    ("session", "sample metrics analysis recording"),
    ("playback", "sample metrics diagnose analysis recording rights session"),
    // The timeline says what there is beyond memory; it reads nothing.
    ("view", "amount sample metrics diagnose analysis playback::timeline time_spec text typo"),
    // Shows where work waits and which sockets are stuck as the console does.
    ("openmetrics", "sample metrics diagnose analysis view text"),
    // `paste::understood` is what it says of a paste, `recording::tools` what is in a file. A table has
    // the figures of the screen, in a page with its units: those of `view` are by the same functions.
    (
        "report",
        "sample metrics diagnose analysis paste::understood recording::tools recording::Event rights \
         text view::context view::panes view::state view::table view::units view::vitals",
    ),
    // `waits::class`: a collector that looks at every thread keeps only those that are not idle, by
    // the same tables that the figures are made with.
    ("collect", "sample collectors parse clock rights metrics::waits::class"),
    ("source", "sample parse collect clock rights allocator"),
    // `clock` paces frames on slow links, `report::save` writes what `w` asks for.
    (
        "ui",
        "sample metrics diagnose analysis view source recording playback session report::save clock \
         rights signals text",
    ),
    // Explains what other layers say of themselves: keys, rules, columns, metrics, exit codes.
    ("help", "diagnose exit openmetrics report::rules report::table view"),
    (
        "commands",
        "amount sample metrics diagnose incident analysis view openmetrics report collect source \
         recording playback session paste ui help exit clock time_spec rights signals text typo",
    ),
    ("main", "commands exit text allocator"),
    ("lib", ""),
];

/// Layers that may open files, sockets, the environment.
const IO: &[&str] = &["rights", "recording", "report", "collect", "source", "commands", "main"];

/// Files that may what their layer may not: the file, what it is let through with, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("ui/guard.rs", "rustix::fs", "opens the terminal once more, for us alone"),
    ("ui/terminal.rs", "std::fs", "writes to the terminal's own descriptor"),
    ("ui/terminal.rs", "fs::File", "writes to the terminal's own descriptor"),
];

/// Pure layers: a function of ticks, nothing else. Not even the names of clock types.
const PURE: &[&str] = &[
    "text",
    "sample",
    "time_spec",
    "parse",
    "metrics",
    "diagnose",
    "incident",
    "analysis",
    "view",
    "openmetrics",
];

const IO_WORDS: &[&str] = &[
    "std::fs",
    "std::env",
    "fs::File",
    "File::open",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "rustix::fs",
    "rustix::net",
    "netlink_sys",
    "process::Command",
];

/// What only some layers may name: who, what, and what is said of the others.
type Ban = (fn(&str) -> bool, &'static [&'static str], &'static str);
const BANS: &[Ban] = &[
    (|l| IO.contains(&l), IO_WORDS, "no files, sockets or environment here"),
    (
        |l| l == "clock",
        &["Instant::now", "SystemTime::now", "clock_gettime", "Timestamp::now", "Zoned::now"],
        "only clock.rs reads clocks",
    ),
    (|l| !PURE.contains(&l), &["Instant", "SystemTime", "tokio"], "the layer is pure"),
    (|l| l == "ui", &["ratatui", "crossterm"], "only ui/ knows the terminal"),
    (
        |l| l == "main",
        &["println!", "eprintln!", "print!", "eprint!", "dbg!", "todo!", "unimplemented!"],
        "not in a library",
    ),
];

/// A source file, cut for scanning.
struct Source {
    /// Path below `src`, such as `metrics/disks/caps.rs`.
    path: String,
    /// Module path, such as `["metrics", "disks", "caps"]`.
    module: Vec<String>,
    /// Without comments, literals and test code.
    code: String,
    /// Its first line, raw.
    head: String,
    /// Lines that are not test code.
    lines: usize,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let code = cut_tests(&cut_comments_and_literals(text));
        // Cutting keeps newlines outside of test code, so the count is that of real lines.
        let lines = code.lines().count();
        let stem = path.trim_end_matches(".rs");
        let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
        if module.len() > 1 && module.last().is_some_and(|m| m == "mod") {
            module.pop();
        }
        let head = text.lines().next().unwrap_or("").to_owned();
        Self { path: path.to_owned(), module, code, head, lines }
    }

    fn layer(&self) -> &str {
        &self.module[0]
    }

    /// Every path of this crate that the code names, such as `sample::time::MonoNs`.
    fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        for start in ["crate::", "super::", "stallscope::"] {
            for (at, _) in self.code.match_indices(start) {
                let before = self.code[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                out.extend(expand(&self.code[at..]).iter().map(|p| self.absolute(p)));
            }
        }
        out
    }

    /// `crate::a::b` or `super::b` as a path from the crate's root.
    fn absolute(&self, path: &str) -> String {
        let mut parts: Vec<&str> = path.split("::").collect();
        let first = parts.remove(0);
        if first == "crate" || first == "stallscope" {
            return parts.join("::");
        }
        let mut base: Vec<&str> = self.module.iter().map(String::as_str).collect();
        base.pop();
        while parts.first() == Some(&"super") {
            parts.remove(0);
            base.pop();
        }
        base.extend(parts);
        base.join("::")
    }
}

/// `crate::{a, b::{c, d}}` becomes `crate::a`, `crate::b::c`, `crate::b::d`.
fn expand(text: &str) -> Vec<String> {
    let end =
        text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let (prefix, rest) = (&text[..end], &text[end..]);
    if !(prefix.ends_with("::") && rest.starts_with('{')) {
        return vec![prefix.trim_end_matches(':').to_owned()];
    }
    let mut out = Vec::new();
    let mut depth = 0;
    let mut from = 1;
    for (i, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (c == ',' && depth == 1) || depth == 0 {
            let item = rest[from..i].trim();
            if !item.is_empty() {
                out.extend(expand(&format!("{prefix}{item}")));
            }
            from = i + 1;
        }
        if depth == 0 {
            break;
        }
    }
    out
}

/// Takes out comments and the inside of string and char literals; newlines stay.
fn cut_comments_and_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (len, instead) = comment_or_literal(rest, ends_in_word(&out));
        if len == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.push_str(instead);
            out.extend(rest[..len].matches('\n'));
            rest = &rest[len..];
        }
    }
    out
}

/// Length of the comment or literal that `text` begins with, 0 for none, and what stands for it.
fn comment_or_literal(text: &str, in_word: bool) -> (usize, &'static str) {
    let until = |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |i| from + i);
    if text.starts_with("//") {
        return (until(2, "\n"), "");
    }
    if text.starts_with("/*") {
        return ((until(2, "*/") + 2).min(text.len()), "");
    }
    let raw = text.strip_prefix('r').filter(|_| !in_word).map(|t| t.trim_start_matches('#'));
    if let Some(t) = raw.filter(|t| t.starts_with('"')) {
        let hashes = text.len() - t.len() - 1;
        let close = format!("\"{}", "#".repeat(hashes));
        return ((until(hashes + 2, &close) + close.len()).min(text.len()), "\"\"");
    }
    let quote = text.chars().next();
    // A lifetime has no closing quote two characters on.
    let is_char = || text.starts_with("'\\") || text.chars().nth(2) == Some('\'');
    if !(quote == Some('"') || quote == Some('\'') && is_char()) {
        return (0, "");
    }
    let mut escaped = false;
    let close = text.char_indices().skip(1).find(|(_, c)| {
        let ends = !escaped && Some(*c) == quote;
        escaped = !escaped && *c == '\\';
        ends
    });
    (close.map_or(text.len(), |(i, _)| i + 1), if quote == Some('"') { "\"\"" } else { "' '" })
}

fn ends_in_word(s: &str) -> bool {
    s.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// Takes out every item under `#[cfg(test)]`.
fn cut_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        out.push_str(&rest[..at]);
        let item = &rest[at + MARK.len()..];
        let mut depth = 0_usize;
        let mut end = item.len();
        for (i, c) in item.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && (c == '}' || c == ';') {
                end = i + 1;
                break;
            }
        }
        rest = &item[end..];
    }
    out + rest
}

/// What is wrong with a file.
fn complaints(s: &Source) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |what: String| {
        let known = |e: &&(&str, &str, &str)| e.0 == s.path && what.contains(e.1);
        if !EXCEPTIONS.iter().any(|e| known(&e)) {
            out.push(format!("src/{}: {what}", s.path));
        }
    };
    if !s.head.starts_with("//!") {
        say("does not begin with a `//!` head that says what it owns".into());
    }
    if s.lines > MAX_LINES {
        say(format!("{} lines of code, at most {MAX_LINES}: make it a folder", s.lines));
    }
    let layer = s.layer();
    let Some((_, uses)) = LAYERS.iter().find(|l| l.0 == layer) else {
        say(format!("`{layer}` is no layer: give it a row in LAYERS"));
        return out;
    };
    for path in s.paths() {
        let under = |p: &str| path == p || path.starts_with(&format!("{p}::"));
        if !path.is_empty() && !under(layer) && !uses.split_whitespace().any(under) {
            say(format!("`{layer}` may not use `{path}`"));
        }
    }
    for (_, words, why) in BANS.iter().filter(|(may, _, _)| !may(layer)) {
        for word in words.iter().filter(|w| has_word(&s.code, w)) {
            say(format!("{why}: {word}"));
        }
    }
    if has_word(&s.code, "unsafe") && !UNSAFE.contains(&s.path.as_str()) {
        say("unsafe code".into());
    }
    out
}

/// `word` stands in `code`, not inside a longer name.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let joins = |c: char| c.is_alphanumeric() || c == '_';
        !code[..at].chars().next_back().is_some_and(joins)
            && !code[at + word.len()..].chars().next().is_some_and(joins)
    })
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// `src/x/tests.rs` and `src/x/tests/*.rs` are test code: their parent says `#[cfg(test)]`.
fn is_test_code(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

#[test]
fn layers_are_kept() {
    let src = root().join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    files.sort();
    assert!(files.len() > 20, "the scan found {} files", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let path = file.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        if is_test_code(&path) {
            if !text.starts_with("//!") {
                wrong.push(format!("src/{path}: does not begin with a `//!` head"));
            }
            continue;
        }
        wrong.extend(complaints(&Source::new(&path, &text)));
    }
    for (i, (layer, uses)) in LAYERS.iter().enumerate() {
        let lower = |u: &&str| LAYERS[..i].iter().any(|l| u.split("::").next() == Some(l.0));
        wrong.extend(
            uses.split_whitespace()
                .filter(|u| !lower(u))
                .map(|u| format!("`{u}` is not below `{layer}`: LAYERS has the lowest first")),
        );
    }
    for (file, _, _) in EXCEPTIONS {
        if !src.join(file).exists() {
            wrong.push(format!("src/{file} is gone: take it out of EXCEPTIONS"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The parts of a recording, each of which knows only those before it.
const RECORDING: &[&str] = &["codec", "file", "tools", "recorder"];

/// Who imports whom below `src/recording`, by module path. Whoever imports from a folder imports
/// all of its files; a folder and what is in it are one.
fn imports(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeSet<String> = sources.iter().map(|s| s.module.join("::")).collect();
    let under = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}::"));
    let mut out = BTreeMap::new();
    for s in sources {
        let me = s.module.join("::");
        let of = |path: &String| names.iter().filter(|n| under(path, n)).max_by_key(|n| n.len());
        let paths = s.paths();
        let found = paths.iter().filter_map(of).filter(|n| !under(n, &me) && !under(&me, n));
        let all = found.flat_map(|n| names.iter().filter(|m| under(m, n)).cloned()).collect();
        out.insert(me, all);
    }
    out
}

/// Those that import in a circle, and who imports them.
fn circles(mut all: BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let free = |all: &BTreeMap<String, BTreeSet<String>>| {
        all.iter().find(|(_, to)| !to.iter().any(|t| all.contains_key(t))).map(|(n, _)| n.clone())
    };
    while let Some(name) = free(&all) {
        all.remove(&name);
    }
    all.into_keys().collect()
}

#[test]
fn a_recording_has_no_circle_of_imports() {
    let src = root().join("src");
    let mut files = Vec::new();
    sources(&src.join("recording"), &mut files);
    let read = |f: &PathBuf| {
        let path = f.strip_prefix(&src).unwrap().to_str().unwrap();
        (!is_test_code(path)).then(|| Source::new(path, &fs::read_to_string(f).unwrap()))
    };
    let all = imports(&files.iter().filter_map(read).collect::<Vec<_>>());
    assert_eq!(circles(all.clone()), BTreeSet::new());
    let place = |m: &str| RECORDING.iter().position(|p| Some(*p) == m.split("::").nth(1));
    for (me, them) in &all {
        for other in them {
            assert!(place(other) <= place(me), "{me} imports {other}, which is above it");
        }
    }
    let edges = [("a", vec!["b"]), ("b", vec!["c", "d"]), ("c", vec![]), ("d", vec!["a"])];
    let edges = edges.map(|(n, to)| (n.to_owned(), to.into_iter().map(str::to_owned).collect()));
    let found = circles(BTreeMap::from(edges));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a", "b", "d"], "the checker sees");
}

#[test]
fn the_top_of_the_tree_is_tidy() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Not part of the tree: git's own and what is built.
        if name != ".git" && name != "target" && !TOP.iter().any(|t| t.0 == name) {
            wrong.push(format!("{name} has no place at the top of the tree"));
        }
    }
    for (name, _) in TOP.iter().filter(|t| t.1) {
        if !root().join(name).exists() {
            wrong.push(format!("{name} is missing"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A checker that sees nothing would pass for ever.
#[test]
fn the_checker_sees() {
    let about = |path: &str, code: &str| complaints(&Source::new(path, code)).join("\n");
    for (path, code, want) in [
        ("metrics/x.rs", "//! m\nuse crate::view::Vm;", "may not use `view::Vm`"),
        ("metrics/x.rs", "//! m\nuse crate::{sample::a, ui::{b, c}};", "may not use `ui::c`"),
        ("metrics/mod.rs", "//! m\nuse super::source::Feed;", "may not use `source::Feed`"),
        ("metrics/a/b.rs", "//! m\nuse super::super::super::report::x;", "may not use `report::x`"),
        ("metrics/x.rs", "//! m\nuse crate::collect::HostFs;", "not use `collect::HostFs`"),
        ("diagnose/x.rs", "//! m\nfn f() { std::fs::read(p); }", "std::fs"),
        ("view/x.rs", "//! m\nfn f(now: Instant) {}", "is pure: Instant"),
        ("collect/x.rs", "//! m\nfn f() { Instant::now(); }", "only clock.rs"),
        ("report/x.rs", "//! m\nuse ratatui::Frame;", "only ui/ knows the terminal: ratatui"),
        ("ui/x.rs", "//! m\nfn f() { unsafe { g() } }", "unsafe code"),
        ("metrics/x.rs", "use std::fmt;", "`//!` head"),
        ("newfolder/x.rs", "//! m", "no layer"),
        ("report/x.rs", "//! m\nfn f() { println!(\"x\") }", "println!"),
    ] {
        assert!(about(path, code).contains(want), "{path}: {code}: got {:?}", about(path, code));
    }
    let long = format!("//! m\n{}", "fn f() {}\n".repeat(MAX_LINES));
    assert!(about("metrics/x.rs", &long).contains("lines of code"));
    for (path, code) in [
        ("metrics/x.rs", "//! m\n// use crate::ui::X; unsafe\nuse crate::sample::time::MonoNs;"),
        ("metrics/x.rs", "//! m\nconst S: &str = \"crate::ui unsafe \\\" std::fs\";"),
        ("metrics/x.rs", "//! m\nconst S: &str = r#\"Instant \" unsafe\"#;"),
        (
            "metrics/x.rs",
            "//! m\n#[cfg(test)]\nmod tests {\n use crate::clock; fn f() { std::fs::x }\n}",
        ),
        ("metrics/a/b.rs", "//! m\nuse super::c; use super::super::time::MonoNs;"),
        ("metrics/x.rs", "//! m\nfn f<'a>(x: &'a str, c: char) { c == '\"'; c == '\\''; }"),
        ("metrics/x.rs", "//! m\nuse crate::sample::disks::DiskRow; use std::net::IpAddr;"),
    ] {
        assert_eq!(about(path, code), "", "{path}: {code}");
    }
}

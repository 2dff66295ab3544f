//! `stallscope report`: one page, and Markdown, about a recording.

mod errors;
mod markup;

use std::process::Output;
use std::sync::Arc;

use stallscope::diagnose::RULES;
use stallscope::sample::time::WallNs;
use stallscope::text::is_plain;

use self::markup::{Page, read};
use crate::support::files::{DEMO, Dir};
use crate::support::long::long;
use crate::support::program::{fed, json, run, stderr, stdout};
use crate::support::recordings::recording;
use crate::support::script::Script;

/// Elements of which a page may be made.
const ELEMENTS: &str = "html head meta title style body main header section article h1 h2 h3 h4 p \
                        b span a div ul li dl dt dd table thead tbody tr th td pre code details \
                        summary figure figcaption svg rect line path text";

/// Runs it into standard output; how it ended, and the text.
#[track_caller]
fn printed(file: &str, more: &[&str]) -> (Option<i32>, String) {
    let o = run([&["report", file, "-o", "-"], more].concat());
    assert!(!stderr(&o).contains("panicked"), "{}", stderr(&o));
    (o.status.code(), stdout(&o))
}

/// The page of a recording: well-formed, with nothing in it that runs, loads or leads elsewhere.
#[track_caller]
fn page(file: &str, more: &[&str]) -> (String, Page) {
    let html = printed(file, more).1;
    let page = read(&html);
    assert!(html.chars().all(|c| is_plain(c) || c == '\n'), "a character that is obeyed");
    for e in &page.elements {
        assert!(ELEMENTS.split_whitespace().any(|k| k == e.name), "{e:?}");
        for (key, value) in &e.attributes {
            assert!(!key.starts_with("on") && key != "src" && key != "style", "{e:?}");
            assert!(key != "href" || value.starts_with('#'), "{e:?}");
        }
    }
    // What is linked to is there, and once.
    let all = |key: &str| -> Vec<String> {
        let of = page.elements.iter().flat_map(|e| &e.attributes);
        of.filter(|(k, _)| k == key).map(|(_, v)| v.clone()).collect()
    };
    let mut ids = all("id");
    for link in all("href") {
        assert!(ids.contains(&link[1..].to_owned()), "{link} leads nowhere");
    }
    let n = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), n, "an id twice");
    (html, page)
}

/// Markdown in which each row of a table has as many cells as its head, and nothing is HTML.
#[track_caller]
fn ticket(file: &str, more: &[&str]) -> String {
    let text = printed(file, &[&["--format", "md"], more].concat()).1;
    assert!(text.chars().all(|c| is_plain(c) || c == '\n'), "a character that is obeyed");
    let (mut fence, mut cells) = (None::<String>, None);
    for line in text.lines() {
        let ticks: String = line.chars().take_while(|c| *c == '`').collect();
        match &fence {
            Some(f) if line == f => fence = None,
            Some(_) => continue,
            None if ticks.len() >= 3 => fence = Some(ticks),
            None => {}
        }
        assert!(fence.is_some() || !line.contains('<'), "HTML: {line}");
        let n = line.replace(r"\\", "").replace(r"\|", "").matches('|').count();
        let is_row = line.starts_with('|');
        assert!(!is_row || cells.is_none_or(|c| c == n), "another number of cells: {line}");
        cells = is_row.then_some(n);
    }
    assert_eq!(fence, None, "a command that does not end");
    text
}

fn file(dir: &Dir, name: &str, script: &Script, ticks: u64) -> String {
    let path = dir.with(name, recording(script, ticks, true).0);
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_demo_as_a_ticket_and_as_a_page() {
    insta::assert_snapshot!("demo-md", ticket(DEMO, &[]));
    let (html, page) = page(DEMO, &[]);
    insta::assert_snapshot!("demo-text", page.text);
    assert!(html.len() < 200_000, "{} bytes", html.len());
    // Each has a bar on the timeline and its evidence over time.
    let of = |name: &str, class: &str| {
        let has = |e: &&markup::Element| {
            e.name == name && e.attributes.iter().any(|(k, v)| k == "class" && v == class)
        };
        page.elements.iter().filter(has).count()
    };
    let bars: usize = ["crit", "warn", "info"].map(|s| of("rect", s)).iter().sum();
    assert_eq!((bars, of("rect", "hole")), (5, 0));
    assert!(of("path", "line") >= 12, "{} plots", of("path", "line"));
    assert!(of("line", "limit") >= 4, "{} thresholds", of("line", "limit"));
}

/// The same findings in the same order, with every number and every word.
#[test]
fn a_page_says_what_check_says() {
    let o = run(["check", DEMO, "--format", "json"]);
    let (report, code) = (json(&o), o.status.code());
    let (ended, html) = printed(DEMO, &[]);
    assert_eq!(ended, code, "it exits as check does");
    let text = read(&html).text;
    let md = ticket(DEMO, &[]);
    let plain = |t: &str| t.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = plain(&text.replace('\n', " "));
    let words = |v: &serde_json::Value| plain(v.as_str().unwrap());
    let mut from = text.find("Findings").unwrap();
    for f in report["findings"].as_array().unwrap() {
        let summary = format!("{} {}", words(&f["rule"]), words(&f["summary"]));
        from += text[from..].find(&summary).unwrap_or_else(|| panic!("{summary}"));
        let part = &text[from..];
        let lists = ["evidence", "ruled_out", "by"].map(|k| f[k].as_array().unwrap());
        for e in lists[0] {
            assert!(part.contains(&words(&e["text"])), "{e}");
        }
        for r in lists[1] {
            assert!(part.contains(&format!("{}: {}", words(&r["rule"]), words(&r["because"]))));
        }
        for c in lists[2] {
            assert!(part.contains(&words(&c["text"])), "{c}");
        }
        for n in ["next", "missing"].iter().flat_map(|k| f[*k].as_array().unwrap()) {
            assert!(part.contains(&words(n)), "{n}");
        }
        let since = f["first_seen"].as_str().unwrap();
        assert!(part.contains(&since[11..]), "{since}");
        for n in f["next"].as_array().unwrap() {
            assert!(md.contains(&format!("\n{}\n", n.as_str().unwrap())), "{n}");
        }
    }
    let ticks = report["ticks"].to_string();
    assert!(text.contains(&format!("Ticks | {ticks} ")), "{ticks}");
    for s in report["coverage"].as_array().unwrap() {
        assert!(text.contains(&words(&s["signal"])), "{s}");
    }
}

#[test]
fn the_policy_names_the_style_and_nothing_else() {
    let (html, page) = page(DEMO, &[]);
    let policy = page.elements.iter().find_map(|e| {
        let has = |k: &str, v: &str| e.attributes.iter().any(|a| a.0 == k && a.1 == v);
        has("http-equiv", "Content-Security-Policy").then(|| e.attributes[1].1.clone())
    });
    let style = html.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    let dir = Dir::new();
    let file = dir.with("style", style);
    let made = std::process::Command::new("sha256sum").arg(&file).output();
    let Ok(Output { stdout, .. }) = made else {
        crate::support::skip("no sha256sum");
        return;
    };
    let hex = String::from_utf8(stdout).unwrap();
    let digest: Vec<u8> =
        (0..32).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    let want = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        base64(&digest)
    );
    assert_eq!(policy.as_deref(), Some(want.as_str()), "src/report/page/page.css.sha256");
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let n = three.iter().fold(0_u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let digit = DIGITS[(n >> (18 - 6 * i) & 63) as usize] as char;
            out.push(if i <= three.len() { digit } else { '=' });
        }
    }
    out
}

#[test]
fn a_healthy_box_is_said_to_be_one_as_far_as_it_was_seen() {
    let dir = Dir::new();
    let box_ = file(&dir, "calm.stall", &Script::healthy().without_bpf("not permitted"), 30);
    let (code, text) = printed(&box_, &["--format", "md"]);
    assert_eq!(code, Some(0));
    let verdict = json(&run(["check", &box_, "--format", "json"]))["verdict"].clone();
    let verdict = verdict.as_str().unwrap();
    assert!(verdict.starts_with("no findings in what is readable: "), "{verdict}");
    let said = format!("**Nothing was found.** N{}.", &verdict[1..]);
    assert!(text.contains(&said), "{said}\n{text}");
    assert!(text.contains("\n## Findings\n\nNone.\n") && text.contains("### Not seen"), "{text}");
    assert!(text.contains("What was not seen is listed below."), "{text}");
    assert!(text.contains("## The busiest moment: "), "{text}");
    assert!(!text.contains("What the rules mean"), "{text}");
    let (_, page) = page(&box_, &[]);
    assert!(
        page.text.contains("Nothing was found. No findings in what is readable"),
        "{}",
        page.text
    );
}

/// Names of processes, disks and the host that are HTML, Markdown, SVG and escapes at once.
const EVIL: &str =
    "\"'><script>alert(1)</script></title></style>\u{1b}[2J\u{202e}`|*_[x](http://y)@all\n# x";

#[test]
fn hostile_names_are_text() {
    let dir = Dir::new();
    let change = |t: &mut stallscope::sample::tick::Tick, _| {
        for h in &mut t.health {
            for s in &mut h.signals {
                s.signal = EVIL.to_owned().into();
                s.source = EVIL.to_owned().into();
            }
        }
    };
    let script = Script { name: EVIL, change, ..Script::three_faults().with_bpf() };
    let mut host = script.host();
    host.hostname = EVIL.to_owned();
    host.kernel = EVIL.to_owned();
    host.tool = EVIL.to_owned();
    let ticks: Vec<_> = (0..60).map(|n| Arc::new(script.tick(n))).collect();
    let bytes = crate::support::long::record(&host, &ticks).bytes;
    let evil = dir.with("<img src=x>&.stall", bytes);
    let (html, page) = page(evil.to_str().unwrap(), &[]);
    assert!(page.text.contains("<script>alert(1)</script>"), "it is shown as text");
    assert!(page.text.contains("<img src=x>&.stall"), "so is the file's name");
    assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    let md = ticket(evil.to_str().unwrap(), &[]);
    assert!(md.contains("&lt;script&gt;") && !md.contains("http://y"), "{md}");
}

/// A file may have any clock: the page is made, and no place on it is outside.
#[test]
fn no_clock_is_too_far() {
    let dir = Dir::new();
    let script = Script::three_faults();
    let ticks: Vec<_> = (0..30)
        .map(|n| {
            let mut t = script.tick(n);
            t.wall = WallNs([i64::MIN, i64::MAX, 0][n as usize % 3]);
            Arc::new(t)
        })
        .collect();
    let bytes = crate::support::long::record(&script.host(), &ticks).bytes;
    let path = dir.with("clock.stall", bytes);
    let (_, page) = page(path.to_str().unwrap(), &[]);
    ticket(path.to_str().unwrap(), &[]);
    for (key, value) in page.elements.iter().flat_map(|e| &e.attributes) {
        if let Some(n) = value.strip_suffix('%').filter(|_| matches!(&**key, "x" | "x1" | "width"))
        {
            assert!((0.0..=100.0).contains(&n.parse::<f64>().unwrap()), "{key}={value}");
        }
    }
}

/// Live, and from a pipe.
#[test]
fn what_is_watched_is_a_page_too() {
    let dir = Dir::new();
    let out = dir.file("now.html");
    let path = out.to_str().unwrap();
    let args =
        ["report", "--duration", "1s", "--netns", "self", "--no-bpf", "--redact", "-o", path];
    let o = run(args);
    assert!(matches!(o.status.code(), Some(0 | 1)), "{}", stderr(&o));
    let text = read(&std::fs::read_to_string(&out).unwrap()).text;
    assert!(
        text.starts_with("Incident report: host-1, ") && text.contains("watched live"),
        "{text}"
    );
    assert!(text.contains("eBPF left out (--no-bpf)"), "{text}");
    let piped = fed(&["report", "-", "-o", "-"], &std::fs::read(DEMO).unwrap());
    let text = read(&stdout(&piped)).text;
    assert_eq!(text.replace("a recording", "demo.stall"), page(DEMO, &[]).1.text);
}

/// Every rule that ever fired is explained, and every finding is well-formed.
#[test]
fn every_rule_on_one_page() {
    let dir = Dir::new();
    let file = dir.with("long.stall", &long().0.bytes);
    let file = file.to_str().unwrap();
    let report = json(&run(["check", file, "--format", "json"]));
    let mut fired: Vec<String> = ["findings", "annotations"]
        .iter()
        .flat_map(|k| report[*k].as_array().unwrap())
        .map(|f| f["rule"].as_str().unwrap().to_owned())
        .collect();
    fired.sort();
    fired.dedup();
    assert!(fired.len() > RULES.len() / 2, "{} rules fired", fired.len());
    let (html, page) = page(file, &[]);
    assert!(html.len() < 5_000_000, "{} bytes", html.len());
    let md = ticket(file, &[]);
    for rule in &fired {
        let id = format!("rule-{rule}");
        let has = |e: &markup::Element| e.attributes.iter().any(|(k, v)| k == "id" && *v == id);
        assert!(page.elements.iter().any(has), "{rule} is not explained");
        let title = RULES.iter().find(|r| r.id().0 == rule).unwrap().doc.title;
        assert!(page.text.contains(&format!("{rule}: {title}")), "{rule}");
        assert!(md.contains(&format!("\n### {rule}: ")), "{rule}");
    }
}

#[test]
fn nothing_that_identifies_the_host_is_left() {
    let dir = Dir::new();
    let script = Script { unix: 3, ..Script::three_faults().with_bpf() };
    let own = file(&dir, "acme-db7.stall", &script, 60);
    let names = ["db7", "java", "mysqld", "nginx", "10.0.3.", "acme", "Z here"];
    let (_, shown) = page(&own, &[]);
    for name in ["db7", "java", "10.0.3.7", "acme-db7.stall", "Z here"] {
        assert!(shown.text.contains(name), "{name} is not there in the first place");
    }
    let is_word = |text: &str, name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let around = [text[..at].chars().next_back(), text[at + name.len()..].chars().next()];
            name.ends_with('.') || !around.iter().flatten().any(char::is_ascii_alphanumeric)
        })
    };
    let (html, page) = page(&own, &["--redact"]);
    let md = ticket(&own, &["--redact"]);
    for name in names {
        for text in [&page.text, &md] {
            // What a rule means may name a program that everybody knows.
            let text = text.split("What the rules mean").next().unwrap();
            assert!(!is_word(text, name), "{name} in {text}");
        }
    }
    assert!(html.contains("host-1") && page.text.contains("proc-1"), "{}", page.text);
    assert!(page.text.contains("mark 1"), "{}", page.text);
    // The same findings of the same rules.
    let rules = |p: &Page| -> Vec<String> {
        let heads = p.elements.iter().filter(|e| e.name == "details");
        let ids = heads.flat_map(|e| &e.attributes).filter(|a| a.0 == "id");
        ids.map(|a| a.1.clone()).collect()
    };
    assert_eq!(rules(&page), rules(&shown));
}

/// What was before is known, but not told.
#[test]
fn a_part_has_the_findings_of_that_time() {
    let whole = ticket(DEMO, &[]);
    let part = ticket(DEMO, &["--from", "09:43:08", "--to", "09:43:12"]);
    // The disk was calm for long by then; the sockets began to hang a minute before.
    assert!(whole.contains("disk-capped-cloud") && !part.contains("disk-capped-cloud"), "{part}");
    assert!(part.contains("since 09:41:51Z"), "{part}");
    // 09:43:08 to 09:43:12, both included.
    assert!(part.contains("| Ticks | 5 |") && part.contains("| Length | 4 s |"), "{part}");
    assert!(!part.contains("of observation"), "rules had what was before: {part}");
    let at_the_end = printed(DEMO, &["--from", "-10s", "--format", "md"]).1;
    assert!(at_the_end.contains("| To | 2026-11-26 09:43:18Z |"), "{at_the_end}");
}

/// Ticks that are missing are seen as such.
#[test]
fn gaps_are_marked() {
    let dir = Dir::new();
    let script = Script::three_faults();
    let ticks: Vec<_> =
        (0..60).filter(|n| !(20..27).contains(n)).map(|n| Arc::new(script.tick(n))).collect();
    let bytes = crate::support::long::record(&script.host(), &ticks).bytes;
    let path = dir.with("gap.stall", bytes);
    let (_, page) = page(path.to_str().unwrap(), &[]);
    let has = |e: &&markup::Element| e.attributes.iter().any(|(k, v)| k == "class" && v == "gap");
    assert_eq!(page.elements.iter().filter(has).count(), 1);
    // Ticks 20 to 26: between the one at second 19 and the one at second 27 after 14:15:00.
    let says = "7 ticks missing, 14:15:19Z to 14:15:27Z";
    assert!(page.text.contains(says), "{}", page.text);
    assert!(page.text.contains("53, 7 missing"), "{}", page.text);
}

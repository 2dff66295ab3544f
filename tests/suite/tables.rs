//! `export --table`: the built program over the recording of the README's tour, against what
//! `check` and `info` say of it and against arithmetic; bad input, and names that nobody checks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;

use serde_json::Value;
use stallscope::help::Topic;
use stallscope::recording::{TickSummary, Writer};
use stallscope::report::table::{Kind, TABLES};
use stallscope::sample::sockets::Owner;

use crate::support::files::{DEMO, Dir};
use crate::support::program::{after, json, program, refused, run, stderr, stdout};
use crate::support::script::Script;

/// A row by the names of its columns; missing values are not there.
type Row = HashMap<String, String>;

fn export(file: &Path, args: &[&str], out: &Path) -> Output {
    program().arg("export").arg(file).args(args).arg("-o").arg(out).output().unwrap()
}

#[track_caller]
fn exported(file: &Path, args: &[&str], out: &Path) {
    let o = export(file, args, out);
    assert_eq!((o.status.code(), stderr(&o)), (Some(0), String::new()), "{args:?}");
}

/// The rows of a CSV file.
fn rows(path: &Path) -> Vec<Row> {
    let mut all = csv::Reader::from_path(path).unwrap();
    let names: Vec<String> = all.headers().unwrap().iter().map(str::to_owned).collect();
    let row = |r: csv::StringRecord| {
        let there = names.iter().zip(r.iter()).filter(|(_, v)| !v.is_empty());
        there.map(|(n, v)| (n.clone(), v.to_owned())).collect()
    };
    all.records().map(|r| row(r.unwrap())).collect()
}

/// The rows of a table of a recording.
#[track_caller]
fn table(file: &Path, name: &str, args: &[&str]) -> Vec<Row> {
    let dir = Dir::new();
    let out = dir.file("out.csv");
    exported(file, &[&["--format", "csv", "--table", name], args].concat(), &out);
    rows(&out)
}

fn demo(name: &str) -> Vec<Row> {
    table(Path::new(DEMO), name, &[])
}

fn number(r: &Row, name: &str) -> Option<f64> {
    r.get(name).map(|v| v.parse().unwrap_or_else(|_| panic!("{name}: {v}")))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}

/// Every file has the columns that the help tells, and values of their kinds; both formats have the
/// same ones.
#[test]
fn files_are_as_the_help_tells() {
    let dir = Dir::new();
    let out = dir.file("all");
    let slash = Path::new(&format!("{}/", out.display())).to_owned();
    exported(Path::new(DEMO), &["--format", "csv", "--table", "all"], &slash);
    exported(Path::new(DEMO), &["--format", "jsonl", "--table", "all"], &out);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 2 * TABLES.len());
    let page = stdout(&run(["help", "tables"]));
    for t in TABLES {
        assert!(page.contains(&format!("\n{}: ", t.name)), "{}", t.name);
        let columns: Vec<_> = t.columns().collect();
        let file = out.join(format!("{}.csv", t.name));
        let mut csv = csv::Reader::from_path(&file).unwrap();
        let head: Vec<String> = csv.headers().unwrap().iter().map(str::to_owned).collect();
        let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
        assert_eq!(head, names, "{}", t.name);
        let lines = std::fs::read_to_string(out.join(format!("{}.jsonl", t.name))).unwrap();
        let mut lines = lines.lines();
        for row in csv.records() {
            let row = row.unwrap();
            let object: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
            let object = object.as_object().unwrap();
            assert!(object.keys().map(String::as_str).eq(names.iter().copied()), "{}", t.name);
            for ((c, csv), json) in columns.iter().zip(&row).zip(object.values()) {
                let same = match (c.kind, json) {
                    (_, Value::Null) => csv.is_empty(),
                    (Kind::Text | Kind::Time, Value::String(s)) => s == csv,
                    (Kind::Integer, Value::Number(n)) => csv.parse().ok() == n.as_i64(),
                    (Kind::Float, Value::Number(n)) => {
                        near(csv.parse().unwrap(), n.as_f64().unwrap())
                    }
                    (Kind::Boolean, Value::Bool(b)) => csv == b.to_string(),
                    _ => false,
                };
                assert!(same, "{}.{}: {csv:?} and {json}", t.name, c.name);
            }
        }
        assert_eq!(lines.next(), None, "{}", t.name);
    }
}

/// The page has every column with its kind and unit: it is made from the same list.
#[test]
fn the_help_has_every_column() {
    let page = Topic::named("tables").unwrap().page();
    let words: String = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for t in TABLES {
        for c in t.columns() {
            let unit = if c.unit.is_empty() { String::new() } else { format!(", {}", c.unit) };
            let line = format!("{} {}{unit}: {}", c.name, c.kind.name(), c.about);
            assert!(words.contains(&line), "{}: {line}", t.name);
        }
    }
}

#[test]
fn findings_are_those_of_check() {
    let report = json(&run(["check", DEMO, "--format", "json"]));
    let key = |rule: &str, severity: &str, summary: &str, active: &str, second: &str| {
        [rule, severity, summary, active, second].map(str::to_owned)
    };
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let told: BTreeSet<_> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| {
            let first = text(&f["first_seen"]);
            let of = ["rule", "severity", "summary"].map(|n| text(&f[n]));
            key(&of[0], &of[1], &of[2], &f["active"].to_string(), first.trim_end_matches('Z'))
        })
        .collect();
    let written: BTreeSet<_> = demo("findings")
        .iter()
        .map(|r| {
            let second = r["time"].split('.').next().unwrap();
            key(&r["rule"], &r["severity"], &r["summary"], &r["active"], second)
        })
        .collect();
    assert!(told.len() >= 4, "{told:?}");
    assert_eq!(written, told);
}

/// A tick is a row of `host`, and its counts are those of the other tables.
#[test]
fn the_host_is_the_sum_of_its_parts() {
    let info = json(&run(["info", DEMO, "--format", "json"]));
    let host = demo("host");
    assert_eq!(Some(host.len() as u64), info["segments"][0]["ticks"].as_u64());
    let times: BTreeSet<&str> = host.iter().map(|r| r["time"].as_str()).collect();
    assert_eq!(times.len(), host.len());
    // One tick gives no rate.
    for rate in ["busy_pct", "runq", "switches_per_s", "psi_io_pct", "disk_w_bytes_per_s"] {
        assert_eq!(host[0].get(rate), None, "{rate}");
        assert!(host[1..].iter().all(|r| r.contains_key(rate)), "{rate}");
    }
    let mut busy: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for r in demo("cpus") {
        let part = |name: &str| number(&r, name).unwrap();
        let parts = ["us_pct", "sy_pct", "id_pct", "wa_pct", "hi_pct", "si_pct", "st_pct"];
        assert!(near(parts.iter().map(|p| part(p)).sum(), 100.0), "{r:?}");
        assert!(near(part("busy_pct"), 100.0 - part("id_pct") - part("wa_pct")), "{r:?}");
        busy.entry(r["time"].clone()).or_default().push(part("busy_pct"));
    }
    // The kernel rounds the line of all CPUs to clock ticks by itself: over all of the recording
    // that is little.
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let all: Vec<f64> = host[1..].iter().map(|r| number(r, "busy_pct").unwrap()).collect();
    let cpus: Vec<f64> = busy.values().flatten().copied().collect();
    assert_eq!(cpus.len(), 2 * all.len());
    let apart = mean(&all) - mean(&cpus);
    assert!(mean(&all) > 5.0 && apart.abs() < 0.2, "{apart}");
    let mut sockets: BTreeMap<String, (BTreeSet<String>, u32, u32)> = BTreeMap::new();
    for r in demo("sockets") {
        let of = sockets.entry(r["time"].clone()).or_default();
        of.0.insert(r["netns_id"].clone());
        of.1 += u32::from(r["proto"] == "tcp");
        of.2 += u32::from(r["proto"] == "unix");
    }
    let most = sockets.values().map(|s| s.0.len()).max().unwrap();
    let whole: Vec<_> = host
        .iter()
        .filter(|r| sockets.get(&r["time"]).is_some_and(|s| s.0.len() == most))
        .collect();
    assert!(whole.len() > 10, "{}", whole.len());
    for r in whole {
        let (_, tcp, unix) = sockets[&r["time"]];
        let counted = ["tcp", "unix"].map(|n| number(r, n).unwrap());
        assert_eq!(counted, [f64::from(tcp), f64::from(unix)], "{r:?}");
    }
}

/// Little's law: the queue is what arrives times how long it stays.
#[test]
fn disks_obey_arithmetic_and_their_limit() {
    let all = demo("disks");
    let mut checked = 0;
    for r in &all {
        let n = |name: &str| number(r, name).unwrap_or(0.0);
        if n("d_per_s") > 0.0 || n("r_per_s") + n("w_per_s") == 0.0 {
            continue;
        }
        let stays: f64 = ["r", "w", "f"]
            .iter()
            .map(|k| n(&format!("{k}_per_s")) * n(&format!("{k}_await_s")))
            .sum();
        assert!(near(n("qlen"), stays), "{r:?}");
        let bytes = (n("r_bytes_per_s") + n("w_bytes_per_s")) / (n("r_per_s") + n("w_per_s"));
        assert!(near(n("areq_sz_bytes"), bytes), "{r:?}");
        checked += 1;
    }
    assert!(checked > 20, "{checked}");
    // `check` says of this disk that it is limited to 500 requests a second, and until when.
    let found = demo("findings");
    let f = found.iter().find(|f| f["rule"] == "disk-capped-cloud").unwrap();
    let during = all.iter().filter(|r| {
        r["dev"] == f["subject"]
            && (f["time"].as_str()..=f["last_seen"].as_str()).contains(&&*r["time"])
    });
    let rates: Vec<f64> = during.map(|r| number(r, "w_per_s").unwrap()).collect();
    assert!(rates.len() >= 9 && rates.iter().all(|n| (480.0..520.0).contains(n)), "{rates:?}");
}

/// Three connections into a void: the timer doubles, and the clock agrees with the kernel's.
#[test]
fn stuck_sockets_are_followed() {
    let mut by_socket: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for r in demo("sockets") {
        if r.get("peer").is_some_and(|p| p == "10.9.0.2:5000") {
            by_socket.entry(r["cookie"].clone()).or_default().push(r);
        }
    }
    assert_eq!(by_socket.len(), 3);
    for rows in by_socket.values() {
        assert!(rows.iter().any(|r| r.get("rule").is_some_and(|r| r == "tcp-rto-storm")));
        let mut timed = 0;
        for r in rows {
            let [rto, backoff] = ["rto_s", "backoff"].map(|n| number(r, n));
            if let (Some(rto), Some(backoff)) = (rto, backoff.filter(|b| *b > 0.0)) {
                // 200 ms and a few, each time twice as long, at most 120 s.
                let first = rto / 2_f64.powf(backoff);
                assert!((0.2..0.21).contains(&first) || rto >= 120.0, "{r:?}");
                timed += 1;
            }
            assert!(number(r, "expires_s").is_none_or(|s| s <= 120.0), "{r:?}");
        }
        assert!(timed > 20, "{timed}");
        let backoffs: Vec<f64> = rows.iter().filter_map(|r| number(r, "backoff")).collect();
        assert!(backoffs.windows(2).all(|w| w[0] <= w[1]), "{backoffs:?}");
    }
}

/// A part is what it is in the whole: it is judged from the beginning of the recording.
#[test]
fn a_part_has_the_rows_of_the_whole() {
    for name in ["host", "sockets", "waits", "threads"] {
        let part = table(Path::new(DEMO), name, &["--from", "09:42:20", "--to", "09:42:29"]);
        let inside =
            |r: &Row| ("2026-11-26T09:42:20".."2026-11-26T09:42:30").contains(&&*r["time"]);
        let mut whole = demo(name);
        whole.retain(inside);
        assert!(!part.is_empty());
        assert_eq!(part, whole, "{name}");
    }
    // Of a finding the part that is over by then.
    let found = table(Path::new(DEMO), "findings", &["--to", "09:42:29"]);
    let rules: BTreeSet<&str> = found.iter().map(|f| &*f["rule"]).collect();
    assert!(rules.contains("cgroup-io-throttle"), "{rules:?}");
    let f = found.iter().find(|f| f["rule"] == "cgroup-io-throttle").unwrap();
    assert_eq!(f["active"], "true", "it ends later: {f:?}");
}

#[test]
fn redacted_rows_are_the_same_but_for_names() {
    let (plain, redacted) = (demo("sockets"), table(Path::new(DEMO), "sockets", &["--redact"]));
    assert_eq!(plain.len(), redacted.len());
    for (a, b) in plain.iter().zip(&redacted) {
        assert_ne!(a["host"], b["host"]);
        for same in ["time", "state", "sport", "rto_s", "backoff", "sendq_bytes", "rule"] {
            assert_eq!(a.get(same), b.get(same), "{same}");
        }
        assert!(!b.values().any(|v| v.contains("10.9.0.")), "{b:?}");
    }
    let found = table(Path::new(DEMO), "findings", &["--redact"]);
    assert_eq!(found.len(), demo("findings").len());
    assert!(!found.iter().any(|f| f["summary"].contains("10.9.0.")), "{found:?}");
}

/// Names with everything that a format could stumble over come back as they are.
#[test]
fn hostile_names_come_back() {
    const EVIL: &str = "a\"b,c;d\n\re\tf\x1b[31m\u{9b}2J\u{202e}g\\'\u{0}=1+1 数";
    let script = Script::three_faults();
    let mut w = Writer::new(Vec::new(), &script.host()).unwrap();
    for n in 0..3 {
        let mut tick = script.tick(n);
        let sample = Arc::make_mut(tick.samples.sockets.as_mut().unwrap());
        let space = Arc::make_mut(&mut sample.data.spaces[0]);
        let inode = space.inet.inode.iter().copied().find(|i| *i != 0).unwrap();
        space.owners = vec![Owner::new(inode, 4242, EVIL)];
        space.label = EVIL.to_owned();
        w.tick(&tick, &TickSummary::default()).unwrap();
    }
    let dir = Dir::new();
    let file = dir.with("evil.stall", w.seal().unwrap());
    let all = table(&file, "sockets", &[]);
    let owned: Vec<_> = all.iter().filter(|r| r.get("pid").is_some_and(|p| p == "4242")).collect();
    assert_eq!(owned.len(), 3);
    assert!(owned.iter().all(|r| r["comm"] == EVIL && r["netns"] == EVIL), "{:?}", owned[0]);
    let o = run([
        "export",
        file.to_str().unwrap(),
        "--format",
        "jsonl",
        "--table",
        "sockets",
        "-o",
        "-",
    ]);
    let text = stdout(&o);
    assert!(text.chars().all(|c| c == '\n' || stallscope::text::is_plain(c)));
    let objects = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    assert_eq!(objects.filter(|v| v["comm"] == EVIL).count(), 3);
}

/// What is readable is exported, and what was lost is told.
#[test]
fn half_a_recording_gives_half_of_the_rows() {
    let dir = Dir::new();
    let bytes = std::fs::read(DEMO).unwrap();
    let half = dir.with("half.stall", &bytes[..bytes.len() / 2]);
    let out = dir.file("host.csv");
    let o = export(&half, &["--format", "csv", "--table", "host"], &out);
    let err = stderr(&o);
    assert_eq!(o.status.code(), Some(0), "{err}");
    assert!(
        err.starts_with("stallscope: ") && err.contains("half.stall: not in the tables: "),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    let (some, all) = (rows(&out), demo("host"));
    assert!(!some.is_empty() && some.len() < all.len(), "{}", some.len());
    assert_eq!(some[..], all[..some.len()]);
    // A bit in the middle costs a group of ticks.
    let mut hurt = bytes.clone();
    hurt[bytes.len() / 3] ^= 4;
    let hurt = dir.with("hurt.stall", hurt);
    let holed = dir.file("holed.csv");
    let o = export(&hurt, &["--format", "csv", "--table", "host"], &holed);
    let err = stderr(&o);
    assert_eq!(o.status.code(), Some(0), "{err}");
    assert!(err.contains("hurt.stall: not in the tables: "), "{err}");
    let times = |rows: &[Row]| rows.iter().map(|r| r["time"].clone()).collect::<BTreeSet<_>>();
    let (some, all) = (times(&rows(&holed)), times(&all));
    assert!(some.len() < all.len() && some.is_subset(&all), "{}", some.len());
    // Nothing at all is no table.
    let none = dir.with("none.stall", &bytes[..100]);
    let gone = dir.file("none.csv");
    let o = export(&none, &["--format", "csv", "--table", "host"], &gone);
    assert_eq!((o.status.code(), gone.exists()), (Some(3), false), "{}", stderr(&o));
    assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
}

/// One clear line, and nothing on the disk.
#[test]
fn bad_input_is_one_clear_line() {
    let dir = Dir::new();
    let there = dir.with("there.csv", "mine");
    let (x, there_name) = (dir.file("x"), there.to_str().unwrap());
    let (x, nowhere) = (x.to_str().unwrap(), "/nonexistent/x");
    for (args, code, says) in [
        (&["--format", "csv", "-o", x][..], 2, "--format csv needs --table: all, or some of host,"),
        (
            &["--format", "csv", "--table", "disk", "-o", x],
            2,
            "no table 'disk'; did you mean disks?",
        ),
        (&["--format", "csv", "--table", "disks,", "-o", x], 2, "no table ''"),
        (&["--format", "csv", "--table", "\x1b[2J", "-o", x], 2, "no table "),
        (&["--table", "disks", "-o", x], 2, "--table needs --format jsonl, csv or parquet"),
        (&["--force", "-o", x], 2, "--force is for tables"),
        (&["--format", "csv", "--table", "disks,host", "-o", x], 2, "end it with /"),
        (&["--format", "csv", "--table", "disks,host", "-o", "-"], 2, "- takes one table"),
        (
            &["--format", "csv", "--table", "disks", "-o", there_name],
            3,
            "use --force to replace it",
        ),
        (
            &["--format", "csv", "--table", "disks", "-o", nowhere],
            3,
            "its directory does not exist",
        ),
        (&["--format", "csv", "--table", "disks", "-o", "/nonexistent/x/"], 3, "No such file"),
        (
            &["--format", "csv", "--table", "disks", "--force", "-o", "/dev/null"],
            3,
            "not a regular",
        ),
        (
            &["--format", "csv", "--table", "disks", "--from", "2300-01-01", "-o", x],
            3,
            "after its last",
        ),
        (
            &["--format", "csv", "--table", "disks", "--from", "+2m", "--to", "+1m", "-o", x],
            2,
            "after --to",
        ),
    ] {
        let o = program().args(["export", DEMO]).args(args).output().unwrap();
        refused(&o, code, says);
        assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
        assert_eq!(dir.count(), 1, "{args:?} left something");
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
    if cfg!(not(feature = "parquet")) {
        let o = run(["export", DEMO, "--format", "parquet", "--table", "disks", "-o", x]);
        refused(&o, 2, "--features parquet");
        assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
    }
    exported(Path::new(DEMO), &["--format", "csv", "--table", "disks", "--force"], &there);
    assert!(rows(&there).len() > 100);
}

/// A table appears when it is complete: where there is no room for it, there is none, and the one
/// before it stays.
#[test]
fn a_disk_that_is_full_leaves_no_part() {
    let dir = Dir::new();
    let old = dir.with("disks.csv", "old");
    let out = format!("{}/", dir.path().display());
    // In units of 512 bytes.
    let args = ["export", DEMO, "--format", "csv", "--table", "host,disks", "--force", "-o", &out];
    let o = after("ulimit -f 60", &args).output().unwrap();
    refused(&o, 3, "disks.csv: cannot write: File too large");
    assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
    assert_eq!(dir.count(), 1);
    assert_eq!(std::fs::read_to_string(old).unwrap(), "old");
}

/// `head` has seen enough.
#[test]
fn a_closed_pipe_is_quiet() {
    for format in ["csv", "jsonl"] {
        let mut c = program();
        c.args(["export", DEMO, "--format", format, "--table", "sockets", "-o", "-"]);
        let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::with_capacity(16, child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("time"));
        drop(lines);
        let o = child.wait_with_output().unwrap();
        assert_eq!((o.status.code(), stderr(&o)), (Some(0), String::new()), "{format}");
    }
}

/// Nobody else may read what a table tells.
#[test]
fn tables_are_private() {
    let dir = Dir::new();
    let out = dir.file("host.jsonl");
    exported(Path::new(DEMO), &["--format", "jsonl", "--table", "host"], &out);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&out).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let o = export(Path::new(DEMO), &["--format", "jsonl", "--table", "host"], Path::new("-"));
    assert_eq!(o.stdout, std::fs::read(&out).unwrap());
}

//! Exported tables as DuckDB reads them, against what `check` says of the same recording.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_stallscope");
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.stall");

/// Answers each query of a list on standard input with its rows.
const ASK: &str = "\
import duckdb, json, sys
db = duckdb.connect()
db.execute(\"SET TimeZone = 'UTC'\")
ask = lambda q: db.execute(q).fetchall()
print(json.dumps([ask(q) for q in json.load(sys.stdin)], default=str))
";

/// Rows of each query.
fn duckdb(dir: &Path, queries: &[String]) -> Vec<Value> {
    let mut c = Command::new("python3");
    c.current_dir(dir).args(["-c", ASK]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = c.spawn().unwrap();
    let asked = serde_json::to_vec(queries).unwrap();
    child.stdin.take().unwrap().write_all(&asked).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{queries:#?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn is_there() -> bool {
    let import = Command::new("python3").args(["-c", "import duckdb"]).output();
    import.is_ok_and(|o| o.status.success())
}

/// What `stallscope` prints with these arguments.
fn said(args: &[&str]) -> Vec<u8> {
    let out = Command::new(PROGRAM).args(args).stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code().is_some_and(|c| c <= 1) && err.is_empty(), "{args:?}: {err}");
    out.stdout
}

#[test]
fn duckdb_reads_what_check_says() {
    if !is_there() {
        let why = "no module duckdb: python3 -m pip install --target DIR duckdb, PYTHONPATH=DIR";
        // `eprintln!` would be swallowed with the output of the passing test.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run in CI: {why}");
        return;
    }
    let report: Value =
        serde_json::from_slice(&said(&["check", DEMO, "--format", "json"])).unwrap();
    let mut formats = vec!["csv", "jsonl"];
    if cfg!(feature = "parquet") {
        formats.push("parquet");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = format!("{}/", dir.path().display());
    for format in &formats {
        said(&["export", DEMO, "--format", format, "--table", "all", "-o", &out]);
        agree(dir.path(), &report, format);
    }
    // Rows of one tick have one time, whatever the format.
    let pairs = |f: &&str| {
        format!("SELECT count(*) FROM 'sockets.csv' s JOIN 'host.{f}' h USING (host, time)")
    };
    let whole = "SELECT count(*) FROM 'sockets.csv'".to_owned();
    let rows = duckdb(dir.path(), &formats.iter().map(pairs).chain([whole]).collect::<Vec<_>>());
    assert!(rows.iter().all(|n| n == &rows[0]), "{rows:?}");
}

/// Of the files of a format, whose name stands for X.
fn agree(dir: &Path, report: &Value, format: &str) {
    let of = |query: &str| query.replace(".X'", &format!(".{format}'"));
    let finding = |rule: &str| {
        let all = report["findings"].as_array().unwrap();
        all.iter().find(|f| f["rule"] == rule).unwrap_or_else(|| panic!("{rule}"))
    };
    let evidence = |rule: &str, field: &str| {
        let all = finding(rule)["evidence"].as_array().unwrap();
        all.iter().find(|e| e["field"] == field).unwrap()["value"].as_f64().unwrap()
    };
    let queries = [
        // How DuckDB takes the columns.
        "SELECT typeof(time), typeof(host), typeof(gap_ticks), typeof(busy_pct) FROM 'host.X' LIMIT 1",
        "SELECT count(*), epoch(max(time)) - epoch(min(time)), any_value(host) FROM 'host.X'",
        "SELECT rule, severity, summary, active, strftime(time, '%Y-%m-%dT%H:%M:%SZ'),
           strftime(last_seen, '%Y-%m-%dT%H:%M:%SZ') FROM 'findings.X' ORDER BY ALL",
        // The numbers of a finding are those of the row that it was last seen in.
        "SELECT d.qlen, 1000 * d.await_s FROM 'disks.X' d JOIN 'findings.X' f
           ON f.host = d.host AND f.subject = d.dev AND f.last_seen = d.time
           WHERE f.rule = 'disk-capped-cloud'",
        "SELECT 1000 * c.runq, c.busy_pct FROM 'cpus.X' c JOIN 'findings.X' f
           ON f.host = c.host AND f.subject = concat('cpu', c.cpu) AND f.last_seen = c.time
           WHERE f.rule = 'runq-latency-idle-elsewhere'",
        "SELECT 1000 * max(s.rto_s), count(DISTINCT s.cookie) FROM 'sockets.X' s
           JOIN 'findings.X' f ON f.host = s.host AND f.rule = s.rule AND f.subject = s.peer
           AND s.time BETWEEN f.time AND f.last_seen WHERE f.rule = 'tcp-rto-storm'",
        // A sum over one table is a number of another one.
        "SELECT count(*), max(abs(h.disk_w_bytes_per_s - d.w)) FROM 'host.X' h JOIN
           (SELECT host, time, sum(w_bytes_per_s) AS w FROM 'disks.X'
            WHERE class <> 'part' AND dev NOT LIKE 'loop%' GROUP BY ALL) d USING (host, time)",
        "SELECT count(*), max(abs(w.wait - h.runq)) FROM 'waits.X' w JOIN 'host.X' h
           USING (host, time) WHERE w.resource = 'cpu' AND h.runq IS NOT NULL",
        // What was not measured is nothing, not 0.
        "SELECT count(*), count(busy_pct), count(runq) FROM
           (SELECT * FROM 'host.X' ORDER BY time LIMIT 1)",
    ];
    let rows = duckdb(dir, &queries.map(of));
    assert_eq!(rows[0], json!([["TIMESTAMP WITH TIME ZONE", "VARCHAR", "BIGINT", "DOUBLE"]]));
    let whole = &rows[1][0];
    assert_eq!((&whole[0], &whole[2]), (&report["ticks"], &report["host"]));
    let apart = whole[1].as_f64().unwrap() - report["duration_s"].as_f64().unwrap();
    assert!(apart.abs() < 0.1, "{whole}");
    assert_eq!(rows[2], findings(report));
    near(&rows[3][0], &["aqu-sz", "await"].map(|f| evidence("disk-capped-cloud", f)));
    near(&rows[4][0], &["waiting", "busy"].map(|f| evidence("runq-latency-idle-elsewhere", f)));
    let connections = finding("tcp-rto-storm")["subject"]["count"].as_f64().unwrap();
    near(&rows[5][0], &[evidence("tcp-rto-storm", "rto"), connections]);
    for sums in &rows[6..8] {
        assert!(sums[0][0].as_u64() >= Some(90), "{sums}");
        assert!(sums[0][1].as_f64().unwrap() < 1e-6, "{sums}");
    }
    assert_eq!(rows[8], json!([[1, 0, 0]]));
}

/// The findings of a report as rows, in the order of DuckDB.
fn findings(report: &Value) -> Value {
    let row = |f: &Value| {
        json!([
            f["rule"],
            f["severity"],
            f["summary"],
            f["active"],
            f["first_seen"],
            f["last_seen"]
        ])
    };
    let mut all: Vec<Value> = report["findings"].as_array().unwrap().iter().map(row).collect();
    all.sort_by_key(ToString::to_string);
    Value::Array(all)
}

#[track_caller]
fn near(row: &Value, want: &[f64]) {
    let have: Vec<f64> = row.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    assert_eq!(have.len(), want.len());
    let equal = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    assert!(have.iter().zip(want).all(equal), "{have:?} {want:?}");
}

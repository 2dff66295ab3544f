//! A real Prometheus scrapes `stallscope serve`, with the token of the help page, while a server
//! stops and goes on.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::clients::Askers;
use crate::kit::block::Dir;
use crate::kit::gate::Place;
use crate::kit::net::Pair;
use crate::kit::sh::{Held, run};
use crate::kit::{secs, wait_for};
use crate::servers::{self, Home, to};
use crate::stage::{Case, in_turn};

const PROGRAM: &str = env!("CARGO_BIN_EXE_stallscope");
const TOKEN: &str = "c2NyYXBl-me_0nly/with=this";

/// What it answers, to its end.
fn get(at: SocketAddr, path: &str, headers: &str) -> Option<String> {
    let mut s = TcpStream::connect_timeout(&at, secs(5)).ok()?;
    s.set_read_timeout(Some(secs(10))).ok()?;
    // In this version an answer ends with its connection, and comes in one piece.
    write!(s, "GET {path} HTTP/1.0\r\nHost: x\r\n{headers}\r\n").ok()?;
    let mut text = String::new();
    s.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).is_some_and(|code| code == "200").then(|| body.to_owned())
}

/// A program that runs until the test is over; what it says goes to a file.
fn start(line: &str, log: &Path) -> Held {
    Held::start(&["sh", "-c", &format!("exec {line} >{} 2>&1", log.display())])
}

/// A Prometheus with a directory of its own.
struct Prometheus {
    at: SocketAddr,
    held: Held,
}

impl Prometheus {
    /// Scrapes this target each second, with the token as job `stallscope`, without as `nobody`.
    fn start(dir: &Path, target: SocketAddr, token: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = free.local_addr().unwrap();
        let config = format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n\
             \x20 - job_name: stallscope\n\
             \x20   authorization:\n\
             \x20     credentials_file: {token}\n\
             \x20   static_configs:\n\
             \x20     - targets: [\"{target}\"]\n\
             \x20 - job_name: nobody\n\
             \x20   static_configs:\n\
             \x20     - targets: [\"{target}\"]\n",
            token = token.display(),
        );
        let file = dir.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let line = format!(
            "prometheus --config.file={} --storage.tsdb.path={} --web.listen-address={at}",
            file.display(),
            dir.join("data").display(),
        );
        drop(free);
        Self { at, held: start(&line, &dir.join("prometheus.log")) }
    }

    fn api(&self, path: &str) -> Option<Value> {
        let v: Value = serde_json::from_str(&get(self.at, path, "")?).ok()?;
        (v["status"] == "success").then(|| v["data"].clone())
    }

    /// What a query yields now: labels with their value.
    fn query(&self, query: &str) -> Option<Vec<(Value, f64)>> {
        let escaped = query.bytes().fold(String::new(), |mut out, b| {
            let _ = write!(out, "%{b:02x}");
            out
        });
        let data = self.api(&format!("/api/v1/query?query={escaped}"))?;
        let one = |v: &Value| {
            let value = v["value"][1].as_str().and_then(|n| n.parse().ok());
            (v["metric"].clone(), value.unwrap_or(f64::NAN))
        };
        Some(data["result"].as_array()?.iter().map(one).collect())
    }

    /// Waits until a query yields something that will do.
    fn until(&mut self, query: &str, will_do: impl Fn(&[(Value, f64)]) -> bool) -> Value {
        wait_for(query, secs(60), || {
            self.held.assert_running();
            let all = self.query(query)?;
            will_do(&all).then(|| all.first().map_or(Value::Null, |one| one.0.clone()))
        })
    }
}

#[test]
fn prometheus_scrapes_findings_and_figures() {
    let tools = ["prometheus", "promtool", "redis-server"];
    let place = Some(Place::Network);
    let case = Case { name: "prometheus", tools: &tools, short: true, place };
    in_turn(&case, || {
        let (net, dir) = (Pair::new(), Dir::new());
        let redis = servers::redis(Home::new(&net, &dir.path), &[]);
        let askers = Askers::start(&net.a, to(6379), 30, b"PING\r\n");
        let token = dir.path.join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
        let log = dir.path.join("serve.log");
        let line = format!("{PROGRAM} serve --listen 127.0.0.1:0 --token-file {}", token.display());
        let mut serve = start(&line, &log);
        let target: SocketAddr = wait_for("the address", secs(20), || {
            serve.assert_running();
            let said = std::fs::read_to_string(&log).ok()?;
            said.split("http://").nth(1)?.split('/').next()?.parse().ok()
        });
        let mut prometheus = Prometheus::start(&dir.path, target, &token);

        prometheus.until("up{job=\"stallscope\"}", |all| all.iter().any(|r| r.1 == 1.0));
        prometheus.until("up{job=\"nobody\"}", |all| all.iter().any(|r| r.1 == 0.0));
        let build = prometheus.until("stallscope_build_info", |all| all.len() == 1);
        assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
        prometheus.until("rate(stallscope_context_switches_total[10s])", |all| {
            all.len() == 1 && all[0].1 > 0.0
        });
        let hung = "stallscope_finding_active{rule=\"server-hung\"}";
        assert_eq!(prometheus.query(hung).unwrap(), Vec::new());

        redis.signal(Signal::STOP);
        let found = prometheus.until(hung, |all| {
            all.iter().any(|r| r.1 == 1.0 && r.0["subject"] == to(6379).to_string())
        });
        eprintln!("real: prometheus: {found}");
        assert!(askers.answers() > 0);
        prometheus.until("stallscope_findings_active{severity=~\"warn|crit\"} > 0", |all| {
            !all.is_empty()
        });
        // It is over, and so is its series.
        redis.signal(Signal::CONT);
        prometheus.until(hung, <[_]>::is_empty);

        // Prometheus took the types and units from the page.
        let about = prometheus.api("/api/v1/metadata?metric=stallscope_pressure_stalled_seconds");
        let about = &about.unwrap()["stallscope_pressure_stalled_seconds"][0];
        assert_eq!((&about["type"], &about["unit"]), (&"counter".into(), &"seconds".into()));
        let targets = prometheus.api("/api/v1/targets").unwrap();
        for t in targets["activeTargets"].as_array().unwrap() {
            let error = t["lastError"].as_str().unwrap();
            let wanted = if t["labels"]["job"] == "nobody" { "401" } else { "" };
            assert!(error.contains(wanted) && error.is_empty() == wanted.is_empty(), "{t}");
        }

        let page = get(target, "/metrics", &format!("Authorization: Bearer {TOKEN}\r\n")).unwrap();
        let file = dir.path.join("page");
        std::fs::write(&file, page).unwrap();
        // It prints what it does not like, and fails.
        run(&["sh", "-c", &format!("promtool check metrics <{} 2>&1", file.display())]);
        serve.assert_running();
    });
}

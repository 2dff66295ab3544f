//! Servers that run and do not serve: stopped, busy with one question, out of places.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;

use crate::clients::{Askers, Restless, client, connections};
use crate::kit::block::Dir;
use crate::kit::gate::Place;
use crate::kit::net::Pair;
use crate::kit::{pause, secs, wait_for};
use crate::servers::{self, HOST, Home, send, to};
use crate::stage::{Case, anywhere, fault, says, within};

const PING: &[u8] = b"PING\r\n";
const HTTP: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const ALONG: Option<Place> = Some(Place::Network);

/// Nobody gets an answer any more.
fn no_answers(askers: &Askers) {
    wait_for("no more answers", secs(5), || {
        let before = askers.answers();
        pause(300);
        (askers.answers() == before).then_some(())
    });
}

/// redis is stopped while thirty clients ask.
#[test]
fn redis_stopped() {
    let case = Case { name: "redis-stopped", tools: &["redis-server"], short: true, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let redis = servers::redis(Home::new(&net, &dir.path), &[]);
        let askers = Askers::start(&net.a, to(6379), 30, PING);
        stage.watch(18);
        stage.breaks();
        redis.signal(Signal::STOP);
        no_answers(&askers);
        stage.first(&["server-hung"], within(&net), says(redis.pid()));
    });
}

/// redis runs one long script; sixty clients wait.
#[test]
fn redis_in_a_long_script() {
    let tools = ["redis-server", "redis-cli"];
    let case = Case { name: "redis-script", tools: &tools, short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let redis = servers::redis(Home::new(&net, &dir.path), &["--busy-reply-threshold", "0"]);
        let askers = Askers::start(&net.a, to(6379), 60, PING);
        stage.watch(18);
        stage.breaks();
        let script = "local i = 0 while true do i = i + 1 end";
        let _one = client(&net, &dir.path, &["redis-cli", "-h", HOST, "EVAL", script, "0"]);
        no_answers(&askers);
        stage.first(&["server-hung", "single-thread-bound"], within(&net), says(redis.pid()));
    });
}

/// One of the two workers of nginx is stopped: its connections wait, while the other one accepts
/// for both.
#[test]
fn one_worker_of_nginx_stopped() {
    let case = Case { name: "nginx-worker", tools: &["nginx"], short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let nginx = servers::nginx(Home::new(&net, &dir.path), "worker_processes 2;", "");
        let _askers = Askers::start(&net.a, to(8080), 40, HTTP);
        let sockets = |pid: &u32| {
            let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            let links = fds.filter_map(|f| std::fs::read_link(f.unwrap().path()).ok());
            links.filter(|l| l.to_str().is_some_and(|l| l.starts_with("socket:"))).count()
        };
        let by: BTreeMap<usize, u32> =
            nginx.children().into_iter().map(|pid| (sockets(&pid), pid)).collect();
        let busiest = *by.last_key_value().unwrap().1;
        stage.watch(18);
        stage.breaks();
        send(busiest, Signal::STOP);
        stage.first(&["server-hung"], within(&net), says(busiest));
    });
}

/// haproxy goes on, the nginx behind it is stopped.
#[test]
fn backend_of_haproxy_stopped() {
    let tools = ["nginx", "haproxy"];
    let case = Case { name: "backend-stopped", tools: &tools, short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let home = Home::new(&net, &dir.path);
        let nginx = servers::nginx(home, "worker_processes 1;", "");
        let _proxy = servers::haproxy(home);
        let askers = Askers::start(&net.a, to(8000), 20, HTTP);
        let worker = nginx.children()[0];
        stage.watch(18);
        stage.breaks();
        send(worker, Signal::STOP);
        no_answers(&askers);
        stage.first(&["server-hung"], within(&net), says(worker));
    });
}

/// A full accept queue: more clients at once than `listen(4)` takes.
#[test]
fn backlog_of_nginx_too_small() {
    let tools = ["nginx", "ab"];
    let case = Case { name: "backlog", tools: &tools, short: false, place: None };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let home = Home::new(&net, &dir.path);
        let _nginx = servers::nginx(home, "worker_processes 1;", "backlog=4");
        let mut askers = Some(Askers::start(&net.a, to(8080), 2, HTTP));
        stage.watch(14);
        stage.breaks();
        askers.take();
        let url = format!("http://{HOST}:8080/");
        let _ab = client(
            &net,
            &dir.path,
            &["ab", "-q", "-r", "-c", "200", "-t", "60", "-n", "20000000", &url],
        );
        wait_for("overflows", secs(5), || {
            (net.b.counter("TcpExtListenOverflows") > 10).then_some(())
        });
        stage.first(&["tcp-listen-overflow"], anywhere, says(":8080"));
    });
}

/// memcached with sixteen places and more clients than that: it listens no more.
#[test]
fn memcached_at_its_limit() {
    let case = Case { name: "memcached-limit", tools: &["memcached"], short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let more = ["-c", "16", "-o", "no_maxconns_fast", "-t", "1"];
        let _cache = servers::memcached(Home::new(&net, &dir.path), &more);
        let _few = Askers::start(&net.a, to(11211), 4, b"version\r\n");
        stage.watch(14);
        stage.breaks();
        let _more = Restless::start(&net.a, 24, || {
            let Ok(mut s) = TcpStream::connect_timeout(&to(11211), Duration::from_millis(500))
            else {
                return;
            };
            s.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let _ = s.write_all(b"version\r\n");
            pause(2000);
        });
        wait_for("overflows", secs(10), || {
            (net.b.counter("TcpExtListenOverflows") > 2).then_some(())
        });
        stage.first(&["tcp-listen-overflow"], within(&net), says(":11211"));
    });
}

/// haproxy's backend is gone: each of its connects is refused.
#[test]
fn backend_of_haproxy_refuses() {
    let tools = ["nginx", "haproxy"];
    let case = Case { name: "backend-refuses", tools: &tools, short: true, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let home = Home::new(&net, &dir.path);
        let nginx = servers::nginx(home, "worker_processes 1;", "");
        let _proxy = servers::haproxy(home);
        let _askers = Askers::start(&net.a, to(8000), 4, HTTP);
        stage.watch(16);
        stage.breaks();
        drop(nginx);
        stage.first(&["tcp-refused"], within(&net), says(":8080"));
    });
}

/// The pool of a client keeps what redis has closed.
#[test]
fn pool_that_never_closes() {
    let case = Case { name: "close-wait", tools: &["redis-server"], short: false, place: ALONG };
    fault(&case, |stage| {
        let (net, dir) = (Pair::new(), Dir::new());
        let _redis = servers::redis(Home::new(&net, &dir.path), &["--timeout", "3"]);
        let _askers = Askers::start(&net.a, to(6379), 4, PING);
        stage.watch(85);
        let _pool = connections(&net.a, to(6379), 150);
        stage.breaks();
        wait_for("closed by redis", secs(10), || {
            (net.a.ss("state close-wait").len() >= 150).then_some(())
        });
        stage.first(&["tcp-close-wait-leak"], within(&net), says(std::process::id()));
    });
}

//! The real program and its clients. Needs no root.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use rustix::process::Signal;

use crate::support::exporter::{Answer, Exporter, secret, to_end};
use crate::support::files::Dir;
use crate::support::openmetrics::read;

const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

#[test]
fn a_scraper_gets_the_figures_of_this_host() {
    let e = Exporter::start(&[]);
    assert!(e.said.starts_with("stallscope: metrics on http://127.0.0.1:"), "{}", e.said);
    assert_ne!(e.at.port(), 0, "the real one");
    let a = e.metrics("");
    assert_eq!((a.status, a.header("content-type")), (200, Some(OPEN)));
    assert_eq!(a.header("content-length"), Some(&*a.body.len().to_string()));
    let m = read(&a.body);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(m.get("stallscope_build_info", &version), Some(1.0));
    let proc = |path: &str| std::fs::read_to_string(path).unwrap();
    let host = [
        ("hostname", proc("/proc/sys/kernel/hostname").trim().to_owned()),
        ("kernel", proc("/proc/sys/kernel/osrelease").trim().to_owned()),
    ];
    let host = host.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(m.get("stallscope_host_info", &host), Some(1.0));
    let total = proc("/proc/meminfo")
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    assert_eq!(m.get("stallscope_memory_bytes", &[]), total.map(|kb| kb * 1024.0));
    // Counted on since: not less than what it was.
    let later = proc("/proc/stat");
    let ctxt = later.lines().find_map(|l| l.strip_prefix("ctxt ")).unwrap();
    let ctxt: f64 = ctxt.parse().unwrap();
    let ours = m.get("stallscope_context_switches_total", &[]).unwrap();
    assert!(ours > 0.0 && ours <= ctxt, "{ours} {ctxt}");
    // Of the program itself.
    assert!(m.get("stallscope_self_resident_bytes", &[]).unwrap() > 1e6);
    // Whoever does not ask for OpenMetrics gets the older format.
    let a = e.get("/metrics", "Accept: text/html,*/*;q=0.8\r\n");
    assert_eq!((a.status, a.header("content-type")), (200, Some(PLAIN)));
    assert!(a.body.contains("# TYPE stallscope_build_info gauge\n") && !a.body.contains("# EOF"));
}

#[test]
fn only_what_is_there_is_answered() {
    let e = Exporter::start(&[]);
    e.metrics("");
    let a = e.get("/", "");
    assert_eq!(a.status, 200);
    assert!(a.body.contains("/metrics") && a.body.lines().count() < 10, "{}", a.body);
    for path in ["/metric", "/metrics/", "//metrics", "/../metrics", "/%6detrics", "*"] {
        let a = e.get(path, "");
        assert!(matches!(a.status, 404 | 400), "{path}: {a:?}");
    }
    assert_eq!(e.get("/metrics?name[]=up", "").status, 200, "a query is not looked at");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        let head = format!("{method} /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let a = Answer::read(&e.send(head.as_bytes()));
        assert_eq!((a.status, a.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    // As long as it would be, and nothing of it.
    let head = e.send(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-length: "), "{head}");
    // Whatever it calls us, and with a body that nobody wants.
    let odd = "GET http://evil.example/metrics HTTP/1.1\r\nHost: \"><script>\r\n\
        Content-Length: 9999999999\r\nConnection: close\r\n\r\n";
    let a = e.send(odd.as_bytes());
    assert!(a.starts_with("HTTP/1.1 200 ") && !a.contains("script"), "{a}");
}

#[test]
fn connections_are_kept_and_requests_may_follow_each_other() {
    let e = Exporter::start(&["--interval", "60s"]);
    let page = e.metrics("").body;
    let ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n";
    let mut s = e.connect();
    let last = format!("{ask}Connection: close\r\n\r\n");
    s.write_all(format!("{ask}\r\nGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n{last}").as_bytes())
        .unwrap();
    let all = to_end(&mut s);
    let (first, rest) = Answer::first(&all);
    let (second, rest) = Answer::first(rest);
    let third = Answer::read(rest);
    assert_eq!((first.status, second.status, third.status), (200, 404, 200));
    // Of one tick there is one page.
    assert!(first.body == page && third.body == page);
    // One after the other on one connection.
    let mut s = e.connect();
    for _ in 0..3 {
        s.write_all(format!("{ask}\r\n").as_bytes()).unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"# EOF\n") {
            let mut block = [0; 4096];
            let n = s.read(&mut block).unwrap();
            assert_ne!(n, 0, "closed");
            got.extend_from_slice(&block[..n]);
        }
        assert_eq!(Answer::read(std::str::from_utf8(&got).unwrap()).body, page);
    }
    // HTTP/1.0 ends with its answer.
    let a = e.send(b"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text\r\n\r\n");
    assert!(a.starts_with("HTTP/1.0 200 ") && a.ends_with(&page), "{a}");
    // So does a client that says no more.
    let mut s = e.connect();
    s.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    s.shutdown(Shutdown::Write).unwrap();
    assert_eq!(Answer::read(&to_end(&mut s)).status, 200);
}

#[test]
fn what_makes_no_sense_is_refused_and_costs_nobody_else() {
    let e = Exporter::start(&[]);
    e.metrics("");
    for (bytes, status) in [
        (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], "400"),
        (b"\r\n\r\nnonsense\r\n\r\n", "400"),
        (b"GET /metrics HTTP/3.0\r\n\r\n", "400"),
        (b"GET /met\x00rics HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"),
    ] {
        let a = e.send(bytes);
        assert!(a.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes:?}: {a:?}");
    }
    let long = |n: usize| "a".repeat(n);
    for head in [
        format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", long(64 << 10)),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", long(64 << 10)),
        format!("GET / HTTP/1.1\r\n{}\r\n", "X-Many: 1\r\n".repeat(1000)),
    ] {
        // It is closed while we still talk, which may take the answer along.
        let a = e.send(head.as_bytes());
        assert!(a.is_empty() || a.starts_with("HTTP/1.1 4"), "{a}");
    }
    // Endless, without a line end.
    let mut s = e.connect();
    let block = [b'a'; 8 << 10];
    while s.write_all(&block).is_ok() {}
    assert_eq!(e.metrics("").status, 200);
}

/// Sockets that the program holds.
fn sockets(e: &Exporter) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", e.pid())).unwrap();
    let links = fds.filter_map(|f| std::fs::read_link(f.unwrap().path()).ok());
    links.filter(|l| l.to_string_lossy().starts_with("socket:")).count()
}

#[test]
fn silent_and_slow_clients_keep_nobody_out() {
    let e = Exporter::start(&[]);
    e.metrics("");
    let before = sockets(&e);
    // More than there is room for: silent ones, ones that began, ones that take no answer.
    let mut crowd = Vec::new();
    for i in 0..120 {
        let mut s = e.connect();
        match i % 3 {
            0 => {}
            1 => s.write_all(b"GET /met").unwrap(),
            _ => {
                let many = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
                s.set_nonblocking(true).unwrap();
                let _ = s.write(many.as_bytes());
            }
        }
        crowd.push(s);
        if i % 20 == 0 {
            assert_eq!(e.metrics("").status, 200);
        }
    }
    assert_eq!(e.metrics("").status, 200);
    let held = sockets(&e) - before;
    assert!(held <= 32, "{held} connections at once");
    // Those that came first had to go.
    crowd[0].set_nonblocking(false).unwrap();
    assert_eq!(to_end(&mut crowd[0]), "");
}

/// A client that began and says no more is let go; it takes the ten seconds that it is given.
#[test]
fn a_client_that_falls_silent_is_let_go() {
    let e = Exporter::start(&[]);
    let (mut silent, mut began) = (e.connect(), e.connect());
    began.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
    for s in [&mut silent, &mut began] {
        assert_eq!(to_end(s), "", "closed without a word, before our own patience ended");
    }
}

#[test]
fn signals_close_everything_and_end_it_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut e = Exporter::start(&[]);
        e.metrics("");
        let mut idle = e.connect();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut block = [0; 4096];
        assert!(idle.read(&mut block).unwrap() > 0);
        let mut began = e.connect();
        began.write_all(b"GET /").unwrap();
        e.signal(signal);
        assert_eq!(e.end(), (Some(0), String::new()), "{signal:?}");
        for s in [&mut idle, &mut began] {
            assert_eq!(to_end(s), "");
        }
        assert!(std::net::TcpStream::connect(e.at).is_err());
    }
}

/// On loopback it is optional, elsewhere it has to be there.
#[test]
fn a_token_is_asked_for() {
    let dir = Dir::new();
    let file = dir.file("token");
    secret(&file, "s3cret-t0ken\n");
    let file = file.to_str().unwrap();
    for more in [&[][..], &["--listen", "0.0.0.0:0", "--allow-remote"]] {
        let e = Exporter::start(&[&["--token-file", file], more].concat());
        assert_eq!(e.metrics("Authorization: Bearer s3cret-t0ken\r\n").status, 200);
        for headers in [
            "",
            "Authorization: Bearer s3cret\r\n",
            "Authorization: Bearer s3cret-t0ken2\r\n",
            "Authorization: Basic s3cret-t0ken\r\n",
            "Authorization: Bearer s3cret-t0ken\r\nAuthorization: Bearer x\r\n",
            "Cookie: s3cret-t0ken\r\n",
        ] {
            for path in ["/metrics", "/", "/nowhere", "/metrics?token=s3cret-t0ken"] {
                let a = e.get(path, headers);
                assert_eq!(a.status, 401, "{path} {headers}");
                let asks = a.header("www-authenticate").unwrap();
                assert!(asks.starts_with("Bearer") && !a.body.contains("stallscope_"), "{a:?}");
            }
        }
        assert_eq!(e.get("/", "Authorization: bearer s3cret-t0ken\r\n").status, 200);
    }
}

/// The thread that talks to clients has no rights, whoever started it.
#[test]
fn whoever_answers_has_no_capabilities() {
    let e = Exporter::start(&[]);
    e.metrics("");
    let status = std::fs::read(format!("/proc/{}/task/{0}/status", e.pid())).unwrap();
    let held = stallscope::rights::held(&status).unwrap();
    assert!(held.effective.is_empty() && held.permitted.is_empty(), "{held:?}");
    assert_eq!(held.no_new_privs, Some(true));
}

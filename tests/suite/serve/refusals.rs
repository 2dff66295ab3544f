//! What it does not start with: one clear line, the documented exit code.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::exporter::secret;
use crate::support::files::Dir;
use crate::support::program::{refused, run, stderr};

#[track_caller]
fn one_line(args: &[&str], code: i32, says: &str) {
    let o = run([&["serve", "--no-bpf", "--netns", "self"], args].concat());
    refused(&o, code, says);
    assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
}

#[test]
fn addresses() {
    for wrong in ["", "9464", "localhost:9464", "127.0.0.1", "1.2.3.4:99999", "a\x1b[31m:1"] {
        let o = run(["serve", "--listen", wrong]);
        refused(&o, 2, "such as 127.0.0.1:9464");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    one_line(&["--listen", &at], 3, &format!("--listen {at}: the port is in use"));
    // TEST-NET-1 is nobody's.
    let dir = Dir::new();
    let token = dir.file("token");
    secret(&token, "x");
    let with_token = ["--allow-remote", "--token-file", token.to_str().unwrap()];
    let elsewhere = [&["--listen", "192.0.2.1:0"], &with_token[..]].concat();
    one_line(&elsewhere, 3, "this host does not have the address");
    let least = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if least.is_ok_and(|n| n.trim().parse::<u16>().is_ok_and(|n| n > 7)) {
        one_line(&["--listen", "127.0.0.1:7"], 3, "ports below 1024");
    }
}

#[test]
fn other_machines_are_let_in_on_purpose_only() {
    for at in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9464", "[::ffff:192.0.2.1]:9464"] {
        one_line(&["--listen", at], 2, "--allow-remote and --token-file FILE");
    }
    // clap's own words, which name what is missing.
    let o = run(["serve", "--listen", "0.0.0.0:0", "--allow-remote"]);
    refused(&o, 2, "--token-file");
}

#[test]
fn tokens() {
    let dir = Dir::new();
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.with(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pipe = dir.fifo("pipe").to_str().unwrap().to_owned();
    let absent = dir.file("absent").to_str().unwrap().to_owned();
    let evil = dir.file("b\x1b[31m").to_str().unwrap().to_owned();
    for (path, says) in [
        (file("open", "x", 0o644), "others have access to it (mode 644); `chmod 600` it"),
        (file("empty", "\n", 0o600), "empty"),
        (file("words", "two words", 0o600), "one word"),
        (pipe, "not a regular file"),
        (dir.path().to_str().unwrap().to_owned(), "not a regular file"),
        (absent, "No such file"),
        (evil, "No such file"),
    ] {
        one_line(&["--token-file", &path, "--listen", "127.0.0.1:0"], 3, says);
    }
}

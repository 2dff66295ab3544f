//! The commands that a finding advises are typed while its fault is there: those that only look,
//! of programs that this machine has. They must end well and print something; what asks for one
//! object must print that. By flag (`STALLSCOPE_ADVICE=1`): it takes some seconds per finding.

use std::process::{Command, Stdio};

use super::product::Found;

/// One that runs until it is stopped has printed by then.
const SECONDS: &str = "5";
/// Changes the box, or asks for another one.
const NOT_OURS: [&str; 14] = [
    "prlimit ",
    "echo ",
    "sysctl -w",
    "kill ",
    "chrt -o",
    "taskset -cp",
    "ethtool -L",
    "ethtool -G",
    "on ",
    "fsfreeze",
    "multipath",
    "truncate ",
    "rm ",
    "umount ",
];
/// Waits for packets or system calls that may not come.
const WAITS: [&str; 6] = ["tcpdump", "strace", "mtr", "watch", "perf", "bpftrace"];
/// Prints what it was asked for by name.
const BY_NAME: [&str; 4] = ["ss -", "iostat -x", "lsblk", "ip -s neigh"];

/// Types the commands of a finding.
#[track_caller]
pub fn try_all(test: &str, f: Found<'_>) {
    if std::env::var_os("STALLSCOPE_ADVICE").is_none() {
        return;
    }
    for command in f.next() {
        if let Some(why) = not_typed(command) {
            eprintln!("lab: {test}: {}: not typed ({why}): {command}", f.rule());
            continue;
        }
        let out = Command::new("timeout")
            .args(["-k", "1", SECONDS, "bash", "-c", command])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (text, err) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        // That there is no route is an answer, too.
        let no_route = err.starts_with("RTNETLINK answers: ") && command.contains("ip route get");
        let ended = out.status.success() || out.status.code() == Some(124) || no_route;
        let at = format!("{test}: {}: {command}\n{}\n{text}\n{err}", f.rule(), out.status);
        assert!(ended && (no_route || text.trim().len() > 1), "the advice fails: {at}");
        let bare = command.rsplit_once("-n ").map_or(command, |(_, c)| c);
        if BY_NAME.iter().any(|c| bare.starts_with(c))
            && !bare.contains(" | ")
            && let Some(name) = f.object()
        {
            assert!(text.contains(&name), "{name} is not told: {at}");
        }
        eprintln!("lab: {test}: {}: typed: {command}", f.rule());
    }
}

fn not_typed(command: &str) -> Option<String> {
    let parts = command.split(" | ").flat_map(|p| p.split("; ")).map(str::trim);
    for part in parts {
        let inside = part.strip_prefix("nsenter ").map_or(part, |p| {
            p.split_once(" -n ").or_else(|| p.split_once(' ')).map_or(p, |(_, c)| c)
        });
        let inside = inside
            .strip_prefix("timeout ")
            .map_or(inside, |p| p.split_once(' ').map_or(p, |(_, c)| c));
        if NOT_OURS.iter().any(|n| inside.starts_with(n))
            || inside.contains('=') && inside.starts_with("sysctl")
        {
            return Some("it changes something, or is for another host".to_owned());
        }
        if WAITS.iter().any(|n| inside.starts_with(n)) {
            return Some("it waits for what may not come".to_owned());
        }
        let word = inside.split_whitespace().next()?;
        let found = Command::new("bash").args(["-c", &format!("command -v {word}")]).output();
        if !found.is_ok_and(|o| o.status.success()) {
            return Some(format!("no {word} here"));
        }
    }
    None
}

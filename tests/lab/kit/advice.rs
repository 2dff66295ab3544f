//! The commands that a finding advises are typed while its fault is there: those that only look,
//! of programs that this machine has. They must end well and print something; what asks for one
//! object must print that.

use std::process::{Command, Stdio};

use super::product::Found;

/// One that runs until it is stopped has printed by then.
const SECONDS: &str = "4";
/// Changes the box, or asks for another one.
const NOT_OURS: [&str; 16] = [
    "prlimit ",
    "echo ",
    "sysctl -w",
    "kill ",
    "chrt -o",
    "chrt -a -o",
    "renice ",
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

/// Types the commands of findings, side by side: what runs until it is stopped would take its
/// seconds for each of them.
#[track_caller]
pub fn try_all(test: &str, findings: &[&Found<'_>]) {
    std::thread::scope(|typing| {
        for f in findings {
            let (mut typed, mut not_here) = (0, Vec::new());
            for command in f.next() {
                match not_typed(command) {
                    Some(Why::NotHere(program)) => not_here.push(program),
                    Some(Why::Not(why)) => {
                        eprintln!("lab: {test}: {}: not typed ({why}): {command}", f.rule());
                    }
                    None => {
                        typing.spawn(move || try_it(test, **f, command));
                        typed += 1;
                    }
                }
            }
            let at = format!("{test}: {}: {:?}", f.rule(), f.next());
            let answered = typed > 0 || not_here.is_empty();
            assert!(answered, "no {not_here:?} here, and no other advice: {at}");
        }
    });
}

fn try_it(test: &str, f: Found<'_>, command: &str) {
    let out = Command::new("timeout")
        .args(["-k", "1", SECONDS, "bash", "-c", &once(command)])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let at = format!("{test}: {}: {command}\n{}\n{text}\n{err}", f.rule(), out.status);
    // That there is no route is an answer, too.
    let no_route = err.starts_with("RTNETLINK answers: ") && command.contains("ip route get");
    // A search that finds nothing has answered; only `grep` says so by its status.
    let searches = ["find ", "xargs -r "].iter().any(|c| command.starts_with(c));
    let found_nothing = out.status.code() == Some(1) && err.is_empty() && command.contains("grep ");
    // Those that were asked about have ended in between: `ps` printed its heads.
    let have_ended = out.status.code() == Some(123) && command.starts_with("xargs -r ps ");
    let ended = out.status.success() || out.status.code() == Some(124) || no_route || found_nothing;
    let ended = ended || have_ended;
    let says = no_route || found_nothing || searches || !text.trim().is_empty();
    assert!(ended && says, "the advice fails: {at}");
    let bare = command.rsplit_once("-n ").map_or(command, |(_, c)| c);
    if BY_NAME.iter().any(|c| bare.starts_with(c))
        && !bare.contains(" | ")
        && let Some(name) = f.object()
    {
        assert!(text.contains(&name), "{name} is not told: {at}");
    }
    eprintln!("lab: {test}: {}: typed: {command}", f.rule());
}

/// A command that measures three seconds for a person, or gives up after three, takes one here: on a
/// busy machine it would not end in time.
fn once(command: &str) -> String {
    command.replace(" 1 3", " 1 1").replace("timeout 3 ", "timeout 1 ")
}

/// Why a command is not typed.
enum Why {
    Not(&'static str),
    NotHere(String),
}

fn not_typed(command: &str) -> Option<Why> {
    let command = command.split("  # ").next().unwrap_or(command);
    for part in command.split(" | ").flat_map(|p| p.split("; ")).map(str::trim) {
        let inside = bare(part);
        if NOT_OURS.iter().any(|n| inside.starts_with(n))
            || inside.contains('=') && inside.starts_with("sysctl")
        {
            return Some(Why::Not("it changes something, or is for another host"));
        }
        if WAITS.iter().any(|n| inside.starts_with(n)) {
            return Some(Why::Not("it waits for what may not come"));
        }
        let word = inside.split_whitespace().next()?;
        let found = Command::new("bash").args(["-c", &format!("command -v {word}")]).output();
        if !found.is_ok_and(|o| o.status.success()) {
            return Some(Why::NotHere(word.to_owned()));
        }
    }
    None
}

/// Without what enters a namespace and what sets a limit of time.
fn bare(part: &str) -> &str {
    let rest = |p: &'static str| part.strip_prefix(p);
    let inside = if let Some(p) = rest("nsenter ") {
        p.split_once(" -n ").or_else(|| p.split_once(' ')).map_or(p, |(_, c)| c)
    } else if let Some(p) = rest("ip netns exec ") {
        p.split_once(' ').map_or(p, |(_, c)| c)
    } else {
        part
    };
    let limited = inside.strip_prefix("timeout ").and_then(|p| p.split_once(' '));
    limited.map_or(inside, |(_, c)| c)
}

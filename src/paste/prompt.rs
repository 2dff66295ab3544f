//! What surrounds output in a paste: shell prompts with commands, banners that name the host
//! and its kernel, code fences.

use std::time::Duration;

use super::number::{float, uint};

/// A command that was typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// Name, without path: `iostat`; empty for a bare prompt.
    pub(super) name: String,
    /// First number among its arguments that belongs to no option: the interval of iostat and
    /// vmstat.
    pub(super) interval: Option<Duration>,
    /// nstat with -a.
    pub(super) absolute: bool,
}

/// What a banner says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Banner {
    pub(super) kernel: String,
    pub(super) host: Option<String>,
    pub(super) cpus: Option<u32>,
}

/// Commands whose bare name at the start of a line is a command, not output.
const KNOWN: [&str; 23] = [
    "ss",
    "iostat",
    "nstat",
    "netstat",
    "fio",
    "vmstat",
    "uptime",
    "uname",
    "lsblk",
    "cat",
    "grep",
    "watch",
    "dmesg",
    "journalctl",
    "df",
    "free",
    "conntrack",
    "sysctl",
    "top",
    "pidstat",
    "mpstat",
    "sar",
    "busybox",
];
/// Words that may precede the actual command.
const WRAPPERS: [&str; 10] =
    ["sudo", "time", "watch", "timeout", "nsenter", "ip", "netns", "exec", "busybox", "LC_ALL=C"];

/// The command of a prompt line; `None` if it is not a prompt.
pub(super) fn command(text: &str) -> Option<Command> {
    let text = text.trim_start();
    // `watch` writes this above what it runs.
    if let Some(rest) = text.strip_prefix("Every ")
        && let Some((every, command)) = rest.split_once("s: ")
    {
        let mut c = parse(command);
        c.interval = c.interval.or_else(|| seconds(every));
        return Some(c);
    }
    if let Some(rest) = text.strip_prefix("+ ") {
        return known(rest).then(|| parse(rest));
    }
    if let Some(rest) = after_prompt(text) {
        return Some(parse(rest));
    }
    // Without a prompt, only what looks like a command line counts: a name with options.
    let mut w = text.split_ascii_whitespace();
    let first = w.next()?;
    let second = w.next();
    // `top - 12:00:00 up` is what top prints.
    let options = second.is_none_or(|s| s != "-" && s.starts_with(['-', '/']));
    (KNOWN.contains(&first) && options && text.len() < 200).then(|| parse(text))
}

fn known(text: &str) -> bool {
    text.split_ascii_whitespace().any(|w| KNOWN.contains(&w))
}

/// What comes after `root@db:~#`, `[root@db ~]$`, `$`, `#`, `%`.
fn after_prompt(text: &str) -> Option<&str> {
    let end = text.char_indices().take(100).find(|(i, c)| {
        matches!(c, '#' | '$' | '%' | '❯' | '➜')
            && text.get(i + c.len_utf8()..).is_none_or(|r| r.is_empty() || r.starts_with(' '))
    });
    let (at, sign) = end?;
    let (head, tail) = text.split_at_checked(at)?;
    let tail = tail.get(sign.len_utf8()..)?.trim();
    let head = head.trim_end();
    let person = head.contains('@') && !head.contains("  ") && head.len() < 80;
    let shell = head.is_empty()
        || head.ends_with(']') && head.starts_with('[')
        || head.starts_with("bash-")
        || head.starts_with("sh-");
    let plausible = if head.is_empty() {
        tail.is_empty() || known(tail) || tail.len() < 200
    } else {
        person || shell
    };
    plausible.then_some(tail)
}

fn parse(text: &str) -> Command {
    let mut out = Command::default();
    for word in text.split_ascii_whitespace() {
        let word = word.trim_matches(['\'', '"']);
        let name = word.rsplit('/').next().unwrap_or(word);
        if out.name.is_empty() {
            if KNOWN.contains(&name) && !WRAPPERS.contains(&name) {
                name.clone_into(&mut out.name);
            } else if !WRAPPERS.contains(&word)
                && !word.starts_with('-')
                && uint(word).is_none()
                && !word.contains('=')
            {
                // Something else entirely.
                name.chars().take(32).collect::<String>().clone_into(&mut out.name);
            }
            continue;
        }
        match word {
            "|" | ";" | "&&" | ">" | "2>&1" => break,
            _ => {}
        }
        if let Some(flags) = word.strip_prefix('-') {
            out.absolute |= !flags.starts_with('-') && flags.contains('a') || word == "--ignore";
        } else if out.interval.is_none() {
            out.interval = seconds(word);
        }
    }
    out
}

fn seconds(text: &str) -> Option<Duration> {
    let s = float(text)?;
    (0.1..=3600.0).contains(&s).then(|| Duration::from_secs_f64(s))
}

/// Kernel and host from the first line of iostat and vmstat, from `uname -a`, and from
/// /proc/version.
pub(super) fn banner(text: &str) -> Option<Banner> {
    let rest = text.trim_start().strip_prefix("Linux ")?;
    let mut w = rest.split_ascii_whitespace();
    let first = w.next()?;
    if first == "version" {
        return release(w.next()?).map(|kernel| Banner { kernel, host: None, cpus: None });
    }
    let second = w.next()?;
    if let Some(kernel) = release(first)
        && let Some(host) = second.strip_prefix('(').and_then(|h| h.strip_suffix(')'))
    {
        // `(8 CPU)` at the end.
        let cpus =
            rest.rsplit_once('(').and_then(|(_, c)| c.split_once(' ')).and_then(|(n, _)| uint(n));
        let cpus = cpus.and_then(|n| u32::try_from(n).ok()).filter(|n| (1..100_000).contains(n));
        return Some(Banner { kernel, host: Some(short(host)), cpus });
    }
    release(second).map(|kernel| Banner { kernel, host: Some(short(first)), cpus: None })
}

fn release(word: &str) -> Option<String> {
    let mut parts = word.split('.');
    let numeric = |p: Option<&str>| p.is_some_and(|p| p.starts_with(|c: char| c.is_ascii_digit()));
    (numeric(parts.next()) && numeric(parts.next()) && word.len() <= 80).then(|| word.to_owned())
}

fn short(host: &str) -> String {
    host.chars().take(64).collect()
}

/// A decorative line: fences, rules, dots.
pub(super) fn decoration(text: &str) -> bool {
    let text = text.trim();
    text.bytes().all(|b| b"`~-=_*.#|+<> \t".contains(&b))
        || text == "```sh"
        || text == "```text"
        || text == "```console"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn prompts_and_their_commands() {
        for (text, name) in [
            ("[root@db7 ~]# ss -tinm", "ss"),
            ("root@db7:/var/log# sudo /usr/sbin/ss -tin", "ss"),
            ("$ iostat -x 1 3", "iostat"),
            ("# nstat -az", "nstat"),
            ("user@host:~$", ""),
            ("bash-5.1$ ls", "ls"),
            ("+ ss -tin", "ss"),
            ("ss -tinmoe", "ss"),
            ("cat /proc/net/softnet_stat", "cat"),
            ("Every 2.0s: ss -tin    db7: Mon", "ss"),
            ("➜ uname -r", "uname"),
        ] {
            assert_eq!(command(text).map(|c| c.name).as_deref(), Some(name), "{text}");
        }
        for none in [
            "#kernel",
            "ESTAB 0 0 10.0.0.1:1 10.0.0.2:2",
            "ss prints sockets",
            "sda 99.95% busy % of time",
            "",
        ] {
            assert_eq!(command(none), None, "{none}");
        }
        assert_eq!(command("$ iostat -x vda 5 3").unwrap().interval, Some(Duration::from_secs(5)));
        assert_eq!(command("$ iostat -x -t 2").unwrap().interval, Some(Duration::from_secs(2)));
        assert!(
            command("# nstat -az").unwrap().absolute && !command("# nstat -z").unwrap().absolute
        );
    }

    #[test]
    fn banners_name_host_and_kernel() {
        let b =
            banner("Linux 4.19.57-15.1.al7.x86_64 (db7) \t10/12/2026 \t_x86_64_\t(8 CPU)").unwrap();
        assert_eq!(
            (b.kernel.as_str(), b.host.as_deref(), b.cpus),
            ("4.19.57-15.1.al7.x86_64", Some("db7"), Some(8))
        );
        let b =
            banner("Linux db7 5.10.0-8-amd64 #1 SMP Debian 5.10.46-4 x86_64 GNU/Linux").unwrap();
        assert_eq!((b.kernel.as_str(), b.host.as_deref()), ("5.10.0-8-amd64", Some("db7")));
        assert_eq!(banner("Linux version 6.1.0 (gcc)").unwrap().kernel, "6.1.0");
        for none in ["Linux is great", "linux 5.10 (x)", "Linux"] {
            assert_eq!(banner(none), None, "{none}");
        }
    }

    #[test]
    fn fences_are_no_text() {
        assert!(decoration("```") && decoration("-----") && decoration("..."));
        assert!(!decoration("a"));
    }
}

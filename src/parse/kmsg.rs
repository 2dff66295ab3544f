//! Records of the kernel's log, and what the OOM killer writes there.

use std::borrow::Cow;

use super::{hex, number};

/// A record of `/dev/kmsg`.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number: they have no gaps.
    pub seq: u64,
    /// The kernel wrote it, and no program that may write there.
    pub of_kernel: bool,
    /// What it says, without the escapes of the device (`\x5c` for a backslash).
    pub message: Cow<'a, str>,
}

/// Takes a record apart.
#[must_use]
pub fn split(record: &[u8]) -> Option<Record<'_>> {
    let end = record.iter().position(|b| *b == b'\n').unwrap_or(record.len());
    let line = record.get(..end)?;
    let semicolon = line.iter().position(|b| *b == b';')?;
    let mut head = line.get(..semicolon)?.split(|b| *b == b',');
    // Level and facility; that of the kernel is 0.
    let (priority, seq) = (number(head.next()?)?, number(head.next()?)?);
    let message = unescape(line.get(semicolon + 1..)?);
    Some(Record { seq, of_kernel: priority >> 3 == 0, message })
}

/// The device writes bytes that are not printable ASCII, and backslashes, as `\xNN`.
fn unescape(text: &[u8]) -> Cow<'_, str> {
    if !text.contains(&b'\\') {
        return String::from_utf8_lossy(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let code = match tail {
            [b'x', a, b, ..] if *first == b'\\' => hex(&[*a, *b]),
            _ => None,
        };
        out.push(code.map_or(*first, |c| c as u8));
        rest = if code.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// Process and cgroup that `oom-kill:constraint=...,task_memcg=/a,task=x,pid=7,uid=0` chose.
pub(crate) fn chosen(message: &str) -> Option<(u32, &str)> {
    let rest = message.strip_prefix("oom-kill:constraint=")?;
    let (_, rest) = rest.split_once(",task_memcg=")?;
    // A group may have commas in its name, and so may a process; a number has none.
    let (names, numbers) = rest.rsplit_once(",pid=")?;
    let (group, _) = names.split_once(",task=")?;
    Some((leading(numbers).and_then(|n| u32::try_from(n).ok())?, group))
}

/// The cgroup that `Tasks in /a are going to be killed due to memory.oom.group set` is about
/// (`mem_cgroup_print_oom_group()`, since 4.19): the kills that follow name none.
pub(crate) fn together(message: &str) -> Option<&str> {
    message
        .strip_prefix("Tasks in ")?
        .strip_suffix(" are going to be killed due to memory.oom.group set")
}

/// What a line of the OOM killer says of its victim.
#[derive(Debug, PartialEq, Eq)]
pub struct Killed<'a> {
    /// For the limit of a cgroup, as far as the line tells.
    pub of_group: bool,
    /// Process id.
    pub pid: u32,
    /// Its `comm`.
    pub comm: &'a str,
    /// `Killed`; kernels before 5.4 print `Kill process ... or sacrifice child` in front of it.
    pub is_done: bool,
    /// Resident kB: anonymous, file and shared memory.
    pub rss_kb: Option<u64>,
}

/// `Out of memory: Killed process 12 (x) total-vm:...`, and before 5.4 `Kill process 12 (x)
/// score 9 or sacrifice child` with `Killed process 12 (x) total-vm:...` behind it.
#[must_use]
pub fn killed(message: &str) -> Option<Killed<'_>> {
    let (of_group, rest) = match message.strip_prefix("Memory cgroup out of memory: ") {
        Some(rest) => (true, rest),
        // `Out of memory (oom_kill_allocating_task): ...`.
        None if message.starts_with("Out of memory") => (false, message.split_once(": ")?.1),
        None => (false, message),
    };
    let (is_done, rest) = match rest.strip_prefix("Killed process ") {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix("Kill process ")?),
    };
    let pid = leading(rest).and_then(|n| u32::try_from(n).ok())?;
    let (_, name) = rest.split_once('(')?;
    let end = [") total-vm:", ") score ", "), UID ", ") "].iter().find_map(|e| name.find(e));
    let comm = end.and_then(|e| name.get(..e)).unwrap_or(name.trim_end_matches(')'));
    let rss_kb = ["anon-rss:", "file-rss:", "shmem-rss:"]
        .iter()
        .filter_map(|f| leading(rest.split_once(f)?.1))
        .reduce(u64::saturating_add);
    Some(Killed { of_group, pid, comm, is_done, rss_kb })
}

/// The number that the text begins with.
fn leading(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

//! What a thread sleeps in, by the files of `/proc/PID/task/TID`.

use super::{place, syscall};
use crate::collect::HostFs;
use crate::rights::{self, Duty};
use crate::sample::waits::Sleep;

/// What the kernel let us read of a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Readable {
    pub(super) wchan: bool,
    pub(super) syscall: bool,
}

/// Reads it, of the thread with this directory. It may wake meanwhile: the parts need not fit.
pub(super) fn read(host: &HostFs, pid: u32, dir: &str, state: char) -> (Sleep, Readable) {
    let file = |name: &str| host.read(format!("{dir}/{name}"));
    let mut readable = Readable::default();
    let mut out = Sleep { state, ..Sleep::default() };
    if let Ok(text) = file("wchan") {
        readable.wchan = true;
        // 0: it runs by now, or it is not for our eyes.
        let name = String::from_utf8_lossy(&text).trim().to_owned();
        out.wchan = (!name.is_empty() && name != "0").then_some(name);
    }
    let stack = || rights::lend(Duty::Waits.row().lent, || file("stack")).ok();
    if out.wchan.as_deref().is_none_or(place::is_helper)
        && let Some(caller) = stack().as_deref().and_then(place::first_of)
    {
        out.wchan = Some(caller.to_owned());
    }
    let call = file("syscall").map(|b| {
        readable.syscall = true;
        syscall::parse(&b)
    });
    let Ok(Some(call)) = call else { return (out, readable) };
    out.syscall = call.name.map(str::to_owned);
    out.futex = call.futex();
    if let Some(fd) = call.fd() {
        (out.file, out.inode) = descriptor(host, pid, fd);
    }
    (out, readable)
}

/// What a descriptor of a process is: a path, `socket`, `pipe`, `[eventpoll]`; and the inode of the
/// socket or pipe.
pub(super) fn descriptor(host: &HostFs, pid: u32, fd: u32) -> (Option<String>, Option<u64>) {
    host.link(format!("proc/{pid}/fd/{fd}")).map_or((None, None), target)
}

/// What a link below `/proc/PID/fd` says: `socket:[123]`, `anon_inode:[eventpoll]`, a path.
fn target(link: String) -> (Option<String>, Option<u64>) {
    for kind in ["socket", "pipe"] {
        let number = link.strip_prefix(kind).and_then(|l| l.strip_prefix(":["));
        if let Some(n) = number.and_then(|l| l.strip_suffix(']')) {
            return (Some(kind.to_owned()), n.parse().ok());
        }
    }
    match link.strip_prefix("anon_inode:") {
        Some(kind) => (Some(kind.to_owned()), None),
        None => (Some(link), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_name_what_a_descriptor_is() {
        let of = |l: &str| {
            let (file, inode) = target(l.to_owned());
            (file.unwrap_or_default(), inode)
        };
        assert_eq!(of("socket:[4711]"), ("socket".into(), Some(4711)));
        assert_eq!(of("pipe:[12]"), ("pipe".into(), Some(12)));
        assert_eq!(of("anon_inode:[eventpoll]"), ("[eventpoll]".into(), None));
        assert_eq!(of("/var/lib/db/wal (deleted)"), ("/var/lib/db/wal (deleted)".into(), None));
    }
}

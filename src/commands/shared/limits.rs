//! What must be there before anything is read: `/proc`, open files and address space. Reported in
//! one line at the start; later it would be a dozen lines that blame the kernel, or a panic of a
//! library.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::collect::HostFs;
use crate::exit::Stop;
use crate::view::units;

/// Open files that the readers without eBPF, the event loop and a recorder use, and some more.
const FILES: u64 = 96;
/// The soft limit is raised to this if the hard one allows it: the default of a login.
const USUAL_FILES: u64 = 1024;
/// Address space, with some to spare: below 260 MiB allocations began to fail, which ends any
/// program. Most of it is not memory: the allocator reserves 64 MiB per thread.
const ADDRESS_SPACE: u64 = 512 << 20;

/// Before a command reads the running kernel.
pub(crate) fn ready_to_read() -> anyhow::Result<()> {
    let host = HostFs::live();
    if !["proc/self/stat", "proc/stat"].iter().any(|p| host.path(p).exists()) {
        return Err(Stop::cannot(
            "/proc is not mounted, but nearly everything is read from it; `mount -t proc proc \
             /proc`",
        ));
    }
    room()
}

/// Before anything that has an event loop.
pub(crate) fn room() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = wanted(limit);
    if raised != limit {
        // If even this is refused, the current limit counts.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    if let Some(n) = getrlimit(Resource::Nofile).current.filter(|n| *n < FILES) {
        return Err(Stop::cannot(format!(
            "only {n} open files allowed, {FILES} needed; `ulimit -n 1024`, or LimitNOFILE= of the \
             service"
        )));
    }
    if let Some(n) = getrlimit(Resource::As).current.filter(|n| *n < ADDRESS_SPACE) {
        return Err(Stop::cannot(format!(
            "only {} of address space allowed, {} needed; `ulimit -v unlimited`, or LimitAS= of \
             the service",
            units::bytes(n as f64),
            units::bytes(ADDRESS_SPACE as f64)
        )));
    }
    Ok(())
}

/// Any process may raise its soft limit of open files up to the hard one.
fn wanted(limit: Rlimit) -> Rlimit {
    let most = limit.maximum.map_or(USUAL_FILES, |m| m.min(USUAL_FILES));
    Rlimit { current: limit.current.map(|c| c.max(most)), ..limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_what_is_usual_and_never_lowered() {
        let soft = |current, maximum| wanted(Rlimit { current, maximum }).current;
        assert_eq!(soft(Some(20), Some(4096)), Some(1024));
        assert_eq!(soft(Some(20), Some(200)), Some(200));
        assert_eq!(soft(Some(20), None), Some(1024));
        assert_eq!(soft(Some(65_536), Some(65_536)), Some(65_536));
        assert_eq!(soft(None, None), None);
    }
}

//! Doing something inside another network namespace, and coming back.
//!
//! `setns` moves the calling thread only, so whoever uses this owns its thread. Needs
//! `CAP_SYS_ADMIN`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Said of a namespace that may not be entered.
pub const NOT_PERMITTED: &str = "not permitted";

/// Why a namespace could not be entered, or not be left.
pub enum Enter {
    /// Its handle is gone: so is the namespace.
    Gone,
    /// Not permitted, or another error.
    Refused(String),
    /// The thread is in a foreign namespace and cannot go back.
    Lost(String),
}

/// Runs `work` with the calling thread inside the namespace behind `handle`.
pub fn inside<T>(home: &File, handle: &Path, work: impl FnOnce() -> T) -> Result<T, Enter> {
    let net = Some(LinkNameSpaceType::Network);
    let target = File::open(handle).map_err(|e| refusal(&e))?;
    move_into_link_name_space(target.as_fd(), net).map_err(|e| refusal(&e.into()))?;
    // The handle pins the namespace as well.
    drop(target);
    let guard = Home { home, returned: false };
    let out = work();
    guard
        .back()
        .map_err(|e| Enter::Lost(format!("cannot return to our own network namespace: {e}")))?;
    Ok(out)
}

/// Goes home even when the work panics.
struct Home<'a> {
    home: &'a File,
    returned: bool,
}

impl Home<'_> {
    fn back(mut self) -> rustix::io::Result<()> {
        self.returned = true;
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network))
    }
}

impl Drop for Home<'_> {
    fn drop(&mut self) {
        if !self.returned {
            // The panic goes on; where this fails too, the next entry reports it.
            let _ = move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network));
        }
    }
}

fn refusal(e: &io::Error) -> Enter {
    const ESRCH: i32 = 3;
    match e.kind() {
        io::ErrorKind::NotFound => Enter::Gone,
        _ if e.raw_os_error() == Some(ESRCH) => Enter::Gone,
        io::ErrorKind::PermissionDenied => Enter::Refused(NOT_PERMITTED.to_owned()),
        // A mount point that is no namespace any more.
        io::ErrorKind::InvalidInput => Enter::Gone,
        _ => Enter::Refused(e.to_string()),
    }
}

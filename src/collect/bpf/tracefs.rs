//! Finds tracefs, which classic tracepoints need. Where it is not mounted and we may, it is
//! mounted for the calling thread only: nobody else on the host sees it, and it is gone when
//! the thread is.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::format::Format;
use super::maps::unshare_mounts;
use crate::collect::Unavailable;

/// Where it may be mounted.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

static MOUNTED: AtomicBool = AtomicBool::new(false);

/// True when we mounted it for ourselves.
pub(super) fn mounted_privately() -> bool {
    MOUNTED.load(Ordering::Relaxed)
}

/// Makes tracefs visible to the calling thread.
pub(super) fn ready() -> Result<&'static Path, Unavailable> {
    if let Some(place) = visible() {
        return Ok(place);
    }
    let place = Path::new(PLACES[0]);
    mount_privately(place).map_err(|e| {
        let reason = format!("tracefs is not readable, and mounting it privately failed: {e}");
        Unavailable::new(reason, "run as root, or mount -t tracefs tracefs /sys/kernel/tracing")
    })?;
    MOUNTED.store(true, Ordering::Relaxed);
    visible().ok_or_else(|| {
        Unavailable::new("this kernel has no tracefs", "use a kernel with CONFIG_TRACING")
    })
}

fn visible() -> Option<&'static Path> {
    PLACES.into_iter().map(Path::new).find(|p| p.join("events").is_dir())
}

fn mount_privately(place: &Path) -> std::io::Result<()> {
    unshare_mounts()?;
    // Else the mount would spread to the namespace that we came from. What is unmounted there
    // still leaves here too: nothing stays busy because of us.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    mount("tracefs", place, "tracefs", MountFlags::NOSUID | MountFlags::NOEXEC, None)?;
    Ok(())
}

/// The record of a classic tracepoint.
pub(super) fn format(group: &str, event: &str) -> Result<Format, Unavailable> {
    let path = ready()?.join("events").join(group).join(event).join("format");
    let text = std::fs::read(&path).map_err(|e| {
        Unavailable::because(path.display(), &e, "this kernel lacks the tracepoint")
    })?;
    Ok(Format::parse(&String::from_utf8_lossy(&text)))
}

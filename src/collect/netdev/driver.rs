//! Driver counters of NICs behind a cloud's limits: the `*_allowance_exceeded` of `ena`, packets
//! that the provider queued or dropped. The kernel gives driver statistics out by an ioctl only,
//! which safe code cannot make, so the tool `ethtool` is asked, where it is installed and a NIC
//! has such a driver. It runs beside us and is looked after at the next tick: a driver that
//! hangs holds up `ethtool`, not us.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::collect::HostFs;
use crate::parse::{lines, number};
use crate::sample::Signal;
use crate::sample::time::MonoNs;

/// Fixed places: we may be root, and `PATH` is anybody's.
const TOOLS: [&str; 3] = ["/usr/sbin/ethtool", "/sbin/ethtool", "/usr/bin/ethtool"];
/// Drivers that count what a provider holds back.
const DRIVERS: [&str; 1] = ["ena"];
/// Starting a process costs about a millisecond.
const EVERY: Duration = Duration::from_secs(2);
/// Which NICs there are is looked up again after this time.
const NICS_AGE: Duration = Duration::from_secs(60);
/// `ethtool` is killed after this time.
const LIMIT: Duration = Duration::from_secs(10);
/// NICs that are asked at most, and bytes that are read of an answer.
const MAX_NICS: usize = 16;
const MAX_BYTES: u64 = 1 << 20;

/// Counters by their driver's names.
pub(super) type Counters = Vec<(Arc<str>, u64)>;

/// Asks for them. See the module head.
#[derive(Default)]
pub(super) struct DriverStats {
    /// Program and first arguments; the device follows.
    command: Vec<String>,
    nics: Vec<String>,
    nics_at: Option<MonoNs>,
    due: Option<MonoNs>,
    running: Vec<Running>,
    found: BTreeMap<String, Counters>,
}

struct Running {
    nic: String,
    child: Child,
    out: File,
    since: MonoNs,
}

impl DriverStats {
    /// Takes in what came and asks anew when it is time; `names` are the devices of drivers.
    pub(super) fn poll<'a>(
        &mut self,
        host: &HostFs,
        at: MonoNs,
        names: impl Iterator<Item = &'a str>,
    ) {
        self.reap(at);
        if self.nics_at.is_none_or(|t| at.since(t) >= NICS_AGE) {
            self.nics_at = Some(at);
            self.nics =
                names.filter(|n| counts(host, n)).take(MAX_NICS).map(str::to_owned).collect();
            self.found.retain(|n, _| self.nics.contains(n));
            let tool = TOOLS.iter().find(|t| Path::new(t).exists());
            self.command = tool.map(|t| vec![(*t).to_owned(), "-S".to_owned()]).unwrap_or_default();
        }
        self.ask(at);
    }

    /// What a NIC counted when it was asked last.
    pub(super) fn of(&self, nic: &str) -> Counters {
        self.found.get(nic).cloned().unwrap_or_default()
    }

    /// Nothing where no NIC has such a driver.
    pub(super) fn signal(&self) -> Option<Signal> {
        const NAME: &str = "NIC allowances";
        if self.nics.is_empty() {
            return None;
        }
        Some(if self.command.is_empty() {
            let why = "ethtool is not installed: provider limits cannot be seen";
            Signal::missing(NAME, "ethtool -S", why, "install ethtool")
        } else if self.nics.iter().all(|n| self.found.contains_key(n)) {
            Signal::ok(NAME, "ethtool -S")
        } else {
            Signal::missing(NAME, "ethtool -S", "no answer yet", "")
        })
    }

    fn ask(&mut self, at: MonoNs) {
        if !self.running.is_empty() || self.due.is_some_and(|t| at < t) {
            return;
        }
        let Some((tool, first)) = self.command.split_first() else { return };
        self.due = Some(at + EVERY);
        for nic in &self.nics {
            // In memory: a pipe holds 64 KiB, and nobody reads it until the next tick.
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let Ok(file) = rustix::fs::memfd_create("ethtool", flags) else { return };
            let out = File::from(file);
            let Ok(stdout) = out.try_clone() else { return };
            let child = Command::new(tool)
                .args(first)
                .arg(nic)
                .env_clear()
                .stdin(Stdio::null())
                .stdout(stdout)
                .stderr(Stdio::null())
                .spawn();
            if let Ok(child) = child {
                self.running.push(Running { nic: nic.clone(), child, out, since: at });
            }
        }
    }

    fn reap(&mut self, at: MonoNs) {
        let found = &mut self.found;
        self.running.retain_mut(|r| match r.child.try_wait() {
            Ok(None) => {
                if at.since(r.since) >= LIMIT {
                    found.remove(&r.nic);
                    // It is waited for at a later tick: a driver may hold it still.
                    let _ = r.child.kill();
                }
                true
            }
            Ok(Some(status)) => {
                let mut text = Vec::new();
                let read =
                    r.out.rewind().and_then(|()| (&r.out).take(MAX_BYTES).read_to_end(&mut text));
                if status.success() && read.is_ok() {
                    found.insert(r.nic.clone(), parse(&text));
                } else {
                    found.remove(&r.nic);
                }
                false
            }
            Err(_) => false,
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing happens to one that has ended.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

fn counts(host: &HostFs, nic: &str) -> bool {
    let driver = host.link(format!("sys/class/net/{nic}/device/driver"));
    driver.is_ok_and(|d| DRIVERS.contains(&d.rsplit('/').next().unwrap_or_default()))
}

/// `name: value` lines whose names end in `_allowance_exceeded`.
fn parse(text: &[u8]) -> Counters {
    let line = |l: &[u8]| {
        let colon = l.iter().position(|b| *b == b':')?;
        let (name, value) = (l.get(..colon)?.trim_ascii(), l.get(colon + 1..)?.trim_ascii());
        let name = std::str::from_utf8(name).ok().filter(|n| n.ends_with("_allowance_exceeded"))?;
        Some((Arc::from(name), number(value)?))
    };
    lines(text).filter_map(line).take(64).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::clock;
    use proptest::prelude::*;

    /// Constructed: names and layout of the driver `ena` and of `ethtool` 6, values made up.
    const ENA: &str = "NIC statistics:\n     tx_timeout: 0\n     bw_in_allowance_exceeded: 0\n     \
        bw_out_allowance_exceeded: 1842\n     pps_allowance_exceeded: 18446744073709551615\n     \
        conntrack_allowance_exceeded: 7\n     conntrack_allowance_available: 136812\n     \
        queue_0_tx_cnt: 8812\n";

    fn asked(script: &str) -> DriverStats {
        DriverStats {
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            nics: vec!["eth0".to_owned()],
            nics_at: Some(MonoNs(0)),
            ..DriverStats::default()
        }
    }

    fn poll(d: &mut DriverStats, s: u64) {
        d.poll(&HostFs::live(), MonoNs(s * 1_000_000_000), std::iter::empty());
    }

    fn until(d: &mut DriverStats, s: u64, done: impl Fn(&DriverStats) -> bool) {
        for _ in 0..1000 {
            poll(d, s);
            if done(d) {
                return;
            }
            clock::sleep_until(clock::mono() + Duration::from_millis(10));
        }
        panic!("nothing in 10 s");
    }

    #[test]
    fn allowances_are_told_from_other_counters() {
        let all = parse(ENA.as_bytes());
        let all: Vec<(&str, u64)> = all.iter().map(|(n, v)| (&**n, *v)).collect();
        assert_eq!(
            all,
            [
                ("bw_in_allowance_exceeded", 0),
                ("bw_out_allowance_exceeded", 1842),
                ("pps_allowance_exceeded", u64::MAX),
                ("conntrack_allowance_exceeded", 7),
            ]
        );
    }

    #[test]
    fn the_tool_is_not_waited_for_and_asked_again() {
        // `$0` is the device, which comes last.
        let mut d = asked("test $0 = eth0 && echo ' pps_allowance_exceeded: 5'");
        poll(&mut d, 0);
        assert!(
            d.signal()
                .is_some_and(|s| matches!(s.status, crate::sample::SignalStatus::Missing { .. }))
        );
        until(&mut d, 1, |d| !d.of("eth0").is_empty());
        assert_eq!(d.of("eth0"), [(Arc::from("pps_allowance_exceeded"), 5)]);
        assert!(d.running.is_empty(), "not before two seconds");
        d.command[2] = "exit 1".to_owned();
        until(&mut d, 2, |d| d.found.is_empty());
    }

    #[test]
    fn one_that_hangs_is_killed() {
        let mut d = asked("exec sleep 600");
        poll(&mut d, 0);
        poll(&mut d, 9);
        assert_eq!(d.running.len(), 1);
        // Due at 10 s as well; so look before it is started again.
        d.due = Some(MonoNs(u64::MAX));
        until(&mut d, 10, |d| d.running.is_empty());
    }

    #[test]
    fn this_guest_has_no_such_driver() {
        let mut d = DriverStats::default();
        d.poll(&HostFs::live(), MonoNs(1), ["lo"].into_iter());
        assert!(d.nics.is_empty() && d.running.is_empty() && d.signal().is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}

//! Removes what identifies the host from ticks: addresses, the host name, and the names of
//! processes, cgroups, namespaces, volumes and unusual network devices are replaced by others of
//! the same kind. The same original gives the same pseudonym, so a flow is still a flow and a
//! cgroup is still in its parent; pseudonyms are numbered in order of appearance and contain
//! nothing of the original.
//!
//! Kept: numbers (ports, process ids, counters, times), names that every Linux box has (`eth0`,
//! `sda`, `system.slice`, `kworker/0:1`), versions, loopback and unspecified addresses. A text
//! whose field is not known to be harmless is replaced, so a collector that is added later reveals
//! nothing by default.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde_json::Value;

use crate::recording::file::index::{Event, EventAt};
use crate::sample::sockets::{
    InetRows, NetnsTable, NextHop, Owner, RouteAnswer, RouteOutcome, SocketsSample, UnixRows,
    UnreadNetns, map_v4,
};
use crate::sample::tick::{HealthState, HostInfo, Tick};
use crate::sample::{Samples, Shared, SignalStatus, Stamped};

/// What the pseudonym of a boot begins with.
pub(crate) const BOOT: &str = "boot-";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Host,
    Boot,
    Process,
    Cgroup,
    Netns,
    Device,
    Volume,
    Mount,
    Socket,
    Other,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Host => "host-",
            Self::Boot => BOOT,
            Self::Process => "proc-",
            Self::Cgroup => "group-",
            Self::Netns => "ns-",
            Self::Device => "if-",
            Self::Volume => "vol-",
            Self::Mount => "dir-",
            Self::Socket => "sock-",
            Self::Other => "text-",
        }
    }
}

/// Maps originals to pseudonyms.
#[derive(Debug, Default)]
pub struct Redactor {
    names: HashMap<(Kind, String), String>,
    /// The first of them, whatever the text was about: for words of a sentence.
    words: HashMap<String, String>,
    counts: HashMap<Kind, u64>,
    addresses: HashMap<[u8; 16], [u8; 16]>,
    given: u32,
    marks: u64,
    /// Socket tables that ticks share, done once.
    tables: HashMap<usize, (Arc<NetnsTable>, Arc<NetnsTable>)>,
}

/// A field that could not be put together again.
#[derive(Debug, thiserror::Error)]
#[error("cannot redact the {0} sample: {1}")]
pub struct RedactError(&'static str, String);

impl Redactor {
    pub fn host(&mut self, h: &HostInfo) -> HostInfo {
        HostInfo {
            hostname: self.name(Kind::Host, &h.hostname),
            boot_id: self.name(Kind::Boot, &h.boot_id),
            ..h.clone()
        }
    }

    /// An event; `None` for one that is written by itself from the ticks.
    pub fn event(&mut self, r: &EventAt) -> Option<EventAt> {
        let event = match &r.event {
            Event::Mark { .. } => {
                self.marks += 1;
                Event::Mark { text: format!("mark {}", self.marks) }
            }
            Event::Dropped { ticks, .. } => {
                Event::Dropped { ticks: *ticks, why: "not recorded".to_owned() }
            }
            _ => return None,
        };
        Some(EventAt { at: r.at, event })
    }

    /// A tick.
    /// Fails when a sample holds a choice that this program does not know how to keep.
    pub fn tick(&mut self, t: &Tick) -> Result<Tick, RedactError> {
        let mut samples = t.samples.clone();
        self.sockets(&mut samples.sockets);
        self.sockets(&mut samples.netns_sockets);
        macro_rules! walk {
            ($($field:ident)+) => { $( self.sample(stringify!($field), &mut samples.$field)?; )+ };
        }
        walk!(disks softirq sched netdev cgroups processes filesystems limits kmsg runq_bpf irq_bpf
            block_bpf net_bpf);
        // These hold numbers and names of counters only.
        let Samples {
            sockets: _,
            netns_sockets: _,
            disks: _,
            cpu: _,
            softirq: _,
            sched: _,
            net_counters: _,
            netdev: _,
            psi: _,
            memory: _,
            cgroups: _,
            processes: _,
            filesystems: _,
            limits: _,
            kmsg: _,
            runq_bpf: _,
            irq_bpf: _,
            block_bpf: _,
            net_bpf: _,
            own: _,
        } = &samples;
        let mut health = t.health.clone();
        for h in &mut health {
            match &mut h.state {
                HealthState::Failed { error } => "redacted".clone_into(error),
                HealthState::Off { reason, remedy } => {
                    *reason = self.text(reason);
                    *remedy = self.text(remedy);
                }
                HealthState::Fresh | HealthState::Thinned { .. } | HealthState::Late { .. } => {}
            }
            for s in &mut h.signals {
                match &mut s.status {
                    SignalStatus::Degraded { reason, remedy }
                    | SignalStatus::Missing { reason, remedy } => {
                        *reason = self.text(reason);
                        *remedy = self.text(remedy);
                    }
                    SignalStatus::Ok => {}
                }
            }
        }
        self.tables.retain(|_, (_, new)| Arc::strong_count(new) > 1);
        Ok(Tick { seq: t.seq, mono: t.mono, wall: t.wall, samples, health, gap: t.gap })
    }

    fn name(&mut self, kind: Kind, original: &str) -> String {
        if original.is_empty() || is_common(kind, original) {
            return original.to_owned();
        }
        if let Some(known) = self.names.get(&(kind, original.to_owned())) {
            return known.clone();
        }
        let n = self.counts.entry(kind).or_insert(0);
        *n += 1;
        let new = format!("{}{n}", kind.prefix());
        self.names.insert((kind, original.to_owned()), new.clone());
        self.words.entry(original.to_owned()).or_insert_with(|| new.clone());
        new
    }

    /// Part by part: what lies in what stays.
    fn path(&mut self, kind: Kind, path: &str) -> String {
        if path.starts_with("/sys/fs/cgroup") || path.starts_with("/proc/") {
            return path.to_owned();
        }
        let part = |p: &str, r: &mut Self| -> String {
            let suffix = [".service", ".scope", ".slice", ".mount", ".socket"];
            match suffix.iter().find_map(|s| Some((p.strip_suffix(s)?, s))) {
                Some((stem, s)) if !is_common(kind, p) => format!("{}{s}", r.name(kind, stem)),
                _ => r.name(kind, p),
            }
        };
        path.split('/').map(|p| part(p, self)).collect::<Vec<_>>().join("/")
    }

    /// Words of ours, with names of theirs in between.
    fn text(&mut self, s: &str) -> String {
        let word = |w: &str, r: &mut Self| -> String {
            let core = w.trim_matches([',', ';', ':', '(', ')', '\'', '"', '.']);
            if core.is_empty() {
                return w.to_owned();
            }
            let new = if let Ok(ip) = core.parse::<IpAddr>() {
                r.ip(ip).to_string()
            } else if core.starts_with('/') {
                r.path(Kind::Other, core)
            } else if let Some(known) = r.words.get(core) {
                known.clone()
            } else {
                return w.to_owned();
            };
            w.replacen(core, &new, 1)
        };
        s.split(' ').map(|w| word(w, self)).collect::<Vec<_>>().join(" ")
    }

    fn ip(&mut self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(a) => {
                let b = self.address(map_v4(a.octets()));
                IpAddr::V4(Ipv4Addr::new(b[12], b[13], b[14], b[15]))
            }
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from(self.address(a.octets()))),
        }
    }

    fn address(&mut self, a: [u8; 16]) -> [u8; 16] {
        let v6 = Ipv6Addr::from(a);
        let v4 = v6.to_ipv4_mapped();
        if v6.is_unspecified()
            || v6.is_loopback()
            || v4.is_some_and(|v| v.is_loopback() || v.is_unspecified() || v.is_broadcast())
        {
            return a;
        }
        if let Some(known) = self.addresses.get(&a) {
            return *known;
        }
        self.given = self.given.wrapping_add(1);
        let new =
            v4.map_or_else(|| pseudo_v6(v6, self.given), |v| map_v4(pseudo_v4(v, self.given)));
        self.addresses.insert(a, new);
        new
    }

    fn sockets(&mut self, sample: &mut Option<Shared<SocketsSample>>) {
        let Some(old) = sample.take() else { return };
        let SocketsSample { spaces, unread } = &old.data;
        let data = SocketsSample {
            spaces: spaces.iter().map(|t| self.table(t)).collect(),
            unread: unread
                .iter()
                .map(|u| UnreadNetns {
                    label: self.name(Kind::Netns, &u.label),
                    reason: "redacted".to_owned(),
                    ..u.clone()
                })
                .collect(),
        };
        *sample = Some(Arc::new(Stamped { span: old.span, cpu: old.cpu, data }));
    }

    fn table(&mut self, t: &Arc<NetnsTable>) -> Arc<NetnsTable> {
        let key = Arc::as_ptr(t) as usize;
        if let Some((_, done)) = self.tables.get(&key) {
            return done.clone();
        }
        // All fields by name: a new one must be thought about.
        let NetnsTable {
            netns,
            label,
            member,
            span,
            source,
            inet,
            unix,
            owners,
            cgroups,
            routes,
            holes,
            bad_rows,
            ports,
        } = (**t).clone();
        let inet = InetRows {
            local: inet.local.iter().map(|a| self.address(*a)).collect(),
            remote: inet.remote.iter().map(|a| self.address(*a)).collect(),
            ..inet
        };
        let owner = |o: Owner, r: &mut Self| Owner { comm: r.name(Kind::Process, &o.comm), ..o };
        let route = |a: RouteAnswer, r: &mut Self| RouteAnswer {
            outcome: match a.outcome {
                RouteOutcome::Via { ifindex, dev, hop } => RouteOutcome::Via {
                    ifindex,
                    dev: r.name(Kind::Device, &dev),
                    hop: hop.map(|h| NextHop { addr: r.address(h.addr), ..h }),
                },
                errno @ RouteOutcome::Errno(_) => errno,
            },
            ..a
        };
        let new = Arc::new(NetnsTable {
            netns,
            label: self.name(Kind::Netns, &label),
            member,
            span,
            source,
            inet,
            unix: self.unix(unix),
            owners: owners.into_iter().map(|o| owner(o, self)).collect(),
            cgroups: cgroups.into_iter().map(|(n, p)| (n, self.path(Kind::Cgroup, &p))).collect(),
            routes: routes.into_iter().map(|a| route(a, self)).collect(),
            holes: holes.iter().map(|h| self.text(h)).collect(),
            bad_rows,
            ports,
        });
        self.tables.insert(key, (t.clone(), new.clone()));
        new
    }

    fn unix(&mut self, u: UnixRows) -> UnixRows {
        let (mut names, mut ends) = (Vec::new(), Vec::with_capacity(u.name_end.len()));
        let mut from = 0;
        for end in &u.name_end {
            let end = *end as usize;
            let name = u.names.get(from..end).unwrap_or_default();
            from = end.max(from);
            if !name.is_empty() {
                // An abstract name stays abstract.
                let (first, rest) = match name {
                    [0, rest @ ..] => (&[0][..], rest),
                    all => (&[][..], all),
                };
                let new = self.name(Kind::Socket, &String::from_utf8_lossy(rest));
                names.extend_from_slice(first);
                if first.is_empty() {
                    names.push(b'/');
                }
                names.extend_from_slice(new.as_bytes());
            }
            ends.push(names.len() as u32);
        }
        UnixRows { names, name_end: ends, ..u }
    }

    /// Any other sample, by the names of its fields.
    fn sample<S>(&mut self, id: &'static str, s: &mut Option<Shared<S>>) -> Result<(), RedactError>
    where
        S: serde::Serialize + serde::de::DeserializeOwned,
    {
        let Some(old) = s.take() else { return Ok(()) };
        let wrong = |e: serde_json::Error| RedactError(id, e.to_string());
        let mut v = serde_json::to_value(&old.data).map_err(wrong)?;
        self.walk(&mut v, id, "");
        let data = serde_json::from_value(v).map_err(wrong)?;
        *s = Some(Arc::new(Stamped { span: old.span, cpu: old.cpu, data }));
        Ok(())
    }

    fn walk(&mut self, v: &mut Value, id: &str, key: &str) {
        match v {
            Value::Object(map) => {
                for (k, v) in map.iter_mut() {
                    self.walk(v, id, k);
                }
            }
            Value::Array(all) => {
                if let Some(a) = octets(all) {
                    let new = self.address(a);
                    *all = new.iter().map(|b| Value::from(*b)).collect();
                    return;
                }
                for v in all.iter_mut() {
                    self.walk(v, id, key);
                }
            }
            Value::String(s) => *s = self.field(id, key, s),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn field(&mut self, id: &str, key: &str, s: &str) -> String {
        match key {
            "name" if id == "netdev" => self.name(Kind::Device, s),
            "name" if id == "disks" => self.name(Kind::Volume, s),
            "name" if id == "net_bpf" => s.to_owned(),
            "holes" => self.text(s),
            "mount" | "source" if id == "filesystems" => self.path(Kind::Mount, s),
            // Words of the kernel: what has a value that could be a name was left out.
            "options" | "mount_options" if id == "filesystems" => s.to_owned(),
            // Numbers, choices and words of the kernel.
            "dm_kind" | "level" | "sync_action" | "irq" | "scheduler" | "write_cache" | "state"
            | "operstate" | "allowed" | "wchan" | "rps_cpus" | "kind" | "class" | "source"
            | "op" | "place" | "vectors" | "softirqs" | "reasons" | "tier" | "exceeded"
            | "qdisc" | "line" | "lines" | "model" | "policy" | "unit" => s.to_owned(),
            "comm" => self.name(Kind::Process, s),
            "path" | "mount" | "cgroup" => self.path(Kind::Cgroup, s),
            "dev" => self.name(Kind::Device, s),
            "addr" => match s.parse::<IpAddr>() {
                Ok(ip) => self.ip(ip).to_string(),
                Err(_) => self.name(Kind::Other, s),
            },
            "backing_file" => self.path(Kind::Volume, s),
            "dm_name" | "parent" | "slaves" | "holders" => self.name(Kind::Volume, s),
            "name" => self.handlers(s),
            "label" => self.name(Kind::Netns, s),
            _ => self.name(Kind::Other, s),
        }
    }

    /// An interrupt line: chip, number, and a device's name with
    /// its queue.
    fn handlers(&mut self, s: &str) -> String {
        let word = |w: &str, r: &mut Self| -> String {
            let harmless = |p: &str| {
                p.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase() || c == '_')
                    || is_common(Kind::Device, p)
                    || is_common(Kind::Volume, p)
                    || CHIPS.contains(&p.to_ascii_lowercase().as_str())
            };
            let parts = w
                .split('-')
                .map(|p| if harmless(p) { p.to_owned() } else { r.name(Kind::Device, p) });
            parts.collect::<Vec<_>>().join("-")
        };
        s.split(' ').map(|w| word(w, self)).collect::<Vec<_>>().join(" ")
    }
}

/// Parts of mount points and their sources that every box has.
const MOUNTS: &[&str] = &[
    "boot", "dev", "efi", "etc", "home", "lib", "log", "mapper", "media", "mnt", "none", "opt",
    "overlay", "pts", "root", "run", "shm", "snap", "srv", "tmp", "tmpfs", "user", "usr", "var",
];

/// Words of interrupt lines that say nothing about a box.
const CHIPS: &[&str] = &[
    "edge", "fasteoi", "level", "pci", "msi", "msix", "msi-x", "io", "apic", "ir", "rx", "tx",
    "txrx", "input", "output", "req", "config", "control", "virtio0", "virtio1", "virtio2",
    "virtio3", "virtio4", "virtio5", "timer", "rtc0", "acpi", "i8042", "ahci", "xhci_hcd", "gicv3",
    "its", "xen", "dyn", "event", "hyper", "v", "comp", "mlx5", "mgmnt", "admin", "queue",
];

fn octets(all: &[Value]) -> Option<[u8; 16]> {
    if all.len() != 16 {
        return None;
    }
    let mut out = [0; 16];
    for (to, v) in out.iter_mut().zip(all) {
        *to = u8::try_from(v.as_u64()?).ok()?;
    }
    // Sixteen small counters are not an address.
    let v4 = out.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    (v4 || out.first().is_some_and(|b| (0x20..0x40).contains(b) || *b >= 0xfc)).then_some(out)
}

/// A name that every box has.
fn is_common(kind: Kind, s: &str) -> bool {
    let numbered = |stems: &[&str]| {
        stems.iter().any(|p| {
            s.strip_prefix(p).is_some_and(|r| {
                !r.is_empty()
                    && r.len() <= 12
                    && r.bytes().all(|b| b.is_ascii_digit() || b"npsf".contains(&b))
            })
        })
    };
    let lettered = |stems: &[&str]| {
        stems.iter().any(|p| {
            s.strip_prefix(p).is_some_and(|r| {
                (1..=4).contains(&r.len())
                    && r.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            })
        })
    };
    match kind {
        Kind::Host | Kind::Boot | Kind::Socket | Kind::Other => false,
        Kind::Process => ["kworker/", "ksoftirqd/", "migration/", "kswapd", "rcu_", "swapper/"]
            .iter()
            .any(|p| s.starts_with(p)),
        Kind::Cgroup => {
            let known = [
                "system.slice",
                "user.slice",
                "init.scope",
                "machine.slice",
                "kubepods.slice",
                "kubepods",
                "docker",
                "..",
                "sys",
                "fs",
            ];
            known.contains(&s) || s == "cgroup"
        }
        Kind::Netns => s == "host",
        Kind::Device => {
            s == "lo" || numbered(&["eth", "ens", "eno", "enp", "wlan", "wlp", "bond", "ib"])
        }
        Kind::Mount => MOUNTS.contains(&s) || is_common(Kind::Volume, s),
        Kind::Volume => {
            numbered(&["nvme", "dm-", "loop", "md", "sr", "mmcblk", "zram", "ram", "nbd"])
                || lettered(&["sd", "vd", "xvd", "hd"])
        }
    }
}

/// The n-th replacement address of the same kind.
fn pseudo_v4(a: Ipv4Addr, n: u32) -> [u8; 4] {
    let [_, x, y, z] = n.to_be_bytes();
    let [first, second, ..] = a.octets();
    match (first, second) {
        (169, 254) => [169, 254, y, z],
        (224..=239, _) => [239, 0xC0 | (x & 0x3F), y, z],
        _ if a.is_private() => [10, 0x80 | x, y, z],
        // 240/4 belongs to nobody, so no real machine is named.
        _ => [0xF0 | (x & 7), x, y, z],
    }
}

fn pseudo_v6(a: Ipv6Addr, n: u32) -> [u8; 16] {
    let prefix: [u8; 4] = match a.octets() {
        [0xfe, b, ..] if b & 0xc0 == 0x80 => [0xfe, 0x80, 0, 0],
        [0xff, b, ..] => [0xff, b, 0, 0],
        [b, ..] if b & 0xfe == 0xfc => [0xfd, 0, 0x0d, 0xb8],
        _ => [0x20, 0x01, 0x0d, 0xb8],
    };
    let mut out = [0; 16];
    for (to, b) in out.iter_mut().zip(prefix) {
        *to = b;
    }
    for (to, b) in out.iter_mut().skip(12).zip(n.to_be_bytes()) {
        *to = b;
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::filesystems::{FilesystemRow, FilesystemsSample};
    use crate::sample::time::{MonoNs, Span};
    use std::time::Duration;

    #[test]
    fn mount_points_and_their_sources_are_told_by_nobody() {
        let row = |(mount, source): (&str, &str)| FilesystemRow {
            mount: mount.into(),
            source: source.into(),
            kind: "ext4".into(),
            mount_options: "rw".into(),
            options: "ro,errors=remount-ro".into(),
            ..FilesystemRow::default()
        };
        let mounts = [
            ("/", "/dev/sda1"),
            ("/home/alice", "/dev/mapper/acme-home"),
            ("/home/alice/db", "filer.acme:/export/acme"),
            ("/var/log", "tmpfs"),
        ];
        let filesystems = Arc::new(mounts.into_iter().map(row).collect());
        let data = FilesystemsSample { filesystems, left_out: 0 };
        let span = Span::at(MonoNs(1));
        let sample = Some(Arc::new(Stamped { span, cpu: Duration::ZERO, data }));
        let samples = Samples { filesystems: sample, ..Samples::default() };
        let tick = Redactor::default().tick(&Tick { samples, ..Tick::default() }).unwrap();
        let new = tick.samples.filesystems.unwrap();
        let shown: Vec<(&str, &str)> =
            new.data.filesystems.iter().map(|r| (&*r.mount, &*r.source)).collect();
        let want = [
            ("/", "/dev/sda1"),
            ("/home/dir-1", "/dev/mapper/dir-2"),
            ("/home/dir-1/dir-3", "dir-4/dir-5/dir-6"),
            ("/var/log", "tmpfs"),
        ];
        assert_eq!(shown, want);
        assert_eq!(&*new.data.filesystems[0].options, "ro,errors=remount-ro");
    }
}

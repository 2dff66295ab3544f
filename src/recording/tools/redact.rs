//! Removes what identifies the host from ticks: addresses, the host name, and the names of
//! processes, cgroups, namespaces, volumes and unusual network devices are replaced by others of
//! the same kind. The same original gives the same pseudonym, so a flow is still a flow and a
//! cgroup is still in its parent; pseudonyms are numbered as they come, one field of a sample
//! after the other, and contain nothing of the original.
//!
//! Kept: numbers (ports, process ids, counters, times), names that every Linux box has (`eth0`,
//! `sda`, `system.slice`, `kworker/0:1`), versions, loopback and unspecified addresses. A text
//! whose field is not known to be harmless is replaced, so a collector that is added later reveals
//! nothing by default.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::recording::codec::rewrite::{Rewrite, rewritten};
use crate::recording::codec::wire::CodecError;
use crate::recording::file::index::{Event, EventAt};
use crate::sample::rule_settings::RuleSettings;
use crate::sample::sockets::{InetRows, NetnsTable, SocketsSample, UnixRows, UnreadNetns, map_v4};
use crate::sample::tick::{HealthState, HostInfo, Tick};
use crate::sample::{Samples, Shared, SignalStatus, Stamped};

/// What the pseudonym of a boot begins with.
pub(crate) const BOOT: &str = "boot-";

/// What a name is of, by what its pseudonym begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind(&'static str);

const HOST: Kind = Kind("host-");
const PROCESS: Kind = Kind("proc-");
const CGROUP: Kind = Kind("group-");
const NETNS: Kind = Kind("ns-");
const DEVICE: Kind = Kind("if-");
const VOLUME: Kind = Kind("vol-");
const MOUNT: Kind = Kind("dir-");
const SOCKET: Kind = Kind("sock-");
const OTHER: Kind = Kind("text-");

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
pub struct RedactError(&'static str, CodecError);

impl Redactor {
    pub fn host(&mut self, h: &HostInfo) -> HostInfo {
        HostInfo {
            hostname: self.name(HOST, &h.hostname),
            boot_id: self.name(Kind(BOOT), &h.boot_id),
            rules: Arc::new(RuleSettings {
                rotational: h.rules.rotational.iter().map(|d| self.name(VOLUME, d)).collect(),
                limits: h.rules.limits.clone(),
            }),
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
        self.sockets(&mut samples.sockets)?;
        self.sockets(&mut samples.netns_sockets)?;
        macro_rules! others {
            (texts: $($text:ident)+; numbers: $($number:ident)+) => {
                $( self.sample(stringify!($text), &mut samples.$text)?; )+
                // Every collector by name: a new one must be put into one of the lists.
                let Samples { sockets: _, netns_sockets: _, $($text: _,)+ $($number: _),+ } = &samples;
            };
        }
        others! {
            texts: disks softirq sched netdev cgroups processes process_io filesystems limits kmsg runq_bpf
                irq_bpf block_bpf net_bpf files_bpf waits;
            // And names of counters.
            numbers: cpu net_counters psi memory own
        }
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
        let new = format!("{}{n}", kind.0);
        self.names.insert((kind, original.to_owned()), new.clone());
        self.words.entry(original.to_owned()).or_insert_with(|| new.clone());
        new
    }

    /// Part by part: what lies in what stays.
    fn path(&mut self, kind: Kind, path: &str) -> String {
        if path.starts_with("/sys/fs/cgroup") || path.starts_with("/proc/") {
            return path.to_owned();
        }
        by_part(path, "/", |p| {
            let suffix = [".service", ".scope", ".slice", ".mount", ".socket"];
            match suffix.iter().find_map(|s| Some((p.strip_suffix(s)?, s))) {
                Some((stem, s)) if !is_common(kind, p) => format!("{}{s}", self.name(kind, stem)),
                _ => self.name(kind, p),
            }
        })
    }

    /// Words of ours, with names of theirs in between.
    fn text(&mut self, s: &str) -> String {
        by_part(s, " ", |w| {
            let core = w.trim_matches([',', ';', ':', '(', ')', '\'', '"', '.']);
            let new = if let Ok(ip) = core.parse::<IpAddr>() {
                self.ip(ip).to_string()
            } else if core.starts_with('/') {
                self.path(OTHER, core)
            } else if let Some(known) = self.words.get(core) {
                known.clone()
            } else {
                return w.to_owned();
            };
            w.replacen(core, &new, 1)
        })
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

    fn sockets(&mut self, sample: &mut Option<Shared<SocketsSample>>) -> Result<(), RedactError> {
        let Some(old) = sample.take() else { return Ok(()) };
        let SocketsSample { spaces, unread } = &old.data;
        let data = SocketsSample {
            spaces: spaces.iter().map(|t| self.table(t)).collect::<Result<_, _>>()?,
            unread: unread
                .iter()
                .map(|u| UnreadNetns {
                    label: self.name(NETNS, &u.label),
                    reason: "redacted".to_owned(),
                    ..u.clone()
                })
                .collect(),
        };
        *sample = Some(Arc::new(Stamped { span: old.span, cpu: old.cpu, data }));
        Ok(())
    }

    /// Addresses and names of sockets by hand, as they are bytes that no field tells from others; all
    /// else by the names of its fields.
    fn table(&mut self, t: &Arc<NetnsTable>) -> Result<Arc<NetnsTable>, RedactError> {
        let key = Arc::as_ptr(t) as usize;
        if let Some((_, done)) = self.tables.get(&key) {
            return Ok(done.clone());
        }
        let mut rest = NetnsTable::clone(t);
        let (inet, unix) = (std::mem::take(&mut rest.inet), std::mem::take(&mut rest.unix));
        let inet = InetRows {
            local: inet.local.iter().map(|a| self.address(*a)).collect(),
            remote: inet.remote.iter().map(|a| self.address(*a)).collect(),
            ..inet
        };
        let unix = self.unix(unix);
        let new = Arc::new(NetnsTable { inet, unix, ..self.rewritten("sockets", &rest)? });
        self.tables.insert(key, (t.clone(), new.clone()));
        Ok(new)
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
                let new = self.name(SOCKET, &String::from_utf8_lossy(rest));
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
        let data = self.rewritten(id, &old.data)?;
        *s = Some(Arc::new(Stamped { span: old.span, cpu: old.cpu, data }));
        Ok(())
    }

    fn rewritten<S>(&mut self, id: &'static str, old: &S) -> Result<S, RedactError>
    where
        S: serde::Serialize + serde::de::DeserializeOwned,
    {
        rewritten(old, &mut Fields { id, by: self }).map_err(|e| RedactError(id, e))
    }

    fn field(&mut self, id: &str, key: &str, s: &str) -> String {
        match key {
            "name" if id == "netdev" => self.name(DEVICE, s),
            "name" if id == "disks" => self.name(VOLUME, s),
            "name" if id == "net_bpf" => s.to_owned(),
            "holes" => self.text(s),
            "mount" | "source" if id == "filesystems" => self.path(MOUNT, s),
            // Words of the kernel: what has a value that could be a name was left out.
            "options" | "mount_options" if id == "filesystems" => s.to_owned(),
            // Numbers and words of the kernel.
            "dm_kind" | "level" | "sync_action" | "irq" | "scheduler" | "write_cache" | "state"
            | "operstate" | "allowed" | "wchan" | "rps_cpus" | "kind" | "source" | "place"
            | "vectors" | "exceeded" | "qdisc" | "line" | "model" | "syscall" => s.to_owned(),
            "file" if matches!(s, "socket" | "pipe") || s.starts_with('[') => s.to_owned(),
            "file" => self.path(OTHER, s),
            "comm" => self.name(PROCESS, s),
            "path" | "mount" | "cgroup" | "cgroups" | "memory_cgroup" | "pids_cgroup" => {
                self.path(CGROUP, s)
            }
            "dev" => self.name(DEVICE, s),
            // On which file system it is decides who uses the disk below.
            "backing_file" => self.path(MOUNT, s),
            "dm_name" | "parent" | "slaves" | "holders" => self.name(VOLUME, s),
            "name" => self.handlers(s),
            "label" => self.name(NETNS, s),
            _ => self.name(OTHER, s),
        }
    }

    /// An interrupt line: chip, number, and a device's name with its queue.
    fn handlers(&mut self, s: &str) -> String {
        let harmless = |p: &str| {
            p.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase() || c == '_')
                || is_common(DEVICE, p)
                || is_common(VOLUME, p)
                || CHIPS.contains(&p.to_ascii_lowercase().as_str())
        };
        let mut part = |p: &str| {
            if harmless(p) { p.to_owned() } else { self.name(DEVICE, p) }
        };
        by_part(s, " ", |word| by_part(word, "-", &mut part))
    }
}

fn by_part(s: &str, between: &str, new: impl FnMut(&str) -> String) -> String {
    s.split(between).map(new).collect::<Vec<_>>().join(between)
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

/// The fields of one sample.
struct Fields<'r> {
    /// Of which collector.
    id: &'static str,
    by: &'r mut Redactor,
}

impl Rewrite for Fields<'_> {
    fn text(&mut self, field: &str, old: &str) -> String {
        self.by.field(self.id, field, old)
    }

    fn octets(&mut self, field: &str, octets: &mut [u8]) {
        let is_named = field == "addr";
        if let Ok(v4) = <[u8; 4]>::try_from(&*octets)
            && is_named
        {
            octets.copy_from_slice(&self.by.address(map_v4(v4))[12..]);
        } else if let Ok(v6) = <[u8; 16]>::try_from(&*octets)
            && (is_named || is_address(&v6))
        {
            octets.copy_from_slice(&self.by.address(v6));
        }
    }
}

/// Sixteen small counters are not an address.
fn is_address(a: &[u8; 16]) -> bool {
    let v4 = a.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    v4 || a.first().is_some_and(|b| (0x20..0x40).contains(b) || *b >= 0xfc)
}

/// A name that every box has.
fn is_common(kind: Kind, s: &str) -> bool {
    let follows = |stems: &[&str], fits: fn(&str) -> bool| {
        stems.iter().any(|stem| s.strip_prefix(stem).is_some_and(fits))
    };
    let numbered = |stems: &[&str]| {
        follows(stems, |rest| {
            (1..=12).contains(&rest.len())
                && rest.bytes().all(|b| b.is_ascii_digit() || b"npsf".contains(&b))
        })
    };
    let lettered = |stems: &[&str]| {
        follows(stems, |rest| {
            (1..=4).contains(&rest.len())
                && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
    };
    match kind {
        PROCESS => ["kworker/", "ksoftirqd/", "migration/", "kswapd", "rcu_", "swapper/"]
            .iter()
            .any(|p| s.starts_with(p)),
        CGROUP => {
            ["system.slice", "user.slice", "machine.slice", "kubepods.slice"].contains(&s)
                || ["init.scope", "kubepods", "docker", "cgroup", "sys", "fs", ".."].contains(&s)
        }
        NETNS => s == "host",
        DEVICE => s == "lo" || numbered(&["eth", "ens", "eno", "enp", "wlan", "wlp", "bond", "ib"]),
        MOUNT => MOUNTS.contains(&s) || is_common(VOLUME, s),
        VOLUME => {
            numbered(&["nvme", "dm-", "loop", "md", "sr", "mmcblk", "zram", "ram", "nbd"])
                || lettered(&["sd", "vd", "xvd", "hd"])
        }
        _ => false,
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
    (u128::from(u32::from_be_bytes(prefix)) << 96 | u128::from(n)).to_be_bytes()
}

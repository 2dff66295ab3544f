//! Kernel files printed with `cat`: `/proc/net/softnet_stat`, `/proc/diskstats`, and what
//! identifies disks: `/sys/block/...` paths with values, `lsblk`, `/proc/mdstat`.

use std::collections::{BTreeMap, VecDeque};

use super::iostat::{Names, device};
use super::number::uint;
use super::{Line, Took};
use crate::parse::disks::{active_scheduler, classify, parse_line};
use crate::parse::softnet::parse_softnet;
use crate::sample::disks::{DiskAttrs, DiskCounters};
use crate::sample::softirq::SoftnetRow;
use crate::sample::subject::DiskId;

/// Readings kept of each file; the oldest go. Rows in all of them.
const MAX_READINGS: usize = 600;
const MAX_ROWS: usize = 100_000;

/// Readings of a file, one after the other.
#[derive(Debug)]
pub(super) struct Readings<T> {
    pub(super) list: VecDeque<Vec<T>>,
    kept: usize,
    fresh: bool,
    pub(super) dropped: u64,
    pub(super) rows: u64,
}

impl<T> Default for Readings<T> {
    fn default() -> Self {
        Self { list: VecDeque::new(), kept: 0, fresh: true, dropped: 0, rows: 0 }
    }
}

impl<T> Readings<T> {
    /// What follows is another reading.
    pub(super) fn end(&mut self) {
        self.fresh = true;
    }

    fn push(&mut self, row: T, again: impl Fn(&T, &T) -> bool) {
        self.rows += 1;
        if self.fresh || self.list.back().is_none_or(|r| r.iter().any(|old| again(old, &row))) {
            self.list.push_back(Vec::new());
            while self.list.len() > MAX_READINGS || (self.kept >= MAX_ROWS && self.list.len() > 2) {
                self.kept -= self.list.pop_front().map_or(0, |r| r.len());
                self.dropped += 1;
            }
        }
        self.fresh = false;
        // A reading of more rows than any machine has is cut.
        if let Some(now) = self.list.back_mut().filter(|r| r.len() < 10_000) {
            now.push(row);
            self.kept += 1;
        }
    }
}

/// A row of /proc/diskstats.
#[derive(Clone, Debug)]
pub(super) struct StatRow {
    pub(super) id: DiskId,
    pub(super) name: usize,
    pub(super) stat: DiskCounters,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Procfs {
    pub(super) softnet: Readings<SoftnetRow>,
    pub(super) diskstats: Readings<StatRow>,
    pub(super) facts: Facts,
}

impl Procfs {
    /// A prompt: other readings.
    pub(super) fn command(&mut self) {
        self.softnet.end();
        self.diskstats.end();
        self.facts.table.clear();
    }

    /// A line of softnet_stat: columns of eight hex digits.
    pub(super) fn softnet(&mut self, line: &Line<'_>) -> Took {
        let text = line.text.trim_start();
        let mut columns = 0;
        for w in text.split_ascii_whitespace() {
            if w.len() != 8 || !w.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Took::No;
            }
            columns += 1;
        }
        if columns < 9 {
            return Took::No;
        }
        let (rows, _) = parse_softnet(format!("{text}\n").as_bytes(), &[]);
        let Some(row) = rows.into_iter().next() else { return Took::No };
        self.softnet.push(row, |old, new| old.cpu.is_some() && old.cpu == new.cpu);
        Took::Yes
    }

    /// A line of diskstats, or what is left of it without device numbers.
    pub(super) fn diskstats(&mut self, line: &Line<'_>, names: &mut Names) -> Took {
        let text = line.text.trim_start();
        let mut w = text.split_ascii_whitespace();
        let first = w.next().unwrap_or("");
        let numbers = |w: std::str::SplitAsciiWhitespace<'_>| {
            w.clone().all(|n| uint(n.strip_prefix('-').unwrap_or(n)).is_some()).then(|| w.count())
        };
        let whole = uint(first).is_some();
        let name = if whole { w.nth(1).unwrap_or("") } else { first };
        if !device(name) || !matches!(numbers(w), Some(11 | 15 | 17..=24)) {
            return Took::No;
        }
        let Some(n) = names.of(name) else { return Took::Yes };
        let parsed = if whole {
            parse_line(text.as_bytes()).map(|p| (p.id, p.stat))
        } else {
            // A major number that no device has, so that it matches no row of another source.
            let id = DiskId { major: 0, minor: (n as u32).wrapping_add(1 << 20) };
            parse_line(format!("0 0 {text}").as_bytes()).map(|p| (id, p.stat))
        };
        let Some((id, stat)) = parsed else { return Took::No };
        self.diskstats.push(StatRow { id, name: n, stat }, |old, new| old.name == new.name);
        Took::Yes
    }
}

/// What pasted text says about disks besides their traffic.
#[derive(Debug, Default)]
pub(super) struct Facts {
    attrs: BTreeMap<String, Raw>,
    /// Columns of the lsblk table that is being read.
    table: Vec<String>,
    pub(super) count: u64,
}

/// Attributes as text.
#[derive(Clone, Debug, Default)]
struct Raw {
    rotational: Option<bool>,
    scheduler: Option<String>,
    model: Option<String>,
    nr_requests: Option<u32>,
    max_sectors_kb: Option<u32>,
    max_hw_sectors_kb: Option<u32>,
    slaves: Vec<String>,
}

/// Devices and layers kept.
const MAX_FACTS: usize = 4000;
const MAX_SLAVES: usize = 256;

impl Facts {
    fn of(&mut self, name: &str) -> Option<&mut Raw> {
        if !device(name) || (self.attrs.len() >= MAX_FACTS && !self.attrs.contains_key(name)) {
            return None;
        }
        self.count += 1;
        Some(self.attrs.entry(name.to_owned()).or_default())
    }

    pub(super) fn line(&mut self, line: &Line<'_>) -> Took {
        let text = line.text.trim_start();
        if text.starts_with("/sys/") {
            return self.sysfs(text);
        }
        if text.starts_with("md") && text.contains(" : ") {
            return self.mdstat(text);
        }
        if text.starts_with("NAME ")
            && (text.contains("ROTA") || text.contains("SCHED") || text.contains("MODEL"))
        {
            self.table = text.split_ascii_whitespace().map(str::to_owned).collect();
            return Took::Yes;
        }
        if !self.table.is_empty() && self.lsblk(text).is_some() {
            return Took::Yes;
        }
        Took::No
    }

    /// `/sys/block/sda/queue/rotational:1` (from grep), `... = 1`, or `/sys/block/dm-0/slaves/sda`.
    fn sysfs(&mut self, text: &str) -> Took {
        let at = ["/sys/block/", "/sys/class/block/"].iter().find_map(|p| text.strip_prefix(p));
        let Some((name, rest)) = at.and_then(|r| r.split_once('/')) else { return Took::No };
        if let Some(below) = rest.strip_prefix("slaves/") {
            let below = below.trim_end_matches('/');
            let ok = device(below);
            return match self.of(name).filter(|_| ok) {
                Some(d) if d.slaves.len() < MAX_SLAVES => {
                    d.slaves.push(below.to_owned());
                    Took::Yes
                }
                _ => Took::No,
            };
        }
        let Some((attr, value)) = rest.split_once([':', '=', ' ']) else { return Took::No };
        let (attr, value) = (attr.trim(), value.trim().trim_start_matches(['=', ':']).trim());
        let Some(d) = self.of(name) else { return Took::No };
        let number = uint(value).and_then(|n| u32::try_from(n).ok());
        match attr.rsplit('/').next().unwrap_or(attr) {
            "rotational" => d.rotational = number.map(|n| n != 0),
            "scheduler" => d.scheduler = active_scheduler(value),
            "nr_requests" => d.nr_requests = number,
            "max_sectors_kb" => d.max_sectors_kb = number,
            "max_hw_sectors_kb" => d.max_hw_sectors_kb = number,
            "model" => d.model = Some(value.chars().take(64).collect()),
            _ => {}
        }
        Took::Yes
    }

    /// `md6 : active raid6 nvme3n1[3] nvme2n1[2]`.
    fn mdstat(&mut self, text: &str) -> Took {
        let Some((name, rest)) = text.split_once(" : ") else { return Took::No };
        let members: Vec<String> = rest
            .split_ascii_whitespace()
            .filter_map(|w| w.split_once('[').map(|(n, _)| n.to_owned()))
            .filter(|n| device(n))
            .take(MAX_SLAVES)
            .collect();
        let name = name.trim();
        match self.of(name) {
            Some(d) if rest.contains("active") => {
                d.slaves = members;
                Took::Yes
            }
            _ => Took::No,
        }
    }

    /// A row under `NAME ... ROTA ... SCHED`. MODEL may contain blanks and is then last.
    fn lsblk(&mut self, text: &str) -> Option<()> {
        let text = text.trim_start_matches(|c: char| !c.is_alphanumeric());
        let values: Vec<&str> = text.split_ascii_whitespace().take(64).collect();
        let model_last = self.table.last().is_some_and(|c| c == "MODEL");
        let fits = values.len() == self.table.len()
            || (model_last && values.len() + 1 >= self.table.len());
        let name = *values.first().filter(|n| fits && device(n))?;
        let column =
            |c: &str| self.table.iter().position(|t| t == c).and_then(|i| values.get(i)).copied();
        let (rota, sched, size) = (column("ROTA"), column("SCHED"), column("RQ-SIZE"));
        let model = self
            .table
            .iter()
            .position(|t| t == "MODEL")
            .and_then(|i| values.get(i..))
            .map(|m| m.join(" "));
        if rota.is_some_and(|r| r != "0" && r != "1") {
            return None;
        }
        let (sched, size) = (sched.map(str::to_owned), size.and_then(uint));
        let rota = rota.map(|r| r == "1");
        let d = self.of(name)?;
        d.rotational = rota.or(d.rotational);
        d.scheduler = sched.or_else(|| d.scheduler.take());
        d.nr_requests = size.and_then(|n| u32::try_from(n).ok()).or(d.nr_requests);
        d.model = model.filter(|m| !m.is_empty()).or_else(|| d.model.take());
        Some(())
    }

    /// What is known about a device from its name and the text.
    pub(super) fn attrs(&self, name: &str) -> DiskAttrs {
        let raw = self.attrs.get(name).cloned().unwrap_or_default();
        let (class, rotational) = classify(name, None, raw.model.as_deref(), raw.rotational);
        let holders = self.attrs.iter().filter(|(_, r)| r.slaves.iter().any(|s| s == name));
        let parent = partition_of(name);
        DiskAttrs {
            class: if parent.is_some() {
                crate::sample::disks::DiskClass::Partition
            } else {
                class
            },
            rotational: rotational.filter(|_| parent.is_none()),
            scheduler: raw.scheduler,
            nr_requests: raw.nr_requests,
            max_sectors_kb: raw.max_sectors_kb,
            max_hw_sectors_kb: raw.max_hw_sectors_kb,
            model: raw.model,
            holders: holders.map(|(n, _)| n.clone()).take(16).collect(),
            slaves: raw.slaves,
            parent,
            ..DiskAttrs::default()
        }
    }
}

/// The disk of a partition, according to the kernel's naming scheme: `sda1`, `nvme0n1p2`.
fn partition_of(name: &str) -> Option<String> {
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if disk.len() == name.len() {
        return None;
    }
    let letters = |p: &str| {
        disk.strip_prefix(p)
            .is_some_and(|r| !r.is_empty() && r.bytes().all(|b| b.is_ascii_lowercase()))
    };
    if ["sd", "hd", "vd", "xvd"].into_iter().any(letters) {
        return Some(disk.to_owned());
    }
    let whole = disk.strip_suffix('p')?;
    let ends_in_digit = whole.ends_with(|c: char| c.is_ascii_digit());
    (ends_in_digit && ["nvme", "mmcblk", "loop", "md"].iter().any(|p| whole.starts_with(p)))
        .then(|| whole.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sample::disks::DiskClass;

    fn line(text: &str) -> Line<'_> {
        Line { no: 1, text }
    }

    #[test]
    fn softnet_of_every_kernel() {
        let mut p = Procfs::default();
        for columns in [9, 10, 11, 13, 15] {
            let text = vec!["0000000a"; columns].join(" ");
            assert_eq!(p.softnet(&line(&text)), Took::Yes, "{columns} columns");
        }
        for bad in ["0000000a", "0000000a 0000000g", "deadbeef cafebabe"] {
            assert_eq!(p.softnet(&line(bad)), Took::No, "{bad}");
        }
        assert_eq!(p.softnet.rows, 5);
    }

    #[test]
    fn the_same_cpu_again_is_another_reading() {
        let mut p = Procfs::default();
        let row = |n: u32, cpu: u32| {
            format!(
                "{n:08x} 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 {cpu:08x}"
            )
        };
        for (n, cpu) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
            assert_eq!(p.softnet(&line(&row(n, cpu))), Took::Yes);
        }
        assert_eq!(p.softnet.list.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn diskstats_with_and_without_numbers() {
        let (mut p, mut names) = (Procfs::default(), Names::default());
        for text in [
            "   7       1 loop1 0 0 0 0 0 0 0 0 1 1016 0",
            "loop1 0 0 0 0 0 0 0 0 1 2024 0",
            " 252 0 vda 1 2 3 4 5 6 7 8 0 10 11 12 13 14 15",
            " 252 0 vda 1 2 3 4 5 6 7 8 0 10 11 12 13 14 15 16 17",
        ] {
            assert_eq!(p.diskstats(&line(text), &mut names), Took::Yes, "{text}");
        }
        assert_eq!(p.diskstats(&line("vda 1 2 3"), &mut names), Took::No);
        assert_eq!(p.diskstats.list[0][0].stat.in_flight, 1);
        assert_eq!(p.diskstats.list.len(), 3);
    }

    #[test]
    fn what_a_disk_is() {
        let mut f = Facts::default();
        for text in [
            "/sys/block/nvme0n1/queue/scheduler:mq-deadline kyber [bfq] none",
            "/sys/block/dm-0/slaves/nvme0n1",
            "md6 : active raid6 nvme3n1[3] nvme2n1[2]",
            "NAME ROTA SCHED RQ-SIZE MODEL",
            "sda     1 mq-deadline 64 ST4000NM 0035",
            "\u{2514}sda1  1 mq-deadline 64 X",
            "nvme9n1 0 none 1023 Amazon Elastic Block Store",
        ] {
            assert_eq!(f.line(&line(text)), Took::Yes, "{text}");
        }
        assert_eq!(f.attrs("nvme0n1").scheduler.as_deref(), Some("bfq"));
        assert_eq!(f.attrs("dm-0").slaves, ["nvme0n1"]);
        assert_eq!(f.attrs("nvme0n1").holders, ["dm-0"]);
        assert_eq!(f.attrs("md6").slaves, ["nvme3n1", "nvme2n1"]);
        let sda = f.attrs("sda");
        assert_eq!(
            (sda.class, sda.rotational, sda.nr_requests),
            (DiskClass::Hdd, Some(true), Some(64))
        );
        assert_eq!(f.attrs("sda1").class, DiskClass::Partition);
        assert_eq!(f.attrs("nvme9n1").class, DiskClass::Virtual);
        assert_eq!(f.attrs("vdb").class, DiskClass::Virtual);
        for (name, disk) in [
            ("sda1", Some("sda")),
            ("nvme0n1p2", Some("nvme0n1")),
            ("nvme0n1", None),
            ("dm-0", None),
            ("md127", None),
            ("loop3", None),
            ("sfdv0n1", None),
        ] {
            assert_eq!(partition_of(name).as_deref(), disk, "{name}");
        }
    }
}

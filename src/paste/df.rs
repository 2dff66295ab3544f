//! `df` of GNU coreutils and busybox: blocks, sizes (`-h`, `--si`) or inodes (`-i`), with the type
//! (`-T`) or without, POSIX titles (`-P`), long device names on a line of their own.

use super::number::float;
use super::{Line, Took};
use crate::sample::told::Filesystem;

/// Rows kept.
const MAX_ROWS: usize = 5000;
const MAX_NAME: usize = 256;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Type,
    /// Bytes per unit.
    Size(u64),
    Used(u64),
    Avail(u64),
    UsePct,
    Inodes,
    InodesUsed,
    InodesFree,
    InodesPct,
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Df {
    columns: Vec<Column>,
    /// A name whose row is on the next line.
    name: Option<String>,
    pub(super) list: Vec<Filesystem>,
    pub(super) rows: u64,
    pub(super) over: u64,
}

impl Df {
    /// A prompt with a command.
    pub(super) fn command(&mut self) {
        self.columns.clear();
        self.name = None;
    }

    pub(super) fn line(&mut self, line: &Line<'_>, current: bool) -> Took {
        let text = line.text.trim();
        if let Some(columns) = header(text) {
            self.columns = columns;
            self.name = None;
            return Took::Yes;
        }
        if self.columns.is_empty() || !current {
            return Took::No;
        }
        let name = self.name.take();
        if let Some(fs) = row(&self.columns, name.as_deref(), text) {
            self.push(fs);
            return Took::Yes;
        }
        if !text.contains([' ', '\t']) && text.len() <= MAX_NAME {
            self.name = Some(text.to_owned());
            return Took::Yes;
        }
        Took::No
    }

    /// One row per mount point: `df` and `df -i` of the same one are merged.
    fn push(&mut self, new: Filesystem) {
        self.rows += 1;
        let same = |f: &&mut Filesystem| f.mount == new.mount && f.source == new.source;
        if let Some(old) = self.list.iter_mut().find(same) {
            let before = std::mem::take(old);
            *old = Filesystem {
                kind: new.kind.or(before.kind),
                size: new.size.or(before.size),
                used: new.used.or(before.used),
                avail: new.avail.or(before.avail),
                use_pct: new.use_pct.or(before.use_pct),
                inodes: new.inodes.or(before.inodes),
                ifree: new.ifree.or(before.ifree),
                iuse_pct: new.iuse_pct.or(before.iuse_pct),
                ..new
            };
        } else if self.list.len() < MAX_ROWS {
            self.list.push(new);
        } else {
            self.over += 1;
        }
    }
}

/// The columns between the device and `Mounted on`.
fn header(text: &str) -> Option<Vec<Column>> {
    let inner = text.strip_prefix("Filesystem")?;
    let inner = inner.strip_suffix("Mounted on")?;
    let mut out = Vec::new();
    // `Used` and the like refer to what the column of totals before them counts.
    let (mut unit, mut inodes) = (1, false);
    for word in inner.split_ascii_whitespace() {
        let column = match word {
            "Type" => Column::Type,
            "Inodes" => {
                inodes = true;
                Column::Inodes
            }
            "Size" => {
                (unit, inodes) = (1, false);
                Column::Size(unit)
            }
            "Used" if inodes => Column::InodesUsed,
            "Used" => Column::Used(unit),
            "Avail" | "Available" if inodes => Column::InodesFree,
            "Avail" | "Available" => Column::Avail(unit),
            "Use%" | "Capacity" if inodes => Column::InodesPct,
            "Use%" | "Capacity" => Column::UsePct,
            "IUsed" => Column::InodesUsed,
            "IFree" => Column::InodesFree,
            "IUse%" => Column::InodesPct,
            blocks => {
                (unit, inodes) = (block_size(blocks.strip_suffix("-blocks")?)?, false);
                Column::Size(unit)
            }
        };
        out.push(column);
    }
    (out.len() >= 4 && out.len() <= 12).then_some(out)
}

/// `1K`, `1024`, `512`, `1M`, `1MB`.
fn block_size(text: &str) -> Option<u64> {
    let n = size(text)?;
    (1.0..=1e12).contains(&n).then_some(n as u64)
}

/// Bytes: `12G`, `4.0K`, `11.8G`, `23456`, `1kB`.
fn size(text: &str) -> Option<f64> {
    let (text, kilo) = match text.strip_suffix('B') {
        Some(rest) if !rest.ends_with(|c: char| c.is_ascii_digit()) => (rest, 1000.0_f64),
        Some(rest) => (rest, 1024.0),
        None => (text, 1024.0),
    };
    let power = match text.as_bytes().last()? {
        b'K' | b'k' => 1,
        b'M' => 2,
        b'G' => 3,
        b'T' => 4,
        b'P' => 5,
        b'E' => 6,
        _ => 0,
    };
    let number = if power > 0 { text.get(..text.len() - 1)? } else { text };
    Some(float(number)? * kilo.powi(power))
}

/// A row; names may contain blanks, so the percentages show where the numbers are.
fn row(columns: &[Column], name: Option<&str>, text: &str) -> Option<Filesystem> {
    let words: Vec<(usize, &str)> = words(text).collect();
    let n = columns.len();
    // The device comes first, unless it had a line of its own; the mount point comes last.
    let least = usize::from(name.is_none());
    let at = (least..=words.len().checked_sub(n + 1)?)
        .find(|at| words.get(*at..at + n).is_some_and(|w| fits(columns, w)))?;
    let source = match name {
        Some(name) if at == 0 => name,
        Some(_) => return None,
        None => text.get(..words.get(at)?.0)?.trim_end(),
    };
    let mount = text.get(words.get(at + n)?.0..)?;
    let mut fs = Filesystem {
        source: source.chars().take(MAX_NAME).collect(),
        mount: mount.chars().take(MAX_NAME).collect(),
        ..Filesystem::default()
    };
    for (c, (_, word)) in columns.iter().zip(words.get(at..)?) {
        let bytes = |unit: u64| size(word).map(|v| v * unit as f64);
        match c {
            Column::Type => fs.kind = Some((*word).to_owned()),
            Column::Size(unit) => fs.size = bytes(*unit),
            Column::Used(unit) => fs.used = bytes(*unit),
            Column::Avail(unit) => fs.avail = bytes(*unit),
            Column::UsePct => fs.use_pct = float(word),
            Column::Inodes => fs.inodes = size(word),
            Column::InodesUsed => {}
            Column::InodesFree => fs.ifree = size(word),
            Column::InodesPct => fs.iuse_pct = float(word),
        }
    }
    Some(fs)
}

fn fits(columns: &[Column], words: &[(usize, &str)]) -> bool {
    columns.iter().zip(words).all(|(c, (_, w))| match c {
        Column::Type => w.starts_with(|c: char| c.is_ascii_alphabetic()),
        Column::UsePct | Column::InodesPct => {
            *w == "-" || w.strip_suffix('%').is_some_and(|n| float(n).is_some())
        }
        // A file system that uses its reserve may go below zero.
        _ => *w == "-" || size(w.strip_prefix('-').unwrap_or(w)).is_some(),
    })
}

/// Words with their positions.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let base = text.as_ptr() as usize;
    text.split_ascii_whitespace().take(64).map(move |w| (w.as_ptr() as usize - base, w))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Vec<Filesystem> {
        let mut df = Df::default();
        for (i, l) in text.lines().enumerate() {
            assert_eq!(df.line(&Line { no: i as u64 + 1, text: l }, true), Took::Yes, "{l}");
        }
        df.list
    }

    #[test]
    fn every_form_of_the_table() {
        let rows = read(
            "Filesystem      Size  Used Avail Use% Mounted on\n\
             /dev/loop0       14M   14M     0 100% /tmp/rb/m\n\
             //nas/my share  1.5T  1.2T  300G  81% /mnt/my share\n\
             none               0     0     0    - /proc/x",
        );
        assert_eq!((rows[0].avail, rows[0].use_pct), (Some(0.0), Some(100.0)));
        assert_eq!(
            (rows[1].source.as_str(), rows[1].mount.as_str()),
            ("//nas/my share", "/mnt/my share")
        );
        assert_eq!(rows[1].avail, Some(300.0 * 1024.0 * 1024.0 * 1024.0));
        assert_eq!(rows[2].use_pct, None);
        let rows = read(
            "Filesystem           1K-blocks      Used Available Use% Mounted on\n\
             /dev/mapper/vg0-a_very_long_name\n                      14073     13327         0 100% /m\n\
             /dev/vda             264212084  41488216  54013048  43% /",
        );
        assert_eq!(rows[0].source, "/dev/mapper/vg0-a_very_long_name");
        assert_eq!(
            (rows[0].size, rows[1].avail),
            (Some(14073.0 * 1024.0), Some(54_013_048.0 * 1024.0))
        );
        // busybox names the columns of inodes as those of blocks.
        let rows = read(
            "Filesystem              Inodes      Used Available Use% Mounted on\n\
             /dev/loop0                  16        16         0 100% /m",
        );
        assert_eq!(
            (rows[0].ifree, rows[0].iuse_pct, rows[0].use_pct),
            (Some(0.0), Some(100.0), None)
        );
    }

    #[test]
    fn blocks_and_inodes_of_one_mount_are_one() {
        let rows = read(
            "Filesystem     Type 512-blocks  Used Available Capacity Mounted on\n\
             /dev/sda1      ext4       2000  1000      1000      50% /\n\
             Filesystem     Inodes IUsed IFree IUse% Mounted on\n\
             /dev/sda1          16    16     0  100% /",
        );
        let [fs] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!(
            (fs.size, fs.use_pct, fs.iuse_pct),
            (Some(1_024_000.0), Some(50.0), Some(100.0))
        );
        assert_eq!(fs.kind.as_deref(), Some("ext4"));
    }
}

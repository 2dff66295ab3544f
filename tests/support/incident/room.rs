//! What has limits in an incident: open files of processes (`files.NAME.open`, `.soft`), whom the
//! log names as killed for want of memory, and file systems: what is mounted, and how full it is (`fs.NAME.avail`, in blocks
//! of 4 KiB; `fs.NAME.files_free`). And what processes move to and from disks
//! (`process_io.NAME.read_bytes`, `.write_bytes`).

use std::sync::Arc;

use serde::Deserialize;
use stallscope::sample::filesystems::{Deleted, FilesystemRow, FilesystemsSample, Holder, Space};
use stallscope::sample::kmsg::{KmsgSample, OomKilled};
use stallscope::sample::limits::{LimitsSample, OpenFiles, TaskOwner, TaskOwners};
use stallscope::sample::process_io::{Access, OpenDisks, OpenOn, ProcessIo, ProcessIoSample};
use stallscope::sample::subject::{DiskId, TaskId};
use stallscope::sample::time::MonoNs;

use super::Incident;
use super::ticks::View;

/// Bytes per block.
const BLOCK: u64 = 4096;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filesystem {
    pub name: String,
    pub mount: String,
    pub kind: String,
    pub source: String,
    /// Has no block device of its own.
    #[serde(default)]
    pub virtual_device: bool,
    #[serde(default = "rw")]
    pub mount_options: String,
    #[serde(default = "rw")]
    pub options: String,
    /// Options that it turns to, and when, s.
    pub turns: Option<Turn>,
    /// It answers no more from then on, s.
    pub hangs_from: Option<f64>,
}

impl Filesystem {
    /// Of the one with this index.
    pub(super) fn dev(&self, n: usize) -> DiskId {
        DiskId { major: if self.virtual_device { 0 } else { 252 }, minor: n as u32 * 16 }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    pub at: f64,
    pub to: f64,
    #[serde(default = "rw")]
    pub mount_options: String,
    pub options: String,
}

fn rw() -> String {
    "rw".to_owned()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    pub name: String,
    pub comm: String,
    pub pid: u32,
    pub hard: Option<u64>,
}

pub fn limits(i: &Incident, v: View<'_>) -> LimitsSample {
    let row = |p: &Process| OpenFiles {
        pid: p.pid,
        comm: p.comm.clone(),
        open: v.n(&format!("files.{}.open", p.name)),
        soft: v.n(&format!("files.{}.soft", p.name)),
        hard: p.hard,
    };
    LimitsSample {
        pid_max: i.pid_max,
        threads_max: i.threads_max,
        counts_files: !i.no_file_counts,
        processes: i.processes.iter().map(row).collect(),
        tasks: owners(&i.tasks),
    }
}

/// A process, its threads and its children.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tasks {
    pub pid: u32,
    pub comm: String,
    #[serde(default)]
    pub threads: u32,
    #[serde(default)]
    pub children: u32,
    #[serde(default)]
    pub zombies: u32,
}

pub fn owners(all: &[Tasks]) -> Option<TaskOwners> {
    let owner = |t: &Tasks| TaskOwner {
        pid: t.pid,
        comm: t.comm.clone(),
        threads: t.threads,
        children: t.children,
        zombies: t.zombies,
    };
    let owners: Vec<TaskOwner> = all.iter().map(owner).collect();
    let read = owners.iter().map(TaskOwner::tasks).sum();
    (read > 0).then_some(TaskOwners { read, owners })
}

/// A process whose bytes are counted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessBytes {
    pub name: String,
    pub comm: String,
    pub pid: u32,
    pub cgroup: Option<String>,
    /// Disks by name that it has files open on, and `?` for a file system whose disk is not known.
    /// Nothing: it was not looked at.
    pub reads_on: Option<Vec<String>>,
    pub writes_on: Option<Vec<String>>,
}

/// What was seen of its open files.
fn open(i: &Incident, p: &ProcessBytes) -> Option<Arc<OpenDisks>> {
    let on = |names: &Option<Vec<String>>, access| {
        let all = names.iter().flatten().map(move |name| {
            let n = i.disks.iter().position(|d| d.name == *name);
            assert!(n.is_some() || name == "?", "no disk {name}");
            let dev = n.map_or(DiskId { major: 0, minor: 40 }, super::ticks::disk_id);
            OpenOn { dev, access }
        });
        all.collect::<Vec<_>>()
    };
    let mut all = on(&p.reads_on, Access::Read);
    all.extend(on(&p.writes_on, Access::Write));
    let looked = p.reads_on.is_some() || p.writes_on.is_some();
    looked.then(|| Arc::new(OpenDisks { on: all, more: false }))
}

/// Rows of those that moved anything since the tick before.
pub fn process_io(i: &Incident, before: View<'_>, v: View<'_>) -> Option<ProcessIoSample> {
    let row = |p: &ProcessBytes| {
        let get = |v: View<'_>, key: &str| v.n(&format!("process_io.{}.{key}", p.name));
        let now = ["read_bytes", "write_bytes"].map(|key| get(v, key));
        let moved = now != ["read_bytes", "write_bytes"].map(|key| get(before, key));
        moved.then(|| ProcessIo {
            task: TaskId { pid: p.pid, tid: p.pid, start: 1 },
            comm: p.comm.clone(),
            read_bytes: now[0],
            write_bytes: now[1],
            cgroup: p.cgroup.clone(),
            open: open(i, p),
            ..ProcessIo::default()
        })
    };
    let processes = i.process_io.iter().filter_map(row).collect();
    let denied = i.process_io_denied;
    (!i.process_io.is_empty()).then_some(ProcessIoSample { processes, denied, unread: 0 })
}

/// A line of the kernel's log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Killed {
    /// When, s.
    pub at: f64,
    pub pid: u32,
    pub comm: String,
    pub cgroup: Option<String>,
    pub rss_kb: Option<u64>,
}

pub fn kmsg(i: &Incident, v: View<'_>, t: f64, mono: MonoNs) -> KmsgSample {
    let row = |k: &Killed| OomKilled {
        at: MonoNs(mono.0 - ((t - k.at) * 1e9).round() as u64),
        pid: k.pid,
        comm: k.comm.clone(),
        cgroup: k.cgroup.clone(),
        rss_kb: k.rss_kb,
    };
    let past = i.killed.iter().filter(|k| k.at <= t);
    KmsgSample { readable: !i.no_kmsg, kills: past.map(row).collect(), lost: v.n("kmsg.lost") }
}

pub fn filesystems(i: &Incident, v: View<'_>, t: f64, mono: MonoNs) -> FilesystemsSample {
    let row = |(n, f): (usize, &Filesystem)| {
        let get = |key: &str| v.get(&format!("fs.{}.{key}", f.name));
        let turn = f.turns.as_ref().filter(|x| t >= x.at && t < x.to);
        let hangs = f.hangs_from.filter(|from| t >= from + 2.0);
        let since = |from: f64| MonoNs(mono.0 - ((t - from) * 1e9).round() as u64);
        FilesystemRow {
            mount: f.mount.as_str().into(),
            dev: f.dev(n),
            kind: f.kind.as_str().into(),
            source: f.source.as_str().into(),
            mount_options: turn.map_or(&*f.mount_options, |x| &*x.mount_options).into(),
            options: turn.map_or(&*f.options, |x| &*x.options).into(),
            space: get("blocks").map(|blocks| Space {
                block: BLOCK,
                blocks,
                free: get("free").or(get("avail")).unwrap_or(0),
                avail: get("avail").unwrap_or(0),
                files: get("files").unwrap_or(0),
                files_free: get("files_free").unwrap_or(0),
            }),
            errno: None,
            waits_since: hangs.map(since),
        }
    };
    let all = i.filesystems.iter().enumerate().map(row).collect();
    FilesystemsSample { filesystems: Arc::new(all), left_out: 0, deleted: deleted(i) }
}

/// A process that keeps deleted files open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keeps {
    /// Name of the file system.
    pub filesystem: String,
    pub pid: u32,
    pub comm: String,
    pub bytes: u64,
    pub files: u32,
}

fn deleted(i: &Incident) -> Option<Arc<Deleted>> {
    let row = |k: &Keeps| {
        let n = i.filesystems.iter().position(|f| f.name == k.filesystem).unwrap();
        Holder {
            dev: DiskId { major: 252, minor: n as u32 * 16 },
            pid: k.pid,
            comm: k.comm.clone(),
            bytes: k.bytes,
            files: k.files,
        }
    };
    let holders: Vec<Holder> = i.keeps.iter().map(row).collect();
    (!holders.is_empty()).then(|| Arc::new(Deleted { holders, ..Deleted::default() }))
}

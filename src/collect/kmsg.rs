//! The kernel's log, `/dev/kmsg`: whom the OOM killer ended, in which cgroup, and how large it was.
//! Counters tell how often it struck; only the log tells whom.
//!
//! One `read` yields one record, or says that there is none. A reading takes as many as a budget
//! allows and leaves the rest to the next one: the lines that matter are the last ones of a report
//! that lists every process. What the kernel overwrites meanwhile is counted by the numbers of the
//! records. Where the log cannot be read (no CAP_SYSLOG with `kernel.dmesg_restrict`, no `/dev/kmsg`
//! in a container), nothing is named and the signal says why.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::permission::{Right, refusal};
use super::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::parse::kmsg::{chosen, killed, split, together};
use crate::sample::kmsg::{KmsgSample, OomKilled};
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// Most kills that a sample holds.
const MAX_KILLS: usize = 16;
/// Records that one reading looks at: some 2 ms of reading.
const MAX_RECORDS: usize = 2048;
/// Longest record that the kernel hands out (`PRINTK_MESSAGE_MAX`).
const RECORD: usize = 8192;
/// Longest texts that are kept: `comm` has 15 bytes, a path as many as the kernel lets it have.
const MAX_COMM: usize = 64;
const MAX_PATH: usize = 4096;

const NAME: &str = "kernel log";
const SOURCE: &str = "/dev/kmsg";

/// Reads it. See the module head.
pub struct KmsgCollector {
    host: HostFs,
    log: Result<File, io::Error>,
    reader: Records,
}

impl Collector for KmsgCollector {
    type Sample = KmsgSample;
    const ID: CollectorId = CollectorId::Kmsg;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let log = open(host);
        Ok(Self { host: host.clone(), log, reader: Records::default() })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<KmsgSample, CollectError> {
        if let Ok(file) = &mut self.log
            && let Err(e) = self.reader.drain(file, cx.at)
        {
            self.log = Err(e);
        }
        let Records { kills, lost, .. } = &self.reader;
        Ok(KmsgSample {
            readable: self.log.is_ok(),
            kills: kills.iter().cloned().collect(),
            lost: *lost,
        })
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        let Err(e) = &self.log else { return out.push(Signal::ok(NAME, SOURCE)) };
        let refused = e.kind() == io::ErrorKind::PermissionDenied;
        let refusal = refused.then(|| refusal(&self.host, Right::Syslog));
        let (more, remedy) = refusal.map_or_else(Default::default, |r| (r.why, r.remedy));
        let why = format!("{SOURCE}: {e}{more}: OOM victims cannot be named");
        out.push(Signal::degraded(NAME, SOURCE, why, remedy));
    }
}

/// Opens the log behind its last record: what happened before belongs to no session of ours.
fn open(host: &HostFs) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = host.path("dev/kmsg");
    let mut file =
        std::fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

/// What was found in the records so far.
#[derive(Debug, Default)]
struct Records {
    kills: VecDeque<OomKilled>,
    lost: u64,
    /// Number of the record that comes next.
    next: Option<u64>,
    /// Process and cgroup of a line `oom-kill:`, which comes before the kill itself.
    chosen: Option<(u32, String)>,
    /// The cgroup with `memory.oom.group` whose processes are killed together.
    together: Option<String>,
}

impl Records {
    /// Takes in what was written since the last time.
    fn drain(&mut self, log: &mut impl Read, at: MonoNs) -> io::Result<()> {
        let mut buf = [0; RECORD];
        for _ in 0..MAX_RECORDS {
            match log.read(&mut buf) {
                Ok(0) => return Ok(()),
                Ok(n) => self.record(buf.get(..n).unwrap_or_default(), at),
                Err(e) => match Errno::from_io_error(&e) {
                    Some(Errno::AGAIN) => return Ok(()),
                    // Overwritten before it was read: the next record says by its number how many.
                    // One that is longer than the buffer is passed over by the kernel.
                    Some(Errno::PIPE | Errno::INTR | Errno::INVAL) => {}
                    _ => return Err(e),
                },
            }
        }
        Ok(())
    }

    /// `6,1234,5678901,-;message`, and lines with a blank in front that describe it further.
    fn record(&mut self, bytes: &[u8], at: MonoNs) {
        let Some(record) = split(bytes) else { return };
        let lost = self.next.map_or(0, |next| record.seq.saturating_sub(next));
        self.lost = self.lost.saturating_add(lost);
        self.next = Some(record.seq.saturating_add(1));
        if !record.of_kernel {
            return;
        }
        if let Some((pid, group)) = chosen(&record.message) {
            self.chosen = Some((pid, cut(group, MAX_PATH)));
            self.together = None;
            return;
        }
        if let Some(group) = together(&record.message) {
            self.together = Some(cut(group, MAX_PATH));
            return;
        }
        let Some(k) = killed(&record.message).filter(|k| k.is_done) else { return };
        if self.kills.len() >= MAX_KILLS {
            self.kills.pop_front();
        }
        let chosen = self.chosen.take().filter(|c| c.0 == k.pid).map(|c| c.1);
        let cgroup = chosen.or_else(|| self.together.clone());
        let (pid, comm, rss_kb) = (k.pid, cut(k.comm, MAX_COMM), k.rss_kb);
        self.kills.push_back(OomKilled { at, pid, comm, cgroup, rss_kb });
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: MonoNs = MonoNs(5_000_000_000);

    /// Answers as `/dev/kmsg` does.
    struct Log(VecDeque<Result<String, Errno>>);

    impl Log {
        fn of(records: impl IntoIterator<Item = Result<String, Errno>>) -> Self {
            Self(records.into_iter().collect())
        }
    }

    impl Read for Log {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let text = self.0.pop_front().unwrap_or(Err(Errno::AGAIN))?;
            buf[..text.len()].copy_from_slice(text.as_bytes());
            Ok(text.len())
        }
    }

    // Captured on 6.18.
    const CHOSEN: &str = "6,812,93011223,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),\
        cpuset=/,mems_allowed=0,oom_memcg=/a,b,task_memcg=/a,b/c,task=tail,pid=652,uid=0\n";
    const KILLED: &str = "3,813,93011241,-;Memory cgroup out of memory: Killed process 652 (tail) \
        total-vm:53580kB, anon-rss:51024kB, file-rss:1520kB, shmem-rss:0kB, UID:0 pgtables:144kB \
        oom_score_adj:0\n SUBSYSTEM=x\n";

    #[test]
    fn a_victim_has_a_name_a_group_and_a_size() {
        let mut r = Records::default();
        let noise = "6,811,93011000,-;tail invoked oom-killer: gfp_mask=0xcc0, order=0\n";
        let mut log = Log::of([noise, CHOSEN, KILLED].map(|t| Ok(t.to_owned())));
        r.drain(&mut log, NOW).unwrap();
        let want = OomKilled {
            at: NOW,
            pid: 652,
            comm: "tail".to_owned(),
            cgroup: Some("/a,b/c".to_owned()),
            rss_kb: Some(52_544),
        };
        assert_eq!((Vec::from(r.kills), r.lost), (vec![want], 0));
    }

    /// Before 5.4 the victim is announced first; before 4.19 nothing tells its group.
    #[test]
    fn an_old_kernel_announces_its_victim_and_kills_once() {
        let mut r = Records::default();
        let lines = [
            "3,5,100,-;Memory cgroup out of memory: Kill process 77 (java) score 999 or sacrifice child\n",
            "3,6,101,-;Killed process 77 (java) total-vm:900kB, anon-rss:500kB, file-rss:1kB\n",
        ];
        r.drain(&mut Log::of(lines.map(|t| Ok(t.to_owned()))), NOW).unwrap();
        let [k] = Vec::from(r.kills).try_into().unwrap();
        assert_eq!((k.pid, k.comm.as_str(), k.cgroup, k.rss_kb), (77, "java", None, Some(501)));
    }

    #[test]
    fn overwritten_and_flooding_records_are_counted_by_their_numbers() {
        let line = |n: u64| Ok(format!("6,{n},{n},-;x\n"));
        let mut r = Records::default();
        r.drain(&mut Log::of([line(10), Err(Errno::PIPE), line(25), line(26)]), NOW).unwrap();
        assert_eq!(r.lost, 14);
        // The list of all processes stands before the kill: more than one reading takes.
        let list = 27 + MAX_RECORDS as u64 + 500;
        let kill = Ok(format!("3,{list},9,-;Out of memory: Killed process 7 (x) total-vm:1kB\n"));
        let mut log = Log::of((27..list).map(line).chain([kill]));
        r.drain(&mut log, NOW).unwrap();
        assert!(r.kills.is_empty(), "a reading has an end");
        r.drain(&mut log, NOW).unwrap();
        assert_eq!((r.lost, r.kills.len()), (14, 1));
        assert!(r.drain(&mut Log::of([Err(Errno::PERM)]), NOW).is_err());
    }

    /// `system-foo\x2dbar.slice` is a usual name of systemd, and its backslash is escaped again.
    #[test]
    fn escapes_of_the_device_are_undone_and_programs_do_not_speak_for_the_kernel() {
        let mut r = Records::default();
        let chosen = "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,\
            task_memcg=/a\\x5cx2db/\\xc3\\xa4,task=y,pid=7,uid=0\n";
        let killed = "3,2,1,-;Memory cgroup out of memory: Killed process 7 (\\x1b) total-vm:1kB\n";
        let forged = "12,3,1,-;Out of memory: Killed process 8 (forged) total-vm:1kB\n";
        let other =
            "3,4,1,-;Out of memory (oom_kill_allocating_task): Killed process 9 (z) total-vm:1kB\n";
        let all = [chosen, killed, forged, other].map(|t| Ok(t.to_owned()));
        r.drain(&mut Log::of(all), NOW).unwrap();
        let found: Vec<_> =
            r.kills.iter().map(|k| (k.pid, k.comm.as_str(), k.cgroup.as_deref())).collect();
        assert_eq!(found, [(7, "\x1b", Some("/a\\x2db/ä")), (9, "z", None)]);
    }

    /// `memory.oom.group`: the line with the group comes once, for all that are killed with the
    /// first one.
    #[test]
    fn processes_that_are_killed_together_have_one_group() {
        let mut r = Records::default();
        let chosen = "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,\
            task_memcg=/a/b,task=x,pid=7,uid=0\n";
        let kill = |seq: u32, pid: u32| {
            format!(
                "3,{seq},1,-;Memory cgroup out of memory: Killed process {pid} (x) total-vm:1kB\n"
            )
        };
        let group =
            "3,3,1,-;Tasks in /a/b are going to be killed due to memory.oom.group set\n".to_owned();
        let next = chosen.replace("6,1,", "6,6,").replace("/a/b", "/c").replace("pid=7", "pid=9");
        let all = [chosen.to_owned(), kill(2, 7), group, kill(4, 7), kill(5, 8), next, kill(7, 9)];
        r.drain(&mut Log::of(all.map(Ok)), NOW).unwrap();
        let found: Vec<_> = r.kills.iter().map(|k| (k.pid, k.cgroup.as_deref())).collect();
        let b = Some("/a/b");
        assert_eq!(found, [(7, b), (7, b), (8, b), (9, Some("/c"))]);
    }

    #[test]
    fn only_the_last_kills_are_kept() {
        let mut r = Records::default();
        let line =
            |n| Ok(format!("3,{n},{n},-;Out of memory: Killed process {n} (x) total-vm:1kB\n"));
        r.drain(&mut Log::of((1..40).map(line)), NOW).unwrap();
        let pids: Vec<u32> = r.kills.iter().map(|k| k.pid).collect();
        assert_eq!(pids, (24..40).collect::<Vec<u32>>());
    }

    #[test]
    fn a_log_that_is_not_there_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let c = KmsgCollector::open(&HostFs::at(dir.path()), &CollectOptions::default()).unwrap();
        let mut out = Vec::new();
        c.signals(&mut out);
        assert!(format!("{out:?}").contains("/dev/kmsg: No such file"), "{out:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            records in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            text in "(oom-kill:constraint=|Memory cgroup out of memory: |Out of memory: )?\
                (Killed process |Kill process )?[0-9]{0,12}[ (),:a-z_=é]{0,40}",
        ) {
            let mut r = Records::default();
            for bytes in &records {
                r.record(bytes, NOW);
            }
            r.record(format!("1,2,3,-;{text}").as_bytes(), NOW);
            let _ = (killed(&text), chosen(&text), together(&text));
        }
    }
}

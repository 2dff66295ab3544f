//! Threads of a process that somebody asked about, and what they do with their time.

use serde::Deserialize;
use stallscope::sample::subject::TaskId;
use stallscope::sample::waits::{Futex, Holder, Sleep, ThreadWaits, WaitsSample};

use super::Incident;

/// `FUTEX_WAIT_PRIVATE`.
const WAIT: u32 = 0x80;
/// `FUTEX_WAIT_BITSET_PRIVATE`.
const WAIT_BITSET: u32 = 0x89;
/// Samples of a thread per tick.
const SAMPLES: u32 = 10;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watched {
    pub comm: String,
    pub pid: u32,
    pub tid: u32,
    #[serde(default = "one")]
    pub copies: u32,
    pub from: f64,
    pub to: f64,
    /// Part of the time on a CPU.
    #[serde(default)]
    pub runs: f64,
    /// Part of that in the kernel.
    #[serde(default)]
    pub system: f64,
    /// Part of the sleeping time, by where it is.
    #[serde(default)]
    pub sleeps: Vec<Asleep>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asleep {
    pub wchan: String,
    pub syscall: Option<String>,
    /// Address, and the expected value: 2 is a contended mutex.
    pub futex: Option<(u64, u32)>,
    /// It waits by `FUTEX_WAIT_BITSET`, as Rust does.
    #[serde(default)]
    pub bitset: bool,
    /// Who holds the lock of a file: name and process id.
    pub holder: Option<(String, u32)>,
    pub part: f64,
}

fn one() -> u32 {
    1
}

pub fn waits(i: &Incident, t: f64) -> WaitsSample {
    let there = |w: &&Watched| t >= w.from && t < w.to;
    let threads = i.watched.iter().filter(there).flat_map(|w| {
        (0..w.copies).map(move |n| ThreadWaits {
            task: TaskId { pid: w.pid, tid: w.tid + n, start: 1 },
            comm: w.comm.clone(),
            run_ns: ((t - w.from) * w.runs * 1e9) as u64,
            run_delay_ns: Some(0),
            utime: (100.0 * (t - w.from) * w.runs * (1.0 - w.system)) as u64,
            stime: (100.0 * (t - w.from) * w.runs * w.system) as u64,
            samples: SAMPLES,
            sleeps: w.sleeps.iter().map(sleep).collect(),
            ..ThreadWaits::default()
        })
    });
    let mut threads: Vec<ThreadWaits> = threads.collect();
    threads.sort_by_key(|t| t.task);
    WaitsSample { threads, everyone: i.everyone_is_watched, ..WaitsSample::default() }
}

fn sleep(s: &Asleep) -> Sleep {
    let futex = s.futex.map(|(addr, val)| Futex {
        op: if s.bitset { WAIT_BITSET } else { WAIT },
        val,
        addr: Some(addr),
    });
    Sleep {
        state: 'S',
        wchan: Some(s.wchan.clone()),
        syscall: s.syscall.clone().or_else(|| futex.map(|_| "futex".to_owned())),
        futex,
        holder: s.holder.clone().map(|(comm, pid)| Holder { pid, comm }),
        samples: (s.part * f64::from(SAMPLES)).round() as u32,
        ..Sleep::default()
    }
}

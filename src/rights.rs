//! Capabilities: what each of our threads needs, and giving up everything else.
//!
//! Capabilities belong to a thread, and a new thread begins with those of the one that starts
//! it. So the program gives up, before it starts any, all that none of them needs
//! ([`begin`]); each thread then keeps what its own [`Duty`] needs ([`restrict`]) before it
//! reads anything. What is dropped cannot come back: the bounding set is empty and
//! `no_new_privs` is set, so that no program that we start gains anything either.
//!
//! Root without capabilities still is the owner of root's files. What root can do no more with
//! us: record beyond a disk quota, and set aside or delete a file of somebody else in a sticky
//! directory such as `/tmp`.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Draws the console and takes keys; `r` and `w` make files. Also of the flight recorder,
    /// where findings do.
    Console,
    /// Reads a recording or pasted text, writes a part of one.
    Files,
    /// Works with what other threads read.
    Figures,
    /// Writes a recording.
    Recorder,
    /// Reads the sockets of our own network namespace.
    HostSockets,
    /// Reads the sockets and devices of all others.
    Namespaces,
    /// Reads `/proc` and `/sys`, and the protocol counters of all network namespaces.
    Counters,
    /// Reads `/proc/PID` and cgroups.
    Tasks,
    /// Asks mounted file systems how much room they have.
    Mounts,
    /// Watches the threads of a process.
    Waits,
    /// Loads and attaches kernel programs.
    LoadBpf,
    /// Reads what they measured.
    ReadBpf,
}

/// What a thread keeps.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// For what.
    pub duty: Duty,
    /// Name of the thread; the kernel keeps 15 bytes of it. Empty: the main thread.
    pub thread: &'static str,
    /// In force all the time.
    pub held: CapabilitySet,
    /// Permitted, and in force while [`lend`] runs.
    pub lent: CapabilitySet,
    /// What the two are for.
    pub why: &'static str,
}

const NONE: CapabilitySet = CapabilitySet::empty();
/// Links and directories below `/proc/PID` of other users.
const PROCESSES: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);
/// `setns`, besides finding out what there is to enter.
const ENTER: CapabilitySet = CapabilitySet::SYS_ADMIN.union(PROCESSES);
/// To use the `bpf` system call; before 5.8 that is `SYS_ADMIN`.
pub(crate) const BPF: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);
/// To mount tracefs for one thread, and to read it.
pub(crate) const TRACEFS: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::DAC_READ_SEARCH);

/// Every duty once; nothing else decides what is kept.
pub static TABLE: [Row; 12] = [
    Row {
        duty: Duty::Console,
        thread: "",
        held: NONE,
        lent: CapabilitySet::DAC_OVERRIDE,
        why: "create the files of `r` and `w` in another user's directory",
    },
    Row {
        duty: Duty::Files,
        thread: "",
        held: CapabilitySet::DAC_OVERRIDE,
        lent: NONE,
        why: "read and write other users' files",
    },
    Row { duty: Duty::Figures, thread: "", held: NONE, lent: NONE, why: "" },
    Row {
        duty: Duty::Recorder,
        thread: "recorder",
        held: CapabilitySet::DAC_OVERRIDE,
        lent: NONE,
        why: "create, rotate and delete recordings in another user's directory",
    },
    Row {
        duty: Duty::HostSockets,
        thread: "read-hostsockets",
        // Without NET_ADMIN the kernel hides marks, and before 6.15 subflows of MPTCP.
        held: CapabilitySet::NET_ADMIN.union(PROCESSES),
        lent: NONE,
        why: "socket marks, and the processes that own sockets",
    },
    Row {
        duty: Duty::Namespaces,
        thread: "read-netnswalker",
        held: CapabilitySet::NET_ADMIN.union(ENTER),
        lent: NONE,
        why: "enter network namespaces; socket marks, the processes that own sockets, and who opened \
              the entries of a connection table",
    },
    Row {
        duty: Duty::Counters,
        thread: "read-files",
        held: ENTER.union(CapabilitySet::SYSLOG),
        lent: NONE,
        why: "enter network namespaces held only by a mount; open the kernel log",
    },
    Row {
        duty: Duty::Tasks,
        thread: "read-tasks",
        held: PROCESSES,
        lent: NONE,
        why: "what other users' tasks wait for; hidden processes and cgroups",
    },
    Row {
        duty: Duty::Mounts,
        thread: "read-mounts",
        held: PROCESSES,
        lent: NONE,
        why: "reach mount points below other users' directories, and those of process 1 from a \
              mount namespace of our own",
    },
    Row {
        duty: Duty::Waits,
        thread: "read-waits",
        held: PROCESSES,
        // As for LoadBpf, and the stacks of other users' threads.
        lent: CapabilitySet::SYS_ADMIN
            .union(BPF)
            .union(CapabilitySet::SYSLOG)
            .union(CapabilitySet::SYS_RESOURCE)
            .union(CapabilitySet::SYS_CHROOT),
        why: "where other users' threads sleep in the kernel: wchan, syscall, the stack, and a walk \
              over all threads by eBPF",
    },
    Row {
        duty: Duty::LoadBpf,
        thread: "read-bpf",
        // SYS_RESOURCE raises the memory limit that maps count against before 5.11, SYS_CHROOT
        // hides the kernel's types from the loader.
        held: BPF
            .union(TRACEFS)
            .union(CapabilitySet::SYSLOG)
            .union(CapabilitySet::SYS_PTRACE)
            .union(CapabilitySet::SYS_RESOURCE)
            .union(CapabilitySet::SYS_CHROOT),
        lent: NONE,
        why: "load and attach eBPF programs",
    },
    Row {
        duty: Duty::ReadBpf,
        thread: "read-bpf",
        held: CapabilitySet::SYSLOG.union(CapabilitySet::SYS_PTRACE),
        lent: BPF,
        why: "names of kernel functions and hidden processes; attach missing programs later",
    },
];

impl Duty {
    /// Its row of the table.
    #[must_use]
    pub fn row(self) -> &'static Row {
        // The discriminants are the order of the table; a test looks after that.
        &TABLE[self as usize]
    }
}

/// What the program was started with.
static BEGAN: OnceLock<CapabilitySet> = OnceLock::new();
/// Why something could not be dropped: the first reason.
static TROUBLE: Mutex<Option<String>> = Mutex::new(None);

fn note<E: std::fmt::Display>(what: &str, result: Result<(), E>) {
    if let Err(e) = result {
        let mut trouble = TROUBLE.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.get_or_insert_with(|| format!("{what}: {e}"));
    }
}

/// Before the first thread is started: gives up what none of them will need. What cannot be
/// given up is told by `doctor`; it is no reason not to run.
pub fn begin() {
    note("prctl(PR_SET_NO_NEW_PRIVS)", set_no_new_privs(true));
    let Ok(now) = capabilities(None) else { return };
    let _ = BEGAN.set(now.permitted);
    // Others cannot, and need not: they never had what the set still allows.
    if now.effective.contains(CapabilitySet::SETPCAP) {
        note("prctl(PR_CAPBSET_DROP)", empty_bounding_set());
    }
    let needed = TABLE.iter().fold(NONE, |all, row| all | row.held | row.lent);
    note("capset", keep(needed, needed));
}

/// Keeps, for the calling thread and those that it starts, what `duty` needs.
pub fn restrict(duty: Duty) {
    let row = duty.row();
    note("capset", keep(row.held, row.held | row.lent));
}

/// Keeps `permitted` of what the calling thread has, `held` of it in force.
pub(crate) fn keep(held: CapabilitySet, permitted: CapabilitySet) -> io::Result<()> {
    let now = capabilities(None)?;
    let permitted = now.permitted & permitted;
    let set = CapabilitySets {
        effective: permitted & held,
        permitted,
        // The ambient set goes with it.
        inheritable: NONE,
    };
    if set == now { Ok(()) } else { Ok(set_capabilities(None, set)?) }
}

fn empty_bounding_set() -> io::Result<()> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(one) {
            Ok(true) => remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            // The kernel knows none from here on.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Runs `f` with what of `more` the calling thread is permitted.
pub fn lend<T>(more: CapabilitySet, f: impl FnOnce() -> T) -> T {
    let Ok(before) = capabilities(None) else { return f() };
    let more = before.permitted & more;
    if before.effective.contains(more) {
        return f();
    }
    let lent = CapabilitySets { effective: before.effective | more, ..before };
    let raised = set_capabilities(None, lent).is_ok();
    let out = f();
    if raised {
        let _ = set_capabilities(None, before);
    }
    out
}

/// Runs `f` as somebody who makes a file: with what [`Duty::Console`] is lent for that.
pub fn writing<T>(f: impl FnOnce() -> T) -> T {
    lend(Duty::Console.row().lent, f)
}

/// Capabilities of a thread, as the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its name, raw.
    pub thread: String,
    /// In force.
    pub effective: CapabilitySet,
    /// In force or to be had.
    pub permitted: CapabilitySet,
    /// What a program that it starts could have at most.
    pub bounding: CapabilitySet,
    /// Whether such a program can gain any; `None` before 4.10.
    pub no_new_privs: Option<bool>,
}

/// What is held and what was dropped.
#[derive(Clone, Debug)]
pub struct Account {
    /// What the program was started with.
    pub began: CapabilitySet,
    /// Each thread, main thread first.
    pub threads: Vec<Held>,
    /// Why something could not be dropped.
    pub trouble: Option<String>,
}

/// Asks the kernel.
///
/// # Errors
/// When `/proc/self/task` cannot be read: where, and why.
pub fn account() -> Result<Account, String> {
    let dir = "/proc/self/task";
    let mut tids: Vec<u32> = std::fs::read_dir(dir)
        .map_err(|e| format!("{dir}: {e}"))?
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    // A thread may end meanwhile.
    let status = |tid: &u32| std::fs::read(format!("{dir}/{tid}/status")).ok();
    let threads = tids.iter().filter_map(status).filter_map(|s| held(&s)).collect();
    let began = BEGAN.get().copied().unwrap_or(NONE);
    let trouble = TROUBLE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Account { began, threads, trouble })
}

/// Reads `/proc/PID/status`.
#[must_use]
pub fn held(status: &[u8]) -> Option<Held> {
    let text = String::from_utf8_lossy(status);
    let field = |name: &str| {
        text.lines().find_map(|l| Some(l.strip_prefix(name)?.strip_prefix(':')?.trim()))
    };
    let set = |name: &str| {
        u64::from_str_radix(field(name)?, 16).ok().map(CapabilitySet::from_bits_retain)
    };
    Some(Held {
        thread: field("Name")?.to_owned(),
        effective: set("CapEff")?,
        permitted: set("CapPrm")?,
        bounding: set("CapBnd")?,
        no_new_privs: field("NoNewPrivs").map(|v| v == "1"),
    })
}

/// Names as `capabilities(7)` has them; a number for those that are newer than this program.
#[must_use]
pub fn names(set: CapabilitySet) -> Vec<String> {
    let bits = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    let named = |one: CapabilitySet| {
        one.iter_names().next().map_or_else(
            || format!("CAP_{}", one.bits().trailing_zeros()),
            |(name, _)| format!("CAP_{name}"),
        )
    };
    bits.filter(|one| set.contains(*one)).map(named).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_duty_has_its_row() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.duty as usize, i, "{:?}", row.duty);
            assert_eq!(row.duty.row().duty, row.duty);
            let nothing = (row.held | row.lent).is_empty();
            assert_eq!(row.why.is_empty(), nothing, "{:?}: a right has a reason", row.duty);
            assert!(!row.held.intersects(row.lent), "{:?}", row.duty);
        }
        // What nothing of ours may ever need: each would be as good as all.
        let never = CapabilitySet::SETPCAP
            | CapabilitySet::SYS_MODULE
            | CapabilitySet::SYS_RAWIO
            | CapabilitySet::SETUID
            | CapabilitySet::SETFCAP;
        assert!(TABLE.iter().all(|r| !(r.held | r.lent).intersects(never)));
    }

    /// As root; anybody else has nothing to drop, which must not fail either.
    #[test]
    fn a_thread_keeps_what_its_duty_needs() {
        let had = capabilities(None).unwrap().permitted;
        std::thread::spawn(move || {
            restrict(Duty::Namespaces);
            let now = capabilities(None).unwrap();
            assert_eq!(now.permitted, had & Duty::Namespaces.row().held);
            assert_eq!((now.effective, now.inheritable), (now.permitted, NONE));
            restrict(Duty::Tasks);
            let now = capabilities(None).unwrap();
            assert_eq!(now.effective, had & PROCESSES);
            restrict(Duty::Namespaces);
            assert_eq!(capabilities(None).unwrap(), now, "there is no way back");
        })
        .join()
        .unwrap();
        assert_eq!(capabilities(None).unwrap().permitted, had, "another thread's are its own");
        assert_eq!(*TROUBLE.lock().unwrap(), None);
    }

    #[test]
    fn what_is_lent_is_given_back() {
        let had = capabilities(None).unwrap().permitted;
        std::thread::spawn(move || {
            restrict(Duty::Console);
            let now = || capabilities(None).unwrap().effective;
            assert_eq!(now(), NONE);
            assert_eq!(writing(now), had & CapabilitySet::DAC_OVERRIDE);
            assert_eq!(now(), NONE);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_kernels_account_is_read() {
        let mine = capabilities(None).unwrap();
        let all = account().unwrap();
        let status = std::fs::read("/proc/thread-self/status").unwrap();
        let me = held(&status).unwrap();
        assert_eq!((me.effective, me.permitted), (mine.effective, mine.permitted));
        assert!(!all.threads.is_empty());
        assert_eq!(held(b"Name:\tx\nCapPrm:\tzz\n"), None);
        assert_eq!(held(b""), None);
        let old = b"Name:\ta b\nCapPrm:\t3\nCapEff:\t1\nCapBnd:\tffffffffffffffff\n";
        let old = held(old).unwrap();
        assert_eq!((old.thread.as_str(), old.no_new_privs), ("a b", None));
        assert_eq!(names(old.permitted), ["CAP_CHOWN", "CAP_DAC_OVERRIDE"]);
        assert_eq!(names(CapabilitySet::from_bits_retain(1 << 63)), ["CAP_63"]);
        assert_eq!(names(old.bounding).len(), 64);
    }
}

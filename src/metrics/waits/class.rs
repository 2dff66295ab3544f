//! What a sleep is: from the function of the kernel that it is in, and from the system call where
//! the function leaves it open. A function that is in no table stays what it is: `other`, with its
//! name, before a guess.

use std::fmt;

use serde::Serialize;

use crate::sample::waits::{Futex, Sleep};

/// Where the time of a thread goes. Exclusive: together they are all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// On a CPU, in the program.
    User,
    /// On a CPU, in the kernel.
    Sys,
    /// Runnable, and waiting for a CPU.
    RunQueue,
    /// Runnable, but the CPU quota of its cgroup is used up.
    Throttled,
    /// Block I/O: a read, a direct write, fsync, the journal, writeback.
    Disk,
    /// Reclaim, compaction, swap-in.
    Memory,
    /// A contended mutex, a lock of the kernel, a file lock.
    Lock,
    /// Data from a peer that owes an answer, room to send, a connection.
    Network,
    /// Another process at the end of a pipe or UNIX socket, a child, a debugger.
    Peer,
    /// NFS, CIFS, Ceph, 9p, FUSE.
    RemoteFs,
    /// Waits for work of its own will.
    Idle,
    /// Stopped: a signal, a debugger, the freezer.
    Stopped,
    /// None of these.
    Other,
}

impl Class {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 13] = [
        Self::User,
        Self::Sys,
        Self::RunQueue,
        Self::Throttled,
        Self::Disk,
        Self::Memory,
        Self::Lock,
        Self::Network,
        Self::Peer,
        Self::RemoteFs,
        Self::Idle,
        Self::Stopped,
        Self::Other,
    ];

    /// As printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Sys => "sys",
            Self::RunQueue => "run queue",
            Self::Throttled => "throttled",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Lock => "lock",
            Self::Network => "network",
            Self::Peer => "peer process",
            Self::RemoteFs => "remote fs",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
            Self::Other => "other",
        }
    }

    /// Does it wait for something that should come? Neither work nor idleness.
    #[must_use]
    pub fn is_wait(self) -> bool {
        !matches!(self, Self::User | Self::Sys | Self::Idle)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Of FUSE, whose server is a process of this host.
const FUSE: &[&str] = &["fuse_", "request_wait_answer", "__fuse"];

/// A function belongs to the class whose longest entry it begins with.
const FUNCTIONS: &[(Class, &[&str])] = &[
    (
        Class::Disk,
        &[
            "folio_wait",
            "wait_on_page",
            "__lock_page",
            "__folio_lock",
            "filemap_",
            "__wait_on_buffer",
            "jbd2_",
            "do_get_write_access",
            "start_this_handle",
            "add_transaction_credits",
            "xfs_log",
            "xlog_",
            "xfs_buf",
            "_xfs_",
            "submit_bio_wait",
            "blk_mq_get_tag",
            "__bio_queue_enter",
            "blk_queue_enter",
            "rq_qos_wait",
            "wbt_",
            "balance_dirty_pages",
            "blk_execute_rq",
            "blkdev_",
            "__blkdev_",
            "iomap_dio",
            "__iomap_dio",
            "dio_",
            "do_blockdev_direct_IO",
            "file_write_and_wait",
            "blkcg_maybe_throttle",
            "blk_throtl",
            "writeback_",
            "wb_wait",
            "sync_inodes_sb",
            "btrfs_wait",
            "wait_current_trans",
            "wait_for_commit",
            "f2fs_",
            "md_",
            "raid",
            "dm_",
            "bch_",
            "wait_for_space",
            "swap_writepage",
        ],
    ),
    (
        Class::Memory,
        &[
            "shrink_",
            "do_shrink",
            "try_to_free",
            "reclaim_throttle",
            "throttle_direct_reclaim",
            "mem_cgroup_",
            "compact",
            "isolate_migratepages",
            "too_many_isolated",
            "congestion_wait",
            "do_swap_page",
            "__read_swap_cache",
            "swap_read",
            "swapin_",
            "migration_entry_wait",
            "out_of_memory",
            "oom_",
        ],
    ),
    (
        Class::Lock,
        &[
            "rwsem_",
            "mutex_",
            "__mutex",
            "down_",
            "__down",
            "percpu_rwsem",
            "__percpu_down",
            "rt_mutex",
            "rtlock_",
            "fcntl_setlk",
            "locks_",
            "flock_",
            "__flock",
            "posix_lock",
            "inode_dio_wait",
            "__inode_dio_wait",
        ],
    ),
    (
        Class::Network,
        &[
            "sk_stream_wait",
            "tcp_sendmsg",
            "inet_stream_connect",
            "__inet_stream_connect",
            "inet_wait_for_connect",
            "sock_alloc_send",
            "sock_wait_for_wmem",
            "udp_sendmsg",
            "tls_",
            "mptcp_sendmsg",
            "sctp_",
        ],
    ),
    (
        Class::Peer,
        &[
            "pipe_",
            "anon_pipe_",
            "fifo_",
            "unix_",
            "wait_for_partner",
            "do_wait",
            "kernel_wait4",
            "kernel_waitid",
            "ptrace_",
            "do_coredump",
            "coredump_",
            "vfork_",
            "wait_for_vfork",
            // A parent that lends its memory to a child until that one executes a program.
            "kernel_clone",
            "_do_fork",
            "do_fork",
            "mq_",
            "wq_sleep",
        ],
    ),
    (
        Class::RemoteFs,
        &[
            "rpc_",
            "nfs",
            "cifs_",
            "smb2_",
            "smb_",
            "wait_for_response",
            "ceph_",
            "p9_",
            "v9fs_",
            "afs_",
            "autofs_",
        ],
    ),
    (Class::RemoteFs, FUSE),
    (
        Class::Idle,
        &[
            "ep_poll",
            "do_epoll_wait",
            "poll_schedule",
            "do_poll",
            "do_sys_poll",
            "do_select",
            "hrtimer_nanosleep",
            "do_nanosleep",
            "common_nsleep",
            "inet_csk_accept",
            "inet_accept",
            "do_sigtimedwait",
            "sigsuspend",
            "do_pause",
            "pause",
            "n_tty_read",
            "do_syslog",
            "syslog_",
            "inotify_read",
            "signalfd_",
            "timerfd_",
            "eventfd_",
            "fsnotify_",
            "do_msgrcv",
            "msleep",
            "io_cqring_wait",
            "io_wq_worker",
            "io_sq_thread",
            "worker_thread",
            "rescuer_thread",
            "smpboot_thread",
            "kthreadd",
            "kthread",
            "kswapd",
            "kcompactd",
            "khugepaged",
            "ksm_",
            "oom_reaper",
            "rcu_gp",
            "rcu_nocb",
            "kauditd",
            "devtmpfsd",
            "irq_thread",
            "kjournald",
            "scsi_error_handler",
            "watchdog",
            "cpu_stopper",
            "psi_rt",
        ],
    ),
    (
        Class::Stopped,
        &["do_signal_stop", "do_jobctl_trap", "do_freezer_trap", "__refrigerator", "get_signal"],
    ),
];

/// `FUTEX_LOCK_PI` and `FUTEX_LOCK_PI2`: locks by definition.
const PI: [u32; 2] = [6, 13];
/// `FUTEX_WAIT_BITSET`.
const WAIT_BITSET: u32 = 9;
/// With `FUTEX_WAIT`.
const WAIT: [u32; 2] = [0, WAIT_BITSET];
/// A mutex of glibc, musl or Rust that somebody holds and others wait for has this value. Condition
/// variables, semaphores and joins wait with others.
const CONTENDED: u32 = 2;

/// Whether the peer of a socket owes an answer; `None`: not known.
pub type Owed = Option<bool>;

/// What a sleep alone does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Does the peer of the socket with this inode owe an answer?
    Socket(u64),
    /// Has the process asynchronous requests in flight? Threads of a database ask for completions
    /// whether there are any to come or not.
    Requests,
}

/// The class of a sleep. `owed` is asked what else it depends on.
#[must_use]
pub fn class_of(sleep: &Sleep, owed: impl Fn(Question) -> Owed) -> Class {
    match sleep.state {
        'T' | 't' => return Class::Stopped,
        'I' => return Class::Idle,
        _ => {}
    }
    if let Some(f) = &sleep.futex {
        return of_futex(*f);
    }
    if is_receiving(sleep) {
        return match sleep.inode.and_then(|inode| owed(Question::Socket(inode))) {
            Some(true) => Class::Network,
            Some(false) => Class::Idle,
            None => Class::Other,
        };
    }
    if awaits_requests(sleep) {
        return match owed(Question::Requests) {
            Some(true) => Class::Disk,
            Some(false) => Class::Idle,
            None => Class::Other,
        };
    }
    if let Some(function) = sleep.wchan.as_deref() {
        let class = of_function(function);
        return class.or_else(|| Some(of_call(entered(function)?, sleep))).unwrap_or(Class::Other);
    }
    sleep.syscall.as_deref().map_or(Class::Other, |call| of_call(call, sleep))
}

fn of_futex(f: Futex) -> Class {
    if is_mutex(f) { Class::Lock } else { Class::Idle }
}

/// Is it a mutex that another thread holds?
#[must_use]
pub fn is_mutex(f: Futex) -> bool {
    // Bits above are flags: private, the clock.
    let op = f.op & 0x7f;
    PI.contains(&op) || WAIT.contains(&op) && f.val == CONTENDED
}

/// Is it a condition variable just as likely? Rust waits for both by `FUTEX_WAIT_BITSET`, and its
/// condition variables for a number that is counted up: one that was notified twice looks like a
/// mutex until the next time.
#[must_use]
pub fn may_be_condition(f: Futex) -> bool {
    f.op & 0x7f == WAIT_BITSET && is_mutex(f)
}

/// Waits for data from a network socket: whether that is work or idleness is the socket's to say.
fn is_receiving(s: &Sleep) -> bool {
    const FUNCTIONS: [&str; 5] =
        ["sk_wait_data", "__skb_wait_for_more", "tcp_recvmsg", "udp_recvmsg", "__skb_recv_udp"];
    let function = s.wchan.as_deref();
    let by_function = |f: &str| FUNCTIONS.iter().any(|p| f.starts_with(p));
    let receives = matches!(s.syscall.as_deref(), Some("recvfrom" | "recvmsg" | "recvmmsg"));
    let reads = matches!(s.syscall.as_deref(), Some("read" | "readv"));
    let is_socket = s.file.as_deref() == Some("socket");
    function.is_some_and(by_function)
        || function.is_none_or(|f| f == "wait_woken") && is_socket && (receives || reads)
}

/// Waits for completions of requests that it made before (libaio).
fn awaits_requests(s: &Sleep) -> bool {
    match s.wchan.as_deref() {
        Some(function) => function.starts_with("read_events"),
        None => matches!(s.syscall.as_deref(), Some("io_getevents" | "io_pgetevents")),
    }
}

/// The system call whose own function this is: what is short has no function below it.
fn entered(function: &str) -> Option<&str> {
    const ENTRIES: [&str; 5] = ["__do_sys_", "__se_sys_", "__x64_sys_", "__arm64_sys_", "sys_"];
    ENTRIES.iter().find_map(|entry| function.strip_prefix(entry))
}

/// The class of a function of the kernel that a thread sleeps in.
#[must_use]
pub fn of_function(function: &str) -> Option<Class> {
    let all = FUNCTIONS.iter().flat_map(|(class, names)| names.iter().map(move |n| (*class, *n)));
    let fitting = all.filter(|(_, name)| function.starts_with(name));
    fitting.max_by_key(|(_, name)| name.len()).map(|f| f.0)
}

/// Does it wait for a lock of a file, of which the kernel tells who holds it?
#[must_use]
pub fn is_file_lock(function: &str) -> bool {
    ["fcntl_setlk", "locks_", "flock_", "__flock"].iter().any(|f| function.starts_with(f))
}

/// Does it wait for the server of a FUSE file system?
#[must_use]
pub fn is_fuse(function: &str) -> bool {
    FUSE.iter().any(|name| function.starts_with(name))
}

/// Is it idle for sure, whatever the function is? From what is known of every thread.
#[must_use]
pub fn is_idle(state: char, syscall: Option<&str>, futex: Option<Futex>) -> bool {
    match (state, futex) {
        ('I', _) => true,
        ('S', Some(f)) => !is_mutex(f),
        ('S', None) => syscall.is_some_and(|call| IDLE_CALLS.contains(&call)),
        _ => false,
    }
}

/// Calls that wait for work.
const IDLE_CALLS: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "nanosleep",
    "clock_nanosleep",
    "pause",
    "rt_sigtimedwait",
    "rt_sigsuspend",
    "accept",
    "accept4",
];

/// Where the function is not known.
fn of_call(call: &str, s: &Sleep) -> Class {
    match call {
        _ if IDLE_CALLS.contains(&call) => Class::Idle,
        "wait4" | "waitid" => Class::Peer,
        "read" | "readv" | "write" | "writev" if s.file.as_deref() == Some("pipe") => Class::Peer,
        "connect" => Class::Network,
        "fsync" | "fdatasync" | "sync" | "syncfs" | "sync_file_range" | "msync" => Class::Disk,
        "flock" => Class::Lock,
        _ => Class::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(state: char, wchan: &str, syscall: &str) -> Sleep {
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        Sleep { state, wchan: some(wchan), syscall: some(syscall), ..Sleep::default() }
    }

    /// Functions as `/proc/PID/wchan` of 5.10, 6.1 and 6.18 names them.
    #[test]
    fn functions_belong_to_their_class() {
        for (class, function) in [
            (Class::Disk, "folio_wait_bit_common"),
            (Class::Disk, "submit_bio_wait"),
            (Class::Disk, "jbd2_log_wait_commit"),
            (Class::Disk, "balance_dirty_pages"),
            (Class::Memory, "shrink_inactive_list"),
            (Class::Memory, "mem_cgroup_handle_over_high"),
            (Class::Lock, "rwsem_down_write_slowpath"),
            (Class::Lock, "locks_lock_inode_wait"),
            (Class::Network, "sk_stream_wait_memory"),
            (Class::Network, "__inet_stream_connect"),
            (Class::Peer, "anon_pipe_read"),
            (Class::Peer, "unix_stream_read_generic"),
            (Class::Peer, "do_wait"),
            (Class::RemoteFs, "rpc_wait_bit_killable"),
            (Class::RemoteFs, "request_wait_answer"),
            (Class::Idle, "ep_poll"),
            (Class::Idle, "poll_schedule_timeout.constprop.0"),
            (Class::Idle, "hrtimer_nanosleep"),
            (Class::Idle, "inet_csk_accept"),
            (Class::Idle, "kthread_worker_fn"),
            (Class::Idle, "__do_sys_pause"),
            (Class::Other, "__do_sys_finit_module"),
            (Class::Other, "some_driver_ioctl"),
        ] {
            assert_eq!(class_of(&sleep('S', function, ""), |_| None), class, "{function}");
        }
    }

    #[test]
    fn a_futex_is_a_lock_when_it_is_contended() {
        // glibc's mutex and condition variable, Rust's mutex, a semaphore, a priority-inheriting lock.
        for (op, val, class) in [
            (0x80, 2, Class::Lock),
            (0x189, 7, Class::Idle),
            (0x89, 2, Class::Lock),
            (0x189, 0, Class::Idle),
            (0x86, 0, Class::Lock),
        ] {
            let s = Sleep {
                futex: Some(Futex { op, val, addr: None }),
                ..sleep('S', "futex_wait_queue", "futex")
            };
            assert_eq!(class_of(&s, |_| None), class, "{op:#x} {val}");
            let is_sure = !may_be_condition(Futex { op, val, addr: None });
            assert_eq!(is_sure, (op, val) != (0x89, 2), "{op:#x} {val}");
        }
    }

    #[test]
    fn who_receives_waits_when_an_answer_is_owed() {
        let s = Sleep {
            inode: Some(7),
            file: Some("socket".into()),
            ..sleep('S', "sk_wait_data", "recvfrom")
        };
        assert_eq!(class_of(&s, |q| Some(q == Question::Socket(7))), Class::Network);
        assert_eq!(class_of(&s, |_| Some(false)), Class::Idle);
        assert_eq!(class_of(&s, |_| None), Class::Other, "not known: no guess");
    }

    #[test]
    fn who_asks_for_completions_waits_for_the_disk_when_some_are_to_come() {
        for s in [sleep('S', "read_events", "io_getevents"), sleep('S', "", "io_getevents")] {
            assert_eq!(class_of(&s, |q| Some(q == Question::Requests)), Class::Disk);
            assert_eq!(class_of(&s, |_| Some(false)), Class::Idle);
            assert_eq!(class_of(&s, |_| None), Class::Other, "not known: no guess");
        }
    }

    #[test]
    fn where_the_function_is_hidden_the_call_may_tell() {
        assert_eq!(class_of(&sleep('S', "", "epoll_wait"), |_| None), Class::Idle);
        assert_eq!(class_of(&sleep('D', "", "fsync"), |_| None), Class::Disk);
        assert_eq!(class_of(&sleep('D', "", ""), |_| None), Class::Other);
        assert_eq!(class_of(&sleep('D', "some_driver", "read"), |_| None), Class::Other);
        assert_eq!(class_of(&sleep('T', "do_signal_stop", ""), |_| None), Class::Stopped);
    }

    #[test]
    fn idleness_is_told_by_the_call_where_it_can_be() {
        let futex = |val| Some(Futex { op: 0x80, val, addr: Some(1) });
        for (state, call, futex, want) in [
            ('S', Some("epoll_wait"), None, true),
            ('S', Some("futex"), futex(0), true),
            ('S', Some("futex"), futex(2), false),
            ('S', Some("read"), None, false),
            ('S', None, None, false),
            ('D', Some("poll"), None, false),
            ('T', Some("poll"), None, false),
            ('I', None, None, true),
        ] {
            assert_eq!(is_idle(state, call, futex), want, "{state} {call:?}");
            let syscall = call.map(str::to_owned);
            let s = Sleep { state, syscall, futex, ..Sleep::default() };
            assert!(!want || class_of(&s, |_| None) == Class::Idle);
        }
    }

    #[test]
    fn no_function_is_in_two_classes() {
        let mut all: Vec<&str> = FUNCTIONS.iter().flat_map(|f| f.1).copied().collect();
        all.sort_unstable();
        let n = all.len();
        all.dedup();
        assert_eq!(all.len(), n);
    }
}

//! Which offsets each object needs, and where the running kernel keeps them.

use super::btf::Btf;
use super::fields::Fields;
use super::format::Format;
use super::load::{Globals, UNKNOWN_KERNEL};
use crate::collect::Unavailable;
use crate::sample::bpf::layout::{field, net as l};

/// A variable of the object, the structure, and the path to the member.
type Wanted = (&'static str, &'static str, &'static [&'static str]);

fn require(btf: &Btf, wanted: &[Wanted], out: &mut Globals) -> Result<(), Unavailable> {
    for (variable, structure, path) in wanted {
        let offset =
            btf.offset(structure, path).ok_or_else(|| no_field(structure, &path.join(".")))?;
        out.push((variable, offset));
    }
    Ok(())
}

fn no_field(structure: &str, path: &str) -> Unavailable {
    let reason = format!("this kernel's BTF has no {structure}.{path}");
    Unavailable::new(reason, UNKNOWN_KERNEL)
}

/// Sets `flag` to 1 when all of `wanted` are there.
fn offer(btf: &Btf, flag: &'static str, wanted: &[Wanted], out: &mut Globals) -> bool {
    let before = out.len();
    let there = require(btf, wanted, out).is_ok();
    if !there {
        out.truncate(before);
    }
    out.push((flag, u32::from(there)));
    there
}

/// True when the object of the tracepoint is its second argument, after a queue: seen by the
/// number of arguments, because vendors backport the change.
fn second(btf: &Btf, tracepoint: &str, short: usize) -> Option<u32> {
    btf.tracepoint_args(tracepoint).map(|n| u32::from(n > short))
}

/// Whether the scheduler keeps the averages of its tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Averages {
    /// It does.
    Kept,
    /// Another scheduler runs, and leaves them as they were.
    Stale,
}

/// A field by each of the names that kernels gave it, the latest first.
type Renamed = (usize, &'static str, &'static [&'static [&'static str]]);

/// What the run-queue program loads at every switch.
const AT_SWITCHES: [Renamed; 6] = [
    (field::TASK_CPU, "task_struct", &[&["thread_info", "cpu"], &["cpu"]]),
    (field::TASK_LAST_QUEUED, "task_struct", &[&["sched_info", "last_queued"]]),
    (field::TASK_CFS_RQ, "task_struct", &[&["se", "cfs_rq"]]),
    (field::TASK_STATE, "task_struct", &[&["__state"], &["state"]]),
    (field::CFS_RQ_RQ, "cfs_rq", &[&["rq"]]),
    (field::RQ_CLOCK, "rq", &[&["clock"]]),
];

/// Offsets of the run-queue program.
pub(super) fn runq(btf: &Btf, averages: Averages) -> Result<(Globals, Fields), Unavailable> {
    let mut fields = Fields::new();
    for (field, structure, names) in AT_SWITCHES {
        let offset = names.iter().find_map(|path| btf.offset(structure, path));
        let name = || names.first().map(|path| path.join(".")).unwrap_or_default();
        fields.push((field, offset.ok_or_else(|| no_field(structure, &name()))?));
    }
    let mut out = Globals::new();
    require(
        btf,
        &[("TASK_PID", "task_struct", &["pid"]), ("TASK_TGID", "task_struct", &["tgid"])],
        &mut out,
    )?;
    offer(
        btf,
        "CGROUP_KNOWN",
        &[
            ("TASK_GROUP", "task_struct", &["sched_task_group"]),
            ("GROUP_CGROUP", "task_group", &["css", "cgroup"]),
            ("CGROUP_KN", "cgroup", &["kn"]),
            ("KN_ID", "kernfs_node", &["id"]),
        ],
        &mut out,
    );
    offer(btf, "COMM_KNOWN", &[("TASK_COMM", "task_struct", &["comm"])], &mut out);
    if averages == Averages::Kept {
        offer_sleep_check(btf, &mut out);
    }
    Ok((out, fields))
}

/// What tells sleep from waiting, where a task that sleeps may stay queued (6.12).
fn offer_sleep_check(btf: &Btf, out: &mut Globals) {
    if btf.offset("task_struct", &["se", "sched_delayed"]).is_none() {
        return;
    }
    let task: [Wanted; 2] = [
        ("TASK_PRIO", "task_struct", &["prio"]),
        ("TASK_RUNNABLE", "task_struct", &["se", "avg", "runnable_avg"]),
    ];
    offer(btf, "DELAYED_KNOWN", &task, out);
    let throttled: [Wanted; 2] = [
        ("TASK_CFS", "task_struct", &["se", "cfs_rq"]),
        ("CFS_THROTTLED", "cfs_rq", &["throttled_clock_pelt_time"]),
    ];
    offer(btf, "THROTTLE_KNOWN", &throttled, out);
}

/// Fields of the classic scheduler records.
pub(super) fn runq_records(switch: &Format, wakeup: &Format) -> Result<Globals, Unavailable> {
    let missing =
        |what: &str| Unavailable::new(format!("unknown record layout: no {what}"), UNKNOWN_KERNEL);
    let field = |f: &Format, name: &str, size| f.field(name, size).ok_or_else(|| missing(name));
    let (prev, next) = (field(switch, "prev_pid", 4)?, field(switch, "next_pid", 4)?);
    let (state, wake) = (field(switch, "prev_state", 8)?, field(wakeup, "pid", 4)?);
    let preempted = switch.preempted_bit().ok_or_else(|| missing("mark of preempted tasks"))?;
    let usual = (prev, state, next, wake) == (24, 32, 56, 24);
    Ok(vec![
        ("TP_PREV_PID", prev),
        ("TP_PREV_STATE", state),
        ("TP_NEXT_PID", next),
        ("TP_WAKE_PID", wake),
        ("TP_PREEMPTED", preempted),
        ("TP_KNOWN", u32::from(usual)),
    ])
}

/// Offsets of the block programs, and whether splits can be told by disk.
pub(super) fn block(btf: &Btf) -> Result<(Globals, bool), Unavailable> {
    let mut out = Globals::new();
    require(
        btf,
        &[
            ("RQ_Q", "request", &["q"]),
            ("RQ_CMD_FLAGS", "request", &["cmd_flags"]),
            ("RQ_DATA_LEN", "request", &["__data_len"]),
            ("RQ_START", "request", &["start_time_ns"]),
            ("RQ_TAG", "request", &["tag"]),
            ("RQ_IO_START", "request", &["io_start_time_ns"]),
            ("DISK_MAJOR", "gendisk", &["major"]),
            ("DISK_MINOR", "gendisk", &["first_minor"]),
        ],
        &mut out,
    )?;
    if !offer(btf, "DISK_IN_RQ", &[("RQ_DISK", "request", &["rq_disk"])], &mut out) {
        require(btf, &[("QUEUE_DISK", "request_queue", &["disk"])], &mut out)?;
    }
    let mut splits = offer(btf, "DISK_IN_BIO", &[("BIO_DISK", "bio", &["bi_disk"])], &mut out);
    if !splits {
        let path: [Wanted; 2] =
            [("BIO_BDEV", "bio", &["bi_bdev"]), ("BDEV_DISK", "block_device", &["bd_disk"])];
        splits = require(btf, &path, &mut out).is_ok();
    }
    out.push(("ISSUE_SECOND", second(btf, "block_rq_issue", 1).unwrap_or(0)));
    out.push(("REQUEUE_SECOND", second(btf, "block_rq_requeue", 1).unwrap_or(0)));
    out.push(("SPLIT_SECOND", second(btf, "block_split", 2).unwrap_or(0)));
    Ok((out, splits))
}

/// Why a packet that came in bad is dropped (5.17; fragments 6.2): variable of the object, and name.
const BAD_REASONS: [(&str, &str); l::BAD_REASONS] = [
    ("BAD_REASON_0", "TCP_CSUM"),
    ("BAD_REASON_1", "UDP_CSUM"),
    ("BAD_REASON_2", "IP_CSUM"),
    ("BAD_REASON_3", "ICMP_CSUM"),
    ("BAD_REASON_4", "FRAG_REASM_TIMEOUT"),
];

/// Offsets of the network programs. `helper`: programs may read any address.
pub(super) fn net(btf: &Btf, helper: bool) -> Result<Globals, Unavailable> {
    let mut out = Globals::new();
    let c = "sock_common";
    require(
        btf,
        &[
            ("SK_FAMILY", c, &["skc_family"]),
            ("SK_STATE", c, &["skc_state"]),
            ("SK_NUM", c, &["skc_num"]),
            ("SK_DPORT", c, &["skc_dport"]),
            ("SK_DADDR", c, &["skc_daddr"]),
            ("SK_RCV_SADDR", c, &["skc_rcv_saddr"]),
            ("SK_NET", c, &["skc_net", "net"]),
            ("SK_COOKIE", c, &["skc_cookie"]),
            ("NET_INUM", "net", &["ns", "inum"]),
        ],
        &mut out,
    )?;
    // `sock` begins with `sock_common`; if that ever changes, every offset is wrong.
    if btf.offset("sock", &["__sk_common"]) != Some(0) {
        let reason = "unknown layout of sockets in this kernel's BTF";
        return Err(Unavailable::new(reason, UNKNOWN_KERNEL));
    }
    offer(
        btf,
        "SK_HAS_V6",
        &[("SK_V6_DADDR", c, &["skc_v6_daddr"]), ("SK_V6_RCV_SADDR", c, &["skc_v6_rcv_saddr"])],
        &mut out,
    );
    let args = |t: &str| btf.tracepoint_args(t).unwrap_or(0);
    out.push(("RETRANSMIT_HAS_ERR", u32::from(args("tcp_retransmit_skb") >= 3)));
    out.push(("RESET_HAS_REASON", u32::from(args("tcp_send_reset") >= 3)));
    out.push(("DROP_HAS_REASON", u32::from(args("kfree_skb") >= 3)));
    if helper {
        let packet: [Wanted; 4] = [
            ("SKB_DEV", "sk_buff", &["dev"]),
            ("SKB_HEAD", "sk_buff", &["head"]),
            ("SKB_NETWORK_HEADER", "sk_buff", &["network_header"]),
            ("DEV_NET", "net_device", &["nd_net", "net"]),
        ];
        offer(btf, "SKB_KNOWN", &packet, &mut out);
    }
    let reasons = btf.enumeration("skb_drop_reason");
    let number = |name: &str| {
        let names = |n: &String| n.strip_prefix("SKB_DROP_REASON_") == Some(name);
        reasons.iter().find(|(_, n)| names(n)).map_or(0, |(v, _)| *v)
    };
    out.extend(BAD_REASONS.map(|(variable, name)| (variable, number(name))));
    Ok(out)
}

/// Whether these tell who sent a packet that came in bad.
pub(super) fn senders_known(net: &Globals) -> bool {
    let set = |name: &str| net.iter().any(|(n, v)| *n == name && *v != 0);
    set("SKB_KNOWN") && BAD_REASONS.iter().any(|(n, _)| set(n))
}

/// Offsets of the programs at file creation.
pub(super) fn files(btf: &Btf) -> Result<Globals, Unavailable> {
    let mut out = Globals::new();
    require(
        btf,
        &[
            ("INODE_SB", "inode", &["i_sb"]),
            ("SB_DEV", "super_block", &["s_dev"]),
            ("SB_MAGIC", "super_block", &["s_magic"]),
        ],
        &mut out,
    )?;
    Ok(out)
}

/// Where `struct pt_regs` has a system call, its first arguments and the stack: variable of the object,
/// member, and bytes further.
type Register = (&'static str, &'static str, u32);

#[cfg(target_arch = "x86_64")]
const CALL: &[Register] = &[
    ("REGS_CALL", "orig_ax", 0),
    ("REGS_FIRST", "di", 0),
    ("REGS_SECOND", "si", 0),
    ("REGS_THIRD", "dx", 0),
    ("REGS_STACK", "sp", 0),
];
#[cfg(target_arch = "aarch64")]
const CALL: &[Register] = &[
    ("REGS_CALL", "syscallno", 0),
    ("REGS_FIRST", "regs", 0),
    ("REGS_SECOND", "regs", 8),
    ("REGS_THIRD", "regs", 16),
    ("REGS_STACK", "sp", 0),
];
#[cfg(target_arch = "riscv64")]
const CALL: &[Register] = &[
    ("REGS_CALL", "a7", 0),
    ("REGS_FIRST", "orig_a0", 0),
    ("REGS_SECOND", "a1", 0),
    ("REGS_THIRD", "a2", 0),
    ("REGS_STACK", "sp", 0),
];
/// On others, `/proc` tells.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const CALL: &[Register] = &[("REGS_CALL", "no such register", 0)];

/// `None` where programs are not given the registers of a task (before 5.15).
fn registers(btf: &Btf) -> Option<Globals> {
    let one = |(variable, member, further): &Register| {
        Some((*variable, btf.offset("pt_regs", &[member])?.checked_add(*further)?))
    };
    if btf.names("bpf_task_pt_regs") { CALL.iter().map(one).collect() } else { None }
}

/// Offsets of the walk over all threads, and whether it tells system calls.
pub(super) fn tasks(btf: &Btf) -> Result<(Globals, bool), Unavailable> {
    const TASK: &str = "task_struct";
    let mut out = Globals::new();
    require(
        btf,
        &[
            ("META_SEQ", "bpf_iter_meta", &["seq"]),
            ("TASK_PID", TASK, &["pid"]),
            ("TASK_TGID", TASK, &["tgid"]),
            ("TASK_EXIT_STATE", TASK, &["exit_state"]),
            ("TASK_FLAGS", TASK, &["flags"]),
            ("TASK_NVCSW", TASK, &["nvcsw"]),
            ("TASK_NIVCSW", TASK, &["nivcsw"]),
            ("TASK_START", TASK, &["start_boottime"]),
            ("TASK_RUN", TASK, &["se", "sum_exec_runtime"]),
            ("TASK_UTIME", TASK, &["utime"]),
            ("TASK_STIME", TASK, &["stime"]),
            ("TASK_COMM", TASK, &["comm"]),
        ],
        &mut out,
    )?;
    if require(btf, &[("TASK_STATE", TASK, &["__state"])], &mut out).is_err() {
        // Before 5.14.
        require(btf, &[("TASK_STATE", TASK, &["state"])], &mut out)?;
    }
    offer(btf, "DELAY_KNOWN", &[("TASK_DELAY", TASK, &["sched_info", "run_delay"])], &mut out);
    out.push(("STACK_KNOWN", u32::from(btf.names("bpf_get_task_stack"))));
    let registers = registers(btf);
    let calls = registers.is_some();
    out.extend(registers.unwrap_or_default());
    out.push(("REGS_KNOWN", u32::from(calls)));
    Ok((out, calls))
}

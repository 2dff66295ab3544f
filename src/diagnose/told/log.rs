//! Findings from the kernel log.

use super::super::rules::common::text::{bytes, sh};
use super::super::{Evidence, Fire, RuledOut, Severity};
use super::{Judged, plural, some};
use crate::sample::subject::{CgroupId, CpuId, DiskId, NetnsId, Subject};
use crate::sample::told::{Log, LogEvent, Oom, Trouble};

/// Maximum number of findings of one kind; the rest is only counted.
const MAX_OF_A_KIND: usize = 8;

/// How a kind of kernel log event becomes a finding.
struct Case {
    kind: Trouble,
    rule: &'static str,
    severity: Severity,
    subject: fn(&str) -> Subject,
    summary: fn(&LogEvent) -> String,
    missing: &'static str,
    next: &'static [&'static str],
}

const fn host(_: &str) -> Subject {
    Subject::Host
}

fn disk(name: &str) -> Subject {
    Subject::Disk { name: name.to_owned(), dev: DiskId::default() }
}

fn link(name: &str) -> Subject {
    Subject::Link { dev: name.to_owned(), netns: NetnsId(0) }
}

fn cpu(number: &str) -> Subject {
    number.parse().map_or(Subject::Host, |n| Subject::Cpu { cpu: CpuId(n) })
}

fn cgroup(path: &str) -> Subject {
    Subject::Cgroup { path: path.to_owned(), id: CgroupId::default() }
}

fn times(e: &LogEvent) -> String {
    if e.count == 1 { String::new() } else { format!(", {} times", e.count) }
}

/// `{}` in `next` is replaced by the subject, quoted for the shell.
const CASES: &[Case] = &[
    Case {
        kind: Trouble::HungTask,
        rule: "task-hung",
        severity: Severity::Warn,
        subject: host,
        summary: |e| {
            let more = e.value.map_or(String::new(), |s| format!(" for more than {s} s"));
            format!("task {} was blocked{more}{}", e.subject, times(e))
        },
        missing: "what it waited for: see the functions below \"Call Trace:\"",
        next: &["ps -eLo state,pid,tid,wchan:30,comm | awk '$1 == \"D\"'", "iostat -x 1 5"],
    },
    Case {
        kind: Trouble::DiskError,
        rule: "disk-errors",
        severity: Severity::Warn,
        subject: disk,
        summary: |e| format!("{} failed {}", e.subject, some(e.count, "request")),
        missing: "whether the medium, the cable or the path failed: see the lines around it, and \
            SMART",
        next: &["smartctl -a /dev/{}", "dmesg -T | grep -w {} | tail -30"],
    },
    Case {
        kind: Trouble::ArrayFailed,
        rule: "md-degraded",
        severity: Severity::Warn,
        subject: disk,
        summary: |e| format!("the array {} lost a disk{}", e.subject, times(e)),
        missing: "whether it has been replaced since",
        next: &["cat /proc/mdstat", "mdadm --detail /dev/{}"],
    },
    Case {
        kind: Trouble::FsError,
        rule: "disk-errors",
        severity: Severity::Warn,
        subject: disk,
        summary: |e| format!("the file system on {} is damaged{}", e.subject, times(e)),
        missing: "whether the disk or a bug did it: I/O errors of the same device in the log point \
            to the disk",
        next: &["dmesg -T | grep -w {} | tail -30", "findmnt -S /dev/{}"],
    },
    Case {
        kind: Trouble::FsReadOnly,
        rule: "fs-read-only",
        severity: Severity::Crit,
        subject: disk,
        summary: |e| format!("the file system on {} turned read-only", e.subject),
        missing: "whether it has been repaired since",
        next: &["findmnt -S /dev/{}", "dmesg -T | grep -w {} | head -30"],
    },
    Case {
        kind: Trouble::ConntrackFull,
        rule: "conntrack-full",
        severity: Severity::Warn,
        subject: host,
        summary: |e| format!("the connection tracking table was full{}: packets dropped", times(e)),
        missing: "how full it is now",
        next: &[
            "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
            "conntrack -S",
        ],
    },
    Case {
        kind: Trouble::NeighFull,
        rule: "neigh-table-full",
        severity: Severity::Warn,
        subject: host,
        summary: |e| {
            let table = if e.subject.is_empty() { "neighbour table" } else { e.subject.as_str() };
            format!("{table} had no room for another neighbour{}", times(e))
        },
        missing: "how full it is now, and what fills it",
        next: &[
            "ip -s neigh | wc -l; sysctl net.ipv4.neigh.default.gc_thresh3",
            "cat /proc/net/stat/arp_cache",
        ],
    },
    Case {
        kind: Trouble::TcpMemory,
        rule: "tcp-mem-pressure",
        severity: Severity::Warn,
        subject: host,
        summary: |e| format!("TCP ran out of memory{}", times(e)),
        missing: "what uses it, and whether it still does",
        next: &["cat /proc/net/sockstat; sysctl net.ipv4.tcp_mem", "ss -tinmoe"],
    },
    Case {
        kind: Trouble::SynFlood,
        rule: "tcp-synq-full",
        severity: Severity::Info,
        subject: host,
        summary: |e| format!("the SYN queue of port {} was full{}", e.subject, times(e)),
        missing: "whether that was an attack or a server that accepts too slowly; the kernel logs \
            this once per port",
        next: &[
            "nstat -az TcpExtSyncookiesSent TcpExtListenOverflows TcpExtTCPReqQFullDrop",
            "ss -ltn",
        ],
    },
    Case {
        kind: Trouble::SoftLockup,
        rule: "kernel-trouble",
        severity: Severity::Warn,
        subject: cpu,
        summary: |e| {
            let time = e.value.map_or(String::new(), |s| format!(" for {s} s"));
            format!("CPU {} did not switch tasks{time}{} (soft lockup)", e.subject, times(e))
        },
        missing: "whether a hypervisor paused the VM: see steal and the clock",
        next: &["mpstat -P ALL 1 3", "cat /sys/kernel/softlockup_count"],
    },
    Case {
        kind: Trouble::HardLockup,
        rule: "kernel-trouble",
        severity: Severity::Warn,
        subject: host,
        summary: |e| format!("a CPU took no interrupts{} (hard lockup)", times(e)),
        missing: "what it did: see the trace below",
        next: &["cat /sys/kernel/hardlockup_count"],
    },
    Case {
        kind: Trouble::RcuStall,
        rule: "kernel-trouble",
        severity: Severity::Warn,
        subject: host,
        summary: |e| format!("a CPU held up RCU{}", times(e)),
        missing: "whether a hypervisor paused the VM: see steal",
        next: &["mpstat -P ALL 1 3", "cat /sys/kernel/rcu_stall_count"],
    },
    Case {
        kind: Trouble::Oops,
        rule: "kernel-trouble",
        severity: Severity::Crit,
        subject: host,
        summary: |e| format!("the kernel failed: {}", e.line),
        missing: "what still works: locks that the failed task held are never released",
        next: &["cat /proc/sys/kernel/tainted /sys/kernel/oops_count"],
    },
    Case {
        kind: Trouble::Hardware,
        rule: "kernel-trouble",
        severity: Severity::Warn,
        subject: host,
        summary: |e| format!("the hardware reports an error{}", times(e)),
        missing: "which part: see bank and address in the lines around it",
        next: &["ras-mc-ctl --summary", "ipmitool sel list | tail"],
    },
    Case {
        kind: Trouble::FdLimit,
        rule: "fd-limit",
        severity: Severity::Warn,
        subject: host,
        summary: |e| format!("the system ran out of file descriptors{}", times(e)),
        missing: "what holds them",
        next: &["sysctl fs.file-nr fs.file-max"],
    },
    Case {
        kind: Trouble::TaskLimit,
        rule: "task-limit",
        severity: Severity::Warn,
        subject: cgroup,
        summary: |e| format!("cgroup {} hit its process limit{}", e.subject, times(e)),
        missing: "how many there are now; the kernel logs this once per cgroup",
        next: &[
            "systemctl show -p TasksCurrent -p TasksMax '*.service' | grep -v infinity | head -40",
        ],
    },
    Case {
        kind: Trouble::AllocFailure,
        rule: "compaction-stall",
        severity: Severity::Info,
        subject: host,
        summary: |e| {
            let run = match e.value {
                Some(order @ 0..=10) => format!(" of {}", some(1 << order, "page")),
                _ => String::new(),
            };
            format!("the kernel found no contiguous run{run}{}", times(e))
        },
        missing: "whether memory is short or only fragmented",
        next: &["cat /proc/buddyinfo", "free -m"],
    },
    Case {
        kind: Trouble::Clock,
        rule: "clock-slow",
        severity: Severity::Info,
        subject: host,
        summary: |_| "the kernel gave up on the TSC as its clock".to_owned(),
        missing: "which clock it uses now",
        next: &["cat /sys/devices/system/clocksource/clocksource0/current_clocksource"],
    },
    Case {
        kind: Trouble::Hot,
        rule: "cpu-hw-throttle",
        severity: Severity::Warn,
        subject: host,
        summary: |e| format!("CPUs were slowed down because they ran hot{}", times(e)),
        missing: "whether they still are",
        next: &["grep . /sys/devices/system/cpu/cpu*/thermal_throttle/*_count | head -40"],
    },
];

/// Evaluates the whole log.
pub(super) fn judge(log: &Log, out: &mut Judged) {
    let mut said = Vec::new();
    for e in &log.events {
        let of_a_kind = said.iter().filter(|k| **k == e.kind).count();
        said.push(e.kind);
        if of_a_kind >= MAX_OF_A_KIND {
            continue;
        }
        match e.kind {
            Trouble::Oom => oom(log, e, out),
            Trouble::LinkDown => link_down(log, e, out),
            kind => {
                if let Some(case) = CASES.iter().find(|c| c.kind == kind) {
                    plain(log, e, case, out);
                }
            }
        }
    }
    let well = |k: Trouble| matches!(k, Trouble::FsMounted | Trouble::LinkUp);
    if log.lines > 0 && log.events.iter().all(|e| well(e.kind)) {
        let text = format!("Kernel log: {} without a sign of trouble", some(log.lines, "line"));
        out.figures.push(text);
    }
    let kinds: std::collections::BTreeSet<_> =
        log.events.iter().map(|e| e.kind).filter(|k| !well(*k)).collect();
    let hidden: usize = kinds
        .iter()
        .map(|k| said.iter().filter(|s| *s == k).count().saturating_sub(MAX_OF_A_KIND))
        .sum();
    if hidden > 0 || log.over > 0 {
        let more = hidden as u64 + log.over;
        out.figures.push(format!("Kernel log: {} not listed", some(more, "more sign")));
    }
}

fn plain(log: &Log, e: &LogEvent, case: &Case, out: &mut Judged) {
    let mut f = Fire::new(case.severity, (case.summary)(e));
    if case.kind == Trouble::FsReadOnly && later(log, e, Trouble::FsMounted) {
        f.severity = Severity::Warn;
        f.summary.push_str("; it has been mounted again since");
    }
    f.count = u32::try_from(e.count).unwrap_or(u32::MAX);
    if case.kind != Trouble::Oops {
        f.evidence.push(Evidence::text("log", e.line.clone()));
    }
    when(log, e, &mut f);
    f.missing.push(case.missing.to_owned());
    f.next.extend(case.next.iter().map(|n| n.replace("{}", &sh(&e.subject))));
    out.fire(case.rule, (case.subject)(&e.subject), f);
}

/// Adds when it happened, and that a log does not show whether it still happens.
fn when(log: &Log, e: &LogEvent, f: &mut Fire) {
    let n = Evidence::new("lines", e.count as f64, "", String::new());
    let text = match (&e.first, &e.last) {
        (Some(a), Some(b)) if e.count > 1 => {
            format!("{} from [{}] to [{}]", some(e.count, "line"), a.text, b.text)
        }
        (Some(a), _) => format!("{} at [{}]", some(e.count, "line"), a.text),
        _ => format!("{} without a time stamp", some(e.count, "line")),
    };
    let secs = |s: &Option<crate::sample::told::Stamp>| s.as_ref().and_then(|s| s.secs);
    let old = secs(&log.last).zip(secs(&e.last)).map(|(end, last)| end - last);
    let ago = old.filter(|s| *s >= 1.0);
    let ago = ago.map_or(String::new(), |s| format!("; the log continues for {s:.0} s after it"));
    f.evidence.push(Evidence { text: format!("{text}{ago}"), ..n });
    let limited = matches!(
        e.kind,
        Trouble::ConntrackFull | Trouble::NeighFull | Trouble::TcpMemory | Trouble::SynFlood
    );
    if limited && log.suppressed > 0 {
        let text = format!("{} more were not printed (rate limit)", some(log.suppressed, "line"));
        f.evidence.push(Evidence::new("suppressed", log.suppressed as f64, "", text));
    }
    f.missing.push("whether it still happens: a log shows the past".to_owned());
}

fn oom(log: &Log, e: &LogEvent, out: &mut Judged) {
    let none = Oom::default();
    let oom = e.oom.as_ref().unwrap_or(&none);
    let group = oom.constraint.as_deref() == Some("CONSTRAINT_MEMCG") || !e.subject.is_empty();
    let limit = oom
        .limit_kb
        .map_or(String::new(), |kb| format!(" at its limit of {}", bytes(kb.saturating_mul(1024))));
    let what = plural(e.count, "process", "processes");
    let summary = match (group, e.subject.as_str()) {
        (true, "") => format!("the kernel killed {what} in a cgroup that was out of memory"),
        (true, path) => format!("the kernel killed {what} in cgroup {path}{limit}"),
        (false, _) => format!("the kernel killed {what}: the host was out of memory"),
    };
    let mut f = Fire::new(Severity::Warn, summary);
    f.count = u32::try_from(e.count).unwrap_or(u32::MAX);
    f.examples = oom.victims.iter().map(|(name, pid, _)| format!("{name}/{pid}")).collect();
    let rss: Vec<String> = oom
        .victims
        .iter()
        .filter_map(|(name, _, kb)| Some(format!("{name} {}", bytes(kb.as_ref()? * 1024))))
        .collect();
    if !rss.is_empty() {
        f.evidence.push(Evidence::text("rss", format!("resident when killed: {}", rss.join(", "))));
    }
    if let (Some(usage), Some(limit)) = (oom.usage_kb, oom.limit_kb) {
        let failcnt = oom.failcnt.map_or(String::new(), |n| format!(", failcnt {n}"));
        let text = format!("memory: usage {usage} kB, limit {limit} kB{failcnt}");
        f.evidence.push(Evidence::new("limit", limit as f64, "kB", text));
    }
    if let Some(who) = &oom.invoker {
        f.evidence.push(Evidence::text("invoker", format!("{who} asked for memory")));
    }
    when(log, e, &mut f);
    if group {
        let because = "the limit is the cgroup's; the host need not be short of memory".to_owned();
        f.ruled_out.push(RuledOut::new("host-out-of-memory", because));
    }
    f.missing.push("what made it grow: a leak, a spike or a limit that is too small".to_owned());
    if group && !e.subject.is_empty() {
        let path = sh(e.subject.trim_start_matches('/'));
        f.next.push(format!(
            "cd /sys/fs/cgroup && cat ./{path}/memory.{{max,events}} ./memory/{path}/memory.{{limit_in_bytes,oom_control}} 2>/dev/null"
        ));
    } else {
        f.next.push("ps -eo rss,pid,comm --sort=-rss | head".to_owned());
        f.next.push("cat /proc/pressure/memory; free -m".to_owned());
    }
    f.next.push("grep oom_kill /proc/vmstat".to_owned());
    let subject = if e.subject.is_empty() { Subject::Host } else { cgroup(&e.subject) };
    out.fire("oom-kill", subject, f);
}

/// Does the log report this event for the same subject after the last line of `e`?
fn later(log: &Log, e: &LogEvent, kind: Trouble) -> bool {
    log.events.iter().any(|l| l.kind == kind && l.subject == e.subject && l.no > e.no)
}

/// A link that is up again is info.
fn link_down(log: &Log, e: &LogEvent, out: &mut Judged) {
    let (severity, now) = if later(log, e, Trouble::LinkUp) {
        (Severity::Info, "and has it again")
    } else {
        (Severity::Warn, "and the log does not say that it came back")
    };
    let summary = format!("{} lost its link{} {now}", e.subject, times(e));
    let mut f = Fire::new(severity, summary);
    f.evidence.push(Evidence::text("log", e.line.clone()));
    when(log, e, &mut f);
    f.missing.push("whether it was taken down, or the cable, port or switch failed".to_owned());
    let dev = sh(&e.subject);
    f.next.push(format!("ip -s -s link show {dev}; cat /sys/class/net/{dev}/carrier_changes"));
    f.next.push(format!("ethtool {dev}"));
    out.fire("nic-errors", link(&e.subject), f);
}

//! Records of tracepoints from 5.5 to 6.18. 6.1, 6.12 and 6.18 are captured, 5.5 (which stands
//! for 5.4 too) and 5.18 are constructed from published headers; see the fixtures' README.
#![allow(clippy::unwrap_used)]
use std::path::PathBuf;

use super::super::*;
use crate::collect::bpf::offsets;
use crate::collect::testing::fixtures;

const KERNELS: [&str; 5] = ["5.5", "5.18", "6.1", "6.12", "6.18"];

/// Kernels, and where their fields lie: `name=offset:size`. `-` stands for no such field.
type Layouts = &'static [(&'static [&'static str], &'static str)];

const ALL: &[&str] = &KERNELS;
const OLD: &[&str] = &["5.5"];
const SINCE_5_18: &[&str] = &["5.18", "6.1", "6.12", "6.18"];
const TO_6_1: &[&str] = &["5.5", "5.18", "6.1"];
const TO_6_12: &[&str] = &["5.5", "5.18", "6.1", "6.12"];
const IN_5_18: &[&str] = &["5.18", "6.1"];
const SINCE_6_12: &[&str] = &["6.12", "6.18"];
const ONLY_6_12: &[&str] = &["6.12"];
const NEW: &[&str] = &["6.18"];

const WAKEUPS: Layouts = &[
    (OLD, "pid=24:4 prio=28:4 success=32:4 target_cpu=36:4"),
    (SINCE_5_18, "pid=24:4 prio=28:4 success=- target_cpu=32:4"),
];
const REQUESTS: Layouts = &[
    (ALL, "dev=8:4 sector=16:8 nr_sector=24:4 bytes=28:4"),
    (TO_6_1, "ioprio=- rwbs=32:8 comm=40:16"),
    (ONLY_6_12, "ioprio=32:2 rwbs=34:8 comm=42:16"),
    (NEW, "ioprio=32:2 rwbs=34:10 comm=44:16"),
];
const BIOS: Layouts = &[
    (ALL, "dev=8:4 sector=16:8 nr_sector=24:4"),
    (TO_6_12, "rwbs=28:8 comm=36:16"),
    (NEW, "rwbs=28:10 comm=38:16"),
];
/// Before 6.10, as a retransmit; then the addresses are whole `sockaddr`s.
const SEGMENTS_OLD: &str = "skaddr=16:8 state=24:4 sport=28:2 dport=30:2 family=- saddr=32:4 daddr=36:4 \
     saddr_v6=40:16 daddr_v6=56:16";
const SEGMENTS: &str = "skaddr=16:8 state=24:4 sport=28:2 dport=30:2 family=32:2 saddr=34:4 daddr=38:4 \
     saddr_v6=42:16 daddr_v6=58:16";

const EVENTS: [(&[&str], Layouts); 17] = [
    (&["sched_switch"], &[(ALL, "prev_pid=24:4 prev_state=32:8 next_pid=56:4")]),
    (&["sched_wakeup", "sched_wakeup_new", "sched_waking"], WAKEUPS),
    (&["softirq_entry", "softirq_exit", "softirq_raise"], &[(ALL, "vec=8:4")]),
    (&["irq_handler_entry"], &[(ALL, "irq=8:4 name=12:4")]),
    (&["irq_handler_exit"], &[(ALL, "irq=8:4 ret=12:4")]),
    (&["block_rq_insert", "block_rq_issue", "block_rq_merge"], REQUESTS),
    (
        &["block_rq_complete"],
        &[
            (ALL, "dev=8:4 sector=16:8 nr_sector=24:4 error=28:4"),
            (TO_6_1, "rwbs=32:8"),
            (ONLY_6_12, "ioprio=32:2 rwbs=34:8"),
            (NEW, "ioprio=32:2 rwbs=34:10"),
        ],
    ),
    (
        &["block_rq_requeue"],
        &[
            (ALL, "dev=8:4 sector=16:8 nr_sector=24:4"),
            (TO_6_1, "rwbs=28:8"),
            (ONLY_6_12, "ioprio=28:2 rwbs=30:8"),
            (NEW, "ioprio=28:2 rwbs=30:10"),
        ],
    ),
    (&["block_bio_queue", "block_getrq"], BIOS),
    (
        &["block_split"],
        &[
            (ALL, "new_sector=24:8"),
            (TO_6_12, "rwbs=32:8 comm=40:16"),
            (NEW, "rwbs=32:10 comm=42:16"),
        ],
    ),
    (
        &["tcp_retransmit_skb"],
        &[(OLD, SEGMENTS_OLD), (SINCE_5_18, SEGMENTS), (TO_6_12, "err=-"), (NEW, "err=76:4")],
    ),
    (
        &["tcp_send_reset"],
        &[
            (OLD, SEGMENTS_OLD),
            (IN_5_18, SEGMENTS),
            (TO_6_1, "reason=-"),
            (SINCE_6_12, "state=24:4 reason=28:4 saddr=32:28 daddr=60:28"),
        ],
    ),
    (
        &["tcp_receive_reset"],
        &[
            (ALL, "skaddr=8:8 sport=16:2 dport=18:2"),
            (OLD, "family=- saddr=20:4"),
            (SINCE_5_18, "family=20:2 saddr=22:4 daddr=26:4 saddr_v6=30:16 daddr_v6=46:16"),
        ],
    ),
    (
        &["kfree_skb"],
        &[
            (OLD, "location=16:8 protocol=24:2 reason=-"),
            (IN_5_18, "location=16:8 protocol=24:2 reason=28:4 rx_sk=-"),
            (SINCE_6_12, "location=16:8 rx_sk=24:8 protocol=32:2 reason=36:4"),
        ],
    ),
    (
        &["inet_sock_set_state"],
        &[
            (ALL, "oldstate=16:4 newstate=20:4 sport=24:2 dport=26:2 family=28:2"),
            (OLD, "protocol=30:1 saddr=31:4"),
            (SINCE_5_18, "protocol=30:2 saddr=32:4 daddr=36:4 saddr_v6=40:16 daddr_v6=56:16"),
        ],
    ),
    (
        &["sock_exceed_buf_limit"],
        &[
            (&["5.5", "5.18"], "name=8:32 sysctl_mem=40:8 allocated=48:8"),
            (&["6.1", "6.12", "6.18"], "name=8:32 sysctl_mem=40:24 allocated=64:8 kind=92:4"),
        ],
    ),
    (
        &["tcp_probe"],
        &[
            (OLD, "family=- mark=68:4 snd_cwnd=84:4 srtt=96:4 sock_cookie=104:8"),
            (SINCE_5_18, "family=68:2 mark=72:4 srtt=100:4 sock_cookie=112:8"),
            (SINCE_6_12, "skbaddr=120:8 skaddr=128:8"),
        ],
    ),
];

fn path(kernel: &str, event: &str) -> PathBuf {
    fixtures().join("format").join(kernel).join(event)
}

fn read(kernel: &str, event: &str) -> Option<Format> {
    std::fs::read_to_string(path(kernel, event)).ok().map(|t| Format::parse(&t))
}

#[test]
fn fields_lie_where_the_history_says() {
    let mut compared = 0;
    for (events, layouts) in EVENTS {
        for event in events {
            for (kernels, fields) in layouts {
                for kernel in *kernels {
                    // 5.5 had no merge event.
                    let Some(format) = read(kernel, event) else {
                        assert_eq!((*kernel, *event), ("5.5", "block_rq_merge"));
                        continue;
                    };
                    compared += expect(&format, fields, &format!("{kernel} {event}"));
                }
            }
        }
    }
    assert!(compared > 500, "{compared} fields");
}

/// Compares each field; how many there were.
fn expect(format: &Format, fields: &str, what: &str) -> usize {
    let mut n = 0;
    for field in fields.split_whitespace() {
        let (name, place) = field.split_once('=').unwrap();
        let found = format.fields.iter().find(|f| f.name == name);
        let seen = found.map_or("-".to_owned(), |f| format!("{}:{}", f.offset, f.size));
        assert_eq!(seen, place, "{what}: {name}");
        n += 1;
    }
    n
}

#[test]
fn every_kernel_is_measured_from_wakeups_at_known_places() {
    for kernel in KERNELS {
        let (switch, wakeup) =
            (read(kernel, "sched_switch").unwrap(), read(kernel, "sched_wakeup").unwrap());
        let g = offsets::runq_records(&switch, &wakeup).unwrap();
        assert!(g.contains(&("TP_KNOWN", 1)) && g.contains(&("TP_PREEMPTED", 0x100)), "{kernel}");
    }
}

/// What is constructed says so itself, and what is captured does not.
#[test]
fn constructed_records_are_marked() {
    for kernel in KERNELS {
        let constructed = kernel.starts_with('5');
        for entry in std::fs::read_dir(path(kernel, "")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert_eq!(text.starts_with("constructed:"), constructed, "{kernel}: {text}");
        }
    }
}

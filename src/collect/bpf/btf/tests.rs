//! BTF of captured and constructed kernels, and of torn ones.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::collect::bpf::offsets::{self, Averages};
use proptest::prelude::*;

const K6_1: &[u8] = include_bytes!("../../../../tests/fixtures/btf/6.1.btf");
const K6_12: &[u8] = include_bytes!("../../../../tests/fixtures/btf/6.12.btf");
const K6_18: &[u8] = include_bytes!("../../../../tests/fixtures/btf/6.18.btf");

/// Builds BTF for kernels of which no image is at hand.
#[derive(Default)]
pub(super) struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    next: u32,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { strings: vec![0], next: 1, ..Self::default() }
    }
    fn string(&mut self, s: &str) -> u32 {
        if s.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(s.as_bytes());
        self.strings.push(0);
        at
    }
    fn add(&mut self, name: &str, kind: u8, vlen: u32, link: u32, words: &[u32]) -> u32 {
        let name = self.string(name);
        for w in [name, u32::from(kind) << 24 | vlen, link].iter().chain(words) {
            self.types.extend_from_slice(&w.to_ne_bytes());
        }
        self.next += 1;
        self.next - 1
    }
    /// A structure; members are name, type and offset in bytes.
    pub(super) fn structure(&mut self, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let mut words = Vec::new();
        for (label, id, bytes) in members {
            words.extend([self.string(label), *id, bytes * 8]);
        }
        self.add(name, KIND_STRUCT, members.len() as u32, 4096, &words)
    }
    pub(super) fn tracepoint(&mut self, name: &str, args: u32) {
        let proto = self.add("", KIND_FUNC_PROTO, args + 1, 0, &vec![0; 2 * (args as usize + 1)]);
        let pointer = self.add("", KIND_PTR, 0, proto, &[]);
        self.add(&format!("btf_trace_{name}"), KIND_TYPEDEF, 0, pointer, &[]);
    }
    pub(super) fn build(self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC.to_ne_bytes());
        out.extend_from_slice(&[1, 0]);
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for w in [24, 0, types, types, strings] {
            out.extend_from_slice(&w.to_ne_bytes());
        }
        out.extend(self.types);
        out.extend(self.strings);
        out
    }
}

#[test]
fn tracepoints_keep_their_ids() {
    let mut b = Builder::new();
    b.structure("task_struct", &[("pid", 0, 4)]);
    b.tracepoint("sched_switch", 4);
    b.structure("btf_trace_none", &[]);
    b.tracepoint("softirq_entry", 1);
    let constructed = b.build();
    let blobs = [K6_1, K6_12, K6_18, &constructed];
    for blob in blobs {
        let whole = Btf::parse(blob.to_vec()).unwrap();
        let few = Btf::parse(whole.hooks()).unwrap();
        let name = |btf: &Btf, (_, label, id): &(u8, u32, u32)| {
            (String::from_utf8_lossy(btf.string(*label).unwrap()).into_owned(), *id)
        };
        let mut all: Vec<_> =
            whole.named.iter().filter(|n| n.0 == KIND_TYPEDEF).map(|n| name(&whole, n)).collect();
        all.retain(|(name, _)| name.starts_with("btf_trace_"));
        assert!(all.len() >= 2, "{all:?}");
        assert_eq!(few.named.iter().map(|n| name(&few, n)).collect::<Vec<_>>(), all);
        assert!(aya::Btf::parse(&whole.hooks(), aya::Endianness::default()).is_ok());
    }
    let none = Btf::parse(Builder::new().build()).unwrap();
    assert!(Btf::parse(none.hooks()).unwrap().named.is_empty());
}

/// Member by member as `bpftool btf dump format raw` of the whole BTF says.
#[test]
fn captured_kernels_agree_with_bpftool() {
    type Row = (&'static str, &'static [&'static str], [u32; 3]);
    let rows: [Row; 19] = [
        ("task_struct", &["thread_info", "cpu"], [20, 20, 20]),
        ("task_struct", &["__state"], [24, 24, 24]),
        ("task_struct", &["sched_info", "last_queued"], [2184, 2216, 1048]),
        ("task_struct", &["se", "cfs_rq"], [248, 288, 296]),
        ("cfs_rq", &["rq"], [304, 312, 312]),
        ("rq", &["clock"], [2448, 2736, 2776]),
        ("task_struct", &["pid"], [2416, 2432, 1264]),
        ("task_struct", &["tgid"], [2420, 2436, 1268]),
        ("task_struct", &["sched_task_group"], [664, 688, 712]),
        ("cgroup", &["kn"], [248, 256, 256]),
        ("kernfs_node", &["id"], [104, 96, 96]),
        ("request", &["__data_len"], [44, 44, 44]),
        ("request", &["io_start_time_ns"], [112, 112, 112]),
        ("request_queue", &["disk"], [160, 104, 104]),
        ("block_device", &["bd_disk"], [848, 16, 16]),
        ("sock_common", &["skc_dport"], [12, 12, 12]),
        ("sock_common", &["skc_net", "net"], [48, 48, 48]),
        ("sock_common", &["skc_cookie"], [88, 88, 88]),
        ("net", &["ns", "inum"], [144, 136, 176]),
    ];
    for (i, blob) in [K6_1, K6_12, K6_18].into_iter().enumerate() {
        let btf = Btf::parse(blob.to_vec()).unwrap();
        for (structure, path, want) in &rows {
            assert_eq!(btf.offset(structure, path), Some(want[i]), "{structure}.{path:?} of {i}");
        }
        assert_eq!(btf.offset("request", &["rq_disk"]), None, "moved to the queue in 5.15");
        assert_eq!(btf.offset("task_struct", &["no_such"]), None);
        assert_eq!(btf.offset("no_such", &["pid"]), None);
    }
}

#[test]
fn captured_tracepoints_have_the_arguments_of_their_prototypes() {
    let args = |blob: &[u8]| {
        let btf = Btf::parse(blob.to_vec()).unwrap();
        let points = ["sched_switch", "block_rq_issue", "kfree_skb", "tcp_retransmit_skb"];
        points.map(|p| btf.tracepoint_args(p))
    };
    // As the `btf_trace_*` typedefs of `bpftool btf dump format c` read.
    assert_eq!(args(K6_1), [Some(4), Some(1), Some(3), Some(2)]);
    assert_eq!(args(K6_12), [Some(4), Some(1), Some(4), Some(2)]);
    assert_eq!(args(K6_18), [Some(4), Some(1), Some(4), Some(3)]);
}

#[test]
fn drop_reasons_are_named_per_kernel() {
    let named = |blob: &[u8], name: &str| {
        let values = Btf::parse(blob.to_vec()).unwrap().enumeration("skb_drop_reason");
        values.into_iter().find(|(_, n)| n == name).map(|(v, _)| v)
    };
    assert_eq!(named(K6_18, "SKB_DROP_REASON_NO_SOCKET"), Some(3));
    assert_eq!(named(K6_18, "SKB_DROP_REASON_NOT_SPECIFIED"), Some(2));
    // The same reason has another number in 6.1.
    let (old, new) = ("SKB_DROP_REASON_UDP_CSUM", "SKB_DROP_REASON_UDP_CSUM");
    assert_ne!(named(K6_1, old), named(K6_18, new));
}

#[test]
fn every_object_finds_its_offsets_in_captured_kernels() {
    for blob in [K6_1, K6_12, K6_18] {
        let btf = Btf::parse(blob.to_vec()).unwrap();
        let (runq, _) = offsets::runq(&btf, Averages::Kept).unwrap();
        assert!(runq.contains(&("CGROUP_KNOWN", 1)));
        // Tasks that sleep stay queued since 6.12.
        let delays = blob != K6_1;
        assert_eq!(runq.contains(&("DELAYED_KNOWN", 1)), delays);
        assert_eq!(runq.contains(&("THROTTLE_KNOWN", 1)), delays);
        let (stale, _) = offsets::runq(&btf, Averages::Stale).unwrap();
        assert!(!stale.contains(&("DELAYED_KNOWN", 1)));
        let (block, splits) = offsets::block(&btf).unwrap();
        assert!(splits);
        for shape in ["ISSUE_SECOND", "REQUEUE_SECOND", "SPLIT_SECOND", "DISK_IN_RQ", "DISK_IN_BIO"]
        {
            assert!(block.contains(&(shape, 0)), "{shape}");
        }
        let net = offsets::net(&btf, true).unwrap();
        assert!(net.contains(&("SK_HAS_V6", 1)) && net.contains(&("DROP_HAS_REASON", 1)));
    }
}

/// Constructed: a kernel of today, and one before 5.14 with its own name for the state and without
/// the registers of other tasks.
#[test]
fn constructed_tasks_have_their_registers_where_the_kernel_gives_them() {
    for (state, is_new) in [("__state", true), ("state", false)] {
        let mut b = Builder::new();
        let members = [
            "pid",
            "tgid",
            "exit_state",
            "flags",
            "nvcsw",
            "nivcsw",
            "start_boottime",
            "utime",
            "stime",
            "comm",
            state,
        ];
        let members: Vec<_> = (0..).step_by(8).zip(members).map(|(at, m)| (m, 0, at)).collect();
        let entity = b.structure("sched_entity", &[("sum_exec_runtime", 0, 40)]);
        b.structure("task_struct", &[&members[..], &[("se", entity, 200)]].concat());
        b.structure("bpf_iter_meta", &[("seq", 0, 0), ("session_id", 0, 8)]);
        let registers =
            ["orig_ax", "di", "si", "dx", "syscallno", "regs", "a7", "orig_a0", "a1", "a2", "sp"];
        let registers: Vec<_> =
            (80..).step_by(8).zip(registers).map(|(at, m)| (m, 0, at)).collect();
        b.structure("pt_regs", &registers);
        if is_new {
            b.structure("bpf_task_pt_regs", &[]);
            b.structure("bpf_get_task_stack", &[]);
        }
        let btf = Btf::parse(b.build()).unwrap();
        let (globals, calls) = offsets::tasks(&btf).unwrap();
        assert_eq!(calls, is_new);
        for (name, value) in [
            ("TASK_RUN", 240),
            ("TASK_STATE", 80),
            ("TASK_NIVCSW", 40),
            ("REGS_KNOWN", u32::from(is_new)),
            ("STACK_KNOWN", u32::from(is_new)),
            ("DELAY_KNOWN", 0),
        ] {
            assert!(globals.contains(&(name, value)), "{name}: {globals:?}");
        }
        assert_eq!(globals.iter().any(|g| g.0 == "REGS_CALL"), is_new);
    }
    let none = Btf::parse(Builder::new().build()).unwrap();
    assert!(offsets::tasks(&none).is_err_and(|e| e.reason.contains("bpf_iter_meta")));
}

/// Constructed: the block layer up to 5.10, whose events name the queue first and whose disk
/// hangs on the request and on the bio.
#[test]
fn constructed_5_10_shapes_are_told_by_their_arguments() {
    let mut b = Builder::new();
    b.structure(
        "request",
        &[
            ("q", 0, 0),
            ("cmd_flags", 0, 24),
            ("tag", 0, 32),
            ("__data_len", 0, 40),
            ("rq_disk", 0, 160),
            ("start_time_ns", 0, 184),
            ("io_start_time_ns", 0, 192),
        ],
    );
    b.structure("gendisk", &[("major", 0, 0), ("first_minor", 0, 4)]);
    b.structure("bio", &[("bi_disk", 0, 8)]);
    b.tracepoint("block_rq_issue", 2);
    b.tracepoint("block_rq_requeue", 2);
    b.tracepoint("block_split", 3);
    let (globals, splits) = offsets::block(&Btf::parse(b.build()).unwrap()).unwrap();
    assert!(splits);
    for (name, value) in [
        ("ISSUE_SECOND", 1),
        ("REQUEUE_SECOND", 1),
        ("SPLIT_SECOND", 1),
        ("DISK_IN_RQ", 1),
        ("RQ_DISK", 160),
        ("DISK_IN_BIO", 1),
        ("BIO_DISK", 8),
        ("RQ_IO_START", 192),
    ] {
        assert!(globals.contains(&(name, value)), "{name} {value}");
    }
}

/// Constructed: 5.10.137 took over the short issue and requeue events of 5.11 but nothing
/// else, so that neither a version nor one event tells the shape of another.
#[test]
fn constructed_5_10_137_tells_each_event_by_its_own_arguments() {
    let mut b = Builder::new();
    let members = ["q", "cmd_flags", "tag", "__data_len", "rq_disk", "start_time_ns"];
    let mut members: Vec<_> =
        members.iter().zip(0u32..).map(|(name, i)| (*name, 0, i * 8)).collect();
    members.push(("io_start_time_ns", 0, 192));
    b.structure("request", &members);
    b.structure("gendisk", &[("major", 0, 0), ("first_minor", 0, 4)]);
    b.structure("bio", &[("bi_disk", 0, 8)]);
    b.tracepoint("block_rq_issue", 1);
    b.tracepoint("block_rq_requeue", 1);
    b.tracepoint("block_split", 3);
    let (globals, splits) = offsets::block(&Btf::parse(b.build()).unwrap()).unwrap();
    assert!(splits);
    for want in [("ISSUE_SECOND", 0), ("REQUEUE_SECOND", 0), ("SPLIT_SECOND", 1), ("DISK_IN_RQ", 1)]
    {
        assert!(globals.contains(&want), "{want:?}");
    }
}

/// Constructed: arguments of the network events, kernel by kernel.
#[test]
fn constructed_network_events_have_what_their_arguments_say() {
    for (kernel, drop, reset, retransmit) in
        [("5.5", 2, 2, 2), ("5.17", 3, 2, 2), ("6.10", 3, 3, 2), ("6.17", 4, 3, 3)]
    {
        let mut b = Builder::new();
        let net_ref = b.structure("", &[("net", 0, 0)]);
        let number = b.structure("ns_common", &[("inum", 0, 16)]);
        b.structure("net", &[("ns", number, 120)]);
        let plain = ["skc_daddr", "skc_rcv_saddr", "skc_dport", "skc_num", "skc_family"];
        let mut members: Vec<_> =
            plain.iter().zip(0u32..).map(|(name, i)| (*name, 0, i * 4)).collect();
        members.extend([("skc_state", 0, 20), ("skc_net", net_ref, 48), ("skc_cookie", 0, 88)]);
        let common = b.structure("sock_common", &members);
        b.structure("sock", &[("__sk_common", common, 0)]);
        b.tracepoint("kfree_skb", drop);
        b.tracepoint("tcp_send_reset", reset);
        b.tracepoint("tcp_retransmit_skb", retransmit);
        let globals = offsets::net(&Btf::parse(b.build()).unwrap(), true).unwrap();
        for (name, value) in [
            ("SK_NET", 48),
            ("NET_INUM", 136),
            ("SK_HAS_V6", 0),
            ("DROP_HAS_REASON", u32::from(drop > 2)),
            ("RESET_HAS_REASON", u32::from(reset > 2)),
            ("RETRANSMIT_HAS_ERR", u32::from(retransmit > 2)),
        ] {
            assert!(globals.contains(&(name, value)), "{kernel}: {name} {value}");
        }
    }
}

#[test]
fn a_missing_member_is_named() {
    let mut b = Builder::new();
    b.structure("task_struct", &[("pid", 0, 8)]);
    let e = offsets::runq(&Btf::parse(b.build()).unwrap(), Averages::Kept).unwrap_err();
    assert_eq!(e.reason, "this kernel's BTF has no task_struct.thread_info.cpu");
}

/// Constructed as before 5.16 and 5.14: the CPU and the state under their older names.
#[test]
fn fields_of_the_switch_have_had_other_names() {
    use crate::sample::bpf::layout::field;
    let mut b = Builder::new();
    let info = b.structure("sched_info", &[("last_queued", 0, 24)]);
    let entity = b.structure("sched_entity", &[("cfs_rq", 0, 96)]);
    let members = [
        ("state", 0, 16),
        ("cpu", 0, 68),
        ("se", entity, 128),
        ("pid", 0, 1224),
        ("tgid", 0, 1228),
        ("sched_info", info, 904),
    ];
    b.structure("task_struct", &members);
    b.structure("cfs_rq", &[("rq", 0, 240)]);
    b.structure("rq", &[("clock", 0, 2376)]);
    let btf = Btf::parse(b.build()).unwrap();
    let (_, fields) = offsets::runq(&btf, Averages::Kept).unwrap();
    let want = vec![
        (field::TASK_CPU, 68),
        (field::TASK_LAST_QUEUED, 928),
        (field::TASK_CFS_RQ, 224),
        (field::TASK_STATE, 16),
        (field::CFS_RQ_RQ, 240),
        (field::RQ_CLOCK, 2376),
    ];
    assert_eq!(fields, want);
    assert!(btf.names("last_queued") && btf.names("rq"));
    assert!(!btf.names("queued") && !btf.names("last_"));
}

#[test]
fn anonymous_structures_are_looked_through_but_not_for_ever() {
    let mut b = Builder::new();
    let inner = b.structure("", &[("deep", 0, 4)]);
    b.structure("outer", &[("", inner, 16), ("flat", 0, 40)]);
    // A structure that contains itself: no compiler makes it, a torn blob may.
    let own = b.next;
    b.structure("loop", &[("", own, 0)]);
    let btf = Btf::parse(b.build()).unwrap();
    assert_eq!(btf.offset("outer", &["deep"]), Some(20));
    assert_eq!(btf.offset("outer", &["flat"]), Some(40));
    assert_eq!(btf.offset("loop", &["x"]), None);
}

#[test]
fn other_data_is_refused() {
    assert_eq!(Btf::parse(Vec::new()).unwrap_err(), BtfError::Header);
    assert_eq!(Btf::parse(b"\x7fELF rubbish".to_vec()).unwrap_err(), BtfError::Header);
    let mut swapped = K6_18.to_vec();
    swapped.swap(0, 1);
    assert_eq!(Btf::parse(swapped).unwrap_err(), BtfError::Header);
    let mut b = Builder::new();
    b.add("future", 31, 0, 0, &[]);
    assert_eq!(Btf::parse(b.build()).unwrap_err(), BtfError::Kind(31));
}

fn ask(btf: &Btf) {
    let _ = (offsets::runq(btf, Averages::Kept), offsets::block(btf), offsets::net(btf, true));
    let _ = (btf.enumeration("skb_drop_reason"), btf.tracepoint_args("kfree_skb"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        types in prop::collection::vec(any::<u8>(), 0..600),
        strings in prop::collection::vec(any::<u8>(), 0..80),
        cut in 0usize..700,
    ) {
        let mut b = Builder::new();
        b.types = types;
        b.strings = strings;
        let mut blob = b.build();
        blob.truncate(cut);
        if let Ok(btf) = Btf::parse(blob) { ask(&btf) }
    }

    #[test]
    fn flipped_bytes_of_a_kernel_never_panic(
        flips in prop::collection::vec((0usize..K6_18.len(), any::<u8>()), 1..20),
        cut in 0usize..=K6_18.len(),
    ) {
        let mut blob = K6_18.to_vec();
        for (at, v) in flips { blob[at] = v; }
        if let Ok(btf) = Btf::parse(blob.clone()) { ask(&btf) }
        blob.truncate(cut);
        if let Ok(btf) = Btf::parse(blob) { ask(&btf) }
    }
}

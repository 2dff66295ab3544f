//! The kernel's description of its types, and what is asked of it.

use stallscope::collect::bpf::btf::Btf;
use stallscope::collect::bpf::format::Format;

/// Any blob; as text it is a format of tracefs.
pub fn image(data: &[u8]) {
    let f = Format::parse(&String::from_utf8_lossy(data));
    let _ = (f.preempted_bit(), f.field("pid", 4));
    let Ok(btf) = Btf::parse(data.to_vec()) else { return };
    for (structure, path) in [
        ("task_struct", &["pid"][..]),
        ("task_struct", &["sched_info", "last_queued"]),
        ("request", &["rq_disk", "part0"]),
        ("sock", &["__sk_common", "skc_daddr"]),
        ("sk_buff", &["protocol"]),
    ] {
        let _ = btf.offset(structure, path);
    }
    let _ = (btf.enumeration("skb_drop_reason"), btf.tracepoint_args("kfree_skb"));
}

//! Everything opens, counts, and says what it does.

use std::time::Duration;

use stallscope::clock;

use stallscope::collect::Collector;
use stallscope::collect::bpf::block::BlockBpf;
use stallscope::collect::bpf::irq::IrqBpf;
use stallscope::collect::bpf::net::NetBpf;
use stallscope::collect::bpf::runq::{RunqBpf, RunqTier};

use crate::lab;

pub(crate) fn all_count(limit: Duration) {
    let begun = clock::mono();
    let mut runq: RunqBpf = lab::open();
    let mut irq: IrqBpf = lab::open();
    let mut block: BlockBpf = lab::open();
    let mut net: NetBpf = lab::open();
    println!("opened all in {:?}", clock::mono().since(begun));
    let s = lab::until(&mut runq, limit, "waits on each CPU", |s| {
        !s.cpus.is_empty() && s.cpus.iter().all(|c| c.waits.count() > 10)
    });
    assert_eq!(s.tier, RunqTier::SchedInfo);
    println!("{s:?}");
    let s = lab::until(&mut irq, limit, "softirqs", |s| {
        s.cpus.iter().any(|c| c.vectors.iter().any(|v| v.count > 0))
    });
    println!("{s:?}");
    std::fs::write("/tmp/stallscope-bpf-probe", vec![7u8; 1 << 20]).unwrap();
    std::fs::File::open("/tmp/stallscope-bpf-probe").unwrap().sync_all().unwrap();
    let s = lab::until(&mut block, limit, "writes", |s| {
        s.disks.iter().any(|d| d.ops.iter().any(|o| o.count > 0))
    });
    let _ = std::fs::remove_file("/tmp/stallscope-bpf-probe");
    println!("{s:?}");
    // A connection to a port that nobody listens on: refused with a reset.
    let _ = std::net::TcpStream::connect("127.0.0.1:9");
    let s = lab::until(&mut net, limit, "a reset", |s| {
        s.resets_received.is_some_and(|n| n > 0) && s.drops.is_some_and(|n| n > 0)
    });
    println!("{s:?}");
    let mut signals = Vec::new();
    runq.signals(&mut signals);
    irq.signals(&mut signals);
    block.signals(&mut signals);
    net.signals(&mut signals);
    println!("{signals:#?}");
}

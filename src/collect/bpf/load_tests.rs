//! Objects that are whole, torn and refused; the memory that their maps take.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::collect::bpf::objects;

#[test]
fn switched_off_says_so() {
    let opts = CollectOptions { bpf: BpfMode::Off, ..CollectOptions::default() };
    let e = kernel(&HostFs::live(), &opts).err().unwrap();
    assert_eq!(e, Unavailable::new("switched off by --no-bpf", "start without --no-bpf"));
    let e = kernel(&HostFs::at("/nowhere"), &CollectOptions::default()).err().unwrap();
    assert_eq!(e.reason, "not reading the running kernel");
}

/// The objects must fit 64 KiB each, and hold one definition to patch for old kernels.
#[test]
fn objects_are_small_and_lose_the_mmap_flag() {
    for object in [objects::SCHED, objects::IRQ, objects::BLOCK, objects::NET] {
        assert!(object.len() <= 64 << 10, "{}", object.len());
        let plain = without_mmap(object);
        let changed: Vec<_> =
            object.iter().zip(&plain).filter(|(a, b)| a != b).map(|(a, b)| (*a, *b)).collect();
        assert_eq!(changed, [(0x04, 0)], "one flag of one map");
    }
}

#[test]
fn errors_name_what_to_do() {
    let kernel = Kernel { cpus: 2, types: Err("no /sys/kernel/btf/vmlinux".into()) };
    let e = Loaded::new(&kernel, b"no object at all", &Vec::new(), &[]).err().unwrap();
    assert!(e.reason.starts_with("the program cannot be loaded: "), "{}", e.reason);
    let denied = io::Error::from_raw_os_error(Errno::PERM.raw_os_error());
    let e = explain(&denied);
    assert!(e.reason.contains("eBPF"), "{}", e.reason);
    let gone = explain(&io::Error::from_raw_os_error(Errno::NOENT.raw_os_error()));
    assert_eq!(gone.reason, "this kernel lacks the tracepoint");
}

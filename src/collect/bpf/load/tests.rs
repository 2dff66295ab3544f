//! Objects that are whole, torn and refused; the memory that their maps take.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::collect::bpf::objects;

const ALL: [&[u8]; 7] = [
    objects::SCHED,
    objects::IRQ,
    objects::BLOCK,
    objects::NET,
    objects::NET_PERF,
    objects::FILES,
    objects::TASKS,
];

#[test]
fn switched_off_says_so() {
    let opts = CollectOptions { bpf: BpfMode::Off, ..CollectOptions::default() };
    let e = kernel(&HostFs::live(), &opts).err().unwrap();
    assert_eq!(e, Unavailable::new("switched off by --no-bpf", "start without --no-bpf"));
    let e = kernel(&HostFs::at("/nowhere"), &CollectOptions::default()).err().unwrap();
    assert_eq!(e.reason, "not reading the running kernel");
}

/// Without rights nothing is read first: on a slow machine that took longer than `doctor` waits.
#[test]
fn without_rights_the_types_are_not_read() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).unwrap();
    let e = kernel(&HostFs::live(), &CollectOptions::default()).err().unwrap();
    assert!(e.reason.contains("no CAP_BPF, no CAP_PERFMON"), "{e:?}");
}

/// The objects must fit 64 KiB each, and hold one definition to patch for old kernels.
#[test]
fn objects_are_small_and_lose_the_mmap_flag() {
    assert!(objects::TASKS.len() <= 64 << 10);
    assert_eq!(without_mmap(objects::TASKS), objects::TASKS, "its map is the kernel's alone");
    for object in &ALL[..6] {
        assert!(object.len() <= 64 << 10, "{}", object.len());
        let plain = without_mmap(object);
        let changed: Vec<_> =
            object.iter().zip(&plain).filter(|(a, b)| a != b).map(|(a, b)| (*a, *b)).collect();
        assert_eq!(changed, [(0x04, 0)], "one flag of one map");
    }
}

#[test]
fn errors_name_what_to_do() {
    let kernel = Kernel::new(2, Err(Unavailable::new("no /sys/kernel/btf/vmlinux", NO_BTF)));
    let e = Loaded::new(&kernel, b"no object at all", &Vec::new(), &[]).err().unwrap();
    assert_eq!(e, damaged());
    let typo = vec![("TASK_PIDS", 8)];
    let e = Loaded::new(&kernel, objects::SCHED, &typo, &[]).err().unwrap();
    assert_eq!(e.reason, "the object has no variable TASK_PIDS");
    let denied = io::Error::from_raw_os_error(Errno::PERM.raw_os_error());
    let e = explain(&denied);
    assert!(e.reason.contains("eBPF"), "{}", e.reason);
    let gone = explain(&io::Error::from_raw_os_error(Errno::NOENT.raw_os_error()));
    assert_eq!(gone.reason, "this kernel lacks the tracepoint");
}

/// The data of an ELF section.
fn section<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let number = |at: usize, n: usize| {
        let mut bytes = [0; 8];
        bytes[..n].copy_from_slice(&object[at..at + n]);
        u64::from_le_bytes(bytes) as usize
    };
    let headers = number(0x28, 8);
    let header = |i: usize| headers + i * 0x40;
    let data = |h: usize| &object[number(h + 0x18, 8)..][..number(h + 0x20, 8)];
    let names = data(header(number(0x3e, 2)));
    (0..number(0x3c, 2)).map(header).find_map(|h| {
        let label = names[number(h, 4)..].split(|b| *b == 0).next()?;
        (label == name.as_bytes()).then(|| data(h))
    })
}

/// Maps of an object as it is built: type, bytes of key and value, entries; in the order of
/// their sizes, as they carry no name here.
fn definitions(object: &[u8]) -> Vec<[u32; 4]> {
    let maps = section(object, "maps").expect("maps");
    assert_eq!(maps.len() % 28, 0);
    let word = |d: &[u8], i: usize| u32::from_le_bytes(d[i * 4..i * 4 + 4].try_into().unwrap());
    maps.chunks(28).map(|d| std::array::from_fn(|i| word(d, i))).collect()
}

/// Bytes that the maps of an object take; `entries` replace the entries of maps by the size
/// of their values, as the loader does.
fn bytes(object: &[u8], entries: &[(usize, u32)]) -> usize {
    const ARRAY: u32 = 2;
    const PERF: u32 = 4;
    const RING: u32 = 27;
    let mut sum = section(object, ".rodata").map_or(0, |d| d.len().next_multiple_of(4096));
    for [kind, _, value, own] in definitions(object) {
        sum += match kind {
            ARRAY => {
                let value = (value as usize).next_multiple_of(8);
                let given = entries.iter().find(|(v, _)| *v == value).map_or(own, |(_, n)| *n);
                (value * given as usize).next_multiple_of(4096)
            }
            RING => own as usize,
            // Pointers only; the buffers are added by the caller.
            PERF => 0,
            _ => panic!("a map of type {kind}: say what it takes"),
        };
    }
    sum
}

/// What all maps of the objects take on 64 CPUs, from the definitions in the objects: no map
/// can be added, or grow, past the budget.
#[test]
fn maps_of_the_objects_fit_into_the_budget() {
    use crate::collect::bpf::{files, irq, map_bytes, net, runq};
    use crate::sample::bpf::layout;
    const CPUS: usize = 64;
    let one = |sizes: &[(&str, u32)], map: &str| sizes.iter().find(|s| s.0 == map).unwrap().1;
    let stamps = layout::runq::STAMPS;
    let sched = runq::sizes(CPUS, stamps);
    let sched = bytes(
        objects::SCHED,
        &[(layout::runq::WORDS * 8, one(&sched, "RUNQ")), (8, one(&sched, "RUNQ_STAMPS"))],
    );
    let irq = bytes(objects::IRQ, &[(layout::irq::WORDS * 8, one(&irq::sizes(CPUS), "IRQ"))]);
    let block = bytes(objects::BLOCK, &[]);
    let per_cpu = [(layout::net::WORDS * 8, one(&net::sizes(CPUS), "NET"))];
    let ring = bytes(objects::NET, &per_cpu);
    let perf = bytes(objects::NET_PERF, &per_cpu) + crate::collect::bpf::events::perf_bytes(CPUS);
    let tasks = bytes(objects::TASKS, &[]);
    let files =
        bytes(objects::FILES, &[(layout::files::WORDS * 8, one(&files::sizes(CPUS), "FILES"))]);
    let sum = sched + irq + block + ring.max(perf) + tasks + files;
    let parts = format!(
        "sched {sched}, irq {irq}, block {block}, net {ring} or {perf}, tasks {tasks}, files {files}"
    );
    assert!(sum <= 8 << 20, "{sum} bytes: {parts}");
    // The documented formula tells the same, but for read-only variables and pages.
    assert!(map_bytes(CPUS) <= 8 << 20);
    assert!(sum.abs_diff(map_bytes(CPUS)) < 128 << 10, "{sum}, by formula {}", map_bytes(CPUS));
    let most = (1..1000).take_while(|cpus| map_bytes(*cpus) <= 8 << 20).last();
    assert_eq!(most, Some(69), "as documented");
}

/// Torn objects: an error with a reason, never a panic. Nothing gets into the kernel: the
/// thread gives up its rights first.
#[test]
fn torn_objects_never_panic() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).unwrap();
    let all = ALL;
    let torn = (0..all.len()).prop_flat_map(move |i| {
        let len = all[i].len();
        let flips = prop::collection::vec((0..len, any::<u8>()), 0..24);
        // Often near the start: the headers that everything hangs on.
        let near = prop::collection::vec((0..64usize, any::<u8>()), 0..3);
        (Just(i), flips, near, prop_oneof![Just(len), 0..=len])
    });
    let kernel = Kernel::new(2, Err(Unavailable::new("none", NO_BTF)));
    TestRunner::new(Config::with_cases(400))
        .run(&torn, |(i, flips, near, len)| {
            let mut object = all[i].to_vec();
            for (at, v) in flips.into_iter().chain(near) {
                object[at] = v;
            }
            object.truncate(len);
            let _ = without_mmap(&object);
            let globals = vec![("TASK_PID", 8)];
            let torn = object != all[i];
            match Loaded::new(&kernel, &object, &globals, &[("RUNQ", 2)]) {
                Ok(_) => prop_assert!(!torn, "a torn object was loaded"),
                Err(e) if torn => prop_assert_eq!(e, damaged()),
                Err(e) => prop_assert!(!e.reason.is_empty() && !e.remedy.is_empty()),
            }
            Ok(())
        })
        .unwrap();
}

/// The library parses the kernel's types too.
#[test]
fn torn_types_never_panic() {
    use proptest::prelude::*;
    const BLOB: &[u8] = include_bytes!("../../../../tests/fixtures/btf/6.18.btf");
    assert!(types_of(BLOB.to_vec()).is_ok());
    for rubbish in [&b""[..], b"\x7fELF", &[0; 4096], &[0xff; 4096], &BLOB[..BLOB.len() / 2]] {
        assert!(!types_of(rubbish.to_vec()).err().unwrap().is_empty());
    }
    proptest!(|(
        flips in prop::collection::vec((0..BLOB.len(), any::<u8>()), 0..20),
        header in prop::collection::vec((0..24usize, any::<u8>()), 0..2),
        cut in prop_oneof![Just(BLOB.len()), 0..=BLOB.len()],
    )| {
        let mut blob = BLOB.to_vec();
        for (at, v) in flips.into_iter().chain(header) { blob[at] = v; }
        blob.truncate(cut);
        drop(types_of(blob));
    });
}

/// No BTF, or one that is none: what is missing and what to do about it.
#[test]
fn kernels_without_types_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostFs::at(dir.path());
    let e = types(&host).err().unwrap().reason;
    assert!(e.contains("CONFIG_DEBUG_INFO_BTF"), "{e}");
    std::fs::create_dir_all(dir.path().join("sys/kernel/btf")).unwrap();
    std::fs::write(dir.path().join("sys/kernel/btf/vmlinux"), b"").unwrap();
    let e = types(&host).err().unwrap().reason;
    assert!(e.starts_with("/sys/kernel/btf/vmlinux: "), "{e}");
}

/// Descriptors that ran out are no fault of the kernel's, nor of ours.
#[test]
fn a_limit_of_open_files_is_named_as_such() {
    for code in [Errno::MFILE, Errno::NFILE] {
        let e = explain(&io::Error::from(code));
        assert!(e.remedy.contains("open files"), "{e:?}");
        assert!(!e.remedy.contains("stallscope"), "{e:?}");
    }
    assert_eq!(enough_files(None), Ok(()));
    assert_eq!(enough_files(Some(1024)), Ok(()));
    assert!(enough_files(Some(96)).unwrap_err().remedy.contains("ulimit -n"));
}

/// Every refusal says what to do: an empty remedy leaves the user alone.
#[test]
fn refusals_of_the_kernel_have_a_remedy() {
    for code in [Errno::PERM, Errno::ACCESS, Errno::NOENT, Errno::INVAL, Errno::NOMEM, Errno::BADF]
    {
        let e = explain(&io::Error::from_raw_os_error(code.raw_os_error()));
        assert!(!e.reason.is_empty() && !e.remedy.is_empty(), "{code:?}: {e:?}");
    }
}

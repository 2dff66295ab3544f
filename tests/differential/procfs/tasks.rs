//! Files of threads.

use std::sync::mpsc::channel;

use procfs_core::process::{LimitValue, Limits, Schedstat, Stat, StatFlags, Status};
use procfs_core::{FromBufRead as _, FromRead as _};
use stallscope::collect::limits::parse_limits;
use stallscope::collect::sched::parse_cpus_allowed;
use stallscope::collect::tasks::stat::{parse_schedstat, parse_stat};

use super::{of_threads, utf8};

/// Names that look like the fields behind them.
const ODD_NAMES: [&str; 4] = [") S 1 (", "a) (b", "two\nlines", "né: \\(|"];

/// Runs `test` while threads of ours have odd names.
fn beside_odd_names(test: impl FnOnce()) {
    let (mut ends, (up, is_up)) = (Vec::new(), channel());
    let threads = ODD_NAMES.map(|name| {
        let (end, ended) = channel::<()>();
        ends.push(end);
        let up = up.clone();
        let body = move || {
            up.send(()).unwrap();
            let _ = ended.recv();
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(body).unwrap()
    });
    for _ in ODD_NAMES {
        is_up.recv().unwrap();
    }
    test();
    drop(ends);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn every_stat_line() {
    beside_odd_names(|| {
        let mut odd = 0;
        for (path, bytes) in of_threads("stat") {
            let ours = parse_stat(&bytes).unwrap_or_else(|| panic!("{}", path.display()));
            let theirs = Stat::from_read(&bytes[..]).unwrap();
            let at = path.display();
            let name = String::from_utf8_lossy(ours.comm);
            odd += usize::from(ODD_NAMES.contains(&&*name));
            assert_eq!((&*name, ours.state), (&*theirs.comm, theirs.state), "{at}");
            let flags = StatFlags::from_bits_retain(theirs.flags);
            assert_eq!(ours.kernel_thread, flags.contains(StatFlags::PF_KTHREAD), "{at}");
            assert_eq!(ours.nice.map(i64::from), Some(theirs.nice), "{at}");
            assert_eq!(i64::from(ours.num_threads), theirs.num_threads, "{at}");
            assert_eq!(ours.start, theirs.starttime, "{at}");
            assert_eq!(ours.last_cpu, theirs.processor.map(|n| n as u32), "{at}");
            assert_eq!(ours.policy, theirs.policy, "{at}");
        }
        assert!(odd >= ODD_NAMES.len(), "{odd} odd names");
    });
}

#[test]
fn every_schedstat_line() {
    for (path, bytes) in of_threads("schedstat") {
        let ours = parse_schedstat(&bytes).unwrap_or_else(|| panic!("{}", path.display()));
        let theirs = Schedstat::from_read(&bytes[..]).unwrap();
        let ours = (ours.run_ns, ours.run_delay_ns, ours.slices);
        assert_eq!(ours, (theirs.sum_exec_runtime, theirs.run_delay, theirs.pcount), "{path:?}");
    }
}

/// The crate wants all lines of a `status`; we take one of any.
#[test]
fn every_list_of_allowed_cpus() {
    beside_odd_names(|| {
        let all = of_threads("status");
        assert!(all.len() >= ODD_NAMES.len());
        for (path, bytes) in all {
            let theirs = Status::from_buf_read(utf8(&bytes).as_bytes()).unwrap();
            let range = |(first, last): &(u32, u32)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            };
            let ranges = theirs.cpus_allowed_list.map(|all| all.iter().map(range).collect());
            let theirs = ranges.map(|r: Vec<String>| r.join(","));
            assert_eq!(parse_cpus_allowed(&bytes), theirs, "{path:?}");
        }
    });
}

/// The crate wants all limits, and a line of one word makes it panic where overflows do; we take
/// one limit of any file.
#[test]
fn every_limit_of_open_files() {
    let all = of_threads("limits");
    assert!(!all.is_empty());
    for (path, bytes) in all {
        let theirs = Limits::from_buf_read(&bytes[..]).unwrap().max_open_files;
        let value = |limit| match limit {
            LimitValue::Value(n) => Some(n),
            LimitValue::Unlimited => None,
        };
        let theirs = value(theirs.soft_limit).map(|soft| (soft, value(theirs.hard_limit)));
        assert_eq!(parse_limits(&bytes), theirs, "{path:?}");
    }
}

/// Why we take these lines ourselves: whatever else is missing, they are known.
#[test]
fn a_file_without_the_other_lines_is_enough_for_us() {
    let limits =
        b"Max open files            1024                 524288               files     \n";
    assert!(Limits::from_buf_read(&limits[..]).is_err());
    assert_eq!(parse_limits(limits), Some((1024, Some(524_288))));
    let status = b"Name:\tx\nCpus_allowed_list:\t0-1,5\n";
    assert!(Status::from_buf_read(&status[..]).is_err());
    assert_eq!(parse_cpus_allowed(status).as_deref(), Some("0-1,5"));
}

//! What the hypervisor takes from this machine while a test runs on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use stallscope::clock;
use stallscope::sample::time::MonoNs;

/// Reads `/proc/stat` each second, beside the product and not through it.
pub struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(u64, u64)>>,
}

impl Watch {
    /// From now on.
    pub fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let end = over.clone();
        let thread = std::thread::spawn(move || {
            let mut seconds = vec![stolen()];
            while !end.load(Ordering::Relaxed) {
                clock::sleep_until(MonoNs(clock::mono().0 + 1_000_000_000));
                seconds.push(stolen());
            }
            seconds
        });
        Self { over, thread }
    }

    /// What may be found although the machine is well: the hypervisor is not.
    pub fn may(self) -> &'static [&'static str] {
        self.over.store(true, Ordering::Relaxed);
        if was_robbed(&self.thread.join().unwrap()) {
            eprintln!(
                "lab: the hypervisor took 7.5% and more of the CPUs for 12 s: cpu-steal is right"
            );
            return &["cpu-steal"];
        }
        &[]
    }
}

/// Steal and all CPU time since boot, by the kernel's own account, ticks.
fn stolen() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let first = text.lines().next().unwrap().split_whitespace().skip(1);
    // Guest time, behind steal, is in user time already.
    let all: Vec<u64> = first.take(8).map(|n| n.parse().unwrap()).collect();
    (all[7], all.iter().sum())
}

/// Whether `cpu-steal` can be right: 10 % in 10 of 12 seconds are 8.3 % on average. Its seconds
/// are not ours, of one of them we may see nothing: 7.5 %.
fn was_robbed(seconds: &[(u64, u64)]) -> bool {
    seconds.windows(13).any(|w| (w[12].0 - w[0].0) * 40 >= (w[12].1 - w[0].1) * 3)
}

#[test]
fn robbery_is_what_the_rule_needs() {
    let at = |s: u64, steal: u64| (s * steal, s * 200);
    assert!(was_robbed(&(0..=12).map(|s| at(s, 15)).collect::<Vec<_>>()));
    assert!(!was_robbed(&(0..=12).map(|s| at(s, 14)).collect::<Vec<_>>()));
    assert!(!was_robbed(&(0..=11).map(|s| at(s, 100)).collect::<Vec<_>>()));
}

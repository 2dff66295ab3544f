//! The collector: what to read when.

use std::sync::Arc;
use std::time::Duration;

use super::{nics, parse};
use crate::clock;
use crate::collect::hot::HotFile;
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::parse::cpu_list;
use crate::parse::softnet::parse_softnet;
use crate::sample::softirq::{NicQueues, SoftirqSample};
use crate::sample::subject::CpuId;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Signal};

/// The list of online CPUs is read again after this time.
const ONLINE_AGE: Duration = Duration::from_secs(10);
/// The NICs are read again after this time, or later when that would cost too much.
const NICS_AGE: Duration = Duration::from_secs(30);
/// Share of one core for `/proc/interrupts` and for the NICs, each.
const BUDGET: f64 = 0.0005;
/// `/proc/interrupts` is read at least every this many ticks.
const MAX_EVERY: u32 = 10;

/// Reads it. See the module head.
pub struct SoftirqCollector {
    host: HostFs,
    softirqs: HotFile,
    softnet: HotFile,
    interrupts: Interrupts,
    vector_names: parse::Interned,
    online: Vec<CpuId>,
    online_at: Option<MonoNs>,
    nics: Arc<Vec<NicQueues>>,
    nics_due: Option<MonoNs>,
    /// Of the last reading: what the signals tell.
    softnet_state: SoftnetState,
    have_vectors: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SoftnetState {
    Missing,
    WithoutCpu,
    Ok,
}

/// `/proc/interrupts` has a number per interrupt and CPU: 50 us here, milliseconds on hosts
/// with hundreds of CPUs.
struct Interrupts {
    file: HotFile,
    names: parse::IrqNames,
    every: u32,
    ticks_left: u32,
    /// Of the reading before; zero at first, when everything is slow.
    last_cost: Duration,
    readable: bool,
}

impl Collector for SoftirqCollector {
    type Sample = SoftirqSample;
    const ID: CollectorId = CollectorId::Softirq;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let mut softirqs = HotFile::record(host, "proc/softirqs");
        let mut softnet = HotFile::new(host, "proc/net/softnet_stat");
        if let (Err(e), Err(_)) = (softirqs.read(), softnet.read()) {
            return Err(Unavailable::because("/proc/softirqs", &e, "mount the host's /proc"));
        }
        let interrupts = Interrupts {
            file: HotFile::new(host, "proc/interrupts"),
            names: parse::IrqNames::default(),
            every: 1,
            ticks_left: 0,
            last_cost: Duration::ZERO,
            readable: true,
        };
        Ok(Self {
            host: host.clone(),
            softirqs,
            softnet,
            interrupts,
            vector_names: parse::Interned::default(),
            online: Vec::new(),
            online_at: None,
            nics: Arc::default(),
            nics_due: None,
            softnet_state: SoftnetState::Missing,
            have_vectors: false,
        })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<SoftirqSample, CollectError> {
        let mut out = SoftirqSample::default();
        let softirqs =
            self.softirqs.read().map(|b| parse::parse_softirqs(b, &mut self.vector_names));
        self.have_vectors = matches!(softirqs, Ok(Some(_)));
        if let Ok(Some((cpus, vectors))) = softirqs {
            (out.vector_cpus, out.vectors) = (cpus, vectors);
        }
        self.read_softnet(cx.at, &mut out);
        if !self.have_vectors && self.softnet_state == SoftnetState::Missing {
            return Err(CollectError::Format {
                path: "proc/softirqs".into(),
                line: 1,
                what: "a header with CPU numbers".into(),
            });
        }
        self.interrupts.read(cx, &mut out);
        self.read_nics(cx.at, &out);
        out.nics = self.nics.clone();
        Ok(out)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        const MOUNT: &str = "mount the host's /proc";
        out.push(if self.have_vectors {
            Signal::ok("softirq counts", "/proc/softirqs")
        } else {
            Signal::missing("softirq counts", "/proc/softirqs", "not readable", MOUNT)
        });
        let (name, source) = ("softnet", "/proc/net/softnet_stat");
        out.push(match self.softnet_state {
            SoftnetState::Ok => Signal::ok(name, source),
            SoftnetState::WithoutCpu => {
                let why = "rows cannot be matched to CPUs (kernel before 5.10, CPUs offline)";
                Signal::degraded(name, source, why, "")
            }
            SoftnetState::Missing => Signal::missing(name, source, "not readable", MOUNT),
        });
        let (name, source) = ("interrupts", "/proc/interrupts");
        out.push(match (self.interrupts.readable, self.interrupts.every) {
            (false, _) => Signal::missing(name, source, "not readable", MOUNT),
            (true, 1) => Signal::ok(name, source),
            (true, n) => {
                Signal::degraded(name, source, format!("expensive: read every {n} ticks"), "")
            }
        });
        out.push(if self.nics.is_empty() {
            Signal::missing("NIC queues", "sysfs", "no /sys/class/net", "mount the host's /sys")
        } else {
            Signal::ok("NIC queues", "sysfs")
        });
    }
}

impl SoftirqCollector {
    fn read_softnet(&mut self, at: MonoNs, out: &mut SoftirqSample) {
        if self.online_at.is_none_or(|t| at.since(t) >= ONLINE_AGE) {
            self.online_at = Some(at);
            let text = self.host.read("sys/devices/system/cpu/online").unwrap_or_default();
            self.online = cpu_list(text.trim_ascii()).into_iter().map(CpuId).collect();
        }
        let rows = self.softnet.read().map(|b| parse_softnet(b, &self.online).0);
        out.softnet = rows.unwrap_or_default();
        self.softnet_state = match out.softnet.as_slice() {
            [] => SoftnetState::Missing,
            rows if rows.iter().all(|r| r.cpu.is_some()) => SoftnetState::Ok,
            _ => SoftnetState::WithoutCpu,
        };
    }

    fn read_nics(&mut self, at: MonoNs, sample: &SoftirqSample) {
        if self.nics_due.is_some_and(|t| at < t) {
            return;
        }
        let before = clock::thread_cpu();
        let new = nics::read(&self.host, &sample.irqs);
        let cost = clock::thread_cpu().saturating_sub(before);
        self.nics_due = Some(at + NICS_AGE.max(cost.mul_f64(1.0 / BUDGET)));
        if *self.nics != new {
            self.nics = Arc::new(new);
        }
    }
}

impl Interrupts {
    fn read(&mut self, cx: &SampleContext<'_>, out: &mut SoftirqSample) {
        self.ticks_left = self.ticks_left.saturating_sub(1);
        if self.ticks_left > 0 {
            return;
        }
        let before = clock::thread_cpu();
        let parsed = self.file.read().map(|b| parse::parse_interrupts(b, &mut self.names));
        self.readable = matches!(parsed, Ok(Some(_)));
        if let Ok(Some((cpus, irqs))) = parsed {
            (out.irq_cpus, out.irqs) = (cpus, irqs);
        }
        let cost = clock::thread_cpu().saturating_sub(before);
        let budget = cx.interval.mul_f64(BUDGET).max(Duration::from_micros(100));
        // One slow reading is no reason to thin them out.
        self.every = pace(self.every, cost.min(self.last_cost), budget);
        self.last_cost = cost;
        self.ticks_left = self.every;
    }
}

/// Every how many ticks a reading of `cost` fits into `budget` per tick. Slow to speed up, so
/// that a cost near the limit does not change it all the time.
fn pace(now: u32, cost: Duration, budget: Duration) -> u32 {
    let need = (cost.as_secs_f64() / budget.as_secs_f64().max(1e-9)).ceil() as u32;
    let need = need.clamp(1, MAX_EVERY);
    if need < now && need.saturating_mul(2) > now { now } else { need }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::collect::testing::fixtures;
    use crate::sample::Interest;

    fn fixture(kernel: &str) -> HostFs {
        HostFs::at(fixtures().join(kernel))
    }

    fn open(host: &HostFs) -> SoftirqCollector {
        SoftirqCollector::open(host, &CollectOptions::default()).unwrap()
    }

    fn sample(c: &mut SoftirqCollector) -> SoftirqSample {
        let interest = Interest::default();
        let interval = Duration::from_secs(1);
        c.sample(&SampleContext { at: clock::mono(), interval, interest: &interest }).unwrap()
    }

    #[test]
    fn an_offline_cpu_does_not_shift_the_others() {
        let s = sample(&mut open(&fixture("4.19")));
        let cpus: Vec<Option<u32>> = s.softnet.iter().map(|r| r.cpu.map(|c| c.0)).collect();
        assert_eq!(cpus, [Some(0), Some(2), Some(3)]);
        assert_eq!((s.softnet[1].dropped, s.softnet[1].time_squeeze), (12, 500));
        assert_eq!((s.softnet[0].received_rps, s.softnet[1].flow_limit), (Some(5), Some(7)));
        assert_eq!(s.softnet[0].backlog_len, None);
        assert_eq!(s.vector_cpus.len(), 4);
        assert_eq!(s.irq_cpus, [CpuId(0), CpuId(2), CpuId(3)]);
        let eth1 = s.irqs.iter().find(|r| &*r.irq == "46").unwrap();
        assert_eq!(eth1.counts, [0, 5, 300_000]);
    }

    #[test]
    fn too_few_softnet_rows_degrade_the_signal() {
        let mut c = open(&fixture("3.10"));
        let s = sample(&mut c);
        assert_eq!(s.softnet.iter().map(|r| r.cpu).collect::<Vec<_>>(), [None, None]);
        assert_eq!(s.softnet[1].processed, 200);
        let mut signals = Vec::new();
        c.signals(&mut signals);
        let text = serde_json::to_string(&signals).unwrap();
        assert!(text.contains("rows cannot be matched"), "{text}");
    }

    #[test]
    fn the_captured_guest_has_its_nic_with_the_interrupts_of_the_pci_device() {
        let s = sample(&mut open(&fixture("6.18")));
        let [eth0, lo] = &s.nics[..] else { panic!("{} NICs", s.nics.len()) };
        assert_eq!((eth0.dev.as_str(), lo.dev.as_str()), ("eth0", "lo"));
        assert_eq!((eth0.physical, lo.physical), (true, false));
        assert_eq!((eth0.rx_queues, eth0.tx_queues, eth0.rps_cpus.len()), (1, 1, 1));
        // -1 in the file: unknown.
        assert_eq!((eth0.speed_mbit, eth0.numa_node), (None, None));
        assert_eq!(eth0.irqs, [37, 38, 39]);
        // 13 columns and more name the CPU.
        assert_eq!(
            s.softnet.iter().map(|r| r.cpu).collect::<Vec<_>>(),
            [Some(CpuId(0)), Some(CpuId(1))]
        );
        assert!(s.irqs.iter().all(|r| r.counts.iter().any(|c| *c > 0)));
    }

    #[test]
    fn costly_interrupts_are_read_less_often() {
        let us = Duration::from_micros;
        assert_eq!(pace(1, us(400), us(500)), 1);
        assert_eq!(pace(1, us(1400), us(500)), 3);
        // 2 would do now, but 3 stays until half is enough.
        assert_eq!(pace(3, us(900), us(500)), 3);
        assert_eq!(pace(3, us(300), us(500)), 1);
        assert_eq!(pace(1, us(900_000), us(500)), MAX_EVERY);
        assert_eq!(pace(1, us(1), Duration::ZERO), MAX_EVERY);
    }

    #[test]
    fn live_counts_do_not_fall() {
        let mut c = open(&HostFs::live());
        let (a, b) = (sample(&mut c), sample(&mut c));
        assert_eq!(a.softnet.len(), b.softnet.len());
        for ((name, x), (_, y)) in a.vectors.iter().zip(&b.vectors) {
            assert!(x.iter().zip(y).all(|(x, y)| x <= y), "{name}");
        }
        assert!(a.vectors.iter().zip(&b.vectors).all(|(x, y)| Arc::ptr_eq(&x.0, &y.0)));
        assert!(Arc::ptr_eq(&a.nics, &b.nics));
    }
}

//! Builds ticks from what was read.
//!
//! Rates are turned into counters that yield these rates again, so that figures and rules are those
//! of a live machine. Samples of one format follow each other; the last ones of all formats share
//! the last tick, because that is what a paste is about. A sample that a format does not have is
//! absent, and reported as such.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Parsers;
use super::iostat::{DiskRates, Interval};
use crate::sample::cpu::{CpuSample, CpuTimes};
use crate::sample::disks::{
    DiscardCounters, DiskAttrs, DiskCounters, DiskRow, DisksSample, FlushCounters,
};
use crate::sample::net_counters::{NetCountersSample, NetnsCounters};
use crate::sample::sched::SchedSample;
use crate::sample::sockets::SocketsSample;
use crate::sample::softirq::SoftirqSample;
use crate::sample::subject::{CpuId, DiskId, NetnsId};
use crate::sample::tick::{CollectorHealth, HealthState, HostInfo, Tick};
use crate::sample::time::{MonoNs, Seq, Span};
use crate::sample::{CollectorId, Samples, Shared, Signal, Stamped};

/// Sampling interval if the text does not give it.
const SECOND: Duration = Duration::from_secs(1);
/// The first tick: late enough that rules can look back.
const START: MonoNs = MonoNs(10_000_000_000_000_000);
/// USER_HZ of made-up CPU times: fine enough for a percent with two decimals.
const HZ: f64 = 10_000.0;

/// A reading of disks: how long after the one before, and what it counts.
struct DiskFrame<'a> {
    /// `None` if unknown.
    gap: Option<Duration>,
    /// The gap is made up: only sums are known.
    untimed: bool,
    kind: DiskKind<'a>,
}

enum DiskKind<'a> {
    /// Before the first interval: zeros.
    Zero(&'a Interval),
    /// After an interval; the next one starts from it.
    After(&'a Interval, Option<&'a Interval>),
    /// Raw counters.
    Raw(usize),
}

/// The host and its ticks.
pub(super) fn ticks(p: &Parsers) -> (HostInfo, VecDeque<Arc<Tick>>) {
    let disks = disk_frames(p);
    let cpus: Vec<_> = p.cpu.frames().collect();
    let counters = p.counters.readings();
    let lengths = [
        disks.len(),
        if cpus.is_empty() { 0 } else { cpus.len() + 1 },
        counters.len(),
        p.procfs.softnet.list.len(),
        p.ss.samples(),
        usize::from(p.cpu.load.is_some()),
    ];
    let n = lengths.into_iter().max().unwrap_or(0);
    // Index into a format's samples at tick `t`: the last one belongs to the last tick.
    let at = |len: usize, t: usize| (t + len).checked_sub(n);
    let host = host(p, &disks);
    let mut out = VecDeque::with_capacity(n);
    let mut mono = START;
    let (mut disk_state, mut cpu_state) = (DiskState::new(p), CpuState::new(&cpus));
    for t in 0..n {
        let disk = at(disks.len(), t).and_then(|i| disks.get(i));
        let cpu = at(lengths[1], t);
        let gap = disk
            .and_then(|d| d.gap)
            .or_else(|| cpus.get(cpu?.checked_sub(1)?)?.length)
            .or_else(|| p.ss.elapsed(at(lengths[4], t)?))
            .unwrap_or(SECOND);
        if t > 0 {
            mono = mono + gap;
        }
        let disks = disk.map(|d| {
            let data = disk_state.sample(p, d, gap);
            let at = |span| Arc::new(Stamped { span, cpu: Duration::ZERO, data });
            // It may have the time of the one before, which leaves no interval for figures.
            let around = Span { start: mono.back(gap), end: mono + gap };
            at(if d.untimed { around } else { Span::at(mono) })
        });
        let cpu = cpu.map(|i| {
            let frame = i.checked_sub(1).and_then(|i| cpus.get(i));
            stamped(mono, cpu_state.sample(frame.copied(), gap))
        });
        let softirq = at(lengths[3], t).and_then(|i| p.procfs.softnet.list.get(i)).map(|rows| {
            stamped(mono, SoftirqSample { softnet: rows.clone(), ..SoftirqSample::default() })
        });
        let sockets = at(lengths[4], t).and_then(|i| p.ss.table(i, mono)).map(|table| {
            let spaces = vec![Arc::new(table)];
            stamped(mono, SocketsSample { spaces, unread: Vec::new() })
        });
        // Sockets without counters get a namespace without counters: rules that look at both
        // can say what the sockets show.
        let reading = at(counters.len(), t).and_then(|i| counters.get(i));
        let net_counters = (reading.is_some() || sockets.is_some()).then(|| {
            let (names, values) =
                reading.into_iter().flatten().map(|(n, v)| (n.clone(), *v)).unzip();
            stamped(mono, counter_sample(names, values))
        });
        let sched = (t + 1 == n && p.cpu.load.is_some())
            .then(|| stamped(mono, SchedSample { load: p.cpu.load, ..SchedSample::default() }));
        let s = Samples { sockets, disks, cpu, softirq, sched, net_counters, ..Samples::default() };
        let health = health(p, &s);
        out.push_back(Arc::new(Tick {
            seq: Seq(t as u64),
            mono,
            samples: s,
            health,
            ..Tick::default()
        }));
    }
    (host, out)
}

fn stamped<S>(at: MonoNs, data: S) -> Shared<S> {
    Arc::new(Stamped { span: Span::at(at), cpu: Duration::ZERO, data })
}

fn host(p: &Parsers, disks: &[DiskFrame<'_>]) -> HostInfo {
    let banner = p.banner.clone().unwrap_or_default();
    let mut gaps: Vec<Duration> = disks
        .iter()
        .skip(1)
        .filter_map(|d| d.gap)
        .filter(|g| *g <= Duration::from_secs(60))
        .collect();
    gaps.sort_unstable();
    HostInfo {
        hostname: banner.host.unwrap_or_default(),
        kernel: banner.kernel,
        cpus: cpus(p).unwrap_or(0),
        interval: gaps.get(gaps.len() / 2).copied().unwrap_or(SECOND).max(SECOND / 10),
        netns: Some(NetnsId(0)),
        tool: concat!("stallscope ", env!("CARGO_PKG_VERSION")).to_owned(),
        ..HostInfo::default()
    }
}

/// CPUs of the machine, from a banner or the rows of single CPUs.
pub(super) fn cpus(p: &Parsers) -> Option<u32> {
    let rows = p.cpu.frames().map(|f| f.cpus.len()).max().filter(|n| *n > 0);
    let rows = rows.and_then(|n| u32::try_from(n).ok());
    p.banner.as_ref().and_then(|b| b.cpus).or(rows)
}

fn counter_sample(names: Vec<Box<str>>, values: Vec<i64>) -> NetCountersSample {
    let space = NetnsCounters { netns: NetnsId(0), names: Arc::new(names), values };
    NetCountersSample { spaces: vec![space], ..NetCountersSample::default() }
}

/// What the pasted text contains, and what it does not.
fn health(p: &Parsers, s: &Samples) -> Vec<CollectorHealth> {
    let has_disks = p.iostat.rows + p.procfs.diskstats.rows + p.fio.rows > 0;
    let parts = [
        (CollectorId::Sockets, p.ss.samples() > 0, "sockets", "ss"),
        (CollectorId::Disks, has_disks, "disks", "iostat, fio, diskstats"),
        (CollectorId::NetCounters, p.counters.samples() > 0, "protocol counters", "nstat, netstat"),
        (CollectorId::Softirq, !p.procfs.softnet.list.is_empty(), "softnet", "softnet_stat"),
        (CollectorId::Cpu, p.cpu.frames().next().is_some(), "CPU time", "vmstat, iostat"),
        (CollectorId::Sched, p.cpu.load.is_some(), "load", "uptime"),
    ];
    CollectorId::ALL
        .iter()
        .map(|id| {
            let part = parts.iter().find(|part| part.0 == *id).filter(|part| part.1);
            let state = match part {
                Some(_) if s.span(*id).is_some() => HealthState::Fresh,
                Some(_) => HealthState::Thinned { every: 2 },
                None => HealthState::Off {
                    reason: "not in the pasted text".to_owned(),
                    remedy: String::new(),
                },
            };
            let signals = part.map(|part| Signal::ok(part.2, part.3)).into_iter().collect();
            CollectorHealth { id: *id, state, signals }
        })
        .collect()
}

fn disk_frames(p: &Parsers) -> Vec<DiskFrame<'_>> {
    let mut out: Vec<DiskFrame<'_>> = Vec::new();
    let stats = &p.procfs.diskstats.list;
    for (i, rows) in stats.iter().enumerate() {
        // io_ticks cannot grow by more than the time that passed.
        let before = i.checked_sub(1).and_then(|i| stats.get(i));
        let busy = rows.iter().filter_map(|r| {
            let old = before?.iter().find(|o| o.id == r.id)?;
            Some(r.stat.io_ticks.wrapping_sub(old.stat.io_ticks)).filter(|ms| *ms <= 3_600_000)
        });
        let gap = Duration::from_millis(busy.max().unwrap_or(0).into()).max(SECOND);
        out.push(DiskFrame { gap: Some(gap), untimed: false, kind: DiskKind::Raw(i) });
    }
    let all: Vec<&Interval> = p.iostat.intervals().chain(p.fio.runs()).collect();
    if let Some(first) = all.first() {
        out.push(DiskFrame { gap: None, untimed: false, kind: DiskKind::Zero(first) });
    }
    for (i, interval) in all.iter().enumerate() {
        let gap = interval.length.map(|l| l.max(Duration::from_millis(100)));
        let next = all.get(i + 1).copied();
        let kind = DiskKind::After(interval, next);
        out.push(DiskFrame { gap, untimed: interval.untimed, kind });
    }
    out
}

/// Made-up counters of devices, with fractions, so that nothing is lost to rounding over many
/// intervals.
#[derive(Clone, Copy, Default)]
struct Sums {
    rd_ios: f64,
    wr_ios: f64,
    rd_merges: f64,
    wr_merges: f64,
    rd_sectors: f64,
    wr_sectors: f64,
    rd_ticks: f64,
    wr_ticks: f64,
    io_ticks: f64,
    weighted: f64,
    discard: Option<(f64, f64, f64)>,
    flush: Option<(f64, f64)>,
    in_flight: i64,
}

struct DiskState {
    sums: Vec<Sums>,
    attrs: Vec<Arc<DiskAttrs>>,
    names: Vec<Arc<str>>,
}

impl DiskState {
    fn new(p: &Parsers) -> Self {
        let names = &p.names.list;
        Self {
            sums: vec![Sums::default(); names.len()],
            attrs: names.iter().map(|n| Arc::new(p.procfs.facts.attrs(n))).collect(),
            names: names.iter().map(|n| n.as_str().into()).collect(),
        }
    }

    fn sample(&mut self, p: &Parsers, frame: &DiskFrame<'_>, gap: Duration) -> DisksSample {
        let mut disks = Vec::new();
        match frame.kind {
            DiskKind::Raw(i) => {
                let rows = p.procfs.diskstats.list.get(i).map_or(&[][..], Vec::as_slice);
                disks.extend(rows.iter().filter_map(|r| self.row(r.name, r.id, r.stat)));
            }
            DiskKind::Zero(first) => {
                disks.extend(first.rows.iter().filter_map(|(n, rates)| self.start(*n, rates)));
            }
            DiskKind::After(interval, next) => {
                for (n, rates) in &interval.rows {
                    if let Some(s) = self.sums.get_mut(*n) {
                        s.add(rates, gap);
                    }
                    disks.extend(self.made_up(*n));
                }
                let new = next.map_or(&[][..], |i| i.rows.as_slice());
                for (n, rates) in new {
                    if !interval.rows.iter().any(|(i, _)| i == n) {
                        disks.extend(self.start(*n, rates));
                    }
                }
            }
        }
        DisksSample { disks, bad_rows: 0 }
    }

    /// A device before its first interval, with all kinds of request that will be counted.
    fn start(&mut self, n: usize, rates: &DiskRates) -> Option<DiskRow> {
        let s = self.sums.get_mut(n)?;
        s.discard = s.discard.or(rates.d_s.map(|_| (0.0, 0.0, 0.0)));
        s.flush = s.flush.or(rates.f_s.map(|_| (0.0, 0.0)));
        s.in_flight = 0;
        self.made_up(n)
    }

    fn made_up(&self, n: usize) -> Option<DiskRow> {
        let s = self.sums.get(n)?;
        self.row(n, DiskId { major: 0, minor: n as u32 }, s.counters())
    }

    fn row(&self, n: usize, id: DiskId, stat: DiskCounters) -> Option<DiskRow> {
        let (name, attrs) = (self.names.get(n)?.clone(), self.attrs.get(n)?.clone());
        Some(DiskRow { id, name, stat, inflight: None, attrs })
    }
}

impl Sums {
    fn add(&mut self, d: &DiskRates, gap: Duration) {
        let (s, ms) = (gap.as_secs_f64(), gap.as_secs_f64() * 1000.0);
        self.rd_ios += d.r_s * s;
        self.wr_ios += d.w_s * s;
        self.rd_merges += d.rrqm_s * s;
        self.wr_merges += d.wrqm_s * s;
        self.rd_sectors += d.rkb_s * 2.0 * s;
        self.wr_sectors += d.wkb_s * 2.0 * s;
        self.rd_ticks += d.r_s * s * d.r_await;
        self.wr_ticks += d.w_s * s * d.w_await;
        self.io_ticks += d.util / 100.0 * ms;
        self.weighted += d.aqu_sz * ms;
        if let (Some((ios, sectors, ticks)), Some(d_s)) = (&mut self.discard, d.d_s) {
            *ios += d_s * s;
            *sectors += d.dkb_s * 2.0 * s;
            *ticks += d_s * s * d.d_await;
        }
        if let (Some((ios, ticks)), Some(f_s)) = (&mut self.flush, d.f_s) {
            *ios += f_s * s;
            *ticks += f_s * s * d.f_await;
        }
        // Busy all the time and nothing completed: something was in flight all the time. Old
        // kernels weigh what is in flight, new ones what completed: then the number is unknown.
        let done = d.r_s + d.w_s + d.d_s.unwrap_or(0.0) + d.f_s.unwrap_or(0.0);
        let hangs = done == 0.0 && d.util >= 90.0;
        self.in_flight = if hangs { d.aqu_sz.round().clamp(1.0, 999_999.0) as i64 } else { 0 };
    }

    fn counters(&self) -> DiskCounters {
        let n = |v: f64| v.round() as u64;
        // The kernel's times are 32 bits wide.
        let t = |v: f64| v.round() as u64 as u32;
        DiskCounters {
            rd_ios: n(self.rd_ios),
            rd_merges: n(self.rd_merges),
            rd_sectors: n(self.rd_sectors),
            rd_ticks: t(self.rd_ticks),
            wr_ios: n(self.wr_ios),
            wr_merges: n(self.wr_merges),
            wr_sectors: n(self.wr_sectors),
            wr_ticks: t(self.wr_ticks),
            in_flight: self.in_flight,
            io_ticks: t(self.io_ticks),
            weighted: t(self.weighted),
            discard: self.discard.map(|(ios, sectors, ticks)| DiscardCounters {
                ios: n(ios),
                merges: 0,
                sectors: n(sectors),
                ticks: t(ticks),
            }),
            flush: self.flush.map(|(ios, ticks)| FlushCounters { ios: n(ios), ticks: t(ticks) }),
        }
    }
}

#[derive(Default)]
struct CpuState {
    total: [f64; 8],
    cpus: BTreeMap<u32, [f64; 8]>,
    ctxt: Option<f64>,
}

impl CpuState {
    /// Every CPU that will be counted starts at 0.
    fn new(frames: &[&super::cpu::Frame]) -> Self {
        let all = frames.iter().flat_map(|f| &f.cpus).take(600 * super::cpu::MAX_CPUS);
        let mut cpus = BTreeMap::new();
        for (n, _) in all {
            if cpus.len() < super::cpu::MAX_CPUS {
                cpus.insert(*n, [0.0; 8]);
            }
        }
        Self { cpus, ..Self::default() }
    }

    fn sample(&mut self, frame: Option<&super::cpu::Frame>, gap: Duration) -> CpuSample {
        if let Some(f) = frame {
            let ticks = gap.as_secs_f64() * HZ / 100.0;
            let add = |sums: &mut [f64; 8], shares: &[f64; 8]| {
                for (sum, share) in sums.iter_mut().zip(shares) {
                    *sum += share * ticks;
                }
            };
            add(&mut self.total, &f.shares());
            for (n, shares) in &f.cpus {
                if let Some(sums) = self.cpus.get_mut(n) {
                    add(sums, shares);
                }
            }
            if let Some(c) = f.ctxt_s {
                *self.ctxt.get_or_insert(0.0) += c * gap.as_secs_f64();
            }
        }
        CpuSample {
            total: times(&self.total),
            cpus: self.cpus.iter().map(|(n, sums)| (CpuId(*n), times(sums))).collect(),
            // The reading before the first interval counts as 0, or the first has no rate.
            ctxt: Some(self.ctxt.unwrap_or(0.0).round() as u64)
                .filter(|_| frame.is_none_or(|f| f.ctxt_s.is_some())),
            procs_running: frame.and_then(|f| f.running),
            procs_blocked: frame.and_then(|f| f.blocked),
            user_hz: HZ as u32,
            ..CpuSample::default()
        }
    }
}

/// Sums of shares as the kernel's counters.
fn times(sums: &[f64; 8]) -> CpuTimes {
    let [user, nice, system, idle, iowait, steal, irq, softirq] = sums.map(|v| v.round() as u64);
    CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal, ..CpuTimes::default() }
}

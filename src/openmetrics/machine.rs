//! CPUs, pressure, memory, disks, cgroups.

use super::families::{Id, MAX_CGROUPS, MAX_CPUS, MAX_DISKS};
use super::page::Page;
use super::readings::Readings;
use super::seconds;
use crate::metrics::cpu::CpuShare;
use crate::sample::cpu::CpuTimes;
use crate::sample::disks::{DiskClass, DiskCounters, DiskRow};
use crate::sample::psi::PsiTotals;
use crate::view::context::Cx;

/// Bytes of a sector of `/proc/diskstats`, whatever the device has.
const SECTOR: f64 = 512.0;

pub(super) fn add(page: &mut Page, readings: &Readings, cx: &Cx<'_>) {
    cpus(page, readings, cx);
    counted_by_cpu(page, readings);
    run_queue(page, readings, cx);
    pressure(page, readings);
    memory(page, readings, cx);
    disks(page, readings, cx);
    cgroups(page, readings);
}

/// Not idle, interrupts and what the hypervisor took included, as the console has it.
fn busy(s: CpuShare) -> f64 {
    ((100.0 - s.idle - s.iowait) / 100.0).clamp(0.0, 1.0)
}

fn cpus(page: &mut Page, readings: &Readings, cx: &Cx<'_>) {
    if let Some(cpu) = readings.cpu().filter(|c| c.user_hz > 0) {
        let t: &CpuTimes = &cpu.total;
        for (mode, ticks) in [
            ("user", t.user + t.nice),
            ("system", t.system),
            ("idle", t.idle),
            ("iowait", t.iowait),
            ("irq", t.irq),
            ("softirq", t.softirq),
            ("steal", t.steal),
        ] {
            page.add(Id::CpuSeconds, &[mode], ticks as f64 / f64::from(cpu.user_hz));
        }
        page.add(Id::Switches, &[], cpu.ctxt.map(|n| n as f64));
        page.add(Id::TasksRunnable, &[], cpu.procs_running.map(f64::from));
        page.add(Id::TasksBlocked, &[], cpu.procs_blocked.map(f64::from));
    }
    let Some(shares) = cx.cpu.filter(|c| readings.stands(c.at)).map(|c| &c.value.cpus) else {
        return;
    };
    page.add(Id::CpuBusiest, &[], shares.iter().map(|(_, s)| busy(*s)).reduce(f64::max));
    page.add(Id::RowsDropped, &["cpus"], beyond(shares.len(), MAX_CPUS));
    for (id, s) in shares.iter().take(MAX_CPUS) {
        let cpu = id.0.to_string();
        page.add(Id::CpuBusy, &[&cpu], busy(*s));
        page.add(Id::CpuSoftirq, &[&cpu], s.softirq / 100.0);
        page.add(Id::CpuSteal, &[&cpu], s.steal / 100.0);
    }
}

fn beyond(all: usize, most: usize) -> f64 {
    all.saturating_sub(most) as f64
}

/// Counters of 32 bits stay apart: their sum would step back when one of them wraps, and look like
/// a restart of all.
fn counted_by_cpu(page: &mut Page, readings: &Readings) {
    for row in readings.softnet().iter().take(MAX_CPUS) {
        let Some(cpu) = row.cpu.map(|c| c.0.to_string()) else { continue };
        page.add(Id::SoftnetDropped, &[&cpu], f64::from(row.dropped));
        page.add(Id::SoftnetSqueezed, &[&cpu], f64::from(row.time_squeeze));
    }
    for row in readings.schedstat().iter().take(MAX_CPUS) {
        let cpu = row.cpu.0.to_string();
        page.add(Id::RunqWait, &[&cpu], row.run_delay_ns as f64 / 1e9);
    }
}

fn run_queue(page: &mut Page, readings: &Readings, cx: &Cx<'_>) {
    let Some(sched) = cx.sched.filter(|s| readings.stands(s.at)).map(|s| s.value) else { return };
    page.add(Id::RunqWaiting, &[], sched.waiting());
    for (minutes, load) in ["1", "5", "15"].iter().zip(sched.load.into_iter().flatten()) {
        page.add(Id::Load, &[minutes], load);
    }
}

fn pressure(page: &mut Page, readings: &Readings) {
    let Some(psi) = readings.psi() else { return };
    for (resource, totals) in [("cpu", psi.cpu), ("io", psi.io), ("memory", psi.memory)] {
        let Some(PsiTotals { some_us, full_us }) = totals else { continue };
        page.add(Id::Pressure, &[resource, "some"], some_us as f64 / 1e6);
        // The host's own line for cpu is always 0: nobody is left to stall.
        let full = full_us.filter(|_| resource != "cpu");
        page.add(Id::Pressure, &[resource, "full"], full.map(|us| us as f64 / 1e6));
    }
}

fn memory(page: &mut Page, readings: &Readings, cx: &Cx<'_>) {
    let Some(memory) = readings.memory() else { return };
    let kib = |name: &str| memory.get(name).map(|n| n as f64 * 1024.0);
    page.add(Id::MemorySize, &[], kib("meminfo.MemTotal"));
    page.add(Id::MemoryAvailable, &[], kib("meminfo.MemAvailable"));
    page.add(Id::MemoryDirty, &[], kib("meminfo.Dirty"));
    page.add(Id::MemoryWriteback, &[], kib("meminfo.Writeback"));
    let swap = kib("meminfo.SwapTotal").zip(kib("meminfo.SwapFree"));
    page.add(Id::SwapUsed, &[], swap.map(|(total, free)| (total - free).max(0.0)));
    let count = |name: &str| memory.get(name).map(|n| n as f64);
    let page_size = Some(cx.analysis.host().page_size).filter(|n| *n > 0).map(f64::from);
    let pages = |name: &str| Some(count(name)? * page_size?);
    page.add(Id::SwappedIn, &[], pages("vmstat.pswpin"));
    page.add(Id::SwappedOut, &[], pages("vmstat.pswpout"));
    page.add(Id::MajorFaults, &[], count("vmstat.pgmajfault"));
    page.add(Id::OomKills, &[], count("vmstat.oom_kill"));
}

/// Whole disks and what is made of them; not partitions, loop devices and memory.
fn is_shown(d: &DiskRow) -> bool {
    !matches!(d.attrs.class, DiskClass::Partition | DiskClass::Memory)
        && d.attrs.parent.is_none()
        && !["loop", "ram", "zram"].iter().any(|p| d.name.starts_with(p))
}

fn completed(s: &DiskCounters) -> u64 {
    s.rd_ios.saturating_add(s.wr_ios)
}

fn disks(page: &mut Page, readings: &Readings, cx: &Cx<'_>) {
    let Some(disks) = readings.disks() else { return };
    let mut rows: Vec<&DiskRow> = disks.disks.iter().filter(|d| is_shown(d)).collect();
    page.add(Id::RowsDropped, &["disks"], beyond(rows.len(), MAX_DISKS));
    if rows.len() > MAX_DISKS {
        rows.sort_by_key(|d| (std::cmp::Reverse(completed(&d.stat)), d.id));
        rows.truncate(MAX_DISKS);
        rows.sort_by_key(|d| d.id);
    }
    let figures = cx.disks.filter(|d| readings.stands(d.at)).map_or(&[][..], |d| d.value);
    for d in rows {
        let (name, s) = (&*d.name, &d.stat);
        page.add(Id::DiskReads, &[name], s.rd_ios as f64);
        page.add(Id::DiskWrites, &[name], s.wr_ios as f64);
        page.add(Id::DiskReadBytes, &[name], s.rd_sectors as f64 * SECTOR);
        page.add(Id::DiskWrittenBytes, &[name], s.wr_sectors as f64 * SECTOR);
        let Some(f) = figures.iter().find(|f| f.id == d.id && f.name == d.name) else { continue };
        page.add(Id::DiskAwait, &[name, "read"], f.r_await.map(|ms| ms / 1e3));
        page.add(Id::DiskAwait, &[name, "write"], f.w_await.map(|ms| ms / 1e3));
        page.add(Id::DiskQueue, &[name], f.aqu_sz);
        page.add(Id::DiskUtil, &[name], f.util_shown() / 100.0);
        page.add(Id::DiskInFlight, &[name], f.in_flight.map(|n| n as f64));
    }
}

fn cgroups(page: &mut Page, readings: &Readings) {
    let Some(all) = readings.cgroups() else { return };
    page.add(Id::RowsDropped, &["cgroups"], beyond(all.len(), MAX_CGROUPS));
    for g in all.into_iter().take(MAX_CGROUPS) {
        let (path, cpu) = (&*g.path, &g.cpu);
        page.add(Id::CgroupPeriods, &[path], cpu.nr_periods as f64);
        page.add(Id::CgroupThrottled, &[path], cpu.nr_throttled as f64);
        let time = std::time::Duration::from_nanos(cpu.throttled_ns);
        page.add(Id::CgroupThrottledTime, &[path], seconds(time));
        let quota = cpu.quota_us.filter(|_| cpu.period_us > 0);
        page.add(Id::CgroupCpus, &[path], quota.map(|q| q as f64 / cpu.period_us as f64));
    }
}

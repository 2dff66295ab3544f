//! The collector: joins the lines of `/proc/diskstats` with what is known of each device.

use std::sync::Arc;
use std::time::Duration;

use super::attrs;
use crate::collect::hot::HotFile;
use crate::collect::{CollectError, CollectOptions, Collector, HostFs, SampleContext, Unavailable};
use crate::parse::disks::{ParsedLine, parse_line};
use crate::parse::{fields, lines, number, whole_lines};
use crate::sample::disks::{DiskAttrs, DiskClass, DiskCounters, DiskRow, DisksSample};
use crate::sample::subject::DiskId;
use crate::sample::time::MonoNs;
use crate::sample::{CollectorId, Extent, Signal};

const DISKSTATS: &str = "proc/diskstats";
/// Attributes are read again after this time.
const ATTRS_AGE: Duration = Duration::from_secs(10);
/// Up to this many disks, `inflight` is read each tick and its file stays open.
const MANY_DISKS: usize = 24;

/// Reads it. See the module head.
pub struct DisksCollector {
    host: HostFs,
    stats: HotFile,
    devices: Vec<Device>,
    /// Lines of the last reading that could not be parsed.
    bad_rows: u32,
}

/// What is kept of a device between ticks, in the order of the file.
struct Device {
    id: DiskId,
    name: Arc<str>,
    attrs: Arc<DiskAttrs>,
    inflight: Option<HotFile>,
    /// A ram disk or unbound loop that never did I/O; left out of the sample.
    stub: bool,
    /// When `attrs` (or that it is a stub) was read.
    read_at: MonoNs,
}

impl Device {
    fn new(host: &HostFs, line: &ParsedLine<'_>, at: MonoNs) -> Self {
        let name: Arc<str> = String::from_utf8_lossy(line.name).into();
        let mut device = Self {
            id: line.id,
            attrs: Arc::default(),
            inflight: None,
            stub: is_stub(host, &name, &line.stat),
            read_at: at,
            name,
        };
        device.read_attrs(host);
        device
    }

    fn is(&self, line: &ParsedLine<'_>) -> bool {
        self.id == line.id && self.name.as_bytes() == line.name
    }

    fn refresh(&mut self, host: &HostFs, stat: &DiskCounters, at: MonoNs) {
        self.read_at = at;
        self.stub = is_stub(host, &self.name, stat);
        self.read_attrs(host);
    }

    fn read_attrs(&mut self, host: &HostFs) {
        if self.stub {
            return;
        }
        let new = attrs::read(host, &self.name);
        if *self.attrs != new {
            self.attrs = Arc::new(new);
        }
        let whole = self.attrs.class != DiskClass::Partition;
        if whole && self.inflight.is_none() {
            self.inflight = Some(HotFile::record(host, attrs::dir(&self.name).join("inflight")));
        }
    }
}

fn is_stub(host: &HostFs, name: &str, stat: &DiskCounters) -> bool {
    attrs::may_be_idle_stub(name) && is_untouched(stat) && attrs::backing_file(host, name).is_none()
}

fn is_untouched(stat: &DiskCounters) -> bool {
    stat.rd_ios == 0 && stat.wr_ios == 0 && stat.in_flight == 0 && stat.io_ticks == 0
}

impl Collector for DisksCollector {
    type Sample = DisksSample;
    const ID: CollectorId = CollectorId::Disks;

    fn open(host: &HostFs, _opts: &CollectOptions) -> Result<Self, Unavailable> {
        let mut stats = HotFile::new(host, DISKSTATS);
        stats
            .read()
            .map_err(|e| Unavailable::because("/proc/diskstats", &e, "mount the host's /proc"))?;
        Ok(Self { host: host.clone(), stats, devices: Vec::new(), bad_rows: 0 })
    }

    fn sample(&mut self, cx: &SampleContext<'_>) -> Result<DisksSample, CollectError> {
        let Self { host, stats, devices, bad_rows } = self;
        let file = stats.read().map_err(|e| CollectError::read(DISKSTATS, e))?;
        let whole = whole_lines(file);
        let mut out = DisksSample::default();
        out.bad_rows += u32::from(whole.len() < file.len());
        out.disks.reserve(devices.len());
        let many = devices.iter().filter(|d| !d.stub).count() > MANY_DISKS;
        // A slice of the devices per tick, so that no tick pays for all of them.
        let mut refreshes = devices.len() / 8 + 2;
        let mut place = 0;
        for line in lines(whole) {
            let Some(line) = parse_line(line) else {
                out.bad_rows = out.bad_rows.saturating_add(1);
                continue;
            };
            settle(host, devices, place, &line, cx.at);
            let Some(device) = devices.get_mut(place) else { continue };
            place += 1;
            let woke = device.stub && !is_untouched(&line.stat);
            if woke || (cx.at.since(device.read_at) >= ATTRS_AGE && refreshes > 0) {
                refreshes = refreshes.saturating_sub(1);
                device.refresh(host, &line.stat, cx.at);
            }
            if device.stub {
                continue;
            }
            let wanted = line.stat.in_flight != 0 || !many;
            let inflight = device.inflight.as_mut().filter(|_| wanted).and_then(read_inflight);
            if many {
                device.inflight.as_mut().map(HotFile::close);
            }
            out.disks.push(DiskRow {
                id: device.id,
                name: device.name.clone(),
                stat: line.stat,
                inflight,
                attrs: device.attrs.clone(),
            });
        }
        devices.truncate(place);
        *bad_rows = out.bad_rows;
        Ok(out)
    }

    fn signals(&self, out: &mut Vec<Signal>) {
        out.push(self.counters());
        let why = "means only, queue and device together";
        out.push(Signal::degraded("block latency", "diskstats", why, ""));
        let known = |d: &&Device| d.attrs.size_sectors.is_some();
        let shown = self.devices.iter().filter(|d| !d.stub);
        let (all, have) = (shown.clone().count(), shown.filter(known).count());
        out.push(if all == have {
            Signal::ok("disk queue attributes", "sysfs")
        } else {
            let reason = format!("{} of {all} devices have no readable sysfs entry", all - have);
            let (name, remedy) = ("disk queue attributes", "mount the host's /sys");
            if have == 0 {
                Signal::missing(name, "sysfs", reason, remedy)
            } else {
                Signal::degraded(name, "sysfs", reason, remedy)
                    .unseen("attributes of some disks", Extent::Whole)
            }
        });
    }
}

impl DisksCollector {
    /// A file without a disk is either that of a box without disks, or covered by another one.
    fn counters(&self) -> Signal {
        const MOUNT: &str = "mount the host's /proc";
        let (name, source) = ("disk counters", "diskstats");
        match (self.devices.is_empty(), self.bad_rows) {
            (false, 0) => Signal::ok(name, source),
            (false, n) => Signal::degraded(name, source, bad_lines(n), MOUNT)
                .unseen("disk", Extent::AtLeast(1)),
            (true, 0) => Signal::degraded(name, source, "/proc/diskstats lists no disk", MOUNT)
                .unseen("disks", Extent::Whole),
            (true, n) => {
                Signal::degraded(name, source, bad_lines(n), MOUNT).unseen("disks", Extent::Whole)
            }
        }
    }
}

fn bad_lines(n: u32) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} line{s} of /proc/diskstats cannot be parsed")
}

/// Makes `devices[place]` the device of `line`: it is there already in nearly every tick;
/// else it moved up because others went, or it is new.
fn settle(
    host: &HostFs,
    devices: &mut Vec<Device>,
    place: usize,
    line: &ParsedLine<'_>,
    at: MonoNs,
) {
    if devices.get(place).is_some_and(|d| d.is(line)) {
        return;
    }
    let rest = devices.get(place..).unwrap_or_default();
    match rest.iter().position(|d| d.is(line)) {
        Some(i) => drop(devices.drain(place..place + i)),
        None => devices.insert(place.min(devices.len()), Device::new(host, line, at)),
    }
}

fn read_inflight(file: &mut HotFile) -> Option<(u32, u32)> {
    let mut f = fields(file.read().ok()?);
    let mut next = || u32::try_from(number(f.next()?)?).ok();
    Some((next()?, next()?))
}

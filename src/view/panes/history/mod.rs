//! The vitals over the last minutes, a line each: what changed, and when.

use std::time::Duration;

use super::{ListPane, PaneCx, PaneId, PaneVm, RowDetail};
use crate::diagnose::Severity;
use crate::metrics::cpu::SchedFigures;
use crate::metrics::disks::DiskFigures;
use crate::metrics::history::Snapshot;
use crate::sample::CollectorId;
use crate::view::context::Cx;
use crate::view::lines::{field, gone};
use crate::view::series::{self, Buckets};
use crate::view::state::{RowKey, Sort};
use crate::view::table::{Cell, Column, Table, Unit, Value};
use crate::view::vm::{Line, Piece, Size, Tone};
use crate::view::{units, vitals};

/// What the highest value is of.
const SPAN: Duration = Duration::from_secs(300);
/// A reading that is missing may be made up for by one so many moments before.
const LOOK_BACK: usize = 20;

/// How a value is written.
#[derive(Clone, Copy)]
enum Written {
    Percent,
    Count,
    PerSecond,
    BytesPerSecond,
}

impl Written {
    fn write(self, v: f64) -> String {
        match self {
            Self::Percent => format!("{}%", units::pct(v)),
            Self::Count => format!("{v:.1}"),
            Self::PerSecond => format!("{}/s", units::count(v)),
            Self::BytesPerSecond => format!("{}/s", units::bytes(v)),
        }
    }
}

struct Vital {
    name: &'static str,
    about: &'static str,
    written: Written,
    /// A chart is not scaled to less: noise is no peak.
    floor: f64,
    of: fn(&Cx<'_>, &Snapshot) -> Option<f64>,
}

const fn vital(
    name: &'static str,
    written: Written,
    floor: f64,
    of: fn(&Cx<'_>, &Snapshot) -> Option<f64>,
    about: &'static str,
) -> Vital {
    Vital { name, about, written, floor, of }
}

static VITALS: [Vital; 12] = [
    vital(
        "cpu",
        Written::Percent,
        100.0,
        |_, m| m.derived.cpu.as_ref()?.total.map(vitals::busy),
        "CPU time in use, % of all CPUs",
    ),
    vital(
        "runq",
        Written::Count,
        1.0,
        |_, m| m.derived.sched.as_deref().and_then(SchedFigures::waiting),
        "threads that wait for a CPU, on average",
    ),
    vital(
        "psi cpu",
        Written::Percent,
        100.0,
        |_, m| m.derived.psi?.cpu_some,
        "time in which some task waited for a CPU, %",
    ),
    vital(
        "psi io",
        Written::Percent,
        100.0,
        |_, m| m.derived.psi?.io_some,
        "time in which some task waited for a disk, %",
    ),
    vital(
        "psi mem",
        Written::Percent,
        100.0,
        |_, m| m.derived.psi?.memory_some,
        "time in which some task waited for memory, %",
    ),
    vital("mem", Written::Percent, 100.0, memory, "memory in use, % of all"),
    vital(
        "net rx",
        Written::BytesPerSecond,
        1e5,
        |cx, m| Some(network(cx, m)?.0),
        "bytes that the NICs receive",
    ),
    vital(
        "net tx",
        Written::BytesPerSecond,
        1e5,
        |cx, m| Some(network(cx, m)?.1),
        "bytes that the NICs send",
    ),
    vital(
        "disk r",
        Written::BytesPerSecond,
        1e6,
        |_, m| disks(m, |d| d.rkb_s),
        "bytes read from disks",
    ),
    vital(
        "disk w",
        Written::BytesPerSecond,
        1e6,
        |_, m| disks(m, |d| d.wkb_s),
        "bytes written to disks",
    ),
    vital("retr", Written::PerSecond, 10.0, retransmits, "TCP segments sent again"),
    vital(
        "switches",
        Written::PerSecond,
        1000.0,
        |_, m| m.derived.cpu.as_ref()?.ctxt_s,
        "context switches",
    ),
];

fn memory(_: &Cx<'_>, m: &Snapshot) -> Option<f64> {
    let m = &m.tick.samples.memory.as_ref()?.data;
    vitals::memory_used(|name| m.get(name)).map(|(pct, _)| pct)
}

fn network(cx: &Cx<'_>, m: &Snapshot) -> Option<(f64, f64)> {
    let own = cx.analysis.host().netns?;
    let spaces = m.derived.netdev.as_deref()?;
    Some(vitals::moved(&spaces.iter().find(|s| s.netns == own)?.links))
}

fn disks(m: &Snapshot, of: fn(&DiskFigures) -> f64) -> Option<f64> {
    let all = m.derived.disks.as_deref()?.iter().filter(|d| vitals::is_real(d));
    Some(all.map(|d| 1024.0 * of(d)).sum())
}

fn retransmits(_: &Cx<'_>, m: &Snapshot) -> Option<f64> {
    vitals::retransmits(&m.derived)
}

/// A row: index into the vitals.
#[derive(Clone, Copy, Debug)]
pub struct VitalRef(usize);

impl VitalRef {
    fn get(self) -> Option<&'static Vital> {
        VITALS.get(self.0)
    }
    fn of(key: RowKey) -> Option<Self> {
        let RowKey::Numbered(PaneId::History, n) = key else { return None };
        usize::try_from(n).ok().map(Self)
    }
    fn now(self, cx: &Cx<'_>) -> Option<f64> {
        let of = self.get()?.of;
        let mut back = cx.analysis.history().back_from(cx.now.tick.seq).take(LOOK_BACK);
        back.find_map(|m| of(cx, m))
    }
    fn highest(self, cx: &Cx<'_>) -> Option<f64> {
        let of = self.get()?.of;
        let back = cx.analysis.history().back_from(cx.now.tick.seq);
        let recent = back.take_while(|m| cx.mono().since(m.tick.mono) <= SPAN);
        recent.filter_map(|m| of(cx, m)).reduce(f64::max)
    }
    /// So many columns, and what each of them stands for.
    fn chart(self, cx: &Cx<'_>, n: usize) -> (Vec<Option<u8>>, Duration) {
        let interval = cx.analysis.host().interval;
        let b = Buckets::new(cx.mono(), Duration::from_secs(60), interval, n);
        let Some(v) = self.get() else { return (Vec::new(), b.len) };
        let values = series::maxima(cx, b, |m| (v.of)(cx, m));
        let top = series::greatest(&values).unwrap_or(0.0).max(v.floor);
        (series::levels(&values, top), b.len)
    }
    fn written(self, v: Option<f64>) -> String {
        match (v, self.get()) {
            (Some(n), Some(v)) => v.written.write(n),
            _ => units::UNKNOWN.to_owned(),
        }
    }
}

fn cell(text: String) -> Cell {
    Cell::Text(text.into(), Tone::Plain)
}

static COLUMNS: [Column<VitalRef>; 4] = [
    Column::new("vital", 8, Unit::Text, |_, r: VitalRef| {
        r.get().map_or(Value::Unknown, |v| Value::Text(v.name.into()))
    })
    .prio(0)
    .about("which of the numbers at the top"),
    Column::new("now", 8, Unit::Number, |cx, r: VitalRef| Value::num(r.now(cx)))
        .prio(0)
        .write(|cx, r, _| cell(r.written(r.now(cx))))
        .about("in the last interval"),
    Column::new("max5m", 8, Unit::Number, |cx, r: VitalRef| Value::num(r.highest(cx)))
        .prio(1)
        .write(|cx, r, _| cell(r.written(r.highest(cx))))
        .about("the highest in the last 5 minutes, or since the start"),
    Column::new("chart", 10, Unit::Text, |_, _: VitalRef| Value::Empty)
        .prio(0)
        .grow(240)
        .write(|cx, r, w| Cell::Spark(r.chart(cx, usize::from(w)).0, Tone::Plain))
        .about("the highest of each moment, newest at the right; percentages up to 100"),
];

/// The pane.
pub struct History;

impl Table for History {
    type Row = VitalRef;

    fn columns(&self) -> &'static [Column<VitalRef>] {
        &COLUMNS
    }
    fn rows(&self, _cx: &Cx<'_>) -> Vec<VitalRef> {
        (0..VITALS.len()).map(VitalRef).collect()
    }
    fn key(&self, _cx: &Cx<'_>, r: VitalRef) -> RowKey {
        RowKey::Numbered(PaneId::History, r.0 as u64)
    }
    fn mark(&self, _cx: &Cx<'_>, _r: VitalRef) -> Option<Severity> {
        None
    }
    /// They stay where they are.
    fn trouble(&self, _cx: &Cx<'_>, _r: VitalRef) -> f64 {
        0.0
    }
    fn search(&self, _cx: &Cx<'_>, r: VitalRef, out: &mut String) {
        out.push_str(r.get().map_or("", |v| v.name));
    }
}

impl ListPane for History {
    const ID: PaneId = PaneId::History;
    const NAME: &'static str = "history";
    const TITLE: &'static str = "Last minutes";
    const HELP: &'static str = "go to the last minutes of CPU, memory, network, disks; again: zoom";

    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let at = p.cx.cpu.map(|c| c.at);
        let note = super::note(p, "all", CollectorId::Cpu, at);
        let mut vm = PaneVm { note, ..PaneVm::default() };
        let win = super::window(self, p, ListPane::list_rows(self, p, inner));
        if !p.st.filter.is_empty() || !matches!(p.st.sort, Sort::Trouble { reverse: false }) {
            vm.title.extend(super::order_title(self, p, &win));
        }
        super::add_table(&mut vm, self, p, &win, inner.w);
        vm
    }
}

impl RowDetail for History {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "Last minutes"
    }

    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let Some((r, v)) = VitalRef::of(key).and_then(|r| Some((r, r.get()?))) else {
            return gone("number");
        };
        let mut title = Line::of(format!(" {}", v.name), Tone::Strong);
        title.add(format!("  {}", v.about), Tone::Plain);
        let (levels, each) = r.chart(cx, usize::from(w.saturating_sub(2)).max(1));
        let mut chart = Line::of(" ", Tone::Plain);
        chart.push(Piece::Spark(levels, Tone::Plain));
        vec![
            title,
            field("now", r.written(r.now(cx))),
            field("max", format!("{} in 5 min", r.written(r.highest(cx)))),
            Line::new(),
            chart,
            Line::of(format!(" each column: {}", units::duration(each)), Tone::Dim),
        ]
    }
}

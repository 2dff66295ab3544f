//! A recording as tables: the figures of every tick as rows, for databases and data frames.
//!
//! Each file here is a table: what its rows are, and a list of columns. The list is all there is:
//! the writers in `encode` and the page of `stallscope help tables` are both made from it, so that
//! a file cannot disagree with its description. A new column is a line in a list; a new table is a
//! file and a line in [`TABLES`].
//!
//! A row has what was read in its tick, and nothing of the ticks before: what was not read, or
//! cannot be read on that host, is missing, never 0. All rows of a tick have the same time, so that
//! tables can be joined on host and time.

mod cgroup_io;
mod cgroups;
mod cpus;
mod disks;
mod encode;
mod findings;
mod host;
mod netdev;
mod processes;
mod sockets;
mod softirq;
mod threads;
mod waits;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

pub use encode::{Encoder, Format, Names};

use crate::analysis::{Analysis, TickView};
use crate::diagnose::Finding;
use crate::sample::sockets::NetnsTable;
use crate::sample::subject::NetnsId;
use crate::sample::tick::Tick;
use crate::sample::time::{Span, WallNs};
use crate::view::state::ViewState;

/// Every table, in the order of the help.
pub static TABLES: &[&Table] = &[
    &host::TABLE,
    &waits::TABLE,
    &findings::TABLE,
    &sockets::TABLE,
    &disks::TABLE,
    &cpus::TABLE,
    &softirq::TABLE,
    &processes::TABLE,
    &threads::TABLE,
    &cgroups::TABLE,
    &cgroup_io::TABLE,
    &netdev::TABLE,
];

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8, as the kernel or the program has it: untrusted.
    Text,
    /// 64 bits, signed.
    Integer,
    /// 64 bits.
    Float,
    /// `true` or `false`.
    Boolean,
    /// A time, in ns.
    Time,
}

impl Kind {
    /// As the help has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Boolean => "boolean",
            Self::Time => "time",
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Lower case; SQL needs no quotes around it.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What a number counts: `s`, `bytes/s`, `%`; empty for a number of things, and for words.
    pub unit: &'static str,
    /// What it means.
    pub about: &'static str,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// What `--table` calls it, and a file of it.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// What the time of a row is.
    time: &'static str,
    /// Beside time and host.
    own: &'static [Column],
    rows: Rows,
}

impl Table {
    /// The table of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TABLES.iter().find(|t| t.name == name).copied()
    }

    /// Its columns, in their order.
    pub fn columns(&self) -> impl Iterator<Item = Column> {
        let time = Column { name: "time", kind: Kind::Time, unit: "", about: self.time };
        let about = "name of the host that was recorded";
        let host = Column { name: "host", kind: Kind::Text, unit: "", about };
        [time, host].into_iter().chain(self.own.iter().copied())
    }
}

/// Where rows come from.
#[derive(Debug)]
enum Rows {
    OfTick(fn(&Moment<'_>, &mut Out<'_>)),
    OfFinding(fn(&Finding, &mut Out<'_>)),
}

/// What the time of a row is, of a table of ticks.
const OF_TICK: &str = "time of the tick, UTC";

/// The columns of a table: name, kind, unit, meaning, and the value of a row. Makes `COLUMNS` and
/// the function that writes a row, in which each value goes through the method of [`Line`] that has
/// the name of its kind: a value of another kind does not compile.
macro_rules! columns {
    (|$row:ident: $of:ty| $(
        $name:ident: $kind:ident $(($unit:literal))?, $about:literal = $value:expr;
    )+) => {
        const COLUMNS: &[super::Column] = &[$(super::Column {
            name: stringify!($name),
            kind: columns!(@$kind),
            unit: concat!("" $(, $unit)?),
            about: $about,
        }),+];
        fn put(line: &mut super::Line<'_>, $row: $of) {
            $(line.$kind($value);)+
        }
    };
    (@text) => { super::Kind::Text };
    (@integer) => { super::Kind::Integer };
    (@float) => { super::Kind::Float };
    (@boolean) => { super::Kind::Boolean };
    (@time) => { super::Kind::Time };
}
use columns;

/// One tick with what is known then.
struct Moment<'a> {
    run: &'a Analysis,
    now: TickView<'a>,
    /// Socket tables that were read in this tick: those of other namespaces are as before.
    sockets: &'a [&'a NetnsTable],
    /// Somebody who looks at everything.
    view: &'a ViewState,
}

/// Takes rows: all of one time.
struct Out<'a> {
    to: &'a mut dyn Encoder,
    time: WallNs,
    host: &'a str,
    rows: u64,
    done: io::Result<()>,
}

impl Out<'_> {
    /// One row. After a failure there are none.
    fn row(&mut self, put: impl FnOnce(&mut Line<'_>)) {
        if self.done.is_err() {
            return;
        }
        let mut line = Line { to: self.to };
        line.time(self.time);
        line.text(self.host);
        put(&mut line);
        self.done = self.to.end_row();
        self.rows += 1;
    }
}

/// A row that is written, value by value.
struct Line<'a> {
    to: &'a mut dyn Encoder,
}

impl Line<'_> {
    fn text<'v>(&mut self, v: impl Into<Option<&'v str>>) {
        self.to.text(v.into());
    }
    fn integer(&mut self, v: impl Whole) {
        self.to.integer(v.whole());
    }
    /// What is no number is missing. A sum of nothing is -0: added to 0, it is 0.
    fn float(&mut self, v: impl Into<Option<f64>>) {
        self.to.float(v.into().filter(|v| v.is_finite()).map(|v| v + 0.0));
    }
    fn boolean(&mut self, v: impl Into<Option<bool>>) {
        self.to.boolean(v.into());
    }
    fn time(&mut self, v: impl Into<Option<WallNs>>) {
        self.to.time(v.into());
    }
}

/// A number of things; one beyond 63 bits, which nothing counts up to, is missing.
trait Whole {
    fn whole(self) -> Option<i64>;
}

macro_rules! whole {
    ($($number:ty)+) => { $(
        impl Whole for $number {
            fn whole(self) -> Option<i64> {
                i64::try_from(self).ok()
            }
        }
    )+ };
}
whole!(i8 u8 u16 u32 u64 usize);

impl<N: Whole> Whole for Option<N> {
    fn whole(self) -> Option<i64> {
        self?.whole()
    }
}

/// Tables that are being written: given every moment of a recording, and the findings that ended.
#[derive(Debug)]
pub struct Tables {
    /// The first and the last time that is asked for.
    span: (WallNs, WallNs),
    outlets: Vec<Outlet>,
    /// When each namespace's sockets were last read.
    read: BTreeMap<NetnsId, Span>,
    view: ViewState,
    ticks: u64,
}

#[derive(Debug)]
struct Outlet {
    table: &'static Table,
    to: Box<dyn Encoder>,
    rows: u64,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Ticks that were in the time asked for.
    pub ticks: u64,
    /// Rows of each table, in the order of the outlets.
    pub rows: Vec<u64>,
}

impl Tables {
    /// Of ticks in this time, with an encoder for each table.
    #[must_use]
    pub fn new(span: (WallNs, WallNs), outlets: Vec<(&'static Table, Box<dyn Encoder>)>) -> Self {
        let outlet = |(table, to)| Outlet { table, to, rows: 0 };
        Self {
            span,
            outlets: outlets.into_iter().map(outlet).collect(),
            read: BTreeMap::new(),
            view: ViewState::default(),
            ticks: 0,
        }
    }

    /// Another run begins.
    pub fn begin(&mut self) {
        self.read.clear();
    }

    /// The newest moment of a run.
    ///
    /// # Errors
    /// Where it is written to.
    pub fn moment(&mut self, run: &Analysis) -> io::Result<()> {
        let Some(now) = run.latest() else { return Ok(()) };
        let sockets = self.fresh(now.tick);
        let (from, to) = self.span;
        let time = now.tick.wall;
        if time < from || time > to {
            return Ok(());
        }
        self.ticks += 1;
        let moment = Moment { run, now, sockets: &sockets, view: &self.view };
        for o in &mut self.outlets {
            if let Rows::OfTick(rows) = o.table.rows {
                o.write(time, &run.host().hostname, |out| rows(&moment, out))?;
            }
        }
        Ok(())
    }

    /// Findings of a run that are over, or are all there is at its end.
    ///
    /// # Errors
    /// Where they are written to.
    pub fn ended(&mut self, run: &Analysis, findings: &[Arc<Finding>]) -> io::Result<()> {
        let (from, to) = self.span;
        let inside = findings.iter().filter(|f| f.last_seen >= from && f.first_seen <= to);
        let inside: Vec<_> = inside.collect();
        for o in &mut self.outlets {
            let Rows::OfFinding(rows) = o.table.rows else { continue };
            for f in &inside {
                o.write(f.first_seen, &run.host().hostname, |out| rows(f, out))?;
            }
        }
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// Where it is written to.
    pub fn finish(self) -> io::Result<Written> {
        let rows = self.outlets.iter().map(|o| o.rows).collect();
        for o in self.outlets {
            o.to.finish()?;
        }
        Ok(Written { ticks: self.ticks, rows })
    }

    /// The socket tables that were read in this tick: a namespace that was not due is carried over
    /// with the stamps of its last reading.
    fn fresh<'t>(&mut self, tick: &'t Tick) -> Vec<&'t NetnsTable> {
        let samples = [tick.samples.sockets.as_ref(), tick.samples.netns_sockets.as_ref()];
        let all = samples.into_iter().flatten().flat_map(|s| &s.data.spaces).map(|t| &**t);
        all.filter(|t| self.read.insert(t.netns, t.span) != Some(t.span)).collect()
    }
}

impl Outlet {
    fn write(
        &mut self,
        time: WallNs,
        host: &str,
        rows: impl FnOnce(&mut Out<'_>),
    ) -> io::Result<()> {
        let mut out = Out { to: &mut *self.to, time, host, rows: 0, done: Ok(()) };
        rows(&mut out);
        self.rows += out.rows;
        out.done
    }
}

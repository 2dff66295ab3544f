//! Where work waits: each resource of the host with how busy it is, what waits for it, what it lost,
//! and who uses it (the USE method). Enter goes on to the row of the resource, or to a page of it.

mod gather;

use super::{ListPane, PaneCx, PaneId, PaneVm, RowDetail};
use crate::diagnose::Severity;
use crate::sample::CollectorId;
use crate::view::context::Cx;
use crate::view::lines::{field, finding};
use crate::view::state::RowKey;
use crate::view::table::{Cell, Column, Table, Unit, Value};
use crate::view::vm::{Line, Size, Tone};
use crate::view::{table, text, units};

pub use gather::{Kind, Resource, gather};

/// A row: index into the resources of the moment.
#[derive(Clone, Copy, Debug)]
pub struct ResourceRef(u32);

impl ResourceRef {
    fn get<'a>(self, cx: &'a Cx<'_>) -> Option<&'a Resource> {
        cx.resources().get(self.0 as usize)
    }
}

macro_rules! figure {
    ($name:ident, |$r:ident| $body:expr) => {
        fn $name(cx: &Cx<'_>, r: ResourceRef) -> Value {
            r.get(cx).map_or(Value::Unknown, |$r| $body)
        }
    };
}
figure!(resource, |r| Value::Text(r.name.clone().into()));
figure!(busy, |r| r.busy.clone());
figure!(wait, |r| Value::num(r.wait));
figure!(errors, |r| r.errors.clone());
figure!(worst, |r| Value::Text(r.worst.clone().into()));
figure!(by, |r| Value::Text(r.by.clone().into()));

/// What waits, in the words of the resource.
fn wait_cell(cx: &Cx<'_>, r: ResourceRef, _w: u16) -> Cell {
    let Some(r) = r.get(cx) else { return Cell::Text("".into(), Tone::Dim) };
    let tone = if r.wait.is_none_or(|n| n == 0.0) { Tone::Dim } else { Tone::Plain };
    Cell::Text(r.waits.clone().into(), tone)
}

static COLUMNS: [Column<ResourceRef>; 6] = [
    Column::new("resource", 8, Unit::Text, resource).prio(0).grow(14).about("what work waits for"),
    Column::new("busy%", 5, Unit::Percent, busy).prio(0).about("how much of it is in use"),
    Column::new("wait", 10, Unit::Text, wait)
        .prio(0)
        .grow(16)
        .first(table::First::High)
        .write(wait_cell)
        .about("how much waits for it, or for how long"),
    Column::new("errors/s", 8, Unit::Number, errors).prio(3).about("what it lost, per second"),
    Column::new("worst", 14, Unit::Text, worst).prio(2).grow(40).about("what stands out in it"),
    Column::new("by", 14, Unit::Task, by)
        .prio(1)
        .grow(30)
        .about("who uses it most, or whom a finding names"),
];

/// The pane.
pub struct Resources;

impl Table for Resources {
    type Row = ResourceRef;

    fn columns(&self) -> &'static [Column<ResourceRef>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<ResourceRef> {
        (0..cx.resources().len() as u32).map(ResourceRef).collect()
    }
    fn key(&self, cx: &Cx<'_>, r: ResourceRef) -> RowKey {
        r.get(cx).map_or(RowKey::Numbered(PaneId::Resources, 0), |r| r.key)
    }
    fn mark(&self, cx: &Cx<'_>, r: ResourceRef) -> Option<Severity> {
        r.get(cx)?.mark
    }
    /// Those with a finding first, the others in their own order: rows stay where they are.
    fn trouble(&self, cx: &Cx<'_>, r: ResourceRef) -> f64 {
        self.mark(cx, r).map_or(0.0, |s| 1.0 + f64::from(s as u8))
    }
    fn search(&self, cx: &Cx<'_>, r: ResourceRef, out: &mut String) {
        if let Some(r) = r.get(cx) {
            out.push_str(&r.name);
            out.push(' ');
            out.push_str(&r.by);
        }
    }
}

impl ListPane for Resources {
    const ID: PaneId = PaneId::Resources;
    const NAME: &'static str = "resources";
    const TITLE: &'static str = "Where work waits";
    const HELP: &'static str = "go to the resources: what is busy, what waits for it; again: zoom";

    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let at = p.cx.cpu.map(|c| c.at);
        let note = super::note(p, "all", CollectorId::Cpu, at);
        let mut vm = PaneVm { note, ..PaneVm::default() };
        if p.cx.resources().is_empty() {
            vm.lines = super::empty_lines(p, CollectorId::Cpu, inner.w);
            return vm;
        }
        let win = super::window(self, p, ListPane::list_rows(self, p, inner));
        vm.title.extend(super::order_title(self, p, &win));
        super::add_table(&mut vm, self, p, &win, inner.w);
        vm
    }
}

impl RowDetail for Resources {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "Resource"
    }

    fn opens(&self, cx: &Cx<'_>, key: RowKey) -> RowKey {
        cx.resources().iter().find(|r| r.key == key).map_or(key, |r| r.opens)
    }

    fn lines(&self, cx: &Cx<'_>, key: RowKey, w: u16) -> Vec<Line> {
        let Some(r) = cx.resources().iter().find(|r| r.key == key) else {
            return crate::view::lines::gone("resource");
        };
        let mut out = vec![Line::of(format!(" {}", r.name), Tone::Strong)];
        if let Value::Num(n) = r.busy {
            out.push(field("busy", format!("{}%", units::pct(n))));
        }
        if let Value::Num(n) = r.errors {
            out.push(field("errors", format!("{}/s", units::count(n))));
        }
        for (name, value) in [("wait", &r.waits), ("worst", &r.worst), ("by", &r.by)] {
            if !value.is_empty() {
                out.push(field(name, value.clone()));
            }
        }
        out.push(Line::of(" findings", Tone::Accent));
        let before = out.len();
        for f in cx.now.findings.all().filter(|f| r.kind.is_of(f)) {
            out.push(finding(cx, f, " "));
        }
        if out.len() == before {
            out.push(Line::of("    none", Tone::Dim));
        }
        let pane = super::pane(r.kind.pane());
        out.push(Line::new());
        let number = crate::view::build::number_of(r.kind.pane());
        let says = format!(" {number} goes to the pane {}: one row each", pane.heading());
        out.extend(text::wrap(&says, usize::from(w).max(10)).into_iter().map(|l| {
            Line::of(format!(" {l}"), Tone::Dim)
        }));
        out
    }
}

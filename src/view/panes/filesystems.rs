//! File systems, fullest first.

use super::{ListPane, PaneCx, PaneId, PaneVm, RowDetail};
use crate::diagnose::Severity;
use crate::sample::CollectorId;
use crate::sample::filesystems::FilesystemRow;
use crate::view::context::Cx;
use crate::view::lines::{field, gone};
use crate::view::state::RowKey;
use crate::view::table::{Column, Table, Unit, Value};
use crate::view::text;
use crate::view::vm::{Line, Size};

fn rows<'a>(cx: &Cx<'a>) -> &'a [FilesystemRow] {
    cx.now.tick.samples.filesystems.as_ref().map_or(&[], |s| &s.data.filesystems)
}

fn used(cx: &Cx<'_>, i: usize) -> Value {
    let share = rows(cx).get(i).and_then(|r| r.space.as_ref()).map(|s| s.blocks as f64);
    Value::num(share)
}

static COLUMNS: [Column<usize>; 1] = [Column::new("blocks", 8, Unit::Number, used).about("blocks of the file system")];

/// The pane.
pub struct Filesystems;

impl Table for Filesystems {
    type Row = usize;
    fn columns(&self) -> &'static [Column<usize>] {
        &COLUMNS
    }
    fn rows(&self, cx: &Cx<'_>) -> Vec<usize> {
        (0..rows(cx).len()).collect()
    }
    fn key(&self, _cx: &Cx<'_>, r: usize) -> RowKey {
        RowKey::Numbered(PaneId::Filesystems, r as u64)
    }
    fn mark(&self, _cx: &Cx<'_>, _r: usize) -> Option<Severity> {
        None
    }
    fn trouble(&self, _cx: &Cx<'_>, _r: usize) -> f64 {
        0.0
    }
    fn search(&self, cx: &Cx<'_>, r: usize, out: &mut String) {
        out.push_str(rows(cx).get(r).map_or("", |r| &r.mount));
    }
}

impl RowDetail for Filesystems {
    fn title(&self, _cx: &Cx<'_>, _key: RowKey) -> &'static str {
        "File system"
    }
    fn lines(&self, cx: &Cx<'_>, key: RowKey, _w: u16) -> Vec<Line> {
        let RowKey::Numbered(_, i) = key else { return Vec::new() };
        let Some(r) = rows(cx).get(i as usize) else { return gone("file system") };
        vec![field("mount", text::clean(&r.mount).into_owned())]
    }
}

impl ListPane for Filesystems {
    const ID: PaneId = PaneId::Filesystems;
    const NAME: &'static str = "filesystems";
    const TITLE: &'static str = "File systems";
    const HELP: &'static str = "go to the file systems";

    fn list_rows(&self, _p: &PaneCx<'_>, inner: Size) -> usize {
        usize::from(inner.h.saturating_sub(1)).max(1)
    }
    fn build(&self, p: &PaneCx<'_>, inner: Size) -> PaneVm {
        let note = super::note(p, "statfs", CollectorId::Filesystems, None);
        let mut vm = PaneVm { note, ..PaneVm::default() };
        let win = super::window(self, p, self.list_rows(p, inner));
        super::add_table(&mut vm, self, p, &win, inner.w);
        vm
    }
}

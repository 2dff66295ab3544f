//! The layout, from the size of the terminal and what the user chose. `build` draws by it, `update`
//! pages by it.

use super::panes::{PANES, PaneId};
use super::state::{Focus, Layout, ViewState};
use super::vm::{Area, FrameKind, Size};

/// Smallest size at which all panes are shown together.
pub const OVERVIEW: Size = Size::new(100, 27);

/// A pane's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaneArea {
    /// The pane.
    pub id: PaneId,
    /// With its frame.
    pub area: Area,
    /// How it is framed.
    pub frame: FrameKind,
}

/// Where things are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Top line.
    pub header: Option<Area>,
    /// The timeline.
    pub timeline: Option<Area>,
    /// Findings; at least one row whenever there is one.
    pub findings: Area,
    /// Title line above the findings?
    pub findings_title: FindingsTitle,
    /// Panes.
    pub panes: Vec<PaneArea>,
    /// Detail view, instead of panes.
    pub body: Area,
    /// Last line.
    pub footer: Option<Area>,
}

/// Whether the strip of findings has a line of its own for the title.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FindingsTitle {
    /// Yes.
    Line,
    /// No space for it.
    #[default]
    None,
}

/// Computes it; `findings` is the number of active findings.
#[must_use]
pub fn places(size: Size, v: &ViewState, findings: usize) -> Places {
    let mut out = Places::default();
    let Size { w, h } = size;
    if w == 0 || h == 0 {
        return out;
    }
    let line = |y: u16| Area::new(0, y, w, 1);
    let overview = w >= OVERVIEW.w && h >= OVERVIEW.h;
    let mut top = 0;
    let mut bottom = h;
    if h >= 4 {
        out.header = Some(line(0));
        top = 1;
    }
    if h >= 7 {
        out.footer = Some(line(h - 1));
        bottom = h - 1;
    }
    if h >= 12 && w >= 30 {
        out.timeline = Some(line(top));
        top += 1;
    }
    let room = bottom - top;
    let n = u16::try_from(findings).unwrap_or(u16::MAX);
    let rows = if overview {
        // A title and up to a sixth of the screen.
        out.findings_title = FindingsTitle::Line;
        1 + n.min((h / 6).max(3))
    } else if h >= 20 {
        n.clamp(1, 4)
    } else if h >= 10 {
        n.clamp(1, 2)
    } else if h <= 2 {
        room
    } else {
        1
    };
    let rows = rows.min(room);
    out.findings = Area::new(0, top, w, rows);
    let body = Area::new(0, top + rows, w, bottom - top - rows);
    out.body = body;
    if body.h == 0 || !v.details.is_empty() {
        return out;
    }
    let focused = focused_pane(v);
    if overview && v.layout == Layout::Overview && in_overview(focused) {
        out.panes = quadrants(body);
    } else {
        out.panes = vec![PaneArea { id: focused, area: body, frame: FrameKind::Rule }];
    }
    out
}

/// The pane that has, or last had, the focus.
#[must_use]
pub fn focused_pane(v: &ViewState) -> PaneId {
    match v.focus {
        Focus::Pane(id) => id,
        Focus::Findings => v.last_pane,
    }
}

/// Panes that the overview shows together, in the order of the registry.
const QUADRANTS: usize = 4;

/// Whether a pane is part of the overview. The others take the whole screen while they have the
/// focus.
#[must_use]
pub fn in_overview(id: PaneId) -> bool {
    PANES.iter().take(QUADRANTS).any(|p| p.id() == id)
}

fn quadrants(a: Area) -> Vec<PaneArea> {
    // Sockets are wide; lists on top get more rows than charts need.
    let left = (a.w * 3 / 5).clamp(60, 130).min(a.w);
    let top = (a.h * 11 / 20).max(1);
    let (right, bottom) = (a.w - left, a.h - top);
    let areas: [Area; QUADRANTS] = [
        Area::new(a.x, a.y, left, top),
        Area::new(a.x + left, a.y, right, top),
        Area::new(a.x, a.y + top, left, bottom),
        Area::new(a.x + left, a.y + top, right, bottom),
    ];
    PANES
        .iter()
        .zip(areas)
        .map(|(p, area)| PaneArea { id: p.id(), area, frame: FrameKind::Box })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn everything_lies_on_the_screen(w in 0u16..400, h in 0u16..150, n in 0usize..300, zoom: bool) {
            let mut v = ViewState::default();
            if zoom {
                v.layout = Layout::Zoom;
            }
            let p = places(Size::new(w, h), &v, n);
            let mut all: Vec<Area> = p.panes.iter().map(|p| p.area).collect();
            all.extend([p.findings, p.body]);
            all.extend(p.header.into_iter().chain(p.timeline).chain(p.footer));
            for a in &all {
                prop_assert!(a.x + a.w <= w && a.y + a.h <= h, "{a:?} in {w}x{h}");
            }
            prop_assert!(w == 0 || h == 0 || p.findings.h > 0, "the findings are always there");
        }
    }
}

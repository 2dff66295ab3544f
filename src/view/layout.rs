//! The layout, from the size of the terminal, what the user chose and how much there is to show.
//! `build` draws by it, `update` pages by it.
//!
//! Panes are as high as what they have to say, and grow into what is left. A small screen shows the
//! resources and one pane.

use std::time::Duration;

use super::context::Cx;
use super::panes::{self, PaneCx, PaneId};
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

/// How much there is to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Active findings.
    pub findings: usize,
    /// Lines that the panes of the overview can fill.
    pub wants: Vec<(PaneId, u16)>,
}

impl Shape {
    /// Of a moment. Only the panes that `size` can show together are asked.
    #[must_use]
    pub fn of(cx: &Cx<'_>, v: &ViewState, size: Size) -> Self {
        let findings = cx.now.findings.active.len();
        let shared = v.details.is_empty() && v.layout == Layout::Overview;
        let asked: Vec<PaneId> = if !shared {
            Vec::new()
        } else if is_wide(size) {
            LEFT.iter().chain(BELOW).chain(RIGHT).copied().collect()
        } else {
            vec![PaneId::Resources]
        };
        let want = |id| {
            let st = v.pane(id)?;
            let p = PaneCx { cx, held: None, st, view: v, focused: false };
            let wants = panes::pane(id).wants(&p);
            let recent = if id == PaneId::Processes && is_wide(size) { processes(cx) } else { 0 };
            Some((id, wants.max(recent)))
        };
        Self { findings, wants: asked.into_iter().filter_map(want).collect() }
    }
    fn want(&self, id: PaneId) -> u16 {
        self.wants.iter().find(|w| w.0 == id).map_or(0, |w| w.1)
    }
}

/// Lines for as many processes as ran or waited at a time in the last seconds, and for the titles.
fn processes(cx: &Cx<'_>) -> u16 {
    let back = cx.analysis.history().back_from(cx.now.tick.seq);
    let recent = back.take_while(|m| cx.mono().since(m.tick.mono) <= RECENT);
    let pids = recent.filter_map(|m| m.derived.sched.as_deref()).map(|s| {
        let mut pids: Vec<u32> = s.threads.iter().map(|t| t.thread.task.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.len()
    });
    u16::try_from(pids.max().unwrap_or(0) + 1).unwrap_or(u16::MAX)
}

/// The columns of the overview. The last pane of each takes what the others leave.
const LEFT: &[PaneId] = &[PaneId::Sockets, PaneId::Processes];
const RIGHT: &[PaneId] = &[PaneId::Resources, PaneId::Disks, PaneId::Cpus, PaneId::RunQueue];

/// What the others leave of the left column is theirs, in this order, below the last pane of it. With
/// the focus they take the whole screen.
const BELOW: &[PaneId] = &[PaneId::History, PaneId::Network, PaneId::Events];
/// Lines that the last pane keeps at least, with its frame.
const KEEPS: u16 = 16;
/// Lines of one of these at most, with its frame.
const MOST_BELOW: u16 = 16;
/// What the panes above want counts as a multiple of this: one row more seldom moves anything.
const STEP: u16 = 6;
/// The processes count as many as they were at most in this time.
const RECENT: Duration = Duration::from_secs(10);

fn is_wide(size: Size) -> bool {
    size.w >= OVERVIEW.w && size.h >= OVERVIEW.h
}

/// Where things are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Top line.
    pub header: Option<Area>,
    /// The vitals.
    pub vitals: Option<Area>,
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

/// Computes it.
#[must_use]
pub fn places(size: Size, v: &ViewState, shape: &Shape) -> Places {
    let mut out = Places::default();
    let Size { w, h } = size;
    if w == 0 || h == 0 {
        return out;
    }
    let wide = is_wide(size);
    let (mut top, mut bottom) = (0, h);
    let mut take = |out: &mut Option<Area>, rows: u16| {
        *out = Some(Area::new(0, top, w, rows));
        top += rows;
    };
    if h >= 4 {
        take(&mut out.header, 1);
    }
    // A page about one thing needs the lines itself.
    if h >= 9 && v.details.is_empty() {
        take(&mut out.vitals, if h >= 20 { 2 } else { 1 });
    }
    if h >= 12 && w >= 30 {
        take(&mut out.timeline, 1);
    }
    if h >= 7 {
        out.footer = Some(Area::new(0, h - 1, w, 1));
        bottom = h - 1;
    }
    if wide {
        out.findings_title = FindingsTitle::Line;
    }
    let rows = finding_rows(size, v, shape.findings, bottom - top);
    out.findings = Area::new(0, top, w, rows);
    let body = Area::new(0, top + rows, w, bottom - top - rows);
    out.body = body;
    if body.h == 0 || !v.details.is_empty() {
        return out;
    }
    let focused = focused_pane(v);
    let single = |id, area| PaneArea { id, area, frame: FrameKind::Rule };
    out.panes = if v.layout == Layout::Overview && in_overview(focused) && wide {
        overview(body, shape)
    } else if v.layout == Layout::Overview && in_overview(focused) && h >= 20 {
        stacked(body, focused, shape)
    } else {
        vec![single(focused, body)]
    };
    out
}

fn finding_rows(size: Size, v: &ViewState, findings: usize, room: u16) -> u16 {
    let h = size.h;
    let n = u16::try_from(findings).unwrap_or(u16::MAX);
    let rows = if is_wide(size) {
        // A title and up to a sixth of the screen.
        1 + n.min((h / 6).max(3))
    } else if !v.details.is_empty() {
        1
    } else if h >= 20 {
        n.clamp(1, 4)
    } else if h >= 10 {
        n.clamp(1, 2)
    } else if h <= 2 {
        room
    } else {
        1
    };
    rows.min(room)
}

/// The pane that has, or last had, the focus.
#[must_use]
pub fn focused_pane(v: &ViewState) -> PaneId {
    match v.focus {
        Focus::Pane(id) => id,
        Focus::Findings => v.last_pane,
    }
}

/// Whether a pane always has a part of the overview. The others take the whole screen while they have the
/// focus.
#[must_use]
pub fn in_overview(id: PaneId) -> bool {
    LEFT.contains(&id) || RIGHT.contains(&id)
}

/// Lines of a frame.
const FRAME: u16 = 2;
/// Fewest lines of a pane with its frame: titles and two rows.
const LEAST: u16 = 3 + FRAME;

/// Two columns of panes.
fn overview(a: Area, shape: &Shape) -> Vec<PaneArea> {
    // Sockets are wide.
    let left = (a.w * 3 / 5).clamp(60, 140).min(a.w);
    let below = below(a.h, shape);
    let above = Area { w: left, h: a.h - below.iter().map(|b| b.1).sum::<u16>(), ..a };
    let mut out = column(above, LEFT, shape);
    let mut y = above.y + above.h;
    for (id, h) in below {
        out.push(PaneArea { id, area: Area { y, h, ..above }, frame: FrameKind::Box });
        y += h;
    }
    out.extend(column(Area::new(a.x + left, a.y, a.w - left, a.h), RIGHT, shape));
    out
}

/// Panes for which the left column has room, with their heights.
fn below(h: u16, shape: &Shape) -> Vec<(PaneId, u16)> {
    let wants = |id: &PaneId| shape.want(*id).saturating_add(FRAME).max(LEAST);
    let steps = |id| wants(id).div_ceil(STEP).saturating_mul(STEP);
    let (last, above) = LEFT.split_last().unwrap_or((&PaneId::Processes, &[]));
    let taken = above.iter().fold(steps(last).max(KEEPS), |sum, id| sum.saturating_add(steps(id)));
    let mut room = h.saturating_sub(taken);
    let mut out = Vec::new();
    for id in BELOW {
        let h = wants(id).min(MOST_BELOW).min(room);
        if h < LEAST {
            break;
        }
        room -= h;
        out.push((*id, h));
    }
    out
}

/// Panes below each other: each has the least, then what it can fill, row by row; what is left goes
/// to the last one. Those for which there is no room are left out.
fn column(a: Area, ids: &[PaneId], shape: &Shape) -> Vec<PaneArea> {
    let fit = usize::from(a.h / LEAST).clamp(1, ids.len());
    let ids = ids.get(..fit).unwrap_or_default();
    let mut heights = vec![LEAST.min(a.h); ids.len()];
    let mut rest = a.h.saturating_sub(heights.iter().sum());
    while rest > 0 {
        let before = rest;
        for (h, id) in heights.iter_mut().zip(ids) {
            if rest > 0 && *h < shape.want(*id).saturating_add(FRAME) {
                *h += 1;
                rest -= 1;
            }
        }
        if rest == before {
            break;
        }
    }
    if let Some(last) = heights.last_mut() {
        *last += rest;
    }
    let mut y = a.y;
    let place = |(id, h): (&PaneId, u16)| {
        let area = Area::new(a.x, y, a.w, h);
        y += h;
        PaneArea { id: *id, area, frame: FrameKind::Box }
    };
    ids.iter().zip(heights).map(place).collect()
}

/// The resources above the pane with the focus; above the processes, if that is the resources.
fn stacked(a: Area, focused: PaneId, shape: &Shape) -> Vec<PaneArea> {
    let below = if focused == PaneId::Resources { PaneId::Processes } else { focused };
    let most = if focused == PaneId::Resources { a.h * 2 / 3 } else { a.h / 2 };
    // With its rule.
    let h = shape.want(PaneId::Resources).saturating_add(1).min(most);
    let place = |id, area| PaneArea { id, area, frame: FrameKind::Rule };
    vec![
        place(PaneId::Resources, Area { h, ..a }),
        place(below, Area::new(a.x, a.y + h, a.w, a.h - h)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn everything_lies_on_the_screen(
            w in 0u16..400, h in 0u16..150, n in 0usize..300, zoom: bool,
            want in proptest::collection::vec(prop_oneof![0u16..60, Just(u16::MAX)], 9),
        ) {
            let mut v = ViewState::default();
            if zoom {
                v.layout = Layout::Zoom;
            }
            let wants = LEFT.iter().chain(BELOW).chain(RIGHT).copied().zip(want).collect();
            let p = places(Size::new(w, h), &v, &Shape { findings: n, wants });
            let mut all: Vec<Area> = p.panes.iter().map(|p| p.area).collect();
            let covered: u32 = all.iter().map(|a| u32::from(a.w) * u32::from(a.h)).sum();
            prop_assert_eq!(covered, u32::from(p.body.w) * u32::from(p.body.h), "nothing is blank");
            all.extend([p.findings, p.body]);
            all.extend(p.header.into_iter().chain(p.vitals).chain(p.timeline).chain(p.footer));
            for a in &all {
                prop_assert!(a.x + a.w <= w && a.y + a.h <= h, "{a:?} in {w}x{h}");
            }
            prop_assert!(w == 0 || h == 0 || p.findings.h > 0, "the findings are always there");
        }
    }
}

//! `build` makes the screen from the run and what the user chose. Only what is visible is built, so
//! the cost does not depend on the other 100k sockets.

use std::borrow::Cow;

use super::chrome;
use super::context::Cx;
use super::layout::{PaneArea, Shape, places};
use super::panes::{self, PaneCx, PaneVm};
use super::state::{Focus, PaneState, ViewState};
use super::vm::{Area, Frame, FrameKind, Line, Node, Size, Tone, Vm};
use super::{detail, overlay, vitals};
use crate::analysis::Analysis;
use crate::sample::time::Seq;

/// The screen of `size`.
#[must_use]
pub fn build(a: &Analysis, v: &ViewState, size: Size) -> Vm {
    let mut vm = Vm { size, ..Vm::default() };
    let cx = shown(a, v);
    let shape = cx.as_ref().map(|cx| Shape::of(cx, v, size)).unwrap_or_default();
    let p = places(size, v, &shape);
    if let Some(area) = p.header {
        vm.lines(area, vec![chrome::header(a, cx.as_ref(), v, area.w)]);
    }
    if let (Some(area), Some(cx)) = (p.vitals, &cx) {
        vm.lines(area, vitals::lines(cx, area.w, area.h));
    }
    if let (Some(area), Some(cx)) = (p.timeline, &cx) {
        vm.lines(area, vec![chrome::timeline(a, cx, v, area.w)]);
    }
    chrome::findings(&mut vm, cx.as_ref(), v, &p);
    if let Some(cx) = &cx {
        if let Some(open) = v.details.last() {
            detail::draw(&mut vm, cx, open, p.body);
        }
        let last = p.panes.last().map(|p| p.id);
        for place in &p.panes {
            draw_pane(&mut vm, cx, v, *place, last == Some(place.id));
        }
    } else {
        for place in &p.panes {
            let number = number_of(place.id);
            let title = vec![(
                Cow::Owned(format!("{number} {}", panes::pane(place.id).heading())),
                Tone::Dim,
            )];
            let frame =
                Frame { kind: place.frame, title, note: ("".into(), Tone::Dim), focused: false };
            vm.nodes.push((place.area, Node::Frame(frame)));
            vm.lines(place.area.inside(place.frame), vec![Line::of(" collecting ...", Tone::Dim)]);
        }
    }
    if let Some(area) = p.footer {
        chrome::footer(&mut vm, v, area);
    } else if v.mode.is_prompt() && size.h > 0 {
        chrome::footer(&mut vm, v, Area::new(0, size.h - 1, size.w, 1));
    }
    overlay::draw(&mut vm, v, size);
    vm
}

/// The moment that is shown, as panes see it.
#[must_use]
pub fn shown<'a>(a: &'a Analysis, v: &'a ViewState) -> Option<Cx<'a>> {
    let latest = a.latest()?.tick.seq;
    // It is no longer in memory: the oldest one is the nearest.
    let oldest = a.oldest()?.tick.seq;
    Cx::at(a, v.shown(latest).max(oldest), v)
}

/// The moment whose order is kept while a pane's order is held.
#[must_use]
pub fn held<'a>(a: &'a Analysis, v: &'a ViewState, st: &PaneState) -> Option<Cx<'a>> {
    let hold = st.hold?;
    let latest = a.latest()?.tick;
    let seq: Seq = hold.seq;
    (latest.mono < hold.until && v.shown(latest.seq) != seq).then(|| Cx::at(a, seq, v))?
}

/// Number of a pane, from 1.
#[must_use]
pub fn number_of(id: panes::PaneId) -> usize {
    panes::PANES.iter().position(|p| p.id() == id).map_or(0, |i| i + 1)
}

fn draw_pane(vm: &mut Vm, cx: &Cx<'_>, v: &ViewState, place: PaneArea, is_last: bool) {
    let Some(st) = v.pane(place.id) else { return };
    let pane = panes::pane(place.id);
    let held = held(cx.analysis, v, st);
    let focused = v.focus == Focus::Pane(place.id);
    let p = PaneCx { cx, held: held.as_ref(), st, view: v, focused };
    let inside = place.area.inside(place.frame);
    let built: PaneVm = pane.build(&p, inside.size());
    let mut title: Vec<(Cow<'static, str>, Tone)> =
        vec![(format!("{} {}", number_of(place.id), pane.heading()).into(), Tone::Strong)];
    title.extend(built.title);
    if place.frame == FrameKind::Rule && is_last {
        // In a single pane the title also says which others there are.
        for other in panes::PANES.iter().filter(|o| o.id() != place.id) {
            let text = format!("{} {}", number_of(other.id()), other.heading());
            title.push((text.into(), Tone::Dim));
        }
    }
    let frame = Frame { kind: place.frame, title, note: built.note, focused };
    vm.nodes.push((place.area, Node::Frame(frame)));
    vm.lines(inside, built.lines);
    vm.visible.extend(built.visible);
}

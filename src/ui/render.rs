//! `render`: a view model into a buffer of cells. A pure function; it looks nothing up.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::theme::Theme;
use super::widgets::{frame, line};
use crate::view::vm::{Area, Node, Vm};

/// Draws `vm` into the part `area` of `buf`. Nothing outside `area` is touched.
pub fn render(vm: &Vm, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(*buf.area());
    for (place, node) in &vm.nodes {
        let Some(rect) = clip(*place, area) else { continue };
        match node {
            Node::Clear => clear(rect, buf),
            Node::Frame(f) => frame::draw(f, *theme, rect, buf),
            Node::Lines(lines) => {
                for (l, y) in lines.iter().zip(rect.y..rect.y.saturating_add(rect.height)) {
                    let row = Rect { x: rect.x, y, width: rect.width, height: 1 };
                    line::draw(l, *theme, row, buf);
                }
            }
        }
    }
}

/// The part of `a`, which counts from the corner of `area`, that lies inside it.
fn clip(a: Area, area: Rect) -> Option<Rect> {
    let rect = Rect {
        x: area.x.saturating_add(a.x),
        y: area.y.saturating_add(a.y),
        width: a.w,
        height: a.h,
    };
    let rect = rect.intersection(area);
    (!rect.is_empty()).then_some(rect)
}

fn clear(rect: Rect, buf: &mut Buffer) {
    for y in rect.top()..rect.bottom() {
        for x in rect.left()..rect.right() {
            if let Some(c) = buf.cell_mut((x, y)) {
                c.set_symbol(" ").set_style(Style::reset());
            }
        }
    }
}

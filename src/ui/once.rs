//! A screen as text: for a pipe, a ticket, or a terminal that is too slow for a console.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::glyphs::GlyphSet;
use super::render::render;
use super::theme::{ColorMode, Theme};
use crate::view::text::width;
use crate::view::vm::Vm;

/// The rows of a screen, without colours and without blanks at their ends.
#[must_use]
pub fn text(vm: &Vm, glyphs: GlyphSet) -> String {
    let area = Rect::new(0, 0, vm.size.w, vm.size.h);
    let mut buf = Buffer::empty(area);
    render(vm, &Theme { color: ColorMode::Mono, glyphs, ..Theme::default() }, area, &mut buf);
    let mut out = String::new();
    for y in area.top()..area.bottom() {
        let (mut row, mut x) = (String::new(), area.left());
        while let Some(cell) = buf.cell((x, y)) {
            row.push_str(cell.symbol());
            // A wide one takes the next cell, too.
            x += u16::try_from(width(cell.symbol())).unwrap_or(1).max(1);
        }
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

//! A line: pieces from the left, pieces at the right edge, cut by grapheme, never wrapped.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::ui::theme::Theme;
use crate::view::text;
use crate::view::vm::{Line, LineStyle, Piece};

/// Columns of the left part that are kept beside a right part.
const LEAST: usize = 12;

/// Draws a line into a rectangle of one row.
pub(in crate::ui) fn draw(l: &Line, theme: Theme, row: Rect, buf: &mut Buffer) {
    let right: usize = l.right.iter().map(Piece::width).sum();
    let left: usize = l.left.iter().map(Piece::width).sum();
    let width = usize::from(row.width);
    // The left part gives way, but only up to a point: then the right part is dropped. A cut left
    // part does not run into the right one.
    let right = if right + left.min(LEAST) + 1 > width { 0 } else { right };
    let end = row.x + (width - right) as u16;
    let blank = matches!(l.right.first(), Some(Piece::Text(t, _)) if t.starts_with(' '));
    let gap = u16::from(right > 0 && !blank && left + right >= width);
    pieces(&l.left, theme, row.x, end - gap, row.y, buf);
    if right > 0 {
        pieces(&l.right, theme, end, row.right(), row.y, buf);
    }
    if l.style == LineStyle::Selected {
        buf.set_style(row, theme.line(l.style));
    }
}

fn pieces(list: &[Piece], theme: Theme, mut x: u16, end: u16, y: u16, buf: &mut Buffer) {
    for p in list {
        if x >= end {
            return;
        }
        match p {
            Piece::Text(s, tone) => x = print(s, theme, theme.tone(*tone), x, end, y, buf),
            Piece::Spark(v, tone) => {
                for level in v.iter().take(usize::from(end - x)) {
                    put(theme.glyphs.bar(*level), theme.chart(*tone), x, y, buf);
                    x += 1;
                }
            }
            Piece::Heat(v, tone) => {
                for level in v.iter().take(usize::from(end - x)) {
                    put(theme.glyphs.shade(*level), theme.chart(*tone), x, y, buf);
                    x += 1;
                }
            }
        }
    }
}

/// One cell.
pub(in crate::ui) fn put(c: char, style: Style, x: u16, y: u16, buf: &mut Buffer) {
    if let Some(cell) = buf.cell_mut((x, y)) {
        if c == ' ' {
            // A blank has no colour: it costs no escape sequence.
            cell.reset();
        } else {
            cell.set_char(c).set_style(Style::reset().patch(style));
        }
    }
}

/// Prints text up to column `end`; what does not fit is cut at a grapheme, with an ellipsis.
/// Returns the column after it.
pub(in crate::ui) fn print(
    s: &str,
    theme: Theme,
    style: Style,
    mut x: u16,
    end: u16,
    y: u16,
    buf: &mut Buffer,
) -> u16 {
    let s = text::cut(s, usize::from(end.saturating_sub(x)));
    // What was drawn there before does not shine through.
    let whole = Style::reset().patch(style);
    for (g, w) in text::graphemes(&s) {
        let w = w as u16;
        if w == 0 {
            continue;
        }
        if x + w > end {
            break;
        }
        match theme.glyphs.replace(g) {
            Some(c) => {
                for _ in 0..w {
                    put(c, style, x, y, buf);
                    x += 1;
                }
            }
            None if g == " " && style.add_modifier.is_empty() => {
                put(' ', style, x, y, buf);
                x += 1;
            }
            None => {
                if let Some(cell) = buf.cell_mut((x, y)) {
                    cell.set_symbol(g).set_style(whole);
                }
                // A wide grapheme covers the cells behind it.
                for behind in 1..w {
                    if let Some(cell) = buf.cell_mut((x + behind, y)) {
                        cell.reset();
                    }
                }
                x += w;
            }
        }
    }
    x
}

//! Frames: a box or a rule, with the title in the line and a note at its right end.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::line::{print, put};
use crate::ui::theme::Theme;
use crate::view::text;
use crate::view::vm::{Frame, FrameKind};

/// Draws a frame; its inside is left alone.
pub(in crate::ui) fn draw(f: &Frame, theme: Theme, r: Rect, buf: &mut Buffer) {
    let border = theme.border(f.focused);
    let stroke = theme.glyphs.replace("─").unwrap_or('─');
    let line = |x0: u16, x1: u16, y: u16, buf: &mut Buffer| {
        for x in x0..x1 {
            put(stroke, border, x, y, buf);
        }
    };
    line(r.left(), r.right(), r.top(), buf);
    if f.kind == FrameKind::Box && r.width >= 2 && r.height >= 2 {
        line(r.left(), r.right(), r.bottom() - 1, buf);
        for y in r.top() + 1..r.bottom() - 1 {
            for x in [r.left(), r.right() - 1] {
                print("│", theme, border, x, x + 1, y, buf);
            }
        }
        for (x, y, corner) in [
            (r.left(), r.top(), "┌"),
            (r.right() - 1, r.top(), "┐"),
            (r.left(), r.bottom() - 1, "└"),
            (r.right() - 1, r.bottom() - 1, "┘"),
        ] {
            print(corner, theme, border, x, x + 1, y, buf);
        }
    }
    if r.width < 4 {
        return;
    }
    let (mut x, mut end) = (r.left() + 1, r.right() - 1);
    // The note is dropped first if the title needs the space.
    let note = text::width(&f.note.0) as u16;
    let first = f.title.first().map_or(0, |t| text::width(&t.0) as u16);
    if note > 0 && first + note + 6 < end - x {
        let at = end - note - 2;
        surrounded(&f.note.0, theme, theme.tone(f.note.1), at, end, r.top(), buf);
        end = at;
    }
    for (i, (s, tone)) in f.title.iter().enumerate() {
        let w = text::width(s) as u16 + 2;
        // Whole parts only; the first one is cut if necessary.
        if i > 0 && x + w + 1 > end {
            break;
        }
        if i > 0 {
            x += 1;
        }
        x = surrounded(s, theme, theme.tone(*tone), x, end, r.top(), buf);
    }
}

fn surrounded(
    s: &str,
    theme: Theme,
    style: Style,
    x: u16,
    end: u16,
    y: u16,
    buf: &mut Buffer,
) -> u16 {
    let x = print(" ", theme, Style::new(), x, end, y, buf);
    let x = print(s, theme, style, x, end.saturating_sub(1), y, buf);
    print(" ", theme, Style::new(), x, end, y, buf)
}

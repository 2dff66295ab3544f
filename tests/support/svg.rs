//! A screen as a picture: what a terminal shows, for the README.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Size of a cell.
const CELL: (f64, f64) = (7.8, 16.0);
/// Around the screen.
const MARGIN: f64 = 8.0;
const BACK: &str = "#1b1f24";
const FORE: &str = "#d0d7de";

fn colour(c: Color) -> &'static str {
    match c {
        Color::Red => "#ff7b72",
        Color::Yellow => "#e3b341",
        Color::Cyan => "#56d4dd",
        Color::Blue => "#6cb6ff",
        _ => FORE,
    }
}

/// What the look of a cell comes down to.
fn look(c: &Cell) -> (&'static str, bool, bool, bool) {
    let has = |m| c.modifier.contains(m);
    (colour(c.fg), has(Modifier::BOLD), has(Modifier::DIM), has(Modifier::REVERSED))
}

/// The picture. It needs nothing but a font of one width.
pub fn svg(buf: &Buffer) -> String {
    let a = *buf.area();
    let (w, h) = (f64::from(a.width) * CELL.0, f64::from(a.height) * CELL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACK}\"/>\n",
        w + 2.0 * MARGIN,
        h + 2.0 * MARGIN
    );
    for y in a.top()..a.bottom() {
        let mut x = a.left();
        while x < a.right() {
            let first = look(&buf[(x, y)]);
            let from = x;
            let mut text = String::new();
            while x < a.right() && look(&buf[(x, y)]) == first {
                let symbol = buf[(x, y)].symbol();
                text.push_str(symbol);
                x += (stallscope::view::text::width(symbol) as u16).max(1);
            }
            run(&mut out, (from, y, x - from), &text, first);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Cells of one look.
fn run(
    out: &mut String,
    (x, y, n): (u16, u16, u16),
    text: &str,
    (fill, bold, dim, reversed): (&str, bool, bool, bool),
) {
    let (left, top) = (MARGIN + f64::from(x) * CELL.0, MARGIN + f64::from(y) * CELL.1);
    let width = f64::from(n) * CELL.0;
    if reversed {
        let height = CELL.1;
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let fill = if reversed { BACK } else { fill };
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let opacity = if dim { " opacity=\"0.6\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let base = top + 12.5;
    let _ = writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{base:.1}\" textLength=\"{width:.1}\" fill=\"{fill}\"{weight}{opacity} \
         xml:space=\"preserve\">{text}</text>"
    );
}

//! The view model: what is on the screen, as data. Rectangles with lines of toned text and
//! charts; no colours, no glyph sets, no terminal.

use std::borrow::Cow;

use super::text;
use crate::sample::subject::SockId;

/// Columns and rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub w: u16,
    /// Rows.
    pub h: u16,
}

impl Size {
    /// Builds one.
    #[must_use]
    pub const fn new(w: u16, h: u16) -> Self {
        Self { w, h }
    }
}

/// A rectangle of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// Column of the left edge.
    pub x: u16,
    /// Row of the top edge.
    pub y: u16,
    /// Columns.
    pub w: u16,
    /// Rows.
    pub h: u16,
}

impl Area {
    /// Builds one.
    #[must_use]
    pub const fn new(x: u16, y: u16, w: u16, h: u16) -> Self {
        Self { x, y, w, h }
    }
    /// Its size.
    #[must_use]
    pub fn size(self) -> Size {
        Size { w: self.w, h: self.h }
    }
    /// What is left inside a frame.
    #[must_use]
    pub fn inside(self, frame: FrameKind) -> Self {
        match frame {
            FrameKind::Box => Self {
                x: self.x.saturating_add(1),
                y: self.y.saturating_add(1),
                w: self.w.saturating_sub(2),
                h: self.h.saturating_sub(2),
            },
            FrameKind::Rule => {
                Self { y: self.y.saturating_add(1), h: self.h.saturating_sub(1), ..self }
            }
        }
    }
    /// Whether a cell lies inside.
    #[must_use]
    pub fn contains(self, x: u16, y: u16) -> bool {
        x >= self.x
            && x < self.x.saturating_add(self.w)
            && y >= self.y
            && y < self.y.saturating_add(self.h)
    }
}

/// What a piece of text means; the theme decides how it looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary.
    #[default]
    Plain,
    /// Less important: labels, units, zeros, unknowns.
    Dim,
    /// More important.
    Strong,
    /// Titles and what has the focus.
    Accent,
    /// A key to press.
    Key,
    /// Worth knowing.
    Info,
    /// Slower than it should be.
    Warn,
    /// Work has stopped or is lost.
    Crit,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text. It has passed [`text::clean`] or comes from this program.
    Text(Cow<'static, str>, Tone),
    /// Vertical bars, one column each, 0 to 8 eighths; `None` where nothing was measured.
    Spark(Vec<Option<u8>>, Tone),
    /// Shades, one column each, 0 to 4.
    Heat(Vec<u8>, Tone),
}

impl Piece {
    /// Columns it takes.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Self::Text(t, _) => text::width(t),
            Self::Spark(v, _) => v.len(),
            Self::Heat(v, _) => v.len(),
        }
    }
}

/// How a whole line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineStyle {
    /// As its pieces say.
    #[default]
    Normal,
    /// Under the cursor.
    Selected,
    /// Column titles.
    Header,
}

/// A line: pieces from the left, and pieces at the right edge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// From the left.
    pub left: Vec<Piece>,
    /// At the right edge; the left part gives way.
    pub right: Vec<Piece>,
    /// How it looks as a whole.
    pub style: LineStyle,
}

impl Line {
    /// An empty line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// A line of one piece.
    pub fn of(s: impl Into<Cow<'static, str>>, tone: Tone) -> Self {
        Self::new().with(s, tone)
    }
    /// Appends text.
    #[must_use]
    pub fn with(mut self, s: impl Into<Cow<'static, str>>, tone: Tone) -> Self {
        self.add(s, tone);
        self
    }
    /// Appends text.
    pub fn add(&mut self, s: impl Into<Cow<'static, str>>, tone: Tone) {
        let s = s.into();
        if !s.is_empty() {
            self.left.push(Piece::Text(s, tone));
        }
    }
    /// Appends any piece.
    pub fn push(&mut self, p: Piece) {
        self.left.push(p);
    }
    /// Appends text to the part at the right edge.
    #[must_use]
    pub fn right(mut self, s: impl Into<Cow<'static, str>>, tone: Tone) -> Self {
        self.right.push(Piece::Text(s.into(), tone));
        self
    }
    /// Columns of the left part.
    #[must_use]
    pub fn width(&self) -> usize {
        self.left.iter().map(Piece::width).sum()
    }
    /// Drops the last parts of the left side until the rest fits into `w` columns: half a number is
    /// a wrong number. The right part goes before the first part does.
    #[must_use]
    pub fn whole(mut self, w: u16) -> Self {
        let w = usize::from(w);
        let right: usize = self.right.iter().map(Piece::width).sum();
        let gap = usize::from(right > 0);
        while self.left.len() > 1 && self.width() + gap + right > w {
            self.left.pop();
        }
        if self.width() + gap + right > w {
            self.right.clear();
        }
        self
    }
    /// Makes the left part exactly `col` columns wide: fills with blanks, or cuts the last
    /// text.
    pub fn fit(&mut self, col: usize) {
        let w = self.width();
        if w < col {
            self.left.push(Piece::Text(" ".repeat(col - w).into(), Tone::Plain));
        } else if let Some(Piece::Text(t, _)) = self.left.last_mut() {
            let keep = text::width(t).saturating_sub(w - col);
            *t = text::cut(t, keep).into_owned().into();
            let w = self.width();
            if w < col {
                self.left.push(Piece::Text(" ".repeat(col - w).into(), Tone::Plain));
            }
        }
    }
}

/// How much room a frame takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A box: one cell on every side.
    Box,
    /// A rule on top.
    Rule,
}

/// A frame with its title.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Box or rule.
    pub kind: FrameKind,
    /// Parts of the title, joined by the border line.
    pub title: Vec<(Cow<'static, str>, Tone)>,
    /// At the right edge: source and age.
    pub note: (Cow<'static, str>, Tone),
    /// Keys go here.
    pub focused: bool,
}

/// What fills a rectangle.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Lines from the top.
    Lines(Vec<Line>),
    /// A frame; its inside is a node of its own.
    Frame(Frame),
    /// Blanks what lies below: for overlays.
    Clear,
}

/// A screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vm {
    /// Of the whole.
    pub size: Size,
    /// Drawn in this order.
    pub nodes: Vec<(Area, Node)>,
    /// Position of the text cursor while text is typed.
    pub cursor: Option<(u16, u16)>,
    /// Sockets on the screen, with their inodes, for which details should be read.
    pub visible: Vec<(SockId, u32)>,
    /// Processes whose threads should be watched.
    pub watched: Vec<u32>,
}

impl Vm {
    /// Adds lines.
    pub fn lines(&mut self, area: Area, lines: Vec<Line>) {
        if area.w > 0 && area.h > 0 && !lines.is_empty() {
            self.nodes.push((area, Node::Lines(lines)));
        }
    }
}

/// Lines as plain text, for files and the clipboard. Charts are digits, `.` where nothing was
/// measured.
#[must_use]
pub fn to_text(lines: &[Line], width: usize) -> String {
    let mut out = String::new();
    for line in lines {
        let mut row = String::new();
        line.left.iter().for_each(|p| piece_text(p, &mut row));
        let mut right = String::new();
        line.right.iter().for_each(|p| piece_text(p, &mut right));
        if !right.is_empty() {
            let gap = width.saturating_sub(text::width(&row) + text::width(&right)).max(1);
            row.push_str(&" ".repeat(gap));
            row.push_str(&right);
        }
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

fn piece_text(p: &Piece, out: &mut String) {
    match p {
        Piece::Text(t, _) => out.push_str(t),
        Piece::Spark(v, _) => {
            out.extend(v.iter().map(|l| l.map_or('.', |l| char::from(b'0' + l.min(8)))));
        }
        Piece::Heat(v, _) => out.extend(v.iter().map(|l| char::from(b'0' + (*l).min(4)))),
    }
}

//! A console on scripted ticks, keys as text, screens as text with styles.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use stallscope::analysis::Analysis;
use stallscope::diagnose::{Engine, RULES, Rule, Thresholds};
use stallscope::recording::Reader;
use stallscope::ui::render::render;
use stallscope::ui::{ColorMode, GlyphSet, Theme};
use stallscope::view::action::{Effect, Key};
use stallscope::view::build::build;
use stallscope::view::state::ViewState;
use stallscope::view::update;
use stallscope::view::vm::{Size, Vm};

use super::rules;
use super::script::Script;

/// The console on a script.
pub struct Console {
    pub script: Script,
    pub analysis: Analysis,
    pub view: ViewState,
    pub size: Size,
    pub effects: Vec<Effect>,
    n: u64,
}

impl Console {
    pub fn new(script: Script, size: Size) -> Self {
        Self::with(script, size, rules::RULES)
    }
    /// A console whose findings are those of these rules.
    pub fn with(script: Script, size: Size, rules: &'static [&'static Rule]) -> Self {
        let engine = Engine::new(rules, Thresholds::default());
        let analysis = Analysis::new(script.host(), engine, 64 << 20);
        let view = ViewState::new(TimeZone::UTC);
        Self { script, analysis, view, size, effects: Vec::new(), n: 0 }
    }
    /// A console after `n` ticks.
    pub fn after(script: Script, size: Size, n: u64) -> Self {
        let mut c = Self::new(script, size);
        c.ticks(n);
        c
    }
    /// A console over the first `n` ticks of a recording, judged by the real rules.
    pub fn over(file: &str, size: Size, n: u64) -> Self {
        let mut reader = Reader::file(Path::new(file)).unwrap();
        let mut c = Self::with(Script::healthy(), size, RULES);
        c.analysis = Analysis::new(reader.host(), Engine::default(), 64 << 20);
        for i in 0..n {
            c.analysis.push(reader.tick(i).unwrap());
            update::tick(&mut c.view, &c.analysis);
        }
        c
    }
    pub fn ticks(&mut self, n: u64) -> &mut Self {
        for _ in 0..n {
            self.analysis.push(Arc::new(self.script.tick(self.n)));
            update::tick(&mut self.view, &self.analysis);
            self.n += 1;
        }
        self
    }
    /// Types keys: plain characters, and names in angle brackets as in `jj/443<enter><c-d>`.
    pub fn keys(&mut self, script: &str) -> &mut Self {
        let mut rest = script;
        while let Some(c) = rest.chars().next() {
            let (key, used) = named(rest).unwrap_or((Key::Char(c), c.len_utf8()));
            let e = update::key(&mut self.view, &self.analysis, self.size, key);
            self.effects.extend(e);
            rest = &rest[used..];
        }
        self
    }
    pub fn vm(&self) -> Vm {
        build(&self.analysis, &self.view, self.size)
    }
    pub fn draw(&self, theme: Theme) -> Buffer {
        draw(&self.vm(), theme)
    }
    pub fn text(&self) -> String {
        text(&self.draw(Theme::default()))
    }
}

fn named(s: &str) -> Option<(Key, usize)> {
    let end = s.strip_prefix('<')?.find('>')? + 2;
    let name = &s[1..end - 1];
    let key = match name {
        "enter" => Key::Enter,
        "esc" => Key::Esc,
        "tab" => Key::Tab,
        "s-tab" => Key::BackTab,
        "space" => Key::Char(' '),
        "up" => Key::Up,
        "down" => Key::Down,
        "left" => Key::Left,
        "right" => Key::Right,
        "pgup" => Key::PageUp,
        "pgdn" => Key::PageDown,
        "home" => Key::Home,
        "end" => Key::End,
        "bs" => Key::Backspace,
        "lt" => Key::Char('<'),
        "gt" => Key::Char('>'),
        _ => Key::Ctrl(name.strip_prefix("c-")?.chars().next()?),
    };
    Some((key, end))
}

pub fn draw(vm: &Vm, theme: Theme) -> Buffer {
    let area = Rect::new(0, 0, vm.size.w, vm.size.h);
    let mut buf = Buffer::empty(area);
    render(vm, &theme, area, &mut buf);
    buf
}

pub fn theme(color: ColorMode, glyphs: GlyphSet) -> Theme {
    Theme { color, glyphs, ..Theme::default() }
}

/// The text of a buffer, one line per row.
pub fn text(buf: &Buffer) -> String {
    let a = *buf.area();
    let mut out = String::new();
    for y in a.top()..a.bottom() {
        let mut row = String::new();
        let mut x = a.left();
        while x < a.right() {
            let s = buf[(x, y)].symbol();
            row.push_str(s);
            x += (stallscope::view::text::width(s) as u16).max(1);
        }
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

/// The text, then the styles as runs: `3: 10..24 Yellow BOLD`.
pub fn styled(buf: &Buffer) -> String {
    let a = *buf.area();
    let mut out = text(buf);
    out.push_str("---\n");
    for y in a.top()..a.bottom() {
        let mut runs: Vec<(u16, u16, String)> = Vec::new();
        for x in a.left()..a.right() {
            let c = &buf[(x, y)];
            let mut s = Vec::new();
            if c.fg != Color::Reset {
                s.push(format!("{:?}", c.fg));
            }
            if c.bg != Color::Reset {
                s.push(format!("on {:?}", c.bg));
            }
            if c.modifier != Modifier::empty() {
                s.push(format!("{:?}", c.modifier));
            }
            let s = s.join(" ");
            match runs.last_mut() {
                Some(r) if r.2 == s && r.1 == x => r.1 = x + 1,
                _ => runs.push((x, x + 1, s)),
            }
        }
        let runs: Vec<String> = runs
            .into_iter()
            .filter(|r| !r.2.is_empty())
            .map(|r| format!("{}..{} {}", r.0, r.1, r.2))
            .collect();
        if !runs.is_empty() {
            let _ = writeln!(out, "{y}: {}", runs.join(" | "));
        }
    }
    out
}

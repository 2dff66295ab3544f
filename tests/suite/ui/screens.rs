//! Whole screens as snapshots: text, then styles.

use jiff::tz::TimeZone;
use stallscope::ui::{ColorMode, GlyphSet, Palette, Theme, summary};
use stallscope::view::panes::PANES;
use stallscope::view::vm::Size;

use crate::support::console::{Console, styled, text, theme};
use crate::support::script::Script;

const BIG: Size = Size::new(120, 36);
const CLASSIC: Size = Size::new(80, 24);
const SMALL: Size = Size::new(40, 12);

#[test]
fn healthy() {
    for size in [BIG, CLASSIC, SMALL] {
        let c = Console::after(Script::healthy(), size, 30);
        insta::assert_snapshot!(format!("healthy@{}x{}", size.w, size.h), c.text());
    }
}

/// The strip, and the lines that stay when the console was left.
#[test]
fn only_a_box_that_was_read_as_a_whole_says_no_findings() {
    let line =
        |c: &Console| c.text().lines().find(|l| l.contains("no findings")).unwrap().to_owned();
    let whole = Console::after(Script::healthy().with_bpf(), CLASSIC, 30);
    assert_eq!(line(&whole).trim(), "no findings  watched for 29s");
    let left = summary(&whole.analysis, &TimeZone::UTC);
    assert!(left.len() == 1 && left[0].contains(": no findings at "), "{left:?}");

    let part = Console::after(Script::healthy(), CLASSIC, 30);
    let says = "no findings in what is readable: block latency (eBPF) needs root";
    assert_eq!(line(&part).trim(), says);
    let left = summary(&part.analysis, &TimeZone::UTC);
    assert!(left[0].contains("no findings in what is readable at "), "{left:?}");
    assert_eq!(left[1], "   not checked: block latency (eBPF) needs root");
    assert!(part.text().contains("cov 6/7"), "{}", part.text());
}

#[test]
fn three_faults() {
    for size in [BIG, CLASSIC, SMALL, Size::new(160, 45)] {
        let c = Console::after(Script::three_faults(), size, 60);
        let buf = c.draw(Theme::default());
        insta::assert_snapshot!(format!("faults@{}x{}", size.w, size.h), styled(&buf));
    }
}

/// Every pane at every size, styles too.
#[test]
fn panes() {
    for (key, pane) in ('1'..).zip(PANES) {
        for (w, h) in [(40, 12), (80, 24), (120, 40), (200, 60)] {
            let script = Script::three_faults().with_bpf();
            let mut c = Console::after(script, Size::new(w, h), 60);
            let keys = format!("{key}{}", if key == '1' { "" } else { "z" });
            let buf = c.keys(&keys).draw(Theme::default());
            insta::assert_snapshot!(format!("pane-{}@{w}x{h}", pane.name()), styled(&buf));
        }
    }
}

/// The landing screen in each look, at each size.
#[test]
fn looks() {
    for (w, h) in [(40, 12), (80, 24), (120, 40), (200, 60)] {
        let c = Console::after(Script::three_faults(), Size::new(w, h), 60);
        for (name, theme) in [
            ("mono", theme(ColorMode::Mono, GlyphSet::Block)),
            ("ascii", theme(ColorMode::Mono, GlyphSet::Ascii)),
            ("light", Theme { palette: Palette::Light, ..Theme::default() }),
            ("contrast", Theme { palette: Palette::Contrast, ..Theme::default() }),
        ] {
            let shown = styled(&c.draw(theme));
            assert!(name != "light" || !shown.contains("Yellow"), "yellow on white");
            assert!(name != "contrast" || !shown.contains("DIM"), "nothing is dim");
            insta::assert_snapshot!(format!("look-{name}@{w}x{h}"), shown);
        }
    }
}

#[test]
fn mono_and_ascii() {
    let c = Console::after(Script::three_faults(), BIG, 60);
    let mono = c.draw(theme(ColorMode::Mono, GlyphSet::Block));
    insta::assert_snapshot!("faults-mono@120x36", styled(&mono));
    let ascii = text(&c.draw(theme(ColorMode::Mono, GlyphSet::Ascii)));
    assert!(ascii.is_ascii());
    insta::assert_snapshot!("faults-ascii@120x36", ascii);
}

#[test]
fn collecting() {
    let c = Console::new(Script::healthy(), CLASSIC);
    insta::assert_snapshot!("collecting@80x24", c.text());
}

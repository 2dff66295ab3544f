//! Whole screens as snapshots: text, then styles.

use stallscope::ui::{ColorMode, GlyphSet, Theme};
use stallscope::view::vm::Size;

use crate::support::{Console, Script, styled, text, theme};

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

#[test]
fn three_faults() {
    for size in [BIG, CLASSIC, SMALL, Size::new(160, 45)] {
        let c = Console::after(Script::three_faults(), size, 60);
        let buf = c.draw(Theme::default());
        insta::assert_snapshot!(format!("faults@{}x{}", size.w, size.h), styled(&buf));
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

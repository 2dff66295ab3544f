//! Pasted text, as far as the report.

#[path = "../../support/paste.rs"]
pub mod paste;

/// Any text, as text and as JSON. Nothing that a terminal obeys comes out.
pub fn text(data: &[u8]) {
    let out = paste::explain(data);
    for text in [out.text(), out.json()] {
        let bad = text.chars().find(|c| *c != '\n' && !stallscope::text::is_plain(*c));
        assert_eq!(bad, None, "{text:?}");
    }
}

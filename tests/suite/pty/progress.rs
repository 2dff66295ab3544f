//! What is seen of work that takes its time.

use crate::support::files::DEMO;
use crate::support::terminal::Session;

/// On a terminal a line counts, and it is gone when the answer comes.
#[test]
fn a_check_counts_until_its_answer_comes() {
    let args = ["check", "--no-bpf", "--duration", "1s", "--interval", "200ms"];
    let mut s = Session::start(200, 80, &[], &args);
    let (_, text) = s.rest();
    assert!(text.contains("checking this host: 0:01 of 0:01, "), "{text:?}");
    assert!(!s.text().contains("checking"), "{}", s.text());
    assert!(s.text().starts_with("stallscope check"), "{}", s.text());
}

/// On a terminal findings have a colour, long lines go on below their text, and commands are whole.
#[test]
fn findings_are_dressed_for_a_terminal() {
    let mut s = Session::start(200, 80, &[], &["check", DEMO]);
    let (_, text) = s.rest();
    let report = text.rsplit("\u{1b}[K").next().unwrap();
    assert!(report.contains("\u{1b}[1;33m!  "), "{report:?}");
    let shown = s.text();
    assert!(shown.lines().filter(|l| l.starts_with("      ")).count() > 3, "{shown}");
    let mut plain = Session::start(200, 80, &[("NO_COLOR", "1")], &["check", DEMO]);
    let (_, text) = plain.rest();
    assert!(!text.contains("\u{1b}[1"), "{text:?}");
    assert_eq!(plain.text(), shown, "the same words in the same places");
}

#[test]
fn a_check_of_a_recording_says_how_far_it_is() {
    let mut s = Session::start(24, 200, &[], &["check", DEMO]);
    let (_, text) = s.rest();
    assert!(text.contains("demo.stall: ") && text.contains(" ticks\u{1b}[K"), "{text:?}");
    assert!(!s.text().contains("checking"), "{}", s.text());
}

//! What a terminal sends, as far as keys.

use stallscope::ui::decode::{Decoder, Input, MAX_PASTE};
use stallscope::view::action::Key;

/// Any bytes, with a silence for each 0xFE, which no terminal sends. Whatever came, ^C is obeyed
/// at once, and a key after a silence.
pub fn bytes(data: &[u8]) {
    let mut d = Decoder::default();
    for burst in data.split(|b| *b == 0xfe) {
        let mut inputs = 0;
        d.feed(burst, &mut |i| {
            inputs += 1;
            check(&i);
        });
        assert!(inputs <= burst.len() + 2, "{inputs} of {} bytes", burst.len());
        d.idle(&mut |i| check(&i));
        assert!(!d.is_waiting());
    }
    let mut last = None;
    d.feed(b"q", &mut |i| last = Some(i));
    assert_eq!(last, Some(Input::Key(Key::Char('q'))));
    let mut d = Decoder::default();
    d.feed(data, &mut |_| {});
    d.feed(b"\x03", &mut |i| last = Some(i));
    assert_eq!(last, Some(Input::Key(Key::Ctrl('c'))));
}

fn check(i: &Input) {
    match i {
        Input::Key(Key::Char(c)) => assert!(!c.is_control(), "{c:?}"),
        // A byte that is no text becomes a character of three.
        Input::Paste(p) => assert!(p.lines > 0 && p.text.len() <= 3 * MAX_PASTE),
        _ => {}
    }
}

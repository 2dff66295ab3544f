//! What each sequence means; that fragments end, nothing is lost behind them, and nothing grows.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn key(k: Key) -> Input {
    Input::Key(k)
}

fn char(c: char) -> Input {
    key(Key::Char(c))
}

/// What comes of chunks of bytes with a silence behind each.
fn with_silence(chunks: &[&[u8]]) -> Vec<Input> {
    let mut d = Decoder::default();
    let mut out = Vec::new();
    for c in chunks {
        d.feed(c, &mut |i| out.push(i));
        d.idle(&mut |i| out.push(i));
        assert!(!d.is_waiting(), "one silence is enough: {c:?}");
    }
    out
}

/// The same without.
fn at_once(bytes: &[u8]) -> Vec<Input> {
    let mut d = Decoder::default();
    let mut out = Vec::new();
    d.feed(bytes, &mut |i| out.push(i));
    out
}

#[test]
fn every_key_that_is_bound_has_its_sequence() {
    let table: &[(&str, Key)] = &[
        ("\x1b[A", Key::Up),
        ("\x1bOA", Key::Up),
        ("\x1b[1;5A", Key::Up),
        ("\x1b[B", Key::Down),
        ("\x1b[C", Key::Right),
        ("\x1b[D", Key::Left),
        ("\x1b[H", Key::Home),
        ("\x1bOH", Key::Home),
        ("\x1b[1~", Key::Home),
        ("\x1b[7~", Key::Home),
        ("\x1b[F", Key::End),
        ("\x1b[4~", Key::End),
        ("\x1b[8~", Key::End),
        ("\x1b[3~", Key::Delete),
        ("\x1b[5~", Key::PageUp),
        ("\x1b[6;5~", Key::PageDown),
        ("\x1b[Z", Key::BackTab),
        ("\t", Key::Tab),
        ("\r", Key::Enter),
        ("\x7f", Key::Backspace),
        ("\x08", Key::Backspace),
        ("\x01", Key::Ctrl('a')),
        ("\x1a", Key::Ctrl('z')),
        ("\x0c", Key::Ctrl('l')),
        ("\x1b\x7f", Key::Ctrl('w')),
        ("\x1b[99;5u", Key::Ctrl('c')),
        ("\x1b[99;5:1u", Key::Ctrl('c')),
        ("\x1b[27;5;99~", Key::Ctrl('c')),
        ("\x1b[9;2u", Key::BackTab),
        ("\x1b[13u", Key::Enter),
        ("\x1b[97;2u", Key::Char('A')),
        ("q", Key::Char('q')),
        ("é", Key::Char('é')),
        ("日", Key::Char('日')),
        ("🐎", Key::Char('🐎')),
    ];
    for (bytes, want) in table {
        assert_eq!(at_once(bytes.as_bytes()), [key(*want)], "{bytes:?}");
        let every: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
        let mut d = Decoder::default();
        let mut out = Vec::new();
        for b in every {
            d.feed(b, &mut |i| out.push(i));
        }
        assert_eq!(out, [key(*want)], "{bytes:?} byte by byte");
    }
}

#[test]
fn what_means_nothing_here_leaves_nothing_behind() {
    for bytes in [
        "\x1b[I",
        "\x1b[O",
        "\x1bOP",
        "\x1b[15~",
        "\x1b[[A",
        "\x1b[?1;2c",
        "\x1b[?62;22u",
        "\x1b[>0;276;0c",
        "\x1b[24;80R",
        "\x1b[201~",
        "\x1b[99;5:3u",
        "\x1b[1;1:3A",
        "\x1b]11;rgb:1111/2222/3333\x07",
        "\x1b]11;rgb:1111/2222/3333\x1b\\",
        "\x1bP1$r0m\x1b\\",
        "\x1b_Gi=31;OK\x1b\\",
        "\x1b[<35;10;10M",
        "\x1b[<0;10;10m",
        "\x1b[<2;10;10M",
        "\x1b[M#!!",
        "\x1b[57414u",
        "\u{9b}",
    ] {
        let mut all = bytes.as_bytes().to_vec();
        all.push(b'q');
        assert_eq!(at_once(&all), [char('q')], "{bytes:?}");
    }
    let long = format!("\x1b[{}~q", "1;".repeat(1000));
    assert_eq!(at_once(long.as_bytes()), [char('q')]);
}

#[test]
fn the_mouse_is_understood_in_each_of_its_ways() {
    use Input::{Click, Wheel};
    for (bytes, want) in [
        (&b"\x1b[<0;10;3M"[..], Click(9, 2)),
        (b"\x1b[<16;10;3M", Click(9, 2)),
        (b"\x1b[<64;1;1M", Wheel(Step::Up)),
        (b"\x1b[<65;300;200M", Wheel(Step::Down)),
        (b"\x1b[M *#", Click(9, 2)),
        (b"\x1b[Ma!!", Wheel(Step::Down)),
        (b"\x1b[32;10;3M", Click(9, 2)),
        (b"\x1b[96;1;1M", Wheel(Step::Up)),
    ] {
        assert_eq!(at_once(bytes), [want], "{bytes:?}");
    }
    for bytes in [&b"\x1b[<0;0;0M"[..], b"\x1b[<0;99999999999;1M", b"\x1b[<M"] {
        assert_eq!(at_once(bytes), [], "no such place: {bytes:?}");
    }
}

const FRAGMENTS: &[&[u8]] = &[
    b"\x1b[",
    b"\x1b[?",
    b"\x1b[1",
    b"\x1b[1;",
    b"\x1b[<64;3",
    b"\x1b[M!",
    b"\x1b[[",
    b"\x1bO",
    b"\x1bO5",
    b"\x1b]0;t",
    b"\x1b]0;t\x1b",
    b"\x1bP",
    b"\xe2\x94",
    b"\x1b[200~",
];

#[test]
fn a_fragment_ends_with_a_silence_or_a_control_byte() {
    for f in FRAGMENTS {
        assert_eq!(with_silence(&[f, b"q"]), [char('q')], "{f:?} and a silence");
        let mut all = f.to_vec();
        all.extend(b"\x03");
        assert_eq!(at_once(&all), [key(Key::Ctrl('c'))], "{f:?} and ^C");
    }
    for f in FRAGMENTS.iter().filter(|f| !f.ends_with(b"~") && !f.starts_with(b"\x1b]")) {
        let mut all = f.to_vec();
        all.extend(b"\x1b[A\r");
        assert_eq!(at_once(&all), [key(Key::Up), key(Key::Enter)], "{f:?} and a sequence");
    }
}

#[test]
fn escape_is_a_key_after_a_silence_and_a_prefix_before() {
    let esc = key(Key::Esc);
    assert_eq!(with_silence(&[b"\x1b"]), std::slice::from_ref(&esc));
    assert_eq!(with_silence(&[b"\x1b", b"[A"]), [esc.clone(), char('['), char('A')]);
    assert_eq!(at_once(b"\x1b\x1b[A"), [esc.clone(), key(Key::Up)]);
    assert_eq!(at_once(b"\x1bq"), [esc.clone(), char('q')], "two keys in one packet");
    assert_eq!(at_once(b"\x1b\r"), [esc.clone(), key(Key::Enter)]);
    assert_eq!(at_once("\x1bé".as_bytes()), [esc, char('é')]);
}

#[test]
fn bytes_that_are_no_text_are_dropped() {
    assert_eq!(at_once(b"a\xff\xc0\x80b\xe2\x94c\xed\xa0\x80d"), ['a', 'b', 'c', 'd'].map(char));
    assert_eq!(at_once("\u{85}\u{9b}31m".as_bytes()), ['3', '1', 'm'].map(char));
}

fn paste(text: &str, lines: usize) -> Input {
    Input::Paste(Pasted { text: text.to_owned(), lines })
}

#[test]
fn a_paste_is_one_thing_whatever_is_in_it() {
    assert_eq!(with_silence(&[b"\x1b[200~w\rq\x1b[201~x"]), [paste("w\rq", 2), char('x')]);
    assert_eq!(with_silence(&[b"\x1b[200~\x1b[201~"]), [], "nothing was pasted");
    assert_eq!(with_silence(&[b"\x1b[200~a\r\nb\n\nc\r\x1b[201~"]), [paste("a\r\nb\n\nc\r", 4)]);
    assert_eq!(with_silence(&[b"\x1b[200~\x1b[20\x1b[2 \x1b[201~"]), [paste("\x1b[20\x1b[2 ", 1)]);
    assert_eq!(with_silence(&[b"\x1b[200~a\xffb\x1b[201~"]), [paste("a\u{fffd}b", 1)]);
    let two = b"\x1b[200~a\x1b[201~\x1b[200~b\x1b[201~";
    assert_eq!(with_silence(&[two]), [paste("a", 1), paste("b", 1)]);
}

/// A terminal that does not take the end out of what is pasted must not have us run the rest.
#[test]
fn the_end_of_a_paste_inside_of_it_does_not_end_it() {
    assert_eq!(with_silence(&[b"\x1b[200~a\x1b[201~w\x1b[201~"]), [paste("aw", 1)]);
    let mut d = Decoder::default();
    let mut out = Vec::new();
    d.feed(b"\x1b[200~a\x1b[201~", &mut |i| out.push(i));
    d.feed(b"q\r\x1b[201~", &mut |i| out.push(i));
    d.feed(b"q", &mut |i| out.push(i));
    assert_eq!(out, [], "without a pause nothing of it is a key");
    assert!(d.is_waiting());
    d.idle(&mut |i| out.push(i));
    assert_eq!(out, [paste("aq\r", 1), char('q')]);
    assert!(!d.is_waiting());
}

/// Wherever the terminal cuts the text into reads.
#[test]
fn an_end_that_was_pasted_ends_nothing_in_any_read() {
    let text = "a\x1b[201~q\rw\x1b[201~\x1b[200~r\x1b[20";
    let all = format!("\x1b[200~{text}\x1b[201~").into_bytes();
    for (first, second) in (0..all.len()).flat_map(|i| (i..all.len()).map(move |k| (i, k))) {
        let mut d = Decoder::default();
        let mut out = Vec::new();
        for part in [&all[..first], &all[first..second], &all[second..]] {
            d.feed(part, &mut |i| out.push(i));
        }
        d.idle(&mut |i| out.push(i));
        assert_eq!(out, [paste("aq\rw", 2), paste("r\x1b[20", 1)], "{first} {second}");
    }
}

/// Text without a pause is no keys, however much of it there is, and none of it is kept.
#[test]
fn a_flood_behind_an_end_is_part_of_the_paste() {
    let mut d = Decoder::default();
    let mut out = Vec::new();
    d.feed(b"\x1b[200~a\x1b[201~", &mut |i| out.push(i));
    for _ in 0..1000 {
        d.feed(b"q\rw\r", &mut |i| out.push(i));
        d.feed(b"qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", &mut |i| out.push(i));
    }
    assert_eq!(out, []);
    d.feed(b"\x03", &mut |i| out.push(i));
    assert_eq!(out, [key(Key::Ctrl('c'))]);
}

#[test]
fn ctrl_c_ends_a_paste_that_has_no_end() {
    assert_eq!(at_once(b"\x1b[200~text\x03q"), [key(Key::Ctrl('c')), char('q')]);
}

/// The link may be slow: a paste that stops goes on with the next burst. A key alone ends it.
#[test]
fn a_paste_that_stops_is_ended_by_a_key_and_not_by_more_text() {
    let begin = &b"\x1b[200~wr"[..];
    let q = [paste("wr", 1), char('q')];
    assert_eq!(with_silence(&[begin, b"wrq", b"q\x1b[201~"]), [paste("wrwrqq", 1)]);
    assert_eq!(with_silence(&[begin, b"w\r\x1b[2", b"01~"]), [paste("wrw\r", 1)]);
    assert_eq!(with_silence(&[begin, b"q"]), q);
    assert_eq!(with_silence(&[b"\x1b[200~wr\x1b[20", b"q"]), q);
    assert_eq!(with_silence(&[begin, b"\x1b[A"]), [paste("wr", 1), key(Key::Up)]);
    assert_eq!(with_silence(&[begin, b"\x1b"]), [paste("wr", 1), key(Key::Esc)]);
    assert_eq!(with_silence(&[begin, "é".as_bytes()]), [paste("wr", 1), char('é')]);
    assert_eq!(with_silence(&[begin, b"\x03"]), [paste("wr", 1), key(Key::Ctrl('c'))]);
}

#[test]
fn a_paste_of_any_length_takes_little_memory() {
    let mut d = Decoder::default();
    let mut out = Vec::new();
    d.feed(PASTE, &mut |i| out.push(i));
    for _ in 0..2560 {
        d.feed(&[b'w'; 4096], &mut |i| out.push(i));
        assert!(d.text.capacity() <= 2 * MAX_PASTE);
    }
    d.feed(PASTE_END, &mut |i| out.push(i));
    d.idle(&mut |i| out.push(i));
    assert_eq!(out, [paste(&"w".repeat(MAX_PASTE), 1)]);
}

/// Pieces of real input and of rubbish.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(FRAGMENTS).prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..6),
        Just(PASTE_END.to_vec()),
        "[ -~]{0,8}".prop_map(String::into_bytes),
        Just(b"\x1b[<64;10;10M".to_vec()),
        Just(vec![ESC]),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|p| p.concat())
}

proptest! {
    /// Without silences it does not matter how the bytes were read, but for the end of a paste
    /// inside of it, which is looked for in what was read at once.
    #[test]
    fn chunks_do_not_matter(bytes in input(), at in any::<prop::sample::Index>()) {
        let pastes = bytes.windows(PASTE_END.len()).filter(|w| *w == PASTE_END).count();
        if pastes > 1 {
            return Ok(());
        }
        let (a, b) = bytes.split_at(at.index(bytes.len() + 1));
        let mut d = Decoder::default();
        let mut out = Vec::new();
        d.feed(a, &mut |i| out.push(i));
        d.feed(b, &mut |i| out.push(i));
        prop_assert_eq!(out, at_once(&bytes));
    }

    /// Whatever came before: after at most one silence a key is a key.
    #[test]
    fn the_terminal_always_obeys(bytes in input(), k in prop::sample::select(&b"\x03q\r\x1a"[..])) {
        let mut d = Decoder::default();
        let mut last = None;
        d.feed(&bytes, &mut |_| {});
        d.idle(&mut |_| {});
        d.feed(&[k], &mut |i| last = Some(i));
        let want = at_once(&[k]).pop();
        prop_assert_eq!(last, want);
    }

    /// ^C needs no silence.
    #[test]
    fn ctrl_c_is_heard_everywhere(mut bytes in input()) {
        bytes.push(CTRL_C);
        prop_assert_eq!(at_once(&bytes).pop(), Some(key(Key::Ctrl('c'))));
    }

    #[test]
    fn nothing_grows(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let mut d = Decoder::default();
        let mut n = 0;
        d.feed(&bytes, &mut |_| n += 1);
        prop_assert!(n <= bytes.len() + 1);
        prop_assert!(d.sequence.len() <= MAX_SEQUENCE && d.text.len() <= MAX_PASTE);
    }
}

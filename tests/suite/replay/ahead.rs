//! Ticks that a thread makes before they are asked for are the ticks that are made when asked.

use std::io::Write as _;
use std::sync::OnceLock;

use stallscope::recording::Reader;

use crate::support::files::Dir;
use crate::support::long::{long, reader, record};

/// A tick, or why there is none.
fn told(r: &mut Reader, tick: u64) -> String {
    match r.tick(tick) {
        Ok(t) => serde_json::to_string(&*t).unwrap(),
        Err(e) => format!("no: {e}"),
    }
}

/// The same ticks from both, and the same damage afterwards.
#[track_caller]
fn compare(bytes: &[u8], ticks: impl Iterator<Item = u64>) {
    let (mut plain, mut ahead) = (reader(bytes), reader(bytes));
    ahead.read_ahead();
    for t in ticks {
        let (have, want) = (told(&mut ahead, t), told(&mut plain, t));
        assert!(have == want, "tick {t}");
    }
    assert!(plain.damage().eq(ahead.damage()));
}

/// Three groups and a bit.
fn sample() -> &'static [u8] {
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let (made, ticks) = long();
        record(&made.host, &ticks[300..500]).bytes
    })
}

#[test]
fn tick_by_tick_and_back_and_forth() {
    let bytes = sample();
    compare(bytes, 0..203);
    compare(bytes, (0..130).rev());
    compare(bytes, (50..70).rev().chain(52..75).chain((40..73).rev()));
    // Steps, the same once more, over the edge of a group, away while the next one is made.
    let walk = [57, 58, 59, 60, 61, 61, 62, 61, 62, 63, 7, 8, 9, 10, 65, 66, 11, 12, 13, 14, 13];
    compare(bytes, walk.into_iter().chain([119, 120, 121, 122, 300, 123, 124, 124, 199, 200]));
}

#[test]
fn over_damage() {
    let bytes = sample();
    let mut hurt = 0;
    for at in [bytes.len() / 4, bytes.len() * 2 / 3] {
        let mut bytes = bytes.to_vec();
        bytes[at..at + 40].fill(0x5a);
        let mut r = reader(&bytes);
        let from = (0..r.len()).find(|t| r.tick(*t).is_err());
        hurt += u64::from(from.is_some());
        let from = from.unwrap_or(0);
        compare(&bytes, (from.saturating_sub(9)..from + 9).chain(from + 50..from + 70));
        compare(&bytes, (from.saturating_sub(9)..from + 70).rev());
    }
    assert!(hurt == 2, "{hurt} files were damaged where their ticks are");
}

#[test]
fn what_comes_later_is_read_then() {
    let bytes = sample();
    let mut whole = reader(bytes);
    let dir = Dir::new();
    let path = dir.file("growing.stall");
    let mut file = std::fs::File::create(&path).unwrap();
    let (mut n, mut written) = (0, bytes.len() / 3);
    file.write_all(&bytes[..written]).unwrap();
    let mut r = Reader::file(&path).unwrap();
    r.read_ahead();
    let mut grown = 0;
    loop {
        while n < r.len() {
            assert!(told(&mut r, n) == told(&mut whole, n), "tick {n}");
            n += 1;
        }
        assert!(r.tick(n).is_err());
        let more = (bytes.len() - written).min(5000);
        if more == 0 {
            break;
        }
        file.write_all(&bytes[written..written + more]).unwrap();
        written += more;
        grown += u64::from(r.refresh().unwrap());
    }
    assert_eq!(n, 200);
    assert!(grown > 5, "{grown}");
}

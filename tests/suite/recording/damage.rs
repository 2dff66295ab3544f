//! Cut and flipped files: what is whole stays readable, and says what is lost.
//!
//! 1,000 random cuts (and one at the end of every block) and 1,000 flipped bits. Each file is
//! opened and read; every tick of it is compared with the original in one cut of sixteen and
//! one flip of ten, which is what a debug build does in some seconds. In all of them:
//! `STALLSCOPE_DAMAGE=full cargo test --release --test suite recording::damage`. The kills of a
//! live recorder are in `tests/suite/record/kill.rs` (`STALLSCOPE_KILLS=1000`).

use stallscope::playback::player::{Next, Origin, Player};
use stallscope::recording::ReadError;
use stallscope::recording::file::format::{BlockHeader, HEADER, Kind};
use stallscope::sample::time::Seq;

use crate::support::dice::Dice;
use crate::support::files::Dir;
use crate::support::recordings::{open, readable, readable_texts, recording, script, text};
use crate::support::script::Script;

/// A small box: it is read a thousand times.
fn small() -> Script {
    Script { connections: 1, ..Script::healthy() }
}

/// Is this one of the trials whose ticks are all compared?
fn in_full(trial: usize, one_of: usize) -> bool {
    trial.is_multiple_of(one_of) || std::env::var("STALLSCOPE_DAMAGE").is_ok_and(|v| v == "full")
}

/// Offsets of all blocks, and the end.
fn boundaries(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut out) = (0, vec![0]);
    while let Ok(h) = BlockHeader::parse(&bytes[at..]) {
        at += h.total() as usize;
        out.push(at);
    }
    out
}

/// Whole ticks before `cut`.
fn ticks_before(bytes: &[u8], cut: usize) -> u64 {
    let starts = boundaries(bytes);
    let whole = starts.windows(2).filter(|w| w[1] <= cut);
    whole.filter(|w| BlockHeader::parse(&bytes[w[0]..]).unwrap().kind.is_tick()).count() as u64
}

#[test]
fn cut_anywhere_the_ticks_before_it_open() {
    let (bytes, all) = recording(&small(), 140, true);
    let all: Vec<String> = all.iter().map(text).collect();
    let mut dice = Dice(11);
    let random = (0..1000).map(|_| dice.below(bytes.len() as u64) as usize);
    for cut in boundaries(&bytes).into_iter().chain(random) {
        let whole = ticks_before(&bytes, cut);
        match open(bytes[..cut].to_vec()) {
            Ok(mut r) => {
                assert_eq!(r.len(), whole, "cut at {cut}");
                if in_full(cut, 16) {
                    assert_eq!(readable_texts(&mut r, &all).len() as u64, whole);
                } else if let Some(last) = whole.checked_sub(1) {
                    assert_eq!(r.tick(last).unwrap().seq.0, last);
                }
                assert_eq!(r.damage().count(), 0, "a torn end is no damage");
                assert!(r.resume().offset <= cut as u64);
            }
            Err(ReadError::Empty) => assert_eq!(cut, 0),
            Err(ReadError::Truncated) => assert!(whole == 0 && cut < boundaries(&bytes)[1]),
            Err(e) => panic!("cut at {cut}: {e}"),
        }
    }
}

#[test]
fn a_flipped_bit_costs_one_group_at_most() {
    let (bytes, all) = recording(&small(), 200, true);
    let all: Vec<String> = all.iter().map(text).collect();
    let mut dice = Dice(5);
    let mut worst = 0;
    for trial in 0..1000 {
        let bit = dice.below(bytes.len() as u64 * 8);
        let mut hurt = bytes.clone();
        hurt[bit as usize / 8] ^= 1 << (bit % 8);
        let mut r = open(hurt).unwrap_or_else(|e| panic!("bit {bit}: {e}"));
        let have = if in_full(trial, 10) {
            readable_texts(&mut r, &all)
        } else {
            // The ends of all groups: to get there every block of them is read.
            let ends: Vec<u64> =
                (0..r.len()).filter(|i| i % 60 == 59 || i + 1 == r.len()).collect();
            let good = ends.iter().filter(|i| r.tick(**i).is_ok()).count();
            assert!(good + 1 >= 4.min(ends.len()), "bit {bit}: {good} of {ends:?}");
            continue;
        };
        let lost = 200 - have.len();
        worst = worst.max(lost);
        let groups: std::collections::BTreeSet<u64> =
            (0..200).filter(|n| !have.contains(n)).map(|n| n / 60).collect();
        assert!(groups.len() <= 1, "bit {bit}: ticks of groups {groups:?} are lost");
        assert!(lost == 0 || r.damage().count() > 0, "bit {bit}: {lost} ticks lost in silence");
        assert_eq!(r.host(), small().host(), "bit {bit}");
    }
    assert!(worst <= 60);
}

#[test]
fn a_hole_of_zeros_is_damage_and_what_follows_is_read() {
    let (bytes, all) = recording(&script(), 200, false);
    let starts = boundaries(&bytes);
    let (from, to) = (starts[80] + 100, starts[85] + 7);
    let mut hurt = bytes.clone();
    hurt[from..to].fill(0);
    // Found by the chain of indexes: seen when it is read.
    let mut r = open(hurt.clone()).unwrap();
    let have = readable(&mut r, &all);
    assert_eq!(
        have.len(),
        200 - have.iter().fold(40, |n, i| if (60..120).contains(i) { n - 1 } else { n }) - 20
    );
    assert!(r.damage().count() > 0);
    // Cut out: every block behind it has moved.
    hurt.drain(from..to);
    let mut r = open(hurt).unwrap();
    let have = readable(&mut r, &all);
    assert!(have.contains(&59) && have.contains(&120) && have.contains(&199), "{have:?}");
    assert!(r.damage().count() > 0);
}

#[test]
fn a_first_block_that_is_gone_costs_no_tick() {
    let (bytes, all) = recording(&script(), 70, true);
    let first = boundaries(&bytes)[1];
    for hurt in [bytes[first..].to_vec(), [vec![0; first], bytes[first..].to_vec()].concat()] {
        let mut r = open(hurt).unwrap();
        assert_eq!(readable(&mut r, &all).len(), 70);
        assert_eq!(r.host(), script().host(), "the keyframes know it, too");
    }
}

/// A console shows what is next to the place where it begins, not nothing at all.
#[test]
fn a_replay_that_begins_in_a_damaged_group_begins_beside_it() {
    let (bytes, _) = recording(&small(), 200, true);
    let dir = Dir::new();
    let path = dir.file("x.stall");
    // Groups of 60 whose keyframes are hurt; where it begins, and what it shows.
    for (hurt, tick, near) in [
        (&[][..], 0, Some(0)),
        (&[0], 0, Some(60)),
        (&[0, 1], 30, Some(120)),
        (&[3], 199, Some(179)),
        (&[1, 2], 130, Some(59)),
        (&[0, 1, 2, 3], 199, None),
    ] {
        let mut file = bytes.clone();
        let starts = boundaries(&bytes).into_iter();
        let keys = starts
            .filter(|at| BlockHeader::parse(&bytes[*at..]).is_ok_and(|h| h.kind == Kind::Keyframe));
        for (_, at) in keys.enumerate().filter(|(group, _)| hurt.contains(group)) {
            file[at + HEADER + 10] ^= 1;
        }
        std::fs::write(&path, file).unwrap();
        let mut player = Player::open(Origin::File(path.clone()), false).unwrap();
        let shown = player.glance(tick).and_then(|(run, _)| Some(run.latest()?.tick.seq.0));
        assert_eq!(shown, near, "{hurt:?}");
    }
}

/// A long hole is passed over in steps: whoever plays can do something else in between.
#[test]
fn a_long_hole_is_passed_over_some_ticks_at_a_time() {
    let dir = Dir::new();
    let path = dir.file("hole.stall");
    let (mut file, all) = recording(&small(), 400, true);
    let is_key =
        |at: &usize| BlockHeader::parse(&file[*at..]).is_ok_and(|h| h.kind == Kind::Keyframe);
    let keys: Vec<usize> = boundaries(&file).into_iter().filter(is_key).collect();
    // All groups but the first and the last.
    for at in &keys[1..keys.len() - 1] {
        file[at + HEADER + 10] ^= 1;
    }
    std::fs::write(&path, file).unwrap();
    let mut player = Player::open(Origin::File(path), false).unwrap();
    let mut later = 0;
    let tick = loop {
        match player.next(Seq(59)) {
            Next::Later => later += 1,
            Next::Tick(t) => break t,
            Next::Segment(..) | Next::End => panic!("the same run goes on"),
        }
    };
    let lost = keys.len() as u64 * 60 - 120;
    assert_eq!((tick.seq.0, later), (60 + lost, lost / 65));
    assert_eq!(u64::from(tick.gap.unwrap().ticks), lost);
    assert_eq!(tick.mono, all[tick.seq.0 as usize].mono);
}

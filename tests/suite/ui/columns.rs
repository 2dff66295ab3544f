//! Two columns where the screen is wide: nothing is lost by it, and a narrow screen has one.

use std::collections::{BTreeMap, BTreeSet};

use stallscope::diagnose::culprit::{Culprit, Resource, Share};
use stallscope::diagnose::{
    Fire, Hold, Kind, Rule, RuledOut, Severity, Thresholds, Verdicts, Window,
};
use stallscope::sample::subject::Subject;
use stallscope::view::action::Effect;
use stallscope::view::overlay::help_lines;
use stallscope::view::panes::PANES;
use stallscope::view::text::clean;
use stallscope::view::vm::{Line, Node, Piece, Size, Tone, to_text};

use crate::support::console::Console;
use crate::support::rules::doc;
use crate::support::script::Script;

const BIG: Size = Size::new(120, 36);
const CLASSIC: Size = Size::new(80, 24);

/// The row that has `part` in it.
fn row<'a>(text: &'a str, part: &str) -> &'a str {
    text.lines().find(|l| l.contains(part)).unwrap_or_else(|| panic!("no `{part}` in\n{text}"))
}

const NEXT: &str = " next  y copies the first";

#[test]
fn who_and_what_to_type_stand_beside_each_other_where_there_is_room() {
    for (w, beside) in [(80, false), (109, false), (110, true), (120, true), (200, true)] {
        let mut c = Console::after(Script::three_faults(), Size::new(w, 36), 60);
        let t = c.keys("f<enter>").text();
        let head = row(&t, NEXT);
        assert_eq!(head.starts_with(" by  "), beside, "{w} columns:\n{t}");
        assert_eq!(head == NEXT, !beside, "{w} columns:\n{t}");
        let (who, command) = (row(&t, "loop"), row(&t, "ip route get 10.0.3.7 from 10.0.3.2"));
        assert_eq!(who == command, beside, "{w} columns:\n{t}");
        assert!(row(&t, " evidence ").starts_with(" evidence "), "{w} columns:\n{t}");
    }
}

#[test]
fn what_is_copied_or_written_stands_alone() {
    for size in [CLASSIC, BIG] {
        let mut c = Console::after(Script::three_faults(), size, 60);
        c.keys("f<enter>y");
        let command = "ip route get 10.0.3.7 from 10.0.3.2";
        let copied = c.effects.last();
        assert!(matches!(copied, Some(Effect::Copy(t)) if t == command), "{copied:?}");
        c.keys("w");
        let Some(Effect::Save { text, .. }) = c.effects.last() else { panic!("nothing written") };
        assert!(text.lines().any(|l| l.trim() == command), "{text}");
    }
}

/// One command, with a word of 70 columns.
static PATH: &[&Rule] = &[&Rule {
    doc: &const { doc("path", Hold::events(3)) },
    kind: Kind::Rule,
    needs: &[],
    explains: &[],
    check: path,
}];

fn path(_: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let mut f = Fire::new(Severity::Warn, "a path is long");
    f.by.push(culprit("fio"));
    f.next.push(format!("cat /{}", "x".repeat(69)));
    out.fire(Subject::Host, f);
}

fn culprit(comm: &str) -> Culprit {
    let share = Share::new(61.0, 100.0, Resource::AllCpus).unwrap();
    Culprit::process(7, Some(comm.to_owned()), None, share)
}

#[test]
fn a_command_is_not_cut_in_two_to_stand_beside_something() {
    for (w, beside) in [(120, false), (160, true)] {
        let mut c = Console::with(Script::healthy(), Size::new(w, 36), PATH);
        let t = c.ticks(10).keys("f<enter>").text();
        assert_eq!(row(&t, NEXT).starts_with(" by  "), beside, "{w} columns:\n{t}");
        assert!(t.contains(&format!(" cat /{}\n", "x".repeat(69))), "{w} columns:\n{t}");
    }
}

/// Says something else with each tick: none to some of everything, of one word to many.
static TALK: &[&Rule] = &[&Rule {
    doc: &const { doc("talk", Hold::events(3)) },
    kind: Kind::Rule,
    needs: &[],
    explains: &[],
    check: talk,
}];

fn talk(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let n = w.tick.seq.0 as usize;
    let words = |what: &str, k: usize| {
        let word = |i| format!("{what}{k}.{i}{}", "\u{6570}".repeat((i * 7 + n) % 5));
        (0..=((n * 3 + k * 5) % 14)).map(word).collect::<Vec<_>>().join(" ")
    };
    let mut f = Fire::new(Severity::Warn, "there is much to say");
    f.by.extend((0..n / 3 % 3).map(|k| culprit(&words("by", k))));
    f.next.extend((0..n % 4).map(|k| words("next", k)));
    f.missing.extend((0..n / 5 % 3).map(|k| words("missing", k)));
    f.ruled_out.extend((0..n / 2 % 4).map(|k| RuledOut::new("look-alike", words("not", k))));
    out.fire(Subject::Host, f);
}

/// How often each word occurs.
fn words<'a>(texts: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut out = BTreeMap::new();
    for word in texts.into_iter().flat_map(str::split_whitespace) {
        *out.entry(word).or_insert(0) += 1;
    }
    out
}

#[test]
fn no_word_is_lost_at_any_width() {
    let mut c = Console::with(Script::healthy(), CLASSIC, TALK);
    c.ticks(5).keys("f<enter>");
    let mut shared = 0;
    for n in 5..65 {
        c.ticks(1);
        let fire = c.analysis.latest().unwrap().findings.active[0].fire.clone();
        let mut said: Vec<String> = fire.by.iter().map(ToString::to_string).collect();
        said.extend(fire.next.iter().chain(&fire.missing).cloned());
        said.extend(fire.ruled_out.iter().map(|r| format!("{}: {}", r.rule, r.because)));
        let said: Vec<String> = said.iter().map(|s| clean(s).into_owned()).collect();
        let want = words(said.iter().map(String::as_str));
        for w in [80, 109, 110, 120, 160, 220] {
            c.size = Size::new(w, 200);
            let t = c.text();
            let seen = words([t.as_str()]);
            for (word, times) in &want {
                let found = seen.get(word).copied().unwrap_or(0);
                assert!(found >= *times, "tick {n}, {w} columns: `{word}` is lost in\n{t}");
            }
            let both = |l: &str| l.starts_with(" cannot tell ") && l.ends_with(" ruled out");
            shared += usize::from(t.lines().any(|l| l.starts_with(" by ") || both(l)));
        }
    }
    assert!(shared > 20, "two columns in {shared} pages only");
}

/// Lines of the overlay, which is drawn last.
fn overlay(c: &Console) -> Vec<Line> {
    let last = c.vm().nodes.pop();
    let Some((_, Node::Lines(lines))) = last else { panic!("no overlay: {last:?}") };
    lines
}

#[test]
fn the_help_has_two_columns_where_one_is_too_high_for_a_wide_screen() {
    let beside = |c: &Console| {
        let t = to_text(&overlay(c), 0);
        let help = "go to the sockets; again: zoom";
        !row(&t, help).ends_with(help)
    };
    for (w, h, two) in [(80, 24, false), (119, 36, false), (120, 36, true), (200, 50, true)] {
        let mut c = Console::after(Script::healthy(), Size::new(w, h), 5);
        assert_eq!(beside(c.keys("?")), two, "{w}x{h}:\n{}", c.text());
        assert!(!beside(c.keys("/")), "a search has one column");
        assert!(row(&c.keys("zoom").text(), "zoom the pane").contains("or show all panes"));
    }
    let mut c = Console::after(Script::healthy(), Size::new(200, 300), 5);
    assert!(!beside(c.keys("?")), "all of it fits");
}

#[test]
fn no_word_of_the_help_is_lost_in_two_columns() {
    for (w, h) in [(120, 36), (120, 24), (160, 36), (240, 40)] {
        let mut c = Console::after(Script::healthy(), Size::new(w, h), 5);
        let all = to_text(&help_lines(&c.view), 0);
        c.keys("?");
        let mut seen = BTreeSet::new();
        // To the end, and not beyond it.
        for _ in 0..all.lines().count() {
            seen.extend(c.text().split_whitespace().map(str::to_owned));
            c.keys("j");
        }
        let lost: Vec<_> = all.split_whitespace().filter(|word| !seen.contains(*word)).collect();
        assert!(lost.is_empty(), "{w}x{h}: {lost:?}");
    }
}

/// A title at the end of the left column would belong to what is at the top of the right one.
#[test]
fn a_heading_of_the_help_stands_above_something() {
    let tone = |l: &Line| match l.left.first() {
        Some(Piece::Text(_, tone)) => *tone,
        _ => Tone::Plain,
    };
    for n in 1..=PANES.len() {
        for w in [120, 140, 160] {
            let mut c = Console::after(Script::healthy(), BIG, 5);
            c.keys(&n.to_string());
            // One line too low for one column, so that all of it is there in two.
            c.size = Size::new(w, help_lines(&c.view).len() as u16 + 2);
            let lines = overlay(c.keys("?"));
            let below = lines.iter().skip(1).map(tone).chain([Tone::Plain]);
            for (line, below) in lines.iter().zip(below) {
                let is_bare = tone(line) == Tone::Accent && below == Tone::Plain;
                assert!(!is_bare, "pane {n}, {w} columns:\n{}", to_text(&lines, 0));
            }
        }
    }
}

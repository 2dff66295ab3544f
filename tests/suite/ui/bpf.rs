//! Screens with eBPF samples, without them, and with the reasons why not.

use stallscope::ui::{ColorMode, GlyphSet, Theme};
use stallscope::view::vm::Size;

use crate::support::console::{Console, styled, text, theme};
use crate::support::script::Script;

const BIG: Size = Size::new(120, 36);
const CLASSIC: Size = Size::new(80, 24);

fn sick(size: Size) -> Console {
    Console::after(Script::three_faults().with_bpf(), size, 60)
}

#[test]
fn overview() {
    let c = sick(BIG);
    insta::assert_snapshot!("bpf@120x36", styled(&c.draw(Theme::default())));
    let ascii = text(&c.draw(theme(ColorMode::Mono, GlyphSet::Ascii)));
    assert!(ascii.is_ascii());
    insta::assert_snapshot!("bpf-ascii@120x36", ascii);
}

#[test]
fn every_pane_alone() {
    for (key, name) in [("2", "disks"), ("3", "softirq"), ("4", "runq"), ("5", "events")] {
        let mut c = sick(CLASSIC);
        insta::assert_snapshot!(format!("bpf-{name}@80x24"), c.keys(key).text());
        let mut c = sick(BIG);
        insta::assert_snapshot!(format!("bpf-{name}@120x36"), c.keys(key).keys("z").text());
    }
}

#[test]
fn details() {
    for (keys, name) in [
        ("2/vdb<enter><enter>", "disk"),
        ("3<enter>", "cpu"),
        ("4<enter>", "thread"),
        ("5<enter>", "event"),
    ] {
        let mut c = sick(BIG);
        insta::assert_snapshot!(format!("bpf-detail-{name}@120x36"), c.keys(keys).text());
    }
}

/// Without eBPF each pane shows what it showed before, and says why there is no more.
#[test]
fn off_says_why_and_the_fallback_stays() {
    let why = "not permitted to load eBPF: no CAP_BPF";
    let mut c = Console::after(Script::three_faults().without_bpf(why), BIG, 60);
    let t = c.text();
    for note in ["schedstat 0.1s", "softirqs 0.1s", "diskstats 0.1s"] {
        assert!(t.contains(note), "{note}:\n{t}");
    }
    assert!(!t.contains("eBPF") && !t.contains("q/dev"), "{t}");
    for keys in ["4z", "2<enter>", "<esc>3<enter>", "<esc>5"] {
        let t = c.keys(keys).text();
        assert!(t.contains(why), "{keys}:\n{t}");
    }
    insta::assert_snapshot!("bpf-off-events@120x36", c.text());
    c.keys("4");
    insta::assert_snapshot!("bpf-off-runq@120x36", c.text());
}

/// Run-queue waits, where the kernel has no stamps, come from wakeups; the pane says so.
#[test]
fn the_tier_is_named() {
    let mut c = sick(BIG);
    assert!(c.text().contains(" eBPF 0.1s"));
    c.script.wakeups = true;
    // The counters begin anew: the first tick has no figure.
    c.ticks(2);
    assert!(c.text().contains("eBPF wakeups 0.1s"), "{}", c.text());
}

/// Where a part of the softirqs stands for all, the CPU says how many that are.
#[test]
fn the_part_that_is_timed_is_told() {
    let mut c = Console::after(Script { often: true, ..Script::healthy() }.with_bpf(), CLASSIC, 30);
    let t = c.keys("3<enter>").text().clone();
    // 20,310 of 90,310 a second; the 310 take 6.5 us each: 7.2 and 0.2 %.
    let line = t.lines().find(|l| l.contains("NET_RX") && l.contains("of core")).unwrap();
    assert!(line.contains(" 7.4% of core  90.3k/s"), "{line}");
    let line = t.lines().find(|l| l.contains("timed")).unwrap();
    assert!(line.contains("NET_RX") && line.contains(" 22% of the runs, sampled"), "{line}");
    c.script.often = false;
    c.ticks(2);
    assert!(!c.text().contains("runs, sampled"), "{}", c.text());
}

/// A healthy box has no event, and says that it looked.
#[test]
fn no_event_is_said_so() {
    let mut c = Console::after(Script { drops: false, ..Script::healthy() }.with_bpf(), BIG, 30);
    let t = c.keys("5").text();
    assert!(t.contains("no event in the last 29s"), "{t}");
    assert!(t.contains("drops 0/s"), "{t}");
}

/// Sorting, filtering by fields of a connection, and the way on to the socket.
#[test]
fn events_are_a_list_like_any_other() {
    let mut c = sick(BIG);
    let t = c.keys("5/dport:3306 event:retransmit<enter>").text();
    assert!(t.contains("2 of 5") && !t.contains("NO_SOCKET in"), "{t}");
    let t = c.keys("<enter>").text();
    assert!(t.contains("retransmit  10.0.3.2:51322 > 10.0.3.7:3306"), "{t}");
    let t = c.keys("<enter>").text();
    assert!(t.contains("where is the packet?"), "{t}");
    c.keys("<esc><esc>/").keys("<c-u><enter>sss");
    assert!(c.text().contains("by total"), "{}", c.text());
}

/// Going back in time shows the events of then.
#[test]
fn the_past_has_its_own_figures() {
    let mut c = sick(BIG);
    c.keys("5").keys(&"<lt>".repeat(5));
    let t = c.text();
    assert!(!t.contains("51322") && t.contains("NO_SOCKET"), "{t}");
    c.keys("4z");
    assert!(c.text().contains("max 90us") || c.text().contains("max 92us"), "{}", c.text());
}

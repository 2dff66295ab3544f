//! Small screens, hostile names, missing collectors, many sockets.

use proptest::prelude::*;
use stallscope::sample::CollectorId;
use stallscope::ui::{ColorMode, GlyphSet};
use stallscope::view::panes::PANES;
use stallscope::view::text::width;
use stallscope::view::vm::Size;

use crate::support::console::{Console, text, theme};
use crate::support::script::Script;

const SIZES: [(u16, u16); 4] = [(1, 1), (40, 12), (80, 24), (200, 60)];

#[test]
fn every_pane_renders_at_every_size_zoomed_or_not() {
    for (i, p) in PANES.iter().enumerate() {
        for (w, h) in SIZES {
            let mut c = Console::after(Script::three_faults(), Size::new(w, h), 40);
            c.keys(&format!("{}", i + 1));
            let _ = c.text();
            c.keys("z");
            let t = c.text();
            if w >= 40 {
                assert!(t.contains(p.heading()), "{} at {w}x{h}:\n{t}", p.heading());
            }
            c.keys("<enter>");
            let _ = c.text();
        }
    }
}

#[test]
fn panes_have_unique_kebab_case_names_and_columns() {
    let mut names: Vec<_> = PANES.iter().map(|p| p.name()).collect();
    let n = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n);
    for p in PANES {
        assert!(p.name().chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        let columns = p.columns();
        let mut keys: Vec<_> = columns.iter().map(|c| c.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), columns.len(), "{}", p.name());
        assert!(columns.iter().all(|c| !c.help.is_empty()), "{}", p.name());
        assert!(columns.iter().any(|c| c.priority == 0), "{}", p.name());
    }
}

/// Whatever the size, the worst finding is on it.
#[test]
fn the_finding_is_seen_on_the_smallest_screens() {
    for h in 1..40 {
        let c = Console::after(Script::three_faults(), Size::new(30, h), 60);
        let t = c.text();
        assert!(t.contains("!! "), "30x{h}:\n{t}");
    }
    let whole = Script::healthy().with_bpf();
    let t = Console::after(whole, Size::new(20, 1), 5).text();
    assert_eq!(t.trim(), "no findings");
    let t = Console::after(Script::healthy(), Size::new(20, 1), 5).text();
    assert!(t.starts_with(" no findings, 1 unr"), "{t}");
}

#[test]
fn a_collector_that_is_off_says_why() {
    let off = [
        (CollectorId::Sockets, 1),
        (CollectorId::Disks, 2),
        (CollectorId::Softirq, 3),
        (CollectorId::Sched, 4),
        (CollectorId::NetBpf, 5),
    ];
    let script = Script {
        off: vec![
            (CollectorId::NetBpf, "no CAP_BPF"),
            (CollectorId::Sockets, "netlink refused"),
            (CollectorId::Disks, "no /proc/diskstats"),
            (CollectorId::Softirq, "no /proc/softirqs"),
            (CollectorId::Cpu, "no /proc/stat"),
            (CollectorId::Sched, "no schedstat"),
        ],
        ..Script::healthy()
    };
    let mut c = Console::after(script, Size::new(80, 24), 5);
    for (id, key) in off {
        c.keys(&key.to_string());
        let reason = c.script.off.iter().find(|o| o.0 == id).unwrap().1;
        let t = c.text();
        assert!(t.contains(&format!("off: {reason} (run as root)")), "{t}");
    }
}

/// The borders of the overview stand in one column whatever stands between them.
fn assert_aligned(t: &str, w: usize) {
    for (y, line) in t.lines().enumerate() {
        // Where a column goes on, another one may end.
        if line.starts_with('│') {
            assert_eq!(width(line), w, "row {y}: {line}");
            assert!(line.ends_with(['│', '┐', '┘']), "row {y}: {line}");
        }
    }
}

const HOSTILE: &[&str] = &[
    "java",
    "\x1b[2J\x1b[31mred",
    "a\nb\tc\r",
    "\u{202e}gnp.exe\u{2066}",
    "数据库服务器进程",
    "👨‍👩‍👧‍👦 family",
    "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
    "עברית وعربي",
    "\u{feff}\u{200b}\u{ad}",
    "",
    "\u{9b}31m\u{90}q",
];

#[test]
fn hostile_names_neither_escape_nor_shift() {
    for name in HOSTILE {
        for glyphs in [GlyphSet::Block, GlyphSet::Ascii, GlyphSet::Braille] {
            let script = Script { name, ..Script::three_faults() }.with_bpf();
            let mut c = Console::after(script, Size::new(120, 36), 40);
            for keys in [
                "",
                "4",
                "z<enter>",
                "<esc><esc>1/java<enter>",
                "f<enter>",
                "5",
                "jj<enter>",
                "<esc>4G<enter>",
            ] {
                c.keys(keys);
                let buf = c.draw(theme(ColorMode::Named, glyphs));
                for cell in buf.content() {
                    assert!(!cell.symbol().chars().any(char::is_control), "{name:?}");
                    if glyphs == GlyphSet::Ascii {
                        assert!(cell.symbol().is_ascii(), "{:?}", cell.symbol());
                    }
                }
                if keys.is_empty() && glyphs == GlyphSet::Block {
                    assert_aligned(&text(&buf), 120);
                }
            }
        }
    }
}

/// 12k sockets: what is shown is the same as with a few, and the worst are on top.
#[test]
fn many_sockets_do_not_hide_the_sick_ones() {
    let script = Script { connections: 12_000, ..Script::three_faults() };
    let c = Console::after(script, Size::new(120, 36), 30);
    let t = c.text();
    assert!(t.contains("12,005"), "{t}");
    let first = t.lines().find(|l| l.contains("!! ES")).unwrap();
    assert!(first.contains("3306"));
    assert!(c.vm().visible.len() < 30, "only what is on the screen is asked for");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_size_and_any_keys(
        w in 1u16..300,
        h in 1u16..100,
        keys in "[jkgGszSc12345fwy?/ \\[\\]{}0a-e]{0,12}",
        esc in prop::sample::select(vec!["", "<esc>", "<enter>", "<tab>", "<lt>", "<pgdn>", "<c-d>"]),
        healthy: bool,
        bpf: bool,
    ) {
        let script = if healthy { Script::healthy() } else { Script::three_faults() };
        let script = if bpf { script.with_bpf() } else { script };
        let mut c = Console::after(script, Size::new(w, h), 25);
        c.keys(&keys).keys(esc).ticks(2);
        let vm = c.vm();
        for (a, _) in &vm.nodes {
            prop_assert!(a.x + a.w <= w && a.y + a.h <= h);
        }
        let buf = c.draw(theme(ColorMode::Mono, GlyphSet::Block));
        prop_assert!(buf.content().iter().all(|c| !c.symbol().chars().any(char::is_control)));
        if let Some((x, y)) = vm.cursor {
            prop_assert!(x < w && y < h);
        }
    }
}

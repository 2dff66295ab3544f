//! Text that went through terminals, mail, chats and locales; garbage; limits.

use proptest::prelude::*;

use crate::support::fuzz::explain::paste::{all, captured, explain, vector};

/// Every line broken after `width` characters, as terminals do.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let chars: Vec<char> = line.chars().collect();
        if chars.is_empty() {
            out.push('\n');
        }
        for part in chars.chunks(width) {
            out.extend(part);
            out.push('\n');
        }
    }
    out
}

/// Only ss lines are put together again; tables lose their columns when wrapped.
fn of_sockets() -> Vec<(String, String)> {
    all()
        .into_iter()
        .filter(|(n, _)| !n.starts_with('v') || n.starts_with("v1b") || n.starts_with("v1-"))
        .map(|(n, t)| (n, String::from_utf8(t).unwrap()))
        .filter(|(_, t)| t.contains("skmem:"))
        .collect()
}

#[test]
fn wrapped_lines_are_put_together() {
    for (name, text) in of_sockets() {
        let want = explain(text.as_bytes()).fired();
        for width in [72, 80, 81, 93, 100, 120, 132, 160, 200, 211] {
            let out = explain(wrap(&text, width).as_bytes());
            assert_eq!(out.fired(), want, "{name} at width {width}");
            assert_eq!(
                out.understood.not_understood, 0,
                "{name} {width}: {:?}",
                out.understood.examples
            );
        }
    }
}

/// One line a socket, as `ss -O` prints.
#[test]
fn one_line_or_two_is_the_same() {
    for (name, text) in of_sockets() {
        let want = explain(text.as_bytes()).fired();
        let one = text.replace("\n\t", " ");
        assert_eq!(explain(one.as_bytes()).fired(), want, "{name}");
    }
}

/// Every line changed.
fn each(text: &str, f: impl Fn(&str) -> String) -> Vec<u8> {
    let lines: Vec<String> = text.lines().map(f).collect();
    (lines.join("\n") + "\n").into_bytes()
}

type Disguise = (&'static str, fn(&str) -> Vec<u8>);

/// What happens to text on its way; the findings stay.
const DISGUISES: &[Disguise] = &[
    ("windows", |t| t.replace('\n', "\r\n").into_bytes()),
    ("old mac", |t| t.replace('\n', "\r").into_bytes()),
    ("colours", |t| each(t, |l| format!("\x1b[0;32m{l}\x1b[0m\x1b[K"))),
    ("quoted mail", |t| each(t, |l| format!("> {l}"))),
    ("fence", |t| format!("look at this:\n```\n{t}\n```\nthanks!\n").into_bytes()),
    ("nbsp", |t| t.replace(' ', "\u{a0}").into_bytes()),
    ("tabs", |t| t.replace("  ", "\t").into_bytes()),
    ("blank lines", |t| t.replace('\n', "\n\n").into_bytes()),
    ("bom", |t| format!("\u{feff}{t}").into_bytes()),
    ("utf-16", |t| {
        let mut out = vec![0xff, 0xfe];
        out.extend(t.encode_utf16().flat_map(u16::to_le_bytes));
        out
    }),
    ("no newline at the end", |t| t.trim_end().as_bytes().to_vec()),
    ("prompts", |t| {
        format!("[root@db7 ~]# date\nMon Jan  1 00:00:00 UTC 2026\n[root@db7 ~]# ./show.sh\n{t}[root@db7 ~]# \n").into_bytes()
    }),
    ("indented", |t| each(t, |l| format!("  {l}"))),
];

#[test]
fn disguises_do_not_change_findings() {
    for (name, raw) in all() {
        let text = String::from_utf8(raw).unwrap();
        let want = explain(text.as_bytes()).fired();
        for (what, disguise) in DISGUISES {
            let out = explain(&disguise(&text));
            assert_eq!(out.fired(), want, "{name} as {what}: {:?}", out.understood.examples);
        }
    }
}

/// Decimal commas in tables and in ss; Arabic and full-width digits.
#[test]
fn numbers_of_other_locales() {
    for name in ["v10", "v11", "v14", "v2", "m13"] {
        let text = String::from_utf8(vector(name)).unwrap();
        let want = explain(text.as_bytes());
        let digit = |zero: u32| {
            move |c: char| match c.to_digit(10) {
                Some(d) => char::from_u32(zero + d).unwrap(),
                None => c,
            }
        };
        let tables = |f: &dyn Fn(&str) -> String| -> String {
            text.lines().map(|l| if l.starts_with("Device") || l.contains("NAME") || l.contains("ROTA") { l.to_owned() } else { f(l) } + "\n").collect()
        };
        let comma = tables(&|l| l.replace('.', ","));
        let wide = tables(&|l| {
            l.split(' ')
                .map(|w| {
                    if w.starts_with(|c: char| c.is_ascii_digit()) {
                        w.chars().map(digit(0xff10)).collect()
                    } else {
                        w.to_owned()
                    }
                })
                .collect::<Vec<String>>()
                .join(" ")
        });
        for (what, changed) in [("comma", comma), ("full width", wide)] {
            if name == "v2" && what == "comma" {
                continue;
            }
            let got = explain(changed.as_bytes());
            assert_eq!(got.fired(), want.fired(), "{name} {what}");
            assert_eq!(got.disks.len(), want.disks.len(), "{name} {what}: {changed}");
            for (a, b) in got.disks.iter().zip(&want.disks) {
                assert!((a.aqu_sz - b.aqu_sz).abs() < 1e-9, "{name} {what}");
            }
        }
    }
}

/// Everything in one paste: each format is found, and no finding gets lost. One machine: the
/// vectors have one kernel in their banners.
#[test]
fn mixed_formats_do_not_disturb_each_other() {
    let names = [
        "v1",
        "dmesg-memcg-oom",
        "v11",
        "df-full",
        "m9",
        "top-blocked",
        "v25",
        "free-exhausted",
        "m16",
        "conntrack-clash",
    ];
    let mut text = String::new();
    let mut want = Vec::new();
    for n in names {
        let part = String::from_utf8(vector(n)).unwrap();
        want.extend(explain(part.as_bytes()).fired());
        text.push_str("root@db7:~# next\n");
        text.push_str(&part);
    }
    want.sort_unstable();
    want.dedup();
    assert_eq!(explain(text.as_bytes()).fired(), want);
}

#[test]
fn garbage_is_named_and_harmless() {
    let raw = b"hello \x1b[31mworld\x07\xc2\x9b2J\nESTAB 0 0 nonsense\n\xff\xfe\x00\nvda 1 2 3\n";
    let out = explain(raw);
    assert!(out.understood.is_empty());
    assert_eq!(out.understood.not_understood, out.understood.lines);
    assert_eq!(out.understood.examples[0], (1, "hello world".to_owned()));
}

/// The same socket a million times, one row per line, no end of line: bounded and said so.
#[test]
fn limits_are_said() {
    let row = |i: u32| {
        format!("ESTAB 0 0 10.0.{}.{}:{} 10.1.0.1:80\n", i >> 16 & 255, i >> 8 & 255, i & 255)
    };
    let many: String = (0..210_000).map(row).collect();
    let out = explain(many.as_bytes());
    assert!(
        out.understood.notes.iter().any(|n| n.contains("10000 sockets beyond")),
        "{:?}",
        out.understood.notes
    );
    let head = "Device r/s w/s rkB/s wkB/s r_await w_await aqu-sz %util\n";
    let intervals = format!("{head}vda 1 0 4 0 0.1 0 0 1\n").repeat(700);
    let out = explain(intervals.as_bytes());
    assert!(
        out.understood.notes.iter().any(|n| n.starts_with("100 older intervals")),
        "{:?}",
        out.understood.notes
    );
    let long = "x".repeat(1 << 20);
    assert!(explain(long.as_bytes()).understood.notes[0].contains("cut after 64 KiB"));
}

fn harmless(out: &crate::support::fuzz::explain::paste::Explained) {
    for text in [out.text(), out.json()] {
        let bad = text.chars().find(|c| *c != '\n' && !stallscope::text::is_plain(*c));
        assert_eq!(bad, None, "{text:?}");
    }
}

/// One change to a paste.
#[derive(Clone, Debug)]
enum Change {
    Cut(usize),
    Drop(usize, usize),
    Byte(usize, u8),
    Repeat(usize, usize),
    Insert(usize, Vec<u8>),
    Number(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0..4000_usize;
    prop_oneof![
        at.clone().prop_map(Change::Cut),
        (at.clone(), 1..200_usize).prop_map(|(a, n)| Change::Drop(a, n)),
        (at.clone(), any::<u8>()).prop_map(|(a, b)| Change::Byte(a, b)),
        (at.clone(), 1..400_usize).prop_map(|(a, n)| Change::Repeat(a, n)),
        (at.clone(), proptest::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(a, b)| Change::Insert(a, b)),
        at.prop_map(Change::Number),
    ]
}

fn apply(text: &mut Vec<u8>, c: &Change) {
    let len = text.len().max(1);
    match c {
        Change::Cut(a) => text.truncate(a % len),
        Change::Drop(a, n) => {
            let a = a % len;
            let end = (a + n).min(text.len());
            text.drain(a.min(end)..end);
        }
        Change::Byte(a, b) => {
            if let Some(x) = text.get_mut(a % len) {
                *x = *b;
            }
        }
        Change::Repeat(a, n) => {
            let a = (a % len).min(text.len());
            let part = text[a..(a + n).min(text.len())].to_vec();
            text.splice(a..a, part);
        }
        Change::Insert(a, b) => {
            let a = (a % len).min(text.len());
            text.splice(a..a, b.iter().copied());
        }
        Change::Number(a) => {
            // The number after this place grows beyond anything.
            let a = (a % len).min(text.len());
            if let Some(i) = text[a..].iter().position(u8::is_ascii_digit) {
                text.splice(a + i..a + i, *b"99999999999999");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_survived(raw in proptest::collection::vec(any::<u8>(), 0..600)) {
        harmless(&explain(&raw));
    }

    /// Words of all formats in any order.
    #[test]
    fn any_words_are_survived(words in proptest::collection::vec(prop_oneof![
        Just("ESTAB"), Just("LISTEN"), Just("tcp"), Just("udp"), Just("0"), Just("4294967296"), Just("1,5"),
        Just("10.0.0.1:80"), Just("[::1]:http"), Just("timer:(on,1.060ms,3)"), Just("timer:(,,)"), Just("skmem:(r0,rb1"),
        Just("users:((\"x\",pid=1,fd=2))"), Just("backoff:300"), Just("rto:99999999999"), Just("snd_wnd:0"), Just("send"),
        Just("Device"), Just("r/s"), Just("%util"), Just("sda"), Just("vdb:"), Just("ios=1/2,"), Just("ticks=3/4,"),
        Just("run=1-18446744073709551615msec"), Just("TcpExt:"), Just("TcpExtTCPTimeouts"), Just("0000000a"), Just("-1"),
        Just("r"), Just("swpd"), Just("cs"), Just("NAME"), Just("ROTA"), Just("/sys/block/sda/queue/rotational:1"),
        Just("[   12.5] "), Just("Nov 24 02:10:01 db7 kernel: "), Just("invoked oom-killer:"), Just("Killed process 1 (x)"), Just("Out of memory: "),
        Just("oom-kill:constraint=,oom_memcg="), Just("memory: usage 1kB, limit"), Just("I/O error, dev "), Just("blocked for more than"), Just("Link is Down"),
        Just("Filesystem"), Just("Size"), Just("Inodes"), Just("Use%"), Just("Mounted on"), Just("100%"), Just("12G"), Just("-"), Just("1K-blocks"),
        Just("total"), Just("used"), Just("free"), Just("Mem:"), Just("Swap:"), Just("0B"), Just("cpu=0"), Just("drop=1"), Just("insert_failed=2"),
        Just("top - load average: 1, 2, 3"), Just("%Cpu(s): 100 id"), Just("PID"), Just("%CPU"), Just("COMMAND"), Just("D"), Just("MiB Mem : 1 total, 0 free, 1 used"),
        Just("12:00:01"), Just("AM"), Just("Average:"), Just("CPU"), Just("%idle"), Just("%soft"), Just("all"), Just("IFACE"), Just("rxpck/s"), Just("%ifutil"),
        Just("runq-sz"), Just("ldavg-1"), Just("DEV"), Just("tps"), Just("await"), Just("pgscand/s"), Just("kbmemfree"), Just("kbmemused"), Just("kB_rd/s"), Just("iodelay"), Just("Command"),
        Just("\n"), Just("\n"), Just("\n"), Just("\n"), Just("\n\t"), Just("$ iostat -x 99999999999"), Just("Linux"), Just("4.19.57"), Just("(h)"),
    ], 0..120)) {
        harmless(&explain(words.join(" ").as_bytes()));
    }

    /// Real pastes, hurt.
    #[test]
    fn hurt_pastes_are_survived(which in 0..1000_usize, changes in proptest::collection::vec(change(), 1..8)) {
        let pastes = all();
        let mut text = pastes[which % pastes.len()].1.clone();
        for c in &changes {
            apply(&mut text, c);
        }
        let out = explain(&text);
        harmless(&out);
        prop_assert!(!out.sure());
        prop_assert!(out.understood.not_understood <= out.understood.lines);
    }

    /// A paste cut anywhere loses lines, not the rest.
    #[test]
    fn cut_captures_keep_their_head(cut in 0..6000_usize) {
        let text = captured("dead-peer");
        let out = explain(&text[..cut.min(text.len())]);
        harmless(&out);
        let fired = out.fired();
        prop_assert!(fired.is_empty() || fired == ["tcp-rto-storm"], "{fired:?} at {cut}");
    }
}

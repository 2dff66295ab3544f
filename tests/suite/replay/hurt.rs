//! Hurt recordings: what can still be read says the same or less, and nothing panics. Also what
//! is cut out of a recording, and what is redacted in it.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Arc;

use stallscope::analysis::Analysis;
use stallscope::diagnose::{Engine, RULES};
use stallscope::playback::outline::outline;
use stallscope::playback::seek::Judge;
use stallscope::playback::tape::{Played, Tape};
use stallscope::recording::tools::export::{copy, redacted};
use stallscope::recording::tools::info::Info;
use stallscope::recording::{ReadAt, Reader, TickSummary, Writer};
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::WallNs;

use crate::support::dice::Dice;
use crate::support::long::{BUDGET, Recorded, all, long, reader, record, rules};

/// 200 ticks of the long run: four groups.
fn sample() -> &'static Recorded {
    static SAMPLE: std::sync::OnceLock<Recorded> = std::sync::OnceLock::new();
    SAMPLE.get_or_init(|| {
        let (made, ticks) = long();
        record(&made.host, &ticks[300..500])
    })
}

/// Plays all; calls back with every tick that comes out.
fn played(bytes: &[u8], mut each: impl FnMut(&Analysis)) -> (u64, u64) {
    let Ok(reader) = Reader::new(Arc::new(bytes.to_vec())) else { return (0, 0) };
    let mut tape = Tape::new(reader);
    let mut run = None;
    let (mut ticks, mut lost) = (0, 0);
    loop {
        match tape.play() {
            Played::Segment(h) => run = Some(Analysis::new(h, Engine::default(), BUDGET)),
            Played::Tick(t) => {
                let run = run.as_mut().expect("a segment comes first");
                lost += u64::from(t.gap.map_or(0, |g| g.ticks));
                run.push(t);
                ticks += 1;
                each(run);
            }
            Played::Lost(_) => {}
            Played::End => return (ticks, lost),
        }
    }
}

#[test]
fn a_file_that_was_cut_off_says_what_it_said_up_to_there() {
    let made = sample();
    let mut dice = Dice(1);
    let mut cuts: Vec<usize> =
        (0..60).map(|_| dice.below(made.bytes.len() as u64) as usize).collect();
    cuts.push(made.bytes.len() - 1);
    let mut longest = 0;
    for cut in cuts {
        let mut n = 0;
        let (ticks, lost) = played(&made.bytes[..cut], |run| {
            assert_eq!(all(run.latest().unwrap().findings), made.said[n], "cut at {cut}");
            n += 1;
        });
        assert_eq!(lost, 0, "cut at {cut}: what follows is not missing, it is not there");
        longest = longest.max(ticks);
    }
    assert_eq!(longest, made.said.len() as u64, "without its trailer everything is there");
}

/// After a hole the findings may be younger or fewer, but every tick is the one that was
/// recorded, the hole is told, and a seek gives what playing gives.
#[test]
fn flipped_bits_cost_a_group_at_most_and_are_told() {
    let made = sample();
    let whole = reader(&made.bytes);
    let total = whole.len();
    let mut dice = Dice(1);
    for _ in 0..60 {
        let mut bytes = made.bytes.clone();
        let bit = dice.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut last = None;
        let (ticks, _) = played(&bytes, |run| last = Some(all(run.latest().unwrap().findings)));
        assert!(ticks + 60 >= total, "bit {bit}: {ticks} of {total} ticks");
        let mut r = reader(&bytes);
        let o = outline(&mut r);
        assert_eq!(o.ticks, r.len());
        let end = r.len() - 1;
        let mut judge = Judge::new(Tape::new(r), Engine::default());
        judge.advance(u64::MAX);
        let run = judge.exact(end, &mut || false).unwrap();
        assert_eq!(run.latest().map(|m| all(m.findings)), last, "bit {bit}");
    }
}

#[test]
fn nonsense_never_panics() {
    let made = sample();
    let mut dice = Dice(1);
    for _ in 0..40 {
        let mut bytes = made.bytes.clone();
        for _ in 0..=dice.below(200) {
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] = dice.below(256) as u8;
        }
        let from = dice.below(4096) as usize;
        played(&bytes[from..], |_| {});
        if let Ok(mut r) = Reader::new(Arc::new(bytes)) {
            let _ = outline(&mut r);
        }
    }
}

fn times(made: &Recorded) -> Vec<WallNs> {
    let mut r = reader(&made.bytes);
    (0..r.len()).map(|n| r.tick_ref(n).unwrap().at.wall).collect()
}

#[test]
fn a_part_is_the_same_bytes_and_plays_from_there() {
    let (made, _) = long();
    let wall = times(made);
    let (from, to) = (wall[400], wall[700]);
    let r = reader(&made.bytes);
    let (part, done) = copy(&r, Vec::new(), from, to, |_, _| ()).unwrap();
    assert!(done.ticks >= 300 && done.ticks <= 300 + 2 * 60, "{done:?}");
    for g in 0..r.groups().len() {
        let entry = r.groups()[g];
        if entry.first.wall >= from && entry.last.wall <= to {
            let mut raw = Vec::new();
            r.raw_group(g).unwrap().read_to_end(&mut raw).unwrap();
            assert!(part.windows(raw.len()).any(|w| w == raw), "group {g} is not copied as it is");
        }
    }
    let copied = reader(&part);
    assert_eq!((copied.len(), copied.host()), (done.ticks, made.host.clone()));
    assert!(copied.is_sealed());
    assert_eq!(played(&part, |_| {}), (done.ticks, 0));
    assert!(copy(&r, Vec::new(), WallNs(0), WallNs(1), |_, _| ()).is_err(), "no such time");
}

/// Texts and addresses of ticks, as they can be asked for.
fn secrets(host: &HostInfo, ticks: &[Arc<Tick>]) -> (BTreeSet<String>, BTreeSet<[u8; 16]>) {
    let (mut words, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    words.extend([host.hostname.clone(), host.boot_id.clone()]);
    for t in ticks {
        let s = &t.samples;
        for x in [&s.sockets, &s.netns_sockets].into_iter().flatten() {
            for t in &x.data.spaces {
                words.insert(t.label.clone());
                words.extend(t.owners.iter().map(|o| o.comm.clone()));
                words.extend(t.cgroups.iter().map(|c| c.1.clone()));
                addresses.extend(t.inet.local.iter().chain(&t.inet.remote).copied());
            }
        }
        words.extend(s.sched.iter().flat_map(|x| &x.data.threads).map(|t| t.comm.clone()));
        words.extend(s.sched.iter().flat_map(|x| &x.data.threads).filter_map(|t| t.cgroup.clone()));
        words.extend(s.cgroups.iter().flat_map(|x| &x.data.groups).map(|g| g.path.to_string()));
        words.extend(s.processes.iter().flat_map(|x| &x.data.blocked).map(|b| b.comm.clone()));
        for d in s.disks.iter().flat_map(|x| &x.data.disks) {
            words.extend(d.attrs.backing_file.clone().into_iter().chain(d.attrs.dm_name.clone()));
        }
    }
    let known = ["", "host", "/", "system.slice"];
    words.retain(|w| {
        !known.contains(&w.as_str()) && !w.starts_with("kworker/") && !w.starts_with("ksoftirqd/")
    });
    addresses.retain(|a| {
        let v6 = std::net::Ipv6Addr::from(*a);
        !v6.is_unspecified()
            && !v6.is_loopback()
            && v6.to_ipv4_mapped().is_none_or(|v| !v.is_loopback() && !v.is_unspecified())
    });
    (words, addresses)
}

/// Every payload of a recording, one after the other.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::decode_all(bytes).unwrap()
}

/// The same as text, for searching.
fn letters(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Holds this, and not as a part of a longer word such as the name of a field.
fn holds_word(hay: &str, needle: &str) -> bool {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    hay.match_indices(needle).any(|(i, _)| {
        !word(hay[..i].chars().next_back()) && !word(hay[i + needle.len()..].chars().next())
    })
}

#[test]
fn nothing_of_the_original_is_left_after_redaction() {
    let (made, ticks) = long();
    let (words, addresses) = secrets(&made.host, ticks);
    assert!(words.len() > 10 && addresses.len() > 10, "{} {}", words.len(), addresses.len());
    let mut r = reader(&made.bytes);
    let mut run: Option<Analysis> = None;
    let (bytes, done) = redacted(
        &mut r,
        Vec::new(),
        WallNs(i64::MIN),
        WallNs(i64::MAX),
        |h, t| {
            if let Some(h) = h {
                run = Some(Analysis::new(h.clone(), Engine::default(), BUDGET));
            }
            let run = run.as_mut().unwrap();
            run.push(Arc::new(t.clone()));
            run.latest().map_or_else(TickSummary::default, |m| m.summary())
        },
        |_, _| (),
    )
    .unwrap();
    assert_eq!((done.ticks, done.lost), (ticks.len() as u64, 0));
    let raw = unpacked(&bytes);
    let (before, after) = (letters(&unpacked(&made.bytes)), letters(&raw));
    for w in &words {
        // A short name is in longer words by chance, and ids of rules are words, too.
        let of_a_rule = RULES.iter().any(|r| r.id().0.split('-').any(|part| part == w));
        if w.len() >= 5 && !of_a_rule {
            assert!(before.contains(w), "{w:?} was there");
            assert!(!holds_word(&after, w), "{w:?} is left");
        }
    }
    let mut again = reader(&bytes);
    let out: Vec<Arc<Tick>> = (0..again.len()).map(|n| again.tick(n).unwrap()).collect();
    let (new_words, new_addresses) = secrets(&again.host(), &out);
    assert_eq!(new_words.intersection(&words).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(new_addresses.intersection(&addresses).collect::<Vec<_>>(), Vec::<&[u8; 16]>::new());
    // One for one: who talked to whom is still to be seen.
    assert_eq!(new_addresses.len(), addresses.len());
    for a in &addresses {
        let v6 = std::net::Ipv6Addr::from(*a);
        let text = v6.to_ipv4_mapped().map_or_else(|| v6.to_string(), |v| v.to_string());
        assert!(!holds_word(&after, &text), "{text} is left");
    }
    let left =
        raw.windows(16).find(|w| <[u8; 16]>::try_from(*w).is_ok_and(|w| addresses.contains(&w)));
    assert_eq!(left, None, "an address is left");
    // The rules find the same in it, under other names.
    let mut n = 0;
    played(&bytes, |run| {
        let now = rules(run.latest().unwrap().findings);
        assert_eq!(now, made.rules[n], "tick {n}");
        n += 1;
    });
    assert_eq!(n, ticks.len());
}

/// Two runs of one boot are still seen to be of one, and another boot is another.
#[test]
fn boots_stay_apart_under_redaction() {
    let (made, ticks) = long();
    let host = |boot: &str| HostInfo { boot_id: boot.into(), ..made.host.clone() };
    let boots = ["5f2b6c1e-one", "5f2b6c1e-one", "0a9d8e7f-two", "5f2b6c1e-one"];
    let mut w = Writer::new(Vec::new(), &host(boots[0])).unwrap();
    for (i, boot) in boots.into_iter().enumerate() {
        if i > 0 {
            w.segment(&host(boot)).unwrap();
        }
        for t in &ticks[i * 10..i * 10 + 10] {
            w.tick(t, &TickSummary::default()).unwrap();
        }
        w.end_group().unwrap();
    }
    let bytes = w.seal().unwrap();
    let mut r = reader(&bytes);
    let (from, to) = (WallNs(i64::MIN), WallNs(i64::MAX));
    let (bytes, _) =
        redacted(&mut r, Vec::new(), from, to, |_, _| TickSummary::default(), |_, _| ()).unwrap();
    let mut again = reader(&bytes);
    let kept: Vec<_> = again.segments().iter().map(|s| s.1.host.boot_id.clone()).collect();
    assert_eq!(kept, ["boot-1", "boot-1", "boot-2", "boot-1"]);
    let text = stallscope::report::info::text(&Info::gather(&mut again, "x", |_, _| ()).unwrap());
    assert_eq!(text.matches(", boot boot-1, ").count(), 3, "{text}");
    assert_eq!(text.matches(", boot boot-2, ").count(), 1, "{text}");
    assert!(!text.contains("unknown"), "{text}");
}

/// A source that nobody can read further.
#[test]
fn a_recording_that_grows_is_followed() {
    let made = sample();
    let half = made.bytes.len() / 2;
    let growing = Arc::new(Growing(std::sync::Mutex::new(made.bytes[..half].to_vec())));
    let mut tape = Tape::new(Reader::new(growing.clone()).unwrap());
    let mut n = 0;
    let mut run: Option<Analysis> = None;
    let mut play = |tape: &mut Tape, n: &mut usize| loop {
        match tape.play() {
            Played::Segment(h) => run = Some(Analysis::new(h, Engine::default(), BUDGET)),
            Played::Tick(t) => {
                let run = run.as_mut().unwrap();
                run.push(t);
                assert_eq!(all(run.latest().unwrap().findings), made.said[*n]);
                *n += 1;
            }
            Played::Lost(d) => panic!("{d}"),
            Played::End => break,
        }
    };
    play(&mut tape, &mut n);
    assert!(n > 10 && n < made.said.len());
    let before = n;
    for end in [half + 3000, made.bytes.len()] {
        let end = end.min(made.bytes.len());
        *growing.0.lock().unwrap() = made.bytes[..end].to_vec();
        tape.refresh().unwrap();
        play(&mut tape, &mut n);
    }
    assert!(n > before);
    assert_eq!(n, made.said.len());
}

struct Growing(std::sync::Mutex<Vec<u8>>);

impl ReadAt for Growing {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.lock().unwrap().read_at(buf, offset)
    }
    fn size(&self) -> std::io::Result<u64> {
        self.0.lock().unwrap().size()
    }
    fn may_grow(&self) -> bool {
        true
    }
}

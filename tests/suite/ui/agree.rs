//! A screen does not contradict itself: one number for one thing, one mark for one trouble, and
//! commands that run where their subject is.

use std::sync::Arc;

use jiff::tz::TimeZone;
use stallscope::diagnose::{
    Aspect, Explains, Fire, Hold, Kind, RULES, Rule, Scope, Severity, Thresholds, Verdicts, Window,
};
use stallscope::report::{CheckReport, Observed};
use stallscope::sample::bpf::net::{FlowEvents, NetEventKind};
use stallscope::sample::disks::DiskCounters;
use stallscope::sample::sockets::{NetnsTable, RouteAnswer, RouteOutcome, SockTimer};
use stallscope::sample::subject::{CpuId, DiskId, Endpoint, NetnsId, Subject};
use stallscope::sample::tick::Tick;
use stallscope::ui::{Theme, summary};
use stallscope::view::action::Effect;
use stallscope::view::vm::{Node, Piece, Size};

use crate::support::console::{Console, styled};
use crate::support::rules::doc;
use crate::support::samples::set;
use crate::support::script::Script;

const SIZES: [Size; 3] = [Size::new(40, 12), Size::new(80, 24), Size::new(120, 40)];
const BIG: Size = Size::new(120, 40);
/// Ticks until the faults are old.
const LONG: u64 = 60;

/// A console on a healthy box but for what `change` does, judged by the real rules.
fn real(change: fn(&mut Tick, u64), size: Size, ticks: u64) -> Console {
    let mut c = Console::with(Script { change, ..Script::healthy() }, size, RULES);
    c.ticks(ticks);
    c
}

/// The sockets of our namespace.
fn table(t: &mut Tick) -> &mut NetnsTable {
    let s = Arc::get_mut(t.samples.sockets.as_mut().unwrap()).unwrap();
    Arc::get_mut(&mut s.data.spaces[0]).unwrap()
}

/// The two connections to the database.
fn clients(t: &mut NetnsTable) -> Vec<usize> {
    (0..t.inet.len()).filter(|i| matches!(t.inet.cookie[*i], 50 | 51)).collect()
}

/// Text of the row that has `part` in it.
fn row<'a>(text: &'a str, part: &str) -> &'a str {
    text.lines().find(|l| l.contains(part)).unwrap_or_else(|| panic!("no `{part}` in\n{text}"))
}

/// A peer has been silent for 13 minutes: the timeout is at its limit, 14 fired, and the 15th
/// does while we watch.
fn silent_peer(t: &mut Tick, n: u64) {
    let t = table(t);
    for i in clients(t) {
        let fired = 14 + u64::from(n >= 20) + u64::from(n >= 140);
        let r = &mut t.inet;
        (r.timer[i], r.retrans[i], r.expires_ms[i]) = (SockTimer::ON, fired as u8, 60_000);
        (r.wqueue[i], r.skmem[i][5]) = (15_928, 83_184);
        let info = &mut r.infos[r.info[i] as usize];
        for (name, v) in [
            ("rto_us", 120_000_000),
            ("backoff", fired),
            ("retransmits", fired),
            ("total_retrans", fired),
            ("segs_out", 5000 + fired),
            ("data_segs_out", 4000 + fired),
            ("unacked", 11),
            ("lost", 11),
            ("bytes_acked", 3000),
            ("last_ack_recv_ms", 780_000 + 1000 * n),
            ("last_data_sent_ms", if n >= 20 { 1000 * (n - 20) } else { 100_000 + 1000 * n }),
            ("total_rto", fired),
            ("total_rto_recoveries", 1),
            ("total_rto_time_ms", 780_000 + 1000 * n),
        ] {
            set(info, name, v);
        }
        let cookie = r.cookie[i];
        let outcome = RouteOutcome::Via { ifindex: 2, dev: "eth0".into(), hop: None };
        t.routes.push(RouteAnswer { cookie, outcome });
    }
}

/// `rto 2m00 = 7.3ms << 14` is what doubling backwards gives at the limit, and wrong.
#[test]
fn an_rto_at_its_limit_has_no_base() {
    for size in SIZES {
        let mut c = real(silent_peer, size, LONG);
        let name = |what| format!("silent-peer-{what}@{}x{}", size.w, size.h);
        insta::assert_snapshot!(name("overview"), styled(&c.draw(Theme::default())));
        c.keys("1<enter>");
        insta::assert_snapshot!(name("socket"), styled(&c.draw(Theme::default())));
        c.keys("<esc>f<enter>");
        insta::assert_snapshot!(name("finding"), c.text());
        assert!(!c.text().contains("<<"), "{}", c.text());
    }
    let mut c = real(silent_peer, BIG, LONG);
    let t = c.keys("1<enter>").text();
    assert!(row(&t, "TCP timer").contains("rto at its 120 s limit, backoff 15"), "{t}");
    let t = c.keys("<esc>f<enter>").text();
    assert!(t.contains("(rto at its 120 s limit, backoff 15)"), "{t}");
    assert!(row(&t, "lastack").ends_with("last ACK 13 min ago"), "{t}");
    assert!(row(&t, "lastack").contains(" 13m  "), "{t}");
    // Something is missing, so not all inputs were there.
    assert!(
        t.contains("confirmed, since")
            && t.contains("cannot tell")
            && t.contains("whether this host"),
        "{t}"
    );
}

/// On the way of a packet the place where it is stuck is marked, and what follows is not.
#[test]
fn the_path_marks_the_cause_and_not_what_follows_from_it() {
    let mut c = real(silent_peer, BIG, LONG);
    let t = c.keys("1<enter>").text();
    assert!(row(&t, " peer ").contains("!! no answer"), "{t}");
    assert!(row(&t, "TCP timer").contains("15 fired, 1 seen: 1 segment sent"), "{t}");
    assert!(row(&t, "send buffer").contains("full: the application is blocked"), "{t}");
    for part in ["send buffer", "TCP timer", "route", "qdisc, NIC"] {
        assert!(!row(&t, part).contains(" ! "), "{part}:\n{t}");
    }
    let mut c = real(silent_peer, Size::new(40, 20), LONG);
    let t = c.keys("1<enter>").text();
    assert!(row(&t, " peer ").contains("!! no answer"), "{t}");
    // Before anything fired while we watch, the last RTO left something when it fired.
    let mut c = real(silent_peer, BIG, 5);
    let t = c.keys("1<enter>").text();
    assert!(row(&t, " peer ").contains("!! no answer"), "{t}");
}

/// A peer has not read for three and a half minutes; we came 5 s ago.
fn closed_window(t: &mut Tick, n: u64) {
    let t = table(t);
    for i in clients(t) {
        let r = &mut t.inet;
        (r.timer[i], r.wqueue[i]) = (SockTimer::PERSIST, 33_624);
        r.expires_ms[i] = (50_000 - 1000 * n) as u32;
        r.skmem[i][5] = 40_000;
        let info = &mut r.infos[r.info[i] as usize];
        for (name, v) in [
            ("rto_us", 212_000),
            ("backoff", 11),
            ("snd_wnd", 0),
            ("unacked", 0),
            ("bytes_acked", 3000),
            ("last_data_sent_ms", 208_000 + 1000 * n),
            ("last_ack_recv_ms", 5000 + 1000 * n),
        ] {
            set(info, name, v);
        }
    }
}

/// The table said 4.97 s beside a finding that said 213 s.
#[test]
fn a_stall_is_as_long_in_the_table_as_in_the_finding() {
    for size in SIZES {
        let c = real(closed_window, size, 6);
        let name = format!("closed-window@{}x{}", size.w, size.h);
        insta::assert_snapshot!(name, styled(&c.draw(Theme::default())));
    }
    let mut c = real(closed_window, BIG, 6);
    let t = c.keys("z").text();
    assert!(t.contains("stalled for 213 s"), "{t}");
    assert!(row(&t, "10.0.3.2:51322").contains(" 3m33 "), "{t}");
    let mut c = real(silent_peer, BIG, LONG);
    let t = c.keys("z").text();
    // 780 s, and 59 s watched.
    assert!(row(&t, "10.0.3.2:51322").contains(" 13m "), "{t}");
    let t = c.keys("f<enter>").text();
    assert!(row(&t, "since ").contains("since 14:01:59, for 13m59s"), "{t}");
}

/// Rules of which a mild one explains a bad one.
static FOLDING: &[&Rule] = &[&MILD, &BAD];

static MILD: Rule = Rule {
    doc: &const { doc("disk-slow", Hold::events(3)) },
    kind: Kind::Rule,
    needs: &[],
    explains: &[Explains::new("sockets-stuck", Scope::Host)],
    check: mild,
};

fn mild(_: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let dev = DiskId { major: 252, minor: 16 };
    let f = Fire::new(Severity::Warn, "vdb is slow");
    out.fire(Subject::Disk { name: "vdb".into(), dev }, f);
}

static BAD: Rule = Rule {
    doc: &const { doc("sockets-stuck", Hold::events(3)) },
    kind: Kind::Rule,
    needs: &[],
    explains: &[],
    check: bad,
};

fn bad(_: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    out.fire(Subject::Host, Fire::new(Severity::Crit, "all sockets are stuck"));
}

/// `2 critical` in the title, and not one red row: the row stands for all that it explains.
#[test]
fn a_row_is_as_bad_as_what_is_folded_under_it() {
    for size in SIZES {
        let mut c = Console::with(Script::healthy(), size, FOLDING);
        c.ticks(30);
        let name = |what| format!("folded-{what}@{}x{}", size.w, size.h);
        insta::assert_snapshot!(name("overview"), styled(&c.draw(Theme::default())));
        c.keys("f<enter>");
        insta::assert_snapshot!(name("finding"), styled(&c.draw(Theme::default())));
    }
    let mut c = Console::with(Script::healthy(), BIG, FOLDING);
    c.ticks(30);
    let t = c.text();
    assert!(row(&t, "vdb is slow").starts_with(" !! disk-slow"), "{t}");
    assert!(row(&t, "FINDINGS").contains("1 cause, 1 folded, 1 critical"), "{t}");
    // The disk is where to look, as much as if it were that bad by itself.
    let disk = t.lines().find(|l| l.contains("vdb") && l.contains('│')).unwrap();
    assert!(disk.contains("!! vdb"), "{t}");
    let lines = summary(&c.analysis, &TimeZone::UTC);
    assert!(lines.iter().any(|l| l.starts_with("!! disk-slow: vdb is slow")), "{lines:?}");
    let report =
        CheckReport::new(&c.analysis, "live", Observed { ticks: 30, ..Observed::default() });
    let text =
        stallscope::report::text::render(&report, stallscope::report::text::Unjudged::Counted);
    assert!(text.contains("\n!! disk-slow"), "{text}");
    assert!(text.contains("\n   so: !! sockets-stuck"), "{text}");
    // Its own condition is what it is, for programs.
    assert_eq!(stallscope::report::json::finding(&report.findings[0])["severity"], "warn");
    let t = c.keys("f<enter>").text();
    assert!(t.contains("these raise it to crit; warn on its own"), "{t}");
}

/// Says that threads wait for cpu1, and that cpu2 has too much to do in softirqs.
static QUEUES: &[&Rule] = &[&QUEUE];

static QUEUE: Rule = Rule {
    doc: &const { doc("runq", Hold::events(3)) },
    kind: Kind::Rule,
    needs: &[],
    explains: &[],
    check: queue,
};

fn queue(w: &Window<'_>, _: &Thresholds, out: &mut Verdicts) {
    let mut f = Fire::new(Severity::Crit, "threads wait for cpu1");
    f.aspect = Aspect::RunQueue;
    let threads = w.derived.sched.iter().flat_map(|s| &s.threads);
    let here = threads.filter(|t| t.thread.last_cpu == Some(CpuId(1)));
    f.tasks = here.take(2).map(|t| t.thread.task).collect();
    out.fire(Subject::Cpu { cpu: CpuId(1) }, f);
    out.fire(Subject::Cpu { cpu: CpuId(2) }, Fire::new(Severity::Warn, "cpu2 is all softirq"));
}

/// Threads that wait for a CPU are no trouble of its softirqs.
#[test]
fn a_mark_stands_where_the_trouble_is() {
    let mut c = Console::with(Script::healthy(), BIG, QUEUES);
    c.ticks(30);
    let t = c.keys("3z").text();
    let cpus: Vec<&str> = t
        .lines()
        .filter(|l| {
            l.trim_start_matches(['!', ' ']).starts_with(['0', '1', '2', '3']) && l.contains('▁')
        })
        .collect();
    assert_eq!(cpus.len(), 4, "{t}");
    for l in &cpus {
        let marked = l.trim_start().starts_with('!');
        assert_eq!(marked, l.trim_start_matches(['!', ' ']).starts_with('2'), "{t}");
    }
    let t = c.keys("z4z").text();
    let marked: Vec<&str> = t.lines().filter(|l| l.starts_with("!!")).collect();
    assert_eq!(marked.len(), 2, "{t}");
    // The page of the CPU has both: there it is about all of it.
    let t = c.keys("z3<enter>").text();
    assert!(t.contains("cpu2 is all softirq"), "{t}");
    let t = c.keys("z4<enter>").text();
    assert!(t.contains("threads wait for cpu1"), "{t}");
    for size in SIZES {
        let mut c = Console::with(Script::healthy(), size, QUEUES);
        c.ticks(30);
        for (key, what) in [("3", "softirq"), ("4", "runq")] {
            c.keys(key);
            let name = format!("marks-{what}@{}x{}", size.w, size.h);
            insta::assert_snapshot!(name, styled(&c.draw(Theme::default())));
        }
    }
}

/// `loop0 L 1  await 100us` on a disk that does nothing: the scale of an empty chart.
#[test]
fn what_is_a_maximum_says_so_and_is_one() {
    fn idle(t: &mut Tick, _: u64) {
        let s = Arc::get_mut(t.samples.disks.as_mut().unwrap()).unwrap();
        for d in &mut s.data.disks {
            d.stat = DiskCounters::default();
            if d.name.starts_with("loop") {
                let attrs = Arc::make_mut(&mut d.attrs);
                attrs.size_sectors = Some(2048);
                attrs.backing_file = Some("/var/img".into());
            }
        }
    }
    // Busy for ten ticks, then idle: now is not then.
    fn was_busy(t: &mut Tick, n: u64) {
        let s = Arc::get_mut(t.samples.disks.as_mut().unwrap()).unwrap();
        for d in s.data.disks.iter_mut().filter(|d| &*d.name == "vda") {
            let n = n.min(20);
            d.stat.rd_ios = 1000 * n;
            d.stat.rd_ticks = 40_000 * n as u32;
            d.stat.weighted = 40_000 * n as u32;
            d.stat.wr_ios = 0;
            d.stat.wr_ticks = 0;
        }
    }
    for size in SIZES {
        let mut c = real(idle, size, 30);
        c.keys("2");
        let name = format!("idle-disks@{}x{}", size.w, size.h);
        insta::assert_snapshot!(name, c.text());
    }
    let mut c = real(idle, BIG, 30);
    let t = c.keys("2").text();
    assert!(row(&t, "loop0 qlen").contains("qlen max 0 ") && t.contains("await max - "), "{t}");
    let t = c.keys("<enter>").text();
    assert!(row(&t, "util %").ends_with("0  max 0"), "{t}");
    assert!(row(&t, "await  ").trim_end().ends_with("n/a  max n/a"), "{t}");
    let mut c = real(was_busy, BIG, 30);
    c.keys("2/vda<enter>");
    let t = c.text();
    assert!(row(&t, "vda qlen").contains("vda qlen max 40 "), "{t}");
    assert!(row(&t, "vda qlen").contains("await max 40ms"), "{t}");
}

/// A connection of a container retransmits.
fn elsewhere(t: &mut Tick, n: u64) {
    const SPACE: NetnsId = NetnsId(4_026_532_999);
    let net = Arc::get_mut(t.samples.net_bpf.as_mut().unwrap()).unwrap();
    let mut flow = FlowEvents {
        kind: NetEventKind::Retransmit,
        ends: Some((end([10, 1, 0, 2], 5000), end([10, 1, 0, 9], 3306))),
        netns: SPACE,
        cookie: 900,
        state: 1,
        detail: 0,
        count: n,
        last: t.mono,
        cpu: CpuId(0),
    };
    net.data.flows.push(flow.clone());
    flow.netns = NetnsId(4_026_532_001);
    flow.ends = Some((end([10, 2, 0, 2], 5000), end([10, 2, 0, 9], 3306)));
    net.data.flows.push(flow);
    let span = t.samples.sockets.as_ref().unwrap().span;
    let table = NetnsTable {
        netns: SPACE,
        label: "docker 0123".into(),
        member: Some(4711),
        span,
        ..NetnsTable::default()
    };
    let s = Arc::get_mut(t.samples.sockets.as_mut().unwrap()).unwrap();
    s.data.spaces.push(Arc::new(table));
}

fn end(addr: [u8; 4], port: u16) -> Endpoint {
    Endpoint { addr: addr.into(), port }
}

/// What is offered to type is about a socket of another namespace: it has to run there.
#[test]
fn a_command_of_an_event_runs_in_its_namespace() {
    let script = Script { change: elsewhere, ..Script::healthy() }.with_bpf();
    let mut c = Console::with(script, BIG, RULES);
    c.ticks(30);
    let t = c.keys("5/10.1.0.9<enter><enter>").text();
    let want = "nsenter -t 4711 -n ss -tinmoe src 10.1.0.2:5000 dst 10.1.0.9:3306";
    assert!(row(&t, "next").contains(want), "{t}");
    c.keys("y");
    assert_eq!(c.effects.last(), Some(&Effect::Copy(want.to_owned())));
    // No way in is known: then at least it says where.
    let t = c.keys("<esc>/<c-u>10.2.0.9<enter><enter>").text();
    let want = "ss -tinmoe src 10.2.0.2:5000 dst 10.2.0.9:3306  # in netns 4026532001";
    assert!(row(&t, "next").contains(want), "{t}");
}

/// The clock in the header.
fn clock(c: &Console) -> String {
    let t = c.text();
    t.lines().next().unwrap().split_whitespace().last().unwrap().to_owned()
}

/// Ticks come 980 ms after the full second, as they do: `t 14:15:30` showed 14:15:29.
#[test]
fn going_to_a_time_shows_that_time() {
    fn late(t: &mut Tick, n: u64) {
        t.wall.0 += 980_000_000 + if n.is_multiple_of(2) { 3_000_000 } else { -4_000_000 };
        t.mono.0 += if n.is_multiple_of(2) { 3_000_000 } else { 0 };
    }
    let mut c = real(late, BIG, LONG);
    for time in ["14:15:30", "14:15:01", "14:15:00", "14:15:59", "14:15:58"] {
        c.keys(&format!("t{time}<enter>"));
        assert_eq!(clock(&c), time, "{}", c.text());
    }
    c.keys("t14:15:40<enter>t-10s<enter>");
    assert_eq!(clock(&c), "14:15:30");
    c.keys("t-5s<enter>");
    assert_eq!(clock(&c), "14:15:25");
    c.keys("t+30s<enter>");
    assert_eq!(clock(&c), "14:15:55");
    c.keys("t14:15<enter>");
    assert_eq!(clock(&c), "14:15:00", "the first one of that minute");
    c.keys("t14:15:20.985<enter>");
    assert_eq!(clock(&c), "14:15:20", "exactly then, or before");
    c.keys("t14:15:20.5<enter>");
    assert_eq!(clock(&c), "14:15:19", "exactly then, or before");
}

/// Where a line has something at its right edge, nothing runs into it, at any width, on any page.
#[test]
fn nothing_runs_into_what_stands_at_the_edge() {
    fn uncounted(t: &mut Tick, n: u64) {
        let b = Arc::get_mut(t.samples.block_bpf.as_mut().unwrap()).unwrap();
        b.data.missed = Some(400 * n);
    }
    let pages =
        ["", "f<enter>", "1<enter>", "2/vdb<enter><enter>", "3<enter>", "4<enter>", "5", "/", "t"];
    for keys in pages {
        let script = Script { change: uncounted, ..Script::three_faults() }.with_bpf();
        let mut c = Console::after(script, BIG, LONG);
        c.keys(keys);
        for w in 20..=200 {
            c.size = Size::new(w, 40);
            let vm = c.vm();
            let text = c.text();
            let rows: Vec<&str> = text.lines().collect();
            for (area, node) in &vm.nodes {
                let Node::Lines(lines) = node else { continue };
                for (y, l) in lines.iter().enumerate().filter(|(_, l)| !l.right.is_empty()) {
                    let mut right = String::new();
                    for p in &l.right {
                        if let Piece::Text(t, _) = p {
                            right.push_str(t);
                        }
                    }
                    let Some(row) = rows.get(usize::from(area.y) + y) else { continue };
                    let shown: String =
                        row.chars().skip(area.x.into()).take(area.w.into()).collect();
                    let right = right.trim_end();
                    if right.starts_with(' ')
                        || right.is_empty()
                        || !shown.trim_end().ends_with(right)
                    {
                        continue;
                    }
                    let before = shown.trim_end().strip_suffix(right).unwrap();
                    assert!(before.is_empty() || before.ends_with(' '), "{keys} at {w}: {shown}");
                }
            }
        }
    }
    // What the requests of a disk came to is told in full at any width.
    for w in [40, 80, 120, 200] {
        let script = Script { change: uncounted, ..Script::three_faults() }.with_bpf();
        let mut c = Console::after(script, Size::new(w, 60), LONG);
        let t = c.keys("2/vdb<enter><enter>").text();
        for part in ["splits 14/s", "requeues 0/s", "errors 0/s", "coverage "] {
            assert!(t.contains(part), "{w}: {part}\n{t}");
        }
        let head: Vec<&str> = t
            .lines()
            .skip_while(|l| !l.starts_with(" requests"))
            .take_while(|l| !l.contains("latency"))
            .take(6)
            .collect();
        insta::assert_snapshot!(format!("requests@{w}"), head.join("\n"));
    }
}

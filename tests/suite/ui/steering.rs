//! Steering: what people ask a screen, in how few keys it answers, and the ways to say what is wanted.

use std::time::Duration;

use stallscope::sample::sched::{SchedSample, ThreadSched};
use stallscope::sample::subject::TaskId;
use stallscope::sample::tick::Tick;
use stallscope::view::action::Effect;
use stallscope::view::click::click;
use stallscope::view::panes::PaneId;
use stallscope::view::state::{Detail, Mode, Rec, RecState, RowKey, Sort};
use stallscope::view::vm::Size;

use crate::support::console::Console;
use crate::support::script::{Script, stamp};

const BIG: Size = Size::new(120, 36);
const CLASSIC: Size = Size::new(80, 24);

fn faults(size: Size) -> Console {
    Console::after(Script::three_faults(), size, 60)
}

/// A question, the keys that answer it, and the answer.
#[test]
fn the_questions_of_an_incident_take_few_keys() {
    for (question, keys, most, answers) in [
        ("what is wrong?", "", 0, &["tcp-silent-rto", "disk-capped-cloud", "softirq-one-core"][..]),
        ("why this socket?", "<enter>", 1, &["where is the packet?", "stuck here"]),
        ("who owns it?", "<enter>", 1, &["java/2214"]),
        ("which command next?", "f<enter>", 2, &["next", "ip route get"]),
        ("what does this CPU do?", "3", 1, &["busy%", "si%"]),
        ("what loads this disk?", "2<enter>", 2, &["vdb", "aqu-sz"]),
        ("why is this process slow?", "6<enter>", 3, &["java/2200"]),
    ] {
        let mut c = faults(CLASSIC);
        let text = c.keys(keys).text();
        let typed = keys.replace("<enter>", "E").chars().count();
        assert!(typed <= most, "{question} takes {typed} keys");
        for part in answers {
            assert!(text.contains(part), "{question} no `{part}` in\n{text}");
        }
    }
}

#[test]
fn n_goes_from_finding_to_finding_and_r_shows_the_rule() {
    let mut c = faults(BIG);
    let rule = |c: &Console| match &c.view.details.last().unwrap().what {
        Detail::Finding(k) => k.rule.0,
        other => panic!("{other:?}"),
    };
    c.keys("n");
    assert_eq!(rule(&c), "tcp-silent-rto");
    assert!(c.text().contains("Finding 1 of 3"));
    c.keys("n");
    assert_eq!(rule(&c), "disk-capped-cloud");
    c.keys("nn");
    assert_eq!(rule(&c), "tcp-silent-rto", "after the last comes the first");
    c.keys("N");
    assert_eq!(rule(&c), "softirq-one-core");
    assert_eq!(c.view.details.len(), 1, "one replaces the other");
    c.keys("R");
    let text = c.text();
    assert!(text.contains("fires when") && text.contains("look-alikes"), "{text}");
    c.keys("<esc>");
    assert_eq!(rule(&c), "softirq-one-core");
}

#[test]
fn the_log_has_what_is_active_and_what_has_ended() {
    let mut c = faults(BIG);
    let text = c.keys("F").text();
    assert!(text.contains("3 active, 0 ended in the last hour"), "{text}");
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in\n{text}"));
    assert!(text.contains(" 42s active tcp-silent-rto"), "{text}");
    // The latest is the first.
    assert!(place("active tcp-silent-rto") < place("active disk-capped-cloud"));
    c.keys("<esc>");
    assert!(c.view.details.is_empty());
}

#[test]
fn commands_do_what_keys_do_and_what_keys_cannot() {
    let mut c = faults(BIG);
    c.keys(":rule tcp-rto-storm<enter>");
    assert!(matches!(&c.view.details[0].what, Detail::Rule(id) if id.0 == "tcp-rto-storm"));
    c.keys("<esc>:sort rto<enter>");
    assert!(c.text().contains("by rto"), "{}", c.text());
    c.keys(":sort rto<enter>");
    assert!(c.text().contains("by rto reversed"), "again is the other way round");
    c.keys(":disks<enter>");
    assert_eq!(c.view.focus, stallscope::view::state::Focus::Pane(PaneId::Disks));
    c.keys(":log<enter>");
    assert!(matches!(c.view.details[0].what, Detail::Log));
    c.keys("<esc>:proce<tab>");
    assert!(c.text().lines().last().unwrap().contains("process processes"), "{}", c.text());
    c.keys("<esc>:dsiks<enter>");
    let last = c.text().lines().last().unwrap().to_owned();
    assert!(last.contains("no command dsiks; did you mean disks?"), "{last}");
    c.keys(":quit 3<enter>");
    assert!(c.text().lines().last().unwrap().contains("quit takes no word: 3"));
    c.keys(":filter rtoo>3<enter>");
    assert!(c.text().lines().last().unwrap().contains("no field rtoo"), "{}", c.text());
    c.keys(":<esc>");
    assert_eq!(c.view.mode, Mode::Normal);
}

/// What the event loop does with it, too.
fn interval_of(c: &mut Console) -> Option<Duration> {
    let Some(Effect::Interval(interval)) = c.effects.pop() else { return None };
    c.analysis.set_interval(interval);
    Some(interval)
}

#[test]
fn the_interval_changes_in_place() {
    let mut c = faults(BIG);
    let ms = |n| Some(Duration::from_millis(n));
    let last = |c: &Console| c.text().lines().last().unwrap().to_owned();
    c.keys(":interval<enter>");
    assert!(last(&c).contains("sampled every 1s"), "{}", last(&c));
    c.keys(":interval 250ms<enter>");
    assert!(last(&c).contains("sampled every 250ms"), "{}", last(&c));
    assert_eq!(interval_of(&mut c), ms(250));
    assert!(c.text().contains("LIVE 250ms"), "{}", c.text());
    // The keys go through the usual ones.
    for (keys, interval) in [("-", 500), ("+", 200), ("+", 100), (":slower<enter>", 200)] {
        c.keys(keys);
        assert_eq!(interval_of(&mut c), ms(interval), "{keys}");
    }
    c.keys(":interval 60s<enter>");
    assert_eq!(interval_of(&mut c), ms(60_000));
    assert!(c.text().contains("LIVE 60s"), "{}", c.text());
    // A recording that begins now says 60s in its header, and has no moment from before.
    let fitting = |c: &Console| {
        c.analysis.history().iter().filter(|m| c.analysis.is_of_this_interval(m)).count()
    };
    assert_eq!(fitting(&c), 0);
    c.ticks(2);
    assert_eq!(fitting(&c), 2);
    c.keys("-");
    assert!(last(&c).contains("60s is the longest sampling interval"), "{}", last(&c));
    for bad in ["5", "50ms", "2h", "often"] {
        c.keys(&format!(":interval {bad}<enter>"));
        let says = format!("interval {bad}: 100ms to 60s is expected");
        assert!(last(&c).contains(&says), "{}", last(&c));
    }
    c.keys(":interval 5<tab>");
    assert!(last(&c).contains("500ms 5s"), "{}", last(&c));
    c.keys("<esc>");
    // The past plays faster instead.
    c.keys("[+");
    assert!(last(&c).contains("speed 2x"), "{}", last(&c));
    c.keys("0");
    c.view.rec = Some(Rec { size: 0, latency: Duration::ZERO, state: RecState::Ok });
    for keys in ["+", ":interval 1s<enter>"] {
        c.keys(keys);
        let says = "stop the recording first (r): it is written at 60s";
        assert!(last(&c).contains(says), "{}", last(&c));
    }
    assert_eq!(c.effects, []);
}

#[test]
fn the_help_explains_columns_and_can_be_searched() {
    let mut c = faults(BIG);
    c.keys("?/backoff");
    let text = c.text();
    assert!(text.contains("exponential backoff of the timer"), "{text}");
    assert!(!text.contains("zoom the pane"), "{text}");
    c.keys("xyz");
    assert!(c.text().contains("nothing has that"), "{}", c.text());
    c.keys("<esc>");
    assert!(c.text().contains("zoom the pane"), "{}", c.text());
    c.keys("<esc>");
    assert_eq!(c.view.mode, Mode::Normal);
}

#[test]
fn a_column_is_chosen_by_a_letter_or_by_its_title() {
    let mut c = faults(BIG);
    let sort = |c: &Console| c.view.pane(PaneId::Sockets).unwrap().sort;
    let text = c.keys("o").text();
    let rto = text.lines().find(|l| l.contains("retransmission timeout")).unwrap();
    let inside = rto.split('│').find(|p| p.contains("retransmission")).unwrap();
    let letter = inside.trim_start().chars().next().unwrap();
    c.keys(&letter.to_string());
    let by_rto = sort(&c);
    assert!(c.text().contains("by rto") && matches!(by_rto, Sort::Column { .. }));
    let titles = c.text().lines().position(|l| l.contains("sendq")).unwrap();
    assert!(c.text().lines().nth(titles).unwrap().contains("▾  rto"), "{}", c.text());
    c.keys("ot");
    assert_eq!(sort(&c), Sort::Trouble { reverse: false });
    // The title under the mouse.
    let line = c.text().lines().nth(titles).unwrap().to_owned();
    let x = line.chars().position(|c| c == 'r').map(|_| line.find(" rto").unwrap()).unwrap();
    let x = line[..x].chars().count() as u16 + 2;
    click(&mut c.view, &c.analysis, BIG, x, titles as u16);
    assert_eq!(sort(&c), by_rto);
    click(&mut c.view, &c.analysis, BIG, x, titles as u16);
    assert!(sort(&c).reversed(), "again is the other way round");
    // The border beside the titles is none of them.
    click(&mut c.view, &c.analysis, BIG, 0, titles as u16);
    assert!(sort(&c).reversed());
    c.keys("o<esc>");
    assert_eq!((c.view.mode.clone(), sort(&c).reversed()), (Mode::Normal, true));
}

/// Of two processes one runs 70% of each second, the other one all of every other second.
fn steady_and_jumpy(t: &mut Tick, n: u64) {
    let thread = |pid, comm: &str, run_ms: u64| ThreadSched {
        task: TaskId { pid, tid: pid, start: 1 },
        comm: comm.into(),
        state: 'S',
        run_ns: run_ms * 1_000_000,
        slices: n,
        ..ThreadSched::default()
    };
    let threads =
        vec![thread(9001, "steady", 700 * n), thread(9002, "jumpy", 1000 * n.div_ceil(2))];
    t.samples.sched = Some(stamp(t.mono, SchedSample { threads, ..SchedSample::default() }));
}

#[test]
fn rows_do_not_jump_with_a_number_that_does() {
    let script = Script { change: steady_and_jumpy, ..Script::healthy() };
    let mut c = Console::after(script, BIG, 20);
    let text = c.keys(":processes<enter>z:sort run%<enter>").text();
    assert!(text.contains("by run%, mean of 5s"), "{text}");
    let mut shown = 0;
    for _ in 0..6 {
        let text = c.ticks(1).text();
        let line = |name: &str| text.lines().position(|l| l.contains(name));
        let steady = line("steady/9001").expect(&text);
        // In the seconds in which it sleeps it is not listed at all.
        if let Some(jumpy) = line("jumpy/9002") {
            assert!(steady < jumpy, "{text}");
            shown += usize::from(text.lines().nth(jumpy).unwrap().contains(" 100 "));
        }
    }
    // What is shown is the last second all the same.
    assert_eq!(shown, 3, "{}", c.text());
    // A time or a number is what it is.
    let text = c.keys(":sort threads<enter>").text();
    assert!(text.contains("by threads") && !text.contains("mean of"), "{text}");
    // A word does not jump.
    let text = c.keys(":sort process<enter>").text();
    assert!(text.contains("by process") && !text.contains("mean of"), "{text}");
}

#[test]
fn one_filter_holds_for_all_panes_that_understand_it() {
    let mut c = faults(BIG);
    c.keys("/java<enter>");
    let filter = |c: &Console, id| c.view.pane(id).unwrap().filter.text.clone();
    assert_eq!(filter(&c, PaneId::Processes), "java");
    let text = c.text();
    assert!(text.contains("java/2200") && !text.contains("mysqld/2201"), "{text}");
    c.keys("/<c-u>rto>1s<enter>");
    // Processes have no rto.
    assert_eq!(filter(&c, PaneId::Processes), "");
    assert_eq!(filter(&c, PaneId::Sockets), "rto>1s");
    c.keys("<esc>");
    assert_eq!(filter(&c, PaneId::Sockets), "");
}

#[test]
fn a_key_of_the_user_goes_before_the_others() {
    use stallscope::view::action::{Action, Key};
    let mut c = faults(BIG);
    c.view.keys = vec![(Key::Char('s'), Action::Filter)];
    c.keys("s");
    assert!(matches!(c.view.mode, Mode::Filter { .. }));
    c.keys("<esc>");
    let footer = c.text().lines().last().unwrap().to_owned();
    assert!(footer.contains("s filter") && !footer.contains("s sort"), "{footer}");
    // In a prompt a letter is a letter.
    c.keys("/s");
    assert!(c.text().lines().last().unwrap().contains("filter /s"));
}

/// Another CPU may be the busiest in a moment: the row stays, and opens the one that is.
#[test]
fn a_resource_keeps_its_row_and_opens_what_is_worst_in_it() {
    let mut c = faults(CLASSIC);
    c.keys("8jjj");
    let st = c.view.pane(PaneId::Resources).unwrap();
    assert_eq!(st.cursor.key(), Some(RowKey::Numbered(PaneId::Resources, 1)), "{}", c.text());
    c.keys("<enter>");
    assert!(matches!(c.view.details[0].what, Detail::Row(RowKey::Cpu(_))));
    c.keys("<esc>gj<enter>");
    assert!(c.text().contains("1 goes to the pane Sockets"), "{}", c.text());
}

/// The first rows are found without a list of all; they are those of the list.
#[test]
fn the_top_of_the_list_is_the_list() {
    let script = Script { connections: 3000, unix: 40, ..Script::three_faults() };
    let mut c = Console::after(script, BIG, 60);
    for (filter, order) in [("", ""), ("", "S"), ("/:8080<enter>", ""), ("", "S")] {
        c.keys(filter).keys(order);
        let rows = |c: &Console| -> Vec<String> {
            let text = c.text();
            let rows = text.lines().filter(|l| l.contains("10.0.") && !l.contains("->"));
            rows.map(|l| l[3..].to_owned()).collect()
        };
        let top = rows(&c);
        // Without a filter only those in trouble are listed, and what the others have in common.
        assert!(top.len() > if filter.is_empty() { 1 } else { 5 }, "{}", c.text());
        // The cursor is on a row now: the whole list is put in order.
        c.keys("jk");
        assert_eq!(rows(&c), top);
        c.keys("g<esc>");
    }
}

/// Nothing is hidden or left blank on large screens, and nothing breaks on odd ones.
#[test]
fn every_size_shows_the_worst() {
    for (w, h) in [(40, 12), (80, 24), (100, 27), (120, 40), (200, 60), (300, 80)] {
        let c = faults(Size::new(w, h));
        let text = c.text();
        assert!(text.contains("10.0.3.7:3306"), "{w}x{h}\n{text}");
        if w >= 80 {
            for part in ["cpu", "tcp 44", "blocked 0", "Where work waits", "Sockets"] {
                assert!(text.contains(part), "{w}x{h}: no `{part}` in\n{text}");
            }
        }
    }
    for (w, h) in [(1, 1), (2, 3), (7, 5), (1000, 1000)] {
        let mut c = faults(Size::new(w, h));
        c.text();
        c.keys("<enter>").text();
    }
}

/// What a calm host leaves of a large screen has the last minutes, the devices and the events; on an
/// ordinary one, and with sockets in trouble, it is the processes'.
#[test]
fn a_large_calm_screen_is_not_blank() {
    let panes = |script: Script, size| {
        let text = Console::after(script, size, 60).text();
        ["9 Last minutes", "7 Network", "5 Events"].map(|title| text.contains(title))
    };
    // Its twenty processes keep their lines.
    assert_eq!(panes(Script::healthy(), Size::new(200, 60)), [true, false, false]);
    assert_eq!(panes(Script::healthy(), Size::new(300, 80)), [true; 3]);
    assert_eq!(panes(Script::healthy(), BIG), [false; 3]);
    let stuck = Script { unix: 200, connections: 5000, ..Script::three_faults() };
    assert_eq!(panes(stuck, Size::new(300, 80)), [true; 3], "healthy ones take no lines");
}

/// The vitals, and the page of one of them.
#[test]
fn the_last_minutes_open_into_a_chart() {
    let mut c = faults(CLASSIC);
    let text = c.keys("9").text();
    // The faults began 50 seconds ago: the threads wait since then.
    let row = text.lines().find(|l| l.contains("   runq")).unwrap();
    assert!(row.contains("2.5") && row.contains("▁█"), "{row}");
    let text = c.keys("jjj<enter>").text();
    assert!(
        text.contains("some task waited for a disk") && text.contains("61% in 5 min"),
        "{text}"
    );
    assert!(text.contains("each column: 1.00s"), "{text}");
}

//! What keys do, on the state and on the screen.

use proptest::prelude::*;
use stallscope::sample::CollectorId;
use stallscope::sample::time::Seq;
use stallscope::view::action::Effect;
use stallscope::view::click::click;
use stallscope::view::layout::OVERVIEW;
use stallscope::view::panes::{PANES, PaneId};
use stallscope::view::state::{
    Cursor, Detail, Flow, Focus, Layout, Mode, Rec, RecState, RowKey, Sort, When,
};
use stallscope::view::vm::{LineStyle, Node, Size};
use stallscope::view::{overlay, update};

use crate::support::console::Console;
use crate::support::script::Script;

const BIG: Size = Size::new(120, 36);

fn faults() -> Console {
    Console::after(Script::three_faults(), BIG, 60)
}

/// Cookie of the socket under the cursor of the sockets pane.
fn cookie(c: &Console) -> Option<u64> {
    match c.view.pane(PaneId::Sockets)?.cursor.key()? {
        RowKey::Socket(id, _) => Some(id.cookie),
        _ => None,
    }
}

/// Text of the line that is shown as selected.
fn selected(c: &Console) -> Option<String> {
    let vm = c.vm();
    let lines = vm.nodes.iter().filter_map(|(_, n)| match n {
        Node::Lines(l) => Some(l),
        _ => None,
    });
    let line = lines.flatten().find(|l| l.style == LineStyle::Selected)?.clone();
    Some(stallscope::view::vm::to_text(&[line], 200).trim_end().to_owned())
}

#[test]
fn the_cursor_follows_the_worst_until_it_is_moved() {
    let mut c = faults();
    assert_eq!(cookie(&c), None);
    assert!(selected(&c).unwrap().contains("10.0.3.2:51322"));
    c.keys("j");
    assert_eq!(cookie(&c), Some(51));
    assert!(selected(&c).unwrap().contains("10.0.3.2:51340"));
    c.keys("g");
    assert_eq!(cookie(&c), None);
}

#[test]
fn the_cursor_stays_on_its_socket_when_the_order_changes() {
    let mut c = Console::after(Script::three_faults(), BIG, 9);
    // On a connection that will fall behind the sick ones. Healthy ones are listed by a filter.
    c.keys("/:8080<enter>jjjj");
    let before = (cookie(&c), selected(&c).unwrap());
    c.ticks(30);
    assert_eq!(cookie(&c), before.0);
    let now = selected(&c).unwrap();
    let address = before.1.split_whitespace().nth(2).unwrap();
    assert!(now.contains(address), "{now} is not {address}");
    c.keys("sss");
    assert!(selected(&c).unwrap().contains(address));
}

#[test]
fn the_order_stands_still_for_three_seconds_after_a_move() {
    let mut c = Console::after(Script::three_faults(), BIG, 9);
    c.keys("j").ticks(2);
    // The fault began at 10; the order is that of tick 8.
    assert!(c.text().contains("order held"));
    // Rows that stand for others are held like those.
    assert!(selected(&c).is_some_and(|l| l.contains("conns")), "{}", c.text());
    c.ticks(2);
    assert!(!c.text().contains("order held"));
    assert!(c.view.pane(PaneId::Sockets).unwrap().hold.is_none());
}

#[test]
fn sorting_goes_through_the_columns_with_the_interesting_end_first() {
    let mut c = faults();
    c.keys("s");
    let st = c.view.pane(PaneId::Sockets).unwrap();
    assert_eq!(st.sort, Sort::Column { index: 0, reverse: false });
    // rto is the sixth column: high values first.
    c.keys("sssss");
    assert!(c.text().contains("by rto"));
    assert!(selected(&c).unwrap().contains("3306"));
    c.keys("S");
    assert!(c.text().contains("by rto reversed"));
    assert!(!selected(&c).unwrap().contains("3306"));
}

#[test]
fn a_filter_is_live_and_escape_brings_the_old_one_back() {
    let mut c = faults();
    c.keys("/443<enter>");
    assert!(c.text().contains("/443 0 of"));
    c.keys("/<c-u>dport:3306");
    assert!(c.text().contains("/dport:3306 2 of"));
    assert!(matches!(c.view.mode, Mode::Filter { .. }));
    assert!(c.vm().cursor.is_some());
    c.keys("<esc>");
    assert!(c.text().contains("/443 0 of"));
    c.keys("/<c-u>rto>1s comm:java<enter>");
    assert!(c.text().contains("2 of"));
    c.keys("/<c-u>!state:estab<enter>");
    assert!(c.text().contains("3 of"), "two listeners and a UDP socket");
    c.keys("/<c-u><enter>");
    assert!(!c.text().contains("/!st"), "an empty filter is none");
}

/// The last line of the screen.
fn footer(c: &Console) -> String {
    c.text().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_filter_that_is_not_understood_says_so_and_what_may_be_meant() {
    let mut c = faults();
    c.keys("/rtt0>5");
    assert!(footer(&c).contains("no field rtt0; did you mean rtt, retr, rto?"), "{}", footer(&c));
    c.keys("<enter>");
    assert!(matches!(c.view.mode, Mode::Filter { .. }), "it is not applied");
    c.keys("<c-u>rto>1x");
    assert!(footer(&c).contains("rto 1x: a time is expected"), "{}", footer(&c));
    c.keys("<bs>s<enter>");
    assert!(c.text().contains("/rto>1s 2 of"));
    // Esc where nothing else is open clears it.
    c.keys("<esc>");
    assert!(!c.text().contains("/rto"));
}

#[test]
fn tab_completes_a_field_and_an_empty_table_says_why() {
    let mut c = faults();
    c.keys("/dp<tab>");
    assert!(footer(&c).starts_with(" filter /dport "), "{}", footer(&c));
    c.keys(":9<enter>");
    assert!(c.text().contains("passes the filter; Esc clears it"), "{}", c.text());
    c.keys("/<c-u>s<tab>");
    for name in ["st", "state", "sendq", "stall", "sport", "snd_wnd"] {
        assert!(footer(&c).split(' ').any(|w| w == name), "{}", footer(&c));
    }
    c.keys("<esc>/<c-u>dport = :3306<enter>");
    assert!(c.text().contains("/dport = :3306 2 of"));
}

#[test]
fn up_and_down_bring_back_earlier_filters() {
    let mut c = faults();
    c.keys("/443<enter>/<c-u>java<enter>/<c-u>443<enter>/");
    let shown = |c: &Console| footer(c).trim().to_owned();
    c.keys("<up>");
    assert_eq!(shown(&c), "filter /443");
    c.keys("<up>");
    assert_eq!(shown(&c), "filter /java");
    c.keys("<up>");
    assert_eq!(shown(&c), "filter /java", "there are no more");
    c.keys("<down>");
    assert_eq!(shown(&c), "filter /443");
    c.keys("<down><enter>");
    assert!(!c.text().contains("/443"), "the one that was being typed was empty");
}

#[test]
fn the_script_of_the_handbook() {
    let mut c = faults();
    c.keys("jj/443<enter>s<space>");
    assert_eq!(c.view.when, When::Frozen(Seq(59)));
    assert_eq!(c.view.pane(PaneId::Sockets).unwrap().filter.text, "443");
    c.ticks(12);
    assert!(c.text().contains("FROZEN 12s behind"));
    c.keys("<space>");
    assert!(c.text().contains("LIVE 1s"));
}

#[test]
fn time_goes_back_and_forth_over_what_is_in_memory() {
    let mut c = faults();
    c.keys("[[[");
    assert_eq!(c.view.when, When::Rewound(Seq(56)));
    assert!(c.text().contains("REWOUND 3s behind"));
    c.keys("]]]");
    assert_eq!(c.view.when, When::Live);
    c.keys("<lt><lt>");
    assert_eq!(c.view.when, When::Rewound(Seq(39)));
    c.keys("<gt>");
    assert_eq!(c.view.when, When::Rewound(Seq(49)));
    c.keys("0");
    assert_eq!(c.view.when, When::Live);
    // Before the faults there were no findings.
    c.keys("<lt><lt><lt><lt><lt>");
    assert!(c.text().contains("no findings"));
    c.keys("<lt><lt><lt>");
    assert_eq!(c.view.when, When::Rewound(Seq(0)), "the start of memory is the end");
}

#[test]
fn findings_are_stops_in_time() {
    let mut c = faults();
    let mut stops = Vec::new();
    loop {
        let before = c.view.when;
        c.keys("{");
        match c.view.when {
            When::Rewound(s) if c.view.when != before => stops.push(s.0),
            _ => break,
        }
    }
    assert_eq!(stops.len(), 3, "three findings began: {stops:?}");
    assert!(stops.is_sorted_by(|a, b| a > b));
    assert!(c.text().contains("no earlier finding"));
    assert_eq!(c.view.focus, Focus::Findings);
    assert!(c.view.finding.is_some());
    c.keys("}}}");
    assert_eq!(c.view.when, When::Live);
}

/// The key only asks for a mark: the recorder takes it or says why not.
#[test]
fn marks_of_the_user_are_stops_in_time_and_on_its_line() {
    let mut c = faults();
    c.keys("(");
    assert!(c.text().contains("no earlier mark"));
    c.keys("m");
    assert_eq!(c.effects, [Effect::Mark]);
    let at = |c: &Console| c.analysis.latest().unwrap().tick.seq;
    let first = at(&c);
    update::marked(&mut c.view, &c.analysis, "console 1");
    assert!(c.text().contains("marked 14:15:59 as console 1"), "{}", c.text());
    c.ticks(10);
    c.keys("[");
    let second = at(&c);
    update::marked(&mut c.view, &c.analysis, "console 2");
    assert!(c.text().contains("as console 2: the current time, not the time shown"));
    c.keys("0").ticks(10);
    let text = c.text();
    let line = text.lines().find(|l| l.starts_with(" 14:1") && l.contains('┃')).unwrap();
    assert_eq!(line.matches('m').count(), 2, "{line}");
    c.keys("((");
    assert_eq!(c.view.when, When::Rewound(first));
    assert!(c.text().contains("mark: console 1"));
    c.keys(")");
    assert_eq!(c.view.when, When::Rewound(second));
    c.keys(")");
    assert!(c.text().contains("no later mark"));
    assert_eq!(c.view.when, When::Rewound(second));
}

#[test]
fn the_footer_offers_marks_while_it_records() {
    let mut c = Console::after(Script::healthy(), Size::new(160, 36), 5);
    assert!(!c.text().contains("m mark"));
    c.view.rec =
        Some(Rec { size: 1, latency: std::time::Duration::from_millis(1), state: RecState::Ok });
    assert!(c.text().contains("m mark"), "{}", c.text());
}

#[test]
fn what_falls_out_of_memory_takes_the_screen_along() {
    let mut c = Console::after(Script::healthy(), BIG, 50);
    c.analysis = stallscope::analysis::Analysis::new(
        c.script.host(),
        stallscope::diagnose::Engine::default(),
        0,
    );
    let mut c2 = Console::new(Script::healthy(), BIG);
    c2.analysis = c.analysis;
    c2.ticks(45);
    c2.keys("<space>");
    assert_eq!(c2.view.when, When::Frozen(Seq(44)));
    c2.ticks(100);
    // 40 moments are kept: 105 to 144.
    assert_eq!(c2.view.when, When::Rewound(Seq(105)));
    assert!(c2.text().contains("REWOUND"));
}

#[test]
fn enter_explains_and_escape_comes_back() {
    let mut c = faults();
    c.keys("f<enter>");
    assert!(matches!(&c.view.details[0].what, Detail::Finding(k) if k.rule.0 == "tcp-silent-rto"));
    let t = c.text();
    for part in ["crit", "since", "confirmed", "doubles with each timeout", "> 1s", "ruled out"] {
        assert!(t.contains(part), "no `{part}` in\n{t}");
    }
    // A name is shown, not obeyed.
    let by = "\u{FFFD}[2J/7 with 61% of the CPU time,";
    assert!(t.contains(by) && !t.contains('\x1b'), "{t}");
    assert!(t.find("\u{FFFD}[2J") < t.find("ruled out"), "{t}");
    // From the finding to the socket that it names, and back.
    c.keys("<enter>");
    let t = c.text();
    assert!(t.contains("where is the packet?") && t.contains("stuck here"), "{t}");
    assert!(t.contains("Network is unreachable"), "{t}");
    assert!(t.contains("not reached"));
    c.keys("<esc>");
    assert_eq!(c.view.details.len(), 1);
    c.keys("<esc><esc><esc>");
    assert!(c.view.details.is_empty());
    assert!(c.effects.is_empty(), "escape never quits");
}

#[test]
fn copy_takes_the_next_command() {
    let mut c = faults();
    c.keys("f<enter>y");
    assert_eq!(c.effects, [Effect::Copy("ip route get 10.0.3.7 from 10.0.3.2".into())]);
    assert!(c.text().contains("sent to the clipboard: ip route get"));
    c.keys("j");
    assert!(!c.text().contains("sent to the clipboard"));
}

#[test]
fn copy_takes_the_row_where_there_is_no_command() {
    for (pane, text) in
        [("1", "ip route get 10.0.3.7"), ("2", "vdb"), ("3", "cpu3"), ("4", "java/2214")]
    {
        let mut c = faults();
        c.keys(pane).keys("y");
        assert!(
            matches!(&c.effects[..], [Effect::Copy(t)] if t.contains(text)),
            "{pane}: {:?}",
            c.effects
        );
    }
}

#[test]
fn write_gives_the_whole_pane_not_only_what_is_seen() {
    let mut c = faults();
    c.keys("sw");
    let Some(Effect::Save { name, stamp, text }) = c.effects.first() else {
        panic!("nothing written")
    };
    assert_eq!((name.as_str(), stamp.as_str()), ("sockets", "141559"));
    assert!(text.lines().count() > 45, "all rows are there");
    assert!(text.contains("tcp-silent-rto") && text.contains("10.0.3.7:3306"));
    assert!(text.contains("10.0.9.51:6039"), "the last connection");
}

#[test]
fn numbers_tab_and_zoom_walk_through_the_panes() {
    let mut c = faults();
    c.keys("2");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::Disks));
    assert_eq!(c.view.layout, Layout::Overview);
    c.keys("2");
    assert_eq!(c.view.layout, Layout::Zoom);
    c.keys("<esc>");
    assert_eq!(c.view.layout, Layout::Overview);
    c.keys("<tab><tab>");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::RunQueue));
    assert!(c.text().contains("┌ 4 Run queue") && c.text().contains("┌ 2 Disks"));
    // Events have no place of their own in the overview: they take the screen while they are looked at.
    c.keys("<tab>");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::Events));
    assert!(c.text().contains("─ 5 Events") && !c.text().contains("┌"), "{}", c.text());
    c.keys("<tab>");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::Processes));
    c.keys("<tab>");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::Network));
    c.keys("<tab>");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::Resources));
    c.keys("<tab>");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::History));
    c.keys("<tab>");
    assert_eq!(c.view.focus, Focus::Findings);
    c.keys("<tab>");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::Sockets));
    assert!(c.text().contains("┌ 4 Run queue"));
    c.keys("5");
    assert_eq!((c.view.focus, c.view.layout), (Focus::Pane(PaneId::Events), Layout::Overview));
    c.keys("<esc>");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::Sockets));
    c.keys("<s-tab>");
    assert_eq!(c.view.focus, Focus::Findings);
    c.keys("z");
    assert_eq!(c.view.focus, Focus::Pane(PaneId::Sockets));
}

#[test]
fn columns_can_be_chosen() {
    let mut c = faults();
    assert!(!c.text().contains("proto"));
    c.keys("c");
    assert!(c.text().contains("[x] peer"));
    let at = PANES[0].columns().iter().position(|k| k.key == "proto").unwrap();
    c.keys(&"j".repeat(at)).keys("<space><esc>");
    assert!(c.text().contains("proto"));
    assert_eq!(c.view.mode, Mode::Normal);
}

#[test]
fn the_help_lists_every_key_and_scrolls() {
    let mut c = faults();
    c.size = Size::new(80, 24);
    c.keys("?");
    assert!(c.text().contains("Keys") && c.text().contains("close"));
    assert!(!c.text().contains("critical: work is stuck or lost"));
    c.keys(&"j".repeat(overlay::help_lines(&c.view).len()));
    assert!(c.text().contains("critical: work is stuck or lost"), "{}", c.text());
    c.keys("?");
    assert_eq!(c.view.mode, Mode::Normal);
}

#[test]
fn the_last_line_of_a_page_is_reached() {
    for keys in ["G".to_owned(), "j".repeat(99)] {
        let mut c = faults();
        c.keys("f<enter>");
        c.size = Size::new(80, 12);
        assert!(!c.text().contains("10.0.3.2:51340 -> "), "{}", c.text());
        let t = c.keys(&keys).text();
        assert!(t.contains("10.0.3.2:51322 -> ") && t.contains("10.0.3.2:51340 -> "), "{t}");
    }
}

#[test]
fn q_and_ctrl_c_quit() {
    for (keys, n) in [("q", 1), ("<c-c>", 1), ("/q<c-c>", 1), ("?q", 0), ("?qq", 1), ("<c-z>", 0)] {
        let mut c = faults();
        c.keys(keys);
        let quits = c.effects.iter().filter(|e| **e == Effect::Quit).count();
        assert_eq!(quits, n, "{keys}");
    }
}

#[test]
fn a_gone_row_leaves_the_cursor_near() {
    let mut c = Console::after(Script::healthy(), OVERVIEW, 5);
    c.keys("/:8080<enter>G");
    c.script.connections = 20;
    c.ticks(5);
    assert_eq!(selected(&c), None, "the socket is gone and nothing else is selected");
    c.keys("k");
    assert!(selected(&c).is_some());
    assert!(matches!(c.view.pane(PaneId::Sockets).unwrap().cursor, Cursor::On { .. }));
}

#[test]
fn a_silent_source_is_told() {
    let mut c = faults();
    c.view.flow = Flow::Silent(std::time::Duration::from_secs(7));
    assert!(c.text().contains("NO DATA 7s"));
    c.view.flow = Flow::Ended("the reader died".into());
    assert!(c.text().contains("ENDED") && c.text().contains("ended: the reader died"));
    c.ticks(1);
    assert!(c.text().contains("LIVE"));
}

/// As of a version that did not read it yet.
#[test]
fn what_a_recording_does_not_hold_is_told() {
    let script = Script { off: vec![(CollectorId::Disks, "")], ..Script::healthy() };
    let mut c = Console::new(script, BIG);
    let mut tick = c.script.tick(0);
    tick.health.retain(|h| h.id != CollectorId::Disks);
    c.analysis.push(std::sync::Arc::new(tick));
    update::tick(&mut c.view, &c.analysis);
    assert!(c.text().contains("not in this recording"), "{}", c.text());
}

#[test]
fn keys_before_the_first_tick_do_no_harm() {
    let mut c = Console::new(Script::healthy(), BIG);
    c.keys("jkG<enter>z<tab>s/abc<enter>[]{}<lt><gt>0<space>yw?<esc>c<space><esc>1234f");
    assert!(c.text().contains("collecting"));
    assert!(
        update::update(&mut c.view, &c.analysis, c.size, stallscope::view::action::Action::Quit)
            .is_some()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever happens to the order, the line under the cursor is the socket it was put on.
    #[test]
    fn the_selection_follows_the_key(
        down in 1usize..60,
        orders in prop::collection::vec((1u64..1000, "[sS]{0,3}", 20u32..60), 1..5),
    ) {
        let mut c = Console::after(Script::three_faults(), BIG, 5);
        c.keys("/:8080<enter>").keys(&"j".repeat(down));
        let key = c.view.pane(PaneId::Sockets).unwrap().cursor.key().unwrap();
        let address = selected(&c).unwrap();
        let address: Vec<_> = address.split_whitespace().skip(1).take(2).map(str::to_owned).collect();
        for (shuffle, keys, connections) in orders {
            c.script.shuffle = shuffle;
            c.script.connections = connections;
            c.ticks(4).keys(&keys).ticks(1);
            prop_assert_eq!(c.view.pane(PaneId::Sockets).unwrap().cursor.key(), Some(key));
            // A socket that is gone leaves no other one selected.
            if let Some(line) = selected(&c) {
                for part in &address {
                    prop_assert!(line.contains(part.as_str()), "{} has no {}", line, part);
                }
            } else {
                prop_assert!(connections < 40);
            }
        }
    }
}

#[test]
fn a_click_selects_and_a_second_one_opens() {
    let mut c = faults();
    // The second row of the sockets: below border and titles.
    let y = c.text().lines().position(|l| l.contains("51340")).unwrap() as u16;
    click(&mut c.view, &c.analysis, BIG, 10, y);
    assert_eq!(cookie(&c), Some(51));
    assert!(c.view.details.is_empty());
    click(&mut c.view, &c.analysis, BIG, 10, y);
    assert!(matches!(c.view.details[0].what, Detail::Row(RowKey::Socket(..))));
    c.keys("<esc>");
    // A finding, and the pane at the lower right.
    click(&mut c.view, &c.analysis, BIG, 10, 6);
    assert_eq!(c.view.finding.as_ref().unwrap().rule.0, "disk-capped-cloud");
    // It stands with its CPU as well, further up.
    let text = c.text();
    let rows = text.lines().enumerate().filter(|(_, l)| l.contains("mysqld/2215"));
    let y = rows.last().unwrap().0 as u16;
    click(&mut c.view, &c.analysis, BIG, 100, y);
    assert_eq!(c.view.focus, Focus::Pane(PaneId::RunQueue));
    assert!(selected(&c).unwrap().contains("mysqld/2215"));
    click(&mut c.view, &c.analysis, BIG, 119, 35);
}

/// One row for all connections of a port; Enter lists them, and Enter again opens the first.
#[test]
fn healthy_connections_are_one_row_for_each_port_or_peer() {
    let mut c = Console::after(Script::healthy(), BIG, 5);
    let text = c.text();
    assert!(text.contains("none of 45 stuck"), "{text}");
    let row = text.lines().find(|l| l.contains("*:8080")).unwrap();
    assert!(row.contains("40 conns") && row.contains("idle"), "{row}");
    assert!(!text.contains("10.0.9.51:6039"), "none by itself: {text}");
    c.keys("<enter>");
    let text = c.text();
    assert!(text.contains("port 8080") && text.contains("ss -tinpoma sport = :8080"), "{text}");
    assert!(text.contains("10.0.3.2:8080 > 10.0.9."), "{text}");
    c.keys("<enter>");
    assert!(c.text().contains("Socket: where is the packet?"), "{}", c.text());
    c.keys("<esc><esc>");
    // Another order lists each of them, and no group.
    let text = c.keys("s").text();
    assert!(!text.contains("conns") && text.contains("10.0.9."), "{text}");
}

#[test]
fn unix_sockets_stand_behind_the_others_unless_their_accept_queue_is_full() {
    let script = Script { unix: 300, connections: 5, ..Script::healthy() };
    let mut c = Console::after(script, BIG, 30);
    c.keys("z");
    let text = c.text();
    assert!(text.contains("+ 302 unix "), "{text}");
    let place = |what: &str| text.lines().position(|l| l.contains(what));
    let (full, inet) = (place("app/worker.sock"), place(":3306"));
    assert!(full.is_some() && full < inet, "{text}");
    assert_eq!(place("* 70001"), None, "healthy ones are only counted: {text}");
    assert!(c.keys("/unix<enter>").text().contains("* 70001"), "{}", c.text());
    c.keys("<esc>");
    // The one in trouble is opened; the owner of each that is shown is asked for.
    assert!(selected(&c).unwrap().contains("acc 5/5"), "{text}");
    let asked = c.vm().visible;
    assert!(asked.iter().any(|(id, inode)| id.cookie == 0 && *inode == 60_002));
    c.keys("<enter>");
    let text = c.text();
    assert!(text.contains("UNIX socket") && text.contains("5 of 5   !! full"), "{text}");
    assert!(text.contains("worker/812") && text.contains("grep -w 60002"), "{text}");
}

#[test]
fn the_protocol_tells_unix_sockets_from_the_others() {
    let script = Script { unix: 300, ..Script::healthy() };
    let mut c = Console::after(script, BIG, 30);
    c.keys("z/proto:unix<enter>");
    assert!(c.text().contains("302 of "), "{}", c.text());
    c.keys("/<c-u>proto:udp<enter>");
    assert!(c.text().contains(" 1 of "), "{}", c.text());
    c.keys("/<c-u>proto:tcp<enter>");
    assert!(!c.text().contains("* 7000"), "{}", c.text());
    // An abstract name is harmless, and found without its NUL.
    c.keys("/<c-u>@bus<enter>");
    let text = c.text();
    assert!(text.contains("@bus") && !text.contains('\x1b'), "{text}");
    // The cursor finds its row again.
    c.keys("/<c-u>proto:unix<enter>jj<enter>");
    assert!(c.text().contains("peer"), "{}", c.text());
}

/// The detail of a disk says what it behaves like, with the data behind it.
#[test]
fn a_capped_disk_shows_its_limit() {
    let mut c = Console::after(Script::three_faults(), Size::new(120, 70), 60);
    c.keys("2/vdb<enter><enter>");
    assert!(matches!(c.view.details[0].what, Detail::Row(RowKey::Disk(_))));
    let text = c.text();
    let line = text.lines().find(|l| l.contains("behaves like")).expect("a limit");
    // 16800 reads/s at 128 s of requests a second, from the first sick tick on.
    assert!(
        line.contains("behaves like 16.8k IOPS") && line.contains("samples at queue length 128"),
        "{line}"
    );
    assert!(text.contains("no burst: the load began at this rate"));
    // 1800 + 30 * 400 = 13800 is 22% below, 1800 + 50 * 400 = 21800 is 30% above: neither fits.
    assert!(text.contains("nearest tier: cloud SSD of 400 GiB, sold with 13.8k IOPS (+22%)"));
    assert!(text.contains("each extra request in the queue adds"));
}

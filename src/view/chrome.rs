//! Header, timeline, findings strip and footer.

use std::time::Duration;

use super::context::{Cx, clock as clock_time, clock_minutes, day};
use super::keymap;
use super::layout::{FindingsTitle, Places};
use super::pace::interval_text;
use super::series::Buckets;
use super::state::{FindingKey, Flow, Focus, Input, Link, Mode, Rec, RecState, ViewState, When};
use super::table::tone_of;
use super::vm::{Area, Line, LineStyle, Tone, Vm};
use super::{scrub, text, units};
use crate::analysis::Analysis;
use crate::diagnose::blind;
use crate::diagnose::{Confidence, Finding, Severity};
use crate::playback::timeline::{Judged, Showing};
use crate::sample::tick::Tick;
use crate::sample::time::{MonoNs, Seq};
use crate::sample::{Signal, SignalStatus};

/// ` stallscope  db7  6.18.44  up 41d  LIVE 1s  load 9.8  cov 8/9  self 0.3% 21M     14:17:43`
pub(super) fn header(a: &Analysis, cx: Option<&Cx<'_>>, v: &ViewState, w: u16) -> Line {
    let host = a.host();
    let mut line = Line::of(" stallscope ", Tone::Strong);
    let mut parts: Vec<(u8, String, Tone)> = Vec::new();
    parts.push((1, text::cut(&text::clean(&host.hostname), 24).into_owned(), Tone::Strong));
    parts.push((5, text::cut(&text::clean(&host.kernel), 20).into_owned(), Tone::Dim));
    let (mode, tone) = mode_text(a, v);
    parts.push((0, mode, tone));
    if let Some(cx) = cx {
        let up = Duration::from_nanos(cx.mono().0);
        parts.insert(2, (6, format!("up {}", units::age(up)), Tone::Dim));
        if let Some([load, ..]) = cx.sched.and_then(|s| s.value.load) {
            parts.push((3, format!("load {load:.1}"), Tone::Plain));
        }
        let (have, all) = coverage(cx.now.tick);
        if all > 0 {
            let tone = if have < all { Tone::Strong } else { Tone::Dim };
            parts.push((2, format!("cov {have}/{all}"), tone));
        }
        if let Some(own) = cx.now.derived.own {
            let rss =
                own.rss_bytes.map_or(String::new(), |b| format!(" {}", units::bytes(b as f64)));
            parts.push((4, format!("self {}%{rss}", units::pct(own.cpu_pct)), Tone::Dim));
        }
        if let Some(gap) = cx.now.tick.gap {
            let s = if gap.ticks == 1 { "" } else { "s" };
            parts.push((1, format!("{} tick{s} lost", gap.ticks), Tone::Warn));
        }
    }
    if let Judged::Since(since) = v.timeline.judged() {
        let clock = clock_time(since, &v.tz);
        parts.push((1, format!("findings only from {clock}"), Tone::Warn));
    }
    if let Some(rec) = &v.rec {
        let (text, tone) = rec_text(rec);
        parts.push((0, text, tone));
    }
    if v.link == Link::Slow {
        parts.push((1, "slow link".to_owned(), Tone::Warn));
    }
    let clock = cx.map_or(String::new(), |c| {
        let clock = c.clock(c.now.tick.wall);
        if v.timeline.has_present() {
            return clock;
        }
        format!("{} {clock}", day(c.now.tick.wall, c.tz))
    });
    // Drop what matters least until the rest fits.
    let need = |p: &[(u8, String, Tone)]| -> usize {
        12 + clock.len() + 1 + p.iter().map(|p| text::width(&p.1) + 2).sum::<usize>()
    };
    while need(&parts) > usize::from(w) && parts.len() > 1 {
        let Some(i) = (0..parts.len()).max_by_key(|i| (parts[*i].0, *i)) else { break };
        parts.remove(i);
    }
    if need(&parts) > usize::from(w) {
        line = Line::of(" ", Tone::Plain);
    }
    for (_, s, tone) in parts {
        line.add(" ", Tone::Plain);
        line.add(s, tone);
        line.add(" ", Tone::Plain);
    }
    line.right(format!("{clock} "), Tone::Plain)
}

/// `REC 1.2M 3ms`: size of the recording, and how long the disk takes for a tick.
fn rec_text(rec: &Rec) -> (String, Tone) {
    let size = units::bytes(rec.size as f64);
    let latency = units::duration(rec.latency);
    match &rec.state {
        RecState::Ok => (format!("REC {size} {latency}"), Tone::Strong),
        RecState::Behind(0) => (format!("REC {size} behind, disk {latency}"), Tone::Warn),
        RecState::Behind(n) => {
            (format!("REC {size} {n} ticks dropped, disk {latency}"), Tone::Warn)
        }
        RecState::Paused(why) => (format!("REC PAUSED {}", text::clean(why)), Tone::Crit),
    }
}

/// `LIVE 1s`, `FROZEN 12s behind`: which time is shown.
fn mode_text(a: &Analysis, v: &ViewState) -> (String, Tone) {
    let behind = |seq: Seq| -> String {
        let shown = a.at(seq).map(|m| m.tick.mono);
        let last = a.latest().map(|m| m.tick.mono);
        let d = last.zip(shown).map_or(Duration::ZERO, |(l, s)| l.since(s));
        units::age(d)
    };
    let speed = format!("{}x", v.play.speed);
    if let Some(showing) = v.timeline.showing(v.play.on) {
        return match showing {
            Showing::Seeking => ("REPLAY seeking".to_owned(), Tone::Accent),
            Showing::Playing => (format!("REPLAY {speed}"), Tone::Strong),
            Showing::Paused => ("REPLAY paused".to_owned(), Tone::Warn),
        };
    }
    match (&v.flow, v.when) {
        (_, When::Rewound(s)) if v.play.on => {
            (format!("REWOUND {} behind, {speed}", behind(s)), Tone::Warn)
        }
        (_, When::Frozen(s)) => (format!("FROZEN {} behind", behind(s)), Tone::Warn),
        (_, When::Rewound(s)) => (format!("REWOUND {} behind", behind(s)), Tone::Warn),
        (Flow::Ended(_), When::Live) => ("ENDED".to_owned(), Tone::Warn),
        (Flow::Silent(d), When::Live) => (format!("NO DATA {}", units::age(*d)), Tone::Warn),
        (Flow::Ticking, When::Live) => {
            (format!("LIVE {}", interval_text(a.host().interval)), Tone::Strong)
        }
    }
}

/// Signals that are measured as a whole, and all of them.
#[must_use]
pub fn coverage(tick: &Tick) -> (usize, usize) {
    let all = crate::metrics::coverage::coverage(&tick.health);
    let missing = |s: &Signal| matches!(s.status, SignalStatus::Missing { .. });
    let have = all.iter().filter(|s| !missing(s) && s.unseen.is_none()).count();
    (have, all.len())
}

/// Nice lengths of the whole timeline, seconds.
const SPANS: [u64; 10] = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 86_400];

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Slot {
    /// No tick: before the start, or a gap.
    Gap,
    Quiet,
    Lasting(Severity),
    Onset(Severity),
    /// Ticks are missing.
    Lost,
    /// The user's mark.
    Mark,
}

/// The timeline: findings over time, and the current position.
pub(super) fn timeline(a: &Analysis, cx: &Cx<'_>, v: &ViewState, w: u16) -> Line {
    if let Some(line) = scrub::line(a, cx, v, w) {
        return line;
    }
    let newest = a.latest().map_or(cx.mono(), |m| m.tick.mono);
    let oldest = a.history().first().map_or(newest, |m| m.tick.mono);
    let n = usize::from(w).saturating_sub(16).max(1);
    let span = newest.since(oldest).as_secs();
    let span = SPANS.into_iter().find(|s| *s >= span).unwrap_or(86_400);
    let b = Buckets::new(newest, Duration::from_secs(span), a.host().interval, n);
    let mut slots = slots(a, cx, &b);
    let marked = v.timeline.marks().iter().filter_map(|m| a.history().get(m.seq));
    for at in marked.filter_map(|m| b.index(m.tick.mono)) {
        if let Some(slot) = slots.get_mut(at) {
            *slot = Slot::Mark;
        }
    }
    let cursor = b.index(cx.mono());
    let mut line = Line::of(format!(" {} ", clock_minutes(cx.wall_of(b.start), cx.tz)), Tone::Dim);
    for (i, slot) in slots.iter().enumerate() {
        if Some(i) == cursor {
            let tone = if v.when == When::Live { Tone::Accent } else { Tone::Warn };
            line.add("┃", tone);
            continue;
        }
        let (text, tone) = look(*slot);
        match line.left.last_mut() {
            // Runs of one tone are one piece.
            Some(super::vm::Piece::Text(t, old)) if *old == tone => t.to_mut().push_str(text),
            _ => line.add(text, tone),
        }
    }
    line.right(format!(" {} ", clock_minutes(cx.wall_of(newest), cx.tz)), Tone::Dim)
}

/// How a column of the line looks.
pub(super) fn look(slot: Slot) -> (&'static str, Tone) {
    match slot {
        Slot::Gap => (" ", Tone::Dim),
        Slot::Quiet => ("·", Tone::Dim),
        Slot::Lasting(Severity::Crit) => ("━", Tone::Crit),
        Slot::Lasting(Severity::Warn) => ("─", Tone::Warn),
        Slot::Lasting(Severity::Info) => ("·", Tone::Info),
        Slot::Onset(Severity::Crit) => ("!", Tone::Crit),
        Slot::Onset(Severity::Warn) => ("!", Tone::Warn),
        Slot::Onset(Severity::Info) => ("-", Tone::Info),
        Slot::Lost => ("?", Tone::Warn),
        Slot::Mark => ("m", Tone::Accent),
    }
}

fn slots(a: &Analysis, cx: &Cx<'_>, b: &Buckets) -> Vec<Slot> {
    let mut slots = vec![Slot::Gap; b.n];
    for (seq, f) in a.findings() {
        let Some(m) = a.history().get(seq) else { continue };
        let Some(slot) = b.index(m.tick.mono).and_then(|i| slots.get_mut(i)) else { continue };
        let worst = f.worst();
        *slot = match (*slot, worst) {
            (Slot::Lasting(old), Some(s)) => Slot::Lasting(old.max(s)),
            (_, Some(s)) => Slot::Lasting(s),
            (Slot::Gap, None) => Slot::Quiet,
            (old, None) => old,
        };
    }
    // A bucket shorter than the sampling interval is not a gap.
    let interval = a.host().interval;
    if b.len < interval * 2 {
        for i in 1..slots.len() {
            if slots[i] == Slot::Gap && slots[i - 1] != Slot::Gap {
                let next = slots.get(i + 1).copied().unwrap_or(slots[i - 1]);
                if next != Slot::Gap {
                    slots[i] = slots[i - 1];
                }
            }
        }
    }
    let latest = a.latest();
    let all = latest.iter().flat_map(|m| m.findings.all().chain(&m.findings.cleared));
    for f in all.chain(cx.now.findings.all()) {
        if let Some(slot) = b.index(f.since).and_then(|i| slots.get_mut(i)) {
            *slot = match *slot {
                Slot::Onset(old) => Slot::Onset(old.max(f.fire.severity)),
                _ => Slot::Onset(f.fire.severity),
            };
        }
    }
    slots
}

/// The strip of findings, worst first.
pub(super) fn findings(vm: &mut Vm, cx: Option<&Cx<'_>>, v: &ViewState, p: &Places) {
    let area = p.findings;
    let Some(cx) = cx else {
        vm.lines(area, vec![Line::of(" collecting ...", Tone::Dim)]);
        return;
    };
    let active = &cx.now.findings.active;
    let mut lines = Vec::new();
    if active.is_empty() {
        lines.push(quiet_line(cx, area.w));
        vm.lines(area, lines);
        return;
    }
    let mut rows = usize::from(area.h);
    if p.findings_title == FindingsTitle::Line {
        lines.push(title_line(cx, v).whole(area.w));
        rows = rows.saturating_sub(1);
    }
    let selected = selected_finding(cx, v);
    let (start, shown) = findings_window(cx, v, rows);
    let more = shown < active.len() && rows > 1;
    let focused = v.focus == Focus::Findings && v.details.is_empty();
    for (i, f) in active.iter().enumerate().skip(start).take(shown) {
        let count = (rows == 1 && active.len() > 1).then_some(active.len());
        let mut line = finding_line(cx, f, area.w, count);
        if focused && selected == Some(i) {
            line.style = LineStyle::Selected;
        }
        lines.push(line);
    }
    if more {
        lines.push(more_line(active, start, shown));
    }
    vm.lines(area, lines);
}

/// First finding shown in `rows` rows, and how many: the selected one stays visible, and the
/// last row says how many more there are.
fn findings_window(cx: &Cx<'_>, v: &ViewState, rows: usize) -> (usize, usize) {
    let n = cx.now.findings.active.len();
    let shown = if n > rows && rows > 1 { rows - 1 } else { rows };
    (selected_finding(cx, v).map_or(0, |s| (s + 1).saturating_sub(shown)), shown)
}

/// First finding shown in the strip.
#[must_use]
pub fn first_finding(cx: &Cx<'_>, v: &ViewState, p: &Places) -> usize {
    let title = usize::from(p.findings_title == FindingsTitle::Line);
    findings_window(cx, v, usize::from(p.findings.h).saturating_sub(title)).0
}

/// Place of the finding under the cursor; the worst when none was chosen or it is gone.
#[must_use]
pub fn selected_finding(cx: &Cx<'_>, v: &ViewState) -> Option<usize> {
    let active = &cx.now.findings.active;
    let by_key = |k: &FindingKey| active.iter().position(|f| is(f, k));
    v.finding.as_ref().and_then(by_key).or(if active.is_empty() { None } else { Some(0) })
}

/// Whether a finding has this identity.
#[must_use]
pub fn is(f: &Finding, k: &FindingKey) -> bool {
    f.rule == k.rule && f.subject == k.subject
}

fn quiet_line(cx: &Cx<'_>, w: u16) -> Line {
    let coverage = crate::metrics::coverage::coverage(&cx.now.tick.health);
    let blind = blind::blind_spots(&coverage);
    let clear = match blind.len() {
        // A narrow screen must say first that something is left out.
        n if n > 0 && w < 60 => {
            format!(" no findings, {n} unread: {}", blind::clause(&blind, blind::SHOWN))
        }
        _ => format!(" {}", blind::all_clear(&blind, blind::SHOWN)),
    };
    let mut line = Line::of(text::cut(&clear, usize::from(w)).into_owned(), Tone::Strong);
    if w < 60 {
        return line;
    }
    let seen = cx.analysis.history().first().map_or(cx.mono(), |m| m.tick.mono);
    let mut more = vec![format!("  watched for {}", units::age(cx.mono().since(seen)))];
    if let Some(last) = cx.now.findings.cleared.first() {
        more.push(format!("  last: {}, ended {}", last.rule, cx.clock(last.last_seen)));
    }
    let rules = cx.now.findings.not_judged.iter().map(|n| n.rule);
    let n = rules.collect::<std::collections::BTreeSet<_>>().len();
    let right = match n {
        1 => "1 rule lacks an input ".to_owned(),
        n => format!("{n} rules lack an input "),
    };
    // What an all-clear leaves out has priority over the rest of the line.
    for text in more {
        if blind.is_empty() || line.width() + text::width(&text) < usize::from(w) {
            line.add(text, Tone::Dim);
        }
    }
    if n > 0 && (blind.is_empty() || line.width() + right.len() < usize::from(w)) {
        line = line.right(right, Tone::Dim);
    }
    line.whole(w)
}

fn title_line(cx: &Cx<'_>, v: &ViewState) -> Line {
    let active = &cx.now.findings.active;
    let folded = cx.now.findings.folded.len();
    let crit = cx.now.findings.all().filter(|f| f.fire.severity == Severity::Crit).count();
    let tone = if v.focus == Focus::Findings { Tone::Accent } else { Tone::Strong };
    let mut line = Line::of(" FINDINGS", tone);
    if folded > 0 {
        let causes = if active.len() == 1 { "cause" } else { "causes" };
        line.add(format!(" {} {causes}, {folded} folded", active.len()), Tone::Plain);
    } else {
        line.add(format!(" {}", active.len()), Tone::Plain);
    }
    if crit > 0 {
        line.add(format!(", {crit} critical"), Tone::Plain);
    }
    let key = |action| {
        let b = keymap::KEYMAP.iter().find(|b| b.action == action);
        b.and_then(|b| b.keys.first()).map_or(String::new(), |k| keymap::key_name(*k))
    };
    line.right(
        if v.focus == Focus::Findings {
            format!("{} why ", key(super::action::Action::Open))
        } else {
            format!("{} select ", key(super::action::Action::FocusFindings))
        },
        Tone::Dim,
    )
}

fn finding_line(cx: &Cx<'_>, f: &Finding, w: u16, of: Option<usize>) -> Line {
    let s = cx.now.findings.severity(f);
    let mut line = Line::of(format!(" {:<2} ", s.mark()), tone_of(s));
    if let Some(n) = of {
        line.add(format!("{n}: "), Tone::Strong);
    }
    if w >= 100 {
        // As wide as the longest name on the screen needs, within reason.
        let active = &cx.now.findings.active;
        let column = active.iter().map(|f| f.rule.0.len()).max().unwrap_or(0).clamp(20, 32);
        let rule = text::cut(f.rule.0, column).into_owned();
        line.add(format!("{rule:<column$} "), Tone::Strong);
    } else if w >= 60 {
        line.add(format!("{} ", f.rule.0), Tone::Strong);
    }
    if f.fire.confidence == Confidence::Suspected {
        line.add("suspected: ", Tone::Dim);
    }
    line.add(text::clean(&f.fire.summary).into_owned(), Tone::Plain);
    let folded = cx.now.findings.consequences(f).count();
    let folded = if folded > 0 { format!("  +{folded} folded") } else { String::new() };
    if w >= 70 {
        let age = units::age(cx.mono().since(f.since));
        line = line.right(format!("{folded} {age:>5} "), Tone::Dim);
    } else if !folded.is_empty() {
        line = line.right(format!("{folded} "), Tone::Dim);
    }
    line
}

fn more_line(active: &[std::sync::Arc<Finding>], start: usize, shown: usize) -> Line {
    let hidden = active.iter().enumerate().filter(|(i, _)| *i < start || *i >= start + shown);
    let mut by_rule: Vec<(&str, usize)> = Vec::new();
    let mut n = 0;
    for (_, f) in hidden {
        n += 1;
        match by_rule.iter_mut().find(|r| r.0 == f.rule.0) {
            Some(r) => r.1 += 1,
            None => by_rule.push((f.rule.0, 1)),
        }
    }
    let list: Vec<String> = by_rule
        .iter()
        .map(|(r, n)| if *n > 1 { format!("{n} {r}") } else { (*r).to_owned() })
        .collect();
    Line::of(format!("    + {n} more: {}", list.join(", ")), Tone::Dim)
}

/// A line that is being typed, with the cursor in it.
fn typed(vm: &mut Vm, area: Area, prompt: &'static str, input: &Input) -> Line {
    // The cursor stays on the screen: long input is cut at the front.
    let room = usize::from(area.w).saturating_sub(prompt.len() + 1);
    let before: String = input.text.iter().take(input.at).collect();
    let after: String = input.text.iter().skip(input.at).collect();
    let before = text::cut_front(&text::clean(&before), room).into_owned();
    let x = prompt.len() + text::width(&before);
    vm.cursor = Some((area.x + (x as u16).min(area.w.saturating_sub(1)), area.y));
    let after = text::clean(&after).into_owned();
    Line::of(prompt, Tone::Key).with(before, Tone::Plain).with(after, Tone::Plain)
}

const COMMAND_HELP: &str = "sort rto, rule tcp-rto-storm, goto -5m   Tab lists, Enter runs";
const FILTER_HELP: &str = "words, rto>1s dport:443 !state:listen   Tab fields, Enter applies";

/// The last line: a message, the filter being typed, or the keys that make sense now.
pub(super) fn footer(vm: &mut Vm, v: &ViewState, area: Area) {
    if let Mode::Filter { pane, input, offers, .. } = &v.mode {
        let line = typed(vm, area, " filter /", input);
        let wrong = v.pane(*pane).and_then(|p| p.filter.wrong());
        let (says, tone) = match (offers.as_slice(), wrong) {
            ([], Some(wrong)) => (text::clean(wrong).into_owned(), Tone::Warn),
            ([], None) if input.text.is_empty() => (FILTER_HELP.to_owned(), Tone::Dim),
            (names, _) => (names.join(" "), Tone::Dim),
        };
        let room = usize::from(area.w).saturating_sub(line.width() + 2);
        let says = text::cut(&says, room).into_owned();
        vm.lines(area, vec![if says.is_empty() { line } else { line.right(says + " ", tone) }]);
        return;
    }
    if let Mode::Command { input, offers } = &v.mode {
        let line = typed(vm, area, " :", input);
        let says = if input.text.is_empty() { COMMAND_HELP.to_owned() } else { offers.join(" ") };
        let room = usize::from(area.w).saturating_sub(line.width() + 2);
        let says = text::cut(&says, room).into_owned();
        vm.lines(
            area,
            vec![if says.is_empty() { line } else { line.right(says + " ", Tone::Dim) }],
        );
        return;
    }
    if let Mode::HelpSearch { input } = &v.mode {
        let line = typed(vm, area, " help /", input);
        vm.lines(area, vec![line.right("Esc goes back ", Tone::Dim)]);
        return;
    }
    if let Mode::Goto { input } = &v.mode {
        let prompt = " go to ";
        let line = typed(vm, area, prompt, input);
        let help = "14:03:20, -5m, +90s, 2026-05-01 14:03   Enter jumps, Esc cancels ";
        let line = if input.text.is_empty() { line.right(help, Tone::Dim) } else { line };
        vm.lines(area, vec![line]);
        return;
    }
    let mut line = Line::of(" ", Tone::Plain);
    if let Some(n) = &v.notice {
        line.add(text::clean(&n.text).into_owned(), Tone::Strong);
        vm.lines(area, vec![line]);
        return;
    }
    if let Flow::Ended(why) = &v.flow {
        line.add(format!("ended: {}  ", text::clean(why)), Tone::Strong);
    }
    let mut hints = keymap::hints(v);
    let width = |h: &[(String, &str)]| -> usize {
        line.width() + h.iter().map(|(k, w)| text::width(k) + w.len() + 3).sum::<usize>()
    };
    // The key to leave is shown at any size.
    while width(&hints) > usize::from(area.w) && hints.len() > 1 {
        let quit = hints.len() - 1;
        hints.remove(quit - usize::from(hints[quit].1 == "quit"));
    }
    for (keys, word) in hints {
        line.add(keys, Tone::Key);
        line.add(format!(" {word}  "), Tone::Dim);
    }
    vm.lines(area, vec![line]);
}

/// Time of the newest tick.
#[must_use]
pub fn newest(a: &Analysis) -> MonoNs {
    a.latest().map_or(MonoNs(0), |m| m.tick.mono)
}

//! Folding, tested on a made-up rule set, and the links of the real rules.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::diagnose::{Fire, Hold, RULES, RuleDoc, Severity};
use crate::metrics::Derived;
use crate::metrics::disks::derive;
use crate::metrics::history::History;
use crate::sample::Stamped;
use crate::sample::disks::{DiskAttrs, DiskCounters, DiskRow, DisksSample};
use crate::sample::subject::{DiskId, SockId};
use crate::sample::tick::{HostInfo, Tick};
use crate::sample::time::{MonoNs, Span, WallNs};

macro_rules! rules {
    ($($name:ident, $id:literal, $kind:ident, $links:expr;)+) => {
        $( static $name: Rule = Rule {
            doc: &RuleDoc {
                id: RuleId($id), title: "", condition: "", look_alikes: "", remedy: "",
                sources: "", hold: Hold::of(1, 1), needs_time: Duration::ZERO,
            },
            kind: Kind::$kind,
            needs: &[],
            explains: $links,
            check: |_, _, _| {},
        }; )+
        static ALL: &[&Rule] = &[$(&$name),+];
    };
}

rules! {
    ROOT, "root", Rule, &[Explains::new("middle", Scope::Stack), Explains::new("peer", Scope::Netns)];
    MIDDLE, "middle", Rule, &[Explains::new("leaf", Scope::Host), Explains::new("twin", Scope::Same)];
    LEAF, "leaf", Rule, &[];
    PEER, "peer", Rule, &[];
    TWIN, "twin", Rule, &[];
    NOTE, "note", Annotation, &[];
}

fn disk(name: &str) -> Subject {
    Subject::Disk { name: name.to_owned(), dev: DiskId::default() }
}

fn found(rule: &'static str, subject: Subject, severity: Severity, since_s: u64) -> Arc<Finding> {
    Arc::new(Finding {
        rule: RuleId(rule),
        subject,
        fire: Fire::new(severity, rule),
        since: MonoNs(since_s * 1_000_000_000),
        first_seen: WallNs(0),
        last_seen: WallNs(0),
        active: true,
        cause: None,
    })
}

/// `dm-1` on `dm-0` on `vda`; `vdb` beside them.
fn layers() -> Derived {
    let row = |(i, (name, on)): (usize, &(&str, &[&str]))| DiskRow {
        id: DiskId { major: 1, minor: i as u32 },
        name: (*name).into(),
        stat: DiskCounters::default(),
        inflight: None,
        attrs: Arc::new(DiskAttrs {
            slaves: on.iter().map(|s| (*s).to_owned()).collect(),
            ..DiskAttrs::default()
        }),
    };
    let all: [(&str, &[&str]); 4] =
        [("vda", &[]), ("dm-0", &["vda"]), ("dm-1", &["dm-0"]), ("vdb", &[])];
    let at = |s: u64| Stamped {
        span: Span::at(MonoNs(s * 1_000_000_000)),
        cpu: Duration::ZERO,
        data: DisksSample {
            disks: all.iter().enumerate().map(row).collect(),
            ..DisksSample::default()
        },
    };
    let disks = derive(&at(1), &at(2));
    assert_eq!(disks.len(), 4);
    Derived { disks: Some(Arc::new(disks)), ..Derived::default() }
}

/// `(rule, subject)` of the causes, then of their consequences.
fn told(all: Vec<Arc<Finding>>) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (tick, derived) = (Tick::default(), layers());
    let (history, host) = (History::new(0), HostInfo::default());
    let w = Window { tick: &tick, derived: &derived, history: &history, host: &host };
    let s = sort(ALL, &w, all);
    let name = |f: &Arc<Finding>| format!("{} {}", f.rule, f.subject);
    let why = |f: &Arc<Finding>| {
        let (rule, subject) = f.cause.as_ref().unwrap();
        format!("{} <- {rule} {subject}", name(f))
    };
    (
        s.causes.iter().map(name).collect(),
        s.folded.iter().map(why).collect(),
        s.annotations.iter().map(name).collect(),
    )
}

use Severity::{Crit, Info, Warn};

#[test]
fn a_chain_is_folded_under_its_root_which_takes_the_place_of_the_worst() {
    let (causes, folded, notes) = told(vec![
        found("peer", Subject::Host, Crit, 50),
        found("leaf", Subject::Host, Crit, 50),
        found("middle", disk("dm-1"), Warn, 50),
        found("root", disk("vda"), Warn, 50),
        found("note", disk("vda"), Info, 50),
    ]);
    // The root explains the peer finding as well: both are about the whole host, or not known
    // to be elsewhere.
    assert_eq!(causes, ["root vda"]);
    assert_eq!(
        folded,
        ["peer host <- root vda", "leaf host <- root vda", "middle dm-1 <- root vda"]
    );
    assert_eq!(notes, ["note vda"]);
}

#[test]
fn another_stack_another_namespace_and_another_time_are_not_explained() {
    let netns = |n| Subject::Netns { netns: NetnsId(n) };
    let (causes, folded, _) =
        told(vec![found("middle", disk("vdb"), Crit, 50), found("root", disk("vda"), Warn, 50)]);
    assert_eq!((causes.len(), folded.len()), (2, 0));
    let (causes, ..) =
        told(vec![found("peer", netns(1), Warn, 50), found("root", netns(2), Warn, 50)]);
    assert_eq!(causes.len(), 2);
    let (causes, ..) =
        told(vec![found("peer", netns(1), Warn, 50), found("root", netns(1), Warn, 50)]);
    assert_eq!(causes, ["root netns 1"]);
    // A cause may be detected 30 s late, but not 31 s.
    let (causes, ..) =
        told(vec![found("middle", disk("vda"), Warn, 50), found("root", disk("vda"), Warn, 80)]);
    assert_eq!(causes, ["root vda"]);
    let (causes, ..) =
        told(vec![found("middle", disk("vda"), Warn, 50), found("root", disk("vda"), Warn, 81)]);
    assert_eq!(causes.len(), 2);
}

#[test]
fn sockets_in_common_are_the_same_subject() {
    let with = |rule, subject, cookie| {
        let mut f = (*found(rule, subject, Warn, 50)).clone();
        f.fire.sockets = vec![SockId { netns: NetnsId(1), cookie }];
        Arc::new(f)
    };
    let both =
        |a, b| told(vec![with("middle", disk("vda"), a), with("twin", Subject::Host, b)]).0.len();
    assert_eq!((both(7, 7), both(7, 8)), (1, 2));
}

type Links<'a> = &'a dyn Fn(RuleId) -> &'static [Explains];

fn walk(id: RuleId, path: &mut Vec<RuleId>, explains: Links<'_>) {
    assert!(!path.contains(&id), "a cycle: {path:?} {id}");
    path.push(id);
    for l in explains(id) {
        walk(l.rule, path, explains);
    }
    path.pop();
}

#[test]
fn real_links_name_rules_and_have_no_cycles() {
    let explains = |id: RuleId| {
        let r = RULES.iter().find(|r| r.id() == id);
        r.unwrap_or_else(|| panic!("no rule {id}")).explains
    };
    for r in RULES {
        walk(r.id(), &mut Vec::new(), &explains);
        assert!(r.kind == Kind::Rule || r.explains.is_empty(), "{}: a remark", r.id());
    }
}

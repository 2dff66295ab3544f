//! A long run of all incidents, recordings of runs, and what is compared.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use stallscope::analysis::Analysis;
use stallscope::diagnose::{Engine, Finding, Findings};
use stallscope::recording::{Reader, Writer};
use stallscope::report::json::finding;
use stallscope::sample::Samples;
use stallscope::sample::tick::{HostInfo, Tick};
use stallscope::sample::time::{MonoNs, Seq, WallNs};

use super::incident::{Incident, incidents, run_of, ticks};

/// Budget of the history, as the console has it.
pub const BUDGET: usize = 64 << 20;

/// The long run and its recording.
pub fn long() -> &'static (Recorded, Vec<Arc<Tick>>) {
    static LONG: OnceLock<(Recorded, Vec<Arc<Tick>>)> = OnceLock::new();
    LONG.get_or_init(|| {
        let (host, ticks) = long_run();
        (record(&host, &ticks), ticks)
    })
}

/// Scenarios one after the other as one run, in which every rule fires that fires in any: long
/// enough that checkpoints and the reach of the rules matter. A carried-over reading here and
/// there, and ticks that came late.
fn long_run() -> (HostInfo, Vec<Arc<Tick>>) {
    let all = with_every_rule();
    let mut out: Vec<Arc<Tick>> = Vec::new();
    let mut at = 5_000_000_000_000_u64;
    for (n, (_, i)) in all.iter().enumerate() {
        let (_, ticks) = run_of(i, 1.0);
        let first = ticks[0].mono.0;
        for t in &ticks {
            let mut t = (**t).clone();
            let by = at.wrapping_sub(first);
            t.seq = Seq(out.len() as u64);
            t.samples = moved(&t.samples, by);
            t.mono = MonoNs(t.mono.0.wrapping_add(by));
            t.wall = WallNs(1_700_000_000_000_000_000 + t.mono.0 as i64);
            if out.len() % 37 == 5
                && let Some(last) = out.last()
            {
                t.samples.netns_sockets.clone_from(&last.samples.netns_sockets);
                t.samples.sched = None;
            }
            out.push(Arc::new(t));
        }
        // A pause of the source now and then: longer than three intervals is a hole.
        at = out.last().unwrap().mono.0 + [1, 1, 1, 9, 1, 1, 660][n % 7] * 1_000_000_000;
    }
    let host = HostInfo {
        hostname: "long".into(),
        kernel: "6.12.0".into(),
        boot_id: "b1".into(),
        cpus: 4,
        interval: Duration::from_secs(1),
        ..ticks::host(&all[0].1, 1.0)
    };
    (host, out)
}

/// The scenarios in which a rule fires that has not fired in those before.
fn with_every_rule() -> Vec<&'static (String, Incident)> {
    let mut fired = HashSet::new();
    let mut out = Vec::new();
    for scenario in incidents() {
        let known = fired.len();
        let wanted = scenario.1.expect.iter().filter(|e| e.is_wanted());
        fired.extend(wanted.map(|e| e.rule.as_str()));
        if fired.len() > known {
            out.push(scenario);
        }
    }
    out
}

/// The same samples, read later.
fn moved(s: &Samples, by: u64) -> Samples {
    let mut v = serde_json::to_value(s).unwrap();
    shift(&mut v, by);
    serde_json::from_value(v).unwrap()
}

fn shift(v: &mut Value, by: u64) {
    match v {
        Value::Object(map) => {
            for (k, v) in map.iter_mut() {
                if k == "span" {
                    for end in ["start", "end"] {
                        let at = v[end].as_u64().unwrap();
                        v[end] = json!(at.wrapping_add(by));
                    }
                } else {
                    shift(v, by);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|v| shift(v, by)),
        _ => {}
    }
}

/// A run, judged live and recorded.
pub struct Recorded {
    pub host: HostInfo,
    /// Everything that was found, at every tick.
    pub said: Vec<String>,
    /// See [`rules`], at every tick.
    pub rules: Vec<Vec<String>>,
    pub bytes: Vec<u8>,
}

pub fn record(host: &HostInfo, ticks: &[Arc<Tick>]) -> Recorded {
    let mut live = Analysis::new(host.clone(), Engine::default(), BUDGET);
    let mut w = Writer::new(Vec::new(), host).unwrap();
    let (mut said, mut found) = (Vec::new(), Vec::new());
    for t in ticks {
        live.push(t.clone());
        let now = live.latest().unwrap();
        w.tick(t, &now.summary()).unwrap();
        said.push(all(now.findings));
        found.push(rules(now.findings));
    }
    Recorded { host: host.clone(), said, rules: found, bytes: w.seal().unwrap() }
}

/// Everything that is found at one moment, as JSON.
pub fn all(f: &Findings) -> String {
    let list =
        |l: &[Arc<Finding>]| -> Vec<String> { l.iter().map(|f| finding(f).to_string()).collect() };
    let not_judged = serde_json::to_string(&f.not_judged).unwrap();
    [
        ("active", list(&f.active).join(",")),
        ("folded", list(&f.folded).join(",")),
        ("annotations", list(&f.annotations).join(",")),
        ("cleared", cleared(&f.cleared).join(",")),
        ("not_judged", not_judged),
    ]
    .map(|(name, text)| format!("{name}: [{text}]"))
    .join("\n")
}

/// What is over stays the same for an hour: it is put into words once.
fn cleared(list: &[Arc<Finding>]) -> Vec<Rc<str>> {
    type Words = HashMap<*const Finding, (Arc<Finding>, Rc<str>)>;
    thread_local! {
        static LAST: RefCell<Words> = RefCell::default();
    }
    LAST.with_borrow_mut(|last| {
        let said = |f: &Arc<Finding>| {
            let known = last.get(&Arc::as_ptr(f)).map(|(_, text)| text.clone());
            known.unwrap_or_else(|| finding(f).to_string().into())
        };
        let texts: Vec<Rc<str>> = list.iter().map(said).collect();
        // Each is held: its address belongs to no other.
        let held = list.iter().zip(&texts);
        *last = held.map(|(f, t)| (Arc::as_ptr(f), (f.clone(), t.clone()))).collect();
        texts
    })
}

/// The rules that fire, each with its severity, whatever they are about.
pub fn rules(f: &Findings) -> Vec<String> {
    let mut all: Vec<_> =
        f.active.iter().map(|f| format!("{} {}", f.rule, f.fire.severity.name())).collect();
    all.sort();
    all
}

pub fn reader(bytes: &[u8]) -> Reader {
    Reader::new(Arc::new(bytes.to_vec())).unwrap()
}

/// Two texts, and where they part.
#[track_caller]
pub fn same(have: &str, want: &str, what: &str) {
    if have == want {
        return;
    }
    let at = have.bytes().zip(want.bytes()).take_while(|(a, b)| a == b).count();
    let part = |s: &str| {
        String::from_utf8_lossy(&s.as_bytes()[at.saturating_sub(300)..s.len().min(at + 200)])
            .into_owned()
    };
    panic!("{what}\n have {}\n want {}", part(have), part(want));
}

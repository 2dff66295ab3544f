//! Recordings of the scripted box.

use std::sync::Arc;

use stallscope::recording::{ActiveFinding, Event, ReadError, Reader, Stamp, TickSummary, Writer};
use stallscope::sample::tick::Tick;

use super::long;
use super::script::Script;

pub fn script() -> Script {
    Script { busy: true, connections: 12, unix: 5, ..Script::three_faults().with_bpf() }
}

/// Everything of a tick, comparable.
pub fn text(t: &Tick) -> String {
    serde_json::to_string(t).unwrap()
}

pub fn stamp(t: &Tick) -> Stamp {
    Stamp { seq: t.seq, mono: t.mono, wall: t.wall }
}

pub fn note(n: u64) -> TickSummary {
    let finding = ActiveFinding {
        rule: "tcp-rto-storm".into(),
        subject: "peer 10.0.0.2:3306".into(),
        severity: "crit".into(),
    };
    TickSummary {
        figures: vec![("disks.util".into(), (n % 7) as f64), ("runq.p99-us".into(), n as f64)],
        findings: if n % 100 > 20 { vec![finding] } else { Vec::new() },
    }
}

/// A recording of `ticks` ticks, with a mark at the tenth.
pub fn recording(script: &Script, ticks: u64, seal: bool) -> (Vec<u8>, Vec<Tick>) {
    let mut w = Writer::new(Vec::new(), &script.host()).unwrap();
    let mut all = Vec::new();
    for n in 0..ticks {
        let tick = script.tick(n);
        w.tick(&tick, &note(n)).unwrap();
        if n == 9 {
            w.event(stamp(&tick), Event::Mark { text: "here".into() }).unwrap();
        }
        all.push(tick);
    }
    let bytes = if seal { w.seal().unwrap() } else { w.get_mut().clone() };
    (bytes, all)
}

pub fn open(bytes: Vec<u8>) -> Result<Reader, ReadError> {
    Reader::new(Arc::new(bytes))
}

/// The same tick, or where they differ and what the reader says.
#[track_caller]
pub fn same(r: &Reader, a: &Tick, b: &Tick) {
    same_text(r, &text(a), &text(b));
}

#[track_caller]
fn same_text(r: &Reader, a: &str, b: &str) {
    if a != b {
        let damage: Vec<_> = r.damage().collect();
        long::same(a, b, &format!("{damage:?}"));
    }
}

/// The ticks that can be read; each equals the one that was recorded under its number.
pub fn readable(r: &mut Reader, all: &[Tick]) -> Vec<u64> {
    readable_texts(r, &all.iter().map(text).collect::<Vec<_>>())
}

/// The same for whoever asks often.
pub fn readable_texts(r: &mut Reader, all: &[String]) -> Vec<u64> {
    let mut out = Vec::new();
    for i in 0..r.len() {
        match r.tick(i) {
            Ok(t) => {
                same_text(r, &text(&t), &all[t.seq.0 as usize]);
                out.push(t.seq.0);
            }
            Err(ReadError::Damaged(_)) => {}
            Err(e) => panic!("tick {i}: {e}"),
        }
    }
    out
}

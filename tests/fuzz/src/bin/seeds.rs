//! Makes the inputs that fuzzing of recordings begins with, small enough to be tried by the
//! thousand: `cargo run --bin seeds` in `tests/fuzz` writes them into `tests/fuzz/seeds`.

use std::path::Path;

use stallscope::sample::CollectorId;
use stallscope::recording::codec::wire::put_varint;
use stallscope::recording::file::format::{BlockHeader, Kind, end};
use stallscope_fuzz::recording::{GOOD, Parts, bits, number, payloads};

/// Longest seed.
const MOST: usize = 4 << 10;

fn main() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let dir = dir.join(target);
        std::fs::create_dir_all(&dir).unwrap();
        if bytes.len() <= MOST {
            std::fs::write(dir.join(name), bytes).unwrap();
        } else {
            println!("{target}/{name}: {} bytes, left out", bytes.len());
        }
    };
    samples(&put);
    ticks(&put);
    files(&put);
}

fn part(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// What a section holds of a sample: behind its stamps.
fn behind_stamps(bytes: &[u8]) -> &[u8] {
    let mut at = 0;
    for _ in 0..4 {
        number(bytes, &mut at);
    }
    &bytes[at..]
}

fn samples(put: &dyn Fn(&str, &str, &[u8])) {
    let ticks: Vec<Parts> = payloads(GOOD, 4).iter().map(|p| Parts::of(p)).collect();
    let names: Vec<String> =
        ticks[0].sections.iter().map(|s| s.1.clone().unwrap_or_default()).collect();
    for (i, name) in names.iter().enumerate() {
        let id = CollectorId::ALL.iter().position(|c| c.name() == name);
        let Some(id) = id else { continue };
        let mut seed = vec![id as u8];
        for t in &ticks {
            let mine =
                t.sections.iter().enumerate().find(|(n, s)| {
                    if s.1.is_some() { *n == i } else { s.0 >> 1 == i as u64 + 1 }
                });
            if let Some((_, s)) = mine.filter(|(_, s)| !s.2.is_empty()) {
                part(&mut seed, behind_stamps(&s.2));
            }
        }
        put("sample", name, &seed);
    }
}

/// A payload of a few sections: the others are left out.
fn some(p: &Parts, keep: &dyn Fn(&str) -> bool) -> Vec<u8> {
    let mut out = Vec::new();
    let leb = |out: &mut Vec<u8>, n: usize| put_varint(out, n as u64);
    leb(&mut out, p.names.len());
    for n in &p.names {
        leb(&mut out, n.len());
        out.extend_from_slice(n.as_bytes());
    }
    for (head, name, bytes) in &p.sections {
        let Some(name) = name.as_ref().filter(|n| keep(n)) else { continue };
        leb(&mut out, *head as usize);
        leb(&mut out, name.len());
        out.extend_from_slice(name.as_bytes());
        leb(&mut out, bytes.len());
        out.extend_from_slice(bytes);
    }
    out
}

fn ticks(put: &dyn Fn(&str, &str, &[u8])) {
    let key = Parts::of(&payloads(GOOD, 1)[0]);
    for name in key.sections.iter().filter_map(|s| s.1.as_deref()) {
        let all = some(&key, &|n| n == name);
        // Everything is read of one of them.
        let mut seed = vec![if name == "sched" { 128 } else { 0 }];
        part(&mut seed, &all);
        // The same once more, as a difference that is whole, and nothing new.
        part(&mut seed, &[0, 2, 0]);
        put("payload", name, &seed);
    }
}

fn files(put: &dyn Fn(&str, &str, &[u8])) {
    let key = Parts::of(&payloads(GOOD, 1)[0]);
    let small = some(&key, &|n| n == "host");
    let segment = key.sections[0].2.clone();
    let event = br#"{"at":{"seq":1,"mono":1000000000,"wall":1000000000},"event":"mark","text":"here"}"#;
    let mut out = Vec::new();
    let block = |out: &mut Vec<u8>, n: u8, bytes: &[u8]| {
        out.push(n);
        part(out, bytes);
    };
    block(&mut out, 0, &segment);
    block(&mut out, 1, &small);
    block(&mut out, 2, &[0, 2, 0]);
    block(&mut out, 5, event);
    put("recording", "open", &out);
    let mut closed = out.clone();
    // Offsets of the blocks, once they are known.
    let file = stallscope_fuzz::recording::file(&out);
    let mut starts = Vec::new();
    let mut at = 0;
    while let Ok(h) = BlockHeader::parse(&file[at..]) {
        starts.push((h.kind, at));
        at += h.total() as usize;
    }
    let of = |k: Kind| starts.iter().find(|s| s.0 == k).unwrap().1;
    let (first, second) = (of(Kind::Keyframe), of(Kind::Delta));
    let index = format!(
        r#"{{"ticks":[[0,0,0,0],[{},1,1000000000,0]],"figures":{{"a":{{"min":0,"max":1,"sum":1,"n":2}}}},"findings":[{{"rule":"r","subject":"s","severity":"warn","first":0,"last":1}}],"events":[{}],"state":[["health",1]]}}"#,
        second - first,
        std::str::from_utf8(event).unwrap()
    );
    block(&mut closed, 3, index.as_bytes());
    put("recording", "indexed", &closed);
    let whole = stallscope_fuzz::recording::file(&closed);
    let entry = |at: u64| format!(r#"{{"seq":{at},"mono":{at}000000000,"wall":{at}000000000}}"#);
    let trailer = format!(
        r#"{{"groups":[{{"offset":{first},"index":{},"end":{},"ticks":2,"first":{},"last":{},"segment":0}}],"segments":[0]}}"#,
        file.len(),
        whole.len(),
        entry(0),
        entry(1)
    );
    block(&mut closed, 4, trailer.as_bytes());
    let to = whole.len() as u16;
    closed.push(7);
    closed.extend(to.to_le_bytes());
    let made = stallscope_fuzz::recording::file(&closed);
    assert!(made.ends_with(&end(to.into())));
    put("recording", "closed", &closed);
    let mut noisy = closed.clone();
    noisy.extend_from_slice(&[bits::NOISE | bits::HURT | 5, 2, 0, b'{', b'}']);
    noisy.extend(out);
    put("recording", "noisy", &noisy);
    put("recording", "raw", &made);
}

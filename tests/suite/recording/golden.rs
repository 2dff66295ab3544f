//! One small recording per released version of the format opens for ever. Until the first release
//! there is one of the present layout, which changes with it: delete it, and `STALLSCOPE_BLESS=1`
//! makes it anew.

use std::path::PathBuf;

use serde_json::Value;
use stallscope::recording::Reader;

use crate::support::recordings::{recording, script, text};
use crate::support::script::Script;

const TICKS: u64 = 64;
const VERSIONS: [&str; 1] = ["v1"];

fn make() -> (Vec<u8>, Vec<u8>) {
    let script = Script { connections: 4, unix: 2, ..script() };
    let (bytes, all) = recording(&script, TICKS, true);
    let some: Vec<String> = [0, 1, 59, 63].iter().map(|n: &usize| text(&all[*n])).collect();
    (bytes, zstd::bulk::compress(some.join("\n").as_bytes(), 19).unwrap())
}

/// All that `old` says, `new` says too; it may say more.
fn keeps(old: &Value, new: &Value, path: &str) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            for (k, v) in a {
                let n = b.get(k).unwrap_or_else(|| panic!("{path}.{k} is gone"));
                keeps(v, n, &format!("{path}.{k}"));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}");
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                keeps(a, b, &format!("{path}[{i}]"));
            }
        }
        _ => assert_eq!(old, new, "{path}"),
    }
}

#[test]
fn golden_files_of_all_versions_open() {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/golden"));
    let this = dir.join(format!("{}.stall", VERSIONS.last().unwrap()));
    if std::env::var("STALLSCOPE_BLESS").is_ok() && !this.exists() {
        let (file, ticks) = make();
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(&this, file).unwrap();
        std::fs::write(this.with_extension("json.zst"), ticks).unwrap();
    }
    for version in VERSIONS {
        let path = dir.join(format!("{version}.stall"));
        let expected = std::fs::read(path.with_extension("json.zst")).unwrap();
        let expected = String::from_utf8(zstd::decode_all(&expected[..]).unwrap()).unwrap();
        let mut r = Reader::file(&path).unwrap();
        assert_eq!((r.len(), r.host().hostname.as_str()), (TICKS, "db7"));
        for line in expected.lines() {
            let old: Value = serde_json::from_str(line).unwrap();
            let tick = r.tick(old["seq"].as_u64().unwrap()).unwrap();
            keeps(&old, &serde_json::to_value(&*tick).unwrap(), version);
        }
        assert_eq!(r.index(0).unwrap().events.len(), 1);
        assert_eq!(r.index(1).unwrap().figures["runq.p99-us"].max, 63.0);
        let survey = r.survey().unwrap();
        assert_eq!(
            (survey.ticks, survey.lost, survey.states_wrong, survey.damage),
            (TICKS, 0, 0, 0)
        );
    }
}

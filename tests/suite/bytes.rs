//! Real inputs that were changed a little, and bytes of no meaning, through everything that
//! reads what others made: the targets of `tests/fuzz` on the stable compiler.

use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;

use crate::support::fuzz::TARGETS;

/// Longer inputs take too long for a test; a fuzzer has the time.
const LONGEST: usize = 256 << 10;

/// Real inputs of a target.
fn seeds(dirs: &[&str]) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for dir in dirs {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
        let files = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        paths.extend(files.map(|f| f.unwrap().path()).filter(|p| p.is_file()));
    }
    paths.sort();
    let all = paths.iter().map(|p| std::fs::read(p).unwrap());
    all.map(|mut b| {
        b.truncate(LONGEST);
        b
    })
    .collect()
}

fn all_seeds() -> &'static [Vec<Vec<u8>>] {
    static SEEDS: OnceLock<Vec<Vec<Vec<u8>>>> = OnceLock::new();
    SEEDS.get_or_init(|| TARGETS.iter().map(|t| seeds(t.2)).collect())
}

#[test]
fn real_inputs_are_taken() {
    for ((name, run, dirs), seeds) in TARGETS.iter().zip(all_seeds()) {
        assert_eq!(dirs.is_empty(), seeds.is_empty(), "{name}");
        for s in seeds {
            run(s);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for (_, run, _) in TARGETS {
            run(&bytes);
        }
    }

    #[test]
    fn changed_inputs_are_survived(
        which in any::<prop::sample::Index>(),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
        doubled in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        for ((_, run, _), seeds) in TARGETS.iter().zip(all_seeds()) {
            if seeds.is_empty() {
                continue;
            }
            let mut bytes = which.get(seeds).clone();
            for (at, value) in &hits {
                if let Some(b) = bytes.len().checked_sub(1).map(|l| &mut bytes[at.index(l + 1)]) {
                    *b = *value;
                }
            }
            if let (Some((a, b)), false) = (&doubled, bytes.is_empty()) {
                let (a, b) = (a.index(bytes.len()), b.index(bytes.len()));
                let part = bytes[a.min(b)..a.max(b)].to_vec();
                bytes.splice(a.min(b)..a.min(b), part);
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            run(&bytes);
        }
    }
}

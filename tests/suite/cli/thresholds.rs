//! Thresholds of the configuration: told, recorded, and what a recording is judged by elsewhere.

use std::process::Output;

use serde_json::json;

use crate::support::files::Dir;
use crate::support::program::{json, program, refused, run, stderr, stdout};

/// A home with such a file of settings.
fn home(settings: &str) -> Dir {
    let home = Dir::new();
    std::fs::create_dir(home.file("stallscope")).unwrap();
    home.with("stallscope/config.toml", settings);
    home
}

fn at(home: &Dir, args: &[&str]) -> Output {
    program().env("XDG_CONFIG_HOME", home.path()).args(args).output().unwrap()
}

const TOLD: &str = "configured thresholds: fs-full 12.5 instead of 5, mem-stall 30 instead of 10, rotational vdx\n";

#[test]
fn they_are_told_and_go_with_the_recording() {
    let home = home("[thresholds]\nrotational = [\"vdx\"]\nfs-full = 12.5\nmem-stall = 30\n");
    let file = home.file("x.stall");
    let file = file.to_str().unwrap();
    let o = at(&home, &["check", "--duration", "1s", "--netns", "self", "--record", file]);
    assert!(stdout(&o).contains(TOLD), "{}{}", stdout(&o), stderr(&o));
    // Where nothing is configured.
    let o = run(["check", file]);
    assert!(stdout(&o).contains(TOLD), "{}{}", stdout(&o), stderr(&o));
    let o = run(["check", file, "--format", "json"]);
    let limits = json!({"fs-full": 12.5, "mem-stall": 30.0});
    assert_eq!(json(&o)["thresholds"], json!({"rotational": ["vdx"], "limits": limits}));
    assert!(stdout(&run(["info", file])).contains(TOLD));
    let o = run(["check", "--duration", "1s", "--netns", "self"]);
    assert!(!stdout(&o).contains("configured"), "{}", stdout(&o));
    let o = run(["check", "--duration", "1s", "--netns", "self", "--format", "json"]);
    assert!(json(&o).get("thresholds").is_none());
}

#[test]
fn those_used_earlier_in_a_recording_are_told_too() {
    let (home, other) = (home("[thresholds]\nfs-full = 12.5\n"), home("interval = \"1s\"\n"));
    let file = home.file("z.stall");
    let file = file.to_str().unwrap();
    let record = ["record", "-o", file, "--append", "--duration", "1s", "--netns", "self"];
    for home in [&home, &other] {
        assert_eq!(at(home, &record).status.code(), Some(0));
    }
    let said = stdout(&run(["check", file]));
    let line = "configured thresholds earlier in this recording: fs-full 12.5 instead of 5\n";
    assert!(said.contains(line) && said.matches("configured").count() == 1, "{said}");
    let limits = json!({"fs-full": 12.5});
    let expected = json!([{"rotational": [], "limits": limits}]);
    assert_eq!(json(&run(["check", file, "--format", "json"]))["earlier_thresholds"], expected);
    // And the other way round.
    assert_eq!(at(&home, &record).status.code(), Some(0));
    let said = stdout(&run(["check", file]));
    assert!(said.contains("configured thresholds: fs-full 12.5 instead of 5\n"), "{said}");
    assert!(said.contains("configured thresholds earlier in this recording: none\n"), "{said}");
}

#[test]
fn a_wrong_one_is_refused_by_whoever_would_go_by_it() {
    let home = home("interval = \"1s\"\n[thresholds]\nfs-full = 99\n");
    let says = "config.toml:3: fs-full is space available to ordinary users, %: expected 0.1 to 50";
    let out = home.file("y.stall");
    let out = out.to_str().unwrap();
    for args in [
        &["config"][..],
        &["check", "--duration", "1s"],
        &["check", "--duration", "1s", "--record", out],
        &["record", "--output", out, "--duration", "1s"],
        &["why", "1", "--duration", "3s"],
        &["--once"],
    ] {
        let o = at(&home, args);
        refused(&o, 2, says);
        assert_eq!(stderr(&o).lines().count(), 1, "{}", stderr(&o));
    }
    assert!(!std::path::Path::new(out).exists(), "an empty recording is left");
    // It does not matter to what does not read this host.
    assert_eq!(at(&home, &["rules", "fs-full"]).status.code(), Some(0));
    let said = stdout(&at(&home, &["rules", "fs-full"]));
    assert!(said.contains("fs-full = 5 in [thresholds]: space available"), "{said}");
}

//! What packages and images are made of, against the program: `.ci/package` builds and tries them.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use stallscope::help::Topic;
use stallscope::rights::{TABLE, names};

use crate::support::program::{program, stderr};

fn text(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The values of a setting of the unit, without comments.
fn unit(name: &str) -> Vec<String> {
    let all = text("assets/stallscope-recorder.service");
    let lines = all.lines().filter(|l| !l.starts_with('#'));
    lines.filter_map(|l| l.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned).collect()
}

/// All that a thread ever keeps, but for what only other users' directories take.
fn rights() -> BTreeSet<String> {
    let all = TABLE.iter().flat_map(|row| names(row.held | row.lent));
    all.filter(|name| name != "CAP_DAC_OVERRIDE").collect()
}

/// Files of the metadata: what they are made of, and where they go.
fn assets() -> [Vec<(String, String)>; 2] {
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let of = |tool: &str| {
        let all = manifest["package"]["metadata"][tool]["assets"].as_array().unwrap();
        let field = |a: &toml::Value, at: usize, name: &str| {
            let value = a.get(at).or_else(|| a.get(name));
            value.unwrap().as_str().unwrap().trim_start_matches('/').to_owned()
        };
        all.iter().map(|a| (field(a, 0, "source"), field(a, 1, "dest"))).collect()
    };
    [of("deb"), of("generate-rpm")]
}

#[test]
fn packages_name_files_that_exist() {
    let script = text(".ci/package");
    let [deb, rpm] = assets();
    for (source, dest) in deb.iter().chain(&rpm) {
        if let Some(built) = source.strip_prefix("target/release/") {
            // What is built has a place there that the script fills.
            let place = built.trim_end_matches("/*");
            assert!(script.contains(&format!("\"$made/{place}\"")), "{source} is not made");
        } else {
            let path = format!("{}/{source}", env!("CARGO_MANIFEST_DIR"));
            assert!(std::path::Path::new(&path).is_file(), "{source}");
        }
        assert!(dest.starts_with("usr/") && dest.ends_with('/'), "{dest}");
    }
    let sources = |all: &[(String, String)]| -> Vec<String> {
        all.iter().map(|(source, _)| source.clone()).collect()
    };
    assert_eq!(sources(&deb), sources(&rpm), "both packages bring the same");
}

#[test]
fn the_service_is_a_command_that_exists() {
    let [command] = &unit("ExecStart")[..] else { panic!("one command") };
    let mut words = command.split(' ');
    let [deb, _] = assets();
    let path = words.next().unwrap();
    let brought = deb.iter().find(|(source, _)| source.ends_with("/stallscope")).unwrap();
    assert_eq!(path, format!("/{}stallscope", brought.1));
    let words: Vec<&str> = words.collect();
    let out = program().args(&words).arg("--help").output().unwrap();
    assert!(out.status.success(), "{command}: {}", stderr(&out));
    // Into the directory that it is given, and never more than there is room for.
    let [dir] = &unit("StateDirectory")[..] else { panic!("one directory") };
    assert!(words.contains(&&*format!("/var/lib/{dir}")), "{command}");
    assert!(words.contains(&"--on-finding") && words.contains(&"--max-size"), "{command}");
}

#[test]
fn the_service_has_the_rights_that_threads_keep_and_no_others() {
    for name in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        let [list] = &unit(name)[..] else { panic!("one {name}") };
        assert_eq!(list.split(' ').map(str::to_owned).collect::<BTreeSet<_>>(), rights(), "{name}");
    }
    // The comment says what each is for.
    let all = text("assets/stallscope-recorder.service");
    let comment = all.split("\nAmbientCapabilities").next().unwrap();
    for name in rights() {
        assert!(comment.contains(name.trim_start_matches("CAP_")), "{name}");
    }
}

#[test]
fn the_image_is_the_program() {
    let file = text("assets/Containerfile");
    let lines: Vec<&str> = file.lines().filter(|l| !l.starts_with('#')).collect();
    let want = [
        "FROM scratch",
        "COPY stallscope /stallscope",
        "ENV LANG=C.UTF-8",
        "ENTRYPOINT [\"/stallscope\"]",
    ];
    assert_eq!(lines, want);
}

/// What the help tells to type is understood by a shell, and what is typed behind the image by the
/// program.
#[test]
fn the_commands_of_the_help_are_commands() {
    let page = Topic::named("containers").unwrap().text;
    let blocks: Vec<&str> = page.split("```").filter_map(|b| b.strip_prefix("sh\n")).collect();
    let script = blocks.concat();
    let mut sh = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    sh.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sh.wait().unwrap().success(), "{script}");

    let lines = script.replace("\\\n", " ");
    let mut runs = 0;
    for line in lines.lines().filter(|l| l.contains(" run ") || l.contains("-- /stallscope")) {
        let words: Vec<&str> = line.split(['>', '#']).next().unwrap().split_whitespace().collect();
        let ours = words.iter().rposition(|w| w.ends_with("stallscope")).unwrap();
        let out = program().args(&words[ours + 1..]).arg("--help").output().unwrap();
        assert!(out.status.success(), "{line}: {}", stderr(&out));
        for flag in ["--pid=host", "--network=host", "--cgroupns=host"] {
            assert!(words.contains(&flag) || words[0] == "kubectl", "{line}: {flag}");
        }
        runs += 1;
    }
    assert_eq!(runs, 6, "{lines}");
    let added = script
        .split("--cap-add=")
        .skip(1)
        .map(|rest| format!("CAP_{}", rest.split_whitespace().next().unwrap()));
    assert_eq!(added.collect::<BTreeSet<_>>(), rights());
}

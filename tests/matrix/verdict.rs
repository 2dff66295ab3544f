//! What must be true of the program's output on any kernel.

use std::path::Path;

use serde_json::Value;

use stallscope::collect::bpf::format::Format;

use crate::boot::Boot;

/// The signal of that name that the kernel programs give, in `doctor`'s JSON.
pub(crate) fn signal<'a>(doctor: &'a Value, name: &str) -> &'a Value {
    let signals = doctor["signals"].as_array().unwrap();
    signals
        .iter()
        .find(|s| s["signal"] == name && s["source"] == "ebpf")
        .unwrap_or_else(|| panic!("no {name}: {doctor:#}"))
}

/// `doctor` ends well and every signal works or has a reason; then `more`.
pub(crate) fn doctor(boot: &Boot, name: &str, more: impl FnOnce(&Value)) {
    let (code, out, err) = boot.result(name);
    assert_eq!((code, err.as_str()), (0, ""), "{name}: {out}");
    let doctor: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(doctor["kernel"], boot.read("kernel.out").trim(), "{doctor:#}");
    let signals = doctor["signals"].as_array().unwrap();
    assert!(signals.len() > 10, "{doctor:#}");
    for s in signals {
        let told = s["reason"].as_str().is_some_and(|r| !r.is_empty());
        assert!(s["status"] == "ok" || told, "{name}: {s}");
    }
    let ok = signals.iter().filter(|s| s["status"] == "ok").count();
    println!("{name}: {ok} of {} signals work", signals.len());
    more(&doctor);
}

/// `check` ends as documented, with a report that agrees with its exit code.
pub(crate) fn check(boot: &Boot, name: &str) {
    let (code, out, err) = boot.result(name);
    assert_eq!(err, "", "{name}");
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    let found = report["findings"].as_array().unwrap();
    assert!(code == 0 || code == 1, "{name} ended with {code}: {out}");
    assert!(report["ticks"].as_u64().unwrap() >= 4, "{report:#}");
    let rules: Vec<&str> = found.iter().filter_map(|f| f["rule"].as_str()).collect();
    println!("{name}: exit code {code}, findings {rules:?}");
}

/// `check` found these rules about these cgroups, and of no other cgroup anything but an annotation.
pub(crate) fn finds(boot: &Boot, name: &str, wanted: &[(&str, &str)]) -> Value {
    check(boot, name);
    let report: Value = serde_json::from_str(&boot.result(name).1).unwrap();
    let all = ["findings", "annotations"].into_iter().flat_map(|k| report[k].as_array().unwrap());
    let of_groups = all.filter(|f| f["subject"]["kind"] == "cgroup");
    let found: Vec<_> = of_groups
        .map(|f| (f["rule"].as_str().unwrap(), f["subject"]["path"].as_str().unwrap()))
        .collect();
    for want in wanted {
        assert!(found.contains(want), "{name}: no {want:?}: {report:#}");
    }
    let others: Vec<_> = found.iter().filter(|f| !wanted.contains(f)).collect();
    assert!(others.is_empty(), "{name}: {others:?} are blamed: {report:#}");
    report
}

/// The checks inside of the guest ran, one of them, and passed.
pub(crate) fn agent(boot: &Boot, name: &str) {
    let (code, out, err) = boot.result(name);
    assert!(code == 0 && out.contains("1 passed"), "{name}: {code}\n{out}\n{err}");
    let noise = |l: &str| l.is_empty() || l == "ok" || l.starts_with("running ");
    for line in out.lines().filter(|l| !noise(l) && !l.starts_with("test result")) {
        println!("{name}: {}", line.rsplit("... ").next().unwrap_or(line));
    }
}

/// The records of the running kernel have the fields of the fixture.
pub(crate) fn formats(boot: &Boot, fixture: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format").join(fixture);
    let mut compared = 0;
    for event in include_str!("formats").lines() {
        let (group, name) = event.split_once('/').unwrap();
        let live = boot.read(&format!("format/{group}/{name}"));
        let kept = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        let (live, kept) = (Format::parse(&live), Format::parse(&kept));
        assert_eq!(live.fields, kept.fields, "{fixture}: {event}");
        compared += usize::from(!live.fields.is_empty());
    }
    assert!(compared >= 20, "{compared} records");
    println!("{fixture}: {compared} records as captured");
}

//! The healthy loads in turn under one `check`, for as long as `STALLSCOPE_QUIET` says.

use std::time::Duration;

use stallscope::clock;
use stallscope::sample::time::MonoNs;

use crate::kit::gate::lab;
use crate::kit::product::check;
use crate::loads::{LOADS, sweep};

/// Seconds of `90s`, `5m` or `1h`.
fn length(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => panic!("STALLSCOPE_QUIET={text}: 90s, 5m or 1h is expected"),
    };
    number.parse::<u64>().unwrap() * unit
}

/// No alarm in all that time. Prints how many there were in an hour, and during which load.
#[test]
fn quiet_hour() {
    let Ok(wanted) = std::env::var("STALLSCOPE_QUIET") else { return };
    let tools: Vec<String> = LOADS.iter().flat_map(|l| (l.tools)()).collect();
    let mut tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    tools.extend(["ip", "nsenter", "setpriv"]);
    lab(&tools, || {
        let total = length(&wanted);
        let begun = clock::mono();
        let session = std::thread::spawn(move || check("quiet-hour", &format!("{total}s"), &[]));
        // At least ten seconds of each; more rounds of a minute each when there is time.
        let share = Duration::from_secs((total / LOADS.len() as u64).clamp(10, 60));
        let mut phases: Vec<(String, &str)> = Vec::new();
        for load in LOADS.iter().cycle() {
            if session.is_finished() || clock::mono().since(begun) >= Duration::from_secs(total) {
                break;
            }
            phases.push((stallscope::report::rfc3339(clock::wall()), load.name));
            eprintln!("real: quiet hour: {}", load.name);
            let mut running = (load.start)();
            clock::sleep_until(MonoNs(clock::mono().0 + share.as_nanos() as u64));
            running.assert_running();
            drop(running);
            sweep();
        }
        let report = session.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        let alarms: Vec<_> = report.findings().into_iter().filter(|f| f.alarming()).collect();
        for f in &alarms {
            // Of one form and one zone: they sort as text.
            let at = f.first_seen().unwrap_or_default();
            let during = phases.iter().rev().find(|(from, _)| **from <= *at).map_or("", |p| p.1);
            eprintln!("real: quiet hour: {at} during {during}: {} {}", f.severity(), f.rule());
        }
        let hours = total as f64 / 3600.0;
        let rate = alarms.len() as f64 / hours;
        eprintln!("real: quiet hour: {} alarms in {total} s: {rate:.1} in an hour", alarms.len());
        report.exactly(|_| true, &[], &[]);
    });
}

//! `doctor`: one line per signal - works, degraded, missing - with reason and remedy.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::diagnose::blind::{self, blind_spots};
use crate::metrics::coverage::coverage;
use crate::sample::SignalStatus;
use crate::sample::bpf::TESTED_KERNELS;
use crate::sample::tick::{CollectorHealth, HealthState, HostInfo, Tick};
use crate::text::sanitize;

/// The collectors that have not reported yet.
#[must_use]
pub fn waiting(tick: &Tick) -> Vec<&'static str> {
    let silent =
        |h: &&CollectorHealth| matches!(h.state, HealthState::Late { .. }) && h.signals.is_empty();
    tick.health.iter().filter(silent).map(|h| h.id.name()).collect()
}

/// As text.
#[must_use]
pub fn text(host: &HostInfo, health: &[CollectorHealth]) -> String {
    let signals = coverage(health);
    let width = signals.iter().map(|s| s.signal.len()).max().unwrap_or(0);
    let who = if host.uid == 0 { "root".to_owned() } else { format!("uid {}", host.uid) };
    let mut out = format!(
        "{} on {}, kernel {}, {} CPUs, as {who}\n",
        host.tool,
        sanitize(&host.hostname),
        sanitize(&host.kernel),
        host.cpus
    );
    for s in &signals {
        let source = if s.source.is_empty() { String::new() } else { format!(" [{}]", s.source) };
        let (word, rest) = match &s.status {
            SignalStatus::Ok => ("works", String::new()),
            SignalStatus::Degraded { reason, remedy } => ("degraded", why(reason, remedy)),
            SignalStatus::Missing { reason, remedy } => ("missing", why(reason, remedy)),
        };
        let _ = writeln!(out, "  {word:<8}  {:<width$}{source}{rest}", sanitize(&s.signal));
    }
    let blind = blind_spots(&signals);
    if !blind.is_empty() {
        let _ = writeln!(out, "  not checked here: {}", blind::clause(&blind, usize::MAX));
    }
    if signals.iter().any(|s| s.source == "ebpf") {
        let _ = writeln!(out, "  {}", tested(&host.kernel));
    }
    out
}

/// Whether the eBPF programs have ever been run on a kernel like this one.
fn tested(kernel: &str) -> String {
    let mut numbers = kernel.split(['.', '-', '+']);
    let line = [numbers.next(), numbers.next()].map(Option::unwrap_or_default).join(".");
    let here = if TESTED_KERNELS.contains(&line.as_str()) {
        "this kernel's series is one of them"
    } else {
        "not on this one"
    };
    format!("the eBPF programs have been run on Linux {}; {here}", TESTED_KERNELS.join(", "))
}

fn why(reason: &str, remedy: &str) -> String {
    let mut s = format!(": {}", sanitize(reason));
    if !remedy.is_empty() {
        let _ = write!(s, " -> {}", sanitize(remedy));
    }
    s
}

/// As JSON.
#[must_use]
pub fn json(host: &HostInfo, health: &[CollectorHealth]) -> Value {
    let signals = coverage(health);
    json!({
        "schema": super::json::SCHEMA,
        "tool": host.tool,
        "host": host.hostname,
        "kernel": host.kernel,
        "uid": host.uid,
        "ebpf_tested_kernels": TESTED_KERNELS,
        "blind_spots": blind_spots(&signals),
        "signals": signals,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_told_tested_by_its_line() {
        for (kernel, known) in [
            ("6.1.0-56-cloud-amd64", true),
            ("6.12.117+deb12-cloud-amd64", true),
            ("6.18.44-fc-v595", true),
            ("6.10.3", false),
            ("6.11-rc1", false),
            ("5.15.0-1.el9", false),
            ("", false),
        ] {
            assert_eq!(!tested(kernel).contains("not on this one"), known, "{kernel}");
        }
    }
}

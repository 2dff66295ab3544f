//! `doctor`: one line per signal - works, degraded, missing - with reason and remedy.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::collect::{Signal, SignalStatus};
use crate::model::text::sanitize;
use crate::model::tick::{CollectorHealth, HealthState, HostInfo, Tick};

/// Every signal; a collector that failed or is late says so too.
#[must_use]
pub fn signals(health: &[CollectorHealth]) -> Vec<Signal> {
    let mut out = Vec::new();
    for h in health {
        match &h.state {
            HealthState::Failed { error } => {
                out.push(Signal::missing(h.id.name(), "", error.clone(), ""));
            }
            HealthState::Late { age } if h.signals.is_empty() => out.push(Signal::degraded(
                h.id.name(),
                "",
                format!("no reading within {:.1} s", age.as_secs_f64()),
                "look at it again, or use a longer --interval",
            )),
            _ => out.extend(h.signals.iter().cloned()),
        }
    }
    out
}

/// True while a collector has said nothing yet.
#[must_use]
pub fn is_waiting(tick: &Tick) -> bool {
    let silent = |h: &CollectorHealth| {
        matches!(h.state, HealthState::Late { .. }) && h.signals.is_empty()
    };
    tick.health.iter().any(silent)
}

/// As text.
#[must_use]
pub fn text(host: &HostInfo, health: &[CollectorHealth]) -> String {
    let signals = signals(health);
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
    out
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
    json!({
        "schema": super::json::SCHEMA,
        "tool": host.tool,
        "host": host.hostname,
        "kernel": host.kernel,
        "uid": host.uid,
        "signals": signals(health),
    })
}

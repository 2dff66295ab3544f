//! What a recording's timeline shows of a moment without decoding its tick: the active findings
//! and a few figures per pane.

use std::borrow::Cow;

use super::TickView;
use crate::recording::{ActiveFinding, TickSummary};

impl TickView<'_> {
    /// The summary of this tick. A figure that was not measured is missing.
    #[must_use]
    pub fn summary(&self) -> TickSummary {
        let findings = self.findings.all().map(|f| ActiveFinding {
            rule: f.rule.0.to_owned(),
            subject: f.subject.to_string(),
            severity: f.fire.severity.name().to_owned(),
        });
        TickSummary { figures: self.figures(), findings: findings.collect() }
    }

    fn figures(&self) -> Vec<(Cow<'static, str>, f64)> {
        let d = self.derived;
        let mut out = Vec::new();
        let mut put = |name: &'static str, v: Option<f64>| {
            out.extend(v.map(|v| (Cow::Borrowed(name), v)));
        };
        let max = |all: &mut dyn Iterator<Item = f64>| {
            all.fold(None, |m: Option<f64>, v| Some(m.map_or(v, |m| m.max(v))))
        };
        let totals = &d.sockets.totals;
        let some = !totals.is_empty();
        put("sockets.tcp", some.then(|| totals.iter().map(|t| f64::from(t.tcp)).sum()));
        put("sockets.followed", some.then_some(d.sockets.suspects.len() as f64));
        let disks = || d.disks.iter().flat_map(|l| l.iter());
        put("disks.util-max", max(&mut disks().map(|x| x.util)));
        put("disks.await-max-ms", max(&mut disks().filter_map(|x| x.await_ms)));
        let cpu = d.cpu.as_ref();
        put("cpu.busy", cpu.and_then(|c| c.total.as_ref()).map(|t| 100.0 - t.idle - t.iowait));
        put("softirq.cpu-max", cpu.and_then(|c| max(&mut c.cpus.iter().map(|c| c.1.softirq))));
        let p99 = d.runq_bpf.as_ref().and_then(|r| r.latency.as_ref()).map(|l| l.p99_ns as f64);
        put("runq.p99-us", p99.map(|ns| ns / 1e3));
        put("psi.cpu-some", d.psi.as_ref().and_then(|p| p.cpu_some));
        put("psi.io-full", d.psi.as_ref().and_then(|p| p.io_full));
        put("psi.memory-full", d.psi.as_ref().and_then(|p| p.memory_full));
        out
    }
}

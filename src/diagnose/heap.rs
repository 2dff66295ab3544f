//! Heap sizes of findings.

use std::sync::Arc;

use super::culprit::{Culprit, Resource, Share, Who};
use super::finding::{Evidence, Finding, Findings, Fire, NotJudged, RuledOut};
use crate::sample::heap::{Heap, block, owns};

owns!(NotJudged { why } flat { rule });
owns!(Fire { summary, examples, sockets, tasks, evidence, by, ruled_out, next, missing } flat {
    severity, confidence, count, aspect, since
});
owns!(Evidence { field, text } flat { value, unit, threshold });
owns!(RuledOut { rule, because } flat {});

impl Heap for Culprit {
    fn heap(&self, _: Option<&Self>) -> usize {
        let Self { who, share, sched: _, cgroup } = self;
        let name = match who {
            Who::Process { comm, .. } => comm.heap(None),
            Who::Thread { comm, process, .. } => comm.heap(None) + process.heap(None),
            Who::Kernel { comm: name, .. }
            | Who::Cgroup { path: name }
            | Who::TasksOf { path: name } => name.heap(None),
            Who::Port { owner, .. } | Who::Peer { owner, .. } | Who::Source { owner, .. } => {
                owner.as_ref().map_or(0, |(_, comm)| comm.heap(None))
            }
        };
        name + share.heap(None) + cgroup.heap(None)
    }
}

impl Heap for Share {
    fn heap(&self, _: Option<&Self>) -> usize {
        match &self.of {
            Resource::CpuOfCgroup(name)
            | Resource::QuotaOf(name)
            | Resource::DiskBytes(_, name)
            | Resource::BytesOfCgroup(_, name)
            | Resource::TasksOfCgroup(name)
            | Resource::SpaceOn(name)
            | Resource::CreatesOn(name)
            | Resource::MemoryOfCgroup(name)
            | Resource::GrowthOfCgroup(name)
            | Resource::MemoryLimitOf(name)
            | Resource::Received(name)
            | Resource::Sent(name) => name.heap(None),
            Resource::AllCpus
            | Resource::Cpu(_)
            | Resource::Switches
            | Resource::TcpMemory
            | Resource::Unaccepted
            | Resource::Unread
            | Resource::Queued
            | Resource::Overflow
            | Resource::Unclosed
            | Resource::PortsInUse
            | Resource::Connects
            | Resource::BadChecksums
            | Resource::Unassembled
            | Resource::ConntrackEntries
            | Resource::NonTcpEntries
            | Resource::LockWait
            | Resource::KernelTime
            | Resource::Tasks
            | Resource::HostMemory
            | Resource::Growth
            | Resource::AllDiskBytes(_)
            | Resource::ProcessBytes(_) => 0,
        }
    }
}

impl Heap for Finding {
    fn heap(&self, _: Option<&Self>) -> usize {
        let Self {
            rule: _,
            subject,
            fire,
            since: _,
            first_seen: _,
            last_seen: _,
            active: _,
            cause,
        } = self;
        let cause = cause.as_ref().map_or(0, |(_, subject)| subject.heap(None));
        subject.heap(None) + fire.heap(None) + cause
    }
}

impl Heap for Findings {
    fn heap(&self, before: Option<&Self>) -> usize {
        let Self { active, folded, annotations, cleared, not_judged } = self;
        active.heap(before.map(|b| &b.active))
            + folded.heap(before.map(|b| &b.folded))
            + annotations.heap(before.map(|b| &b.annotations))
            + over(cleared, before.map_or(&[], |b| &b.cleared))
            + not_judged.heap(None)
    }
}

/// New entries are added at the front and old ones dropped at the end; the rest is shared with the
/// previous list.
fn over(now: &Vec<Arc<Finding>>, before: &[Arc<Finding>]) -> usize {
    let first = before.first();
    let new = now.iter().position(|f| first.is_some_and(|o| Arc::ptr_eq(f, o)));
    let new = new.unwrap_or(now.len());
    let old = |i: usize| i.checked_sub(new).and_then(|i| before.get(i));
    let rows = now.iter().enumerate().map(|(i, f)| f.heap(old(i))).sum::<usize>();
    block(size_of_val(now.as_slice())) + rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::{RuleId, Severity};
    use crate::sample::subject::Subject;
    use crate::sample::time::{MonoNs, WallNs};

    fn finding(text: &str) -> Arc<Finding> {
        Arc::new(Finding {
            rule: RuleId("x"),
            subject: Subject::Host,
            fire: Fire::new(Severity::Warn, text),
            since: MonoNs(0),
            first_seen: WallNs(0),
            last_seen: WallNs(0),
            active: false,
            cause: None,
        })
    }

    /// Every snapshot lists up to 200 cleared findings of the last hour; they are shared.
    #[test]
    fn findings_that_are_over_count_once() {
        let mut list: Vec<_> = (0..200).map(|n| finding(&n.to_string())).collect();
        let before = Findings { cleared: list.clone(), ..Findings::default() };
        list.pop();
        list.insert(0, finding("the youngest"));
        let now = Findings { cleared: list, ..Findings::default() };
        let one = now.cleared.first().map_or(0, |f| f.heap(None));
        assert!(one > size_of::<Finding>());
        assert_eq!(now.heap(Some(&before)), block(now.cleared.len() * 8) + one);
        assert!(now.heap(None) > 200 * size_of::<Finding>());
    }
}

//! Three small rules of the tests' own: screens must not change when a real rule's words do.

use std::time::Duration;

use stallscope::diagnose::culprit::{Culprit, Resource, Sched, Share, Who};
use stallscope::diagnose::{
    Evidence, Fire, Hold, Kind, Rule, RuleDoc, RuleId, RuledOut, Severity, Thresholds, Verdicts,
    Window,
};
use stallscope::metrics::sockets::TimerKind;
use stallscope::sample::CollectorId;
use stallscope::sample::subject::Subject;

pub static RULES: &[&Rule] = &[&SILENT_RTO, &CAPPED_DISK, &ONE_CORE];

pub const fn doc(id: &'static str, hold: Hold) -> RuleDoc {
    RuleDoc {
        id: RuleId(id),
        title: "",
        condition: "",
        look_alikes: "",
        remedy: "",
        sources: "",
        hold,
        needs_time: Duration::ZERO,
    }
}

static SILENT_RTO: Rule = Rule {
    doc: &const { doc("tcp-silent-rto", Hold::events(5)) },
    kind: Kind::Rule,
    needs: &[CollectorId::Sockets],
    explains: &[],
    check: silent_rto,
};

fn silent_rto(w: &Window<'_>, _t: &Thresholds, out: &mut Verdicts) {
    let sick: Vec<_> =
        w.derived.sockets.suspects.iter().filter(|s| s.fired(TimerKind::Rto) >= 3).collect();
    let Some(first) = sick.first() else { return };
    let rto = f64::from(first.info.unwrap().rto_us().unwrap()) / 1e6;
    let owner = first.owner.as_ref().map_or("?", |o| o.comm.as_str());
    let mut f = Fire::new(
        Severity::Crit,
        format!(
            "{} conns -> {} ({owner}): timer fires, nothing leaves: no route to peer",
            sick.len(),
            first.remote
        ),
    );
    f.count = sick.len() as u32;
    f.sockets = sick.iter().map(|s| s.id).collect();
    f.examples = sick.iter().map(|s| format!("{} -> {}", s.local, s.remote)).collect();
    f.evidence.push(Evidence::new("rto", rto, "s", "doubles with each timeout").over(1.0));
    f.evidence.push(Evidence::text("route", "RTM_GETROUTE: Network is unreachable"));
    let who = Who::Process { pid: 7, comm: Some("loop\x1b[2J".to_owned()) };
    let share = Share::new(61.0, 100.0, Resource::AllCpus).unwrap();
    f.by.push(Culprit { who, share, sched: Sched::new(Some(1), None), cgroup: None });
    f.ruled_out.push(RuledOut::new("tcp-zero-window-stall", "snd_wnd 65160 > 0"));
    f.next.push(format!("ip route get {} from {}", first.remote.addr, first.local.addr));
    out.fire(Subject::Peer { remote: first.remote, netns: first.id.netns }, f);
}

static CAPPED_DISK: Rule = Rule {
    doc: &const { doc("disk-capped-cloud", Hold::of(5, 8)) },
    kind: Kind::Rule,
    needs: &[CollectorId::Disks],
    explains: &[],
    check: capped_disk,
};

fn capped_disk(w: &Window<'_>, _t: &Thresholds, out: &mut Verdicts) {
    for d in w.derived.disks.iter().flat_map(|d| d.iter()).filter(|d| d.aqu_sz > 32.0) {
        let mut f = Fire::new(
            Severity::Crit,
            format!("{}: {:.0} IOPS flat while {:.0} wait", d.name, d.iops(), d.aqu_sz),
        );
        f.evidence.push(Evidence::new("aqu-sz", d.aqu_sz, "", "queue").over(32.0));
        out.fire(Subject::Disk { name: d.name.to_string(), dev: d.id }, f);
    }
}

static ONE_CORE: Rule = Rule {
    doc: &const { doc("softirq-one-core", Hold::of(3, 5)) },
    kind: Kind::Rule,
    needs: &[CollectorId::Cpu],
    explains: &[],
    check: one_core,
};

fn one_core(w: &Window<'_>, _t: &Thresholds, out: &mut Verdicts) {
    for (cpu, s) in w.derived.cpu.iter().flat_map(|c| &c.cpus).filter(|c| c.1.softirq > 80.0) {
        let f = Fire::new(
            Severity::Warn,
            format!("{cpu} {:.0}% si, all of eth0's NET_RX; RPS off, 1 queue of 8", s.softirq),
        );
        out.fire(Subject::Cpu { cpu: *cpu }, f);
    }
}

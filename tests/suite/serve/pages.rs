//! Pages against the samples that they are made of: each value by arithmetic, what is not known,
//! what is too much.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stallscope::analysis::Analysis;
use stallscope::diagnose::{Engine, Severity};
use stallscope::openmetrics::{FAMILIES, Format, Readings, exposition};
use stallscope::sample::cgroups::{CgroupCpu, CgroupRow, CgroupsSample};
use stallscope::sample::cpu::CpuTimes;
use stallscope::sample::disks::DiskRow;
use stallscope::sample::memory::MemorySample;
use stallscope::sample::net_counters::{NetCountersSample, NetnsCounters};
use stallscope::sample::netdev::{
    Conntrack, LinkAttrs, LinkRow, LinkStats, NetdevSample, NetdevSpace, QdiscRow,
};
use stallscope::sample::sched::CpuSchedstat;
use stallscope::sample::softirq::SoftnetRow;
use stallscope::sample::subject::{CgroupId, CpuId, DiskId};
use stallscope::sample::tick::{Gap, HostInfo, Tick};
use stallscope::sample::time::Span;
use stallscope::sample::{CollectorId, Shared, Stamped};

use crate::support::incident::{incidents, run_of};
use crate::support::openmetrics::{Metrics, read, try_read};
use crate::support::script::{Script, stamp};

/// A run with the readings that saw it.
struct Seen {
    run: Analysis,
    readings: Readings,
}

impl Seen {
    fn new(host: HostInfo) -> Self {
        let run = Analysis::lean(host, Engine::default(), 16 << 20);
        Self { run, readings: Readings::default() }
    }
    fn push(&mut self, tick: Tick) {
        let host = self.run.host();
        self.readings.push(&tick, host.netns, host.interval);
        self.run.push(Arc::new(tick));
    }
    /// Ticks `0..=n` of a script, on a host with pages of 4 KiB.
    fn script(script: &Script, n: u64) -> Self {
        let mut seen = Self::new(HostInfo { page_size: 4096, ..script.host() });
        for i in 0..=n {
            seen.push(script.tick(i));
        }
        seen
    }
    #[track_caller]
    fn page(&self) -> Metrics {
        let text = exposition(&self.run, &self.readings, Format::OpenMetrics).unwrap();
        let m = read(&text);
        for f in FAMILIES {
            let n = m.all(&f.sample()).count();
            assert!(n <= f.most, "{}: {n}", f.name);
        }
        m
    }
}

fn near(a: Option<f64>, b: f64) {
    assert!(a.is_some_and(|a| (a - b).abs() <= 1e-9 * b.abs().max(1.0)), "{a:?} is not {b}");
}

#[test]
fn a_checker_that_sees_nothing_would_pass_for_ever() {
    let good = "# TYPE a_bytes gauge\n# UNIT a_bytes bytes\n# HELP a_bytes x\na_bytes{b=\"c\\\"\"} 1\n\
        # TYPE d counter\nd_total 2\n# EOF\n";
    let m = try_read(good).unwrap();
    assert_eq!(m.get("a_bytes", &[("b", "c\"")]), Some(1.0));
    assert_eq!(m.get("d_total", &[]), Some(2.0));
    for (from, to, why) in [
        ("# EOF\n", "", "EOF"),
        ("# EOF\n", "# EOF\n# EOF\n", "metadata without"),
        ("d_total 2", "d 2", "no type"),
        ("d_total 2", "d_total -2", "counter"),
        ("d_total 2", "d_total x", "no number"),
        ("d_total 2", "d_total 2\nd_total 2", "twice"),
        ("d_total 2", "d_total 2\na_bytes 3", "was over"),
        ("d_total 2", "d_total 2\n# HELP d x", "after samples"),
        ("# TYPE d counter\n", "", "no type"),
        ("UNIT a_bytes bytes", "UNIT a_bytes seconds", "unit"),
        ("# HELP a_bytes x", "# HELP a_bytes x\n# HELP a_bytes x", "metadata twice"),
        ("c\\\"", "c\\x", "escape"),
        ("b=\"c\\\"\"", "b=\"c\",b=\"c\"", "label twice"),
        ("{b", "{0b", "name of a label"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert!(try_read(&bad).is_err_and(|e| e.contains(why)), "{bad}: {:?}", try_read(&bad));
    }
}

#[test]
fn before_the_first_tick_there_is_no_page() {
    let seen = Seen::new(HostInfo::default());
    assert_eq!(exposition(&seen.run, &seen.readings, Format::OpenMetrics), None);
}

#[test]
fn of_an_empty_tick_nothing_is_known() {
    let mut seen = Seen::new(HostInfo { tool: "stallscope 9.8.7".into(), ..HostInfo::default() });
    seen.push(Tick::default());
    let m = seen.page();
    assert_eq!(m.get("stallscope_build_info", &[("version", "9.8.7")]), Some(1.0));
    let known: BTreeSet<&str> = m.types.keys().map(String::as_str).collect();
    let of_the_program = [
        "build",
        "host",
        "host_cpus",
        "interval_seconds",
        "last_tick_timestamp_seconds",
        "ticks",
        "ticks_missed",
        "findings_active",
        "findings_dropped",
        "resource_severity",
    ];
    let of_the_program = of_the_program.map(|n| format!("stallscope_{n}"));
    assert_eq!(known, of_the_program.iter().map(String::as_str).collect());
}

/// What the kernel counted, as it was read; what is made of it, by the rules of iostat and top.
#[test]
fn figures_are_those_of_the_samples() {
    let script = Script { change: beside, ..Script::three_faults() };
    let (before, now) = (script.tick(29), script.tick(30));
    let seen = Seen::script(&script, 30);
    let m = seen.page();
    near(m.get("stallscope_ticks_total", &[]), 31.0);
    near(m.get("stallscope_ticks_missed_total", &[]), 2.0);
    near(m.get("stallscope_last_tick_timestamp_seconds", &[]), now.wall.0 as f64 / 1e9);
    near(m.get("stallscope_self_cpu_seconds_total", &[]), 0.09);
    near(m.get("stallscope_self_resident_bytes", &[]), f64::from(21 << 20));

    let disks = |t: &Tick| t.samples.disks.as_ref().unwrap().data.disks.clone();
    let named = |all: Vec<DiskRow>| all.into_iter().find(|d| &*d.name == "vdb").unwrap().stat;
    let (a, b) = (named(disks(&before)), named(disks(&now)));
    let vdb = [("device", "vdb")];
    near(m.get("stallscope_disk_reads_total", &vdb), b.rd_ios as f64);
    near(m.get("stallscope_disk_writes_total", &vdb), b.wr_ios as f64);
    near(m.get("stallscope_disk_read_bytes_total", &vdb), b.rd_sectors as f64 * 512.0);
    near(m.get("stallscope_disk_written_bytes_total", &vdb), b.wr_sectors as f64 * 512.0);
    let ms = f64::from(b.rd_ticks.wrapping_sub(a.rd_ticks)) / (b.rd_ios - a.rd_ios) as f64;
    let read = [("device", "vdb"), ("operation", "read")];
    near(m.get("stallscope_disk_await_seconds", &read), ms / 1000.0);
    let flush = |s: stallscope::sample::disks::DiskCounters| s.flush.unwrap().ticks;
    let queued = b.rd_ticks - a.rd_ticks + b.wr_ticks - a.wr_ticks + flush(b) - flush(a);
    near(m.get("stallscope_disk_queue_length", &vdb), f64::from(queued) / 1000.0);
    near(m.get("stallscope_disk_util_ratio", &vdb), f64::from(b.io_ticks - a.io_ticks) / 1000.0);
    near(m.get("stallscope_disk_in_flight", &vdb), 128.0);
    // Partitions and loop devices would be counted twice, or do not count.
    assert_eq!(m.values("stallscope_disk_reads_total", "device"), ["vda", "vdb", "dm-0"]);

    let cpu = |t: &Tick| t.samples.cpu.as_ref().unwrap().data.clone();
    let (a, b) = (cpu(&before), cpu(&now));
    near(
        m.get("stallscope_cpu_seconds_total", &[("mode", "softirq")]),
        b.total.softirq as f64 / 100.0,
    );
    near(m.get("stallscope_context_switches_total", &[]), 120_000.0);
    let all = |t: &CpuTimes| (t.user + t.system + t.softirq + t.idle) as f64;
    let (p, n) = (a.cpus[3].1, b.cpus[3].1);
    let three = [("cpu", "3")];
    let sum = all(&n) - all(&p);
    near(m.get("stallscope_cpu_softirq_ratio", &three), (n.softirq - p.softirq) as f64 / sum);
    near(m.get("stallscope_cpu_busy_ratio", &three), 1.0 - (n.idle - p.idle) as f64 / sum);
    near(m.get("stallscope_cpu_busiest_ratio", &[]), 1.0 - (n.idle - p.idle) as f64 / sum);
    near(m.get("stallscope_cpu_steal_ratio", &three), 0.0);
    near(m.get("stallscope_tasks_runnable", &[]), 3.0);
    near(m.get("stallscope_load", &[("minutes", "1")]), 9.8);
    near(m.get("stallscope_softnet_squeezed_total", &three), 214.0 * 20.0);
    near(m.get("stallscope_run_queue_wait_seconds_total", &[("cpu", "1")]), 45.0);
    // 1.5 s/s of CPU 1, as schedstat has it.
    near(m.get("stallscope_run_queue_waiting", &[]), 1.5);
    let psi = now.samples.psi.as_ref().unwrap().data.io.unwrap();
    let some = [("resource", "io"), ("share", "some")];
    near(m.get("stallscope_pressure_stalled_seconds_total", &some), psi.some_us as f64 / 1e6);
    let full = [("resource", "cpu"), ("share", "full")];
    assert_eq!(m.get("stallscope_pressure_stalled_seconds_total", &full), None);

    near(m.get("stallscope_memory_bytes", &[]), 8e6 * 1024.0);
    near(m.get("stallscope_swap_used_bytes", &[]), 300.0 * 1024.0);
    near(m.get("stallscope_swapped_in_bytes_total", &[]), 7.0 * 4096.0);
    assert_eq!(m.get("stallscope_oom_kills_total", &[]), None, "this kernel does not count them");

    let eth0 = [("device", "eth0")];
    near(m.get("stallscope_network_received_bytes_total", &eth0), 30_000.0);
    near(m.get("stallscope_network_send_dropped_packets_total", &eth0), 5.0);
    near(m.get("stallscope_network_queued_bytes", &eth0), 4242.0);
    near(m.get("stallscope_conntrack_entries", &[]), 12.0);
    assert_eq!(m.get("stallscope_conntrack_entries_limit", &[]), None, "0 is no limit");
    near(m.get("stallscope_tcp_retransmitted_segments_total", &[]), 60.0);
    near(m.get("stallscope_socket_memory_bytes", &[("protocol", "tcp")]), 10.0 * 4096.0);
    near(m.get("stallscope_tcp_memory_limit_bytes", &[("level", "high")]), 300.0 * 4096.0);
    assert_eq!(m.get("stallscope_tcp_resets_total", &[]), None);

    // 40 healthy connections, two to the database, two listeners.
    near(m.get("stallscope_tcp_sockets", &[("state", "established")]), 42.0);
    near(m.get("stallscope_tcp_sockets", &[("state", "listen")]), 2.0);
    near(m.get("stallscope_tcp_sockets", &[("state", "other")]), 0.0);
    near(m.get("stallscope_udp_sockets", &[]), 1.0);
    near(m.get("stallscope_sockets_stuck", &[]), 2.0);

    let pod = [("cgroup", "/kube/\"pod7\"\u{FFFD}")];
    near(m.get("stallscope_cgroup_throttled_periods_total", &pod), 30.0);
    near(m.get("stallscope_cgroup_throttled_seconds_total", &pod), 1.5);
    near(m.get("stallscope_cgroup_cpu_limit", &pod), 0.5);

    near(m.get("stallscope_signal_available", &[("signal", "disks")]), 1.0);
    near(m.get("stallscope_signal_available", &[("signal", "block latency")]), 0.0);
    near(m.get("stallscope_resource_busy_ratio", &[("resource", "vdb")]), 0.99);
    let findings = seen.run.latest().unwrap().findings;
    let about = findings.all().filter(|f| f.subject.to_string() == "vdb");
    let worst = about.map(|f| findings.severity(f) as u8).max().unwrap();
    near(m.get("stallscope_resource_severity", &[("resource", "vdb")]), f64::from(worst) + 1.0);
    let waits = [("resource", "sockets"), ("measure", "stuck_sockets")];
    near(m.get("stallscope_resource_waiting", &waits), 2.0);
}

/// What the script has not.
fn beside(t: &mut Tick, n: u64) {
    if n == 3 {
        t.gap = Some(Gap { ticks: 2 });
    }
    let s = &mut t.samples;
    let own = Script::healthy().host().netns.unwrap();
    let memory = [
        ("meminfo.MemTotal", 8_000_000),
        ("meminfo.SwapFree", 700),
        ("meminfo.SwapTotal", 1000),
        ("vmstat.pswpin", 7),
    ];
    s.memory = Some(stamp(
        t.mono,
        MemorySample {
            names: Arc::new(memory.iter().map(|m| m.0.into()).collect()),
            values: memory.iter().map(|m| m.1).collect(),
        },
    ));
    let counters = [("TcpRetransSegs", 2 * n as i64), ("sockstat.TCP.mem", 10)];
    s.net_counters = Some(stamp(
        t.mono,
        NetCountersSample {
            spaces: vec![NetnsCounters {
                netns: own,
                names: Arc::new(counters.iter().map(|c| c.0.into()).collect()),
                values: counters.iter().map(|c| c.1).collect(),
            }],
            tcp_mem: Some([100, 200, 300]),
            tcp_max_orphans: None,
        },
    ));
    let attrs = LinkAttrs { name: "eth0".into(), up: true, physical: true, ..LinkAttrs::default() };
    s.netdev = Some(stamp(
        t.mono,
        NetdevSample {
            spaces: vec![Arc::new(NetdevSpace {
                netns: own,
                span: Span::at(t.mono),
                links: vec![LinkRow {
                    ifindex: 2,
                    attrs: Arc::new(attrs),
                    stats: LinkStats { rx_bytes: 1000 * n, tx_dropped: 5, ..LinkStats::default() },
                    exceeded: Vec::new(),
                }],
                qdiscs: vec![QdiscRow {
                    ifindex: 2,
                    parent: QdiscRow::ROOT,
                    backlog: 4242,
                    ..QdiscRow::default()
                }],
                conntrack: Some(Conntrack { count: 12, ..Conntrack::default() }),
                ..NetdevSpace::default()
            })],
        },
    ));
    let group = CgroupRow {
        id: CgroupId(7),
        path: "/kube/\"pod7\"\n".into(),
        mount: "/sys/fs/cgroup".into(),
        cpu: Some(CgroupCpu {
            quota_us: Some(50_000),
            period_us: 100_000,
            nr_periods: 10 * n,
            nr_throttled: n,
            throttled_ns: 50_000_000 * n,
            ..CgroupCpu::default()
        }),
        ..CgroupRow::default()
    };
    s.cgroups = Some(stamp(t.mono, CgroupsSample { groups: vec![group], unread: 0 }));
    let cpu = |cpu| CpuSchedstat {
        cpu: CpuId(cpu),
        run_delay_ns: u64::from(cpu) * 1_500_000_000 * n,
        ..CpuSchedstat::default()
    };
    change(&mut s.sched, |sched| sched.cpus = (0..2).map(cpu).collect());
}

fn change<S: Clone>(sample: &mut Option<Shared<S>>, f: impl FnOnce(&mut S)) {
    let old = sample.take().unwrap();
    let mut data = old.data.clone();
    f(&mut data);
    *sample = Some(Arc::new(Stamped { span: old.span, cpu: old.cpu, data }));
}

#[test]
fn what_is_not_read_any_more_goes_away() {
    // Every fifth tick has disks: between them the last reading stands.
    let sometimes = |t: &mut Tick, n: u64| {
        if !n.is_multiple_of(5) || n > 10 {
            t.samples.disks = None;
        }
    };
    let script = Script { change: sometimes, ..Script::healthy() };
    let reads = |n| Seen::script(&script, n).page().all("stallscope_disk_reads_total").count();
    assert_eq!(reads(10), 3);
    assert_eq!(reads(14), 3);
    // A sample is 0.1 s older than its tick, and stands for 15 s.
    assert_eq!(reads(24), 3);
    assert_eq!(reads(25), 0);
    // Off from the start: absent, and said so.
    let off = Script { off: vec![(CollectorId::Disks, "no /proc/diskstats")], ..Script::healthy() };
    let m = Seen::script(&off, 5).page();
    assert!(!m.types.keys().any(|f| f.starts_with("stallscope_disk_")));
    assert_eq!(m.get("stallscope_rows_dropped", &[("list", "disks")]), None);
}

/// Findings by their labels, as the engine has them.
fn expected(run: &Analysis) -> BTreeSet<(String, String, String)> {
    let now = run.latest().unwrap();
    let text = |s: String| stallscope::text::sanitize(&s).into_owned();
    let one = |f: &Arc<stallscope::diagnose::Finding>| {
        (f.rule.0.to_owned(), f.fire.severity.name().to_owned(), text(f.subject.to_string()))
    };
    now.findings.all().map(one).collect()
}

/// Every tenth incident, to its end: the page is right in form, and has the findings of the report.
#[test]
fn incidents_are_served_as_they_are_reported() {
    let mut some = 0;
    for (name, incident) in incidents().iter().filter(|(_, i)| !i.pasted).step_by(10) {
        let interval = incident.intervals[0];
        let (host, ticks) = run_of(incident, interval);
        let mut seen = Seen::new(host);
        for tick in ticks {
            seen.push((*tick).clone());
        }
        let m = seen.page();
        let ours: BTreeSet<_> = m
            .all("stallscope_finding_active")
            .map(|s| ["rule", "severity", "subject"].map(|l| s.labels[l].clone()).into())
            .collect();
        let theirs = expected(&seen.run);
        assert_eq!(ours, theirs, "{name}");
        some += ours.len();
        let all: f64 = m.all("stallscope_findings_active").map(|s| s.value).sum();
        let dropped = m.get("stallscope_findings_dropped", &[]).unwrap();
        assert_eq!(all, ours.len() as f64 + dropped, "{name}");
    }
    assert!(some > 10, "{some} findings in all of them");
}

/// Thousands of everything, with names that a terminal would obey.
fn crowd(t: &mut Tick, n: u64) {
    beside(t, n);
    let s = &mut t.samples;
    change(&mut s.cpu, |cpu| {
        let (_, one) = cpu.cpus[1];
        cpu.cpus = (0..5000).map(|i| (CpuId(i), one)).collect();
    });
    change(&mut s.softirq, |s| {
        let row = |i| SoftnetRow { cpu: Some(CpuId(i)), ..SoftnetRow::default() };
        s.softnet = (0..5000).map(row).collect();
    });
    change(&mut s.sched, |s| {
        s.cpus = (0..5000).map(|i| CpuSchedstat { cpu: CpuId(i), ..s.cpus[1] }).collect();
    });
    change(&mut s.disks, |disks| {
        let one = disks.disks.iter().find(|d| &*d.name == "vda").unwrap().clone();
        disks.disks = (0..3000)
            .map(|i| {
                let mut d = one.clone();
                d.id = DiskId { major: 8, minor: i };
                d.name = format!("sd{i}\x1b[2J\n").into();
                // The busiest are somewhere in the middle.
                d.stat.rd_ios += u64::from(i % 1000) * 100 * n;
                d
            })
            .collect();
    });
    change(&mut s.netdev, |net| {
        let mut space = (*net.spaces[0]).clone();
        space.links = (0..4000)
            .map(|i| LinkRow {
                ifindex: i + 1,
                attrs: Arc::new(LinkAttrs { name: format!("veth{i}"), ..LinkAttrs::default() }),
                stats: LinkStats { rx_bytes: u64::from(i) * n, ..LinkStats::default() },
                exceeded: Vec::new(),
            })
            .collect();
        net.spaces = vec![Arc::new(space)];
    });
    change(&mut s.cgroups, |c| {
        let one = c.groups[0].clone();
        c.groups = (0..6000_u64)
            .map(|i| {
                let mut g = one.clone();
                g.id = CgroupId(100 + i);
                g.path = format!("/{}/{i}", "x".repeat(300)).into();
                if let Some(cpu) = &mut g.cpu {
                    // All of them are throttled, the last ones most.
                    cpu.nr_throttled = cpu.nr_periods;
                    cpu.throttled_ns += i * n * 1000;
                }
                g
            })
            .collect();
    });
}

#[test]
fn thousands_of_everything_stay_within_bounds() {
    let script = Script { change: crowd, ..Script::three_faults() };
    let seen = Seen::script(&script, 15);
    // `page` looks at the maximum of each family.
    let m = seen.page();
    let dropped = |list| m.get("stallscope_rows_dropped", &[("list", list)]).unwrap();
    assert_eq!(m.all("stallscope_cpu_busy_ratio").count(), 256);
    assert_eq!(dropped("cpus"), 5000.0 - 256.0);
    let disks = m.values("stallscope_disk_reads_total", "device");
    assert_eq!((disks.len(), dropped("disks")), (64, 3000.0 - 64.0));
    // 979 to 999 of each thousand, and the first one of 978.
    assert!(disks.iter().all(|d| d.contains("\u{FFFD}[2J\u{FFFD}")), "{disks:?}");
    assert!(disks[1].starts_with("sd979") && disks[63].starts_with("sd2999"), "{disks:?}");
    let devices = m.values("stallscope_network_received_bytes_total", "device");
    assert_eq!((devices[0], devices[63]), ("veth3936", "veth3999"));
    assert_eq!(dropped("network_devices"), 4000.0 - 64.0);
    let groups = m.values("stallscope_cgroup_throttled_seconds_total", "cgroup");
    assert_eq!(groups.len(), 50);
    assert!(groups[0].ends_with("x/5999") && groups[0].chars().count() == 200, "{}", groups[0]);
    assert!(dropped("cgroups") >= 1000.0, "of those that are remembered");

    let findings: Vec<_> = m.all("stallscope_finding_active").collect();
    let all: f64 = m.all("stallscope_findings_active").map(|s| s.value).sum();
    assert_eq!(findings.len(), 50, "of {all}");
    let left_out = m.get("stallscope_findings_dropped", &[]).unwrap();
    assert!(left_out > 900.0 && all == 50.0 + left_out, "{all} {left_out}");
    let rank = |name: &str| {
        [Severity::Info, Severity::Warn, Severity::Crit].iter().position(|s| s.name() == name)
    };
    let ranks: Vec<_> = findings.iter().map(|s| rank(&s.labels["severity"])).collect();
    assert!(ranks.is_sorted_by(|a, b| a >= b), "the worst first: {ranks:?}");
    let text = exposition(&seen.run, &seen.readings, Format::OpenMetrics).unwrap();
    assert!(text.len() < 1 << 20, "{} bytes", text.len());
    // The older format has the same samples.
    let old = exposition(&seen.run, &seen.readings, Format::Prometheus).unwrap();
    let samples = |t: &str| t.lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect();
    let (a, b): (Vec<String>, Vec<String>) = (samples(&text), samples(&old));
    assert_eq!(a, b);
}

/// A cgroup that was read some time ago still counts: they take turns. One that lost its quota does
/// not.
#[test]
fn cgroups_take_turns() {
    let turns = |t: &mut Tick, n: u64| {
        beside(t, n);
        change(&mut t.samples.cgroups, |c| {
            let mut g = c.groups[0].clone();
            g.id = CgroupId(n % 10);
            g.path = format!("/g{}", n % 10).into();
            if n == 43 {
                g.cpu.as_mut().unwrap().quota_us = None;
            }
            c.groups = vec![g];
        });
    };
    let seen = Seen::script(&Script { change: turns, ..Script::healthy() }, 45);
    let m = seen.page();
    let mut names = m.values("stallscope_cgroup_periods_total", "cgroup");
    names.sort_unstable();
    assert_eq!(names, ["/g0", "/g1", "/g2", "/g4", "/g5", "/g6", "/g7", "/g8", "/g9"]);
    assert_eq!(seen.run.host().interval, Duration::from_secs(1));
}

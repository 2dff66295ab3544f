//! Files of `/proc` and of cgroups: every file through every parser.

use stallscope::collect::cgroups::{
    V1Counters, parse_cpu_max, parse_cpu_stat, parse_io_max, parse_io_stat, parse_v1_io,
    parse_v1_limits,
};
use stallscope::collect::net_counters::{walk_snmp6, walk_sockstat, walk_tables};
use stallscope::collect::netdev::parse_conntrack_stat;
use stallscope::collect::process_io::{parse_io, parse_io_cgroup, parse_last_pid};
use stallscope::collect::sched::{
    parse_cpus_allowed, parse_loadavg, parse_schedstat_cpus, parse_task_cgroup,
};
use stallscope::collect::sockets::procnet;
use stallscope::collect::softirq::{Interned, IrqNames, parse_interrupts, parse_softirqs};
use stallscope::collect::tasks::stat;
use stallscope::collect::{cpu, filesystems, limits, memory, psi};
use stallscope::parse::softnet::parse_softnet;
use stallscope::parse::{self, disks, kmsg};
use stallscope::sample::sockets::{InetRows, Proto, UnixRows};
use stallscope::sample::subject::CpuId;

/// Any file.
pub fn file(data: &[u8]) {
    let _ = (cpu::parse_stat(data), psi::parse_pressure(data), parse_conntrack_stat(data));
    let _ = (stat::parse_stat(data), stat::parse_schedstat(data));
    let _ = (parse_loadavg(data), parse_schedstat_cpus(data));
    let _ = (parse_cpus_allowed(data), parse_task_cgroup(data), parse::cpu_list(data));
    let _ = parse_softirqs(data, &mut Interned::default());
    let _ = parse_interrupts(data, &mut IrqNames::default());
    let _ = parse_softnet(data, &[CpuId(0), CpuId(1)]);
    for line in parse::lines(data) {
        let _ = disks::parse_line(line);
        for field in parse::fields(line) {
            let _ = (parse::number(field), parse::signed(field), parse::hex(field));
        }
    }
    let _ = (filesystems::parse_mounts(data), limits::parse_limits(data));
    let _ = (parse_io(data), parse_io_cgroup(data), parse_last_pid(data));
    if let Some(record) = kmsg::split(data) {
        let _ = kmsg::killed(&record.message);
    }
    memory::walk_meminfo(data, &mut |_| {});
    memory::walk_vmstat(data, &mut |_| {});
    walk_tables(data, &mut |_| {});
    walk_snmp6(data, &mut |_| {});
    walk_sockstat(data, &mut |_| {});
    sockets(data);
    cgroups(data);
}

fn sockets(data: &[u8]) {
    for proto in [Proto::Tcp, Proto::Udp] {
        let mut rows = InetRows::default();
        procnet::inet(data, proto, &mut rows);
        assert_eq!(rows.len(), rows.info.len());
    }
    let mut rows = UnixRows::default();
    procnet::unix(data, &mut rows);
    assert_eq!(rows.len(), rows.name_end.len());
}

fn cgroups(data: &[u8]) {
    let _ = (parse_cpu_stat(data), parse_cpu_max(data), parse_io_stat(data), parse_io_max(data));
    let mut rows = Vec::new();
    for what in [V1Counters::Ios, V1Counters::Bytes] {
        parse_v1_io(data, what, &mut rows);
    }
    parse_v1_limits(data, &mut rows, |r, n| r.max_rbps = Some(n));
}

//! The rules, one per file.

mod cfs_throttle;
mod common;
mod conntrack_full;
mod cpu_saturation;
mod cpu_steal;
mod ctx_switch_storm;
mod disk_capped_cloud;
mod disk_hung;
mod disk_util_pinned_not_saturated;
mod load_without_cpu;
mod mem_stall;
mod nic_few_queues;
mod nic_rx_drop;
mod nic_saturated;
mod qdisc_drop_or_requeue;
mod runq_latency_idle_elsewhere;
mod softirq_one_core;
mod softirq_remote_numa;
mod softnet_drop_or_squeeze;
mod tc_shaped;
mod tcp_listen_overflow;
mod tcp_local_egress_drop;
mod tcp_rto_storm;
mod tcp_silent_rto;
mod tcp_tb_lt_w_stall;
mod tcp_zero_window_stall;

use super::Rule;

/// Every rule. The order is the order of documentation; findings are ordered by severity.
pub const RULES: &[&dyn Rule] = &[
    &tcp_tb_lt_w_stall::TcpTbLtWStall,
    &tcp_silent_rto::TcpSilentRto,
    &tcp_rto_storm::TcpRtoStorm,
    &tcp_zero_window_stall::TcpZeroWindowStall,
    &tcp_local_egress_drop::TcpLocalEgressDrop,
    &tcp_listen_overflow::TcpListenOverflow,
    &disk_hung::DiskHung,
    &disk_capped_cloud::DiskCappedCloud,
    &disk_util_pinned_not_saturated::DiskUtilPinned,
    &runq_latency_idle_elsewhere::RunqLatencyIdleElsewhere,
    &cfs_throttle::CfsThrottle,
    &softirq_one_core::SoftirqOneCore,
    // Network devices, softirqs, CPU and memory.
    &tc_shaped::TcShaped,
    &qdisc_drop_or_requeue::QdiscDropOrRequeue,
    &conntrack_full::ConntrackFull,
    &nic_saturated::NicSaturated,
    &nic_rx_drop::NicRxDrop,
    &softnet_drop_or_squeeze::SoftnetDropOrSqueeze,
    &nic_few_queues::NicFewQueues,
    &softirq_remote_numa::SoftirqRemoteNuma,
    &cpu_saturation::CpuSaturation,
    &load_without_cpu::LoadWithoutCpu,
    &ctx_switch_storm::CtxSwitchStorm,
    &cpu_steal::CpuSteal,
    &mem_stall::MemStall,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_kebab_case() {
        let mut ids: Vec<&str> = RULES.iter().map(|r| r.id().0).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|p| p[0] != p[1]), "{ids:?}");
        for id in ids {
            assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            assert!(!id.starts_with('-') && !id.ends_with('-') && !id.contains("--"), "{id}");
        }
    }

    #[test]
    fn every_rule_is_documented() {
        for r in RULES {
            let d = r.doc();
            let texts = [d.title, d.condition, d.look_alikes, d.remedy, d.sources];
            assert!(texts.iter().all(|t| t.len() >= 20 && *t == t.trim()), "{}", d.id);
            assert!(texts.iter().all(|t| !t.contains("  ") && !t.contains('\n')), "{}", d.id);
            assert!(!d.title.ends_with('.'), "{}: a title is no sentence", d.id);
            assert!(d.needs_time.as_secs() >= u64::from(d.hold.need), "{}", d.id);
            assert!(d.hold.of >= d.hold.need && d.hold.clear > 0, "{}", d.id);
            assert!(!r.needs().is_empty(), "{}", d.id);
        }
    }
}

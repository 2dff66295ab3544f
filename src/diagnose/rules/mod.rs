//! The rules, one per file.

mod cfs_throttle;
mod cgroup_io_throttle;
mod cgroup_mem_stall;
pub(super) mod common;
mod compaction_stall;
mod conntrack_clash;
mod conntrack_full;
mod cpu_hog_realtime;
mod cpu_saturation;
mod cpu_steal;
mod csum_errors;
mod ctx_switch_storm;
mod disk_bfq_on_fast_ssd;
mod disk_capped_cloud;
mod disk_flash_saturated;
mod disk_hdd_saturated;
mod disk_hung;
mod disk_qd1_bound;
mod disk_request_split;
mod disk_saturated_or_capped;
mod disk_slow_device;
mod disk_util_pinned_not_saturated;
mod disk_writeback_storm;
mod dm_linear_imbalance;
mod dm_wait_above_device;
mod fd_limit;
mod fs_flush_bound;
mod fs_full;
mod fs_inodes;
mod fs_read_only;
mod ip_reasm_fail;
mod load_without_cpu;
mod lock_convoy;
mod md_background_io;
mod mem_stall;
mod neigh_unresolved;
mod nic_errors;
mod nic_few_queues;
mod nic_rx_drop;
mod nic_saturated;
mod oom_kill;
mod qdisc_drop_or_requeue;
mod rp_filter_drop;
mod runq_latency_idle_elsewhere;
mod server_hung;
mod single_thread_bound;
mod softirq_long_run;
mod softirq_one_core;
mod softirq_remote_numa;
mod softnet_drop_or_squeeze;
mod task_hung;
mod task_limit;
mod tc_shaped;
mod tcp_close_wait_leak;
mod tcp_connect_stuck;
mod tcp_egress_bufferbloat;
mod tcp_listen_overflow;
mod tcp_local_egress_drop;
mod tcp_mem_pressure;
mod tcp_mtu_black_hole;
mod tcp_peer_gone;
mod tcp_port_exhaustion;
mod tcp_receiver_not_reading;
mod tcp_refused;
mod tcp_retrans_rate;
mod tcp_rto_storm;
mod tcp_rx_drop;
mod tcp_silent_rto;
mod tcp_spurious_rto;
mod tcp_synq_full;
mod tcp_tb_lt_w_stall;
mod tcp_window_or_buffer_limited;
mod tcp_zero_window_stall;
mod udp_rcvbuf_drop;
mod unix_backlog_full;
mod weight_starved;

use super::Rule;
use super::limits::Limit;

/// Imports that every rule needs.
mod prelude {
    pub(super) use std::time::Duration;

    pub(super) use crate::diagnose::culprit::Resource;
    pub(super) use crate::diagnose::{
        Confidence, Evidence, Explains, Fire, Hold, Kind, Rule, RuleDoc, RuleId, RuledOut, Scope,
        Severity, Thresholds, Verdicts, Window,
    };
    pub(super) use crate::sample::CollectorId;
    pub(super) use crate::sample::subject::Subject;
}

/// Numbers of rules that a host may have its own of.
pub static LIMITS: &[&Limit] = &[
    &fs_full::LIMIT,
    &fs_inodes::LIMIT,
    &fd_limit::LIMIT,
    &tcp_retrans_rate::LIMIT,
    &mem_stall::LIMIT,
    &conntrack_full::LIMIT,
    &tcp_port_exhaustion::LIMIT,
    &cpu_steal::LIMIT,
];

/// All rules, in the order of the documentation. Findings are ordered by severity.
pub static RULES: &[&Rule] = &[
    &tcp_tb_lt_w_stall::RULE,
    &tcp_silent_rto::RULE,
    &tcp_rto_storm::RULE,
    &neigh_unresolved::RULE,
    &tcp_mtu_black_hole::RULE,
    &tcp_zero_window_stall::RULE,
    &tcp_local_egress_drop::RULE,
    &tcp_listen_overflow::RULE,
    &server_hung::RULE,
    &single_thread_bound::RULE,
    &tcp_receiver_not_reading::RULE,
    &tcp_window_or_buffer_limited::RULE,
    &tcp_connect_stuck::RULE,
    &tcp_refused::RULE,
    &tcp_peer_gone::RULE,
    &tcp_egress_bufferbloat::RULE,
    &tcp_retrans_rate::RULE,
    &tcp_synq_full::RULE,
    &tcp_mem_pressure::RULE,
    &tcp_rx_drop::RULE,
    &udp_rcvbuf_drop::RULE,
    &tcp_port_exhaustion::RULE,
    &tcp_close_wait_leak::RULE,
    &unix_backlog_full::RULE,
    &tcp_spurious_rto::RULE,
    &disk_hung::RULE,
    &disk_capped_cloud::RULE,
    &disk_util_pinned_not_saturated::RULE,
    &runq_latency_idle_elsewhere::RULE,
    &cfs_throttle::RULE,
    &softirq_one_core::RULE,
    // Disks and the layers above them.
    &disk_hdd_saturated::RULE,
    &disk_writeback_storm::RULE,
    &disk_flash_saturated::RULE,
    &disk_saturated_or_capped::RULE,
    &disk_slow_device::RULE,
    &disk_request_split::RULE,
    &disk_bfq_on_fast_ssd::RULE,
    &dm_linear_imbalance::RULE,
    &md_background_io::RULE,
    &cgroup_io_throttle::RULE,
    &disk_qd1_bound::RULE,
    &dm_wait_above_device::RULE,
    &fs_flush_bound::RULE,
    &fs_full::RULE,
    &fs_inodes::RULE,
    &fs_read_only::RULE,
    // Network devices, softirqs, CPU and memory.
    &tc_shaped::RULE,
    &qdisc_drop_or_requeue::RULE,
    &conntrack_full::RULE,
    &conntrack_clash::RULE,
    &csum_errors::RULE,
    &ip_reasm_fail::RULE,
    &rp_filter_drop::RULE,
    &nic_saturated::RULE,
    &nic_rx_drop::RULE,
    &nic_errors::RULE,
    &softnet_drop_or_squeeze::RULE,
    &nic_few_queues::RULE,
    &softirq_remote_numa::RULE,
    &cpu_hog_realtime::RULE,
    &softirq_long_run::RULE,
    &cpu_saturation::RULE,
    &task_hung::RULE,
    &load_without_cpu::RULE,
    &ctx_switch_storm::RULE,
    &cpu_steal::RULE,
    &mem_stall::RULE,
    &compaction_stall::RULE,
    &cgroup_mem_stall::RULE,
    &oom_kill::RULE,
    &fd_limit::RULE,
    &task_limit::RULE,
    &weight_starved::RULE,
    &lock_convoy::RULE,
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
            let d = r.doc;
            let texts = [d.title, d.condition, d.look_alikes, d.remedy, d.sources];
            assert!(texts.iter().all(|t| t.len() >= 20 && *t == t.trim()), "{}", d.id);
            assert!(texts.iter().all(|t| !t.contains("  ") && !t.contains('\n')), "{}", d.id);
            assert!(!d.title.ends_with('.'), "{}: a title is no sentence", d.id);
            assert!(d.needs_time.as_secs() >= u64::from(d.hold.need), "{}", d.id);
            assert!(d.hold.of >= d.hold.need && d.hold.clear > 0, "{}", d.id);
            assert!(!r.needs.is_empty(), "{}", d.id);
        }
    }
}

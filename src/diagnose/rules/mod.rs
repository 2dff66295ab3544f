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
mod softirq_long_run;
mod softirq_one_core;
mod softirq_remote_numa;
mod softnet_drop_or_squeeze;
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

/// Every rule. The order is the order of documentation; findings are ordered by severity.
pub const RULES: &[&dyn Rule] = &[
    &tcp_tb_lt_w_stall::TcpTbLtWStall,
    &tcp_silent_rto::TcpSilentRto,
    &tcp_rto_storm::TcpRtoStorm,
    &neigh_unresolved::NeighUnresolved,
    &tcp_mtu_black_hole::TcpMtuBlackHole,
    &tcp_zero_window_stall::TcpZeroWindowStall,
    &tcp_local_egress_drop::TcpLocalEgressDrop,
    &tcp_listen_overflow::TcpListenOverflow,
    &server_hung::ServerHung,
    &tcp_receiver_not_reading::TcpReceiverNotReading,
    &tcp_window_or_buffer_limited::TcpWindowOrBufferLimited,
    &tcp_connect_stuck::TcpConnectStuck,
    &tcp_refused::TcpRefused,
    &tcp_peer_gone::TcpPeerGone,
    &tcp_egress_bufferbloat::TcpEgressBufferbloat,
    &tcp_retrans_rate::TcpRetransRate,
    &tcp_synq_full::TcpSynqFull,
    &tcp_mem_pressure::TcpMemPressure,
    &tcp_rx_drop::TcpRxDrop,
    &udp_rcvbuf_drop::UdpRcvbufDrop,
    &tcp_port_exhaustion::TcpPortExhaustion,
    &tcp_close_wait_leak::TcpCloseWaitLeak,
    &unix_backlog_full::UnixBacklogFull,
    &tcp_spurious_rto::TcpSpuriousRto,
    &disk_hung::DiskHung,
    &disk_capped_cloud::DiskCappedCloud,
    &disk_util_pinned_not_saturated::DiskUtilPinned,
    &runq_latency_idle_elsewhere::RunqLatencyIdleElsewhere,
    &cfs_throttle::CfsThrottle,
    &softirq_one_core::SoftirqOneCore,
    // Disks and the layers above them.
    &disk_hdd_saturated::DiskHddSaturated,
    &disk_writeback_storm::DiskWritebackStorm,
    &disk_flash_saturated::DiskFlashSaturated,
    &disk_saturated_or_capped::DiskSaturatedOrCapped,
    &disk_slow_device::DiskSlowDevice,
    &disk_request_split::DiskRequestSplit,
    &disk_bfq_on_fast_ssd::DiskBfqOnFastSsd,
    &dm_linear_imbalance::DmLinearImbalance,
    &md_background_io::MdBackgroundIo,
    &cgroup_io_throttle::CgroupIoThrottle,
    &disk_qd1_bound::DiskQd1Bound,
    &dm_wait_above_device::DmWaitAboveDevice,
    &fs_flush_bound::FsFlushBound,
    &fs_full::FsFull,
    &fs_inodes::FsInodes,
    &fs_read_only::FsReadOnly,
    // Network devices, softirqs, CPU and memory.
    &tc_shaped::TcShaped,
    &qdisc_drop_or_requeue::QdiscDropOrRequeue,
    &conntrack_full::ConntrackFull,
    &conntrack_clash::ConntrackClash,
    &csum_errors::CsumErrors,
    &ip_reasm_fail::IpReasmFail,
    &rp_filter_drop::RpFilterDrop,
    &nic_saturated::NicSaturated,
    &nic_rx_drop::NicRxDrop,
    &nic_errors::NicErrors,
    &softnet_drop_or_squeeze::SoftnetDropOrSqueeze,
    &nic_few_queues::NicFewQueues,
    &softirq_remote_numa::SoftirqRemoteNuma,
    &cpu_hog_realtime::CpuHogRealtime,
    &softirq_long_run::SoftirqLongRun,
    &cpu_saturation::CpuSaturation,
    &load_without_cpu::LoadWithoutCpu,
    &ctx_switch_storm::CtxSwitchStorm,
    &cpu_steal::CpuSteal,
    &mem_stall::MemStall,
    &compaction_stall::CompactionStall,
    &cgroup_mem_stall::CgroupMemStall,
    &oom_kill::OomKill,
    &fd_limit::FdLimit,
    &task_limit::TaskLimit,
    &weight_starved::WeightStarved,
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

//! Each healthy load by itself: nothing may fire at warn or worse.

use crate::kit::pause;
use crate::kit::product::check;
use crate::loads::{LOADS, sweep};
use crate::stage::{Case, in_turn};

fn healthy(name: &str) {
    let load = LOADS.iter().find(|l| l.name == name).unwrap();
    let tools = (load.tools)();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let case = Case { name, tools: &tools, short: load.short, place: None };
    in_turn(&case, || {
        let mut running = (load.start)();
        // Its start is the noise of a start.
        pause(1000);
        let report = check(&format!("real-{name}"), "14s", &[]);
        running.assert_running();
        drop(running);
        sweep();
        report.exactly(|_| true, &[], &[]);
    });
}

macro_rules! healthy {
    ($($test:ident $name:literal)*) => {
        $(
            #[test]
            fn $test() {
                healthy($name);
            }
        )*
        /// Each load has its test.
        #[test]
        fn none_is_left_out() {
            let all: Vec<_> = LOADS.iter().map(|l| l.name).collect();
            assert_eq!(all, [$($name),*]);
        }
    };
}

healthy! {
    pgbench_select "pgbench-select"
    pgbench_fsync "pgbench-fsync"
    redis_benchmark "redis-benchmark"
    nginx_under_ab "nginx"
    haproxy_before_nginx "haproxy"
    memcached "memcached"
    unbound "unbound"
    iperf_one_stream "iperf-one"
    iperf_eight_streams "iperf-eight"
    iperf_with_small_buffers "small-buffers"
    shaped_link_with_room "shaped-link"
    tar_of_a_tree "tar"
    log_of_a_database "fsync-log"
    fast_disk_at_depth_8 "fast-disk"
    bursts_as_of_cron "cron"
    fork_churn "forks"
    netns_churn "netns"
    build_in_a_loop "build"
    niced_batch "niced-batch"
}

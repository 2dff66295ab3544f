//! See `stallscope_fuzz::netlink::datagram`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stallscope_fuzz::netlink::datagram(data));

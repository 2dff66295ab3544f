//! See `stallscope_fuzz::recording::sample`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stallscope_fuzz::recording::sample(data));

//! See `stallscope_fuzz::explain::text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stallscope_fuzz::explain::text(data));

//! See `stallscope_fuzz::terminal::bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stallscope_fuzz::terminal::bytes(data));

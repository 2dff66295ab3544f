//! See `stallscope_fuzz::procfs::file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stallscope_fuzz::procfs::file(data));

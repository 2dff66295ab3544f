//! See `stallscope_fuzz::btf::image`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stallscope_fuzz::btf::image(data));

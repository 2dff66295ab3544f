//! `stallscope serve`: its pages against the samples that they are made of, and the real program
//! asked by clients good and bad.

mod http;
mod pages;
mod refusals;

//! `stallscope serve`: its pages against the samples that they are made of.

mod pages;

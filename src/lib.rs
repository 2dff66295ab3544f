//! stallscope: where is the work stuck, and why.
pub mod clock;
pub mod collect;
pub mod model;

//! Reference model, fault injection and database builders for KarstDB's tests.
#![forbid(unsafe_code)]

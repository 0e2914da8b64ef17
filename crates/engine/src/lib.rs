//! The storage engine: where the tree's state meets I/O.
#![forbid(unsafe_code)]

pub mod stats;

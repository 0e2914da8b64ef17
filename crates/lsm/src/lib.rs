//! The LSM tree as immutable values: versions, levels, file metadata.
#![forbid(unsafe_code)]

//! An embedded ordered key-value store that reads and writes RocksDB's format, with one asynchronous read path.
#![forbid(unsafe_code)]

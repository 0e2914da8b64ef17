//! RocksDB's on-disk formats: bytes in, bytes out.
#![forbid(unsafe_code)]

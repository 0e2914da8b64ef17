//! karst: bench, ldb, sst_dump and inspect for KarstDB and RocksDB databases.
#![forbid(unsafe_code)]

//! Writes, logs, flushes and recovery.

mod closed;
mod damaged_logs;
mod direct_writes;
mod flush;
mod lifecycle;
mod open_write;
mod recovery;
mod recycled_logs;
mod sizes;
mod syncing;
mod wal_archive;
mod writes;

//! Building blocks of KarstDB's tests: a reference model, a reading interface implemented by every
//! store under test, recorded expectations, and builders of databases written by RocksDB's own
//! tools.
//!
//! * [`asked`]: test parameters from the environment: the long form, the seeds.
//! * [`subject`]: the reading interface. RocksDB, KarstDB (each of its forms) and the model all
//!   implement it.
//! * [`model`]: the reference: a sorted list of entries, read by the simplest possible code.
//! * [`expectation`]: one store's answers to a fixed, seeded set of queries, compared with
//!   another's.
//! * [`commit_order`]: reads at full speed, each checked against the order of commits.
//! * [`chronicle`]: batches of concurrent writers, and the states they allow: live, in a snapshot,
//!   after a crash.
//! * [`dataset`]: seeded keys, values and operations with the shapes that find bugs.
//! * [`rocksdb_tools`]: Debian's `ldb`, `sst_dump` and `db_bench` as functions.
//! * [`script`]: random histories of writes, and the expected contents after them.
//! * [`latency`]: latencies of operations, also of a load with a steady pace.
//! * [`blob_references`]: the values in blob files that tables refer to.
//! * [`linear`]: whether concurrent calls can have taken effect one after the other.
//! * [`redis_keys`]: keys of a server for clients of Redis, as such calls.
//! * [`processor_time`]: processor time, for the examples that measure.
//! * [`tally`]: batches that must be applied exactly once, checked in all ways of reading.
//! * [`kills`]: a process that writes them is killed repeatedly, with options drawn for each life.
//! * `tls`, with the feature of that name: certificates, and a client's end of a connection.
//! * [`panics`]: number of panics on this thread, including background jobs.
//! * [`matrix`]: one small database per cell of the option matrix that RocksDB 7.8 can write.
//!
//! Development only: no shipped crate links this one.
#![forbid(unsafe_code)]

pub mod asked;
pub mod blob_references;
pub mod chronicle;
pub mod commit_order;
pub mod dataset;
pub mod expectation;
pub mod kills;
pub mod latency;
pub mod linear;
pub mod matrix;
pub mod model;
pub mod panics;
pub mod processor_time;
pub mod random;
pub mod redis_keys;
pub mod rocksdb_tools;
pub mod script;
pub mod subject;
pub mod tally;
#[cfg(feature = "tls")]
pub mod tls;
pub mod ways;

/// Waits until `now` returns `expected`: for effects that follow shortly after the call that causes
/// them, for example when a finished job releases what it held, or files are removed in the
/// background.
///
/// # Panics
/// If this takes more than five minutes, which suffices for the slowest machine.
pub fn eventually<T: PartialEq + std::fmt::Debug>(expected: T, mut now: impl FnMut() -> T) {
    let begin = std::time::Instant::now();
    loop {
        let found = now();
        if found == expected {
            return;
        }
        assert!(begin.elapsed().as_secs() < 300, "{found:?} does not become {expected:?}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A key and its value as read.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Formats bytes for a message: printable keys as text, others in hex, long ones cut with their
/// length.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    let printable = !bytes.is_empty() && bytes.iter().all(|b| (0x20..0x7f).contains(b));
    let cut = &bytes[..bytes.len().min(48)];
    let mut text =
        if printable { format!("\"{}\"", String::from_utf8_lossy(cut)) } else { format!("0x{}", hex(cut)) };
    if cut.len() < bytes.len() {
        text.push_str(&format!("... ({} bytes)", bytes.len()));
    }
    text
}

/// Formats bytes as upper-case hex digits without a prefix, as RocksDB's tools print them.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02X}");
        text
    })
}

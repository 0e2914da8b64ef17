//! What KarstDB's tests are made of: a reference model, a contract that every store under test is
//! driven through, recorded expectations, and builders of databases written by RocksDB's own tools.
//!
//! * [`asked`]: what the environment asks of a test: its long form, its seeds.
//! * [`subject`]: the reading contract. RocksDB, KarstDB (each of its forms) and the model all
//!   implement it.
//! * [`model`]: the reference: a sorted list of entries, read by the plainest possible code.
//! * [`expectation`]: what one store answered to a fixed, seeded set of questions, to be asked of
//!   another.
//! * [`commit_order`]: reads at full speed, each checked against the order of commits.
//! * [`chronicle`]: what concurrent writers did, and what may be seen of it: live, in a snapshot,
//!   after a crash.
//! * [`dataset`]: seeded keys, values and operations with the shapes that find bugs.
//! * [`rocksdb_tools`]: Debian's `ldb`, `sst_dump` and `db_bench` as functions.
//! * [`script`]: random histories of writes, and what must be in a database after them.
//! * [`latency`]: how long operations take, those too that come at a steady pace.
//! * [`processor_time`]: what the examples that measure count by.
//! * [`tally`]: batches of which none may count twice, and all ways of reading compared.
//! * [`kills`]: a process that writes them is killed over and over, with options drawn for each
//!   life.
//! * [`panics`]: how many there were on this thread, background jobs' included.
//! * [`matrix`]: one small database per cell of the option matrix that RocksDB 7.8 can write.
//!
//! Development only: nothing that ships links this crate.
#![forbid(unsafe_code)]

pub mod asked;
pub mod chronicle;
pub mod commit_order;
pub mod dataset;
pub mod expectation;
pub mod kills;
pub mod latency;
pub mod matrix;
pub mod model;
pub mod panics;
pub mod processor_time;
pub mod random;
pub mod rocksdb_tools;
pub mod script;
pub mod subject;
pub mod tally;
pub mod ways;

/// Waits until `now` gives `expected`: for what comes true a moment after the call that brings it
/// about, as when a job that has told its end lets go of what it held, or files are removed in the
/// background.
///
/// # Panics
/// It does not come true within five minutes, which is long on the slowest machine.
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

/// A key and its value as a reader sees them.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Bytes for a message: printable keys as text, others in hex, long ones cut with their length.
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

/// Bytes as upper-case hex digits without a prefix, as RocksDB's tools print them.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02X}");
        text
    })
}

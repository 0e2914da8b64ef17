//! Memory structures of KarstDB that do not depend on an LSM tree: a concurrent arena skiplist (the
//! memtable's index), a weighted, pin-counted block cache, a Bloom filter, and a list of ranges of
//! numbers that are written but not yet decided.
//!
//! They hold byte strings and values of any type, and return pinned references to them. No I/O, no
//! clock, no randomness, no threads of their own.
//!
//! # How it is checked
//!
//! Most structures are lock-free and are therefore tested in three ways beyond the plain tests
//! (`cargo xtask ci` runs all of them):
//!
//! - every interleaving of small scenarios of the shipped types, with loom:
//!   `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p karst-mem --lib
//!   loom`
//! - undefined behaviour, with Miri: `cargo +nightly miri test -p karst-mem --lib`
//! - threads that really race, with the usual test command (`stress` in the test's name).
//!
//! `unsafe` is confined to `arena`, `skiplist`, and `cache::{slot, handle, table, slots}`.

mod arena;
pub mod bloom;
pub mod cache;
pub mod pending;
pub mod skiplist;
#[doc(hidden)]
pub mod sync;

pub use arena::stock::{stock_blocks, stock_bytes, trim_stock, wants_blocks};
pub use bloom::Bloom;
pub use cache::{BlockCache, CacheCounters, CacheKey, CacheOptions, Charge, ChargeKind, Handle, Priority};
pub use pending::PendingRanges;
pub use skiplist::{KeyOrder, Position, SkipList, Sweep, Unlinked};

//! Memory structures of KarstDB that know nothing of an LSM tree: a concurrent arena skiplist (the
//! memtable's index), a weighted, pin-counted block cache, a Bloom filter, and a list of what is
//! there and does not count yet.
//!
//! In: byte strings and values of any type; out: pinned references to them. No I/O, no clock, no
//! randomness, no threads of its own.
//!
//! # How it is checked
//!
//! Most of them are lock-free, so they are tested under three regimes beyond the plain tests
//! (`cargo xtask ci` runs all of them):
//!
//! - every interleaving of small scenarios of the shipped types, with loom:
//!   `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p karst-mem --lib
//!   loom`
//! - undefined behaviour, with Miri: `cargo +nightly miri test -p karst-mem --lib`
//! - threads that race for real, with the usual test command (`stress` in the test's name).
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

//! What real threads do between two awaits, explored: the shipped engine over files in memory, with
//! shuttle deciding at every lock, atomic, event and wait which thread goes on
//! (docs/decisions/explored-threads.md).
//!
//! Each scenario has a few threads that do a few things each: writers of merges, which must count
//! exactly once, beside flushes, recoveries, families that come and go, readers, crashes, files
//! that are held for copying and closing. At the end of every schedule the database is read in four
//! ways, then opened again from a copy of its files as a crash would leave them, then closed and
//! opened once more; what was acknowledged must be there exactly once.
//!
//! To run them: `RUSTFLAGS="--cfg shuttle" cargo test -p karst-engine --test threads`, in a target
//! directory of its own. `KARST_SCHEDULES=<n>` is how many schedules each scenario goes through,
//! `KARST_SEED=<n>` from which seed on; both are printed. A schedule that fails is printed as a
//! string; with `KARST_SCHEDULE=<string>` or, as it may be too long,
//! `KARST_SCHEDULE=@<file that holds it>` the test whose it is goes through this one again.

#![cfg(shuttle)]

mod explorer;
mod families;
mod held;
#[path = "../kill/reading.rs"]
mod reading;
mod recovering;
mod scene;
mod world;
mod writers;

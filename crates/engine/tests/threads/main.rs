//! Exploration of thread schedules between two awaits: the shipped engine over files in memory,
//! where shuttle decides at every lock, atomic, event and wait which thread continues
//! (docs/decisions/explored-threads.md).
//!
//! Each scenario has a few threads with a few operations each: writers of merges, which must count
//! exactly once, concurrent with flushes, recoveries, created and dropped families, readers,
//! crashes, disabled file deletions and closing. At the end of every schedule the database is read
//! in four ways, then opened from a copy of its files like those that a crash would leave, then
//! closed and reopened; each acknowledged write must exist exactly once.
//!
//! To run them: `RUSTFLAGS="--cfg shuttle" cargo test -p karst-engine --test threads`, in a target
//! directory of its own. `KARST_SCHEDULES=<n>` sets the number of schedules per scenario and
//! `KARST_SEED=<n>` the first seed; both are printed. A failed schedule is printed as a string;
//! with `KARST_SCHEDULE=<string>`, or `KARST_SCHEDULE=@<file that holds it>` for a long one, its
//! test replays it.

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

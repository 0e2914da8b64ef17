//! Flush: sealed memtables become tables of L0.
//!
//! | file | holds |
//! |---|---|
//! | `trigger` | how writers make a flush happen |
//! | `job` | one flush: from sealed memtables to an installed edit |
//!
//! Invariants:
//! - A memtable is flushed only after everything up to its largest sequence number is visible; then
//!   every insert into it has ended.
//! - A family's memtables are flushed from the oldest on, one flush at a time, so that its tables
//!   reach L0 in the order of their entries.
//! - A flush that fails leaves its memtables where they were, and no file.
//!
//! Which flush runs when is `background`'s.

mod job;
mod trigger;

pub(crate) use job::{FamilyFlush, FlushContext, Phase};
pub(crate) use trigger::{Trigger, Triggers};

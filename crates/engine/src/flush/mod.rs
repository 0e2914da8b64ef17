//! Flush: writing sealed memtables to tables of L0.
//!
//! | file | holds |
//! |---|---|
//! | `trigger` | conditions under which writers trigger a flush |
//! | `job` | one flush: from sealed memtables to an installed edit |
//!
//! Invariants:
//! - A memtable is flushed only after everything up to its largest sequence number is visible, and
//!   therefore every insert into it has ended.
//! - A family's memtables are flushed oldest first, one flush at a time, so that its tables reach
//!   L0 in the order of their entries.
//! - A failed flush keeps its memtables, and leaves no file.
//!
//! `background` schedules flushes.

mod job;
mod trigger;

pub(crate) use job::{FamilyFlush, FlushContext, Phase};
pub(crate) use trigger::{Trigger, Triggers};

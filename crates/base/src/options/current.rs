//! The database's current options: changed while it is open, read by all of its parts.
//!
//! In: all options after a change. Out: a consistent copy of all options. A copy taken before a
//! change keeps the older values.

use super::DbOptions;
use crate::sync::ArcSwap;
use std::sync::Arc;

/// The current options; see the module.
#[derive(Debug)]
pub struct CurrentDbOptions(ArcSwap<DbOptions>);

impl CurrentDbOptions {
    /// Starts with these options.
    pub fn new(options: DbOptions) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(options)))
    }

    /// Returns the current options.
    #[inline]
    pub fn get(&self) -> Arc<DbOptions> {
        self.0.load_full()
    }

    /// Replaces the options. Lock: called under the lock that serializes changes of options.
    pub fn set(&self, options: DbOptions) {
        self.0.store(Arc::new(options));
    }
}

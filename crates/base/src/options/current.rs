//! The database's options as they are now: changed while it is open, read by whoever needs them.
//!
//! In: all options after a change. Out: all options, at one moment. Whoever keeps what it got goes
//! on with the older ones.

use super::DbOptions;
use crate::sync::ArcSwap;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct CurrentDbOptions(ArcSwap<DbOptions>);

impl CurrentDbOptions {
    /// These, to begin with.
    pub fn new(options: DbOptions) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(options)))
    }

    /// All of them, as they are now.
    #[inline]
    pub fn get(&self) -> Arc<DbOptions> {
        self.0.load_full()
    }

    /// Lock: called under the one that serializes changes of options.
    pub fn set(&self, options: DbOptions) {
        self.0.store(Arc::new(options));
    }
}

//! Numbers that are never given out twice, also not after a crash: versions and cursors.
//!
//! Numbers are reserved in blocks by a record in the family `server`. The record comes before all
//! writes that use its numbers in the log, so no crash loses it and keeps one of them.

use super::layout::{NUMBER_BITS, NUMBERS, SERVER, corrupt, counter};
use karstdb::{ColumnFamily, Db, ErrorKind, Result, WriteOptions};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of numbers that one record reserves.
const BLOCK: u64 = 1 << 14;

/// Gives out numbers from 1 on, below 2^48.
#[derive(Debug)]
pub(super) struct Numbers {
    next: AtomicU64,
    /// Numbers below this are reserved.
    reserved: AtomicU64,
    reserving: async_lock::Mutex<()>,
}

impl Numbers {
    /// Begins behind all numbers that may have been given out.
    pub(super) async fn load(db: &Db, server: &ColumnFamily) -> Result<Numbers> {
        let record = db.get_cf_async(&Default::default(), server, NUMBERS).await?;
        let next = record.map_or(Ok(1), |value| counter(NUMBERS, &value))?;
        if next == 0 || next >> NUMBER_BITS > 0 {
            return Err(corrupt(SERVER, NUMBERS));
        }
        Ok(Numbers { next: next.into(), reserved: next.into(), reserving: async_lock::Mutex::new(()) })
    }

    /// Returns a number. Waits for a write once in a block.
    pub(super) async fn next(&self, db: &Db, server: &ColumnFamily) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.reserved.load(Ordering::Acquire) {
            let _reserving = self.reserving.lock().await;
            while number >= self.reserved.load(Ordering::Acquire) {
                let end = self.reserved.load(Ordering::Acquire) + BLOCK;
                if end >> NUMBER_BITS > 0 {
                    let text = "the store has given out all of its 2^48 numbers";
                    return Err(karstdb::Error::new(ErrorKind::LimitReached, text));
                }
                db.put_cf_async(&WriteOptions::new(), server, NUMBERS, &end.to_le_bytes()).await?;
                self.reserved.store(end, Ordering::Release);
            }
        }
        Ok(number)
    }
}

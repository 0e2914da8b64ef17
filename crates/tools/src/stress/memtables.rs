//! Checks the size of memtables, and the number that wait to be flushed, while a life writes.
//!
//! In: the database of a life. Out: the first bound that is exceeded, as soon as it is seen.

use super::calls::Store;
use super::wrong::Wrong;
use std::sync::Weak;
use std::time::Duration;

/// Interval between checks. It is short because options change meanwhile, and every setting must be
/// seen.
const LOOK: Duration = Duration::from_millis(5);
/// Maximum memory of a batch in bytes: some values of 10,000 bytes.
const BATCH: u64 = 64 << 10;
/// Memory of most batches in bytes.
const SMALL_BATCH: u64 = 2 << 10;
/// The smallest block of a memtable's memory, in bytes.
const BLOCK: u64 = 8 << 10;
/// Maximum number of memtables that are sealed at the same time before they are full: by requested
/// flushes, and by the memory budget.
const SEALED_BESIDE: u64 = 2;

/// Bounds of a family's memtables: the largest option values seen, because a memtable may have been
/// filled under those.
#[derive(Clone, Copy, Debug, Default)]
struct Bound {
    size: u64,
    number: u64,
}

/// Checks until the database is closed or gone. `writers` is the number of concurrent writers.
pub(super) fn watch(store: &Weak<Store>, writers: u64) -> Result<(), Wrong> {
    let mut bounds: Vec<Bound> = Vec::new();
    loop {
        let Some(store) = store.upgrade() else { return Ok(()) };
        bounds.resize(store.families.len(), Bound::default());
        for (family, bound) in store.families.iter().zip(&mut bounds) {
            let number = |name: &str| store.db().int_property_cf(family, name);
            let active = number("rocksdb.cur-size-active-mem-table");
            let waiting = number("rocksdb.num-immutable-mem-table");
            // Options are read after the sizes, so that a change in between counts.
            let options = store.db().get_options(family);
            let (Some(active), Some(waiting), Ok(options)) = (active, waiting, options) else {
                return Ok(());
            };
            bound.size = bound.size.max(options.write_buffer_size as u64);
            bound.number = bound.number.max(u64::try_from(options.max_write_buffer_number).unwrap_or(0));
            check(*bound, writers, active, waiting)?;
        }
        drop(store);
        std::thread::sleep(LOOK);
    }
}

fn check(bound: Bound, writers: u64, active: u64, waiting: u64) -> Result<(), Wrong> {
    let most = bound.size + (bound.size / 10).max(BLOCK) + BATCH + writers * SMALL_BATCH;
    if active > most {
        return Err(Wrong::Mismatch(format!(
            "of memtables: one has {active} bytes, where write_buffer_size is {} and {writers} write: {most} at most",
            bound.size
        )));
    }
    let most = bound.number + SEALED_BESIDE;
    if waiting > most {
        return Err(Wrong::Mismatch(format!(
            "of memtables: {waiting} wait to be flushed, where max_write_buffer_number is {}: {most} at most",
            bound.number
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bounds_is_told() {
        let bound = Bound { size: 64 << 10, number: 2 };
        assert!(check(bound, 4, 70_000, 2).is_ok());
        let text = |wrong: Result<(), Wrong>| wrong.unwrap_err().text();
        assert!(text(check(bound, 4, 12 * (64 << 10), 2)).contains("786432 bytes"));
        assert!(text(check(bound, 4, 0, 5)).contains("5 wait to be flushed"));
    }
}

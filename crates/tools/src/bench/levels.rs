//! What is done to the tree by hand: flush, waitforcompaction.

use super::open::Bench;
use karst_engine::{FlushOptions, Result, WaitForCompactOptions};

/// flush: every family's memtable becomes a file.
pub(crate) fn flush(bench: &Bench) -> Result<()> {
    let families: Vec<_> = bench.families.iter().collect();
    bench.db.flush_cfs(&FlushOptions::default(), &families)?;
    println!("flush memtable");
    Ok(())
}

/// waitforcompaction.
pub(crate) fn wait_for_compaction(bench: &Bench) -> Result<()> {
    let path = bench.db.path().display();
    println!("waitforcompaction({path}): started");
    let outcome = bench.db.wait_for_compact(&WaitForCompactOptions::default());
    let said = outcome.as_ref().map_or_else(ToString::to_string, |()| "OK".to_string());
    println!("waitforcompaction({path}): finished with status ({said})");
    outcome
}

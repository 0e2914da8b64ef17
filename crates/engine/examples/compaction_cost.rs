//! Cost of a compaction: four runs of random keys on L0, compacted once. Prints MB of input per
//! second of CPU time of all threads together.
//!
//! `cargo run --release -p karst-engine --example compaction_cost [entries per run] [bytes of a
//! value] [options]`

use karst_engine::format::ColumnFamilyId;
use karst_engine::{BulkLoader, Db, Options};
use karst_testkit::processor_time::ProcessorTime;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let entries: u64 = args.next().map_or(Ok(500_000), |a| a.parse())?;
    let value_bytes: usize = args.next().map_or(Ok(100), |a| a.parse())?;
    let text = args.next().unwrap_or_else(|| "compression=kNoCompression".into());
    let directory = tempfile::tempdir()?;
    let options = Options::new()
        .set_all(&text)?
        .set_all("disable_auto_compactions=true;max_subcompactions=1;level0_file_num_compaction_trigger=4")?;
    let (began, began_cpu) = (Instant::now(), ProcessorTime::now());
    let mut loader = BulkLoader::create(directory.path(), &options)?;
    let mut state = 1u64;
    let mut value = vec![0u8; value_bytes];
    for _ in 0..4 {
        let mut run = loader.sorted_run(ColumnFamilyId::DEFAULT, 0)?;
        for i in 0..entries {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            for (at, byte) in value.iter_mut().enumerate().take(value_bytes / 2) {
                *byte = (state >> (at % 56)) as u8;
            }
            // Keys are ascending, and mostly different in each run.
            let key = i * 16 + (state >> 60);
            run.put(format!("{key:016}").as_bytes(), &value)?;
        }
        run.finish()?;
    }
    loader.finish()?;
    let megabytes = (entries * 4 * (16 + 8 + value_bytes as u64)) as f64 / 1e6;
    report("load", megabytes, began, began_cpu);

    let db = Db::open(directory.path(), &options)?;
    let family = db.default_column_family();
    let (began, began_cpu) = (Instant::now(), ProcessorTime::now());
    db.enable_auto_compaction(&[family])?;
    db.wait_for_compact(&Default::default())?;
    report("compact", megabytes, began, began_cpu);
    let files = db.live_files();
    println!("{} files, {} MB", files.len(), files.iter().map(|f| f.size_bytes).sum::<u64>() / 1_000_000);
    db.close()?;
    Ok(())
}

fn report(what: &str, megabytes: f64, began: Instant, began_cpu: ProcessorTime) {
    let (wall, cpu) = (began.elapsed().as_secs_f64(), began_cpu.elapsed().total().as_secs_f64());
    println!(
        "{what}: {megabytes:.0} MB, {wall:.2} s, {cpu:.2} s CPU, {:.0} MB per CPU second",
        megabytes / cpu
    );
}

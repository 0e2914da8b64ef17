//! Catch-ups concurrent with writers, flushes, compactions and recycled logs, in one process: every
//! state shown is consistent.

use super::{Pair, scanned, shown};
use karst_engine::{FlushOptions, ReadOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SMALL: &str = "write_buffer_size=20000;target_file_size_base=20000;max_bytes_for_level_base=60000;level0_file_num_compaction_trigger=2;max_manifest_file_size=3000";

fn follow(options: &str, steps: u64) {
    let pair = Pair::new(&format!("{SMALL};{options}"));
    pair.step(1);
    let db = pair.secondary("second");
    let (written, stop) = (AtomicU64::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 2..=steps {
                pair.step(number);
                if number.is_multiple_of(97) {
                    let family = pair.primary.column_family("other").unwrap();
                    pair.primary.flush_cfs(&FlushOptions::default(), &[&family]).unwrap();
                }
                if options.contains("manual_wal_flush") && number.is_multiple_of(10) {
                    pair.primary.flush_wal(false).unwrap();
                }
                written.store(number, Ordering::SeqCst);
            }
            pair.primary.flush_wal(false).unwrap();
            stop.store(true, Ordering::SeqCst);
        });
        let reader = scope.spawn(|| {
            let mut last = 0;
            while !stop.load(Ordering::SeqCst) {
                let now = shown(&db, &ReadOptions::new());
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
        let (mut last, mut states) = (0, 0);
        loop {
            let (at_least, ends) = (written.load(Ordering::SeqCst), stop.load(Ordering::SeqCst));
            // Retries without a limit, because the primary removes logs as fast as it can.
            while let Err(error) = db.try_catch_up_with_primary() {
                assert_eq!(error.kind(), karst_engine::ErrorKind::TryAgain, "{error}");
            }
            let now = shown(&db, &ReadOptions::new());
            let buffered = options.contains("manual_wal_flush") && !ends;
            assert!(now >= if buffered { last } else { at_least.max(last) }, "{now} of {at_least}, {last}");
            states += u64::from(now > last);
            last = now;
            if states % 16 == 1 {
                let read = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() };
                assert_eq!((scanned(&db, "default", &read), scanned(&db, "other", &read)), (now, now));
                let _ = db.try_catch_up_with_primary();
                if !options.contains("max_open_files") {
                    assert_eq!((shown(&db, &read), scanned(&db, "other", &read)), (now, now));
                }
            }
            if ends {
                break;
            }
        }
        assert_eq!(last, steps);
        eprintln!("{options}: {states} states of {steps}");
        reader.join().unwrap();
    });
    pair.primary.close().unwrap();
    db.try_catch_up_with_primary().unwrap();
    assert_eq!(shown(&db, &ReadOptions::new()), steps);
}

#[test]
fn plain() {
    follow("", 6000);
}

#[test]
fn logs_whose_files_are_used_again() {
    follow("recycle_log_file_num=3", 6000);
}

#[test]
fn logs_that_are_written_in_memory() {
    follow("allow_mmap_writes=true", 4000);
}

#[test]
fn compressed_logs_and_blob_files() {
    follow(
        "wal_compression=kZSTD;enable_blob_files=true;min_blob_size=50;enable_blob_garbage_collection=true",
        4000,
    );
}

#[test]
fn logs_that_are_flushed_manually_and_archived() {
    follow("manual_wal_flush=true;WAL_ttl_seconds=1000;unordered_write=true", 4000);
}

#[test]
fn with_two_phase_commit() {
    follow("allow_2pc=true;atomic_flush=true", 4000);
}

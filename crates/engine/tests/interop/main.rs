//! Databases that Debian's RocksDB 7.8 tools write, one per cell of the option matrix, read in
//! every form: scans in both directions, walks with turns and bounds, every key by get and by
//! multi_get, absent keys, streams.

mod karst;

use karst::{Form, Karst};
use karst_engine::read::iter::Direction;
use karst_testkit::asked::long;
use karst_testkit::matrix::{Cell, cells};
use std::sync::Mutex;

/// Builds one cell and reads it in these forms. Returns the number of comparisons.
fn check(cell: &Cell, forms: &[Form], folder: &std::path::Path) -> Result<usize, String> {
    let built = cell.build(folder)?;
    let in_cell = |e: String| format!("cell {}: {e}", cell.name);
    let expectation = built.expectation(2026).map_err(in_cell)?;
    let before = snapshot_of(&built.path);
    let mut compared = 0;
    for &form in forms {
        let store = Karst::open(&built.path, form).map_err(in_cell)?;
        let done = expectation.check(&store).map_err(in_cell)?;
        compared += done.entries + done.keys + done.moves;
        if form == Form::Async {
            for family in &expectation.families {
                let forward = store.stream(&family.name, Direction::Forward).map_err(in_cell)?;
                let mut backward = store.stream(&family.name, Direction::Backward).map_err(in_cell)?;
                backward.reverse();
                if forward != family.entries || backward != family.entries {
                    return Err(in_cell(format!("column family {}: the streams differ", family.name)));
                }
            }
        }
    }
    if snapshot_of(&built.path) != before {
        return Err(in_cell("reading wrote to the database's folder".into()));
    }
    Ok(compared)
}

/// Returns the names, sizes and times of the files of a folder.
fn snapshot_of(folder: &std::path::Path) -> Vec<(String, u64, std::time::SystemTime)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| {
            let entry = entry.expect("an entry");
            let meta = entry.metadata().expect("its metadata");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, meta.len(), meta.modified().expect("its time"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn what_rocksdb_7_8_wrote_is_read_as_rocksdb_reads_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The short form reads each cell in one form only, in turn.
    let forms_of = |number: usize| if long() { &Form::ALL[..] } else { &Form::ALL[number % 3..][..1] };
    let queue: Vec<_> = cells().into_iter().enumerate().collect();
    let (queue, failures) = (Mutex::new(queue), Mutex::new(Vec::new()));
    // Four threads, because RocksDB's tools take most of the time and wait for files.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((number, cell)) = queue.lock().expect("no panic").pop() else { break };
                    let forms = forms_of(number);
                    match check(&cell, forms, folder.path()) {
                        Ok(compared) => {
                            assert!(compared > 1000 * forms.len(), "cell {}: {compared}", cell.name)
                        }
                        Err(message) => failures.lock().expect("no panic").push(message),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "{} cells:\n{}", failures.len(), failures.join("\n"));
}

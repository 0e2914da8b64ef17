//! One interface to both engines: opened with the same option string, written with the same
//! batches.

use super::load::{BatchWriter, Target};
use crate::rocks;
use karst_engine::{Db, WriteBatch, WriteOptions};
use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, DB};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    RocksDb,
    KarstDb,
}

impl Engine {
    pub(super) const BOTH: [Engine; 2] = [Engine::RocksDb, Engine::KarstDb];

    pub(super) fn name(self) -> &'static str {
        match self {
            Engine::RocksDb => "RocksDB 11.8",
            Engine::KarstDb => "KarstDB",
        }
    }
}

/// Environments whose background jobs have a low CPU priority; set by [`jobs_give_way`].
static GIVE_WAY: OnceLock<(rocksdb::Env, karst_io::Env)> = OnceLock::new();

/// Lowers the CPU priority of background jobs of all databases opened from now on: RocksDB's
/// compactions by `LowerThreadPoolCPUPriority`, which cannot be undone, KarstDB's jobs by
/// `jobs_give_way`.
pub(in crate::bench) fn jobs_give_way() -> Result<(), String> {
    let mut rocks = rocksdb::Env::new().map_err(|e| e.to_string())?;
    rocks.lower_thread_pool_cpu_priority();
    let karst = karst_io::Env::builder().jobs_give_way(&karst_io::Priority::ALL).build();
    GIVE_WAY.set((rocks, karst)).map_err(|_| "asked for twice".into())
}

/// Log and sync settings of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Durability {
    pub(super) wal: bool,
    pub(super) sync: bool,
}

/// An open database.
pub(super) enum Store {
    Rocks(DB),
    Karst(Db),
}

impl Store {
    /// Opens the database in `path`, creating it if missing. `options` are those of the database
    /// and of its one column family, by RocksDB's names.
    pub(super) fn open(engine: Engine, path: &Path, options: &str) -> Result<Store, String> {
        let options = format!("create_if_missing=true;{options}");
        match engine {
            Engine::RocksDb => {
                DB::open(&rocks_options(&options)?, path).map(Store::Rocks).map_err(|e| e.to_string())
            }
            Engine::KarstDb => {
                Db::open(path, &karst_options(&options)?).map(Store::Karst).map_err(|e| e.to_string())
            }
        }
    }

    /// Returns the length of a value, or an error if the key is missing.
    pub(super) fn get(&self, key: &[u8]) -> Result<usize, String> {
        let missing = || "a key was not found".to_string();
        match self {
            Store::Rocks(db) => Ok(db.get_pinned(key).map_err(|e| e.to_string())?.ok_or_else(missing)?.len()),
            Store::Karst(db) => Ok(db.get(key).map_err(|e| e.to_string())?.ok_or_else(missing)?.len()),
        }
    }

    /// Writes the memtable to a file.
    pub(super) fn flush(&self) -> Result<(), String> {
        match self {
            Store::Rocks(db) => db.flush().map_err(|e| e.to_string()),
            Store::Karst(db) => db.flush(&Default::default()).map_err(|e| e.to_string()),
        }
    }

    /// Compacts all levels, the last included.
    pub(super) fn compact(&self) -> Result<(), String> {
        match self {
            Store::Rocks(db) => {
                db.compact_range(None::<&[u8]>, None::<&[u8]>);
                Ok(())
            }
            Store::Karst(db) => db.compact_range(&Default::default(), None, None).map_err(|e| e.to_string()),
        }
    }

    /// Flushes, and waits until no compaction is due.
    pub(super) fn settle(&self) -> Result<(), String> {
        self.flush()?;
        match self {
            Store::Rocks(db) => db.wait_for_compact(&Default::default()).map_err(|e| e.to_string()),
            Store::Karst(db) => db.wait_for_compact(&Default::default()).map_err(|e| e.to_string()),
        }
    }

    pub(super) fn close(self) -> Result<(), String> {
        match self {
            Store::Rocks(db) => {
                drop(db);
                Ok(())
            }
            Store::Karst(db) => db.close().map_err(|e| e.to_string()),
        }
    }
}

impl Target for Store {
    type Writer<'a> = Writer<'a>;

    fn writer(&self, _worker: usize, durability: Durability) -> Writer<'_> {
        match self {
            // SAFETY: the calls only allocate; the writer frees the objects.
            Store::Rocks(db) => unsafe {
                Writer::Rocks {
                    db,
                    options: rocks_write_options(durability),
                    batch: ffi::rocksdb_writebatch_create(),
                }
            },
            Store::Karst(db) => {
                Writer::Karst { db, options: karst_write_options(durability), batch: WriteBatch::new() }
            }
        }
    }
}

/// RocksDB's write options; the caller frees them.
///
/// # Safety
/// They are destroyed once, with `rocksdb_writeoptions_destroy`.
pub(super) unsafe fn rocks_write_options(durability: Durability) -> *mut ffi::rocksdb_writeoptions_t {
    // SAFETY: the options were made here, and both calls set a field of them.
    unsafe {
        let options = ffi::rocksdb_writeoptions_create();
        ffi::rocksdb_writeoptions_set_sync(options, u8::from(durability.sync));
        ffi::rocksdb_writeoptions_disable_WAL(options, i32::from(!durability.wal));
        options
    }
}

pub(super) fn karst_write_options(durability: Durability) -> WriteOptions {
    WriteOptions { sync: durability.sync, disable_wal: !durability.wal, ..WriteOptions::default() }
}

/// RocksDB's options of a database and of its one column family.
pub(super) fn rocks_options(text: &str) -> Result<rocksdb::Options, String> {
    let mut options = rocks::options(text)?;
    if let Some((env, _)) = GIVE_WAY.get() {
        options.set_env(env);
    }
    Ok(options)
}

/// KarstDB's options of a database and of its one column family.
pub(super) fn karst_options(text: &str) -> Result<karst_engine::Options, String> {
    // A nested string sets the options of tables under their own names.
    let options = karst_engine::Options::new().set_all(&flatten(text)).map_err(|e| e.to_string())?;
    Ok(match GIVE_WAY.get() {
        Some((_, env)) => options.env(env.clone()),
        None => options,
    })
}

/// `a=b;block_based_table_factory={c=d;};` becomes `a=b;c=d;`.
fn flatten(options: &str) -> String {
    let flat = options.replace("block_based_table_factory={", "").replace('}', "");
    flat.split(';').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(";")
}

/// One thread's batch, reused as in db_bench.
pub(super) enum Writer<'a> {
    Rocks { db: &'a DB, options: *mut ffi::rocksdb_writeoptions_t, batch: *mut ffi::rocksdb_writebatch_t },
    Karst { db: &'a Db, options: WriteOptions, batch: WriteBatch },
}

impl BatchWriter for Writer<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match self {
            // SAFETY: the batch is ours; RocksDB copies both slices.
            Writer::Rocks { batch, .. } => unsafe {
                ffi::rocksdb_writebatch_put(
                    *batch,
                    key.as_ptr().cast(),
                    key.len(),
                    value.as_ptr().cast(),
                    value.len(),
                );
                Ok(())
            },
            Writer::Karst { batch, .. } => batch.put(key, value).map_err(|e| e.to_string()),
        }
    }

    fn commit(&mut self) -> Result<(), String> {
        match self {
            Writer::Rocks { db, options, batch } => {
                let mut error: *mut libc::c_char = ptr::null_mut();
                // SAFETY: database, options and batch are alive, and RocksDB sets the error to null
                // or to a string of its own.
                unsafe {
                    ffi::rocksdb_write(db.as_raw_ptr(), *options, *batch, &mut error);
                    ffi::rocksdb_writebatch_clear(*batch);
                }
                rocks::said(error)
            }
            Writer::Karst { db, options, batch } => {
                db.write(options, &*batch).map_err(|e| e.to_string())?;
                batch.clear();
                Ok(())
            }
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if let Writer::Rocks { options, batch, .. } = self {
            // SAFETY: both were created with the writer, which owns them.
            unsafe {
                ffi::rocksdb_writebatch_destroy(*batch);
                ffi::rocksdb_writeoptions_destroy(*options);
            }
        }
    }
}

//! RocksDB 11.8 in lockstep, through its C API, because the binding ties iterators and snapshots to
//! borrows and has different calls for databases with transactions.

use super::engine::{Answer, Change, Engine, Failure, Key, Op, Opening, Outcome, Policy, Read, copy_again};
use super::follow::{self, RocksSecondary};
use super::{ingest, transfer};
use crate::rocks::{options, said};
use karst_testkit::Entry;
use karst_testkit::script::Write;
use karst_testkit::subject::Move;
use librocksdb_sys as ffi;
use rocksdb::AsRawPtr;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

type Error = *mut libc::c_char;

/// An open database and the objects created from it. Invariant: all pointers are RocksDB's and
/// alive until [`Rocks::end`] frees them, the database last.
pub(super) struct Rocks {
    /// The database, or the database with transactions cast to it. The cast is valid because its
    /// class derives from `DB` by single inheritance, the C API's structs hold only the pointer,
    /// and the called methods are virtual.
    db: *mut ffi::rocksdb_t,
    has_transactions: bool,
    /// Column families, dropped ones included.
    families: BTreeMap<usize, *mut ffi::rocksdb_column_family_handle_t>,
    snapshots: BTreeMap<usize, *const ffi::rocksdb_snapshot_t>,
    iterators: BTreeMap<usize, Iterator>,
    transactions: BTreeMap<usize, *mut ffi::rocksdb_transaction_t>,
    secondary: Option<RocksSecondary>,
    /// Directories of KarstDB and of RocksDB.
    directories: [PathBuf; 2],
    ended: bool,
}

/// An iterator, and its options, whose bounds it refers to.
struct Iterator(*mut ffi::rocksdb_iterator_t, #[expect(dead_code, reason = "it is referred to")] ReadOptions);

impl Drop for Iterator {
    fn drop(&mut self) {
        // SAFETY: it is alive and not used after this.
        unsafe { ffi::rocksdb_iter_destroy(self.0) };
    }
}

/// Read options, and the bounds that they refer to.
pub(super) struct ReadOptions(*mut ffi::rocksdb_readoptions_t, Read);

impl ReadOptions {
    /// Options of a read of all keys in their order.
    pub(super) fn in_total_order() -> Self {
        // SAFETY: new options.
        unsafe {
            let options = ReadOptions(ffi::rocksdb_readoptions_create(), Read::default());
            ffi::rocksdb_readoptions_set_total_order_seek(options.0, 1);
            options
        }
    }

    pub(super) fn pointer(&self) -> *const ffi::rocksdb_readoptions_t {
        self.0
    }
}

impl Drop for ReadOptions {
    fn drop(&mut self) {
        // SAFETY: they are alive and not used after this.
        unsafe { ffi::rocksdb_readoptions_destroy(self.0) };
    }
}

fn failure(text: String) -> Failure {
    let kinds = [
        ("Corruption", "corruption"),
        ("IO error", "I/O"),
        ("Invalid argument", "invalid argument"),
        ("Not implemented", "not supported"),
        ("NotFound", "not found"),
        ("Result incomplete", "incomplete"),
        ("Operation timed out", "timed out"),
        ("Resource busy", "busy"),
        ("Operation failed. Try again", "busy"),
    ];
    let kind = kinds.iter().find(|(begin, _)| text.starts_with(begin)).map_or("another", |(_, kind)| kind);
    Failure { kind, text }
}

/// Makes a C call and returns the error of its error argument.
pub(super) fn call<T>(call: impl FnOnce(*mut Error) -> T) -> Outcome<T> {
    let mut error: Error = null_mut();
    let result = call(&mut error);
    said(error).map(|()| result).map_err(failure)
}

/// Copies and frees bytes that RocksDB allocated; None for a null pointer.
pub(super) fn taken(bytes: *mut libc::c_char, length: usize) -> Option<Vec<u8>> {
    if bytes.is_null() {
        return None;
    }
    // SAFETY: not null, so of this length, and ours to free.
    unsafe {
        let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec();
        ffi::rocksdb_free(bytes.cast());
        Some(copy)
    }
}

pub(super) fn at(bytes: &[u8]) -> *const libc::c_char {
    bytes.as_ptr().cast()
}

impl Rocks {
    pub(super) fn open(path: &Path, opening: &Opening) -> Outcome<Box<dyn Engine>> {
        let wrong = |text: String| Failure { kind: "invalid argument", text };
        let database = options(&opening.database).map_err(wrong)?;
        let of_families = opening.families.iter().map(|(_, _, lines)| options(lines));
        let of_families = of_families.collect::<Result<Vec<_>, String>>().map_err(wrong)?;
        let names: Vec<CString> = opening
            .families
            .iter()
            .map(|(_, name, _)| CString::new(name.as_str()).expect("a name"))
            .collect();
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
        let name_pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: the options outlive the pointers.
        let option_pointers: Vec<*const ffi::rocksdb_options_t> =
            of_families.iter().map(|o| unsafe { o.as_raw_ptr() }.cast_const()).collect();
        let mut handles = vec![null_mut(); names.len()];
        let count = names.len() as i32;
        // SAFETY: all arrays have this many elements, and everything outlives the calls.
        let db = unsafe {
            match opening.transactions {
                None => call(|error| {
                    ffi::rocksdb_open_column_families(
                        database.as_raw_ptr(),
                        path.as_ptr(),
                        count,
                        name_pointers.as_ptr(),
                        option_pointers.as_ptr(),
                        handles.as_mut_ptr(),
                        error,
                    )
                })?,
                Some(policy) => {
                    let transactions = transaction_options(policy);
                    let db = call(|error| {
                        ffi::rocksdb_transactiondb_open_column_families(
                            database.as_raw_ptr(),
                            transactions,
                            path.as_ptr(),
                            count,
                            name_pointers.as_ptr(),
                            option_pointers.as_ptr(),
                            handles.as_mut_ptr(),
                            error,
                        )
                    });
                    ffi::rocksdb_transactiondb_options_destroy(transactions);
                    db?.cast::<ffi::rocksdb_t>()
                }
            }
        };
        let mut rocks = Self {
            db,
            has_transactions: opening.transactions.is_some(),
            families: opening.families.iter().map(|(number, _, _)| *number).zip(handles).collect(),
            snapshots: BTreeMap::new(),
            iterators: BTreeMap::new(),
            transactions: BTreeMap::new(),
            secondary: None,
            directories: opening.directories.clone(),
            ended: false,
        };
        for (name, transaction) in rocks.recovered() {
            match opening.prepared.iter().find(|(_, other)| *other == name) {
                Some((number, _)) => drop(rocks.transactions.insert(*number, transaction)),
                None => {
                    let text = format!("{name} was recovered, which nobody prepared");
                    return Err(Failure { kind: "another", text });
                }
            }
        }
        Ok(Box::new(rocks))
    }

    /// Returns the recovered prepared transactions with their names.
    fn recovered(&self) -> Vec<(String, *mut ffi::rocksdb_transaction_t)> {
        if !self.has_transactions {
            return Vec::new();
        }
        let mut count = 0;
        // SAFETY: the database has transactions, and the array is of this length and ours to free,
        // as are the names.
        unsafe {
            let all = ffi::rocksdb_transactiondb_get_prepared_transactions(self.db.cast(), &mut count);
            let found = (0..count).map(|number| {
                let transaction = *all.add(number);
                let mut length = 0;
                let name = ffi::rocksdb_transaction_get_name(transaction, &mut length);
                (String::from_utf8_lossy(&taken(name, length).unwrap_or_default()).into_owned(), transaction)
            });
            let found = found.collect();
            ffi::rocksdb_free(all.cast());
            found
        }
    }

    fn read(&self, read: &Read) -> ReadOptions {
        // SAFETY: new options; the bounds are on the heap, owned by the same struct.
        unsafe {
            let new = ReadOptions(ffi::rocksdb_readoptions_create(), read.clone());
            let options = new.0;
            if let Some(number) = read.snapshot {
                ffi::rocksdb_readoptions_set_snapshot(options, self.snapshots[&number]);
            }
            if let Some(key) = &new.1.settings.lower_bound {
                ffi::rocksdb_readoptions_set_iterate_lower_bound(options, at(key), key.len());
            }
            if let Some(key) = &new.1.settings.upper_bound {
                ffi::rocksdb_readoptions_set_iterate_upper_bound(options, at(key), key.len());
            }
            let same_prefix = read.settings.prefix_same_as_start;
            ffi::rocksdb_readoptions_set_prefix_same_as_start(options, same_prefix.into());
            ffi::rocksdb_readoptions_set_total_order_seek(options, read.total_order.into());
            ffi::rocksdb_readoptions_set_auto_prefix_mode(options, read.auto_prefix.into());
            ffi::rocksdb_readoptions_set_fill_cache(options, (!read.no_fill).into());
            ffi::rocksdb_readoptions_set_readahead_size(options, read.readahead);
            ffi::rocksdb_readoptions_set_async_io(options, (!read.no_async).into());
            ffi::rocksdb_readoptions_set_pin_data(options, read.pin.into());
            new
        }
    }

    fn write(&self, changes: &[Change], sync: bool, unlogged: bool) -> Outcome<()> {
        let batch = Batch::new();
        for change in changes {
            batch.add(self.families[&change.family()], change);
        }
        let batch = batch.with_entities(changes, |family| self.id(family));
        // SAFETY: everything outlives the call.
        unsafe {
            let options = ffi::rocksdb_writeoptions_create();
            ffi::rocksdb_writeoptions_set_sync(options, sync.into());
            ffi::rocksdb_writeoptions_disable_WAL(options, unlogged.into());
            let written = call(|error| ffi::rocksdb_write(self.db, options, batch.0, error));
            ffi::rocksdb_writeoptions_destroy(options);
            written
        }
    }

    fn id(&self, family: usize) -> u32 {
        // SAFETY: the handle is alive.
        unsafe { ffi::rocksdb_column_family_handle_get_id(self.families[&family]) }
    }

    fn change(&self, transaction: *mut ffi::rocksdb_transaction_t, change: &Change) -> Outcome<()> {
        let family = self.families[&change.family()];
        // SAFETY: transaction, family and bytes outlive the calls.
        unsafe {
            match change {
                Change::Plain(Write::Put { key, value, .. }) => call(|error| {
                    ffi::rocksdb_transaction_put_cf(
                        transaction,
                        family,
                        at(key),
                        key.len(),
                        at(value),
                        value.len(),
                        error,
                    );
                }),
                Change::Plain(Write::Merge { key, operand, .. }) => call(|error| {
                    ffi::rocksdb_transaction_merge_cf(
                        transaction,
                        family,
                        at(key),
                        key.len(),
                        at(operand),
                        operand.len(),
                        error,
                    );
                }),
                Change::Plain(Write::Delete { key, .. }) => call(|error| {
                    ffi::rocksdb_transaction_delete_cf(transaction, family, at(key), key.len(), error);
                }),
                _ => unreachable!("none is drawn inside transactions"),
            }
        }
    }

    fn get_inside(&self, transaction: usize, family: usize, key: &[u8], for_update: bool) -> Outcome<Answer> {
        let (transaction, family) = (self.transactions[&transaction], self.families[&family]);
        let mut length = 0;
        // SAFETY: everything outlives the calls.
        unsafe {
            let options = self.read(&Read::default());
            let found = call(|error| {
                if for_update {
                    ffi::rocksdb_transaction_get_for_update_cf(
                        transaction,
                        options.0,
                        family,
                        at(key),
                        key.len(),
                        &mut length,
                        1,
                        error,
                    )
                } else {
                    ffi::rocksdb_transaction_get_cf(
                        transaction,
                        options.0,
                        family,
                        at(key),
                        key.len(),
                        &mut length,
                        error,
                    )
                }
            })?;
            Ok(Answer::Value(taken(found, length)))
        }
    }

    fn get(&self, family: usize, key: &[u8], read: &Read) -> Outcome<Answer> {
        let (options, mut length) = (self.read(read), 0);
        // SAFETY: everything outlives the call.
        let found = call(|error| unsafe {
            let family = self.families[&family];
            ffi::rocksdb_get_cf(self.db, options.0, family, at(key), key.len(), &mut length, error)
        })?;
        Ok(Answer::Value(taken(found, length)))
    }

    fn multi_get(&self, keys: &[(usize, Key)], read: &Read) -> Outcome<Answer> {
        let options = self.read(read);
        let pointers: Vec<_> = keys.iter().map(|(_, key)| at(key)).collect();
        let lengths: Vec<usize> = keys.iter().map(|(_, key)| key.len()).collect();
        let mut errors = vec![null_mut(); keys.len()];
        let mut found = Vec::new();
        // SAFETY: all arrays have one element per key and outlive the calls; the returned memory is
        // ours to free.
        unsafe {
            if keys.iter().all(|(family, _)| *family == keys[0].0) {
                let mut values = vec![null_mut(); keys.len()];
                ffi::rocksdb_batched_multi_get_cf(
                    self.db,
                    options.0,
                    self.families[&keys[0].0],
                    keys.len(),
                    pointers.as_ptr(),
                    lengths.as_ptr(),
                    values.as_mut_ptr(),
                    errors.as_mut_ptr(),
                    false,
                );
                for value in values {
                    let mut length = 0;
                    let bytes = if value.is_null() {
                        std::ptr::null()
                    } else {
                        ffi::rocksdb_pinnableslice_value(value, &mut length)
                    };
                    let there = !bytes.is_null();
                    found
                        .push(there.then(|| std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec()));
                    if !value.is_null() {
                        ffi::rocksdb_pinnableslice_destroy(value);
                    }
                }
            } else {
                let families: Vec<*const ffi::rocksdb_column_family_handle_t> =
                    keys.iter().map(|(family, _)| self.families[family].cast_const()).collect();
                let (mut values, mut sizes) = (vec![null_mut(); keys.len()], vec![0; keys.len()]);
                ffi::rocksdb_multi_get_cf(
                    self.db,
                    options.0,
                    families.as_ptr(),
                    keys.len(),
                    pointers.as_ptr(),
                    lengths.as_ptr(),
                    values.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    errors.as_mut_ptr(),
                );
                found.extend(values.into_iter().zip(sizes).map(|(value, size)| taken(value, size)));
            }
        }
        let failed: Vec<Failure> = errors.into_iter().filter_map(|e| said(e).err()).map(failure).collect();
        failed.into_iter().next().map_or(Ok(Answer::Values(found)), Err)
    }

    fn may_exist(&self, family: usize, key: &[u8], read: &Read) -> Answer {
        let (options, mut value, mut length, mut with) = (self.read(read), null_mut(), 0, 0);
        // SAFETY: everything outlives the call, and a returned value is ours.
        unsafe {
            let may = ffi::rocksdb_key_may_exist_cf(
                self.db,
                options.0,
                self.families[&family],
                at(key),
                key.len(),
                &mut value,
                &mut length,
                std::ptr::null(),
                0,
                &mut with,
            );
            // RocksDB sets the flag also for a key that it found to be deleted.
            let value = if with != 0 { taken(value, length) } else { None };
            Answer::May(may != 0, value.filter(|_| may != 0))
        }
    }

    fn open_iterator(&mut self, number: usize, family: usize, read: &Read) {
        let options = self.read(read);
        // SAFETY: the options live as long as the iterator does.
        let iterator = unsafe { ffi::rocksdb_create_iterator_cf(self.db, options.0, self.families[&family]) };
        self.iterators.insert(number, Iterator(iterator, options));
    }

    fn walk(&self, number: usize, moves: &[Move]) -> Outcome<Answer> {
        let iterator = self.iterators[&number].0;
        let mut walked = Vec::new();
        for step in moves {
            // SAFETY: the iterator is alive; it is moved by steps only while it is valid.
            unsafe {
                let valid = || ffi::rocksdb_iter_valid(iterator) != 0;
                match step {
                    Move::First => ffi::rocksdb_iter_seek_to_first(iterator),
                    Move::Last => ffi::rocksdb_iter_seek_to_last(iterator),
                    Move::Seek(key) => ffi::rocksdb_iter_seek(iterator, at(key), key.len()),
                    Move::SeekForPrev(key) => ffi::rocksdb_iter_seek_for_prev(iterator, at(key), key.len()),
                    Move::Next if valid() => ffi::rocksdb_iter_next(iterator),
                    Move::Prev if valid() => ffi::rocksdb_iter_prev(iterator),
                    Move::Next | Move::Prev => {}
                }
                call(|error| ffi::rocksdb_iter_get_error(iterator, error))?;
                walked.push(valid().then(|| entry(iterator)));
            }
        }
        Ok(Answer::Walked(walked))
    }

    fn create_family(&mut self, number: usize, name: &str, lines: &str) -> Outcome<Answer> {
        let options = options(lines).map_err(|text| Failure { kind: "invalid argument", text })?;
        let name = CString::new(name).expect("a name");
        // SAFETY: everything outlives the call.
        let family = call(|error| unsafe {
            ffi::rocksdb_create_column_family(self.db, options.as_raw_ptr(), name.as_ptr(), error)
        })?;
        self.families.insert(number, family);
        Ok(Answer::Done)
    }

    fn flush(&self, families: &[usize]) -> Outcome<Answer> {
        let mut handles: Vec<_> = families.iter().map(|number| self.families[number]).collect();
        // SAFETY: everything outlives the call.
        unsafe {
            let options = ffi::rocksdb_flushoptions_create();
            let flushed = call(|error| {
                ffi::rocksdb_flush_cfs(self.db, options, handles.as_mut_ptr(), handles.len() as i32, error);
            });
            ffi::rocksdb_flushoptions_destroy(options);
            flushed.map(|()| Answer::Done)
        }
    }

    fn compact(&self, family: usize, range: [Option<&[u8]>; 2], force: bool, exclusive: bool) {
        let [(begin, begin_length), (end, end_length)] =
            range.map(|key| key.map_or((std::ptr::null(), 0), |key| (at(key), key.len())));
        // SAFETY: everything outlives the call.
        unsafe {
            let options = ffi::rocksdb_compactoptions_create();
            ffi::rocksdb_compactoptions_set_exclusive_manual_compaction(options, exclusive.into());
            if force {
                // `BottommostLevelCompaction::kForce`.
                ffi::rocksdb_compactoptions_set_bottommost_level_compaction(options, 2);
            }
            let family = self.families[&family];
            ffi::rocksdb_compact_range_cf_opt(self.db, family, options, begin, begin_length, end, end_length);
            ffi::rocksdb_compactoptions_destroy(options);
        }
    }

    fn set_options(&self, family: usize, name: &str, value: &str) -> Outcome<Answer> {
        let [name, value] = [name, value].map(|text| CString::new(text).expect("no zero"));
        let (names, values) = ([name.as_ptr()], [value.as_ptr()]);
        // SAFETY: everything outlives the call.
        call(|error| unsafe {
            let family = self.families[&family];
            ffi::rocksdb_set_options_cf(self.db, family, 1, names.as_ptr(), values.as_ptr(), error);
        })
        .map(|()| Answer::Done)
    }

    fn property(&self, family: usize, name: &str) -> Answer {
        let (name, mut value) = (CString::new(name).expect("no zero"), 0);
        // SAFETY: everything outlives the call.
        let missing = unsafe {
            ffi::rocksdb_property_int_cf(self.db, self.families[&family], name.as_ptr(), &mut value)
        };
        Answer::Number((missing == 0).then_some(value))
    }

    fn begin(&mut self, number: usize, name: &str, snapshot: bool) -> Outcome<Answer> {
        // SAFETY: the database has transactions, and everything outlives the calls.
        unsafe {
            let write = ffi::rocksdb_writeoptions_create();
            let options = ffi::rocksdb_transaction_options_create();
            ffi::rocksdb_transaction_options_set_set_snapshot(options, snapshot.into());
            let transaction = ffi::rocksdb_transaction_begin(self.db.cast(), write, options, null_mut());
            ffi::rocksdb_transaction_options_destroy(options);
            ffi::rocksdb_writeoptions_destroy(write);
            self.transactions.insert(number, transaction);
            call(|error| {
                ffi::rocksdb_transaction_set_name(transaction, at(name.as_bytes()), name.len(), error)
            })?;
        }
        Ok(Answer::Done)
    }

    fn settle(&self) -> Outcome<Answer> {
        // SAFETY: the options outlive the call.
        unsafe {
            let options = ffi::rocksdb_wait_for_compact_options_create();
            let waited = call(|error| ffi::rocksdb_wait_for_compact(self.db, options, error));
            ffi::rocksdb_wait_for_compact_options_destroy(options);
            waited.map(|()| Answer::Done)
        }
    }

    /// Commits or rolls back a transaction and frees it.
    fn decide(
        &mut self,
        number: usize,
        decision: unsafe extern "C" fn(*mut ffi::rocksdb_transaction_t, *mut Error),
    ) -> Outcome<Answer> {
        let transaction = self.transactions.remove(&number).expect("it is there");
        // SAFETY: it is alive until it is destroyed.
        unsafe {
            let decided = call(|error| decision(transaction, error));
            ffi::rocksdb_transaction_destroy(transaction);
            decided.map(|()| Answer::Done)
        }
    }

    fn secondary(&self) -> &RocksSecondary {
        self.secondary.as_ref().expect("it is open")
    }

    fn close_secondary(&mut self) -> Outcome<()> {
        self.secondary = None;
        follow::remove(&self.directories[1], follow::ROCKS)
    }

    fn attempt(&mut self, op: &Op) -> Outcome<Answer> {
        let done = |result: Outcome<()>| result.map(|()| Answer::Done);
        // SAFETY: the database and the objects in the arguments are alive.
        unsafe {
            match op {
                Op::Write { changes, sync, unlogged } => done(self.write(changes, *sync, *unlogged)),
                Op::Get { family, key, read } => self.get(*family, key, read),
                Op::MultiGet { keys, read } => self.multi_get(keys, read),
                Op::MayExist { family, key, read } => Ok(self.may_exist(*family, key, read)),
                Op::OpenIterator { number, family, read } => {
                    self.open_iterator(*number, *family, read);
                    Ok(Answer::Done)
                }
                Op::Walk { number, moves } => self.walk(*number, &moves.0),
                Op::CloseIterator { number } => {
                    self.iterators.remove(number);
                    Ok(Answer::Done)
                }
                Op::Snapshot { number } => {
                    self.snapshots.insert(*number, ffi::rocksdb_create_snapshot(self.db));
                    Ok(Answer::Done)
                }
                Op::Release { number } => {
                    let snapshot = self.snapshots.remove(number).expect("it is held");
                    ffi::rocksdb_release_snapshot(self.db, snapshot);
                    Ok(Answer::Done)
                }
                Op::CreateFamily { number, name, options } => self.create_family(*number, name, options),
                Op::DropFamily { number } => {
                    let family = self.families[number];
                    done(call(|error| ffi::rocksdb_drop_column_family(self.db, family, error)))
                }
                Op::Flush { families } => self.flush(families),
                Op::Compact { family, begin, end, force, exclusive } => {
                    self.compact(*family, [begin.as_deref(), end.as_deref()], *force, *exclusive);
                    Ok(Answer::Done)
                }
                Op::SetOptions { family, name, value } => self.set_options(*family, name, value),
                Op::FlushWal { sync } => {
                    done(call(|error| ffi::rocksdb_flush_wal(self.db, (*sync).into(), error)))
                }
                Op::OpenSecondary { swapped, families } => {
                    let primary = &self.directories[usize::from(!*swapped)];
                    self.secondary = Some(RocksSecondary::open(primary, families)?);
                    Ok(Answer::Done)
                }
                Op::CatchUp => done(self.secondary().catch_up()),
                Op::ReadSecondary { family, keys } => self.secondary().read(*family, keys),
                Op::CloseSecondary => done(self.close_secondary()),
                Op::Export { family, number } => {
                    let (family, own) = (self.families[family], &self.directories[1]);
                    done(transfer::export_rocks(self.db, family, own, *number))
                }
                Op::Import { export, number, name, options, of_rocksdb, .. } => {
                    let from = &self.directories[usize::from(*of_rocksdb)];
                    let family = transfer::import_rocks(self.db, (name, options), from, *export)?;
                    self.families.insert(*number, family);
                    Ok(Answer::Done)
                }
                Op::WriteFile { number, options, entries, .. } => {
                    done(ingest::write_rocks(options, &ingest::path(&self.directories[1], *number), entries))
                }
                Op::Ingest { family, number, ways, swapped, .. } => {
                    let file = ingest::path(&self.directories[usize::from(!*swapped)], *number);
                    done(ingest::ingest_rocks(self.db, self.families[family], &file, *ways))
                }
                Op::Settle => self.settle(),
                Op::Property { family, name } => Ok(self.property(*family, name)),
                Op::Begin { number, name, snapshot } => self.begin(*number, name, *snapshot),
                Op::Change { transaction, change } => {
                    done(self.change(self.transactions[transaction], change))
                }
                Op::GetInside { transaction, family, key, for_update } => {
                    self.get_inside(*transaction, *family, key, *for_update)
                }
                Op::SavePoint { transaction } => {
                    ffi::rocksdb_transaction_set_savepoint(self.transactions[transaction]);
                    Ok(Answer::Done)
                }
                Op::RollbackToSavePoint { transaction } => {
                    let transaction = self.transactions[transaction];
                    done(call(|error| ffi::rocksdb_transaction_rollback_to_savepoint(transaction, error)))
                }
                Op::Prepare { transaction } => {
                    let transaction = self.transactions[transaction];
                    done(call(|error| ffi::rocksdb_transaction_prepare(transaction, error)))
                }
                Op::Commit { transaction } => self.decide(*transaction, ffi::rocksdb_transaction_commit),
                Op::Rollback { transaction } => self.decide(*transaction, ffi::rocksdb_transaction_rollback),
            }
        }
    }

    /// Frees all objects and closes the database.
    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.secondary = None;
        self.iterators.clear();
        // SAFETY: all objects are alive and not used after this; the database is closed last.
        unsafe {
            for transaction in std::mem::take(&mut self.transactions).into_values() {
                ffi::rocksdb_transaction_destroy(transaction);
            }
            for snapshot in std::mem::take(&mut self.snapshots).into_values() {
                ffi::rocksdb_release_snapshot(self.db, snapshot);
            }
            for family in std::mem::take(&mut self.families).into_values() {
                ffi::rocksdb_column_family_handle_destroy(family);
            }
            match self.has_transactions {
                true => ffi::rocksdb_transactiondb_close(self.db.cast()),
                false => ffi::rocksdb_close(self.db),
            }
        }
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the entry at the iterator.
///
/// # Safety
/// The iterator is valid.
pub(super) unsafe fn entry(iterator: *const ffi::rocksdb_iterator_t) -> Entry {
    type Bytes = unsafe extern "C" fn(*const ffi::rocksdb_iterator_t, *mut usize) -> *const libc::c_char;
    let bytes = |read: Bytes| {
        let mut length = 0;
        // SAFETY: the iterator is at an entry, whose bytes live until it is moved.
        unsafe {
            let bytes = read(iterator, &mut length);
            std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec()
        }
    };
    (bytes(ffi::rocksdb_iter_key), bytes(ffi::rocksdb_iter_value))
}

/// Transaction options with the lock timeout of KarstDB's side. Batches take no locks, because
/// RocksDB cannot skip the locks of ranges alone; the driver writes no locked key.
fn transaction_options(policy: Policy) -> *mut ffi::rocksdb_transactiondb_options_t {
    // SAFETY: new options, which the caller frees.
    unsafe {
        let options = ffi::rocksdb_transactiondb_options_create();
        ffi::rocksdb_transactiondb_options_set_transaction_lock_timeout(options, 1);
        ffi::rocksdb_transactiondb_options_set_default_lock_timeout(options, 1);
        ffi::rocksdb_transactiondb_options_set_skip_concurrency_control(options, 1);
        if policy == Policy::WritePrepared {
            let policy = ffi::rocksdb_txndb_write_policy_write_prepared;
            ffi::rocksdb_transactiondb_options_set_write_policy(options, policy as i32);
            ffi::rocksdb_transactiondb_options_set_rollback_merge_operands(options, 1);
        }
        options
    }
}

/// A write batch.
struct Batch(*mut ffi::rocksdb_writebatch_t);

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: it is alive and not used after this.
        unsafe { ffi::rocksdb_writebatch_destroy(self.0) };
    }
}

/// Type of the record of a column family's entity in a write batch. The C API has no call for it.
const FAMILY_ENTITY_RECORD: u8 = 0x17;
/// Bytes of a batch's count of records, after its sequence number.
const COUNT: std::ops::Range<usize> = 8..12;

impl Batch {
    fn new() -> Self {
        // SAFETY: a new batch.
        Batch(unsafe { ffi::rocksdb_writebatch_create() })
    }

    /// Adds a change, unless it is an entity.
    fn add(&self, family: *mut ffi::rocksdb_column_family_handle_t, change: &Change) {
        let batch = self.0;
        // SAFETY: batch, family and bytes outlive the calls, which copy.
        unsafe {
            match change {
                Change::Plain(Write::Put { key, value, .. }) => {
                    ffi::rocksdb_writebatch_put_cf(batch, family, at(key), key.len(), at(value), value.len());
                }
                Change::Plain(Write::Delete { key, .. }) => {
                    ffi::rocksdb_writebatch_delete_cf(batch, family, at(key), key.len());
                }
                Change::Plain(Write::SingleDelete { key, .. }) => {
                    ffi::rocksdb_writebatch_singledelete_cf(batch, family, at(key), key.len());
                }
                Change::Plain(Write::DeleteRange { begin, end, .. }) => {
                    let (from, to) = ((at(begin), begin.len()), (at(end), end.len()));
                    ffi::rocksdb_writebatch_delete_range_cf(batch, family, from.0, from.1, to.0, to.1);
                }
                Change::Plain(Write::Merge { key, operand, .. }) => {
                    let (key, operand) = ((at(key), key.len()), (at(operand), operand.len()));
                    ffi::rocksdb_writebatch_merge_cf(batch, family, key.0, key.1, operand.0, operand.1);
                }
                Change::Entity { .. } => {}
            }
        }
    }

    /// Returns the batch with the entities of `changes` appended.
    fn with_entities(self, changes: &[Change], id: impl Fn(usize) -> u32) -> Self {
        if !changes.iter().any(|change| matches!(change, Change::Entity { .. })) {
            return self;
        }
        let mut length = 0;
        // SAFETY: the bytes live as long as the batch, and the new batch copies.
        unsafe {
            let bytes = ffi::rocksdb_writebatch_data(self.0, &mut length);
            let mut bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec();
            let mut count = u32::from_le_bytes(bytes[COUNT].try_into().expect("four bytes"));
            for change in changes {
                if let Change::Entity { family, key, columns } = change {
                    count += 1;
                    bytes.push(FAMILY_ENTITY_RECORD);
                    varint(&mut bytes, id(*family) as usize);
                    sized(&mut bytes, key);
                    sized(&mut bytes, &entity(columns));
                }
            }
            bytes[COUNT].copy_from_slice(&count.to_le_bytes());
            Batch(ffi::rocksdb_writebatch_create_from(at(&bytes), bytes.len()))
        }
    }
}

/// Encodes columns like RocksDB's `WideColumnSerialization`, version 1.
fn entity(columns: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(&mut bytes, 1);
    varint(&mut bytes, columns.len());
    for (name, value) in columns {
        sized(&mut bytes, name);
        varint(&mut bytes, value.len());
    }
    columns.iter().for_each(|(_, value)| bytes.extend(value));
    bytes
}

fn sized(bytes: &mut Vec<u8>, part: &[u8]) {
    varint(bytes, part.len());
    bytes.extend(part);
}

fn varint(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

impl Engine for Rocks {
    fn apply(&mut self, op: &Op) -> Answer {
        self.attempt(op).into()
    }

    fn prepared(&self) -> Vec<String> {
        // The names come from the open transactions, because RocksDB lists only recovered
        // transactions that were not fetched yet.
        let mut names: Vec<String> = Vec::new();
        for transaction in self.transactions.values() {
            let mut length = 0;
            // SAFETY: the transaction is alive, and the name is ours to free.
            let name = unsafe { ffi::rocksdb_transaction_get_name(*transaction, &mut length) };
            names.push(String::from_utf8_lossy(&taken(name, length).unwrap_or_default()).into_owned());
        }
        names.sort();
        names
    }

    fn copy_as_killed(&mut self, from: &Path, to: &Path) -> Result<(), String> {
        let text = |failure: Failure| failure.text;
        // The MANIFEST is read first, because the files it names stay while deletions are disabled,
        // even if a flush or compaction runs meanwhile.
        // SAFETY: the database is open.
        call(|error| unsafe { ffi::rocksdb_disable_file_deletions(self.db, error) }).map_err(text)?;
        let io = |e: std::io::Error| format!("{}: {e}", from.display());
        let current = std::fs::read_to_string(from.join("CURRENT")).map_err(io)?;
        let manifest = std::fs::read(from.join(current.trim_end())).map_err(io)?;
        copy_again(from, to)?;
        std::fs::write(to.join(current.trim_end()), manifest).map_err(io)?;
        std::fs::write(to.join("CURRENT"), current).map_err(io)?;
        // SAFETY: the database is open.
        call(|error| unsafe { ffi::rocksdb_enable_file_deletions(self.db, error) }).map_err(text)
    }

    fn close(mut self: Box<Self>) -> Outcome<()> {
        self.close_secondary()?;
        self.end();
        Ok(())
    }
}

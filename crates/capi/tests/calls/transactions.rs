//! Keys that transactions depend on, and writes that wait for their locks.

use super::*;
use std::sync::atomic::AtomicBool;

api! {
    fn rocksdb_options_set_create_missing_column_families(o: H, v: c_uchar);
    fn rocksdb_options_set_uint64add_merge_operator(o: H);
    fn rocksdb_singledelete(db: H, o: H, k: B, kn: usize, e: E);
    fn rocksdb_singledelete_cf(db: H, o: H, cf: H, k: B, kn: usize, e: E);
    fn rocksdb_delete_cf(db: H, o: H, cf: H, k: B, kn: usize, e: E);
    fn rocksdb_merge_cf(db: H, o: H, cf: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_delete_range_cf(db: H, o: H, cf: H, b: B, bn: usize, n: B, nn: usize, e: E);
    fn rocksdb_writebatch_put_cf(b: H, cf: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_merge(b: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_singledelete(b: H, k: B, kn: usize);
    fn rocksdb_writebatch_wi_create(reserved: usize, overwrite: c_uchar) -> H;
    fn rocksdb_writebatch_wi_destroy(b: H);
    fn rocksdb_writebatch_wi_put(b: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_write_writebatch_wi(db: H, o: H, b: H, e: E);
    fn rocksdb_create_iterators(db: H, o: H, cfs: *mut H, iters: *mut H, n: usize, e: E);
    fn rocksdb_transactiondb_options_set_default_lock_timeout(o: H, v: i64);
    fn rocksdb_transactiondb_get_base_db(db: H) -> H;
    fn rocksdb_transactiondb_close_base_db(db: H);
    fn rocksdb_transaction_options_set_lock_timeout(o: H, v: i64);
    fn rocksdb_transaction_options_set_set_snapshot(o: H, v: c_uchar);
    fn rocksdb_transaction_rebuild_from_writebatch(t: H, b: H, e: E);
    fn rocksdb_transaction_rebuild_from_writebatch_wi(t: H, b: H, e: E);
    fn rocksdb_optimistictransaction_options_set_set_snapshot(o: H, v: c_uchar);
}

type Write = Box<dyn Fn(E)>;

/// Returns calls that rebuild a transaction from a batch, one for each kind of write of the key
/// "k".
fn rebuilds(transaction: H) -> Vec<Write> {
    type Fill = unsafe fn(H);
    let fills: [Fill; 4] = [
        |batch| unsafe { rocksdb_writebatch_put(batch, at(b"k"), 1, at(b"mine"), 4) },
        |batch| unsafe { rocksdb_writebatch_delete(batch, at(b"k"), 1) },
        |batch| unsafe { rocksdb_writebatch_singledelete(batch, at(b"k"), 1) },
        |batch| unsafe { rocksdb_writebatch_merge(batch, at(b"k"), 1, at(b"mine"), 4) },
    ];
    let plain = fills.into_iter().map(move |fill| -> Write {
        Box::new(move |e| unsafe {
            let batch = rocksdb_writebatch_create();
            fill(batch);
            rocksdb_transaction_rebuild_from_writebatch(transaction, batch, e);
            rocksdb_writebatch_destroy(batch);
        })
    });
    let indexed: Write = Box::new(move |e| unsafe {
        let batch = rocksdb_writebatch_wi_create(0, 1);
        rocksdb_writebatch_wi_put(batch, at(b"k"), 1, at(b"mine"), 4);
        rocksdb_transaction_rebuild_from_writebatch_wi(transaction, batch, e);
        rocksdb_writebatch_wi_destroy(batch);
    });
    plain.chain([indexed]).collect()
}

#[test]
fn a_transaction_that_is_rebuilt_from_a_batch_loses_no_update_of_others() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_uint64add_merge_operator(setup.options);
        let db =
            ok(|e| rocksdb_optimistictransactiondb_open(setup.options, setup.path("hopeful").as_ptr(), e));
        let base = rocksdb_optimistictransactiondb_get_base_db(db);
        let own = rocksdb_optimistictransaction_options_create();
        for snapshot in [0, 1] {
            rocksdb_optimistictransaction_options_set_set_snapshot(own, snapshot);
            for way in 0..rebuilds(null_mut()).len() {
                let transaction = rocksdb_optimistictransaction_begin(db, setup.write, own, null_mut());
                ok(|e| rebuilds(transaction)[way](e));
                setup.put(base, b"k", b"theirs");
                let busy = failed(|e| rocksdb_transaction_commit(transaction, e));
                assert!(busy.starts_with("Resource busy: "), "way {way}: {busy}");
                rocksdb_transaction_destroy(transaction);
                assert_eq!(setup.get(base, b"k").unwrap(), b"theirs");
            }
        }
        rocksdb_optimistictransaction_options_destroy(own);
        rocksdb_optimistictransactiondb_close_base_db(base);
        rocksdb_optimistictransactiondb_close(db);

        let (settings, own) = (rocksdb_transactiondb_options_create(), rocksdb_transaction_options_create());
        rocksdb_transaction_options_set_set_snapshot(own, 1);
        let path = setup.path("locking");
        let db = ok(|e| rocksdb_transactiondb_open(setup.options, settings, path.as_ptr(), e));
        for way in 0..rebuilds(null_mut()).len() {
            let transaction = rocksdb_transaction_begin(db, setup.write, own, null_mut());
            setup.put(db, b"k", b"theirs");
            let busy = failed(|e| rebuilds(transaction)[way](e));
            assert!(busy.starts_with("Resource busy: "), "way {way}: {busy}");
            rocksdb_transaction_destroy(transaction);
        }
        rocksdb_transaction_options_destroy(own);
        rocksdb_transactiondb_options_destroy(settings);
        rocksdb_transactiondb_close(db);
    }
}

#[test]
fn a_handle_of_a_database_whose_transactions_lock_keys_locks_what_it_writes() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_uint64add_merge_operator(setup.options);
        let (settings, own) = (rocksdb_transactiondb_options_create(), rocksdb_transaction_options_create());
        rocksdb_transactiondb_options_set_default_lock_timeout(settings, 0);
        rocksdb_transaction_options_set_lock_timeout(own, 0);
        let path = setup.path("db");
        let db = ok(|e| rocksdb_transactiondb_open(setup.options, settings, path.as_ptr(), e));
        let family =
            ok(|e| rocksdb_transactiondb_create_column_family(db, setup.options, c"two".as_ptr(), e));
        let transaction = rocksdb_transaction_begin(db, setup.write, own, null_mut());
        let batch = rocksdb_writebatch_create();
        for family in [null_mut(), family] {
            if family.is_null() {
                rocksdb_writebatch_put(batch, at(b"k"), 1, at(b"mine"), 4);
            } else {
                rocksdb_writebatch_put_cf(batch, family, at(b"k"), 1, at(b"mine"), 4);
            }
        }
        ok(|e| rocksdb_transaction_rebuild_from_writebatch(transaction, batch, e));
        let indexed = rocksdb_writebatch_wi_create(0, 1);
        rocksdb_writebatch_wi_put(indexed, at(b"k"), 1, at(b"theirs"), 6);
        let write = setup.write;
        let writes: [Write; 10] = [
            Box::new(move |e| rocksdb_put(db, write, at(b"k"), 1, at(b"theirs"), 6, e)),
            Box::new(move |e| rocksdb_put_cf(db, write, family, at(b"k"), 1, at(b"theirs"), 6, e)),
            Box::new(move |e| rocksdb_delete(db, write, at(b"k"), 1, e)),
            Box::new(move |e| rocksdb_delete_cf(db, write, family, at(b"k"), 1, e)),
            Box::new(move |e| rocksdb_singledelete(db, write, at(b"k"), 1, e)),
            Box::new(move |e| rocksdb_singledelete_cf(db, write, family, at(b"k"), 1, e)),
            Box::new(move |e| rocksdb_merge(db, write, at(b"k"), 1, at(b"12345678"), 8, e)),
            Box::new(move |e| rocksdb_merge_cf(db, write, family, at(b"k"), 1, at(b"12345678"), 8, e)),
            Box::new(move |e| rocksdb_write(db, write, batch, e)),
            Box::new(move |e| rocksdb_write_writebatch_wi(db, write, indexed, e)),
        ];
        for (number, call) in writes.iter().enumerate() {
            let refused = failed(call);
            assert!(refused.starts_with("Operation timed out: "), "write {number}: {refused}");
        }
        let refused = failed(|e| rocksdb_delete_range_cf(db, write, family, at(b"a"), 1, at(b"z"), 1, e));
        assert!(refused.starts_with("Not implemented: "), "{refused}");
        // Compat: the base database locks nothing.
        let base = rocksdb_transactiondb_get_base_db(db);
        setup.put(base, b"k", b"theirs");
        rocksdb_transactiondb_close_base_db(base);
        ok(|e| rocksdb_transaction_commit(transaction, e));
        assert_eq!(setup.get(db, b"k").unwrap(), b"mine");
        for call in &writes {
            ok(call);
        }
        assert_eq!(setup.get(db, b"k").unwrap(), b"theirs");
        rocksdb_transaction_destroy(transaction);
        rocksdb_writebatch_destroy(batch);
        rocksdb_writebatch_wi_destroy(indexed);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_transaction_options_destroy(own);
        rocksdb_transactiondb_options_destroy(settings);
        rocksdb_transactiondb_close(db);
    }
}

/// A handle for another thread.
#[derive(Clone, Copy)]
struct Shared(H);

// SAFETY: databases, options and column families can be used from any thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn get(&self) -> H {
        self.0
    }
}

/// One writer writes the same to both families. Without a common snapshot their states differ in
/// about one call of a hundred.
#[test]
fn iterators_of_one_call_have_one_state() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_create_missing_column_families(setup.options, 1);
        let (names, options) = ([c"default".as_ptr(), c"two".as_ptr()], [setup.options; 2]);
        let (path, mut handles) = (setup.path("db"), [null_mut(); 2]);
        let db = ok(|e| {
            let (names, options, handles) = (names.as_ptr(), options.as_ptr(), handles.as_mut_ptr());
            rocksdb_open_column_families(setup.options, path.as_ptr(), 2, names, options, handles, e)
        });
        let shared = (Shared(db), Shared(setup.write), handles.map(Shared));
        let write = |number: u32| {
            let (db, write, handles) = &shared;
            let batch = rocksdb_writebatch_create();
            for family in handles.each_ref().map(Shared::get) {
                rocksdb_writebatch_put_cf(batch, family, at(b"k"), 1, at(&number.to_le_bytes()), 4);
            }
            ok(|e| rocksdb_write(db.get(), write.get(), batch, e));
            rocksdb_writebatch_destroy(batch);
        };
        write(0);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| (1..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(&write));
            for _ in 0..3000 {
                let mut iterators = [null_mut(); 2];
                let (families, made) = (handles.as_mut_ptr(), iterators.as_mut_ptr());
                ok(|e| rocksdb_create_iterators(db, setup.read, families, made, 2, e));
                let [one, other] = iterators.map(|iterator| {
                    rocksdb_iter_seek_to_first(iterator);
                    let value = *rocksdb_iter_value(iterator, &mut 0).cast::<[u8; 4]>();
                    rocksdb_iter_destroy(iterator);
                    u32::from_le_bytes(value)
                });
                if one != other {
                    is_over.store(true, Ordering::Relaxed);
                }
                assert_eq!(one, other);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for handle in handles {
            rocksdb_column_family_handle_destroy(handle);
        }
        rocksdb_close(db);
    }
}

//! Batches with an index, and walks over batches.

use super::*;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;
type VisitPut = unsafe extern "C" fn(H, B, usize, B, usize);
type VisitDelete = unsafe extern "C" fn(H, B, usize);
type VisitPutCf = unsafe extern "C" fn(H, u32, B, usize, B, usize);
type VisitDeleteCf = unsafe extern "C" fn(H, u32, B, usize);

unsafe extern "C" {
    fn rocksdb_writebatch_wi_create(n: usize, overwrite: c_uchar) -> H;
    fn rocksdb_writebatch_wi_create_with_params(
        c: H,
        n: usize,
        overwrite: c_uchar,
        max: usize,
        protection: usize,
    ) -> H;
    fn rocksdb_writebatch_wi_destroy(b: H);
    fn rocksdb_writebatch_wi_clear(b: H);
    fn rocksdb_writebatch_wi_count(b: H) -> c_int;
    fn rocksdb_writebatch_wi_data(b: H, n: *mut usize) -> B;
    fn rocksdb_writebatch_wi_put(b: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_wi_put_cf(b: H, cf: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_wi_putv(
        b: H,
        n: c_int,
        ks: *const B,
        kns: *const usize,
        m: c_int,
        vs: *const B,
        vns: *const usize,
    );
    fn rocksdb_writebatch_wi_putv_cf(
        b: H,
        cf: H,
        n: c_int,
        ks: *const B,
        kns: *const usize,
        m: c_int,
        vs: *const B,
        vns: *const usize,
    );
    fn rocksdb_writebatch_wi_merge(b: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_wi_merge_cf(b: H, cf: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_wi_mergev(
        b: H,
        n: c_int,
        ks: *const B,
        kns: *const usize,
        m: c_int,
        vs: *const B,
        vns: *const usize,
    );
    fn rocksdb_writebatch_wi_mergev_cf(
        b: H,
        cf: H,
        n: c_int,
        ks: *const B,
        kns: *const usize,
        m: c_int,
        vs: *const B,
        vns: *const usize,
    );
    fn rocksdb_writebatch_wi_delete(b: H, k: B, kn: usize);
    fn rocksdb_writebatch_wi_delete_cf(b: H, cf: H, k: B, kn: usize);
    fn rocksdb_writebatch_wi_deletev(b: H, n: c_int, ks: *const B, kns: *const usize);
    fn rocksdb_writebatch_wi_deletev_cf(b: H, cf: H, n: c_int, ks: *const B, kns: *const usize);
    fn rocksdb_writebatch_wi_singledelete(b: H, k: B, kn: usize);
    fn rocksdb_writebatch_wi_singledelete_cf(b: H, cf: H, k: B, kn: usize);
    fn rocksdb_writebatch_wi_delete_range(b: H, k: B, kn: usize, l: B, ln: usize);
    fn rocksdb_writebatch_wi_delete_range_cf(b: H, cf: H, k: B, kn: usize, l: B, ln: usize);
    fn rocksdb_writebatch_wi_delete_rangev(
        b: H,
        n: c_int,
        ks: *const B,
        kns: *const usize,
        ls: *const B,
        lns: *const usize,
    );
    fn rocksdb_writebatch_wi_delete_rangev_cf(
        b: H,
        cf: H,
        n: c_int,
        ks: *const B,
        kns: *const usize,
        ls: *const B,
        lns: *const usize,
    );
    fn rocksdb_writebatch_wi_put_log_data(b: H, d: B, n: usize);
    fn rocksdb_writebatch_wi_iterate(b: H, s: H, put: VisitPut, deleted: VisitDelete);
    fn rocksdb_writebatch_wi_set_save_point(b: H);
    fn rocksdb_writebatch_wi_rollback_to_save_point(b: H, e: E);
    fn rocksdb_writebatch_wi_get_from_batch(b: H, o: H, k: B, kn: usize, vn: *mut usize, e: E)
    -> *mut c_char;
    fn rocksdb_writebatch_wi_get_from_batch_cf(
        b: H,
        o: H,
        cf: H,
        k: B,
        kn: usize,
        vn: *mut usize,
        e: E,
    ) -> *mut c_char;
    fn rocksdb_writebatch_wi_get_from_batch_and_db(
        b: H,
        db: H,
        o: H,
        k: B,
        kn: usize,
        vn: *mut usize,
        e: E,
    ) -> *mut c_char;
    fn rocksdb_writebatch_wi_get_from_batch_and_db_cf(
        b: H,
        db: H,
        o: H,
        cf: H,
        k: B,
        kn: usize,
        vn: *mut usize,
        e: E,
    ) -> *mut c_char;
    fn rocksdb_writebatch_wi_get_pinned_from_batch_and_db(b: H, db: H, o: H, k: B, kn: usize, e: E) -> H;
    fn rocksdb_writebatch_wi_get_pinned_from_batch_and_db_cf(
        b: H,
        db: H,
        o: H,
        cf: H,
        k: B,
        kn: usize,
        e: E,
    ) -> H;
    fn rocksdb_writebatch_wi_create_iterator_with_base(b: H, i: H) -> H;
    fn rocksdb_writebatch_wi_create_iterator_with_base_cf(b: H, i: H, cf: H) -> H;
    fn rocksdb_writebatch_wi_create_iterator_with_base_readopts(b: H, i: H, o: H) -> H;
    fn rocksdb_writebatch_wi_create_iterator_with_base_cf_readopts(b: H, i: H, cf: H, o: H) -> H;
    fn rocksdb_write_writebatch_wi(db: H, o: H, b: H, e: E);
    fn rocksdb_create_iterator_cf(db: H, o: H, cf: H) -> H;
    fn rocksdb_transaction_get_writebatch_wi(t: H) -> H;
    fn rocksdb_transaction_rebuild_from_writebatch_wi(t: H, b: H, e: E);
    fn rocksdb_writebatch_create_from(b: B, n: usize) -> H;
    fn rocksdb_writebatch_create_with_params(n: usize, max: usize, protection: usize, ts: usize) -> H;
    fn rocksdb_writebatch_put_cf(b: H, cf: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_merge(b: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_merge_cf(b: H, cf: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_singledelete(b: H, k: B, kn: usize);
    fn rocksdb_writebatch_singledelete_cf(b: H, cf: H, k: B, kn: usize);
    fn rocksdb_writebatch_delete_cf(b: H, cf: H, k: B, kn: usize);
    fn rocksdb_writebatch_delete_range(b: H, k: B, kn: usize, l: B, ln: usize);
    fn rocksdb_writebatch_put_log_data(b: H, d: B, n: usize);
    fn rocksdb_writebatch_clear(b: H);
    fn rocksdb_writebatch_iterate(b: H, s: H, put: VisitPut, deleted: VisitDelete);
    fn rocksdb_writebatch_iterate_ld(b: H, s: H, put: VisitPut, deleted: VisitDelete, log: VisitDelete);
    fn rocksdb_writebatch_iterate_cf(b: H, s: H, put: VisitPutCf, deleted: VisitDeleteCf, merge: VisitPutCf);
    fn rocksdb_writebatch_iterate_cf_ld(
        b: H,
        s: H,
        put: VisitPutCf,
        deleted: VisitDeleteCf,
        merge: VisitPutCf,
        log: VisitDelete,
    );
    fn rocksdb_iter_seek_for_prev(i: H, k: B, n: usize);
}

/// A key or value in parts of one byte each: the arguments of a call.
struct Parts(Vec<B>, Vec<usize>);

impl Parts {
    fn new(bytes: &[u8]) -> Parts {
        Parts(bytes.iter().map(|byte| at(std::slice::from_ref(byte))).collect(), vec![1; bytes.len()])
    }
    fn count(&self) -> c_int {
        self.0.len() as c_int
    }
}

impl Setup {
    /// Returns the value of a key in the batch over the database, after comparing both calls.
    fn through(&self, batch: H, db: H, family: Option<H>, key: &[u8]) -> Option<Vec<u8>> {
        let (key, length, mut found) = (at(key), key.len(), 0);
        unsafe {
            let (copy, slice) = match family {
                None => (
                    ok(|e| {
                        rocksdb_writebatch_wi_get_from_batch_and_db(
                            batch, db, self.read, key, length, &mut found, e,
                        )
                    }),
                    ok(|e| {
                        rocksdb_writebatch_wi_get_pinned_from_batch_and_db(
                            batch, db, self.read, key, length, e,
                        )
                    }),
                ),
                Some(cf) => (
                    ok(|e| {
                        rocksdb_writebatch_wi_get_from_batch_and_db_cf(
                            batch, db, self.read, cf, key, length, &mut found, e,
                        )
                    }),
                    ok(|e| {
                        rocksdb_writebatch_wi_get_pinned_from_batch_and_db_cf(
                            batch, db, self.read, cf, key, length, e,
                        )
                    }),
                ),
            };
            let mut pinned = 0;
            let value = rocksdb_pinnableslice_value(slice, &mut pinned);
            let shown =
                (!slice.is_null()).then(|| std::slice::from_raw_parts(value.cast::<u8>(), pinned).to_vec());
            rocksdb_pinnableslice_destroy(slice);
            let copy = owned(copy, found);
            assert_eq!(copy, shown);
            copy
        }
    }

    fn alone(&self, batch: H, key: &[u8]) -> Option<Vec<u8>> {
        let mut length = 0;
        let get = |e: E| unsafe {
            rocksdb_writebatch_wi_get_from_batch(batch, self.options, at(key), key.len(), &mut length, e)
        };
        let value = ok(get);
        owned(value, length)
    }

    /// Creates a database and a family whose merge operands are numbers to add.
    fn adding(&self) -> (H, H) {
        unsafe { rocksdb_options_set_uint64add_merge_operator(self.options) };
        let db = self.open();
        let family = ok(|e| unsafe { rocksdb_create_column_family(db, self.options, c"side".as_ptr(), e) });
        (db, family)
    }
}

fn pairs(iter: H) -> Entries {
    let mut found = Vec::new();
    let mut length = 0;
    let bytes =
        |from: B, length: usize| unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) }.to_vec();
    unsafe {
        rocksdb_iter_seek_to_first(iter);
        while rocksdb_iter_valid(iter) != 0 {
            let key = bytes(rocksdb_iter_key(iter, &mut length), length);
            found.push((key, bytes(rocksdb_iter_value(iter, &mut length), length)));
            rocksdb_iter_next(iter);
        }
        ok(|e| rocksdb_iter_get_error(iter, e));
        rocksdb_iter_destroy(iter);
    }
    found
}

fn entries(pairs: &[(&str, &[u8])]) -> Entries {
    pairs.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.to_vec())).collect()
}

const ONE: [u8; 8] = 1_u64.to_le_bytes();
const THREE: [u8; 8] = 3_u64.to_le_bytes();
const FOUR: [u8; 8] = 4_u64.to_le_bytes();

#[test]
fn a_batch_with_an_index_is_read_before_it_is_written() {
    let setup = Setup::new();
    let (db, family) = setup.adding();
    for (key, value) in [(b"a", &b"below"[..]), (b"d", b"below"), (b"m", &ONE), (b"s", b"below")] {
        setup.put(db, key, value);
        ok(|e| unsafe { rocksdb_put_cf(db, setup.write, family, at(key), 1, at(value), value.len(), e) });
    }
    unsafe {
        let batch = rocksdb_writebatch_wi_create(100, 1);
        assert_eq!(rocksdb_writebatch_wi_count(batch), 0);
        rocksdb_writebatch_wi_put(batch, at(b"a"), 1, at(b"above"), 5);
        rocksdb_writebatch_wi_put_cf(batch, family, at(b"a"), 1, at(b"beside"), 6);
        rocksdb_writebatch_wi_merge(batch, at(b"m"), 1, at(&THREE), 8);
        rocksdb_writebatch_wi_merge_cf(batch, family, at(b"m"), 1, at(&ONE), 8);
        rocksdb_writebatch_wi_delete(batch, at(b"d"), 1);
        rocksdb_writebatch_wi_delete_cf(batch, family, at(b"d"), 1);
        rocksdb_writebatch_wi_singledelete(batch, at(b"s"), 1);
        rocksdb_writebatch_wi_singledelete_cf(batch, family, at(b"s"), 1);
        rocksdb_writebatch_wi_put_log_data(batch, at(b"log"), 3);
        assert_eq!(rocksdb_writebatch_wi_count(batch), 8);

        for (key, plain, beside) in [
            (b"a", Some(&b"above"[..]), Some(&b"beside"[..])),
            (b"m", Some(&FOUR), Some(&2_u64.to_le_bytes()[..])),
            (b"d", None, None),
            (b"s", None, None),
        ] {
            assert_eq!(setup.through(batch, db, None, key).as_deref(), plain, "{key:?}");
            assert_eq!(setup.through(batch, db, Some(family), key).as_deref(), beside, "{key:?}");
        }
        assert_eq!(setup.get(db, b"a").unwrap(), b"below", "nothing was written yet");

        // Reads the batch alone.
        assert_eq!(setup.alone(batch, b"a").unwrap(), b"above");
        assert_eq!((setup.alone(batch, b"d"), setup.alone(batch, b"x")), (None, None));
        let mut length = 9;
        let get = |e| {
            rocksdb_writebatch_wi_get_from_batch_cf(batch, setup.options, family, at(b"a"), 1, &mut length, e)
        };
        let value = ok(get);
        assert_eq!(owned(value, length).unwrap(), b"beside");
        let open = failed(|e| {
            rocksdb_writebatch_wi_get_from_batch(batch, setup.options, at(b"m"), 1, &mut length, e)
        });
        assert!(open.starts_with("Result incomplete"), "{open}");
        assert_eq!(length, 0);

        ok(|e| rocksdb_write_writebatch_wi(db, setup.write, batch, e));
        assert_eq!(setup.get(db, b"a").unwrap(), b"above");
        assert_eq!(setup.get(db, b"m").unwrap(), FOUR);
        assert_eq!((setup.get(db, b"d"), setup.get(db, b"s")), (None, None));
        let beside = ok(|e| rocksdb_get_cf(db, setup.read, family, at(b"a"), 1, &mut length, e));
        assert_eq!(owned(beside, length).unwrap(), b"beside");

        // The bytes have the format of a batch.
        let bytes = rocksdb_writebatch_wi_data(batch, &mut length);
        let copy = rocksdb_writebatch_create_from(bytes, length);
        assert_eq!(rocksdb_writebatch_count(copy), 8);
        rocksdb_writebatch_destroy(copy);

        rocksdb_writebatch_wi_clear(batch);
        assert_eq!(rocksdb_writebatch_wi_count(batch), 0);
        assert_eq!(setup.alone(batch, b"a"), None);
        rocksdb_writebatch_wi_destroy(batch);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
}

#[test]
fn keys_and_values_of_a_batch_with_an_index_come_in_parts() {
    let setup = Setup::new();
    let (db, family) = setup.adding();
    let [ka, kb, kc, value, one] = [&b"ka"[..], b"kb", b"kc", b"value", &ONE].map(Parts::new);
    unsafe {
        let batch = rocksdb_writebatch_wi_create(0, 1);
        for (key, by) in [(&ka, &value), (&kc, &value)] {
            let (k, kn, n, v, vn, m) =
                (key.0.as_ptr(), key.1.as_ptr(), key.count(), by.0.as_ptr(), by.1.as_ptr(), by.count());
            rocksdb_writebatch_wi_putv(batch, n, k, kn, m, v, vn);
            rocksdb_writebatch_wi_putv_cf(batch, family, n, k, kn, m, v, vn);
        }
        let (k, kn, v, vn) = (kb.0.as_ptr(), kb.1.as_ptr(), one.0.as_ptr(), one.1.as_ptr());
        rocksdb_writebatch_wi_mergev(batch, 2, k, kn, 8, v, vn);
        rocksdb_writebatch_wi_mergev_cf(batch, family, 2, k, kn, 8, v, vn);
        rocksdb_writebatch_wi_deletev(batch, 2, kc.0.as_ptr(), kc.1.as_ptr());
        rocksdb_writebatch_wi_deletev_cf(batch, family, 2, kc.0.as_ptr(), kc.1.as_ptr());
        for family in [None, Some(family)] {
            assert_eq!(setup.through(batch, db, family, b"ka").unwrap(), b"value");
            assert_eq!(setup.through(batch, db, family, b"kb").unwrap(), ONE);
            assert_eq!(setup.through(batch, db, family, b"kc"), None);
        }
        // Compat: an indexed batch takes no range deletions, in RocksDB neither.
        let [from, to] = [b"k", b"l"].map(|key| Parts::new(key));
        rocksdb_writebatch_wi_delete_range(batch, at(b"k"), 1, at(b"l"), 1);
        rocksdb_writebatch_wi_delete_range_cf(batch, family, at(b"k"), 1, at(b"l"), 1);
        let ((k, kn), (l, ln)) = ((from.0.as_ptr(), from.1.as_ptr()), (to.0.as_ptr(), to.1.as_ptr()));
        rocksdb_writebatch_wi_delete_rangev(batch, 1, k, kn, l, ln);
        rocksdb_writebatch_wi_delete_rangev_cf(batch, family, 1, k, kn, l, ln);
        assert_eq!(rocksdb_writebatch_wi_count(batch), 8);
        assert_eq!(setup.through(batch, db, None, b"ka").unwrap(), b"value");
        rocksdb_writebatch_wi_destroy(batch);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
}

unsafe extern "C" fn backward(_: H, a: B, an: usize, b: B, bn: usize) -> c_int {
    let [a, b] = [(a, an), (b, bn)].map(|(at, n)| unsafe { std::slice::from_raw_parts(at.cast::<u8>(), n) });
    b.cmp(a) as c_int
}

unsafe extern "C" fn backward_name(_: H) -> B {
    c"test.backward".as_ptr()
}

#[test]
fn the_parameters_of_a_batch_with_an_index_count() {
    let setup = Setup::new();
    unsafe {
        let batch = rocksdb_writebatch_wi_create_with_params(null_mut(), 0, 1, 40, 8);
        rocksdb_writebatch_wi_put(batch, at(b"a"), 1, at(b"1"), 1);
        rocksdb_writebatch_wi_set_save_point(batch);
        rocksdb_writebatch_wi_put(batch, at(b"a"), 1, at(b"2"), 1);
        rocksdb_writebatch_wi_put(batch, at(b"b"), 1, at(&[b'v'; 40]), 40);
        assert_eq!(rocksdb_writebatch_wi_count(batch), 2, "the last one would have been too much");
        assert_eq!(setup.alone(batch, b"a").unwrap(), b"2");
        ok(|e| rocksdb_writebatch_wi_rollback_to_save_point(batch, e));
        assert_eq!(setup.alone(batch, b"a").unwrap(), b"1");
        assert!(failed(|e| rocksdb_writebatch_wi_rollback_to_save_point(batch, e)).starts_with("NotFound"));
        rocksdb_writebatch_wi_destroy(batch);

        // The size limit applies with protection bytes too.
        let plain = rocksdb_writebatch_create_with_params(0, 40, 8, 0);
        rocksdb_writebatch_put(plain, at(b"b"), 1, at(&[b'v'; 40]), 40);
        assert_eq!(rocksdb_writebatch_count(plain), 0);
        rocksdb_writebatch_destroy(plain);

        // The batch orders keys by the database's comparator.
        let comparator = rocksdb_comparator_create(null_mut(), None, backward, backward_name);
        rocksdb_options_set_comparator(setup.options, comparator);
        let db = setup.open();
        setup.put(db, b"b", b"");
        let batch = rocksdb_writebatch_wi_create_with_params(comparator, 0, 1, 0, 0);
        rocksdb_writebatch_wi_put(batch, at(b"a"), 1, at(b""), 0);
        rocksdb_writebatch_wi_put(batch, at(b"c"), 1, at(b""), 0);
        let iter =
            rocksdb_writebatch_wi_create_iterator_with_base(batch, rocksdb_create_iterator(db, setup.read));
        assert_eq!(pairs(iter), entries(&[("c", b""), ("b", b""), ("a", b"")]));
        rocksdb_writebatch_wi_destroy(batch);
        rocksdb_close(db);
        rocksdb_comparator_destroy(comparator);
    }
}

#[test]
fn an_iterator_shows_a_batch_over_its_base() {
    let setup = Setup::new();
    let (db, family) = setup.adding();
    for (key, value) in [(b"b", &b"below"[..]), (b"d", b"below"), (b"m", &ONE), (b"x", b"below")] {
        setup.put(db, key, value);
    }
    ok(|e| unsafe { rocksdb_put_cf(db, setup.write, family, at(b"b"), 1, at(b"beside"), 6, e) });
    unsafe {
        let batch = rocksdb_writebatch_wi_create(0, 0);
        rocksdb_writebatch_wi_put(batch, at(b"a"), 1, at(b"above"), 5);
        rocksdb_writebatch_wi_put(batch, at(b"z"), 1, at(b"above"), 5);
        rocksdb_writebatch_wi_delete(batch, at(b"d"), 1);
        rocksdb_writebatch_wi_merge(batch, at(b"m"), 1, at(&THREE), 8);
        rocksdb_writebatch_wi_put_cf(batch, family, at(b"c"), 1, at(b"above"), 5);
        let base = || rocksdb_create_iterator(db, setup.read);
        let whole =
            entries(&[("a", b"above"), ("b", b"below"), ("m", &FOUR), ("x", b"below"), ("z", b"above")]);
        assert_eq!(pairs(rocksdb_writebatch_wi_create_iterator_with_base(batch, base())), whole);
        let beside = || rocksdb_create_iterator_cf(db, setup.read, family);
        let shown = entries(&[("b", b"beside"), ("c", b"above")]);
        assert_eq!(pairs(rocksdb_writebatch_wi_create_iterator_with_base_cf(batch, beside(), family)), shown);

        // Moves in both directions.
        let iter = rocksdb_writebatch_wi_create_iterator_with_base(batch, base());
        let mut length = 0;
        rocksdb_iter_seek_for_prev(iter, at(b"e"), 1);
        assert_eq!(*rocksdb_iter_key(iter, &mut length), b'b' as c_char);
        rocksdb_iter_prev(iter);
        assert_eq!(*rocksdb_iter_key(iter, &mut length), b'a' as c_char);
        rocksdb_iter_seek_to_last(iter);
        assert_eq!(*rocksdb_iter_key(iter, &mut length), b'z' as c_char);
        rocksdb_iter_seek(iter, at(b"c"), 1);
        assert_eq!(*rocksdb_iter_key(iter, &mut length), b'm' as c_char);
        rocksdb_iter_destroy(iter);

        // The options have the bounds of the batch's keys.
        let bounded = rocksdb_readoptions_create();
        rocksdb_readoptions_set_iterate_lower_bound(bounded, at(b"b"), 1);
        rocksdb_readoptions_set_iterate_upper_bound(bounded, at(b"n"), 1);
        let iter = rocksdb_writebatch_wi_create_iterator_with_base_readopts(batch, base(), bounded);
        assert_eq!(pairs(iter), entries(&[("b", b"below"), ("m", &FOUR), ("x", b"below")]));
        let below = rocksdb_create_iterator(db, bounded);
        let iter = rocksdb_writebatch_wi_create_iterator_with_base(batch, below);
        let shown = entries(&[("a", b"above"), ("b", b"below"), ("m", &FOUR), ("z", b"above")]);
        assert_eq!(pairs(iter), shown);
        rocksdb_readoptions_set_iterate_upper_bound(bounded, at(b"c"), 1);
        let iter =
            rocksdb_writebatch_wi_create_iterator_with_base_cf_readopts(batch, beside(), family, bounded);
        assert_eq!(pairs(iter), entries(&[("b", b"beside")]));

        // Iterators that are no valid base for a batch.
        let no = |iter: H| {
            rocksdb_iter_seek_to_first(iter);
            assert_eq!(rocksdb_iter_valid(iter), 0);
            let error = failed(|e| rocksdb_iter_get_error(iter, e));
            rocksdb_iter_destroy(iter);
            error
        };
        let other = no(rocksdb_writebatch_wi_create_iterator_with_base(batch, beside()));
        assert!(other.starts_with("Invalid argument"), "{other}");
        let twice = rocksdb_writebatch_wi_create_iterator_with_base(batch, base());
        let twice = no(rocksdb_writebatch_wi_create_iterator_with_base(batch, twice));
        assert!(twice.starts_with("Not implemented"), "{twice}");
        rocksdb_readoptions_set_tailing(bounded, 1);
        let below = rocksdb_create_iterator(db, bounded);
        let tailing = no(rocksdb_writebatch_wi_create_iterator_with_base(batch, below));
        assert!(tailing.contains("tailing"), "{tailing}");
        rocksdb_readoptions_destroy(bounded);
        rocksdb_writebatch_wi_destroy(batch);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
}

#[test]
fn over_a_ttl_a_batch_is_written_with_times_and_not_read() {
    let setup = Setup::new();
    unsafe {
        let db = ok(|e| rocksdb_open_with_ttl(setup.options, setup.path("db").as_ptr(), 1000, e));
        let batch = rocksdb_writebatch_wi_create(0, 1);
        rocksdb_writebatch_wi_put(batch, at(b"a"), 1, at(b"1"), 1);
        ok(|e| rocksdb_write_writebatch_wi(db, setup.write, batch, e));
        assert_eq!(setup.get(db, b"a").unwrap(), b"1");
        let mut length = 0;
        let refused = failed(|e| {
            rocksdb_writebatch_wi_get_from_batch_and_db(batch, db, setup.read, at(b"b"), 1, &mut length, e)
        });
        assert!(refused.starts_with("Not implemented"), "{refused}");
        rocksdb_writebatch_wi_destroy(batch);
        rocksdb_close(db);
    }
}

#[test]
fn the_batch_of_a_transaction_is_shown_and_taken_over() {
    let setup = Setup::new();
    unsafe {
        let (settings, begin) =
            (rocksdb_transactiondb_options_create(), rocksdb_transaction_options_create());
        let db = ok(|e| rocksdb_transactiondb_open(setup.options, settings, setup.path("db").as_ptr(), e));
        let transaction = rocksdb_transaction_begin(db, setup.write, begin, null_mut());
        ok(|e| rocksdb_transaction_put(transaction, at(b"a"), 1, at(b"1"), 1, e));
        let shown = rocksdb_transaction_get_writebatch_wi(transaction);
        assert_eq!(rocksdb_writebatch_wi_count(shown), 1);
        assert_eq!(setup.alone(shown, b"a").unwrap(), b"1");
        // The handle shows the transaction's later writes, and refuses changes.
        ok(|e| rocksdb_transaction_put(transaction, at(b"b"), 1, at(b"2"), 1, e));
        rocksdb_writebatch_wi_put(shown, at(b"c"), 1, at(b"3"), 1);
        assert_eq!(rocksdb_writebatch_wi_count(shown), 2);

        let other = rocksdb_transaction_begin(db, setup.write, begin, null_mut());
        let batch = rocksdb_writebatch_wi_create(0, 1);
        rocksdb_writebatch_wi_put(batch, at(b"d"), 1, at(b"4"), 1);
        ok(|e| rocksdb_transaction_rebuild_from_writebatch_wi(other, batch, e));
        rocksdb_writebatch_wi_destroy(batch);
        let mut length = 0;
        let value = ok(|e| rocksdb_transaction_get(other, setup.read, at(b"d"), 1, &mut length, e));
        assert_eq!(owned(value, length).unwrap(), b"4");
        rocksdb_transaction_destroy(other);

        ok(|e| rocksdb_transaction_commit(transaction, e));
        assert_eq!(rocksdb_writebatch_wi_count(shown), 0, "it is committed");
        rocksdb_free(shown);
        rocksdb_transaction_destroy(transaction);
        let value = ok(|e| rocksdb_transactiondb_get(db, setup.read, at(b"a"), 1, &mut length, e));
        assert_eq!(owned(value, length).unwrap(), b"1");
        rocksdb_transaction_options_destroy(begin);
        rocksdb_transactiondb_options_destroy(settings);
        rocksdb_transactiondb_close(db);
    }
}

unsafe fn seen(state: H, what: &str, family: u32, key: B, length: usize) {
    let key = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), length) };
    unsafe { &mut *state.cast::<Vec<String>>() }.push(format!("{what} {family} {}", key.escape_ascii()));
}

unsafe extern "C" fn on_put(state: H, k: B, kn: usize, _: B, _: usize) {
    unsafe { seen(state, "put", 0, k, kn) }
}
unsafe extern "C" fn on_delete(state: H, k: B, kn: usize) {
    unsafe { seen(state, "delete", 0, k, kn) }
}
unsafe extern "C" fn on_log(state: H, k: B, kn: usize) {
    unsafe { seen(state, "log", 0, k, kn) }
}
unsafe extern "C" fn on_put_cf(state: H, cf: u32, k: B, kn: usize, _: B, _: usize) {
    unsafe { seen(state, "put", cf, k, kn) }
}
unsafe extern "C" fn on_delete_cf(state: H, cf: u32, k: B, kn: usize) {
    unsafe { seen(state, "delete", cf, k, kn) }
}
unsafe extern "C" fn on_merge_cf(state: H, cf: u32, k: B, kn: usize, _: B, _: usize) {
    unsafe { seen(state, "merge", cf, k, kn) }
}

/// Returns the calls of a walk.
fn walked(walk: impl FnOnce(H)) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    walk((&raw mut found).cast());
    found
}

#[test]
fn a_walk_over_a_batch_shows_what_rocksdb_shows() {
    let setup = Setup::new();
    let (db, family) = setup.adding();
    unsafe {
        let batch = rocksdb_writebatch_create();
        rocksdb_writebatch_put(batch, at(b"a"), 1, at(b""), 0);
        rocksdb_writebatch_singledelete(batch, at(b"b"), 1);
        rocksdb_writebatch_merge(batch, at(b"c"), 1, at(&ONE), 8);
        rocksdb_writebatch_put_log_data(batch, at(b"l"), 1);
        rocksdb_writebatch_delete(batch, at(b"d"), 1);
        rocksdb_writebatch_put_cf(batch, family, at(b"e"), 1, at(b""), 0);
        rocksdb_writebatch_delete_cf(batch, family, at(b"f"), 1);
        rocksdb_writebatch_merge_cf(batch, family, at(b"g"), 1, at(&ONE), 8);
        rocksdb_writebatch_put(batch, at(b"h"), 1, at(b""), 0);
        // Single deletions are skipped, and the first operation on another family ends the walk.
        let plain = walked(|s| rocksdb_writebatch_iterate(batch, s, on_put, on_delete));
        assert_eq!(plain, ["put 0 a", "delete 0 d"]);
        let logged = walked(|s| rocksdb_writebatch_iterate_ld(batch, s, on_put, on_delete, on_log));
        assert_eq!(logged, ["put 0 a", "log 0 l", "delete 0 d"]);
        let all = walked(|s| rocksdb_writebatch_iterate_cf(batch, s, on_put_cf, on_delete_cf, on_merge_cf));
        assert_eq!(
            all,
            ["put 0 a", "merge 0 c", "delete 0 d", "put 1 e", "delete 1 f", "merge 1 g", "put 0 h"]
        );
        // A single deletion in another family ends the walk, and a range deletion.
        for ends in [true, false] {
            rocksdb_writebatch_clear(batch);
            rocksdb_writebatch_put_log_data(batch, at(b"l"), 1);
            match ends {
                true => rocksdb_writebatch_singledelete_cf(batch, family, at(b"i"), 1),
                false => rocksdb_writebatch_delete_range(batch, at(b"i"), 1, at(b"j"), 1),
            }
            rocksdb_writebatch_put(batch, at(b"k"), 1, at(b""), 0);
            let walk =
                |s| rocksdb_writebatch_iterate_cf_ld(batch, s, on_put_cf, on_delete_cf, on_merge_cf, on_log);
            assert_eq!(walked(walk), ["log 0 l"]);
        }
        rocksdb_writebatch_destroy(batch);

        let batch = rocksdb_writebatch_wi_create(0, 1);
        rocksdb_writebatch_wi_put(batch, at(b"a"), 1, at(b""), 0);
        rocksdb_writebatch_wi_singledelete(batch, at(b"b"), 1);
        rocksdb_writebatch_wi_delete(batch, at(b"c"), 1);
        rocksdb_writebatch_wi_put_cf(batch, family, at(b"d"), 1, at(b""), 0);
        rocksdb_writebatch_wi_put(batch, at(b"e"), 1, at(b""), 0);
        let plain = walked(|s| rocksdb_writebatch_wi_iterate(batch, s, on_put, on_delete));
        assert_eq!(plain, ["put 0 a", "delete 0 c"]);
        rocksdb_writebatch_wi_destroy(batch);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
}

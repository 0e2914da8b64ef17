//! Keys with user-defined timestamps.

use super::*;

type Compare = unsafe extern "C" fn(H, B, usize, B, usize) -> c_int;
type CompareBare = unsafe extern "C" fn(H, B, usize, c_uchar, B, usize, c_uchar) -> c_int;
type Size = unsafe extern "C" fn(H, u32) -> usize;

api! {
    fn rocksdb_comparator_with_ts_create(s: H, d: Option<unsafe extern "C" fn(H)>, c: Compare, t: Option<Compare>, b: Option<CompareBare>, n: unsafe extern "C" fn(H) -> B, size: usize) -> H;
    fn rocksdb_put_with_ts(db: H, o: H, k: B, kn: usize, t: B, tn: usize, v: B, vn: usize, e: E);
    fn rocksdb_put_cf_with_ts(db: H, o: H, cf: H, k: B, kn: usize, t: B, tn: usize, v: B, vn: usize, e: E);
    fn rocksdb_delete_with_ts(db: H, o: H, k: B, kn: usize, t: B, tn: usize, e: E);
    fn rocksdb_delete_cf_with_ts(db: H, o: H, cf: H, k: B, kn: usize, t: B, tn: usize, e: E);
    fn rocksdb_singledelete_with_ts(db: H, o: H, k: B, kn: usize, t: B, tn: usize, e: E);
    fn rocksdb_singledelete_cf_with_ts(db: H, o: H, cf: H, k: B, kn: usize, t: B, tn: usize, e: E);
    fn rocksdb_get_with_ts(db: H, o: H, k: B, kn: usize, vn: *mut usize, t: E, tn: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_get_cf_with_ts(db: H, o: H, cf: H, k: B, kn: usize, vn: *mut usize, t: E, tn: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_multi_get_with_ts(db: H, r: H, n: usize, ks: *const B, ns: *const usize, vs: E, vns: *mut usize, ts: E, tns: *mut usize, es: E);
    fn rocksdb_multi_get_cf_with_ts(db: H, r: H, fs: *const H, n: usize, ks: *const B, ns: *const usize, vs: E, vns: *mut usize, ts: E, tns: *mut usize, es: E);
    fn rocksdb_readoptions_set_timestamp(o: H, t: B, n: usize);
    fn rocksdb_readoptions_set_iter_start_ts(o: H, t: B, n: usize);
    fn rocksdb_iter_timestamp_slice(i: H) -> Slice;
    fn rocksdb_iter_key_slice(i: H) -> Slice;
    fn rocksdb_increase_full_history_ts_low(db: H, cf: H, t: B, n: usize, e: E);
    fn rocksdb_get_full_history_ts_low(db: H, cf: H, n: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_compactoptions_create() -> H;
    fn rocksdb_compactoptions_destroy(o: H);
    fn rocksdb_compactoptions_set_bottommost_level_compaction(o: H, v: c_uchar);
    fn rocksdb_compactoptions_set_full_history_ts_low(o: H, t: *mut c_char, n: usize);
    fn rocksdb_compact_range_cf_opt(db: H, cf: H, o: H, s: B, sn: usize, l: B, ln: usize);
    fn rocksdb_sstfilewriter_create_with_comparator(env: H, o: H, c: H) -> H;
    fn rocksdb_sstfilewriter_put_with_ts(w: H, k: B, kn: usize, t: B, tn: usize, v: B, vn: usize, e: E);
    fn rocksdb_sstfilewriter_delete_with_ts(w: H, k: B, kn: usize, t: B, tn: usize, e: E);
    fn rocksdb_envoptions_create() -> H;
    fn rocksdb_envoptions_destroy(o: H);
    fn rocksdb_ingestexternalfileoptions_create() -> H;
    fn rocksdb_ingestexternalfileoptions_destroy(o: H);
    fn rocksdb_ingest_external_file(db: H, files: *const B, n: usize, o: H, e: E);
    fn rocksdb_writebatch_create_with_params(n: usize, max: usize, p: usize, ts: usize) -> H;
    fn rocksdb_writebatch_put_cf(b: H, cf: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_put_cf_with_ts(b: H, cf: H, k: B, kn: usize, t: B, tn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_delete_cf_with_ts(b: H, cf: H, k: B, kn: usize, t: B, tn: usize);
    fn rocksdb_writebatch_singledelete_cf_with_ts(b: H, cf: H, k: B, kn: usize, t: B, tn: usize);
    fn rocksdb_writebatch_update_timestamps(b: H, t: B, n: usize, s: H, f: Option<Size>, e: E);
    fn rocksdb_writebatch_clear(b: H);
    fn rocksdb_key_may_exist_cf(db: H, o: H, cf: H, k: B, kn: usize, v: E, vn: *mut usize, t: B, tn: usize, found: *mut c_uchar) -> c_uchar;
    fn rocksdb_key_may_exist(db: H, o: H, k: B, kn: usize, v: E, vn: *mut usize, t: B, tn: usize, found: *mut c_uchar) -> c_uchar;
    fn rocksdb_get_default_column_family_handle(db: H) -> H;
    fn rocksdb_comparator_destroy(c: H);
    fn rocksdb_iter_prev(i: H);
    fn rocksdb_iter_seek(i: H, k: B, n: usize);
    fn rocksdb_iter_seek_to_last(i: H);
    fn rocksdb_readoptions_set_tailing(o: H, v: c_uchar);
    fn rocksdb_transaction_set_commit_timestamp(t: H, at: u64);
    fn rocksdb_transaction_set_read_timestamp_for_validation(t: H, at: u64);
    fn rocksdb_transaction_get_for_update(t: H, o: H, k: B, kn: usize, vn: *mut usize, exclusive: c_uchar, e: E) -> *mut c_char;
    fn rocksdb_transaction_create_iterator(t: H, o: H) -> H;
    fn rocksdb_transaction_set_name(t: H, n: B, length: usize, e: E);
    fn rocksdb_transaction_prepare(t: H, e: E);
    fn rocksdb_transactiondb_options_set_enable_udt_validation(o: H, v: c_uchar);
    fn rocksdb_transactiondb_options_get_enable_udt_validation(o: H) -> c_uchar;
    fn rocksdb_transactiondb_put(db: H, o: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_transactiondb_get_prepared_transactions(db: H, n: *mut usize) -> *mut H;
    fn rocksdb_writebatch_wi_create_with_params(c: H, n: usize, overwrite: c_uchar, max: usize, p: usize) -> H;
    fn rocksdb_writebatch_wi_put(b: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_wi_update_timestamps(b: H, t: B, n: usize, s: H, f: Option<Size>, e: E);
    fn rocksdb_writebatch_wi_destroy(b: H);
    fn rocksdb_write_writebatch_wi(db: H, o: H, b: H, e: E);
    fn rocksdb_open_and_trim_history(o: H, name: B, n: c_int, names: *const B, os: *const H, hs: *mut H, t: *mut c_char, tn: usize, e: E) -> H;
}

/// Size of a timestamp in bytes.
const SIZE: usize = 8;

fn time(at: u64) -> [u8; SIZE] {
    at.to_le_bytes()
}

unsafe fn read<'a>(start: B, length: usize) -> &'a [u8] {
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

fn sign(order: std::cmp::Ordering) -> c_int {
    order as c_int * 7
}

unsafe extern "C" fn compare_times(_: H, a: B, an: usize, b: B, bn: usize) -> c_int {
    let number = |at, n| u64::from_le_bytes(unsafe { read(at, n) }.try_into().unwrap());
    sign(number(a, an).cmp(&number(b, bn)))
}

unsafe extern "C" fn compare_bare(
    _: H,
    a: B,
    an: usize,
    timed_a: c_uchar,
    b: B,
    bn: usize,
    timed_b: c_uchar,
) -> c_int {
    let bare = |at, n: usize, timed| unsafe { read(at, n - SIZE * usize::from(timed)) };
    sign(bare(a, an, timed_a).cmp(bare(b, bn, timed_b)))
}

unsafe extern "C" fn compare(state: H, a: B, an: usize, b: B, bn: usize) -> c_int {
    unsafe {
        match compare_bare(state, a, an, 1, b, bn, 1) {
            0 => compare_times(state, b.add(bn - SIZE), SIZE, a.add(an - SIZE), SIZE),
            order => order,
        }
    }
}

unsafe extern "C" fn name(_: H) -> B {
    c"calls.timestamps".as_ptr()
}

unsafe extern "C" fn end(state: H) {
    unsafe { &*state.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

/// Returns a setup whose default column family has timestamps; `ended` counts destructor calls of
/// the comparator's state.
fn timed_setup(ended: &AtomicUsize) -> Setup {
    let setup = Setup::new();
    let state = std::ptr::from_ref(ended).cast_mut().cast();
    unsafe {
        let order = rocksdb_comparator_with_ts_create(
            state,
            Some(end),
            compare,
            Some(compare_times),
            Some(compare_bare),
            name,
            SIZE,
        );
        rocksdb_options_set_comparator(setup.options, order);
        // The options keep the comparator alive.
        rocksdb_comparator_destroy(order);
    }
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    setup
}

type Timed = Option<(Vec<u8>, Vec<u8>)>;

impl Setup {
    fn put_at(&self, db: H, key: &[u8], at_time: u64, value: &[u8]) {
        let ts = time(at_time);
        let (key, n, value, vn) = (at(key), key.len(), at(value), value.len());
        ok(|e| unsafe { rocksdb_put_with_ts(db, self.write, key, n, at(&ts), SIZE, value, vn, e) });
    }

    fn read_at(&self, at_time: u64) {
        unsafe { rocksdb_readoptions_set_timestamp(self.read, at(&time(at_time)), SIZE) }
    }

    /// Returns the value and its timestamp at a read timestamp.
    fn get_at(&self, db: H, key: &[u8], at_time: u64) -> Timed {
        self.read_at(at_time);
        let (mut length, mut ts, mut size) = (1, std::ptr::without_provenance_mut(1), 1);
        let (key, n) = (at(key), key.len());
        let value =
            ok(|e| unsafe { rocksdb_get_with_ts(db, self.read, key, n, &mut length, &mut ts, &mut size, e) });
        Some((owned(value, length)?, owned(ts, size)?))
    }
}

fn timed(value: &[u8], at_time: u64) -> Timed {
    Some((value.to_vec(), time(at_time).to_vec()))
}

#[test]
fn keys_are_written_and_read_at_timestamps() {
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    let db = setup.open();
    setup.put_at(db, b"k", 1, b"one");
    setup.put_at(db, b"k", 3, b"three");
    setup.put_at(db, b"once", 3, b"v");
    for flushed in [false, true] {
        if flushed {
            setup.flush(db);
        }
        assert_eq!(setup.get_at(db, b"k", 0), None);
        assert_eq!(setup.get_at(db, b"k", 2), timed(b"one", 1));
        assert_eq!(setup.get_at(db, b"k", 9), timed(b"three", 3));
        assert_eq!(setup.get_at(db, b"once", 9), timed(b"v", 3));
        assert_eq!(setup.get(db, b"k").unwrap(), b"three", "by the plain call, at the last timestamp");
    }
    unsafe {
        ok(|e| rocksdb_delete_with_ts(db, setup.write, at(b"k"), 1, at(&time(4)), SIZE, e));
        ok(|e| rocksdb_singledelete_with_ts(db, setup.write, at(b"once"), 4, at(&time(5)), SIZE, e));
        assert_eq!(setup.get_at(db, b"k", 4), None);
        assert_eq!(setup.get_at(db, b"k", 3), timed(b"three", 3));
        assert_eq!((setup.get_at(db, b"once", 5), setup.get_at(db, b"once", 4)), (None, timed(b"v", 3)));

        // Writes without a timestamp, or with one of another size, are refused.
        let w = setup.write;
        let put = |e| rocksdb_put(db, w, at(b"k"), 1, at(b"v"), 1, e);
        let remove = |e| rocksdb_delete(db, w, at(b"k"), 1, e);
        let short = |e| rocksdb_put_with_ts(db, w, at(b"k"), 1, at(b"t"), 1, at(b"v"), 1, e);
        let short_delete = |e| rocksdb_delete_with_ts(db, w, at(b"k"), 1, at(b"t"), 1, e);
        for told in [failed(put), failed(remove), failed(short), failed(short_delete)] {
            assert!(told.starts_with("Invalid argument: "), "{told}");
        }
        rocksdb_readoptions_set_timestamp(setup.read, null(), 0);
        let (mut length, mut ts, mut size) = (7, null_mut(), 7);
        let told =
            failed(|e| rocksdb_get_with_ts(db, setup.read, at(b"k"), 1, &mut length, &mut ts, &mut size, e));
        assert!(told.starts_with("Invalid argument: ") && ts.is_null() && (length, size) == (0, 0), "{told}");
        let told = failed(|e| rocksdb_get(db, setup.read, at(b"k"), 1, &mut length, e));
        assert!(told.starts_with("Invalid argument: "), "{told}");
        let iter = rocksdb_create_iterator(db, setup.read);
        rocksdb_iter_seek_to_first(iter);
        assert_eq!(rocksdb_iter_valid(iter), 0);
        assert!(failed(|e| rocksdb_iter_get_error(iter, e)).starts_with("Invalid argument: "));
        rocksdb_iter_destroy(iter);
        rocksdb_close(db);
    }
    assert_eq!(ended.load(Ordering::SeqCst), 0, "the options have it");
    drop(setup);
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[test]
fn a_comparator_without_its_other_functions_is_one_of_whole_keys() {
    unsafe extern "C" fn whole(_: H, a: B, an: usize, b: B, bn: usize) -> c_int {
        unsafe { sign(read(a, an).cmp(read(b, bn))) }
    }
    let setup = Setup::new();
    unsafe {
        let order = rocksdb_comparator_with_ts_create(null_mut(), None, whole, None, None, name, 0);
        rocksdb_options_set_comparator(setup.options, order);
        rocksdb_comparator_destroy(order);
        let db = setup.open();
        setup.put(db, b"b", b"v");
        setup.put(db, b"a", b"w");
        assert_eq!(setup.keys(db), [b"a", b"b"]);
        // In a family without timestamps a value's timestamp is empty, and writes with one are
        // refused.
        let (mut length, mut ts, mut size) = (0, null_mut(), 7);
        let value =
            ok(|e| rocksdb_get_with_ts(db, setup.read, at(b"a"), 1, &mut length, &mut ts, &mut size, e));
        assert_eq!((owned(value, length).unwrap(), owned(ts, size).unwrap()), (b"w".to_vec(), Vec::new()));
        let put = |e| rocksdb_put_with_ts(db, setup.write, at(b"a"), 1, at(&time(1)), SIZE, at(b"v"), 1, e);
        let remove = |e| rocksdb_delete_with_ts(db, setup.write, at(b"a"), 1, at(&time(1)), SIZE, e);
        for told in [failed(put), failed(remove)] {
            assert!(told.starts_with("Invalid argument: "), "{told}");
        }
        rocksdb_close(db);
    }
}

/// Results of a `multi_get` of two keys.
struct Two {
    values: [*mut c_char; 2],
    lengths: [usize; 2],
    times: [*mut c_char; 2],
    sizes: [usize; 2],
    errors: [*mut c_char; 2],
}

impl Two {
    fn asked(call: impl FnOnce(E, *mut usize, E, *mut usize, E)) -> Two {
        let garbage = std::ptr::without_provenance_mut::<c_char>(1);
        let (lengths, sizes) = ([7; 2], [7; 2]);
        let mut two = Two { values: [garbage; 2], lengths, times: [garbage; 2], sizes, errors: [garbage; 2] };
        let (values, lengths) = (two.values.as_mut_ptr(), two.lengths.as_mut_ptr());
        call(values, lengths, two.times.as_mut_ptr(), two.sizes.as_mut_ptr(), two.errors.as_mut_ptr());
        two
    }

    fn of(&self, place: usize) -> Result<Timed, String> {
        let value = owned(self.values[place], self.lengths[place]);
        let ts = owned(self.times[place], self.sizes[place]);
        let error = self.errors[place];
        if !error.is_null() {
            assert_eq!((value, ts), (None, None));
            let told = unsafe { CStr::from_ptr(error) }.to_str().unwrap().to_owned();
            unsafe { rocksdb_free(error.cast()) };
            return Err(told);
        }
        assert_eq!(value.is_some(), ts.is_some());
        Ok(value.zip(ts))
    }
}

#[test]
fn column_families_have_timestamps_or_not() {
    let ended = AtomicUsize::new(0);
    let (plain, with) = (Setup::new(), timed_setup(&ended));
    let db = plain.open();
    unsafe {
        let family = ok(|e| rocksdb_create_column_family(db, with.options, c"timed".as_ptr(), e));
        let default = rocksdb_get_default_column_family_handle(db);
        let w = plain.write;
        for (key, at_time, value) in [(b"a", 1, b"x"), (b"a", 5, b"y"), (b"b", 2, b"z")] {
            let ts = time(at_time);
            ok(|e| rocksdb_put_cf_with_ts(db, w, family, at(key), 1, at(&ts), SIZE, at(value), 1, e));
        }
        plain.put(db, b"a", b"plain");
        ok(|e| rocksdb_delete_cf_with_ts(db, w, family, at(b"b"), 1, at(&time(4)), SIZE, e));
        let get = |key: &[u8; 1], at_time: u64| {
            with.read_at(at_time);
            let (mut length, mut ts, mut size) = (0, null_mut(), 0);
            let value = ok(|e| {
                rocksdb_get_cf_with_ts(db, with.read, family, at(key), 1, &mut length, &mut ts, &mut size, e)
            });
            owned(value, length).zip(owned(ts, size))
        };
        assert_eq!((get(b"a", 4), get(b"b", 4), get(b"b", 3)), (timed(b"x", 1), None, timed(b"z", 2)));
        ok(|e| rocksdb_singledelete_cf_with_ts(db, w, family, at(b"a"), 1, at(&time(6)), SIZE, e));
        assert_eq!((get(b"a", 6), get(b"a", 5)), (None, timed(b"y", 5)));
        let put = |e| rocksdb_put_cf(db, w, family, at(b"k"), 1, at(b"v"), 1, e);
        assert!(failed(put).starts_with("Invalid argument: "));

        // Several families at once: read options are valid for families with timestamps or for
        // those without.
        let (keys, lengths) = ([at(b"a"), at(b"b")], [1, 1]);
        let (k, n) = (keys.as_ptr(), lengths.as_ptr());
        let ask = |read: H, families: [H; 2]| {
            Two::asked(|values, lengths, times, sizes, errors| {
                let families = families.as_ptr();
                rocksdb_multi_get_cf_with_ts(
                    db, read, families, 2, k, n, values, lengths, times, sizes, errors,
                );
            })
        };
        with.read_at(3);
        let both = ask(with.read, [family, family]);
        assert_eq!((both.of(0), both.of(1)), (Ok(timed(b"x", 1)), Ok(timed(b"z", 2))));
        let mixed = ask(with.read, [family, default]);
        assert_eq!(mixed.of(0), Ok(timed(b"x", 1)));
        assert!(mixed.of(1).unwrap_err().starts_with("Invalid argument: "));
        let mixed = ask(plain.read, [default, family]);
        assert_eq!(mixed.of(0), Ok(Some((b"plain".to_vec(), Vec::new()))));
        assert!(mixed.of(1).unwrap_err().starts_with("Invalid argument: "));
        let none = ask(with.read, [null_mut(); 2]);
        assert!(none.of(0).is_err() && none.of(1).is_err());
        let of_default = Two::asked(|values, lengths, times, sizes, errors| {
            rocksdb_multi_get_with_ts(db, plain.read, 2, k, n, values, lengths, times, sizes, errors);
        });
        assert_eq!(of_default.of(0), Ok(Some((b"plain".to_vec(), Vec::new()))));
        assert_eq!(of_default.of(1), Ok(None));

        // A family without timestamps has no history to trim.
        let mut length = 7;
        let low = |e: E| rocksdb_get_full_history_ts_low(db, default, &mut length, e);
        assert!(failed(low).starts_with("Invalid argument: ") && length == 0);
        let increase = |e: E| rocksdb_increase_full_history_ts_low(db, default, at(&time(1)), SIZE, e);
        assert!(failed(increase).starts_with("Invalid argument: "));
        rocksdb_column_family_handle_destroy(default);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
    drop((plain, with));
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[test]
fn many_keys_of_the_default_family_are_read_at_once() {
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    let db = setup.open();
    setup.put_at(db, b"a", 1, b"x");
    setup.put_at(db, b"a", 2, b"y");
    setup.read_at(1);
    let (keys, lengths) = ([at(b"a"), at(b"b")], [1, 1]);
    let (k, n) = (keys.as_ptr(), lengths.as_ptr());
    let two = Two::asked(|values, lengths, times, sizes, errors| unsafe {
        rocksdb_multi_get_with_ts(db, setup.read, 2, k, n, values, lengths, times, sizes, errors);
    });
    assert_eq!((two.of(0), two.of(1)), (Ok(timed(b"x", 1)), Ok(None)));
    unsafe { rocksdb_close(db) };
}

/// Returns the key and timestamp of an iterator's entry.
unsafe fn entry(iter: H) -> (Vec<u8>, u64) {
    let (mut n, mut tn) = (0, 0);
    unsafe {
        let (key, ts) = (rocksdb_iter_key(iter, &mut n), rocksdb_iter_timestamp(iter, &mut tn));
        let (Slice(key_slice, m), Slice(ts_slice, tm)) =
            (rocksdb_iter_key_slice(iter), rocksdb_iter_timestamp_slice(iter));
        let (key, ts) = (read(key, n), read(ts, tn));
        assert_eq!((key, ts), (read(key_slice, m), read(ts_slice, tm)));
        (key.to_vec(), u64::from_le_bytes(ts.try_into().unwrap()))
    }
}

#[test]
fn iterators_tell_timestamps_and_internal_keys() {
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    let db = setup.open();
    setup.put_at(db, b"a", 1, b"first");
    setup.put_at(db, b"b", 2, b"second");
    setup.put_at(db, b"a", 3, b"third");
    unsafe {
        ok(|e| rocksdb_delete_with_ts(db, setup.write, at(b"b"), 1, at(&time(4)), SIZE, e));
        setup.read_at(3);
        let iter = rocksdb_create_iterator(db, setup.read);
        let mut length = 7;
        assert!(!rocksdb_iter_timestamp(iter, &mut length).is_null() && length == 0, "it stands nowhere");
        rocksdb_iter_seek_to_first(iter);
        assert_eq!(entry(iter), (b"a".to_vec(), 3));
        rocksdb_iter_next(iter);
        assert_eq!(entry(iter), (b"b".to_vec(), 2));
        rocksdb_iter_prev(iter);
        assert_eq!(entry(iter), (b"a".to_vec(), 3));
        rocksdb_iter_prev(iter);
        assert_eq!(rocksdb_iter_valid(iter), 0);
        rocksdb_iter_destroy(iter);
        setup.read_at(2);
        let iter = rocksdb_create_iterator(db, setup.read);
        rocksdb_iter_seek_to_first(iter);
        assert_eq!(entry(iter), (b"a".to_vec(), 1), "the first entry of all is later");
        rocksdb_iter_destroy(iter);

        // Types of a value and of a deletion with a timestamp, and the writes' sequence numbers.
        let internal = |key: &[u8], ts: u64, seq: u64, kind: u64| {
            ([key, &time(ts), &(seq << 8 | kind).to_le_bytes()].concat(), ts)
        };
        let all = [
            internal(b"a", 3, 3, 1),
            internal(b"a", 1, 1, 1),
            internal(b"b", 4, 4, 0x14),
            internal(b"b", 2, 2, 1),
        ];
        setup.read_at(9);
        rocksdb_readoptions_set_iter_start_ts(setup.read, at(&time(1)), SIZE);
        for flushed in [false, true] {
            if flushed {
                setup.flush(db);
            }
            let iter = rocksdb_create_iterator(db, setup.read);
            rocksdb_iter_seek_to_first(iter);
            for expected in &all {
                assert_eq!(&entry(iter), expected);
                rocksdb_iter_next(iter);
            }
            assert_eq!(rocksdb_iter_valid(iter), 0);
            rocksdb_iter_seek_to_last(iter);
            for expected in all.iter().rev() {
                assert_eq!(&entry(iter), expected);
                rocksdb_iter_prev(iter);
            }
            assert_eq!(rocksdb_iter_valid(iter), 0);
            rocksdb_iter_seek(iter, at(b"b"), 1);
            assert_eq!(entry(iter), all[2]);
            ok(|e| rocksdb_iter_get_error(iter, e));
            rocksdb_iter_destroy(iter);
        }
        rocksdb_readoptions_set_tailing(setup.read, 1);
        let iter = rocksdb_create_iterator(db, setup.read);
        rocksdb_iter_seek_to_first(iter);
        assert!(failed(|e| rocksdb_iter_get_error(iter, e)).starts_with("Not implemented: "));
        rocksdb_iter_destroy(iter);
        rocksdb_readoptions_set_tailing(setup.read, 0);
        rocksdb_readoptions_set_iter_start_ts(setup.read, null(), 0);
        assert_eq!(setup.keys(db), [b"a"]);
        rocksdb_close(db);
    }
}

#[test]
fn history_is_given_up_and_then_compacted_away() {
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    let db = setup.open();
    for at_time in 1..=4 {
        setup.put_at(db, b"k", at_time, &[b'0' + at_time as u8]);
    }
    unsafe {
        let family = rocksdb_get_default_column_family_handle(db);
        let low = || {
            let mut length = 7;
            let low = ok(|e| rocksdb_get_full_history_ts_low(db, family, &mut length, e));
            owned(low, length).expect("an empty one is not null")
        };
        let entries = || {
            setup.read_at(9);
            rocksdb_readoptions_set_iter_start_ts(setup.read, at(&time(9)), SIZE);
            rocksdb_readoptions_set_iter_start_ts(setup.read, at(&low()), low().len());
            let iter = rocksdb_create_iterator(db, setup.read);
            rocksdb_iter_seek_to_first(iter);
            let mut times = Vec::new();
            while rocksdb_iter_valid(iter) != 0 {
                times.push(entry(iter).1);
                rocksdb_iter_next(iter);
            }
            ok(|e| rocksdb_iter_get_error(iter, e));
            rocksdb_iter_destroy(iter);
            rocksdb_readoptions_set_iter_start_ts(setup.read, null(), 0);
            times
        };
        assert!(low().is_empty());
        ok(|e| rocksdb_increase_full_history_ts_low(db, family, at(&time(2)), SIZE, e));
        assert_eq!((low(), entries()), (time(2).to_vec(), vec![4, 3, 2]));
        assert_eq!(setup.get_at(db, b"k", 2), timed(b"2", 2));
        for (low, size) in [(1, SIZE), (5, 3)] {
            let told = failed(|e| rocksdb_increase_full_history_ts_low(db, family, at(&time(low)), size, e));
            assert!(told.starts_with("Invalid argument: "), "{told}");
        }
        setup.read_at(1);
        let mut length = 0;
        let told = failed(|e| rocksdb_get(db, setup.read, at(b"k"), 1, &mut length, e));
        assert!(told.starts_with("Invalid argument: "), "{told}");

        let options = rocksdb_compactoptions_create();
        rocksdb_compactoptions_set_bottommost_level_compaction(options, 2);
        let mut ts = time(4);
        rocksdb_compactoptions_set_full_history_ts_low(options, ts.as_mut_ptr().cast(), SIZE);
        rocksdb_compact_range_cf_opt(db, family, options, null(), 0, null(), 0);
        assert_eq!((low(), entries()), (time(4).to_vec(), vec![4]));
        assert_eq!(setup.get_at(db, b"k", 9), timed(b"4", 4));
        rocksdb_compactoptions_set_full_history_ts_low(options, null_mut(), 0);
        rocksdb_compact_range_cf_opt(db, family, options, null(), 0, null(), 0);
        assert_eq!(low(), time(4));
        let left = rocksdb_property_value(db, c"rocksdb.estimate-num-keys".as_ptr());
        assert_eq!(CStr::from_ptr(left), c"2", "that at 4, and the last before");
        rocksdb_free(left.cast());
        rocksdb_compactoptions_destroy(options);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
}

#[test]
fn tables_of_keys_with_timestamps_are_ingested() {
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    unsafe {
        let env = rocksdb_envoptions_create();
        // The writer uses the comparator of the options and ignores its argument.
        let writer = rocksdb_sstfilewriter_create_with_comparator(env, setup.options, null_mut());
        let path = setup.path("table.sst");
        ok(|e| rocksdb_sstfilewriter_open(writer, path.as_ptr(), e));
        let told = failed(|e| rocksdb_sstfilewriter_put(writer, at(b"a"), 1, at(b"v"), 1, e));
        assert!(told.starts_with("Invalid argument: "), "{told}");
        let put = |key: &[u8; 1], at_time, value: &[u8; 1], e| {
            let ts = time(at_time);
            rocksdb_sstfilewriter_put_with_ts(writer, at(key), 1, at(&ts), SIZE, at(value), 1, e)
        };
        ok(|e| put(b"a", 3, b"z", e));
        assert!(failed(|e| put(b"a", 4, b"z", e)).starts_with("Invalid argument: "), "later ones come first");
        ok(|e| rocksdb_sstfilewriter_delete_with_ts(writer, at(b"a"), 1, at(&time(2)), SIZE, e));
        ok(|e| put(b"a", 1, b"x", e));
        let short = |e| rocksdb_sstfilewriter_delete_with_ts(writer, at(b"b"), 1, at(b"t"), 1, e);
        assert!(failed(short).starts_with("Invalid argument: "));
        ok(|e| rocksdb_sstfilewriter_finish(writer, e));
        rocksdb_sstfilewriter_destroy(writer);
        rocksdb_envoptions_destroy(env);

        let db = setup.open();
        let options = rocksdb_ingestexternalfileoptions_create();
        ok(|e| rocksdb_ingest_external_file(db, [path.as_ptr()].as_ptr(), 1, options, e));
        rocksdb_ingestexternalfileoptions_destroy(options);
        assert_eq!(setup.get_at(db, b"a", 1), timed(b"x", 1));
        assert_eq!(setup.get_at(db, b"a", 2), None);
        assert_eq!(setup.get_at(db, b"a", 3), timed(b"z", 3));
        rocksdb_close(db);
        assert!(rocksdb_sstfilewriter_create_with_comparator(null_mut(), null_mut(), null_mut()).is_null());
    }
}

unsafe extern "C" fn size_in(sizes: H, family: u32) -> usize {
    unsafe { sizes.cast::<usize>().add(family as usize).read() }
}

#[test]
fn batches_have_timestamps_from_the_first_or_get_them_at_last() {
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    let db = setup.open();
    unsafe {
        let family = rocksdb_get_default_column_family_handle(db);
        let batch = rocksdb_writebatch_create();
        rocksdb_writebatch_put_cf_with_ts(batch, family, at(b"a"), 1, at(&time(2)), SIZE, at(b"x"), 1);
        rocksdb_writebatch_put_cf_with_ts(batch, family, at(b"b"), 1, at(&time(2)), SIZE, at(b"y"), 1);
        // A refused operation is not added, and is reported on stderr.
        rocksdb_writebatch_put_cf_with_ts(batch, family, at(b"c"), 1, at(b"t"), 1, at(b"y"), 1);
        rocksdb_writebatch_put_cf_with_ts(batch, null_mut(), at(b"c"), 1, at(&time(2)), SIZE, at(b"y"), 1);
        assert_eq!(rocksdb_writebatch_count(batch), 2);
        ok(|e| rocksdb_write(db, setup.write, batch, e));
        rocksdb_writebatch_clear(batch);
        rocksdb_writebatch_delete_cf_with_ts(batch, family, at(b"a"), 1, at(&time(3)), SIZE);
        rocksdb_writebatch_singledelete_cf_with_ts(batch, family, at(b"b"), 1, at(&time(3)), SIZE);
        ok(|e| rocksdb_write(db, setup.write, batch, e));
        for (key, value) in [(b"a", b"x"), (b"b", b"y")] {
            assert_eq!((setup.get_at(db, key, 2), setup.get_at(db, key, 3)), (timed(value, 2), None));
        }

        rocksdb_writebatch_clear(batch);
        rocksdb_writebatch_put_cf(batch, family, at(b"a"), 1, at(b"later"), 5);
        let told = failed(|e| rocksdb_write(db, setup.write, batch, e));
        assert!(told.starts_with("Invalid argument: "), "{told}");
        let update = |batch: H, size: usize, e: E| {
            let state = (&raw const size).cast_mut().cast();
            rocksdb_writebatch_update_timestamps(batch, at(&time(7)), SIZE, state, Some(size_in), e)
        };
        assert!(failed(|e| update(batch, 5, e)).starts_with("Invalid argument: "));
        assert!(failed(|e| update(batch, usize::MAX, e)).starts_with("NotFound: "));
        let none = |e| rocksdb_writebatch_update_timestamps(batch, at(&time(7)), SIZE, null_mut(), None, e);
        assert!(failed(none).starts_with("Invalid argument: "));
        ok(|e| update(batch, SIZE, e));
        ok(|e| rocksdb_write(db, setup.write, batch, e));
        assert_eq!(setup.get_at(db, b"a", 9), timed(b"later", 7));
        rocksdb_writebatch_destroy(batch);

        // A batch created with the size of the timestamps in the default column family.
        let batch = rocksdb_writebatch_create_with_params(0, 0, 0, SIZE);
        rocksdb_writebatch_put(batch, at(b"d"), 1, at(b"new"), 3);
        rocksdb_writebatch_delete(batch, at(b"a"), 1);
        assert!(failed(|e| rocksdb_write(db, setup.write, batch, e)).starts_with("Invalid argument: "));
        ok(|e| update(batch, SIZE, e));
        ok(|e| rocksdb_write(db, setup.write, batch, e));
        assert_eq!((setup.get_at(db, b"d", 9), setup.get_at(db, b"a", 9)), (timed(b"new", 7), None));
        rocksdb_writebatch_destroy(batch);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
}

#[test]
fn whether_a_key_may_be_there_is_asked_at_a_timestamp() {
    let ended = AtomicUsize::new(0);
    let (setup, plain) = (timed_setup(&ended), Setup::new());
    let (db, other) = (setup.open(), plain.open());
    setup.put_at(db, b"k", 3, b"v");
    plain.put(other, b"k", b"w");
    unsafe {
        let family = rocksdb_get_default_column_family_handle(db);
        let ask = |db: H, read: H, cf: H, ts: &[u8]| {
            let (mut value, mut length, mut found) = (null_mut(), 0, 7);
            let (t, tn) = (if ts.is_empty() { null() } else { at(ts) }, ts.len());
            let may = match cf.is_null() {
                true => {
                    rocksdb_key_may_exist(db, read, at(b"k"), 1, &mut value, &mut length, t, tn, &mut found)
                }
                false => {
                    let (value, length) = (&mut value, &mut length);
                    rocksdb_key_may_exist_cf(db, read, cf, at(b"k"), 1, value, length, t, tn, &mut found)
                }
            };
            (may, found, owned(value, length))
        };
        for cf in [null_mut(), family] {
            for ts in [&[][..], &time(3)] {
                setup.read_at(3);
                assert_eq!(ask(db, setup.read, cf, ts), (1, 1, Some(b"v".to_vec())));
                setup.read_at(2);
                assert_eq!(ask(db, setup.read, cf, ts).0, 0, "it was not there then");
                rocksdb_readoptions_set_timestamp(setup.read, null(), 0);
                assert_eq!(ask(db, setup.read, cf, ts), (0, 0, None), "a read that is refused");
            }
        }
        // In a family without timestamps the argument for one is ignored.
        assert_eq!(ask(other, plain.read, null_mut(), &time(3)), (1, 1, Some(b"w".to_vec())));
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
        rocksdb_close(other);
    }
}

#[test]
fn a_database_is_opened_as_it_was() {
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    let db = setup.open();
    setup.put_at(db, b"a", 1, b"one");
    setup.put_at(db, b"b", 5, b"five");
    setup.flush(db);
    unsafe {
        ok(|e| rocksdb_delete_with_ts(db, setup.write, at(b"a"), 1, at(&time(4)), SIZE, e));
        rocksdb_close(db);
        let (path, name) = (setup.path("db"), c"default".as_ptr());
        let trimmed = |handle: &mut H, mut ts: Vec<u8>, e: E| {
            let (names, options, ts_at) = (&raw const name, &raw const setup.options, ts.as_mut_ptr());
            let (path, length) = (path.as_ptr(), ts.len());
            rocksdb_open_and_trim_history(
                setup.options,
                path,
                1,
                names,
                options,
                handle,
                ts_at.cast(),
                length,
                e,
            )
        };
        let mut handle = null_mut();
        let told = failed(|e| trimmed(&mut handle, vec![1; 3], e));
        assert!(told.starts_with("Invalid argument: ") && handle.is_null(), "{told}");
        let db = ok(|e| trimmed(&mut handle, time(3).to_vec(), e));
        assert_eq!((setup.get_at(db, b"a", 9), setup.get_at(db, b"b", 9)), (timed(b"one", 1), None));
        setup.put_at(db, b"b", 4, b"anew");
        rocksdb_column_family_handle_destroy(handle);
        rocksdb_close(db);
        let db = setup.open();
        assert_eq!(
            (setup.get_at(db, b"a", 9), setup.get_at(db, b"b", 9)),
            (timed(b"one", 1), timed(b"anew", 4))
        );
        rocksdb_close(db);
    }
}

/// A `TransactionDb` whose default column family has timestamps.
struct Timeline<'a> {
    setup: &'a Setup,
    db: H,
    begin: H,
}

impl Timeline<'_> {
    unsafe fn opened(setup: &Setup, validates: bool) -> Timeline<'_> {
        unsafe {
            let settings = rocksdb_transactiondb_options_create();
            assert_eq!(rocksdb_transactiondb_options_get_enable_udt_validation(settings), 1);
            rocksdb_transactiondb_options_set_enable_udt_validation(settings, validates.into());
            assert_eq!(rocksdb_transactiondb_options_get_enable_udt_validation(settings), validates.into());
            let path = setup.path("db");
            let db = ok(|e| rocksdb_transactiondb_open(setup.options, settings, path.as_ptr(), e));
            rocksdb_transactiondb_options_destroy(settings);
            Timeline { setup, db, begin: rocksdb_transaction_options_create() }
        }
    }

    unsafe fn begin(&self) -> H {
        unsafe { rocksdb_transaction_begin(self.db, self.setup.write, self.begin, null_mut()) }
    }

    unsafe fn put(&self, transaction: H, key: &[u8; 1], value: &[u8; 1]) {
        unsafe { ok(|e| rocksdb_transaction_put(transaction, at(key), 1, at(value), 1, e)) }
    }

    /// Returns the value of a key that a transaction reads at a timestamp.
    unsafe fn seen(&self, transaction: H, key: &[u8; 1], at_time: u64) -> Option<Vec<u8>> {
        self.setup.read_at(at_time);
        let mut length = 0;
        unsafe {
            let value =
                ok(|e| rocksdb_transaction_get(transaction, self.setup.read, at(key), 1, &mut length, e));
            owned(value, length)
        }
    }

    unsafe fn get(&self, key: &[u8; 1], at_time: u64) -> Option<Vec<u8>> {
        self.setup.read_at(at_time);
        let mut length = 0;
        unsafe {
            let value =
                ok(|e| rocksdb_transactiondb_get(self.db, self.setup.read, at(key), 1, &mut length, e));
            owned(value, length)
        }
    }

    /// Reads for update without a timestamp in the options.
    unsafe fn for_update(&self, transaction: H, key: &[u8; 1], e: E) -> *mut c_char {
        let mut length = 0;
        unsafe {
            rocksdb_readoptions_set_timestamp(self.setup.read, null(), 0);
            rocksdb_transaction_get_for_update(transaction, self.setup.read, at(key), 1, &mut length, 1, e)
        }
    }

    unsafe fn close(self) {
        unsafe {
            rocksdb_transaction_options_destroy(self.begin);
            rocksdb_transactiondb_close(self.db);
        }
    }
}

#[test]
fn transactions_commit_at_timestamps() {
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    unsafe {
        let line = Timeline::opened(&setup, true);
        let first = line.begin();
        line.put(first, b"k", b"1");
        assert_eq!(line.seen(first, b"k", 1).unwrap(), b"1");
        assert!(failed(|e| rocksdb_transaction_commit(first, e)).starts_with("Invalid argument: "));
        rocksdb_transaction_set_commit_timestamp(first, 5);
        ok(|e| rocksdb_transaction_commit(first, e));
        rocksdb_transaction_destroy(first);
        assert_eq!((line.get(b"k", 4), line.get(b"k", 5)), (None, Some(b"1".to_vec())));
        let put = |e| rocksdb_transactiondb_put(line.db, setup.write, at(b"k"), 1, at(b"2"), 1, e);
        assert!(failed(put).starts_with("Not implemented: "));

        // An iterator shows both entries; the uncommitted one has no timestamp.
        let second = line.begin();
        line.put(second, b"l", b"2");
        setup.read_at(9);
        let iter = rocksdb_transaction_create_iterator(second, setup.read);
        rocksdb_iter_seek_to_first(iter);
        for (key, stamp) in [(b"k", &time(5)[..]), (b"l", &[])] {
            let shown = rocksdb_iter_timestamp_slice(iter);
            let mut length = 0;
            let name = rocksdb_iter_key(iter, &mut length);
            assert_eq!((read(name, length), read(shown.0, shown.1)), (&key[..], stamp));
            rocksdb_iter_next(iter);
        }
        rocksdb_iter_destroy(iter);

        // A commit later than the read timestamp is a conflict, until that is raised.
        rocksdb_transaction_set_read_timestamp_for_validation(second, 4);
        assert!(failed(|e| line.for_update(second, b"k", e)).starts_with("Resource busy: "));
        rocksdb_transaction_set_read_timestamp_for_validation(second, 7);
        let value = ok(|e| line.for_update(second, b"k", e));
        assert_eq!(owned(value, 1).unwrap(), b"1");
        // A commit timestamp not above the read timestamp, and a lower read timestamp, are refused
        // silently.
        rocksdb_transaction_set_commit_timestamp(second, 7);
        assert!(failed(|e| rocksdb_transaction_commit(second, e)).starts_with("Invalid argument: "));
        rocksdb_transaction_set_read_timestamp_for_validation(second, 3);
        rocksdb_transaction_set_commit_timestamp(second, 4);
        assert!(failed(|e| rocksdb_transaction_commit(second, e)).starts_with("Invalid argument: "));

        // Both timestamps outlive a rollback.
        rocksdb_transaction_set_commit_timestamp(second, 8);
        ok(|e| rocksdb_transaction_rollback(second, e));
        line.put(second, b"m", b"3");
        ok(|e| rocksdb_transaction_commit(second, e));
        rocksdb_transaction_destroy(second);
        assert_eq!((line.get(b"m", 7), line.get(b"m", 8)), (None, Some(b"3".to_vec())));
        assert_eq!(line.get(b"l", 9), None);

        // Prepared in one process, committed after the next open.
        let third = line.begin();
        ok(|e| rocksdb_transaction_set_name(third, c"third".as_ptr(), 5, e));
        line.put(third, b"n", b"4");
        ok(|e| rocksdb_transaction_prepare(third, e));
        rocksdb_transaction_destroy(third);
        line.close();
        let line = Timeline::opened(&setup, false);
        let mut count = 0;
        let found = rocksdb_transactiondb_get_prepared_transactions(line.db, &mut count);
        assert_eq!(count, 1);
        let third = *found;
        rocksdb_free(found.cast());
        assert!(failed(|e| rocksdb_transaction_commit(third, e)).starts_with("Invalid argument: "));
        rocksdb_transaction_set_commit_timestamp(third, 9);
        ok(|e| rocksdb_transaction_commit(third, e));
        rocksdb_transaction_destroy(third);
        assert_eq!((line.get(b"n", 8), line.get(b"n", 9)), (None, Some(b"4".to_vec())));

        // This database was opened without validation.
        let fourth = line.begin();
        let value = ok(|e| line.for_update(fourth, b"n", e));
        assert_eq!(owned(value, 1).unwrap(), b"4");
        rocksdb_transaction_set_read_timestamp_for_validation(fourth, 3);
        assert!(failed(|e| line.for_update(fourth, b"n", e)).starts_with("Invalid argument: "));
        rocksdb_transaction_destroy(fourth);
        line.close();
    }
}

#[test]
fn a_batch_with_an_index_gets_timestamps() {
    unsafe extern "C" fn eight(_: H, _: u32) -> usize {
        SIZE
    }
    let ended = AtomicUsize::new(0);
    let setup = timed_setup(&ended);
    let order = unsafe {
        let state = std::ptr::from_ref(&ended).cast_mut().cast();
        let (times, bare) = (Some(compare_times as Compare), Some(compare_bare as CompareBare));
        rocksdb_comparator_with_ts_create(state, Some(end), compare, times, bare, name, SIZE)
    };
    unsafe {
        let db = setup.open();
        let batch = rocksdb_writebatch_wi_create_with_params(order, 0, 1, 0, 0);
        rocksdb_writebatch_wi_put(batch, at(b"k"), 1, at(b"v"), 1);
        let write = |e| rocksdb_write_writebatch_wi(db, setup.write, batch, e);
        assert!(failed(write).starts_with("Invalid argument: "), "it has no timestamps yet");
        let short =
            |e| rocksdb_writebatch_wi_update_timestamps(batch, at(b"t"), 1, null_mut(), Some(eight), e);
        assert!(failed(short).starts_with("Invalid argument: "));
        let ts = time(6);
        let stamp =
            |e| rocksdb_writebatch_wi_update_timestamps(batch, at(&ts), SIZE, null_mut(), Some(eight), e);
        ok(stamp);
        ok(write);
        rocksdb_writebatch_wi_destroy(batch);
        rocksdb_comparator_destroy(order);
        assert_eq!((setup.get_at(db, b"k", 5), setup.get_at(db, b"k", 6)), (None, timed(b"v", 6)));
        rocksdb_close(db);
    }
}

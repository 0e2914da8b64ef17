//! Asynchronous calls through the exported C functions.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block is a call of the API on handles it gave out"
)]

mod ended_within;

use libc::{c_char, c_int, c_uchar, c_void};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! api {
    ($(fn $name:ident($($arg:ident : $type:ty),*) $(-> $ret:ty)?;)*) => {
        unsafe extern "C" { $(fn $name($($arg: $type),*) $(-> $ret)?;)* }
    };
}

type H = *mut c_void;
type E = *mut *mut c_char;
type B = *const c_char;

#[derive(Clone, Copy)]
#[repr(C)]
struct Completion {
    op: H,
    user_data: H,
    status: c_int,
    message: B,
    key: B,
    key_length: usize,
    value: B,
    value_length: usize,
    count: usize,
}

#[repr(C)]
struct Notify {
    queue: H,
    callback: Option<unsafe extern "C" fn(*const Completion)>,
    user_data: H,
}

api! {
    fn rocksdb_options_create() -> H;
    fn rocksdb_options_destroy(o: H);
    fn rocksdb_options_set_create_if_missing(o: H, v: c_uchar);
    fn rocksdb_options_set_compression(o: H, v: c_int);
    fn rocksdb_options_set_block_based_table_factory(o: H, t: H);
    fn rocksdb_block_based_options_create() -> H;
    fn rocksdb_block_based_options_destroy(o: H);
    fn rocksdb_block_based_options_set_no_block_cache(o: H, v: c_uchar);
    fn rocksdb_open(o: H, name: B, e: E) -> H;
    fn rocksdb_close(db: H);
    fn rocksdb_put(db: H, o: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_get(db: H, o: H, k: B, kn: usize, vn: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_free(p: *mut c_void);
    fn rocksdb_flush(db: H, o: H, e: E);
    fn rocksdb_flushoptions_create() -> H;
    fn rocksdb_flushoptions_destroy(o: H);
    fn rocksdb_writeoptions_create() -> H;
    fn rocksdb_writeoptions_destroy(o: H);
    fn rocksdb_readoptions_create() -> H;
    fn rocksdb_readoptions_destroy(o: H);
    fn rocksdb_readoptions_set_read_tier(o: H, t: c_int);
    fn rocksdb_writebatch_create() -> H;
    fn rocksdb_writebatch_destroy(b: H);
    fn rocksdb_writebatch_put(b: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_count(b: H) -> c_int;
    fn rocksdb_transactiondb_options_create() -> H;
    fn rocksdb_transactiondb_options_destroy(o: H);
    fn rocksdb_transactiondb_options_set_default_lock_timeout(o: H, v: i64);
    fn rocksdb_transactiondb_open(o: H, t: H, n: B, e: E) -> H;
    fn rocksdb_transactiondb_close(db: H);
    fn rocksdb_transactiondb_get_base_db(db: H) -> H;
    fn rocksdb_transactiondb_close_base_db(db: H);
    fn rocksdb_transaction_options_create() -> H;
    fn rocksdb_transaction_options_destroy(o: H);
    fn rocksdb_transaction_begin(db: H, w: H, t: H, old: H) -> H;
    fn rocksdb_optimistictransactiondb_open(o: H, n: B, e: E) -> H;
    fn rocksdb_optimistictransactiondb_close(db: H);
    fn rocksdb_optimistictransactiondb_get_base_db(db: H) -> H;
    fn rocksdb_optimistictransactiondb_close_base_db(db: H);
    fn rocksdb_optimistictransaction_begin(db: H, w: H, t: H, old: H) -> H;
    fn rocksdb_transaction_commit(t: H, e: E);
    fn rocksdb_transaction_put(t: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_transaction_get_for_update(t: H, o: H, k: B, kn: usize, vn: *mut usize, exclusive: c_uchar, e: E) -> *mut c_char;
    fn rocksdb_transaction_rollback(t: H, e: E);
    fn rocksdb_transaction_destroy(t: H);

    fn karst_reactor_create(db: H, threads: u32, e: E) -> H;
    fn karst_reactor_destroy(r: H, e: E);
    fn karst_reactor_poll(r: H) -> i64;
    fn karst_reactor_run(r: H, timeout: i64) -> i64;
    fn karst_completion_queue_create() -> H;
    fn karst_completion_queue_destroy(q: H);
    fn karst_completion_queue_fd(q: H) -> c_int;
    fn karst_completion_queue_poll(q: H, max: usize, out: *mut Completion) -> usize;
    fn karst_completion_queue_wait(q: H, max: usize, out: *mut Completion, timeout: i64) -> usize;
    fn karst_completion_queue_outstanding(q: H) -> usize;
    fn karst_op_cancel(op: H);
    fn karst_op_release(op: H);
    fn karst_op_result(op: H, index: usize, value: *mut B, length: *mut usize, message: *mut B) -> c_int;
    fn karst_op_take_transaction(op: H) -> H;
    fn karst_get_async(r: H, db: H, o: H, cf: H, k: B, kn: usize, n: *const Notify) -> H;
    fn karst_multi_get_async(r: H, db: H, o: H, cfs: *const H, count: usize, ks: *const B, kns: *const usize, n: *const Notify) -> H;
    fn karst_write_async(r: H, db: H, o: H, b: H, n: *const Notify) -> H;
    fn karst_transaction_commit_async(r: H, t: H, n: *const Notify) -> H;
    fn karst_iter_create(db: H, o: H, cf: H, e: E) -> H;
    fn karst_transaction_iter_create(t: H, o: H, cf: H, e: E) -> H;
    fn karst_iter_destroy(i: H);
    fn karst_iter_valid(i: H) -> c_uchar;
    fn karst_iter_key(i: H, n: *mut usize) -> B;
    fn karst_iter_value(i: H, n: *mut usize) -> B;
    fn karst_iter_seek_async(r: H, i: H, k: B, kn: usize, n: *const Notify) -> H;
    fn karst_iter_seek_for_prev_async(r: H, i: H, k: B, kn: usize, n: *const Notify) -> H;
    fn karst_iter_seek_to_first_async(r: H, i: H, n: *const Notify) -> H;
    fn karst_iter_seek_to_last_async(r: H, i: H, n: *const Notify) -> H;
    fn karst_iter_next_async(r: H, i: H, n: *const Notify) -> H;
    fn karst_iter_prev_async(r: H, i: H, n: *const Notify) -> H;
}

const OK: c_int = 0;
const INVALID_ARGUMENT: c_int = 4;
const INCOMPLETE: c_int = 7;
const SHUTDOWN_IN_PROGRESS: c_int = 8;
const TIMED_OUT: c_int = 9;
const BUSY: c_int = 11;
const CANCELLED: c_int = 100;

const KEYS: u32 = 2000;

// Without a use of the crate the linker would drop its symbols.
#[test]
fn the_functions_are_listed() {
    assert!(karst_capi::asynchronous().contains(&"karst_get_async"));
}

fn ok<T>(call: impl FnOnce(E) -> T) -> T {
    let mut error = null_mut();
    let value = call(&mut error);
    assert!(error.is_null(), "{:?}", unsafe { CStr::from_ptr(error) });
    value
}

fn failed<T>(call: impl FnOnce(E) -> T) -> String {
    let mut error = null_mut();
    call(&mut error);
    assert!(!error.is_null(), "the call succeeded");
    let text = unsafe { CStr::from_ptr(error) }.to_str().unwrap().to_owned();
    unsafe { rocksdb_free(error.cast()) };
    text
}

fn at(bytes: &[u8]) -> B {
    bytes.as_ptr().cast()
}

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn value(i: u32) -> Vec<u8> {
    [&key(i)[..], &[7; 300]].concat()
}

/// A database in files, without a block cache, so that reads wait.
struct Setup {
    directory: tempfile::TempDir,
    db: H,
    read: H,
    write: H,
}

impl Setup {
    fn options() -> H {
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_compression(options, 0);
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_no_block_cache(table, 1);
            rocksdb_options_set_block_based_table_factory(options, table);
            rocksdb_block_based_options_destroy(table);
            options
        }
    }

    fn new() -> Setup {
        let directory = tempfile::tempdir().unwrap();
        let path = CString::new(directory.path().join("db").to_str().unwrap()).unwrap();
        unsafe {
            let options = Self::options();
            let db = ok(|e| rocksdb_open(options, path.as_ptr(), e));
            rocksdb_options_destroy(options);
            let (read, write) = (rocksdb_readoptions_create(), rocksdb_writeoptions_create());
            for i in 0..KEYS {
                ok(|e| rocksdb_put(db, write, at(&key(i)), 4, at(&value(i)), value(i).len(), e));
            }
            let flush = rocksdb_flushoptions_create();
            ok(|e| rocksdb_flush(db, flush, e));
            rocksdb_flushoptions_destroy(flush);
            Setup { directory, db, read, write }
        }
    }

    fn path(&self, name: &str) -> CString {
        CString::new(self.directory.path().join(name).to_str().unwrap()).unwrap()
    }

    fn reactor(&self, threads: u32) -> H {
        ok(|e| unsafe { karst_reactor_create(self.db, threads, e) })
    }

    fn get(&self, reactor: H, i: u32, notify: &Notify) -> H {
        let key = key(i);
        let op = unsafe { karst_get_async(reactor, self.db, self.read, null_mut(), at(&key), 4, notify) };
        assert!(!op.is_null());
        op
    }

    fn close(&mut self) {
        unsafe { rocksdb_close(std::mem::replace(&mut self.db, null_mut())) }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.close();
        unsafe {
            rocksdb_readoptions_destroy(self.read);
            rocksdb_writeoptions_destroy(self.write);
        }
    }
}

/// A queue and the threads that run its operations: the reactor's or this one.
struct Queue {
    queue: H,
    /// The reactor to poll; null if it has threads.
    polled: H,
}

impl Queue {
    fn new(reactor: H, threads: u32) -> Queue {
        let queue = unsafe { karst_completion_queue_create() };
        Queue { queue, polled: if threads == 0 { reactor } else { null_mut() } }
    }

    fn tagged(&self, tag: usize) -> Notify {
        Notify { queue: self.queue, callback: None, user_data: tag as H }
    }

    /// Waits for completions, and returns at least one.
    fn some(&self) -> Vec<Completion> {
        let mut out = Vec::with_capacity(64);
        let count = unsafe {
            if self.polled.is_null() {
                karst_completion_queue_wait(self.queue, 64, out.as_mut_ptr(), 60_000_000)
            } else {
                loop {
                    let count = karst_completion_queue_poll(self.queue, 64, out.as_mut_ptr());
                    if count > 0 {
                        break count;
                    }
                    assert!(karst_reactor_run(self.polled, 60_000_000) > 0, "nothing completes");
                }
            }
        };
        assert!(count > 0, "nothing completes");
        unsafe { out.set_len(count) };
        out
    }

    fn one(&self) -> Completion {
        let some = self.some();
        assert_eq!(some.len(), 1);
        some[0]
    }

    fn destroy(self) {
        unsafe { karst_completion_queue_destroy(self.queue) }
    }
}

fn bytes(data: B, length: usize) -> Option<Vec<u8>> {
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec())
}

fn message(completion: &Completion) -> String {
    assert!(!completion.message.is_null());
    unsafe { CStr::from_ptr(completion.message) }.to_str().unwrap().to_owned()
}

/// Runs a test with a reactor of 0, 1 and 2 threads; this thread polls the first.
fn with_both(test: impl Fn(&mut Setup, H, u32)) {
    for threads in [0, 1, 2] {
        let mut setup = Setup::new();
        let reactor = setup.reactor(threads);
        test(&mut setup, reactor, threads);
        ok(|e| unsafe { karst_reactor_destroy(reactor, e) });
    }
}

#[test]
fn gets_bring_values_and_misses_and_errors() {
    with_both(|setup, reactor, threads| unsafe {
        let queue = Queue::new(reactor, threads);
        for i in [0, 17, KEYS - 1] {
            let op = setup.get(reactor, i, &queue.tagged(i as usize));
            let done = queue.one();
            assert_eq!((done.op, done.user_data as u32, done.status, done.count), (op, i, OK, 1));
            assert!(done.message.is_null() && done.key.is_null());
            assert_eq!(bytes(done.value, done.value_length), Some(value(i)));
            let (mut data, mut length, mut text) = (null(), 0, null());
            assert_eq!(karst_op_result(op, 0, &mut data, &mut length, &mut text), OK);
            assert_eq!((data, length, text.is_null()), (done.value, done.value_length, true));
            assert_eq!(karst_op_result(op, 1, null_mut(), null_mut(), null_mut()), INVALID_ARGUMENT);
            karst_op_release(op);
        }
        setup.get(reactor, KEYS, &queue.tagged(0));
        let done = queue.one();
        assert_eq!((done.status, done.value, done.value_length), (OK, null(), 0));
        karst_op_release(done.op);

        let cached = rocksdb_readoptions_create();
        rocksdb_readoptions_set_read_tier(cached, 1);
        karst_get_async(reactor, setup.db, cached, null_mut(), at(&key(3)), 4, &queue.tagged(0));
        rocksdb_readoptions_destroy(cached); // no longer needed
        let done = queue.one();
        assert_eq!((done.status, done.value), (INCOMPLETE, null()));
        assert!(message(&done).starts_with("Result incomplete: "), "{}", message(&done));
        karst_op_release(done.op);

        karst_get_async(reactor, null_mut(), null_mut(), null_mut(), at(b"k"), 1, &queue.tagged(5));
        let done = queue.one();
        assert_eq!((done.status, done.user_data as usize), (INVALID_ARGUMENT, 5));
        karst_op_release(done.op);

        let nowhere = Notify { queue: null_mut(), callback: None, user_data: null_mut() };
        for (reactor, notify) in
            [(null_mut(), &raw const nowhere), (reactor, null()), (reactor, &raw const nowhere)]
        {
            assert!(
                karst_get_async(reactor, setup.db, setup.read, null_mut(), at(b"k"), 1, notify).is_null()
            );
        }
        queue.destroy();
    });
}

#[test]
fn multi_gets_answer_for_each_key_and_writes_take_the_batch() {
    with_both(|setup, reactor, threads| unsafe {
        let queue = Queue::new(reactor, threads);
        let batch = rocksdb_writebatch_create();
        rocksdb_writebatch_put(batch, at(b"new"), 3, at(b""), 0);
        karst_write_async(reactor, setup.db, setup.write, batch, &queue.tagged(1));
        assert_eq!(rocksdb_writebatch_count(batch), 0);
        rocksdb_writebatch_destroy(batch);
        let done = queue.one();
        assert_eq!((done.status, done.count), (OK, 0));
        karst_op_release(done.op);

        let keys = [key(5).to_vec(), b"none".to_vec(), b"new".to_vec(), key(1999).to_vec()];
        let (pointers, lengths): (Vec<B>, Vec<usize>) = keys.iter().map(|key| (at(key), key.len())).unzip();
        karst_multi_get_async(
            reactor,
            setup.db,
            null_mut(),
            null(),
            4,
            pointers.as_ptr(),
            lengths.as_ptr(),
            &queue.tagged(2),
        );
        let done = queue.one();
        assert_eq!((done.status, done.count), (OK, 4));
        let found: Vec<_> = (0..4)
            .map(|index| {
                let (mut data, mut length) = (null(), 0);
                assert_eq!(karst_op_result(done.op, index, &mut data, &mut length, null_mut()), OK);
                bytes(data, length)
            })
            .collect();
        assert_eq!(found, [Some(value(5)), None, Some(vec![]), Some(value(1999))]);
        karst_op_release(done.op);
        queue.destroy();
    });
}

/// Tag, status and value of a completion.
type Called = (usize, c_int, Option<Vec<u8>>);

static CALLED: Mutex<Vec<Called>> = Mutex::new(Vec::new());

unsafe extern "C" fn called(done: *const Completion) {
    let done = unsafe { *done };
    let found = bytes(done.value, done.value_length);
    CALLED.lock().unwrap().push((done.user_data as usize, done.status, found));
    unsafe { karst_op_release(done.op) };
}

#[test]
fn callbacks_are_called_once_each() {
    with_both(|setup, reactor, threads| {
        CALLED.lock().unwrap().clear();
        for i in 0..300 {
            let notify = Notify { queue: null_mut(), callback: Some(called), user_data: i as H };
            setup.get(reactor, i, &notify);
        }
        while CALLED.lock().unwrap().len() < 300 {
            match threads {
                0 => assert!(unsafe { karst_reactor_run(reactor, -1) } > 0),
                _ => std::thread::yield_now(),
            }
        }
        let mut all = std::mem::take(&mut *CALLED.lock().unwrap());
        all.sort();
        let wanted: Vec<_> = (0..300).map(|i| (i as usize, OK, Some(value(i)))).collect();
        assert!(all == wanted);
    });
}

#[test]
fn iterators_move_both_ways_and_one_operation_at_a_time() {
    with_both(|setup, reactor, threads| unsafe {
        let queue = Queue::new(reactor, threads);
        let it = ok(|e| karst_iter_create(setup.db, setup.read, null_mut(), e));
        let arrived = |wanted: Option<u32>| {
            let done = queue.one();
            assert_eq!(done.status, OK);
            assert_eq!(bytes(done.key, done.key_length), wanted.map(|i| key(i).to_vec()));
            assert_eq!(bytes(done.value, done.value_length), wanted.map(value));
            let mut length = 0;
            assert_eq!(karst_iter_valid(it), wanted.is_some().into());
            assert_eq!(bytes(karst_iter_key(it, &mut length), length), wanted.map(|i| key(i).to_vec()));
            assert_eq!(bytes(karst_iter_value(it, &mut length), length), wanted.map(value));
            karst_op_release(done.op);
        };
        let tag = queue.tagged(0);
        karst_iter_next_async(reactor, it, &tag); // before any seek
        let done = queue.one();
        assert_eq!(done.status, INVALID_ARGUMENT);
        karst_op_release(done.op);
        karst_iter_seek_async(reactor, it, at(&key(7)), 4, &tag);
        arrived(Some(7));
        karst_iter_next_async(reactor, it, &tag);
        arrived(Some(8));
        karst_iter_prev_async(reactor, it, &tag);
        arrived(Some(7));
        karst_iter_seek_for_prev_async(reactor, it, at(b"\0\0\0\x09!"), 5, &tag);
        arrived(Some(9));
        karst_iter_seek_to_last_async(reactor, it, &tag);
        arrived(Some(KEYS - 1));
        karst_iter_next_async(reactor, it, &tag);
        arrived(None);
        karst_iter_seek_to_first_async(reactor, it, &tag);
        arrived(Some(0));
        karst_iter_destroy(it);
        queue.destroy();
    });
}

#[test]
fn an_iterator_that_is_moved_refuses_everything_else() {
    let setup = Setup::new();
    let reactor = setup.reactor(0);
    let queue = Queue::new(reactor, 0);
    unsafe {
        let it = ok(|e| karst_iter_create(setup.db, setup.read, null_mut(), e));
        karst_iter_seek_async(reactor, it, at(&key(7)), 4, &queue.tagged(1));
        karst_op_release(queue.one().op);
        assert_eq!(karst_iter_valid(it), 1);

        // Not polled: the operation stays outstanding.
        karst_iter_next_async(reactor, it, &queue.tagged(2));
        let mut length = 9;
        assert_eq!(karst_iter_valid(it), 0);
        assert_eq!((karst_iter_key(it, &mut length), length), (null(), 0));
        assert!(karst_iter_value(it, &mut length).is_null());
        karst_iter_seek_async(reactor, it, at(&key(9)), 4, &queue.tagged(3));
        karst_iter_destroy(it); // the outstanding operation continues
        let mut ended = HashMap::new();
        while ended.len() < 2 {
            for done in queue.some() {
                ended.insert(done.user_data as usize, (done.status, bytes(done.key, done.key_length)));
                karst_op_release(done.op);
            }
        }
        assert_eq!(ended[&2], (OK, Some(key(8).to_vec())));
        assert_eq!(ended[&3], (BUSY, None));

        // After a cancelled move the iterator is on no entry, and can be moved.
        let it = ok(|e| karst_iter_create(setup.db, setup.read, null_mut(), e));
        let op = karst_iter_seek_async(reactor, it, at(&key(7)), 4, &queue.tagged(4));
        karst_op_cancel(op);
        let done = queue.one();
        assert_eq!((done.status, karst_iter_valid(it)), (CANCELLED, 0));
        karst_op_release(done.op);
        karst_iter_seek_async(reactor, it, at(&key(7)), 4, &queue.tagged(5));
        let done = queue.one();
        assert_eq!((done.status, karst_iter_valid(it)), (OK, 1));
        karst_op_release(done.op);
        karst_iter_destroy(it);
        queue.destroy();
        ok(|e| karst_reactor_destroy(reactor, e));
    }
}

/// Pseudo-random numbers from a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

#[test]
fn ten_thousand_operations_complete_once_each_whenever_they_are_cancelled() {
    const OPERATIONS: usize = 10_000;
    with_both(|setup, reactor, threads| unsafe {
        let queue = Queue::new(reactor, threads);
        let mut numbers = Numbers(u64::from(threads) + 1);
        // Operations in flight: handle, true if it is to be cancelled (half of them), true if it
        // was. The time of the cancelling depends on the machine.
        let mut flying: HashMap<usize, (H, bool, bool)> = HashMap::new();
        let (mut begun, mut cancelled, mut found) = (0, 0, 0);
        let iterators: Vec<H> =
            (0..8).map(|_| ok(|e| karst_iter_create(setup.db, setup.read, null_mut(), e))).collect();
        let batch = rocksdb_writebatch_create();
        while begun < OPERATIONS || !flying.is_empty() {
            while begun < OPERATIONS && flying.len() < 100 {
                let (tag, i) = (queue.tagged(begun), numbers.next() as u32 % KEYS);
                let (k, it) = (key(i), iterators[numbers.next() as usize % 8]);
                let op = match numbers.next() % 10 {
                    0 => karst_iter_seek_async(reactor, it, at(&k), 4, &tag),
                    1 => karst_iter_next_async(reactor, it, &tag),
                    2 => {
                        rocksdb_writebatch_put(batch, at(&k), 4, at(&value(i)), value(i).len());
                        karst_write_async(reactor, setup.db, setup.write, batch, &tag)
                    }
                    3 => {
                        let (keys, lengths) = ([at(&k), at(b"none")], [4, 4]);
                        karst_multi_get_async(
                            reactor,
                            setup.db,
                            null_mut(),
                            null(),
                            2,
                            keys.as_ptr(),
                            lengths.as_ptr(),
                            &tag,
                        )
                    }
                    _ => setup.get(reactor, i, &tag),
                };
                assert!(!op.is_null());
                flying.insert(begun, (op, numbers.next().is_multiple_of(2), false));
                begun += 1;
            }
            for (op, is_to_be, was_cancelled) in flying.values_mut() {
                if *is_to_be && !*was_cancelled && numbers.next().is_multiple_of(8) {
                    karst_op_cancel(*op);
                    *was_cancelled = true;
                }
            }
            for done in queue.some() {
                let (op, _, was_cancelled) =
                    flying.remove(&(done.user_data as usize)).expect("completed once");
                assert_eq!(op, done.op);
                match done.status {
                    OK => found += 1,
                    CANCELLED => {
                        assert!(was_cancelled, "nobody cancelled it");
                        assert!(done.value.is_null() && done.key.is_null());
                        cancelled += 1;
                    }
                    // Another operation holds the iterator, or the iterator is on no entry.
                    BUSY | INVALID_ARGUMENT => {}
                    other => panic!("{other}: {}", message(&done)),
                }
                karst_op_release(op);
            }
        }
        assert!(found > 1000 && cancelled > 0, "{found} found, {cancelled} cancelled");
        assert_eq!(karst_completion_queue_outstanding(queue.queue), 0);
        iterators.into_iter().for_each(|it| karst_iter_destroy(it));
        rocksdb_writebatch_destroy(batch);
        queue.destroy();
        // The writes stored the values that the keys already had.
        for i in 0..KEYS {
            let mut length = 0;
            let found = ok(|e| rocksdb_get(setup.db, setup.read, at(&key(i)), 4, &mut length, e));
            assert_eq!(bytes(found, length), Some(value(i)));
            rocksdb_free(found.cast());
        }
    });
}

#[test]
fn the_descriptor_is_readable_while_there_are_completions() {
    let setup = Setup::new();
    let reactor = setup.reactor(1);
    let queue = Queue::new(reactor, 1);
    let readable = |fd, timeout| unsafe {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        libc::poll(&mut poll, 1, timeout) == 1
    };
    unsafe {
        setup.get(reactor, 1, &queue.tagged(1));
        while karst_completion_queue_outstanding(queue.queue) > 0 {
            let fd = karst_completion_queue_fd(queue.queue);
            assert_eq!(fd, karst_completion_queue_fd(queue.queue));
            assert!(readable(fd, 60_000));
            karst_op_release(queue.one().op);
            assert!(!readable(fd, 0));
        }
        let fd = karst_completion_queue_fd(queue.queue);
        for i in 0..3 {
            setup.get(reactor, i, &queue.tagged(1));
        }
        for _ in 0..3 {
            assert!(readable(fd, 60_000));
            let mut done = std::mem::MaybeUninit::<Completion>::uninit();
            assert_eq!(karst_completion_queue_poll(queue.queue, 1, done.as_mut_ptr()), 1);
            karst_op_release(done.assume_init().op);
        }
        assert!(!readable(fd, 0));
        let mut none = std::mem::MaybeUninit::<Completion>::uninit();
        assert_eq!(karst_completion_queue_poll(queue.queue, 1, none.as_mut_ptr()), 0);
        assert_eq!(karst_completion_queue_wait(queue.queue, 1, none.as_mut_ptr(), 1000), 0);
        queue.destroy();
        ok(|e| karst_reactor_destroy(reactor, e));
    }
}

#[test]
fn a_queue_may_be_destroyed_with_operations_outstanding() {
    with_both(|setup, reactor, threads| unsafe {
        for round in 0..20 {
            let queue = Queue::new(reactor, threads);
            for i in 0..50 {
                let op = setup.get(reactor, i, &queue.tagged(i as usize));
                if (i + round) % 3 == 0 {
                    karst_op_cancel(op);
                }
            }
            if round % 2 == 0 {
                queue.some().into_iter().for_each(|done| karst_op_release(done.op));
            }
            queue.destroy();
        }
        // The reactor still runs.
        let queue = Queue::new(reactor, threads);
        setup.get(reactor, 3, &queue.tagged(3));
        let done = queue.one();
        assert_eq!((done.status, done.user_data as usize), (OK, 3));
        karst_op_release(done.op);
        queue.destroy();
    });
}

#[test]
fn a_database_may_be_closed_with_operations_outstanding() {
    with_both(|setup, reactor, threads| unsafe {
        let queue = Queue::new(reactor, threads);
        let it = ok(|e| karst_iter_create(setup.db, setup.read, null_mut(), e));
        let batch = rocksdb_writebatch_create();
        for i in 0..100 {
            setup.get(reactor, i, &queue.tagged(i as usize));
        }
        karst_iter_seek_async(reactor, it, at(&key(7)), 4, &queue.tagged(100));
        rocksdb_writebatch_put(batch, at(b"late"), 4, at(b"v"), 1);
        karst_write_async(reactor, setup.db, setup.write, batch, &queue.tagged(101));
        setup.close();
        let mut ended = 0;
        while ended < 102 {
            for done in queue.some() {
                assert!([OK, SHUTDOWN_IN_PROGRESS].contains(&done.status), "{}", message(&done));
                if done.status == OK && done.count == 1 {
                    assert_eq!(bytes(done.value, done.value_length), Some(value(done.user_data as u32)));
                }
                karst_op_release(done.op);
                ended += 1;
            }
        }
        // An iterator and a value may outlive the database; later operations are refused.
        karst_iter_seek_async(reactor, it, at(&key(7)), 4, &queue.tagged(0));
        let done = queue.one();
        assert!([OK, SHUTDOWN_IN_PROGRESS].contains(&done.status), "{}", done.status);
        karst_op_release(done.op);
        karst_iter_destroy(it);
        rocksdb_writebatch_destroy(batch);
        queue.destroy();
    });
}

/// A reactor and a database for a chain of reads.
struct Again {
    reactor: H,
    db: H,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

unsafe extern "C" fn begins_another(done: *const Completion) {
    unsafe {
        let done = *done;
        let again = &*done.user_data.cast::<Again>();
        again.ended.fetch_add(1, Ordering::SeqCst);
        karst_op_release(done.op);
        let notify = Notify { queue: null_mut(), callback: Some(begins_another), user_data: done.user_data };
        let k = key(7);
        let op = karst_get_async(again.reactor, again.db, null_mut(), null_mut(), at(&k), 4, &notify);
        again.begun.fetch_add(usize::from(!op.is_null()), Ordering::SeqCst);
    }
}

#[test]
fn a_reactor_ends_though_callbacks_go_on_beginning_operations() {
    for threads in [0, 1, 2] {
        let setup = Setup::new();
        let reactor = setup.reactor(threads);
        let again = Again { reactor, db: setup.db, begun: AtomicUsize::new(0), ended: AtomicUsize::new(0) };
        let user_data = (&raw const again).cast_mut().cast();
        for i in 0..50 {
            setup.get(reactor, i, &Notify { queue: null_mut(), callback: Some(begins_another), user_data });
        }
        while again.ended.load(Ordering::SeqCst) < 100 {
            match threads {
                0 => assert!(unsafe { karst_reactor_run(reactor, -1) } > 0),
                _ => std::thread::yield_now(),
            }
        }
        ok(|e| unsafe { karst_reactor_destroy(reactor, e) });
        let (begun, ended) = (again.begun.into_inner(), again.ended.into_inner());
        assert_eq!(begun + 50, ended);
    }
}

static ENDED_BY_REACTOR: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn cancelled_by_reactor(done: *const Completion) {
    let done = unsafe { *done };
    assert!([OK, CANCELLED].contains(&done.status));
    ENDED_BY_REACTOR.fetch_add(1, Ordering::SeqCst);
    unsafe { karst_op_release(done.op) };
}

#[test]
fn a_reactor_that_is_destroyed_completes_what_is_outstanding() {
    for threads in [0, 1, 2] {
        let setup = Setup::new();
        let reactor = setup.reactor(threads);
        ENDED_BY_REACTOR.store(0, Ordering::SeqCst);
        let notify =
            Notify { queue: null_mut(), callback: Some(cancelled_by_reactor), user_data: null_mut() };
        for i in 0..200 {
            setup.get(reactor, i, &notify);
        }
        if threads == 0 {
            unsafe { karst_reactor_poll(reactor) };
        }
        ok(|e| unsafe { karst_reactor_destroy(reactor, e) });
        assert_eq!(ENDED_BY_REACTOR.load(Ordering::SeqCst), 200);
    }
}

struct Handle(H);
// SAFETY: the functions called with it can be called from any thread.
unsafe impl Send for Handle {}

static REACTOR_OF_CALLBACK: AtomicUsize = AtomicUsize::new(0);
static REFUSED_IN_CALLBACK: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn polls_again(done: *const Completion) {
    unsafe {
        let reactor = REACTOR_OF_CALLBACK.load(Ordering::SeqCst) as H;
        assert_eq!(karst_reactor_poll(reactor), -1);
        assert_eq!(karst_reactor_run(reactor, -1), -1);
        let refused = failed(|e| karst_reactor_destroy(reactor, e));
        assert!(refused.starts_with("Resource busy: "), "{refused}");
        REFUSED_IN_CALLBACK.fetch_add(1, Ordering::SeqCst);
        karst_op_release((*done).op);
    }
}

#[test]
fn a_reactor_without_threads_is_its_threads_alone() {
    let setup = Setup::new();
    let reactor = setup.reactor(0);
    let queue = Queue::new(reactor, 0);
    let other = |call: fn(H) -> bool| {
        let reactor = Handle(reactor);
        std::thread::spawn(move || {
            let reactor = reactor;
            call(reactor.0)
        })
        .join()
        .unwrap()
    };
    assert!(other(|reactor| unsafe { karst_reactor_poll(reactor) } == -1));
    assert!(other(|reactor| failed(|e| unsafe { karst_reactor_destroy(reactor, e) }).contains("thread")));
    let threads = setup.reactor(1);
    assert_eq!(unsafe { karst_reactor_poll(threads) }, -1);
    ok(|e| unsafe { karst_reactor_destroy(threads, e) });
    unsafe {
        // Nothing is ready: the call sleeps until its timeout.
        assert_eq!(karst_reactor_run(reactor, 1000), 0);
        REACTOR_OF_CALLBACK.store(reactor as usize, Ordering::SeqCst);
        let notify = Notify { queue: null_mut(), callback: Some(polls_again), user_data: null_mut() };
        setup.get(reactor, 1, &notify);
        while REFUSED_IN_CALLBACK.load(Ordering::SeqCst) == 0 {
            karst_reactor_run(reactor, -1);
        }
        // Another thread starts an operation and cancels one; this thread runs both.
        let op = setup.get(reactor, 5, &queue.tagged(5));
        let (reactor_there, db, queue_there, op) =
            (Handle(reactor), Handle(setup.db), Handle(queue.queue), Handle(op));
        let other = std::thread::spawn(move || {
            let (reactor, db, queue, op) = (reactor_there, db, queue_there, op);
            let notify = Notify { queue: queue.0, callback: None, user_data: 6 as H };
            karst_get_async(reactor.0, db.0, null_mut(), null_mut(), at(&key(6)), 4, &notify);
            karst_op_cancel(op.0);
        });
        other.join().unwrap();
        let mut ended = HashMap::new();
        while ended.len() < 2 {
            for done in queue.some() {
                ended.insert(done.user_data as u32, (done.status, bytes(done.value, done.value_length)));
                karst_op_release(done.op);
            }
        }
        assert_eq!(ended[&5], (CANCELLED, None));
        assert_eq!(ended[&6], (OK, Some(value(6))));
        queue.destroy();
        ok(|e| karst_reactor_destroy(reactor, e));
    }
}

#[test]
fn a_write_locks_its_keys_where_transactions_do() {
    let setup = Setup::new();
    unsafe {
        let options = Setup::options();
        let (locking, begin) = (rocksdb_transactiondb_options_create(), rocksdb_transaction_options_create());
        rocksdb_transactiondb_options_set_default_lock_timeout(locking, 0);
        let db = ok(|e| rocksdb_transactiondb_open(options, locking, setup.path("locking").as_ptr(), e));
        let reactor = ok(|e| karst_reactor_create(db, 1, e));
        let queue = Queue::new(reactor, 1);
        let transaction = rocksdb_transaction_begin(db, setup.write, begin, null_mut());
        ok(|e| rocksdb_transaction_put(transaction, at(b"k"), 1, at(b"mine"), 4, e));
        let batch = rocksdb_writebatch_create();
        let write = |number| {
            rocksdb_writebatch_put(batch, at(b"k"), 1, at(b"theirs"), 6);
            karst_write_async(reactor, db, setup.write, batch, &queue.tagged(number));
            let done = queue.one();
            karst_op_release(done.op);
            done.status
        };
        assert_eq!(write(1), TIMED_OUT);
        ok(|e| rocksdb_transaction_commit(transaction, e));
        assert_eq!(write(2), OK);
        rocksdb_writebatch_destroy(batch);
        rocksdb_transaction_destroy(transaction);
        queue.destroy();
        ok(|e| karst_reactor_destroy(reactor, e));
        rocksdb_transactiondb_close(db);
        rocksdb_transactiondb_options_destroy(locking);
        rocksdb_transaction_options_destroy(begin);
        rocksdb_options_destroy(options);
    }
}

#[test]
fn transactions_commit_or_come_back() {
    let setup = Setup::new();
    unsafe {
        let options = Setup::options();
        let (locking, begin) = (rocksdb_transactiondb_options_create(), rocksdb_transaction_options_create());
        let db = ok(|e| rocksdb_transactiondb_open(options, locking, setup.path("locking").as_ptr(), e));
        let base = rocksdb_transactiondb_get_base_db(db);
        let reactor = ok(|e| karst_reactor_create(base, 1, e));
        let queue = Queue::new(reactor, 1);
        let transaction = rocksdb_transaction_begin(db, setup.write, begin, null_mut());
        ok(|e| rocksdb_transaction_put(transaction, at(b"k"), 1, at(b"v"), 1, e));
        let it = ok(|e| karst_transaction_iter_create(transaction, setup.read, null_mut(), e));
        karst_iter_seek_to_first_async(reactor, it, &queue.tagged(0));
        let done = queue.one();
        assert_eq!(bytes(done.key, done.key_length), Some(b"k".to_vec()));
        karst_op_release(done.op);
        karst_iter_destroy(it);
        karst_transaction_commit_async(reactor, transaction, &queue.tagged(1));
        let refused = failed(|e| rocksdb_transaction_put(transaction, at(b"k"), 1, at(b"w"), 1, e));
        assert!(refused.contains("karst_transaction_commit_async"), "{refused}");
        let done = queue.one();
        assert_eq!(done.status, OK);
        assert!(karst_op_take_transaction(done.op).is_null());
        karst_op_release(done.op);
        karst_transaction_commit_async(reactor, transaction, &queue.tagged(2));
        let done = queue.one();
        assert_eq!(done.status, INVALID_ARGUMENT);
        karst_op_release(done.op);
        rocksdb_transaction_destroy(transaction);
        let get = |db| {
            let mut length = 0;
            let found = ok(|e| rocksdb_get(db, setup.read, at(b"k"), 1, &mut length, e));
            let copy = bytes(found, length);
            rocksdb_free(found.cast());
            copy
        };
        assert_eq!(get(base), Some(b"v".to_vec()));
        queue.destroy();
        ok(|e| karst_reactor_destroy(reactor, e));
        rocksdb_transactiondb_close_base_db(base);
        rocksdb_transactiondb_close(db);
        rocksdb_transactiondb_options_destroy(locking);
        rocksdb_transaction_options_destroy(begin);

        // An optimistic transaction with a conflict.
        let db = ok(|e| rocksdb_optimistictransactiondb_open(options, setup.path("optimistic").as_ptr(), e));
        let base = rocksdb_optimistictransactiondb_get_base_db(db);
        let reactor = ok(|e| karst_reactor_create(base, 0, e));
        let queue = Queue::new(reactor, 0);
        let begin = || {
            let transaction = rocksdb_optimistictransaction_begin(db, setup.write, null_mut(), null_mut());
            let mut length = 0;
            let old = ok(|e| {
                rocksdb_transaction_get_for_update(transaction, setup.read, at(b"k"), 1, &mut length, 1, e)
            });
            rocksdb_free(old.cast());
            ok(|e| rocksdb_transaction_put(transaction, at(b"k"), 1, at(b"mine"), 4, e));
            transaction
        };
        let transaction = begin();
        ok(|e| rocksdb_put(base, setup.write, at(b"k"), 1, at(b"theirs"), 6, e));
        karst_transaction_commit_async(reactor, transaction, &queue.tagged(1));
        rocksdb_transaction_destroy(transaction); // the operation holds the transaction
        let done = queue.one();
        assert_eq!(done.status, BUSY, "{}", message(&done));
        let again = karst_op_take_transaction(done.op);
        assert!(!again.is_null() && karst_op_take_transaction(done.op).is_null());
        karst_op_release(done.op);
        ok(|e| rocksdb_transaction_rollback(again, e));
        rocksdb_transaction_destroy(again);
        assert_eq!(get(base), Some(b"theirs".to_vec()));
        let transaction = begin();
        karst_op_cancel(karst_transaction_commit_async(reactor, transaction, &queue.tagged(2)));
        let done = queue.one();
        assert_eq!(done.status, CANCELLED);
        assert_eq!(get(base), Some(b"theirs".to_vec()), "it was cancelled before it began");
        karst_op_release(done.op);
        rocksdb_transaction_destroy(transaction);
        queue.destroy();
        ok(|e| karst_reactor_destroy(reactor, e));
        rocksdb_optimistictransactiondb_close_base_db(base);
        rocksdb_optimistictransactiondb_close(db);
        rocksdb_options_destroy(options);
    }
}

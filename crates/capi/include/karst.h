/* Made by `cargo xtask capi --table` from the sources of crates/capi.
   SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <rocksdb/c.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Asynchronous calls of KarstDB, beside those of rocksdb/c.h.

   A call names a reactor, which runs it, and a karst_notify_t, which says where it is completed: in
   a queue, or by a callback. It returns an operation, which is completed exactly once, and which
   whoever gets the completion ends by karst_op_release. A call returns null only if it is given no
   reactor, one that is being destroyed, or nowhere to complete; whatever else is wrong is the
   completion's status.

   Memory: when a call has returned, its options, keys and the karst_notify_t can be freed; the queue
   lives as long as it is used. What a completion points to is valid until its operation is released.
   Threads: every function may be called from any thread, and handles may be shared, but for a
   reactor without threads, which is polled and destroyed by the thread that created it. No handle
   is destroyed while another thread calls a function on it.
   Callbacks are called on the reactor's thread, never before the call that they belong to has been
   taken in by it, and hold up its other operations for as long as they take. They may begin, cancel
   and release operations and call any function of rocksdb/c.h. */

typedef struct karst_reactor_t karst_reactor_t;
typedef struct karst_completion_queue_t karst_completion_queue_t;
typedef struct karst_op_t karst_op_t;
typedef struct karst_iterator_t karst_iterator_t;

/* The end of an operation. */
typedef struct karst_completion_t {
  karst_op_t* op;        /* to be released */
  void* user_data;       /* that of the karst_notify_t */
  int status;            /* KARST_OK or another of the numbers below */
  const char* message;   /* what went wrong; null if nothing did */
  const char* key;       /* the key an iterator is on; null if on none */
  size_t key_length;
  const char* value;     /* the value that was found, or an iterator's; null if there is none */
  size_t value_length;
  size_t count;          /* how many keys were asked for: see karst_op_result */
} karst_completion_t;

/* Where an operation is completed: in `queue`, or where that is null by `callback`. */
typedef struct karst_notify_t {
  karst_completion_queue_t* queue;
  void (*callback)(const karst_completion_t*);
  void* user_data;
} karst_notify_t;

/* How an operation has ended. The numbers up to 13 are those of RocksDB's Status::Code. */
enum {
  KARST_OK = 0,
  KARST_NOT_FOUND = 1,
  KARST_CORRUPTION = 2,
  KARST_NOT_SUPPORTED = 3,
  KARST_INVALID_ARGUMENT = 4,
  KARST_IO_ERROR = 5,
  KARST_INCOMPLETE = 7,
  KARST_SHUTDOWN_IN_PROGRESS = 8,
  KARST_TIMED_OUT = 9,
  KARST_ABORTED = 10,
  KARST_BUSY = 11,
  KARST_EXPIRED = 12,
  KARST_TRY_AGAIN = 13,
  KARST_CANCELLED = 100,
  KARST_PANICKED = 101
};

// A reactor, which runs operations on databases of this process, each thread on an I/O
// channel of its own, made as `db` makes them. With `threads` 0 it has none: it runs while
// the thread that created it calls karst_reactor_poll or karst_reactor_run. It does not keep
// the database.
extern karst_reactor_t* karst_reactor_create(const rocksdb_t* db, uint32_t threads, char** errptr);

// Ends a reactor. Operations that are outstanding are completed as KARST_CANCELLED before it
// returns, and calls on it return null meanwhile, so that callbacks cannot begin others; when
// it is called in a callback of the reactor's own thread, they complete after that. A reactor
// without threads is ended on its own thread and outside of its callbacks; otherwise that is
// the error, and it stays.
extern void karst_reactor_destroy(karst_reactor_t* reactor, char** errptr);

// Goes on with what can go on, without waiting: how many operations have completed. -1, and
// nothing is done: the reactor has threads, it is another thread's, or it is being polled.
extern int64_t karst_reactor_poll(karst_reactor_t* reactor);

// The same until an operation has completed, asleep while there is nothing to do. 0 after
// `timeout_us` microseconds; a negative number is no limit.
extern int64_t karst_reactor_run(karst_reactor_t* reactor, int64_t timeout_us);

// A queue for the completions of any number of operations, of any reactors and databases.
// From any thread; so are all its functions.
extern karst_completion_queue_t* karst_completion_queue_create(void);

// Ends a queue, without waiting. Its operations that were not taken are released: those that
// are outstanding go on unless they were cancelled, and nobody is told of their end. Their
// karst_op_t are not to be used any more.
extern void karst_completion_queue_destroy(karst_completion_queue_t* queue);

// A descriptor that is readable while there are completions to take, for poll, epoll and the
// like. It is the queue's: not to be read, written or closed. -1 if there is none to be had.
extern int karst_completion_queue_fd(karst_completion_queue_t* queue);

// Takes completions, the oldest first, without waiting: their number, up to `max`. Each is
// to be released by karst_op_release(completion.op).
extern size_t karst_completion_queue_poll(karst_completion_queue_t* queue, size_t max, karst_completion_t* out);

// Waits until there is a completion, then takes as karst_completion_queue_poll does. 0 after
// `timeout_us` microseconds; a negative number is no limit. It drives no reactor: not to be
// called on the thread that polls the reactor of these operations.
extern size_t karst_completion_queue_wait(karst_completion_queue_t* queue, size_t max, karst_completion_t* out, int64_t timeout_us);

// How many operations were begun for this queue and have not been taken from it.
extern size_t karst_completion_queue_outstanding(karst_completion_queue_t* queue);

// Asks that an operation ends early. From any thread, before the operation is released; it
// does not wait. The operation completes with KARST_CANCELLED, unless it ends by itself
// first. A write or a commit that was begun is not taken back: it may take effect although
// its operation says that it was cancelled.
extern void karst_op_cancel(karst_op_t* op);

// Ends an operation whose completion was delivered, and all that the completion points to.
// Once for each operation.
extern void karst_op_release(karst_op_t* op);

// The answer for one of the keys of an operation that is completed: its status; its value,
// or null where there is none; and its message, or null. They are the operation's. Null can
// be passed for what is not wanted. KARST_INVALID_ARGUMENT: there is no such key.
extern int karst_op_result(karst_op_t* op, size_t index, const char** value, size_t* value_length, const char** message);

// The transaction that a commit could not commit, as a new handle for the caller to go on
// with, roll back or destroy. Null if there is none, or if it was taken.
extern rocksdb_transaction_t* karst_op_take_transaction(karst_op_t* op);

// rocksdb_get_cf: the completion's value is the key's, or null if there is none. `cf` may be
// null for the default column family, and `options` for the defaults.
extern karst_op_t* karst_get_async(karst_reactor_t* reactor, const rocksdb_t* db, const rocksdb_readoptions_t* options, const rocksdb_column_family_handle_t* cf, const char* key, size_t key_length, const karst_notify_t* notify);

// rocksdb_multi_get_cf: the completion has the number of keys, and karst_op_result the answer
// for each. `cfs` is a column family for each key, or null for the default one.
extern karst_op_t* karst_multi_get_async(karst_reactor_t* reactor, const rocksdb_t* db, const rocksdb_readoptions_t* options, const rocksdb_column_family_handle_t* const* cfs, size_t count, const char* const* keys, const size_t* key_lengths, const karst_notify_t* notify);

// rocksdb_write. The operations move out of the batch, which is empty when the call returns
// and can be used again. For a database with transactions that lock keys, write through a
// transaction.
extern karst_op_t* karst_write_async(karst_reactor_t* reactor, const rocksdb_t* db, const rocksdb_writeoptions_t* options, rocksdb_writebatch_t* batch, const karst_notify_t* notify);

// rocksdb_transaction_commit. The transaction moves into the operation; its handle refuses
// all calls from then on and is destroyed at any time. If the commit fails, the transaction
// is had again by karst_op_take_transaction, or else rolled back with the operation's
// release. Of a commit that was cancelled it is gone: it was committed, whole, or not.
extern karst_op_t* karst_transaction_commit_async(karst_reactor_t* reactor, rocksdb_transaction_t* transaction, const karst_notify_t* notify);

// An iterator for asynchronous moves, as of now; it is on no entry yet. Does not wait. `cf`
// and `options` may be null.
extern karst_iterator_t* karst_iter_create(const rocksdb_t* db, const rocksdb_readoptions_t* options, const rocksdb_column_family_handle_t* cf, char** errptr);

// The same over a transaction's own writes and the database.
extern karst_iterator_t* karst_transaction_iter_create(rocksdb_transaction_t* transaction, const rocksdb_readoptions_t* options, const rocksdb_column_family_handle_t* cf, char** errptr);

// Ends an iterator. An operation on it that is outstanding goes on, and completes.
extern void karst_iter_destroy(karst_iterator_t* it);

// 1 if the iterator is on an entry. 0 if it is not, and while it is moved.
extern unsigned char karst_iter_valid(karst_iterator_t* it);

// The key of its entry, until it is moved; null if it is on none, and while it is moved.
extern const char* karst_iter_key(karst_iterator_t* it, size_t* length);

// The value, as karst_iter_key.
extern const char* karst_iter_value(karst_iterator_t* it, size_t* length);

// Moves to the first key that is not less than `key`. The completion has the entry, or null
// where there is none; its bytes are valid until the iterator is moved and the operation is
// not released. KARST_BUSY: another operation on it is outstanding, and goes on. After a move
// that failed or was cancelled it is on no entry, and can be sought again.
extern karst_op_t* karst_iter_seek_async(karst_reactor_t* reactor, karst_iterator_t* it, const char* key, size_t key_length, const karst_notify_t* notify);

// Moves to the last key that is not greater than `key`; as karst_iter_seek_async.
extern karst_op_t* karst_iter_seek_for_prev_async(karst_reactor_t* reactor, karst_iterator_t* it, const char* key, size_t key_length, const karst_notify_t* notify);

// Moves to the first key; as karst_iter_seek_async.
extern karst_op_t* karst_iter_seek_to_first_async(karst_reactor_t* reactor, karst_iterator_t* it, const karst_notify_t* notify);

// Moves to the last key; as karst_iter_seek_async.
extern karst_op_t* karst_iter_seek_to_last_async(karst_reactor_t* reactor, karst_iterator_t* it, const karst_notify_t* notify);

// Moves to the next key; as karst_iter_seek_async. KARST_INVALID_ARGUMENT: it is on no entry.
extern karst_op_t* karst_iter_next_async(karst_reactor_t* reactor, karst_iterator_t* it, const karst_notify_t* notify);

// Moves to the previous key; as karst_iter_next_async.
extern karst_op_t* karst_iter_prev_async(karst_reactor_t* reactor, karst_iterator_t* it, const karst_notify_t* notify);

#ifdef __cplusplus
}
#endif

/* The asynchronous calls from C: each way of completion, iterators, and cancelling.
   SPDX-License-Identifier: Apache-2.0 */
#include <karst.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(what)                                               \
  do {                                                           \
    if (!(what)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
      exit(1);                                                   \
    }                                                            \
  } while (0)

enum { KEYS = 1000 };

static void no_error(char* error) {
  if (error) {
    fprintf(stderr, "%s\n", error);
    exit(1);
  }
}

static size_t key_of(char* key, int i) { return (size_t)snprintf(key, 16, "key%06d", i); }

static int is(const char* data, size_t length, const char* text) {
  return data && length == strlen(text) && memcmp(data, text, length) == 0;
}

/* Callback mode: a chain of gets, each started by the callback of the one before. */
typedef struct {
  karst_reactor_t* reactor;
  const rocksdb_t* db;
  int next;
  int done;
} chain_t;

static void link_of_chain(const karst_completion_t* completion) {
  chain_t* chain = completion->user_data;
  char key[16];
  MUST(completion->status == KARST_OK && completion->message == NULL);
  key_of(key, chain->next);
  MUST(is(completion->value, completion->value_length, key));
  karst_op_release(completion->op);
  if (++chain->next == KEYS) {
    chain->done = 1;
    return;
  }
  karst_notify_t notify = {NULL, link_of_chain, chain};
  MUST(karst_get_async(chain->reactor, chain->db, NULL, NULL, key, key_of(key, chain->next), &notify));
}

static void callbacks(const rocksdb_t* db) {
  char* error = NULL;
  karst_reactor_t* reactor = karst_reactor_create(db, 0, &error);
  no_error(error);
  chain_t chain = {reactor, db, 0, 0};
  char key[16];
  karst_notify_t notify = {NULL, link_of_chain, &chain};
  MUST(karst_get_async(reactor, db, NULL, NULL, key, key_of(key, 0), &notify));
  while (!chain.done) MUST(karst_reactor_run(reactor, -1) >= 0);
  karst_reactor_destroy(reactor, &error);
  no_error(error);
}

static void queue(const rocksdb_t* db) {
  char* error = NULL;
  karst_reactor_t* reactor = karst_reactor_create(db, 1, &error);
  no_error(error);
  karst_completion_queue_t* queue = karst_completion_queue_create();
  struct pollfd readable = {karst_completion_queue_fd(queue), POLLIN, 0};
  MUST(readable.fd >= 0);
  int cancelled = 0, ended = 0;
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    karst_notify_t notify = {queue, NULL, (void*)(size_t)i};
    karst_op_t* op = karst_get_async(reactor, db, NULL, NULL, key, key_of(key, i), &notify);
    MUST(op);
    if (i % 10 == 0) karst_op_cancel(op);
  }
  while (ended < KEYS) {
    karst_completion_t out[32];
    MUST(poll(&readable, 1, 60000) == 1);
    size_t count = karst_completion_queue_poll(queue, 32, out);
    MUST(count > 0);
    for (size_t at = 0; at < count; at++, ended++) {
      char key[16];
      int i = (int)(size_t)out[at].user_data;
      key_of(key, i);
      if (out[at].status == KARST_CANCELLED) {
        MUST(i % 10 == 0 && out[at].value == NULL && out[at].message != NULL);
        cancelled++;
      } else {
        MUST(out[at].status == KARST_OK && is(out[at].value, out[at].value_length, key));
      }
      karst_op_release(out[at].op);
    }
  }
  MUST(cancelled <= KEYS / 10 && karst_completion_queue_outstanding(queue) == 0);

  /* All keys in one call, and a missing one. */
  const char* keys[] = {"key000001", "nothing", "key000999"};
  const size_t lengths[] = {9, 7, 9};
  karst_notify_t notify = {queue, NULL, NULL};
  karst_completion_t done;
  MUST(karst_multi_get_async(reactor, db, NULL, NULL, 3, keys, lengths, &notify));
  MUST(karst_completion_queue_wait(queue, 1, &done, -1) == 1 && done.count == 3);
  for (size_t at = 0; at < 3; at++) {
    const char* value;
    size_t length;
    MUST(karst_op_result(done.op, at, &value, &length, NULL) == KARST_OK);
    MUST(at == 1 ? value == NULL : is(value, length, keys[at]));
  }
  karst_op_release(done.op);

  karst_iterator_t* it = karst_iter_create(db, NULL, NULL, &error);
  no_error(error);
  int seen = 0;
  MUST(karst_iter_seek_async(reactor, it, "key000500", 9, &notify));
  for (;;) {
    char key[16];
    MUST(karst_completion_queue_wait(queue, 1, &done, -1) == 1 && done.status == KARST_OK);
    int ends = done.key == NULL;
    key_of(key, 500 + seen);
    MUST(ends || is(done.key, done.key_length, key));
    karst_op_release(done.op);
    if (ends) break;
    seen++;
    MUST(karst_iter_next_async(reactor, it, &notify));
  }
  MUST(seen == KEYS - 500 && !karst_iter_valid(it));
  karst_iter_destroy(it);
  karst_completion_queue_destroy(queue);
  karst_reactor_destroy(reactor, &error);
  no_error(error);
}

int main(int argc, char** argv) {
  MUST(argc == 2);
  char* error = NULL;
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_compression(options, rocksdb_no_compression);
  rocksdb_t* db = rocksdb_open(options, argv[1], &error);
  no_error(error);
  rocksdb_options_destroy(options);

  karst_reactor_t* reactor = karst_reactor_create(db, 0, &error);
  no_error(error);
  karst_completion_queue_t* written = karst_completion_queue_create();
  rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
  rocksdb_writebatch_t* batch = rocksdb_writebatch_create();
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    size_t length = key_of(key, i);
    rocksdb_writebatch_put(batch, key, length, key, length);
  }
  karst_notify_t notify = {written, NULL, &notify};
  karst_completion_t done;
  MUST(karst_write_async(reactor, db, write, batch, &notify));
  MUST(rocksdb_writebatch_count(batch) == 0);
  MUST(karst_reactor_run(reactor, -1) == 1);
  MUST(karst_completion_queue_poll(written, 1, &done) == 1);
  MUST(done.status == KARST_OK && done.user_data == &notify);
  karst_op_release(done.op);
  rocksdb_writebatch_destroy(batch);
  rocksdb_writeoptions_destroy(write);
  karst_completion_queue_destroy(written);
  karst_reactor_destroy(reactor, &error);
  no_error(error);

  callbacks(db);
  queue(db);
  rocksdb_close(db);
  puts("all is well");
  return 0;
}

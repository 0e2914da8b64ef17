/* A program linked with RocksDB, on a database that it wrote before with either library.
   `switched DIR ROUND` checks the data of the earlier rounds with every kind of read, writes the
   data of ROUND, and checks again. Every second round leaves its last writes in the log. It calls
   only functions that RocksDB has had since 7.8.
   SPDX-License-Identifier: Apache-2.0 */

#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 1000, FAMILIES = 2, LENGTH = 100 };

static char* error = NULL;

static void ok(const char* what) {
  if (error != NULL) {
    fprintf(stderr, "%s: %s\n", what, error);
    exit(1);
  }
}

static void check(int holds, const char* what, int at) {
  if (!holds) {
    fprintf(stderr, "not so: %s, at %d\n", what, at);
    exit(1);
  }
}

/* A merge operator that appends: each round appends its letter. */
static char* full_merge(void* state, const char* key, size_t key_length, const char* existing,
                        size_t existing_length, const char* const* operands, const size_t* lengths,
                        int count, unsigned char* success, size_t* length) {
  char* merged;
  size_t total = existing == NULL ? 0 : existing_length;
  int at;
  (void)state;
  (void)key;
  (void)key_length;
  for (at = 0; at < count; at++) total += lengths[at];
  merged = malloc(total + 1);
  total = existing == NULL ? 0 : existing_length;
  if (total > 0) memcpy(merged, existing, total);
  for (at = 0; at < count; at++) {
    memcpy(merged + total, operands[at], lengths[at]);
    total += lengths[at];
  }
  *success = 1;
  *length = total;
  return merged;
}

static char* partial_merge(void* state, const char* key, size_t key_length,
                           const char* const* operands, const size_t* lengths, int count,
                           unsigned char* success, size_t* length) {
  return full_merge(state, key, key_length, NULL, 0, operands, lengths, count, success, length);
}

static void nothing(void* state) { (void)state; }
static const char* name(void* state) {
  (void)state;
  return "switched.append";
}

/* Returns the round before `rounds` that wrote key `at` last, or -1 if it is deleted. Round 0
   writes all keys; round N writes every (N+1)th and deletes one of 17. */
static int writer(int at, int rounds) {
  int round;
  for (round = rounds - 1; round > 0; round--) {
    if (at % 17 == round % 17) return -1;
    if (at % (round + 1) == 0) return round;
  }
  return 0;
}

static int key_of(char* key, int family, int at) { return sprintf(key, "key %d %06d", family, at); }

static void value_of(char* value, int at, int round) {
  memset(value, 'a' + (at + round) % 26, LENGTH);
  sprintf(value, "%d by %d", at, round);
}

/* Checks all data of the rounds before `rounds`. */
static void look(rocksdb_t* db, rocksdb_column_family_handle_t** families, int rounds) {
  rocksdb_readoptions_t* read = rocksdb_readoptions_create();
  char key[64], wanted[LENGTH];
  int family, at, entries = 0;
  rocksdb_readoptions_set_verify_checksums(read, 1);
  for (family = 0; family < FAMILIES; family++) {
    rocksdb_iterator_t* iterator = rocksdb_create_iterator_cf(db, read, families[family]);
    rocksdb_iter_seek_to_first(iterator);
    for (at = 0; at < KEYS; at++) {
      int by = writer(at, rounds);
      size_t length = 0;
      int key_length = key_of(key, family, at);
      char* value = rocksdb_get_cf(db, read, families[family], key, (size_t)key_length, &length, &error);
      ok("get");
      check((value != NULL) == (by >= 0), "a key is there", at);
      if (by < 0) continue;
      value_of(wanted, at, by);
      check(length == LENGTH && memcmp(value, wanted, LENGTH) == 0, "a value", at);
      free(value);
      check(rocksdb_iter_valid(iterator), "an iterator has an entry", at);
      check(memcmp(rocksdb_iter_key(iterator, &length), key, (size_t)key_length) == 0, "its key", at);
      check(memcmp(rocksdb_iter_value(iterator, &length), wanted, LENGTH) == 0, "its value", at);
      rocksdb_iter_next(iterator);
      entries++;
    }
    rocksdb_iter_get_error(iterator, &error);
    ok("iterate");
    /* The merged entry follows the keys. */
    check(rocksdb_iter_valid(iterator) == (rounds > 0), "a merged entry", family);
    if (rounds > 0) {
      size_t length = 0;
      const char* merged = rocksdb_iter_value(iterator, &length);
      check(length == (size_t)rounds, "a letter of each round", family);
      for (at = 0; at < rounds; at++) check(merged[at] == 'a' + at, "a round's letter", at);
      rocksdb_iter_prev(iterator);
      check(rocksdb_iter_valid(iterator), "an entry before it", family);
    }
    rocksdb_iter_destroy(iterator);
  }
  rocksdb_readoptions_destroy(read);
  printf("%d entries of %d rounds\n", entries, rounds);
}

int main(int count, char** arguments) {
  const char* names[FAMILIES] = {"default", "other"};
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_options_t* all[FAMILIES];
  rocksdb_column_family_handle_t* families[FAMILIES];
  rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
  rocksdb_flushoptions_t* flush = rocksdb_flushoptions_create();
  rocksdb_t* db;
  char key[64], value[LENGTH], letter;
  int family, at, round = count == 3 ? atoi(arguments[2]) : -1;
  if (round < 0) {
    fprintf(stderr, "usage: switched DIR ROUND\n");
    return 2;
  }
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_create_missing_column_families(options, 1);
  rocksdb_options_set_merge_operator(
      options, rocksdb_mergeoperator_create(NULL, nothing, full_merge, partial_merge, NULL, name));
  for (family = 0; family < FAMILIES; family++) all[family] = options;
  db = rocksdb_open_column_families(options, arguments[1], FAMILIES, names,
                                    (const rocksdb_options_t* const*)all, families, &error);
  ok("open");
  if (round > 0) look(db, families, round);
  for (family = 0; family < FAMILIES; family++) {
    rocksdb_writebatch_t* batch = rocksdb_writebatch_create();
    for (at = 0; at < KEYS; at++) {
      int length = key_of(key, family, at);
      int by = writer(at, round + 1);
      if (by == round) {
        value_of(value, at, round);
        rocksdb_writebatch_put_cf(batch, families[family], key, (size_t)length, value, LENGTH);
      } else if (by < 0) {
        rocksdb_writebatch_delete_cf(batch, families[family], key, (size_t)length);
      }
    }
    rocksdb_write(db, write, batch, &error);
    ok("write");
    rocksdb_writebatch_destroy(batch);
    letter = (char)('a' + round);
    rocksdb_merge_cf(db, write, families[family], "merged", 6, &letter, 1, &error);
    ok("merge");
    if (round % 2 == family) {
      rocksdb_flush_cf(db, flush, families[family], &error);
      ok("flush");
    }
    if (round % 3 == 2) rocksdb_compact_range_cf(db, families[family], NULL, 0, NULL, 0);
  }
  look(db, families, round + 1);
  for (family = 0; family < FAMILIES; family++) rocksdb_column_family_handle_destroy(families[family]);
  rocksdb_close(db);
  rocksdb_flushoptions_destroy(flush);
  rocksdb_writeoptions_destroy(write);
  rocksdb_options_destroy(options);
  return 0;
}

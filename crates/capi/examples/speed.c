/* Speed of RocksDB's C API with the library that the loader finds: operations per second of one
   thread, with keys of 16 bytes and values of 100, without compression, in a new database that fits
   into the block cache. It is compiled once, and run with each library:

     cc -O2 -std=c99 -D_POSIX_C_SOURCE=200809L speed.c -lrocksdb -o speed
     ./speed DIR [KEYS]                               the library that it was linked with
     LD_LIBRARY_PATH=PREFIX/lib ./speed DIR [KEYS]    KarstDB's

   SPDX-License-Identifier: Apache-2.0 */

#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY = 16, VALUE = 100, BATCH = 100, MANY = 32 };

static char* error = NULL;

static void ok(const char* what) {
  if (error != NULL) {
    fprintf(stderr, "%s: %s\n", what, error);
    exit(1);
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint64_t state = 88172645463325252u;

/* Marsaglia's xorshift. */
static uint64_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static void key_of(char* key, uint64_t number) {
  int at;
  for (at = KEY - 1; at >= 0; at--) {
    key[at] = (char)('0' + number % 10);
    number /= 10;
  }
}

static void tell(const char* what, uint64_t operations, double began) {
  printf("| %s | %.0f |\n", what, (double)operations / (now() - began));
  fflush(stdout);
}

int main(int count, char** arguments) {
  uint64_t keys = count == 3 ? strtoull(arguments[2], NULL, 10) : 500000, at, part, sum = 0;
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_block_based_table_options_t* table = rocksdb_block_based_options_create();
  rocksdb_cache_t* cache = rocksdb_cache_create_lru(1u << 30);
  rocksdb_readoptions_t* read = rocksdb_readoptions_create();
  rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
  rocksdb_writebatch_t* batch = rocksdb_writebatch_create();
  rocksdb_iterator_t* iterator;
  rocksdb_t* db;
  char key[KEY], value[VALUE], many[MANY][KEY], *values[MANY], *errors[MANY];
  const char* many_keys[MANY];
  size_t length, many_lengths[MANY], value_lengths[MANY];
  double began;
  if ((count != 2 && count != 3) || keys < 1000) {
    fprintf(stderr, "usage: speed DIR [KEYS, at least 1000]; DIR is made\n");
    return 2;
  }
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_error_if_exists(options, 1);
  rocksdb_options_set_compression(options, rocksdb_no_compression);
  rocksdb_block_based_options_set_block_cache(table, cache);
  rocksdb_block_based_options_set_format_version(table, 5);
  rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
  rocksdb_options_set_block_based_table_factory(options, table);
  db = rocksdb_open(options, arguments[1], &error);
  ok("open");
  for (at = 0; at < VALUE; at++) value[at] = (char)next_random();
  for (at = 0; at < MANY; at++) {
    many_keys[at] = many[at];
    many_lengths[at] = KEY;
  }
  printf("| operation | per second |\n|---|---:|\n");

  began = now();
  for (at = 0; at < keys; at += BATCH) {
    rocksdb_writebatch_clear(batch);
    for (part = at; part < at + BATCH && part < keys; part++) {
      key_of(key, part);
      rocksdb_writebatch_put(batch, key, KEY, value, VALUE);
    }
    rocksdb_write(db, write, batch, &error);
    ok("write");
  }
  tell("entries written in batches of 100, ascending", keys, began);

  began = now();
  for (at = 0; at < keys / 2; at++) {
    key_of(key, next_random() % keys);
    memcpy(value, &at, sizeof at);
    rocksdb_put(db, write, key, KEY, value, VALUE, &error);
    ok("put");
  }
  tell("put, random", keys / 2, began);

  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  /* Fills the cache. */
  iterator = rocksdb_create_iterator(db, read);
  for (rocksdb_iter_seek_to_first(iterator); rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator)) {
    sum++;
  }
  rocksdb_iter_destroy(iterator);
  if (sum != keys) {
    fprintf(stderr, "%llu entries\n", (unsigned long long)sum);
    return 1;
  }

  began = now();
  for (at = 0; at < keys; at++) {
    char* found;
    key_of(key, next_random() % keys);
    found = rocksdb_get(db, read, key, KEY, &length, &error);
    ok("get");
    if (found == NULL || length != VALUE) return 1;
    free(found);
  }
  tell("get, random, cached", keys, began);

  began = now();
  for (at = 0; at < keys; at++) {
    rocksdb_pinnableslice_t* found;
    key_of(key, next_random() % keys);
    found = rocksdb_get_pinned(db, read, key, KEY, &error);
    ok("get_pinned");
    if (found == NULL || rocksdb_pinnableslice_value(found, &length) == NULL || length != VALUE) return 1;
    rocksdb_pinnableslice_destroy(found);
  }
  tell("get_pinned, random, cached", keys, began);

  began = now();
  for (at = 0; at < keys; at += MANY) {
    for (part = 0; part < MANY; part++) key_of(many[part], next_random() % keys);
    rocksdb_multi_get(db, read, MANY, many_keys, many_lengths, values, value_lengths, errors);
    for (part = 0; part < MANY; part++) {
      if (errors[part] != NULL || values[part] == NULL || value_lengths[part] != VALUE) return 1;
      free(values[part]);
    }
  }
  tell("keys of multi_get of 32, random, cached", at, began);

  began = now();
  sum = 0;
  iterator = rocksdb_create_iterator(db, read);
  for (part = 0; part < 4; part++) {
    rocksdb_iter_seek_to_first(iterator);
    while (rocksdb_iter_valid(iterator)) {
      sum += (unsigned char)rocksdb_iter_key(iterator, &length)[KEY - 1];
      sum += (unsigned char)rocksdb_iter_value(iterator, &length)[0];
      rocksdb_iter_next(iterator);
    }
  }
  rocksdb_iter_get_error(iterator, &error);
  ok("iterate");
  rocksdb_iter_destroy(iterator);
  tell("entries iterated over, cached", keys * 4, began);

  rocksdb_writebatch_destroy(batch);
  rocksdb_close(db);
  rocksdb_writeoptions_destroy(write);
  rocksdb_readoptions_destroy(read);
  rocksdb_options_destroy(options);
  rocksdb_block_based_options_destroy(table);
  rocksdb_cache_destroy(cache);
  return sum == 0;
}

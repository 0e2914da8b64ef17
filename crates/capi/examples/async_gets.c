/* Many gets in flight from one thread, which owns the reactor:
     cc -O2 async_gets.c -IDIR/include -LDIR/lib -lkarstdb -o async_gets
     LD_LIBRARY_PATH=DIR/lib ./async_gets DATABASE [KEYS [GETS [IN_FLIGHT [DIRECT]]]]
   Reads keys as db_bench and `karstdb bench` write them (16 bytes), uncached; with DIRECT 1 past the
   page cache. A missing database is created first, with values of 4 KiB.
   SPDX-License-Identifier: Apache-2.0 */
#include <karst.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY = 16, VALUE = 4096 };

typedef struct {
  karst_reactor_t* reactor;
  const rocksdb_t* db;
  const rocksdb_readoptions_t* options;
  uint64_t random, keys, begun, ended, gets, found, bytes;
} client_t;

static void check(char* error) {
  if (error) {
    fprintf(stderr, "%s\n", error);
    exit(1);
  }
}

/* Writes the number, most significant byte first, padded with '0'. */
static void key_of(char* key, uint64_t number) {
  memset(key, '0', KEY);
  for (int at = 7; at >= 0; at--, number >>= 8) key[at] = (char)(number & 0xff);
}

static uint64_t next_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void arrived(const karst_completion_t* completion);

static void begin_one(client_t* client) {
  char key[KEY];
  karst_notify_t notify = {NULL, arrived, client};
  key_of(key, next_random(&client->random) % client->keys);
  client->begun++;
  karst_get_async(client->reactor, client->db, client->options, NULL, key, KEY, &notify);
}

static void arrived(const karst_completion_t* completion) {
  client_t* client = completion->user_data;
  if (completion->status != KARST_OK) {
    fprintf(stderr, "status %d: %s\n", completion->status, completion->message);
    exit(1);
  }
  client->found += completion->value != NULL;
  client->bytes += completion->value_length;
  client->ended++;
  karst_op_release(completion->op);
  if (client->begun < client->gets) begin_one(client);
}

static void fill(const char* path, rocksdb_options_t* options, uint64_t keys) {
  char *error = NULL, key[KEY], value[VALUE];
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_t* db = rocksdb_open(options, path, &error);
  check(error);
  rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
  uint64_t random = 1;
  for (uint64_t number = 0; number < keys; number++) {
    key_of(key, number);
    for (int at = 0; at < VALUE; at++) value[at] = (char)next_random(&random);
    rocksdb_put(db, write, key, KEY, value, VALUE, &error);
    check(error);
  }
  rocksdb_flushoptions_t* flush = rocksdb_flushoptions_create();
  rocksdb_flush(db, flush, &error);
  check(error);
  rocksdb_flushoptions_destroy(flush);
  rocksdb_writeoptions_destroy(write);
  rocksdb_close(db);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "%s DATABASE [KEYS [GETS [IN_FLIGHT [DIRECT]]]]\n", argv[0]);
    return 2;
  }
  uint64_t keys = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
  uint64_t gets = argc > 3 ? strtoull(argv[3], NULL, 10) : 100000;
  uint64_t in_flight = argc > 4 ? strtoull(argv[4], NULL, 10) : 64;
  char* error = NULL;

  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_block_based_table_options_t* table = rocksdb_block_based_options_create();
  rocksdb_cache_t* cache = rocksdb_cache_create_lru(1 << 20);
  rocksdb_block_based_options_set_block_cache(table, cache);
  rocksdb_options_set_block_based_table_factory(options, table);
  rocksdb_options_set_compression(options, rocksdb_no_compression);
  rocksdb_options_set_use_direct_reads(options, argc > 5 && atoi(argv[5]));
  rocksdb_t* db = rocksdb_open_for_read_only(options, argv[1], 0, &error);
  if (error) {
    rocksdb_free(error);
    error = NULL;
    fill(argv[1], options, keys);
    db = rocksdb_open_for_read_only(options, argv[1], 0, &error);
    check(error);
  }

  rocksdb_readoptions_t* read = rocksdb_readoptions_create();
  karst_reactor_t* reactor = karst_reactor_create(db, 0, &error);
  check(error);
  client_t client = {reactor, db, read, 88172645463325252ull, keys, 0, 0, gets, 0, 0};
  struct timespec began, ended;
  clock_gettime(CLOCK_MONOTONIC, &began);
  while (client.begun < in_flight && client.begun < gets) begin_one(&client);
  while (client.ended < gets) karst_reactor_run(reactor, -1);
  clock_gettime(CLOCK_MONOTONIC, &ended);
  double seconds = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
  printf("%llu gets, %llu in flight on one thread: %.0f/s, %llu found, %llu bytes\n", (unsigned long long)gets,
         (unsigned long long)in_flight, (double)gets / seconds, (unsigned long long)client.found,
         (unsigned long long)client.bytes);

  karst_reactor_destroy(reactor, &error);
  check(error);
  rocksdb_readoptions_destroy(read);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  rocksdb_block_based_options_destroy(table);
  rocksdb_cache_destroy(cache);
  return 0;
}

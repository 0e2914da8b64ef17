/* RocksDB's header for `gorocksdb` of 2019: functions that RocksDB has removed or changed since, over
   those of today. Removed functions do nothing here.
   SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include_next <rocksdb/c.h>

/* Removed. */
#define GONE(name, ...) \
  static inline void name(__VA_ARGS__) {}
GONE(rocksdb_block_based_options_set_block_cache_compressed,
     rocksdb_block_based_table_options_t* options, rocksdb_cache_t* cache)
GONE(rocksdb_delete_file, rocksdb_t* db, const char* name)
GONE(rocksdb_options_set_access_hint_on_compaction_start, rocksdb_options_t* options, int hint)
GONE(rocksdb_options_set_hard_rate_limit, rocksdb_options_t* options, double limit)
GONE(rocksdb_options_set_max_mem_compaction_level, rocksdb_options_t* options, int level)
GONE(rocksdb_options_set_purge_redundant_kvs_while_flush, rocksdb_options_t* options,
     unsigned char purge)
GONE(rocksdb_options_set_rate_limit_delay_max_milliseconds, rocksdb_options_t* options,
     unsigned int delay)
GONE(rocksdb_options_set_skip_log_error_on_recovery, rocksdb_options_t* options,
     unsigned char skip)
GONE(rocksdb_options_set_soft_rate_limit, rocksdb_options_t* options, double limit)
GONE(rocksdb_options_set_table_cache_remove_scan_count_limit, rocksdb_options_t* options, int limit)

/* Removed: a filter policy of the program's own. It becomes no filter. */
static inline rocksdb_filterpolicy_t* rocksdb_filterpolicy_create(
    void* state, void (*destructor)(void*),
    char* (*create)(void*, const char* const*, const size_t*, int, size_t*),
    unsigned char (*matches)(void*, const char*, size_t, const char*, size_t),
    void (*drop)(void*, const char*, size_t), const char* (*name)(void*)) {
  return NULL;
}

/* Functions with changed parameters. The macros have none, because cgo calls functions, not macros. */
static inline rocksdb_slicetransform_t* before_slicetransform_create(
    void* state, void (*destructor)(void*),
    char* (*transform)(void*, const char*, size_t, size_t*),
    unsigned char (*in_domain)(void*, const char*, size_t),
    unsigned char (*in_range)(void*, const char*, size_t), const char* (*name)(void*)) {
  return rocksdb_slicetransform_create(state, destructor, transform, in_domain, name);
}
#define rocksdb_slicetransform_create before_slicetransform_create

static inline void before_approximate_sizes(rocksdb_t* db, int count, const char* const* starts,
                                            const size_t* start_lengths, const char* const* limits,
                                            const size_t* limit_lengths, uint64_t* sizes) {
  char* error = NULL;
  rocksdb_approximate_sizes(db, count, starts, start_lengths, limits, limit_lengths, sizes, &error);
  rocksdb_free(error);
}
#define rocksdb_approximate_sizes before_approximate_sizes

static inline void before_approximate_sizes_cf(rocksdb_t* db,
                                               rocksdb_column_family_handle_t* family, int count,
                                               const char* const* starts,
                                               const size_t* start_lengths,
                                               const char* const* limits,
                                               const size_t* limit_lengths, uint64_t* sizes) {
  char* error = NULL;
  rocksdb_approximate_sizes_cf(db, family, count, starts, start_lengths, limits, limit_lengths,
                               sizes, &error);
  rocksdb_free(error);
}
#define rocksdb_approximate_sizes_cf before_approximate_sizes_cf

static inline void before_enable_file_deletions(rocksdb_t* db, unsigned char force, char** error) {
  rocksdb_enable_file_deletions(db, error);
}
#define rocksdb_enable_file_deletions before_enable_file_deletions

static inline rocksdb_filterpolicy_t* before_bloom(int bits_per_key) {
  return rocksdb_filterpolicy_create_bloom(bits_per_key);
}
#define rocksdb_filterpolicy_create_bloom before_bloom

static inline rocksdb_filterpolicy_t* before_bloom_full(int bits_per_key) {
  return rocksdb_filterpolicy_create_bloom_full(bits_per_key);
}
#define rocksdb_filterpolicy_create_bloom_full before_bloom_full

static inline void before_plain_table_factory(rocksdb_options_t* options, uint32_t key_length,
                                              int bloom_bits, double hash_ratio,
                                              size_t sparseness) {
  rocksdb_options_set_plain_table_factory(options, key_length, bloom_bits, hash_ratio, sparseness,
                                          0, 0, 0, 0);
}
#define rocksdb_options_set_plain_table_factory before_plain_table_factory

/* A listener with the header's own types: `events DIR` prints what its callbacks receive.
   SPDX-License-Identifier: Apache-2.0 */

#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  int flushes, compactions, parts, sealed, stalls;
  volatile int ends;
  uint64_t entries, replaced;
  int from, to;
} heard_t;

static char* error = NULL;

static void ok(const char* what) {
  if (error != NULL) {
    fprintf(stderr, "%s: %s\n", what, error);
    exit(1);
  }
}

static void ends(void* state) { ((heard_t*)state)->ends++; }

static void flush_completed(void* state, rocksdb_t* db, const rocksdb_flushjobinfo_t* info) {
  heard_t* heard = state;
  if (db != NULL) exit(2);
  heard->flushes++;
  heard->entries +=
      rocksdb_table_properties_num_entries(rocksdb_flushjobinfo_table_properties(info));
}

static void compaction_completed(void* state, rocksdb_t* db,
                                 const rocksdb_compactionjobinfo_t* info) {
  heard_t* heard = state;
  const rocksdb_compaction_job_stats_t* stats = rocksdb_compactionjobinfo_stats(info);
  if (db != NULL) exit(2);
  rocksdb_compactionjobinfo_status(info, &error);
  ok("a compaction");
  heard->compactions++;
  heard->replaced += rocksdb_compaction_job_stats_num_records_replaced(stats);
  heard->from = rocksdb_compaction_file_info_level(rocksdb_compactionjobinfo_input_file_info_at(info, 0));
  heard->to = rocksdb_compaction_file_info_level(rocksdb_compactionjobinfo_output_file_info_at(info, 0));
}

static void part_completed(void* state, const rocksdb_subcompactionjobinfo_t* info) {
  heard_t* heard = state;
  heard->parts += rocksdb_subcompactionjobinfo_subcompaction_job_id(info) == 0;
}

static void sealed(void* state, const rocksdb_memtableinfo_t* info) {
  heard_t* heard = state;
  heard->sealed += rocksdb_memtableinfo_num_entries(info) == 2;
}

static void stalls(void* state, const rocksdb_writestallinfo_t* info) {
  const rocksdb_writestallcondition_t* now = rocksdb_writestallinfo_cur(info);
  ((heard_t*)state)->stalls += now != rocksdb_writestallinfo_prev(info);
}

int main(int count, char** arguments) {
  heard_t heard = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  on_flush_completed_cb flushed = flush_completed;
  on_compaction_completed_cb compacted = compaction_completed;
  on_subcompaction_completed_cb part = part_completed;
  on_memtable_sealed_cb seal = sealed;
  on_stall_conditions_changed_cb stall = stalls;
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
  rocksdb_flushoptions_t* flush = rocksdb_flushoptions_create();
  rocksdb_t* db;
  int at;
  if (count < 2) return 1;
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_disable_auto_compactions(options, 1);
  rocksdb_options_add_eventlistener(
      options, rocksdb_eventlistener_create(&heard, ends, NULL, flushed, NULL, compacted, NULL,
                                            part, NULL, NULL, stall, seal));
  db = rocksdb_open(options, arguments[1], &error);
  ok("open");
  for (at = 0; at < 3; at++) {
    rocksdb_put(db, write, "first", 5, "value", 5, &error);
    ok("put");
    rocksdb_put(db, write, "last", 4, "value", 5, &error);
    ok("put");
    rocksdb_flush(db, flush, &error);
    ok("flush");
  }
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  rocksdb_writeoptions_destroy(write);
  rocksdb_flushoptions_destroy(flush);
  /* A thread of the last job may let go of the listener a moment after rocksdb_close. */
  while (heard.ends == 0) {}
  printf("%d flushes of %d entries, %d sealed; %d compactions of %d parts from %d to %d, %d replaced; "
         "%d stalls; %d ends\n",
         heard.flushes, (int)heard.entries, heard.sealed, heard.compactions, heard.parts, heard.from,
         heard.to, (int)heard.replaced, heard.stalls, heard.ends);
  return 0;
}

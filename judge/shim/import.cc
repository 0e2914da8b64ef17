// Internal keys of exported tables: RocksDB's C API neither tells nor takes them, and an import
// without them does not know where range tombstones end.

#include <cstddef>
#include <string>
#include <vector>

#include "rocksdb/metadata.h"

// As RocksDB's `db/c.cc` declares them.
struct rocksdb_livefile_t {
  rocksdb::LiveFileMetaData rep;
};
struct rocksdb_livefiles_t {
  std::vector<rocksdb::LiveFileMetaData> rep;
};

// Returns the smallest internal key of a table, or the largest if `largest` is not 0; it lives as
// long as `files`.
extern "C" const char* karst_judge_bound(const rocksdb_livefiles_t* files, int at, int largest,
                                         size_t* length) {
  const auto& file = files->rep[at];
  const std::string& key = largest != 0 ? file.largest : file.smallest;
  *length = key.size();
  return key.data();
}

// Sets the smallest internal key of a table, or the largest if `largest` is not 0.
extern "C" void karst_judge_set_bound(rocksdb_livefile_t* file, int largest, const char* key,
                                      size_t length) {
  (largest != 0 ? file->rep.largest : file->rep.smallest).assign(key, length);
}

// Options from text and back, through RocksDB's C++ API: its C API takes one kind of text only, and
// prints none.

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/cache.h"
#include "rocksdb/convenience.h"
#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/options_util.h"

namespace {

using rocksdb::Status;

// Kinds of text; `judge/src/lockstep/texts/rocks.rs` has them too.
enum Kind { kDatabase = 0, kFamily = 1, kTable = 2, kBoth = 3, kFile = 4 };

Status PrintTable(const rocksdb::ConfigOptions& config, const rocksdb::BlockBasedTableOptions& options,
                  std::string* out) {
  std::unique_ptr<rocksdb::TableFactory> factory(rocksdb::NewBlockBasedTableFactory(options));
  return factory->GetOptionString(config, out);
}

Status PrintBoth(const rocksdb::ConfigOptions& config, const rocksdb::DBOptions& database,
                 const rocksdb::ColumnFamilyOptions& family, std::string* out) {
  std::string printed;
  Status status = rocksdb::GetStringFromDBOptions(config, database, out);
  if (status.ok()) {
    status = rocksdb::GetStringFromColumnFamilyOptions(config, family, &printed);
  }
  *out += "\n" + printed;
  return status;
}

Status Run(int kind, const std::string& text, bool ignore_unknown, std::string* out) {
  rocksdb::ConfigOptions config;
  config.ignore_unknown_options = ignore_unknown;
  rocksdb::DBOptions database;
  rocksdb::ColumnFamilyOptions family;
  Status status;
  switch (kind) {
    case kDatabase:
      status = rocksdb::GetDBOptionsFromString(config, rocksdb::DBOptions(), text, &database);
      return status.ok() ? rocksdb::GetStringFromDBOptions(config, database, out) : status;
    case kFamily:
      status = rocksdb::GetColumnFamilyOptionsFromString(config, rocksdb::ColumnFamilyOptions(), text, &family);
      return status.ok() ? rocksdb::GetStringFromColumnFamilyOptions(config, family, out) : status;
    case kTable: {
      rocksdb::BlockBasedTableOptions table;
      status = rocksdb::GetBlockBasedTableOptionsFromString(config, rocksdb::BlockBasedTableOptions(), text,
                                                            &table);
      return status.ok() ? PrintTable(config, table, out) : status;
    }
    case kBoth: {
      rocksdb::Options options;
      status = rocksdb::GetOptionsFromString(config, rocksdb::Options(), text, &options);
      return status.ok() ? PrintBoth(config, options, options, out) : status;
    }
    default: {
      std::vector<rocksdb::ColumnFamilyDescriptor> families;
      status = rocksdb::LoadOptionsFromFile(config, text, &database, &families);
      if (status.ok() && families.size() != 1) {
        status = Status::InvalidArgument("not one column family");
      }
      return status.ok() ? PrintBoth(config, database, families[0].options, out) : status;
    }
  }
}

}  // namespace

// Parses `text`, or the file that it names, and prints the options that result. Returns 1 with what
// is printed in `*out`, or 0 with RocksDB's error there; the caller frees it.
extern "C" int karst_judge_options(int kind, const char* text, int ignore_unknown, char** out) {
  std::string printed;
  Status status;
  try {
    status = Run(kind, text, ignore_unknown != 0, &printed);
  } catch (const std::exception& e) {
    status = Status::Aborted("exception", e.what());
  }
  *out = strdup(status.ok() ? printed.c_str() : status.ToString().c_str());
  return status.ok() ? 1 : 0;
}

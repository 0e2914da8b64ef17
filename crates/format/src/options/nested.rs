//! Options whose value is a struct of options in braces.
//!
//! Compat: a text may name only some fields; the others keep their values. Two types also read the
//! form that preceded the structs: compression options as numbers between colons, FIFO options as
//! one size.
use super::choice::{CompactionStopStyle, FileTemperature, PinningTier};
use super::text;
use super::value::{OptionValue, ValueError};
use super::{OptionInfo, OptionSet};

option_table! {
    /// Options of a compression library.
    CompressionOptions in Nested {
        window_bits: i32 = -14, mutable, kept, "zlib's window size as a power of two; negative for no header";
        level: i32 = CompressionOptions::DEFAULT_LEVEL, mutable, honoured, "Compression level; 32767 for the library's default";
        strategy: i32 = 0, mutable, kept, "zlib's strategy";
        max_compressed_bytes_per_kb: i32 = 896, mutable, kept, "Maximum compressed bytes per 1024 bytes; a block that compresses to more stays uncompressed";
        max_dict_bytes: u32 = 0, mutable, honoured, "Maximum size in bytes of a table's dictionary; 0 for none";
        zstd_max_train_bytes: u32 = 0, mutable, honoured, "Maximum bytes of samples that zstd trains a dictionary on; 0 takes raw samples";
        parallel_threads: u32 = 1, mutable, honoured, "Number of threads that compress the blocks of one table";
        enabled: bool = false, mutable, honoured, "Apply these options; it counts only in bottommost_compression_opts";
        max_dict_buffer_bytes: u64 = 0, mutable, honoured, "Maximum bytes of data buffered to sample a dictionary from; 0 for no limit";
        use_zstd_dict_trainer: bool = true, mutable, honoured, "Train dictionaries instead of finalizing raw samples";
        checksum: bool = false, mutable, kept, "Let zstd add its own checksum to each block";
    }
    retired {}
    aliases {}
}

impl CompressionOptions {
    /// The level that stands for the library's default.
    pub const DEFAULT_LEVEL: i32 = 32767;

    /// Reads the older form: window_bits:level:strategy and optional further numbers.
    fn assign_numbers(&mut self, value: &str) -> Result<(), ValueError> {
        let fields: Vec<&str> = value.split(':').collect();
        // Compat: `enabled` preceded `parallel_threads`, so the last of exactly six fields is
        // `enabled`.
        let names: &[&str] = match fields.len() {
            3..=5 => &["window_bits", "level", "strategy", "max_dict_bytes", "zstd_max_train_bytes"],
            6 => &["window_bits", "level", "strategy", "max_dict_bytes", "zstd_max_train_bytes", "enabled"],
            7..=9 => &[
                "window_bits",
                "level",
                "strategy",
                "max_dict_bytes",
                "zstd_max_train_bytes",
                "parallel_threads",
                "enabled",
                "max_dict_buffer_bytes",
                "use_zstd_dict_trainer",
            ],
            _ => return Err(ValueError::new(format!("{value:?} has {} fields, not 3 to 9", fields.len()))),
        };
        for (name, field) in names.iter().zip(fields) {
            self.assign_part(name, field)?;
        }
        Ok(())
    }
}

option_table! {
    /// Age from which on FIFO compaction moves files to colder storage.
    FileTemperatureAge in Nested {
        temperature: FileTemperature = FileTemperature::Unknown, mutable, kept, "Temperature of files of this age";
        age: u64 = 0, mutable, kept, "Age in seconds";
    }
    retired {}
    aliases {}
}

option_table! {
    /// Options of FIFO compaction.
    FifoOptions in Nested {
        max_table_files_size: u64 = 1 << 30, mutable, honoured, "Table bytes above which the oldest file is deleted";
        age_for_warm: u64 = 0, mutable, kept, "Seconds after which a file becomes warm; superseded by file_temperature_age_thresholds";
        allow_compaction: bool = false, mutable, honoured, "Merge small files of L0";
        file_temperature_age_thresholds: Vec<FileTemperatureAge> = Vec::new(), mutable, kept, "Temperatures of files by age, in ascending order of age";
        allow_trivial_copy_when_change_temperature: bool = false, mutable, kept, "Copy a file whole when only its temperature changes";
        trivial_copy_buffer_size: u64 = 4096, mutable, kept, "Bytes of the buffer for copies that change the temperature";
        max_data_files_size: u64 = 0, mutable, honoured, "Table and blob bytes above which the oldest file is deleted; 0 counts tables only";
        use_kv_ratio_compaction: bool = false, mutable, kept, "Size merges of L0 by the ratio of keys to blob values";
    }
    retired { "ttl" }
    aliases {}
}

option_table! {
    /// Options of universal compaction.
    UniversalOptions in Nested {
        size_ratio: u32 = 1, mutable, honoured, "Percentage by which the next sorted run may be larger and still join";
        min_merge_width: u32 = 2, mutable, honoured, "Minimum number of sorted runs in one compaction";
        max_merge_width: u32 = u32::MAX, mutable, honoured, "Maximum number of sorted runs in one compaction";
        max_size_amplification_percent: u32 = 200, mutable, honoured, "Maximum size of all newer runs as a percentage of the last run's size";
        compression_size_percent: i32 = -1, mutable, honoured, "Percentage of the data that is compressed; negative for all";
        max_read_amp: i32 = -1, mutable, honoured, "Maximum number of sorted runs; -1 takes level0_file_num_compaction_trigger, 0 derives it from the size of the data";
        stop_style: CompactionStopStyle = CompactionStopStyle::TotalSize, mutable, honoured, "Size with which the next run's size is compared";
        incremental: bool = false, mutable, kept, "Compact a part of the key range at a time";
        allow_trivial_move: bool = false, mutable, honoured, "Move files that overlap nothing instead of rewriting them";
        reduce_file_locking: bool = true, mutable, kept, "Lock the inputs of a bottommost compaction only when it runs";
    }
    retired {}
    aliases {}
}

option_table! {
    /// Pinning of a table's metadata in the block cache.
    MetadataCacheOptions in Nested {
        top_level_index_pinning: PinningTier = PinningTier::Fallback, fixed, honoured, "Tables whose top-level partitioned indexes and filters are pinned";
        partition_pinning: PinningTier = PinningTier::Fallback, fixed, honoured, "Tables whose index and filter partitions are pinned";
        unpartitioned_pinning: PinningTier = PinningTier::Fallback, fixed, honoured, "Tables whose unpartitioned indexes and filters are pinned";
    }
    retired {}
    aliases {}
}

/// Sets fields from an option string.
fn assign_fields<S: OptionSet>(options: &mut S, fields: &str) -> Result<(), ValueError> {
    options.set_all(fields).map_err(|error| ValueError::new(error.to_string()))
}

fn assign_field<S: OptionSet>(options: &mut S, field: &str, value: &str) -> Result<(), ValueError> {
    options.set(field, value).map(|_| ()).map_err(|error| ValueError::new(error.to_string()))
}

/// Prints the fields. Compat: RocksDB prints them between braces with a semicolon behind each.
fn print_fields<S: OptionSet>(options: &S) -> String {
    format!("{{{}}}", options.to_text())
}

/// Implements [`OptionValue`] for a struct of options; `$old` reads a text without `=`.
macro_rules! nested_value {
    ($($name:ident $old:expr;)*) => {$(
        impl OptionValue for $name {
            const KIND: &'static str = stringify!($name);

            fn assign(&mut self, value: &str) -> Result<(), ValueError> {
                let fields = text::strip_braces(value);
                if !fields.is_empty() && !fields.contains('=') {
                    let old: fn(&mut $name, &str) -> Result<(), ValueError> = $old;
                    return old(self, fields);
                }
                assign_fields(self, fields)
            }

            fn assign_part(&mut self, part: &str, value: &str) -> Result<(), ValueError> {
                assign_field(self, part, value)
            }

            fn part_info(part: &str) -> Option<&'static OptionInfo> {
                <$name as OptionSet>::info(part)
            }

            fn print(&self) -> String {
                print_fields(self)
            }
        }
    )*};
}

nested_value! {
    CompressionOptions CompressionOptions::assign_numbers;
    FifoOptions |options, size| options.max_table_files_size.assign(size);
    FileTemperatureAge assign_fields;
    UniversalOptions assign_fields;
    MetadataCacheOptions assign_fields;
}

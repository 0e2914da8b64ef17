//! Option types that are a choice among names.
//!
//! Each choice has RocksDB's number, so that a caller can convert it to the type that implements it
//! (`CompressionType`, `ChecksumType`, ...).
use super::text::strip_layer;
use super::value::{OptionValue, ValueError};

/// Declares a choice: its variants with RocksDB's numbers and names, and optional further names of
/// a variant behind the first.
macro_rules! choices {
    ($( $(#[$about:meta])* $name:ident { $( $variant:ident = $number:literal $text:literal $($also:literal)*, )* } )*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the variants are RocksDB's, and their names say what they are")]
        pub enum $name { $( $variant = $number, )* }

        impl $name {
            /// Returns RocksDB's name of the choice.
            pub fn name(self) -> &'static str {
                match self { $( $name::$variant => $text, )* }
            }

            /// Returns the choice with this name of RocksDB's.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $( $text $(| $also)* => Some($name::$variant), )* _ => None }
            }

            /// Returns RocksDB's number of the choice.
            pub fn number(self) -> u8 {
                self as u8
            }

            /// Returns the choice with this number of RocksDB's.
            pub fn from_number(number: u8) -> Option<$name> {
                match number { $( $number => Some($name::$variant), )* _ => None }
            }
        }

        impl OptionValue for $name {
            const KIND: &'static str = stringify!($name);

            fn assign(&mut self, text: &str) -> Result<(), ValueError> {
                match $name::from_name(strip_layer(text.trim())) {
                    Some(choice) => *self = choice,
                    None => {
                        let names = [$($text),*].join(", ");
                        return Err(ValueError::new(format!("{text:?} is none of {names}")));
                    }
                }
                Ok(())
            }

            fn print(&self) -> String {
                self.name().to_owned()
            }
        }
    )*};
}

choices! {
    /// Compression of blocks, blobs or log records. `Disable` defers to another option.
    Compression {
        None = 0 "kNoCompression",
        Snappy = 1 "kSnappyCompression",
        Zlib = 2 "kZlibCompression",
        BZip2 = 3 "kBZip2Compression",
        Lz4 = 4 "kLZ4Compression",
        Lz4Hc = 5 "kLZ4HCCompression",
        Xpress = 6 "kXpressCompression",
        Zstd = 7 "kZSTD" "kZSTDNotFinalCompression",
        Disable = 0xff "kDisableCompressionOption",
    }

    /// The checksum behind every block.
    Checksum {
        None = 0 "kNoChecksum",
        Crc32c = 1 "kCRC32c",
        XxHash = 2 "kxxHash",
        XxHash64 = 3 "kxxHash64",
        Xxh3 = 4 "kXXH3",
    }

    /// Compaction strategy.
    CompactionStyle {
        Level = 0 "kCompactionStyleLevel",
        Universal = 1 "kCompactionStyleUniversal",
        Fifo = 2 "kCompactionStyleFIFO",
        None = 3 "kCompactionStyleNone",
    }

    /// Order in which the files of a level are compacted.
    CompactionPriority {
        ByCompensatedSize = 0 "kByCompensatedSize",
        OldestLargestSeqFirst = 1 "kOldestLargestSeqFirst",
        OldestSmallestSeqFirst = 2 "kOldestSmallestSeqFirst",
        MinOverlappingRatio = 3 "kMinOverlappingRatio",
        RoundRobin = 4 "kRoundRobin",
    }

    /// Condition on which universal compaction stops adding sorted runs.
    CompactionStopStyle {
        SimilarSize = 0 "kCompactionStopStyleSimilarSize",
        TotalSize = 1 "kCompactionStopStyleTotalSize",
    }

    /// Expected access frequency of a file's data.
    FileTemperature {
        Unknown = 0 "kUnknown",
        Hot = 0x04 "kHot",
        Warm = 0x08 "kWarm",
        Cool = 0x0a "kCool",
        Cold = 0x0c "kCold",
        Ice = 0x10 "kIce",
    }

    /// Reaction to a damaged log on opening.
    WalRecoveryMode {
        TolerateCorruptedTailRecords = 0 "kTolerateCorruptedTailRecords",
        AbsoluteConsistency = 1 "kAbsoluteConsistency",
        PointInTimeRecovery = 2 "kPointInTimeRecovery",
        SkipAnyCorruptedRecords = 3 "kSkipAnyCorruptedRecords",
    }

    /// Verbosity of the info log.
    InfoLogLevel {
        Debug = 0 "DEBUG_LEVEL",
        Info = 1 "INFO_LEVEL",
        Warn = 2 "WARN_LEVEL",
        Error = 3 "ERROR_LEVEL",
        Fatal = 4 "FATAL_LEVEL",
        Header = 5 "HEADER_LEVEL",
    }

    /// The lowest tier of caches in use.
    CacheTier {
        Volatile = 0 "kVolatileTier",
        VolatileCompressed = 1 "kVolatileCompressedTier",
        NonVolatileBlock = 2 "kNonVolatileBlockTier",
    }

    /// Writes that also put their blobs into the cache.
    PrepopulateBlobCache {
        Disable = 0 "kDisable",
        FlushOnly = 1 "kFlushOnly",
    }

    /// Writes that also put their blocks into the cache.
    PrepopulateBlockCache {
        Disable = 0 "kDisable",
        FlushOnly = 1 "kFlushOnly",
        FlushAndCompaction = 2 "kFlushAndCompaction",
    }

    /// Structure of a table's index.
    IndexType {
        BinarySearch = 0 "kBinarySearch",
        HashSearch = 1 "kHashSearch",
        TwoLevelIndexSearch = 2 "kTwoLevelIndexSearch",
        BinarySearchWithFirstKey = 3 "kBinarySearchWithFirstKey",
    }

    /// Search algorithm for index blocks.
    IndexBlockSearchType {
        Binary = 0 "kBinary",
        Interpolation = 1 "kInterpolation",
        Auto = 2 "kAuto",
    }

    /// Search structure of data blocks.
    DataBlockIndexType {
        BinarySearch = 0 "kDataBlockBinarySearch",
        BinaryAndHash = 1 "kDataBlockBinaryAndHash",
    }

    /// Shortening of index keys.
    IndexShortening {
        NoShortening = 0 "kNoShortening",
        ShortenSeparators = 1 "kShortenSeparators",
        ShortenSeparatorsAndSuccessor = 2 "kShortenSeparatorsAndSuccessor",
    }

    /// Set of tables that pin a kind of metadata in the cache.
    PinningTier {
        Fallback = 0 "kFallback",
        None = 1 "kNone",
        FlushedAndSimilar = 2 "kFlushedAndSimilar",
        All = 3 "kAll",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro has no place for the mark on a variant")]
impl Default for Compression {
    fn default() -> Compression {
        Compression::None
    }
}

//! Options as the engine uses them: of the database, of a column family, of one read.
//!
//! In: the user's settings, which override those in the database's OPTIONS file. Out: typed values
//! and the instances that names stand for. Names, types and defaults of [`DbOptions`],
//! [`ColumnFamilyOptions`] and [`BlockBasedTableOptions`] come from the one table in
//! `karst_format::options`; [`OptionSet`] provides access by name.

mod compact_on_deletion;
mod current;
mod family;
mod read;

pub use current::CurrentDbOptions;
pub use family::{FamilyConfig, Instances};
pub use karst_format::options::choice::{
    CacheTier, Checksum, CompactionPriority, CompactionStopStyle, CompactionStyle, Compression,
    DataBlockIndexType, FileTemperature, IndexBlockSearchType, IndexShortening, IndexType, InfoLogLevel,
    PinningTier, PrepopulateBlobCache, PrepopulateBlockCache, WalRecoveryMode,
};
pub use karst_format::options::nested::{
    CompressionOptions, FifoOptions, FileTemperatureAge, MetadataCacheOptions, UniversalOptions,
};
pub use karst_format::options::{
    Assigned, BlockBasedTableOptions, ColumnFamilyOptions, DbOptions, Object, OptionEntry, OptionError,
    OptionErrorKind, OptionInfo, OptionSet, OptionValue, Section, TableFactory, Unprinted, ValueError,
    WithoutText,
};
pub use read::{ReadOptions, ReadTier, TableFilterFn};

pub use compact_on_deletion::{CompactOnDeletion, NamedCollectors};

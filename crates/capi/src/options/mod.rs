//! `rocksdb_options_t` and its parts: options of block-based tables, of universal and of FIFO
//! compaction.
//!
//! A setter sets RocksDB's option of that name from its text through the option tables, which
//! alone decide the valid values and which options have an effect. Settings without effect are
//! remembered for their getters, and named on stderr when a database is opened.

mod cuckoo;
mod instances;
mod latest;
mod remembered;
mod scalars;

pub(crate) use cuckoo::NAMES as CUCKOO;
pub(crate) use instances::FilterPolicy;
pub(crate) use instances::NAMES as INSTANCES;
pub(crate) use latest::NAMES as LATEST;
pub(crate) use remembered::NAMES as REMEMBERED;
pub(crate) use scalars::{KEPT, SERVED, SIGNATURES};

use crate::boundary::*;
use crate::cache::Environment;
use crate::loaded::default_format_version;
use karstdb::format::{Comparator, PrefixExtractor};
use karstdb::io::Env;
use karstdb::options as o;
use karstdb::options::{
    BlockBasedTableOptions, ColumnFamilyOptions, DbOptions, FifoOptions, OptionInfo, OptionSet,
    UniversalOptions,
};
use karstdb::{
    BlockCache, CompactOnDeletion, CompactionFilter, CompactionFilterFactory, EventListener, Logger,
    MergeOperator, Options, RateLimiter, SstFileManager, SstPartitionerFactory, Statistics,
    WriteBufferManager,
};
use libc::c_int;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `rocksdb_options_t`.
#[derive(Clone, Debug)]
pub struct OptionsHandle {
    db: DbOptions,
    family: ColumnFamilyOptions,
    pub(crate) kept: Kept,
    /// Settings without effect that are sets of numbers, by the names of their options.
    kept_sets: BTreeMap<&'static str, BTreeSet<c_int>>,
    comparator: Option<Comparator>,
    merge_operator: Option<Arc<dyn MergeOperator>>,
    compaction_filter: Option<Arc<dyn CompactionFilter>>,
    compaction_filter_factory: Option<Arc<dyn CompactionFilterFactory>>,
    sst_partitioner_factory: Option<Arc<dyn SstPartitionerFactory>>,
    prefix_extractor: Option<PrefixExtractor>,
    compact_on_deletion: Option<CompactOnDeletion>,
    block_cache: Option<BlockCache>,
    blob_cache: Option<BlockCache>,
    env: Option<Env>,
    rate_limiter: Option<RateLimiter>,
    file_manager: Option<SstFileManager>,
    write_buffers: Option<WriteBufferManager>,
    pub(crate) listeners: Vec<Arc<dyn EventListener>>,
    paths: Vec<karstdb::DbPath>,
    family_paths: Vec<karstdb::DbPath>,
    pub(crate) logger: Option<Arc<dyn Logger>>,
    pub(crate) statistics: Option<Arc<Statistics>>,
}

impl Default for OptionsHandle {
    fn default() -> Self {
        let mut family = ColumnFamilyOptions::default();
        family.table_factory.block_based = TableHandle::default().options;
        OptionsHandle {
            db: DbOptions::default(),
            family,
            kept: Kept::default(),
            kept_sets: remembered::sets(),
            comparator: None,
            merge_operator: None,
            compaction_filter: None,
            compaction_filter_factory: None,
            sst_partitioner_factory: None,
            prefix_extractor: None,
            compact_on_deletion: None,
            block_cache: None,
            blob_cache: None,
            env: None,
            rate_limiter: None,
            file_manager: None,
            write_buffers: None,
            listeners: Vec::new(),
            paths: Vec::new(),
            family_paths: Vec::new(),
            logger: None,
            statistics: None,
        }
    }
}

impl OptionsHandle {
    /// Returns the options to open a database with, and each family with its own. The OPTIONS file
    /// is ignored, because RocksDB's caller passes all options itself.
    pub(crate) fn to_options(&self, families: &[(&str, &OptionsHandle)]) -> karstdb::Result<Options> {
        let db = self.db.clone();
        let mut options = Options::new().ignore_options_file(true).db(move |options| *options = db.clone());
        if families.is_empty() {
            options = self.of_family(options, None);
        }
        for (name, own) in families {
            options = own.of_family(options, Some(name));
        }
        let of_default = families.iter().find(|(name, _)| *name == "default").map_or(self, |(_, own)| own);
        if let Some(cache) = of_default.block_cache.as_ref().or(self.block_cache.as_ref()) {
            options = options.block_cache(cache.clone());
        }
        if let Some(env) = &self.env {
            options = options.env(env.clone());
        }
        if let Some(statistics) = &self.statistics {
            options = options.statistics(statistics.clone());
        }
        if let Some(limiter) = &self.rate_limiter {
            options = options.rate_limiter(limiter.clone());
        }
        if let Some(manager) = &self.file_manager {
            options = options.sst_file_manager(manager.clone());
        }
        if let Some(buffers) = &self.write_buffers {
            options = options.write_buffer_manager(buffers.clone());
        }
        for listener in &self.listeners {
            options = options.event_listener(listener.clone());
        }
        if let Some(logger) = &self.logger {
            options = options.logger(logger.clone());
        }
        if !self.paths.is_empty() {
            options = options.db_paths(self.paths.clone());
        }
        let mut idle: BTreeSet<&str> = self.kept.names();
        idle.extend(families.iter().flat_map(|(_, own)| own.kept.names()));
        if !idle.is_empty() {
            let idle: Vec<_> = idle.into_iter().collect();
            say_once("options without effect", &idle.join(", "));
        }
        Ok(options)
    }

    /// Sets the comparator named in the options, unless the caller has given its own.
    pub(crate) fn with_comparator(&self, options: Options, family: Option<&str>) -> Options {
        let named = self.family.comparator.id().filter(|_| self.comparator.is_none());
        match named.and_then(Comparator::from_name) {
            Some(comparator) => options.comparator(family, comparator),
            None => options,
        }
    }

    fn of_family(&self, mut options: Options, name: Option<&str>) -> Options {
        let mut own = self.family.clone();
        if let Some(rule) = &self.compact_on_deletion {
            own.table_properties_collectors.0 = rule.option_text();
        }
        options = match name {
            Some(name) => options.column_family(name, move |family| *family = own.clone()),
            None => options.column_families(move |family| *family = own.clone()),
        };
        if let Some(cache) = &self.blob_cache {
            options = options.blob_cache(name, cache.clone());
        }
        if !self.family_paths.is_empty() {
            options = options.cf_paths(name, self.family_paths.clone());
        }
        if let Some(comparator) = &self.comparator {
            options = options.comparator(name, comparator.clone());
        }
        if let Some(operator) = &self.merge_operator {
            options = options.merge_operator(name, operator.clone());
        }
        if let Some(filter) = &self.compaction_filter {
            options = options.compaction_filter(name, filter.clone());
        }
        if let Some(factory) = &self.compaction_filter_factory {
            options = options.compaction_filter_factory(name, factory.clone());
        }
        if let Some(factory) = &self.sst_partitioner_factory {
            options = options.sst_partitioner_factory(name, factory.clone());
        }
        if let Some(extractor) = &self.prefix_extractor {
            options = options.prefix_extractor(name, extractor.clone());
        }
        options
    }

    pub(crate) fn environment(&self) -> Env {
        self.env.clone().unwrap_or_else(Env::posix)
    }

    pub(crate) unsafe fn env_of(env: *const Environment) -> Env {
        unsafe { env.as_ref() }.map_or_else(Env::posix, |env| env.0.clone())
    }
}

/// Settings without effect, by the name of their setter: numbers, and bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(BTreeMap<&'static str, Number>, BTreeMap<&'static str, Vec<u8>>);

impl Kept {
    pub(crate) fn set(&mut self, name: &'static str, value: Number) {
        self.0.insert(name, value);
    }

    pub(crate) fn get(&self, name: &str) -> Number {
        self.0.get(name).copied().unwrap_or(Number::Whole(0))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(crate) fn set_bytes(&mut self, name: &'static str, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.1.insert(name, bytes.to_vec()),
            None => self.1.remove(name),
        };
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.1.get(name).map(Vec::as_slice)
    }

    fn names(&self) -> BTreeSet<&'static str> {
        self.0.keys().copied().collect()
    }
}

/// A number of C.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Whole(i128),
    Real(f64),
}

/// A C type of setters and getters.
pub(crate) trait CNumber: Copy {
    fn number(self) -> Number;
    fn of(number: Number) -> Self;
}

macro_rules! c_numbers {
    ($($whole:ty)*) => {$(
        impl CNumber for $whole {
            fn number(self) -> Number { Number::Whole(self as i128) }
            fn of(number: Number) -> Self {
                match number { Number::Whole(whole) => whole as $whole, Number::Real(real) => real as $whole }
            }
        }
    )*};
}
c_numbers! { i8 u8 i32 u32 i64 u64 usize }

impl CNumber for f64 {
    fn number(self) -> Number {
        Number::Real(self)
    }
    fn of(number: Number) -> Self {
        match number {
            Number::Whole(whole) => whole as f64,
            Number::Real(real) => real,
        }
    }
}

impl CNumber for bool {
    fn number(self) -> Number {
        Number::Whole(self.into())
    }
    fn of(number: Number) -> Self {
        i32::of(number) != 0
    }
}

/// Generates conversions between the number and the name of an enumeration's value, by the name of
/// its type.
macro_rules! choices {
    ($($kind:ident)*) => {
        fn choice_name(kind: &str, number: u8) -> Option<&'static str> {
            match kind { $(stringify!($kind) => o::$kind::from_number(number).map(o::$kind::name),)* _ => None }
        }
        fn choice_number(kind: &str, name: &str) -> Option<u8> {
            match kind { $(stringify!($kind) => o::$kind::from_name(name).map(o::$kind::number),)* _ => None }
        }
    };
}
choices! {
    CacheTier Checksum CompactionPriority CompactionStopStyle CompactionStyle Compression DataBlockIndexType
    FileTemperature IndexBlockSearchType IndexShortening IndexType InfoLogLevel PinningTier PrepopulateBlobCache
    PrepopulateBlockCache WalRecoveryMode
}

/// Returns the text of a number, for an option of this type.
fn text_of(info: &OptionInfo, number: Number) -> String {
    match number {
        Number::Whole(whole) if info.kind == "bool" => (whole != 0).to_string(),
        Number::Whole(whole) => {
            let name = choice_name(info.kind, whole as u8);
            name.map_or_else(|| whole.to_string(), str::to_owned)
        }
        Number::Real(real) => real.to_string(),
    }
}

fn number_of(info: &OptionInfo, text: &str) -> Number {
    match text {
        "true" => return Number::Whole(1),
        "false" => return Number::Whole(0),
        _ => {}
    }
    let whole = choice_number(info.kind, text).map(i128::from).or_else(|| text.parse().ok());
    whole.map(Number::Whole).unwrap_or_else(|| Number::Real(text.parse().unwrap_or(0.0)))
}

/// Options with RocksDB's names for their setters and getters.
pub(crate) trait ByName {
    fn info(name: &str) -> Option<&'static OptionInfo>;
    fn assign(&mut self, name: &str, text: &str) -> Result<(), o::OptionError>;
    fn read(&self, name: &str) -> Option<String>;
    fn kept(&mut self) -> &mut Kept;
    fn kept_value(&self, setter: &str) -> Number;
    fn has_kept(&self, setter: &str) -> bool;

    /// Sets the option `name` by its setter. An invalid value is reported on stderr and not set.
    fn set_number(&mut self, setter: &'static str, name: &str, number: Number) {
        let Some(info) = Self::info(name) else { return self.kept().set(setter, number) };
        match self.assign(name, &text_of(info, number)) {
            Ok(()) if info.honoured => {}
            // Compat: an `enum` of RocksDB takes any number, which its getter returns.
            Ok(()) => self.kept().set(setter, number),
            Err(_) if !info.honoured => self.kept().set(setter, number),
            Err(error) => say_once(setter, &error.to_string()),
        }
    }

    fn get_number(&self, setter: &str, name: &str) -> Number {
        match Self::info(name).zip(self.read(name)) {
            Some((info, text)) if info.honoured || !self.has_kept(setter) => number_of(info, &text),
            _ => self.kept_value(setter),
        }
    }
}

impl ByName for OptionsHandle {
    fn info(name: &str) -> Option<&'static OptionInfo> {
        DbOptions::info(name).or_else(|| ColumnFamilyOptions::info(name))
    }

    fn assign(&mut self, name: &str, text: &str) -> Result<(), o::OptionError> {
        match DbOptions::info(name) {
            Some(_) => self.db.set(name, text).map(drop),
            None => self.family.set(name, text).map(drop),
        }
    }

    fn read(&self, name: &str) -> Option<String> {
        match name.split_once('.') {
            Some(("compression_opts", part)) => self.family.compression_opts.get(part),
            Some(("bottommost_compression_opts", part)) => self.family.bottommost_compression_opts.get(part),
            Some(_) => None,
            None => self.db.get(name).or_else(|| self.family.get(name)),
        }
    }

    fn kept(&mut self) -> &mut Kept {
        &mut self.kept
    }

    fn kept_value(&self, setter: &str) -> Number {
        self.kept.get(setter)
    }

    fn has_kept(&self, setter: &str) -> bool {
        self.kept.has(setter)
    }
}

/// `rocksdb_block_based_table_options_t`.
#[derive(Clone, Debug)]
pub struct TableHandle {
    options: BlockBasedTableOptions,
    pub(crate) kept: Kept,
    cache: Option<BlockCache>,
}

/// `rocksdb_universal_compaction_options_t`.
#[derive(Clone, Debug, Default)]
pub struct UniversalHandle {
    options: UniversalOptions,
    kept: Kept,
}

/// `rocksdb_fifo_compaction_options_t`.
#[derive(Clone, Debug, Default)]
pub struct FifoHandle {
    options: FifoOptions,
    kept: Kept,
}

/// Handles around one table of options, by its names.
macro_rules! one_table {
    ($($handle:ident($options:ident);)*) => {$(
        impl ByName for $handle {
            fn info(name: &str) -> Option<&'static OptionInfo> { $options::info(name) }
            fn assign(&mut self, name: &str, text: &str) -> Result<(), o::OptionError> { self.options.set(name, text).map(drop) }
            fn read(&self, name: &str) -> Option<String> {
                self.options.get(name)
            }
            fn kept(&mut self) -> &mut Kept { &mut self.kept }
            fn kept_value(&self, setter: &str) -> Number { self.kept.get(setter) }
            fn has_kept(&self, setter: &str) -> bool { self.kept.has(setter) }
        }
    )*};
}

one_table! {
    TableHandle(BlockBasedTableOptions);
    UniversalHandle(UniversalOptions);
    FifoHandle(FifoOptions);
}

impl Default for TableHandle {
    fn default() -> Self {
        let format_version = default_format_version();
        let options = BlockBasedTableOptions { format_version, ..BlockBasedTableOptions::default() };
        TableHandle { options, kept: Kept::default(), cache: None }
    }
}

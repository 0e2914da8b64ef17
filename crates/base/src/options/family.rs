//! A column family's options, resolved: names replaced by the instances they stand for.
//!
//! In: the options (from OPTIONS, changed by the user), the comparator's name in the MANIFEST, and
//! instances that the user supplies. Out: [`FamilyConfig`], which the engine reads the family with.
//!
//! Rules: supplied instances win. The comparator, named by the MANIFEST, must be known, because no
//! key can be found without it. A missing merge operator is an error only when an operand is read,
//! and that error names it. A missing prefix extractor only leaves prefix filters unused.

use crate::compaction_filter::{
    self, CompactionFilter, CompactionFilterFactory, FilterContext, TableCreationReason,
};
use crate::error::{Error, Named, Result};
use crate::merge_operator::{self, MergeOperator};
use crate::options::{ColumnFamilyOptions, CompactionStyle, NamedCollectors};
use crate::sst_partitioner::{self, SstPartitionerFactory};
use crate::table_properties_collector::TablePropertiesCollectorFactory;
use crate::ttl::{self, TimeToLive};
use karst_format::comparator::Comparator;
use karst_format::ids::ColumnFamilyId;
use karst_format::options::{NamedColumnFamily, Object, changed_sections};
use karst_format::slice_transform::PrefixExtractor;
use karst_io::report;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Makes an option name the instance in use, or none.
///
/// A name in OPTIONS without an instance is cleared, because compaction decisions depend on the
/// presence of a filter.
fn settle_name(
    notes: &mut Vec<String>,
    (option, without): (&str, &str),
    named: &mut Object,
    instance: Option<&str>,
) {
    match (named.id(), instance) {
        (Some(named), Some(instance)) if named == instance => {}
        (_, Some(instance)) => *named = Object::new(instance),
        (None, None) => {}
        (Some(missing), None) => {
            notes.push(format!("{option} {missing:?} is not built in and not supplied: {without}"));
            *named = Object::NONE;
        }
    }
}

/// Instances that the user supplies for a column family; they replace those named in its options.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    /// The order of keys.
    pub comparator: Option<Comparator>,
    /// Combines merge operands.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    /// Extracts the prefix of a key.
    pub prefix_extractor: Option<PrefixExtractor>,
    /// Filters entries in compactions.
    pub compaction_filter: Option<Arc<dyn CompactionFilter>>,
    /// Creates a filter for each compaction.
    pub compaction_filter_factory: Option<Arc<dyn CompactionFilterFactory>>,
    /// Decides where compactions cut tables.
    pub sst_partitioner_factory: Option<Arc<dyn SstPartitionerFactory>>,
    /// Add properties to tables, besides the collectors named in the options.
    pub collectors: Vec<Arc<dyn TablePropertiesCollectorFactory>>,
    /// Lifetime of entries, in a database with a TTL. Operator and filters are the user's own.
    pub ttl: Option<Arc<TimeToLive>>,
}

impl Instances {
    /// Fills missing instances from `other`.
    pub fn or(self, other: &Instances) -> Instances {
        Instances {
            comparator: self.comparator.or_else(|| other.comparator.clone()),
            merge_operator: self.merge_operator.or_else(|| other.merge_operator.clone()),
            prefix_extractor: self.prefix_extractor.or_else(|| other.prefix_extractor.clone()),
            compaction_filter: self.compaction_filter.or_else(|| other.compaction_filter.clone()),
            compaction_filter_factory: self
                .compaction_filter_factory
                .or_else(|| other.compaction_filter_factory.clone()),
            sst_partitioner_factory: self
                .sst_partitioner_factory
                .or_else(|| other.sst_partitioner_factory.clone()),
            collectors: if self.collectors.is_empty() { other.collectors.clone() } else { self.collectors },
            ttl: self.ttl.or_else(|| other.ttl.clone()),
        }
    }

    /// Returns the prefix extractor: the supplied one, or the one named in `options`.
    pub fn prefix_extractor_for(&self, options: &ColumnFamilyOptions) -> Option<PrefixExtractor> {
        self.prefix_extractor.clone().or_else(|| PrefixExtractor::from_name(options.prefix_extractor.id()?))
    }
}

/// A column family's configuration: its options and resolved instances.
#[derive(Clone, Debug)]
pub struct FamilyConfig {
    /// Its id in all files.
    pub id: ColumnFamilyId,
    /// Its name in the MANIFEST.
    pub name: String,
    /// Its options, as set.
    pub options: ColumnFamilyOptions,
    /// The order of keys.
    pub comparator: Comparator,
    /// None also if OPTIONS names an unknown one.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    /// None also if OPTIONS names an unknown one.
    pub prefix_extractor: Option<PrefixExtractor>,
    /// Filter shared by all compactions; takes precedence over the factory.
    pub compaction_filter: Option<Arc<dyn CompactionFilter>>,
    /// Creates a filter for each compaction.
    pub compaction_filter_factory: Option<Arc<dyn CompactionFilterFactory>>,
    /// Creates partitioners, which decide where compactions cut tables.
    pub sst_partitioner_factory: Option<Arc<dyn SstPartitionerFactory>>,
    /// Add properties to tables: those named in the options, then those supplied.
    pub collectors: Vec<Arc<dyn TablePropertiesCollectorFactory>>,
    /// The supplied ones among `collectors`.
    pub supplied_collectors: Vec<Arc<dyn TablePropertiesCollectorFactory>>,
    /// Lifetime of entries, in a database with a TTL; operator and filters apply it.
    pub ttl: Option<Arc<TimeToLive>>,
    /// The file that describes the column family, for errors: OPTIONS, or the MANIFEST if there are
    /// no OPTIONS.
    pub described_in: Option<PathBuf>,
    /// Notes for LOG: names in the options without an instance, and settings of the file that could
    /// not be applied.
    pub notes: Vec<String>,
    /// See [`options_text`](Self::options_text).
    options_text: OnceLock<String>,
}

impl FamilyConfig {
    /// Resolves the instances. `manifest_comparator` is the name in the MANIFEST, if recorded.
    ///
    /// # Errors
    /// The comparator is not built in and not supplied, or the tables are of a format that is not
    /// block-based.
    pub fn resolve(
        id: ColumnFamilyId,
        name: &str,
        mut options: ColumnFamilyOptions,
        manifest_comparator: Option<&str>,
        instances: Instances,
    ) -> Result<FamilyConfig> {
        if !options.table_factory.is_block_based() {
            return Err(Error::not_supported(format!(
                "column family {:?} has tables of format {:?}; only BlockBasedTable is known",
                Named(name),
                options.table_factory.name
            )));
        }
        // Compat: RocksDB has as many levels as the compaction style needs, too.
        let fewest_levels = if options.compaction_style == CompactionStyle::Level { 2 } else { 1 };
        options.num_levels = options.num_levels.max(fewest_levels);
        let prefix_extractor = instances.prefix_extractor_for(&options);
        let comparator = match instances.comparator {
            // Rebuilds the comparator because a caller may name the variant without knowing of the
            // one with timestamps.
            Some(Comparator::Custom(supplied)) => Comparator::custom(supplied),
            Some(supplied) => supplied,
            None => {
                let recorded = manifest_comparator.or(options.comparator.id()).unwrap_or_default();
                Comparator::lookup(recorded).map_err(|e| {
                    Error::with_source(
                        crate::error::ErrorKind::NotSupported,
                        format!("column family {:?}: {e}", Named(name)),
                        e,
                    )
                })?
            }
        };
        if comparator.timestamp_size() > 0 && !options.persist_user_defined_timestamps {
            return Err(Error::not_supported(format!(
                "column family {:?}: persist_user_defined_timestamps=false",
                Named(name)
            )));
        }
        // Each family gets its own because a TTL change affects one family, and the supplied one
        // may serve several.
        let ttl = instances.ttl.as_ref().map(|ttl| ttl.of_another_family());
        let named_operator = match ttl {
            Some(_) => ttl::users_operator(&options.merge_operator),
            None => options.merge_operator.text(),
        };
        let built_in = named_operator.and_then(merge_operator::from_name);
        let merge_operator = match (&ttl, instances.merge_operator) {
            (None, supplied) => supplied.or(built_in),
            (Some(ttl), Some(user)) => {
                options.merge_operator = ttl::described(user.name());
                Some(ttl.over_operator(user))
            }
            (Some(ttl), None) => {
                let described =
                    built_in.is_some().then(|| ttl::described(named_operator.unwrap_or_default()));
                if let Some(described) = described {
                    options.merge_operator = described;
                }
                built_in.map(|user| ttl.over_operator(user))
            }
        };
        let mut notes = Vec::new();
        if let Some(text) = options.merge_operator.text().filter(|_| merge_operator.is_none()) {
            notes.push(format!(
                "merge_operator {text:?} is not built in and not supplied: keys with operands cannot be read"
            ));
        }
        if let Some(text) = options.prefix_extractor.text().filter(|_| prefix_extractor.is_none()) {
            notes.push(format!(
                "prefix_extractor {text:?} is not built in and not supplied: prefix filters are not used"
            ));
        }
        let compaction_filter = instances
            .compaction_filter
            .or_else(|| compaction_filter::from_name(options.compaction_filter.text()?));
        let (compaction_filter, compaction_filter_factory) =
            match (&ttl, compaction_filter, instances.compaction_filter_factory) {
                (None, filter, factory) => (filter, factory),
                (Some(ttl), Some(user), _) => (Some(ttl.over_filter(user)), None),
                (Some(ttl), None, user) => (None, Some(ttl.over_factory(user))),
            };
        let filter_name = compaction_filter.as_ref().map(|filter| filter.name());
        let unfiltered = "nothing is filtered";
        settle_name(
            &mut notes,
            ("compaction_filter", unfiltered),
            &mut options.compaction_filter,
            filter_name,
        );
        let named_collectors = NamedCollectors::in_option_text(&options.table_properties_collectors.0);
        // Compat: RocksDB reads only some forms of the value, for example not nested braces, and
        // refuses to open a file with others.
        if let Some(text) = named_collectors.option_text() {
            options.table_properties_collectors.0 = text;
        }
        let without_effect = named_collectors.without_effect.iter();
        notes.extend(
            without_effect
                .map(|name| format!("table_properties_collectors: {name} has no effect in KarstDB")),
        );
        notes.extend(named_collectors.unknown.iter().map(|text| {
            format!(
                "table_properties_collectors {text:?} is not built in and not supplied: new tables lack its properties"
            )
        }));
        let supplied_collectors = instances.collectors;
        let rules = named_collectors.compact_on_deletion.into_iter();
        let built_in = rules.map(|rule| Arc::new(rule) as Arc<dyn TablePropertiesCollectorFactory>);
        let collectors = built_in.chain(supplied_collectors.iter().cloned()).collect();
        let factory_name = compaction_filter_factory.as_ref().map(|factory| factory.name());
        settle_name(
            &mut notes,
            ("compaction_filter_factory", unfiltered),
            &mut options.compaction_filter_factory,
            factory_name,
        );
        let sst_partitioner_factory = instances
            .sst_partitioner_factory
            .or_else(|| sst_partitioner::from_name(options.sst_partitioner_factory.text()?));
        match sst_partitioner_factory.as_ref().map(|factory| factory.option_text()) {
            Some(text) => options.sst_partitioner_factory = Object::new(&text),
            None => settle_name(
                &mut notes,
                ("sst_partitioner_factory", "tables are cut without a partitioner"),
                &mut options.sst_partitioner_factory,
                None,
            ),
        }
        notes.iter().for_each(|note| report!(warn, column_family = name, "{note}"));
        Ok(FamilyConfig {
            id,
            name: name.to_owned(),
            options,
            comparator,
            merge_operator,
            prefix_extractor,
            compaction_filter,
            compaction_filter_factory,
            sst_partitioner_factory,
            collectors,
            supplied_collectors,
            ttl,
            described_in: None,
            notes,
            options_text: OnceLock::new(),
        })
    }

    /// Returns the family's sections of the OPTIONS file.
    ///
    /// Cached because every change of any family rewrites the whole file, and most families have
    /// not changed since.
    pub fn options_text(&self) -> &str {
        self.options_text.get_or_init(|| {
            changed_sections(&NamedColumnFamily { name: self.name.clone(), options: self.described() })
        })
    }

    /// Returns the options with the names of supplied instances, so that a later open knows which
    /// instances the database needs.
    fn described(&self) -> ColumnFamilyOptions {
        let mut options = self.options.clone();
        let name = |option: &mut Object, name: &str| {
            if option.id() != Some(name) {
                *option = Object::new(name);
            }
        };
        name(&mut options.comparator, self.comparator.name());
        if let Some(operator) = &self.merge_operator
            && options.merge_operator.text().is_none()
        {
            name(&mut options.merge_operator, operator.name());
        }
        if let Some(extractor) = &self.prefix_extractor
            && options.prefix_extractor.text().is_none()
        {
            name(&mut options.prefix_extractor, &extractor.name());
        }
        options
    }

    /// Returns the user's filter for a job, if one applies.
    pub fn filter_for(&self, context: &FilterContext) -> Option<Arc<dyn CompactionFilter>> {
        if let Some(filter) = &self.compaction_filter
            && context.reason == TableCreationReason::Compaction
        {
            return Some(filter.clone());
        }
        let factory = self.compaction_filter_factory.as_ref()?;
        if !factory.should_filter(context.reason) {
            return None;
        }
        factory.create(context).map(Arc::from)
    }

    /// Returns the merge operator, for an entry that needs one.
    ///
    /// # Errors
    /// No operator is configured, or OPTIONS names one that is neither built in nor supplied.
    #[inline]
    pub fn merge_operator(&self) -> Result<&Arc<dyn MergeOperator>> {
        self.merge_operator.as_ref().ok_or_else(|| {
            let name = Named(&self.name);
            let error = match self.options.merge_operator.text() {
                Some(text) => Error::not_supported(format!(
                    "column family {name:?} has the merge operator {text:?}, which is not built in; supply it with Options::merge_operator"
                )),
                None => Error::invalid_argument(format!(
                    "column family {name:?} has no merge operator, which every merge needs; supply it with Options::merge_operator"
                )),
            };
            match &self.described_in {
                Some(path) => error.in_context(path.display()),
                None => error,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_format::options::OptionSet;

    fn resolve(options: &str, manifest: Option<&str>, instances: Instances) -> Result<FamilyConfig> {
        let mut parsed = ColumnFamilyOptions::default();
        parsed.set_all(options).unwrap();
        FamilyConfig::resolve(ColumnFamilyId(3), "users", parsed, manifest, instances)
    }

    #[test]
    fn names_become_instances() {
        let options =
            "merge_operator={id=StringAppendOperator;delimiter=|;};prefix_extractor=rocksdb.FixedPrefix.4";
        let config =
            resolve(options, Some("rocksdb.ReverseBytewiseComparator"), Instances::default()).unwrap();
        assert_eq!(config.comparator.name(), "rocksdb.ReverseBytewiseComparator");
        assert_eq!(config.merge_operator().unwrap().name(), "StringAppendOperator");
        assert!(config.prefix_extractor.unwrap().has_name("rocksdb.FixedPrefix.4"));
        let config = resolve("comparator=rocksdb.Uint64Comparator", None, Instances::default()).unwrap();
        assert!(matches!(config.comparator, Comparator::Uint64));
    }

    #[test]
    fn what_is_unknown_is_named() {
        let error = resolve("", Some("my.Order"), Instances::default()).unwrap_err().to_string();
        assert!(error.contains("\"users\"") && error.contains("\"my.Order\""), "{error}");
        let timestamped = Some("leveldb.BytewiseComparator.u64ts");
        assert_eq!(resolve("", timestamped, Instances::default()).unwrap().comparator.timestamp_size(), 8);
        let error = resolve("persist_user_defined_timestamps=false", timestamped, Instances::default());
        let error = error.unwrap_err();
        assert!(error.to_string().contains("persist_user_defined_timestamps"), "{error}");
        let config =
            resolve("merge_operator=my.Op;prefix_extractor=my.Prefix", None, Instances::default()).unwrap();
        let error = config.merge_operator().unwrap_err().to_string();
        assert!(error.contains("\"users\"") && error.contains("\"my.Op\""), "{error}");
        assert!(config.prefix_extractor.is_none());
        let error = resolve("table_factory=PlainTable", None, Instances::default()).unwrap_err().to_string();
        assert!(error.contains("PlainTable"), "{error}");
    }

    #[test]
    fn what_is_supplied_wins() {
        let supplied = Instances {
            comparator: Some(Comparator::ReverseBytewise),
            merge_operator: merge_operator::from_name("max"),
            prefix_extractor: PrefixExtractor::from_name("capped:3"),
            ..Instances::default()
        };
        let defaults = Instances { comparator: Some(Comparator::Bytewise), ..Instances::default() };
        let config = resolve("merge_operator=my.Op", Some("my.Order"), supplied.or(&defaults)).unwrap();
        assert_eq!(config.comparator.name(), "rocksdb.ReverseBytewiseComparator");
        assert_eq!(config.merge_operator().unwrap().name(), "MaxOperator");
        assert!(config.prefix_extractor.unwrap().has_name("rocksdb.CappedPrefix.3"));
    }
}

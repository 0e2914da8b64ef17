//! Changing options while the database is open.
//!
//! In: names and values of RocksDB's `SetOptions` and `SetDBOptions`. Out: all options after the
//! change, checked and written to a new OPTIONS file; the caller applies them.
//!
//! Invariant: either all of the changes are made or none is. The OPTIONS file is written first, so
//! the options in effect are those that the next opening finds.

use super::ownership::{OptionsInForce, Ownership, write_options};
use super::{ReadHalf, check_options};
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_base::options::{BlockBasedTableOptions, DbOptions, FamilyConfig, Instances, OptionSet};
use karst_format::options::{did_you_mean, text};
use karst_storage::column_family::Family;
use std::sync::Arc;

/// Returns the options of the database after `changes`, written to OPTIONS. Blocks.
///
/// Lock: called under the lock that serializes changes of options.
pub(crate) fn change_db_options(
    read: &ReadHalf,
    ownership: &Ownership,
    changes: &[(&str, &str)],
) -> Result<DbOptions> {
    let now = read.db_options.get();
    let mut options = DbOptions::clone(&now);
    set_all(&mut options, changes, "the database")?;
    if (now.max_open_files < 0) != (options.max_open_files < 0) {
        return Err(Error::not_supported(
            "option max_open_files: a limit can be changed, but not added or removed, while the database is open",
        ));
    }
    check_options::database(&options)?;
    let in_force = OptionsInForce { db: Some(&options), family: None };
    write_options(read, ownership, &in_force)?;
    Ok(options)
}

/// Returns the configuration of a column family after `changes`, written to OPTIONS. Blocks.
///
/// Lock: like [`change_db_options`].
pub(crate) fn change_family_options(
    read: &ReadHalf,
    ownership: &Ownership,
    family: &Arc<Family>,
    changes: &[(&str, &str)],
) -> Result<Arc<FamilyConfig>> {
    let now = family.settings();
    let mut options = now.options.clone();
    set_all(&mut options, changes, &format!("column family {:?}", Named(&now.name)))?;
    if options.prefix_extractor != now.options.prefix_extractor {
        return Err(Error::not_supported(
            "option prefix_extractor: it cannot change while the database is open, because tables are read with it",
        ));
    }
    let instances = Instances {
        comparator: Some(now.comparator.clone()),
        merge_operator: now.merge_operator.clone(),
        prefix_extractor: now.prefix_extractor.clone(),
        compaction_filter: now.compaction_filter.clone(),
        compaction_filter_factory: now.compaction_filter_factory.clone(),
        sst_partitioner_factory: now.sst_partitioner_factory.clone(),
        collectors: now.supplied_collectors.clone(),
        // None, because the operator and the filters already apply it.
        ttl: None,
    };
    let asked = options.clone();
    let mut config = FamilyConfig::resolve(now.id, &now.name, options, None, instances)?;
    check_options::given(&now.options, &asked, &config)?;
    config.described_in.clone_from(&now.described_in);
    config.ttl.clone_from(&now.ttl);
    check_options::column_family(&read.db_options.get(), &config)?;
    let config = Arc::new(config);
    let in_force = OptionsInForce { db: None, family: Some(&config) };
    write_options(read, ownership, &in_force)?;
    Ok(config)
}

fn set_all<O: OptionSet>(options: &mut O, changes: &[(&str, &str)], whose: &str) -> Result<()> {
    if changes.is_empty() {
        return Err(Error::invalid_argument("the list of options to change is empty"));
    }
    for (name, value) in changes {
        let outer = name.split_once('.').map_or(*name, |(outer, _)| outer);
        let entry = O::entry(name).or_else(|| O::entry(outer));
        let Some(entry) = entry else {
            let near = did_you_mean(name, O::names());
            return Err(Error::invalid_argument(format!("option {name}: {whose} has no such option{near}")));
        };
        if !entry.info.mutable {
            let text = format!("option {name}: it cannot change while the database is open");
            return Err(Error::invalid_argument(text));
        }
        if entry.info.name == TABLE_FACTORY {
            check_table_options(name, value)?;
        }
        options
            .set(name, value)
            .map_err(|e| Error::with_source(ErrorKind::InvalidArgument, format!("option {e}"), e))?;
    }
    Ok(())
}

const TABLE_FACTORY: &str = "table_factory";

/// Returns an error for an option of tables that may not change while the database is open.
fn check_table_options(name: &str, value: &str) -> Result<()> {
    let parts = match name.split_once('.') {
        Some((_, part)) => vec![(part, value)],
        None => text::split(text::strip_braces(value))
            .map_err(|e| Error::with_source(ErrorKind::InvalidArgument, format!("option {name}: {e}"), e))?,
    };
    for (part, _) in parts {
        let mutable = BlockBasedTableOptions::entry(part).map(|entry| entry.info.mutable);
        let what = match mutable {
            Some(true) => continue,
            Some(false) => "it cannot change while the database is open".to_owned(),
            None => {
                let near = did_you_mean(part, BlockBasedTableOptions::names());
                format!("tables have no such option{near}")
            }
        };
        return Err(Error::invalid_argument(format!("option {name}, {part}: {what}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_base::options::ColumnFamilyOptions;

    fn changed(changes: &[(&str, &str)]) -> Result<ColumnFamilyOptions> {
        let mut options = ColumnFamilyOptions::default();
        set_all(&mut options, changes, "column family \"x\"").map(|()| options)
    }

    #[test]
    fn only_what_may_change_does() {
        let options = changed(&[
            ("write_buffer_size", "1234"),
            ("compaction_options_fifo", "{ttl=7}"),
            ("compression_opts.level", "3"),
            ("block_based_table_factory", "{block_size=999;format_version=5}"),
            ("table_factory.block_restart_interval", "3"),
        ])
        .unwrap();
        let table = &options.table_factory.block_based;
        assert_eq!((options.write_buffer_size, options.compression_opts.level), (1234, 3));
        assert_eq!((table.block_size, table.format_version, table.block_restart_interval), (999, 5, 3));
        let refused = [
            (("num_levels", "3"), "num_levels"),
            (("comparator", "x"), "comparator"),
            (("no_such_option", "3"), "no_such_option"),
            (("max_background_jobs", "3"), "max_background_jobs"),
            (("write_buffer_size", "many"), "write_buffer_size"),
            (("block_based_table_factory", "{filter_policy=bloomfilter:10}"), "filter_policy"),
            (("block_based_table_factory", "{block_sice=1}"), "block_sice"),
            (("table_factory", "PlainTable"), "table_factory"),
            (("expanded_compaction_factor", "1"), "expanded_compaction_factor"),
        ];
        for (change, named) in refused {
            let error = changed(&[("disable_auto_compactions", "true"), change]).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        assert!(changed(&[]).is_err());
        for (name, value, near) in [
            ("write_bufer_size", "1", "; did you mean `write_buffer_size`?"),
            ("compresion_opts.level", "1", "; did you mean `compression_opts.level`?"),
            ("compression_opts.levle", "1", "; did you mean `level`?"),
            ("compression_opts", "{levle=1}", "; did you mean `level`?"),
            ("table_factory.block_sice", "1", "; did you mean `block_size`?"),
            ("block_based_table_factory", "{block_sice=1}", "; did you mean `block_size`?"),
            ("colour", "1", "has no such option"),
        ] {
            let error = changed(&[(name, value)]).unwrap_err().to_string();
            assert!(error.ends_with(near), "{error}");
        }
    }
}

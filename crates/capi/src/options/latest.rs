//! Options of a database's last open, as its OPTIONS file has them.

use super::OptionsHandle;
use crate::boundary::*;
use crate::cache::{Cache, Environment};
use karstdb::format::{Comparator, PrefixExtractor};
use karstdb::options::{
    ColumnFamilyOptions, DbOptions, NamedCollectors, Object, OptionsFile, UnknownOptions, latest_options_file,
};
use karstdb::{
    Error, ErrorKind, FileChecksumGenCrc32cFactory, FileChecksumGenFactory, SstPartitionerFactory,
    SstPartitionerFixedPrefixFactory, compaction_filter, merge_operator,
};
use libc::c_char;
use std::path::Path;

fn load(path: &Path, env: &karstdb::io::Env, ignore_unknown: bool) -> karstdb::Result<OptionsFile> {
    let failed =
        |error: karstdb::io::Error| Error::new(ErrorKind::Io, format!("{}: {error}", path.display()));
    let names = env.fs().list_dir(path).map_err(failed)?;
    let Some(name) = latest_options_file(names.iter().map(String::as_str)) else {
        return Err(Error::new(ErrorKind::NotFound, format!("no OPTIONS file in {}", path.display())));
    };
    let bytes = env.fs().read_file(&path.join(name)).map_err(failed)?;
    let unknown = if ignore_unknown { UnknownOptions::Keep } else { UnknownOptions::RefuseUnlessNewer };
    OptionsFile::parse(&bytes, unknown)
        .map_err(|error| invalid(format!("{}: {error}", path.join(name).display())))
}

/// Removes objects that are not built in.
///
/// Compat: RocksDB loads such an object as none, or as the default; the caller, who has it, sets
/// it before it opens the database. An open without it fails where the object matters.
fn without_unknown_objects(mut family: ColumnFamilyOptions) -> ColumnFamilyOptions {
    let unless = |object: &mut Object, known: &dyn Fn(&str) -> bool| {
        if object.text().is_some_and(|text| !known(text)) {
            *object = Object::NONE;
        }
    };
    unless(&mut family.merge_operator, &|text| merge_operator::from_name(text).is_some());
    unless(&mut family.prefix_extractor, &|text| PrefixExtractor::from_name(text).is_some());
    unless(&mut family.compaction_filter, &|text| compaction_filter::from_name(text).is_some());
    unless(&mut family.compaction_filter_factory, &|_| false);
    let partitioner = family.sst_partitioner_factory.id().map(str::to_owned);
    unless(&mut family.sst_partitioner_factory, &|_| {
        partitioner.as_deref() == Some(SstPartitionerFixedPrefixFactory { length: 0 }.name())
    });
    let defaults = ColumnFamilyOptions::default();
    if family.comparator.id().is_none_or(|name| Comparator::from_name(name).is_none()) {
        family.comparator = defaults.comparator;
    }
    if !NamedCollectors::in_option_text(&family.table_properties_collectors.0).unknown.is_empty() {
        family.table_properties_collectors = defaults.table_properties_collectors;
    }
    family
}

/// Removes a checksum factory that is not built in from the database's options.
fn without_unknown_factory(mut db: DbOptions) -> DbOptions {
    if db.file_checksum_gen_factory.id().is_some_and(|name| name != FileChecksumGenCrc32cFactory.name()) {
        db.file_checksum_gen_factory = Object::NONE;
    }
    db
}

capi! {
    attempt rocksdb_load_latest_options(dir: *const c_char, env: *const Environment, ignore_unknown_options: bool, cache: *const Cache, db_options: *mut *mut OptionsHandle, count: *mut usize, names: *mut *mut *mut c_char, family_options: *mut *mut *mut OptionsHandle) {
        put(db_options, std::ptr::null_mut());
        put(names, std::ptr::null_mut());
        put(family_options, std::ptr::null_mut());
        put(count, 0);
        let own_env = env.as_ref().map(|env| env.0.clone());
        let file = load(path(dir)?, &OptionsHandle::env_of(env), ignore_unknown_options)?;
        let cache = cache.as_ref().map(|cache| cache.0.clone());
        let db = without_unknown_factory(file.db.clone());
        let with = |family: &ColumnFamilyOptions| OptionsHandle {
            db: db.clone(),
            family: without_unknown_objects(family.clone()),
            env: own_env.clone(),
            block_cache: cache.clone(),
            ..OptionsHandle::default()
        };
        let families = &file.column_families;
        let default = file.column_family("default").cloned().unwrap_or_default();
        put(db_options, give(with(&default)));
        put(count, families.len());
        put(names, array_out(&families.iter().map(|family| text_out(&family.name)).collect::<Vec<_>>()));
        put(family_options, array_out(&families.iter().map(|family| give(with(&family.options))).collect::<Vec<_>>()));
        Ok(())
    }
    call rocksdb_load_latest_options_destroy(db_options: *mut OptionsHandle, names: *mut *mut c_char, family_options: *mut *mut OptionsHandle, count: usize) {
        end(db_options);
        for name in list(names, count) { libc::free((*name).cast()) }
        for options in list(family_options, count) { end(*options) }
        libc::free(names.cast());
        libc::free(family_options.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_stays_and_what_is_not_goes() {
        let loaded = |collectors: &str| {
            let mut family = ColumnFamilyOptions::default();
            family.table_properties_collectors.0 = collectors.to_owned();
            without_unknown_objects(family).table_properties_collectors.0
        };
        let one = "{id=CompactOnDeletionCollector;window_size=128;deletion_trigger=50}";
        let two = format!("{{{one}:{{id=CompactForTieringCollector}}}}");
        for known in ["", one, &two] {
            assert_eq!(loaded(known), known);
        }
        assert_eq!(loaded("my.Own"), "");
        assert_eq!(loaded(&format!("{one}:my.Own")), "");
    }
}

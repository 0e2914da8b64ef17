//! Creating and dropping column families while a database is open.
//!
//! In: a name and options, or a family. Out: the change in the MANIFEST, then in the set of open
//! families; OPTIONS is rewritten.
//!
//! Invariant: a family is in the MANIFEST before it can be written, and out of it before its files
//! are removed. Reads that hold a dropped family continue.

use super::load::make_family;
use super::options::{Options, new_family_options};
use super::ownership::{OptionsInForce, Ownership, write_options};
use super::{ReadHalf, check_options};
use crate::claims::Claimant;
use crate::versions::{Change, Versions};
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_base::options::{DbOptions, FamilyConfig};
use karst_format::ids::ColumnFamilyId;
use karst_format::version_edit::VersionEdit;
use karst_io::block_on;
use karst_lsm::Version;
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Creates column families and rewrites OPTIONS once. Blocks. Either all are created or none is,
/// unless the MANIFEST cannot be written; then some may be.
pub(crate) fn create_column_families(
    read: &ReadHalf,
    ownership: &Ownership,
    names: &[&str],
    options: &Options,
) -> Result<Vec<Arc<Family>>> {
    let families = create(read, ownership, names, options)?;
    if !families.is_empty() {
        options_behind_change(read, ownership)?;
    }
    Ok(families)
}

/// Returns a column family that is not created yet, and the edit that creates it. Blocks: it
/// creates the family's directories.
///
/// # Errors
/// The name is in use, or the family cannot be created.
pub(crate) fn column_family_to_be(
    read: &ReadHalf,
    ownership: &Ownership,
    name: &str,
    options: &Options,
) -> Result<(Arc<Family>, VersionEdit)> {
    check_names(read, &[name])?;
    new_family(read, &ownership.versions, name, options)
}

/// Drops a column family and rewrites OPTIONS. Blocks.
pub(crate) fn drop_column_family(read: &ReadHalf, ownership: &Ownership, family: &Arc<Family>) -> Result<()> {
    let id = family.id();
    if id == ColumnFamilyId::DEFAULT {
        return Err(Error::invalid_argument("the default column family cannot be dropped"));
    }
    let edit = VersionEdit { column_family: id, column_family_drop: true, ..VersionEdit::default() };
    block_on(&read.env, ownership.versions.install(Change::edit(edit)))?;
    options_behind_change(read, ownership)
}

/// Creates column families, without OPTIONS.
///
/// All are submitted before the first is awaited, because concurrent edits share a sync of the
/// MANIFEST.
pub(super) fn create(
    read: &ReadHalf,
    ownership: &Ownership,
    names: &[&str],
    options: &Options,
) -> Result<Vec<Arc<Family>>> {
    let versions = &ownership.versions;
    check_names(read, names)?;
    let new = names.iter().map(|name| new_family(read, versions, name, options));
    let new = new.collect::<Result<Vec<_>>>()?;
    let changes = new.iter().map(|(family, edit)| {
        let created = Some(family.clone());
        Change { created, ..Change::edit(edit.clone()) }
    });
    let outcomes = versions.install_together(changes).into_iter().map(|new| block_on(&read.env, new));
    outcomes.fold(Ok(()), Result::and)?;
    Ok(new.into_iter().map(|(family, _)| family).collect())
}

/// Returns an error for a name that is in use or given twice.
fn check_names(read: &ReadHalf, names: &[&str]) -> Result<()> {
    let mut known: BTreeSet<String> =
        read.families.all().iter().map(|family| family.config.name.clone()).collect();
    for name in names {
        if !known.insert((*name).to_owned()) {
            let name = Named(name);
            return Err(Error::invalid_argument(format!("Column family already exists: {name:?}")));
        }
    }
    Ok(())
}

/// Returns the configuration of a new column family.
///
/// # Errors
/// The options are invalid.
pub(super) fn new_config(
    db_options: &DbOptions,
    id: ColumnFamilyId,
    name: &str,
    options: &Options,
) -> Result<FamilyConfig> {
    let asked = options.family_options(new_family_options(), name)?;
    let instances = options.instances_for(name);
    let config = FamilyConfig::resolve(id, name, asked.clone(), None, instances)?;
    check_options::new_family(db_options, &asked, &config)?;
    Ok(config)
}

/// Returns a column family that is in no MANIFEST yet, and the edit that adds it.
fn new_family(
    read: &ReadHalf,
    versions: &Versions,
    name: &str,
    options: &Options,
) -> Result<(Arc<Family>, VersionEdit)> {
    let id = versions.new_family_id()?;
    let config = new_config(&read.db_options.get(), id, name, options)?;
    if let Some(default) = read.families.get(ColumnFamilyId::DEFAULT) {
        // Without a lock, because a family's cache does not change while the database is open.
        check_options::block_cache(&default.config, &config)?;
    }
    let config = Arc::new(config);
    let memtable = Arc::new(MemTable::of(&config));
    let levels = usize::try_from(config.options.num_levels).unwrap_or(1);
    let version = Arc::new(Version::empty(config.comparator.clone(), levels));
    let database = read.families.all().first().map_or(0, |family| family.database);
    let shared = options.shared_of(&read.shared, name)?;
    for directory in &shared.directories {
        if !Arc::ptr_eq(&shared, &read.shared) {
            read.env.fs().create_dir_durably(directory)?;
        }
    }
    let claimant = Claimant { path: &read.path, id: Some(&versions.identity().db_id) };
    versions.obsolete().claims().add(&read.env, claimant, shared.directories.iter().cloned())?;
    let family = make_family(database, config, &shared, memtable, version, options);
    let edit = VersionEdit {
        column_family: id,
        column_family_add: Some(name.to_owned()),
        comparator: Some(family.config.comparator.name().to_owned()),
        ..VersionEdit::default()
    };
    Ok((family, edit))
}

/// Rewrites OPTIONS after a change that has happened; an error states that the change is in effect.
pub(crate) fn options_behind_change(read: &ReadHalf, ownership: &Ownership) -> Result<()> {
    let _changing = ownership.changing_options.lock();
    let open = read.life.check();
    let written = open.and_then(|()| write_options(read, ownership, &OptionsInForce::default()));
    written.map_err(|e| match e.kind().is_io() || e.kind() == ErrorKind::Closed {
        true => e.in_context("the change is made, but OPTIONS could not be written"),
        false => e,
    })
}

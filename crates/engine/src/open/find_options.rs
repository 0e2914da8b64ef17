//! Finding the options of an opening: those of the OPTIONS file, or of its replacement, changed by
//! the caller.
//!
//! In: the directory, the column families that the MANIFEST has, and the caller's [`Options`]. Out:
//! [`FoundOptions`], or an error that names a remedy.
//!
//! If the newest OPTIONS file cannot be read, or has invalid options, [`DamagedOptions`] decides:
//!
//! | `damaged_options` | source of the options |
//! |---|---|
//! | `Refuse` | none: the error names an older file that is readable, if there is one, and the option that opens without a file |
//! | `UseOlder` | the newest older OPTIONS file that is readable |
//! | `Ignore` | no file: RocksDB's defaults and the caller's changes |
//!
//! LOG records the replacement, and so does the OPTIONS file that the opening writes. The key order
//! of a column family always comes from the MANIFEST.
//!
//! Invariant: an invalid option is refused if a caller sets it, and corrected if a file already has
//! it, so that a database that was opened once can be opened again.

use super::directory::Directory;
use super::manifest::Manifest;
use super::options::{DamagedOptions, Options, new_family_options};
use super::wanted::Wanted;
use super::{check_options, option_rules};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::{ColumnFamilyOptions, DbOptions, FamilyConfig};
use karst_format::file_name::FileName;
use karst_format::ids::ColumnFamilyId;
use karst_format::options::OptionsFile;
use karst_io::report;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Purpose of the opening, which the options must allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Reading,
    /// Following the writes of another process.
    Following,
    Writing,
}

/// Options for the opening.
#[derive(Debug)]
pub(crate) struct FoundOptions {
    pub(crate) db_options: DbOptions,
    /// Configurations of the column families to open.
    pub(crate) configs: BTreeMap<ColumnFamilyId, Arc<FamilyConfig>>,
    /// Notes about the options for LOG.
    pub(crate) notes: Vec<String>,
}

/// Search for options: its sources, and its parameters.
pub(crate) struct Search<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) manifest: &'a Manifest,
    pub(crate) options: &'a Options,
    pub(crate) wanted: Wanted<'a>,
    pub(crate) purpose: Purpose,
}

impl Search<'_> {
    /// Finds the options.
    pub(crate) fn find(&self) -> Result<FoundOptions> {
        let files = self.directory.options_files();
        let Some((newest, older)) = files.split_first().filter(|_| self.options.reads_options_file()) else {
            return self.settle(None);
        };
        let (error, reads) = match self.read(*newest) {
            Ok(file) => match self.settle(Some((*newest, &file))) {
                Ok(found) => return Ok(found),
                Err(error) => (error, true),
            },
            // The file existed when the directory was listed, so the process that writes to the
            // database has removed it since.
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            Err(error) => (error, false),
        };
        // If the options are invalid without the file too, the file is not the cause.
        if reads && self.settle(None).is_err() {
            return Err(error);
        }
        let error = if reads { error.in_context(self.directory.file(*newest).display()) } else { error };
        let of_older = |name: &FileName| {
            let file = self.read(*name).ok()?;
            Some((*name, self.settle(Some((*name, &file))).ok()?))
        };
        let older = older.iter().find_map(of_older);
        let (mut found, taken) = match (self.options.damaged_options_choice(), older) {
            (DamagedOptions::UseOlder, Some((name, found))) => (found, name.to_string()),
            (DamagedOptions::Ignore, _) => (self.settle(None)?, "the defaults".to_owned()),
            (_, older) => return Err(error.with_advice(way_out(older.map(|(name, _)| name)))),
        };
        let why = error.context();
        let note = format!(
            "options come from {taken} and the caller, as the newest OPTIONS file cannot be used: {why}"
        );
        report!(warn, "{note}");
        found.notes.push(note);
        Ok(found)
    }

    fn read(&self, name: FileName) -> Result<OptionsFile> {
        self.options.parse_file(&self.directory.file(name), &self.directory.read(name)?)
    }

    /// Returns the options that follow from a file, or from none, or an error if they are invalid.
    fn settle(&self, file: Option<(FileName, &OptionsFile)>) -> Result<FoundOptions> {
        let mut notes = Vec::new();
        let mut db_options = file.map(|(_, file)| file.db.clone()).unwrap_or_default();
        for what in option_rules::mend_database(&mut db_options) {
            notes.push(not_followed(&what));
        }
        let db_options = self.options.db_options(db_options)?;
        if let Some(what) = option_rules::wrong_of_database(&db_options) {
            return Err(Error::invalid_argument(format!("option {what}")));
        }
        let configs = self.configure(file, &db_options)?;
        if let Some(default) = configs.get(&ColumnFamilyId::DEFAULT) {
            configs.values().try_for_each(|config| check_options::block_cache(default, config))?;
        }
        if self.purpose == Purpose::Writing {
            check_options::database(&db_options)?;
            self.options.file_checksums(&db_options)?;
            configs.values().try_for_each(|config| check_options::column_family(&db_options, config))?;
        }
        Ok(FoundOptions { db_options, configs, notes })
    }

    /// Returns the options and instances of every column family to open.
    fn configure(
        &self,
        file: Option<(FileName, &OptionsFile)>,
        db_options: &DbOptions,
    ) -> Result<BTreeMap<ColumnFamilyId, Arc<FamilyConfig>>> {
        let in_file = file.map_or(&[][..], |(_, file)| &file.column_families);
        let in_file: BTreeMap<&str, &ColumnFamilyOptions> =
            in_file.iter().map(|family| (&*family.name, &family.options)).collect();
        let described_in: PathBuf =
            file.map_or_else(|| self.manifest.path.clone(), |(name, _)| self.directory.file(name));
        let mut configs = BTreeMap::new();
        let opens = self.wanted.opened();
        for found in self.manifest.replay.column_families().filter(|found| opens(found.name)) {
            let mut notes = Vec::new();
            let mut said = in_file.get(found.name).copied().cloned();
            let instances = self.options.instances_for(found.name);
            match (&mut said, file) {
                (Some(said), _) => {
                    let asked = self.options.family_options(said.clone(), found.name)?;
                    let has_prefixes = instances.prefix_extractor_for(&asked).is_some();
                    let mended = option_rules::mend(db_options, said, has_prefixes).into_iter();
                    notes.extend(mended.map(|what| not_followed(&what)));
                }
                (None, Some((name, _))) => notes.push(format!(
                    "{name} does not describe the column family; its options are the defaults"
                )),
                (None, None) => {}
            }
            let said = said.unwrap_or_else(new_family_options);
            let options = self.options.family_options(said.clone(), found.name)?;
            let asked = options.clone();
            let mut config =
                FamilyConfig::resolve(found.id, found.name, options, found.comparator, instances)
                    .map_err(|e| e.in_context(self.manifest.path.display()))?;
            check_options::given(&said, &asked, &config)?;
            config.described_in = Some(described_in.clone());
            config.notes.append(&mut notes);
            configs.insert(found.id, Arc::new(config));
        }
        Ok(configs)
    }
}

fn not_followed(what: &str) -> String {
    format!("option changed from its value in OPTIONS: {what}")
}

/// Returns advice for a newest OPTIONS file that cannot be used.
fn way_out(older: Option<FileName>) -> String {
    let without = "with damaged_options = Ignore (tools: --damaged_options=ignore) the database is opened without an OPTIONS file, with the caller's options";
    match older {
        Some(older) => format!(
            "with damaged_options = UseOlder (tools: --damaged_options=use_older) the database is opened with {older}, which can be used; {without}"
        ),
        None => format!("no older OPTIONS file can be used; {without}"),
    }
}
